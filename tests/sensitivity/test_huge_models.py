"""Whatever model a neighbour drives a site to, no record's gradient is longer than c1, nor anything but finite.

<w, a> of a finite w may overflow, and inf - inf is no number. Were that to reach the sum for some rows and not for
others, whoever chose w would learn which rows there are.
"""

import math

import numba
import numpy as np
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st
from scipy import sparse

import sottovoce as sv
from helpers import every
from sottovoce import losses
from sottovoce.noise.sources import SeededNoise, Shape
from sottovoce.oracle.cpu import CompiledOracle
from sottovoce.oracle.cuda import CudaOracle, cupy
from sottovoce.oracle.kernels import steps
from sottovoce.oracle.kernels.simd import Lanes, load, store
from sottovoce.oracle.loss_sums import settled
from sottovoce.oracle.plain import Oracle, Steps

D, ROWS = 4, 3
MANY = 1 if settings.default.derandomize else 3  # more where they are others every time
MOST = float(np.finfo(np.float64).max)
LOSSES = {
    **{loss.name: loss for loss in [*every.LOSSES, losses.Poisson()]},
    "huber, steep": losses.Huber(1e300),
    "smoothed hinge, narrow": losses.SmoothedHinge(1e-300),
    "softmax": losses.Softmax(3),
}
HUGE = st.sampled_from([MOST, -MOST, MOST / 2, -MOST / 3, 1e155, -1e155, 1e20, 0.0, 1.0]) | st.floats(
    allow_nan=False, allow_infinity=False
)
LONG = st.sampled_from([1e-200, 1e-3, 1.0, 1e3, 1e150])


def entries(outputs):
    return st.lists(HUGE, min_size=D * outputs, max_size=D * outputs).map(np.array)


@st.composite
def problems(draw, loss):
    """One row a node, so that a node's gradient is a record's: w, rows, labels, the bound on rows and the clip."""
    w = np.stack([draw(entries(loss.outputs)) for _ in range(ROWS)])[:, :, None]
    norm, clip = draw(LONG), draw(st.sampled_from([None, 1e-3, 1.0, 1e200]))
    assume(clip is not None or math.isfinite(loss.lipschitz(norm)))  # else refused
    part = st.floats(-1, 1) | st.sampled_from([0.0, 1.0, -1.0])
    a = np.array(draw(st.lists(st.lists(part, min_size=D, max_size=D), min_size=ROWS, max_size=ROWS)))
    a *= norm / 2
    label = {
        losses.Signs: st.sampled_from([-1.0, 1.0]),
        losses.Classes: st.sampled_from([0.0, 1.0, 2.0]),
        losses.Reals: HUGE,
        losses.Counts: HUGE.map(abs),
    }[type(loss.labels)]
    b = np.array(draw(st.lists(label, min_size=ROWS, max_size=ROWS)))
    return w, a, b, norm, clip


def oracle(kind, loss, a, b, norm, clip, csr):
    rows = [sparse.csr_array(row[None]) if csr else row[None] for row in a]
    sites = sv.Sites(rows, [[label] for label in b], data_norm=norm)
    return kind(sites, len(rows), loss, np.zeros(len(rows), dtype=int), sv.regularisers.L2(), 0.0, max_grad_norm=clip)


KINDS = {"plain": Oracle, "cpu": CompiledOracle, "cuda": CudaOracle}


def in_kernels(site, dtype, device):
    """The same rows and objective, compiled."""
    return KINDS[device](
        site.sites,
        site.n,
        site.loss,
        site.degrees,
        site.regulariser,
        site.lam,
        max_grad_norm=site.max_grad_norm,
        dtype=np.dtype(dtype),
    )


def records_by_steps(site, w):
    """The records' gradients, by one step without noise that goes to -g."""
    one, nothing = np.ones((len(w), 1, 1), dtype=w.dtype), np.zeros((1, len(w), 1, 1))
    noise = SeededNoise(0, Shape(*w.shape))
    if isinstance(site, CudaOracle):
        xp = cupy()
        steps_ = Steps(1, xp.zeros_like(xp.asarray(w)), xp.asarray(one), nothing, 0.0, noise)
        return -xp.asnumpy(site.noisy_steps(xp.asarray(w), steps_).last)
    return -site.noisy_steps(w, Steps(1, 0 * w, one, nothing, 0.0, noise)).last


def lengths(gradients):
    """Norms along axis 1 that do not overflow."""
    longest = np.abs(gradients).max(axis=1, keepdims=True)
    return longest * np.linalg.norm(gradients / np.where(longest > 0, longest, 1), axis=1, keepdims=True)


def assert_bounded(gradients, c1):
    assert np.isfinite(gradients).all()
    assert np.all(lengths(gradients) <= c1 * (1 + 1e-12))


@pytest.mark.parametrize("csr", [False, True], ids=["dense", "csr"])
@pytest.mark.parametrize("name", LOSSES)
def test_plain(name, csr):
    loss = LOSSES[name]

    @given(problems(loss))
    @settings(max_examples=40 * MANY)
    def holds(problem):
        w, *rest = problem
        site = oracle(Oracle, loss, *rest, csr)
        assert_bounded(site.gradient(w), site.c1)
        assert_bounded(records_by_steps(site, w), site.c1)

    holds()


@pytest.mark.parametrize("name", LOSSES)
def test_compiled(name):
    loss = LOSSES[name]

    @given(problems(loss))
    @settings(max_examples=20 * MANY)
    def holds(problem):
        w, *rest = problem
        site = oracle(CompiledOracle, loss, *rest, True)
        assert_bounded(records_by_steps(site, w.repeat(2, axis=2)), site.c1)

    holds()


@numba.njit
def in_lanes(z, out, lanes):
    store(out, 0, steps.settled(load(z, 0, lanes)))


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_one_rule_for_all(dtype):
    """What is no number counts as the least of all predictions, in the plain form and in kernels."""
    far = dtype(np.sqrt(np.finfo(dtype).max))
    z = np.array([np.nan, np.inf, -np.inf, 2 * far, -2 * far, far, -far, 1.5, -0.0, 0.0, -7, 8, 9, 1e-30, 2, 3], dtype)
    expected = np.array([-far, far, -far, far, -far, far, -far, *z[7:]], dtype)
    assert np.array_equal(settled(z), expected)
    assert settled(z).dtype == dtype
    out = np.empty_like(z)
    in_lanes(z, out, Lanes(16))
    assert np.array_equal(out, expected)


# Each of these is compiled anew. The rule is one line for all losses, and lanes are rows (with one run) or runs
# whatever the loss: so all four cases are for two losses, one of each kernel; the others meet the kernel that
# tests/conformance/test_devices.py compiles for every loss.
FOUR = [(dtype, runs) for dtype in (np.float64, np.float32) for runs in (1, 7)]
EVERY_KERNEL = ("logistic", "softmax")
COMPILED = [
    pytest.param(name, dtype, runs, marks=() if name in EVERY_KERNEL or case == FOUR[1] else pytest.mark.slow)
    for name in LOSSES if "," not in name for case in FOUR for dtype, runs in [case]
]  # fmt: skip


@pytest.mark.parametrize(("name", "dtype", "runs"), COMPILED)
@pytest.mark.parametrize("device", every.DEVICES)
def test_kernels_go_by_it(device, name, dtype, runs):
    """Products beyond all numbers on either side: the kernels' slopes are the plain form's, at one run and at more."""
    loss, most = LOSSES[name], np.finfo(dtype).max
    towards = np.array([[1.0], [-1.0], [0.0]]) * np.ones(D)
    w = (towards[:, :, None] * np.array([1.0, -1.0, 0.5])[: loss.outputs]).reshape(ROWS, -1, 1)
    plain = oracle(Oracle, loss, np.full((ROWS, D), 1e3), np.ones(ROWS), 4e3, None, csr=True)
    compiled = in_kernels(plain, dtype, device)
    expected = plain.gradient(MOST * w)
    found = records_by_steps(compiled, np.repeat((most * w).astype(dtype), runs, axis=2))
    np.testing.assert_allclose(found, expected.repeat(runs, axis=2), rtol=1e-5, atol=1e-4)


# 1 and -1 times the largest number, twice: inf - inf in one order of summation, 0 in another.
MIXED = np.array([MOST, MOST, -MOST, -MOST])


# Compiled anew for full rows, which are read by the same function whatever the loss.
ROWS_READ = [
    pytest.param(name, csr, marks=() if csr or name in EVERY_KERNEL else pytest.mark.slow, id=f"{name}-{kind}")
    for name in LOSSES for csr, kind in ((False, "dense"), (True, "csr"))
]  # fmt: skip


@pytest.mark.parametrize("device", ["plain", *every.DEVICES])
@pytest.mark.parametrize(("name", "csr"), ROWS_READ)
def test_a_row_cannot_be_told_by_an_overflow(name, csr, device):
    """The first row overflows at this model and its replacement does not: their sums differ by 2 c1 / m at most."""
    loss = LOSSES[name]
    w = np.repeat(MIXED, loss.outputs)[None, :, None] * np.array([1.0, -1.0, 0.5] * 4)[: D * loss.outputs, None]
    w = w.repeat(2, axis=2)  # runs
    first, second = np.full(D, 1e3), np.array([1.0, 0, 0, 0])
    b = np.array([1.0, 1.0, 1.0])
    both = []
    for row in (first, second):
        a = np.stack([row, np.ones(D), -np.ones(D)])
        sites = sv.Sites([sparse.csr_array(a) if csr else a], [b], data_norm=4e3)
        site = KINDS[device](sites, 1, loss, np.array([0]), sv.regularisers.L2(), 0.0)
        both.append(records_by_steps(site, w))
    assert np.isfinite(both).all()
    assert np.all(lengths(both[0] - both[1]) <= site.sensitivity())


@pytest.mark.parametrize("scale", [1e-250, 1e-160, 1e160, 1e300])
@pytest.mark.parametrize("name", ["huber, steep", "softmax", "logistic"])
def test_clipping_holds_for_rows_whose_squares_cannot_be_written(name, scale):
    loss = LOSSES[name]
    a = np.array([[1.0, -1, 0, 0], [0.0, 0, 0, 1], [0.0, 0, 0, 0]]) * scale
    rng = np.random.default_rng(0)
    for size in (1.0, 1e10, 1e155, 1e300):
        w = size * rng.normal(size=(ROWS, D * loss.outputs, 1))
        site = oracle(Oracle, loss, a, np.ones(ROWS), math.inf, 1e-3, csr=False)
        assert site.c1 == 1e-3
        assert_bounded(site.gradient(w), site.c1)


@pytest.mark.parametrize("kind", [sv.regularisers.L2(), sv.regularisers.L1(), sv.regularisers.ElasticNet(0.3)])
@given(w=st.lists(HUGE, min_size=1, max_size=5).map(np.array))
@example(w=np.array([MOST, -MOST]))
def test_a_regulariser_s_gradient_is_finite(kind, w):
    assert np.isfinite(kind.gradient(w[None, :, None])).all()


def test_sane_models_are_left_alone():
    """What is cut off lies far beyond any model that anyone would keep."""
    rng = np.random.default_rng(3)
    a, b = rng.normal(size=(ROWS, D)) / 9, rng.normal(size=ROWS)
    site = oracle(Oracle, losses.Huber(1e140), a, b, 1.0, None, csr=False)
    w = 1e100 * rng.normal(size=(ROWS, D, 1))
    residuals = np.einsum("jd,jdq->jq", a, w) - b[:, None]
    np.testing.assert_allclose(site.gradient(w), a[:, :, None] * residuals[:, None], rtol=1e-12)
