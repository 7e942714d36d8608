"""Which guarantees are doubted, which refused, and which delta so many rows get."""

import math
import warnings

import numpy as np
import pytest

import sottovoce as sv
from sottovoce.cli import main
from sottovoce.errors import InputError, PrivacyLeakWarning
from sottovoce.estimators import PrivateLogisticRegression, PrivateSearch
from sottovoce.privacy import BudgetAccountant
from sottovoce.privacy.strength import default_delta, large_delta, no_delta, no_epsilon

SCHEMA = """version = 1
[label]
column = "y"
classes = ["0", "1"]
[[columns]]
name = "x"
kind = "numeric"
bounds = [0, 1]
scale = "unit"
"""
SETTINGS = {"rounds": 3, "local_steps": 1, "rho": 0.1, "diameter": 1.0}
STEPS = sv.IPADMM(**SETTINGS)


@pytest.mark.parametrize("rows", [1, 10, 999, 1000, 1001, 1234, 45_222, 10**6, 3 * 10**6, 10**12])
def test_a_default_is_far_below_one_in_the_number_of_rows(rows):
    delta = default_delta(rows)
    assert 0 < delta <= min(1e-5, 1 / (100 * rows) * (1 + 1e-9))
    assert delta > min(1e-5, 1 / (100 * rows)) / 2.01  # one digit, rounded down: never less than half
    assert f"{delta:.0e}" == f"{delta:.6e}".replace(".000000", "")
    assert large_delta(delta, rows) is None


def test_the_limits():
    assert no_delta(0.01) is no_epsilon(20) is large_delta(1e-3, 1000) is None
    assert "delta=0.011" in str(no_delta(0.011))
    assert "epsilon=20.5" in str(no_epsilon(20.5))
    assert no_epsilon(math.inf) is not None
    assert "1 in 1,000" in str(large_delta(1.1e-3, 1000))


@pytest.fixture
def rows(tmp_path):
    draws = np.random.default_rng(0)
    lines = [f"{x:.3f},{int(x > 0.5)}" for x in draws.random(2000)]
    (tmp_path / "rows.csv").write_text("\n".join(["x,y", *lines]) + "\n")
    (tmp_path / "schema.toml").write_text(SCHEMA)
    return tmp_path


def run(rows, capsys, *more):
    settings = [part for name, value in SETTINGS.items() for part in (f"--{name.replace('_', '-')}", str(value))]
    files = ["--data", str(rows / "rows.csv"), "--schema", str(rows / "schema.toml"), "--nodes", "2"]
    code = main(["train", *files, *settings, *map(str, more)])
    return (code, *capsys.readouterr())


def test_a_file_gets_a_delta_for_its_rows(rows, capsys):
    _, out, err = run(rows, capsys)
    assert "delta = 5e-06" in out
    assert "1 in 2,000" not in err


@pytest.mark.parametrize(("weak", "told"), [(("--delta", 0.5), "delta=0.5"), (("--epsilon", 21), "epsilon=21"),
                                            (("--epsilon", "inf"), "epsilon=inf")])  # fmt: skip
def test_no_guarantee_to_speak_of_is_refused_and_costs_nothing(rows, capsys, weak, told):
    budget = rows / "budget.json"
    assert main(["budget", "new", str(budget), "--epsilon", "50", "--delta", "0.9"]) == 0
    capsys.readouterr()
    code, out, err = run(rows, capsys, *weak, "--budget", budget, "--out", rows / "run")
    advice, refusal = err.splitlines()  # the first is on the schema, and refuses nothing
    assert (code, out, (rows / "run").exists()) == (2, "", False)
    assert "row_norm" in advice
    assert told in refusal
    assert "--force" in err
    assert BudgetAccountant.load(budget).total().epsilon == 0
    assert run(rows, capsys, *weak, "--force", "--out", rows / "run")[0] == 0


def test_an_algorithm_without_noise_is_refused_too(rows, capsys):
    files = ["--data", str(rows / "rows.csv"), "--schema", str(rows / "schema.toml"), "--nodes", "2"]
    plain = ["train", *files, "--algorithm", "admm", "--rounds", "2", "--out", str(rows / "run")]
    assert main(plain) == 2
    assert "epsilon=inf" in capsys.readouterr().err
    assert main([*plain, "--force"]) == 0
    assert "NOT PRIVATE" in capsys.readouterr().out


def test_a_large_delta_is_warned_of(rows, capsys):
    code, _, err = run(rows, capsys, "--delta", 1e-3)
    assert code == 0
    assert "delta=0.001 is more than 1 in 2,000, the number of rows" in err
    assert "gives 5e-06 here" in err


def test_packaged_data_keep_the_papers(capsys):
    assert main(["train", "--nodes", "3", "--rounds", "1", "--local-steps", "1", "--rho", "1", "--diameter", "1"]) == 0
    out, err = capsys.readouterr()
    assert "delta = 1e-05" in out
    assert err == ""


def test_costs_add_up_and_somebody_should_count(rows, capsys):
    assert "costs add up" in run(rows, capsys)[2]
    assert main(["budget", "new", str(rows / "budget.json"), "--epsilon", "5"]) == 0
    assert "costs add up" not in run(rows, capsys, "--budget", rows / "budget.json")[2]


def test_who_keeps_nothing_is_told_before(rows, capsys):
    assert "nothing is kept" in run(rows, capsys)[2]
    assert "nothing is kept" in run(rows, capsys, "--quiet")[2]
    assert "nothing is kept" not in run(rows, capsys, "--out", rows / "run")[2]


def test_sites_of_one_row_are_warned_of(rows, capsys):
    files = ["--data", str(rows / "rows.csv"), "--schema", str(rows / "schema.toml"), "--nodes", "1500"]
    settings = [part for name, value in SETTINGS.items() for part in (f"--{name.replace('_', '-')}", str(value))]
    assert main(["train", *files, *settings]) == 0
    assert "1,500 of 1,500 sites hold fewer than 10 rows" in capsys.readouterr().err


# -- estimators -----------------------------------------------------------------------------------------------------


def fitted(**more):
    draws = np.random.default_rng(0)
    X = draws.normal(size=(2000, 2)) / 4
    given = {"data_norm": 1.0, "classes": [0, 1], "algorithm": STEPS, **more}
    return PrivateLogisticRegression(**given).fit(X, (X[:, 0] > 0).astype(int))


def test_an_estimator_chooses_a_delta_for_its_rows():
    assert fitted().privacy_.delta == 5e-6


@pytest.mark.parametrize(("weak", "told"), [({"delta": 1e-3}, "1 in 2,000"), ({"epsilon": 30.0}, "epsilon=30 ")])
def test_an_estimator_warns_of_a_weak_guarantee_and_says_so_for_good(weak, told):
    with pytest.warns(PrivacyLeakWarning, match=told):
        model = fitted(**weak)
    assert any(told in note for note in model.privacy_.notes)


def test_an_estimator_refuses_a_delta_that_is_none():
    with pytest.raises(InputError, match=r"delta=0\.5 is above 0\.01"):
        fitted(delta=0.5)
    accountant, X = BudgetAccountant(5.0, 1e-3), np.random.default_rng(0).normal(size=(300, 2))
    estimator = PrivateLogisticRegression(data_norm=9.0, classes=[0, 1], algorithm=STEPS)
    search = PrivateSearch(estimator, {"lam": [1e-3]}, delta=0.5, accountant=accountant)
    with pytest.raises(InputError, match=r"delta=0\.5 is above 0\.01"):
        search.fit(X, (X[:, 0] > 0).astype(int))
    assert accountant.total().epsilon == 0


def test_a_good_guarantee_is_not_warned_of():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert fitted(epsilon=20.0, delta=1e-4).privacy_.notes == ()
