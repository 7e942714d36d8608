"""Which claims hold, computed from results by one rule.

Every claim is a family of comparisons; all p-values of a family are corrected together (Holm). A comparison is

    won   if its corrected one-sided p-value is below 0.05,
    lost  if that of the opposite is,
    partly (trends only) if it falls up to some point and then rises again, both significantly,
    a tie otherwise.

A claim "holds" if every comparison is won, and "holds only if" the conditions under which some are. If none is even
partly, it "does not hold" where some are lost, and is "not shown" where all are ties. What an algorithm refused to run
is named as untested and does not count. Where nothing could be compared the verdict is "not tested".
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, TypeAlias

import numpy as np

from sottovoce.algorithms import registry
from sottovoce.arrays import Floats
from sottovoce.studies.statistics import Test, falling, holm, paired, unsteadiness, welch
from sottovoce.studies.suite import Panel, Point, StudySize

LEVEL = 0.05
RULE = " ".join((__doc__ or "").split("\n\n", 1)[1].split())
HOLDS, ONLY_IF, FAILS, OPEN, UNTESTED = "holds", "holds only if", "does not hold", "not shown", "not tested"


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """One test within a claim. `condition` says under which circumstances, `against` with whom."""

    condition: str
    against: str
    test: str
    p: float
    p_reverse: float
    effect: float  # difference of means, ours minus theirs: negative is better
    relative: float  # the same, over theirs
    runs: int
    p_holm: float = 1.0
    p_reverse_holm: float = 1.0
    outcome: str = "tie"
    only: str = ""  # of a trend that holds partly: where


@dataclass(frozen=True, kw_only=True)
class Claim:
    """A claim and what came of it.

    Args:
        name: short, for tables.
        text: what it says, in a sentence.
        source: "paper" or "ours".
        verdict: one of HOLDS, ONLY_IF, FAILS, OPEN and UNTESTED.
        condition: of ONLY_IF: under which circumstances; else empty.
        comparisons: all of its tests.
        untested: (condition, against) that could not be run.
        elsewhere: the verdict by other outputs of the same runs.
    """

    name: str
    text: str
    source: str
    verdict: str
    condition: str
    comparisons: tuple[Comparison, ...]
    untested: tuple[tuple[str, str], ...] = ()  # (condition, against) that could not be run

    elsewhere: Mapping[str, str] = field(default_factory=dict)  # the verdict by other outputs

    def summary(self) -> str:
        """The verdict with its condition."""
        return f"{self.verdict}: {self.condition}" if self.condition else self.verdict

    def to_dict(self) -> dict[str, Any]:
        """As JSON data."""
        return asdict(self)


def comparison_of(condition: str, against: str, kind: str, test: Test, runs: int) -> Comparison:
    """A comparison of two samples, not yet corrected."""
    return Comparison(condition=condition, against=against, test=kind, runs=runs, **test._asdict())


def trend(condition: str, symbol: str, xs: Sequence[float], matrix: Floats) -> Comparison:
    """Whether the columns of (runs, len(xs)) fall as x grows.

    The trend is Page's; where the last column is significantly worse than the best one, only the part up to the best
    counts, and must fall by itself.
    """
    means = matrix.mean(axis=0)
    lowest = int(np.argmin(means))
    whole, upto = falling(matrix), falling(matrix[:, : lowest + 1])
    rises = paired(matrix[:, lowest], matrix[:, -1]).p if lowest < len(xs) - 1 else 1.0
    turned = min(1.0, 2 * rises) < LEVEL and means[-1] > means[lowest]
    ends = paired(matrix[:, -1], matrix[:, 0])
    return Comparison(
        condition=condition,
        against=f"{symbol} = {xs[0]:g}",
        test="Page's trend test, runs as matched blocks",
        # Twice, since the place of the turn was read off the same runs.
        p=min(1.0, 2 * upto) if turned else whole,
        p_reverse=falling(matrix[:, ::-1]),
        effect=ends.effect,
        relative=ends.relative,
        runs=len(matrix),
        only=f"{symbol} <= {xs[lowest]:g}" if turned else "",
    )


def judge(
    name: str,
    text: str,
    comparisons: Iterable[Comparison],
    *,
    source: str = "paper",
    untested: Sequence[tuple[str, str]] = (),
) -> Claim:
    """Correct, decide every comparison, and apply the rule."""
    family = list(comparisons)
    forward, backward = holm([c.p for c in family]), holm([c.p_reverse for c in family])
    decided = tuple(
        replace(c, p_holm=p, p_reverse_holm=reverse, outcome=_outcome(c, p, reverse))
        for c, p, reverse in zip(family, forward, backward, strict=True)
    )
    verdict, condition = _verdict(decided)
    return Claim(
        name=name, text=text, source=source, verdict=verdict, condition=condition, comparisons=decided,
        untested=tuple(untested),
    )  # fmt: skip


def parts(claim: Claim, text: str) -> list[Claim]:
    """The claim against each opponent alone; `text` names it with {}. The correction stays that of the whole family."""
    found = []
    for against in dict.fromkeys(c.against for c in claim.comparisons):
        own = tuple(c for c in claim.comparisons if c.against == against)
        verdict, condition = _verdict(own)
        name, words = f"{claim.name}: {against}", text.format(against)
        untested = tuple(pair for pair in claim.untested if pair[1] == against)
        one = replace(claim, name=name, text=words, verdict=verdict, condition=condition, comparisons=own)
        found.append(replace(one, untested=untested))
    return found


def _verdict(decided: tuple[Comparison, ...]) -> tuple[str, str]:
    """The verdict on decided comparisons, and under which conditions it holds."""
    won = [c for c in decided if c.outcome in ("won", "partly")]
    if not decided:
        return UNTESTED, ""
    if all(c.outcome == "won" for c in decided):
        return HOLDS, ""
    if won:
        return ONLY_IF, _describe(won, decided)
    return (FAILS if any(c.outcome == "lost" for c in decided) else OPEN), ""


def _outcome(c: Comparison, p: float, reverse: float) -> str:
    """Won, lost, partly or a tie, by the corrected p-values."""
    if p < LEVEL:
        return "partly" if c.only else "won"
    return "lost" if reverse < LEVEL else "tie"


def _describe(won: list[Comparison], family: tuple[Comparison, ...]) -> str:
    """The conditions that were won, those with the same opponents together."""
    everyone = {c.against for c in family}
    groups: dict[str, list[str]] = {}
    for condition in dict.fromkeys(c.condition for c in won):
        here = [c for c in won if c.condition == condition]
        possible = {c.against for c in family if c.condition == condition}
        beaten = {c.against for c in here}
        only = "; ".join(dict.fromkeys(c.only for c in here if c.only))
        against = "" if beaten == possible or len(everyone) == 1 else f" against {_listed(c.against for c in here)}"
        groups.setdefault(against + (f", {only}" if only else ""), []).append(condition)
    return "; ".join(" or ".join(conditions) + rest for rest, conditions in groups.items())


def _listed(words: Iterable[str]) -> str:
    """Words as people list them, each once."""
    *most, last = list(dict.fromkeys(words))
    return f"{', '.join(most)} and {last}" if most else last


# -- claims -----------------------------------------------------------------------------------------------------------
# The paper's claims, and ours, tested on filled panels.
#
# Which claims there are, which points each compares and by which test is written here, before any result is known. The
# rule that turns p-values into words is in `verdict`.

Panels: TypeAlias = Mapping[str, Panel]
Value: TypeAlias = Callable[[Point], Floats]
# The paper shows last broadcasts; the theorem is about averages.
JUDGED, OTHERS = "last", ("average", "consensus")


def all_claims(panels: Panels, scale: StudySize) -> list[Claim]:
    """Every claim whose figures are there, judged by each node's last broadcast, as the figures are.

    The verdicts by the other outputs stand beside it: which model a node takes in the end changes some of them.
    """
    by_output = {output: _claims(panels, scale, f"risk_{output}") for output in (JUDGED, *OTHERS)}
    return [
        replace(claim, elsewhere={output: by_output[output][number].summary() for output in OTHERS})
        for number, claim in enumerate(by_output[JUDGED])
    ]


def _claims(panels: Panels, scale: StudySize, column: str) -> list[Claim]:
    """All claims whose figures are there, judged by one column of scores."""
    found: list[Claim] = []

    def final(point: Point) -> Floats:
        assert point.result is not None
        return point.result.final(column)

    def unsteady(point: Point) -> Floats:
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


def _trend(symbol: str, text: str, panel: Panel, value: Value) -> Claim:
    """A claim that the risk falls along x, for each line of the panel."""
    comparisons = []
    for series in dict.fromkeys(point.series for point in panel.measured()):
        points = sorted((p for p in panel.measured() if p.series == series), key=lambda p: float(p.x))
        matrix = np.stack([value(point) for point in points], axis=1)
        comparisons.append(trend(series.removeprefix("IPADMM, "), symbol, [float(p.x) for p in points], matrix))
    return judge(f"trend in {symbol}", text, comparisons)


def _rivals(panel: Panel) -> Iterator[Point]:
    """The points of private algorithms that IPADMM is compared with; yardsticks are left out."""
    for point in panel.points:
        line = registry.entry(point.algorithm)
        if line.private and line.group != "bound" and point.algorithm != "ipadmm":
            yield point


def _contest(
    name: str,
    text: str,
    panel: Panel,
    value: Value,
    source: str = "paper",
) -> Claim:
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
    for point in _rivals(panel):
        condition, label = point.facet, registry.entry(point.algorithm).label
        # Refused by the algorithm, or nothing to compare with: named as untested, and not counted as won.
        if point.facet not in ours or point.result is None:
            untested.append((condition, label))
            continue
        mine, theirs = value(ours[point.facet]), value(point)
        comparisons.append(
            comparison_of(condition, label, "Welch's t-test of log risks, one-sided", welch(mine, theirs), len(mine))
        )
    return judge(name, text, comparisons, source=source, untested=untested)


def _choices(panel: Panel, value: Value) -> list[Claim]:
    """The two claims about where this library leaves the printed algorithm; runs share their noise, so tests are
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
