"""Private evaluation: how good a fixed model is, from two noisy sums over all rows.

questions   what a site counts, what one row moves, and what everyone reads from the sums
bins        narrow cells of scores, and bins of about equally many rows
release     the noise, its price and the statement; the sums where all rows are held in one place
curves      ROC, AUC, average precision
intervals   95 % confidence intervals, for sampling error and privacy noise
evaluation  all of it for one model, and its file; `words`: as people read it
"""

from sottovoce.tally.bins import bins_for
from sottovoce.tally.evaluation import PrivateEvaluation, evaluate_privately, question_for
from sottovoce.tally.intervals import Interval
from sottovoce.tally.questions import (
    Answer,
    ByClass,
    Calibrated,
    Curve,
    Numbers,
    ScoreQuestion,
    SeveralClasses,
    TwoClasses,
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
    "ScoreQuestion",
    "SeveralClasses",
    "Terms",
    "TwoClasses",
    "bins_for",
    "evaluate",
    "evaluate_privately",
    "question_for",
]
