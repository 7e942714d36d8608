"""What the names in a configuration stand for, and the objects that it describes."""

import math
from collections.abc import Iterable
from dataclasses import fields
from difflib import get_close_matches
from typing import Any, NamedTuple, get_args

import numpy as np

from sottovoce import graphs, losses, regularisers
from sottovoce.algorithms import IPADMM, Algorithm, registry
from sottovoce.algorithms.ipadmm import SCHEDULES
from sottovoce.algorithms.rival import FORMS
from sottovoce.datasets import BY_NAME, Partition, partition
from sottovoce.engines.devices import DeviceName, Precision
from sottovoce.engines.simulate import refuse_seed
from sottovoce.errors import InputError
from sottovoce.experiments.config import TrainConfig
from sottovoce.experiments.source import Source, source
from sottovoce.graphs import Graph
from sottovoce.losses import Loss, Softmax
from sottovoce.oracle import refuse_single
from sottovoce.plan import FIXABLE, plan
from sottovoce.privacy import CALIBRATIONS, Scheme
from sottovoce.sites import WEIGHTS, Sites

CHOICES: dict[str, tuple[str, ...]] = {
    "dataset": tuple(BY_NAME),
    "split": ("all", "official"),
    "unreviewed": ("refuse", "accept"),
    "algorithm": tuple(registry.REGISTRY),
    "form": FORMS,
    "graph": graphs.NAMES,
    "partition": ("even", "dirichlet", "column"),  # the others need a list, one entry per node
    "loss": (*losses.NAMES, Softmax.name),
    "regulariser": regularisers.NAMES,
    "calibration": CALIBRATIONS,
    "schedule": SCHEDULES,
    "weights": WEIGHTS,
    "sampling": get_args(Scheme),
    "device": get_args(DeviceName),
    "dtype": get_args(Precision),
}
# What the planner chooses where it is not given.
PLANNED = ("rounds", "local_steps", "rho", "diameter")
NODES, RUNS, SEED = 100, 10, 0  # the paper's network, its number of runs, and a seed for all who want the same figures

# Settings that are fields of some algorithm and are handed to it as they are.
_HANDED_ON = {f.name for name in registry.REGISTRY for f in fields(registry.entry(name).kind)} - {"loss", "regulariser"}


class Built(NamedTuple):
    """What a simulation needs. `names` are those of the sites."""

    source: Source
    sites: Sites
    graph: Graph
    algorithm: Algorithm[Any]
    names: tuple[str, ...]


def check(config: TrainConfig) -> None:
    """Refuse names that are not known, and settings that nothing would use."""
    for name, known in CHOICES.items():
        _check_choice(name, getattr(config, name), known)
    _check_source(config)
    if config.partition == "column" and config.partition_column is None:
        raise InputError("Expected partition_column with partition='column', got none. Name an attribute, such as sex.")
    _partition_of(config)
    if config.sampling is not None and config.batch_size is None:
        raise InputError(f"Expected a batch_size with sampling={config.sampling!r}, got none. Give both or neither.")
    algorithm_of(config, None)


def build(config: TrainConfig) -> Built:
    """The objects that a configuration describes."""
    rows, seed = source(config), config.seed or SEED
    sites, names = _sites_of(config, rows, seed)
    options = _given(config, "graph_", ("degree", "probability", "rewire"))
    graph = graphs.by_name(config.graph, sites.n, seed, **options)
    return Built(
        rows, sites, graph, _planned(config, algorithm_of(config, rows.loss(config.loss)), sites, graph), names
    )


def algorithm_of(config: TrainConfig, loss: Loss | None) -> Algorithm[Any]:
    """The algorithm, with its own defaults wherever nothing was given."""
    line = registry.entry(config.algorithm)
    own = {f.name for f in fields(line.kind)}
    given = {f.name: getattr(config, f.name) for f in fields(config) if f.name in _HANDED_ON}
    given = {name: value for name, value in given.items() if value is not None}
    for name, value in given.items():
        # Who gives an option believes that it does something.
        if name not in own:
            raise InputError(
                f"Expected settings of algorithm={config.algorithm!r}, got {name}={value!r}. Leave it out."
            )
    pieces: dict[str, Any] = {} if loss is None else {"loss": loss}
    if config.regulariser is not None:
        pieces["regulariser"] = regularisers.by_name(config.regulariser)
    return line.kind(**{**line.settings, **given}, **pieces)


def _planned(config: TrainConfig, algorithm: Algorithm[Any], sites: Sites, graph: Graph) -> Algorithm[Any]:
    """The same, with what was not given chosen by the planner, from public numbers."""
    # Packaged data sets are for the paper's experiments, where all sites count the same.
    planned = PLANNED if config.data is None else (*PLANNED, "weights")
    open_ = [name for name in planned if getattr(config, name) is None]
    if not isinstance(algorithm, IPADMM) or not open_ or math.isinf(algorithm.epsilon):
        return algorithm
    given = {name: getattr(algorithm, name) for name in FIXABLE if name not in open_}
    if config.batch_size is None:
        del given["batch_size"], given["sampling"]
    found = plan(
        sizes=sites.counts.tolist(), d=sites.d, graph=graph, epsilon=algorithm.epsilon, delta=algorithm.delta,
        loss=algorithm.loss, regulariser=algorithm.regulariser, lam=algorithm.lam, data_norm=sites.data_norm,
        max_grad_norm=algorithm.max_grad_norm, fixed=given,
    )  # fmt: skip
    return found.algorithm()


def defaults(config: TrainConfig, algorithm: Algorithm[Any] | None) -> dict[str, Any]:
    """What holds for every setting that was not given."""
    algorithm = algorithm_of(config, None) if algorithm is None else algorithm
    own = {f.name for f in fields(algorithm)} & {f.name for f in fields(config)} & _HANDED_ON
    if config.batch_size is None:
        own.discard("sampling")  # without a batch nothing is drawn
    values: dict[str, Any] = {name: getattr(algorithm, name) for name in own}
    values |= {"loss": algorithm.loss.name, "regulariser": algorithm.regulariser.name}
    if config.data is not None:
        return {**values, "runs": 1}
    return {**values, "nodes": NODES, "runs": RUNS, "seed": SEED}


def _sites_of(config: TrainConfig, rows: Source, seed: int) -> tuple[Sites, tuple[str, ...]]:
    if rows.owners is None:
        # Who gets which row is no secret, so this seed may be known: what private rows say does not decide it.
        sites = Sites.split(rows.learnt, config.nodes or NODES, seed, partition=_partition_of(config))
        return sites, tuple(f"site-{number}" for number in range(1, sites.n + 1))
    names, owner = np.unique(rows.owners, return_inverse=True)
    parts = [np.flatnonzero(owner == number) for number in range(len(names))]
    data = rows.learnt
    held = [data.features[part] for part in parts], [data.labels[part] for part in parts]
    return Sites(*held, data_norm=data.data_norm, private=data.private), tuple(map(str, names))


def _check_source(config: TrainConfig) -> None:
    of_files = {name: getattr(config, name) for name in ("schema", "test_data", "site_column")}
    if config.data is None:
        for name, value in of_files.items():
            if value is not None:
                raise InputError(f"Expected data with {name}={value!r}, got none. Name the file to learn from.")
        return
    if config.schema is None:
        raise InputError(
            f"Expected a schema with data={config.data!r}, got none. Draft one with: sottovoce schema draft "
            f"{config.data}"
        )
    if config.split != "all":
        raise InputError("Expected split='all' with a file, got split='official'. Give the test rows as test_data.")
    refuse_seed(config.seed)
    partition.refuse_reading(_partition_of(config))
    refuse_single(config.dtype)
    if (config.nodes is None) == (config.site_column is None):
        came = f"nodes={config.nodes!r} and site_column={config.site_column!r}"
        raise InputError(f"Expected either nodes or site_column with a file, got {came}. Give one of them.")


def _check_choice(name: str, value: str | None, known: tuple[str, ...]) -> None:
    if value is not None and value not in known:
        close = get_close_matches(value, known, n=1)
        advice = f" Did you mean {close[0]!r}?" if close else ""
        raise InputError(f"Expected {name} among {', '.join(known)}, got {name}={value!r}.{advice}")


def _partition_of(config: TrainConfig) -> Partition:
    return partition.by_name(config.partition, **_given(config, "partition_", ("alpha", "column")))


def _given(config: TrainConfig, prefix: str, names: Iterable[str]) -> dict[str, Any]:
    values = {name: getattr(config, prefix + name) for name in names}
    return {name: value for name, value in values.items() if value is not None}
