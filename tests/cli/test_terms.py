"""Interactions and splines from a file to a table of coefficients, predictions and pages."""

import csv
import json

import numpy as np
import pytest

COLUMNS = """
[label]
column = "cost"
bounds = [-400, 600]
[[columns]]
name = "age"
kind = "numeric"
bounds = [20, 80]
scale = "symmetric"
[[columns]]
name = "part"
kind = "categorical"
categories = ["north", "south"]
reference = "south"
"""
TERMS = """
[[terms]]
kind = "interaction"
columns = ["age", "part"]
[[terms]]
kind = "spline"
column = "age"
knots = [25, 40, 60, 75]
"""
KNOTS = np.array([25.0, 40.0, 60.0, 75.0])
GIVEN = ("--nodes", 2, "--delta", 1e-6, "--algorithm", "least-squares", "--inference")


@pytest.fixture
def rows(tmp_path):
    rng, n = np.random.default_rng(0), 5000
    age, north = rng.uniform(20, 80, n).round(1), rng.random(n) < 0.4
    cost = np.clip(200 * np.sin(age / 12) + north * (30 + 2 * age) + 20 * rng.normal(size=n), -400, 600)
    with (tmp_path / "rows.csv").open("w", newline="") as file:
        lines = csv.writer(file)
        lines.writerow(["age", "part", "cost"])
        lines.writerows(zip(age.tolist(), np.where(north, "north", "south").tolist(), cost.tolist(), strict=True))
    (tmp_path / "schema.toml").write_text(COLUMNS + TERMS)
    return tmp_path, age, north, cost


def powers(x):
    """Restricted cubic splines in the usual form, with 1 and x."""
    t, over = KNOTS, lambda at: np.maximum(x - at, 0.0) ** 3
    bent = [
        over(own) - over(t[2]) * (t[3] - own) / (t[3] - t[2]) + over(t[3]) * (t[2] - own) / (t[3] - t[2])
        for own in t[:2]
    ]
    return np.column_stack([np.ones(len(x)), x, *(part / (t[3] - t[0]) ** 2 for part in bent)])


def test_without_noise_it_is_the_usual_regression_with_restricted_cubic_splines(rows, answer):
    folder, age, north, cost = rows
    data = ("--data", folder / "rows.csv", "--schema", folder / "schema.toml")
    answer("train", *data, *GIVEN, "--epsilon", "inf", "--force", "--lam", 0, "--out", folder / "run")
    design = np.column_stack([powers(age), north, north * age])
    usual, *_ = np.linalg.lstsq(design, cost, rcond=None)
    lines = answer("coefficients", folder / "run/model.safetensors")["lines"]
    told = {line["name"]: line["estimate"] for line in lines}
    at_knots = powers(KNOTS) @ usual[:4]
    slope = (at_knots[-1] - at_knots[0]) / 50
    straight = at_knots[0] + slope * (KNOTS - 25)
    expected = {
        "age": slope, "part=north": usual[4], "age:part=north": usual[5], "age=<bend at 40>": at_knots[1] - straight[1],
        "age=<bend at 60>": at_knots[2] - straight[2], "intercept": straight[0] - 25 * slope,
    }  # fmt: skip
    assert told == pytest.approx(expected, rel=1e-5)
    out = folder / "told.csv"
    answer("predict", folder / "run/model.safetensors", folder / "rows.csv", "--out", out)
    with out.open(newline="") as file:
        predicted = [float(line["prediction"]) for line in csv.DictReader(file)]
    np.testing.assert_allclose(predicted, design @ usual, rtol=1e-5, atol=1e-3)


def test_focus_on_a_column_takes_its_spline_along_and_an_interaction_goes_by_both_names(rows, cli):
    folder, *_ = rows
    text = (COLUMNS + TERMS).replace("bounds = [-400, 600]", 'classes = ["no", "yes"]', 1)
    (folder / "classes.toml").write_text(text)
    plan = ("plan", "--sizes", 5_000, "--schema", folder / "classes.toml", "--inference", "--epsilon", 4, "--json")
    code, out, _ = cli(*plan, "--focus", "age:part")
    assert code == 0
    assert {line["name"] for line in json.loads(out)["intervals"]["lines"]} >= {"age:part=north", "age=<bend at 40>"}
    from sottovoce.algorithms.masked import features_of
    from sottovoce.files.schema import Schema

    names = Schema.loads(text).feature_names
    assert [names[i] for i in features_of(["age"], names)] == ["age", "age=<bend at 40>", "age=<bend at 60>"]
    assert [names[i] for i in features_of(["age:part"], names)] == ["age:part=north"]


def test_terms_that_do_not_fit_are_refused_and_nothing_is_charged(rows, cli):
    folder, *_ = rows
    assert cli("budget", "new", folder / "b.json", "--epsilon", 20, "--delta", 1e-4)[0] == 0
    (folder / "bad.toml").write_text((COLUMNS + TERMS).replace("[25, 40, 60, 75]", "[25, 40, 90]"))
    data = ("--data", folder / "rows.csv", "--schema", folder / "bad.toml", "--budget", folder / "b.json")
    code, _, err = cli("train", *data, *GIVEN, "--epsilon", 1)
    assert code == 2
    assert "terms.age.knots within columns.age.bounds, 20 to 80" in " ".join(err.split())
    assert json.loads(cli("budget", "show", folder / "b.json", "--json")[1])["spent"] == 0


def test_schema_show_and_review_say_terms_in_words(rows, cli, answer):
    folder, *_ = rows
    path = folder / "schema.toml"
    said = ("the effect of age may depend on part", "a curve of age with knots at 25, 40, 60 and 75")
    shown = " ".join(cli("schema", "show", path)[1].split())
    assert all(words in shown for words in said)
    assert len(answer("schema", "show", path)["terms"]) == 2
    path.write_text('unreviewed = ["columns.age.bounds"]\n' + path.read_text())
    shown = " ".join(cli("schema", "review", path, "--list")[1].split())
    assert all(words in shown for words in said)
