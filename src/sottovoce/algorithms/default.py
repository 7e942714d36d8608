"""The default algorithm: masked sums wherever they can be had, else IPADMM; of times to an event, proportional hazards.

One rule, for `train` with a file, estimators, plans and agreements. It looks at the objective, the graph and the
settings that were given, never at rows. Masked sums assume that fewer than half of the sites collude, and whoever takes
them by default is told so. The paper's experiments, on packaged data, keep IPADMM.
"""

import math
from collections.abc import Mapping
from dataclasses import fields
from typing import Any, NamedTuple

from sottovoce.algorithms.ipadmm import IPADMM
from sottovoce.algorithms.masked import MaskedNewton
from sottovoce.errors import InputError
from sottovoce.problem.losses import Loss, PiecewiseExponential
from sottovoce.problem.regularisers import Regulariser

MASKED, OWN, HAZARDS = "masked", "ipadmm", "hazards"  # their names in the registry
_MASKED, _OWN = ({f.name for f in fields(kind)} for kind in (MaskedNewton, IPADMM))
_ONE_VALUE = {name: getattr(MaskedNewton, name) for name in ("weights", "calibration")}  # all that masked sums take
_CLIPPED = "max_grad_norm"
_UNCLEAR = "rounds"  # both have it, and it means something else


class Default(NamedTuple):
    """The algorithm that is taken where none is named, and if it is not masked sums, why."""

    name: str
    reason: str = ""

    @property
    def remark(self) -> str:
        """A sentence that says so where masked sums, the default, were not taken; else empty."""
        return f"Algorithm: {self.name}, not masked sums, the default: {self.reason}." if self.reason else ""


def why_not_masked(
    loss: Loss, regulariser: Regulariser, *, data_norm: float = 1.0, max_grad_norm: float | None = None
) -> str:
    """Why masked sums are not taken to learn this, as the end of a sentence; empty if they are."""
    if loss.smoothness_bound is None:
        return f"the slope of loss={loss.name} jumps"
    if regulariser.l1:
        return f"regulariser={regulariser.name} has a kink"
    if max_grad_norm is not None:
        return f"with clipped gradients ({_CLIPPED}={max_grad_norm:g}) the two were never compared"
    return "" if math.isfinite(data_norm) else "they need a bound on the norm of rows"


def default(loss: Loss, regulariser: Regulariser, graph: str, given: Mapping[str, Any]) -> Default:
    """The algorithm where none is named.

    Args:
        loss: of one row.
        regulariser: of the model.
        graph: who exchanges messages, by its name: "complete", or any other.
        given: settings that the user has given, by name. Those that only one of the two has choose it.

    `rounds` alone is refused where both can be had: it is a number of sums, or of rounds of ADMM.
    """
    if isinstance(loss, PiecewiseExponential):
        return Default(HAZARDS)  # as nothing else keeps hazards proportional
    if any(name in _MASKED - _OWN and value is not False for name, value in given.items()):
        return Default(MASKED)
    cannot = why_not_masked(loss, regulariser, max_grad_norm=given.get(_CLIPPED))
    if graph != "complete":
        cannot = cannot or f"not every two sites exchange messages (graph={graph})"
    own = [name for name in given if name in _OWN - _MASKED or given[name] != _ONE_VALUE.get(name, given[name])]
    if own and not cannot:
        named = " and ".join(([", ".join(own[:-1])] if own[:-1] else []) + own[-1:])
        cannot = f"{named} {'is a setting' if len(own) == 1 else 'are settings'} of ipadmm"
    if cannot:
        return Default(OWN, cannot)
    if _UNCLEAR in given:
        raise InputError(
            f"Expected an algorithm with rounds={given[_UNCLEAR]}, got none: rounds are noisy sums of masked sums, the "
            "default, and rounds of messages of ipadmm. Name one (--algorithm masked), or leave rounds out."
        )
    return Default(MASKED)
