"""People on the command line: train, account, plan, budget, schema check."""

import json

import numpy as np
import pytest
from scipy.optimize import brentq
from scipy.stats import norm

from helpers.laws import noise_of_evaluations
from sottovoce import models
from sottovoce.privacy import Unit

SCHEMA = """
[label]
column = "ill"
classes = ["no", "yes"]
[person]
column = "patient"
rows = 2
[[columns]]
name = "age"
kind = "numeric"
bounds = [0, 100]
edges = [20, 40, 60, 80]
[[columns]]
name = "smoker"
kind = "boolean"
"""
QUICK = ("--delta", "1e-5", "--epsilon", "8", "--algorithm", "masked")


@pytest.fixture
def rows(tmp_path):
    draws, path = np.random.default_rng(0), tmp_path / "rows.csv"
    lines = ["patient,age,smoker,ill,clinic"]
    for i in range(600):
        age, clinic = int(draws.integers(0, 101)), "north" if i % 2 else "south"
        lines.append(
            f"secret-{i // 4},{age},{'yes' if draws.random() < 0.5 else 'no'},{'yes' if age > 50 else 'no'},{clinic}"
        )
    path.write_text("\n".join(lines) + "\n")
    (tmp_path / "schema.toml").write_text(SCHEMA)
    return path


def given(rows, *more):
    return ("train", "--data", rows, "--schema", rows.parent / "schema.toml", *QUICK, *more)


def epsilon_of(mu, delta=1e-5):
    """Balle and Wang's formula, by scipy alone."""
    return brentq(lambda e: norm.cdf(mu / 2 - e / mu) - np.exp(e) * norm.cdf(-mu / 2 - e / mu) - delta, 0, 500)


def test_training_for_people_from_file_to_model(cli, rows, tmp_path):
    out = tmp_path / "run"
    code, printed, err = cli(*given(rows, "--site-column", "clinic", "--sites-per-person", 2, "--out", out))
    assert code == 0, err
    assert "one person at up to 2 sites, with at most 2 rows at each" in " ".join(printed.split())
    model = models.load(out / "model.safetensors")
    assert model.privacy.unit == Unit(2, 2)
    assert model.schema.person.rows == 2
    # Nothing that was written says who they are.
    for path in out.rglob("*"):
        if path.is_file():
            assert b"secret-" not in path.read_bytes()
    new = tmp_path / "new.csv"
    new.write_text("age,smoker\n70,yes\n10,no\n")
    assert cli("predict", out / "model.safetensors", new, "--out", tmp_path / "p.csv")[0] == 0
    # Nor to be scored on.
    new.write_text("age,smoker,ill\n70,yes,yes\n10,no,no\n")
    assert cli("evaluate", out / "model.safetensors", new)[0] == 0


def test_an_evaluation_protects_the_people_of_the_model(answer, rows, tmp_path, monkeypatch):
    """Two rows each at up to two sites: the noise of both sums is four times as large as for single rows."""
    found_noise, scored = noise_of_evaluations(monkeypatch), tmp_path / "scored.csv"
    lines = rows.read_text().splitlines()
    scored.write_text("\n".join(["patient,age,smoker,ill,clinic", *(f"{i}{line}" for i, line in enumerate(lines[1:]))]))
    for name, more in (("people", ("--site-column", "clinic", "--sites-per-person", 2)), ("rows", ("--nodes", 2))):
        if name == "rows":
            schema = rows.parent / "schema.toml"
            schema.write_text(SCHEMA.replace('[person]\ncolumn = "patient"\nrows = 2\n', ""))
        answer(*given(rows, *more, "--out", tmp_path / name))
        model = tmp_path / name / "model.safetensors"
        said = answer("evaluate", model, scored, "--private", "--epsilon", 1, "--delta", 1e-5)
        assert said["privacy"]["unit"] == (Unit(2, 2) if name == "people" else Unit()).words
    first, second, *single = found_noise
    assert first / single[0] == pytest.approx(4, rel=0.1)
    assert second / single[1] == pytest.approx(4, rel=0.1)


def test_an_evaluation_takes_all_rows_that_its_noise_is_for(answer, cli, rows, tmp_path):
    """A file holds a person's rows of all sites: two at each of two are four. A fifth is not paid for."""
    out = tmp_path / "run"
    answer(*given(rows, "--site-column", "clinic", "--sites-per-person", 2, "--out", out))
    ask = ("evaluate", out / "model.safetensors", rows, "--private", "--epsilon", 1, "--delta", 1e-5)
    said = answer(*ask)
    assert said["rows"] == 600
    assert said["privacy"]["unit"] == Unit(2, 2).words
    assert not any("assumed, not checked" in note for note in said["privacy"]["notes"])  # people are counted
    rows.write_text(rows.read_text() + "secret-0,30,no,no,north\n")
    code, _, err = cli(*ask)
    assert code == 2
    assert "at most rows=4 rows of a person" in err


def test_people_with_more_rows_or_at_more_sites_are_refused(cli, rows, tmp_path):
    code, _, err = cli(*given(rows, "--nodes", 3))
    assert code == 2
    assert "at most rows=2 rows of a person" in err.splitlines()[-1]
    assert "secret-" not in err
    code, _, err = cli(*given(rows, "--site-column", "clinic"))
    assert code == 2
    assert "no more than sites=1 sites" in err
    (tmp_path / "schema.toml").write_text(SCHEMA.replace("rows = 2", 'rows = 2\nsurplus = "drop"'))
    code, out, err = cli(*given(rows, "--nodes", 3, "--json"))
    assert code == 0, err
    assert json.loads(out)["privacy"]["people"] == {"rows": 2, "sites": 1}
    (tmp_path / "schema.toml").write_text(SCHEMA.replace("rows = 2", "rows = 0"))
    code, _, err = cli(*given(rows, "--nodes", 3))
    assert code == 2
    assert "person.rows from 1" in err
    code, _, err = cli("train", "--sites-per-person", 2)
    assert (code, err.count("\n")) == (2, 1)


def test_a_check_counts_people(cli, rows, tmp_path):
    code, out, _ = cli("schema", "check", rows, "--schema", tmp_path / "schema.toml")
    assert code == 1
    assert "more rows of a person than declared" in " ".join(out.split())


def test_account_prices_people(cli):
    def told(*more):
        return json.loads(cli("account", "--json", *more)[1])

    one = told("--epsilon", 1, "--steps", 100)
    local = told("--epsilon", 1, "--steps", 100, "--rows-per-person", 3, "--sites-per-person", 4)
    assert local["sigma"] == pytest.approx(6 * one["sigma"], rel=1e-6)
    sums = told("--epsilon", 1, "--steps", 100, "--rows-per-person", 3, "--sites-per-person", 4, "--sites", 10)
    assert sums["sigma"] == pytest.approx(12 * one["sigma"], rel=1e-6)
    back = told("--sigma", local["sigma"], "--steps", 100, "--rows-per-person", 3, "--sites-per-person", 4)
    assert back["epsilon"] == pytest.approx(1.0, rel=1e-6)
    assert back["epsilon"] == pytest.approx(epsilon_of(np.sqrt(400) * 3 / local["sigma"]), rel=1e-6)
    steps = told("--epsilon", 1, "--sigma", local["sigma"] * 1.0001, "--rows-per-person", 3, "--sites-per-person", 4)
    assert steps["steps"] == 100
    assert "one person" in cli("account", "--epsilon", 1, "--steps", 9, "--rows-per-person", 3)[1]
    for bad in (
        ("--rows-per-person", 0),
        ("--sites-per-person", 2),
        ("--rows-per-person", 2, "--rows", 9, "--batch-size", 3),
    ):
        code, _, err = cli("account", "--epsilon", 1, "--steps", 9, *bad)
        assert (code, err.count("\n")) == (2, 1)


def test_a_budget_for_people(cli, rows, tmp_path):
    budget = tmp_path / "budget.json"
    assert cli("budget", "new", budget, "--epsilon", 20, "--rows-per-person", 4)[0] == 0
    assert "one person at one site, with at most 4 rows" in cli("budget", "show", budget)[1]
    (tmp_path / "schema.toml").write_text(SCHEMA.replace("rows = 2", 'rows = 2\nsurplus = "drop"'))
    code, _, err = cli(*given(rows, "--nodes", 2, "--budget", budget))
    assert code != 0
    assert "as this budget does" in err
    (tmp_path / "schema.toml").write_text(SCHEMA.replace("rows = 2", "rows = 4"))
    code, _, err = cli(*given(rows, "--nodes", 2, "--budget", budget))
    assert code == 0, err


@pytest.mark.slow
def test_plans_know_of_people(cli, tmp_path, rows):
    def foretold(*more):
        shape = ("--sites", 4, "--rows", 2000, "--base-rate", 0.3, "--predictability", "well", "--json")
        return json.loads(cli("plan", *shape, *more)[1])

    rows_only, people = foretold("--features", 6), foretold("--features", 6, "--rows-per-person", 20)
    assert people["predicted"]["joined"]["mean"] > rows_only["predicted"]["joined"]["mean"]
    assert people["predicted"]["masked"]["mean"] > rows_only["predicted"]["masked"]["mean"]
    assert any("with at most 20 rows" in note for note in people["notes"])
    code, _, err = cli("plan", "--sites", 4, "--rows", 90, "--schema", tmp_path / "schema.toml", "--rows-per-person", 3)
    assert code == 2
    assert "Expected --rows-per-person 2, as in the schema" in err
