"""Which accountant prices what, and how prices move."""

from dataclasses import dataclass
from math import inf, sqrt

import dp_accounting
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sottovoce.errors import InputError, UnsupportedError
from sottovoce.privacy import (
    Event,
    Gaussian,
    NonPrivate,
    Repeated,
    SampledGaussian,
    Sampling,
    Sequence,
    delta,
    delta_of_mu,
    epsilon,
    epsilon_of_mu,
)


@dataclass(frozen=True)
class Oracle(Event):
    def dp_event(self):
        return dp_accounting.UnsupportedDpEvent()

    @property
    def words(self):
        return "an oracle"


def test_gaussians_add_up_in_closed_form():
    event = Sequence((Repeated(Gaussian(10.0), 90), Repeated(Repeated(Gaussian(5.0), 2), 5), Gaussian(2.0)))
    mu = sqrt(90 / 100 + 10 / 25 + 1 / 4)
    assert epsilon(event, 1e-6) == pytest.approx(epsilon_of_mu(mu, 1e-6), rel=1e-13)
    assert delta(event, 2.0) == pytest.approx(delta_of_mu(mu, 2.0), rel=1e-12)


def test_nothing_costs_nothing_and_no_noise_costs_everything():
    for event in (Sequence(()), Repeated(Gaussian(1.0), 0), Repeated(NonPrivate(), 0)):
        assert epsilon(event, 1e-5) == 0
        assert delta(event, 0.0) == 0
    for event in (NonPrivate(), Sequence((Gaussian(1.0), Repeated(NonPrivate(), 2)))):
        assert epsilon(event, 1e-5) == inf
        assert delta(event, 100.0) == 1


@pytest.mark.parametrize("event", [Oracle(), Repeated(Oracle(), 3), Sequence((Gaussian(1.0), Oracle()))], ids=str)
def test_an_unknown_event_is_refused(event):
    with pytest.raises(UnsupportedError, match="No accountant for event=Oracle"):
        epsilon(event, 1e-5)
    with pytest.raises(UnsupportedError, match="No accountant for event=Oracle"):
        delta(event, 1.0)


def test_a_batch_that_always_holds_the_row_is_a_plain_gaussian():
    plain = epsilon(Repeated(Gaussian(9.0), 10), 1e-5)
    assert epsilon(Repeated(SampledGaussian(9.0, Sampling("poisson", 30, 30)), 10), 1e-5) == plain
    alone = SampledGaussian(9.0 * 7, Sampling("replacement", 1, 7))
    assert epsilon(Repeated(alone, 10), 1e-5) == pytest.approx(plain, rel=1e-12)
    nearly = SampledGaussian(9.0, Sampling("poisson", 10**6, 10**6 - 1))
    assert epsilon(Repeated(nearly, 10), 1e-5) == pytest.approx(plain, rel=1e-3)


def test_bad_arguments_are_refused():
    with pytest.raises(InputError, match="delta strictly between"):
        epsilon(Gaussian(1.0), 0.0)
    with pytest.raises(InputError, match="epsilon to be finite"):
        delta(Gaussian(1.0), inf)


SCHEMES = st.sampled_from(["poisson", "replacement"])


@settings(max_examples=15)
@given(SCHEMES, st.integers(1, 40), st.floats(0.8, 20), st.integers(1, 200), st.sampled_from([1e-9, 1e-5, 1e-2]))
def test_prices_move_the_right_way(scheme, batch, sigma, times, target):
    def price(sigma=sigma, batch=batch, times=times, target=target):
        return epsilon(Repeated(SampledGaussian(sigma, Sampling(scheme, 40, batch)), times), target)

    here = price()
    # Two grids differ by far less than this.
    slack = 1 + 1e-4
    assert price(sigma=1.1 * sigma) <= here * slack + 1e-7
    assert price(times=times + 1) * slack + 1e-7 >= here
    assert price(target=target / 2) * slack + 1e-7 >= here
    assert price(batch=max(1, batch - 1)) <= here * slack + 1e-7
