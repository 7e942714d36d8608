"""A loss as an argument of a kernel: its formulas are compiled into the kernel, on vectors.

Numba can keep on disk only what its arguments' types say in full. The type here names the loss's class and a digest of
its formulas, so a kernel compiled for a loss is found again by the next process, and is not when a formula changes.
"""

# ruff: noqa: ARG001 (Numba looks an implementation up by all arguments, needed or not)

from collections.abc import Callable
from functools import cache
from hashlib import sha256
from types import CodeType, FunctionType
from typing import Any

from numba.core import types
from numba.core.imputils import lower_constant
from numba.extending import NativeValue, models, overload, register_model, unbox

from sottovoce.kernels.threads import piece
from sottovoce.losses import Loss, labels


class FormulasType(types.Opaque):
    """The type of one loss's formulas."""

    def __init__(self, loss: type[Loss]) -> None:
        self.loss = loss
        compiled = (loss.value, loss.slope, loss.curvature, labels.sign)
        # The name of the class alone would find a kernel that was compiled for an older formula.
        digest = sha256("".join(_text(f.__code__) for f in compiled).encode()).hexdigest()[:12]
        super().__init__(f"formulas({loss.__module__}.{loss.__qualname__}, {digest})")


def _text(code: CodeType) -> str:
    """What a formula computes, as text: a changed one is another type, and is compiled anew."""
    return f"{code.co_code.hex()} {code.co_names} {code.co_consts}"


class Formulas:
    """What a kernel takes: a loss class, without its shape parameter."""

    def __init__(self, loss: type[Loss]) -> None:
        self._numba_type_ = FormulasType(loss)


@cache
def formulas(loss: type[Loss]) -> Formulas:
    """The one `Formulas` of a loss class."""
    return Formulas(loss)


register_model(FormulasType)(models.OpaqueModel)


@unbox(FormulasType)
def _unbox(_kind: Any, _value: Any, c: Any) -> Any:
    """Formulas have no value at run time: all of them is in their type."""
    return NativeValue(c.context.get_dummy_value())


@lower_constant(FormulasType)
def _constant(context: Any, _builder: Any, _kind: Any, _value: Any) -> Any:
    """The same for formulas that are constants of a kernel."""
    return context.get_dummy_value()


@cache
def _compiled(formula: FunctionType) -> Callable[..., Any]:
    """One formula, compiled to vanish into its caller."""
    compiled: Callable[..., Any] = piece(formula)
    return compiled


# The predicted label of a margin loss, the same for all of them.
sign = piece(labels.sign)


def slope(of: Any, z: Any, b: Any, theta: Any) -> Any:
    """The loss's derivative in z."""
    raise NotImplementedError("compiled code only")


def value(of: Any, z: Any, b: Any, theta: Any) -> Any:
    """The loss."""
    raise NotImplementedError("compiled code only")


def curvature(of: Any, z: Any, b: Any, theta: Any) -> Any:
    """The loss's second derivative in z, almost everywhere."""
    raise NotImplementedError("compiled code only")


@overload(slope, jit_options={"forceinline": True})
def _slope(of: Any, z: Any, b: Any, theta: Any) -> Any:
    """`slope`: the class's own formula, chosen when compiling."""
    formula = _compiled(of.loss.slope)

    def call(of: Any, z: Any, b: Any, theta: Any) -> Any:
        return formula(z, b, theta)

    return call


@overload(value, jit_options={"forceinline": True})
def _value(of: Any, z: Any, b: Any, theta: Any) -> Any:
    """`value`, in the same way."""
    formula = _compiled(of.loss.value)

    def call(of: Any, z: Any, b: Any, theta: Any) -> Any:
        return formula(z, b, theta)

    return call


@overload(curvature, jit_options={"forceinline": True})
def _curvature(of: Any, z: Any, b: Any, theta: Any) -> Any:
    """`curvature`, in the same way."""
    formula = _compiled(of.loss.curvature)

    def call(of: Any, z: Any, b: Any, theta: Any) -> Any:
        return formula(z, b, theta)

    return call
