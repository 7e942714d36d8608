"""A site's releases: the declared noise, the declared sensitivity, exactly on the grid; everything else refused."""

from fractions import Fraction
from math import sqrt
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

import sottovoce as sv
from sottovoce import secure
from sottovoce.compiled import CompiledOracle
from sottovoce.noise import GivenNoise, SeededNoise, Shape
from sottovoce.oracle import Oracle, Steps
from sottovoce.secure import SecureNoise, on_grid, require_secure, uniform_below

LEVEL = 1e-6
D = 4


def site(features, labels, algorithm, kind=Oracle, data_norm=1.0):
    """One real site with two neighbours in a network of three."""
    sites = sv.Sites([features], [labels], data_norm=data_norm)
    objective = algorithm.loss, algorithm.regulariser, algorithm.lam, algorithm.max_grad_norm
    return kind(sites, np.array([2]), 3, *objective)


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
    found = np.array([one_step(algorithm, oracle, SecureNoise(D, 11)) for _ in range(count)])
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
@settings(deadline=None, max_examples=150)
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
        noise, s = SecureNoise(D, m, grid_bits=bits), oracle.sensitivity()
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
    noise = SecureNoise(D, 1, 8)
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
    grid = SecureNoise(D, 10**6).grid(1.0, s)
    assert SecureNoise(D, 10**6).scale(1.0, s) * grid >= s * (1 + 1e12 * 2.0**-53)


def test_the_noise_is_hardly_larger_than_it_would_be_without_rounding():
    noise = SecureNoise(100, 10**5)
    assert 1 < noise.scale(5.0, 1e-4) * noise.grid(5.0, 1e-4) / 5e-4 < 1 + 2e-6


# -- batches ----------------------------------------------------------------------------------------------------------


def test_batches_with_replacement_are_uniform():
    counts = sum(SecureNoise(D, 7).draws(1, 0, np.array([0, 7]), 5, "replacement") for _ in range(1400))
    assert counts.shape == (7, 1)
    assert counts.sum() == 5 * 1400
    assert stats.chisquare(counts[:, 0]).pvalue > LEVEL


def test_poisson_batches_hold_each_row_on_its_own():
    offsets = np.array([0, 20_000])
    drawn = SecureNoise(D, 20_000).draws(1, 0, offsets, 5000, "poisson")[:, 0]
    assert set(np.unique(drawn)) == {0.0, 1.0}
    assert stats.binomtest(int(drawn.sum()), 20_000, 0.25).pvalue > LEVEL
    both = int(np.sum(drawn[:-1] * drawn[1:]))
    assert abs(both - 20_000 / 16) < 6 * sqrt(20_000 / 16)


def test_words_that_would_favour_some_rows_are_thrown_away(monkeypatch):
    # 2^64 = 1 mod 3: the last word is one too many.
    words = iter([[2**64 - 1, 2**64 - 2, 5], [2**64 - 1], [4]])
    monkeypatch.setattr(secure.os, "urandom", lambda n: np.array(next(words), dtype=np.uint64).tobytes()[:n])
    assert uniform_below(3, 3).tolist() == [(2**64 - 2) % 3, 2, 1]


# -- refusals ---------------------------------------------------------------------------------------------------------


def added(noise, gradient, k=1, r=0, sigma=1.0, s=1.0):
    return noise.added(gradient, sigma, np.full((1, 1, 1), s), k, r)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_what_is_not_finite_is_refused(bad):
    gradient = np.zeros((1, D, 1))
    gradient[0, 2, 0] = bad
    with pytest.raises(sv.PrivacyError, match="finite gradient"):
        added(SecureNoise(D, 5), gradient)


@pytest.mark.parametrize("huge", [2.0**22, -1e300, 1.7e308])
def test_what_does_not_fit_the_grid_is_refused(huge):
    gradient = np.zeros((1, D, 1))
    gradient[0, 0, 0] = huge
    with pytest.raises(sv.PrivacyError, match="grid units"):
        added(SecureNoise(D, 5), gradient)
    assert np.isfinite(added(SecureNoise(D, 5), gradient / huge)).all()


def test_a_minus_zero_leaves_no_trace():
    with patch.object(secure, "discrete_gaussian", lambda _, d: np.zeros(d, dtype=np.int64)):
        found = added(SecureNoise(D, 5), np.full((1, D, 1), -0.0))
    assert not np.signbit(found).any()


def test_noise_for_a_step_is_drawn_once():
    noise = SecureNoise(D, 5)
    for k, r in ((1, 0), (1, 1), (2, 0)):
        added(noise, np.zeros((1, D, 1)), k, r)
    for k, r in ((2, 0), (1, 5)):
        with pytest.raises(sv.PrivacyError, match=rf"after \(round, step\)=\(2, 0\), got \({k}, {r}\)"):
            added(noise, np.zeros((1, D, 1)), k, r)


@pytest.mark.parametrize("shape", [(2, D, 1), (1, D, 3), (1, D + 1, 1)])
def test_only_one_site_and_one_run(shape):
    with pytest.raises(sv.PrivacyError, match=r"one site in one run, shape \(1, 4, 1\)"):
        added(SecureNoise(D, 5), np.zeros(shape))
    with pytest.raises(sv.PrivacyError, match="nodes=2"):
        SecureNoise(D, 9).draws(1, 0, np.array([0, 4, 9]), 3, "poisson")


def test_too_many_terms_are_refused_rather_than_drowned():
    with pytest.raises(sv.PrivacyError, match="terms=1000000000"):
        added(SecureNoise(D, 10**9), np.zeros((1, D, 1)))
    with pytest.raises(sv.InputError, match="rows=9, terms=5"):
        SecureNoise(D, 5).draws(1, 0, np.array([0, 9]), 3, "poisson")
    with pytest.raises(sv.InputError, match="batch=6, terms=5"):
        SecureNoise(D, 5).draws(1, 0, np.array([0, 5]), 6, "replacement")


def test_bad_settings_are_refused():
    for arguments, message in (((0, 5), "d=0"), ((3, 0), "terms=0"), ((3, 5, 50), "grid_bits=50")):
        with pytest.raises(sv.InputError, match=message):
            SecureNoise(*arguments)
    with pytest.raises(sv.InputError, match="sigma sensitivity"):
        added(SecureNoise(D, 5), np.zeros((1, D, 1)), s=1e-250)


def test_fast_oracles_and_other_noise_laws_do_not_take_it():
    algorithm = sv.IPADMM(diameter=1.0, rounds=2, local_steps=1)
    rows, labels = some_rows(np.random.default_rng(0), 5), np.ones(5)
    fast = site(rows, labels, algorithm, CompiledOracle)
    with pytest.raises(sv.PrivacyError, match="device='plain'"):
        one_step(algorithm, fast, SecureNoise(D, 5))
    pvp = sv.PVP(rounds=2)
    with pytest.raises(sv.PrivacyError, match="asks for normals in round k=1"):
        one_step(pvp, site(rows, labels, pvp), SecureNoise(D, 5))


def test_the_guard():
    seeded = SeededNoise(0, Shape(1, D, 1))
    given_noise = GivenNoise(lambda _: np.zeros((1, 1, 1, D)), seeded)
    require_secure(SecureNoise(D, 5))
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
