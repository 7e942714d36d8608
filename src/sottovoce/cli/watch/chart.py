"""Curves over rounds: where points and the numbers of the axes are on a drawing, and the same numbers as a table."""

import math
from collections.abc import Callable, Mapping
from operator import itemgetter
from typing import NamedTuple, final

from sottovoce.document import NOTHING, Table

MOST_LINES = 8
_MOST_POINTS, _MOST_ROWS = 240, 300
# Of a chart, in its own units; letters are larger on a narrow page, and fit all the same.
_WIDTH, _HEIGHT, _LEFT, _RIGHT, _TOP, _BOTTOM = 640, 222, 70, 14, 10, 46


@final
class DrawnCurve(NamedTuple):
    """One curve of a chart: what it is, and its points as an SVG path."""

    label: str
    path: str
    ends: tuple[float, float]


@final
class Tick(NamedTuple):
    """A number on an axis, and where it is."""

    at: float
    text: str


@final
class Chart(NamedTuple):
    """Curves over rounds, ready to be drawn."""

    lines: tuple[DrawnCurve, ...]
    rounds: tuple[Tick, ...]
    values: tuple[Tick, ...]
    words: str
    table: Table
    width: int = _WIDTH
    height: int = _HEIGHT
    left: int = _LEFT
    right: int = _WIDTH - _RIGHT
    top: int = _TOP
    bottom: int = _HEIGHT - _BOTTOM


def chart(series: Mapping[str, Mapping[int, float]], meant: str, text: Callable[[float], str]) -> Chart | None:
    """Curves over rounds, and their points as a table, the newest first; None if there is not a single point.

    Args:
        series: values by round, by the name of the curve. Of many curves the first few are drawn.
        meant: what the values are, for the sentence that says it.
        text: a value as text.
    """
    known = {name: dict(sorted(points.items())) for name, points in series.items() if points}
    if not known:
        return None
    shown = dict(list(known.items())[:MOST_LINES])
    rounds = [k for points in shown.values() for k in points]
    values = [value for points in shown.values() for value in points.values()]
    low, high = min(rounds), max(rounds)
    top = max(values) or 1.0
    steps, across = _steps(top), max(high - low, 1)

    def place(k: int, value: float) -> tuple[float, float]:
        x = _LEFT + (k - low) / across * (_WIDTH - _LEFT - _RIGHT)
        y = _HEIGHT - _BOTTOM - value / steps[-1] * (_HEIGHT - _TOP - _BOTTOM)
        return round(x, 1), round(y, 1)

    lines = []
    for name, points in shown.items():
        thinned = _thin_out(list(points.items()))
        path = "M" + " L".join(f"{x} {y}" for x, y in (place(k, value) for k, value in thinned))
        lines.append(DrawnCurve(name, path, place(*thinned[-1])))
    step = max(1, round(_steps(across)[1]))
    ticks = range(-(-low // step) * step, high + 1, step) or [low]
    newest = sorted(set(rounds), reverse=True)[:_MOST_ROWS]
    rows = [(str(k), *(text(points[k]) if k in points else NOTHING for points in shown.values())) for k in newest]
    left_out = f" {len(known) - len(shown)} more sites are not drawn." if len(known) > len(shown) else ""
    return Chart(
        lines=tuple(lines),
        rounds=tuple(Tick(place(k, 0)[0], str(k)) for k in ticks),
        values=tuple(Tick(place(low, value)[1], f"{value:g}") for value in steps),
        words=f"{meant} over rounds {low} to {high}: {text(min(values))} to {text(max(values))}.{left_out}",
        table=Table(("round", *shown), rows, frozenset(range(len(shown) + 1))),
    )


def _steps(top: float) -> list[float]:
    """Round numbers from 0 to at least `top`, four to six of them."""
    raw = top / 4
    unit = 10.0 ** math.floor(math.log10(raw)) if raw > 1e-300 else 1e-300
    step = next(unit * factor for factor in (1, 2, 2.5, 5, 10) if unit * factor >= raw * (1 - 1e-9))
    return [i * step for i in range(math.ceil(top / step * (1 - 1e-9)) + 1)]


def _thin_out(points: list[tuple[int, float]]) -> list[tuple[int, float]]:
    """At most _MOST_POINTS points: of each stretch its first, smallest and largest, and the last of all."""
    if len(points) <= _MOST_POINTS:
        return points
    size, kept = -(-len(points) // (_MOST_POINTS // 3)), dict[int, float]()
    for start in range(0, len(points), size):
        stretch = points[start : start + size]
        for k, value in (stretch[0], min(stretch, key=itemgetter(1)), max(stretch, key=itemgetter(1))):
            kept[k] = value
    kept[points[-1][0]] = points[-1][1]
    return sorted(kept.items())
