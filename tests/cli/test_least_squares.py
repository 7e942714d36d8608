"""Least squares on the command line: from a CSV file to a table with R^2, predictions and pages."""

import csv

import numpy as np
import pytest

from sottovoce import models

COLUMNS = """
[[columns]]
name = "age"
kind = "numeric"
bounds = [20, 80]
scale = "symmetric"
[[columns]]
name = "part"
kind = "categorical"
categories = ["north", "south", "west"]
reference = "south"
"""
NUMBER = f'[label]\ncolumn = "cost"\nbounds = [0, 200]\n{COLUMNS}'
CLASSES = (
    f'[label]\ncolumn = "part"\nclasses = ["north", "south", "west"]\n[[columns]]{COLUMNS.split("[[columns]]")[1]}'
)
GIVEN = ("--nodes", 2, "--delta", 1e-6, "--algorithm", "least-squares")


@pytest.fixture
def rows(tmp_path):
    rng, n = np.random.default_rng(0), 5000
    age, part = rng.uniform(20, 80, n).round(1), rng.choice(["north", "south", "west"], n)
    cost = np.clip(40 + 1.2 * age + 20 * (part == "north") - 8 * (part == "west") + 15 * rng.normal(size=n), 0, 200)
    with (tmp_path / "rows.csv").open("w", newline="") as file:
        lines = csv.writer(file)
        lines.writerow(["age", "part", "cost"])
        lines.writerows(zip(age.tolist(), part.tolist(), cost.tolist(), strict=True))
    (tmp_path / "schema.toml").write_text(NUMBER)
    design = np.column_stack([age, part == "north", part == "west", np.ones(n)]).astype(float)
    return tmp_path / "rows.csv", design, cost


def data(path, schema="schema.toml"):
    return "--data", path, "--schema", path.parent / schema


def usual(design, cost):
    """Coefficients, standard errors and R^2 of the usual linear regression."""
    found, (left,), *_ = np.linalg.lstsq(design, cost, rcond=None)
    n, p = design.shape
    errors = np.sqrt(np.diag(np.linalg.inv(design.T @ design)) * left / (n - p))
    return found, errors, 1 - left / n / cost.var()


def test_without_noise_the_table_is_the_usual_one(rows, answer):
    path, design, cost = rows
    out = path.parent / "run"
    answer("train", *data(path), *GIVEN, "--inference", "--epsilon", "inf", "--force", "--lam", 0, "--out", out)
    found, errors, share = usual(design, cost)
    table = answer("coefficients", out / "model.safetensors")
    told = {line["name"]: line for line in table["lines"]}
    assert table["family"] == "linear"
    names = ["age", "part=north", "part=west", "intercept"]
    np.testing.assert_allclose([told[name]["estimate"] for name in names], found, rtol=1e-6)
    np.testing.assert_allclose([told[name]["error"] for name in names], errors, rtol=1e-6)
    (figure,) = table["figures"]
    assert figure["name"] == "R^2"
    assert figure["estimate"] == pytest.approx(share, rel=1e-6)
    assert any("R^2 is centred" in note for note in table["notes"])
    # The model that is kept is the same one: its predictions are the fitted values.
    model = models.load(out / "model.safetensors")
    answer("predict", out / "model.safetensors", path, "--out", path.parent / "told.csv")
    assert model.inference.figures[0].estimate == figure["estimate"]
    with (path.parent / "told.csv").open(newline="") as file:
        told_of = [float(line["prediction"]) for line in csv.DictReader(file)]
    np.testing.assert_allclose(told_of, design @ found, rtol=1e-6, atol=1e-4)


def test_with_noise_intervals_hold_the_truth_and_pages_show_them(rows, answer, cli):
    path, *_ = rows
    out = path.parent / "run"
    said = answer("train", *data(path), *GIVEN, "--inference", "--epsilon", 2, "--out", out)
    assert said["privacy"]["epsilon"] <= 2
    table = answer("coefficients", out / "model.safetensors")
    held = {line["name"]: line["low"] < truth < line["high"] for line in (*table["lines"], *table["figures"])
            for truth in [dict(zip(("age", "part=north", "part=west", "intercept", "R^2"), (1.2, 20, -8, 40, 0.72),
                                   strict=True))[line["name"]]]}  # fmt: skip
    assert sum(held.values()) >= 4
    text = cli("show", out / "model.safetensors")[1]
    assert "Private linear regression" in text
    assert "R^2" in text
    page = path.parent / "page.html"
    cli("report", out, "--out", page)
    assert "R^2" in page.read_text()


def test_labels_that_are_classes_are_refused_before_a_row_is_touched(rows, cli):
    path, *_ = rows
    (path.parent / "classes.toml").write_text(CLASSES)
    status, _, error = cli("train", *data(path, "classes.toml"), *GIVEN, "--epsilon", 1)
    assert status != 0
    assert "Expected a label that is a number for least squares, got classes=('north', 'south', 'west')" in error


def test_standard_errors_of_another_algorithm_name_least_squares(rows, cli):
    path, *_ = rows
    masked = ("--nodes", 3, "--delta", 1e-6, "--algorithm", "masked", "--inference")
    assert "take algorithm='least-squares'" in " ".join(cli("train", *data(path), *masked)[2].split())
