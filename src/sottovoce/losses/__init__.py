"""Losses, and the labels that each takes."""

from dataclasses import MISSING, fields

from sottovoce import settings
from sottovoce.errors import expect
from sottovoce.losses.base import Loss, expect_one_output
from sottovoce.losses.labels import Classes, LabelSet, Reals, Signs
from sottovoce.losses.scalar import Absolute, Hinge, Huber, Logistic, Quantile, SmoothedHinge
from sottovoce.losses.softmax import Softmax

_SCALAR: tuple[type[Loss], ...] = (Logistic, Hinge, SmoothedHinge, Absolute, Huber, Quantile)
_ALL: tuple[type[Loss], ...] = (*_SCALAR, Softmax)
_BY_NAME: dict[str, type[Loss]] = {loss.name: loss for loss in _ALL}
# The losses of one prediction per row. Their name alone is enough; softmax needs a number of classes.
NAMES: tuple[str, ...] = tuple(loss.name for loss in _SCALAR)
settings.tagged(Loss, "name", _BY_NAME)  # in files: { name = "huber", threshold = 1.0 }


def by_name(name: str, **shape: float) -> Loss:
    """The loss of that name; `shape` sets its parameter: `by_name("huber", threshold=2.0)`,
    `by_name("softmax", classes=3)`.
    """
    expect(name in _BY_NAME, f"a loss among {', '.join(_BY_NAME)}", name=name)
    kind = _BY_NAME[name]
    known = [field.name for field in fields(kind)]
    for option in shape:
        expect(option in known, f"an option of {name}: {', '.join(known) or 'it has none'}", option=option)
    for field in fields(kind):
        missing = field.default is MISSING and field.name not in shape
        expect(not missing, f"{name} with its {field.name}, which has no default", options=shape)
    return kind(**shape)


__all__ = [
    "NAMES",
    "Absolute",
    "Classes",
    "Hinge",
    "Huber",
    "LabelSet",
    "Logistic",
    "Loss",
    "Quantile",
    "Reals",
    "Signs",
    "SmoothedHinge",
    "Softmax",
    "by_name",
    "expect_one_output",
]
