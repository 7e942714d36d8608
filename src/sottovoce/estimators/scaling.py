"""Rows scaled to a norm of at most 1, as the algorithms need them, and models turned back into the caller's units.

    a = (x / max(||x||, data_norm), c) / sqrt(1 + c^2)      c = 1/2 with an intercept, 0 without

A row longer than data_norm is scaled down to it. The constant that carries the intercept is a feature like any
other: it counts in the norm, and so in the noise. A small c makes the noise of the intercept large, a large c that
of all other coefficients; 1/2 is near the best of what we tried. Dividing by public constants loses nothing, and
planner and steps are made for rows of norm 1.

    <w, a> = <coef, x> + intercept        for rows no longer than data_norm
"""

from dataclasses import dataclass
from math import sqrt
from typing import Any, NamedTuple, final

import numpy as np
import scipy.sparse as sp

from sottovoce.arrays import Floats
from sottovoce.errors import expect
from sottovoce.problem.rows import Matrix

CONSTANT = 0.5  # c
SMALLEST, LARGEST = 1e-150, 1e150  # of data_norm: squares neither vanish nor overflow


class Linear(NamedTuple):
    """z = x coef + intercept: (d, outputs) and (outputs,)."""

    coef: Floats
    intercept: Floats


def row_norms(X: Any) -> Floats:
    """Euclidean norm of each row, (rows,); infinite where the squares overflow."""
    with np.errstate(over="ignore"):
        squares = np.einsum("ij,ij->i", X, X) if _is_dense(X) else np.asarray(X.power(2).sum(axis=1)).reshape(-1)
    norms: Floats = np.sqrt(squares)
    return norms


@final
@dataclass(frozen=True)
class Scale:
    """The public bound on rows, and the value of the constant feature: `CONSTANT`, or 0 for none.

    Formal guarantees: every row of `bounded` depends on no other row, and its norm is at most 1, up to rounding, which
    `Sites` takes care of.
    """

    data_norm: float
    constant: float

    def __post_init__(self) -> None:
        fine = SMALLEST <= self.data_norm <= LARGEST
        expect(fine, f"data_norm between {SMALLEST:g} and {LARGEST:g}", data_norm=self.data_norm)

    @property
    def longest(self) -> float:
        """The norm of the longest row after division by data_norm, the constant counted in."""
        return sqrt(1 + self.constant**2)

    def bounded(self, X: Any) -> Matrix:
        """Rows of norm at most 1, in CSR form if they were sparse. A row whose norm overflows becomes zero."""
        factors = 1 / np.maximum(row_norms(X), self.data_norm) / self.longest
        constant = np.full((len(factors), 1), self.constant / self.longest)
        if _is_dense(X):
            rows: Floats = X * factors[:, None]
            return np.hstack([rows, constant]) if self.constant else rows
        scaled: Any = sp.csr_array(sp.diags_array(factors) @ sp.csr_array(X))
        return sp.csr_array(sp.hstack([scaled, sp.csr_array(constant)])) if self.constant else scaled

    def restored(self, weights: Floats) -> Linear:
        """The model of bounded rows, (d, outputs), as one of the caller's rows."""
        scaled = weights / self.longest
        if not self.constant:
            return Linear(scaled / self.data_norm, np.zeros(weights.shape[1]))
        return Linear(scaled[:-1] / self.data_norm, scaled[-1] * self.constant)


def _is_dense(X: Any) -> bool:
    # A function of its own, since type checkers would take X for a sparse matrix after `issparse`.
    return not sp.issparse(X)
