"""The shapes that runs, coefficients and evaluations are drawn as, on axes that the caller has made."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from sottovoce.arrays import Floats
from sottovoce.drawing.style import CYCLE, DASHES, INK

_ACROSS = 52  # letters of a name that has the width of a figure
_AT_RISK, _NAME = 7, 16  # numbers at risk below a curve, and letters of the name before them
_WIDE = 4.5  # inches of axes that names fit beside


class Span(NamedTuple):
    """A number with its interval."""

    value: float
    low: float
    high: float


def over_rounds(axes: Axes, columns: Mapping[str, Any], name: str, label: str, number: int) -> None:
    """A column of a history: the mean over runs with the range of all. A single run is a line.

    Args:
        axes: to draw on.
        columns: one entry per round and run, with the column "round".
        name: of the column.
        label: for a legend.
        number: of the line among those on the axes, for its colour.
    """
    rounds = np.unique(np.asarray(columns["round"]))
    matrix: Floats = np.asarray(columns[name], dtype=np.float64).reshape(len(rounds), -1)
    axes.plot(rounds, matrix.mean(axis=1), color=CYCLE[number], linestyle=DASHES[number % 3], marker=".", label=label)
    if matrix.shape[1] > 1:
        axes.fill_between(rounds, matrix.min(axis=1), matrix.max(axis=1), color=CYCLE[number], alpha=0.18, linewidth=0)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set_xlabel("round")


def roc(axes: Axes, across: Sequence[Span], up: Sequence[Span]) -> None:
    """False and true positive rates at falling thresholds; at every point a cross of two intervals, shaded between."""
    axes.plot([0, 1], [0, 1], color=INK, linewidth=0.8, linestyle=DASHES[2])
    axes.plot([0, *(x.value for x in across), 1], [0, *(y.value for y in up), 1], color=CYCLE[0])
    # Corners of the crosses: the curve may run anywhere between them.
    axes.fill(
        [0, *(x.low for x in across), 1, *(x.high for x in reversed(across))],
        [0, *(y.high for y in up), 1, *(y.low for y in reversed(up))], color=CYCLE[0], alpha=0.18, linewidth=0,
    )  # fmt: skip
    axes.set_xlabel("false positive rate")
    axes.set_ylabel("true positive rate")


def calibration(axes: Axes, predicted: Sequence[float], observed: Sequence[Span]) -> None:
    """Predicted probabilities against observed shares with their intervals."""
    axes.plot([0, 1], [0, 1], color=INK, linewidth=0.8, linestyle=DASHES[2])
    low, high = [one.low for one in observed], [one.high for one in observed]
    axes.fill_between(predicted, low, high, color=CYCLE[1], alpha=0.18, linewidth=0)
    axes.plot(predicted, [one.value for one in observed], "o-", color=CYCLE[1])
    axes.set_xlabel("predicted probability")
    axes.set_ylabel("observed share")


class Lives(NamedTuple):
    """A survival curve with its band and the numbers at risk, at the same times; None where nothing is told."""

    name: str
    value: Sequence[float | None]
    low: Sequence[float]
    high: Sequence[float]
    at_risk: Sequence[float | None]


def survival(axes: Axes, times: Sequence[float], curves: Sequence[Lives], note: str) -> None:
    """Survival curves with their bands, and below them the numbers at risk, as far as there is room for them.

    Args:
        axes: to draw on.
        times: where the curves are told.
        curves: one or several; a legend names several.
        note: a few words in the corner.
    """
    for number, curve in enumerate(curves):
        colour, values = CYCLE[number % len(CYCLE)], [np.nan if one is None else one for one in curve.value]
        axes.fill_between(times, curve.low, curve.high, color=colour, alpha=0.18, linewidth=0)
        axes.plot(times, values, color=colour, linestyle=DASHES[number % len(DASHES)], label=curve.name)
    axes.set_ylim(0, 1.02)
    axes.set_xlim(times[0], times[-1])
    shown = range(0, len(times), -(-len(times) // _AT_RISK))
    axes.set_xticks([times[j] for j in shown], [f"{times[j]:g}" for j in shown])
    below = axes.get_xaxis_transform()
    for line, curve in enumerate(curves):
        y = -0.26 - 0.08 * line
        name = shortened(curve.name, _NAME)
        axes.text(-0.04, y, name, transform=axes.transAxes, ha="right", va="center", fontsize=7.5)
        for j in shown:
            number_ = curve.at_risk[j]
            text = "" if number_ is None else f"{number_:,.0f}"
            axes.text(times[j], y, text, transform=below, ha="center", va="center", fontsize=7.5)
    axes.text(-0.04, -0.18, "at risk", transform=axes.transAxes, ha="right", va="center", fontsize=7.5, weight="bold")
    axes.text(0.02, 0.04, note, transform=axes.transAxes, fontsize=8.0)
    if len(curves) > 1:
        axes.legend(loc="upper right")


def forest(axes: Axes, names: Sequence[str], spans: Sequence[Span]) -> None:
    """Numbers with their intervals below each other, the first on top, and a line at 0."""
    places = np.arange(len(names))[::-1]
    axes.hlines(places, [one.low for one in spans], [one.high for one in spans], color=CYCLE[0], linewidth=1.2)
    axes.plot([one.value for one in spans], places, "o", color=CYCLE[0])
    axes.axvline(0, color=INK, linewidth=0.7)
    if axes.bbox.width >= _WIDE * axes.figure.dpi:
        axes.set_yticks(places, [shortened(name, _ACROSS) for name in names])
        axes.grid(False, axis="y")
        axes.set_ylim(-0.8, max(len(names), 1) - 0.2)
        return
    # On narrow axes each name has the whole width, above its interval.
    axes.set_yticks([])
    axes.spines["left"].set_visible(False)
    for place, name in zip(places.tolist(), names, strict=True):
        text = shortened(name, _ACROSS)
        axes.text(0.0, place + 0.2, text, transform=axes.get_yaxis_transform(), va="bottom", fontsize=7.5)
    axes.set_ylim(-0.5, max(len(names), 1) - 0.2)


def shortened(name: str, most: int) -> str:
    """A name with at most so many letters; tables have it whole."""
    return name if len(name) <= most else f"{name[: most - 1]}…"
