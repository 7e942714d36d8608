"""What the names in a configuration stand for, and the objects that it describes."""

from collections.abc import Callable, Iterable
from dataclasses import fields
from difflib import get_close_matches
from typing import Any, NamedTuple, get_args

from sottovoce import datasets, graphs, losses, regularisers
from sottovoce.algorithms import Algorithm
from sottovoce.algorithms.ipadmm import SCHEDULES
from sottovoce.algorithms.rival import FORMS
from sottovoce.datasets import Dataset, Partition, partition
from sottovoce.engines.devices import DeviceName, Precision
from sottovoce.errors import InputError
from sottovoce.experiments import registry
from sottovoce.experiments.config import TrainConfig
from sottovoce.graphs import Graph
from sottovoce.privacy import CALIBRATIONS, Scheme
from sottovoce.sites import Sites

DATASETS: dict[str, Callable[[], Dataset]] = {"adult": datasets.adult}

CHOICES: dict[str, tuple[str, ...]] = {
    "dataset": tuple(DATASETS),
    "split": ("all", "official"),
    "algorithm": tuple(registry.REGISTRY),
    "form": FORMS,
    "graph": graphs.NAMES,
    "partition": ("even", "dirichlet", "column"),  # the others need a list, one entry per node
    "loss": losses.NAMES,
    "regulariser": regularisers.NAMES,
    "calibration": CALIBRATIONS,
    "schedule": SCHEDULES,
    "sampling": get_args(Scheme),
    "device": get_args(DeviceName),
    "dtype": get_args(Precision),
}

# Settings that are fields of some algorithm and are handed to it as they are.
_HANDED_ON = {f.name for name in registry.REGISTRY for f in fields(registry.entry(name).kind)} - {"loss", "regulariser"}


class Built(NamedTuple):
    """What a simulation needs. `dataset` is the whole of it; `sites` hold the rows that are learnt from."""

    dataset: Dataset
    sites: Sites
    graph: Graph
    algorithm: Algorithm[Any]


def check(config: TrainConfig) -> None:
    """Refuse names that are not known, and settings that nothing would use."""
    for name, known in CHOICES.items():
        _check_choice(name, getattr(config, name), known)
    if config.partition == "column" and config.partition_column is None:
        raise InputError("Expected partition_column with partition='column', got none. Name an attribute, such as sex.")
    _partition_of(config)
    if config.sampling is not None and config.batch_size is None:
        raise InputError(f"Expected a batch_size with sampling={config.sampling!r}, got none. Give both or neither.")
    algorithm_of(config)


def build(config: TrainConfig) -> Built:
    """The objects that a configuration describes."""
    dataset = DATASETS[config.dataset]()
    learnt = dataset if config.split == "all" else dataset.train
    sites = Sites.split(learnt, config.nodes, config.seed, partition=_partition_of(config))
    options = _given(config, "graph_", ("degree", "probability", "rewire"))
    graph = graphs.by_name(config.graph, config.nodes, config.seed, **options)
    return Built(dataset, sites, graph, algorithm_of(config))


def algorithm_of(config: TrainConfig) -> Algorithm[Any]:
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
    pieces: dict[str, Any] = {}
    if config.loss is not None:
        pieces["loss"] = losses.by_name(config.loss)
    if config.regulariser is not None:
        pieces["regulariser"] = regularisers.by_name(config.regulariser)
    return line.kind(**{**line.settings, **given}, **pieces)


def defaults(config: TrainConfig) -> dict[str, Any]:
    """What the algorithm takes for every setting of its own."""
    algorithm = algorithm_of(config)
    own = {f.name for f in fields(algorithm)} & {f.name for f in fields(config)} & _HANDED_ON
    if config.batch_size is None:
        own.discard("sampling")  # without a batch nothing is drawn
    values = {name: getattr(algorithm, name) for name in own}
    return {**values, "loss": algorithm.loss.name, "regulariser": algorithm.regulariser.name}


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
