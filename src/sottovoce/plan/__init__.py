"""The planner: settings from public numbers, and what to expect of them. See docs/explanation/planner.md."""

from sottovoce.plan.joining import Gain, Kind
from sottovoce.plan.planner import EPSILONS, FIXABLE, PROMISED, Plan, plan
from sottovoce.plan.predict import Interval, Outcome

__all__ = ["EPSILONS", "FIXABLE", "PROMISED", "Gain", "Interval", "Kind", "Outcome", "Plan", "plan"]
