"""An argmin is only solved to a tolerance, and a solver may miss on the side that tells most. The noise covers that.

With hinge losses inside the margin the local problem is quadratic: its minimiser is known, and so is the worst that a
solver may return.
"""

from typing import ClassVar

import numpy as np
import pytest

import sottovoce as sv
from algorithms import harness
from sottovoce import algorithms as al
from sottovoce.errors import SottovoceError
from sottovoce.oracle.argmin.solver import ArgminSolver
from sottovoce.oracle.plain import Oracle
from sottovoce.problem.problem import Problem
from sottovoce.simulation.engine import solve

D, M = 3, 4
GRAPH = sv.graphs.complete(2)
ADDED = {
    "pvp": al.PVP(rounds=2, rho=5.0, loss=sv.losses.Hinge()),
    "pvp, published": al.PVP(rounds=2, rho=5.0, lam=40.0, loss=sv.losses.Hinge(), form="published"),
    "fixed point": al.FixedPoint(rounds=2, rho=5.0, loss=sv.losses.Hinge()),
}


class Missing(Oracle):
    """The minimiser of the quadratic, missed by all that is allowed."""

    side: ClassVar[float]

    def expect_argmin(self):
        """A hinge is fine inside its margin."""

    def argmin(self, pull, curvature, start, tolerance):
        data = self.gradient(0 * start)  # the same for all w inside the margin; the regulariser adds nothing at 0
        mu = curvature + self.lam * self.regulariser.l2
        along = np.zeros_like(start)
        along[:, 0] = self.side
        return (pull - data) / mu + tolerance / mu * along


class High(Missing):
    side = 1.0


class Low(Missing):
    side = -1.0


@pytest.mark.parametrize("name", ADDED)
def test_the_declared_sensitivity_covers_a_solver_that_misses_both_ways(name):
    algorithm, a = ADDED[name], np.eye(D)[:1]
    ours = np.repeat(a, M, axis=0)
    theirs = np.concatenate([-a, ours[1:]])
    sent, declared = [], None
    for rows, kind in ((ours, High), (theirs, Low)):
        site = algorithm.oracle(sv.Sites([rows, ours], [np.ones(M), np.ones(M)]), GRAPH, kind)
        quiet = harness.quiet(algorithm, 1, 2, D)
        noise = harness.given(quiet, 2, D, 1)
        sent.append(algorithm.release(1, algorithm.start(site, 1), site, noise)[0])
        declared = algorithm.model_sensitivity(site)[0, 0, 0]
    factor = 2 * algorithm.relaxation if name == "fixed point" else 1.0  # of x in what is sent
    moved = np.linalg.norm((sent[0] - sent[1])[0]) / factor
    assert moved <= declared * (1 + 1e-14)
    if name != "pvp, published":  # which counts less curvature than there is
        assert moved >= declared * (1 - 1e-11)


@pytest.mark.parametrize("make", [sv.PVP, sv.FixedPoint], ids=lambda kind: kind.__name__)
@pytest.mark.parametrize("rho", [1e-12, 1e-7, 1e-6])
def test_private_runs_give_up_on_public_numbers_alone(make, rho):
    """Where mu is tiny, models are so long that rounding hides the tolerance, of some rows and not of others. Both are
    refused alike, before anything is charged.
    """
    said = []
    for rows in (np.zeros((40, 3)), np.eye(3)[np.arange(40) % 3]):
        sites = sv.Sites([rows[:20], rows[20:]], [np.ones(20), np.ones(20)], private=True)
        algorithm = make(epsilon=1.0, delta=1e-5, rounds=5, rho=rho, lam=1e-13, loss=sv.losses.SmoothedHinge(0.5))
        problem, charged = Problem(sites, sv.graphs.complete(2)), []
        with pytest.raises(SottovoceError) as refused:
            solve(problem, algorithm, charge=charged.append)
        said.append(str(refused.value))
        assert not charged
    assert said[0] == said[1]
    assert "rho" in said[0]


def test_what_a_private_argmin_missed_is_not_said(monkeypatch):
    """If it gives up all the same, nothing of the rows is quoted."""
    sites = sv.Sites([np.eye(3), np.eye(3)], [np.ones(3), np.ones(3)], private=True)
    monkeypatch.setattr(ArgminSolver, "_side_by_side", lambda *given: (given[3], given[2][:, None] + 7))
    with pytest.raises(SottovoceError, match="not shown") as refused:
        sv.simulate(sv.PVP(epsilon=1.0, delta=1e-5, rounds=2), sites, sv.graphs.complete(2))
    assert "node" not in str(refused.value)
    assert refused.value.__suppress_context__
