"""Weights and exposures on the command line: from a CSV file to predictions, figures and coefficients."""

import csv
import math

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression, PoissonRegressor
from sklearn.metrics import precision_score, recall_score

from sottovoce import models
from sottovoce.files.schema import files

COLUMNS = """
[[columns]]
name = "age"
kind = "numeric"
bounds = [20, 80]
scale = "symmetric"
[[columns]]
name = "smoker"
kind = "boolean"
"""
WEIGHED = f'[label]\ncolumn = "ill"\nclasses = ["no", "yes"]\n[weight]\ncolumn = "w"\nbound = 4\n{COLUMNS}'
EXPOSED = f"""[label]
column = "visits"
bounds = [0, 30]
counts = true
[exposure]
column = "years"
bound = 2
{COLUMNS}"""
MASKED = ("--algorithm", "masked", "--nodes", 2, "--epsilon", 15, "--delta", 1e-5, "--lam", 1e-9)


@pytest.fixture
def rows(tmp_path):
    """Heavy rows say another thing than light ones, and long exposures have many visits."""
    rng, n = np.random.default_rng(0), 6000
    age, smoker, heavy = rng.uniform(20, 80, n).round(1), rng.random(n) < 0.4, rng.random(n) < 0.3
    odds = np.where(heavy, 1, -1) * (age - 50) / 10 + smoker
    ill = rng.random(n) < 1 / (1 + np.exp(-odds))
    years = rng.uniform(0.1, 2, n).round(3)
    visits = rng.poisson(years * np.exp((age - 50) / 40 + 0.5 * smoker + 0.6))
    table = {
        "age": age, "smoker": np.where(smoker, "yes", "no"), "ill": np.where(ill, "yes", "no"),
        "w": np.where(heavy, 4.0, 0.1), "years": years, "visits": visits,
    }  # fmt: skip
    with (tmp_path / "rows.csv").open("w", newline="") as file:
        lines = csv.writer(file)
        lines.writerow(table)
        lines.writerows(zip(*(column.tolist() for column in table.values()), strict=True))
    return tmp_path / "rows.csv", table, np.column_stack([age, smoker])


def trained(answer, path, schema, *more):
    (path.parent / "schema.toml").write_text(schema)
    given = ("train", "--data", path, "--schema", path.parent / "schema.toml", *MASKED, "--out", path.parent / "run")
    return answer(*given, *more), path.parent / "run" / "model.safetensors"


def test_weights_from_a_file_to_figures(rows, answer, cli):
    path, table, x = rows
    said, file = trained(answer, path, WEIGHED, "--evaluate", 0.1, "--hold-out", 3)
    theirs = LogisticRegression(C=1e9).fit(x, table["ill"] == "yes", sample_weight=table["w"])
    model = models.load(file)
    assert model.weights[0, 0] > 0 < theirs.coef_[0, 0]  # without weights, it would be the other way round
    scored = answer("evaluate", file, path)
    assert scored["risk"] == pytest.approx(said["risk"]["consensus"])
    assert scored["accuracy"] == pytest.approx(theirs.score(x, table["ill"] == "yes", table["w"]), abs=0.02)
    called = model.probabilities(files.encode(path, model.schema).features)[:, 1] >= 0.5
    for name, score in (("recall", recall_score), ("precision", precision_score)):
        by_weight, alike = (score(table["ill"] == "yes", called, sample_weight=v) for v in (table["w"], None))
        assert scored[name] == pytest.approx(by_weight)
        assert abs(by_weight - alike) > 0.1
    assert sum(map(sum, scored["confusion"])) == len(called)  # rows, as it says
    assert any("one of every 3 rows" in note for note in model.privacy.notes)
    private = answer("evaluate", file, path, "--private", "--epsilon", 1)
    assert any("whatever its weight" in note for note in private["privacy"]["notes"])
    assert "Weights: column w, above 0 and at most 4." in cli("schema", "show", path.parent / "schema.toml")[1]
    _, _, err = cli("train", "--data", path, "--schema", path.parent / "schema.toml", *MASKED, "--inference")
    assert "rows count by 'w'" in err


def test_exposures_from_a_file_to_rates(rows, answer, tmp_path):
    path, table, x = rows
    said, file = trained(answer, path, EXPOSED, "--inference")
    years, visits = table["years"], table["visits"]
    theirs = PoissonRegressor(alpha=0, tol=1e-9, max_iter=5000).fit(x, visits / years, sample_weight=years)
    told = {line["name"]: line for line in answer("coefficients", file)["lines"]}
    for name, truth in (("age", theirs.coef_[0]), ("smoker", theirs.coef_[1]), ("intercept", theirs.intercept_)):
        assert told[name]["low"] < truth < told[name]["high"]
    assert told["smoker"]["ratio"] == pytest.approx(math.exp(theirs.coef_[1]), rel=0.15)
    scored = answer("evaluate", file, path)
    assert scored["risk"] == pytest.approx(said["risk"]["consensus"])
    expected = years * theirs.predict(x)
    assert scored["mean_absolute_error"] == pytest.approx(np.abs(visits - expected).mean(), rel=0.05)
    answer("predict", file, path, "--out", tmp_path / "predicted.csv")
    with (tmp_path / "predicted.csv").open() as lines:
        predicted = np.array([float(line["prediction"]) for line in csv.DictReader(lines)])
    np.testing.assert_allclose(predicted, expected, rtol=0.2)


@pytest.mark.parametrize("cell", ["0", "-1", "9", "", "nan", "lots"])
def test_a_bad_weight_ends_training_before_anything_is_charged(rows, cli, cell):
    path, *_ = rows
    head, first, *rest = path.read_text().splitlines()
    fields = first.split(",")
    path.write_text("\n".join([head, ",".join([*fields[:3], cell, *fields[4:]]), *rest]) + "\n")
    (path.parent / "schema.toml").write_text(WEIGHED)
    cli("budget", "new", path.parent / "budget.json", "--epsilon", 20, "--delta", 1e-4)
    before = (path.parent / "budget.json").read_text()
    code, _, err = cli("train", "--data", path, "--schema", path.parent / "schema.toml", *MASKED, "--budget",
                       path.parent / "budget.json")  # fmt: skip
    assert code != 0
    assert "Expected a number above 0 and at most 4 in row 1, column 'w'" in " ".join(err.split())
    assert (path.parent / "budget.json").read_text() == before
