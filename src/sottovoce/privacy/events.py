"""What happened: the releases that one site made, written down for an accountant.

An event says nothing of its price. `accounting` prices it, `statement` words it. `sigma` is always the noise
multiplier: standard deviation over the l2 sensitivity, without a unit. That is the sensitivity to one row replaced by
another or, where the statement's unit is a person, to all of their rows at a site.

Events are frozen and compare by value, so equal releases are counted together and prices can be kept. Releases with
other noise than Gaussian are in `releases`. What an event carries is public: no row, no seed, no key may become one of
its fields.
"""

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from math import expm1, isfinite, log
from typing import TYPE_CHECKING, Literal, get_args

from sottovoce import settings
from sottovoce.errors import InputError, UnsupportedError, expect

if TYPE_CHECKING:
    import dp_accounting

Scheme = Literal["replacement", "poisson"]


def _is_count(value: object, least: int) -> bool:
    """Whether this is a whole number of at least `least`. True and False are ints to Python, and are refused."""
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

    def to_dict(self) -> dict[str, object]:
        """The fields, ready for JSON."""
        return {"scheme": self.scheme, "rows": self.rows, "batch": self.batch}

    def describe(self) -> str:
        """One short phrase."""
        if self.scheme == "poisson":
            return f"a Poisson batch of about {self.batch} of {self.rows} rows"
        return f"{self.batch} draws with replacement from {self.rows} rows"


class Event(ABC):
    """Something that touched private rows. Abstract: `Gaussian` and its likes say what, `Repeated` and `Sequence` how
    often.
    """

    def dp_event(self) -> "dp_accounting.DpEvent":
        """The same in Google's vocabulary, for readers who bring their own accountant.

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

    @abstractmethod
    def to_dict(self) -> dict[str, object]:
        """The event as JSON-able data; "kind" names its class."""

    @abstractmethod
    def describe(self) -> str:
        """One short plain phrase."""


@dataclass(frozen=True)
class NonPrivate(Event):
    """A release without any guarantee. It costs infinity."""

    def to_dict(self) -> dict[str, object]:
        return {"kind": "NonPrivate"}

    def describe(self) -> str:
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

    def to_dict(self) -> dict[str, object]:
        return {"kind": "Gaussian", "sigma": self.sigma}

    def describe(self) -> str:
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

    def to_dict(self) -> dict[str, object]:
        return {"kind": "SampledGaussian", "sigma": self.sigma, "sampling": self.sampling.to_dict()}

    def describe(self) -> str:
        return f"a Gaussian release over {self.sampling.describe()}, noise multiplier {self.sigma:.6g}"


@dataclass(frozen=True)
class Repeated(Event):
    """The same kind of event `times` times, each chosen with sight of the earlier ones."""

    event: Event
    times: int

    def __post_init__(self) -> None:
        expect(isinstance(self.event, Event), "event to be an Event", event=self.event)
        expect(_is_count(self.times, 0), "times to be an int >= 0", times=self.times)

    def to_dict(self) -> dict[str, object]:
        return {"kind": "Repeated", "times": self.times, "event": self.event.to_dict()}

    def describe(self) -> str:
        return f"{self.times} times {self.event.describe()}"


class Runs(ABC):
    """The law of the number K of runs in a search. It knows no row."""

    @property
    @abstractmethod
    def mean(self) -> float:
        """E[K]."""

    @abstractmethod
    def to_dict(self) -> dict[str, object]:
        """The law as JSON-able data; "law" names its class."""

    @abstractmethod
    def describe(self) -> str:
        """One short phrase."""


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

    def to_dict(self) -> dict[str, object]:
        return {"law": "NegativeBinomialRuns", "eta": self.eta, "gamma": self.gamma}

    def describe(self) -> str:
        return f"a negative binomial number of runs, {self.mean:.6g} on average (eta {self.eta:.6g})"


@dataclass(frozen=True)
class PoissonRuns(Runs):
    """P(K = k) = e^-rate rate^k / k!. With K = 0 nothing comes out, and that is told."""

    rate: float

    def __post_init__(self) -> None:
        expect(isfinite(self.rate) and self.rate > 0, "rate to be positive and finite", rate=self.rate)

    @property
    def mean(self) -> float:
        return self.rate

    def to_dict(self) -> dict[str, object]:
        return {"law": "PoissonRuns", "rate": self.rate}

    def describe(self) -> str:
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

    def to_dict(self) -> dict[str, object]:
        return {"kind": "RepeatAndSelect", "runs": self.runs.to_dict(), "event": self.event.to_dict()}

    def describe(self) -> str:
        return f"the best of {self.runs.describe()}, each of them {self.event.describe()}"


@dataclass(frozen=True)
class Sequence(Event):
    """Different events one after the other, each chosen with sight of the earlier ones."""

    events: tuple[Event, ...]

    def __post_init__(self) -> None:
        expect(isinstance(self.events, tuple), "events to be a tuple", events=self.events)
        for event in self.events:
            expect(isinstance(event, Event), "events to hold only Events", event=event)

    def to_dict(self) -> dict[str, object]:
        return {"kind": "Sequence", "events": [event.to_dict() for event in self.events]}

    def describe(self) -> str:
        return "; then ".join(event.describe() for event in self.events) or "nothing"


# -- releases ---------------------------------------------------------------------------------------------------------
# Releases with other noise than a plain Gaussian, and releases of a perturbed argmin.
#
# The unit is one row replaced by another. Every `scale` and `sigma` is relative to a replace-one sensitivity, which
# the event's text names, and has no unit. Prices are in `pure` and `renyi`; `leaves` is how accountants take a tree of
# events apart.


@dataclass(frozen=True)
class PureRelease(Event):
    """Any release that is epsilon-DP with delta = 0, whatever its mechanism."""

    epsilon: float

    def __post_init__(self) -> None:
        _expect_positive(epsilon=self.epsilon)

    def to_dict(self) -> dict[str, object]:
        return {"kind": "PureRelease", "epsilon": self.epsilon}

    def describe(self) -> str:
        return f"a release with pure epsilon {self.epsilon:.6g}"


@dataclass(frozen=True)
class Laplace(Event):
    """Independent Laplace noise on every coordinate, of scale `scale` times the replace-one l1 sensitivity.

    Its pure epsilon is 1 / scale. A coordinate's standard deviation is sqrt(2) scale times the sensitivity.
    """

    scale: float

    def __post_init__(self) -> None:
        _expect_positive(scale=self.scale)

    def to_dict(self) -> dict[str, object]:
        return {"kind": "Laplace", "scale": self.scale}

    def describe(self) -> str:
        return f"a release with Laplace noise, scale {self.scale:.6g}"


@dataclass(frozen=True)
class NormLaplace(Event):
    """Noise of density proportional to exp(-||x||_2 / (scale Delta)) in R^d, Delta the replace-one l2 sensitivity.

    Its norm is Gamma distributed with shape d, its direction uniform. A coordinate has standard deviation
    sqrt(d + 1) scale Delta.
    """

    scale: float
    d: int

    def __post_init__(self) -> None:
        _expect_positive(scale=self.scale)
        _expect_dimension(self.d)

    def to_dict(self) -> dict[str, object]:
        return {"kind": "NormLaplace", "scale": self.scale, "d": self.d}

    def describe(self) -> str:
        return f"a release with l2-Laplace noise in {self.d} dimensions, scale {self.scale:.6g}"


@dataclass(frozen=True)
class GaussianObjective(Event):
    """The exact argmin of an objective to which ⟨b, w⟩ was added, b ~ N(0, (sigma Delta)^2 I).

    Delta = 2 G / m, with G a bound on the norm of one row's gradient. kappa = c / (m mu), with c a bound on the
    curvature of one row's loss along w, and mu the strong convexity of the objective without its rows. An argmin
    solved to a gradient norm of tau needs noise of its own: add Gaussian(sigma_o mu / (2 tau)) for N(0, sigma_o^2 I)
    on what is released. The assumptions and the proof are in docs/proofs/objective-perturbation.md.
    """

    sigma: float
    kappa: float

    def __post_init__(self) -> None:
        _expect_positive(sigma=self.sigma)
        _expect_kappa(self.kappa)

    def to_dict(self) -> dict[str, object]:
        return {"kind": "GaussianObjective", "sigma": self.sigma, "kappa": self.kappa}

    def describe(self) -> str:
        return (
            f"an argmin with Gaussian noise in its objective, noise multiplier {self.sigma:.6g},"
            f" Jacobian constant {self.kappa:.6g}"
        )


@dataclass(frozen=True)
class NormLaplaceObjective(Event):
    """The exact argmin of an objective to which ⟨b, w⟩ was added, b of density exp(-||b||_2 / (scale Delta)) in R^d.

    Delta and kappa are those of `GaussianObjective`, and so is what an inexact argmin needs. `one_sided` promises that
    the slope of the loss along a row, times its label, never changes its sign: true of margin losses (logistic,
    smoothed hinge), false of residual losses (Huber). It makes composition cheaper. The pure cost does not need it.
    """

    scale: float
    d: int
    kappa: float
    one_sided: bool = False

    def __post_init__(self) -> None:
        _expect_positive(scale=self.scale)
        _expect_dimension(self.d)
        _expect_kappa(self.kappa)
        expect(isinstance(self.one_sided, bool), "one_sided to be True or False", one_sided=self.one_sided)

    def to_dict(self) -> dict[str, object]:
        return {
            "kind": "NormLaplaceObjective",
            "scale": self.scale,
            "d": self.d,
            "kappa": self.kappa,
            "one_sided": self.one_sided,
        }

    def describe(self) -> str:
        return (
            f"an argmin with l2-Laplace noise in its objective, {self.d} dimensions, scale {self.scale:.6g},"
            f" Jacobian constant {self.kappa:.6g}"
        )


def leaves(event: Event) -> Counter[Event]:
    """How often each indivisible event happens in the tree. A search is one, unless it has exactly one run."""
    match event:
        case Repeated(event=inner, times=times):
            return Counter({leaf: times * n for leaf, n in leaves(inner).items() if times * n})
        case Sequence(events=events):
            total: Counter[Event] = Counter()
            for part in events:
                total.update(leaves(part))
            return total
        case RepeatAndSelect():
            return _of_search(event)
        case NonPrivate() | Gaussian() | SampledGaussian() | GaussianObjective():
            return Counter({event: 1})
        case PureRelease() | Laplace() | NormLaplace() | NormLaplaceObjective():
            return Counter({event: 1})
        # A new kind of release goes above, and into `renyi.leaf_curve`, or into `accounting._plain_mu` or `_steps`.
        case _:
            raise UnsupportedError(
                f"No accountant for event={event!r}. Known: NonPrivate, Gaussian, SampledGaussian, PureRelease, "
                "Laplace, NormLaplace, GaussianObjective, NormLaplaceObjective, RepeatAndSelect."
            )


def _of_search(search: RepeatAndSelect) -> Counter[Event]:
    """The leaves of a search: itself, or those of its one run if it never has more; nothing if a run does nothing."""
    inner = leaves(search.event)
    # The best of runs without noise is a release without noise.
    if NonPrivate() in inner:
        return Counter({NonPrivate(): 1})
    once = isinstance(search.runs, NegativeBinomialRuns) and search.runs.gamma == 1
    return inner if once or not inner else Counter({search: 1})


def _expect_positive(**value: float) -> None:
    """Refuse a noise parameter that is no positive, finite number."""
    ((name, number),) = value.items()
    expect(isfinite(number) and number > 0, f"{name} to be positive and finite", **value)


def _expect_kappa(kappa: float) -> None:
    """Refuse a Jacobian constant that is no finite number of at least 0."""
    expect(isfinite(kappa) and kappa >= 0, "kappa to be finite and >= 0", kappa=kappa)


def _expect_dimension(d: object) -> None:
    """Refuse a dimension that is no positive int."""
    good = isinstance(d, int) and not isinstance(d, bool) and d >= 1
    expect(good, "d to be a positive int", d=d)


# -- parse ------------------------------------------------------------------------------------------------------------
# Events from data: the strict inverse of `Event.to_dict`, safe for data from a stranger.
#
# Every event has exactly its own keys, every value its own type, every tree at most DEEPEST levels, MOST_PARTS parts
# and MOST_RELEASES releases in all. Anything else is refused. No name in the data is ever looked up outside this file.

DEEPEST = 32  # levels of events within events
MOST_PARTS = 100_000  # events of one tree
MOST_RELEASES = 2**53  # of one tree, all repetitions counted: what a double can still count one by one

_KINDS: tuple[type[Event], ...] = (
    NonPrivate, Gaussian, SampledGaussian, PureRelease, Laplace, NormLaplace, GaussianObjective, NormLaplaceObjective,
    Repeated, Sequence, RepeatAndSelect,
)  # fmt: skip
settings.tagged(Event, "kind", {kind.__name__: kind for kind in _KINDS})
settings.tagged(Runs, "law", {law.__name__: law for law in (NegativeBinomialRuns, PoissonRuns)})


def event_from_dict(data: object) -> Event:
    """The event that `to_dict` wrote down.

    Formal guarantees:
        `event_from_dict(event.to_dict()) == event` for every event within the limits above. Anything that `to_dict`
        cannot have written raises InputError, in time linear in the size of the data.
    """
    _check_size(data)
    event: Event = settings.read(Event, data, "an event", full=True)  # type: ignore[type-abstract]
    releases = _releases(event)
    most = f"an event of at most {MOST_RELEASES} releases, all repetitions counted"
    expect(releases <= MOST_RELEASES, most, releases=releases)
    return event


def _check_size(data: object) -> None:
    """Depth, number of events, and every whole number, before anything is made of them."""
    left: list[tuple[str, object, int]] = [("data", data, 0)]
    parts = 0
    while left:
        name, value, depth = left.pop()
        if isinstance(value, Mapping):
            is_event = "kind" in value
            parts, depth = parts + is_event, depth + is_event
            expect(depth <= DEEPEST, f"events nested at most {DEEPEST} deep", depth=depth)
            expect(parts <= MOST_PARTS, f"at most {MOST_PARTS} events in one tree", events=parts)
            left.extend((key, inner, depth) for key, inner in value.items())
        elif isinstance(value, list | tuple):
            left.extend((name, inner, depth) for inner in value)
        elif isinstance(value, int) and abs(value) > MOST_RELEASES:
            came = f"{settings.brief(name)[1:-1]}={settings.brief(value)}"
            raise InputError(f"Expected a float, or an int of at most 2^53, got {came}.")


def _releases(event: Event) -> int:
    """How many releases the tree holds, all repetitions counted. A search counts as one run of it."""
    match event:
        case Repeated(event=inner, times=times):
            return times * _releases(inner)
        case Sequence(events=events):
            return sum(map(_releases, events))
        case RepeatAndSelect(event=inner):
            return max(1, _releases(inner))
    return 1
