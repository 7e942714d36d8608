"""What `train`, `evaluate` and `show` say: which model is in the file, how good it is, and compared with what."""

import csv
import json
import os
import re
import subprocess
import sys
from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from sklearn import metrics

from cli.conftest import QUICK, SCHEMA, write
from sottovoce import models
from sottovoce.files.models.coefficients import NO_ERRORS, coefficients
from sottovoce.files.models.inference import NUMBERS
from sottovoce.files.schema import Schema, files
from sottovoce.studies import build, run, scores
from sottovoce.studies.config import TrainConfig

NUMBER = SCHEMA.split("[label]")[0] + '[label]\ncolumn = "ill"\nbounds = [0, 200]\n' + SCHEMA.split("{classes}")[1]


def words(text):
    return " ".join(text.split())


@pytest.fixture
def given(clinic, tmp_path):
    return ("train", "--data", clinic, "--schema", tmp_path / "schema.toml", "--nodes", 4, *QUICK)


@pytest.fixture
def numbers(tmp_path):
    """A file whose label is a number; its largest possible value is written nowhere but in the rows."""
    (tmp_path / "schema.toml").write_text(NUMBER)
    file = write(tmp_path / "rows.csv", lambda age, smoker: age + 20 * smoker)
    return ("train", "--data", file, "--schema", tmp_path / "schema.toml", "--nodes", 4, *QUICK)


# -- which model, and how good --------------------------------------------------------------------------------------


def test_one_line_is_that_of_the_file(given, tmp_path, cli):
    _, out, _ = cli(*given, "--out", tmp_path / "run")
    assert [line.split()[0] for line in out.splitlines() if "*" in line] == ["consensus", "*"]
    assert f"* the model in {tmp_path / 'run' / 'model.safetensors'}." in words(out)
    assert "* the model that --out would keep." in words(cli(*given)[1])
    assert "of the first run" in words(cli(*given, "--runs", 2)[1])


def test_figures_are_those_of_the_model_in_the_file(given, clinic, tmp_path, answer):
    said = answer(*given, "--out", tmp_path / "run", "--test-data", clinic)
    model = models.load(tmp_path / "run" / "model.safetensors")
    data = files.encode(clinic, model.schema)
    z, ill = model.outputs(data.features)[:, 0], data.labels > 0
    found, none = said["metrics"]["consensus"], said["metrics"]["no_model"]
    assert found["auc"] == pytest.approx(metrics.roc_auc_score(ill, z))
    rarer = ill if ill.mean() <= 0.5 else ~ill
    assert found["average_precision"] == pytest.approx(
        metrics.average_precision_score(rarer, z if ill.mean() <= 0.5 else -z)
    )
    assert found["log_loss"] == pytest.approx(metrics.log_loss(ill, 1 / (1 + np.exp(-z))))
    assert found["risk"] == pytest.approx(said["risk"]["consensus"])
    share = np.full(len(ill), ill.mean())
    assert none["log_loss"] == pytest.approx(metrics.log_loss(ill, share))
    assert (none["auc"], none["accuracy"]) == (0.5, pytest.approx(max(ill.mean(), 1 - ill.mean())))
    assert said["test"]["metrics"]["consensus"] == pytest.approx(found)
    scored = answer("evaluate", tmp_path / "run" / "model.safetensors", clinic)
    for name in ("auc", "average_precision", "log_loss", "risk"):
        assert scored[name] == pytest.approx(found[name])
        assert scored["no_model"][name] == pytest.approx(none[name])
    assert scored["worse_than_no_model"] is said["worse_than_no_model"] is False


def test_regression_is_in_the_unit_of_the_label(numbers, tmp_path, answer, cli):
    said = answer(*numbers, "--out", tmp_path / "run")
    model = models.load(tmp_path / "run" / "model.safetensors")
    data = files.encode(numbers[2], model.schema)
    z, y = model.outputs(data.features)[:, 0], data.labels
    found, none = said["metrics"]["consensus"], said["metrics"]["no_model"]
    assert found["mean_absolute_error"] == pytest.approx(metrics.mean_absolute_error(y, z))
    assert found["r2"] == pytest.approx(metrics.r2_score(y, z))
    assert none["mean_absolute_error"] == pytest.approx(np.mean(np.abs(y - np.median(y))))
    assert said["loss_unit"] == "labels divided by 100"
    text = words(cli("evaluate", tmp_path / "run" / "model.safetensors", numbers[2])[1])
    assert "always the median" in text
    assert f"{found['mean_absolute_error']:.6g}" in text
    text = words(cli(*numbers)[1])
    assert "huber loss mean absolute error R²" in text
    assert "The huber loss is a mean over rows, in labels divided by 100." in text


def test_a_rare_outcome_is_not_judged_by_accuracy(tmp_path, answer, cli):
    (tmp_path / "schema.toml").write_text(SCHEMA.format(classes='["no", "yes"]'))
    file = write(tmp_path / "rows.csv", lambda age, _: "yes" if age > 96 else "no")
    given = ("train", "--data", file, "--schema", tmp_path / "schema.toml", "--nodes", 2, *QUICK)
    out = cli(*given)[1]
    assert "average precision %" in out
    assert "accuracy %" not in out
    assert "'yes' is rare" in out
    said = answer(*given)
    assert (said["rare_class"], said["accuracy"]["consensus"] > 0.9) == ("yes", True)
    assert "rare_class" in said["holder_only"]["fields"]


@pytest.fixture
def coin(tmp_path):
    """A file whose columns say nothing: every combination of them is as often "yes" as "no"."""
    (tmp_path / "schema.toml").write_text(SCHEMA.format(classes='["no", "yes"]'))
    with (tmp_path / "coin.csv").open("w", newline="") as file:
        lines = csv.writer(file)
        lines.writerow(["age", "smoker", "ill"])
        lines.writerows(product(range(100), (True, False), ("no", "yes")))
    return ("train", "--data", tmp_path / "coin.csv", "--schema", tmp_path / "schema.toml", "--nodes", 4, *QUICK)


def test_worse_than_no_model_is_said_plainly(coin, given, cli, answer):
    """For all noise that can be drawn: the loss is convex, so on a coin every model but zero is worse than none."""
    assert "WORSE THAN NO MODEL" in words(cli(*coin)[1])
    said = answer(*coin)
    assert said["worse_than_no_model"] is True
    assert said["metrics"]["consensus"]["risk"] > said["metrics"]["no_model"]["risk"] == pytest.approx(np.log(2))
    assert "WORSE THAN NO MODEL" not in cli(*given)[1]


def test_on_a_ring_a_real_site_has_less_than_the_consensus(clinic, tmp_path, given, cli):
    settings = {"rounds": 20, "local_steps": 5, "epsilon": 8.0, "delta": 1e-5, "diameter": 20.0, "rho": 0.01}
    files = {"data": str(clinic), "schema": str(tmp_path / "schema.toml"), "nodes": 5}
    trained = run.train(TrainConfig(**files, **settings, graph="ring"))
    last = trained.result.last[0]
    own = np.stack([(last[i] + last[(i + 1) % 5] + last[(i - 1) % 5]) / 3 for i in range(5)])
    assert scores.real_models(trained.solved)[:, 0] == pytest.approx(own)
    sites = trained.problem.sites
    z = sites.rows.block(0, len(sites.labels)) @ own.T
    assert trained.learnt.risk["site"][0] == pytest.approx(np.mean(np.logaddexp(0, -z * sites.labels[:, None])))
    assert "the model of a real site" in words(cli(*given, "--graph", "ring")[1])
    assert "the model of a real site" not in words(cli(*given)[1])


# -- what a model says ----------------------------------------------------------------------------------------------

UNITS = """version = 1
{norm}
[label]
column = "y"
{label}
[[columns]]
name = "age"
kind = "numeric"
bounds = [20, 80]
scale = "unit"
[[columns]]
name = "dose"
kind = "numeric"
bounds = [-5, 15]
scale = "symmetric"
[[columns]]
name = "ward"
kind = "categorical"
categories = ["north", "south"]
other = true
[[columns]]
name = "smoker"
kind = "boolean"
"""
CLASSES, BOUNDS = 'classes = ["no", "yes"]', "bounds = [0, 50]"


@pytest.mark.parametrize("label", [CLASSES, BOUNDS], ids=["classes", "numbers"])
@pytest.mark.parametrize("norm", ["", "row_norm = 9", "intercept = false"])
def test_coefficients_are_in_the_units_of_the_columns(tmp_path, label, norm):
    """What a person computes from them and a row is what the model computes from the encoded row."""
    schema = Schema.loads(UNITS.format(label=label, norm=norm))
    (tmp_path / "rows.csv").write_text("age,dose,ward,smoker,y\n61,-2,south,yes,1\n25,7.5,east,no,0\n")
    (tmp_path / "rows.csv").write_text((tmp_path / "rows.csv").read_text().replace(",1\n", ",yes\n").replace(
        ",0\n", ",no\n") if label == CLASSES else (tmp_path / "rows.csv").read_text())  # fmt: skip
    data = files.encode(tmp_path / "rows.csv", schema)
    draws = np.random.default_rng(0)
    from sottovoce import IPADMM, losses

    loss = losses.Logistic() if label == CLASSES else losses.Huber()
    privacy = _statement(IPADMM(epsilon=1.0))
    model = models.Model(
        weights=draws.normal(size=(schema.d, 1)), loss=loss, names=schema.feature_names,
        classes=schema.classes, privacy=privacy, schema=schema, offset=0.0 if label == CLASSES else 25.0,
    )  # fmt: skip
    found = coefficients(model)
    per_unit = {one.feature: one.per_unit[0] for one in found.features}
    assert set(per_unit) == set(schema.feature_names) - {"intercept"}
    by_hand = [
        found.intercept[0] + 61 * per_unit["age"] - 2 * per_unit["dose"] + per_unit["ward=south"] + per_unit["smoker"],
        found.intercept[0] + 25 * per_unit["age"] + 7.5 * per_unit["dose"] + per_unit["ward=<other>"],
    ]
    assert by_hand == pytest.approx(model.outputs(data.features)[:, 0].tolist(), rel=1e-9)
    effect = {one.feature: one.effect[0] for one in found.features}
    assert effect["age"] == pytest.approx(60 * per_unit["age"])
    assert effect["dose"] == pytest.approx(20 * per_unit["dose"])
    # A category that the code book does not have is no finding, however large its weight.
    assert "ward=<other>" not in [one.feature for one in found.largest(0, 99)]


def _statement(algorithm):
    from sottovoce import Sites, graphs

    sites = Sites([np.array([[1.0]])], [np.array([1.0])])
    return algorithm.statement(algorithm.oracle(sites, graphs.complete(1)))


def test_show_prints_a_model(given, tmp_path, cli, answer):
    cli(*given, "--out", tmp_path / "run")
    file = tmp_path / "run" / "model.safetensors"
    code, out, err = cli("show", file)
    assert (code, err) == (0, "")
    text = words(out)
    for told in ("Predicts 'ill' among no, yes with probabilities, from 2 columns (7 features)", "odds ratio per unit",
                 "differential privacy with epsilon = 8", "smoker", "signed by: nobody", "site-4 = 300"):  # fmt: skip
        assert told in text, told
    assert "dataset = adult" not in text
    said = answer("show", file)
    model = models.load(file)
    assert said["weights"] == model.weights.tolist()
    assert said["privacy"]["epsilon"] == model.privacy.epsilon
    shown = {one["feature"]: one["per_unit"][0] for one in said["coefficients"]["features"]}
    assert shown["smoker"] == pytest.approx(model.weights[model.names.index("smoker"), 0] / np.sqrt(3))
    # Without inference nobody knows how sure these are: that is said, and no digits pretend otherwise.
    assert NO_ERRORS in text
    assert (said["uncertainty"], said["inference"]) == (NO_ERRORS, None)
    assert not [word for word in text.split("signed by")[0].split("Intercept:")[0].split() if FOUR_DIGITS.match(word)]


def test_show_does_not_round_a_small_effect_to_none(given, tmp_path, cli):
    """A ratio of 1 is no effect. Per unit of a wide column, effects are small, and shown as far as they are told."""
    cli(*given, "--out", tmp_path / "run")
    model = models.load(tmp_path / "run" / "model.safetensors")
    weights = model.weights.copy()
    for name, effect in (("smoker", 0.0284), ("intercept", 0.0)):
        weights[model.names.index(name), 0] = effect * np.sqrt(3)
    models.save(replace(model, weights=weights), tmp_path / "small.safetensors")
    line = next(line for line in cli("show", tmp_path / "small.safetensors")[1].splitlines() if "smoker" in line)
    assert line.split() == ["smoker", "+0.028", "+0.028", "1.029"]


FOUR_DIGITS = re.compile(r"^[+-]\d*\.\d{4,}$|^[+-][1-9]\d*\.\d{2,}$")
COUNTED = SCHEMA.replace("classes = {classes}", "bounds = [0, 20]\ncounts = true").replace("[20, 40, 60, 80]", "[40]")


@pytest.fixture
def counted(tmp_path):
    """A file of counts, to be learnt with masked sums."""
    (tmp_path / "schema.toml").write_text(COUNTED.replace("edges = [40]", "edges = [40]\nreference = 20"))
    file = write(tmp_path / "rows.csv", lambda age, smoker: round(2 * (1 + smoker) * (1 + (age >= 40))), 4800)
    return ("train", "--data", file, "--schema", tmp_path / "schema.toml", "--nodes", 3, "--algorithm", "masked",
            "--epsilon", 4, "--delta", 1e-5, "--out", tmp_path / "run")  # fmt: skip


def test_show_and_report_of_counts_have_rate_ratios(counted, tmp_path, cli):
    assert cli(*counted)[0] == 0
    text = words(cli("show", tmp_path / "run" / "model.safetensors")[1])
    assert "rate ratio per unit" in text
    assert "odds" not in text
    assert NO_ERRORS in text
    assert cli("report", tmp_path / "run")[0] == 0
    page = words(re.sub(r"<[^>]*>", "", (tmp_path / "run" / "report.html").read_text()))
    assert NO_ERRORS in page
    assert "odds" not in page


def test_show_and_report_with_inference_say_nothing_that_it_withholds(counted, tmp_path, cli, answer):
    assert cli(*counted, "--inference")[0] == 0
    file = tmp_path / "run" / "model.safetensors"
    model = models.load(file)
    known, hidden = model.inference.lines[0], replace(model.inference.lines[1], **dict.fromkeys(NUMBERS))
    table = replace(model.inference, lines=(known, hidden, *model.inference.lines[2:]))
    models.save(replace(model, inference=table), tmp_path / "other.safetensors")
    (tmp_path / "other.safetensors").replace(file)
    bare = {one.feature: one.per_unit[0] for one in coefficients(model).features}[hidden.name]
    text = words(cli("show", file)[1])
    assert "std err" in text
    assert "rate ratio" in text
    assert f"Nothing can be said of these at this budget: {hidden.name}" in text
    assert f"{known.estimate:.4g}" in text
    assert f"{bare:+.4g}" not in text
    assert NO_ERRORS not in text
    said = answer("show", file)
    assert (said["coefficients"], said["uncertainty"]) == (None, None)
    assert [line["estimate"] for line in said["inference"]["lines"]][:2] == [known.estimate, None]
    assert cli("report", tmp_path / "run")[0] == 0
    page = words((tmp_path / "run" / "report.html").read_text())
    assert "rate ratio" in page
    assert f"{known.estimate:.4g}" in page
    assert f"{bare:+.4g}" not in page
    assert "All coefficients" not in page


def test_show_says_who_may_collude(given, tmp_path, cli):
    masked = ["train", *given[1:7], "--algorithm", "masked", "--epsilon", 8, "--rounds", 3, "--out", tmp_path / "run"]
    assert cli(*masked)[0] == 0
    assert "colluding sites, with the message server" in cli("show", tmp_path / "run" / "model.safetensors")[1]


# -- small things ---------------------------------------------------------------------------------------------------


def test_a_loss_that_does_not_fit_tells_nothing_of_a_row(numbers, tmp_path, cli):
    budget = tmp_path / "budget.json"
    cli("budget", "new", budget, "--epsilon", 20)
    code, out, err = cli(*numbers, "--loss", "logistic", "--budget", budget, "--out", tmp_path / "run")
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert "Expected a loss among absolute, huber, quantile" in words(err).replace("huber, absolute", "absolute, huber")
    assert "label=" not in err
    assert json.loads(cli("budget", "show", budget, "--json")[1])["spent"] == 0


def test_a_refused_cell_is_not_quoted(given, tmp_path, cli):
    rows = (tmp_path / "rows.csv").read_text().splitlines()
    rows[3] = "a private matter," + rows[3].split(",", 1)[1]
    (tmp_path / "rows.csv").write_text("\n".join(rows) + "\n")
    code, _, err = cli(*given, "--out", tmp_path / "run")
    assert code == 2
    assert "row 3, column 'age'" in err
    assert "private matter" not in err
    assert "private matter" in cli("schema", "check", tmp_path / "rows.csv", "--schema", tmp_path / "schema.toml")[1]


def test_the_settings_name_the_file_as_it_was_given(given, tmp_path, cli, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert cli(*given[:1], "--data", "rows.csv", "--schema", "schema.toml", *given[5:], "--out", "run")[0] == 0
    text = (tmp_path / "run" / "config.toml").read_text()
    assert 'data = "rows.csv"' in text
    assert "adult" not in text
    assert cli("train", "--config", "run/config.toml", "--out", "again")[0] == 0


def test_without_a_folder_json_holds_the_model(given, answer, tmp_path):
    said = answer(*given)
    assert len(said["model"]["weights"]) == len(said["model"]["features"]) == 7
    assert "model" not in answer(*given, "--out", tmp_path / "run")
    assert "model" not in said["holder_only"]["fields"]


def test_verbose_says_what_was_planned_and_why(clinic, tmp_path, cli):
    given = ("train", "--data", clinic, "--schema", tmp_path / "schema.toml", "--nodes", 3, "--out", tmp_path / "run")
    code, _, err = cli(*given, "-v", "--algorithm", "ipadmm")
    assert code == 0
    for told in (
        "1,200 rows at 3 sites (400 each), 7 features",
        "delta = 8e-06",
        "Planned: rounds = ",
        "made-up tables",
    ):
        assert told in err, told


def test_verbose_says_that_masked_sums_need_no_plan(clinic, tmp_path, cli):
    code, _, err = cli("train", "--data", clinic, "--schema", tmp_path / "schema.toml", "--nodes", 3, "-v")
    assert code == 0
    method = TrainConfig(data=str(clinic), schema=str(tmp_path / "schema.toml"), nodes=3).method
    asked = replace(method, delta=8e-6).bound_to(1200, 7, 3).rounds
    assert (
        f"Masked sums: {asked} noisy sums, a number that follows from public numbers. No other setting is open." in err
    )


def test_long_planning_is_told_of(given, tmp_path, cli, monkeypatch):
    monkeypatch.setattr(build, "_SILENCE", 0.0)
    err = cli(*given[:7], "--epsilon", 1, "--algorithm", "ipadmm", "--out", tmp_path / "run")[2]
    assert "Planning rounds, local_steps, rho, diameter, weights from public numbers" in err


def test_one_is_not_several(given, cli):
    out = cli(*given, "--rounds", 1, "--local-steps", 1)[1]
    assert "1 round of 1 local step, 1 run\n" in out


def test_an_option_of_another_name_is_suggested(cli):
    code, _, err = cli("train", "--sites", 5)
    assert (code, err.count("\n")) == (2, 1)
    assert "Give --nodes" in err


def test_help_on_nodes_is_true_for_files(cli, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    text = words(cli("train", "--help")[1].replace("│", " "))
    assert "The default is for packaged data; a file needs this or --site-column." in text


def test_shells_complete_commands():
    words_so_far = {"_SOTTOVOCE_COMPLETE": "complete_bash", "COMP_WORDS": "sottovoce sh", "COMP_CWORD": "1"}
    command = [sys.executable, "-m", "sottovoce.cli"]
    done = subprocess.run(command, env={**os.environ, **words_so_far}, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.split()) == (0, ["show"])


def test_predictions_of_what_is_shown(given, tmp_path, cli):
    """The probability that `predict` writes follows from what `show` prints."""
    cli(*given, "--out", tmp_path / "run")
    file = tmp_path / "run" / "model.safetensors"
    (tmp_path / "new.csv").write_text("age,smoker\n70,yes\n10,no\n")
    cli("predict", file, tmp_path / "new.csv", "--out", tmp_path / "p.csv")
    with (tmp_path / "p.csv").open() as lines:
        told = [float(line["probability yes"]) for line in csv.DictReader(lines)]
    found = coefficients(models.load(file))
    effect = {one.feature: one.effect[0] for one in found.features}
    z = np.array([effect["age=[60,80)"] + effect["smoker"], effect["age=[0,20)"]]) + found.intercept[0]
    assert told == pytest.approx((1 / (1 + np.exp(-z))).tolist(), abs=1e-6)
