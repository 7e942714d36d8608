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
from sottovoce.drawing.style import COLUMN, CYCLE, DASHES, INK, MARKERS, style
from sottovoce.studies.panels import Panel, PanelPoint
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
    """The figure of a panel that has results, for a paper. `optimum` is drawn as a line where it is in reach."""
    facets = _facets(panel)
    columns = 2 if panel.shape == "curves" and len(facets) > 1 else 1
    rows = math.ceil(len(facets) / columns)
    height = {"curves": 2.7 * rows + 0.6, "sweep": 2.9 * rows + 0.7, "categories": 3.2}[panel.shape]
    with style():
        figure = Figure(figsize=(_WIDE, height))
        grid = figure.subplots(rows, columns, squeeze=False, sharex=True)
        for axes, facet in zip(grid.flat, facets, strict=False):
            _draw_part(axes, panel, facet, optimum)
        for axes in grid.flat[len(facets) :]:
            axes.set_visible(False)
        for axes in grid[-1]:
            _label(axes, panel)
        for row in grid:
            row[0].set_ylabel("risk")
        _legend(figure, grid.flat[0], 2 if panel.shape == "sweep" else 4)
    return figure


def draw_parts(panel: Panel, optimum: float | None = None) -> list[Figure]:
    """The same, for a page: each part of the panel as a figure of its own, one column wide."""
    figures = []
    for facet in _facets(panel):
        with style():
            figure = Figure(figsize=(COLUMN, 2.6 + 0.16 * len(_looks(panel))))
            axes = figure.add_subplot()
            _draw_part(axes, panel, facet, optimum)
            _label(axes, panel)
            axes.set_ylabel("risk")
            if panel.shape == "categories":
                axes.tick_params(axis="x", labelsize=7, labelrotation=30)
            _legend(figure, axes, 1)
        figures.append(figure)
    return figures


def _facets(panel: Panel) -> list[str]:
    """The parts of the figure, in order; dots side by side are one part."""
    facets = list(dict.fromkeys(point.facet for point in panel.measured()))
    return facets[:1] if panel.shape == "categories" else facets


def _draw_part(axes: Axes, panel: Panel, facet: str, optimum: float | None) -> None:
    """One part of a panel, without labels."""
    {"curves": _curves, "categories": _categories, "sweep": _sweep}[panel.shape](axes, panel, facet, optimum)


def _label(axes: Axes, panel: Panel) -> None:
    """The label along x, and whole numbers along a linear axis; 1, 2 and 5 times powers of ten along a logarithmic one.
    Names along x stay as they are.
    """
    axes.set_xlabel(panel.xlabel)
    if panel.shape == "categories":
        return
    if not panel.log_x:
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        return
    axes.set_xscale("log")
    axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:g}"))
    axes.xaxis.set_minor_locator(NullLocator())


def _sweep(axes: Axes, panel: Panel, facet: str, optimum: float | None) -> None:
    """Lines over a number."""
    values: list[Floats] = []
    for series, look in _looks(panel).items():
        here = [p for p in panel.measured() if (p.series, p.facet) == (series, facet)]
        points = sorted(here, key=lambda p: float(p.x))
        if points:
            # The number of runs is the same along a line.
            matrix = np.stack([_values(point, panel.column) for point in points], axis=0)
            _line(axes, np.array([float(p.x) for p in points]), matrix, look, series, marks=True)
            values.append(matrix)
    _finish(axes, values, optimum)
    axes.set_title(facet)


def _curves(axes: Axes, panel: Panel, facet: str, optimum: float | None) -> None:
    """Risk over rounds."""
    looks, values = _looks(panel), list[Floats]()
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


def _categories(axes: Axes, panel: Panel, facet: str, optimum: float | None) -> None:  # noqa: ARG001
    """Dots with intervals, side by side within a category."""
    names = list(dict.fromkeys(str(point.x) for point in panel.measured()))
    looks, values = _looks(panel), list[Floats]()
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
