"""Tables of coefficients: units, forms, files, and what leads to them."""

import csv
import io
import json
import math

import numpy as np
import pytest

import sottovoce as sv
from sottovoce.cli import main
from sottovoce.errors import InputError
from sottovoce.estimators import PrivateLogisticRegression
from sottovoce.files import models
from sottovoce.files.models.inference import CoefficientLine, Inference, line_of
from sottovoce.files.schema import Schema
from sottovoce.files.schema.inference import obstacles, remarks, require_inferable

SCHEMA = """
version = 1
[label]
column = "y"
classes = ["no", "yes"]
[[columns]]
name = "age"
kind = "numeric"
bounds = [20, 60]
scale = "symmetric"
[[columns]]
name = "colour"
kind = "categorical"
categories = ["red", "green"]
reference = "red"
[[columns]]
name = "twin"
kind = "numeric"
bounds = [20, 60]
scale = "symmetric"
"""
ROWS, SLOPE, GREEN, CONSTANT = 20_000, 0.08, -1.0, -2.5


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A run by the command line on a file with two equal columns."""
    place, rng = tmp_path_factory.mktemp("inferred"), np.random.default_rng(0)
    age, green = rng.uniform(20, 60, size=ROWS).round(2), rng.random(ROWS) < 0.5
    yes = rng.random(ROWS) < 1 / (1 + np.exp(-(CONSTANT + SLOPE * age + GREEN * green)))
    lines = [
        f"{x},{'green' if g else 'red'},{x},{'yes' if y else 'no'}" for x, g, y in zip(age, green, yes, strict=True)
    ]
    (place / "rows.csv").write_text("age,colour,twin,y\n" + "\n".join(lines) + "\n")
    (place / "twin.toml").write_text(SCHEMA)
    (place / "schema.toml").write_text(SCHEMA[: SCHEMA.rindex("[[columns]]")])
    for name in ("schema", "twin"):
        given = ["--data", str(place / "rows.csv"), "--schema", str(place / f"{name}.toml"), "--algorithm", "masked"]
        asked = ["--inference", "--nodes", "5", "--epsilon", "4", "--out", str(place / name), "--quiet"]
        assert main(["train", *given, *asked]) == 0
    return place


def test_coefficients_are_in_the_units_of_the_columns(folder):
    table = models.load(folder / "schema" / "model.safetensors").inference
    assert [line.name for line in table.lines] == ["age", "colour=green", "intercept"]
    for line, truth in zip(table.lines, (SLOPE, GREEN, CONSTANT), strict=True):
        assert line.identified
        assert abs(line.estimate - truth) < 4.5 * line.error
        assert line.error < 0.15 * abs(truth)
        assert line.low < line.estimate < line.high
        assert line.ratio == pytest.approx(math.exp(line.estimate))
        assert line.z == pytest.approx(line.estimate / line.error)
    assert sum(table.budget.values()) == pytest.approx(1)
    assert table.rows == ROWS


def test_what_no_rows_can_tell_has_a_wide_interval_and_a_mark(folder):
    table = models.load(folder / "twin" / "model.safetensors").inference
    assert set(table.unidentified) >= {"age", "twin"}
    by_name = {line.name: line for line in table.lines}
    assert by_name["age"].supposed
    assert by_name["age"].low < SLOPE / 2 < by_name["age"].high  # each of the two has half of it, or any other part
    assert by_name["age"].error > 10 * by_name["colour=green"].error * abs(SLOPE / GREEN)
    assert by_name["colour=green"].identified
    shown = table.text()
    assert "* Not identified at this budget: age, twin" in shown
    assert "\n* age" in shown
    assert "\ncolour=green" in shown


def test_the_command_shows_it_as_text_json_and_csv(folder, capsys):
    path = str(folder / "schema" / "model.safetensors")
    table = models.load(folder / "schema" / "model.safetensors").inference
    assert main(["coefficients", path]) == 0
    shown = capsys.readouterr().out
    for word in ("Private logistic regression", "age", "P>|z|", "odds ratio", "y = yes", "epsilon = 4", " % Hessian"):
        assert word in shown
    assert main(["coefficients", path, "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert data["lines"][0]["estimate"] == table.lines[0].estimate
    assert main(["coefficients", path, "--csv"]) == 0
    lines = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert float(lines[1]["error"]) == table.lines[1].error
    assert main(["coefficients", path, "--csv", "--json"]) == 2
    assert "one of --json and --csv" in capsys.readouterr().err


def test_the_report_draws_it(folder):
    assert main(["report", str(folder / "schema")]) == 0
    page = (folder / "schema" / "report.html").read_text()
    assert "Coefficients with intervals" in page
    assert "All standard errors" in page


def test_a_model_that_nobody_asked_of_says_what_to_do(folder, tmp_path, capsys):
    given = ["--data", str(folder / "rows.csv"), "--schema", str(folder / "schema.toml")]
    assert main(["train", *given, "--nodes", "5", "--out", str(tmp_path / "run"), "--quiet"]) == 0
    path = tmp_path / "run" / "model.safetensors"
    assert models.load(path).inference is None
    assert main(["coefficients", str(path)]) == 2
    assert "train with --inference" in " ".join(capsys.readouterr().err.split())
    assert main(["train", *given[:4], "--algorithm", "ipadmm", "--inference", "--nodes", "5"]) == 2
    assert "Expected algorithm='masked', 'least-squares' or 'hazards' with inference" in capsys.readouterr().err


def test_a_file_comes_back_as_it_was_and_nonsense_is_refused(folder, tmp_path):
    model = models.load(folder / "schema" / "model.safetensors")
    models.save(model, tmp_path / "again")
    assert models.load(tmp_path / "again").inference == model.inference
    with pytest.raises(InputError, match="finite numbers"):
        CoefficientLine("age", math.nan)
    assert not line_of("x", 1.0, math.inf).identified
    assert not line_of("x", 1.0, 0.0).identified


def test_a_schema_says_what_stands_against_standard_errors():
    schema = Schema.loads(SCHEMA)
    require_inferable(schema)
    assert remarks(schema) == ()
    whole = Schema.loads(SCHEMA.replace('reference = "red"\n', ""))
    with pytest.raises(InputError, match=r"'colour' add up to the same as the intercept.*columns.colour.reference"):
        require_inferable(whole)
    alone = Schema.loads(SCHEMA.replace('reference = "red"\n', "").replace("version = 1", "version = 1\nintercept = 0"))
    assert obstacles(alone) == ()  # it serves as the intercept
    with pytest.raises(InputError, match='row_norm = "bound"'):
        require_inferable(Schema.loads(SCHEMA.replace("version = 1", "version = 1\nrow_norm = 1")))
    (remark,) = remarks(Schema.loads(SCHEMA.replace("symmetric", "unit")))
    assert remark.startswith("age, twin: scale")


def test_an_estimator_sums_up(recwarn):
    pd = pytest.importorskip("pandas")
    rng = np.random.default_rng(1)
    x = pd.DataFrame(rng.uniform(-1, 1, size=(20_000, 2)), columns=["dose", "age"])
    y = rng.random(len(x)) < 1 / (1 + np.exp(-(1.5 * x["dose"] - 0.5)))
    options = {"epsilon": 4.0, "data_norm": 1.5, "classes": [False, True], "sites": 3}
    fitted = PrivateLogisticRegression(inference=True, **options).fit(x, y)
    table = fitted.summary()
    assert isinstance(table, Inference)
    frame = table.to_frame()
    assert list(frame.index) == ["dose", "age", "intercept"]
    assert frame["identified"].all()
    for name, truth in {"dose": 1.5, "age": 0.0, "intercept": -0.5}.items():
        assert abs(frame.loc[name, "estimate"] - truth) < 4.5 * frame.loc[name, "error"]
    assert "dose" in str(table)
    assert fitted.to_model().inference == table
    assert fitted.privacy_.epsilon <= 4.0
    plain = PrivateLogisticRegression(**options).fit(x, y)
    with pytest.raises(InputError, match="inference=True"):
        plain.summary()
    PrivateLogisticRegression(inference=False, algorithm=sv.IPADMM(rounds=3), **options).fit(x, y)
    with pytest.raises(InputError, match="loss='logistic' or 'poisson' with inference"):
        PrivateLogisticRegression(inference=True, epsilon=1, data_norm=1.5, classes=[0, 1, 2]).fit(
            x, rng.integers(3, size=len(x))
        )
    assert sv.MaskedNewton().inference is False


def test_a_table_of_nothing_is_not_drawn():
    text = Inference("logistic", 100, (CoefficientLine("age"), CoefficientLine("intercept")), {}).text()
    assert "Nothing can be said of any coefficient at this budget" in text
    assert "std err" not in text
    assert "age, intercept" in text
