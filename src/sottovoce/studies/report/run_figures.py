"""The figures of one run. But for those of a private evaluation they are computed without noise, for the holder of the
rows only.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from sottovoce.drawing.shapes import over_rounds, shortened
from sottovoce.drawing.style import COLUMN, CYCLE, DASHES, INK, style
from sottovoce.files.models.inference import Inference
from sottovoce.privacy.observers import Sight
from sottovoce.studies.report.run_words import OUTPUTS
from sottovoce.tally import PrivateEvaluation
from sottovoce.tally.evaluation import EvaluationCurve

Columns = Mapping[str, Sequence[Any]]
_MOST_SITES = 60
_BESIDE = 24  # letters of a name beside an axis


def learning(history: Columns, score: str, outputs: Sequence[str], optimum: tuple[float, str] | None) -> Figure:
    """A score over the rounds: "risk" or "accuracy", with a line for each output and one for the optimum, which comes
    with its name.
    """
    with style():
        figure = Figure(figsize=(COLUMN, 2.2 + 0.16 * len(outputs)))
        axes = figure.add_subplot()
        for number, output in enumerate(outputs):
            over_rounds(axes, history, f"{score}_{output}", OUTPUTS[output], number)
        axes.set_title("mean loss" if score == "risk" else "accuracy")
        if optimum is not None:
            axes.axhline(optimum[0], color=INK, linewidth=0.8, linestyle=DASHES[2], label=optimum[1])
        figure.legend(loc="outside lower left", ncols=1)
    return figure


def disagreement(history: Columns) -> Figure:
    """How far sites are from their consensus, over the rounds."""
    with style():
        figure = Figure(figsize=(COLUMN, 2.4))
        axes = figure.add_subplot()
        over_rounds(axes, history, "disagreement", "", 0)
        axes.set_ylim(bottom=0)
        axes.set_title("distance to the consensus")
    return figure


def spending(history: Columns, target: float) -> Figure:
    """Epsilon spent, over the rounds."""
    with style():
        figure = Figure(figsize=(COLUMN, 2.4))
        axes = figure.add_subplot()
        over_rounds(axes, history, "epsilon", "", 1)
        if math.isfinite(target):
            axes.axhline(target, color=INK, linewidth=0.8, linestyle=DASHES[2])
            # Above the line, where no curve is, and with room for it.
            axes.annotate("promised", (0.0, target), xycoords=("axes fraction", "data"), xytext=(4, 2),
                          textcoords="offset points", ha="left", va="bottom", fontsize=7.5)  # fmt: skip
            axes.set_ylim(top=1.15 * max(target, *map(float, history["epsilon"])))
        axes.set_ylim(bottom=0)
        axes.set_title("epsilon spent")
    return figure


def colluding(observers: Sequence[Sight]) -> Figure:
    """Epsilon over the number of sites that collude, of a run whose guarantee depends on it."""
    with style():
        figure = Figure(figsize=(COLUMN, 2.4))
        axes = figure.add_subplot()
        axes.plot([line.colluding for line in observers], [line.epsilon for line in observers], color=CYCLE[0])
        agreed = max((line for line in observers if line.noise >= 1), key=lambda line: line.colluding)
        axes.plot(agreed.colluding, agreed.epsilon, "o", color=CYCLE[0])
        axes.annotate("assumed", (agreed.colluding, agreed.epsilon), xytext=(4, -4), textcoords="offset points",
                      ha="left", va="top", fontsize=7.5)  # fmt: skip
        axes.set_ylim(bottom=0)
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.set_xlabel("colluding sites, with the message server")
        axes.set_ylabel("epsilon")
    return figure


def evaluated(found: PrivateEvaluation, curve: EvaluationCurve) -> Figure:
    """A curve of noisy sums, with 95 % intervals."""
    with style():
        figure = Figure(figsize=(COLUMN, COLUMN))
        found.plot(curve, ax=figure.add_subplot())
    return figure


def by_site(sites: Columns, same: bool) -> Figure:
    """Each site's own rows: its last model, and the consensus; one mark where they are the same."""
    score = "accuracy" if finite(sites["accuracy_last"]) else "risk"
    order = np.argsort(np.asarray(sites[f"{score}_consensus"]))
    if len(order) > _MOST_SITES:  # of very many, evenly spaced ones from worst to best
        order = order[np.linspace(0, len(order) - 1, _MOST_SITES).astype(int)]
    names = [shortened(str(sites["site"][i]), _BESIDE) for i in order]
    with style():
        figure = Figure(figsize=(COLUMN, 0.19 * len(names) + (0.9 if same else 1.25)))
        axes = figure.add_subplot()
        places = np.arange(len(names))
        own, joint = (np.asarray(sites[f"{score}_{output}"])[order] for output in ("last", "consensus"))
        if not same:
            low, high = np.minimum(own, joint), np.maximum(own, joint)
            axes.hlines(places, low, high, color=CYCLE[6], linewidth=0.8, alpha=0.6)
            axes.plot(own, places, "o", color=CYCLE[1], label="its own last broadcast")
        axes.plot(joint, places, "D", color=CYCLE[0], label="mean of all sites")
        axes.set_yticks(places, names)
        axes.set_ylim(-0.8, len(names) - 0.2)
        axes.xaxis.set_major_locator(MaxNLocator(5))
        axes.set_xlabel("accuracy" if score == "accuracy" else "mean loss")
        if not same:
            figure.legend(loc="outside lower left", ncols=1)
    return figure


def forest(inference: Inference) -> Figure:
    """Every identified coefficient with its interval."""
    with style():
        figure = Figure(figsize=(COLUMN, inference.drawn_height))
        inference.plot(figure.add_subplot())
    return figure


def finite(values: Sequence[Any]) -> bool:
    """True if all values of a column are finite; accuracy is not in regression."""
    return bool(np.isfinite(np.asarray(values, dtype=np.float64)).all())
