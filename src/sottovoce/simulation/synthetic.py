"""Synthetic problems for large networks: each process makes the rows of its own nodes only.

Every number is a function of the seed and of its node's number (Philox, as all simulated noise), so the problem does
not depend on the number of processes.

    m_i            uniform between two numbers
    a_ij           normal, variance 1/d in each coordinate, cut to norm 1
    b_ij           the sign of <w*, a_ij> + normal noise, with w* the same for all nodes
"""

import numpy as np

from sottovoce.arrays import Floats, Ints
from sottovoce.errors import expect
from sottovoce.oracle.kernels.random import fill_normals
from sottovoce.problem.graphs import Graph
from sottovoce.problem.problem import Problem
from sottovoce.problem.share import Share
from sottovoce.problem.shuffle import splitmix64
from sottovoce.problem.sites import Sites

_AT_ONCE = 2**18  # normals that are drawn at a time
_STRENGTH, _DOUBT = 4.0, 0.5  # the norm of w*, and the standard deviation of the noise in labels


def made_up(
    graph: Graph, features: int, rows: tuple[int, int] = (20, 50), seed: int = 0, rank: int = 0, ranks: int = 1
) -> Problem:
    """The problem; with several processes, the part of process `rank` of `ranks`.

    Args:
        graph: the network. One that is given by a rule, such as a ring, need not fit into memory.
        features: number of features, d.
        rows: the fewest and the most rows of a node.
        seed: the same one gives the same problem.
        rank: number of this process, from 0.
        ranks: number of processes.
    """
    expect(features >= 1, "features >= 1", features=features)
    expect(1 <= rows[0] <= rows[1], "1 <= fewest <= most rows", rows=rows)
    words = np.random.SeedSequence(seed).generate_state(4, np.uint32)
    draws = splitmix64(np.arange(graph.n, dtype=np.uint64) + np.uint64(int(words[2]) << 32))
    counts: Ints = rows[0] + (draws % np.uint64(rows[1] - rows[0] + 1)).astype(np.int64)
    share = Share.of(counts, rank, ranks)
    truth = np.random.default_rng(words[3]).standard_normal(features)
    truth *= _STRENGTH / np.linalg.norm(truth)
    values, labels = _draw_rows(share, rows[1], truth, (int(words[0]), int(words[1])))
    sites = Sites.stacked(values, labels, counts[share.first : share.last])
    return Problem(sites, graph, title="made up", share=None if ranks == 1 else share)


def _draw_rows(share: Share, most: int, truth: Floats, key: tuple[int, int]) -> tuple[Floats, Floats]:
    """Rows (rows, d) and labels (rows,) of the nodes of a share, drawn some nodes at a time."""
    d, counts = len(truth), share.counts[share.first : share.last]
    ends = np.concatenate([[0], np.cumsum(counts)])
    values, labels = np.empty((int(ends[-1]), d)), np.empty(int(ends[-1]))
    step = max(1, _AT_ONCE // (most * (d + 1)))
    for first in range(0, share.nodes, step):
        last = min(first + step, share.nodes)
        normals = np.empty((last - first, most * (d + 1), 1))
        fill_normals(normals, *key, 0, 0, share.first + first, 0)
        held = np.arange(most) < counts[first:last, None]
        z = normals.reshape(last - first, most, d + 1)[held]
        a, some = z[:, :d] / np.sqrt(d), slice(int(ends[first]), int(ends[last]))
        a /= np.maximum(1.0, np.sqrt(np.einsum("jd,jd->j", a, a)))[:, None]
        values[some] = a
        # Not a product by BLAS, whose last bits may depend on the number of rows.
        labels[some] = np.where(np.einsum("jd,d->j", a, truth) + _DOUBT * z[:, d] >= 0, 1.0, -1.0)
    return values, labels
