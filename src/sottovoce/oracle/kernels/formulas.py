"""A loss as an argument of a kernel: its formulas are compiled into the kernel, on vectors.

Numba can keep on disk only what its arguments' types say in full. The type here names the loss's class and a digest
of its formulas, so a kernel compiled for a loss is found again by the next process, and is not when a formula
changes.
"""

from collections.abc import Callable
from functools import cache
from hashlib import sha256
from types import CodeType, FunctionType
from typing import Any

from numba import types
from numba.extending import NativeValue, models, overload, register_model, typeof_impl, unbox

from sottovoce.oracle.kernels import elementary  # noqa: F401  it lets formulas call np.exp, np.log and np.log1p
from sottovoce.oracle.kernels.simd import PIECE, SOURCES, piece
from sottovoce.problem.losses import Loss, labels

# ruff: noqa: ARG001 (Numba looks an implementation up by all arguments, needed or not)


class FormulasType(types.Opaque):
    """The type of one loss's formulas."""

    def __init__(self, loss: type[Loss]) -> None:
        self.loss = loss
        compiled = (loss.value, loss.parts, loss.slope, loss.curvature, labels.sign)
        # The name of the class alone would find a kernel that was compiled for an older formula.
        digest = sha256("".join(_text(f.__code__) for f in compiled).encode()).hexdigest()[:12]
        super().__init__(f"formulas({loss.__module__}.{loss.__qualname__}, {digest}, {SOURCES})")


def _text(code: CodeType) -> str:
    """What a formula computes, as text: a changed one is another type, and is compiled anew."""
    return f"{code.co_code.hex()} {code.co_names} {code.co_consts}"


class Formulas:
    """What a kernel takes: a loss class, without its shape parameter."""

    def __init__(self, loss: type[Loss]) -> None:
        self.kind = FormulasType(loss)


@cache
def formulas(loss: type[Loss]) -> Formulas:
    """The one `Formulas` of a loss class."""
    return Formulas(loss)


register_model(FormulasType)(models.OpaqueModel)


@typeof_impl.register(Formulas)
def _typeof(value: Formulas, _context: Any) -> FormulasType:
    return value.kind


@unbox(FormulasType)
def _unbox(_kind: Any, _value: Any, c: Any) -> Any:
    """Formulas have no value at run time: all of them is in their type."""
    return NativeValue(c.context.get_dummy_value())


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


def parts(of: Any, z: Any, b: Any, theta: Any) -> Any:
    """The loss as (x, y), where it is x + ln(y) and 1 <= y <= 2."""
    raise NotImplementedError("compiled code only")


def curvature(of: Any, z: Any, b: Any, theta: Any) -> Any:
    """The loss's second derivative in z, almost everywhere."""
    raise NotImplementedError("compiled code only")


@overload(slope, jit_options=PIECE)
def _slope(of: Any, z: Any, b: Any, theta: Any) -> Any:
    """`slope`: the class's own formula, chosen when compiling."""
    formula = _compiled(of.loss.slope)

    def call(of: Any, z: Any, b: Any, theta: Any) -> Any:
        return formula(z, b, theta)

    return call


@overload(value, jit_options=PIECE)
def _value(of: Any, z: Any, b: Any, theta: Any) -> Any:
    """`value`, in the same way."""
    formula = _compiled(of.loss.value)

    def call(of: Any, z: Any, b: Any, theta: Any) -> Any:
        return formula(z, b, theta)

    return call


@overload(parts, jit_options=PIECE)
def _parts(of: Any, z: Any, b: Any, theta: Any) -> Any:
    """`parts`: the class's own, or the value and no logarithm."""
    made_so = of.loss.parts is not Loss.parts
    formula = _compiled(of.loss.parts if made_so else of.loss.value)

    def call(of: Any, z: Any, b: Any, theta: Any) -> Any:
        return formula(z, b, theta) if made_so else (formula(z, b, theta), 1.0)

    return call


@overload(curvature, jit_options=PIECE)
def _curvature(of: Any, z: Any, b: Any, theta: Any) -> Any:
    """`curvature`, in the same way."""
    formula = _compiled(of.loss.curvature)

    def call(of: Any, z: Any, b: Any, theta: Any) -> Any:
        return formula(z, b, theta)

    return call
