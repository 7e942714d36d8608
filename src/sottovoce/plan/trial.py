"""One setting tried on one network: the mean loss of what comes out, with the real algorithm and its compiled kernels.

A trial may hold fewer rows than the network it stands for. What a row less would do to the noise is undone: the noise
multiplier is scaled so that sigma / m_i, and with it the noise on a gradient, is that of the full network.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from sottovoce.algorithms.base import PrivateMethod
from sottovoce.arrays import Array, Ints
from sottovoce.noise.sources import SeededNoise, Shape
from sottovoce.oracle.cpu import CompiledOracle
from sottovoce.privacy import ROW, Unit
from sottovoce.problem import graphs
from sottovoce.problem.dataset import Dataset
from sottovoce.problem.graphs import Graph
from sottovoce.problem.partition import BySizes
from sottovoce.problem.sites import Sites
from sottovoce.simulation.exchange import Local

SINGLE = np.dtype(np.float32)
_NODES_SCORED = 8


class Risks(NamedTuple):
    """Mean loss over the rows that judge, one entry per run."""

    consensus: Array  # of the mean of all last broadcasts
    last: Array  # of one node's last broadcast, averaged over a few nodes


class Thinned(NamedTuple):
    """Some of a network's rows, and the share that they are of all."""

    sites: Sites
    share: float


def thinned(data: Dataset, sizes: Sequence[int], rows: int, seed: int) -> Thinned:
    """Deal a data set out to sites of these proportions, about `rows` rows in all."""
    wanted = np.asarray(sizes, dtype=np.float64)
    share = min(1.0, min(rows, len(data)) / wanted.sum())
    counts: Ints = np.maximum(np.floor(wanted * share), 1).astype(np.int64)
    if counts.sum() > len(data):  # more sites than rows: every site needs one, so rows are used again
        picked = np.random.default_rng(seed).integers(len(data), size=int(counts.sum()))
        data = data.taken(picked)
    sites = Sites.split(data, len(counts), seed, partition=BySizes(counts.tolist()), clip=True)
    return Thinned(sites, float(counts.sum() / wanted.sum()))


def trial(
    algorithm: PrivateMethod, held: Thinned, graph: Graph, *, runs: int, seed: int,
    judge: Dataset | None = None, unit: Unit = ROW,
) -> Risks:  # fmt: skip
    """Run the algorithm, with the noise of the full network and for that unit of privacy, and score what it leaves: on
    the rows of `judge`, or else on those that it learnt from.
    """
    factor = held.share * algorithm.unit_factor(unit, held.sites.n)
    matched = algorithm if factor == 1.0 or math.isinf(algorithm.epsilon) else algorithm.with_noise(factor)
    site = matched.oracle(held.sites, graph, CompiledOracle, SINGLE)
    noise = SeededNoise(seed, Shape(held.sites.n, site.d, runs, dtype=np.float32))
    *_, after = matched.play(site, runs, Local(graph.exchange), noise)
    broadcast = after.outputs().last
    some = broadcast[:: max(1, held.sites.n // _NODES_SCORED)]
    consensus = broadcast.mean(axis=0, dtype=np.float64).astype(np.float32)
    singles = np.ascontiguousarray(some.transpose(1, 0, 2).reshape(site.d, -1), dtype=np.float32)
    if judge is not None:
        one = Sites.split(judge, 1, clip=True)
        site = matched.oracle(one, graphs.complete(1), CompiledOracle, SINGLE)
    last = site.score(singles).risk.reshape(len(some), runs).mean(axis=0)
    return Risks(site.score(consensus).risk, last)
