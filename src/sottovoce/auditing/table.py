"""Audits side by side, as a table."""

from collections.abc import Mapping

from sottovoce.auditing.bounds import Verdict
from sottovoce.document import NOTHING, Table, Words


def table_of(audits: Mapping[str, Verdict]) -> Table:
    """A line for each audit, by what was attacked."""
    headings = ("attacked", "view", "claimed ε", "shown, by counting", "of claim", "shown, normal", "of claim, normal",
                "noise", "runs", "seconds", "verdict")  # fmt: skip
    rows = [
        (
            name,
            one.watched,
            f"{one.claim.epsilon:.4g}",
            f"{one.lower:.3f}",
            f"{one.ratio:.2f}",
            NOTHING if one.lower_gaussian is None else f"{one.lower_gaussian:.3f}",
            NOTHING if one.ratio_gaussian is None else f"{one.ratio_gaussian:.2f}",
            NOTHING if one.noise is None else f"{one.noise.size:.3f}",
            f"{one.runs:,}",
            f"{one.seconds:.0f}",
            Words("REFUTED", "bad") if one.alarm else "not refuted",
        )
        for name, one in audits.items()
    ]
    return Table(headings, rows, frozenset(range(2, 10)))
