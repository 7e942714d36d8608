"""Events: the releases that one site made, written down for an accountant.

An event says nothing of its price. `accounting` prices it, `statement` words it. `sigma` is always the noise
multiplier: standard deviation over the l2 sensitivity, without a unit. That is the sensitivity to one row replaced by
another or, where the statement's unit is a person, to all of their rows at a site.

Events are frozen and compare by value, so equal releases are counted together and prices can be kept. Releases with
other noise than Gaussian are in `releases`. What an event carries is public: no row, no seed, no key may become one of
its fields.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from math import expm1, isfinite, log
from typing import TYPE_CHECKING, Literal, get_args

from sottovoce.errors import expect
from sottovoce.settings import written

if TYPE_CHECKING:
    import dp_accounting

Scheme = Literal["replacement", "poisson"]


def _is_count(value: object, least: int) -> bool:
    """True if this is a whole number of at least `least`. True and False are ints to Python, and are refused."""
    return isinstance(value, int) and not isinstance(value, bool) and value >= least


@dataclass(frozen=True)
class Sampling:
    """How the batch of one step is drawn from the rows of a site.

    Args:
        scheme: "replacement": `batch` independent uniform draws, so that a row may come more than once. "poisson":
            every row enters on its own with probability batch / rows; the sum is still divided by `batch`.
        rows: how many rows the site has. Public.
        batch: how many draws, or how many rows on average.
    """

    scheme: Scheme
    rows: int
    batch: int

    def __post_init__(self) -> None:
        expect(self.scheme in get_args(Scheme), f"scheme to be one of {get_args(Scheme)}", scheme=self.scheme)
        expect(_is_count(self.rows, 1), "rows to be a positive int", rows=self.rows)
        expect(_is_count(self.batch, 1), "batch to be a positive int", batch=self.batch)
        if self.scheme == "poisson":
            expect(self.batch <= self.rows, "batch <= rows for Poisson", batch=self.batch, rows=self.rows)

    @property
    def words(self) -> str:
        """A short phrase for the text of a statement."""
        if self.scheme == "poisson":
            return f"a Poisson batch of about {self.batch} of {self.rows} rows"
        return f"{self.batch} draws with replacement from {self.rows} rows"


class Event(ABC):
    """Something that touched private rows. Abstract: `Gaussian` and its likes say what, `Repeated` and `Sequence` how
    often.
    """

    def dp_event(self) -> "dp_accounting.DpEvent":
        """The event as one of Google's dp-accounting, for readers who bring their own accountant.

        Every Gaussian is exported with our `sigma`, that is with a sensitivity of one for a replaced row.

        Formal guarantees:
            Without sampled events: evaluate as a plain Gaussian of sensitivity 1 (`ADD_OR_REMOVE_ONE`, the default).
            The result is then the replace-one guarantee. `REPLACE_ONE` doubles the sensitivity in dp-accounting's
            PLD accountant (sound, about twice too much) and understates epsilon in its RDP accountant (unsound;
            google/differential-privacy #378).
            With sampled events: evaluate with the PLD accountant under `REPLACE_ONE`. It doubles the sensitivity, so
            the result is sound and loose. Under `ADD_OR_REMOVE_ONE` nothing is proved for a replaced row. To redo the
            exact Poisson pair, put 2 sigma in place of sigma and use `REPLACE_ONE`. dp-accounting 0.6 refuses
            draws with replacement; the export then only describes.
        """
        from sottovoce.privacy.export import to_dp_event  # dp-accounting is an extra

        return to_dp_event(self)

    @property
    @abstractmethod
    def words(self) -> str:
        """A short phrase for the text of a statement, without a price."""


@dataclass(frozen=True)
class NonPrivate(Event):
    """A release without any guarantee. It costs infinity."""

    @property
    def words(self) -> str:
        return "a release without noise"


@dataclass(frozen=True)
class Gaussian(Event):
    """One Gaussian release, standard deviation `sigma` times the replace-one l2 sensitivity.

    Exported as GaussianDpEvent(sigma), to be composed as a plain Gaussian of sensitivity 1: see `Event.dp_event`.

    Args:
        sigma: the noise multiplier, positive and finite. mu = 1 / sigma in the language of Gaussian differential
            privacy.
    """

    sigma: float

    def __post_init__(self) -> None:
        expect(isfinite(self.sigma) and self.sigma > 0, "sigma to be positive and finite", sigma=self.sigma)

    @property
    def words(self) -> str:
        return f"a Gaussian release, noise multiplier {self.sigma:.6g}"


@dataclass(frozen=True)
class SampledGaussian(Event):
    """One Gaussian release of a sum over a sampled batch, divided by `sampling.batch`.

    A row that was drawn j times moves the sum j times as far as one that was drawn once.

    Args:
        sigma: the noise multiplier, relative to 2 c1 / batch: what one occurrence of the replaced row can move (c1
            bounds the norm of a row's gradient).
        sampling: how the batch was drawn. Who was drawn must stay secret; how, is public.
    """

    sigma: float
    sampling: Sampling

    def __post_init__(self) -> None:
        expect(isfinite(self.sigma) and self.sigma > 0, "sigma to be positive and finite", sigma=self.sigma)

    @property
    def words(self) -> str:
        return f"a Gaussian release over {self.sampling.words}, noise multiplier {self.sigma:.6g}"


@dataclass(frozen=True)
class Repeated(Event):
    """The same kind of event `times` times, each chosen with sight of the earlier ones."""

    event: Event
    times: int

    def __post_init__(self) -> None:
        expect(isinstance(self.event, Event), "event to be an Event", event=self.event)
        expect(_is_count(self.times, 0), "times to be an int >= 0", times=self.times)

    @property
    def words(self) -> str:
        return f"{self.times} times {self.event.words}"


written(Repeated, "times", ...)  # in ledgers and budgets, in this order


class Runs(ABC):
    """The law of the number K of runs in a search. It knows no row."""

    @property
    @abstractmethod
    def mean(self) -> float:
        """E[K], the expected number of runs."""

    @property
    @abstractmethod
    def words(self) -> str:
        """A short phrase for the text of a statement."""


@dataclass(frozen=True)
class NegativeBinomialRuns(Runs):
    """P(K = k) in proportion to (1 - gamma)^k Gamma(k + eta) / k! for k >= 1: never no run at all.

    eta = 1 is the geometric law, eta = 0 the logarithmic one. A smaller eta costs less and spreads K more. gamma = 1
    is K = 1. Papernot & Steinke 2021, Definition 1.
    """

    eta: float
    gamma: float

    def __post_init__(self) -> None:
        expect(isfinite(self.eta) and self.eta > -1, "eta to be finite and > -1", eta=self.eta)
        expect(1e-100 <= self.gamma <= 1, "gamma from 1e-100 to 1", gamma=self.gamma)

    @property
    def mean(self) -> float:
        """E[K] = eta (1 - gamma) / (gamma (1 - gamma^eta)), the limit of it for eta = 0."""
        return 1.0 if self.gamma == 1 else (1 - self.gamma) / self.gamma / self.slope

    @property
    def slope(self) -> float:
        """(1 - gamma^eta) / eta, or -log(gamma) for eta = 0."""
        x = log(self.gamma)
        return -expm1(self.eta * x) / self.eta if abs(self.eta) > 1e-300 else -x

    @property
    def words(self) -> str:
        return f"a negative binomial number of runs, {self.mean:.6g} on average (eta {self.eta:.6g})"


@dataclass(frozen=True)
class PoissonRuns(Runs):
    """P(K = k) = e^-rate rate^k / k!. With K = 0 there is no result, and that is made known."""

    rate: float

    def __post_init__(self) -> None:
        expect(isfinite(self.rate) and self.rate > 0, "rate to be positive and finite", rate=self.rate)

    @property
    def mean(self) -> float:
        return self.rate

    @property
    def words(self) -> str:
        return f"a Poisson number of runs, {self.mean:.6g} on average"


@dataclass(frozen=True)
class RepeatAndSelect(Event):
    """A search: K independent runs of one kind of event, of which only the best is ever shown.

    `event` is all that one run does to the rows: the fit of a candidate, drawn at random from a public list, and its
    noisy score. If candidates differ in cost, it is the costliest. K has the law `runs` and stays secret, as do all
    other runs: their models, scores, number and duration. docs/proofs/selection.md says what follows.
    """

    event: Event
    runs: Runs

    def __post_init__(self) -> None:
        expect(isinstance(self.event, Event), "event to be an Event", event=self.event)
        expect(isinstance(self.runs, Runs), "runs to be a law of the number of runs (Runs)", runs=self.runs)

    @property
    def words(self) -> str:
        return f"the best of {self.runs.words}, each of them {self.event.words}"


written(RepeatAndSelect, "runs", ...)


@dataclass(frozen=True)
class Sequence(Event):
    """Different events one after the other, each chosen with sight of the earlier ones."""

    events: tuple[Event, ...]

    def __post_init__(self) -> None:
        expect(isinstance(self.events, tuple), "events to be a tuple", events=self.events)
        for event in self.events:
            expect(isinstance(event, Event), "events to hold only Events", event=event)

    @property
    def words(self) -> str:
        return "; then ".join(event.words for event in self.events) or "nothing"
