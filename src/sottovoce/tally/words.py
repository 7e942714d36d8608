"""A private evaluation as parts of a document: figures with their intervals, what is true of them, and their cost."""

from collections.abc import Sequence

from sottovoce.document import NOTHING, Part, Table, Words
from sottovoce.numerals import exactly, up
from sottovoce.tally.evaluation import PRIVATE, PrivateEvaluation
from sottovoce.tally.intervals import Interval

# Figures in this order, as a share in per cent or as a number.
SHARES = {
    "accuracy": "accuracy", "majority": "accuracy without a model: always the most frequent class",
    "recall": "recall of {positive}", "precision": "precision of {positive}",
    "specificity": "specificity: recall of {negative}", "average_precision": "average precision of the rarer class",
    "positive": "share of {positive}",
}  # fmt: skip
NUMBERS = {
    "auc": "AUC", "mean_absolute_error": "mean absolute error", "root_mean_square_error": "root mean square error",
}  # fmt: skip
_INTERVALS = (
    "Intervals cover sampling error and privacy noise. The coverage is that of each interval by itself, for rows like "
    "these."
)
_HIDDEN = "hidden by the noise"


def described(found: PrivateEvaluation, *, with_model: Sequence[str] | None = None) -> list[Part]:
    """An evaluation's figures, with its cost and its notes.

    Args:
        found: the evaluation.
        with_model: the notes to show, if the evaluation was made in the run that learnt the model, whose other notes
            are shown with the model. None: it was made alone.
    """
    privacy = found.privacy
    what, notes = ("It", privacy.notes) if with_model is None else ("Model and evaluation together", with_model)
    parts: list[Part] = [
        Words(f"{found.rows:,} rows."),
        Table(("", "estimate", "95 % interval"), _figures(found), frozenset({1, 2})),
    ]
    clip = found.answer.figures.get("clipped_at")
    if clip is not None:
        most = 100 * found.answer.figures["clipped"].high
        parts.append(Words(f"Errors above {clip.low:.4g} are clipped to it; at most {most:.2g} % of all are larger."))
    if found.answer.confusion:
        names = found.classes or ()
        rows = [
            (name, *(
                NOTHING if one.value is None else f"{one.value:,.0f} ({one.low:,.0f} to {one.high:,.0f})"
                for one in counts
            ))
            for name, counts in zip(names, found.answer.confusion, strict=True)
        ]  # fmt: skip
        parts.append(Table(("true \\ predicted", *names), rows, frozenset(range(1, len(names) + 1))))
    return [
        *parts,
        Words(_INTERVALS, "soft"),
        Words(PRIVATE, "soft"),
        Words(f"{what} cost epsilon = {up(privacy.epsilon)}, delta = {exactly(privacy.delta)}, for {privacy.unit}."),
        *(Words(f"Note: {note}") for note in notes),
    ]


def _figures(found: PrivateEvaluation) -> list[tuple[str, str, str]]:
    """Name, estimate and interval of every figure, as text."""
    two = found.classes is not None and len(found.classes) == 2
    names = dict(zip(("negative", "positive"), found.classes or (), strict=False)) if two else {}
    figures = found.answer.figures
    rows = [(words.format(**names), *_share(figures[name])) for name, words in SHARES.items() if name in figures]
    rows += [(words, *_number(figures[name])) for name, words in NUMBERS.items() if name in figures]
    for name, one in zip(found.classes or (), found.answer.by_class, strict=False):
        rows.append((f"recall of {name}", *_share(one.recall)))
        rows.append((f"precision of {name}", *_share(one.precision)))
    return rows


def _share(one: Interval) -> tuple[str, str]:
    if one.value is None:
        return _HIDDEN, ""
    return f"{100 * one.value:.2f} %", f"{100 * one.low:.2f} to {100 * one.high:.2f} %"


def _number(one: Interval) -> tuple[str, str]:
    return (_HIDDEN, "") if one.value is None else (f"{one.value:.4g}", f"{one.low:.4g} to {one.high:.4g}")
