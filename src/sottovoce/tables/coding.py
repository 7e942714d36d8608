"""Coded rows: each row of a file as a few numbers, none of them negative, whose sum over all rows is a table.

A row has one 1 among the levels of each column, at its own level; missing is one. A number falls into a bin, and two
small numbers say where in the bin it lies, so that means and standard deviations follow exactly. With x the number as a
share of its bounds, k the lower end of its bin and h the widest bin:

    1  at the bin,    alpha (x - k) / h,    alpha (x^2 - k^2) / (2 h)        each of the last two within [0, alpha]

So the numbers of a column have a norm of at most 1, or sqrt(1 + 2 alpha^2). They are divided by that, and multiplied by
the square root of the column's part of the budget, times the number of columns f: a row's norm is at most sqrt(f). With
groups, all these lie in the part of the row's group, and the norm is the same. Proof: docs/proofs/tables.md.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise, product
from math import prod, sqrt
from typing import NamedTuple, final

import numpy as np
from scipy import sparse

from sottovoce.arrays import Floats, Ints
from sottovoce.errors import expect
from sottovoce.files.schema import Column
from sottovoce.files.schema.columns import Ranged
from sottovoce.problem.dataset import Dataset

LEAST_ALPHA = 0.125  # the weight of a number's place in its bin, where bins are narrow
MISSING = "<missing>"
MOST_CELLS = 2**20  # of a table
FEWEST_BINS, MOST_BINS = 8, 64


class Entries(NamedTuple):
    """The numbers of some rows that are not 0, of one part of the code: (rows, entries) each."""

    places: Ints
    values: Floats


@dataclass(frozen=True)
class Part(ABC):
    """A part of a row's code, from one column or several."""

    @property
    @abstractmethod
    def columns(self) -> tuple[Column, ...]:
        """The columns that are read."""

    @property
    @abstractmethod
    def names(self) -> tuple[str, ...]:
        """Names of the numbers."""

    @property
    @abstractmethod
    def norm(self) -> float:
        """The bound on the norm of a row's numbers."""

    @property
    def width(self) -> int:
        """Number of numbers."""
        return len(self.names)

    @abstractmethod
    def entries(self, codes: Floats) -> Entries:
        """The numbers of rows with these codes of the columns, (rows, columns)."""


@final
@dataclass(frozen=True)
class Levels(Part):
    """One 1 at a row's level or, of several columns, at its combination of levels.

    Args:
        of: the columns, `Column.bare`, all of which have levels.
    """

    of: tuple[Column, ...]

    @property
    def columns(self) -> tuple[Column, ...]:
        return self.of

    @property
    def norm(self) -> float:
        return 1.0

    @property
    def width(self) -> int:
        return prod(self.sizes)

    @property
    def sizes(self) -> tuple[int, ...]:
        """Number of levels of each column."""
        return tuple(len(levels_of(column)) for column in self.of)

    @cached_property
    def combined(self) -> tuple[tuple[str, ...], ...]:
        """The combinations of levels, in order."""
        return tuple(product(*map(levels_of, self.of)))

    @cached_property
    def names(self) -> tuple[str, ...]:
        named = [[f"{column.name}={level}" for level in levels_of(column)] for column in self.of]
        return tuple(", ".join(one) for one in product(*named))

    def entries(self, codes: Floats) -> Entries:
        place: Ints = np.zeros(len(codes), dtype=np.int64)
        for size, own in zip(self.sizes, codes.T, strict=True):
            place = place * size + np.where(np.isnan(own), size - 1, own).astype(np.int64)
        return Entries(place[:, None], np.ones((len(codes), 1)))


@final
@dataclass(frozen=True)
class Number(Part):
    """A number: its bin, and its place in it.

    Args:
        column: `Ranged.measured` and `Column.bare`: its codes are shares of its bounds.
        edges: where the bins begin and end, as shares: from 0 to 1.
    """

    column: Ranged
    edges: tuple[float, ...]

    @property
    def columns(self) -> tuple[Column, ...]:
        return (self.column,)

    @property
    def norm(self) -> float:
        return sqrt(1 + 2 * self.alpha**2)

    @property
    def alpha(self) -> float:
        """The weight of the place in a bin: the wider bins are, the more it says."""
        return min(max(2 * self.widest, LEAST_ALPHA), 1.0)

    @property
    def bins(self) -> int:
        """Number of bins."""
        return len(self.edges) - 1

    @property
    def cells(self) -> int:
        """Number of numbers one of which is 1 in each row: the bins, and one for missing values if there are any."""
        return self.bins + has_missing(self.column)

    @property
    def widest(self) -> float:
        """h, of the widest bin, as a share."""
        return float(np.diff(self.edges).max())

    @cached_property
    def levels(self) -> tuple[str, ...]:
        """What the cells stand for."""
        bins = tuple(f"{low:g} to {high:g}" for low, high in pairwise(self.values.tolist()))
        return (*bins, MISSING) if has_missing(self.column) else bins

    @cached_property
    def names(self) -> tuple[str, ...]:
        return tuple(f"{self.column.name}={level}" for level in (*self.levels, "place", "squared place"))

    @property
    def values(self) -> Floats:
        """The edges in the unit of the column."""
        low, high = self.column.bounds
        values: Floats = low + np.array(self.edges) * (high - low)
        return values

    def entries(self, codes: Floats) -> Entries:
        x, edges = codes[:, 0], np.array(self.edges)
        there = ~np.isnan(x)
        share = np.where(there, x, 0.0)
        which = np.minimum(np.searchsorted(edges, share, side="right") - 1, self.bins - 1)
        low = edges[which]
        first = np.where(there, which, self.bins)
        inside = self.alpha * there * np.clip((share - low) / self.widest, 0.0, 1.0)
        squared = self.alpha * there * np.clip((share - low) * (share + low) / (2 * self.widest), 0.0, 1.0)
        ones, last = np.ones(len(x)), np.full(len(x), self.cells)
        return Entries(np.stack([first, last, last + 1], axis=1), np.stack([ones, inside, squared], axis=1))


def has_missing(column: Column) -> bool:
    """True if a value may be missing."""
    return column.missing != "refuse"


def levels_of(column: Column) -> tuple[str, ...]:
    """The levels of a column, "missing" last if it may be."""
    return (*column.level_words, MISSING) if has_missing(column) else column.level_words


def edges_of(column: Ranged, bins: int) -> tuple[float, ...]:
    """Where bins begin and end, as shares: at the column's own edges, and between them so that none is wider than one
    of `bins` equal ones.
    """
    low, high = column.bounds
    own = [0.0, *((edge - low) / (high - low) for edge in column.edges or () if edge < high), 1.0]
    pieces = [max(1, round((b - a) * bins + 0.49)) for a, b in pairwise(own)]
    cut = [a + (b - a) * i / many for (a, b), many in zip(pairwise(own), pieces, strict=True) for i in range(many)]
    return (*cut, 1.0)


def bins_for(rows: float, noise: float) -> int:
    """How many equal bins: so many that the noise in the share of rows up to the median is about one bin's share.

    Args:
        rows: of a group, if all are alike.
        noise: standard deviation of the noise in a cell.
    """
    most = (2 * rows / max(noise, 1e-9)) ** (2 / 3)
    return next((bins for bins in (MOST_BINS, 32, 16) if bins <= most), FEWEST_BINS)


@final
@dataclass(frozen=True)
class Coding:
    """How rows are coded.

    Args:
        parts: of the code.
        shares: of the budget that each part takes, adding up to 1; None: all the same.
        by: the groups; None: there are none.
    """

    parts: tuple[Part, ...]
    shares: tuple[float, ...] | None = None
    by: Levels | None = None

    def __post_init__(self) -> None:
        cells = self.groups * self.width
        expect(cells <= MOST_CELLS, f"at most {MOST_CELLS} cells", "Take fewer columns, levels or groups", cells=cells)

    @property
    def columns(self) -> tuple[Column, ...]:
        """The columns that are read, in the order of the codes; some may be read twice."""
        return (*(() if self.by is None else self.by.columns), *(one for part in self.parts for one in part.columns))

    @property
    def groups(self) -> int:
        """Number of groups; 1 if there are none."""
        return 1 if self.by is None else self.by.width

    @property
    def width(self) -> int:
        """Number of numbers of one group."""
        return sum(part.width for part in self.parts)

    @property
    def weights(self) -> Floats:
        """What the numbers of each part are multiplied by: the root of its share, over that of an equal one, over its
        norm.
        """
        f, norms = len(self.parts), np.array([part.norm for part in self.parts])
        weights: Floats = (np.ones(f) if self.shares is None else np.sqrt(f * np.array(self.shares))) / norms
        return weights

    @property
    def data_norm(self) -> float:
        """The bound on the norm of a coded row."""
        return sqrt(len(self.parts))

    def coded(self, data: Dataset) -> Dataset:
        """The same rows, coded. Their features are the codes of `columns`."""
        codes, places, values = np.asarray(data.features), list[Ints](), list[Floats]()
        first = 0 if self.by is None else len(self.by.columns)
        group = np.zeros(len(codes), dtype=np.int64) if self.by is None else self.by.entries(codes[:, :first]).places
        at = group.reshape(-1, 1) * self.width
        for part, weight in zip(self.parts, self.weights.tolist(), strict=True):
            entries = part.entries(codes[:, first : first + len(part.columns)])
            places.append(entries.places + at)
            values.append(weight * entries.values)
            first, at = first + len(part.columns), at + part.width
        place, value = np.concatenate(places, axis=1), np.concatenate(values, axis=1)
        ends = np.arange(len(codes) + 1) * place.shape[1]
        shape = (len(codes), self.groups * self.width)
        features = sparse.csr_array((value.reshape(-1), place.reshape(-1), ends), shape=shape)
        return replace(data, features=features, names=self.names, data_norm=self.data_norm)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of all numbers."""
        own = [name for part in self.parts for name in part.names]
        return tuple(own) if self.by is None else tuple(f"{g}: {name}" for g in self.by.names for name in own)

    def split(self, numbers: Floats) -> list[Floats]:
        """The parts of a sum of coded rows, (numbers,), as counts: (groups, width of the part) each."""
        by_group = numbers.reshape(self.groups, self.width)
        ends = np.cumsum([part.width for part in self.parts])[:-1]
        return [own / w for own, w in zip(np.split(by_group, ends, axis=1), self.weights, strict=True)]


def equal_but(given: dict[str, float], names: Sequence[str]) -> tuple[float, ...] | None:
    """The shares of a budget: those that are given, and equal parts of the rest for all other names; None if none are
    given.
    """
    if not given:
        return None
    for name, share in given.items():
        known = ", ".join(names)
        expect(name in names, f"parts of the budget for columns that are described ({known})", part=name)
        expect(0 < share <= 1, "each part of the budget between 0 and 1", part=share)
    left, others = 1 - sum(given.values()), len(names) - len(given)
    fits = left > 0 if others else abs(left) < 1e-9
    expect(fits, "parts of the budget that add up to 1, or to less where other columns are left", parts=1 - left)
    return tuple(given.get(name, left / max(others, 1)) for name in names)
