"""The rule that decides which claims hold, from results.

Every claim is a family of comparisons; all p-values of a family are corrected together (Holm). A comparison is

    won   if its corrected one-sided p-value is below 0.05,
    lost  if that of the opposite is,
    partly (trends only) if it falls up to some point and then rises again, both significantly,
    a tie otherwise.

A claim "holds" if every comparison is won, and "holds only if" the conditions under which some are. If none is even
partly, it "does not hold" where some are lost, and is "not shown" where all are ties. What an algorithm refused to run
is named as untested and does not count. Where nothing could be compared the verdict is "not tested".
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from sottovoce.arrays import Floats
from sottovoce.studies.statistics import Test, falling, holm, paired

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
class PaperClaim:
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


def comparison_of(condition: str, against: str, kind: str, test: Test, runs: int) -> Comparison:
    """A comparison of two samples, not yet corrected."""
    return Comparison(condition=condition, against=against, test=kind, runs=runs, **test._asdict())


def trend(condition: str, symbol: str, xs: Sequence[float], matrix: Floats) -> Comparison:
    """Page's test of whether the columns of (runs, len(xs)) fall as x grows.

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
) -> PaperClaim:
    """Correct, decide every comparison, and apply the rule."""
    family = list(comparisons)
    forward, backward = holm([c.p for c in family]), holm([c.p_reverse for c in family])
    decided = tuple(
        replace(
            c,
            p_holm=p,
            p_reverse_holm=reverse,
            outcome=("partly" if c.only else "won") if p < LEVEL else "lost" if reverse < LEVEL else "tie",
        )
        for c, p, reverse in zip(family, forward, backward, strict=True)
    )
    verdict, condition = _verdict(decided)
    return PaperClaim(
        name=name, text=text, source=source, verdict=verdict, condition=condition, comparisons=decided,
        untested=tuple(untested),
    )  # fmt: skip


def parts(claim: PaperClaim, text: str) -> list[PaperClaim]:
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


def _describe(won: list[Comparison], family: tuple[Comparison, ...]) -> str:
    """The conditions that were won, those with the same opponents together."""
    everyone = {c.against for c in family}
    groups: dict[str, list[str]] = {}
    for condition in dict.fromkeys(c.condition for c in won):
        here = [c for c in won if c.condition == condition]
        possible = {c.against for c in family if c.condition == condition}
        beaten = {c.against for c in here}
        only = "; ".join(dict.fromkeys(c.only for c in here if c.only))
        *most, last = dict.fromkeys(c.against for c in here)
        names = f"{', '.join(most)} and {last}" if most else last
        against = "" if beaten == possible or len(everyone) == 1 else f" against {names}"
        groups.setdefault(against + (f", {only}" if only else ""), []).append(condition)
    return "; ".join(" or ".join(conditions) + rest for rest, conditions in groups.items())
