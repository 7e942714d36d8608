"""A panel as a figure: lines over epsilon or rounds, or dots side by side."""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter, NullLocator

from sottovoce.algorithms import registry
from sottovoce.arrays import Floats
from sottovoce.studies.panels import Panel, PanelPoint
from sottovoce.studies.report.style import CYCLE, DASHES, INK, MARKERS, style
from sottovoce.studies.statistics import interval

_WIDE = 7.2
# Beyond this ratio a linear axis would hide all but the largest.
_LOG_RATIO = 4.0
# A run that overflowed is drawn at the top.
_TOP = 1e12


class Look(NamedTuple):
    """Colour, dashes and marker of a line."""

    colour: str
    dash: Any
    marker: str


def draw_panel(panel: Panel, optimum: float | None = None) -> Figure:
    """The figure of a panel that has results. `optimum` is drawn as a line where it is in reach."""
    with style():
        if panel.shape == "curves":
            return _curves(panel, optimum)
        return _categories(panel) if panel.shape == "categories" else _sweep(panel, optimum)


def _sweep(panel: Panel, optimum: float | None) -> Figure:
    """Lines over a number, one stacked part for each facet."""
    facets = list(dict.fromkeys(point.facet for point in panel.measured()))
    figure = Figure(figsize=(_WIDE, 2.9 * len(facets) + 0.7))
    stack = figure.subplots(len(facets), 1, squeeze=False, sharex=True)[:, 0]
    looks = _looks(panel)
    for axes, facet in zip(stack, facets, strict=True):
        values: list[Floats] = []
        for series, look in looks.items():
            here = [p for p in panel.measured() if (p.series, p.facet) == (series, facet)]
            points = sorted(here, key=lambda p: float(p.x))
            if points:
                # The number of runs is the same along a line.
                matrix = np.stack([_values(point, panel.column) for point in points], axis=0)
                _line(axes, np.array([float(p.x) for p in points]), matrix, look, series, marks=True)
                values.append(matrix)
        _finish(axes, values, optimum)
        axes.set_title(facet)
        axes.set_ylabel("risk")
    _ticks(stack[-1], panel)
    stack[-1].set_xlabel(panel.xlabel)
    _legend(figure, stack[0], 2)
    return figure


def _ticks(axes: Axes, panel: Panel) -> None:
    """Whole numbers along a linear axis; 1, 2 and 5 times powers of ten along a logarithmic one."""
    if not panel.log_x:
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        return
    axes.set_xscale("log")
    axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:g}"))
    axes.xaxis.set_minor_locator(NullLocator())


def _curves(panel: Panel, optimum: float | None) -> Figure:
    """Risk over rounds, one part for each facet, two beside each other."""
    facets = list(dict.fromkeys(point.facet for point in panel.measured()))
    columns = 2 if len(facets) > 1 else 1
    rows = math.ceil(len(facets) / columns)
    figure = Figure(figsize=(_WIDE, 2.7 * rows + 0.6))
    grid = figure.subplots(rows, columns, squeeze=False, sharex=True)
    looks = _looks(panel)
    for axes, facet in zip(grid.flat, facets, strict=False):
        values = []
        for point in panel.measured():
            if point.facet == facet:
                assert point.result is not None
                rounds, matrix = point.result.curve(panel.column)
                matrix = _cap(matrix)
                _line(axes, rounds, matrix, looks[point.series], point.series)
                values.append(matrix)
        _finish(axes, values, optimum)
        # Early rounds can be a hundred times worse than the end, which is what is compared.
        if panel.cut_at is not None:
            axes.set_ylim(top=panel.cut_at * max(float(matrix[-1].mean()) for matrix in values))
        axes.set_title(facet)
    for axes in grid.flat[len(facets) :]:
        axes.set_visible(False)
    for axes in grid[-1]:
        _ticks(axes, panel)
        axes.set_xlabel(panel.xlabel)
    for row in grid:
        row[0].set_ylabel("risk")
    _legend(figure, grid.flat[0], 4)
    return figure


def _categories(panel: Panel) -> Figure:
    """Dots with intervals, side by side within a category."""
    names = list(dict.fromkeys(str(point.x) for point in panel.measured()))
    looks = _looks(panel)
    figure = Figure(figsize=(_WIDE, 3.2))
    axes = figure.add_subplot()
    values = []
    for order, (series, look) in enumerate(looks.items()):
        shift = 0.0 if len(looks) == 1 else (order / (len(looks) - 1) - 0.5) * 0.5
        points = [point for point in panel.measured() if point.series == series]
        places = [names.index(str(point.x)) + shift for point in points]
        samples = [_values(point, panel.column) for point in points]
        _dots(axes, places, samples, look, series)
        values += samples
    axes.set_xticks(range(len(names)), names)
    axes.set_xlim(-0.6, len(names) - 0.4)
    axes.grid(False, axis="x")
    _finish(axes, values, None)
    axes.set_xlabel(panel.xlabel)
    axes.set_ylabel("risk")
    _legend(figure, axes, 4)
    return figure


def _line(axes: Axes, x: Floats, matrix: Floats, look: Look, label: str, marks: bool = False) -> None:
    """A mean with its band; matrix is (len(x), runs)."""
    axes.plot(
        x, matrix.mean(axis=1), color=look.colour, linestyle=look.dash, label=label,
        marker=look.marker if marks else None,
    )  # fmt: skip
    if matrix.shape[1] > 1:
        # Of the runs, not of the mean: a reader asks what one run may give.
        low, high = np.quantile(matrix, [0.05, 0.95], axis=1)
        axes.fill_between(x, low, high, color=look.colour, alpha=0.18, linewidth=0)


def _dots(axes: Axes, places: Sequence[float], samples: Sequence[Floats], look: Look, label: str) -> None:
    """A mean and its 95 % interval for each sample; a single run has no interval."""
    for number, (place, values) in enumerate(zip(places, samples, strict=True)):
        mean, low, high = interval(values)
        if math.isfinite(low):
            axes.plot([place, place], [low, high], color=look.colour, linewidth=1.6)
        axes.plot(
            place, mean, look.marker, color=look.colour, markersize=5.5, label=label if number == 0 else "_nolegend_"
        )


def _finish(axes: Axes, values: Sequence[Floats], optimum: float | None) -> None:
    """A log axis where one is needed, and the yardstick where it can be seen."""
    if not values:
        return
    low, high = min(float(v.min()) for v in values), max(float(v.max()) for v in values)
    if high > _LOG_RATIO * low > 0:
        axes.set_yscale("log")
        subs = (1, 2, 5) if high < 100 * low else (1,)
        axes.yaxis.set_major_locator(LogLocator(subs=subs))
        axes.yaxis.set_major_formatter(FuncFormatter(lambda y, _: f"{y:g}"))
        axes.yaxis.set_minor_formatter(NullFormatter())
    # Where it would squeeze the lines together, the yardstick stays away.
    if optimum is not None and (low - optimum) < 1.5 * (high - low):
        axes.axhline(optimum, color=INK, linewidth=0.8, linestyle=DASHES[2], label="pooled, no privacy")


def _legend(figure: Figure, axes: Axes, columns: int) -> None:
    """One legend below the whole figure, if there is more than one line."""
    handles, labels = axes.get_legend_handles_labels()
    if len(labels) > 1:
        figure.legend(handles, labels, loc="outside lower center", ncols=min(columns, len(labels)))


def _looks(panel: Panel) -> dict[str, Look]:
    """Algorithms keep their colour everywhere; several lines of one algorithm get different ones and dashes."""
    by_series = {point.series: point.algorithm for point in panel.measured()}
    algorithms = list(by_series.values())
    alone = {name for name in algorithms if algorithms.count(name) == 1}
    # Colours that stand for an algorithm are not used for anything else in the same figure.
    taken = {registry.entry(name).colour for name in alone}
    spare = [colour for colour in CYCLE if colour not in taken]
    looks, others = {}, 0
    for order, (series, name) in enumerate(by_series.items()):
        line, marker = registry.entry(name), MARKERS[order % len(MARKERS)]
        if name in alone:
            yardstick = line.group == "bound" or not line.private
            looks[series] = Look(line.colour, DASHES[1] if yardstick else "-", marker)
            continue
        looks[series] = Look(spare[others % len(spare)], DASHES[others % len(DASHES)], marker)
        others += 1
    return looks


def _values(point: PanelPoint, column: str) -> Floats:
    """A point's final scores, one for each run."""
    assert point.result is not None
    return _cap(point.result.final(column))


def _cap(values: Floats) -> Floats:
    """The values with overflows cut, so that they are drawn at the top of the figure."""
    capped: Floats = np.minimum(np.nan_to_num(values, nan=_TOP, posinf=_TOP), _TOP)
    return capped
