"""The record of a simulation at chosen rounds, one line per (round, run), and the scores in it."""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from sottovoce.algorithms.base import Outputs
from sottovoce.arrays import Array, Ints
from sottovoce.oracle.plain import Oracle
from sottovoce.problem.evaluation import Scores, evaluate
from sottovoce.simulation.exchange import Exchange

OUTPUTS = ("average", "last", "consensus")
COLUMNS = ("round", "run", "epsilon", *(f"risk_{name}" for name in OUTPUTS),
           *(f"accuracy_{name}" for name in OUTPUTS), "disagreement")  # fmt: skip


NODES_SCORED = 128
USUAL = 10  # default number of recorded rounds
# Rows times models that are scored for the default history. Fetching the rows takes as long as scoring this many
# models.
MOST_SCORED, MODELS_PER_FETCH = 2_000_000_000, 64
FEW_MODELS = 256  # up to which all outputs of a round are scored together, so that rows are fetched once


class History(Mapping[str, np.ndarray[Any, np.dtype[Any]]]):
    """The recorded rounds as a table, a mapping from column to array. `epsilon` is spent up to and including that
    round: by one run or, for private rows, by all of them together.

    `risk_average` and `risk_last` are means over nodes of the global mean loss of each node's model. `disagreement` is
    the mean over nodes of the distance between a node's last broadcast and the consensus.
    """

    def __init__(self) -> None:
        self._parts: dict[str, list[Array]] = {name: [] for name in COLUMNS}

    def add(self, line: Mapping[str, Any], runs: int) -> None:
        """Append one round: every value is a number or has one entry per run."""
        for name in COLUMNS:
            self._parts[name].append(np.broadcast_to(np.asarray(line[name]), (runs,)))

    def __getitem__(self, name: str) -> np.ndarray[Any, np.dtype[Any]]:
        return np.concatenate(self._parts[name]) if self._parts[name] else np.empty(0)

    def __iter__(self) -> Iterator[str]:
        return iter(COLUMNS)

    def __len__(self) -> int:
        return len(COLUMNS)

    def final(self, name: str) -> np.ndarray[Any, np.dtype[Any]]:
        """The column at the last recorded round, one entry per run."""
        return np.array(self._parts[name][-1])

    def __repr__(self) -> str:
        rounds = np.unique(self["round"])
        return f"History({len(rounds)} rounds, columns {', '.join(COLUMNS)})"


def usual_records(rows: int, models: int) -> int:
    """Default number of recorded rounds: ten, or fewer with very many rows."""
    return max(1, min(USUAL, MOST_SCORED // (rows * max(models, MODELS_PER_FETCH))))


def scored_nodes(n: int, most: int = NODES_SCORED) -> Ints:
    """Numbers of the nodes whose models are scored: evenly spaced ones if there are more than `most`. A global risk
    needs every row for every model.
    """
    return np.unique(np.linspace(0, n - 1, min(n, most)).astype(np.int64))


def measure(outputs: Outputs, site: Oracle, chosen: Ints, exchange: Exchange) -> dict[str, Array]:
    """Scores of one round's outputs on the oracle's rows. Per-node figures are means over the `chosen` nodes."""
    consensus = exchange.consensus(outputs.last)
    distances = ((outputs.last - consensus) ** 2).sum(axis=1) ** 0.5
    line: dict[str, Array] = {"disagreement": exchange.mean(distances)}
    stacks = [*(exchange.chosen(models, chosen) for models in outputs), consensus[None]]
    if sum(len(stack) for stack in stacks) * stacks[0].shape[2] > FEW_MODELS:
        means = [mean_scores(site, stack) for stack in stacks]
    else:  # few models go through the rows together; many would only fill memory
        ends = np.cumsum([len(stack) for stack in stacks])[:-1]
        parts = zip(*(np.split(column, ends) for column in _scores(site, np.concatenate(stacks))), strict=True)
        means = [Scores(*(part.mean(axis=0) for part in of_stack)) for of_stack in parts]
    for name, scores in zip(OUTPUTS, means, strict=True):
        line[f"risk_{name}"], line[f"accuracy_{name}"] = scores
    return line


def mean_scores(site: Oracle, models: Array) -> Scores:
    """Loss and accuracy of models (nodes, d, runs) on the oracle's rows: the mean over nodes of every run."""
    return Scores(*(column.mean(axis=0) for column in _scores(site, models)))


def _scores(site: Oracle, models: Array) -> Scores:
    """Loss and accuracy of every model (nodes, d, runs) on the oracle's rows: (nodes, runs)."""
    nodes, d, runs = models.shape
    scores = site.score(models.transpose(1, 0, 2).reshape(d, nodes * runs))
    return Scores(*(column.reshape(nodes, runs) for column in scores))


def by_node(site: Oracle, models: Array) -> Scores:
    """Loss and accuracy of each node's model (nodes, d, 1) on its own rows. Only for the holder of the rows."""
    rows, labels, factors = site.sites.rows, site.sites.labels, site.sites.factors

    def own(i: int) -> Scores:
        first, last = int(rows.offsets[i]), int(rows.offsets[i + 1])
        block = rows.block(first, last)
        return evaluate(
            lambda start, end: block[start:end], labels[first:last], site.loss, models[i], factors[first:last]
        )

    parts = [own(i) for i in range(rows.nodes)]
    return Scores(*(np.concatenate(column) for column in zip(*parts, strict=True)))
