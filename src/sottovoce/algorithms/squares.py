"""Least squares from one masked sum: all that linear regression needs is (a, b) (a, b)^T, added up.

With S = sum of (a, b) (a, b)^T over all rows, |a| <= B and |b| <= 1, every site sends its share of the half of S, once,
with noise for the sensitivity sqrt(2) (B^2 + 1). Over N, and with noise of standard deviation s in each number,

    M~ = mean of a a^T,   c~ = mean of a b,   q~ = mean of b^2
    model       (M~ + r I)^-1 c~,    r = max(0, edge - least eigenvalue of M~),    edge = s sqrt(2 p)

The ridge r is the adaptive one of AdaSSP (Wang 2018): none where the rows say enough. Estimates with standard errors
take none. It is a Newton step from zero, where the gradient is -c~ and the Hessian M~ everywhere: the table comes from
`sottovoce.sums.inference`, and there is no remainder. Privacy: docs/proofs/inference.md.
"""

import math
from dataclasses import dataclass, field
from typing import final

import numpy as np

from sottovoce.algorithms.analysis import Analysis
from sottovoce.arrays import Floats
from sottovoce.errors import expect
from sottovoce.oracle.plain import Oracle
from sottovoce.oracle.row_sums import whole
from sottovoce.problem.losses import Huber, Loss
from sottovoce.sums.descent import Fit
from sottovoce.sums.inference import Evidence, symmetric_noise
from sottovoce.sums.program import Ask, Known, Line, Program
from sottovoce.sums.questions import CrossMoments

WIDEST = 510  # features: with the label as one more, the message is as long as those of masked sums may be
DRAWS, SEED = 400, 0  # of the bootstrap that says how sure R^2 is
SURE = 3.0  # times the noise in them, from which on residuals say anything of R^2


@final
@dataclass(frozen=True, kw_only=True)
class LeastSquares(Analysis):
    """One exchange. Labels lie in [-1, 1]; what lies outside is cut.

    Args:
        loss: for scores alone: squares of residuals, as long as predictions stay within the bounds of labels.
    """

    rounds: int = 1
    loss: Loss = field(default_factory=lambda: Huber(2.0))

    def __post_init__(self) -> None:
        super().__post_init__()
        expect(self.rounds == 1, "rounds=1: least squares take one exchange", rounds=self.rounds)
        expect(self.max_grad_norm is None, "no max_grad_norm: no gradient is taken", max_grad_norm=self.max_grad_norm)

    def check(self, site: Oracle) -> None:
        """Refuse what cannot be kept, before a row is touched."""
        super().check(site)
        expect(site.sites.d <= WIDEST, f"at most {WIDEST} features for least squares", features=site.sites.d)

    def schedule(self, features: int) -> tuple[Line, ...]:
        """One sum, with the whole budget."""
        return (Line("second moments", (features + 1) * (features + 2) // 2, 0, 1.0),)

    def program(self, known: Known) -> Program[Fit]:
        """Open the second moments, then solve for the model, with what standard errors need."""
        p = known.features
        zero = np.zeros((p, known.runs))
        heard = yield Ask(CrossMoments(), Fit(zero, zero))
        noise, matrices = float(heard.mean_std.item()), whole(heard.mean.T)
        values, vectors = np.linalg.eigh(matrices[:, :p, :p])
        penalty = self.lam * self.regulariser.l2
        edge = noise * math.sqrt(2 * p)
        tiny = np.finfo(np.float64).eps * max(float(np.abs(values).max()), np.finfo(np.float64).tiny)
        ridge = np.maximum(0.0, edge - values[:, :1])
        turned = np.einsum("rji,rj->ri", vectors, matrices[:, :p, p]) / np.maximum(values + ridge + penalty, tiny)
        w = np.einsum("rij,rj->ri", vectors, turned).T
        freedom = heard.rows / max(heard.rows - p, 1)  # p coefficients were chosen to make the residuals small
        # Zero is the point: there the gradient is -c~, whose numbers are off-diagonals, with noise s / sqrt(2).
        evidence = tuple(
            Evidence(
                np.zeros(p), -matrix[:p, p], matrix[:p, :p], noise / math.sqrt(2), noise, heard.rows,
                dispersion=freedom * max(_residuals(matrix, noise)), squares=float(matrix[p, p]),
                together=known.changed,
            )
            for matrix in matrices
        )  # fmt: skip
        return Fit(w, w, evidence)

    @property
    def infers(self) -> bool:
        """True: one sum says both."""
        return True

    @property
    def released(self) -> str:
        """What everyone sees, in words."""
        return (
            "the noisy sum over all sites of the second moments of their rows and labels together, once; single sites' "
            "messages are masked"
        )


def _residuals(matrix: Floats, noise: float) -> tuple[float, float]:
    """The mean square of the residuals of the best model, of a whole S~ / N, and the standard deviation of the noise in
    it. The larger of the two estimates the variance of residuals.
    """
    p = len(matrix) - 1
    values, vectors = np.linalg.eigh(matrix[:p, :p])
    values = np.maximum(values, max(noise * math.sqrt(2 * p) / 2, 1e-12 * float(np.abs(values).max())))
    along = vectors.T @ matrix[:p, p] / values
    w = vectors @ along
    size = 1 + float(w @ w)
    left = float(matrix[p, p] - 2 * w @ matrix[:p, p] + w @ matrix[:p, :p] @ w)
    # The best of noisy models looks too good, by this much to first order.
    least = max(noise * size, float(np.finfo(np.float64).tiny))
    return left + noise**2 / 2 * size * float(np.sum(1 / values)), least


def explained(e: Evidence, constant: float) -> tuple[float, float]:
    """R^2 and its standard error, of the noise and of drawing rows; the error is infinite where the residuals drown in
    noise. `constant` is the last feature of every row; 0 where there is none, and R^2 is then uncentred: it
    compares with a prediction of 0.
    """
    p = len(e.point)
    matrix = np.zeros((p + 1, p + 1))
    matrix[:p, :p], matrix[:p, p], matrix[p, :p], matrix[p, p] = e.hessian, -e.gradient, -e.gradient, e.squares or 0.0

    def share(of: Floats) -> float:
        mean = of[p - 1, p] / constant if constant else 0.0
        total = max(float(of[p, p] - mean**2), np.finfo(np.float64).tiny)
        return 1 - min(max(_residuals(of, e.hessian_noise)) / total, 1.0)

    found, (left, least) = share(matrix), _residuals(matrix, e.hessian_noise)
    if left < SURE * least:
        return found, math.inf
    again = [share(matrix + one) for one in symmetric_noise(np.random.default_rng(SEED), DRAWS, p + 1, e.hessian_noise)]
    return found, math.sqrt(float(np.var(again)) + 4 * found * (1 - found) ** 2 * e.together / e.rows)
