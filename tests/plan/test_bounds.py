"""What a plan may cost: wide tables, many rows, settings that do not jump, and both ways of speaking."""

import itertools

import numpy as np
import pytest

from sottovoce import graphs
from sottovoce.estimators import training
from sottovoce.plan import plan, predict, surrogate
from sottovoce.plan.planner import _problems
from sottovoce.plan.synthetic import table
from sottovoce.plan.task import WORK, entries
from sottovoce.problem.losses import Hinge, Logistic, Softmax
from sottovoce.problem.problem import Problem
from sottovoce.problem.regularisers import L2


def made(sizes, d, **options):
    return plan(sizes=sizes, d=d, graph=graphs.complete(len(sizes)), **{"epsilon": 1.0, **options})


def test_wide_tables_need_no_matrix_of_their_width(monkeypatch):
    widths, eigh = [], np.linalg.eigh
    monkeypatch.setattr(np.linalg, "eigh", lambda h: widths.append(len(h)) or eigh(h))
    found = made([2000] * 5, 5001, max_rounds=20)
    assert max(widths) <= surrogate.WIDEST
    for problem in _problems(found.task, None):
        assert problem.size.sum() == pytest.approx(5001)


def test_a_wider_table_keeps_trace_and_excess():
    narrow = surrogate.surrogate(table(2000, 60, Logistic(), seed=1), Logistic(), ridge=1e-6)
    wide = surrogate.widened(narrow, 600)
    for one, other in ((narrow, wide),):
        assert np.sum(one.size * one.curvatures) == pytest.approx(np.sum(other.size * other.curvatures))
        at_zero = [np.sum(s.size * s.curvatures * s.optimum**2) / 2 for s in (one, other)]
        assert at_zero[0] == pytest.approx(at_zero[1])
    assert wide.curvatures.max() == pytest.approx(narrow.curvatures.max())
    # A table of that width, made in full, is alike in what decides: the largest curvature and the trace.
    full = surrogate.surrogate(table(6000, 600, Logistic(), seed=1), Logistic(), ridge=1e-6)
    assert 1 / 3 < full.curvatures.max() / wide.curvatures.max() < 3
    assert 1 / 3 < np.sum(full.size * full.curvatures) / np.sum(wide.size * wide.curvatures) < 3


@pytest.mark.parametrize("rows", [10_000, 2_000_000])
def test_steps_stay_within_the_work(rows):
    settings = made([rows] * 5, 15).settings
    assert settings["batch_size"] is None
    assert settings["rounds"] * settings["local_steps"] * 5 * rows * entries(15) <= WORK


def test_of_very_many_rows_batches_are_taken():
    settings = made([10**8] * 2, 15, max_rounds=20).settings
    assert settings["batch_size"] is not None
    assert 20 * 2 * settings["batch_size"] * entries(15) <= WORK


def test_settings_do_not_jump():
    """Few rows, a little more budget each time: nothing changes by more than the budget could explain."""
    plans = [made([90] * 5, 11, epsilon=epsilon).setting for epsilon in (0.5, 0.7, 1.0, 1.4)]
    for a, b in itertools.pairwise(plans):
        steps = a.rounds * a.local_steps, b.rounds * b.local_steps
        assert max(steps) <= 4 * min(steps)
        assert 1 / 4 < (a.diameter / steps[0] ** 0.5) / (b.diameter / steps[1] ** 0.5) < 4
        assert 1 / 4 < a.rho / b.rho < 4


def test_a_larger_site_gets_further_alone():
    found = made([4933, 1039, 300], 104, max_rounds=30)
    alone = [gain.alone for gain in found.gains]
    assert alone[0] < 0.97 * alone[1] < 0.97 * alone[2]


def test_both_ways_are_foretold():
    found = made([1500] * 6, 12, max_rounds=20)
    assert found.predicted.masked.mean < found.predicted.joined.mean  # the noise of three sites, not of one
    assert found.way == "masked"
    assert "at most 2 of the 6 sites collude" in found.ways
    assert found.ways.startswith("Masked sums, the default")
    assert "no worse" not in found.ways


def test_fewer_honest_sites_more_noise():
    """Nobody sees less of the noise than a colluder: the more there are, the more must be added."""
    task = made([300] * 8, 12).task
    data = predict.tables(task, None)
    means = [predict.risks(task, predict.masked(task, c), data)[0].mean() for c in (0, 3, 6)]
    assert means == sorted(means)


def test_against_all_others_masked_sums_have_the_noise_of_every_site():
    trusting, alone = (made([500] * 4, 6, colluding=c, max_rounds=10) for c in (1, 3))
    assert alone.way == "masked"  # one rule, whoever colludes
    assert alone.predicted.masked.mean > trusting.predicted.masked.mean
    assert "at most 3 of the 4 sites collude" in alone.ways


def test_masked_sums_need_a_smooth_loss():
    found = made([500] * 4, 6, loss=Hinge(), max_rounds=10)
    assert found.way == "local"
    assert "the slope of loss=hinge jumps" in found.ways


def test_estimators_plan_the_loss_that_they_have():
    """Several classes are planned for as such: the noise of softmax is not that of a logistic model."""
    rng = np.random.default_rng(0)
    parts = [np.arange(100), np.arange(100, 200)]
    problem = Problem.from_arrays(
        rng.normal(size=(200, 4)), rng.integers(0, 3, 200).astype(float), parts, graphs.complete, private=False
    )
    objective = {
        "epsilon": 1.0, "delta": 1e-5, "loss": Softmax(3), "regulariser": L2(), "lam": 1e-4, "max_grad_norm": None,
    }  # fmt: skip
    chosen = training.choose("ipadmm", False, objective, problem)
    assert chosen.plan.task.loss == chosen.algorithm.loss == Softmax(3)
    assert (chosen.plan.task.d, chosen.plan.task.coordinates) == (4, 12)
