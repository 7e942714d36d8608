"""From a noisy sum to tables that agree: every row is in one group, and at one level of each column.

With G groups and column c of L_c levels, noise of standard deviation s_c in each cell T_c[g, l], and N the public
number of rows:

    r_c[g]   = sum_l T_c[g, l]                           the size of group g, as column c has it: noise L_c s_c^2
    n[g]     = mean of r_c[g], weighted by 1 / (L_c s_c^2), plus the same for all groups so that they add up to N
    T_c[g,l] + (n[g] - r_c[g]) / L_c                     the nearest tables with these sizes

All of this is linear, so the noise of the result is normal with a known covariance, and nothing is biased: intervals
come from these. Only then are counts cut at 0 and rounded, for people to read (`whole_counts`). Proof:
docs/proofs/tables.md.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

import numpy as np

from sottovoce.arrays import Floats, Ints
from sottovoce.tally.intervals import Interval, Z, nearest_counts, share


@final
@dataclass(frozen=True, eq=False)
class View:
    """The cells of one column among the rows of one group, or among all rows.

    Args:
        cells: noisy counts, which add up to `size`, (L,).
        size: noisy number of rows; exact where `size_noise` is 0.
        cell_noise: variance of the noise in a cell, before tables were made to agree.
        size_noise: variance of the noise in `size`.
        together: by how much rows that belong together widen what drawing rows leaves open: 1, or a person's rows.
    """

    cells: Floats
    size: float
    cell_noise: float
    size_noise: float
    together: int = 1

    def noise(self, a: Floats, b: Floats) -> float:
        """Covariance of the weighted sums <a, cells> and <b, cells> that is due to the noise."""
        count, sums = len(self.cells), float(a.sum()) * float(b.sum())
        return float(self.cell_noise * (float(a @ b) - sums / count) + self.size_noise * sums / count**2)

    def share(self, level: int) -> Interval:
        """The share of the group that is at this level."""
        part, whole = (np.arange(len(self.cells)) == level).astype(np.float64), np.ones(len(self.cells))
        noise = self.noise(part, part), self.noise(part, whole), self.noise(whole, whole)
        return share(float(self.cells[level]), self.size, noise, self.together)

    def expected(self, level: int, rows: float) -> Interval:
        """How many of so many rows in all are in the group and at this level."""
        return self.counted((np.arange(len(self.cells)) == level).astype(np.float64), rows)

    def counted(self, part: Floats, rows: float) -> Interval:
        """How many of so many rows in all are in these cells, 0 or 1 each, of the group."""
        return share(float(part @ self.cells), rows, (self.noise(part, part), 0.0, 0.0), self.together).times(rows)

    @property
    def clear(self) -> bool:
        """True if the number of rows is clear of the noise."""
        return self.size > 0 and bool(self.size**2 > Z**2 * self.size_noise)


@final
@dataclass(frozen=True, eq=False)
class Consistent:
    """Tables of several columns that agree with each other.

    Args:
        tables: noisy counts by column, (G, L_c) each.
        noise: variance of the noise in each cell of a column's table, as released.
        sizes: of the groups, which add up to the number of rows, (G,).
        size_noise: variance of the noise in each size before they were made to add up.
        rows: N.
        together: of `View`.
    """

    tables: tuple[Floats, ...]
    noise: tuple[float, ...]
    sizes: Floats
    size_noise: float
    rows: int
    together: int

    @classmethod
    def of(cls, tables: Sequence[Floats], noise: Sequence[float], rows: int, together: int = 1) -> "Consistent":
        """Make noisy tables agree."""
        groups = len(tables[0])
        levels = [table.shape[1] for table in tables]
        by_column = np.stack([table.sum(axis=1) for table in tables])
        # Without noise all columns agree already, and any weights will do.
        weights = np.array([1 / (many * (own or 1.0)) for many, own in zip(levels, noise, strict=True)])
        sizes = weights @ by_column / weights.sum()
        size_noise = 0.0 if not any(noise) else float(1 / weights.sum())
        sizes = sizes - (sizes.sum() - rows) / groups
        agreed = tuple(
            table + ((sizes - own) / many)[:, None] for table, own, many in zip(tables, by_column, levels, strict=True)
        )
        return cls(agreed, tuple(noise), sizes, size_noise, rows, together)

    @property
    def groups(self) -> int:
        """Number of groups."""
        return len(self.sizes)

    def views(self, column: int) -> list[View]:
        """All rows, and then, if there are several groups, each of these."""
        table, own = self.tables[column], self.noise[column]
        everyone = View(table.sum(axis=0), float(self.rows), self.groups * own, 0.0, self.together)
        if self.groups == 1:
            return [everyone]
        left = self.size_noise * (1 - 1 / self.groups)
        return [everyone, *(View(table[g], float(self.sizes[g]), own, left, self.together)
                            for g in range(self.groups))]  # fmt: skip

    def between(self, column: int) -> float:
        """Covariance of the noise in a cell of one group and one of another. It is the same for all pairs of cells, so
        that of <a, cells> and <b, cells> is this times sum a sum b.
        """
        levels = float(self.tables[column].shape[1])
        return -self.size_noise / (self.groups * levels * levels)

    def size_intervals(self) -> list[Interval]:
        """How many rows groups have, in the mean of drawings of as many rows from the same population."""
        left = self.size_noise * (1 - 1 / self.groups)
        return [share(float(one), float(self.rows), (left, 0.0, 0.0), self.together).times(float(self.rows))
                for one in self.sizes]  # fmt: skip

    def whole_sizes(self) -> Ints:
        """Sizes of the groups as whole numbers that are not negative and add up to the number of rows."""
        return whole_counts(self.sizes, self.rows)

    def whole_tables(self) -> list[Ints]:
        """The tables as whole numbers that are not negative: levels add up to `whole_sizes`, groups to the rows."""
        sizes = self.whole_sizes().tolist()
        return [
            np.stack([whole_counts(own, size) for own, size in zip(table, sizes, strict=True)])
            for table in self.tables
        ]  # fmt: skip


def whole_counts(noisy: Floats, total: int) -> Ints:
    """The counts >= 0 with this total that are nearest to the noisy ones, rounded so that they still add up."""
    near = nearest_counts(noisy, float(total))
    counts: Ints = np.floor(near + 1e-9).astype(np.int64)
    short = total - int(counts.sum())
    # The largest remainders are rounded up; of equal ones, the first.
    counts[np.argsort(counts - near, kind="stable")[:short]] += 1
    return counts


def around(value: float | None, found: Interval) -> Interval:
    """The interval with another estimate, widened where that lies outside."""
    if value is None:
        return Interval(None, found.low, found.high)
    return Interval(value, min(value, found.low), max(value, found.high))
