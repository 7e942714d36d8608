"""The objects that the names in a configuration stand for, and which settings go together."""

from collections.abc import Callable, Iterable
from dataclasses import fields
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, get_args, get_origin, get_type_hints

from sottovoce.algorithms import Method, registry
from sottovoce.algorithms.default import OWN, Default, default
from sottovoce.errors import InputError, expect
from sottovoce.files.datasets import BY_NAME
from sottovoce.files.schema.form import FileForm, spelt
from sottovoce.oracle.loss_sums import refuse_single
from sottovoce.problem import graphs, losses, partition, regularisers
from sottovoce.problem.graphs import Graph
from sottovoce.problem.losses import Logistic, Poisson, Softmax, WeightedLogistic
from sottovoce.problem.partition import Partition
from sottovoce.settings import check_choice
from sottovoce.simulation.devices import DeviceName, Precision
from sottovoce.simulation.engine import refuse_seed
from sottovoce.simulation.exchange import EngineName
from sottovoce.simulation.network_text import read_network

if TYPE_CHECKING:
    from sottovoce.studies.config import TrainConfig

# Of an algorithm's own settings, the type of the field says which names there are.
_NAMED = {
    name: get_args(hint)
    for line in registry.REGISTRY.values()
    for name, hint in get_type_hints(line.kind).items()
    if get_origin(hint) is Literal
}
CHOICES: dict[str, tuple[str, ...]] = _NAMED | {
    "dataset": tuple(BY_NAME),
    "split": ("all", "official"),
    "unreviewed": ("refuse", "accept"),
    "algorithm": tuple(registry.REGISTRY),
    "graph": graphs.NAMES,
    "partition": ("even", "dirichlet", "column"),  # the others need a list, one entry per node
    "loss": (*losses.NAMES, Softmax.name, Poisson.name),
    "regulariser": regularisers.NAMES,
    "device": get_args(DeviceName),
    "dtype": get_args(Precision),
    "engine": get_args(EngineName),
}
# What the planner chooses where it is not given.
PLANNED = registry.entry(OWN).planned
NODES, RUNS, SEED = 100, 10, 0  # the paper's network, its number of runs, and a seed for all who want the same figures

# Settings that are fields of some algorithm and are handed to it as they are.
_HANDED_ON = {f.name for line in registry.REGISTRY.values() for f in fields(line.kind)}
_HANDED_ON -= {"loss", "regulariser", "focus"}  # which are names until rows are known


def check(config: "TrainConfig") -> None:
    """Refuse names that are not known, and settings that nothing would use."""
    for name, known in CHOICES.items():
        if getattr(config, name, None) is not None:  # not every setting has an option
            check_choice(name, getattr(config, name), known)
    _check_source(config)
    if config.partition == "column" and config.partition_column is None:
        raise InputError("Expected --partition-column with --partition column, got none. Name an attribute: sex.")
    partition_of(config)
    if config.network is not None:
        read_network(config.network)
    asked = not config.focus or bool(config.inference)
    expect(asked, "inference with focus, which is on intervals", "Add it", focus=config.focus)
    _ = config.method  # refuses what the algorithm refuses


def method_of(config: "TrainConfig") -> Method:
    """The algorithm, with its own defaults wherever nothing was given."""
    name, own = config.choice.name, _own(config)
    line = registry.entry(name)
    registry.expect_own(name, own)
    pieces = {} if config.regulariser is None else {"regulariser": regularisers.by_name(config.regulariser)}
    return line.kind(**{**line.settings, **own, **pieces})


def choice_of(config: "TrainConfig") -> Default:
    """The algorithm by its name: the one that was given, the paper's for packaged data, else the default."""
    if config.algorithm is not None or config.data is None:
        return Default(config.algorithm or OWN)
    # Where no loss is given, the label decides, and all that it may choose are smooth.
    loss = losses.by_name(config.loss) if config.loss in losses.NAMES else Logistic()
    return default(loss, regularisers.by_name(config.regulariser or "l2"), config.graph, _own(config))


def _own(config: "TrainConfig") -> dict[str, Any]:
    """The settings of an algorithm that were given, by name."""
    return given(config, "", [f.name for f in fields(config) if f.name in _HANDED_ON])


def defaults(config: "TrainConfig", algorithm: Method | None) -> dict[str, Any]:
    """The default of every setting that was not given, by name."""
    algorithm = config.method if algorithm is None else algorithm
    own = {f.name for f in fields(algorithm)} & {f.name for f in fields(config)} & _HANDED_ON
    if config.batch_size is None:
        own.discard("sampling")  # without a batch nothing is drawn
    values: dict[str, Any] = {name: getattr(algorithm, name) for name in own} | {"algorithm": config.choice.name}
    # A weight is a setting of its own, beside the loss that it is of.
    weighted = isinstance(algorithm.loss, WeightedLogistic)
    values |= {"loss": Logistic.name if weighted else algorithm.loss.name, "regulariser": algorithm.regulariser.name}
    if config.data is not None:
        return {**values, "runs": 1}
    return {**values, "nodes": NODES, "runs": RUNS, "seed": SEED}


def _check_source(config: "TrainConfig") -> None:
    only = ("schema", "test_data", "delimiter", "site_column", "sites_per_person")
    if config.data is None:
        for name in only:
            if (value := getattr(config, name)) is not None:
                flag = name.replace("_", "-")
                raise InputError(f"Expected --data with --{flag} {value}, got none. Name the file to learn from.")
        return
    if config.schema is None:
        raise InputError(
            f"Expected --schema with --data {config.data}, got none. Draft one with: sottovoce schema draft "
            f"{config.data}"
        )
    if config.split != "all":
        raise InputError("Expected --split all with a file, got official. Give the test rows as a file: --test-data.")
    if config.delimiter is not None:
        FileForm(spelt(config.delimiter))
    refuse_seed(config.seed)
    partition.refuse_reading(partition_of(config))
    refuse_single(config.dtype)
    if (config.nodes is None) == (config.site_column is None):
        came = "neither" if config.nodes is None else "both"
        raise InputError(
            f"Expected either --nodes or --site-column with a file, got {came}. Say how many sites the rows are dealt "
            "out to (--nodes), or which column says whose row it is (--site-column)."
        )


def partition_of(config: "TrainConfig") -> Partition:
    """The partition that a configuration names, with its options."""
    return partition.by_name(config.partition, **given(config, "partition_", ("alpha", "column")))


def given(config: "TrainConfig", prefix: str, names: Iterable[str]) -> dict[str, Any]:
    """The settings called prefix + name that were given, by name."""
    values = {name: getattr(config, prefix + name) for name in names}
    return {name: value for name, value in values.items() if value is not None}


def graph_of(config: "TrainConfig") -> Callable[[int], Graph]:
    """The function that makes the graph from the number of nodes."""
    options = given(config, "graph_", ("degree", "probability", "rewire"))
    return partial(graphs.by_name, config.graph, seed=config.seed or SEED, **options)
