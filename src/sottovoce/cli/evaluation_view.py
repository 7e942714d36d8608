"""What people see of a private evaluation: figures with their intervals, and what they cost."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sottovoce.cli.output import console, exactly, plain, say, table, up
from sottovoce.tally import Interval, PrivateEvaluation
from sottovoce.tally.evaluation import PRIVATE

# Figures in this order, as a share in per cent or as a number.
SHARES = {
    "accuracy": "accuracy", "majority": "accuracy of no model: always the most frequent class",
    "recall": "found of {positive} (recall)", "precision": "right where it says {positive} (precision)",
    "specificity": "found of {negative} (specificity)", "average_precision": "average precision of the rarer class",
    "positive": "rows of {positive}",
}  # fmt: skip
NUMBERS = {
    "auc": "AUC", "mean_absolute_error": "mean absolute error", "root_mean_square_error": "root mean square error",
}  # fmt: skip
NOTHING = "not told: the noise hides it"


def lines(found: PrivateEvaluation) -> list[tuple[str, str, str]]:
    """Name, estimate and interval of every figure, as text."""
    names = named(found.classes)
    rows = [(words.format(**names), *_share(figures[name])) for name, words in SHARES.items()
            if name in (figures := found.answer.figures)]  # fmt: skip
    rows += [(words, *_number(found.answer.figures[name])) for name, words in NUMBERS.items()
             if name in found.answer.figures]  # fmt: skip
    for name, one in zip(found.classes or (), found.answer.by_class, strict=False):
        rows.append((f"found of {name} (recall)", *_share(one.recall)))
        rows.append((f"right where it says {name} (precision)", *_share(one.precision)))
    return rows


def named(classes: tuple[str, ...] | None) -> Mapping[str, str]:
    """The two classes, by what they are called in texts."""
    negative, positive = classes if classes is not None and len(classes) == 2 else ("", "")
    return {"negative": negative, "positive": positive}


def _share(one: Interval) -> tuple[str, str]:
    if one.value is None:
        return NOTHING, ""
    return f"{100 * one.value:.2f} %", f"{100 * one.low:.2f} to {100 * one.high:.2f} %"


def _number(one: Interval) -> tuple[str, str]:
    return (NOTHING, "") if one.value is None else (f"{one.value:.4g}", f"{one.low:.4g} to {one.high:.4g}")


def show(found: PrivateEvaluation, out: Path | None) -> None:
    """Print it."""
    shown = console()
    figures: Any = table("", "estimate", "95 % interval")
    for line in lines(found):
        figures.add_row(*map(plain, line))
    say(shown, f"{found.rows:,} rows.")
    shown.print(figures)
    clip = found.answer.figures.get("clipped_at")
    if clip is not None:
        most = 100 * found.answer.figures["clipped"].high
        say(shown, f"Errors beyond {clip.low:.4g} count as that much; at most {most:.2g} % of all are larger.")
    if found.answer.confusion:
        matrix: Any = table("true \\ decided", *(found.classes or ()))
        for name, counts in zip(found.classes or (), found.answer.confusion, strict=True):
            matrix.add_row(plain(name), *(_rows(one) for one in counts))
        shown.print(matrix)
    say(shown, "Intervals know the noise and the chance of the rows; each holds by itself, for rows like these.")
    say(shown, PRIVATE)
    privacy = found.privacy
    say(shown, f"It cost epsilon = {up(privacy.epsilon)}, delta = {exactly(privacy.delta)}, for {privacy.unit}.")
    for note in privacy.notes:
        say(shown, f"Note: {note}")
    if out is not None:
        say(shown, f"Kept in {out}.")


def _rows(one: Interval) -> str:
    """A count and how far off it may be."""
    return "–" if one.value is None else f"{one.value:,.0f} ({one.low:,.0f} to {one.high:,.0f})"
