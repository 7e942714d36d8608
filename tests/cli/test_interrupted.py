"""Ctrl-C, for real: a process of its own is sent a signal at a given point, and what was paid for must be there."""

import json
import signal
import subprocess
import sys

import numpy as np
import pytest

from cli.conftest import QUICK
from helpers.programs import started
from sottovoce import models
from sottovoce.cli import main
from sottovoce.privacy import BudgetAccountant
from sottovoce.studies import folder, run

# Says where it is, and waits until the signal has been sent. What follows goes on, or is interrupted.
CHILD = """
import signal
import sys
from select import select
from sottovoce.algorithms.ipadmm import IPADMM
from sottovoce.studies import build, folder, run
from sottovoce.cli import main

def pausing(module, name, when=lambda *_: True):
    original = getattr(module, name)
    def paused(*given, **named):
        if when(*given):
            print("here", flush=True)
            while not select([sys.stdin], [], [], 0.02)[0]:  # not in one call: a signal may come just before it
                pass
        return original(*given, **named)
    setattr(module, name, paused)

pausing({where})
sys.exit(main(sys.argv[1:]))
"""
POINTS = {
    "reading": "build, '_with_plan'",
    "round 5": "IPADMM, 'release', lambda self, k, *_: k == 5",
    "last round": "IPADMM, 'release', lambda self, k, *_: k == 20",
    "writing": "folder.np, 'savez_compressed'",
    "optimum": "run, 'pooled_optimum'",
    "sites": "run, 'by_node'",
}
LEFT = {
    "config.toml",
    "summary.json",
    "history.parquet",
    "models.npz",
    "privacy.json",
    "privacy.txt",
    "model.safetensors",
}


@pytest.fixture
def interrupted(clinic, tmp_path):
    """Run with a budget, send signals at a point: (exit code, stdout, stderr, epsilon spent)."""

    def call(point, *more, signals=(signal.SIGINT,), goes_on=True):
        budget = tmp_path / "budget.json"
        assert main(["budget", "new", str(budget), "--epsilon", "9"]) == 0
        given = ["train", "--data", clinic, "--schema", tmp_path / "schema.toml", "--nodes", 3, *QUICK]
        given += ["--device", "plain"]  # it need not load kernels to be interrupted
        command = [sys.executable, "-c", CHILD.format(where=POINTS[point])]
        command += map(str, [*given, "--budget", budget, *more])
        pipe = subprocess.PIPE
        with started(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True) as child:
            assert child.stdout.readline() == "here\n"
            for number in signals:
                child.send_signal(number)
            if not goes_on:
                child.wait(timeout=300)
            out, err = child.communicate("\n", timeout=300)
        return child.returncode, out, err, BudgetAccountant.load(budget).total().epsilon

    return call


def test_before_it_is_paid_for_nothing_is_spent(interrupted, tmp_path):
    code, out, err, spent = interrupted("reading", "--out", tmp_path / "run")
    assert (code, out, spent, (tmp_path / "run").exists()) == (130, "", 0, False)
    assert err == "sottovoce: interrupted; an unfinished run writes nothing\n"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["Ctrl-C", "kill"])
def test_during_the_rounds_what_was_released_is_kept(interrupted, tmp_path, number):
    out = tmp_path / "run"
    code, said, err, spent = interrupted("round 5", "--out", out, signals=(number,))
    assert (code, said) == (130, "")
    assert spent == pytest.approx(8, rel=1e-6)
    assert "interrupted after round 5 of 20" in err
    assert f"are in {out}" in err
    assert "counts as spent" in err
    assert {path.name for path in out.iterdir()} == LEFT
    model = models.load(out / "model.safetensors")
    assert any("interrupted after round 5 of 20" in note for note in model.privacy.notes)
    assert model.privacy.epsilon == pytest.approx(8, rel=1e-6)
    with np.load(out / "models.npz", allow_pickle=False) as kept:
        assert np.array_equal(model.weights[:, 0], kept["last"][0].mean(axis=0))
    summary = json.loads((out / "summary.json").read_text())
    assert (summary["rounds_made"], summary["unfinished"]) == (5, "interrupted after round 5 of 20")
    assert main(["report", str(out)]) == 0
    assert main(["show", str(out / "model.safetensors")]) == 0


def test_without_a_folder_it_says_that_nothing_is_kept(interrupted):
    code, said, err, spent = interrupted("round 5")
    assert (code, said) == (130, "")
    assert spent == pytest.approx(8, rel=1e-6)
    assert "sottovoce: interrupted after round 5 of 20; nothing is kept without --out. The whole run counts as" in err


@pytest.mark.parametrize("point", ["last round", "writing"])
def test_when_the_rounds_are_over_the_model_is_there(interrupted, tmp_path, point):
    out = tmp_path / "run"
    code, _, err, spent = interrupted(point, "--out", out)
    assert code == 130
    assert spent == pytest.approx(8, rel=1e-6)
    assert "interrupted when the rounds were over; the model and its guarantee are in" in err
    assert {path.name for path in out.iterdir()} == LEFT | {"sites.parquet"}
    assert models.load(out / "model.safetensors").privacy.notes == ()


def test_a_yardstick_ends_at_once(interrupted, tmp_path):
    out = tmp_path / "run"
    code, said, err, _ = interrupted("optimum", "--out", out, "--yardstick", goes_on=False)
    assert code == 130
    assert "interrupted while the models were scored; the model and its guarantee are in" in err
    assert "consensus *" in said
    assert folder.read(out).summary["metrics"]["consensus"]["auc"] > 0.5
    assert folder.read(out).sites is not None


def test_scores_of_sites_end_at_once(interrupted, tmp_path):
    out = tmp_path / "run"
    code, said, err, _ = interrupted("sites", "--out", out, goes_on=False)
    assert (code, said) == (130, "")
    assert "interrupted while the models were scored; the model and its guarantee are in" in err
    assert {path.name for path in out.iterdir()} == LEFT
    assert models.load(out / "model.safetensors").d == 7


def test_who_insists_loses_it_and_is_told(interrupted, tmp_path):
    code, said, err, spent = interrupted("round 5", "--out", tmp_path / "run", signals=(signal.SIGINT, signal.SIGTERM))
    assert (code, said, (tmp_path / "run").exists()) == (130, "", False)
    assert spent == pytest.approx(8, rel=1e-6)
    assert "interrupted; nothing is kept. The whole run counts as spent" in err


def test_the_folder_is_there_before_any_yardstick(clinic, tmp_path, monkeypatch, cli):
    out = tmp_path / "run"

    def look(*_):
        assert {path.name for path in out.iterdir()} == LEFT
        raise MemoryError

    monkeypatch.setattr(run, "with_figures", look)
    assert (
        cli("train", "--data", clinic, "--schema", tmp_path / "schema.toml", "--nodes", 3, *QUICK, "--out", out)[0] == 2
    )
    assert models.load(out / "model.safetensors").d == 7


@pytest.mark.parametrize("data", ["file", "packaged"])
@pytest.mark.parametrize("asked", [(), ("--yardstick",), ("--no-yardstick",)])
def test_a_yardstick_is_for_public_rows_or_for_who_asks(clinic, tmp_path, answer, data, asked):
    file = ("--data", clinic, "--schema", tmp_path / "schema.toml")
    said = answer("train", *(file if data == "file" else ()), "--nodes", 3, *QUICK, *asked)
    wanted = asked == ("--yardstick",) or (data == "packaged" and not asked)
    assert (said["optimum_risk"] is not None) == wanted


def test_a_yardstick_has_its_time(cli, tmp_path, monkeypatch):
    monkeypatch.setattr(run, "YARDSTICK_SECONDS", 0.0)
    code, out, err = cli("train", "--nodes", 3, *QUICK, "--runs", 1, "--out", tmp_path / "run")
    assert code == 0
    assert "optimum" not in out
    assert err == "sottovoce: note: The optimum without privacy was given up after 0 s: the model does not need it.\n"
    assert folder.read(tmp_path / "run").summary["optimum_risk"] is None
