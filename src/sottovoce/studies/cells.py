"""A cell: one algorithm with all its settings on one problem, for a block of runs. It is the unit of work; its content
hash names its result.
"""

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from functools import lru_cache, partial
from hashlib import sha256
from typing import Any, TypeAlias

import numpy as np

from sottovoce.algorithms import registry
from sottovoce.algorithms.registry import Settings, Value
from sottovoce.errors import expect
from sottovoce.files.datasets import BY_NAME
from sottovoce.problem import graphs, partition
from sottovoce.problem.dataset import Dataset
from sottovoce.problem.problem import Problem
from sottovoce.simulation.devices import Precision
from sottovoce.simulation.history import NODES_SCORED
from sottovoce.studies.fingerprint import fingerprint

# Raised when stored results would no longer mean the same.
FORMAT = 1
# Module that computes a cell. It imports this one, and so is named only.
_COMPUTES = "sottovoce.studies.measured"

Pairs: TypeAlias = tuple[tuple[str, Value], ...]


@dataclass(frozen=True, kw_only=True)
class ProblemSpec:
    """A problem by its names and numbers: which rows, how they are dealt out, and who hears whom. `seed` is of the
    partition and of a random graph.
    """

    dataset: str = "adult"
    split: str = "all"  # "official" learns from the training rows and is scored on the test rows too
    every: int = 1  # take only every n-th row, for a quick look
    nodes: int = 100
    graph: str = "complete"
    graph_options: Pairs = ()
    partition: str = "even"
    partition_options: Pairs = ()
    seed: int = 0

    def build(self) -> Problem:
        """The problem with its rows and graph. The last few are cached: neighbouring cells mostly share them."""
        expect(self.dataset in BY_NAME, f"a data set among {', '.join(BY_NAME)}", dataset=self.dataset)
        return _build(self, _data(BY_NAME[self.dataset], self.every))

    def shape(self) -> tuple[int, int, int]:
        """Number of rows to deal out, of features and of sites: public numbers."""
        data = _data(BY_NAME[self.dataset], self.every)
        return len(data) if self.split == "all" else data.n_train, data.d, self.nodes


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One block of runs. `record` are the rounds to score, always with the last; `scored` is a number of nodes."""

    problem: ProblemSpec
    algorithm: str
    settings: Pairs
    runs: int
    seed: int
    record: tuple[int, ...] = ()
    scored: int = NODES_SCORED

    @property
    def key(self) -> str:
        """The content hash: everything that the result depends on."""
        algorithm = registry.make(self.algorithm, dict(self.settings))
        code = fingerprint(_COMPUTES, type(algorithm).__module__)
        # The algorithm in full, so that a changed default counts, and another class under the same name.
        content = {"format": FORMAT, "code": code, "made": repr(algorithm), "dtype": self.dtype, **asdict(self)}
        return sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:24]

    @property
    def dtype(self) -> Precision:
        """Precision of the runs. Single is as good for noisy gradients; exact minimisation needs double."""
        return "float64" if registry.entry(self.algorithm).exact else "float32"

    @property
    def rounds(self) -> int:
        """Number of rounds that the cell runs for."""
        rounds: int = registry.make(self.algorithm, dict(self.settings)).rounds
        return rounds

    @property
    def work(self) -> float:
        """A rough guess of seconds on two cores, for the progress bar only."""
        line, given = registry.entry(self.algorithm), dict(self.settings)
        models = self.problem.nodes * self.runs
        steps = self.rounds * (25 if line.exact else float(given.get("local_steps", 1)))
        return 0.2 + models * (steps * 8e-7 + (len(self.record) + 1) * 1.5e-4)


def cell(
    name: str,
    problem: ProblemSpec,
    common: Settings,
    own: Settings | None = None,
    *,
    form: str = "fair",
    runs: int,
    seed: int,
    record: tuple[int, ...] = (),
    scored: int = NODES_SCORED,
) -> Cell:
    """A cell with the registry's settings filled in, so that equal work has equal names."""
    settings = registry.settings_of(name, form, common, own or {})
    if registry.entry(name).finds_rounds and "rounds" not in (own or {}):
        # The study's rounds are for messages that are private one by one; masked sums need other numbers of them.
        settings.pop("rounds", None)
    algorithm = registry.make(name, settings).bound_to(*problem.shape())  # refuses bad values before any work is done
    settings["rounds"] = last = algorithm.rounds
    rounds = tuple(sorted({k for k in record if k < last} | ({last} if record else set())))
    return Cell(
        problem=problem,
        algorithm=name,
        settings=tuple(sorted(settings.items())),
        runs=runs if registry.entry(name).private else 1,
        seed=seed,
        record=rounds,
        scored=scored,
    )


@lru_cache(maxsize=1)
def _data(load: Callable[[], Dataset], every: int) -> Dataset:
    data = load()
    if every == 1:
        return data
    train = len(range(0, data.n_train, every))
    kept = np.array([*range(0, data.n_train, every), *range(data.n_train, len(data), every)])
    return replace(data.taken(kept), n_train=train)


@lru_cache(maxsize=4)
def _build(spec: ProblemSpec, data: Dataset) -> Problem:
    deal = partition.by_name(spec.partition, **dict(spec.partition_options))
    options: dict[str, Any] = dict(spec.graph_options)
    graph = partial(graphs.by_name, spec.graph, seed=spec.seed, **options)
    return Problem.dealt(data, spec.nodes, graph, seed=spec.seed, partition=deal, held_out=spec.split != "all")
