"""Networks: connected, undirected graphs on the nodes 0 .. n-1.

The one thing that algorithms ask of a graph is the exchange, `Inbox`. Random graphs come from networkx, imported where
it is used: the same seed gives the same graph under the same version of networkx.

A graph is public. Nothing here is chosen by looking at rows, and a message that passes an edge is already noisy.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from inspect import signature
from math import isqrt, log
from typing import TYPE_CHECKING, Any, TypeAlias, final

import numpy as np
from scipy import sparse
from scipy.sparse.csgraph import connected_components

from sottovoce.arrays import Array, Ints
from sottovoce.errors import InputError, expect
from sottovoce.problem.shuffle import Shuffle
from sottovoce.settings import check_choice, check_keys

if TYPE_CHECKING:
    import networkx as nx

    Adjacency: TypeAlias = sparse.csr_array[np.float64, tuple[int, int]]

# With one draw in two connected, twenty in a row fail once in a million.
CHAIN_DRAWS = 1000  # of chains, of which e^-2 share no edge with another, e^-4 with two others
DRAWS = 20  # how often a random graph is drawn before we say that it will not come out connected


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


class Graph(ABC):
    """A connected, undirected graph without loops. Immutable, and public: algorithms see degrees and the exchange
    alone.
    """

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
        """The same graph in networkx."""
        import networkx as nx

        graph: nx.Graph[int] = nx.Graph()
        graph.add_nodes_from(range(self.n))
        graph.add_edges_from((i, int(j)) for i in range(self.n) for j in self.neighbours(i) if i < j)
        return graph

    def _check_node(self, i: int) -> None:
        """Refuse a number outside 0 .. n - 1."""
        expect(0 <= i < self.n, f"a node in 0 .. {self.n - 1}", i=i)

    def _check_messages(self, messages: Array) -> None:
        """Refuse messages that are not one for each node."""
        expect(messages.shape[:1] == (self.n,), f"one message per node, n={self.n}", shape=messages.shape)


@final
@dataclass(frozen=True)
class CompleteGraph(Graph):
    """Every pair of nodes is an edge. None is stored: the sum over neighbours is the total minus the own message."""

    size: int

    def __post_init__(self) -> None:
        _check_size(self.size)

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
        # Added up in double precision: over many nodes a single-precision total would drift.
        total: Array = messages.sum(axis=0, dtype=np.float64).astype(messages.dtype)
        return total - messages


class EdgeGraph(Graph):
    """A graph whose edges can be listed, as rows of its adjacency matrix (symmetric, ones, empty diagonal)."""

    @property
    @abstractmethod
    def adjacency(self) -> "Adjacency":
        """The whole matrix in CSR form, columns in rising order."""

    @abstractmethod
    def links(self, first: int, last: int) -> "Adjacency":
        """Rows first .. last - 1 of the matrix: all that a process needs that holds only these nodes."""

    @cached_property
    def _single(self) -> "sparse.csr_array[np.float32, tuple[int, int]]":
        """The adjacency matrix in single precision."""
        # Kept beside the double one, so that a product never converts the whole matrix.
        return self.adjacency.astype(np.float32)

    def neighbours(self, i: int) -> Ints:
        self._check_node(i)
        return self.links(i, i + 1).indices.astype(np.int64)

    def neighbour_sum(self, messages: Array) -> Array:
        """One sparse product, over all trailing axes at once. Every row adds its neighbours up in rising order."""
        self._check_messages(messages)
        matrix: Any = self._single if messages.dtype == np.float32 else self.adjacency
        heard: Array = matrix @ messages.reshape(self.n, -1)
        return heard.reshape(messages.shape)


@final
@dataclass(frozen=True, eq=False)
class SparseGraph(EdgeGraph):
    """A graph stored as its adjacency matrix, which is refused unless simple and connected."""

    matrix: "Adjacency"
    kind: str = "custom"

    def __post_init__(self) -> None:
        _check_size(self.matrix.shape[0])
        self.matrix.sort_indices()
        _check_simple(self.matrix)
        _check_connected(self.matrix)

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
_AT_ONCE = 2**16  # nodes whose neighbours are listed at a time, where all must be looked at


@final
@dataclass(frozen=True, eq=False)
class PatternGraph(EdgeGraph):
    """A graph by a rule that gives the neighbours of any node: nothing is stored, and no process needs all of it.
    The caller guarantees that it is connected, undirected and without loops: nothing is checked.
    """

    size: int
    kind: str
    pattern: Pattern

    def __post_init__(self) -> None:
        _check_size(self.size)

    @property
    def n(self) -> int:
        return self.size

    @property
    def name(self) -> str:
        return self.kind

    @cached_property
    def degrees(self) -> Ints:
        some = (np.arange(first, min(first + _AT_ONCE, self.n)) for first in range(0, self.n, _AT_ONCE))
        return np.concatenate([np.count_nonzero(self.pattern(nodes) >= 0, axis=1) for nodes in some])

    @cached_property
    def adjacency(self) -> "Adjacency":
        return self.links(0, self.n)

    def links(self, first: int, last: int) -> "Adjacency":
        heard = np.sort(self.pattern(np.arange(first, last)), axis=1)
        there = heard >= 0
        starts = np.concatenate([[0], np.cumsum(np.count_nonzero(there, axis=1))])
        shape = (last - first, self.n)
        return sparse.csr_array((np.ones(starts[-1]), heard[there], starts), shape=shape)


def _check_size(n: int) -> None:
    """Refuse a graph without nodes."""
    expect(n >= 1, "a graph with at least one node", n=n)


def _check_simple(adjacency: "Adjacency") -> None:
    """Refuse loops, weights, and edges in one direction only."""
    rows, columns = adjacency.shape
    expect(rows == columns, "a square adjacency matrix", shape=adjacency.shape)
    expect(bool(np.all(adjacency.data == 1)), "an adjacency matrix of ones", data=adjacency.data)
    loops = np.flatnonzero(adjacency.diagonal())
    if loops.size:
        raise InputError(f"Expected no self-loop, got one at node {loops[0]}. Remove the edge.")
    lopsided = (adjacency - adjacency.T.tocsr()).count_nonzero()
    expect(lopsided == 0, "a symmetric adjacency matrix", one_way_edges=lopsided)


def _check_connected(adjacency: "Adjacency") -> None:
    """Refuse a graph of several components: messages would never reach some nodes."""
    count, part = connected_components(adjacency, directed=False)
    if count > 1:
        lost = int(np.flatnonzero(part != part[0])[0])
        raise InputError(
            f"Expected a connected graph, got {count} components: node {lost} cannot be reached from node 0. "
            "Add edges between the components, or take one of them."
        )


def from_edges(n: int, edges: Iterable[Sequence[int]], name: str = "custom") -> Graph:
    """The graph on 0 .. n-1 with these edges, in either direction; an edge given twice counts once.

    Args:
        n: number of nodes. All must be connected.
        edges: pairs of different nodes.
        name: the kind of graph, for tables and logs.
    """
    pairs = list(edges)
    odd = next((pair for pair in pairs if len(pair) != 2), None)
    expect(odd is None, "edges as pairs of nodes", edge=odd)
    return _from_pairs(n, np.array(pairs), name)


def _from_pairs(n: int, pairs: "np.ndarray[Any, Any]", name: str) -> Graph:
    """The graph with these edges (edges, 2), each in either direction."""
    _check_size(n)
    pairs = pairs.reshape(-1, 2) if pairs.size == 0 else pairs
    if pairs.size:
        expect(pairs.dtype.kind in "iu", "edges between whole numbers", dtype=str(pairs.dtype))
    strange = np.flatnonzero(((pairs < 0) | (pairs >= n)).any(axis=1))
    if strange.size:
        expect(False, f"edges between the nodes 0 .. {n - 1}", edge=tuple(pairs[strange[0]].tolist()))
    i, j = pairs.astype(np.int64).T
    loops = np.flatnonzero(i == j)
    if loops.size:
        raise InputError(f"Expected no self-loop, got one at node {i[loops[0]]}. Remove the edge.")
    both = sparse.coo_array((np.ones(2 * len(i)), (np.r_[i, j], np.r_[j, i])), shape=(n, n)).tocsr()
    both.data[:] = 1.0  # edges given twice were added up
    return SparseGraph(both, name)


def from_networkx(graph: "nx.Graph[Any]", name: str = "custom") -> Graph:
    """The same graph on 0 .. n-1, nodes numbered in the order in which `graph.nodes` lists them.

    Weights and other attributes are ignored. Directed graphs and multigraphs are refused.
    """
    expect(not graph.is_directed(), "an undirected graph (try graph.to_undirected())", directed=True)
    expect(not graph.is_multigraph(), "a simple graph (try networkx.Graph(graph))", multigraph=True)
    number = {node: i for i, node in enumerate(graph.nodes)}
    return from_edges(len(number), ((number[u], number[v]) for u, v in graph.edges), name)


def complete(n: int) -> Graph:
    """Every pair of nodes is an edge: n (n - 1) / 2 edges, none of which is stored."""
    return CompleteGraph(n)


def ring(n: int) -> PatternGraph:
    """A closed chain, two neighbours each; with one or two nodes, the path."""
    if n <= 2:
        return PatternGraph(n, "ring", path(n).pattern)
    return PatternGraph(n, "ring", lambda i: np.stack([(i - 1) % n, (i + 1) % n], axis=1))


def path(n: int) -> PatternGraph:
    """An open chain: two neighbours each, one at the ends. A message takes n - 1 rounds from end to end."""
    return PatternGraph(n, "path", lambda i: np.stack([i - 1, np.where(i + 1 < n, i + 1, -1)], axis=1))


def star(n: int) -> Graph:
    """Node 0 is the only neighbour of all others. If its site is lost, no messages are exchanged."""
    i = np.arange(1, max(n, 1))
    return _from_pairs(n, np.stack([0 * i, i], axis=1), "star")


def grid(rows: int, columns: int) -> PatternGraph:
    """A rectangle without wrap-around; node r * columns + c sits in row r and column c."""
    expect(rows >= 1 and columns >= 1, "at least one row and one column", rows=rows, columns=columns)

    def around(i: Ints) -> Ints:
        r, c = np.divmod(i, columns)
        left, right = np.where(c > 0, i - 1, -1), np.where(c + 1 < columns, i + 1, -1)
        above, below = np.where(r > 0, i - columns, -1), np.where(r + 1 < rows, i + columns, -1)
        return np.stack([above, left, right, below], axis=1)

    return PatternGraph(rows * columns, "grid", around)


def erdos_renyi(n: int, probability: float | None = None, seed: int = 0) -> Graph:
    """Every pair is an edge with this probability, independently; drawn again until connected.

    Redrawing makes the law that of the Erdos-Renyi graph given that it is connected. After 20 draws we give up.

    Args:
        n: number of nodes.
        probability: of an edge; None for 2 ln(n) / n, with which about one draw in n is unconnected.
        seed: the same one gives the same graph, under the same version of networkx.
    """
    import networkx as nx

    _check_size(n)
    chance = min(1.0, 2 * log(n) / n) if probability is None else probability
    expect(0 <= chance <= 1, "0 <= probability <= 1", probability=probability)
    return _first_connected("erdos-renyi", seed, lambda s: nx.fast_gnp_random_graph(n, chance, seed=s))


def random_regular(n: int, degree: int = 4, seed: int = 0) -> Graph:
    """A random graph in which everyone has `degree` neighbours; drawn until connected, at most 20 times.

    Args:
        n: number of nodes; n times degree must be even.
        degree: of every node, below n. With 3 or more, a message reaches all nodes in about ln(n) rounds.
        seed: the same one gives the same graph, under the same version of networkx.
    """
    import networkx as nx

    _check_size(n)
    expect(0 <= degree < n and degree % 1 == 0, "a whole degree, 0 <= degree < n", degree=degree, n=n)
    expect(n * degree % 2 == 0, "an even n * degree", n=n, degree=degree)
    return _first_connected("random-regular", seed, lambda s: nx.random_regular_graph(degree, n, seed=s))


def random_cycles(n: int, degree: int = 4, seed: int = 0) -> Graph:
    """Closed chains through all nodes in random orders, degree / 2 of them, that share no edge: a random graph in which
    every node has `degree` neighbours. It is always connected and given by a rule, so nothing is stored, also for
    millions of nodes. Nearly all of them have the properties of nearly all random regular graphs (Kim & Wormald 2001).

    Args:
        n: number of nodes, 3 or more.
        degree: an even number, 2 or more and below n.
        seed: the same one gives the same graph.
    """
    expect(n >= 3, "n >= 3 nodes for a closed chain", n=n)
    expect(2 <= degree < n and degree % 2 == 0, "an even degree, 2 <= degree < n", degree=degree, n=n)
    expect(seed >= 0, "seed >= 0", seed=seed)
    chains: list[Shuffle] = []
    for key in np.random.SeedSequence(seed).generate_state(CHAIN_DRAWS, np.uint64):
        drawn = Shuffle(n, int(key))
        if not any(_share_an_edge(drawn, chain) for chain in chains):
            chains.append(drawn)
        if len(chains) == degree // 2:
            return PatternGraph(n, "random-cycles", lambda i: np.concatenate([c.beside(i) for c in chains], axis=1))
    raise InputError(
        f"Expected {degree // 2} closed chains without an edge in common, got too few in {CHAIN_DRAWS} draws of n={n} "
        "nodes. Ask for a smaller degree, or another seed."
    )


def _share_an_edge(one: Shuffle, other: Shuffle) -> bool:
    """True if some pair of nodes is adjacent in both closed chains."""
    for first in range(0, one.n, _AT_ONCE):
        place = np.arange(first, min(first + _AT_ONCE, one.n))
        gap = (other.place(one.node(place)) - other.place(one.node((place + 1) % one.n))) % one.n
        if np.any((gap == 1) | (gap == one.n - 1)):
            return True
    return False


def small_world(n: int, degree: int = 4, rewire: float = 0.1, seed: int = 0) -> Graph:
    """Watts and Strogatz: everyone on a ring hears the `degree` nearest, edges rewired with chance `rewire`.

    Drawn until connected, at most 20 times.

    Args:
        n: number of nodes.
        degree: an even number below n.
        rewire: the chance with which an edge is moved to a random node: 0 keeps the ring, 1 makes a random graph.
        seed: the same one gives the same graph, under the same version of networkx.
    """
    import networkx as nx

    _check_size(n)
    expect(0 <= degree < n and degree % 2 == 0, "an even degree, 0 <= degree < n", degree=degree, n=n)
    expect(0 <= rewire <= 1, "0 <= rewire <= 1", rewire=rewire)
    return _first_connected("small-world", seed, lambda s: nx.watts_strogatz_graph(n, degree, rewire, seed=s))


def _first_connected(name: str, seed: int, draw: "Callable[[int], nx.Graph[int]]") -> Graph:
    """The first connected graph of at most DRAWS draws, each from a seed of its own."""
    import networkx as nx

    expect(seed >= 0, "seed >= 0", seed=seed)
    for state in np.random.SeedSequence(seed).generate_state(DRAWS):
        graph = draw(int(state))
        if nx.is_connected(graph):
            return from_networkx(graph, name)
    raise InputError(f"Expected a connected {name} graph, got none in {DRAWS} draws. Ask for more edges per node.")


def square_grid(n: int) -> Graph:
    """The most square grid of exactly n nodes; for a prime n that is the path."""
    _check_size(n)
    rows = next(r for r in range(isqrt(n), 0, -1) if n % r == 0)
    return grid(rows, n // rows)


_BY_NAME: dict[str, Callable[..., Graph]] = {
    "complete": complete,
    "ring": ring,
    "path": path,
    "star": star,
    "grid": square_grid,
    "erdos-renyi": erdos_renyi,
    "random-regular": random_regular,
    "random-cycles": random_cycles,
    "small-world": small_world,
}
NAMES: tuple[str, ...] = tuple(_BY_NAME)


def by_name(name: str, n: int, seed: int = 0, **options: float) -> Graph:
    """The graph of that name on n nodes, as in `by_name("random-regular", 100, 1, degree=6)`.

    Only random graphs use the seed.
    """
    check_choice("graph", name, NAMES)
    build = _BY_NAME[name]
    known = [key for key in signature(build).parameters if key != "n"]
    check_keys(options, [key for key in known if key != "seed"], (), f"options of the graph {name}")
    return build(n, **options, **({"seed": seed} if "seed" in known else {}))
