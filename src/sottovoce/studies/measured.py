"""Scores of the runs of a cell: one line per recorded round and run, as it is stored."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from sottovoce.algorithms import registry
from sottovoce.arrays import Floats
from sottovoce.progress import Progress
from sottovoce.simulation.engine import solve
from sottovoce.simulation.history import COLUMNS
from sottovoce.studies.cells import Cell

TESTED = ("test_accuracy_last", "test_accuracy_consensus", "test_risk_last", "test_risk_consensus")
CONSTANT = ("seconds", "messages", "sigma", "epsilon_target")
ALL_COLUMNS = (*COLUMNS, *TESTED, *CONSTANT)


@dataclass(frozen=True, eq=False)
class Measured:
    """Scores of a cell, column by column; see `History` for the first columns.

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
    """Run a cell and score it, on the test rows too where there are any."""
    solved = solve(
        cell.problem.build(),
        registry.make(cell.algorithm, dict(cell.settings)),
        runs=cell.runs,
        seed=cell.seed,
        record=cell.record or 1,
        scored=cell.scored,
        progress=progress,
        dtype=cell.dtype,
    )
    history = solved.result.history
    last = history["round"] == solved.algorithm.rounds
    columns: dict[str, Any] = {name: history[name] for name in COLUMNS}
    tested: Mapping[str, Any] = {} if solved.problem.test is None else solved.tested()
    for name in TESTED:
        columns[name] = np.full(len(last), np.nan)
        columns[name][last] = tested.get(name.removeprefix("test_"), np.nan)
    privacy, degrees = solved.result.privacy, solved.problem.graph.degrees
    constants = {
        "seconds": solved.result.seconds,
        "messages": float(solved.algorithm.rounds * int(degrees.sum())),
        "sigma": np.nan if privacy.sigma is None else privacy.sigma,
        "epsilon_target": privacy.target_epsilon,
    }
    for name, value in constants.items():
        columns[name] = np.full(len(last), value)
    return Measured(columns)
