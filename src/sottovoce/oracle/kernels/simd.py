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
from functools import cache, wraps
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
from llvmlite import ir
from numba import typeof
from numba.core import cgutils, types
from numba.core.imputils import lower_constant
from numba.core.types.containers import Tuple
from numba.core.types.misc import VarArg, unliteral
from numba.core.typing.templates import AbstractTemplate, infer_global
from numba.extending import NativeValue, lower_builtin, models, register_model, unbox
from numba.np.arrayobj import populate_array

# ruff: noqa: ARG001 (Numba looks an implementation up by all arguments, needed or not)


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


def data_of(context: Any, builder: Any, array_type: Any, array: Any) -> Any:
    """Where the first element of an array lies."""
    return builder.extract_value(array, context.data_model_manager[array_type].get_field_position("data"))


def new_array(context: Any, builder: Any, kind: Any, data: Any, count: Any, memory: Any = None) -> Any:
    """An array of one dimension over `count` elements that lie at `data`; `memory` is what counts its references."""
    size = context.get_constant(types.intp, context.get_abi_sizeof(context.get_data_type(kind.dtype)))
    array = context.make_array(kind)(context, builder)
    populate_array(array, data=data, shape=[count], strides=[size], itemsize=size, meminfo=memory)
    return array._getvalue()


def _pointer(context: Any, builder: Any, array_type: Any, array: Any, offset: Any, kind: Any) -> Any:
    """Where element `offset` of an array lies, as a pointer to the given type."""
    return builder.bitcast(builder.gep(data_of(context, builder, array_type, array), [offset]), kind.as_pointer())


def common(args: tuple[Any, ...]) -> Vector | None:
    """The one vector kind among the operands, if the rest are scalars or the same kind."""
    kinds = [arg for arg in args if isinstance(arg, Vector)]
    fits = all(isinstance(arg, Vector | types.Number) for arg in args)
    return kinds[0] if kinds and fits and all(kind == kinds[0] for kind in kinds) else None


# -- functions of compiled code ---------------------------------------------------------------------------------------
# Numba has `intrinsic` for this, which looks through all that Numba knows each time that one is used.

_KNOWN: dict[Any, Callable[..., Any]] = {}  # how each function is defined


def teach(function: Any, define: Callable[..., Any], *operands: tuple[Any, ...]) -> None:
    """Teach Numba a function, operator or ufunc.

    Args:
        function: what compiled code calls.
        define: takes the types of its arguments, and gives its signature and what builds its instructions; None where
            it has no meaning.
        operands: classes of types that the arguments may be of. Only where nobody else defines the function may they
            be left out.
    """

    class Template(AbstractTemplate):
        key = function

        def generic(self, args: Any, _keywords: Any) -> Any:
            found = define(*args)
            return found and found[0]

    def lower(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return define(*sig.args)[1](context, builder, sig, args)

    # Typing and lowering are taught apart: the first says what comes out, the second how it is computed.
    infer_global(function, types.Function(Template))
    for kinds in operands or [(VarArg(types.Any),)]:
        lower_builtin(function, *kinds)(lower)
    _KNOWN[function] = define


def primitive(define: Callable[..., Any]) -> Callable[..., Any]:
    """A new function of compiled code and of `traced` functions, which `define` defines: see `teach`."""

    @wraps(define)
    def function(*args: Any) -> Any:
        return _apply(function, args)

    teach(function, define)
    return function


class Traced:
    """A number or vector in a function that is run while its caller is compiled: what is done to it becomes
    instructions there.

    Args:
        kind: its Numba type.
        value: what LLVM calls it; None while only types are asked for.
        place: Numba's context and LLVM's builder, likewise.
    """

    def __init__(self, kind: Any, value: Any = None, place: Any = None) -> None:
        self.kind, self.value, self.place = kind, value, place

    @property
    def dtype(self) -> Any:
        """The type of one lane."""
        return self.kind.dtype

    def __array_ufunc__(self, ufunc: Any, _method: str, *args: Any) -> Any:
        return _apply(ufunc, args)

    def __neg__(self) -> Any:
        return _apply(operator.neg, (self,))


def _apply(function: Any, args: tuple[Any, ...]) -> Any:
    """Do what a function does, to arguments of which one is `Traced` at least."""
    places = [arg.place for arg in args if isinstance(arg, Traced)]
    if not places:
        raise NotImplementedError("compiled code only")
    kinds = [arg.kind if isinstance(arg, Traced) else typeof(arg) for arg in args]
    found = _KNOWN[function](*kinds)
    if found is None:
        raise TypeError(f"Expected operands that {function.__name__} is defined for, got {kinds}.")
    sig, build = found
    if places[0] is None:
        return Traced(sig.return_type)
    context, builder = places[0]
    values = [
        context.cast(builder, arg.value, kind, wanted) if isinstance(arg, Traced)
        else context.get_constant_generic(builder, wanted, arg)
        for arg, kind, wanted in zip(args, kinds, sig.args, strict=True)
    ]  # fmt: skip
    return Traced(sig.return_type, build(context, builder, sig, values), places[0])


def _method(function: Any, swapped: bool) -> Callable[..., Any]:
    """An operator of `Traced`, with its operands in either order."""
    return lambda x, y: _apply(function, (y, x) if swapped else (x, y))


for _name in ("add", "sub", "mul", "truediv", "and_", "or_", "xor", "lshift", "rshift"):
    setattr(Traced, f"__{_name.rstrip('_')}__", _method(getattr(operator, _name), False))
    setattr(Traced, f"__r{_name.rstrip('_')}__", _method(getattr(operator, _name), True))
for _name in ("lt", "le", "gt", "ge", "eq", "ne"):
    setattr(Traced, f"__{_name}__", _method(getattr(operator, _name), False))


def defined_by(function: Callable[..., Any]) -> Callable[..., Any]:
    """What `teach` takes, of a function that is run on `Traced` arguments. It gives one of them, or a tuple."""

    @cache
    def kind_of(*kinds: Any) -> Any:
        found = function(*map(Traced, kinds))
        return Tuple([each.kind for each in found]) if isinstance(found, tuple) else found.kind

    def define(*kinds: Any) -> Any:
        def build(context: Any, builder: Any, sig: Any, args: Any) -> Any:
            place = context, builder
            found = function(*(Traced(k, v, place) for k, v in zip(sig.args, args, strict=True)))
            if isinstance(found, tuple):
                return context.make_tuple(builder, sig.return_type, [each.value for each in found])
            return found.value

        return kind_of(*kinds)(*kinds), build

    return define


def traced(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function of compiled code that is straight on: arithmetic, what is in this module, no branch on a number.

    It is run in Python whenever a caller is compiled, and what it does to its arguments becomes instructions of the
    caller. That takes a tenth of the time that Numba would need to read, type and lower it as a function.
    """
    return wraps(function)(primitive(defined_by(function)))


# -- memory and lanes


@primitive
def load(array: Any, offset: Any, lanes: Any) -> Any:
    """Consecutive elements of a C-contiguous array, of any alignment."""
    kind = Vector(array.dtype, lanes.count)

    def build(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        vector = context.get_value_type(kind)
        value = builder.load(_pointer(context, builder, sig.args[0], args[0], args[1], vector))
        # Only as aligned as one element: a vector may begin anywhere.
        value.align = array.dtype.bitwidth // 8
        return value

    return kind(array, types.intp, lanes), build


@primitive
def store(array: Any, offset: Any, value: Any) -> Any:
    """Write a vector over consecutive elements of a C-contiguous array of the same kind."""
    if array.dtype != value.dtype:
        return None

    def build(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        pointer = _pointer(context, builder, sig.args[0], args[0], args[1], args[2].type)
        builder.store(args[2], pointer).align = array.dtype.bitwidth // 8
        return context.get_dummy_value()

    return types.void(array, types.intp, value), build


@primitive
def local(lanes: Any, sample: Any) -> Any:
    """Room for four vectors of the kind of `sample` in the caller's own frame: gone when that returns."""
    kind = types.Array(sample.dtype, 1, "C")

    def build(context: Any, builder: Any, _sig: Any, _args: Any) -> Any:
        count, item = 4 * lanes.count, context.get_data_type(kind.dtype)
        room = builder.bitcast(cgutils.alloca_once(builder, ir.ArrayType(item, count)), item.as_pointer())
        return new_array(context, builder, kind, room, context.get_constant(types.intp, count))

    return kind(lanes, sample), build


@primitive
def at(array: Any, offset: Any) -> Any:
    """One element, without Numba's care for negative indices, which costs an instruction or two in inner loops."""

    def build(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return builder.load(builder.gep(data_of(context, builder, sig.args[0], args[0]), [args[1]]))

    return array.dtype(array, types.intp), build


@primitive
def lesser(x: Any, y: Any) -> Any:
    """The smaller of two whole numbers. Numba would compile a function for `min`."""

    def build(_context: Any, builder: Any, _sig: Any, args: Any) -> Any:
        return builder.select(builder.icmp_signed("<", *args), *args)

    return types.int64(types.int64, types.int64), build


@primitive
def width(lanes: Any) -> Any:
    """The lane count as a number."""

    def build(context: Any, _builder: Any, _sig: Any, _args: Any) -> Any:
        return context.get_constant(types.intp, lanes.count)

    return types.intp(lanes), build


@primitive
def broadcast(scalar: Any, lanes: Any) -> Any:
    """The same number in every lane."""
    scalar = unliteral(scalar)
    kind = Vector(scalar, lanes.count)

    def build(context: Any, builder: Any, _sig: Any, args: Any) -> Any:
        return _splat(builder, context.get_value_type(kind), args[0])

    return kind(scalar, lanes), build


@primitive
def count_up(start: Any, lanes: Any) -> Any:
    """start, start + 1, start + 2, ...: one number per lane, of start's integer kind."""
    kind = Vector(unliteral(start), lanes.count)

    def build(context: Any, builder: Any, _sig: Any, args: Any) -> Any:
        vector = context.get_value_type(kind)
        return builder.add(_splat(builder, vector, args[0]), ir.Constant(vector, list(range(kind.lanes))))

    return kind(kind.dtype, lanes), build


@primitive
def convert(value: Any, sample: Any) -> Any:
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


@primitive
def bits(value: Any) -> Any:
    """The bits of floating-point lanes, as signed integers of the same width."""
    kind = Vector(types.Integer.from_bitwidth(value.dtype.bitwidth, True), value.lanes)

    def build(context: Any, builder: Any, _sig: Any, args: Any) -> Any:
        return builder.bitcast(args[0], context.get_value_type(kind))

    return kind(value), build


@primitive
def from_bits(value: Any) -> Any:
    """The floating-point numbers of the same width that have these bits."""
    kind = Vector({32: types.float32, 64: types.float64}[value.dtype.bitwidth], value.lanes)

    def build(context: Any, builder: Any, _sig: Any, args: Any) -> Any:
        return builder.bitcast(args[0], context.get_value_type(kind))

    return kind(value), build


@primitive
def where(condition: Any, yes: Any, no: Any) -> Any:
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


@primitive
def any_lane(value: Any) -> Any:
    """Whether some lane is not 0 (a NaN counts)."""

    def build(_context: Any, builder: Any, _sig: Any, args: Any) -> Any:
        zero = ir.Constant(args[0].type, None)
        compare = builder.fcmp_unordered if value.is_float else builder.icmp_unsigned
        whole = builder.bitcast(compare("!=", args[0], zero), ir.IntType(value.lanes))
        return builder.icmp_unsigned("!=", whole, ir.Constant(whole.type, 0))

    return types.boolean(value), build


@primitive
def fma(x: Any, y: Any, z: Any) -> Any:
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


# -- operators --------------------------------------------------------------------------------------------------------
# Operators and ufuncs on vectors and scalars: what lets formulas written for NumPy arrays compile on vectors.
#
# Importing this module is all there is to do: it teaches Numba every operator in its last lines. Nothing here knows a
# loss, and nothing ever mixes lanes.


def _flags(builder: Any, condition: Any, kind: Any) -> Any:
    """1 where the condition holds, else 0."""
    return builder.select(condition, ir.Constant(kind, 1), ir.Constant(kind, None))


def _operator(function: Any, arity: int, emit: Callable[..., Any], floats: bool = True, integers: bool = True) -> None:
    """Teach Numba one operator or ufunc: its result is of its operands' one vector kind."""

    def define(*kinds: Any) -> Any:
        kind = common(kinds) if len(kinds) == arity else None
        if kind is None or not (floats if kind.is_float else integers):
            return None

        def build(context: Any, builder: Any, sig: Any, args: Any) -> Any:
            values = [as_vector(context, builder, v, t, kind) for v, t in zip(args, sig.args, strict=True)]
            return emit(builder, kind, sig.args, *values)

        return kind(*kinds), build

    pairs = (Vector, Vector), (Vector, types.Number), (types.Number, Vector)
    teach(function, define, *([(Vector,)] if arity == 1 else pairs))


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
