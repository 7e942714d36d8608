"""Default settings of an audit, under which the claim is nearly attained.

A claim is for all rows and all public settings, so the attack may choose them. Small models and the smoothed hinge let
two rows differ by the whole sensitivity; with the tight sensitivity and with masked sums the logistic loss does, too.
"""

import math
from dataclasses import replace
from typing import Any, NamedTuple

from sottovoce.algorithms import registry
from sottovoce.algorithms.base import Method, PrivateMethod
from sottovoce.algorithms.computation import View
from sottovoce.errors import UnsupportedError
from sottovoce.problem import losses


class _Usual(NamedTuple):
    """Default settings, which help an attack."""

    settings: dict[str, registry.Value]
    loss: str
    sites: int = 2
    rows: int = 200  # at every site: so many that noise moves models little


_MESSAGES = _Usual(
    {"rounds": 6, "rho": 1.0, "lam": 0.01, "local_steps": 1, "diameter": 0.2}, losses.SmoothedHinge.name
)  # fmt: skip
_TIGHT = _Usual(
    {"rounds": 10, "rho": 1e-3, "lam": 1e-6, "local_steps": 1, "diameter": 5.0}, losses.Logistic.name
)  # fmt: skip
# One site more than two, which may collude. Rows enough to know second moments by, so that rows count in full.
_SUMS = _Usual({"rounds": 6, "lam": 1.0}, losses.Logistic.name, sites=3, rows=600)
# Two rows differ most in the first sum of residuals, at the model 0; which ones do at later models hangs on these.
_BY_NAME: dict[str, dict[str, registry.Value]] = {"least-squares": {"rounds": 2}, "hazards": {"rounds": 2}}
_LOSSES: dict[str, losses.Loss] = {"hazards": losses.PiecewiseExponential((0.0, 1.0, 2.0))}  # it has no other
_BY_VIEW: dict[View, _Usual] = {"messages": _MESSAGES, "average": _MESSAGES, "sums": _SUMS}


def subject(
    name: str, settings: registry.Settings | None = None, *, form: str = "fair", loss: str | None = None
) -> PrivateMethod:
    """The algorithm of that name with these settings, and with settings that help an attack for all others.

    Refuses algorithms that are not private, and settings that are not theirs.
    """
    given = {} if settings is None else dict(settings)
    line = registry.entry(name)
    if not line.private:
        raise UnsupportedError(f"Expected an algorithm that promises something, got algorithm={name!r}, which is not "
                               "private. There is nothing to audit.")  # fmt: skip
    registry.expect_own(name, given)
    usual = _TIGHT if given.get("sensitivity") == "tight" else _BY_VIEW[line.kind.view]
    known = line.kind.__dataclass_fields__
    helping = usual.settings | _BY_NAME.get(name, {})
    own = {key: value for key, value in helping.items() if key in known} | given
    made = registry.make(name, registry.settings_of(name, form, {}, own))
    own_loss = _LOSSES.get(name) if loss is None else None
    audited = replace(made, loss=own_loss or losses.by_name(loss or usual.loss))
    expect_claim(audited)
    assert isinstance(audited, PrivateMethod)
    return audited


def expect_claim(algorithm: Method) -> None:
    """Refuse an algorithm without a finite epsilon."""
    if not isinstance(algorithm, PrivateMethod) or not math.isfinite(algorithm.epsilon):
        raise UnsupportedError(
            f"Expected an algorithm with a finite epsilon, got {type(algorithm).__name__}"
            f"{'(epsilon=inf)' if isinstance(algorithm, PrivateMethod) else ''}. There is nothing to audit."
        )


def usual_size(algorithm: Method) -> tuple[int, int]:
    """Default numbers of sites, and of rows at every site."""
    usual = _BY_VIEW[algorithm.view]
    return usual.sites, usual.rows


def everything(settings: registry.Settings | None = None) -> dict[str, tuple[PrivateMethod, dict[str, Any]]]:
    """All audits of algorithms, by name: the algorithm and further arguments of `audit`."""
    common = {} if settings is None else dict(settings)

    def made(name: str, loss: str | None = None, **own: registry.Value) -> PrivateMethod:
        return subject(name, {**common, **own}, loss=loss)

    each = {name: (made(name), dict[str, Any]()) for name, line in registry.REGISTRY.items() if line.private}
    return each | {
        "ipadmm, tight": (made("ipadmm", sensitivity="tight"), {}),
        "ipadmm, tight, the system's noise": (made("ipadmm", sensitivity="tight"), {"system_noise": True}),
        "ipadmm, 4 local steps": (made("ipadmm", local_steps=4), {}),
        "ipadmm, batches with replacement": (made("ipadmm", batch_size=50), {}),
        "ipadmm, Poisson batches": (made("ipadmm", batch_size=50, sampling="poisson"), {}),
        "ipadmm, head start": (made("ipadmm", losses.Huber.name, moments=0.3), {}),
        "ipadmm, final model only": (made("ipadmm"), {"view": "model"}),
        "masked, nobody colludes": (made("masked", colluding=1), {"colluding": 0}),
        "masked, more collude than was assumed": (made("masked", colluding=1), {"colluding": 2}),
        "masked, final model only": (made("masked"), {"view": "model"}),
    }
