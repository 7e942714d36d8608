"""The planner: settings from public numbers, and what to expect of them. See docs/explanation/planner.md."""

from sottovoce.plan.joining import Gain, Kind
from sottovoce.plan.planner import EPSILONS, FIXABLE, Plan, plan
from sottovoce.plan.predict import Interval, Outcome

__all__ = ["EPSILONS", "FIXABLE", "Gain", "Interval", "Kind", "Outcome", "Plan", "plan"]
