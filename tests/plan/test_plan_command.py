"""`sottovoce plan`, as a command of its own."""

import json

import pytest
import typer
from typer.testing import CliRunner

from sottovoce.cli.plan import plan
from sottovoce.errors import InputError

APP = typer.Typer()
APP.command()(plan)
SHAPE = ["--sizes", "60,80,70", "--features", "4", "--max-rounds", "5", "--quiet"]


def run(*arguments):
    return CliRunner().invoke(APP, list(arguments))


def test_json_and_plot(tmp_path):
    drawn = tmp_path / "risk.svg"
    found = json.loads(run(*SHAPE, "--json", "--plot", str(drawn)).stdout)
    assert found["settings"]["rounds"] <= 5
    assert len(found["trade_off"]) == 6
    assert "--nodes 3 --graph complete --epsilon 1 --delta 1e-05" in found["train"]
    assert f"--diameter {found['settings']['diameter']:.6g}" in found["train"]
    assert "<svg" in drawn.read_text(encoding="utf-8")


def test_tables():
    shown = run(*SHAPE).stdout
    assert "local steps" in shown
    assert "Joining" in shown
    assert "sottovoce train --nodes 3" in shown


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--features", "4"], "--sites and --rows, or --sizes"),
        (["--sites", "3", "--rows", "10"], "--features, --schema or --stand-in"),
        (["--sizes", "1,x", "--features", "4"], "got sizes='1,x'"),
        (["--sizes", "1,2", "--sites", "2", "--features", "4"], "either --sizes or --sites"),
        (["--sites", "0", "--rows", "1", "--features", "4"], "at least one site"),
        (["--sites", "3", "--rows", "10", "--stand-in", "iris"], "a stand-in among adult, bank, got stand_in='iris'"),
        (["--sites", "3", "--rows", "10", "--stand-in", "bank", "--features", "4"], "a stand-in with d=4 columns"),
    ],
)
def test_refusals(arguments, message):
    error = run(*arguments).exception
    assert isinstance(error, InputError)
    assert message in str(error)
