"""Private evaluation: how good a fixed model is, from two noisy sums over all rows.

questions   what a site counts, what one row moves, and what everyone reads from the sums
release     the noise, its price and the statement; the sums where all rows are held in one place
curves      ROC, AUC, average precision
intervals   95 % intervals that know the rows' own chance and the noise
"""

from sottovoce.tally.evaluation import PrivateEvaluation, evaluate_privately, question_for
from sottovoce.tally.intervals import Interval
from sottovoce.tally.questions import (
    Answer,
    ByClass,
    Calibrated,
    Curve,
    Numbers,
    Question,
    SeveralClasses,
    TwoClasses,
    bins_for,
)
from sottovoce.tally.release import Terms, evaluate

__all__ = [
    "Answer",
    "ByClass",
    "Calibrated",
    "Curve",
    "Interval",
    "Numbers",
    "PrivateEvaluation",
    "Question",
    "SeveralClasses",
    "Terms",
    "TwoClasses",
    "bins_for",
    "evaluate",
    "evaluate_privately",
    "question_for",
]
