"""The planner: settings from public numbers, and what to expect of them. See docs/explanation/planner.md."""

from sottovoce.plan.joining import Gain, JoiningKind
from sottovoce.plan.planner import EPSILONS, FIXABLE, PROMISED, Plan, plan
from sottovoce.plan.predict import PredictedInterval, Prediction
from sottovoce.plan.widths import Need, PredictedIntervals, PredictedWidth, Range, intervals

__all__ = [
    "EPSILONS", "FIXABLE", "PROMISED", "Gain", "JoiningKind", "Need", "Plan", "PredictedInterval", "PredictedIntervals",
    "PredictedWidth", "Prediction", "Range", "intervals", "plan",
]  # fmt: skip
