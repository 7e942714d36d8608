"""The figures of one run. All of them are read off rows without noise: for the holder of the rows only."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from sottovoce.arrays import Floats
from sottovoce.models import Model
from sottovoce.report.style import CYCLE, DASHES, INK, style

Columns = Mapping[str, Sequence[Any]]
LINES = {"last": "a site's last broadcast", "average": "a site's mean over its steps", "consensus": "mean of all sites"}
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
            for number, (output, words) in enumerate(LINES.items()):
                _curve(axes, history, f"{name}_{output}", words, number)
            axes.set_title("mean loss" if name == "risk" else "share of right answers")
        if optimum is not None:
            grid[0].axhline(optimum, color=INK, linewidth=0.8, linestyle=DASHES[2], label=named)
        handles, labels = grid[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=2)
    return figure


def spending(history: Columns, target: float) -> Figure:
    """How far apart the sites are, and what the broadcasts have cost."""
    with style():
        figure = Figure(figsize=(_WIDE, 2.6))
        left, right = figure.subplots(1, 2)
        _curve(left, history, "disagreement", "", 0)
        left.set_title("distance between a site and the consensus")
        if _finite(history["epsilon"]):
            _curve(right, history, "epsilon", "", 1)
            if math.isfinite(target):
                right.axhline(target, color=INK, linewidth=0.8, linestyle=DASHES[2])
                right.annotate("promised", (1.0, target), xycoords=("axes fraction", "data"), xytext=(-2, -3),
                               textcoords="offset points", ha="right", va="top", fontsize=7.5)  # fmt: skip
        right.set_ylim(bottom=0)
        right.set_title("epsilon spent")
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
        axes.set_xlabel("share of right answers" if score == "accuracy" else "mean loss")
        figure.legend(loc="outside lower center", ncols=2)
    return figure


def coefficients(model: Model, output: int) -> Figure:
    """The largest weights of one output, with names."""
    weights = model.weights[:, output]
    # The largest by size, then shown in the order of their sign.
    largest = np.argsort(np.abs(weights))[-_MOST_COEFFICIENTS:]
    order = largest[np.argsort(weights[largest])]
    with style():
        figure = Figure(figsize=(_WIDE, 0.19 * len(order) + 0.9))
        axes = figure.add_subplot()
        colours = [CYCLE[0] if weights[i] > 0 else CYCLE[1] for i in order]
        axes.barh(np.arange(len(order)), weights[order], color=colours, height=0.7)
        axes.set_yticks(np.arange(len(order)), [model.names[i] for i in order])
        axes.axvline(0, color=INK, linewidth=0.7)
        axes.grid(False, axis="y")
        axes.set_xlabel(_direction(model, output))
    return figure


def _direction(model: Model, output: int) -> str:
    """What a weight to the right speaks for."""
    if model.classes is None:
        return "weight: to the right, a larger prediction"
    name = model.classes[output] if model.weights.shape[1] > 1 else model.classes[1]
    return f"weight: to the right, for {name!r}"


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
    """Whether every one of these is a number; accuracy is none in regression."""
    return bool(np.isfinite(np.asarray(values, dtype=np.float64)).all())
