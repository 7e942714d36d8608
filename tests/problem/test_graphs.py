"""Graphs against networkx, and every refusal."""

import time

import networkx as nx
import numpy as np
import pytest
from scipy import sparse

from sottovoce import graphs
from sottovoce.errors import InputError

SMALL = {
    "complete": (graphs.complete(7), nx.complete_graph(7)),
    "complete of one": (graphs.complete(1), nx.empty_graph(1)),
    "ring": (graphs.ring(6), nx.cycle_graph(6)),
    "ring of two": (graphs.ring(2), nx.path_graph(2)),
    "ring of one": (graphs.ring(1), nx.empty_graph(1)),
    "path": (graphs.path(5), nx.path_graph(5)),
    "star": (graphs.star(6), nx.star_graph(5)),
    "star of one": (graphs.star(1), nx.empty_graph(1)),
    "grid": (graphs.grid(3, 4), nx.convert_node_labels_to_integers(nx.grid_2d_graph(3, 4))),
}
each = pytest.mark.parametrize(("ours", "theirs"), SMALL.values(), ids=SMALL.keys())


@each
def test_same_graph_as_networkx(ours, theirs):
    assert nx.utils.graphs_equal(ours.to_networkx(), theirs)
    assert ours.n == theirs.number_of_nodes()
    assert ours.edge_count == theirs.number_of_edges()
    assert ours.degrees.dtype == np.int64
    np.testing.assert_array_equal(ours.degrees, [theirs.degree[i] for i in range(ours.n)])
    for i in range(ours.n):
        assert ours.neighbours(i).tolist() == sorted(theirs.neighbors(i))


@each
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("shape", [(), (3,), (3, 2)])
def test_neighbour_sum(ours, theirs, dtype, shape):
    x = np.random.default_rng(0).normal(size=(ours.n, *shape)).astype(dtype)
    expected = np.tensordot(nx.to_numpy_array(theirs, nodelist=range(ours.n)), x.astype(np.float64), axes=1)
    heard = ours.neighbour_sum(x)
    assert heard.dtype == dtype
    assert heard.shape == x.shape
    np.testing.assert_allclose(heard, expected, rtol=0, atol=1e-13 if dtype == np.float64 else 3e-6)
    with np.errstate(all="raise"):
        np.testing.assert_array_equal(ours.neighbour_sum(np.asfortranarray(x)), heard)


def test_complete_sum_does_not_drift_in_single_precision():
    x = np.full((100_000, 1), 0.1, dtype=np.float32)
    np.testing.assert_allclose(graphs.complete(100_000).neighbour_sum(x), 9999.9, rtol=1e-6)


def test_large_graphs_are_quick():
    started = time.process_time()
    assert graphs.complete(100_000).edge_count == 4_999_950_000
    assert time.process_time() - started < 0.5
    regular = graphs.random_regular(100_000, 4, seed=3)
    assert time.process_time() - started < 20
    assert np.all(regular.degrees == 4)


@pytest.mark.parametrize("name", graphs.NAMES)
def test_by_name(name):
    graph, again, other = (graphs.by_name(name, 60, seed) for seed in (5, 5, 6))
    assert graph.name == name
    assert graph.n == 60
    assert nx.is_connected(graph.to_networkx())
    assert nx.utils.graphs_equal(graph.to_networkx(), again.to_networkx())
    random = name in ("erdos-renyi", "random-regular", "random-cycles", "small-world")
    assert nx.utils.graphs_equal(graph.to_networkx(), other.to_networkx()) is not random


@pytest.mark.parametrize("name", ["complete", "ring", "path", "star", "grid", "erdos-renyi"])
def test_one_node_is_a_graph(name):
    graph = graphs.by_name(name, 1)
    assert graph.degrees.tolist() == [0]
    np.testing.assert_array_equal(graph.neighbour_sum(np.ones((1, 2))), np.zeros((1, 2)))


def test_options_by_name():
    assert np.all(graphs.by_name("random-regular", 20, 0, degree=6).degrees == 6)
    assert graphs.by_name("erdos-renyi", 20, 0, probability=1.0).edge_count == 190
    assert graphs.by_name("small-world", 20, 0, degree=2, rewire=0.0).edge_count == 20


@pytest.mark.parametrize(("n", "longest"), [(36, 4), (60, 4), (12, 4), (7, 2)])
def test_grid_by_name_is_the_most_square(n, longest):
    sides = {36: (6, 6), 60: (6, 10), 12: (3, 4), 7: (1, 7)}[n]
    assert nx.utils.graphs_equal(graphs.by_name("grid", n).to_networkx(), graphs.grid(*sides).to_networkx())
    assert graphs.by_name("grid", n).degrees.max() == longest


def test_erdos_renyi_density():
    expected = 0.2 * 200 * 199 / 2
    assert graphs.erdos_renyi(200, 0.2, seed=1).edge_count == pytest.approx(expected, abs=5 * np.sqrt(0.8 * expected))


def test_from_edges_merges_duplicates():
    graph = graphs.from_edges(3, [(0, 1), (1, 0), (0, 1), (1, 2)])
    assert graph.edge_count == 2
    assert graph.degrees.tolist() == [1, 2, 1]
    np.testing.assert_array_equal(graph.neighbour_sum(np.array([1.0, 10.0, 100.0])), [10, 101, 10])
    assert graphs.from_edges(1, []).n == 1


def test_from_networkx_numbers_nodes_in_order():
    theirs = nx.Graph([("c", "a"), ("a", "b")])
    ours = graphs.from_networkx(theirs)
    assert list(theirs.nodes) == ["c", "a", "b"]
    assert [ours.neighbours(i).tolist() for i in range(3)] == [[1], [0, 2], [1]]
    weighted = nx.Graph()
    weighted.add_edge(0, 1, weight=5.0)
    assert graphs.from_networkx(weighted).neighbour_sum(np.array([1.0, 2.0])).tolist() == [2.0, 1.0]


def adjacency(rows):
    return sparse.csr_array(np.array(rows, dtype=float))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: graphs.from_edges(5, [(0, 1), (2, 3), (3, 4)]),
            "2 components: node 2 cannot be reached from node 0",
        ),
        (lambda: graphs.from_edges(3, [(0, 1)]), "2 components: node 2"),
        (lambda: graphs.from_edges(3, [(0, 1), (1, 1), (1, 2)]), "no self-loop, got one at node 1"),
        (lambda: graphs.from_edges(3, [(0, 1), (1, 3)]), r"nodes 0 \.\. 2, got edge=\(1, 3\)"),
        (lambda: graphs.from_edges(3, [(0, -1)]), r"edge=\(0, -1\)"),
        (lambda: graphs.from_edges(3, [(0, 1.5)]), "whole numbers"),
        (lambda: graphs.from_edges(3, [(0, 1), (0, 1, 2)]), r"pairs of nodes, got edge=\(0, 1, 2\)"),
        (lambda: graphs.from_edges(0, []), "at least one node, got n=0"),
        (lambda: graphs.from_networkx(nx.Graph()), "at least one node"),
        (lambda: graphs.from_networkx(nx.DiGraph([(0, 1)])), "undirected"),
        (lambda: graphs.from_networkx(nx.MultiGraph([(0, 1)])), "simple graph"),
        (lambda: graphs.from_networkx(nx.Graph([(0, 1), (1, 1)])), "self-loop, got one at node 1"),
        (lambda: graphs.SparseGraph(adjacency([[0, 1], [0, 0]])), "symmetric"),
        (lambda: graphs.SparseGraph(adjacency([[1, 1], [1, 0]])), "self-loop, got one at node 0"),
        (lambda: graphs.SparseGraph(adjacency([[0, 2], [2, 0]])), "matrix of ones"),
        (lambda: graphs.SparseGraph(adjacency([[0, 1, 0], [1, 0, 0]])), "square"),
        (lambda: graphs.complete(0), "n=0"),
        (lambda: graphs.ring(0), "n=0"),
        (lambda: graphs.path(0), "n=0"),
        (lambda: graphs.star(-1), "n=-1"),
        (lambda: graphs.grid(0, 3), "rows=0"),
        (lambda: graphs.erdos_renyi(50, 0.001), "none in 20 draws"),
        (lambda: graphs.erdos_renyi(50, 1.5), "probability=1.5"),
        (lambda: graphs.random_regular(5, 3), "even n [*] degree"),
        (lambda: graphs.random_regular(4, 4), "degree < n"),
        (lambda: graphs.random_regular(4, 1), "none in 20 draws"),
        (lambda: graphs.small_world(10, 3), "even degree"),
        (lambda: graphs.small_world(10, 4, 2.0), "rewire=2.0"),
        (lambda: graphs.small_world(10, seed=-1), "seed=-1"),
        (lambda: graphs.by_name("torus", 10), "small-world, got graph='torus'"),
        (lambda: graphs.by_name("ring", 10, degree=3), "options of the graph ring, got 'degree'. Known: none"),
        (lambda: graphs.by_name("random-regular", 10, rewire=3), "got 'rewire'. Known: degree"),
        (lambda: graphs.ring(4).neighbours(4), r"0 \.\. 3, got i=4"),
        (lambda: graphs.complete(4).neighbours(-1), "i=-1"),
        (lambda: graphs.ring(4).neighbour_sum(np.ones((3, 2))), r"n=4, got shape=\(3, 2\)"),
        (lambda: graphs.complete(4).neighbour_sum(np.ones(3)), r"n=4, got shape=\(3,\)"),
    ],
)
def test_refusals(make, message):
    with pytest.raises(InputError, match=message):
        make()
