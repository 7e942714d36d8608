"""Export of events to Google's dp-accounting, for readers who bring their own accountant.

`Event.dp_event` says how to evaluate what comes out. Laplace becomes LaplaceDpEvent, to be evaluated under
ADD_OR_REMOVE_ONE. Releases that dp-accounting has no event for become UnsupportedDpEvent, which all its accountants
refuse. Randomised response would dominate those that are pure, but its PLD accountant (0.6) counts repeated
responses once.
"""

from math import inf

from sottovoce.errors import UnsupportedError
from sottovoce.privacy.events import (
    Event,
    Gaussian,
    NegativeBinomialRuns,
    NonPrivate,
    PoissonRuns,
    RepeatAndSelect,
    Repeated,
    SampledGaussian,
    Sequence,
)
from sottovoce.privacy.releases import Laplace

try:
    import dp_accounting as google
    from dp_accounting import dp_event as more
# Raised here, and not where events are made: pricing needs none of it.
except ImportError as _error:
    raise UnsupportedError(
        "dp_event() needs dp-accounting. Install it with: pip install 'sottovoce[dp-accounting]'"
    ) from _error


def to_dp_event(event: Event) -> google.DpEvent:
    """The same event of dp-accounting; UnsupportedDpEvent, which its accountants refuse, where it has none.

    dp-accounting knows searches with eta >= 0 and, for Poisson, a mean of one or more.
    """
    match event:
        case NonPrivate():
            return google.NonPrivateDpEvent()
        case Gaussian(sigma=sigma):
            return google.GaussianDpEvent(sigma)
        case SampledGaussian(sigma=sigma, sampling=s) if s.scheme == "poisson":
            return google.PoissonSampledDpEvent(s.batch / s.rows, google.GaussianDpEvent(sigma))
        case SampledGaussian(sigma=sigma, sampling=s):
            return more.SampledWithReplacementDpEvent(s.rows, s.batch, google.GaussianDpEvent(sigma))
        # Their event has sensitivity 1 too, so the scale is passed on as it is.
        case Laplace(scale=scale):
            return google.LaplaceDpEvent(scale)
        case Repeated(event=inner, times=times):
            return google.SelfComposedDpEvent(inner.dp_event(), times)
        case Sequence(events=events):
            return google.ComposedDpEvent([inner.dp_event() for inner in events])
        case RepeatAndSelect(event=inner, runs=NegativeBinomialRuns(eta=eta) as runs) if eta >= 0:
            return more.RepeatAndSelectDpEvent(inner.dp_event(), runs.mean, eta)
        case RepeatAndSelect(event=inner, runs=PoissonRuns(rate=rate)) if rate >= 1:
            return more.RepeatAndSelectDpEvent(inner.dp_event(), rate, inf)
        case _:
            return google.UnsupportedDpEvent()
