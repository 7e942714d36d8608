"""How long rows go without an event: survival curves, numbers at risk, medians, and the test between groups."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, NamedTuple, final

import numpy as np

from sottovoce.arrays import Floats, Ints
from sottovoce.document import Folded, Part
from sottovoce.privacy import PrivacyStatement
from sottovoce.privacy.words import guarantee
from sottovoce.settings import written
from sottovoce.tables.coding import Coding, levels_of
from sottovoce.tables.consistent import Consistent, around
from sottovoce.tables.curve import LifeTable, Reached
from sottovoce.tables.description import EVERYONE, csv_of
from sottovoce.tables.follow_up import ALPHA, FollowUp
from sottovoce.tables.found import FoundTable
from sottovoce.tables.log_rank import GroupedTables, LogRank
from sottovoce.tally.intervals import Interval

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


@final
@dataclass(frozen=True)
class Curve:
    """The survival curve of one group, or of all rows.

    Args:
        group: its name; "all" of all rows.
        survival: share of the rows without an event until each time. None from where the noise hides it.
        at_risk: rows that are watched for longer than each time, without an event.
        median: time until which half of the rows have an event.
        mean: the restricted mean: the mean time without an event, up to the last time.
    """

    group: str
    survival: tuple[Interval, ...]
    at_risk: tuple[Interval, ...]
    median: Reached
    mean: Interval


class SurvivalLine(NamedTuple):
    """One number, of a group at a time; without a time, of the whole curve."""

    group: str
    figure: str
    time: float | None
    value: float | None
    low: float
    high: float | None


@final
@dataclass(frozen=True, repr=False)
class Survival(FoundTable):
    """Survival curves of the rows of all sites, from one noisy sum. All intervals are 95 %.

    Args:
        rows: N. Public.
        time: the column of times.
        event: the column that says what ended them.
        by: the column that the groups are of; None if there are none.
        groups: their names.
        times: where the first bin begins, which is 0, and where all end.
        curves: of all rows, and then of each group. Numbers at risk add up over groups.
        log_rank: whether the curves of all groups are one; None without groups.
        noise: standard deviation of the noise in a count of events of one group and bin.
        privacy: the guarantee.
    """

    rows: int
    time: str
    event: str
    by: str | None
    groups: tuple[str, ...]
    times: tuple[float, ...]
    curves: tuple[Curve, ...]
    log_rank: LogRank | None
    noise: float
    privacy: PrivacyStatement
    title: ClassVar[str] = "Survival curves"
    format: ClassVar[str] = "sottovoce-survival/1"

    def described(self) -> list[Part]:
        """The curves as a table, their test, and their price; in HTML, the guarantee in full, folded."""
        from sottovoce.tables.survival_words import survived

        return [*survived(self), Folded("Its guarantee in full", guarantee(self.privacy))]

    def lines(self) -> Iterator[SurvivalLine]:
        """All numbers, one line each."""
        for curve in self.curves:
            for name, values in (("survival", curve.survival), ("at risk", curve.at_risk)):
                for time, one in zip(self.times, values, strict=True):
                    yield SurvivalLine(curve.group, name, time, one.value, one.low, one.high)
            for name, found in (("median", curve.median), ("restricted mean", curve.mean)):
                yield SurvivalLine(curve.group, name, None, found.value, found.low, found.high)

    def to_csv(self) -> str:
        return csv_of(SurvivalLine._fields, self.lines())

    def plot(self, ax: "Axes | None" = None) -> "Axes":
        """Draw the curves with their intervals, and the numbers at risk below, and return matplotlib's axes. With
        groups, it draws theirs, and tells the p of the test.

        Args:
            ax: the axes to draw on; None makes a figure.
        """
        from sottovoce.drawing import drawn_on
        from sottovoce.tables.survival_words import test_words

        shown = self.curves[1:] or self.curves
        with drawn_on(ax, 6.0, self.drawn_height) as axes:
            from sottovoce.drawing.shapes import Lives, survival

            lives = [
                Lives(
                    curve.group, [one.value for one in curve.survival], [one.low for one in curve.survival],
                    [one.high for one in curve.survival], [one.value for one in curve.at_risk],
                )
                for curve in shown
            ]  # fmt: skip
            note = "" if self.log_rank is None else test_words(self.log_rank)
            survival(axes, self.times, lives, note)
            axes.set_xlabel(self.time)
            axes.set_ylabel(f"without the event ({self.event})")
        return axes

    @property
    def drawn_height(self) -> float:
        """Height in inches of a figure that has room for what `plot` draws."""
        return 3.4 + 0.2 * max(len(self.groups), 1)

    def figure(self) -> "Figure":
        """The curves as a figure of a page."""
        from matplotlib.figure import Figure

        from sottovoce.drawing.style import style

        with style():
            figure = Figure(figsize=(6.0, self.drawn_height))
            self.plot(figure.add_subplot())
        return figure


written(Survival, "format", ...)


def survival_of(
    coding: Coding, noisy: Floats, std: float, rows: int, privacy: PrivacyStatement, together: int = 1
) -> Survival:
    """What a noisy sum of coded times and events says; arguments as of `description_of`."""
    (part,), (table,) = coding.parts, coding.split(noisy)
    assert isinstance(part, FollowUp)
    own = std / float(coding.weights[0])
    agreed = Consistent.of([table[:, : part.cells]], [own**2], rows, together)
    lost, lost_noise = table[:, part.cells :] / ALPHA, (own / ALPHA) ** 2
    grouped = agreed.groups > 1
    sums = [lost.sum(axis=0), *lost] if grouped else [lost[0]]
    lives = [
        LifeTable(view, one, (agreed.groups if place == 0 else 1) * lost_noise, part.times)
        for place, (view, one) in enumerate(zip(agreed.views(0), sums, strict=True))
    ]
    by = coding.by
    names = () if by is None else levels_of(by.columns[0])
    at_risk = np.stack([_falling(life, size) for life, size in
                        zip(lives[1:] or lives, agreed.whole_sizes().tolist(), strict=True)])  # fmt: skip
    shown = [at_risk.sum(axis=0), *at_risk] if grouped else [at_risk[0]]
    curves = tuple(
        Curve(name, life.curve, _at_risk(life, counts, rows, whole=name == EVERYONE), life.median(), life.mean())
        for name, life, counts in zip((EVERYONE, *names), lives, shown, strict=True)
    )
    tables = GroupedTables(agreed.tables[0], lost, own**2, lost_noise, rows, together)
    return Survival(
        rows=rows, time=part.duration.name, event=part.event.name, by=None if by is None else by.columns[0].name,
        groups=names, times=tuple(part.times.tolist()), curves=curves,
        log_rank=tables.log_rank(part.times) if grouped else None, noise=own, privacy=privacy,
    )  # fmt: skip


def _falling(life: LifeTable, size: int) -> Ints:
    """Numbers at risk as whole numbers that never rise, from the size of the group on: (K + 1,)."""
    from scipy.optimize import isotonic_regression

    near = np.maximum(isotonic_regression(life.at_start, increasing=False).x, 0.0)
    whole: Ints = np.minimum(np.rint(near).astype(np.int64), size)
    whole[0] = size
    return whole


def _at_risk(life: LifeTable, counts: Ints, rows: int, *, whole: bool) -> tuple[Interval, ...]:
    found = tuple(around(float(count), life.at_risk(j, rows)) for j, count in enumerate(counts.tolist()))
    return (Interval(float(rows), float(rows), float(rows)), *found[1:]) if whole else found
