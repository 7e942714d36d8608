"""Tables, as rows of text for the page and as columns of numbers for files."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from sottovoce.algorithms import registry
from sottovoce.document import NOTHING, Cell, Table, Tone, Words
from sottovoce.studies.measured import ALL_COLUMNS
from sottovoce.studies.panels import FORM_WORDS, Panel, PanelPoint
from sottovoce.studies.statistics import interval
from sottovoce.studies.verdict import PaperClaim

# Attributes of a point that a table may show, and what they are called there.
_SHOWN = {"facet": "graph", "epsilon": "ε", "picked": "chosen settings"}
_TONES: dict[str, Tone] = {
    "holds": "good", "holds only if": "part", "does not hold": "bad", "not shown": "part", "won": "good", "lost": "bad",
}  # fmt: skip


def scores(points: Sequence[PanelPoint], *, tested: bool = True, shown: Sequence[str] = ()) -> Table:
    """One line per algorithm and form; `shown` are attributes of a point to show before the figures."""
    test = [f"test accuracy, {which} %" for which in ("last", "consensus")] if tested else []
    costs = ["distance to consensus", "ε spent", "σ", "messages", "seconds", "runs"]
    chosen = [_SHOWN[name] for name in shown]
    headings = ["algorithm", "form", *chosen, "risk, last", "risk, consensus", *test, *costs]
    rows = []
    # What does not depend on epsilon is one result, and one line.
    for point in {(point.facet, point.series, point.cell): point for point in points}.values():
        result = point.result
        assert result is not None
        accuracy = [
            _with_interval(100 * result.final(f"test_accuracy_{which}"), 2) for which in ("last", "consensus")
        ] if tested else []  # fmt: skip
        epsilon, sigma = (float(result.final(name)[0]) for name in ("epsilon", "sigma"))
        rows.append(
            (
                point.series,
                FORM_WORDS[point.form] if registry.entry(point.algorithm).private else NOTHING,
                *(_attribute(point, name) for name in shown),
                _with_interval(result.final("risk_last"), 4),
                _with_interval(result.final("risk_consensus"), 4),
                *accuracy,
                _with_interval(result.final("disagreement"), 2),
                # A cost is never understated: three decimals, rounded up.
                f"{math.ceil(epsilon * 1000) / 1000:g}" if math.isfinite(epsilon) else "∞",
                f"{sigma:,.1f}" if math.isfinite(sigma) else NOTHING,
                f"{result.final('messages')[0]:,.0f}",
                f"{result.final('seconds')[0] / point.cell.runs:.2g}",
                str(point.cell.runs),
            )
        )
    return Table(tuple(headings), rows, frozenset(range(2 + len(shown), len(headings))))


def verdicts(claims: Sequence[PaperClaim]) -> Table:
    """One line per claim: the verdict by the last broadcasts, and by the other outputs."""
    others = claims[0].elsewhere if claims else ()
    headings = (
        "claim",
        "whose",
        "verdict, by last broadcast",
        "won",
        "tied",
        "lost",
        "untested",
        *(f"by {name}" for name in others),
    )
    rows: list[tuple[Cell, ...]] = []
    for claim in claims:
        won = sum(c.outcome in ("won", "partly") for c in claim.comparisons)
        lost = sum(c.outcome == "lost" for c in claim.comparisons)
        ties = len(claim.comparisons) - won - lost
        counts = (won, ties, lost, len(claim.untested))
        # In short: the conditions are in the details and in the file.
        beside = [_came_out(verdict.split(":")[0]) for verdict in claim.elsewhere.values()]
        rows.append((claim.text, claim.source, _came_out(claim.summary()), *map(str, counts), *beside))
    return Table(headings, rows, frozenset({3, 4, 5, 6}))


def comparisons(claim: PaperClaim) -> Table:
    """Every test within a claim."""
    rows = [
        (
            c.condition,
            c.against,
            f"{c.effect:+.4f}" if abs(c.effect) < 100 else f"{c.effect:+.2g}",
            f"{100 * c.relative:+.1f} %",
            _p(c.p),
            _p(c.p_holm),
            _came_out(c.outcome + (f", {c.only}" if c.outcome == "partly" else "")),
            str(c.runs),
        )
        for c in claim.comparisons
    ]
    headings = ("condition", "against", "difference", "relative", "p", "p, Holm", "outcome", "runs")
    return Table(headings, rows, frozenset({2, 3, 4, 5, 7}))


def columns(panels: Sequence[Panel], *, every_round: bool) -> dict[str, list[Any]]:
    """All results as one long table: a line per point and run, or per point, recorded round and run."""
    table: dict[str, list[Any]] = {
        name: [] for name in ("panel", "facet", "series", "x", "algorithm", "form", "settings", "cell", *ALL_COLUMNS)
    }
    for panel in panels:
        for point in panel.measured():
            assert point.result is not None
            rounds = point.result.columns["round"]
            chosen = np.ones(len(rounds), dtype=bool) if every_round else rounds == rounds.max()
            settings = ", ".join(f"{name}={value}" for name, value in point.cell.settings)
            place = (
                panel.name, point.facet, point.series, str(point.x).replace("\n", " "), point.algorithm, point.form,
                settings, point.cell.key,
            )  # fmt: skip
            for name, value in zip(list(table)[: len(place)], place, strict=True):
                table[name] += [value] * int(chosen.sum())
            for name in ALL_COLUMNS:
                table[name] += point.result.columns[name][chosen].tolist()
    return table


def _came_out(words: str) -> Words:
    """How a claim or a comparison came out, in its colour."""
    return Words(words, _TONES.get(words.split(":")[0], "plain"))


def _attribute(point: PanelPoint, name: str) -> str:
    """One attribute of a point as text, on one line."""
    value = getattr(point, name)
    return (
        NOTHING if value in (None, "") else f"{value:g}" if isinstance(value, float) else str(value).replace("\n", " ")
    )


def _with_interval(values: Any, digits: int) -> str:
    """A mean over runs and half its 95 % interval."""
    mean, low, high = interval(np.asarray(values, dtype=np.float64))
    if not math.isfinite(mean):
        return NOTHING
    if abs(mean) >= 1000:
        return f"{mean:.2e}"
    return f"{mean:.{digits}f}" + (f" ± {(high - low) / 2:.{digits}f}" if math.isfinite(low) else "")


def _p(p: float) -> str:
    """A p-value with three digits."""
    return f"{p:.3f}" if p >= 0.001 else "< 0.001"
