"""Calibration: the noise that a target needs, and the steps that a noise allows. Never past the target.

"exact"    the smallest sigma that the accountant accepts (the default)
"moments"  with c = T / (2 sigma^2): eps = c + 2 sqrt(c ln(1/delta)), solved for sigma (Huang & Gong, Appendix, moments
           accountant with the term kept that the paper drops)
"paper"    sigma = sqrt(2 T ln(1.25/delta)) / eps (Huang & Gong, Theorem 1 with c0 = 1)

The last two serve comparison. They know nothing of sampling, and the paper's is too small for large epsilon: it rests
on Dwork & Roth's Theorem A.1, which needs epsilon < 1. Every result is put before the accountant.

`noise_for` finds the noise parameter of any other event.
"""

from collections.abc import Callable
from functools import lru_cache
from math import exp, floor, isfinite, log, sqrt
from typing import Literal, get_args

import scipy

from sottovoce.errors import PrivacyError, UnsupportedError, expect
from sottovoce.privacy.accounting.accountant import epsilon as epsilon_of
from sottovoce.privacy.accounting.accountant import leaves, pure_epsilon
from sottovoce.privacy.accounting.gaussian import mu_for
from sottovoce.privacy.events import Event, Gaussian, Repeated, SampledGaussian, Sampling
from sottovoce.privacy.releases import GaussianObjective, NormLaplaceObjective

Calibration = Literal["exact", "moments", "paper"]
CALIBRATIONS: tuple[Calibration, ...] = get_args(Calibration)


def sigma_for(
    epsilon: float,
    delta: float,
    steps: int,
    calibration: Calibration = "exact",
    sampling: Sampling | None = None,
) -> float:
    """The noise multiplier with which `steps` releases are (epsilon, delta)-DP for one replaced row.

    Args:
        epsilon: of the whole run, not of one step.
        delta: of the whole run.
        steps: noisy steps in all: rounds times local steps.
        calibration: "exact", or one of two printed formulas, see the module.
        sampling: how batches are drawn; None for all rows in every step.

    Formal guarantees:
        `accounting.epsilon` of the run with the result is at most `epsilon`, for every calibration. "exact" without
        sampling is the smallest such sigma up to about 1e-12, with sampling up to 1e-6 of what the bound allows.
    """
    return _sigma_for(epsilon, delta, steps, calibration, sampling)


def steps_for(epsilon: float, delta: float, sigma: float, sampling: Sampling | None = None) -> int:
    """The largest number of steps with noise multiplier `sigma` that stays (epsilon, delta)-DP; 0 if not even one.

    Args:
        epsilon: of all steps together.
        delta: of all steps together.
        sigma: the noise multiplier of each step.
        sampling: how batches are drawn; None for all rows in every step.

    Formal guarantees:
        `accounting.epsilon` of that many steps is at most `epsilon`.
    """
    _expect_target(epsilon, delta)
    step = _release(sigma, sampling)

    def within(steps: int) -> bool:
        return epsilon_of(Repeated(step, steps), delta) <= epsilon

    if sampling is None:
        # mu = sqrt(steps) / sigma. Start safely below, where rounding cannot reach, and search upwards.
        return _last(within, floor((mu_for(epsilon, delta) * sigma) ** 2 * (1 - 1e-9)))
    return _last(within, 0)


def noise_for(event_of: Callable[[float], Event], epsilon: float, delta: float) -> float:
    """The smallest noise parameter x with which `event_of(x)` is (epsilon, delta)-DP for one replaced row.

    The price of `event_of(x)` must fall with x, as it does if x is a `sigma` or a `scale` of its releases.

    Formal guarantees:
        `accounting.epsilon(event_of(result), delta)` is at most `epsilon`, and no x below result (1 - 1e-6) has that.
        PrivacyError if no x is enough.
    """
    _expect_target(epsilon, delta)
    return _least_noise(event_of, lambda event: epsilon_of(event, delta), epsilon, f"at delta={delta!r}")


def pure_noise_for(event_of: Callable[[float], Event], epsilon: float) -> float:
    """As `noise_for`, for the sum of the pure epsilons: the calibration of papers that add them up.

    Formal guarantees:
        `accounting.pure_epsilon(event_of(result))` is at most `epsilon`, and no x below result (1 - 1e-6) has that.
        PrivacyError if no x is enough, or if some release is not pure.
    """
    # Pure costs have delta = 0, which is not checked: any delta will do here.
    _expect_target(epsilon, 0.5)
    return _least_noise(event_of, pure_epsilon, epsilon, "as a sum of pure costs")


@lru_cache(maxsize=256)
def _sigma_for(epsilon: float, delta: float, steps: int, calibration: Calibration, sampling: Sampling | None) -> float:
    """`sigma_for`. Cached with its checks, since every round of a run asks for the same sigma."""
    _expect_target(epsilon, delta)
    expect(steps >= 1 and steps == int(steps), "steps to be a whole number >= 1", steps=steps)
    expect(calibration in CALIBRATIONS, f"calibration to be one of {CALIBRATIONS}", calibration=calibration)
    epsilon, delta, steps = float(epsilon), float(delta), int(steps)
    if calibration == "exact":
        return _exact(epsilon, delta, steps, sampling)
    if sampling is not None:
        raise UnsupportedError(
            f"Expected calibration='exact' for sampled steps, got calibration={calibration!r}, sampling={sampling!r}."
        )
    if calibration == "paper":
        sigma = sqrt(2 * steps * log(1.25 / delta)) / epsilon
    else:
        # With r = sqrt(c): r^2 + 2 r s = eps, s = sqrt(ln(1/delta)), so r = eps / (s + sqrt(s^2 + eps)).
        s = sqrt(log(1 / delta))
        sigma = sqrt(steps / 2) * (s + sqrt(s * s + epsilon)) / epsilon
    # Nobody gets the noise of a printed formula on the strength of the formula alone.
    real = epsilon_of(Repeated(Gaussian(sigma), steps), delta)
    if real > epsilon:
        raise PrivacyError(
            f"Expected epsilon={epsilon!r} from calibration={calibration!r}, but its sigma={sigma:.6g} really gives "
            f"epsilon={real:.6g} at delta={delta!r}. Use calibration='exact'."
        )
    return sigma


def _exact(epsilon: float, delta: float, steps: int, sampling: Sampling | None) -> float:
    """The smallest sigma that the accountant accepts: closed form without sampling, a root without a closed form."""

    def excess(sigma: float) -> float:
        return epsilon_of(Repeated(_release(sigma, sampling), steps), delta) - epsilon

    sigma = sqrt(steps) / mu_for(epsilon, delta)
    if sampling is not None:
        high = sigma
        while excess(high) > 0:
            high *= 2
        low = high / 2
        while excess(low) <= 0:
            low /= 2
        sigma = exp(float(scipy.optimize.brentq(lambda s: excess(exp(s)), log(low), log(high), xtol=5e-7)))
    # Rounding, or a grid that changed with sigma, may leave the target barely missed: step up until it is met.
    step = 2.0**-52 if sampling is None else 1e-7
    while excess(sigma) > 0:
        sigma, step = sigma * (1 + step), 2 * step
    return sigma


def _least_noise(
    event_of: Callable[[float], Event], price: Callable[[Event], float], epsilon: float, kind: str
) -> float:
    """The least noise parameter with which `price` is at most `epsilon`; the search is over its logarithm.

    Brackets grow by factors of 16 up to 1e18, beyond which more noise changes nothing in double precision.

    Args:
        event_of: the event with that noise parameter.
        price: what an event costs.
        epsilon: the most that it may cost.
        kind: how the cost is meant, for error messages.
    """

    def excess(log_noise: float) -> float:
        return log(max(price(event_of(exp(log_noise))), 1e-300) / epsilon)

    # exp(0) = 1 is where to begin: up until the target is met, down until it is missed.
    low = high = 0.0
    while excess(high) > 0:
        low, high = high, high + log(16)
        if high > log(1e18):
            raise PrivacyError(_why_no_noise(event_of(exp(low)), price, epsilon, kind))
    while low == high or excess(low) <= 0:
        low, high = low - log(16), low
        if low < log(1e-18):
            raise PrivacyError(
                f"Expected an event whose price falls with its noise, but with noise={exp(low):.3g} it is still within "
                f"epsilon={epsilon!r} {kind}. Use the noise in the event."
            )
    found = float(scipy.optimize.brentq(excess, low, high, xtol=1e-7)) if excess(high) < 0 else high
    step = 1e-7
    while excess(found) > 0:
        found, step = found + step, 2 * step
    # The next number above with which the target is met: log and exp may have rounded it.
    noise, step = exp(found), 2.0**-52
    while price(event_of(noise)) > epsilon:
        noise, step = noise * (1 + step), 2 * step
    return noise


def _why_no_noise(event: Event, price: Callable[[Event], float], epsilon: float, kind: str) -> str:
    """The text of the error where no noise is enough: why, and what to change."""
    floor = price(event)
    kappas = [leaf.kappa for leaf in leaves(event) if isinstance(leaf, GaussianObjective | NormLaplaceObjective)]
    reason = "Ask for a larger epsilon, or for fewer releases."
    if not isfinite(floor):
        reason = "Some release in it has no such guarantee at any noise."
    elif kappas:
        reason = (
            f"Noise cannot pay for the Jacobian of objective perturbation, kappa={max(kappas):.6g} = c / (m mu). Raise "
            "mu = lam + 2 rho degree (a larger rho * degree or lam), take fewer steps, or ask for a larger epsilon."
        )
    return f"Expected epsilon={epsilon!r} {kind}, but with any noise the event costs at least {floor:.6g}. {reason}"


def _release(sigma: float, sampling: Sampling | None) -> Event:
    """One step with this noise multiplier, over all rows or over a batch."""
    return Gaussian(sigma) if sampling is None else SampledGaussian(sigma, sampling)


def _last(within: Callable[[int], bool], good: int) -> int:
    """The largest count that is within the target, searched upwards from `good`, or downwards if that is not within."""
    while good and not within(good):
        good -= 1
    stride = 1
    while within(good + stride):
        good, stride = good + stride, 2 * stride
    while stride > 1:
        stride //= 2
        if within(good + stride):
            good += stride
    return good


def _expect_target(epsilon: float, delta: float) -> None:
    """Refuse an epsilon that is not positive and finite, and a delta outside (0, 1)."""
    expect(epsilon > 0 and isfinite(epsilon), "epsilon to be positive and finite", epsilon=epsilon)
    expect(0 < delta < 1, "delta strictly between 0 and 1", delta=delta)
