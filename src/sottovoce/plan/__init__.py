"""The planner: settings from public numbers, and what to expect of them. See docs/explanation/planner.md."""

from sottovoce.plan.joining import Gain, JoiningKind
from sottovoce.plan.planner import EPSILONS, FIXABLE, PROMISED, Plan, plan
from sottovoce.plan.predict import PredictedInterval, Prediction

__all__ = ["EPSILONS", "FIXABLE", "PROMISED", "Gain", "JoiningKind", "Plan", "PredictedInterval", "Prediction", "plan"]
