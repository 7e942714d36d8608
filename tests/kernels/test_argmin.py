"""The argmin kernel against scipy, scikit-learn, the plain Newton method and the optimality conditions themselves."""

import numba
import numpy as np
import pytest
import scipy.sparse as sp
from scipy.optimize import lsq_linear, minimize
from sklearn.linear_model import LogisticRegression

import sottovoce as sv
from helpers import every, problems
from sottovoce.errors import InputError, SottovoceError, UnsupportedError
from sottovoce.oracle.argmin import solver
from sottovoce.oracle.argmin.plain import SmoothObjective
from sottovoce.oracle.argmin.solver import ArgminSolver
from sottovoce.oracle.kernels.tiles import Csr, Dense

L2, L1, NET = sv.regularisers.L2(), sv.regularisers.L1(), sv.regularisers.ElasticNet(0.4)
# Shapes that are not symmetric: a median would hide a swapped side.
SMOOTH = [*every.SMOOTH, sv.losses.SmoothedHinge(0.3), sv.losses.Huber(0.7)]
KINKED = [*every.KINKED, sv.losses.Quantile(0.3)]
LOSSES = SMOOTH + KINKED
# The losses of one kernel, and a loss that has kernels of its own: these are compiled in one case below, and in all
# others for `make test-all`.
OWN_KERNELS = [loss for loss in SMOOTH if type(loss) not in solver._SMOOTH]
QUICK = [pytest.param(loss, marks=pytest.mark.slow) if loss in OWN_KERNELS else loss for loss in LOSSES]
SIZES = (4, 30, 9, 17, 1, 12)  # with d = 5 and 20: nodes with fewer and with more rows than coordinates
name = pytest.mark.parametrize


def by_name(x):
    return getattr(x, "name", None)


class Case:
    """A small problem: rows, labels, pull and curvature, and F itself, written out again."""

    def __init__(self, loss, regulariser=L2, d=5, sizes=SIZES, runs=2, seed=0, curvature=0.1, features=None,
                 weight=0.05):  # fmt: skip
        rng = np.random.default_rng(seed)
        classes = isinstance(loss.labels, sv.losses.Signs)
        self.loss, self.regulariser, self.d, self.weight = loss, regulariser, d, weight
        self.features, self.labels = problems.lists(rng, sizes, d, classes)
        if features is not None:
            self.features = [features(a) for a in self.features]
        self.pull = 0.2 * rng.normal(size=(len(sizes), d, runs))
        self.curvature = curvature * rng.uniform(1, 2, size=(len(sizes), 1, 1))
        self.start = np.zeros_like(self.pull)
        self.l1, self.mu = weight * regulariser.l1, self.curvature[:, 0, 0] + weight * regulariser.l2

    def solver(self, dtype=np.float64, sparse=True, **options):
        stacked = np.concatenate(self.features).astype(dtype)
        csr = sp.csr_array(stacked)
        rows = Csr(csr.data, csr.indices.astype(np.int32), csr.indptr.astype(np.int64)) if sparse else Dense(stacked)
        offsets = np.concatenate([[0], np.cumsum([len(b) for b in self.labels])])
        objective = self.loss, self.regulariser, self.weight
        return ArgminSolver(rows, self.d, offsets, np.concatenate(self.labels), *objective, **options)

    def solve(self, tolerance=1e-10, **options):
        return self.solver(**options).solve(self.pull, self.curvature, self.start, tolerance)

    def items(self):
        for i in range(len(self.features)):
            for q in range(self.pull.shape[2]):
                yield i, q, self.features[i], self.labels[i], self.pull[i, :, q]

    def distance(self, found, exact):
        """Largest ||found - exact|| mu_i: what the tolerance bounds."""
        return (np.linalg.norm(found - exact, axis=1) * self.mu[:, None]).max()

    def slack(self, w, near=1e-7):
        """Norm of the smallest subgradient of F at w, where terms within `near` of a kink may take any slope of it."""
        worst = 0.0
        for i, q, a, b, pull in self.items():
            v, m = w[i, :, q], len(b)
            z, theta = a @ v, self.loss.theta
            if self.loss.smoothness_bound is None:
                gap = np.where(np.abs(z - b) < near, 1.0, 0.0)
                low, high = (self.loss.slope(z + side * gap * 2, b, theta) / m for side in (-1, 1))
            else:
                low = high = self.loss.slope(z, b, theta) / m
            low1, high1 = (self.l1 * np.sign(v + side * (np.abs(v) < near)) for side in (-1, 1))
            columns, lower = np.hstack([a.T, np.eye(len(v))]), np.concatenate([low, low1])
            width = np.concatenate([high, high1]) - lower
            rest, free = columns @ lower + self.mu[i] * v - pull, width > 0
            if free.any():
                best = lsq_linear(columns[:, free] * width[free], -rest, (0, 1), tol=1e-14, max_iter=500)
                rest = rest + columns[:, free] @ (width[free] * best.x)
            worst = max(worst, np.linalg.norm(rest))
        return worst


# Sparse or dense is how rows are read, and d is how long they are: one of each, and the others for `make test-all`.
AGAINST_SCIPY = [
    pytest.param(
        loss, d, sparse, id=f"{loss.name}-{d}-{sparse}",
        marks=() if (d, sparse) == (20, True) or ((d, sparse) == (5, False) and loss not in OWN_KERNELS)
        else pytest.mark.slow,
    )
    for loss in SMOOTH for d in (5, 20) for sparse in (True, False)
]  # fmt: skip


@name(("loss", "d", "sparse"), AGAINST_SCIPY)
def test_smooth_losses_against_scipy_and_the_plain_method(loss, d, sparse):
    case = Case(loss, d=d)
    found = case.solve(1e-11, sparse=sparse)
    assert case.slack(found) <= 1.1e-11
    for i, q, a, b, pull in case.items():
        mu, share = case.mu[i], np.full(len(b), 1 / len(b))

        def objective(w, a=a, b=b, pull=pull, mu=mu):
            z = a @ w
            value = loss.value(z, b, loss.theta).mean() - pull @ w + mu / 2 * w @ w
            return value, a.T @ loss.slope(z, b, loss.theta) / len(b) - pull + mu * w

        scipys = minimize(objective, np.zeros(d), jac=True, method="L-BFGS-B", options={"gtol": 1e-12, "ftol": 0}).x
        np.testing.assert_allclose(found[i, :, q], scipys, atol=1e-6)
        plain = SmoothObjective(loss, a, b, share).argmin(pull, mu, np.zeros(d), 1e-11)
        np.testing.assert_allclose(found[i, :, q], plain, atol=2.1e-11 / mu)


@name("sparse", [True, False])
@name("d", [5, 20])
@name("regulariser", [L2, L1, NET], ids=by_name)
@name("loss", QUICK, ids=by_name)
def test_the_result_satisfies_the_optimality_conditions(loss, regulariser, d, sparse):
    case = Case(loss, regulariser, d=d, seed=1)
    assert case.slack(case.solve(sparse=sparse)) < 1e-8


@name("loss", KINKED, ids=by_name)
def test_kinked_losses_against_a_general_solver(loss):
    """As a quadratic programme in (w, t), t_j above both lines, by SLSQP."""
    case = Case(loss, sizes=(8, 3), runs=1, d=4)
    found = case.solve()
    for i, q, a, b, pull in case.items():
        d, far = a.shape[1], 1 + np.abs(b)
        low, high = (loss.slope(b + side * far, b, loss.theta) for side in (-1, 1))
        above = [
            {"type": "ineq", "fun": lambda x, s=s, a=a, b=b, d=d: x[d:] - s * (a @ x[:d] - b)} for s in (low, high)
        ]
        scipys = minimize(
            lambda x, i=i, d=d, pull=pull: x[d:].mean() - pull @ x[:d] + case.mu[i] / 2 * x[:d] @ x[:d],
            np.concatenate([np.zeros(d), 10 * far]), method="SLSQP", constraints=above,
            options={"ftol": 1e-13, "maxiter": 1000},
        ).x[:d]  # fmt: skip
        np.testing.assert_allclose(found[i, :, q], scipys, atol=2e-5)


def test_elastic_net_against_scikit_learn():
    case = Case(sv.losses.Logistic(), NET, sizes=(40, 25), runs=1, d=8)
    case.pull[:] = 0
    found = case.solve()
    for i, q, a, b, _ in case.items():
        total = case.l1 + case.mu[i]
        model = LogisticRegression(solver="saga", l1_ratio=case.l1 / total, C=1 / (len(b) * total), tol=1e-12,
                                   fit_intercept=False, max_iter=100_000)  # fmt: skip
        np.testing.assert_allclose(found[i, :, q], model.fit(a, b).coef_[0], atol=1e-7)
    assert (found == 0).any()


@name("regulariser", [L2, L1], ids=by_name)
@name("loss", QUICK, ids=by_name)
def test_the_certificate_is_sound(loss, regulariser):
    case = Case(loss, regulariser, seed=2, d=9)
    exact = case.solve(1e-12)
    for tolerance in (1e-1, 1e-2, 1e-4, 1e-6, 1e-8):
        assert case.distance(case.solve(tolerance), exact) <= tolerance + 1e-12


@name("regulariser", [L2, L1], ids=by_name)
@name("loss", QUICK, ids=by_name)
def test_a_warm_start_agrees_with_a_cold_one(loss, regulariser):
    case, rng = Case(loss, regulariser, seed=3), np.random.default_rng(1)
    solver = case.solver()
    for size in (1.0, 0.1, 1e-3, 1e-6, 0.0, 3.0):
        case.start = solver.solve(case.pull, case.curvature, case.start, 1e-10)
        case.pull += size * rng.normal(size=case.pull.shape)
        case.curvature *= 1 + (size == 0.1)  # the kept factor must notice
        warm = solver.solve(case.pull, case.curvature, case.start, 1e-10)
        case.mu = case.curvature[:, 0, 0] + case.weight * regulariser.l2
        case.start = np.zeros_like(case.pull)
        assert case.distance(warm, case.solve()) <= 2e-10


@name("loss", QUICK, ids=by_name)
def test_results_depend_neither_on_threads_nor_on_other_runs(loss):
    case, before = Case(loss, NET, runs=3, seed=4), numba.get_num_threads()

    def rounds(runs):
        solver, w = case.solver(), case.start[:, :, runs]
        for k in range(3):
            w = solver.solve((1 + k) * case.pull[:, :, runs], case.curvature, w, 1e-9)
        return w

    try:
        numba.set_num_threads(1)
        alone = rounds(slice(None))
    finally:
        numba.set_num_threads(before)
    np.testing.assert_array_equal(rounds(slice(None)), alone)
    for q in range(3):
        np.testing.assert_array_equal(rounds([q])[:, :, 0], alone[:, :, q])


@name("regulariser", [L2, L1], ids=by_name)
@name("loss", QUICK, ids=by_name)
def test_almost_no_curvature(loss, regulariser):
    """With mu = 1e-6 a model can be far out, and the distance is known to 1e-4 only: the conditions still hold."""
    case = Case(loss, regulariser, seed=5, curvature=1e-6, weight=1e-6)
    case.pull *= 1e-3
    assert case.slack(case.solve(), near=1e-6) < 1e-8


@name("loss", QUICK, ids=by_name)
@name("features", [np.zeros_like, lambda a: np.repeat(a[:1], len(a), axis=0), np.sign], ids=["zero", "equal", "signs"])
def test_degenerate_rows(features, loss):
    """Rows of zeros, one row many times over, and rows of -1, 0 and 1 whose kinks meet in many points at once."""
    case = Case(loss, NET, features=features, seed=6)
    assert case.slack(case.solve()) < 1e-8


@name("loss", QUICK, ids=by_name)
def test_sparse_rows_without_any_entry(loss):
    """Their list of columns is empty, as that of full rows. Only pull, curvature and regulariser are left."""
    case = Case(loss, NET, features=np.zeros_like, seed=6, weight=0.01)
    soft = np.sign(case.pull) * np.maximum(np.abs(case.pull) - case.l1, 0) / case.mu[:, None, None]
    np.testing.assert_allclose(case.solve(sparse=True), soft, atol=1e-8)


@name("scale", [1e-4, 1e5])
@name("loss", QUICK, ids=by_name)
def test_huge_and_tiny_margins(loss, scale):
    case = Case(loss, features=lambda a: scale * a, seed=7)
    assert case.slack(case.solve(max(1e-10, 1e-9 * scale)), near=1e-7 * scale) < 1e-8 * max(1, scale)


@name("loss", QUICK, ids=by_name)
def test_single_precision_rows_are_solved_in_double(loss):
    case = Case(loss, seed=8)
    case.features = [a.astype(np.float32).astype(np.float64) for a in case.features]
    double = case.solve()
    case.pull, case.start = case.pull.astype(np.float32), case.start.astype(np.float32)
    rounded = case.pull.astype(np.float64)
    single = case.solve(dtype=np.float32, sparse=False)
    assert single.dtype == np.float64
    assert case.distance(single, double) <= np.linalg.norm(rounded - Case(loss, seed=8).pull, axis=1).max() + 2e-10


def test_a_tolerance_below_rounding_is_refused():
    for loss in set(LOSSES) - set(OWN_KERNELS):
        with pytest.raises(SottovoceError, match=r"to be certified to tolerance=1e-20, got .* larger tolerance"):
            Case(loss, sizes=(9,)).solve(1e-20)


def test_refusals():
    case = Case(sv.losses.Logistic())
    with pytest.raises(UnsupportedError, match="no max_grad_norm"):
        case.solver(max_grad_norm=1.0)
    with pytest.raises(InputError, match="curvature"):
        case.solver().solve(case.pull, case.curvature - 1, case.start, 1e-10)
    with pytest.raises(InputError, match="curvature"):
        case.solver().solve(case.pull, case.curvature[1:], case.start, 1e-10)
    with pytest.raises(InputError, match="finite"):
        case.solver().solve(case.pull * np.nan, case.curvature, case.start, 1e-10)
    with pytest.raises(InputError, match="pull of the shape of start"):
        case.solver().solve(case.pull[:, 1:], case.curvature, case.start, 1e-10)
    with pytest.raises(InputError, match="start of shape"):
        case.solver().solve(case.pull, case.curvature, case.start[1:], 1e-10)
    with pytest.raises(InputError, match="tolerance > 0"):
        case.solver().solve(case.pull, case.curvature, case.start, 0.0)


class Three(sv.losses.Absolute.__bases__[0]):
    """Three straight pieces: |r| up to 1, then twice as steep."""

    name = "three"
    labels = sv.losses.Absolute.labels
    theta = 0.0
    slope_bound = 2.0

    @staticmethod
    def value(z, b, theta):  # noqa: ARG004
        return np.maximum(np.abs(z - b), 2 * np.abs(z - b) - 1)

    @staticmethod
    def slope(z, b, theta):  # noqa: ARG004
        return np.sign(z - b) * (1 + (np.abs(z - b) > 1))


def test_a_loss_with_other_kinks_is_refused():
    with pytest.raises(UnsupportedError, match="two straight lines"):
        Case(Three()).solver()
