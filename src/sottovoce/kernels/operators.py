"""Operators and ufuncs on vectors and scalars: what lets formulas written for NumPy arrays compile on vectors.

Importing this module is all there is to do: it teaches Numba every operator in its last lines. Nothing here knows a
loss, and nothing ever mixes lanes.
"""

import operator
from collections.abc import Callable
from typing import Any

import numpy as np
from llvmlite import ir
from numba.core import types
from numba.core.typing.templates import AbstractTemplate, infer_global, signature
from numba.extending import lower_builtin

from sottovoce.kernels.simd import Vector, as_vector, call_llvm, common


def _flags(builder: Any, condition: Any, kind: Any) -> Any:
    """1 where the condition holds, else 0."""
    return builder.select(condition, ir.Constant(kind, 1), ir.Constant(kind, None))


def _operator(function: Any, arity: int, emit: Callable[..., Any], floats: bool = True, integers: bool = True) -> None:
    """Teach Numba one operator or ufunc: its result is of its operands' one vector kind."""

    class Template(AbstractTemplate):
        def generic(self, args: Any, _keywords: Any) -> Any:
            kind = common(args) if len(args) == arity else None
            if kind is None or not (floats if kind.is_float else integers):
                return None
            return signature(kind, *args)

    def lower(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        kind = sig.return_type
        values = [as_vector(context, builder, v, t, kind) for v, t in zip(args, sig.args, strict=True)]
        return emit(builder, kind, sig.args, *values)

    # Typing and lowering are taught apart: the first says what comes out, the second how it is computed.
    infer_global(function)(Template)
    operands = [(Vector,)] if arity == 1 else [(Vector, Vector), (Vector, types.Number), (types.Number, Vector)]
    for kinds in operands:
        lower_builtin(function, *kinds)(lower)


def _arithmetic(for_float: str, for_integer: str) -> Callable[..., Any]:
    """One LLVM instruction for floating-point lanes, another for whole numbers."""
    return lambda builder, kind, _args, x, y: getattr(builder, for_float if kind.is_float else for_integer)(x, y)


def _bitwise(name: str) -> Callable[..., Any]:
    """A bitwise operation; on floating-point lanes it is meant for flags only."""

    def emit(builder: Any, kind: Any, _args: Any, x: Any, y: Any) -> Any:
        if not kind.is_float:
            return getattr(builder, name)(x, y)
        # Flags are 0.0 and 1.0, whose bits combine to bits of 0.0 and 1.0.
        whole = ir.VectorType(ir.IntType(kind.dtype.bitwidth), kind.lanes)
        return builder.bitcast(getattr(builder, name)(*(builder.bitcast(v, whole) for v in (x, y))), x.type)

    return emit


def _comparison(symbol: str) -> Callable[..., Any]:
    """1 where the comparison holds, else 0. With a NaN only "!=" holds, as in NumPy."""

    def emit(builder: Any, kind: Any, _args: Any, x: Any, y: Any) -> Any:
        if kind.is_float:
            compare = builder.fcmp_unordered if symbol == "!=" else builder.fcmp_ordered
        else:
            compare = builder.icmp_signed if kind.dtype.signed else builder.icmp_unsigned
        return _flags(builder, compare(symbol, x, y), x.type)

    return emit


def _extremum(symbol: str, name: str) -> Callable[..., Any]:
    """The larger or the smaller of two; a NaN in a vector comes through."""

    def emit(builder: Any, _kind: Any, args: Any, x: Any, y: Any) -> Any:
        if isinstance(args[0], Vector) and isinstance(args[1], Vector):
            return call_llvm(builder, name, x, y)
        # A NaN in the vector survives, as in NumPy, and this order of operands is one instruction.
        vector, scalar = (x, y) if isinstance(args[0], Vector) else (y, x)
        return builder.select(builder.fcmp_ordered(symbol, scalar, vector), scalar, vector)

    return emit


def _sign(builder: Any, _kind: Any, _args: Any, x: Any) -> Any:
    """-1, 0 or 1; NaN stays NaN, and so does the sign of a zero."""
    zero = ir.Constant(x.type, None)
    signed = call_llvm(builder, "copysign", ir.Constant(x.type, 1.0), x)
    return builder.select(builder.fcmp_unordered("==", x, zero), x, signed)


def _shift_right(builder: Any, kind: Any, _args: Any, x: Any, y: Any) -> Any:
    """Shift right; signed numbers keep their sign."""
    return (builder.ashr if kind.dtype.signed else builder.lshr)(x, y)


def _negate(builder: Any, kind: Any, _args: Any, x: Any) -> Any:
    """Minus x, of either kind."""
    return builder.fneg(x) if kind.is_float else builder.neg(x)


_operator(operator.add, 2, _arithmetic("fadd", "add"))
_operator(operator.sub, 2, _arithmetic("fsub", "sub"))
_operator(operator.mul, 2, _arithmetic("fmul", "mul"))
_operator(operator.truediv, 2, lambda builder, _kind, _args, x, y: builder.fdiv(x, y), integers=False)
_operator(operator.neg, 1, _negate)
_operator(operator.and_, 2, _bitwise("and_"))
_operator(operator.or_, 2, _bitwise("or_"))
_operator(operator.xor, 2, _bitwise("xor"), floats=False)
_operator(operator.lshift, 2, lambda builder, _kind, _args, x, y: builder.shl(x, y), floats=False)
_operator(operator.rshift, 2, _shift_right, floats=False)
for _symbol, _name in {"<": "lt", "<=": "le", ">": "gt", ">=": "ge", "==": "eq", "!=": "ne"}.items():
    _operator(getattr(operator, _name), 2, _comparison(_symbol))
_operator(np.abs, 1, lambda builder, _kind, _args, x: call_llvm(builder, "fabs", x), integers=False)
_operator(np.sqrt, 1, lambda builder, _kind, _args, x: call_llvm(builder, "sqrt", x), integers=False)
_operator(np.sign, 1, _sign, integers=False)
_operator(np.maximum, 2, _extremum(">", "maximum"), integers=False)
_operator(np.minimum, 2, _extremum("<", "minimum"), integers=False)
