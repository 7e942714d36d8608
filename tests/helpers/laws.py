"""Whether noise is as large as it is said to be, by a test that a fault fails and that chance does not."""

import numpy as np
from scipy import stats

from sottovoce.tally import release

NEVER = 1e-9  # the chance with which a test of a law may fail by itself


def assert_standard(z):
    """They are as large as standard normals: the sum of their squares is within what chi-squared allows."""
    z = np.ravel(z)
    low, high = stats.chi2.ppf([NEVER / 2, 1 - NEVER / 2], z.size)
    assert low < float(z @ z) < high


def noise_of_evaluations(monkeypatch):
    """A list to which the standard deviation of the noise in every sum of an evaluation is added, as measured on more
    numbers than it has.
    """
    opened, found = release.opened, []

    def measured(exact, *given):
        more = np.concatenate((exact, np.zeros(4000)))
        noisy = opened(more, *given)
        found.append(float(np.std(noisy - more)))
        return noisy[: len(exact)]

    monkeypatch.setattr(release, "opened", measured)
    return found
