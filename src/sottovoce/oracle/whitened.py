"""The oracle of a stack of nodes in whitened coordinates: models are u with w = A u, and long rows count less.

    L_i(u) = (n omega_i / m_i) sum_j f_ij loss(<w, a_ij>, b_ij) + lam phi(w),    f = min(1, B^2 / |A a|^2)

A is scaled so that a row of length B in these coordinates counts once. Then a record's gradient is no longer than c1,
as in the coordinates of the rows, and every public number of the oracle stays what it was. On any rows.
Proof: docs/proofs/ipadmm.md, Lemma 4.
"""

from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import Self, final

import numpy as np

from sottovoce.arrays import Array, Floats
from sottovoce.errors import PrivacyError
from sottovoce.oracle.kernels.spread import KNOTS, PLAIN, Spread
from sottovoce.oracle.kernels.turn import rows_of, turned
from sottovoce.oracle.plain import Batch, Oracle
from sottovoce.oracle.row_sums import summation_error
from sottovoce.oracle.whitening import Whitening
from sottovoce.problem.sites import NORM_SLACK


@final
@dataclass(frozen=True, eq=False)
class WhitenedOracle(Oracle, vector_predictions=True):
    """Rows in the whitened coordinates of each run. Takes no batches.

    Args:
        whitening: the coordinates of each run, with c = B. Public.
        stretch: a bound on |A|, the same for all runs. A larger A is refused.
    """

    whitening: Whitening = field(kw_only=True)
    stretch: float = field(kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        self._expect_unclipped()
        longest = float(np.max(self.whitening.norm))
        if not longest <= self.stretch * (1 + 1e-6):
            raise PrivacyError(f"Expected coordinates with |A| <= {self.stretch:g}, got |A|={longest:g}.")
        if not np.all(self.whitening.length == self.sites.data_norm):
            raise PrivacyError(
                f"Expected c={self.sites.data_norm:g}, the bound on rows, got c={self.whitening.length}."
            )

    @classmethod
    def of(cls, site: Oracle, whitening: Whitening, stretch: float) -> Self:
        """The rows of an oracle in these coordinates."""
        given = {each.name: getattr(site, each.name) for each in fields(Oracle)}
        if site.others is not None:  # what depends on all nodes is to be the same with and without other processes
            network = cls.of(site.others.network, whitening, stretch)
            given["others"] = site.others._replace(network=network)
        return cls(**given, whitening=whitening, stretch=stretch)

    @cached_property
    def _rows_of_A(self) -> Floats:
        """A of each run, as kernels read it."""
        return rows_of(self.whitening.A)

    @cached_property
    def _shares(self) -> Floats:
        """f n omega_i / m_i, how much each row counts in L_i in each run: (rows, runs)."""
        each = np.repeat(1.0 / self.divisor[:, 0, 0], self.sites.counts)[:, None]
        # Block by block, so that the bits do not depend on the number of processes.
        blocks = (part.rows for part in self._blocks_as_sites)
        return np.concatenate([self.whitening.counted(rows, np.ones((rows.offsets[-1], 1))) for rows in blocks]) * each

    def models(self, u: Array) -> Array:
        """w = A u: (nodes, d, runs) -> (nodes, d, runs)."""
        return turned(self._rows_of_A, u)

    def gradient(self, w: Array, weights: Array | None = None) -> Array:
        """The gradient of L_i at the model `w` in whitened coordinates, (nodes, d, runs); no batches are taken.

        Formal guarantees: no record's part is longer than that of a row of length B.
        """
        assert weights is None  # whoever makes this oracle refuses batches
        at = self.models(w)
        summed = self.gradients(at, self._shares.astype(w.dtype, copy=False))
        return self.models(summed + self.lam * self.regulariser.gradient(at))

    @property
    def _rounding(self) -> float:
        """Relative error of a row's coordinates, of how often it counts and of a prediction, as in
        `Whitening.rounding`.
        """
        p = float(self.sites.d)
        return 8 * p * self.stretch * float(summation_error(np.asarray(p)))

    def sensitivity(self, batch: Batch | None = None) -> Floats:
        """As of any oracle, with the rounding of A and of how often a row counts: (nodes, 1, 1)."""
        assert batch is None
        exact = self.changed * (1 + NORM_SLACK) * (1 + self._rounding)
        return 2 * self.c1 / self.divisor * (exact + self.m * (self.stretch * summation_error(self.m) + self._rounding))

    def spread(self, tight: bool, batch: Batch | None = None) -> Spread:
        """As of any oracle, for rows of length B in these coordinates."""
        assert batch is None
        if not tight:
            return PLAIN
        most = self.network.m.max()
        return self._spread(
            float(most * (self.stretch * summation_error(most) + self._rounding)) + KNOTS * self._rounding
        )
