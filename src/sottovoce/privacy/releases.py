"""Releases with other noise than a plain Gaussian, and releases of a perturbed argmin.

The unit is one row replaced by another. Every `scale` and `sigma` is relative to a replace-one sensitivity, which
the event's text names, and has no unit. Prices are in `pure` and `renyi`; `leaves` is how accountants take a tree of
events apart.
"""

from collections import Counter
from dataclasses import dataclass
from math import isfinite

from sottovoce.errors import UnsupportedError, expect
from sottovoce.privacy.events import (
    Event,
    Gaussian,
    NegativeBinomialRuns,
    NonPrivate,
    RepeatAndSelect,
    Repeated,
    SampledGaussian,
    Sequence,
)


@dataclass(frozen=True)
class PureRelease(Event):
    """Any release that is epsilon-DP with delta = 0, whatever its mechanism."""

    epsilon: float

    def __post_init__(self) -> None:
        _expect_positive(epsilon=self.epsilon)

    @property
    def words(self) -> str:
        return f"a release with pure epsilon {self.epsilon:.6g}"


@dataclass(frozen=True)
class Laplace(Event):
    """Independent Laplace noise on every coordinate, of scale `scale` times the replace-one l1 sensitivity.

    Its pure epsilon is 1 / scale. A coordinate's standard deviation is sqrt(2) scale times the sensitivity.
    """

    scale: float

    def __post_init__(self) -> None:
        _expect_positive(scale=self.scale)

    @property
    def words(self) -> str:
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

    @property
    def words(self) -> str:
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

    @property
    def words(self) -> str:
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

    @property
    def words(self) -> str:
        return (
            f"an argmin with l2-Laplace noise in its objective, {self.d} dimensions, scale {self.scale:.6g},"
            f" Jacobian constant {self.kappa:.6g}"
        )


def leaves(event: Event) -> Counter[Event]:
    """How often each indivisible event happens in the tree. A search is one of them, unless it always has exactly one
    run, which then counts itself.
    """
    match event:
        case Repeated(event=inner, times=times):
            return Counter({leaf: times * n for leaf, n in leaves(inner).items() if times * n})
        case Sequence(events=events):
            total: Counter[Event] = Counter()
            for part in events:
                total.update(leaves(part))
            return total
        case RepeatAndSelect(event=one, runs=runs):
            found = leaves(one)
            # The best of runs without noise is a release without noise.
            if NonPrivate() in found:
                return Counter({NonPrivate(): 1})
            once = isinstance(runs, NegativeBinomialRuns) and runs.gamma == 1
            return found if once or not found else Counter({event: 1})
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
