"""How the nodes of a simulation exchange messages and sums: in one process, or spread over many.

The engine's loop is the same for both. The differences are here: which process holds which nodes, how messages are
added up over neighbours and over all nodes, and how figures over all nodes are computed. Every sum is over nodes in
rising order, so a result's bits do not depend on the number of processes.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, TypeAlias, TypeVar, final

import numpy as np

from sottovoce.arrays import Array, Ints
from sottovoce.noise.sources import Noise
from sottovoce.oracle.row_sums import RowSums
from sottovoce.problem.graphs import Inbox
from sottovoce.problem.share import Share
from sottovoce.sums.opening import Curator, Opener, Shares

EngineName: TypeAlias = Literal["local", "mpi"]
T = TypeVar("T")


class Exchange(ABC):
    """Exchange of messages and sums between the processes of a run. Models are (nodes held here, d, runs)."""

    share: Share | None  # the nodes held here; None: all
    is_first: bool  # True in the first process, the one that charges budgets, prints and writes files

    @abstractmethod
    def heard(self, messages: Array) -> Inbox:
        """The inbox of the nodes held here after each node has sent its message."""

    def opener(self, shares: Shares, site: RowSums, counts: Sequence[int], noise: Noise, runs: int) -> Opener:
        """The opener of sums over the rows of all sites. The oracle adds up over all processes."""
        return Curator(shares, site, counts, noise, runs)

    @abstractmethod
    def total(self, parts: Array) -> Array:
        """The sum over the first axis of all processes' arrays, in order. The same in all processes."""

    @abstractmethod
    def mean(self, values: Array) -> Array:
        """The mean over all nodes of one array for each: (nodes, ...) -> (...)."""

    @abstractmethod
    def consensus(self, models: Array) -> Array:
        """The mean over all nodes of their models: (nodes, d, runs) -> (d, runs)."""

    @abstractmethod
    def published(self, models: Array) -> Array:
        """The consensus in host memory and in the layout of a result: (nodes, d, runs) -> (runs, d)."""

    @abstractmethod
    def chosen(self, models: Array, nodes: Ints) -> Array:
        """The models of these nodes of the network, in every process; only one if all nodes hold the same."""

    @abstractmethod
    def agreed(self, value: T) -> T:
        """The first process's value, in all processes."""

    @abstractmethod
    def expect_same(self, facts: Mapping[str, object]) -> None:
        """Raise `InputError` in all processes unless all of them have the same facts."""

    @abstractmethod
    def either(self, flag: bool) -> bool:
        """True in all processes if it is True in any."""

    @abstractmethod
    def noise(self, source: Noise) -> Noise:
        """The source, changed so that its `shared` draws are the same in all processes."""


@final
class Local(Exchange):
    """Exchange where one process holds all nodes."""

    share = None
    is_first = True

    def __init__(self, heard: Callable[[Array], Inbox]) -> None:
        self._heard = heard

    def heard(self, messages: Array) -> Inbox:
        return self._heard(messages)

    def total(self, parts: Array) -> Array:
        total: Array = parts.sum(axis=0)
        return total

    def mean(self, values: Array) -> Array:
        mean: Array = values.mean(axis=0)
        return mean

    def consensus(self, models: Array) -> Array:
        return self.mean(models)

    def published(self, models: Array) -> Array:
        consensus: Array = public_layout(models).mean(axis=1)
        return consensus

    def chosen(self, models: Array, nodes: Ints) -> Array:
        return models[:1] if models.strides[0] == 0 else models[nodes]

    def agreed(self, value: T) -> T:
        return value

    def expect_same(self, facts: Mapping[str, object]) -> None:
        pass

    def either(self, flag: bool) -> bool:
        return flag

    def noise(self, source: Noise) -> Noise:
        return source


def public_layout(models: Array) -> "np.ndarray[Any, np.dtype[Any]]":
    """Models in the layout of a result: (nodes, d, runs) -> (runs, nodes, d)."""
    return np.ascontiguousarray(models.transpose(2, 0, 1))
