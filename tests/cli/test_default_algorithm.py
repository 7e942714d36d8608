"""Which algorithm `train` takes for a file where none is named, and how it says so."""

import json

import pytest

from cli.conftest import SCHEMA
from sottovoce.privacy import PrivacyStatement
from sottovoce.studies.config import TrainConfig


@pytest.fixture
def given(clinic, tmp_path):
    return ("train", "--data", clinic, "--schema", tmp_path / "schema.toml", "--nodes", 5, "--epsilon", 8)


def test_masked_sums_and_what_they_assume_come_first(cli, given, tmp_path):
    code, out, _ = cli(*given, "--out", tmp_path / "run")
    assert code == 0
    first = out.splitlines()[0]
    assert first.startswith("Algorithm: masked sums. This holds if at most 2 of the 5 sites collude.")
    # The sum holds the noise of n - c = 3 sites; with noise of its own at every site each has as much as a curator.
    assert "Noise of its own at every site needs no such assumption, and would be about 1.7 times" in first
    assert first.endswith("That is --algorithm ipadmm.")
    text = (tmp_path / "run" / "privacy.txt").read_text()
    assert " ".join(text.split()).startswith("This holds if at most 2 of the 5 sites collude.")
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert summary["algorithm"] == "masked"
    assert PrivacyStatement.from_dict(summary["privacy"]).assumed in first
    again = TrainConfig.from_toml((tmp_path / "run" / "config.toml").read_text())
    assert again.algorithm == "masked"


@pytest.mark.parametrize(
    ("more", "algorithm", "first"),
    [
        (("--algorithm", "ipadmm", "--rounds", 3, "--rho", 0.1), "ipadmm", "ipadmm on"),
        (("--rounds", 3, "--rho", 0.1), "ipadmm",
         "Algorithm: ipadmm, not masked sums, the default: rho is a setting of ipadmm."),
        (("--loss", "hinge", "--rounds", 3), "ipadmm",
         "Algorithm: ipadmm, not masked sums, the default: the slope of loss=hinge jumps."),
        (("--graph", "ring", "--rounds", 3), "ipadmm",
         "Algorithm: ipadmm, not masked sums, the default: not every two sites exchange messages (graph=ring)."),
        (("--colluding", 4), "masked", "Algorithm: masked sums. This holds even if all 4 other sites collude."),
        (("--colluding", 0), "masked", "Algorithm: masked sums. This holds if none of the 5 sites collude. "),
        (("--nodes", 1), "masked", "Algorithm: masked sums. There is one site, so nothing is sent or masked."),
        (("--nodes", 2), "masked", "Algorithm: masked sums. This holds even if the other site colludes."),
    ],
)  # fmt: skip
def test_what_is_given_chooses_and_is_named(cli, given, more, algorithm, first):
    code, out, err = cli(*given, *more)
    assert code == 0, err
    assert out.startswith(first)
    assert f"{algorithm} on clinic" in out


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (("--rounds", 20), "Expected an algorithm with rounds=20, got none"),
        (("--evaluate", 0.1, "--rho", 0.1), "Expected settings of algorithm='masked', got rho=0.1"),
        (("--colluding", 1, "--loss", "hinge"), "Expected a loss with curvature"),
    ],
)
def test_nothing_is_guessed_and_nothing_dropped(cli, given, more, said):
    code, _, err = cli(*given, *more)
    assert code == 2
    assert said in " ".join(err.split())


def test_a_file_of_settings_has_the_same_default(cli, clinic, tmp_path):
    file = tmp_path / "settings.toml"
    file.write_text(
        f'data = "{clinic}"\nschema = "{tmp_path / "schema.toml"}"\nsite-column = "clinic"\nepsilon = 8.0\n'
    )
    code, out, _ = cli("train", "--config", file, "--json")
    assert code == 0
    assert json.loads(out)["algorithm"] == "masked"


def test_packaged_data_keep_the_papers_algorithm():
    assert TrainConfig().choice == ("ipadmm", "")
    assert TrainConfig(rounds=7).resolved().algorithm == "ipadmm"


@pytest.mark.parametrize("known", [{"base_rate": 0.01}, {"base_rate": 0.5, "predictability": "almost"}])
def test_what_the_schema_supplies_is_planned_with_and_stated(cli, clinic, tmp_path, known, monkeypatch):
    from sottovoce.studies import build

    asked, real = {}, build.plan
    monkeypatch.setattr(build, "plan", lambda **public: asked.update(public) or real(**public))
    lines = "".join(f"{name} = {json.dumps(value)}\n" for name, value in known.items())
    schema = SCHEMA.format(classes='["no", "yes"]') + f"\n[supplied]\n{lines}"
    (tmp_path / "supplied.toml").write_text(schema)
    code, _, err = cli(
        "train", "--data", clinic, "--schema", tmp_path / "supplied.toml", "--nodes", 3, "--epsilon", 8, "--algorithm",
        "ipadmm", "--rounds", 3, "--out", tmp_path / "run", "-v",
    )  # fmt: skip
    assert code == 0, err
    assert {name: asked[name] for name in known} == known
    words = "; ".join(f"{name.replace('_', ' ')} {value}" for name, value in known.items())
    assert f"Supplied, not computed from the rows: {words}." in " ".join(err.split())
    statement = " ".join((tmp_path / "run" / "privacy.txt").read_text().split())
    assert f"Supplied with the schema, not computed from the rows: {words}." in statement


def test_a_bound_that_rows_seldom_reach_is_said_before_it_is_paid_for(cli, answer, clinic, tmp_path):
    """By plans and training alike, from the schema alone."""
    scaled = SCHEMA.format(classes='["no", "yes"]').replace("edges = [20, 40, 60, 80]", 'scale = "unit"')
    (tmp_path / "scaled.toml").write_text(scaled)
    advice = 'row_norm = "bound" allows rows of norm 1.73'
    given = ("--data", clinic, "--schema", tmp_path / "scaled.toml", "--nodes", 3, "--epsilon", 8)
    code, _, err = cli("train", *given)
    assert code == 0
    assert f"Advice: {advice}" in err
    assert advice not in cli("train", "--data", clinic, "--schema", tmp_path / "schema.toml", "--nodes", 3)[2]
    found = answer("plan", "--sites", 2, "--rows", 50, "--schema", tmp_path / "scaled.toml", "--max-rounds", 2)
    assert found["advice"].startswith(advice)
