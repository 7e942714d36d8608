"""Survival curves as people read them: tables of the curves and of numbers at risk, medians, and the test."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from sottovoce.document import NOTHING, Part, Table, Words
from sottovoce.tables.curve import Reached
from sottovoce.tables.log_rank import LogRank
from sottovoce.tables.words import p_words, price
from sottovoce.tally.intervals import Interval

if TYPE_CHECKING:
    from sottovoce.tables.survival_curves import Curve, Survival

INTERVALS = (
    "In brackets: 95 % intervals, at each time by itself, which cover the privacy noise and the sampling of the rows. "
    "A dash is what the noise hides."
)
BETWEEN = (
    "Between these times, curves are straight lines; medians and means are those of the lines. Medians are known up to "
    "these times, so their intervals end there."
)
TESTED = (
    "The test accounts for the noise: p is how often groups with one curve, and with noise of their own, come out as "
    "far apart, of {draws:,} tables that were drawn."
)


def survived(found: "Survival") -> list[Part]:
    """The curves, numbers at risk, medians and means, the test, and what they cost."""
    headings = tuple(curve.group for curve in found.curves)

    def table(name: str, make: "Callable[[Curve, int], str]") -> Table:
        rows = [(f"{time:g}", *(make(curve, j) for curve in found.curves)) for j, time in enumerate(found.times)]
        return Table((name, *headings), rows, frozenset(range(len(headings) + 1)))

    summary = [
        ("median", *(_reached(curve.median) for curve in found.curves)),
        (f"mean up to {found.times[-1]:g}", *(_time(curve.mean) for curve in found.curves)),
    ]
    by = "" if found.by is None else f", by {found.by}"
    parts: list[Part] = [
        Words(f"Share of the rows without the event ({found.event}){by}", "strong"),
        table(found.time, lambda curve, j: _share(curve.survival[j])),
        Words("Rows at risk: watched for longer, without the event", "strong"),
        table(found.time, lambda curve, j: _count(curve.at_risk[j])),
        Table((found.time, *headings), summary, frozenset(range(1, len(headings) + 1))),
    ]
    if found.log_rank is not None:
        parts.append(Words(f"{_statistic(found.log_rank)}: whether the groups have one curve.", "strong"))
        parts += [] if found.log_rank.statistic is None else [Words(TESTED.format(draws=found.log_rank.draws), "soft")]
    return [
        *parts,
        Words(f"{found.rows:,} rows. The noise in a count of events has a standard deviation of {found.noise:.3g}."),
        Words(INTERVALS, "soft"), Words(BETWEEN, "soft"), *price(found.privacy),
    ]  # fmt: skip


def test_words(test: LogRank) -> str:
    """The result of a test in a few words, for a figure."""
    return "log-rank: hidden by the noise" if test.statistic is None else f"log-rank {p_words(test.p, test.draws)}"


def _statistic(test: LogRank) -> str:
    if test.statistic is None:
        return "Log-rank test: the noise hides who is at risk, so nothing can be tested"
    return f"Log-rank chi-squared = {test.statistic:.4g}, {p_words(test.p, test.draws)}, up to {test.until:g}"


def _share(one: Interval) -> str:
    if one.low == one.high:
        return f"{one.low:g}"
    value = NOTHING if one.value is None else f"{one.value:.3f}"
    return f"{value} ({one.low:.3f}\u2013{one.high:.3f})"


def _count(one: Interval) -> str:
    value = f"{one.value:,.0f}"
    return value if one.low == one.high else f"{value} ({one.low:,.0f}\u2013{one.high:,.0f})"


def _time(one: Interval) -> str:
    value = NOTHING if one.value is None else f"{one.value:.4g}"
    return f"{value} ({one.low:.4g}\u2013{one.high:.4g})"


def _reached(one: Reached) -> str:
    value = NOTHING if one.value is None else f"{one.value:.4g}"
    until = " or later" if one.high is None else f"\u2013{one.high:.4g}"
    return f"{value} ({one.low:.4g}{until})"
