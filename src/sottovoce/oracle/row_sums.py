"""Sums over all rows of a network, without a loss: by blocks, of held-out rows, of rows and second moments; and what
moves them.

Sums are over the rows held here and, with other processes, over theirs too. They are computed for each block of nodes
and added up in order, so that a sum's bits do not depend on the number of processes.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import sqrt
from typing import Any, NamedTuple, Self

import numpy as np

from sottovoce.arrays import Array, Floats, Ints
from sottovoce.errors import PrivacyError
from sottovoce.privacy.accounting.gaussian import UNIT
from sottovoce.problem.share import block_starts
from sottovoce.problem.sites import NORM_SLACK, Sites


class Others(NamedTuple):
    """The processes that hold the other nodes of a network, as an oracle of some of its nodes sees them."""

    network: Any  # the public numbers of all nodes, without any rows: of the class of the one that sees them
    first: int  # the number of the first node held here
    total: Callable[[Array], Array]  # the sum over the first axis of all processes' arrays, in the order of nodes


@dataclass(frozen=True, eq=False)
class RowSums:
    """The private rows of a stack of nodes, for sums over all rows of the network.

    Args:
        sites: the rows.
        n: the number of nodes in the whole network, of which those held here may be a part.
        others: the processes that hold the other nodes, where a simulation is spread over several. Sums over all rows
            then include theirs. None: there are none, as at a real site.
        order: a function that gives the numbers of all rows, each node's own in a secret order, the same in every call.
            `apart` holds rows out by it. None: `apart` is refused.
    """

    sites: Sites
    n: int
    others: Others | None = field(default=None, kw_only=True)
    order: Callable[[], Ints] | None = field(default=None, kw_only=True)

    @property
    def network(self) -> "RowSums":
        """The public numbers of all nodes: those held here, and those that other processes hold. What depends on all
        nodes is computed from these, so that it is the same in every process.
        """
        return self if self.others is None else self.others.network

    @property
    def sites_per_unit(self) -> int:
        """The most nodes of the network at which rows are replaced together."""
        return min(self.sites.unit.sites, self.n)

    def changed_in_sum(self, rows: int) -> int:
        """The most of `rows` rows over all nodes that are replaced together."""
        return min(self.sites.unit.changed * self.sites_per_unit, rows)

    @property
    def fewest_rows(self) -> int:
        """The smallest m_i of the network, where sampling amplifies privacy least."""
        return int(self.network.sites.counts.min())

    def apart(self, every: int) -> tuple[Self, Self]:
        """The rows in two parts: all but every `every`-th of each site in the secret order, and the others
        (`Sites.apart`). Refused without an order.
        """
        if every not in self._apart:
            if self.order is None:
                raise PrivacyError(
                    f"Expected a secret order of the rows to hold one of {every} out, got none. Give "
                    "order=lambda: Noise.order(offsets): by their places in a file, one row could move all behind it."
                )
            learnt, held = self.sites.apart(every, self.order())
            self._apart[every] = replace(self, sites=learnt), replace(self, sites=held)
        return self._apart[every]

    @cached_property
    def _apart(self) -> dict[int, tuple[Self, Self]]:
        """The results of `apart`, so that repeated calls give the same objects with what they have cached."""
        return {}

    @cached_property
    def _block_rows(self) -> Ints:
        """The first row of each block of nodes, and the number of rows at the end: (blocks + 1,)."""
        found: Ints = self.sites.rows.offsets[block_starts(self.sites.n, self.network.sites.n)]
        return found

    @property
    def _blocks_as_sites(self) -> Iterator[Sites]:
        """The rows of each block, as those of one site."""
        blocks = self.sites.regrouped(self._block_rows)
        return (blocks.part(i, i + 1) for i in range(blocks.n))

    def _total(self, parts: Array) -> Array:
        """The sum over all blocks, also those of other processes: (blocks, ...) -> (...)."""
        total: Array = parts.sum(axis=0) if self.others is None else self.others.total(parts)
        return total

    def summed(self, of_rows: Callable[[Sites], Floats]) -> Floats:
        """The sum over all blocks of a function of a block's rows, which are passed as those of one site."""
        return self._total(np.stack([of_rows(part) for part in self._blocks_as_sites])).astype(np.float64)

    @cached_property
    def _total_weight(self) -> float:
        """The sum of all rows' weights; without weights, the number of rows."""
        if self.sites.factors.weights is None:
            return float(self.network.sites.counts.sum())
        return float(self.summed(lambda block: block.factors.weighed(np.ones(len(block.labels))).sum(keepdims=True))[0])

    def totals(self) -> Floats:
        """The sum of all rows, whatever they weigh, with their negative numbers as 0: (d,)."""
        return self.summed(lambda block: block.rows.totals())

    def totals_sensitivity(self, rows: int) -> float:
        """The l2 sensitivity of `totals` to one row replaced: sqrt(2) B, since two rows without negative numbers are at
        a right angle or less; times the rows of a person if people are protected, plus the rounding of a sum of `rows`
        rows.
        """
        bound, changed = self.sites.data_norm * (1 + NORM_SLACK), self.changed_in_sum(rows)
        return bound * (sqrt(2.0) * changed + 2 * rows * float(summation_error(np.asarray(float(rows)))))

    def moments(self, full: bool) -> Floats:
        """M = sum of u a a^T over all rows: its `half` if `full`, else only its diagonal."""
        if full:
            return self.summed(lambda block: half(block.rows.moments(block.factors.weights)))
        return self.summed(lambda block: block.rows.squares(block.factors.weights))

    def moments_sensitivity(self, rows: int) -> float:
        """The l2 sensitivity of `moments` to one row replaced: sqrt(2) B^2, times the rows of a person if people are
        protected, plus the rounding of a sum of `rows` rows.
        """
        square, changed = (self.sites.data_norm * (1 + NORM_SLACK)) ** 2, self.changed_in_sum(rows)
        return square * (sqrt(2.0) * changed + 2 * rows * float(summation_error(np.asarray(float(rows)))))


def half(matrix: Floats) -> Floats:
    """The upper half of a symmetric matrix, row by row, off-diagonals times sqrt(2), which preserves distances."""
    i, j = np.triu_indices(len(matrix))
    return matrix[i, j] * np.where(i == j, 1.0, sqrt(2.0))


def whole(halves: Array) -> Floats:
    """The symmetric matrices of these halves, the inverse of `half`: (runs, numbers) -> (runs, p, p)."""
    p = round((sqrt(1 + 8 * halves.shape[1]) - 1) / 2)
    i, j = np.triu_indices(p)
    matrices = np.zeros((len(halves), p, p))
    matrices[:, i, j] = matrices[:, j, i] = np.where(i == j, 1.0, sqrt(0.5)) * halves
    return matrices


def summation_error(terms: Floats) -> Floats:
    """gamma, the bound on the error of a sum of that many products in double precision, in any order, relative to the
    sum of their absolute values (Higham 2002, Section 4.2; with eight more roundings for each term).
    """
    return (terms + 8) * UNIT / (1 - (terms + 8) * UNIT)
