import numba
import numpy as np
import pytest
from scipy import stats

from sottovoce.oracle.kernels.random import fill_normals, normal_pair, philox
from sottovoce.oracle.kernels.simd import Lanes, load, store, width

LANES = Lanes(16)


@numba.njit
def _philox(words, key):
    w = words.astype(np.uint64)
    x = philox(w[0], w[1], w[2], w[3], np.uint64(key[0]), np.uint64(key[1]))
    return (
        x[0] & np.uint64(0xFFFFFFFF),
        x[1] & np.uint64(0xFFFFFFFF),
        x[2] & np.uint64(0xFFFFFFFF),
        x[3] & np.uint64(0xFFFFFFFF),
    )


# The known answers that the authors publish with Random123.
@pytest.mark.parametrize(
    ("counter", "key", "answer"),
    [
        ("00000000 00000000 00000000 00000000", "00000000 00000000", "6627e8d5 e169c58d bc57ac4c 9b00dbd8"),
        ("ffffffff ffffffff ffffffff ffffffff", "ffffffff ffffffff", "408f276d 41c83b0e a20bc7c6 6d5451fd"),
        ("243f6a88 85a308d3 13198a2e 03707344", "a4093822 299f31d0", "d16cfe09 94fdcceb 5001e420 24126ea1"),
    ],
)
def test_philox_gives_the_published_answers(counter, key, answer):
    words = [np.array([int(word, 16) for word in text.split()], np.int64) for text in (counter, key)]
    assert " ".join(f"{word:08x}" for word in _philox(*words)) == answer


@numba.njit
def _pairs(high, low, out):
    n = len(high)
    for i in range(0, n, width(LANES)):
        x, y = normal_pair(load(high, i, LANES), load(low, i, LANES), out.dtype.type(0))
        store(out, i, x)
        store(out, n + i, y)


def _normals(shape, dtype=np.float64, key=(1, 2), k=1, r=0, first_node=0, first_run=0):
    out = np.empty(shape, dtype)
    fill_normals(out, *key, k, r, first_node, first_run)
    return out


def test_a_pair_is_box_muller_on_its_bits():
    high, low = np.random.default_rng(0).integers(0, 2**32, (2, 4096), dtype=np.uint32)
    edges = np.array([0, 1, 255, 256, 0xBFFFFFFF, 0xC0000000, 0xFFFFFFFE, 0xFFFFFFFF], np.uint32)
    high[:8], low[:8], low[8:16] = edges, edges, edges
    u = ((high.astype(np.longdouble) * 256 + (low >> 24)) + 0.5) * np.longdouble(2) ** -40
    radius = np.sqrt(-2 * np.where(u > 0.5, np.log1p(u - 1), np.log(u)))
    angle = ((low & 0x3FFFFF).astype(np.longdouble) - 2**21 + 0.5) * (2 * np.pi * 2.0**-24)
    cos = np.where(low & 0x800000, -np.cos(angle), np.cos(angle))
    swap = (low & 0x400000) != 0
    exact = radius * np.array([np.where(swap, np.sin(angle), cos), np.where(swap, cos, np.sin(angle))])
    for dtype in (np.float64, np.float32):
        out = np.empty((2, 4096), dtype)
        _pairs(high, low, out)
        np.testing.assert_allclose(out, exact.astype(np.float64), rtol=12 * np.finfo(dtype).eps)


def test_the_tail_beyond_six_sigma_is_the_normal_one():
    """All radii that can matter (2^40 P(R > 6) is about 16,700 of them), on an even grid of angles in all quadrants."""
    x = np.arange(17408, dtype=np.uint32)
    above = dict.fromkeys((6.0, 6.5, 7.0), 0)
    angles = (np.arange(512) << 15) + 2**14
    out = np.empty((2, len(x)))
    for angle in angles.astype(np.uint32):
        _pairs(x >> np.uint32(8), ((x & np.uint32(255)) << np.uint32(24)) | angle, out)
        for level in above:
            above[level] += np.count_nonzero(out > level) + np.count_nonzero(out < -level)
    for level, count in above.items():
        share = count / (2**40 * 2 * 512)
        # Near 7 sigma a few dozen radii are left, so their number is known to a few percent at best.
        assert share == pytest.approx(2 * stats.norm.sf(level), rel=2e-3 if level < 7 else 2e-2)


def test_the_largest_normal_is_beyond_seven_sigma():
    out = np.empty((2, 16))
    _pairs(np.zeros(16, np.uint32), np.full(16, 2**21, np.uint32), out)
    assert 7 < np.abs(out).max() < 7.6


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_normals_are_standard_normal(dtype):
    z = _normals((20, 100, 200), dtype).astype(np.float64).ravel()
    n = z.size
    assert abs(z.mean()) < 4.5 / np.sqrt(n)
    assert abs(z.var() - 1) < 4.5 * np.sqrt(2 / n)
    assert abs((z**3).mean()) < 4.5 * np.sqrt(15 / n)
    assert abs((z**4).mean() - 3) < 4.5 * np.sqrt(96 / n)
    assert stats.kstest(z, "norm").pvalue > 1e-4
    edges = np.array([-np.inf, -4, -3.5, -3, -2, -1, 0, 1, 2, 3, 3.5, 4, np.inf])
    expected = n * np.diff(stats.norm.cdf(edges))
    assert stats.chisquare(np.histogram(z, edges)[0], expected).pvalue > 1e-4


def test_two_thirds_of_the_noise_would_be_noticed():
    z = 2 / 3 * _normals((20, 100, 200)).ravel()
    assert abs(z.var() - 1) > 4.5 * np.sqrt(2 / z.size)
    assert stats.kstest(z, "norm").pvalue < 1e-4


def test_both_precisions_give_the_same_numbers():
    np.testing.assert_allclose(_normals((3, 9, 40), np.float32), _normals((3, 9, 40)), rtol=2e-6)


def test_a_number_depends_on_its_own_place_only():
    z = _normals((6, 21, 70), first_node=3, first_run=5)
    for runs in (1, 2, 8, 9, 16, 33):
        some = _normals((2, 21, runs), first_node=4, first_run=11)
        np.testing.assert_array_equal(some, z[1:3, :, 6 : 6 + runs])
    np.testing.assert_array_equal(_normals((6, 6, 70), first_node=3, first_run=5), z[:, :6])


def test_numbers_do_not_depend_on_the_number_of_threads():
    many, threads = _normals((9, 21, 33)), numba.get_num_threads()
    numba.set_num_threads(1)
    try:
        np.testing.assert_array_equal(_normals((9, 21, 33)), many)
    finally:
        numba.set_num_threads(threads)


@pytest.mark.parametrize("axis", [0, 1, 2], ids=["nodes", "coordinates", "runs"])
@pytest.mark.parametrize("lag", [1, 2, 4, 8])
def test_neighbours_are_not_correlated(axis, lag):
    z = np.moveaxis(_normals((32, 64, 64)), axis, 0)
    for x, y in ((z[lag:], z[:-lag]), (z[lag:] ** 2 - 1, z[:-lag] ** 2 - 1)):
        assert abs((x * y).mean()) < 4.5 * x.std() * y.std() / np.sqrt(x.size)


@pytest.mark.parametrize("other", [{"k": 2}, {"r": 1}, {"key": (1, 3)}, {"key": (2, 2)}], ids=str)
def test_rounds_steps_and_keys_are_not_correlated(other):
    x, y = _normals((32, 64, 64)), _normals((32, 64, 64), **other)
    assert abs((x * y).mean()) < 4.5 / np.sqrt(x.size)
