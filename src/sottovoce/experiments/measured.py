"""What a cell's runs came to: one line per recorded round and run, as it is stored."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from sottovoce.algorithms import registry
from sottovoce.algorithms.base import Outputs
from sottovoce.arrays import Floats
from sottovoce.compiled import CompiledOracle
from sottovoce.engines.history import COLUMNS, measure, scored_nodes
from sottovoce.engines.simulate import Progress, Result, simulate
from sottovoce.experiments.cells import Cell
from sottovoce.graphs import Graph, complete
from sottovoce.sites import Sites

TESTED = ("test_accuracy_last", "test_accuracy_consensus", "test_risk_last", "test_risk_consensus")
CONSTANT = ("seconds", "messages", "sigma", "epsilon_target")
ALL_COLUMNS = (*COLUMNS, *TESTED, *CONSTANT)


@dataclass(frozen=True, eq=False)
class Measured:
    """A table, column by column; see `History` for the first columns.

    `seconds` is of the whole block of runs, `messages` are vectors sent in one run by all nodes, `sigma` is the
    noise of one private step over its sensitivity, and `test_...` are scores on the held-out rows: nan where there are
    none, and before the last round.
    """

    columns: Mapping[str, np.ndarray[Any, np.dtype[Any]]]

    def final(self, name: str) -> Floats:
        """A column after the last round, one entry per run."""
        rounds = self.columns["round"]
        values: Floats = self.columns[name][rounds == rounds.max()].astype(np.float64)
        return values

    def curve(self, name: str) -> tuple[Floats, Floats]:
        """The recorded rounds, and the column as (rounds, runs)."""
        rounds = np.unique(self.columns["round"]).astype(np.float64)
        return rounds, self.columns[name].astype(np.float64).reshape(len(rounds), -1)


def run(cell: Cell, progress: Progress | None = None) -> Measured:
    """Do the work of a cell."""
    algorithm = registry.make(cell.algorithm, dict(cell.settings))
    sites, graph = cell.problem.build()
    result = simulate(
        algorithm,
        sites,
        graph,
        runs=cell.runs,
        seed=cell.seed,
        record=cell.record or 1,
        scored=cell.scored,
        progress=progress,
        dtype=cell.dtype,
    )
    lines, last = len(result.history["round"]), result.history["round"] == algorithm.rounds
    columns: dict[str, Any] = {name: result.history[name] for name in COLUMNS}
    for name, values in _tested(cell, algorithm, result).items():
        columns[name] = np.full(lines, np.nan)
        columns[name][last] = values
    for name, value in _constants(result, algorithm, graph).items():
        columns[name] = np.full(lines, value)
    return Measured(columns)


def _tested(cell: Cell, algorithm: Any, result: Result) -> dict[str, Any]:
    if cell.problem.split == "all":
        return dict.fromkeys(TESTED, np.nan)
    test = cell.problem.data().test
    sites = Sites([test.features], [test.labels], data_norm=test.data_norm)
    # Results are (runs, nodes, d); scores are taken of (nodes, d, runs).
    outputs = Outputs(result.average.transpose(1, 2, 0), result.last.transpose(1, 2, 0))
    line = measure(outputs, algorithm.oracle(sites, complete(1), CompiledOracle), scored_nodes(result.last.shape[1]))
    return {name: line[name.removeprefix("test_")] for name in TESTED}


def _constants(result: Result, algorithm: Any, graph: Graph) -> dict[str, float]:
    sigma = np.nan if result.privacy.sigma is None else result.privacy.sigma
    return {
        "seconds": result.seconds,
        "messages": float(algorithm.rounds * int(graph.degrees.sum())),
        "sigma": sigma,
        "epsilon_target": result.privacy.target_epsilon,
    }
