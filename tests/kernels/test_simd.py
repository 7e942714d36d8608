import numba
import numpy as np
import pytest

from sottovoce.oracle.kernels.simd import (
    Lanes,
    any_lane,
    at,
    bits,
    broadcast,
    convert,
    count_up,
    fma,
    from_bits,
    load,
    store,
    where,
    width,
)
from sottovoce.problem.losses import NAMES, by_name

FLOATS = [np.float32, np.float64]
LANES = Lanes(16)


@numba.njit
def _arithmetic(x, y, c, out, lanes):
    a, b, n = load(x, 0, lanes), load(y, 0, lanes), width(lanes)
    store(out, 0 * n, a + b)
    store(out, 1 * n, a - b)
    store(out, 2 * n, a * b)
    store(out, 3 * n, a / b)
    store(out, 4 * n, -a)
    store(out, 5 * n, 1 - a)
    store(out, 6 * n, a / c)
    store(out, 7 * n, c * a)
    store(out, 8 * n, broadcast(at(x, 3), lanes) + 2)
    store(out, 9 * n, fma(a, 2.0, b))
    store(out, 10 * n, from_bits(bits(a)))
    store(out, 11 * n, where(a < b, a, 7.0))
    store(out, 12 * n, convert(convert(a, np.int32(0)), c))


@numba.njit
def _comparisons(x, y, out, lanes):
    a, b, n = load(x, 0, lanes), load(y, 0, lanes), width(lanes)
    store(out, 0 * n, a < b)
    store(out, 1 * n, a <= b)
    store(out, 2 * n, a > b)
    store(out, 3 * n, a >= b)
    store(out, 4 * n, a == b)
    store(out, 5 * n, a != b)
    store(out, 6 * n, (a > 0) & (b > 0))
    store(out, 7 * n, (a > 0) | (b > 0))
    store(out, 8 * n, np.abs(a))
    store(out, 9 * n, np.sqrt(np.abs(a)))
    store(out, 10 * n, np.sign(a))
    store(out, 11 * n, np.maximum(a, b))
    store(out, 12 * n, np.minimum(a, b))
    store(out, 13 * n, np.maximum(a, 0.0))
    store(out, 14 * n, np.minimum(0.5, a))
    return any_lane(a), any_lane(a - a)


def _numbers(dtype):
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(2, 16)).astype(dtype)
    y[:3], x[4], y[5] = x[:3], 0.0, 0.25
    return x, y


@pytest.mark.parametrize("dtype", FLOATS)
def test_arithmetic_is_that_of_numpy(dtype):
    x, y = _numbers(dtype)
    c, out = dtype(1.5), np.empty((13, 16), dtype)
    _arithmetic(x, y, c, out, LANES)
    with np.errstate(divide="ignore"):
        expected = [
            x + y, x - y, x * y, x / y, -x, 1 - x, x / c, c * x, np.full(16, x[3] + 2, dtype), 2 * x + y, x,
            np.where(x < y, x, dtype(7)), x.astype(np.int32).astype(dtype),
        ]  # fmt: skip
    np.testing.assert_array_equal(out[:9], expected[:9])
    np.testing.assert_allclose(out[9], expected[9], rtol=8 * np.finfo(dtype).eps)
    np.testing.assert_array_equal(out[10:], expected[10:])


@pytest.mark.parametrize("dtype", FLOATS)
def test_comparisons_and_extrema_are_those_of_numpy(dtype):
    x, y = _numbers(dtype)
    x[6], x[7], x[8], y[9] = np.nan, np.inf, -np.inf, np.nan
    out = np.empty((15, 16), dtype)
    assert _comparisons(x, y, out, LANES) == (True, True)
    expected = [
        x < y, x <= y, x > y, x >= y, x == y, x != y, (x > 0) & (y > 0), (x > 0) | (y > 0), np.abs(x),
        np.sqrt(np.abs(x)), np.sign(x), np.maximum(x, y), np.minimum(x, y), np.maximum(x, 0), np.minimum(x, dtype(0.5)),
    ]  # fmt: skip
    np.testing.assert_array_equal(out, np.array(expected, dtype))
    assert _comparisons(np.zeros(16, dtype), y, out, LANES) == (False, False)


@numba.njit
def _integers(x, out, lanes):
    a, n = load(x, 0, lanes), width(lanes)
    store(out, 0 * n, a + np.uint64(3))
    store(out, 1 * n, a * np.uint64(0x9E3779B97F4A7C15))
    store(out, 2 * n, a >> np.uint64(40))
    store(out, 3 * n, a << np.uint64(7))
    store(out, 4 * n, (a ^ np.uint64(0xFFFF)) & np.uint64(0xFF00FF))
    store(out, 5 * n, convert(convert(a, np.uint32(0)), np.uint64(0)))
    store(out, 6 * n, count_up(np.uint64(5), lanes))
    store(out, 7 * n, -(a > np.uint64(2**63)))


def test_integers_wrap_as_in_numpy():
    x = np.random.default_rng(0).integers(0, 2**64, 16, dtype=np.uint64)
    out = np.empty((8, 16), np.uint64)
    _integers(x, out, LANES)
    u = np.uint64
    expected = [
        x + u(3), x * u(0x9E3779B97F4A7C15), x >> u(40), x << u(7), (x ^ u(0xFFFF)) & u(0xFF00FF), x & u(0xFFFFFFFF),
        np.arange(5, 21, dtype=u), np.where(x > u(2**63), ~u(0), u(0)),
    ]  # fmt: skip
    np.testing.assert_array_equal(out, expected)


@numba.njit
def _elementary(x, out, lanes):
    for i in range(0, len(x), width(lanes)):
        a = load(x, i, lanes)
        store(out, i, np.exp(a))
        store(out, len(x) + i, np.log(a))
        store(out, 2 * len(x) + i, np.log1p(a))


@numba.njit
def _exp_of_text(x):
    return np.exp(x)


@numba.njit
def _exp_of_integers(x, out, lanes):
    store(out, 0, np.exp(load(x, 0, lanes)))


def test_what_is_no_vector_of_floats_is_left_to_numba():
    assert _exp_of_text(1) == np.exp(1)
    with pytest.raises(numba.TypingError):
        _exp_of_text("1")
    with pytest.raises(numba.TypingError):
        _exp_of_integers(np.zeros(16, np.int64), np.zeros(16), LANES)


def _ulps(dtype, got, exact):
    return np.abs(got - exact) / np.spacing(np.abs(exact).astype(dtype))


@pytest.mark.parametrize("dtype", FLOATS)
def test_exp_and_logarithms_are_within_two_units_in_the_last_place(dtype):
    rng = np.random.default_rng(0)
    reach = 86 if dtype is np.float32 else 700
    x = np.concatenate([rng.uniform(-reach, reach, 8192), rng.normal(size=8192) * 10.0 ** rng.uniform(-9, 0, 8192)])
    x = x.astype(dtype)
    out = np.empty((3, len(x)), dtype)
    _elementary(x, out, LANES)
    wide = x.astype(np.longdouble)
    assert _ulps(dtype, out[0], np.exp(wide)).max() <= 2
    _elementary(np.abs(x), out, LANES)
    assert _ulps(dtype, out[1], np.log(np.abs(wide))).max() <= 2
    assert _ulps(dtype, out[2], np.log1p(np.abs(wide))).max() <= 2
    inside = np.abs(wide) < 1
    _elementary(np.where(inside, x, 0).astype(dtype), out, LANES)
    assert _ulps(dtype, out[2], np.log1p(np.where(inside, wide, 0))).max() <= 2


@pytest.mark.parametrize("dtype", FLOATS)
def test_exp_and_logarithms_at_the_ends_of_their_range(dtype):
    tiny = np.finfo(dtype).smallest_subnormal
    x = np.array([0, -0.0, 1, -1, np.inf, -np.inf, np.nan, 1e30, -1e30, tiny, 88.7, -86.9, -200, -1e6, 1e6, -2], dtype)
    out = np.empty((3, 16), dtype)
    _elementary(x, out, LANES)
    with np.errstate(all="ignore"):
        expected = np.array([np.exp(x), np.log(x), np.log1p(x)])
    np.testing.assert_allclose(out, expected, rtol=4 * np.finfo(dtype).eps, atol=4 * np.finfo(dtype).tiny)


@pytest.mark.parametrize("name", NAMES)
def test_losses_compile_on_vectors_as_they_are_written(name):
    loss = by_name(name)
    value, slope, curvature = (numba.njit(f) for f in (loss.value, loss.slope, loss.curvature))

    @numba.njit
    def on_vectors(z, b, theta, out, lanes):
        for i in range(0, len(z), width(lanes)):
            store(out, i, value(load(z, i, lanes), at(b, 0), theta))
            store(out, len(z) + i, slope(load(z, i, lanes), load(b, i, lanes), theta))
            store(out, 2 * len(z) + i, curvature(load(z, i, lanes), at(b, 0), theta))

    for dtype in FLOATS:
        z = np.concatenate([np.linspace(-4, 4, 49), [1e6, -1e6, 0, 1, -1, 800, -800] + 8 * [0.5]]).astype(dtype)
        b = np.where(np.arange(64) % 3, 1, -1).astype(dtype)
        out = np.empty((3, 64), dtype)
        on_vectors(z, b, loss.theta, out, LANES)
        theta = dtype(loss.theta)
        expected = loss.value(z, b[0], theta), loss.slope(z, b, theta), loss.curvature(z, b[0], theta)
        rtol = 8 * np.finfo(dtype).eps
        np.testing.assert_allclose(out, np.array(expected, dtype), rtol=rtol, atol=1e-37)
