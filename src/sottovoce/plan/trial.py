"""One setting tried on one network: the mean loss of what comes out, with the real algorithm and its compiled kernels.

A trial may hold fewer rows than the network it stands for. What a row less would do to the noise is undone: the noise
multiplier is scaled so that sigma / m_i, and with it the noise on a gradient, is that of the full network.
"""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from sottovoce.algorithms.base import PrivateAlgorithm
from sottovoce.algorithms.ipadmm import IPADMM
from sottovoce.algorithms.masked import MaskedNewton
from sottovoce.arrays import Array, Ints
from sottovoce.noise.sources import SeededNoise, Shape
from sottovoce.oracle.cpu import CompiledOracle
from sottovoce.privacy import ROW, Gaussian, Repeated, Unit, epsilon, sigma_for
from sottovoce.privacy.accounting.gaussian import mu_for
from sottovoce.problem import graphs
from sottovoce.problem.dataset import Dataset
from sottovoce.problem.graphs import Graph
from sottovoce.problem.partition import BySizes
from sottovoce.problem.sites import Sites

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
    algorithm: PrivateAlgorithm[Any], held: Thinned, graph: Graph, *, runs: int, seed: int,
    judge: Dataset | None = None, unit: Unit = ROW,
) -> Risks:  # fmt: skip
    """Run the algorithm, with the noise of the full network and for that unit of privacy, and score what it leaves: on
    the rows of `judge`, or else on those that it learnt from.
    """
    matched = _matched(algorithm, held.share * more_noise(algorithm, unit, held.sites.n))
    site = matched.oracle(held.sites, graph, CompiledOracle, SINGLE)
    noise = SeededNoise(seed, Shape(held.sites.n, site.d, runs, dtype=np.float32))
    state = matched.start(site, runs)
    for k in range(1, matched.rounds + 1):
        message, state = matched.release(k, state, site, noise)
        state = matched.absorb(k, state, site, graph.exchange(message))
    broadcast = matched.outputs(matched.rounds, state).last
    some = broadcast[:: max(1, held.sites.n // _NODES_SCORED)]
    consensus = broadcast.mean(axis=0, dtype=np.float64).astype(np.float32)
    singles = np.ascontiguousarray(some.transpose(1, 0, 2).reshape(site.d, -1), dtype=np.float32)
    if judge is not None:
        one = Sites.split(judge, 1, clip=True)
        site = matched.oracle(one, graphs.complete(1), CompiledOracle, SINGLE)
    last = site.score(singles).risk.reshape(len(some), runs).mean(axis=0)
    return Risks(site.score(consensus).risk, last)


def more_noise(algorithm: PrivateAlgorithm[Any], unit: Unit, n: int) -> float:
    """Factor on the noise for one row that a unit needs in a network of n sites: all of a person's rows are in one sum,
    or in a message of each of their sites.
    """
    sites = min(unit.sites, n)
    return unit.changed * (float(sites) if isinstance(algorithm, MaskedNewton) else math.sqrt(sites))


def _matched(algorithm: PrivateAlgorithm[Any], share: float) -> PrivateAlgorithm[Any]:
    """The algorithm with the noise on a gradient of the full network, for `share` of its rows. Only for simulation: its
    epsilon promises nothing.
    """
    if share == 1.0 or math.isinf(algorithm.epsilon):
        return algorithm
    if isinstance(algorithm, MaskedNewton):
        # All exchanges together are one Gaussian release of parameter mu, and their noise is as 1 / mu.
        mu = mu_for(algorithm.epsilon, algorithm.delta) / share
        return replace(algorithm, epsilon=epsilon(Gaussian(1 / mu), algorithm.delta))
    if not isinstance(algorithm, IPADMM) or algorithm.batch_size is not None:
        return algorithm
    steps = algorithm.rounds * algorithm.local_steps
    sigma = share * sigma_for(algorithm.epsilon, algorithm.delta, steps, algorithm.calibration)
    return replace(algorithm, epsilon=epsilon(Repeated(Gaussian(sigma), steps), algorithm.delta), calibration="exact")
