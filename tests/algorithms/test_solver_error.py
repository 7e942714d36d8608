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
from sottovoce.oracle.plain import Oracle

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
