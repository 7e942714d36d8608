"""`sottovoce train --algorithm masked`: options, the table of observers, refusals."""

import json

import pytest

from sottovoce import models
from sottovoce.cli import main

SMALL = ["train", "--algorithm", "masked", "--nodes", "6", "--runs", "1", "--rounds", "3", "--record", "1"]


def run(capsys, *options):
    code = main([*SMALL, *options])
    return code, capsys.readouterr()


def test_options_reach_the_algorithm_and_the_statement(capsys, tmp_path):
    out = tmp_path / "run"
    code, said = run(
        capsys, "--colluding", "2", "--least-sites", "5", "--spare", "1", "--worst-case-epsilon", "1.5", "--json",
        "--out", str(out),
    )  # fmt: skip
    assert code == 0
    privacy = json.loads(said.out)["privacy"]
    assert [line["colluding"] for line in privacy["observers"]] == list(range(6))
    assert privacy["observers"][-1]["epsilon"] <= 1.5
    assert "at most 2 of the 6 sites collude" in privacy["prose"]
    (file,) = out.glob("*.safetensors")
    assert models.load(file).privacy.to_dict()["observers"] == privacy["observers"]


def test_the_table_of_observers_is_printed(capsys):
    code, said = run(capsys, "--colluding", "2")
    assert code == 0
    assert "colluding sites, with the relay" in said.out


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["--colluding", "6"], "colluding < least_sites=6"),
        (["--colluding", "2", "--least-sites", "4"], "2 least_sites > n + colluding = 8"),
        (["--least-sites", "7"], "least_sites <= n=6"),
        (["--spare", "-1"], "spare >= 0"),
        (["--loss", "hinge"], "loss with curvature"),
        (["--graph", "ring"], "a complete graph"),
        (["--local-steps", "3"], "settings of algorithm='masked'"),
    ],
)
def test_what_does_not_fit_is_one_line(capsys, options, told):
    code, said = run(capsys, *options)
    assert code != 0
    assert told in " ".join(said.err.split())
    assert "Traceback" not in said.err
