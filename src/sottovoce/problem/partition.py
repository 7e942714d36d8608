"""Partitions: ways to deal the rows of one data set out to nodes, for simulations.

A partition is called as `partition(data, nodes, seed)` and gives one array of row numbers per node:
disjoint, none empty, each in rising order. The same seed gives the same parts. Which node gets which public row
is public.

For private rows it must stay secret. The guarantee is for rows replaced at their sites, with all row counts public. It
does not cover a partition in which one changed label sends many rows to other sites. So every partition declares
whether it reads rows, and private rows are dealt out by their number alone. Their places in a file, or the order of
names, must not decide either: one row that sorts differently would move all rows behind it. So private rows are put in
a `secret_order` before they are dealt out (docs/proofs/places.md).
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from inspect import signature
from math import inf
from typing import Any, ClassVar, final

import numpy as np

from sottovoce.arrays import Floats, Ints
from sottovoce.errors import PrivacyError, expect
from sottovoce.problem.dataset import Dataset
from sottovoce.settings import check_choice, check_keys

MOST_LABELS = 100  # with more, the labels are measurements rather than classes


class Partition(ABC):
    """A rule that deals the rows of one data set out to nodes."""

    # True unless a class declares otherwise, so that a new class is refused for private rows until it was reviewed.
    reads_rows: ClassVar[bool] = True

    def __init_subclass__(cls, reads_rows: bool = True) -> None:
        """Declare with reads_rows=False that a subclass uses only the number of rows."""
        super().__init_subclass__()
        cls.reads_rows = reads_rows

    @abstractmethod
    def __call__(self, data: Dataset, nodes: int, seed: int) -> list[Ints]:
        """Row numbers of every node, in rising order: one array per node, none empty."""


@final
@dataclass(frozen=True)
class Even(Partition, reads_rows=False):
    """Equally many random rows for each node; the remainder is dropped (45,222 over 100: 452 each, 22 dropped)."""

    def __call__(self, data: Dataset, nodes: int, seed: int) -> list[Ints]:
        return _cut(_shuffled(data, nodes, seed), np.full(nodes, len(data) // nodes))


even = Even()


@final
@dataclass(frozen=True)
class BySizes(Partition, reads_rows=False):
    """`sizes[i]` random rows for node i; the remainder is dropped."""

    sizes: Sequence[int]

    def __post_init__(self) -> None:
        expect(all(size >= 1 and size % 1 == 0 for size in self.sizes), "whole sizes >= 1", sizes=self.sizes)

    def __call__(self, data: Dataset, nodes: int, seed: int) -> list[Ints]:
        order = _shuffled(data, nodes, seed)
        expect(len(self.sizes) == nodes, f"one size for each of {nodes} nodes", sizes=self.sizes)
        expect(
            sum(self.sizes) <= len(data),
            f"sizes that add up to at most {len(data)} rows",
            sum=sum(self.sizes),
        )
        return _cut(order, np.array(self.sizes, dtype=np.int64))


@final
@dataclass(frozen=True)
class ByShares(Partition, reads_rows=False):
    """All rows at random, in proportion to `shares` (of any sum); every node gets at least one row."""

    shares: Sequence[float]

    def __post_init__(self) -> None:
        expect(all(0 < share < inf for share in self.shares), "finite shares > 0", shares=self.shares)

    def __call__(self, data: Dataset, nodes: int, seed: int) -> list[Ints]:
        order = _shuffled(data, nodes, seed)
        expect(len(self.shares) == nodes, f"one share for each of {nodes} nodes", shares=self.shares)
        weights = np.array(self.shares, dtype=np.float64)
        # One row each first: a tiny share must not leave a node with nothing.
        return _cut(order, 1 + _apportion(len(data) - nodes, weights))


@final
@dataclass(frozen=True)
class LabelSkew(Partition):
    """Nodes with different mixes of labels: the nodes' shares of each label's rows are Dirichlet(alpha).

    A small alpha gives each label to few nodes, a large one approaches an even mix. All rows are used.
    Sizes are unequal too. A node with fewer than `minimum` rows then takes random rows from the fullest node, until
    all have enough: with a small alpha and many nodes, drawing again would hardly ever succeed.
    """

    alpha: float = 0.5
    minimum: int = 1

    def __post_init__(self) -> None:
        expect(0 < self.alpha < inf, "a finite alpha > 0", alpha=self.alpha)
        expect(self.minimum >= 1 and self.minimum % 1 == 0, "a whole minimum >= 1", minimum=self.minimum)

    def __call__(self, data: Dataset, nodes: int, seed: int) -> list[Ints]:
        _check(data, nodes, seed)
        enough = nodes * self.minimum <= len(data)
        expect(enough, f"at least nodes * minimum = {nodes * self.minimum} rows", rows=len(data))
        values = np.unique(data.labels)
        expect(len(values) <= MOST_LABELS, f"at most {MOST_LABELS} different labels", labels=len(values))
        draws = np.random.default_rng(seed)
        owner = np.empty(len(data), dtype=np.int64)
        for value in values:
            rows = draws.permutation(np.flatnonzero(data.labels == value))
            counts = _apportion(len(rows), draws.dirichlet(np.full(nodes, self.alpha)))
            owner[rows] = np.repeat(np.arange(nodes), counts)
        sizes = np.bincount(owner, minlength=nodes)
        for small in np.flatnonzero(sizes < self.minimum):
            while sizes[small] < self.minimum:
                fullest = int(sizes.argmax())
                # The fullest node keeps the minimum. As long as one has too few, the fullest has more than that.
                moved = min(self.minimum - sizes[small], sizes[fullest] - self.minimum)
                owner[draws.choice(np.flatnonzero(owner == fullest), moved, replace=False)] = small
                sizes[small], sizes[fullest] = sizes[small] + moved, sizes[fullest] - moved
        return [np.flatnonzero(owner == i) for i in range(nodes)]


@final
@dataclass(frozen=True)
class ByColumn(Partition):
    """Nodes that differ in one attribute; all rows are used.

    A one-hot attribute such as "native-country" keeps each category whole: from the largest down, each
    goes to the node with the fewest rows so far. With as many nodes as categories, each node is one
    category. More nodes than categories are refused. A numeric column is sorted, ties in random order,
    and cut into contiguous blocks whose sizes differ by at most one. It is sorted as it stands in the
    features, so after any scaling of rows.
    """

    column: str

    def __call__(self, data: Dataset, nodes: int, seed: int) -> list[Ints]:
        order = _shuffled(data, nodes, seed)
        categories = data.categories(self.column)
        if categories is None:
            order = order[np.argsort(data.values(self.column)[order], kind="stable")]
            return [np.sort(part) for part in np.array_split(order, nodes)]
        present, code, sizes = np.unique(categories, return_inverse=True, return_counts=True)
        enough = nodes <= len(present)
        expect(enough, f"at most {len(present)} nodes, one for each {self.column} present", nodes=nodes)
        load, node = np.zeros(nodes, dtype=np.int64), np.empty(len(sizes), dtype=np.int64)
        for category in np.argsort(-sizes, kind="stable"):
            node[category] = load.argmin()
            load[node[category]] += sizes[category]
        owner = node[code]
        return [np.flatnonzero(owner == i) for i in range(nodes)]


def _apportion(rows: int, weights: Floats) -> Ints:
    """Whole numbers that add up to `rows`, in proportion to the weights, by largest remainders."""
    exact = rows * weights / weights.sum()
    counts: Ints = np.floor(exact).astype(np.int64)
    counts[np.argsort(counts - exact, kind="stable")[: rows - counts.sum()]] += 1
    return counts


def _check(data: Dataset, nodes: int, seed: int) -> None:
    expect(nodes >= 1, "nodes >= 1", nodes=nodes)
    expect(nodes <= len(data), f"at most as many nodes as rows, {len(data)}", nodes=nodes)
    expect(seed >= 0, "seed >= 0", seed=seed)


def _shuffled(data: Dataset, nodes: int, seed: int) -> Ints:
    """All row numbers in a random order; refuses as `_check`."""
    _check(data, nodes, seed)
    return np.random.default_rng(seed).permutation(len(data))


def _cut(order: Ints, sizes: Ints) -> list[Ints]:
    """Consecutive parts of these sizes, each sorted; the remainder is dropped."""
    ends = np.cumsum(sizes)
    return [np.sort(order[end - size : end]) for size, end in zip(sizes, ends, strict=True)]


_BY_NAME: dict[str, Callable[..., Partition]] = {
    "even": lambda: even,
    "sizes": BySizes,
    "shares": ByShares,
    "dirichlet": LabelSkew,
    "column": ByColumn,
}
NAMES: tuple[str, ...] = tuple(_BY_NAME)


def refuse_reading(partition: Callable[..., list[Ints]]) -> None:
    """Refuse a partition of private rows that reads them, or that does not declare that it does not."""
    if not isinstance(partition, Partition) or partition.reads_rows:
        raise PrivacyError(
            f"Expected a partition that does not read private rows, got partition={partition!r}: one changed row could "
            "move others to other sites, which no guarantee covers. Use the partition even, or give every site its own "
            "rows (train: --site-column)."
        )


def secret_order(rows: int, key: bytes | None) -> Ints:
    """The numbers of private rows in a uniform secret order, drawn from the operating system or from a secret key. Use
    a key for one run only: two tables dealt out by the same key are not protected together.
    """
    from sottovoce.noise.sampler import encode_fields, keyed, shuffled  # heavy, and not needed to describe a partition
    from sottovoce.noise.sources import SystemStream

    label = encode_fields("sottovoce dealing of rows", 1, rows)
    return shuffled(SystemStream() if key is None else keyed(key)(label), rows)


def by_name(name: str, **options: Any) -> Partition:
    """The partition of that name: `by_name("dirichlet", alpha=0.1)`, `by_name("column", column="sex")`."""
    check_choice("partition", name, NAMES)
    parameters = signature(_BY_NAME[name]).parameters
    needed = [key for key, parameter in parameters.items() if parameter.default is parameter.empty]
    check_keys(options, parameters, needed, f"options of the partition {name}")
    return _BY_NAME[name](**options)
