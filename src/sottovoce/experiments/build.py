"""The objects that a configuration describes."""

import math
from typing import Any, NamedTuple

import numpy as np

from sottovoce import graphs
from sottovoce.algorithms import IPADMM, Algorithm
from sottovoce.experiments.choices import NODES, PLANNED, SEED, algorithm_of, given, partition_of
from sottovoce.experiments.config import TrainConfig
from sottovoce.experiments.source import Source, source
from sottovoce.graphs import Graph
from sottovoce.plan import FIXABLE, plan
from sottovoce.sites import Sites


class Built(NamedTuple):
    """What a simulation needs. `names` are those of the sites."""

    source: Source
    sites: Sites
    graph: Graph
    algorithm: Algorithm[Any]
    names: tuple[str, ...]


def build(config: TrainConfig) -> Built:
    """The objects that a configuration describes."""
    rows, seed = source(config), config.seed or SEED
    sites, names = _sites_of(config, rows, seed)
    options = given(config, "graph_", ("degree", "probability", "rewire"))
    graph = graphs.by_name(config.graph, sites.n, seed, **options)
    return Built(
        rows, sites, graph, _planned(config, algorithm_of(config, rows.loss(config.loss)), sites, graph), names
    )


def _planned(config: TrainConfig, algorithm: Algorithm[Any], sites: Sites, graph: Graph) -> Algorithm[Any]:
    """The same, with what was not given chosen by the planner, from public numbers."""
    open_ = [name for name in PLANNED if getattr(config, name) is None]
    if not isinstance(algorithm, IPADMM) or not open_ or math.isinf(algorithm.epsilon):
        return algorithm
    fixed = {name: getattr(algorithm, name) for name in FIXABLE if name not in open_}
    if config.batch_size is None:
        del fixed["batch_size"], fixed["sampling"]
    found = plan(
        sizes=sites.counts.tolist(), d=sites.d, graph=graph, epsilon=algorithm.epsilon, delta=algorithm.delta,
        loss=algorithm.loss, regulariser=algorithm.regulariser, lam=algorithm.lam, data_norm=sites.data_norm,
        max_grad_norm=algorithm.max_grad_norm, fixed=fixed,
    )  # fmt: skip
    return found.algorithm()


def _sites_of(config: TrainConfig, rows: Source, seed: int) -> tuple[Sites, tuple[str, ...]]:
    if rows.owners is None:
        # Who gets which row is no secret, so this seed may be known: what private rows say does not decide it.
        sites = Sites.split(rows.learnt, config.nodes or NODES, seed, partition=partition_of(config))
        return sites, tuple(f"site-{number}" for number in range(1, sites.n + 1))
    names, owner = np.unique(rows.owners, return_inverse=True)
    parts = [np.flatnonzero(owner == number) for number in range(len(names))]
    data = rows.learnt
    held = [data.features[part] for part in parts], [data.labels[part] for part in parts]
    return Sites(*held, data_norm=data.data_norm, private=data.private), tuple(map(str, names))
