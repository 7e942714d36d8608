"""`sottovoce train --algorithm masked`: options, the table of observers, refusals."""

import json

import pytest

from sottovoce import models
from sottovoce.cli import main
from sottovoce.settings import plain
from sottovoce.studies import folder
from sottovoce.tally import PrivateEvaluation

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
    assert plain(models.load(file).privacy)["observers"] == privacy["observers"]


def test_a_run_may_evaluate_its_own_model(capsys, tmp_path):
    out = tmp_path / "run"
    asked = "--rounds", "6", "--evaluate", "0.2", "--epsilon", "1", "--out", str(out)
    code, said = run(capsys, *asked)
    assert code == 0
    assert "20 % for the evaluation" in said.err
    assert "Model and evaluation together cost epsilon = 1," in said.out
    found = folder.read(out)  # refuses an evaluation of another model
    assert found.evaluation.privacy == found.model.privacy
    assert PrivateEvaluation.from_dict(found.summary["evaluation"]) == found.evaluation
    accuracy = found.evaluation.answer.figures["accuracy"]
    assert accuracy.low <= found.summary["accuracy"]["consensus"] <= accuracy.high
    assert accuracy.high - accuracy.low < 0.3


def test_single_coefficients_are_asked_for_by_the_names_of_columns(capsys, tmp_path):
    out, asked = tmp_path / "run", tmp_path / "asked.toml"
    code, said = run(capsys, "--inference", "--focus", "sex", "--rounds", "6", "--out", str(out))
    assert code == 0
    assert "40 % for the focused gradient" in said.err
    found = folder.read(out)
    assert 'focus = ["sex"]' in found.config
    assert "The budget went to sex=Female, sex=Male" in found.model.inference.text()
    asked.write_text('focus = ["sex"]\ninference = true\nrounds = 6\n')
    assert main([*SMALL[:-4], "--config", str(asked)]) == 0


def test_the_table_of_observers_is_printed(capsys):
    code, said = run(capsys, "--colluding", "2")
    assert code == 0
    assert "colluding sites, with the message server" in said.out


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["--colluding", "6"], "colluding < least_sites=6"),
        (["--colluding", "2", "--least-sites", "4"], "2 least_sites > n + colluding = 8"),
        (["--least-sites", "7"], "least_sites <= n=6"),
        (["--spare", "-1"], "spare >= 0"),
        (["--evaluate", "1.5", "--rounds", "6"], "a share of the budget between 0 and 1, got evaluate=1.5"),
        (["--evaluate", "0.1", "--algorithm", "ipadmm"], "algorithm='masked' with evaluate, got algorithm='ipadmm'"),
        (["--inference", "--focus", "sexx", "--rounds", "6"], "got focus='sexx'. Did you mean 'sex'?"),
        (["--focus", "sex"], "inference with focus"),
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


# -- beside another ---------------------------------------------------------------------------------------------------

BOTH = ["train", "--nodes", "6", "--runs", "1", "--rounds", "2", "--local-steps", "1", "--rho", "0.001", "--epsilon",
        "0.5", "--record", "1", "--beside", "masked"]  # fmt: skip


def test_both_stand_in_one_object_at_the_same_epsilon(capsys):
    assert main([*BOTH, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["algorithm"], found["beside"]["algorithm"]) == ("ipadmm", "masked")
    assert found["privacy"]["target_epsilon"] == found["beside"]["privacy"]["target_epsilon"] == 0.5
    assert found["optimum_risk"] == found["beside"]["optimum_risk"]  # the same rows
    assert found["beside"]["risk"]["consensus"] != found["risk"]["consensus"]
    assert found["beside"]["rounds"] != found["rounds"] == 2  # its own settings


def test_both_stand_in_one_table_each_with_its_assumption(capsys):
    assert main(BOTH) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "masked sums 0." in said
    assert "IPADMM: epsilon = 0.5 holds against all 5 other sites." in said
    assert "Masked sums: epsilon = 0.5 holds against 2 colluding sites; epsilon" in said


def test_private_rows_are_not_shown_to_a_second_algorithm_unpaid(capsys, tmp_path):
    for name in ("rows.csv", "schema.toml"):
        (tmp_path / name).write_text("")
    files = ["--data", str(tmp_path / "rows.csv"), "--schema", str(tmp_path / "schema.toml")]
    assert main(["train", *files, "--nodes", "2", "--beside", "masked"]) != 0
    assert "a packaged data set with beside='masked'" in " ".join(capsys.readouterr().err.split())
