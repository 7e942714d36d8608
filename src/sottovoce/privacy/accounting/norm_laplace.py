"""The losses of l2-Laplace noise, density proportional to e^-||x|| in R^d, moved by t along one axis.

The loss is L = ||x + t e|| - ||x||. In coordinates whose foci are 0 and -t e the density separates, and L = t
sin(phi) with phi in [-pi/2, pi/2] of density proportional to

    cos(phi)^(d-2) (1 + w cos(phi)^2) e^{a sin(phi)},   a = t/2,  w = a K_nu(a) / ((d-1) K_{nu+1}(a)),  nu = d/2 - 1,

K the Bessel function. So E e^{lambda L} is one integral over one angle, and even a closed form. The proof is in
docs/proofs/laplace.md.
"""

from functools import lru_cache
from math import asinh, ceil, log, log2, pi, sqrt

import numpy as np
import scipy

from sottovoce.arrays import Floats
from sottovoce.privacy.accounting.gaussian import UNIT

NODES = 24  # of Gauss and Legendre, in each panel
STEEPEST = 1e4  # largest (lambda + 1/2) t that is followed; beyond it the pure bound has to do
MARGIN = 1e-12  # added to every log-moment: thousands of times what the quadrature can be off


def log_moment(d: int, shift: float, lam: Floats) -> Floats:
    """log E e^{lambda L}, lambda > 0. It is lambda times the Renyi divergence of order 1 + lambda.

    Formal guarantees:
        Never too low. Infinite where (lambda + 1/2) shift > STEEPEST.
    """
    if d == 1:
        # alpha/(2 alpha - 1) e^{lambda t} + lambda/(2 alpha - 1) e^{-alpha t}, alpha = 1 + lambda
        up = np.log((1 + lam) / (1 + 2 * lam)) + lam * shift
        down = np.log(lam / (1 + 2 * lam)) - (1 + lam) * shift
        return np.logaddexp(up, down) + _rounding(shift, lam)
    return _moments(d, shift, lam, positive=False)


def log_moment_of_positive(d: int, shift: float, lam: Floats) -> Floats:
    """log E e^{lambda max(L, 0)}, lambda > 0. The guarantees are those of `log_moment`."""
    if d == 1:
        beta = (lam + 0.5) * shift
        still = np.full_like(lam, -shift / 2 - log(2))
        moved = lam * shift - log(2) + np.log1p(-np.expm1(-beta) / (1 + 2 * lam))
        return np.logaddexp(still, moved) + _rounding(shift, lam)
    return _moments(d, shift, lam, positive=True)


def _moments(d: int, shift: float, lam: Floats, positive: bool) -> Floats:
    """The log-moments by quadrature over the angle; inf where the integrand is too steep to be followed."""
    result = np.full(lam.shape, np.inf)
    good = (lam + 0.5) * shift <= STEEPEST
    if not np.any(good):
        return result
    # Panels on either side of zero, each at most 2 asinh(1 / sqrt(d/2 + beta + 1)) wide: see the proof.
    beta = (float(np.max(lam[good])) + 0.5) * shift
    width = 2 * asinh(1 / sqrt(d / 2 + beta + 1))
    sines, log_masses = _law(d, shift, int(2 ** ceil(log2((pi / 2) / width))))
    losses = shift * (np.maximum(sines, 0.0) if positive else sines)
    exponents = np.multiply.outer(lam[good], losses) + log_masses
    # The largest term is taken out, so that nothing overflows.
    peak = np.max(exponents, axis=1)
    result[good] = peak + np.log(np.sum(np.exp(exponents - peak[:, None]), axis=1)) + _rounding(shift, lam[good])
    return result


@lru_cache(maxsize=64)
def _law(d: int, shift: float, panels: int) -> tuple[Floats, Floats]:
    """sin(phi) at the nodes of the rule, and the log of their masses, which add up to one."""
    nodes, weights = np.polynomial.legendre.leggauss(NODES)
    edges = np.linspace(0.0, pi / 2, panels + 1)
    half = (edges[1] - edges[0]) / 2
    phi = (edges[:-1, None] + half * (1 + nodes)).ravel()
    phi = np.concatenate((-phi[::-1], phi))
    sines, cosines = np.sin(phi), np.cos(phi)
    # The Legendre rule is symmetric, so one order of its weights serves both sides.
    log_masses = np.log(np.tile(weights, 2 * panels)) + (d - 2) * np.log(cosines)
    log_masses += np.log1p(_bend(d, shift / 2) * cosines**2) + shift / 2 * sines
    peak = float(np.max(log_masses))
    return sines, log_masses - (peak + log(float(np.sum(np.exp(log_masses - peak)))))


def _bend(d: int, a: float) -> float:
    """The coefficient w. With s_nu = a K_nu(a) / K_{nu+1}(a): s_nu = a^2 / (2 nu + s_{nu-1}), every term positive."""
    nu, s = (-0.5, a) if d % 2 else (0.0, a * float(scipy.special.k0e(a)) / float(scipy.special.k1e(a)))
    while nu < d / 2 - 1:
        nu += 1
        s = a * a / (2 * nu + s)
    return s / (d - 1)


def _rounding(shift: float, lam: Floats) -> Floats:
    """A bound on rounding, where exponents of at most (lambda + 1) t are summed; far above the quadrature's error."""
    return MARGIN + 64 * UNIT * (1 + lam) * shift
