"""What noise on a grid adds to delta, against the worst laws that its divergence allows."""

from math import exp, log, sqrt

import numpy as np
import pytest
from scipy.optimize import brentq

from sottovoce.errors import InputError
from sottovoce.privacy.accounting.discrete import delta_of_divergence, divergence_within


def kl(r, p):
    parts = [(r, p), (1 - r, 1 - p)]
    return sum(a * log(a / b) for a, b in parts if a > 0)


def moved(p, divergence, towards):
    """The chance r of a set whose ideal chance is p, as far from it as the divergence allows."""
    edge = 1e-300 if towards < p else 1 - 1e-16
    if kl(edge, p) <= divergence:
        return edge
    return brentq(lambda r: kl(r, p) - divergence, *sorted((edge, p)), xtol=1e-300, rtol=1e-14)


def worst(epsilon, delta, divergence):
    """max R_D(E) - e^eps R_D'(E) over ideal chances of E that are (epsilon, delta)-close, each moved all it may."""
    found = []
    for p in np.geomspace(1e-4, 0.999, 60) * exp(-epsilon):
        ideal = min(1 - 1e-12, exp(epsilon) * p + delta)
        found.append(moved(ideal, divergence, 1.0) - exp(epsilon) * moved(p, divergence, 0.0))
    return max(found)


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 3.0, 10.0, 20.0])
@pytest.mark.parametrize("divergence", [1e-12, 1e-8, 1e-5])
def test_the_gap_is_never_understated(epsilon, divergence):
    gap = delta_of_divergence(divergence, epsilon)
    if gap < 0.5:
        added = worst(epsilon, 1e-5, divergence) - 1e-5
        assert 0.1 * gap < added <= gap


def test_the_weight_grows_with_the_root_of_e_to_the_epsilon():
    tau = sqrt(1e-30 / 2)
    assert delta_of_divergence(1e-30, 1.0) == pytest.approx((1 + exp(1.0)) * tau)
    assert delta_of_divergence(1e-30, 30.0) == pytest.approx((1 + 2 * exp(15.0)) * tau)


@pytest.mark.parametrize("epsilon", [0.0, 1.0, 5.0, 40.0, 2000.0])
@pytest.mark.parametrize("delta", [1e-12, 1e-3])
def test_there_and_back(epsilon, delta):
    divergence = divergence_within(delta, epsilon)
    assert delta * (1 - 1e-9) <= delta_of_divergence(divergence, epsilon) <= delta or divergence == 0
    assert divergence_within(0.0, epsilon) == 0
    with pytest.raises(InputError, match="delta"):
        divergence_within(1.0, epsilon)
