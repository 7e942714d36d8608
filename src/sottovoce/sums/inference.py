"""Coefficients with standard errors that know the privacy noise: post-processing of released sums, of no row.

Coefficients are those of the likelihood, without a regulariser. From w, near its optimum, one Newton step. With the
noisy gradient g = G~(w)/N and Hessian H = H~/N,

    estimate    w - d,                 d = H^-1 g
    covariance  H^-1 (f H/N + s_g^2 I + (s_h^2 / 2) (|d|^2 I + d d^T)) H^-1

f H/N is what drawing N rows does to the gradient if the model is true: f = 1 for a likelihood, the variance of
residuals for squares. s_g is the noise in g. The last term is what the noise E in H does to H d: s_h is its size in
each number of the half, and E d has just that covariance. d is not known: |d|^2 of the estimate holds the noise of all
directions too, and what of d^2 its own variance explains is taken off, direction by direction.

**Directions that noise hides.** An eigenvalue of H below `FLOOR` times the edge of the noise's spectrum may be
anything. It is raised to that floor, so the step stops short there, and the model may lie off by what it is along that
direction: supposed as large as it is along the others in the mean, or as usual coefficients are. That is one more
variance.

**Calibration.** All this is to first order in the noise of H. How far off it is for each coefficient, a parametric
bootstrap says: the released numbers are taken for the truth, noise and rows are drawn anew, and errors are stretched or
shrunk to what is found.

**Single directions.** If some coefficients were asked for, the gradient at u was heard along a few directions X, and
X^T H with it. What it says of theta, X^T (H u - g), and the estimate above are two measurements whose noise is known: a
combination c is told as (c - K X^T H) of the one and K of the other, K being what makes noise least, whatever X is.

**Identified** is a combination c of coefficients if its information, 1 / c^T H^-1 c, is at least `INFORMATION` times
the standard deviation of the noise in it, s_h |H^-1 c|^2 / (c^T H^-1 c)^2, if at most `HIDDEN` of its variance is
supposed, and if the Hessian, taken elsewhere, can have changed by no more than a factor e^`BENT` on the way. Others
have an interval as well, which rests on what is supposed: a direction in which the rows say nothing looks, through
noise, as if they said a little, and one in which classes are nearly separate as if they said much. Their errors are
multiplied by what the Hessian may have changed between its point and the estimate. Proofs and measurements:
docs/proofs/inference.md.
"""

import math
from dataclasses import dataclass
from statistics import NormalDist
from typing import NamedTuple, final

import numpy as np

from sottovoce.arrays import Bools, Floats

LEVEL = 0.95  # of all intervals
CRITICAL = NormalDist().inv_cdf(0.5 + LEVEL / 2)
INFORMATION = 7.0  # over the noise in it, from which on a coefficient is called identified
FLOOR = 0.5  # times the edge of the noise spectrum, sqrt(2 p) s_h: smaller eigenvalues may be anything
USUAL = 2.0  # a coefficient over the range of its column, in log-odds, if nothing is known of it
HIDDEN = 0.4  # of a coefficient's variance may come from there
DRAWS, FEWEST_DRAWS, WORK = 400, 100, 4e8  # of the bootstrap; fewer for wide tables, whose matrices take p^3 steps
SEED = 0  # of its draws: the same released numbers give the same table
BENT, MOST_BENT = 0.5, 20.0  # in logarithms: how much the Hessian may have changed between its point and the optimum
SWEEPS = 8  # of taking off what is noise in d
TINY = np.finfo(np.float64).tiny
EXACT = 1e-9  # of the largest eigenvalue: without noise, information below is rounding


class Focused(NamedTuple):
    """What was heard of the mean loss along k directions X at a point u, in the coordinates of `Evidence`. It says that
    X^T H theta is X^T (H u - g).
    """

    point: Floats  # u, (p,)
    directions: Floats  # X, (p, k)
    gradient: Floats  # X^T g, with noise: (k,)
    hessian: Floats  # X^T H, with noise: (k, p)
    gradient_noise: float  # standard deviation in every number
    hessian_noise: float
    least: float  # how often a row counts at least, beside what counts less everywhere


@final
@dataclass(frozen=True, eq=False)
class Evidence:
    """What one run has released for inference, over N. p coefficients, in the coordinates in which noise is round.

    Args:
        point: w, where the last gradient was taken.
        gradient: of the mean loss there, without a regulariser, with noise.
        hessian: of the mean loss at a model near by, with noise: (p, p).
        gradient_noise: the standard deviation of the noise in every number of the gradient, as it was added.
        hessian_noise: and in every number of the half of the Hessian, off-diagonals times sqrt(2).
        rows: N.
        dispersion: what the covariance of one row's gradient is over the Hessian: 1 if the model is a true likelihood,
            the variance of the residuals for squares; of counts, as it was released.
        squares: of squares alone: the mean square of the residuals at the point, with noise.
        squares_noise: and the standard deviation of that noise.
        hessian_point: where the Hessian was taken. None: it is the same everywhere, as for squares.
        moments: the mean of a a^T, with noise; needed beside a point.
        coordinates: A, symmetric: the coefficients in the units that were learnt in are A w, and a row there is A^-1 a.
            None: they are the same.
        largest: a public bound on every number of a row in those units. Where none is known for single ones, that on
            its norm.
        least: how often a row counts at least: less than 1 if long ones count less.
        exponential: True if the logarithm of phi'' is z itself, as for counts.
        focused: what was heard along single directions beside that.
        together: how many rows may be one person's, and so alike: their gradients add up, at worst, to as many times
            the variance of single rows.
    """

    point: Floats
    gradient: Floats
    hessian: Floats
    gradient_noise: float
    hessian_noise: float
    rows: int
    dispersion: float = 1.0
    squares: float | None = None
    squares_noise: float = 0.0
    hessian_point: Floats | None = None
    moments: Floats | None = None
    coordinates: Floats | None = None
    largest: float = 1.0
    together: int = 1
    least: float = 1.0
    exponential: bool = False
    focused: tuple[Focused, ...] = ()

    @property
    def sampled(self) -> float:
        """f: what the covariance of one row's gradient is over the Hessian, with those of the same person."""
        return self.dispersion * self.together


class Estimates(NamedTuple):
    """Of some combinations of coefficients, one entry each. Where `identified` is False errors rest on what is supposed
    of directions that noise hides.
    """

    values: Floats
    errors: Floats  # standard errors: value +- CRITICAL error is the interval
    identified: Bools


class _Step(NamedTuple):
    """A Newton step of every draw, in the eigenbasis of its Hessian. All but the vectors: (draws, p)."""

    values: Floats  # eigenvalues, none below the floor
    vectors: Floats  # (draws, p, p) as columns
    d: Floats  # in the basis of the coefficients
    doubt: Floats  # what part of a direction noise hides: 0 above the floor, 1 where the eigenvalue is 0 or less
    squares: Floats  # of d along the vectors, without what its variance explains; where noise hides it, supposed
    variances: Floats  # of drawing rows, and of the noise in the gradient


def infer(evidence: Evidence, contrasts: Floats) -> Estimates:
    """Estimates of the combinations C theta, for the rows of C: (combinations, p), theta in the units that were learnt
    in.
    """
    sizes = np.maximum(np.linalg.norm(contrasts, axis=1), TINY)
    contrasts = contrasts if evidence.coordinates is None else contrasts @ evidence.coordinates
    hessian, gradient = evidence.hessian[None], evidence.gradient[None]
    size = _supposed(evidence, _newton(evidence, hessian, gradient, 0.0))
    step = _newton(evidence, hessian, gradient, size)
    heard = _heard(evidence, step, contrasts, size)
    wanted, contrasts = contrasts, heard.rest
    variances, hidden = (part[0] for part in _variances(evidence, step, contrasts, size))
    errors, unsure = np.sqrt(variances + hidden), _noise_of_information(evidence, step, wanted)
    if evidence.hessian_noise > 0:
        errors = errors * _stretch(evidence, step, contrasts, size)
    drawn = evidence.sampled * ((contrasts @ step.vectors[0]) ** 2 / step.values[0]).sum(axis=1) / evidence.rows
    noise = np.maximum(errors**2 - drawn, 0.0)
    drawn = (np.sqrt(drawn) + np.sqrt(heard.drawn)) ** 2  # of the same rows: at most so much
    unsure = unsure * (errors**2 / (noise + heard.noise + drawn)) + heard.unsure
    errors = np.sqrt(noise + heard.noise + drawn)
    at = contrasts @ (evidence.point - step.d[0]) + heard.told
    x = (wanted @ step.vectors[0] / step.values[0]) @ step.vectors[0].T
    rates = _bending(evidence, x, np.einsum("ci,ij,cj->c", x, evidence.hessian, x), sizes)
    moved, walked = rates * np.abs(at - wanted @ _hessian_point(evidence)), contrasts @ step.d[0]
    for one in evidence.focused:  # their Hessian is that of another point, and they are a step from there
        rates = np.maximum(rates, heard.part * _bending(evidence, heard.x, heard.curved, sizes))
        steps = at - wanted @ one.point
        moved, walked = np.maximum(moved, rates * np.abs(steps)), np.maximum(np.abs(walked), np.abs(steps))
    bent = moved + rates * np.sqrt(noise + heard.noise)
    beyond = np.maximum(walked**2 - errors**2, 0.0)  # of the step, what is not noise in it
    shown = np.maximum(errors**2, variances + hidden)
    known = (hidden <= HIDDEN * shown) & (unsure <= 1 / INFORMATION) & (bent <= BENT)
    errors = np.sqrt(errors**2 + bent**2 * beyond)
    wide = errors * np.exp(np.minimum(moved, MOST_BENT))
    return Estimates(contrasts @ _told(evidence, step, size) + heard.told, np.where(known, errors, wide), known)


class _Heard(NamedTuple):
    """What was heard along single directions says of combinations. All but the first: (combinations,)."""

    rest: Floats  # (combinations, p) what is left of each for the estimate without them
    told: Floats  # the part of each that they say
    drawn: Floats  # its variance, of drawing rows
    noise: Floats  # and of noise
    x: Floats  # (combinations, p) the direction of the gradient that they rest on there
    curved: Floats  # x^T H x
    part: Floats  # how much of the whole that is
    unsure: Floats  # standard deviation of the noise in it, over the whole


def _heard(e: Evidence, step: _Step, contrasts: Floats, size: float) -> _Heard:
    """Single directions and all else, put together so that there is least noise in the whole."""
    if not e.focused:
        none = np.zeros(len(contrasts))
        return _Heard(contrasts, none, none, none, contrasts, none, none, none)
    of_hessian = e.hessian_noise**2 / 2 * (step.squares[0].sum() + step.squares[0])
    noises = (e.gradient_noise**2 + of_hessian) / step.values[0] ** 2 + (step.doubt[0] * size) ** 2
    spread = (step.vectors[0] * noises) @ step.vectors[0].T
    told = _told(e, step, size)
    H, X = np.concatenate([f.hessian for f in e.focused]), np.concatenate([f.directions for f in e.focused], axis=1)
    said = np.concatenate([f.hessian @ f.point - f.gradient for f in e.focused])
    off = [f.gradient_noise**2 + f.hessian_noise**2 * (noises.sum() + np.sum((f.point - told) ** 2)) for f in e.focused]
    noise = np.repeat(off, [len(f.gradient) for f in e.focused])
    # Without any noise, directions have nothing to add.
    gain = contrasts @ spread @ H.T @ np.linalg.pinv(H @ spread @ H.T + np.diag(noise), hermitian=True)
    curved, rest = np.maximum(np.einsum("ci,ij,cj->c", gain, H @ X, gain), 0.0), contrasts - gain @ H
    beside = ((rest @ step.vectors[0]) ** 2 / step.values[0]).sum(axis=1)
    whole = np.maximum(curved + beside, TINY)
    x, of_H = gain @ X.T, np.repeat([f.hessian_noise**2 for f in e.focused], [len(f.gradient) for f in e.focused])
    unsure = np.sqrt(gain**2 @ of_H) * np.linalg.norm(x, axis=1) / whole
    return _Heard(rest, gain @ said, e.sampled * curved / e.rows, gain**2 @ noise, x, curved, curved / whole, unsure)


def _told(e: Evidence, step: _Step, size: float) -> Floats:
    """The coefficients. Along what noise hides, the point that they started from is noise as well, and 0 is as good:
    it is moved there, but no further than what is supposed to be hidden.
    """
    vectors, found = step.vectors[0], (e.point - step.d[0]) @ step.vectors[0]
    told: Floats = vectors @ (found - step.doubt[0] * np.clip(found, -size, size))
    return told


def _supposed(e: Evidence, step: _Step) -> float:
    """The size of the model along a direction that noise hides: its root mean square along the others, or that of
    coefficients that are each `USUAL` over the range of their column, whichever is larger.
    """
    along, seen = (e.point - step.d[0]) @ step.vectors[0], 1 - step.doubt[0]
    rows = np.eye(len(e.point)) if e.coordinates is None else np.linalg.inv(e.coordinates)
    usual = USUAL / e.largest * math.sqrt(float(np.mean(rows**2)) * len(rows))
    return max(math.sqrt(float(np.sum(seen * along**2)) / max(float(seen.sum()), 1.0)), usual)


def _hessian_point(e: Evidence) -> Floats:
    return e.point if e.hessian_point is None else e.hessian_point


def _bending(e: Evidence, x: Floats, curved: Floats, sizes: Floats) -> Floats:
    """By how much, at most, the logarithm of the information of each combination changes where it moves by 1:
    (combinations,). `x` are the directions that they rest on, `curved` is x^T H x, and `sizes` are those of the
    combinations in the units of rows.

    The logarithm of phi'' = p (1 - p) changes by 1 - 2 p for each unit of z, of either sign, so that changes may
    cancel: not where all rows are on one side, where |1 - 2 p| is nearly its square. The mean of that, 1 - 4 phi'',
    over the rows that a combination rests on follows from x^T H x / x^T M x with x = H^-1 c. How far z moves does not:
    their column is taken to be as large as it can be. Of counts it changes by 1 everywhere.
    """
    if e.hessian_point is None or e.moments is None:
        return np.zeros(len(x))
    told = np.maximum(np.einsum("ci,ij,cj->c", x, e.moments, x), TINY)
    second = np.clip(curved / told, 0.0, 0.25)
    rates: Floats = (1.0 if e.exponential else 1 - 4 * second) / sizes * e.largest
    return rates


def _noise_of_information(e: Evidence, step: _Step, contrasts: Floats) -> Floats:
    """Standard deviation of the noise in each combination's information, over that information: (combinations,)."""
    turned = contrasts @ step.vectors[0]
    spread, reach = (turned**2 / step.values[0]).sum(axis=1), ((turned / step.values[0]) ** 2).sum(axis=1)
    return np.where(spread > 0, e.hessian_noise * reach / np.maximum(spread, TINY), np.inf)


def _newton(e: Evidence, hessians: Floats, gradients: Floats, size: float) -> _Step:
    """The step of every draw, from Hessians (draws, p, p) and gradients (draws, p). `size` is that of the model along a
    direction that noise hides.
    """
    raw, vectors = np.linalg.eigh(hessians)
    # Smaller eigenvalues are taken for noise.
    largest = np.maximum(np.abs(raw).max(axis=1, keepdims=True), TINY)
    floor = np.maximum(FLOOR * (e.hessian_noise * math.sqrt(2 * len(e.point))), EXACT * largest)
    values, doubt = np.maximum(raw, floor), np.clip(1 - raw / floor, 0.0, 1.0)
    turned = np.einsum("bji,bj->bi", vectors, gradients) / values
    variances = (e.sampled * np.maximum(raw, 0.0) / e.rows + e.gradient_noise**2) / values**2
    kept = squares = turned**2
    for _ in range(SWEEPS):
        of_hessian = e.hessian_noise**2 / 2 * (kept.sum(axis=1, keepdims=True) + kept) / values**2
        kept = (1 - doubt) * np.clip(squares - variances - of_hessian, 0.0, squares) + doubt * size**2
    return _Step(values, vectors, np.einsum("bij,bj->bi", vectors, turned), doubt, kept, variances)


def _variances(e: Evidence, step: _Step, contrasts: Floats, size: float) -> tuple[Floats, Floats]:
    """Variances of C theta for every draw, (draws, combinations): along directions that were seen, and along those that
    noise hides.
    """
    turned = contrasts @ step.vectors
    over = turned / step.values[:, None, :]
    along = np.einsum("bci,bi->bc", over**2, step.squares)
    reach = np.sum(over**2, axis=2) * np.sum(step.squares, axis=1, keepdims=True)
    seen = np.einsum("bci,bi->bc", turned**2, step.variances) + e.hessian_noise**2 / 2 * (reach + along)
    hidden = size**2 * np.einsum("bci,bi->bc", turned**2, step.doubt**2)
    return seen, hidden


def _stretch(e: Evidence, step: _Step, contrasts: Floats, size: float) -> Floats:
    """Factor on each standard error: the LEVEL quantile of errors in the bootstrap, over the normal quantile."""
    p, noise = len(e.point), e.hessian_noise
    draws, rng = int(np.clip(WORK / p**3, FEWEST_DRAWS, DRAWS)), np.random.default_rng(SEED)
    # The truth of the bootstrap: eigenvalues as seen, but half the floor at least; d of either sign.
    values, vectors = step.values[0] * np.maximum(1 - step.doubt[0], 0.5), step.vectors[0]
    truth = (vectors * values) @ vectors.T
    hessians = truth + symmetric_noise(rng, draws, p, noise)
    d = (np.sqrt(step.squares[0]) * rng.choice([-1.0, 1.0], size=(draws, p))) @ vectors.T
    sampled = (rng.normal(size=(draws, p)) * np.sqrt(e.sampled * values / e.rows)) @ vectors.T
    gradients = d @ truth + sampled + e.gradient_noise * rng.normal(size=(draws, p))
    again = _newton(e, hessians, gradients, size)
    seen, hidden = _variances(e, again, contrasts, size)
    errors = np.sqrt(np.maximum(seen + hidden, TINY))
    stretch: Floats = np.quantile(np.abs((again.d - d) @ contrasts.T) / errors, LEVEL, axis=0) / CRITICAL
    return stretch


def symmetric_noise(rng: np.random.Generator, draws: int, p: int, noise: float) -> Floats:
    """Matrices whose halves, off-diagonals times sqrt(2), are independent normals of that standard deviation."""
    upper = np.triu(rng.normal(size=(draws, p, p)) * noise / math.sqrt(2), 1)
    found: Floats = upper + upper.transpose(0, 2, 1)
    found[:, np.arange(p), np.arange(p)] += noise * rng.normal(size=(draws, p))
    return found
