"""A site's releases: the declared noise, the declared sensitivity, exactly on the grid, the same when asked again."""

import copy
import pickle
from fractions import Fraction
from hashlib import sha256
from math import sqrt
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

import sottovoce as sv
from sottovoce.noise import secure
from sottovoce.noise.sampler import encode_fields, keyed
from sottovoce.noise.secure import SecureNoise, on_grid, require_secure
from sottovoce.noise.sources import GivenNoise, SeededNoise, Shape
from sottovoce.oracle.cpu import CompiledOracle
from sottovoce.oracle.plain import Oracle, Steps

LEVEL = 1e-6
D = 4
KEY = bytes(range(32))


def site(features, labels, algorithm, kind=Oracle, data_norm=1.0):
    """One real site with two neighbours in a network of three."""
    sites = sv.Sites([features], [labels], data_norm=data_norm)
    objective = algorithm.loss, np.array([2]), algorithm.regulariser, algorithm.lam
    return kind(sites, 3, *objective, max_grad_norm=algorithm.max_grad_norm)


def some_rows(rng, m, norm=1.0):
    a = rng.normal(size=(m, D))
    return norm * a * rng.random((m, 1)) ** 0.2 / np.linalg.norm(a, axis=1, keepdims=True)


def one_step(algorithm, oracle, noise, k=1):
    return algorithm.release(k, algorithm.start(oracle, 1), oracle, noise)[0]


# -- law --------------------------------------------------------------------------------------------------------------


def releases(count=500, batch=None):
    """Release minus its noiseless twin, in units that should be standard."""
    rng = np.random.default_rng(0)
    algorithm = sv.IPADMM(epsilon=1.0, rounds=1, local_steps=1, diameter=7.0, rho=0.05, lam=0.0, batch_size=batch)
    rows = some_rows(rng, 11) if batch is None else np.zeros((11, D))
    oracle = site(rows, rng.choice([-1.0, 1.0], size=11), algorithm)
    scale = (2 * 0.05 * oracle.degree + algorithm.eta(1, oracle)[0]).item()
    exact = -oracle.gradient(oracle.zeros(1)) / scale
    noise = SecureNoise(KEY, D, 11)
    found = np.array([one_step(algorithm, oracle, noise.within(b"%d" % i)) for i in range(count)])
    return (found - exact) * scale / (algorithm.sigma(oracle) * 2 * oracle.c1 / (11 if batch is None else batch))


def accepts(samples):
    tail = stats.chi2.cdf(np.sum(samples**2), df=samples.size)
    return LEVEL < tail < 1 - LEVEL and stats.kstest(samples.ravel(), "norm").pvalue > LEVEL


@pytest.mark.parametrize("batch", [None, 5])
def test_releases_carry_the_declared_noise_and_two_thirds_of_it_would_be_found_out(batch):
    found = releases(batch=batch)
    assert accepts(found)
    assert not accepts(found * 2 / 3)


def test_coordinates_and_steps_are_independent():
    found = releases(1000)[:, 0, :, 0]
    correlation = np.corrcoef(found.T) - np.eye(D)
    assert np.abs(correlation).max() < 6 / sqrt(len(found))
    assert abs(np.mean(found[1:] * found[:-1])) < 6 / sqrt(found[1:].size)


# -- sensitivity ------------------------------------------------------------------------------------------------------


@given(st.integers(0, 2**32 - 1), st.sampled_from([8, 12, 30]), st.sampled_from([0.01, 1.0, 30.0]))
@settings(max_examples=150)
def test_no_release_moves_by_more_than_the_noise_pays_for(seed, bits, norm):
    rng = np.random.default_rng(seed)
    m = int(rng.integers(1, 6))
    algorithm = sv.IPADMM(epsilon=2.0, rounds=5, local_steps=1, diameter=5.0, loss=sv.losses.Hinge())
    a, b = some_rows(rng, m, norm), rng.choice([-1.0, 1.0], size=m)
    a_new, b_new = a.copy(), b.copy()
    a_new[0], b_new[0] = (-a[0], b[0]) if rng.random() < 0.5 else (some_rows(rng, 1, norm)[0], -b[0])
    w = rng.normal(size=(1, D, 1)) * 10 ** rng.uniform(-3, 0)
    same = rng.integers(-(2**bits), 2**bits, size=D)
    sigma, found = 2.0, []
    for rows, labels in ((a, b), (a_new, b_new)):
        oracle = site(rows, labels, algorithm, data_norm=norm)
        noise, s = SecureNoise(KEY, D, m, grid_bits=bits), oracle.sensitivity()
        with patch.object(secure, "discrete_gaussian", lambda *_: same):
            found.append(noise.added(oracle.gradient(w), sigma, s, 1, 0))
    s = s.item()
    grid, scale = noise.grid(sigma, s), noise.scale(sigma, s)
    assert 2.0**bits <= scale
    for release in found:
        assert np.all(release / grid == np.rint(release / grid))
        assert not np.any(np.signbit(release) & (release == 0))
    moved = np.linalg.norm(found[0] - found[1])
    assert moved <= s + 2 * grid * sqrt(D)
    assert sigma * moved <= scale * grid


def test_rounding_can_move_every_coordinate_by_the_whole_grid():
    """So the noise has to pay for it."""
    grid, tie = 2.0**-10, 2.0**-11
    low, high = np.full((1, D, 1), tie * (1 - 1e-12)), np.full((1, D, 1), tie * (1 + 1e-12))
    assert np.linalg.norm(on_grid(high, grid) - on_grid(low, grid)) == sqrt(D)
    noise = SecureNoise(KEY, D, 1, 8)
    assert noise.scale(10.0, 1.0) * noise.grid(10.0, 1.0) >= 10 * (1 + 2 * noise.grid(10.0, 1.0) * sqrt(D)) > 11
    with pytest.raises(sv.PrivacyError, match=r"sigma=100.*more than grid_bits=8"):
        noise.scale(100.0, 1.0)


def test_sums_of_rows_are_as_exact_as_the_proof_says():
    """Against exact fractions, on a sum with much cancellation."""
    rng = np.random.default_rng(1)
    a = some_rows(rng, 3000)
    algorithm = sv.IPADMM(diameter=1.0, lam=0.0, loss=sv.losses.Hinge())
    oracle = site(a, np.ones(len(a)), algorithm)
    g = oracle.gradient(oracle.zeros(1))[0, :, 0]
    exact = [sum(map(Fraction, column)) / -len(a) for column in a.T]
    error = sqrt(sum(float(Fraction(x) - y) ** 2 for x, y in zip(g, exact, strict=True)))
    gamma, s = (len(a) + 8) * 2.0**-53, oracle.sensitivity().item()
    assert 0 < error <= gamma * len(a) * s / 2
    grid = SecureNoise(KEY, D, 10**6).grid(1.0, s)
    assert SecureNoise(KEY, D, 10**6).scale(1.0, s) * grid >= s * (1 + 1e12 * 2.0**-53)


def test_the_noise_is_hardly_larger_than_it_would_be_without_rounding():
    noise = SecureNoise(KEY, 100, 10**5)
    assert 1 < noise.scale(5.0, 1e-4) * noise.grid(5.0, 1e-4) / 5e-4 < 1 + 2e-6


# -- batches ----------------------------------------------------------------------------------------------------------


def test_batches_with_replacement_are_uniform():
    counts = sum(SecureNoise(KEY, D, 7).draws(k, 0, np.array([0, 7]), 5, "replacement") for k in range(1400))
    assert counts.shape == (7, 1)
    assert counts.sum() == 5 * 1400
    assert stats.chisquare(counts[:, 0]).pvalue > LEVEL


def test_poisson_batches_hold_each_row_on_its_own():
    offsets = np.array([0, 20_000])
    drawn = SecureNoise(KEY, D, 20_000).draws(1, 0, offsets, 5000, "poisson")[:, 0]
    assert set(np.unique(drawn)) == {0.0, 1.0}
    assert stats.binomtest(int(drawn.sum()), 20_000, 0.25).pvalue > LEVEL
    both = int(np.sum(drawn[:-1] * drawn[1:]))
    assert abs(both - 20_000 / 16) < 6 * sqrt(20_000 / 16)


def test_a_row_is_drawn_for_exactly_batch_of_rows_numbers():
    """Every number below `rows` once: `batch` of them put a row in, so its chance is batch / rows, with no rounding."""
    with patch.object(secure, "uniform_below", lambda _, bound, count: np.arange(count) % bound):
        drawn = SecureNoise(KEY, D, 20).draws(1, 0, np.array([0, 20]), 7, "poisson")
        counts = SecureNoise(KEY, D, 20).draws(1, 0, np.array([0, 4]), 10, "replacement")
    assert drawn[:, 0].tolist() == [1.0] * 7 + [0.0] * 13
    assert counts[:, 0].tolist() == [3.0, 3.0, 2.0, 2.0]


# -- noise is a function ----------------------------------------------------------------------------------------------

LONG = 3000  # coordinates, where noises are compared
VALUE = np.random.default_rng(5).normal(size=(1, LONG, 1))
SAME = {"key": KEY, "context": b"heard", "k": 3, "r": 1, "sigma": 2.0, "s": 0.7, "value": VALUE}


def long_noise(key, context, k, r, sigma, s, value):
    """What was subtracted from a value, in units of its scale."""
    source = SecureNoise(key, LONG, 50).within(context)
    grid, scale = source.grid(sigma, s), source.scale(sigma, s)
    released = source.added(value, sigma, np.full((1, 1, 1), s), k, r)
    return ((on_grid(value, grid) - released / grid) / scale).ravel()


def moved(value, units):
    """The value with one coordinate moved by whole grid units of `SAME`."""
    out = value.copy()
    out[0, 7, 0] += units * SecureNoise(KEY, LONG, 50).grid(SAME["sigma"], SAME["s"])
    return out


def test_a_site_set_back_to_yesterday_says_the_same_words():
    rng = np.random.default_rng(0)
    algorithm = sv.IPADMM(epsilon=1.0, rounds=3, local_steps=4, diameter=7.0, batch_size=5)
    oracle = site(some_rows(rng, 11), rng.choice([-1.0, 1.0], size=11), algorithm)
    said = [one_step(algorithm, oracle, SecureNoise(KEY, D, 11).within(b"heard"), k=2) for _ in range(2)]
    np.testing.assert_array_equal(said[0], said[1])
    used = SecureNoise(KEY, D, 11, context=b"before")
    one_step(algorithm, oracle, used, k=2)
    np.testing.assert_array_equal(one_step(algorithm, oracle, used.within(b"heard"), k=2), said[0])
    for other in (SecureNoise(KEY, D, 11).within(b"heard else"), SecureNoise(KEY[::-1], D, 11).within(b"heard")):
        assert np.all(one_step(algorithm, oracle, other, k=2) != said[0])


@pytest.mark.parametrize(
    "change",
    [
        {"key": KEY[:31] + b"\0"},
        {"context": b""},
        {"context": b"heard\0"},
        {"k": 4},
        {"r": 2},
        {"k": 1, "r": 3},
        {"sigma": np.nextafter(2.0, 3.0)},
        {"s": 0.7 * (1 + 1e-6)},
        {"s": 1.4},
        {"value": moved(VALUE, 1)},
        {"value": moved(VALUE, -1)},
        {"value": -VALUE},
    ],
    ids="-".join,
)
def test_whatever_is_changed_the_noise_is_another(change):
    one, other = long_noise(**SAME), long_noise(**(SAME | change))
    assert np.mean(np.abs(one - other) < 1e-4) < 0.01
    assert abs(np.corrcoef(one, other)[0, 1]) < 6 / sqrt(LONG)
    assert accepts(other)
    assert accepts((one - other) / sqrt(2))
    np.testing.assert_array_equal(long_noise(**(SAME | change)), other)


def test_what_the_grid_does_not_see_changes_nothing():
    """Two gradients that round alike are one value, with one noise: they are the same release."""
    grid = SecureNoise(KEY, LONG, 50).grid(2.0, 0.7)
    on = on_grid(VALUE, grid) * grid
    near = on + 0.2 * grid
    assert np.all(near != on)
    np.testing.assert_array_equal(long_noise(**(SAME | {"value": near})), long_noise(**(SAME | {"value": on})))


@pytest.mark.parametrize("scheme", ["poisson", "replacement"])
def test_batches_are_a_function_too(scheme):
    def drawn(key=KEY, context=b"heard", k=1, r=0, rows=500, batch=200, scheme=scheme):
        noise = SecureNoise(key, D, 1000).within(context)
        return noise.draws(k, r, np.array([0, rows]), batch, scheme)[:500, 0]

    np.testing.assert_array_equal(drawn(), drawn())
    swapped = {"scheme": "replacement" if scheme == "poisson" else "poisson"}
    changes = {"key": KEY[::-1]}, {"context": b""}, {"k": 2}, {"r": 1}, {"batch": 201}, {"rows": 501}, swapped
    for change in changes:
        assert abs(np.corrcoef(drawn(), drawn(**change))[0, 1]) < 6 / sqrt(500), change


def labels_of(use):
    """The labels that were drawn for."""
    labels = []

    def listen(key):
        return lambda label: labels.append(label) or keyed(key)(label)

    with patch.object(secure, "keyed", listen):
        use()
    return labels


def test_no_two_draws_share_a_label():
    def use():
        for k in (1, 2, 11):
            noise = SecureNoise(KEY, D, 50).within(b"%d" % k)
            for r in (0, 1):
                noise.draws(k, r, np.array([0, 50]), 5, "poisson")
                noise.draws(k, r, np.array([0, 50]), 5, "replacement")
                added(noise, np.zeros((1, D, 1)), k, r)

    labels = labels_of(use)
    assert len(set(labels)) == len(labels) == 18


def test_a_label_holds_what_the_proof_says():
    noise = SecureNoise(KEY, D, 50, 20)
    grid, scale = noise.grid(2.5, 0.5), noise.scale(2.5, 0.5)

    def use():
        noise = SecureNoise(KEY, D, 50, 20, b"heard")
        added(noise, np.ones((1, D, 1)), 3, 1, sigma=2.5, s=0.5)
        noise.draws(3, 1, np.array([0, 50]), 5, "poisson")

    units = np.full(D, 1 / grid).astype("<i8").tobytes()
    value = sha256(encode_fields(1, D, 1, units)).digest()
    assert labels_of(use) == [
        encode_fields("sottovoce site noise", 1, "gaussian", b"heard", 3, 1, 2.5, scale, grid, D, value),
        encode_fields("sottovoce site noise", 1, "batch", b"heard", 3, 1, 50, 5, "poisson"),
    ]


def test_nothing_shows_the_key():
    secret = b"0123456789abcdefghijklmnopqrstuv"
    noise = SecureNoise(secret, D, 5, context=b"heard")
    for text in (repr(noise), str(noise), f"{noise}", repr(vars(noise)), repr(noise.within(b"x"))):
        assert secret.decode() not in text
        assert secret.hex() not in text
    assert repr(noise) == "SecureNoise(key=..., d=4, terms=5, grid_bits=30)"
    for copied in (pickle.dumps, copy.copy, copy.deepcopy):
        with pytest.raises(sv.PrivacyError, match="a noise key that stays in its process"):
            copied(noise)


# -- defined for every gradient ---------------------------------------------------------------------------------------

ANY_FLOAT = st.floats(allow_nan=True, allow_infinity=True) | st.sampled_from([0.0, -0.0, 2.0**22, -(2.0**21), 5e-324])


@given(st.lists(ANY_FLOAT, min_size=D, max_size=D))
def test_no_gradient_is_refused(values):
    gradient, noise = np.array(values).reshape(1, D, 1), SecureNoise(KEY, D, 5)
    with np.errstate(all="raise"):  # whatever the caller's settings are
        released = added(noise, gradient)
    units = released / noise.grid(1.0, 1.0)
    assert np.all(units == np.rint(units))
    assert np.abs(units).max() <= 2.0**51
    np.testing.assert_array_equal(added(SecureNoise(KEY, D, 5), gradient), released)


@pytest.mark.parametrize(("bad", "units"), [(np.nan, 0.0), (np.inf, 2.0**52), (-np.inf, -(2.0**52)), (1e308, 2.0**52)])
def test_what_is_not_finite_has_a_value(bad, units):
    gradient = np.full((1, D, 1), 0.25)
    gradient[0, 2, 0] = bad
    assert on_grid(gradient, 2.0**-10).ravel().tolist() == [256, 256, units, 256]
    twin = gradient.copy()
    twin[0, 2, 0] = units * SecureNoise(KEY, D, 5).grid(1.0, 1.0)
    released = added(SecureNoise(KEY, D, 5), gradient)
    np.testing.assert_array_equal(released, added(SecureNoise(KEY, D, 5), twin))
    assert np.all(np.abs(released[0, [0, 1, 3], 0]) < 10)


@pytest.mark.parametrize("huge", [2.0**22, -1e300, 1.7e308, -np.inf])
def test_a_release_saturates_and_says_the_same_again(huge):
    gradient = np.zeros((1, D, 1))
    gradient[0, 0, 0] = huge
    released = added(SecureNoise(KEY, D, 5), gradient)
    grid = SecureNoise(KEY, D, 5).grid(1.0, 1.0)
    assert released[0, 0, 0] == np.sign(huge) * 2.0**51 * grid
    assert np.all(np.abs(released[0, 1:, 0]) < 10)
    np.testing.assert_array_equal(added(SecureNoise(KEY, D, 5), gradient), released)


def test_saturation_is_judged_on_the_noisy_number():
    """A value at the bound: in about half of all contexts its release is the bound itself, else the true difference."""
    noise = SecureNoise(KEY, 1, 5)
    bound = 2.0**51 * noise.grid(1.0, 1.0)
    found = np.array([added(noise.within(b"%d" % i), np.full((1, 1, 1), bound)).item() for i in range(400)])
    assert found.max() == bound
    assert stats.binomtest(int(np.sum(found == bound)), 400, 0.5).pvalue > LEVEL


# -- refusals ---------------------------------------------------------------------------------------------------------


def added(noise, gradient, k=1, r=0, sigma=1.0, s=1.0):
    return noise.added(gradient, sigma, np.full((1, 1, 1), s), k, r)


def test_a_minus_zero_leaves_no_trace():
    with patch.object(secure, "discrete_gaussian", lambda *_: np.zeros(D, dtype=np.int64)):
        found = added(SecureNoise(KEY, D, 5), np.full((1, D, 1), -0.0))
    assert not np.signbit(found).any()


def test_noise_for_a_step_is_drawn_once():
    noise = SecureNoise(KEY, D, 5)
    for k, r in ((1, 0), (1, 1), (2, 0)):
        added(noise, np.zeros((1, D, 1)), k, r)
    for k, r in ((2, 0), (1, 5)):
        with pytest.raises(sv.PrivacyError, match=rf"after \(round, step\)=\(2, 0\), got \({k}, {r}\)"):
            added(noise, np.zeros((1, D, 1)), k, r)
    with pytest.raises(sv.PrivacyError, match=r"got \(2, 0\)"):
        noise.added_to_sum(np.zeros(9), 1.0, 1.0, 2)


def test_a_sum_of_any_length_gets_the_declared_noise_on_a_grid_of_its_own():
    noise, exact = SecureNoise(KEY, D, 5).within(b"here"), np.arange(600.0)
    found = noise.added_to_sum(exact, 3.0, 2.0, 1)
    assert accepts((found - exact) / 6)
    assert not accepts((found - exact) / 4)
    np.testing.assert_array_equal(noise.within(b"here").added_to_sum(exact, 3.0, 2.0, 1), found)
    assert not np.any(noise.within(b"there").added_to_sum(exact, 3.0, 2.0, 1) == found)
    assert np.all(found / secure.finest_grid(6.0, 30) % 1 == 0)


@pytest.mark.parametrize("shape", [(2, D, 1), (1, D, 3), (1, D + 1, 1)])
def test_only_one_site_and_one_run(shape):
    with pytest.raises(sv.PrivacyError, match=r"one site in one run, shape \(1, 4, 1\)"):
        added(SecureNoise(KEY, D, 5), np.zeros(shape))
    with pytest.raises(sv.PrivacyError, match="nodes=2"):
        SecureNoise(KEY, D, 9).draws(1, 0, np.array([0, 4, 9]), 3, "poisson")


def test_too_many_terms_are_refused_rather_than_drowned():
    with pytest.raises(sv.PrivacyError, match="terms=1000000000"):
        added(SecureNoise(KEY, D, 10**9), np.zeros((1, D, 1)))
    with pytest.raises(sv.InputError, match="rows=9, terms=5"):
        SecureNoise(KEY, D, 5).draws(1, 0, np.array([0, 9]), 3, "poisson")
    with pytest.raises(sv.InputError, match="batch=6, terms=5"):
        SecureNoise(KEY, D, 5).draws(1, 0, np.array([0, 5]), 6, "replacement")


def test_bad_settings_are_refused():
    for arguments, message in (((0, 5), "d=0"), ((3, 0), "terms=0"), ((3, 5, 50), "grid_bits=50")):
        with pytest.raises(sv.InputError, match=message):
            SecureNoise(KEY, *arguments)
    with pytest.raises(sv.InputError, match="a key of 32 bytes, got bytes=31"):
        SecureNoise(KEY[1:], 3, 5)
    with pytest.raises(sv.InputError, match="a context of bytes, got context='str'"):
        SecureNoise(KEY, 3, 5).within("heard")
    with pytest.raises(sv.InputError, match="noise of a standard deviation between 1e-200 and 1e200, got std=1e-250"):
        added(SecureNoise(KEY, D, 5), np.zeros((1, D, 1)), s=1e-250)


def test_the_compiled_oracle_takes_it_and_other_noise_laws_do_not():
    algorithm = sv.IPADMM(diameter=1.0, rounds=2, local_steps=1)
    rows, labels = some_rows(np.random.default_rng(0), 5), np.ones(5)
    fast, plain = (
        one_step(algorithm, site(rows, labels, algorithm, kind), SecureNoise(KEY, D, 5))
        for kind in (CompiledOracle, Oracle)
    )
    np.testing.assert_array_equal(fast, plain)
    pvp = sv.PVP(rounds=2)
    with pytest.raises(sv.PrivacyError, match="asks for normals in round k=1"):
        one_step(pvp, site(rows, labels, pvp), SecureNoise(KEY, D, 5))


def test_the_guard():
    seeded = SeededNoise(0, Shape(1, D, 1))
    given_noise = GivenNoise(lambda _: np.zeros((1, 1, 1, D)), seeded)
    require_secure(SecureNoise(KEY, D, 5))
    for noise in (seeded, given_noise):
        with pytest.raises(sv.PrivacyError, match=f"noise={type(noise).__name__}"):
            require_secure(noise)
        require_secure(noise, for_tests=True)


def test_seeded_noise_is_subtracted_as_before():
    rng = np.random.default_rng(0)
    algorithm = sv.IPADMM(diameter=1.0, lam=0.0)
    oracle = site(some_rows(rng, 5), np.ones(5), algorithm)
    noise, w = SeededNoise(3, Shape(1, D, 1)), rng.normal(size=(1, D, 1))
    steps = Steps(2, np.zeros_like(w), np.ones((1, 1, 1)), np.full((1, 1, 1, 1), 2.0), 1.5, noise)
    noisy = oracle.gradient(w) - 1.5 * oracle.sensitivity() * noise.normals(2, 0)
    np.testing.assert_allclose(oracle.noisy_steps(w, steps).last, (2 * w - noisy) / 3, rtol=1e-14)
