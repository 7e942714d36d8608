"""A private evaluation in words, for tables of any kind."""

from sottovoce.tally.evaluation import PrivateEvaluation
from sottovoce.tally.intervals import Interval

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


def figure_lines(found: PrivateEvaluation) -> list[tuple[str, str, str]]:
    """Name, estimate and interval of every figure, as text."""
    two = found.classes is not None and len(found.classes) == 2
    names = dict(zip(("negative", "positive"), found.classes or (), strict=False)) if two else {}
    figures = found.answer.figures
    rows = [(words.format(**names), *_share(figures[name])) for name, words in SHARES.items() if name in figures]
    rows += [(words, *_number(figures[name])) for name, words in NUMBERS.items() if name in figures]
    for name, one in zip(found.classes or (), found.answer.by_class, strict=False):
        rows.append((f"found of {name} (recall)", *_share(one.recall)))
        rows.append((f"right where it says {name} (precision)", *_share(one.precision)))
    return rows


def _share(one: Interval) -> tuple[str, str]:
    if one.value is None:
        return NOTHING, ""
    return f"{100 * one.value:.2f} %", f"{100 * one.low:.2f} to {100 * one.high:.2f} %"


def _number(one: Interval) -> tuple[str, str]:
    return (NOTHING, "") if one.value is None else (f"{one.value:.4g}", f"{one.low:.4g} to {one.high:.4g}")
