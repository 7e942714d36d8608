"""The paper's claims, and ours, tested on filled panels.

Which claims there are, which points each compares and by which test is written here, before any result is known. The
rule that turns p-values into words is in `verdict`.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TypeAlias

import numpy as np

from sottovoce.algorithms import registry
from sottovoce.arrays import Floats
from sottovoce.studies.panels import Panel, PanelPoint, StudySize
from sottovoce.studies.statistics import paired, unsteadiness, welch
from sottovoce.studies.verdict import Comparison, PaperClaim, comparison_of, judge, parts, trend

Panels: TypeAlias = Mapping[str, Panel]
Value: TypeAlias = Callable[[PanelPoint], Floats]
# The paper shows last broadcasts; the theorem is about averages.
JUDGED, OTHERS = "last", ("average", "consensus")


def all_claims(panels: Panels, scale: StudySize) -> list[PaperClaim]:
    """Every claim whose figures are there, judged by each node's last broadcast, as the figures are.

    The verdicts by the other outputs stand beside it: which model a node takes in the end changes some of them.
    """
    by_output = {output: _claims(panels, scale, f"risk_{output}") for output in (JUDGED, *OTHERS)}
    return [
        replace(claim, elsewhere={output: by_output[output][number].summary() for output in OTHERS})
        for number, claim in enumerate(by_output[JUDGED])
    ]


def _claims(panels: Panels, scale: StudySize, column: str) -> list[PaperClaim]:
    """All claims whose figures are there, judged by one column of scores."""
    found: list[PaperClaim] = []

    def final(point: PanelPoint) -> Floats:
        assert point.result is not None
        return point.result.final(column)

    def unsteady(point: PanelPoint) -> Floats:
        assert point.result is not None
        return unsteadiness(point.result.curve(column)[1], scale.late)

    if "fig1" in panels:
        found.append(
            _trend("epsilon", "Less epsilon costs accuracy: the risk falls as epsilon grows.", panels["fig1"], final)
        )
    if "fig2" in panels:
        found.append(_trend("l", "More local steps help: the risk falls as l grows.", panels["fig2"], final))
    if "fig3" in panels:
        figure = panels["fig3"]
        text = "IPADMM has a lower risk than every private rival of the paper, same rho, lambda and rounds for all."
        # One family: each rival alone is judged with the correction of all of them.
        whole = _contest("rivals", text, figure, final)
        found += [whole, *parts(whole, "IPADMM has a lower risk than {}.")]
        text = f"IPADMM's updates are steadier: its risk moves less per round over the last {scale.late} rounds."
        found.append(_contest("steady", text, figure, unsteady))
    if "fig3b" in panels:
        text = "IPADMM has a lower risk than every rival, each at its own best setting (yardsticks left out)."
        found.append(_contest("tuned", text, panels["fig3b"], final, source="ours"))
    if "choices" in panels:
        found += _choices(panels["choices"], final)
    return found


def _trend(symbol: str, text: str, panel: Panel, value: Value) -> PaperClaim:
    """A claim that the risk falls along x, for each line of the panel."""
    comparisons = []
    for series in dict.fromkeys(point.series for point in panel.measured()):
        points = sorted((p for p in panel.measured() if p.series == series), key=lambda p: float(p.x))
        matrix = np.stack([value(point) for point in points], axis=1)
        comparisons.append(trend(series.removeprefix("IPADMM, "), symbol, [float(p.x) for p in points], matrix))
    return judge(f"trend in {symbol}", text, comparisons)


def _contest(
    name: str,
    text: str,
    panel: Panel,
    value: Value,
    source: str = "paper",
) -> PaperClaim:
    """A claim that IPADMM is below each rival, facet by facet.

    Args:
        name: of the claim.
        text: what it says.
        panel: where the points are.
        value: the runs of a point, as numbers of which lower is better.
        source: "paper" or "ours".
    """
    ours = {point.facet: point for point in panel.measured() if point.algorithm == "ipadmm"}
    comparisons: list[Comparison] = []
    untested: list[tuple[str, str]] = []
    for point in panel.points:
        line = registry.entry(point.algorithm)
        if not line.private or line.group == "bound" or point.algorithm == "ipadmm":
            continue  # a yardstick, or ours
        condition, label = point.facet, line.label
        # Refused by the algorithm, or nothing to compare with: named as untested, and not counted as won.
        if point.facet not in ours or point.result is None:
            untested.append((condition, label))
            continue
        mine, theirs = value(ours[point.facet]), value(point)
        comparisons.append(
            comparison_of(condition, label, "Welch's t-test of log risks, one-sided", welch(mine, theirs), len(mine))
        )
    return judge(name, text, comparisons, source=source, untested=untested)


def _choices(panel: Panel, value: Value) -> list[PaperClaim]:
    """The two claims about where this library differs from the printed algorithm; runs share their noise, so tests are
    paired.
    """
    by_place = {(point.series, str(point.x).replace("\n", " ")): value(point) for point in panel.measured()}
    texts = {
        "exact noise": ("Exact noise gives a lower risk than the printed formula.", "{} noise, {} steps", 0),
        "monotone steps": ("Monotone steps give a lower risk than the printed ones.", "{1} noise, {0} steps", 1),
    }
    claims = []
    for name, (text, place, which) in texts.items():
        new = name.split()[0]
        comparisons = []
        for series in dict.fromkeys(point.series for point in panel.measured()):
            for other in (("paper", "monotone"), ("paper", "exact"))[which]:
                mine = by_place.get((series, place.format(new, other)))
                theirs = by_place.get((series, place.format("paper", other)))
                if mine is None or theirs is None:
                    continue
                kept = f"{other} {'steps' if which == 0 else 'noise'}, {series}"
                # Both were drawn with the same noise, run by run.
                test = paired(mine, theirs)
                comparisons.append(
                    comparison_of(kept, "as printed", "paired t-test of log risks, one-sided", test, len(mine))
                )
        claims.append(judge(name, text, comparisons, source="ours"))
    return claims
