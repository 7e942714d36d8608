"""The discrete Gaussian against the rounded continuous one, and against the accountant, in exact arithmetic."""

import mpmath as mp
import numpy as np
import pytest

from sottovoce.errors import InputError
from sottovoce.noise.secure import GRID_BITS, SecureNoise
from sottovoce.privacy.accounting.discrete import delta_of_divergence, discretisation_delta, discretisation_divergence
from sottovoce.privacy.accounting.gaussian import delta_of_mu


def pmfs(scale, reach=14):
    """(the points, the discrete Gaussian, N(0, scale^2) rounded), with 50 digits."""
    points = range(-int(reach * scale) - 2, int(reach * scale) + 3)
    weights = [mp.exp(-(mp.mpf(k) ** 2) / (2 * scale**2)) for k in points]
    total = mp.fsum(weights)
    root = scale * mp.sqrt(2)
    # The right half only, where nothing cancels.
    rounded = [(mp.erfc((abs(k) - mp.mpf(0.5)) / root) - mp.erfc((abs(k) + mp.mpf(0.5)) / root)) / 2 for k in points]
    return points, [w / total for w in weights], rounded


@pytest.mark.parametrize("scale", [1, 1.3, 2, 3, 5, 10, 25, 50])
def test_the_divergence_is_bounded_and_not_by_much(scale):
    with mp.workdps(50):
        _, ours, rounded = pmfs(mp.mpf(scale))
        true = mp.fsum(p * mp.log(p / q) for p, q in zip(ours, rounded, strict=True))
        distance = mp.fsum(abs(p - q) for p, q in zip(ours, rounded, strict=True)) / 2
        bound = discretisation_divergence(1, scale)
        assert true <= bound <= 6 * true
        assert distance <= delta_of_divergence(bound, 0.0) / 2


def composed(scale, shift, times):
    """epsilon -> exact delta of `times` discrete Gaussian releases of whole numbers that differ by `shift`."""
    _, ours, _ = pmfs(mp.mpf(scale))
    single = np.array([float(p) for p in ours])
    law = np.ones(1)
    for _ in range(times):
        law = np.convolve(law, single)
    # The loss of a run is a linear function of the sum of its releases, so the sums tell all.
    moved = np.concatenate((np.zeros(times * shift), law))
    stayed = np.concatenate((law, np.zeros(times * shift)))
    return lambda epsilon: float(np.sum(np.maximum(moved - np.exp(epsilon) * stayed, 0)))


@pytest.mark.parametrize(("scale", "shift", "times"), [(2, 1, 1), (2, 3, 4), (3, 1, 30), (8, 5, 3), (20, 7, 50)])
def test_composed_releases_cost_what_the_accountant_says_and_the_slack(scale, shift, times):
    exact, mu = composed(scale, shift, times), np.sqrt(times) * shift / scale
    for epsilon in np.linspace(0, 4 * mu, 40):
        slack = discretisation_delta(times, scale, epsilon)
        assert exact(epsilon) <= delta_of_mu(mu, epsilon) + slack
        assert exact(epsilon) >= delta_of_mu(mu, epsilon) - slack - 1e-12


def test_the_slack_is_needed():
    """On a coarse grid the discrete law alone costs more than the continuous one at some epsilon."""
    exact = composed(2, 1, 1)
    assert any(exact(e) > delta_of_mu(0.5, e) * (1 + 1e-6) for e in np.linspace(0, 2, 200))


def test_ten_million_draws_of_the_default_grid_do_not_show():
    assert discretisation_delta(10**7, 2.0**GRID_BITS, 0.0) / 2 < 1e-15
    assert SecureNoise(bytes(32), 100, 50).divergence(10**5) == discretisation_divergence(10**7, 2.0**GRID_BITS)


def test_slack_is_capped_and_zero_without_divergence():
    assert delta_of_divergence(0.0, 5.0) == 0.0
    assert delta_of_divergence(1e-3, 1e6) == 1.0
    with pytest.raises(InputError, match=r"scale=0\.5"):
        discretisation_divergence(3, 0.5)
    with pytest.raises(InputError, match="divergence=nan"):
        delta_of_divergence(float("nan"), 1.0)
