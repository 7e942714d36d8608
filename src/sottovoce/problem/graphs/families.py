"""Families of graphs, from rings to random regular graphs, and graphs from given edges.

Random graphs come from networkx, imported where it is used: the same seed gives the same graph under the same version
of networkx.
"""

from collections.abc import Callable, Iterable, Sequence
from math import isqrt, log
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy

from sottovoce.arrays import Ints
from sottovoce.errors import InputError, expect
from sottovoce.problem.graphs.base import AT_ONCE, CompleteGraph, Graph, PatternGraph, SparseGraph, check_size
from sottovoce.problem.shuffle import Shuffle

if TYPE_CHECKING:
    import networkx as nx

# Draws of a random graph until it is connected. If every second one is, twenty in a row fail once in a million.
DRAWS = 20
CHAIN_DRAWS = 1000  # draws of closed chains; a share of e^-2 has no edge in common with one other, e^-4 with two others


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
    check_size(n)
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
    both = scipy.sparse.coo_array((np.ones(2 * len(i)), (np.r_[i, j], np.r_[j, i])), shape=(n, n)).tocsr()
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
    """Node 0 is the only neighbour of all others. If its site fails, no messages are exchanged."""
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
    """Every pair is an edge with this probability, independently; drawn until connected, at most 20 times.

    The law is that of the Erdos-Renyi graph, given that it is connected.

    Args:
        n: number of nodes.
        probability: of an edge; None for 2 ln(n) / n, with which about one draw in n is unconnected.
        seed: the same one gives the same graph, under the same version of networkx.
    """
    import networkx as nx

    check_size(n)
    chance = min(1.0, 2 * log(n) / n) if probability is None else probability
    expect(0 <= chance <= 1, "0 <= probability <= 1", probability=probability)
    return _first_connected("erdos-renyi", seed, lambda s: nx.fast_gnp_random_graph(n, chance, seed=s))


def random_regular(n: int, degree: int = 4, seed: int = 0) -> Graph:
    """A random graph in which every node has `degree` neighbours; drawn until connected, at most 20 times.

    Args:
        n: number of nodes; n times degree must be even.
        degree: of every node, below n. With 3 or more, a message reaches all nodes in about ln(n) rounds.
        seed: the same one gives the same graph, under the same version of networkx.
    """
    import networkx as nx

    check_size(n)
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
    for first in range(0, one.n, AT_ONCE):
        place = np.arange(first, min(first + AT_ONCE, one.n))
        gap = (other.place(one.node(place)) - other.place(one.node((place + 1) % one.n))) % one.n
        if np.any((gap == 1) | (gap == one.n - 1)):
            return True
    return False


def small_world(n: int, degree: int = 4, rewire: float = 0.1, seed: int = 0) -> Graph:
    """Watts and Strogatz: a ring where every node has its `degree` nearest as neighbours, with edges rewired at random.

    Drawn until connected, at most 20 times.

    Args:
        n: number of nodes.
        degree: an even number below n.
        rewire: the chance with which an edge is moved to a random node: 0 keeps the ring, 1 makes a random graph.
        seed: the same one gives the same graph, under the same version of networkx.
    """
    import networkx as nx

    check_size(n)
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
    check_size(n)
    rows = next(r for r in range(isqrt(n), 0, -1) if n % r == 0)
    return grid(rows, n // rows)
