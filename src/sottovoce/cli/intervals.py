"""Predicted intervals of coefficients: as `sottovoce plan --inference` prints them, and for those who are to agree."""

from typing import TYPE_CHECKING

from sottovoce.cli.output import show
from sottovoce.document import NOTHING, Table

if TYPE_CHECKING:
    from sottovoce.federation.agreement.agreement import Agreement
    from sottovoce.plan import PredictedIntervals, PredictedWidth


def show_intervals(found: "PredictedIntervals") -> None:
    """Print the predicted width of each interval, then, which takes a while, what each ratio would need."""
    from sottovoce.files.models.inference import RATIOS
    from sottovoce.plan.widths import POWER, TOLD_RATIOS

    kind = RATIOS[found.family]
    head = ("", "width", "range", "times/over", "identified", "told from 1")
    show(
        found.summary,
        *([found.nearest] if found.hopeless else []),
        "Widths of 95 % intervals, per unit as in the table of coefficients, and the range that most of the made-up "
        f'tables have. The {kind} is known up to the factor "times/over", and the smallest that is told from 1 comes '
        "last: both from the lowest to the highest value.",
        Table(head, [_line(line) for line in found.lines], frozenset(range(1, len(head)))),
    )
    ratios = [f"{ratio:g}" for ratio in TOLD_RATIOS]
    rows = [
        (
            line.name,
            *(NOTHING if need.rows is None else f"{need.rows:,}" for need in found.needs[line.name]),
            *(NOTHING if need.epsilon is None else f"{need.epsilon:.2g}" for need in found.needs[line.name]),
        )
        for line in found.coefficients
    ]
    wanted = ("", f"rows: {ratios[0]}", *ratios[1:], f"epsilon: {ratios[0]}", *ratios[1:])
    show(
        f"Rows, or the epsilon, at which {kind}s of {', '.join(ratios)} are told from 1 in {100 * POWER:.0f} % of "
        f"runs. {NOTHING}: more than was tried.",
        Table(wanted, rows, frozenset(range(1, len(wanted)))),
        *found.notes,
    )


def of_agreement(agreement: "Agreement") -> list[str]:
    """Sentences on the intervals that all sites would pay for; none if they agree on no inference."""
    from sottovoce.algorithms import MaskedNewton
    from sottovoce.plan import intervals

    algorithm, schema = agreement.algorithm, agreement.encoding
    if not isinstance(algorithm, MaskedNewton) or not algorithm.inference or schema is None:
        return []
    found = intervals(algorithm, schema, [site.rows for site in agreement.sites], unit=agreement.unit)
    return [found.summary, *([found.nearest] if found.hopeless else [])]


def _line(line: "PredictedWidth") -> tuple[str, ...]:
    width, low, high = (f"{x:.2g}" for x in line.width)
    known = f"{100 * line.identified:.0f} %"
    return line.name, width, f"{low} to {high}", _factor(line.factor), known, _factor(line.ratio)


def _factor(ratio: float) -> str:
    return f"{ratio:.2f}" if ratio < 100 else "over 100"
