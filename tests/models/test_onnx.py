"""Exported graphs say what the model says, on whatever a file may hold."""

from dataclasses import replace

import numpy as np
import onnx
import onnxruntime
import pytest

from models.clinics import CLINIC, cells, encoded_one_by_one, model_of
from schema.samples import SCHEMA
from sottovoce.errors import InputError, UnsupportedError
from sottovoce.files.models.onnx_graph import to_onnx
from sottovoce.files.schema import Schema
from sottovoce.problem.losses import Huber, Logistic, SmoothedHinge, Softmax

rng = np.random.default_rng(0)


def run(made, feed):
    session = onnxruntime.InferenceSession(made.SerializeToString(), providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    return dict(zip(names, session.run(None, feed), strict=True))


def fed(columns, schema):
    """The same cells as a graph takes them."""
    feed = {}
    for column in schema.columns:
        texts = columns[column.name]
        if column.kind() == "numeric":
            numbers = [np.nan if t in schema.missing_values else float(t) for t in texts]
            feed[column.name] = np.array(numbers)[:, None]
        else:
            feed[column.name] = np.array(texts, dtype=object)[:, None]
    return feed


@pytest.mark.parametrize("row_norm", ["bound", 1.2])
@pytest.mark.parametrize(
    ("loss", "classes"),
    [
        (Logistic(), ("well", "ill")),
        (SmoothedHinge(), ("well", "ill")),
        (Softmax(3), ("a", "b", "c")),
        (Huber(0.5), None),
    ],
    ids=lambda x: getattr(x, "name", ""),
)
def test_raw_columns_go_in_and_the_model_s_answers_come_out(loss, classes, row_norm, tmp_path):
    schema = replace(CLINIC, row_norm=row_norm)
    model = model_of(schema, loss, classes, offset=3.0 if classes is None else 0.0)
    columns = cells()
    found, rows = run(to_onnx(model), fed(columns, schema)), encoded_one_by_one(columns, schema, tmp_path)
    used = np.array([row is not None for row in rows])
    assert 50 < used.sum() < 350
    assert np.array_equal(found["valid"], used)
    features = np.array([row for row in rows if row is not None])
    np.testing.assert_allclose(found["scores"][used], model.outputs(features), rtol=1e-12, atol=1e-12)
    assert np.isnan(found["scores"][~used]).all()
    if classes is None:
        assert set(found) == {"scores", "valid"}
        return
    said = [classes[int(i)] for i in model.decide(features)]
    assert found["label"][used].tolist() == said
    assert set(found["label"][~used].tolist()) == {""}
    assert ("probabilities" in found) == model.has_probabilities
    if model.has_probabilities:
        np.testing.assert_allclose(found["probabilities"][used], model.probabilities(features), rtol=1e-12, atol=1e-12)


def test_a_matrix_goes_in_where_there_is_no_schema_or_it_is_asked_for():
    model = model_of(None, d=4)
    x = rng.normal(size=(50, 4))
    found = run(to_onnx(model), {"features": x})
    np.testing.assert_allclose(found["probabilities"], model.probabilities(x), rtol=1e-12)
    assert found["label"].tolist() == [("well", "ill")[int(i)] for i in model.decide(x)]
    own = model_of()
    x = rng.normal(size=(7, own.d))
    np.testing.assert_allclose(run(to_onnx(own, "features"), {"features": x})["scores"], own.outputs(x), rtol=1e-12)


def test_the_promise_goes_along(tmp_path):
    model = model_of()
    onnx.save(to_onnx(model), tmp_path / "m.onnx")
    props = {p.key: p.value for p in onnx.load(tmp_path / "m.onnx").metadata_props}
    assert props["privacy"] == model.privacy.prose()
    assert props["unit"] == model.privacy.unit.words
    assert float(props["epsilon"]) == model.privacy.promised
    assert props["features"].split("\n") == list(model.names)


DATES = """
[label]
column = "ill"
classes = ["no", "yes"]
[[columns]]
name = "born"
kind = "age"
on = "2025-01-31"
bounds = [0, 100]
scale = "unit"
"""


def test_what_no_graph_can_do_is_refused_by_name():
    dates = Schema.loads(DATES)
    with pytest.raises(UnsupportedError, match=r"dates in column 'born'. Use inputs='features'"):
        to_onnx(model_of(dates), "columns")
    assert [i.name for i in to_onnx(model_of(dates)).graph.input] == ["features"]
    with pytest.raises(UnsupportedError, match="no schema"):
        to_onnx(model_of(None, d=2), "columns")
    with pytest.raises(InputError, match="inputs among columns, features"):
        to_onnx(model_of(), "rows")


COMPARED = """
intercept = true
row_norm = "bound"
missing_values = ["", "?", "-9"]
[label]
column = "outcome"
classes = ["well", "ill"]
[[columns]]
name = "age"
kind = "numeric"
bounds = [0, 100]
edges = [20, 40, 60]
reference = 30
missing = "indicator"
[[columns]]
name = "weight"
kind = "numeric"
bounds = [10, 60]
edges = [30, 60]
reference = 10
missing = "fill"
fill = 59
[[columns]]
name = "dose"
kind = "numeric"
bounds = [-10, 10]
scale = "symmetric"
missing = "row"
[[columns]]
name = "ward"
kind = "categorical"
categories = ["north", "south", "east"]
reference = "south"
other = true
missing = "indicator"
[[columns]]
name = "code"
kind = "categorical"
categories = ["1", "2"]
reference = "1"
missing = "fill"
fill = "1"
[[columns]]
name = "smoker"
kind = "boolean"
missing = "refuse"
"""


def test_reference_levels_and_numbers_that_mean_missing_come_out_as_from_a_file(tmp_path):
    schema, draw, rows = Schema.loads(COMPARED), rng.choice, 500
    columns = {
        "age": draw(["0", "19.9", "20", "30", "40", "59.9", "60", "100", "150", "-5", "", "?", "-9"], rows),
        "weight": draw(["10", "29.9", "30", "60", "99", "?", "-9"], rows),
        "dose": draw(["0", "-10", "10", "2.5", "-9"], rows, p=[0.3, 0.2, 0.2, 0.2, 0.1]),
        "ward": draw(["north", "south", "east", "west", "", "-9"], rows),
        "code": draw(["1", "-9", "2", "3"], rows, p=[0.4, 0.2, 0.3, 0.1]),
        "smoker": draw(["yes", "no", "?"], rows, p=[0.5, 0.4, 0.1]),
    }
    model = model_of(schema)
    found, one_by_one = run(to_onnx(model), fed_numbers(columns, schema)), encoded_one_by_one(columns, schema, tmp_path)
    used = np.array([row is not None for row in one_by_one])
    assert 100 < used.sum() < 450
    assert np.array_equal(found["valid"], used)
    features = np.array([row for row in one_by_one if row is not None])
    np.testing.assert_allclose(found["scores"][used], model.outputs(features), rtol=1e-12, atol=1e-12)


TERMS = """
[[terms]]
kind = "interaction"
columns = ["age", "ward"]
[[terms]]
kind = "interaction"
columns = ["smoker", "dose"]
[[terms]]
kind = "spline"
column = "age"
knots = [0, 30, 50, 95]
[[terms]]
kind = "spline"
column = "dose"
knots = [-4, 0, 4]
"""
JOINED = Schema.loads(SCHEMA.replace('scale = "unit"', 'scale = "unit"\nmissing = "indicator"') + TERMS)


@pytest.mark.parametrize(("row_norm", "loss"), [("bound", Logistic()), (1.2, Softmax(3))])
def test_interactions_and_splines_come_out_as_from_a_file(row_norm, loss, tmp_path):
    schema = replace(JOINED, row_norm=row_norm)
    model = model_of(schema, loss, ("a", "b", "c")[: max(2, loss.outputs)])
    columns = cells()
    found, rows = run(to_onnx(model), fed(columns, schema)), encoded_one_by_one(columns, schema, tmp_path)
    used = np.array([row is not None for row in rows])
    assert 100 < used.sum() < 350
    assert np.array_equal(found["valid"], used)
    features = np.array([row for row in rows if row is not None])
    assert (np.abs(features).sum(axis=0) > 0).all()
    np.testing.assert_allclose(found["scores"][used], model.outputs(features), rtol=1e-11, atol=1e-12)


def fed_numbers(columns, schema):
    """As `fed`, but what a table of numbers cannot tell from a number stays one: a graph must know that -9 is none."""
    feed = fed(columns, schema)
    for column in (c for c in schema.columns if c.kind() == "numeric"):
        marked = np.array(columns[column.name]) == "-9"
        feed[column.name][marked] = -9.0
    return feed
