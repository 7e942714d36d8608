"""Coefficients with standard errors that know the privacy noise: post-processing of released sums, of no row.

From w, near the optimum, one Newton step without a ridge. With the noisy gradient g = G~(w)/N and Hessian H = H~/N,

    estimate    w - d,                 d = H^-1 g
    covariance  H^-1 (H/N + s_g^2 I + (s_h^2 / 2) (|d|^2 I + d d^T)) H^-1

H/N is what drawing N rows does to the gradient if the model is true. s_g is the noise in g; the last term is what the
noise in H, of s_h in each number of its half, does to H d (E is symmetric: (E d) has just that covariance). d is not
known: |d|^2 of the estimate holds the noise of all directions too, and what of d^2 its own variance explains is taken
off, direction by direction.

That is to first order in the noise of H. How far off it is for each coefficient, a parametric bootstrap says: the
released numbers are taken for the truth, noise and rows are drawn anew, and errors are stretched to what is found, or
shrunk half as far, since the bootstrap does not know the remainder of the Newton step.

**Identified** is a combination c of coefficients if its information, 1 / c^T H^-1 c, is at least `INFORMATION` times
the standard deviation of the noise in it, s_h |H^-1 c|^2 / (c^T H^-1 c)^2. Nothing is said of others: a direction in
which the rows say nothing looks, through noise, as if they said a little. docs/proofs/inference.md.
"""

import math
from dataclasses import dataclass
from typing import NamedTuple, final

import numpy as np
from scipy import special

from sottovoce.arrays import Bools, Floats

LEVEL = 0.95  # of all intervals
CRITICAL = float(special.ndtri(0.5 + LEVEL / 2))
INFORMATION = 8.0  # over the noise in it, from which on a coefficient is called identified
DRAWS, FEWEST_DRAWS, WORK = 400, 100, 4e8  # of the bootstrap; fewer for wide tables, whose matrices take p^3 steps
SEED = 0  # of its draws: the same released numbers give the same table
SWEEPS = 8  # of taking off what is noise in d
EXACT = 1e-9  # of the largest eigenvalue: without noise, information below is rounding


@final
@dataclass(frozen=True, eq=False)
class Evidence:
    """What one run has released for inference, over N. p coefficients, in the units that were learnt in.

    Args:
        point: w, where the last gradient was taken.
        gradient: of the mean loss there, without a regulariser, with noise.
        hessian: of the mean loss at a model near by, with noise: (p, p).
        gradient_noise: the standard deviation of the noise in every number of the gradient, as it was added.
        hessian_noise: and in every number of the half of the Hessian, off-diagonals times sqrt(2).
        rows: N.
    """

    point: Floats
    gradient: Floats
    hessian: Floats
    gradient_noise: float
    hessian_noise: float
    rows: int


class Estimates(NamedTuple):
    """Of some combinations of coefficients, one entry each. Where `identified` is False the others mean nothing."""

    values: Floats
    errors: Floats  # standard errors: value +- CRITICAL error is the interval
    identified: Bools


class _Step(NamedTuple):
    """A Newton step of every draw, with its variances, in the eigenbasis of its Hessian."""

    values: Floats  # (draws, p) eigenvalues, never 0
    vectors: Floats  # (draws, p, p) as columns
    d: Floats  # (draws, p)
    shrunk: Floats  # (draws, p) d without what its variance explains
    variances: Floats  # (draws, p) of the gradient's part, over the eigenvalues squared


def infer(evidence: Evidence, contrasts: Floats) -> Estimates:
    """Estimates of the combinations C theta, for the rows of C: (combinations, p)."""
    step = _newton(evidence, evidence.hessian[None], evidence.gradient[None])
    errors = np.sqrt(_variances(evidence, step, contrasts)[0])
    known = identified(evidence, contrasts)
    if known.any() and evidence.hessian_noise > 0:
        errors = errors * _stretch(evidence, step, contrasts)
    return Estimates(contrasts @ (evidence.point - step.d[0]), errors, known)


def identified(evidence: Evidence, contrasts: Floats) -> Bools:
    """Which combinations the rows say more of than the noise in the Hessian could make up."""
    values, vectors = _eigen(evidence.hessian[None])
    turned = contrasts @ vectors[0]
    spread, reach = (turned**2 / values[0]).sum(axis=1), ((turned / values[0]) ** 2).sum(axis=1)
    noise = max(evidence.hessian_noise, EXACT * float(np.abs(values).max()) / INFORMATION)
    found: Bools = (reach > 0) & (spread >= INFORMATION * noise * reach)
    return found


def _eigen(hessians: Floats) -> tuple[Floats, Floats]:
    values, vectors = np.linalg.eigh(hessians)
    least = np.finfo(np.float64).eps * np.maximum(np.abs(values).max(axis=1, keepdims=True), np.finfo(np.float64).tiny)
    return np.where(np.abs(values) < least, least, values), vectors


def _newton(e: Evidence, hessians: Floats, gradients: Floats) -> _Step:
    """The step of every draw: (draws, p, p) and (draws, p)."""
    values, vectors = _eigen(hessians)
    turned = np.einsum("bji,bj->bi", vectors, gradients) / values
    variances = (np.abs(values) / e.rows + e.gradient_noise**2) / values**2
    squares, kept = turned**2, turned**2
    for _ in range(SWEEPS):
        of_hessian = e.hessian_noise**2 / 2 * (kept.sum(axis=1, keepdims=True) + kept) / values**2
        kept = np.clip(squares - variances - of_hessian, 0.0, squares)
    d, shrunk = (np.einsum("bij,bj->bi", vectors, x) for x in (turned, np.sign(turned) * np.sqrt(kept)))
    return _Step(values, vectors, d, shrunk, variances)


def _variances(e: Evidence, step: _Step, contrasts: Floats) -> Floats:
    """Of C theta for every draw: (draws, combinations)."""
    turned = contrasts @ step.vectors
    along = np.einsum("bci,bi->bc", turned / step.values[:, None, :], _turned(step, step.shrunk))
    reach = np.sum((turned / step.values[:, None, :]) ** 2, axis=2)
    size = np.sum(step.shrunk**2, axis=1, keepdims=True)
    own = np.einsum("bci,bi->bc", turned**2, step.variances)
    total: Floats = own + e.hessian_noise**2 / 2 * (size * reach + along**2)
    return total


def _turned(step: _Step, vectors: Floats) -> Floats:
    turned: Floats = np.einsum("bji,bj->bi", step.vectors, vectors)
    return turned


def _stretch(e: Evidence, step: _Step, contrasts: Floats) -> Floats:
    """By how much each standard error is off: the LEVEL quantile of what the bootstrap finds, over the normal one."""
    p, noise = len(e.point), e.hessian_noise
    draws, rng = int(np.clip(WORK / p**3, FEWEST_DRAWS, DRAWS)), np.random.default_rng(SEED)
    # The truth of the bootstrap. Below half the edge of the noise an eigenvalue is anything; it has to be positive.
    values, vectors, d = np.maximum(step.values[0], noise * math.sqrt(2 * p) / 2), step.vectors[0], step.shrunk[0]
    truth = (vectors * values) @ vectors.T
    upper = np.triu(rng.normal(size=(draws, p, p)) * noise / math.sqrt(2), 1)
    hessians = truth + upper + upper.transpose(0, 2, 1)
    hessians[:, np.arange(p), np.arange(p)] += noise * rng.normal(size=(draws, p))
    sampled = (rng.normal(size=(draws, p)) * np.sqrt(values / e.rows)) @ vectors.T
    gradients = truth @ d + sampled + e.gradient_noise * rng.normal(size=(draws, p))
    again = _newton(e, hessians, gradients)
    errors = np.sqrt(np.maximum(_variances(e, again, contrasts), np.finfo(np.float64).tiny))
    found = np.quantile(np.abs((again.d - d) @ contrasts.T) / errors, LEVEL, axis=0) / CRITICAL
    stretch: Floats = np.where(found < 1, (1 + found) / 2, found)
    return stretch
