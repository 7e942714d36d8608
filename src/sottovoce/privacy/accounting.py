"""What a run costs: epsilon for a delta, or delta for an epsilon, of any tree of events.

Only Gaussians: closed form. Anything sampled: the losses are discretised to the safe side and composed. Anything
with other noise, or noise in an objective: the least of several sound bounds. Anything without noise: infinity. An
event that is not known here is refused, never guessed.
"""

from collections import Counter
from functools import lru_cache
from math import exp, fsum, inf, isfinite, log, sqrt

from sottovoce.errors import UnsupportedError, expect
from sottovoce.privacy.composition import NEGLIGIBLE, Composed, Losses
from sottovoce.privacy.events import Event, Gaussian, NonPrivate, Repeated, SampledGaussian, Sequence
from sottovoce.privacy.gaussian import UNIT, delta_of_mu, epsilon_of_mu
from sottovoce.privacy.pure import optimal_delta, optimal_epsilon, pure_cost, pure_sum
from sottovoce.privacy.releases import GaussianObjective, Laplace, NormLaplace, NormLaplaceObjective, PureRelease
from sottovoce.privacy.renyi import renyi_epsilon, renyi_log_delta
from sottovoce.privacy.sampled import Step


def epsilon(event: Event, delta: float) -> float:
    """An epsilon with which the event is (epsilon, delta)-DP for one replaced row.

    Formal guarantees:
        Never below the smallest such epsilon. Adaptive composition is covered.

        | events | result |
        | --- | --- |
        | none, or all zero times | 0 |
        | Gaussian only | exact up to 1e-9 |
        | Gaussian and some sampled | an upper bound |
        | Laplace, NormLaplace, PureRelease, objective perturbation, Gaussian | an upper bound |
        | those and some sampled | UnsupportedError |
        | some NonPrivate | inf |
        | some unknown | UnsupportedError |
    """
    expect(0 < delta < 1, "delta strictly between 0 and 1", delta=delta)
    return _epsilon(event, float(delta))


def delta(event: Event, epsilon: float) -> float:
    """A delta with which the event is (epsilon, delta)-DP for one replaced row. See `epsilon` for the guarantees."""
    expect(epsilon >= 0 and isfinite(epsilon), "epsilon to be finite and >= 0", epsilon=epsilon)
    return _delta(event, float(epsilon))


def pure_epsilon(event: Event) -> float:
    """The sum of the pure epsilons of all releases; inf if some release has none. It is how papers state a total.

    Formal guarantees:
        The event is (result, 0)-DP for one replaced row. Adaptive composition is covered.
    """
    return pure_sum(leaves(event))


def composed(event: Event, delta: float) -> Composed:
    """The discretised losses of a run that holds sampled steps, on the grid used to price it near delta."""
    expect(0 < delta < 1, "delta strictly between 0 and 1", delta=delta)
    counts = leaves(event)
    if any(_other(leaf) for leaf in counts):
        raise UnsupportedError(f"Expected only Gaussian and SampledGaussian releases, got event={event!r}.")
    return _compose(_losses(counts, delta), delta)


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
        case NonPrivate() | Gaussian() | SampledGaussian() | GaussianObjective():
            return Counter({event: 1})
        case PureRelease() | Laplace() | NormLaplace() | NormLaplaceObjective():
            return Counter({event: 1})
        # A new kind of release goes above, and into `renyi.leaf_curve`, or into `_plain_mu` or `_steps` below.
        case _:
            raise UnsupportedError(
                f"No accountant for event={event!r}. Known: NonPrivate, Gaussian, SampledGaussian, PureRelease, "
                "Laplace, NormLaplace, GaussianObjective, NormLaplaceObjective."
            )


@lru_cache(maxsize=1024)
def _epsilon(event: Event, delta: float) -> float:
    counts = leaves(event)
    if NonPrivate() in counts:
        return inf
    if any(_other(leaf) for leaf in counts):
        return _epsilon_of_others(counts, delta)
    if not _sampled(counts):
        return epsilon_of_mu(_mu(counts), delta)
    return _epsilon_of_sampled(counts, delta)


@lru_cache(maxsize=1024)
def _delta(event: Event, epsilon: float) -> float:
    counts = leaves(event)
    if NonPrivate() in counts:
        return 1.0
    if any(_other(leaf) for leaf in counts):
        return _delta_of_others(counts, epsilon)
    if not _sampled(counts):
        return delta_of_mu(_mu(counts), epsilon)
    return _delta_of_sampled(counts, epsilon)


def _epsilon_of_others(counts: Counter[Event], delta: float) -> float:
    """The least of Renyi's bound; pure costs on top of the exact price of the Gaussians; optimal pure composition."""
    plain, others = _divided(counts)
    bounds = [renyi_epsilon(plain + others, delta)]
    surcharge = pure_sum(others)
    if isfinite(surcharge):
        bounds.append((surcharge + epsilon_of_mu(_mu(plain), delta)) * (1 + 4 * UNIT))
        if not plain:
            bounds.append(surcharge)
            bounds.append(optimal_epsilon(max(map(pure_cost, others)), others.total(), delta))
    return min(bounds)


def _delta_of_others(counts: Counter[Event], epsilon: float) -> float:
    """As `_epsilon_of_others`."""
    plain, others = _divided(counts)
    bounds = [1.0, exp(renyi_log_delta(plain + others, epsilon))]
    rest = epsilon - pure_sum(others)
    if rest >= 0:
        bounds.append(delta_of_mu(_mu(plain), rest * (1 - 4 * UNIT)))
    if not plain and isfinite(rest):
        bounds.append(optimal_delta(max(map(pure_cost, others)), others.total(), epsilon))
    return min(bounds)


def _divided(counts: Counter[Event]) -> tuple[Counter[Event], Counter[Event]]:
    """The plain Gaussians, all as `Gaussian`, and the others. Sampled steps are refused."""
    if _sampled(counts):
        raise UnsupportedError(
            "No accountant for sampled Gaussian steps together with Laplace noise, pure releases or objective "
            f"perturbation, got {sorted({type(leaf).__name__ for leaf in counts})}. Price them apart, or do not sample."
        )
    plain: Counter[Event] = Counter()
    others: Counter[Event] = Counter()
    for leaf, times in counts.items():
        mu = _plain_mu(leaf)
        if mu is None:
            others[leaf] += times
        else:
            plain[Gaussian(1 / mu * (1 - 4 * UNIT))] += times
    return plain, others


def _other(leaf: Event) -> bool:
    """Whether the leaf is neither a plain nor a sampled Gaussian."""
    return _plain_mu(leaf) is None and not isinstance(leaf, SampledGaussian)


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
    """The mu of a leaf that is a plain Gaussian.

    Also a batch that always holds the row equally often, and an argmin whose losses have no curvature.
    """
    match leaf:
        case Gaussian(sigma=sigma) | GaussianObjective(sigma=sigma, kappa=0):
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
