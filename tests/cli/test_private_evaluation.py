"""`sottovoce evaluate --private`: paid for first, kept if it can be, and nothing of it without noise."""

import json
from pathlib import Path

import numpy as np
import pytest

from cli.conftest import QUICK, SCHEMA, write
from sottovoce.privacy import BudgetAccountant
from sottovoce.settings import plain
from sottovoce.tally import PrivateEvaluation

NUMBER = SCHEMA.replace("classes = {classes}", "bounds = [0, 200]")


@pytest.fixture
def model(clinic, tmp_path, answer):
    run = tmp_path / "run"
    answer("train", "--data", clinic, "--schema", tmp_path / "schema.toml", "--nodes", 3, *QUICK, "--out", run)
    return run / "model.safetensors"


def test_it_is_charged_and_kept_and_near_what_the_rows_say(model, clinic, tmp_path, answer, cli):
    budget, out = tmp_path / "budget.json", tmp_path / "run" / "evaluation.json"
    BudgetAccountant(2.0, 1e-5).save(budget)
    said = answer("evaluate", model, clinic, "--private", "--epsilon", 1, "--delta", 1e-5, "--budget", budget,
                  "--out", out)  # fmt: skip
    true = answer("evaluate", model, clinic)
    assert said["privacy"]["epsilon"] == pytest.approx(1.0, rel=1e-6)
    assert len(BudgetAccountant.load(budget)) == 1
    assert BudgetAccountant.load(budget).total().epsilon == pytest.approx(1.0, rel=1e-6)
    for name in ("accuracy", "auc"):  # ten times the half width: it may be off, but not by that
        one = said["answer"]["figures"][name]
        assert one["low"] <= one["value"] <= one["high"]
        assert abs(one["value"] - true[name]) < 5 * (one["high"] - one["low"])
    assert said["rows"] == 1200
    assert any("too good" in note for note in said["privacy"]["notes"])  # the same 1200 rows
    assert json.loads(json.dumps(plain(PrivateEvaluation.load(out)))) == said
    assert said["answer"]["confusion"][0][0]["value"] != true["confusion"][0][0]
    code, shown, _ = cli("evaluate", model, clinic, "--private", "--epsilon", 0.5, "--budget", budget)
    assert code == 0
    assert "may be shared" in shown
    assert "95 % interval" in shown
    assert len(BudgetAccountant.load(budget)) == 2


def test_two_evaluations_differ(model, clinic, answer):
    asked = ("evaluate", model, clinic, "--private", "--epsilon", 1)
    assert answer(*asked)["answer"] != answer(*asked)["answer"]


def test_a_budget_that_would_be_overdrawn(model, clinic, tmp_path, cli):
    budget = tmp_path / "budget.json"
    BudgetAccountant(0.5, 1e-5).save(budget)
    code, shown, said = cli("evaluate", model, clinic, "--private", "--epsilon", 1, "--delta", 1e-5, "--budget", budget)
    assert code != 0
    assert "Nothing was computed, nothing charged" in said
    assert not shown
    assert len(BudgetAccountant.load(budget)) == 0


def test_nobody_counts_without_a_budget(model, clinic, cli):
    _, _, said = cli("evaluate", model, clinic, "--private", "--epsilon", 1)
    assert "costs add up" in said


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--private"], "--epsilon"),
        (["--epsilon", "1"], "--private"),
        (["--budget", "x.json"], "--private"),
        (["--private", "--epsilon", "0"], "epsilon=0"),
        (["--private", "--epsilon", "1", "--nodes", "0"], "sites=0"),
        (["--private", "--epsilon", "1", "--nodes", "4", "--colluding", "4"], "colluding=4"),
        (["--private", "--epsilon", "1", "--threshold", "2"], "threshold=2"),
        (["--private", "--epsilon", "1", "--delta", "0.5"], "delta=0.5"),
        (["--private", "--epsilon", "1", "--budget", "nowhere.json"], "nowhere.json"),
    ],
)
def test_refusals(model, clinic, cli, options, words):
    code, shown, said = cli("evaluate", model, clinic, *options)
    assert code == 2
    assert not shown
    assert words in said.splitlines()[-1]


def test_a_label_of_no_class_costs_nothing(model, clinic, tmp_path, cli):
    budget, other = tmp_path / "budget.json", tmp_path / "other.csv"
    BudgetAccountant(2.0, 1e-5).save(budget)
    lines = Path(clinic).read_text().splitlines()
    other.write_text("\n".join([lines[0], *(line.replace("yes", "perhaps") for line in lines[1:])]))
    code, _, said = cli("evaluate", model, other, "--private", "--epsilon", 1, "--budget", budget)
    assert code == 2
    assert "perhaps" in said or "label" in said or "ill" in said
    assert len(BudgetAccountant.load(budget)) == 0


def test_what_was_paid_for_is_printed_if_it_cannot_be_kept(model, clinic, tmp_path, cli, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("sottovoce.tally.evaluation.write_whole", full)
    code, shown, said = cli("evaluate", model, clinic, "--private", "--epsilon", 1, "--out", tmp_path / "e.json")
    assert code == 2
    assert "printed instead" in said
    assert PrivateEvaluation.from_dict(json.loads(shown)).rows == 1200


def test_what_is_there_is_not_written_over(model, clinic, tmp_path, cli):
    (tmp_path / "e.json").write_text("mine")
    code, _, _ = cli("evaluate", model, clinic, "--private", "--epsilon", 1, "--out", tmp_path / "e.json")
    assert code == 2
    assert (tmp_path / "e.json").read_text() == "mine"


def test_three_classes_and_numbers(tmp_path, answer, cli):
    (tmp_path / "schema.toml").write_text(SCHEMA.format(classes='["young", "middle", "old"]'))
    rows = write(tmp_path / "rows.csv", lambda age, _: "young" if age < 40 else "middle" if age < 80 else "old")
    given = ("--schema", tmp_path / "schema.toml", "--nodes", 3, *QUICK)
    answer("train", "--data", rows, *given, "--out", tmp_path / "classes")
    model = tmp_path / "classes" / "model.safetensors"
    said = answer("evaluate", model, rows, "--private", "--epsilon", 5)["answer"]
    true = answer("evaluate", model, rows)
    assert np.array([[one["value"] for one in line] for line in said["confusion"]]) == pytest.approx(
        np.array(true["confusion"], dtype=float), abs=40
    )
    assert "recall of middle" in cli("evaluate", model, rows, "--private", "--epsilon", 5)[1]

    (tmp_path / "schema.toml").write_text(NUMBER)
    rows = write(tmp_path / "numbers.csv", lambda age, _: round(age * 1.5, 1))
    answer("train", "--data", rows, *given, "--out", tmp_path / "numbers")
    model = tmp_path / "numbers" / "model.safetensors"
    said = answer("evaluate", model, rows, "--private", "--epsilon", 5)["answer"]["figures"]
    true = answer("evaluate", model, rows)
    assert said["mean_absolute_error"]["value"] == pytest.approx(true["mean_absolute_error"], rel=0.2)
    code, shown, _ = cli("evaluate", model, rows, "--private", "--epsilon", 5)
    assert code == 0
    assert "Errors above" in shown
