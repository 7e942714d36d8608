"""Vectors of a fixed number of lanes, as a type that Numba compiles.

LLVM's loop vectoriser keeps sums in memory and checks pointers for overlap before every short loop. A vector type
leaves it nothing to guess: a variable is a register (or a few, for more lanes than one register holds), and each
operator is one instruction per register. Machines with narrower registers get the same results from more of them.

    x = load(array, offset, lanes)        `lanes` elements of a C-contiguous array from flat position `offset`
    store(array, offset, x)
    broadcast(scalar, lanes)              the same number in every lane
    fma(x, y, z)                          x y + z, rounded once; also for three scalars

Arithmetic, comparisons, `np.abs`, `np.sqrt`, `np.sign`, `np.maximum` and `np.minimum` work on vectors, and on a vector
and a scalar, which then counts as a vector of the same kind. A comparison gives 1 where it holds and 0 elsewhere, in
the kind of its operands, so that formulas written for NumPy arrays compile as they are. Nothing here ever mixes lanes,
and no operation is contracted or reordered: what a lane computes does not depend on the others, nor on their number.
"""

import operator
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

import numba
import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import (
    NativeValue,
    intrinsic,
    lower_builtin,
    models,
    register_model,
    type_callable,
    typeof_impl,
    unbox,
)

# ruff: noqa: ARG001 (Numba looks an implementation up by all arguments, needed or not)

# Python calls kernels, which are cached on disk. Only kernels call parts and pieces. Parts stay separate functions;
# pieces work on vectors, and are inlined so that vectors stay in registers. PART and PIECE are the same as options of
# `overload`.
PART: dict[str, Any] = {"error_model": "numpy", "no_cpython_wrapper": True, "no_cfunc_wrapper": True}
PIECE: dict[str, Any] = {**PART, "forceinline": True}
kernel = numba.njit(nogil=True, cache=True, error_model="numpy", no_cfunc_wrapper=True)
part = numba.njit(**PART)
piece = numba.njit(**PIECE)


# Numba's disk cache checks only the file of the compiled function. Every kernel takes a lane count or formulas, so with
# a digest of all sources in these types, an edit of any file makes a new signature.
_FILES = sorted(Path(__file__).parents[1].rglob("*.py"))
SOURCES = sha256(b"".join(path.read_bytes() for path in _FILES)).hexdigest()[:12]


class LanesType(types.Opaque):
    """The type of a lane count: the count is known when compiling."""

    def __init__(self, count: int) -> None:
        self.count = count
        super().__init__(f"lanes({count}, {SOURCES})")


class Lanes:
    """A lane count that a kernel takes as an argument and is compiled for. Compiled code makes one of a constant."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.kind = LanesType(count)


class Vector(types.Type):
    """`lanes` numbers of one kind."""

    def __init__(self, dtype: Any, lanes: int) -> None:
        self.dtype = dtype
        self.lanes = lanes
        super().__init__(f"vector({dtype}, {lanes})")

    @property
    def is_float(self) -> bool:
        """True if the lanes are floating-point numbers."""
        return isinstance(self.dtype, types.Float)


register_model(LanesType)(models.OpaqueModel)


@register_model(Vector)
class _VectorModel(models.PrimitiveModel):
    """How a vector lies in a register: as LLVM's own vector type."""

    def __init__(self, manager: Any, kind: Vector) -> None:
        element = manager.lookup(kind.dtype).get_data_type()
        super().__init__(manager, kind, ir.VectorType(element, kind.lanes))


@typeof_impl.register(Lanes)
def _typeof_lanes(value: Lanes, _context: Any) -> LanesType:
    return value.kind


@unbox(LanesType)
def _unbox_lanes(_kind: Any, _value: Any, c: Any) -> Any:
    """A lane count has no value at run time: it is in its type."""
    return NativeValue(c.context.get_dummy_value())


@type_callable(Lanes)
def _type_of_lanes(_context: Any) -> Any:
    """The type of `Lanes(16)` in compiled code; a count that is not known when compiling has none."""
    return lambda count: LanesType(count.literal_value) if isinstance(count, types.IntegerLiteral) else None


@lower_builtin(Lanes, types.IntegerLiteral)
def _make_lanes(context: Any, _builder: Any, _sig: Any, _args: Any) -> Any:
    return context.get_dummy_value()


# -- building blocks


def _splat(builder: Any, kind: Any, scalar: Any) -> Any:
    """A scalar in every lane."""
    one = builder.insert_element(ir.Constant(kind, ir.Undefined), scalar, ir.IntType(32)(0))
    # All zeros: every lane takes element 0, which is the scalar.
    mask = ir.Constant(ir.VectorType(ir.IntType(32), kind.count), None)
    return builder.shuffle_vector(one, ir.Constant(kind, ir.Undefined), mask)


def as_vector(context: Any, builder: Any, value: Any, kind: Any, target: Vector) -> Any:
    """The operand as a vector of the target kind: itself, or a scalar cast and spread."""
    if isinstance(kind, Vector):
        return value
    return _splat(builder, context.get_value_type(target), context.cast(builder, value, kind, target.dtype))


def call_llvm(builder: Any, name: str, *values: Any) -> Any:
    """The LLVM intrinsic of that name, on vectors or scalars of one type."""
    kind = values[0].type
    element = kind.element if isinstance(kind, ir.VectorType) else kind
    bits = {"float": "f32", "double": "f64"}.get(str(element), str(element))
    suffix = f"v{kind.count}{bits}" if isinstance(kind, ir.VectorType) else bits
    full, declared = f"llvm.{name}.{suffix}", builder.module.globals
    if full not in declared:
        ir.Function(builder.module, ir.FunctionType(kind, [kind] * len(values)), full)
    return builder.call(declared[full], values)


def data_of(context: Any, builder: Any, array_type: Any, array: Any) -> Any:
    """Pointer to the first element of an array."""
    return builder.extract_value(array, context.data_model_manager[array_type].get_field_position("data"))


def _pointer(context: Any, builder: Any, array_type: Any, array: Any, offset: Any, kind: Any) -> Any:
    """Pointer of the given type to element `offset` of an array."""
    return builder.bitcast(builder.gep(data_of(context, builder, array_type, array), [offset]), kind.as_pointer())


def common(args: tuple[Any, ...]) -> Vector | None:
    """The one vector kind among the operands; None if they are of several kinds, or all scalars."""
    kinds = [arg for arg in args if isinstance(arg, Vector)]
    fits = all(isinstance(arg, Vector | types.Number) for arg in args)
    return kinds[0] if kinds and fits and all(kind == kinds[0] for kind in kinds) else None


# -- memory and lanes


@intrinsic
def load(_typing: Any, array: Any, offset: Any, lanes: Any) -> Any:
    """Consecutive elements of a C-contiguous array, of any alignment."""
    kind = Vector(array.dtype, lanes.count)

    def build(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        vector = context.get_value_type(kind)
        value = builder.load(_pointer(context, builder, sig.args[0], args[0], args[1], vector))
        # Only as aligned as one element: a vector may begin anywhere.
        value.align = array.dtype.bitwidth // 8
        return value

    return kind(array, types.intp, lanes), build


@intrinsic
def store(_typing: Any, array: Any, offset: Any, value: Any) -> Any:
    """Write a vector over consecutive elements of a C-contiguous array of the same kind."""
    if array.dtype != value.dtype:
        return None

    def build(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        pointer = _pointer(context, builder, sig.args[0], args[0], args[1], args[2].type)
        builder.store(args[2], pointer).align = array.dtype.bitwidth // 8
        return context.get_dummy_value()

    return types.void(array, types.intp, value), build


@intrinsic
def at(_typing: Any, array: Any, offset: Any) -> Any:
    """One element at an index >= 0; Numba's support of negative ones would cost instructions in inner loops."""

    def build(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return builder.load(builder.gep(data_of(context, builder, sig.args[0], args[0]), [args[1]]))

    return array.dtype(array, types.intp), build


@intrinsic
def lesser(_typing: Any, x: Any, y: Any) -> Any:
    """The smaller of two whole numbers, without a call: Numba would compile a function for `min`."""

    def build(_context: Any, builder: Any, _sig: Any, args: Any) -> Any:
        return builder.select(builder.icmp_signed("<", *args), *args)

    return types.int64(types.int64, types.int64), build


@intrinsic
def width(_typing: Any, lanes: Any) -> Any:
    """The lane count as a number."""

    def build(context: Any, _builder: Any, _sig: Any, _args: Any) -> Any:
        return context.get_constant(types.intp, lanes.count)

    return types.intp(lanes), build


@intrinsic
def broadcast(_typing: Any, scalar: Any, lanes: Any) -> Any:
    """The same number in every lane."""
    scalar = types.unliteral(scalar)
    kind = Vector(scalar, lanes.count)

    def build(context: Any, builder: Any, _sig: Any, args: Any) -> Any:
        return _splat(builder, context.get_value_type(kind), args[0])

    return kind(scalar, lanes), build


@intrinsic
def count_up(_typing: Any, start: Any, lanes: Any) -> Any:
    """start, start + 1, start + 2, ...: one number per lane, of start's integer kind."""
    kind = Vector(types.unliteral(start), lanes.count)

    def build(context: Any, builder: Any, _sig: Any, args: Any) -> Any:
        vector = context.get_value_type(kind)
        return builder.add(_splat(builder, vector, args[0]), ir.Constant(vector, list(range(kind.lanes))))

    return kind(kind.dtype, lanes), build


@intrinsic
def convert(_typing: Any, value: Any, sample: Any) -> Any:
    """The value's lanes as numbers of the kind of `sample`, a scalar or a vector. Integers wrap, floats round to
    nearest.
    """
    kind = Vector(sample.dtype if isinstance(sample, Vector) else types.unliteral(sample), value.lanes)

    def build(context: Any, builder: Any, _sig: Any, args: Any) -> Any:
        name = _conversion(value, kind)
        return getattr(builder, name)(args[0], context.get_value_type(kind)) if name else args[0]

    return kind(value, types.unliteral(sample)), build


def _conversion(old: Vector, new: Vector) -> str:
    """The LLVM instruction that converts one kind of lane to another; empty if LLVM needs none."""
    if old.is_float and new.is_float:
        return {-1: "fptrunc", 0: "", 1: "fpext"}[int(np.sign(new.dtype.bitwidth - old.dtype.bitwidth))]
    if new.is_float:
        return "sitofp" if old.dtype.signed else "uitofp"
    if old.is_float:
        return "fptosi" if new.dtype.signed else "fptoui"
    if new.dtype.bitwidth > old.dtype.bitwidth:
        return "sext" if old.dtype.signed else "zext"
    return "trunc" if new.dtype.bitwidth < old.dtype.bitwidth else ""


@intrinsic
def bits(_typing: Any, value: Any) -> Any:
    """The bits of floating-point lanes, as signed integers of the same width."""
    kind = Vector(types.Integer.from_bitwidth(value.dtype.bitwidth, True), value.lanes)

    def build(context: Any, builder: Any, _sig: Any, args: Any) -> Any:
        return builder.bitcast(args[0], context.get_value_type(kind))

    return kind(value), build


@intrinsic
def from_bits(_typing: Any, value: Any) -> Any:
    """The floating-point numbers of the same width that have these bits."""
    kind = Vector({32: types.float32, 64: types.float64}[value.dtype.bitwidth], value.lanes)

    def build(context: Any, builder: Any, _sig: Any, args: Any) -> Any:
        return builder.bitcast(args[0], context.get_value_type(kind))

    return kind(value), build


@intrinsic
def where(_typing: Any, condition: Any, yes: Any, no: Any) -> Any:
    """`yes` in the lanes where the condition is not 0, `no` in the others; either may be a scalar."""
    kind = common((yes, no))
    if kind is None or not isinstance(condition, Vector):
        return None

    def build(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        zero = ir.Constant(args[0].type, None)
        compare = builder.fcmp_unordered if condition.is_float else builder.icmp_unsigned
        picked = [as_vector(context, builder, args[i], sig.args[i], kind) for i in (1, 2)]
        return builder.select(compare("!=", args[0], zero), *picked)

    return kind(condition, yes, no), build


@intrinsic
def any_lane(_typing: Any, value: Any) -> Any:
    """True if some lane is not 0; NaN counts as not 0."""

    def build(_context: Any, builder: Any, _sig: Any, args: Any) -> Any:
        zero = ir.Constant(args[0].type, None)
        compare = builder.fcmp_unordered if value.is_float else builder.icmp_unsigned
        whole = builder.bitcast(compare("!=", args[0], zero), ir.IntType(value.lanes))
        return builder.icmp_unsigned("!=", whole, ir.Constant(whole.type, 0))

    return types.boolean(value), build


@intrinsic
def fma(_typing: Any, x: Any, y: Any, z: Any) -> Any:
    """x y + z, rounded once, on vectors and scalars, or on three scalars of one kind."""
    args = tuple(types.unliteral(arg) for arg in (x, y, z))
    kind = common(args) or (args[2] if args[0] == args[1] == args[2] else None)
    if kind is None:
        return None

    def build(context: Any, builder: Any, sig: Any, values: Any) -> Any:
        if isinstance(kind, Vector):
            values = [as_vector(context, builder, v, t, kind) for v, t in zip(values, sig.args, strict=True)]
        return call_llvm(builder, "fma", *values)

    return kind(*args), build


# -- operators --------------------------------------------------------------------------------------------------------
# Operators and ufuncs on vectors and scalars, with which formulas written for NumPy arrays compile on vectors. The last
# lines register them with Numba when this module is imported. No operator mixes lanes.


def _operator(function: Any, arity: int, emit: Callable[..., Any], floats: bool = True, integers: bool = True) -> None:
    """Register one operator or ufunc with Numba; its result is of its operands' vector kind."""

    def result(*kinds: Any) -> Vector | None:
        kind = common(kinds)
        return kind if kind is not None and (floats if kind.is_float else integers) else None

    def lower(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        kind = sig.return_type
        values = [as_vector(context, builder, v, t, kind) for v, t in zip(args, sig.args, strict=True)]
        return emit(builder, kind, sig.args, *values)

    # Numba takes the number of operands from the signature.
    def of_one(x: Any) -> Vector | None:
        return result(x)

    def of_two(x: Any, y: Any) -> Vector | None:
        return result(x, y)

    type_callable(function)(lambda _context: of_one if arity == 1 else of_two)
    pairs = (Vector, Vector), (Vector, types.Number), (types.Number, Vector)
    for kinds in [(Vector,)] if arity == 1 else pairs:
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
        return builder.select(compare(symbol, x, y), ir.Constant(x.type, 1), ir.Constant(x.type, None))

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


_operator(operator.add, 2, _arithmetic("fadd", "add"))
_operator(operator.sub, 2, _arithmetic("fsub", "sub"))
_operator(operator.mul, 2, _arithmetic("fmul", "mul"))
_operator(operator.truediv, 2, lambda builder, _kind, _args, x, y: builder.fdiv(x, y), integers=False)
_operator(operator.neg, 1, lambda builder, kind, _args, x: builder.fneg(x) if kind.is_float else builder.neg(x))
_operator(operator.and_, 2, _bitwise("and_"))
_operator(operator.or_, 2, _bitwise("or_"))
_operator(operator.xor, 2, _bitwise("xor"), floats=False)
_operator(operator.lshift, 2, lambda builder, _kind, _args, x, y: builder.shl(x, y), floats=False)
_operator(  # signed numbers keep their sign
    operator.rshift, 2,
    lambda builder, kind, _args, x, y: (builder.ashr if kind.dtype.signed else builder.lshr)(x, y), floats=False,
)  # fmt: skip
for _symbol, _name in {"<": "lt", "<=": "le", ">": "gt", ">=": "ge", "==": "eq", "!=": "ne"}.items():
    _operator(getattr(operator, _name), 2, _comparison(_symbol))
_operator(np.abs, 1, lambda builder, _kind, _args, x: call_llvm(builder, "fabs", x), integers=False)
_operator(np.sqrt, 1, lambda builder, _kind, _args, x: call_llvm(builder, "sqrt", x), integers=False)
_operator(np.sign, 1, _sign, integers=False)
_operator(np.maximum, 2, _extremum(">", "maximum"), integers=False)
_operator(np.minimum, 2, _extremum("<", "minimum"), integers=False)
