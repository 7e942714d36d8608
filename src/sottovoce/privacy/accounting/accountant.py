"""The accountant: epsilon for a delta, or delta for an epsilon, of any tree of events.

Only Gaussians: closed form. Anything sampled: the losses are discretised to the safe side and composed. Anything with
other noise, or noise in an objective: the least of several sound bounds. Searches, and what goes with them: their
profiles are tabulated and composed. Anything without noise: infinity. An event that is not known here is refused, never
guessed.

This module chooses between accountants and combines their results; the mathematics is in `gaussian`, `sampled`,
`losses`, `pure`, `renyi` and `selection`. It prices a list of events that was fixed beforehand. Whoever chooses
the next event by earlier results needs `filter`, which is built on this.
"""

from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from functools import lru_cache
from math import exp, fsum, inf, isfinite, log, sqrt, tanh

import numpy as np

from sottovoce.errors import UnsupportedError, expect
from sottovoce.privacy.accounting.gaussian import UNIT, delta_of_mu, epsilon_of_mu
from sottovoce.privacy.accounting.losses import NEGLIGIBLE, Composed, Losses
from sottovoce.privacy.accounting.pure import optimal_delta, optimal_epsilon, pure_cost, pure_sum
from sottovoce.privacy.accounting.renyi import leaf_curve, renyi_epsilon, renyi_log_delta, renyi_profile
from sottovoce.privacy.accounting.sampled import Step
from sottovoce.privacy.accounting.selection import (
    Profile,
    gamma_for,
    negative_binomial_shift,
    profile_of_best,
    reach,
    tabulated_losses,
)
from sottovoce.privacy.events import (
    Event,
    Gaussian,
    NegativeBinomialRuns,
    NonPrivate,
    PoissonRuns,
    RepeatAndSelect,
    SampledGaussian,
)
from sottovoce.privacy.releases import GaussianObjective, PureRelease
from sottovoce.privacy.releases import leaves as leaves

_CUTS = (1e-4, 1e-7, 1e-10)  # shares of delta that may be cut off the losses of one release to tame their moments


def epsilon(event: Event, delta: float) -> float:
    """An epsilon with which the event is (epsilon, delta)-DP for one replaced row.

    Formal guarantees:
        Never below the smallest such epsilon. Adaptive composition is covered: what each release computes may depend
        on all earlier results. Which releases there are, and their noise, may not; for that there is `filter`.

        | events | result |
        | --- | --- |
        | none, or all zero times | 0 |
        | Gaussian only | exact up to 1e-9 |
        | Gaussian and some sampled | an upper bound |
        | Laplace, NormLaplace, PureRelease, objective perturbation, Gaussian | an upper bound |
        | those and some sampled | UnsupportedError |
        | some search, and others as above | an upper bound |
        | some NonPrivate | inf |
        | some unknown | UnsupportedError |
    """
    expect(0 < delta < 1, "delta strictly between 0 and 1", delta=delta)
    return _epsilon(event, float(delta))


def delta(event: Event, epsilon: float) -> float:
    """A delta with which the event is (epsilon, delta)-DP for one replaced row.

    Never below the smallest such delta; which events are exact, bounded or refused is said at `epsilon`.
    """
    expect(epsilon >= 0 and isfinite(epsilon), "epsilon to be finite and >= 0", epsilon=epsilon)
    return _delta(event, float(epsilon))


def pure_epsilon(event: Event) -> float:
    """The sum of the pure epsilons of all releases, as papers state a total; inf if some release has none.

    Formal guarantees:
        The event is (result, 0)-DP for one replaced row. Adaptive composition is covered.
    """
    return pure_sum(_with_pure_searches(leaves(event)))


def search_epsilon(event: Event, delta: float, mean: float, eta: float) -> float:
    """The epsilon at delta of the best of about `mean` runs of `event`, their number drawn from a negative binomial
    law.

    Args:
        event: all that one run does to the rows, its noisy score included.
        delta: of the whole search, not of one run.
        mean: the expected number of runs, from 1 on.
        eta: the law's shape, see `NegativeBinomialRuns`: smaller costs less, and spreads the number of runs more.
    """
    return epsilon(RepeatAndSelect(event, NegativeBinomialRuns(eta, gamma_for(mean, eta))), delta)


def plain_mu(event: Event) -> float | None:
    """The mu of an event of plain Gaussian releases only, rounded up; None if there is anything else in it."""
    counts = leaves(event)
    return None if any(_plain_mu(leaf) is None for leaf in counts) else _mu(counts)


def log_moments(release: Event, lam: float, delta: float) -> list[tuple[float, float]]:
    """Pairs (K, m) of one indivisible release: but for a part of mass m its losses have a log-moment of at most K.

    That is, its law on the rows is P' + P'' with E_Q[(P'/Q)^{1 + lambda}] <= e^K and P'' of mass m, Q its law on any
    neighbour. Draws with replacement have no finite moment to speak of unless their rarest losses are cut off.
    """
    mu = _plain_mu(release)
    if mu is not None or isinstance(release, NonPrivate):
        return [(inf if mu is None else lam * (1 + lam) / 2 * mu * mu * (1 + 8 * UNIT), 0.0)]
    found = []
    if not isinstance(release, SampledGaussian):
        with suppress(UnsupportedError):  # a search among sampled runs has no Renyi curve
            found.append((float(leaf_curve(release, np.array([lam]))[0]), 0.0))
    if isinstance(release, SampledGaussian | RepeatAndSelect):
        cut = [_losses_of_one(release, share * delta) for share in _CUTS]
        found += [(losses.log_moment(lam) + 1e-12, losses.infinite) for losses in cut]
    return found


@lru_cache(maxsize=16)
def _losses_of_one(release: Event, beyond: float) -> Losses:
    """The discretised losses of a single release. Cached, since a filter asks for the same one at every charge."""
    counts = Counter({release: 1})
    return _tabulated(counts, beyond) if _mixed(counts) else Losses.of(_steps(counts, beyond), beyond)


def composed(event: Event, delta: float) -> Composed:
    """The discretised losses of a run that holds sampled steps, on the grid used to price it near delta."""
    expect(0 < delta < 1, "delta strictly between 0 and 1", delta=delta)
    counts = leaves(event)
    if any(_other(leaf) for leaf in counts):
        raise UnsupportedError(f"Expected only Gaussian and SampledGaussian releases, got event={event!r}.")
    return _compose(_losses(counts, delta), delta)


@lru_cache(maxsize=1024)
def _epsilon(event: Event, delta: float) -> float:
    """`epsilon` for checked arguments. Cached, since calibration asks for the same events again and again."""
    counts = leaves(event)
    if NonPrivate() in counts:
        return inf
    _refuse_mixture(counts)
    if _searches(counts):
        # The least of what the composed profiles say and, without sampled steps, of what other noise is priced by.
        return min(_epsilon_of_parts(counts, delta), *_elsewhere(_epsilon_of_others, counts, delta))
    if any(_other(leaf) for leaf in counts):
        return _epsilon_of_others(counts, delta)
    if not _sampled(counts):
        # Closed form: exact, so nothing else is tried.
        return epsilon_of_mu(_mu(counts), delta)
    # The composed epsilon or, for very heavy tails, Chernoff's if that is lower. Both are upper bounds.
    losses = _losses(counts, delta)
    rest = delta - losses.infinite
    chernoff = losses.quantile(log(rest))[0] * (1 + 1e-9) if rest > 0 else inf
    return min(_compose(losses, delta).epsilon(delta), max(0.0, chernoff))


@lru_cache(maxsize=1024)
def _delta(event: Event, epsilon: float) -> float:
    """`delta` for checked arguments, cached as `_epsilon` is."""
    counts = leaves(event)
    if NonPrivate() in counts:
        return 1.0
    _refuse_mixture(counts)
    if _searches(counts):
        return _delta_with_searches(counts, epsilon)
    if any(_other(leaf) for leaf in counts):
        return _delta_of_others(counts, epsilon)
    if not _sampled(counts):
        return delta_of_mu(_mu(counts), epsilon)
    return _delta_of_sampled(counts, epsilon)


def _epsilon_of_others(counts: Counter[Event], delta: float) -> float:
    """The least epsilon at delta by three bounds: Renyi's; pure costs on top of the exact price of the Gaussians;
    optimal pure composition.
    """
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
    """The least delta at epsilon, by the same bounds as in `_epsilon_of_others`."""
    plain, others = _divided(counts)
    return min(exp(renyi_log_delta(plain + others, epsilon)), _delta_by_pure_costs(plain, others, epsilon))


def _delta_by_pure_costs(plain: Counter[Event], others: Counter[Event], epsilon: float) -> float:
    """The least delta at epsilon that pure costs allow: all of them subtracted from epsilon first, or composed
    optimally.

    Pure releases of unequal cost are priced as that many of the costliest one, which can only raise the bound.
    """
    bounds, rest = [1.0], epsilon - pure_sum(others)
    if rest >= 0:
        bounds.append(delta_of_mu(_mu(plain), rest * (1 - 4 * UNIT)))
    if not plain and isfinite(rest):
        bounds.append(optimal_delta(max(map(pure_cost, others)), others.total(), epsilon))
    return min(bounds)


def _divided(counts: Counter[Event]) -> tuple[Counter[Event], Counter[Event]]:
    """The plain Gaussians, all as `Gaussian` events, and the other releases."""
    plain: Counter[Event] = Counter()
    others: Counter[Event] = Counter()
    for leaf, times in counts.items():
        mu = _plain_mu(leaf)
        if mu is None:
            others[leaf] += times
        else:
            # A sigma that is rounded down makes the price come out above, never below.
            plain[Gaussian(1 / mu * (1 - 4 * UNIT))] += times
    return plain, others


def _other(leaf: Event) -> bool:
    """True if the leaf is neither a plain nor a sampled Gaussian."""
    return _plain_mu(leaf) is None and not isinstance(leaf, SampledGaussian)


def _refuse_mixture(counts: Counter[Event]) -> None:
    """Refuse what no proof covers: discretised sampled losses next to noise that only has Renyi curves."""
    kinds = sorted({type(leaf).__name__ for leaf in counts})
    if _sampled(counts) and any(_other(leaf) and not isinstance(leaf, RepeatAndSelect) for leaf in counts):
        raise UnsupportedError(
            "No accountant for sampled Gaussian steps together with Laplace noise, pure releases or objective "
            f"perturbation, got {kinds}. Price them apart, or do not sample."
        )


def _mixed(counts: Counter[Event]) -> bool:
    """True if there is a search, or sampled steps together with other noise."""
    return bool(_searches(counts)) or (_sampled(counts) and any(map(_other, counts)))


def _searches(counts: Counter[Event]) -> dict[RepeatAndSelect, int]:
    """The searches among the releases, and how often each was made."""
    return {leaf: times for leaf, times in counts.items() if isinstance(leaf, RepeatAndSelect)}


def _with_pure_searches(counts: Counter[Event]) -> Counter[Event]:
    """The releases, with every search among pure releases replaced by a pure release of its cost.

    With e the pure epsilon of one run, that is (2 + eta) e for K negative binomial, e + rate tanh(e/2) for Poisson.
    """
    total: Counter[Event] = Counter()
    for leaf, times in counts.items():
        cost = inf
        if isinstance(leaf, RepeatAndSelect):
            one = pure_epsilon(leaf.event)
            match leaf.runs:
                case NegativeBinomialRuns(eta=eta):
                    cost = (2 + eta) * one * (1 + 4 * UNIT)
                case PoissonRuns(rate=rate):
                    cost = (one + rate * tanh(one / 2)) * (1 + 8 * UNIT)
        total[PureRelease(cost) if isfinite(cost) else leaf] += times
    return total


def _delta_with_searches(counts: Counter[Event], epsilon: float) -> float:
    """The least delta at epsilon, by the same bounds as in `_epsilon`. Tables reach down to `least`, and are made
    longer if that turns out too high.
    """
    best, least = min(1.0, *_elsewhere(_delta_of_others, counts, epsilon)), 1e-10
    while best > 0 and least > 1e-50:
        # A table that ends at `least` cannot say less than about that. It is made longer only where it matters.
        best = min(best, _profile(counts, least)(epsilon))
        least = least**2 if best <= 1e3 * least else 0.0
    return best


def _elsewhere(price: Callable[[Counter[Event], float], float], counts: Counter[Event], at: float) -> tuple[float, ...]:
    """Prices by accountants that take no sampled steps; inf alone if there are any."""
    pure = _with_pure_searches(counts)
    known = [counts] if pure == counts else [counts, pure]
    try:
        return inf, *(price(events, at) for events in known if not _sampled(events))
    except UnsupportedError:  # a search among sampled runs
        return (inf,)


def _epsilon_of_parts(counts: Counter[Event], delta: float) -> float:
    """The epsilon at delta of composed profiles: of one search by its own formula, of anything else by an FFT.

    A single negative binomial search needs no grid: its shift does not depend on delta, and one run is priced at delta
    / E[K].
    """
    match list(_searches(counts).items()), counts.total():
        case [(RepeatAndSelect(event=one, runs=NegativeBinomialRuns() as runs), 1)], 1:
            share = delta / runs.mean * (1 - 16 * UNIT)
            shift = negative_binomial_shift(runs, _profile(leaves(one), share))
            return (shift + _epsilon(one, share)) * (1 + 4 * UNIT)
        case [(RepeatAndSelect(), 1)], 1:
            return _crossing(_profile(counts, NEGLIGIBLE * delta), delta)
    return _compose(_losses(counts, delta), delta).epsilon(delta)


def _crossing(profile: Profile, delta: float) -> float:
    """About the least epsilon with a profile of at most delta, rounded up; inf if none is found."""
    high = reach(profile, delta)
    if profile(high) > delta:
        return inf
    low = 0.0
    while high - low > 1e-9 * high:
        middle = (low + high) / 2
        low, high = (low, middle) if profile(middle) <= delta else (middle, high)
    return high


def _profile(counts: Counter[Event], least: float) -> Profile:
    """The profile of all these releases together, cheap to evaluate. Below `least` it need not be tight."""
    searches = _searches(counts)
    if len(searches) == counts.total() == 1:
        # A search alone needs no composition: its profile follows from that of one run.
        (search,) = searches
        return profile_of_best(search.runs, _profile(leaves(search.event), least / search.runs.mean), least)
    if not _mixed(counts) and not _sampled(counts):
        plain, others = _divided(counts)
        mu = _mu(plain)
        if not others:
            return lambda epsilon: delta_of_mu(mu, epsilon)
        by_moments = renyi_profile(plain + others)
        return lambda epsilon: min(by_moments(epsilon), _delta_by_pure_costs(plain, others, epsilon))
    losses = _losses(counts, least)
    # A composition is tight near the delta that it was tilted for; each of the three is sound everywhere.
    tilts = [_compose(losses, delta) for delta in (1e-2, 0.1 * sqrt(least), least)]
    return lambda epsilon: min(tilt.delta(epsilon) for tilt in tilts)


def _tabulated(counts: Counter[Event], beyond: float) -> Losses:
    """The losses of parts that have profiles: each search, the Gaussians sampled or not, and the rest.

    Releases of several parts may alternate: they compose as if each part came in one piece (Vadhan & Zhang 2023).
    """
    searches = _searches(counts)
    rest = Counter({leaf: times for leaf, times in counts.items() if leaf not in searches})
    gaussians = Counter({leaf: times for leaf, times in rest.items() if not _other(leaf)})
    parts: list[tuple[Counter[Event], int]] = [(Counter({search: 1}), times) for search, times in searches.items()]
    parts += [(part, 1) for part in (gaussians, rest - gaussians) if part]
    share = beyond / sum(times for _, times in parts)
    profiles = [(_profile(part, share), times) for part, times in parts]
    return tabulated_losses(profiles, share)


def _delta_of_sampled(counts: Counter[Event], epsilon: float) -> float:
    """An upper bound on delta at epsilon, by composition and by Chernoff. Tails are cut less and less until what is cut
    off is negligible.
    """
    best, beyond, lost = 1.0, 1e-10, inf
    while lost > 1e-4 * best and beyond > 1e-295:
        losses = Losses.of(_steps(counts, beyond), beyond)
        log_tail, theta = losses.tail(epsilon)
        found = losses.compose(theta, log_tail + log(1e-3 * NEGLIGIBLE)).delta(epsilon)
        best = min(best, found, losses.infinite + exp(min(0.0, log_tail)) * (1 + 1e-9))
        # Each round asks for 40 % more digits; a dozen rounds reach the smallest number there is.
        beyond, lost = beyond**1.4, losses.infinite
    return best


def _losses(counts: Counter[Event], delta: float) -> Losses:
    """All releases as discretised losses, on a grid that is fine enough to price them near delta."""
    if _mixed(counts):
        return _tabulated(counts, NEGLIGIBLE * delta)
    return Losses.of(_steps(counts, NEGLIGIBLE * delta), NEGLIGIBLE * delta)


def _compose(losses: Losses, delta: float) -> Composed:
    """The composition of these losses, tilted to where a price at delta is decided."""
    _, theta = losses.quantile(log(delta))
    return losses.compose(theta, log(NEGLIGIBLE * delta))


def _sampled(counts: Counter[Event]) -> bool:
    """True if there is a sampled release that is not equivalent to a plain Gaussian."""
    return any(isinstance(leaf, SampledGaussian) and _plain_mu(leaf) is None for leaf in counts)


def _plain_mu(leaf: Event) -> float | None:
    """The mu of a leaf that is a plain Gaussian; None for any other.

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
