"""Models as scikit-learn's own, and tables of other libraries in and out."""

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.svm import LinearSVC
from sklearn.utils.validation import check_is_fitted

import sottovoce as sv
from models.test_onnx import CLINIC, model_of
from schema.samples import FILE as SAMPLE
from sottovoce.errors import InputError
from sottovoce.files import models
from sottovoce.files.models import apply
from sottovoce.files.schema import Schema, files
from sottovoce.files.schema.check import check
from sottovoce.problem import graphs
from sottovoce.problem.losses import Absolute, Hinge, Huber, Logistic, SmoothedHinge, Softmax
from sottovoce.problem.problem import Problem
from sottovoce.settings import plain

rng = np.random.default_rng(1)
FILE = SAMPLE + "50,0,130,,A,yes,ill\n"  # a row that is dropped, since its ward is missing


@pytest.mark.parametrize(
    ("loss", "classes", "kind"),
    [
        (Logistic(), ("a", "b"), LogisticRegression),
        (Softmax(4), ("a", "b", "c", "d"), LogisticRegression),
        (SmoothedHinge(), ("a", "b"), LinearSVC),
        (Hinge(), ("a", "b"), LinearSVC),
        (Huber(0.3), None, LinearRegression),
        (Absolute(), None, LinearRegression),
    ],
    ids=lambda x: getattr(x, "name", ""),
)
def test_scikit_learn_s_own_estimator_says_the_same(loss, classes, kind):
    model = model_of(None, loss, classes, d=5, offset=2.5 if classes is None else 0.0)
    made, x = models.to_sklearn(model), rng.normal(size=(300, 5))
    assert type(made) is kind
    check_is_fitted(made)
    said = model.decide(x)
    if classes is None:
        np.testing.assert_allclose(made.predict(x), said, rtol=1e-12)
    else:
        assert made.predict(x).tolist() == [classes[int(i)] for i in said]
        z = model.outputs(x)
        np.testing.assert_allclose(made.decision_function(x), z if z.shape[1] > 1 else z[:, 0], rtol=1e-12)
    if model.has_probabilities:
        np.testing.assert_allclose(made.predict_proba(x), model.probabilities(x), rtol=1e-9, atol=1e-12)
    assert made.privacy_ == plain(model.privacy)


def frames():
    """The sample file as tables: typed, with gaps, and with a category type."""
    lines = [line.split(",") for line in FILE.strip().split("\n")]
    texts = pd.DataFrame(lines[1:], columns=lines[0])
    typed = texts.copy()
    for name in ("age", "dose", "pressure"):
        typed[name] = pd.to_numeric(texts[name].replace(["", "?", "NA"], None))
    return texts, typed


def kinds(frame):
    arrow = pa.Table.from_pandas(frame, preserve_index=False)
    yield frame
    yield frame.astype({"ward": "category", "blood": "category"})
    yield pl.from_arrow(arrow)
    yield arrow
    yield arrow.to_batches()[0]


@pytest.fixture
def path(tmp_path):
    place = tmp_path / "rows.csv"
    place.write_text(FILE)
    return place


def test_tables_in_memory_are_read_as_files_are(path):
    expected = files.encode(path, CLINIC)
    for frame in frames():
        for table in kinds(frame):
            data = files.encode(table, CLINIC)
            assert (data.features != expected.features).nnz == 0
            assert np.array_equal(data.labels, expected.labels)
            assert data.private
            assert check(table, CLINIC).used == len(expected)
    problem = Problem.from_file(pl.from_pandas(frames()[1]), CLINIC, graphs.complete, nodes=1)
    assert sv.simulate(sv.MaskedNewton(rounds=2), problem.sites, problem.graph).privacy.private


def test_predictions_come_as_the_kind_that_came_in(path):
    model = model_of(CLINIC)
    by_file = list(apply.predict(model, path))
    rows = np.concatenate([chunk.rows for chunk in by_file]) - 1
    said = np.array(model.classes)[np.concatenate([chunk.decided for chunk in by_file]).astype(int)]
    likely = np.concatenate([chunk.probabilities for chunk in by_file])
    frame = frames()[1]
    frame.index = [f"r{i}" for i in range(len(frame))]
    for table in kinds(frame):
        found = models.predict_table(model, table)
        wanted = pa.Table if isinstance(table, pa.RecordBatch) else type(table)
        assert type(found) is wanted
        columns = found if isinstance(found, pd.DataFrame) else pa.table(found).to_pandas()
        assert list(columns) == ["prediction", "probability well", "probability ill"]
        assert len(columns) == len(frame)
        assert columns["prediction"].iloc[rows].tolist() == said.tolist()
        np.testing.assert_allclose(columns["probability ill"].iloc[rows], likely[:, 1], rtol=1e-12)
        dropped = np.setdiff1d(np.arange(len(frame)), rows)
        assert len(dropped) > 0
        assert columns["prediction"].iloc[dropped].isna().all()
        if isinstance(found, pd.DataFrame):
            assert found.index.tolist() == frame.index.tolist()


NUMBER = """
[label]
column = "cost"
bounds = [0, 10]
[[columns]]
name = "age"
kind = "numeric"
bounds = [0, 100]
scale = "unit"
missing = "row"
"""


def test_numbers_are_predicted_as_numbers():
    model = model_of(Schema.loads(NUMBER), Huber(0.3), None, offset=5.0)
    found = models.predict_table(model, pl.DataFrame({"age": [10.0, None, 30.0]}))
    assert found.columns == ["prediction"]
    assert found["prediction"].null_count() == 1
    assert found["prediction"].dtype == pl.Float64


def test_what_is_no_table_is_refused():
    model = model_of(CLINIC)
    for odd in ([1, 2], {"age": [1]}, np.zeros((2, 2)), 7):
        with pytest.raises(InputError, match=r"or a pandas, polars or Arrow table, got .*Convert it"):
            models.predict_table(model, odd)
    with pytest.raises(InputError, match="Expected a column 'dose'"):
        models.predict_table(model, pd.DataFrame({"age": [1.0]}))
    with pytest.raises(InputError, match="in row 1, column 'blood'"):
        models.predict_table(model, frames()[1].assign(blood="Z"))
    with pytest.raises(InputError, match="a model with a schema"):
        models.predict_table(model_of(None, d=2), pd.DataFrame({"age": [1.0]}))
