"""The page of an audit: both worlds' scores, the trade-off curve against the claimed one, and the bounds."""

import json
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure as Drawing
from scipy.special import ndtri

from sottovoce import __version__
from sottovoce.arrays import Floats
from sottovoce.auditing.bounds import Verdict, claimed_curve
from sottovoce.auditing.table import table_of
from sottovoce.document import Document, Figure, FigureRow, Section, Words
from sottovoce.drawing.style import COLUMN, CYCLE, DASHES, INK, style
from sottovoce.settings import plain
from sottovoce.settings.disk import write_whole
from sottovoce.studies.report.rendering import page_of
from sottovoce.studies.report.svg import inline, picture

PAGE, DATA = "audit.html", "audit.json"
_POINTS = 400  # of a curve


def score_figure(audit: Verdict) -> Drawing:
    """Both distributions of scores, and the threshold."""
    with style():
        figure = Drawing(figsize=(COLUMN, 2.9))
        axes = figure.add_subplot()
        both = np.concatenate([audit.first, audit.second])
        low, high = np.quantile(both, [0.0005, 0.9995]).tolist()
        bins = np.linspace(low, high, 61).tolist()
        for scores, colour, name in ((audit.first, CYCLE[0], "first row"), (audit.second, CYCLE[1], "second row")):
            axes.hist(scores, bins=bins, density=True, histtype="step", color=colour, label=name, linewidth=1.3)
        axes.axvline(audit.threshold, color=INK, linewidth=0.8, linestyle=DASHES[2], label="threshold")
        axes.set_xlabel("score")
        axes.set_yticks([])
        axes.set_title("scores in the two worlds")
        figure.legend(loc="outside lower left", ncols=3)
    return figure


def curve_figure(audit: Verdict) -> Drawing:
    """The trade-off curve, as seen and as claimed."""
    with style():
        figure = Drawing(figsize=(COLUMN, 2.9))
        axes = figure.add_subplot()
        # In normal quantiles, where a Gaussian claim is a straight line and its distance from the diagonal is mu.
        axes.plot([-3, 3], [-3, 3], color=INK, linewidth=0.6)
        false, true = rates(audit.first, audit.second)
        axes.plot(_spread(false), _spread(true), color=CYCLE[0], label="seen")
        grid = np.linspace(0.001, 0.999, _POINTS)
        claimed = _spread(claimed_curve(audit.claim, grid))
        axes.plot(_spread(grid), claimed, color=CYCLE[1], linestyle=DASHES[1], label="claimed")
        ticks = np.array([0.01, 0.1, 0.5, 0.9, 0.99])
        for axis in (axes.xaxis, axes.yaxis):
            axis.set_ticks(ndtri(ticks).tolist(), [f"{100 * t:g} %" for t in ticks.tolist()])
        axes.set_xlim(-2.6, 2.6)
        axes.set_ylim(-2.6, 2.6)
        axes.set_xlabel("passes, first row")
        axes.set_title("passes, second row")
        figure.legend(loc="outside lower left", ncols=2)
    return figure


def rates(first: Floats, second: Floats) -> tuple[Floats, Floats]:
    """Shares of both worlds' scores above thresholds that rise from the lowest to the highest score."""
    thresholds = np.quantile(np.concatenate([first, second]), np.linspace(0, 1, _POINTS))
    false, true = (
        1 - np.searchsorted(np.sort(scores), thresholds, side="right") / len(scores) for scores in (first, second)
    )
    return false, true


def _spread(chance: Floats) -> Floats:
    """Normal quantiles, with what would be infinite left out."""
    inside = (chance > 0) & (chance < 1)
    found: Floats = np.where(inside, ndtri(np.where(inside, chance, 0.5)), np.nan)
    return found


def audit_page(audits: Mapping[str, Verdict]) -> str:
    """The page as HTML, by what was attacked."""
    any_one = next(iter(audits.values()))
    columns = (
        f'"By counting" assumes nothing about the scores; "normal" assumes that {any_one.assumption}, and raises no '
        'alarm. "Noise" is the standard deviation of the noise in messages, over what the claim needs for two rows '
        "that were there, in the round where it looks smallest: at least 1 if the claim holds, up to chance, and if "
        "noise is normal."
    )
    captions = {
        "scores": (score_figure, "Scores in the two worlds, and the threshold that was fixed beforehand."),
        "curve": (
            curve_figure,
            "How many of the second world's runs pass, where so many of the first world's do; the claim allows no more "
            "than the dashed line.",
        ),
    }
    sections = []
    for number, (attacked, one) in enumerate(audits.items()):
        drawn = [
            Figure(inline(picture(draw(one), "svg").decode(), f"audit-{number}-{name}"), caption)
            for name, (draw, caption) in captions.items()
        ]
        words = Words(one.prose(), "bad" if one.alarm else "plain")
        sections.append(Section(f"audit-{number}", attacked, [words, FigureRow(drawn)]))
    return page_of(
        Document(
            "Audit: what an observer can really tell",
            [
                Words(
                    "Each claim of epsilon was attacked: two rows were searched for that differ most, both worlds were "
                    "run many times, and all that an observer sees was combined as well as possible. The figure is a "
                    f"lower bound on the true epsilon, with {100 * any_one.confidence:g} % confidence in each line, so "
                    "that of many lines of right claims a few may lie above. A claim counts as refuted only where "
                    "chance would do that once in a million audits: by counting, by the size of a round's noise, or "
                    "because its own statement is above what was asked for."
                ),
                Words(
                    "A bound above a claim by more than chance refutes it. A bound below shows that this attack found "
                    "no fault, and no more: it proves nothing about other rows, settings that were not tried, "
                    "timing, or other machines.",
                    "banner",
                ),
                Section("all", "Claims and bounds", [table_of(audits), Words(columns, "soft")]),
                *sections,
                Words(f"sottovoce {__version__}. Beside this page: {DATA}, the same as data.", "soft"),
            ],
        )
    )


def write_audits(audits: Mapping[str, Verdict], out: Path) -> None:
    """The page and the data, into a folder that is made if it is not there."""
    write_data(audits, out)
    write_whole(out / PAGE, audit_page(audits).encode())


def write_data(audits: Mapping[str, Verdict], out: Path) -> None:
    """The data alone: audits take minutes, and those that have ended are kept if a later one is interrupted."""
    out.mkdir(parents=True, exist_ok=True)
    write_whole(out / DATA, (json.dumps(plain(audits), indent=2, allow_nan=False) + "\n").encode())
