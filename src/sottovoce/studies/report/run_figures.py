"""The figures of one run. But for those of a private evaluation they are computed without noise, for the holder of the
rows only.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from sottovoce.arrays import Floats
from sottovoce.files.models import Model
from sottovoce.files.models.coefficients import coefficients
from sottovoce.files.models.inference import INTERCEPT, Inference
from sottovoce.privacy.observers import Sight
from sottovoce.studies.report.run_words import OUTPUTS
from sottovoce.studies.report.style import CYCLE, DASHES, INK, style
from sottovoce.tally import PrivateEvaluation

Columns = Mapping[str, Sequence[Any]]
_WIDE = 7.2
_MOST_COEFFICIENTS = 25
_MOST_SITES = 60


def learning(history: Columns, optimum: float | None, named: str) -> Figure:
    """Risk and, in classification, accuracy over the rounds."""
    meant = [name for name in ("risk", "accuracy") if _finite(history[f"{name}_last"])]
    with style():
        figure = Figure(figsize=(_WIDE, 2.9))
        grid = figure.subplots(1, len(meant), squeeze=False)[0]
        for axes, name in zip(grid, meant, strict=True):
            for number, output in enumerate(("last", "average", "consensus")):
                _curve(axes, history, f"{name}_{output}", OUTPUTS[output], number)
            axes.set_title("mean loss" if name == "risk" else "accuracy")
        if optimum is not None:
            grid[0].axhline(optimum, color=INK, linewidth=0.8, linestyle=DASHES[2], label=named)
        handles, labels = grid[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=2)
    return figure


def spending(history: Columns, target: float) -> Figure:
    """Disagreement of the sites and epsilon spent, over the rounds."""
    with style():
        figure = Figure(figsize=(_WIDE, 2.6))
        left, right = figure.subplots(1, 2)
        _curve(left, history, "disagreement", "", 0)
        left.set_title("distance between a site and the consensus")
        if _finite(history["epsilon"]):
            _curve(right, history, "epsilon", "", 1)
            if math.isfinite(target):
                right.axhline(target, color=INK, linewidth=0.8, linestyle=DASHES[2])
                # Above the line, where no curve is, and with room for it.
                right.annotate("promised", (0.0, target), xycoords=("axes fraction", "data"), xytext=(4, 2),
                               textcoords="offset points", ha="left", va="bottom", fontsize=7.5)  # fmt: skip
                right.set_ylim(top=1.15 * max(target, *map(float, history["epsilon"])))
        right.set_ylim(bottom=0)
        right.set_title("epsilon spent")
    return figure


def colluding(observers: Sequence[Sight]) -> Figure:
    """Epsilon over the number of sites that collude, of a run whose guarantee depends on it."""
    with style():
        figure = Figure(figsize=(_WIDE, 2.6))
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


def roc(found: PrivateEvaluation) -> Figure:
    """The ROC curve of noisy sums; at every point a cross of two 95 % intervals, shaded between them."""
    points = sorted(found.answer.roc, key=lambda point: point.threshold, reverse=True)
    known = [p for p in points if None not in (p.false_positive_rate.value, p.true_positive_rate.value)]
    across, up = ([getattr(p, name) for p in known] for name in ("false_positive_rate", "true_positive_rate"))
    with style():
        figure = Figure(figsize=(_WIDE / 2, _WIDE / 2))
        axes = figure.add_subplot()
        axes.plot([0, 1], [0, 1], color=INK, linewidth=0.8, linestyle=DASHES[2])
        axes.plot([0, *(x.value for x in across), 1], [0, *(y.value for y in up), 1], color=CYCLE[0])
        # Corners of the crosses: the curve may run anywhere between them.
        axes.fill(
            [0, *(x.low for x in across), 1, *(x.high for x in reversed(across))],
            [0, *(y.high for y in up), 1, *(y.low for y in reversed(up))], color=CYCLE[0], alpha=0.18, linewidth=0,
        )  # fmt: skip
        axes.set_xlabel("false positive rate")
        axes.set_ylabel("true positive rate")
    return figure


def calibration(found: PrivateEvaluation) -> Figure:
    """Predicted probabilities against observed shares, with 95 % intervals."""
    known = [group for group in found.answer.calibration if group.observed.value is not None]
    x = [group.predicted for group in known]
    with style():
        figure = Figure(figsize=(_WIDE / 2, _WIDE / 2))
        axes = figure.add_subplot()
        axes.plot([0, 1], [0, 1], color=INK, linewidth=0.8, linestyle=DASHES[2])
        low, high = ([getattr(group.observed, end) for group in known] for end in ("low", "high"))
        axes.fill_between(x, low, high, color=CYCLE[1], alpha=0.18, linewidth=0)
        axes.plot(x, np.array([group.observed.value for group in known], dtype=np.float64), "o-", color=CYCLE[1])
        axes.set_xlabel("predicted probability")
        axes.set_ylabel("observed share")
    return figure


def by_site(sites: Columns) -> Figure:
    """Each site's own rows: its last model, and the consensus."""
    score = "accuracy" if _finite(sites["accuracy_last"]) else "risk"
    order = np.argsort(np.asarray(sites[f"{score}_consensus"]))
    if len(order) > _MOST_SITES:  # of very many, evenly spaced ones from worst to best
        order = order[np.linspace(0, len(order) - 1, _MOST_SITES).astype(int)]
    names = [str(sites["site"][i]) for i in order]
    with style():
        figure = Figure(figsize=(_WIDE, 0.19 * len(names) + 1.1))
        axes = figure.add_subplot()
        places = np.arange(len(names))
        own, joint = (np.asarray(sites[f"{score}_{output}"])[order] for output in ("last", "consensus"))
        axes.hlines(places, np.minimum(own, joint), np.maximum(own, joint), color=CYCLE[6], linewidth=0.8, alpha=0.6)
        axes.plot(own, places, "o", color=CYCLE[1], label="its own last broadcast")
        axes.plot(joint, places, "D", color=CYCLE[0], label="mean of all sites")
        axes.set_yticks(places, names)
        axes.set_ylim(-0.8, len(names) - 0.2)
        axes.set_xlabel("accuracy" if score == "accuracy" else "mean loss")
        figure.legend(loc="outside lower center", ncols=2)
    return figure


def largest_coefficients(model: Model, output: int) -> Figure:
    """Bars of the coefficients with the largest effect on one output, with names."""
    # The largest by size, then shown in the order of their sign.
    found = sorted(coefficients(model).largest(output, _MOST_COEFFICIENTS), key=lambda one: one.effect[output])
    effects = [one.effect[output] for one in found]
    with style():
        figure = Figure(figsize=(_WIDE, 0.19 * len(found) + 0.9))
        axes = figure.add_subplot()
        axes.barh(np.arange(len(found)), effects, color=[CYCLE[0 if x > 0 else 1] for x in effects], height=0.7)
        axes.set_yticks(np.arange(len(found)), [one.feature for one in found])
        axes.axvline(0, color=INK, linewidth=0.7)
        axes.grid(False, axis="y")
        meant = "a larger prediction"
        if model.classes is not None:
            meant = f"for {model.classes[output] if model.weights.shape[1] > 1 else model.classes[1]!r}"
        axes.set_xlabel(f"from the lowest to the highest value: to the right, {meant}")
    return figure


def forest(inference: Inference) -> Figure:
    """Every identified coefficient with its interval, in units of its own standard error where scales differ: the
    ratio of odds or rates on a logarithmic axis, else the estimate over its error.
    """
    ratios = inference.family != "linear"
    known = [line for line in inference.lines if line.identified and line.name != INTERCEPT]
    shown = sorted(known, key=lambda line: -abs(line.z or 0.0))[:_MOST_COEFFICIENTS][::-1]
    unit = np.array([1.0 if ratios else line.error or 1.0 for line in shown])
    low, middle, high = (
        np.array([getattr(line, name) for line in shown], dtype=np.float64) / unit
        for name in ("low", "estimate", "high")
    )
    with style():
        figure = Figure(figsize=(_WIDE, 0.19 * max(len(shown), 1) + 0.9))
        axes = figure.add_subplot()
        places = np.arange(len(shown))
        axes.hlines(places, low, high, color=CYCLE[0], linewidth=1.2)
        axes.plot(middle, places, "o", color=CYCLE[0])
        axes.axvline(0, color=INK, linewidth=0.7)
        axes.set_yticks(places, [line.name for line in shown])
        axes.set_ylim(-0.8, max(len(shown), 1) - 0.2)
        axes.grid(False, axis="y")
        axes.set_xlabel(_FOREST.get(inference.family, "estimate over its standard error"))
    return figure


_FOREST = {
    "logistic": "logarithm of the odds ratio for one unit of the column",
    "poisson": "logarithm of the rate ratio for one unit of the column",
}


def _curve(axes: Axes, columns: Columns, name: str, label: str, number: int) -> None:
    """A mean over runs with the range of all; a single run is a line."""
    rounds = np.unique(np.asarray(columns["round"]))
    matrix: Floats = np.asarray(columns[name], dtype=np.float64).reshape(len(rounds), -1)
    axes.plot(rounds, matrix.mean(axis=1), color=CYCLE[number], linestyle=DASHES[number % 3], marker=".", label=label)
    if matrix.shape[1] > 1:
        axes.fill_between(rounds, matrix.min(axis=1), matrix.max(axis=1), color=CYCLE[number], alpha=0.18, linewidth=0)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set_xlabel("round")


def _finite(values: Sequence[Any]) -> bool:
    """True if all values of a column are finite; accuracy is not in regression."""
    return bool(np.isfinite(np.asarray(values, dtype=np.float64)).all())
