"""What a run costs: epsilon for a delta, or delta for an epsilon, of any tree of events.

Only Gaussians: closed form. Anything sampled: the losses are discretised to the safe side and composed. Anything
without noise: infinity. An event that is not known here is refused, never guessed.
"""

from collections import Counter
from functools import lru_cache
from math import exp, fsum, inf, isfinite, log, sqrt

from sottovoce.errors import UnsupportedError, expect
from sottovoce.privacy.composition import NEGLIGIBLE, Composed, Losses
from sottovoce.privacy.events import Event, Gaussian, NonPrivate, Repeated, SampledGaussian, Sequence
from sottovoce.privacy.gaussian import UNIT, delta_of_mu, epsilon_of_mu
from sottovoce.privacy.sampled import Step


def epsilon(event: Event, delta: float) -> float:
    """An epsilon with which the event is (epsilon, delta)-DP for one replaced row.

    Formal guarantees:
        Never below the smallest such epsilon. Adaptive composition is covered.

        | events | result |
        | --- | --- |
        | none, or all zero times | 0 |
        | Gaussian only | exact up to 1e-9 |
        | some sampled | an upper bound |
        | some NonPrivate | inf |
        | some unknown | UnsupportedError |
    """
    expect(0 < delta < 1, "delta strictly between 0 and 1", delta=delta)
    return _epsilon(event, float(delta))


def delta(event: Event, epsilon: float) -> float:
    """A delta with which the event is (epsilon, delta)-DP for one replaced row. See `epsilon` for the guarantees."""
    expect(epsilon >= 0 and isfinite(epsilon), "epsilon to be finite and >= 0", epsilon=epsilon)
    return _delta(event, float(epsilon))


def composed(event: Event, delta: float) -> Composed:
    """The discretised losses of a run that holds sampled steps, on the grid used to price it near delta."""
    expect(0 < delta < 1, "delta strictly between 0 and 1", delta=delta)
    return _compose(_losses(leaves(event), delta), delta)


def leaves(event: Event) -> Counter[Event]:
    """How often each indivisible event happens in the tree."""
    match event:
        case Repeated(event=inner, times=times):
            return Counter({leaf: times * n for leaf, n in leaves(inner).items() if times * n})
        case Sequence(events=events):
            total: Counter[Event] = Counter()
            for part in events:
                total.update(leaves(part))
            return total
        # A new kind of release (Laplace, objective perturbation) goes here, and into `_mu` or `_steps` below.
        case NonPrivate() | Gaussian() | SampledGaussian():
            return Counter({event: 1})
        case _:
            raise UnsupportedError(f"No accountant for event={event!r}. Known: Gaussian, SampledGaussian, NonPrivate.")


@lru_cache(maxsize=1024)
def _epsilon(event: Event, delta: float) -> float:
    counts = leaves(event)
    if NonPrivate() in counts:
        return inf
    if not _sampled(counts):
        return epsilon_of_mu(_mu(counts), delta)
    return _epsilon_of_sampled(counts, delta)


@lru_cache(maxsize=1024)
def _delta(event: Event, epsilon: float) -> float:
    counts = leaves(event)
    if NonPrivate() in counts:
        return 1.0
    if not _sampled(counts):
        return delta_of_mu(_mu(counts), epsilon)
    return _delta_of_sampled(counts, epsilon)


def _delta_of_sampled(counts: Counter[Event], epsilon: float) -> float:
    """Cut less and less off the tails until what is cut no longer shows. Chernoff's bound alone is a safe one, too."""
    best, beyond, lost = 1.0, 1e-10, inf
    while lost > 1e-4 * best and beyond > 1e-295:
        losses = Losses.of(_steps(counts, beyond), beyond)
        log_tail, theta = losses.tail(epsilon)
        found = losses.compose(theta, log_tail + log(1e-3 * NEGLIGIBLE)).delta(epsilon)
        best = min(best, found, losses.infinite + exp(min(0.0, log_tail)) * (1 + 1e-9))
        beyond, lost = beyond**1.4, losses.infinite
    return best


def _epsilon_of_sampled(counts: Counter[Event], delta: float) -> float:
    """The composed epsilon or, for very heavy tails, Chernoff's if that is lower. Both are upper bounds."""
    losses = _losses(counts, delta)
    rest = delta - losses.infinite
    chernoff = losses.quantile(log(rest))[0] * (1 + 1e-9) if rest > 0 else inf
    return min(_compose(losses, delta).epsilon(delta), max(0.0, chernoff))


def _losses(counts: Counter[Event], delta: float) -> Losses:
    return Losses.of(_steps(counts, NEGLIGIBLE * delta), NEGLIGIBLE * delta)


def _compose(losses: Losses, delta: float) -> Composed:
    _, theta = losses.quantile(log(delta))
    return losses.compose(theta, log(NEGLIGIBLE * delta))


def _sampled(counts: Counter[Event]) -> bool:
    return any(isinstance(leaf, SampledGaussian) and _plain_mu(leaf) is None for leaf in counts)


def _plain_mu(leaf: Event) -> float | None:
    """The mu of a leaf that is a plain Gaussian: also a batch that always holds the row equally often."""
    match leaf:
        case Gaussian(sigma=sigma):
            return 1 / sigma
        case SampledGaussian(sigma=sigma, sampling=s) if s.scheme == "poisson" and s.batch == s.rows:
            return 1 / sigma
        case SampledGaussian(sigma=sigma, sampling=s) if s.scheme == "replacement" and s.rows == 1:
            return s.batch / sigma
    return None


def _mu(counts: Counter[Event]) -> float:
    """mu^2 = sum of times / sigma^2 over the Gaussians (Dong, Roth & Su 2019, Corollary 2), rounded up."""
    mus = [(_plain_mu(leaf), times) for leaf, times in counts.items()]
    return sqrt(fsum(times * mu * mu for mu, times in mus if mu is not None)) * (1 + 4 * UNIT)


def _steps(counts: Counter[Event], beyond: float) -> tuple[tuple[Step, int], ...]:
    """One step per kind of sampled event, and one for all plain Gaussians together."""
    share = beyond / max(1, counts.total())
    steps = [
        (Step.sampled(leaf, share), times)
        for leaf, times in counts.items()
        if isinstance(leaf, SampledGaussian) and _plain_mu(leaf) is None
    ]
    mu = _mu(counts)
    return (*steps, (Step.gaussian(mu), 1)) if mu > 0 else tuple(steps)
