"""A loss as an argument of a kernel: its formulas are compiled into the kernel, on vectors.

Numba's disk cache finds a kernel by the types of its arguments. The type here holds the name of the loss's class and a
digest of its formulas, so the next process finds a kernel that was compiled for a loss, but not after a formula has
changed.
"""

from collections.abc import Callable
from functools import cache
from hashlib import sha256
from types import FunctionType
from typing import Any

from numba import types
from numba.extending import NativeValue, models, overload, register_model, typeof_impl, unbox

from sottovoce.oracle.kernels import elementary  # noqa: F401  registers np.exp, np.log and np.log1p for formulas
from sottovoce.oracle.kernels.simd import PIECE, SOURCES, piece
from sottovoce.problem.losses import Loss, labels

# ruff: noqa: ARG001 (Numba looks an implementation up by all arguments, needed or not)


class FormulasType(types.Opaque):
    """Numba's type of one loss's formulas."""

    def __init__(self, loss: type[Loss]) -> None:
        self.loss = loss
        compiled = (loss.value, loss.parts, loss.slope, loss.curvature, labels.sign)
        # By the name of the class alone, a kernel compiled for an older formula would be found.
        codes = [formula.__code__ for formula in compiled]
        texts = [f"{code.co_code.hex()} {code.co_names} {code.co_consts}" for code in codes]
        digest = sha256("".join(texts).encode()).hexdigest()[:12]
        super().__init__(f"formulas({loss.__module__}.{loss.__qualname__}, {digest}, {SOURCES})")


class Formulas:
    """A loss class as an argument of a kernel, without its shape parameter."""

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
    """Formulas have no value at run time: the type holds everything."""
    return NativeValue(c.context.get_dummy_value())


@cache
def _compiled(formula: FunctionType) -> Callable[..., Any]:
    """One formula, compiled to be inlined into its caller."""
    compiled: Callable[..., Any] = piece(formula)
    return compiled


# The predicted label, the same rule for all margin losses.
sign = piece(labels.sign)


def slope(of: Any, z: Any, b: Any, theta: Any) -> Any:
    """The loss's derivative in z; `of` holds the loss's formulas, here and below."""
    raise NotImplementedError("compiled code only")


def parts(of: Any, z: Any, b: Any, theta: Any) -> Any:
    """The loss as (x, y), where it is x + ln(y) and 1 <= y <= 2."""
    raise NotImplementedError("compiled code only")


def curvature(of: Any, z: Any, b: Any, theta: Any) -> Any:
    """The loss's second derivative in z, almost everywhere."""
    raise NotImplementedError("compiled code only")


@overload(slope, jit_options=PIECE)
def _slope(of: Any, z: Any, b: Any, theta: Any) -> Any:
    """`slope`: the formula of the class, chosen when compiling."""
    formula = _compiled(of.loss.slope)

    def call(of: Any, z: Any, b: Any, theta: Any) -> Any:
        return formula(z, b, theta)

    return call


@overload(parts, jit_options=PIECE)
def _parts(of: Any, z: Any, b: Any, theta: Any) -> Any:
    """`parts`: the formula of the class, or (value, 1) where it has none."""
    has_parts = of.loss.parts is not Loss.parts
    formula = _compiled(of.loss.parts if has_parts else of.loss.value)

    def call(of: Any, z: Any, b: Any, theta: Any) -> Any:
        return formula(z, b, theta) if has_parts else (formula(z, b, theta), 1.0)

    return call


@overload(curvature, jit_options=PIECE)
def _curvature(of: Any, z: Any, b: Any, theta: Any) -> Any:
    """`curvature`: the formula of the class."""
    formula = _compiled(of.loss.curvature)

    def call(of: Any, z: Any, b: Any, theta: Any) -> Any:
        return formula(z, b, theta)

    return call
