"""Runs side by side: each is solved as if it were alone, whatever the others do, and certified by its own gradient."""

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

import sottovoce as sv
from helpers import every, problems
from sottovoce.oracle.argmin import solver
from sottovoce.oracle.argmin.plain import SmoothObjective
from sottovoce.oracle.argmin.solver import ArgminSolver
from sottovoce.oracle.kernels.tiles import Csr, Dense

SMOOTH = [*every.SMOOTH, sv.losses.SmoothedHinge(0.3), sv.losses.Huber(0.7)]
SIZES = (4, 30, 9, 70, 1, 12)  # more and fewer rows than coordinates, and than a block of rows
WEIGHT, TOLERANCE = 1e-3, 1e-10
# Compiled anew: kernels for full rows, and for a loss that has kernels of its own. `test_argmin` has one of each, and
# so has the first test below of full rows.
losses = pytest.mark.parametrize(
    "loss",
    [loss if type(loss) in solver._SMOOTH else pytest.param(loss, marks=pytest.mark.slow) for loss in SMOOTH],
    ids=lambda loss: loss.name,
)
kinds = pytest.mark.parametrize("sparse", [True, pytest.param(False, marks=pytest.mark.slow)], ids=["csr", "dense"])


class Case:
    """A problem with many runs, and its gradient, written out again."""

    def __init__(self, loss, runs, d=6, sizes=SIZES, curvature=0.1, scale=1.0, seed=0):
        rng = np.random.default_rng(seed)
        self.loss, self.d = loss, d
        self.features, self.labels = problems.lists(rng, sizes, d, isinstance(loss.labels, sv.losses.Signs))
        self.features = [scale * a for a in self.features]
        self.pull = 0.2 * rng.normal(size=(len(sizes), d, runs))
        self.start = rng.normal(size=self.pull.shape)
        self.curvature = curvature * rng.uniform(1, 2, size=len(sizes))
        self.mu = self.curvature + WEIGHT

    def solver(self, sparse=True):
        stacked = np.concatenate(self.features)
        csr = sp.csr_array(stacked)
        rows = Csr(csr.data, csr.indices.astype(np.int32), csr.indptr.astype(np.int64)) if sparse else Dense(stacked)
        offsets = np.concatenate([[0], np.cumsum([len(b) for b in self.labels])])
        return ArgminSolver(rows, self.d, offsets, np.concatenate(self.labels), self.loss, sv.regularisers.L2(), WEIGHT)

    def solve(self, sparse=True, runs=slice(None), tolerance=TOLERANCE):
        pull, start = self.pull[:, :, runs], self.start[:, :, runs]
        return self.solver(sparse).solve(pull, self.curvature, start, tolerance)

    def slack(self, w):
        """The largest norm of a gradient."""
        gradients = []
        for i, (a, b) in enumerate(zip(self.features, self.labels, strict=True)):
            slopes = self.loss.slope(a @ w[i], b[:, None], self.loss.theta)
            gradients.append(a.T @ slopes / len(b) + self.mu[i] * w[i] - self.pull[i])
        return np.linalg.norm(gradients, axis=1).max()

    def solve_alone(self, sparse=True, tolerance=TOLERANCE):
        return np.concatenate([self.solve(sparse, [q], tolerance) for q in range(self.pull.shape[2])], axis=2)


@pytest.fixture
def left(monkeypatch):
    """How many solves the runs' kernel left to the other, call by call."""
    counts, share_out = [], solver.share_out

    def counted(kernel, items, *rest):
        if kernel is solver.minimise_all:
            counts.append(items)
        share_out(kernel, items, *rest)

    monkeypatch.setattr(solver, "share_out", counted)
    return counts


# Lanes are 4, 8 or 16, and each is compiled anew, for sparse and for full rows. How wide they are does not depend on
# the kind of rows.
WIDTHS = [
    pytest.param(sparse, runs, marks=() if sparse or runs < 8 else pytest.mark.slow, id=f"{kind}-{runs}")
    for sparse, kind in ((True, "csr"), (False, "dense")) for runs in (1, 3, 8, 10, 17)
]  # fmt: skip


@pytest.mark.parametrize(("sparse", "runs"), WIDTHS)
@losses
def test_runs_agree_with_runs_alone(loss, sparse, runs, left):
    case = Case(loss, runs)
    together = case.solve(sparse)
    assert case.slack(together) <= TOLERANCE
    np.testing.assert_array_equal(together, case.solve_alone(sparse))
    assert left == []


@losses
def test_runs_against_the_plain_method(loss):
    case = Case(loss, 10, seed=1)
    found = case.solve()
    for i, (a, b) in enumerate(zip(case.features, case.labels, strict=True)):
        plain = SmoothObjective(loss, a, b, np.full(len(b), 1 / len(b)))
        for q in range(10):
            exact = plain.argmin(case.pull[i, :, q], case.mu[i], case.start[i, :, q], TOLERANCE)
            assert np.linalg.norm(found[i, :, q] - exact) <= 2 * TOLERANCE / case.mu[i]


@kinds
@losses
def test_runs_of_unequal_speed(loss, sparse, left):
    """One run starts at its minimiser, others up to 10^6 from it; pulls differ as much."""
    case = Case(loss, 17, curvature=0.01, seed=2)
    case.start *= 10.0 ** np.linspace(-6, 6, 17)
    case.pull *= 10.0 ** np.roll(np.linspace(-4, 1, 17), 5)
    case.start[:, :, 4] = case.solve(sparse)[:, :, 4]
    together = case.solve(sparse)
    assert case.slack(together) <= TOLERANCE
    np.testing.assert_array_equal(together[:, :, 4], case.start[:, :, 4])
    np.testing.assert_array_equal(together, case.solve_alone(sparse))
    assert left == []


@losses
def test_steps_that_go_too_far_are_shortened(loss, left):
    """Where the loss is flat the Hessian is mu alone, and a full step overshoots by far."""
    case = Case(loss, 10, curvature=1e-3, scale=30, seed=3)
    case.start *= 100
    assert case.slack(case.solve(tolerance=1e-9)) <= 1e-9
    assert left == []


@losses
def test_a_start_that_is_far_off_is_not_taken(loss):
    """The minimiser is within G / mu of pull / mu, G the largest slope times the mean norm of a row: what is further
    off says nothing, and what is nearer is taken as it is.
    """
    case = Case(loss, 9, seed=8)
    steep = np.array([loss.slope_bound * np.linalg.norm(a, axis=1).mean() for a in case.features])
    middle, apart = case.pull / case.mu[:, None, None], (steep / case.mu)[:, None, None]
    way = case.start / np.linalg.norm(case.start, axis=1, keepdims=True)
    case.start = middle
    found = case.solve()
    for far in (1.0001, 1e3, 1e9):
        case.start = middle + far * apart * way
        np.testing.assert_array_equal(case.solve(), found)
    case.start = middle + 0.9999 * apart * way
    assert not np.array_equal(case.solve(), found)
    case.start = found
    np.testing.assert_array_equal(case.solve(), found)


def test_pulls_that_leave_every_row_flat(left):
    """What the noise of published rivals does: models of norm 10^8, of which the data move the last digits."""
    case = Case(sv.losses.Logistic(), 10, seed=4)
    case.pull *= 1e8
    case.start *= 1e8
    assert case.slack(case.solve(tolerance=1e-6)) <= 1e-6
    assert left == []


@kinds
def test_what_is_too_ill_conditioned_goes_on_to_newton(sparse, left):
    """Conjugate gradients need too many steps for some of these runs, and not for others."""
    case = Case(sv.losses.SmoothedHinge(1e-3), 10, d=40, sizes=(90, 60), curvature=1e-5, seed=5)
    case.pull *= 0.01
    case.start[:, :, ::2] = case.solve(sparse)[:, :, ::2]
    left.clear()
    together = case.solve(sparse, tolerance=1e-9)
    assert 0 < sum(left) < 20
    assert case.slack(together) <= 1e-9
    np.testing.assert_array_equal(together, case.solve_alone(sparse, 1e-9))


@losses
def test_a_call_leaves_nothing_to_the_next(loss):
    case = Case(loss, 3, seed=6)
    solver = case.solver()
    first = solver.solve(case.pull, case.curvature, case.start, TOLERANCE)
    solver.solve(5 * case.pull, 3 * case.curvature, case.start, TOLERANCE)
    again = solver.solve(case.pull, case.curvature, case.start, TOLERANCE)
    np.testing.assert_array_equal(again, first)


@kinds
def test_rows_of_zeros(sparse):
    case = Case(sv.losses.Logistic(), 3, scale=0.0, seed=7)
    np.testing.assert_allclose(case.solve(sparse), case.pull / case.mu[:, None, None], rtol=0, atol=2e-8)


@given(
    loss=st.sampled_from(SMOOTH),
    runs=st.integers(1, 20),
    d=st.integers(1, 25),
    sizes=st.lists(st.integers(1, 50), min_size=1, max_size=3),
    curvature=st.floats(-4, 2),
    far=st.floats(-3, 4),
    seed=st.integers(0, 10**6),
)
@settings(max_examples=60)
def test_every_result_is_certified(loss, runs, d, sizes, curvature, far, seed):
    case = Case(loss, runs, d, sizes, curvature=10.0**curvature, seed=seed)
    case.start *= 10.0**far
    assert case.slack(case.solve()) <= 1.001 * TOLERANCE
