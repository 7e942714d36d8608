"""Sites of unequal size: which weights are planned, and what each site is told before it joins."""

import json
import math
from dataclasses import replace

import numpy as np
import pytest
from typer.testing import CliRunner

from plan.test_plan_command import APP
from sottovoce import graphs
from sottovoce.plan import plan
from sottovoce.plan.joining import advice, kinds, noise
from sottovoce.problem.sites import WEIGHTS

STEEP = [16000, 4900, 2500, 1500, 1000, 760, 590, 470, 380, 320, 270, 230]


def made(sizes, **options):
    given = {"d": 20, "graph": graphs.complete(len(sizes)), "epsilon": 1.0, "max_rounds": 30, **options}
    return plan(sizes=sizes, **given)


@pytest.fixture(scope="module")
def steep():
    return made(STEEP)


def test_much_noise_and_very_unequal_sites_ask_for_squared_rows(steep):
    assert steep.settings["weights"] == steep.algorithm().weights == "squared"


def test_without_noise_every_row_counts_the_same():
    """Then only the size of the sample is left to choose by, and the pooled mean has the most rows."""
    assert made(STEEP, epsilon=math.inf).settings["weights"] == "rows"


@pytest.mark.parametrize("sizes", [[500] * 4, [500, 510, 490, 505]])
def test_alike_sites_count_the_same_and_nothing_is_said(sizes):
    found = made(sizes)
    assert found.settings["weights"] == "equal"
    assert [kind.sites for kind in kinds(found.task)] == ([4] if len(set(sizes)) == 1 else [1, 1, 1, 1])


@pytest.mark.parametrize("weights", WEIGHTS)
def test_given_weights_stay(weights):
    assert made(STEEP, fixed={"weights": weights}).settings["weights"] == weights


def test_kinds_are_all_sites_and_all_weight(steep):
    found = kinds(steep.task)
    assert len(found) <= 5
    assert found[0].rows == 16000
    assert (found[0].sites, sum(kind.sites for kind in found)) == (1, len(STEEP))
    assert sum(kind.weight for kind in found) == pytest.approx(1.0)
    assert [kind.rows for kind in found] == sorted((kind.rows for kind in found), reverse=True)
    assert found[0].weight == pytest.approx(16000**2 / sum(m**2 for m in STEEP))


def test_noise_is_that_of_the_weighted_mean():
    """Against the paper's formulas: 1/n^2 sum 1/m^2, n / (sum m)^2, 1 / sum m^2."""
    m = np.array(STEEP, dtype=float)
    by_hand = {"equal": np.sum(1 / m**2) / len(m) ** 2, "rows": len(m) / m.sum() ** 2, "squared": 1 / np.sum(m**2)}
    for weights, expected in by_hand.items():
        task = replace(made([5, 5]).task, fixed={"weights": weights})
        assert noise(STEEP, task) == pytest.approx(expected)


def test_squared_rows_never_advise_to_leave_sites_out_and_equal_ones_do():
    words = {w: " ".join(advice(made(STEEP, fixed={"weights": w}).task)) for w in WEIGHTS}
    assert "Leave out" not in words["squared"]
    assert "weigh 0." in words["squared"]
    assert "a site as its rows squared (weights=squared); the largest site has" in words["squared"]
    assert "Leave out the" in words["equal"]
    assert "every row the same" in words["rows"]


def test_every_size_is_told_what_it_gains(steep):
    assert [gain.kind for gain in steep.gains] == list(kinds(steep.task))
    assert {gain.together for gain in steep.gains} == {steep.predicted.together.mean}
    smallest, largest = steep.gains[-1], steep.gains[0]
    assert smallest.alone > largest.alone
    assert smallest.helps


def test_the_largest_is_advised_not_to_join_where_it_would_lose():
    found = made([20000, 200, 180, 160, 140, 120], fixed={"weights": "equal"})
    assert not found.gains[0].helps
    assert not found.joining_helps
    assert "20000 rows" in found.reason
    assert "Advise sites of such sizes not to join" in found.reason


@pytest.mark.usefixtures("few_tables")
def test_the_command_says_it():
    arguments = ["--sizes", "4000,900,300,100", "--features", "6", "--max-rounds", "10", "--quiet"]
    shown = CliRunner().invoke(APP, arguments).stdout
    assert "What joining means for a site, by its rows" in shown
    assert "--weights" in shown
    found = json.loads(CliRunner().invoke(APP, [*arguments, "--json"]).stdout)
    assert [line["rows"] for line in found["by_size"]] == [4000, 900, 300, 100]
