"""What is left out where there are very many rows: scores that nobody asked for, and rows of a yardstick."""

import numpy as np
import pytest

import sottovoce as sv
from sottovoce.plan.synthetic import Belief, table
from sottovoce.problem.losses import Logistic
from sottovoce.simulation import history, optimum


@pytest.mark.parametrize(
    ("rows", "models", "records"),
    [(45_222, 2010, 10), (1_000_000, 11, 10), (10_000_000, 11, 3), (10**9, 11, 1), (1, 1, 10)],
)
def test_usual_records(rows, models, records):
    assert history.usual_records(rows, models) == records


def test_fewer_rounds_are_recorded_but_what_was_asked_for_is(monkeypatch):
    sites = sv.Sites.split(table(300, 4, Logistic(), seed=0), 3, seed=0)
    algorithm, graph = sv.IPADMM(rounds=20, local_steps=1, diameter=1.0), sv.graphs.complete(3)
    monkeypatch.setattr(history, "MOST_SCORED", 2 * 300 * 64)
    rounds = [np.unique(sv.simulate(algorithm, sites, graph, seed=0, record=r).history["round"]) for r in (None, 5)]
    assert rounds[0].tolist() == [10, 20]
    assert rounds[1].tolist() == [4, 8, 12, 16, 20]


def test_evenly_spaced_rows_stand_for_all(monkeypatch):
    sites = sv.Sites.split(table(8000, 6, Logistic(), seed=1, belief=Belief(0.3, (0.2, 0.2))), 4, seed=0)
    whole = optimum.pooled_optimum(sites, sv.IPADMM())
    monkeypatch.setattr(optimum, "MOST_ROWS", 2000)
    part = optimum.pooled_optimum(sites, sv.IPADMM())
    assert whole < part < whole + 6 / 2000
