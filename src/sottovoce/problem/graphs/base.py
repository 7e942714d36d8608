"""What a graph is: the interface, the inbox that it fills in a round, and three ways to hold edges."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeAlias, final

import numpy as np
import scipy

from sottovoce.arrays import Array, Ints
from sottovoce.errors import InputError, expect

if TYPE_CHECKING:
    import networkx as nx

    Adjacency: TypeAlias = scipy.sparse.csr_array[np.float64, tuple[int, int]]

AT_ONCE = 2**16  # nodes whose neighbours are listed at a time, where those of all nodes are needed


class Inbox(ABC):
    """Sums of the messages that nodes receive in a round, computed when asked for."""

    @abstractmethod
    def neighbours(self) -> Array:
        """The sum of the messages of every node's neighbours: (nodes, d, runs)."""

    @abstractmethod
    def everyone(self) -> Array:
        """The sum of all messages, own included, the same for every node: (1, d, runs)."""


@final
class Exchanged(Inbox):
    """Inbox of a simulation, which holds the messages of all nodes."""

    def __init__(self, messages: Array, neighbour_sum: Callable[[Array], Array]) -> None:
        self._messages, self._neighbour_sum = messages, neighbour_sum

    def neighbours(self) -> Array:
        return self._neighbour_sum(self._messages)

    def everyone(self) -> Array:
        total: Array = self._messages.sum(axis=0, keepdims=True)
        return total


def check_size(n: int) -> None:
    """Refuse a graph without nodes."""
    expect(n >= 1, "a graph with at least one node", n=n)


class Graph(ABC):
    """A connected, undirected graph without loops. Immutable and public. Algorithms use degrees and exchange only."""

    @property
    @abstractmethod
    def n(self) -> int:
        """Number of nodes, one for each site."""

    @property
    @abstractmethod
    def name(self) -> str:
        """The kind of graph, for tables and logs."""

    @property
    @abstractmethod
    def degrees(self) -> Ints:
        """Number of neighbours of every node, shape (n,)."""

    @abstractmethod
    def neighbours(self, i: int) -> Ints:
        """The neighbours of node i, in rising order."""

    def exchange(self, messages: Array) -> Inbox:
        """The inbox of all nodes after each has sent its message (nodes, d, runs)."""
        return Exchanged(messages, self.neighbour_sum)

    @abstractmethod
    def neighbour_sum(self, messages: Array) -> Array:
        """For every node the sum of its neighbours' messages; (n, ...) to (n, ...), precision kept."""

    @property
    def edge_count(self) -> int:
        """Number of undirected edges."""
        return int(self.degrees.sum()) // 2

    def to_networkx(self) -> "nx.Graph[int]":
        """The same graph as an object of networkx."""
        import networkx as nx

        graph: nx.Graph[int] = nx.Graph()
        graph.add_nodes_from(range(self.n))
        graph.add_edges_from((i, int(j)) for i in range(self.n) for j in self.neighbours(i) if i < j)
        return graph

    def _check_node(self, i: int) -> None:
        """Refuse a number outside 0 .. n - 1."""
        expect(0 <= i < self.n, f"a node in 0 .. {self.n - 1}", i=i)

    def _check_messages(self, messages: Array) -> None:
        """Refuse messages unless there is one for each node."""
        expect(messages.shape[:1] == (self.n,), f"one message per node, n={self.n}", shape=messages.shape)


@final
@dataclass(frozen=True)
class CompleteGraph(Graph):
    """Every pair of nodes is an edge. None is stored: a neighbours' sum is the total minus the node's own message."""

    size: int

    def __post_init__(self) -> None:
        check_size(self.size)

    @property
    def n(self) -> int:
        return self.size

    @property
    def name(self) -> str:
        return "complete"

    @cached_property
    def degrees(self) -> Ints:
        return np.full(self.n, self.n - 1, dtype=np.int64)

    @property
    def edge_count(self) -> int:
        return self.n * (self.n - 1) // 2

    def neighbours(self, i: int) -> Ints:
        self._check_node(i)
        return np.delete(np.arange(self.n, dtype=np.int64), i)

    def neighbour_sum(self, messages: Array) -> Array:
        self._check_messages(messages)
        # In double precision, because a single-precision total over many nodes accumulates rounding errors.
        total: Array = messages.sum(axis=0, dtype=np.float64).astype(messages.dtype)
        return total - messages


class EdgeGraph(Graph):
    """A graph with rows of its adjacency matrix, which is symmetric, of ones, with an empty diagonal."""

    @property
    @abstractmethod
    def adjacency(self) -> "Adjacency":
        """The whole matrix in CSR form, columns in rising order."""

    @abstractmethod
    def links(self, first: int, last: int) -> "Adjacency":
        """Rows first .. last - 1 of the matrix, which suffice for a process that holds these nodes only."""

    @cached_property
    def _single(self) -> "scipy.sparse.csr_array[np.float32, tuple[int, int]]":
        """The adjacency matrix in single precision, stored so that no product has to convert it."""
        return self.adjacency.astype(np.float32)

    def neighbours(self, i: int) -> Ints:
        self._check_node(i)
        return self.links(i, i + 1).indices.astype(np.int64)

    def neighbour_sum(self, messages: Array) -> Array:
        # One product for all trailing axes. Every row adds its neighbours up in rising order.
        self._check_messages(messages)
        matrix: Any = self._single if messages.dtype == np.float32 else self.adjacency
        sums: Array = matrix @ messages.reshape(self.n, -1)
        return sums.reshape(messages.shape)


@final
@dataclass(frozen=True, eq=False)
class SparseGraph(EdgeGraph):
    """A graph stored as its adjacency matrix, which is refused unless simple and connected."""

    matrix: "Adjacency"
    kind: str = "custom"

    def __post_init__(self) -> None:
        check_size(self.matrix.shape[0])
        self.matrix.sort_indices()
        rows, columns = self.matrix.shape
        expect(rows == columns, "a square adjacency matrix", shape=self.matrix.shape)
        expect(bool(np.all(self.matrix.data == 1)), "an adjacency matrix of ones", data=self.matrix.data)
        loops = np.flatnonzero(self.matrix.diagonal())
        if loops.size:
            raise InputError(f"Expected no self-loop, got one at node {loops[0]}. Remove the edge.")
        lopsided = (self.matrix - self.matrix.T.tocsr()).count_nonzero()
        expect(lopsided == 0, "a symmetric adjacency matrix", one_way_edges=lopsided)
        count, part = scipy.sparse.csgraph.connected_components(self.matrix, directed=False)
        if count > 1:  # messages would never reach some nodes
            lost = int(np.flatnonzero(part != part[0])[0])
            raise InputError(
                f"Expected a connected graph, got {count} components: node {lost} cannot be reached from node 0. "
                "Add edges between the components, or take one of them."
            )

    @property
    def adjacency(self) -> "Adjacency":
        return self.matrix

    @property
    def n(self) -> int:
        return int(self.matrix.shape[0])

    @property
    def name(self) -> str:
        return self.kind

    @cached_property
    def degrees(self) -> Ints:
        return np.diff(self.matrix.indptr).astype(np.int64)

    def links(self, first: int, last: int) -> "Adjacency":
        return self.matrix[first:last]


# For an array of nodes their neighbours, (nodes, most neighbours), in any order, -1 where there are fewer.
Pattern: TypeAlias = Callable[[Ints], Ints]


@final
@dataclass(frozen=True, eq=False)
class PatternGraph(EdgeGraph):
    """A graph given by a rule for the neighbours of any node: nothing is stored, and no process needs all of it. The
    caller guarantees that it is connected, undirected and without loops; nothing is checked.
    """

    size: int
    kind: str
    pattern: Pattern

    def __post_init__(self) -> None:
        check_size(self.size)

    @property
    def n(self) -> int:
        return self.size

    @property
    def name(self) -> str:
        return self.kind

    @cached_property
    def degrees(self) -> Ints:
        some = (np.arange(first, min(first + AT_ONCE, self.n)) for first in range(0, self.n, AT_ONCE))
        return np.concatenate([np.count_nonzero(self.pattern(nodes) >= 0, axis=1) for nodes in some])

    @cached_property
    def adjacency(self) -> "Adjacency":
        return self.links(0, self.n)

    def links(self, first: int, last: int) -> "Adjacency":
        neighbours = np.sort(self.pattern(np.arange(first, last)), axis=1)
        present = neighbours >= 0
        starts = np.concatenate([[0], np.cumsum(np.count_nonzero(present, axis=1))])
        shape = (last - first, self.n)
        return scipy.sparse.csr_array((np.ones(starts[-1]), neighbours[present], starts), shape=shape)
