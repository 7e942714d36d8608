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
from sottovoce.files.models.inference import INTERCEPT, Inference
from sottovoce.privacy.observers import Sight
from sottovoce.studies.report.run_words import OUTPUTS
from sottovoce.studies.report.style import COLUMN, CYCLE, DASHES, INK, style
from sottovoce.tally import PrivateEvaluation

Columns = Mapping[str, Sequence[Any]]
_MOST_COEFFICIENTS = 25
_MOST_SITES = 60
_BESIDE, _ACROSS = 24, 52  # letters of a name beside an axis, and of one that has the whole width


def learning(history: Columns, score: str, outputs: Sequence[str], optimum: tuple[float, str] | None) -> Figure:
    """A score over the rounds: "risk" or "accuracy", with a line for each output and one for the optimum, which comes
    with its name.
    """
    with style():
        figure = Figure(figsize=(COLUMN, 2.2 + 0.16 * len(outputs)))
        axes = figure.add_subplot()
        for number, output in enumerate(outputs):
            _curve(axes, history, f"{score}_{output}", OUTPUTS[output], number)
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
        _curve(axes, history, "disagreement", "", 0)
        axes.set_ylim(bottom=0)
        axes.set_title("distance to the consensus")
    return figure


def spending(history: Columns, target: float) -> Figure:
    """Epsilon spent, over the rounds."""
    with style():
        figure = Figure(figsize=(COLUMN, 2.4))
        axes = figure.add_subplot()
        _curve(axes, history, "epsilon", "", 1)
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


def roc(found: PrivateEvaluation) -> Figure:
    """The ROC curve of noisy sums; at every point a cross of two 95 % intervals, shaded between them."""
    points = sorted(found.answer.roc, key=lambda point: point.threshold, reverse=True)
    known = [p for p in points if None not in (p.false_positive_rate.value, p.true_positive_rate.value)]
    across, up = ([getattr(p, name) for p in known] for name in ("false_positive_rate", "true_positive_rate"))
    with style():
        figure = Figure(figsize=(COLUMN, COLUMN))
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
        figure = Figure(figsize=(COLUMN, COLUMN))
        axes = figure.add_subplot()
        axes.plot([0, 1], [0, 1], color=INK, linewidth=0.8, linestyle=DASHES[2])
        low, high = ([getattr(group.observed, end) for group in known] for end in ("low", "high"))
        axes.fill_between(x, low, high, color=CYCLE[1], alpha=0.18, linewidth=0)
        axes.plot(x, np.array([group.observed.value for group in known], dtype=np.float64), "o-", color=CYCLE[1])
        axes.set_xlabel("predicted probability")
        axes.set_ylabel("observed share")
    return figure


def by_site(sites: Columns, same: bool) -> Figure:
    """Each site's own rows: its last model, and the consensus; one mark where they are the same."""
    score = "accuracy" if finite(sites["accuracy_last"]) else "risk"
    order = np.argsort(np.asarray(sites[f"{score}_consensus"]))
    if len(order) > _MOST_SITES:  # of very many, evenly spaced ones from worst to best
        order = order[np.linspace(0, len(order) - 1, _MOST_SITES).astype(int)]
    names = [_short(str(sites["site"][i]), _BESIDE) for i in order]
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
        figure = Figure(figsize=(COLUMN, 0.3 * max(len(shown), 1) + 0.9))
        axes = figure.add_subplot()
        places = np.arange(len(shown))
        axes.hlines(places, low, high, color=CYCLE[0], linewidth=1.2)
        axes.plot(middle, places, "o", color=CYCLE[0])
        axes.axvline(0, color=INK, linewidth=0.7)
        # Names may be long: above its interval each has the whole width.
        axes.set_yticks([])
        axes.spines["left"].set_visible(False)
        for place, line in zip(places.tolist(), shown, strict=True):
            name = _short(line.name, _ACROSS)
            axes.text(0.0, place + 0.2, name, transform=axes.get_yaxis_transform(), va="bottom", fontsize=7.5)
        axes.set_ylim(-0.5, max(len(shown), 1) - 0.2)
        axes.set_xlabel(_FOREST.get(inference.family, "estimate over its standard error"))
    return figure


_FOREST = {
    "logistic": "log odds ratio, for one unit of the column",
    "poisson": "log rate ratio, for one unit of the column",
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


def _short(name: str, most: int) -> str:
    """A name with at most so many letters; tables have it whole."""
    return name if len(name) <= most else f"{name[: most - 1]}…"


def finite(values: Sequence[Any]) -> bool:
    """True if all values of a column are finite; accuracy is not in regression."""
    return bool(np.isfinite(np.asarray(values, dtype=np.float64)).all())
