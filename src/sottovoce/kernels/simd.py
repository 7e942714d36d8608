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

# ruff: noqa: ARG001 (Numba looks an implementation up by all arguments, needed or not)

from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
from llvmlite import ir
from numba.core import cgutils, types
from numba.core.imputils import lower_constant
from numba.core.types.misc import unliteral
from numba.extending import (
    NativeValue,
    intrinsic,
    models,
    register_model,
    unbox,
)

# Numba's disk cache looks at the file of the compiled function alone. The lane count is an argument of every kernel,
# so putting all sources into its type makes an edit of any of them a new signature.
_SOURCES = sha256(b"".join(path.read_bytes() for path in sorted(Path(__file__).parent.glob("*.py")))).hexdigest()[:12]


class LanesType(types.Opaque):
    """The type of a lane count: the count is known when compiling."""

    def __init__(self, count: int, sources: str) -> None:
        self.count = count
        super().__init__(f"lanes({count}, {sources})")


class Lanes:
    """A lane count that a kernel takes as an argument and is compiled for."""

    def __init__(self, count: int) -> None:
        self.count = count
        self._numba_type_ = LanesType(count, _SOURCES)


class Vector(types.Type):
    """`lanes` numbers of one kind."""

    def __init__(self, dtype: Any, lanes: int) -> None:
        self.dtype = dtype
        self.lanes = lanes
        super().__init__(f"vector({dtype}, {lanes})")

    @property
    def is_float(self) -> bool:
        """Whether the lanes are floating-point numbers."""
        return isinstance(self.dtype, types.Float)


register_model(LanesType)(models.OpaqueModel)


@register_model(Vector)
class _VectorModel(models.PrimitiveModel):
    """How a vector lies in a register: as LLVM's own vector type."""

    def __init__(self, manager: Any, kind: Vector) -> None:
        element = manager.lookup(kind.dtype).get_data_type()
        super().__init__(manager, kind, ir.VectorType(element, kind.lanes))


@unbox(LanesType)
def _unbox_lanes(_kind: Any, _value: Any, c: Any) -> Any:
    """A lane count has no value at run time: it is in its type."""
    return NativeValue(c.context.get_dummy_value())


@lower_constant(LanesType)
def _constant_lanes(context: Any, _builder: Any, _kind: Any, _value: Any) -> Any:
    """The same for a lane count that is a constant of a kernel."""
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
    function_type = ir.FunctionType(kind, [kind] * len(values))
    function = cgutils.get_or_insert_function(builder.module, function_type, f"llvm.{name}.{suffix}")
    return builder.call(function, values)


def _pointer(context: Any, builder: Any, array_type: Any, array: Any, offset: Any, kind: Any) -> Any:
    """Where element `offset` of an array lies, as a pointer to the given type."""
    data = context.make_array(array_type)(context, builder, array).data
    return builder.bitcast(builder.gep(data, [offset]), kind.as_pointer())


def common(args: tuple[Any, ...]) -> Vector | None:
    """The one vector kind among the operands, if the rest are scalars or the same kind."""
    kinds = [arg for arg in args if isinstance(arg, Vector)]
    fits = all(isinstance(arg, Vector | types.Number) for arg in args)
    return kinds[0] if kinds and fits and all(kind == kinds[0] for kind in kinds) else None


# -- memory and lanes


@intrinsic
def load(_context: Any, array: Any, offset: Any, lanes: Any) -> Any:
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
def store(_context: Any, array: Any, offset: Any, value: Any) -> Any:
    """Write a vector over consecutive elements of a C-contiguous array of the same kind."""
    if array.dtype != value.dtype:
        return None

    def build(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        pointer = _pointer(context, builder, sig.args[0], args[0], args[1], args[2].type)
        builder.store(args[2], pointer).align = array.dtype.bitwidth // 8
        return context.get_dummy_value()

    return types.void(array, types.intp, value), build


@intrinsic
def at(_context: Any, array: Any, offset: Any) -> Any:
    """One element, without Numba's care for negative indices, which costs an instruction or two in inner loops."""

    def build(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        data = context.make_array(sig.args[0])(context, builder, args[0]).data
        return builder.load(builder.gep(data, [args[1]]))

    return array.dtype(array, types.intp), build


@intrinsic
def width(_context: Any, lanes: Any) -> Any:
    """The lane count as a number."""

    def build(context: Any, _builder: Any, _sig: Any, _args: Any) -> Any:
        return context.get_constant(types.intp, lanes.count)

    return types.intp(lanes), build


@intrinsic
def broadcast(_context: Any, scalar: Any, lanes: Any) -> Any:
    """The same number in every lane."""
    scalar = unliteral(scalar)
    kind = Vector(scalar, lanes.count)

    def build(context: Any, builder: Any, _sig: Any, args: Any) -> Any:
        return _splat(builder, context.get_value_type(kind), args[0])

    return kind(scalar, lanes), build


@intrinsic
def count_up(_context: Any, start: Any, lanes: Any) -> Any:
    """start, start + 1, start + 2, ...: one number per lane, of start's integer kind."""
    kind = Vector(unliteral(start), lanes.count)

    def build(context: Any, builder: Any, _sig: Any, args: Any) -> Any:
        vector = context.get_value_type(kind)
        return builder.add(_splat(builder, vector, args[0]), ir.Constant(vector, list(range(kind.lanes))))

    return kind(kind.dtype, lanes), build


@intrinsic
def convert(_context: Any, value: Any, sample: Any) -> Any:
    """The value's lanes as numbers of the kind of `sample`, a scalar. Integers wrap, floats round to nearest."""
    kind = Vector(unliteral(sample), value.lanes)

    def build(context: Any, builder: Any, _sig: Any, args: Any) -> Any:
        name = _conversion(value, kind)
        return getattr(builder, name)(args[0], context.get_value_type(kind)) if name else args[0]

    return kind(value, kind.dtype), build


def _conversion(old: Vector, new: Vector) -> str:
    """The LLVM instruction that turns one kind of lane into another; empty if they are the same to LLVM."""
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
def bits(_context: Any, value: Any) -> Any:
    """The bits of floating-point lanes, as signed integers of the same width."""
    kind = Vector(types.Integer.from_bitwidth(value.dtype.bitwidth, True), value.lanes)

    def build(context: Any, builder: Any, _sig: Any, args: Any) -> Any:
        return builder.bitcast(args[0], context.get_value_type(kind))

    return kind(value), build


@intrinsic
def from_bits(_context: Any, value: Any) -> Any:
    """The floating-point numbers of the same width that have these bits."""
    kind = Vector({32: types.float32, 64: types.float64}[value.dtype.bitwidth], value.lanes)

    def build(context: Any, builder: Any, _sig: Any, args: Any) -> Any:
        return builder.bitcast(args[0], context.get_value_type(kind))

    return kind(value), build


@intrinsic
def where(_context: Any, condition: Any, yes: Any, no: Any) -> Any:
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
def any_lane(_context: Any, value: Any) -> Any:
    """Whether some lane is not 0 (a NaN counts)."""

    def build(_context: Any, builder: Any, _sig: Any, args: Any) -> Any:
        zero = ir.Constant(args[0].type, None)
        compare = builder.fcmp_unordered if value.is_float else builder.icmp_unsigned
        whole = builder.bitcast(compare("!=", args[0], zero), ir.IntType(value.lanes))
        return builder.icmp_unsigned("!=", whole, ir.Constant(whole.type, 0))

    return types.boolean(value), build


@intrinsic
def fma(_context: Any, x: Any, y: Any, z: Any) -> Any:
    """x y + z, rounded once, on vectors and scalars, or on three scalars of one kind."""
    args = tuple(unliteral(arg) for arg in (x, y, z))
    kind = common(args) or (args[2] if args[0] == args[1] == args[2] else None)
    if kind is None:
        return None

    def build(context: Any, builder: Any, sig: Any, values: Any) -> Any:
        if isinstance(kind, Vector):
            values = [as_vector(context, builder, v, t, kind) for v, t in zip(values, sig.args, strict=True)]
        return call_llvm(builder, "fma", *values)

    return kind(*args), build
