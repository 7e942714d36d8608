"""Least squares from masked sums: the second moments of rows and residuals, where noise is smallest.

With labels b cut to [-1, 1], whitened coordinates t = A a (`sottovoce.sums.whitening`) and the residual of a public
model u, cut to [-r, r], e = cut(b - <t, u>) / r, the sums are

    1          M = sum a a^T
    k > 1      S_k = sum f (t, c e) (t, c e)^T        at the model u_k, with residuals up to r_k; f <= 1 as everywhere

From a sum come a Hessian H_k, a cross moment g_k = -gradient, and the mean square of the residuals. The first model is
0, with r = 1. Every sum says how large residuals are, and the next one goes no further than some of their standard
deviations, or as far as noise stays below a part of sampling (`Far`): small residuals need little noise. With H the
mean of all H_k, y and g the means of all u_k and g_k, sure ones weighing more, the model is two steps of
(H + ridge)^-1 from y, where the gradient is -g. Estimates with standard errors are y + H^-1 g: one Newton step, with no
remainder, since squares bend the same everywhere. `sottovoce.sums.inference` tells how sure they are. Privacy:
docs/proofs/inference.md.
"""

import math
from dataclasses import dataclass, field, replace
from typing import NamedTuple, final

import numpy as np

from sottovoce.algorithms.analysis import Learning
from sottovoce.arrays import Floats
from sottovoce.errors import expect
from sottovoce.oracle.plain import Oracle
from sottovoce.oracle.row_sums import whole
from sottovoce.oracle.whitening import Whitening
from sottovoce.problem.losses import Huber, Loss
from sottovoce.sums.curvature import TINY, Curvature, ridge
from sottovoce.sums.descent import Fit
from sottovoce.sums.inference import Evidence, symmetric_noise
from sottovoce.sums.program import Ask, Known, Line, Opened, Program
from sottovoce.sums.questions import Moments, ResidualMoments
from sottovoce.sums.whitening import LongRows, whitening_of


class Far(NamedTuple):
    """How far residuals count."""

    least: float  # in their standard deviations
    quiet: float  # noise over what sampling does to an estimate, up to which they count further


WIDEST = 510  # features: with the label as one more, the message is as long as those of masked sums may be
ROUNDS = 7  # sums in all
# Chosen on some tables and judged on others: docs/proofs/inference.md says which, and how well they do.
MOMENTS = 0.05  # of the budget, mu^2, goes to the second moments, the rest in equal parts to the other sums
LONG_ROWS = LongRows(2e4, 16.0)
# Of predictions, and of intervals: those of least squares hold only where few residuals are cut.
TO_PREDICT, TO_INFER = Far(3.0, 0.5), Far(5.0, 1.0)
DRAWS, SEED = 400, 0  # of the bootstrap that says how sure R^2 is
SURE = 8.0  # times the noise in residuals, from which on labels say anything of R^2: both as mean squares


class _Heard(NamedTuple):
    """What one sum says, over N, in whitened coordinates. p features."""

    u: Floats  # (p, runs) the model
    g: Floats  # (p, runs) minus the gradient there
    squares: Floats  # (runs,) mean square of the residuals
    hessian: Floats  # (runs, p, p)
    noise: Floats  # (runs,) in each number of the half of the Hessian
    ratio: Floats  # (runs,) r / c

    @classmethod
    def of(cls, opened: Opened, runs: int) -> "_Heard":
        asked, p = opened.question, len(opened.question.u)
        whitening, matrix = asked.whitening, whole(opened.mean.T)
        ratio = (np.abs(asked.reach) / np.maximum(whitening.length, TINY))[0]
        noise = np.broadcast_to(opened.mean_std, (1, runs))[0]
        cross = (matrix[:, :p, p] * ratio[:, None]).T
        return cls(asked.u, cross, matrix[:, p, p] * ratio**2, matrix[:, :p, :p], noise, ratio)

    @property
    def cross_noise(self) -> Floats:
        """Of each number of g: off-diagonals of the half are times sqrt(2)."""
        return self.noise * self.ratio / math.sqrt(2)

    def squares_at(self, u: Floats) -> Floats:
        """The mean square of the residuals of another model: (runs,)."""
        d = u - self.u
        found: Floats = self.squares - 2 * np.sum(d * self.g, axis=0) + np.sum(d * _times(self.hessian, d), axis=0)
        return found


class _Together(NamedTuple):
    """All sums so far, as one: the means of points and cross moments, and the Hessian."""

    y: Floats
    g: Floats
    cross_noise: Floats
    hessian: Floats
    noise: Floats

    @classmethod
    def of(cls, heard: list[_Heard], near: Floats) -> "_Together":
        """Sums weigh by how sure they are of where the optimum is, if it is `near` (p, runs): by the noise in g, and
        by what the noise in the Hessian does on the way.
        """
        count = len(heard)
        hessian = np.mean([h.hessian for h in heard], axis=0)
        noise: Floats = np.sqrt(np.mean([h.noise**2 for h in heard], axis=0) / count)
        variances = [h.cross_noise**2 + noise**2 / 2 * np.sum((h.u - near) ** 2, axis=0) for h in heard]
        least = np.maximum(np.minimum.reduce(variances), TINY)
        weights = [least / np.maximum(variance, TINY) for variance in variances]
        parts = [weight / sum(weights) for weight in weights]
        y, g = (sum((part * of for part, of in zip(parts, of_all, strict=True)), start=np.zeros_like(near))
                for of_all in ([h.u for h in heard], [h.g for h in heard]))  # fmt: skip
        cross_noise = np.sqrt(sum((part * h.cross_noise) ** 2 for part, h in zip(parts, heard, strict=True)))
        return cls(y, g, cross_noise, hessian, noise)

    def model(self, penalty: Floats | None = None) -> Floats:
        """The model that these say, (p, runs), short along what noise hides. `penalty` is the curvature of a
        regulariser: (runs, p, p).
        """
        p, curvature, g = len(self.y), self.hessian, self.g
        if penalty is not None:
            curvature, g = curvature + penalty, g - _times(penalty, self.y)
        values, vectors = np.linalg.eigh(curvature)
        edge = ridge(self.noise * math.sqrt(p), np.trace(self.hessian, axis1=1, axis2=2))[:, None]
        largest = np.maximum(np.abs(values).max(axis=1, keepdims=True), TINY)
        filled = np.maximum(values, 0.0) + np.maximum(edge, np.finfo(np.float64).eps * p * largest)
        # A second step takes part of what the ridge held back of the first: all but (edge / filled)^2 is taken.
        turned = np.einsum("rji,jr->ri", vectors, g) / filled * (1 + edge / filled)
        found: Floats = self.y + np.einsum("rij,rj->ir", vectors, turned)
        return found


def _times(matrices: Floats, v: Floats) -> Floats:
    """(runs, p, p), (p, runs) -> (p, runs)."""
    found: Floats = np.einsum("rij,jr->ir", matrices, v)
    return found


@final
@dataclass(frozen=True, kw_only=True)
class LeastSquares(Learning):
    """Linear regression on masked sums. Labels lie in [-1, 1]; what lies outside is cut.

    Args:
        rounds: exchanges in all: one of second moments of rows, the others of rows with residuals.
        loss: of one output, for scores alone. Huber's: squares of residuals up to its threshold.
        inference: True for standard errors of the coefficients, and R^2. They take no sum of their own; residuals then
            count further (`TO_INFER`).
    """

    rounds: int = ROUNDS
    loss: Loss = field(default_factory=lambda: Huber(2.0))
    inference: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        expect(self.loss.outputs == 1, "a loss of one output for least squares, which it scores", loss=self.loss.name)
        expect(self.max_grad_norm is None, "no max_grad_norm: residuals are cut", max_grad_norm=self.max_grad_norm)
        kink = self.regulariser.l1 == 0
        expect(kink, "a smooth regulariser, l2, for least squares", regulariser=self.regulariser.name)

    def _check_rounds(self) -> None:
        expect(self.rounds >= 2, "rounds >= 2: second moments of rows, then those with residuals", rounds=self.rounds)

    def check(self, site: Oracle) -> None:
        """Refuse what cannot be kept, before a row is touched."""
        super().check(site)
        expect(site.sites.d <= WIDEST, f"at most {WIDEST} features for least squares", features=site.sites.d)

    def schedule(self, features: int) -> tuple[Line, ...]:
        """Second moments of rows, then of rows with residuals."""
        half, more = features * (features + 1) // 2, (features + 1) * (features + 2) // 2
        later, point = self.rounds - 1, features + Whitening.size(features, full=True) + 1
        part = (1 - MOMENTS) / later
        return (Line("second moments", half, 0, MOMENTS), *later * [Line("residual moments", more, point, part)])

    def program(self, known: Known) -> Program[Fit]:
        """Open the second moments; then step by step, until all sums together say the model."""
        p, runs, later = known.features, known.runs, self.rounds - 1
        u = start = np.zeros((p, runs))
        opened = moments = yield Ask(Moments(), Fit(start, start))
        alone = known.noise[1] * math.sqrt((1 - MOMENTS) / later) * known.changed * math.sqrt(p) / opened.rows
        A = whitening_of(Curvature.of(opened, p), known.data_norm, alone, LONG_ROWS)
        heard, reach, model, total = list[_Heard](), np.ones((1, runs)), start, start
        for k in range(1, self.rounds):
            so_far = Fit(total / max(len(heard), 1), model, moments=moments)
            opened = yield Ask(ResidualMoments(u, A, reach), so_far)
            # From here on with the bits of the point and the whitening that all sites took.
            A = opened.question.whitening
            heard.append(_Heard.of(opened, runs))
            last = heard[-1]
            together = _Together.of(heard, last.u)
            u = together.model()
            model = A.times(self._penalised(A, together))
            total = total + model
            if k < later:
                reach = self._reach(known, opened, last, u, known.noise[k + 1])
        if not self.inference:
            return Fit(total / later, model, moments=moments)
        together = _Together.of(heard, u)
        squares = last.squares_at(together.y)
        every = (
            Evidence(
                together.y[:, run], -together.g[:, run], together.hessian[run], float(together.cross_noise[run]),
                float(together.noise[run]), opened.rows, squares=float(squares[run]),
                squares_noise=float(last.noise[run] * last.ratio[run] ** 2), coordinates=A.A[:, :, run],
                together=known.changed,
                least=float(A.least(known.data_norm)[0, run]),
            )
            for run in range(runs)
        )  # fmt: skip
        return Fit(total / later, model, tuple(map(_dispersed, every)), moments=moments)

    def _penalised(self, A: Whitening, together: _Together) -> Floats:
        """The model with the regulariser, lam l2 |w|^2 / 2, which is lam l2 <u, A^2 u> / 2: (p, runs)."""
        weight = self.lam * self.regulariser.l2
        return together.model(weight * np.einsum("ijr,jkr->rik", A.A, A.A) if weight else None)

    def _reach(self, known: Known, opened: Opened, last: _Heard, u: Floats, noise: float) -> Floats:
        """How far residuals count in the next sum: (1, runs)."""
        A = opened.question.whitening
        spread = np.sqrt(np.maximum(last.squares_at(u), 0.0) + last.noise * last.ratio**2)
        # Over what sampling does: residuals of that size, in N rows, in a direction in which rows are 1 long.
        loud = noise * known.changed * 2 * A.length[0] / math.sqrt(opened.rows)
        far = TO_INFER if self.inference else TO_PREDICT
        wanted = np.maximum(far.least, far.quiet / np.maximum(loud, TINY)) * np.maximum(spread, TINY)
        # No residual of a row is longer than this, so without noise none is cut.
        reach: Floats = np.minimum(wanted, 1 + known.data_norm * np.linalg.norm(A.times(u), axis=0))[None]
        return reach

    @property
    def released(self) -> str:
        """What everyone sees, in words."""
        return (
            "the noisy sum over all sites of the second moments of their rows, and then, at each of "
            f"{self.rounds - 1} public models, of their rows and residuals together; single sites' messages are masked"
        )


class _Solved(NamedTuple):
    """The optimum of what one run has released."""

    model: Floats
    left: float  # the mean square of its residuals
    noise: float  # the standard deviation of the noise in that
    excess: float  # by how much noise in the model makes predictions too wide


def _solved(e: Evidence) -> _Solved:
    assert e.squares is not None  # as every evidence of this file has it
    values, vectors = np.linalg.eigh(e.hessian)
    floor = max(e.hessian_noise * math.sqrt(2 * len(e.point)) / 2, 1e-12 * float(np.abs(values).max()), float(TINY))
    values = np.maximum(values, floor)
    d = -vectors @ (vectors.T @ e.gradient / values)
    square = float(d @ d)
    noise = math.hypot(e.squares_noise, 2 * e.gradient_noise * math.sqrt(square), e.hessian_noise * square)
    # The best of noisy models looks too good, by this much to first order.
    excess = (e.gradient_noise**2 + e.hessian_noise**2 / 2 * square) * float(np.sum(1 / values))
    left = float(e.squares + 2 * d @ e.gradient + d @ e.hessian @ d)
    return _Solved(e.point + d, left + excess, max(noise, float(TINY)), excess)


def _dispersed(e: Evidence) -> Evidence:
    """With the variance of the residuals as dispersion: as large as the noise in it at least."""
    solved, p = _solved(e), len(e.point)
    freedom = e.rows / max(e.rows - p, 1)  # p coefficients were chosen to make the residuals small
    return replace(e, dispersion=freedom * max(solved.left, solved.noise))


def explained(e: Evidence, constant: float) -> tuple[float, float]:
    """R^2 and its standard error, of the noise and of drawing rows; the error is infinite where noise in the residuals
    is large beside the labels. That hardly depends on R^2 itself, so R^2 is right where it is shown. `constant` is the
    last feature of every row; 0 where there is none, and R^2 is then uncentred: it compares with a prediction of 0.
    """
    assert e.squares is not None  # as every evidence of this file has it
    p = len(e.point)
    last = np.eye(p)[-1] if e.coordinates is None else np.linalg.inv(e.coordinates)[-1]  # the constant's coordinates

    def share(of: Evidence) -> tuple[float, float]:
        """R^2, and the mean square of the labels that it is a share of."""
        solved = _solved(of)
        turned = of.hessian @ solved.model
        fitted = float(solved.model @ turned) - solved.excess
        if constant:
            # Sums over rows as they count, of predictions and of 1.
            counted = min(max(float(last @ of.hessian @ last) / constant**2, e.least), 1.0)
            summed = (
                float(last @ turned) ** 2
                - e.gradient_noise**2 * float(last @ last)
                - e.hessian_noise**2 / 2 * (float(e.point @ e.point) * float(last @ last) + float(e.point @ last) ** 2)
            )
            fitted -= max(summed, 0.0) / constant**2 / counted
        labels = max(max(solved.left, solved.noise) + max(fitted, 0.0), float(TINY))
        return max(fitted, 0.0) / labels, labels

    (found, labels), rng = share(e), np.random.default_rng(SEED)
    if labels < SURE * _solved(e).noise:
        return found, math.inf
    again = [
        share(replace(e, hessian=e.hessian + one, gradient=e.gradient + e.gradient_noise * rng.normal(size=p),
                      squares=e.squares + e.squares_noise * rng.normal()))[0]
        for one in symmetric_noise(rng, DRAWS, p, e.hessian_noise)
    ]  # fmt: skip
    return found, math.sqrt(float(np.var(again)) + 4 * found * (1 - found) ** 2 * e.together / e.rows)
