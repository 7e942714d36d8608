"""How good the models of a run are on some rows: those learnt from, or test rows."""

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np

from sottovoce.arrays import Array, Floats
from sottovoce.problem import evaluation, figures
from sottovoce.problem.dataset import Dataset
from sottovoce.problem.figures import Figures
from sottovoce.problem.graphs import CompleteGraph
from sottovoce.problem.losses import Reals
from sottovoce.problem.sites import Sites
from sottovoce.simulation.engine import Solved
from sottovoce.simulation.history import OUTPUTS, scored_nodes

SITE = "site"  # the output that a real site would end with, where it is not the consensus


@dataclass(frozen=True)
class RunScores:
    """Scores of the models on some rows: by output, one entry per run.

    Args:
        risk, accuracy: by the name of the output, one entry per run.
        majority: accuracy of always answering the more frequent label; None in regression.
        figures: of the consensus, in the mean over runs; None until they were computed.
        nothing: figures of no model at all; None until they were computed.
        rare: the class that fewer than one row in ten is of, if there is one.
    """

    risk: Mapping[str, Array]
    accuracy: Mapping[str, Array]
    majority: float | None
    figures: Figures | None = None
    nothing: Figures | None = None
    rare: str | None = None

    @property
    def worse_than_nothing(self) -> bool | None:
        """True if the consensus has a larger loss than a constant answer; None if that was not computed."""
        if self.figures is None or self.nothing is None:
            return None
        return not self.figures.risk < self.nothing.risk

    def summary(self) -> dict[str, Any]:
        """Means and standard deviations over runs, as plain data."""
        return {
            "risk": {name: float(values.mean()) for name, values in self.risk.items()},
            "risk_std": {name: spread(values) for name, values in self.risk.items()},
            "accuracy": {name: float(values.mean()) for name, values in self.accuracy.items()},
            "accuracy_std": {name: spread(values) for name, values in self.accuracy.items()},
            "majority_accuracy": self.majority,
            "metrics": {
                "consensus": self.figures,
                "no_model": self.nothing,
            },
            "rare_class": self.rare,
            "worse_than_no_model": self.worse_than_nothing,
        }


def scores_of(solved: Solved, columns: Mapping[str, Array], rows: Sites | Dataset) -> RunScores:
    """Scores from columns of a history, on these rows; the majority is that of the rows learnt from."""
    majority = None
    if not isinstance(solved.algorithm.loss.labels, Reals):
        sites = solved.problem.sites
        values, places = np.unique(sites.labels, return_inverse=True)
        counts = np.bincount(places, sites.factors.weights)
        frequent = values[np.flatnonzero(counts == counts.max())[-1]]
        majority = figures.mean(rows.labels == frequent, rows.factors.weights)
    return RunScores(
        risk={name: columns[f"risk_{name}"] for name in OUTPUTS},
        accuracy={name: columns[f"accuracy_{name}"] for name in OUTPUTS},
        majority=majority,
    )


def with_figures(solved: Solved, scores: RunScores, rows: Sites) -> RunScores:
    """The scores with AUC and the like added, and with those of the model that a real site would have."""
    answers, loss = solved.problem.answers, solved.algorithm.loss
    learnt, factors = solved.problem.sites.labels, rows.factors
    found = [
        figures.figures(
            loss, factors.shifted(figures.predictions(rows.rows.block, len(rows.labels), loss, model)), rows.labels,
            answers.scale, factors.weights,
        )
        for model in solved.result.consensus.astype(np.float64)
    ]  # fmt: skip
    columns = {field.name: [getattr(one, field.name) for one in found] for field in fields(Figures)}
    means: dict[str, Any] = {n: None if None in values else float(np.mean(values)) for n, values in columns.items()}
    rare, classes = figures.rare_class(loss, learnt), answers.classes_of(loss)
    scores = replace(
        scores,
        figures=Figures(**means),
        nothing=figures.no_model(loss, learnt, rows.labels, answers.scale, solved.problem.sites.factors, factors),
        rare=None if rare is None or classes is None else classes[rare],
    )
    models = real_models(solved)
    if models is None:
        return scores
    nodes, runs, d = models.shape
    flat = evaluation.evaluate(rows.rows.block, rows.labels, loss, models.reshape(-1, d).T, factors)
    risk, accuracy = (column.reshape(nodes, runs).mean(axis=0) for column in flat)
    return replace(scores, risk={**scores.risk, SITE: risk}, accuracy={**scores.accuracy, SITE: accuracy})


def real_models(solved: Solved) -> Floats | None:
    """The models that some real sites would end with: the mean of their own last broadcast and their neighbours',
    (nodes, runs, d). None where that is the consensus, as on a complete graph.
    """
    graph, last = solved.problem.graph, solved.result.last.astype(np.float64).transpose(1, 2, 0)
    if isinstance(graph, CompleteGraph) or graph.n < 3:
        return None
    together = last + graph.neighbour_sum(np.ascontiguousarray(last))
    means: Floats = together / (1 + graph.degrees)[:, None, None]
    return means[scored_nodes(graph.n)].transpose(0, 2, 1)


def spread(values: Array) -> float | None:
    """Standard deviation over runs; None for a single run."""
    return float(values.std(ddof=1)) if len(values) > 1 else None
