"""Problems that processes make in place: each makes its own part of one and the same."""

import numpy as np
import pytest

import sottovoce as sv
from sottovoce.problem.shuffle import Shuffle
from sottovoce.simulation.engine import solve
from sottovoce.simulation.synthetic import made_up

GRAPH = sv.graphs.ring(300)


@pytest.mark.parametrize("ranks", [2, 3])
def test_parts_are_those_of_the_whole(ranks):
    whole = made_up(GRAPH, 5, (2, 9), seed=3)
    parts = [made_up(GRAPH, 5, (2, 9), seed=3, rank=rank, ranks=ranks) for rank in range(ranks)]
    np.testing.assert_array_equal(np.concatenate([part.sites.rows.values for part in parts]), whole.sites.rows.values)
    np.testing.assert_array_equal(np.concatenate([part.sites.labels for part in parts]), whole.sites.labels)
    for part in parts:
        np.testing.assert_array_equal(part.counts, whole.sites.counts)
        assert part.shape == whole.shape
        assert part.sites.n < 300


def test_what_is_made():
    made = made_up(sv.graphs.ring(2000), 4, (20, 50), seed=1)
    counts = made.sites.counts
    assert set(counts.tolist()) == set(range(20, 51))
    assert abs(counts.mean() - 35) < 1
    values = made.sites.rows.values
    assert np.abs(values.mean(axis=0)).max() < 0.01
    other = made_up(sv.graphs.ring(2000), 4, (20, 50), seed=2)
    assert not np.array_equal(other.sites.counts, counts)
    learnt = solve(made, sv.IPADMM(rounds=20, local_steps=3, epsilon=8.0), seed=0, record=1).result
    assert learnt.accuracy()["consensus"] > 0.8  # there is something to learn


def test_nodes_are_not_alike():
    """A node's draws are its own: no row is met twice."""
    values = made_up(GRAPH, 5, (5, 5)).sites.rows.values
    assert len(np.unique(values, axis=0)) == len(values)


@pytest.mark.parametrize("n", [1, 2, 3, 64, 65, 1000])
def test_a_shuffle_is_an_order(n):
    shuffle, other = Shuffle(n, 5), Shuffle(n, 6)
    nodes = shuffle.node(np.arange(n))
    assert sorted(nodes.tolist()) == list(range(n))
    np.testing.assert_array_equal(shuffle.place(nodes), np.arange(n))
    if n > 60:
        assert not np.array_equal(other.node(np.arange(n)), nodes)
        assert abs(np.corrcoef(nodes, np.arange(n))[0, 1]) < 0.5


def test_shuffles_are_even():
    """Over keys, every number is at every place about as often: chi-squared with 19^2 degrees of freedom."""
    n, keys = 20, 4000
    seen = np.zeros((n, n))
    for key in range(keys):
        seen[np.arange(n), Shuffle(n, key * 2**20 + 1).node(np.arange(n))] += 1
    expected = keys / n
    statistic = ((seen - expected) ** 2 / expected).sum()
    assert abs(statistic - 19**2) < 6 * np.sqrt(2 * 19**2)


def test_random_cycles_are_regular_and_known_by_a_rule():
    graph = sv.graphs.random_cycles(500, 6, seed=2)
    assert set(graph.degrees.tolist()) == {6}
    sv.graphs.SparseGraph(graph.adjacency)  # refuses what is no connected, simple graph
    np.testing.assert_array_equal(graph.links(100, 200).toarray(), graph.adjacency[100:200].toarray())
    with pytest.raises(sv.InputError, match="an even degree, 2 <= degree < n, got degree=3"):
        sv.graphs.random_cycles(10, 3)
    with pytest.raises(sv.InputError, match="without an edge in common, got too few in 1000 draws of n=9"):
        sv.graphs.random_cycles(9, 8, seed=0)
