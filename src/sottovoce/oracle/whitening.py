"""Coordinates in which rows are about as long in every direction, and how much longer rows count: t = A a, and c.

A row a is t = A a in these coordinates, with A symmetric. A row of weight v counts min(v, c^2 / |t|^2) times: its part
of a gradient is then no longer than that of a row of length c, whatever its label is. The weight is public but for the
row's own features. Proof: docs/proofs/masked.md, Lemma 7.

A model w is u in these coordinates, with w = A u, so that <a, w> = <t, u>.
"""

from dataclasses import dataclass
from functools import cached_property
from hashlib import blake2b
from typing import final

import numpy as np
import scipy.sparse as sp

from sottovoce.arrays import Floats
from sottovoce.oracle.row_sums import summation_error
from sottovoce.problem.rows import Matrix, Rows

_NUMBERS = 1 << 18  # of coordinates that are computed at a time, so that they stay in cache
_TINY = np.finfo(np.float64).tiny


@final
@dataclass(frozen=True, eq=False)
class Whitening:
    """Coordinates of rows and models, of some runs. Public numbers.

    Args:
        A: symmetric matrices (p, p, runs), or for wide tables their diagonals (p, runs).
        c: the length beyond which rows count less, (1, runs). Its sign does not matter: a proposal may have any.
    """

    A: Floats
    c: Floats

    @staticmethod
    def size(p: int, full: bool) -> int:
        """Length of `numbers`."""
        return (p * (p + 1) // 2 if full else p) + 1

    @property
    def numbers(self) -> Floats:
        """The upper half of A, or its diagonal, and c: (numbers, runs)."""
        held = self.A if self.A.ndim == 2 else self.A[np.triu_indices(len(self.A))]
        return np.concatenate((held, self.c))

    def of(self, numbers: Floats) -> "Whitening":
        """The whitening that has these `numbers`, as many as its own, bit by bit."""
        if self.A.ndim == 2:
            return Whitening(numbers[:-1], numbers[-1:])
        i, j = np.triu_indices(len(self.A))
        A = np.empty_like(self.A)
        A[i, j] = A[j, i] = numbers[:-1]
        return Whitening(A, numbers[-1:])

    def of_run(self, run: int) -> "Whitening":
        """That of one run."""
        return Whitening(self.A[..., run : run + 1], self.c[:, run : run + 1])

    def times(self, v: Floats) -> Floats:
        """A v, for every output: (d, runs) -> (d, runs)."""
        return self._applied(self.A, v)

    def divide(self, v: Floats) -> Floats:
        """A^-1 v, for every output: (d, runs) -> (d, runs)."""
        return self._applied(self._inverse, v)

    @staticmethod
    def _applied(A: Floats, v: Floats) -> Floats:
        parts = v.reshape(len(A), -1, v.shape[1])
        found = A[:, None, :] * parts if A.ndim == 2 else np.einsum("ijr,jor->ior", A, parts, optimize=True)
        # In one order in memory, as after a journal was read: another order would round differently.
        return np.ascontiguousarray(found).reshape(v.shape)

    @cached_property
    def _inverse(self) -> Floats:
        if self.A.ndim == 2:
            return 1 / self.A
        return np.ascontiguousarray(np.linalg.inv(self.A.transpose(2, 0, 1)).transpose(1, 2, 0))

    @cached_property
    def norm(self) -> Floats:
        """The spectral norm of A: (1, runs)."""
        sizes = self.A.T if self.A.ndim == 2 else np.linalg.eigvalsh(self.A.transpose(2, 0, 1))
        found: Floats = np.abs(sizes).max(axis=1)[None] * (1 + 1e-9)  # a little more, since eigenvalues are rounded
        return found

    @property
    def length(self) -> Floats:
        """The size of c: (1, runs). No row counts as longer than this."""
        return np.abs(self.c)

    def least(self, norm: float) -> Floats:
        """How often a row of weight 1 counts at least, if it is no longer than `norm`: (1, runs)."""
        return np.minimum(1.0, (self.length / (norm * self.norm)) ** 2)

    @cached_property
    def rounding(self) -> Floats:
        """Relative error of a row's coordinates, its weight or a prediction, for a row of norm 1: (1, runs)."""
        p = len(self.A)
        found: Floats = (
            8 * p * self.norm * float(summation_error(np.asarray(float(p)))) / np.maximum(self.length, _TINY)
        )
        return found

    @cached_property
    def digest(self) -> bytes:
        """Of all its bits."""
        return blake2b(self.numbers.tobytes(), digest_size=16).digest()

    def counted(self, rows: Rows, weights: Floats) -> Floats:
        """How often each row counts in each run, at most its weight (rows, 1): (rows, runs)."""
        found = np.empty((len(weights), self.c.shape[1]))
        at_once = max(_NUMBERS // self.A[0].size, 1)  # rows
        for first in range(0, len(weights), at_once):
            some = slice(first, min(first + at_once, len(weights)))
            block = rows.block(some.start, some.stop)
            with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
                shares = self.c**2 / self._squares(block)
            # Not a number only if A is out of all bounds: such a row does not count.
            found[some] = np.minimum(weights[some], np.nan_to_num(shares, nan=0.0, posinf=np.inf))
        return found

    def _squares(self, block: Matrix) -> Floats:
        """|A a|^2 of these rows: (rows, runs)."""
        if self.A.ndim == 2:
            squares: Floats = (block.multiply(block) if sp.issparse(block) else block**2) @ self.A**2
            return squares
        p, _, runs = self.A.shape
        turned = np.asarray(block @ self.A.reshape(p, p * runs)).reshape(-1, p, runs)
        found: Floats = np.einsum("jdr,jdr->jr", turned, turned)
        return found
