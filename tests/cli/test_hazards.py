"""Proportional hazards on the command line: from a CSV file to hazard ratios, survival at given times, and refusals."""

import csv

import numpy as np
import pytest
from sklearn.linear_model import PoissonRegressor

from sottovoce.privacy import BudgetAccountant

COLUMNS = """
[[columns]]
name = "age"
kind = "numeric"
bounds = [40, 80]
scale = "symmetric"
[[columns]]
name = "stage"
kind = "categorical"
categories = ["I", "II", "III"]
reference = "I"
"""
LABEL = '[label]\ntime = "years"\nevent = "died"\nuntil = 6\nedges = [1, 3]\n'
ENDS = [0, 1, 3, 6]
GIVEN = ("--nodes", 2, "--delta", 1e-6)


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    folder, rng, n = tmp_path_factory.mktemp("rows"), np.random.default_rng(0), 2500
    age, stage = rng.uniform(40, 80, n).round(1), rng.choice(["I", "II", "III"], n)
    rate = 0.12 * np.exp(0.03 * (age - 60) + 0.5 * (stage == "II") + 1.0 * (stage == "III"))
    died, left = rng.exponential(1 / rate), rng.uniform(0.5, 9, n)
    time, event = np.minimum(died, left).round(2) + 0.01, (died <= left).astype(int)
    with (folder / "rows.csv").open("w", newline="") as file:
        lines = csv.writer(file)
        lines.writerow(["age", "stage", "years", "died"])
        lines.writerows(zip(age.tolist(), stage.tolist(), time.tolist(), event.tolist(), strict=True))
    (folder / "schema.toml").write_text(LABEL + COLUMNS)
    return folder, np.column_stack([age, stage == "II", stage == "III"]).astype(float), time, event


def data(folder, schema="schema.toml"):
    return "--data", folder / "rows.csv", "--schema", folder / schema


def usual(x, time, event):
    """The Poisson regression of person-intervals."""
    who, where = np.nonzero(time[:, None] > ENDS[:-1])
    spent = np.minimum(time[who], np.take(ENDS, where + 1)) - np.take(ENDS, where)
    here = event[who] * (time[who] <= np.take(ENDS, where + 1))
    fit = PoissonRegressor(alpha=0, fit_intercept=False, solver="newton-cholesky", tol=1e-12, max_iter=200)
    return fit.fit(np.column_stack([x[who], np.eye(3)[where]]), here / spent, sample_weight=spent).coef_


def test_without_noise_the_table_is_the_usual_one_and_so_is_survival(written, answer, tmp_path):
    folder, x, time, event = written
    out, told = tmp_path / "run", tmp_path / "told.csv"
    answer("train", *data(folder), *GIVEN, "--inference", "--epsilon", "inf", "--force", "--lam", 0, "--out", out)
    found = usual(x, time, event)
    table = answer("coefficients", out / "model.safetensors")
    assert [line["name"] for line in table["lines"]] == ["age", "stage=II", "stage=III"]
    np.testing.assert_allclose([line["estimate"] for line in table["lines"]], found[:3], rtol=1e-6)
    np.testing.assert_allclose([line["ratio"] for line in table["lines"]], np.exp(found[:3]), rtol=1e-6)
    answer("predict", out / "model.safetensors", folder / "rows.csv", "--at", 1, "--at", 4.5, "--out", told)
    with told.open(newline="") as file:
        lines = list(csv.DictReader(file))
    hazards = np.exp(found[3:] + (x @ found[:3])[:, None])
    for name, spent in (("survival 1", [1, 0, 0]), ("survival 4.5", [1, 2, 1.5])):
        np.testing.assert_allclose([float(line[name]) for line in lines], np.exp(-hazards @ spent), atol=1e-6)
    np.testing.assert_allclose([float(line["prediction"]) for line in lines], np.exp(-hazards @ [1, 2, 3]), rtol=1e-6)
    # Without times, those of the ends of all bins.
    told.unlink()
    answer("predict", out / "model.safetensors", folder / "rows.csv", "--out", told)
    assert told.read_text().splitlines()[0] == "row,prediction,survival 1,survival 3,survival 6"


def test_with_noise_intervals_hold_the_truth_and_pages_show_them(written, answer, cli, tmp_path):
    folder, *_ = written
    out = tmp_path / "run"
    said = answer("train", *data(folder), *GIVEN, "--inference", "--epsilon", 4, "--out", out)
    assert said["algorithm"] == "hazards"
    assert said["privacy"]["epsilon"] <= 4
    first = " ".join(cli("train", *data(folder), *GIVEN, "--epsilon", 4, "--nodes", 5)[1].split())
    assert "No algorithm of that kind learns hazards." in first
    assert "--algorithm ipadmm" not in first
    table = answer("coefficients", out / "model.safetensors")
    assert table["family"] == "piecewise-exponential"
    truth = {"age": 0.03, "stage=II": 0.5, "stage=III": 1.0}
    far = [abs(line["estimate"] - truth[line["name"]]) / line["error"] for line in table["lines"]]
    assert max(far) < 4
    text = cli("show", out / "model.safetensors")[1]
    assert "Private proportional hazards" in text
    assert "hazard ratio" in text
    assert "share without an event at times of 'years' up to 6" in text
    cli("report", out, "--out", tmp_path / "page.html")
    assert "hazard ratio" in (tmp_path / "page.html").read_text()
    held = answer("evaluate", out / "model.safetensors", folder / "rows.csv")
    assert held["risk"] < held["no_model"]["risk"]
    assert held["mean_absolute_error"] is None
    for given in (("--at", 7), ("--at", -1)):
        assert "Expected times from 0 to 6" in cli("predict", out / "model.safetensors", folder / "rows.csv", *given,
                                                   "--out", tmp_path / "no.csv")[2]  # fmt: skip
    judged = cli("evaluate", out / "model.safetensors", folder / "rows.csv", "--private", "--epsilon", 1)
    assert "sottovoce survival --by COLUMN" in " ".join(judged[2].split())
    for kind in ("onnx", "sklearn"):
        status, _, error = cli("export", out / "model.safetensors", "--to", kind, "--out", tmp_path / kind)
        assert status != 0
        assert "times to an event" in error
    for asked in ((), ("--inference",)):
        status, _, error = cli("plan", "--schema", folder / "schema.toml", "--sites", 3, "--rows", 200, *asked)
        assert status != 0
        assert "sottovoce train learns proportional hazards" in " ".join(error.split())


@pytest.mark.parametrize(
    ("cell", "said"),
    [("-1,1", "a time of 0 or more"), (",1", "a time of 0 or more"), ("3,2", "true: "), ("3,", "true: ")],
)
def test_labels_that_are_no_times_are_refused_and_nothing_is_charged(written, cli, tmp_path, cell, said):
    folder, *_ = written
    lines = (folder / "rows.csv").read_text().splitlines()
    (tmp_path / "rows.csv").write_text("\n".join([*lines[:50], f"50,II,{cell}", *lines[50:]]) + "\n")
    (tmp_path / "schema.toml").write_text(LABEL + COLUMNS)
    budget = tmp_path / "budget.json"
    cli("budget", "new", budget, "--epsilon", 3, "--delta", 1e-5)
    status, _, error = cli("train", *data(tmp_path), *GIVEN, "--epsilon", 1, "--budget", budget)
    assert status != 0
    assert said in error or "1, yes" in error
    assert "row 50" in error
    assert len(BudgetAccountant.load(budget)) == 0


@pytest.mark.parametrize(
    ("label", "columns", "given", "said"),
    [
        (LABEL, COLUMNS, ("--algorithm", "masked"), "algorithm='hazards' for a label of times to an event"),
        (LABEL, COLUMNS, ("--loss", "logistic"), "loss='piecewise-exponential' for a label of times"),
        (LABEL, COLUMNS, ("--evaluate", 0.1), "Expected algorithm='masked' with evaluate"),
        (LABEL.replace("edges = [1, 3]", "bins = 1"), COLUMNS, (), "the ends of two intervals or more"),
        ("intercept = false\n" + LABEL, COLUMNS, (), "an intercept to learn times to an event"),
        ('[label]\ncolumn = "age"\nbounds = [40, 80]\n', '[[columns]]' + COLUMNS.split("[[columns]]")[2],
         ("--algorithm", "hazards"), "a label of times to an event"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_refused(written, cli, tmp_path, label, columns, given, said):
    folder, *_ = written
    (tmp_path / "schema.toml").write_text(label + columns)
    files = "--data", folder / "rows.csv", "--schema", tmp_path / "schema.toml"
    status, _, error = cli("train", *files, *GIVEN, "--epsilon", 1, *given)
    assert status != 0
    assert said in " ".join(error.split())
