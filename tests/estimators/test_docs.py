"""The figures in the how-to and among the pitfalls are right. The code beside them is run with that of all pages."""

import pytest

from sottovoce import privacy


def test_figures():
    half = privacy.Gaussian(privacy.sigma_for(0.5, 1e-5, 1))
    for times, total in ((2, 0.73), (10, 1.77)):
        assert privacy.epsilon(privacy.Repeated(half, times), 1e-5) == pytest.approx(total, abs=0.006)
    runs = privacy.NegativeBinomialRuns(0.0, privacy.gamma_for(10, 0.0))
    run = privacy.noise_for(
        lambda x: privacy.RepeatAndSelect(privacy.scored(privacy.Gaussian(x / 0.8**0.5), x / 0.2**0.5), runs), 1.0, 1e-5
    )
    assert run / 0.8**0.5 / privacy.sigma_for(1.0, 1e-5, 1) == pytest.approx(1.65, abs=0.006)
