"""exp, log, log1p and sincos on vectors, to about one unit in the last place.

Each is a range reduction and a polynomial, with no table and no branch, so a lane's result depends on its own input
alone. They are run when a kernel is compiled, on stand-ins that write down instructions: see `simd.traced`.
Coefficients of exp are near-minimax fits made for this file; those of log, sin and cos are the classic ones of
FreeBSD's msun (double) and Cephes (single).
"""

from collections.abc import Callable
from functools import cache
from hashlib import sha256
from types import CodeType, FunctionType
from typing import Any

import numpy as np
from numba.core import types
from numba.core.imputils import lower_constant
from numba.extending import NativeValue, models, overload, register_model, unbox

from sottovoce.oracle.kernels.compiling import PIECE, piece
from sottovoce.oracle.kernels.simd import Vector, bits, convert, defined_by, fma, from_bits, teach, where
from sottovoce.problem.losses import Loss, labels

# ruff: noqa: ARG001 (Numba looks an implementation up by all arguments, needed or not)


def _polynomial(coefficients: tuple[float, ...], x: Any) -> Any:
    """c0 + c1 x + c2 x^2 + ..., by Horner's rule, as a chain of fused multiply-adds."""
    value = coefficients[-1]
    for constant in coefficients[-2::-1]:
        value = fma(value, x, constant)
    return value


# Twice exp on [-ln 2 / 2, ln 2 / 2]: the 2 lets the exponent reach both ends of its range.
_EXP_32 = (2.0, 2.0, 1.0, 2 * 0.16666576, 2 * 0.041666556, 2 * 0.008363203, 2 * 0.0013926213)
_EXP_64 = (
    2.0, 2.0, 2 * 0.5000000000000001, 2 * 0.16666666666666669, 2 * 0.04166666666662399, 2 * 0.008333333333330051,
    2 * 0.0013888888917281794, 2 * 0.00019841269863105968, 2 * 2.480152119021773e-05, 2 * 2.7557268378684192e-06,
    2 * 2.7620138719733994e-07, 2 * 2.5100424157005067e-08,
)  # fmt: skip
_LOG2_E = 1.4426950408889634
# ln 2 in two parts; the first has so few bits that its product with an exponent is exact.
_HIGH_32, _LOW_32 = 0.693145751953125, 1.4286068203094173e-06
_HIGH_64, _LOW_64 = 0.6931471804855391, 7.440617110012397e-11
# Adding this rounds to an integer, which the sum's low bits then hold.
_ROUND_32, _ROUND_64 = 1.5 * 2.0**23, 1.5 * 2.0**52

# log(1 + f) = f - f^2/2 + s (f^2/2 + R(s^2)), s = f / (2 + f)
_LOG_32 = (0.66666662693, 0.40000972152, 0.28498786688, 0.24279078841)
_LOG_64 = (
    6.666666666666735130e-01, 3.999999999940941908e-01, 2.857142874366239149e-01, 2.222219843214978396e-01,
    1.818357216161805012e-01, 1.531383769920937332e-01, 1.479819860511658591e-01,
)  # fmt: skip
# bits of sqrt(1/2), below which a mantissa is doubled
_HALF_32, _HALF_64 = np.int32(0x3F3504F3), np.int64(0x3FE6A09E667F3BCD)

_SIN_32 = (-1.6666654611e-1, 8.3321608736e-3, -1.9515295891e-4)
_COS_32 = (4.166664568298827e-2, -1.388731625493765e-3, 2.443315711809948e-5)
_SIN_64 = (
    -1.66666666666666324348e-01, 8.33333333332248946124e-03, -1.98412698298579493134e-04,
    2.75573137070700676789e-06, -2.50507602534068634195e-08, 1.58969099521155010221e-10,
)  # fmt: skip
_COS_64 = (
    4.16666666666666019037e-02, -1.38888888888741095749e-03, 2.48015872894767294178e-05,
    -2.75573143513906633035e-07, 2.08757232129817482790e-09, -1.13596475577881948265e-11,
)  # fmt: skip


def _exp(x: Any) -> Any:
    """exp(x); numbers below 2^-125 (2^-1021 in double) come out as 0, and too large ones as infinity."""
    if x.dtype == types.float32:
        shifted = fma(x, _LOG2_E, _ROUND_32)
        n = shifted - _ROUND_32
        rest = fma(n, -_LOW_32, fma(n, -_HIGH_32, x))
        # Half of 2^n, since the polynomial is twice exp: both ends of the exponent then fit.
        power = from_bits((bits(shifted) << 23) + (126 << 23))
        value = _polynomial(_EXP_32, rest) * power
        # ln 2^-125.5 and ln of the largest single: what lies beyond has no normal number.
        return where(x < -86.98, 0.0, where(x > 88.72283, np.inf, value))
    shifted = fma(x, _LOG2_E, _ROUND_64)
    n = shifted - _ROUND_64
    rest = fma(n, -_LOW_64, fma(n, -_HIGH_64, x))
    power = from_bits((bits(shifted) << 52) + (1022 << 52))
    value = _polynomial(_EXP_64, rest) * power
    # The same for double precision.
    return where(x < -708.0, 0.0, where(x > 709.782712893384, np.inf, value))


def log_of(f: Any, k: Any) -> Any:
    """ln(1 + f) + k ln 2 for f between sqrt(1/2) - 1 and sqrt(2) - 1 and whole k, both vectors of one kind: the classic
    series in s = f / (2 + f), with k ln 2 added in two parts.
    """
    single = f.dtype == types.float32
    series, high, low = (_LOG_32, _HIGH_32, _LOW_32) if single else (_LOG_64, _HIGH_64, _LOW_64)
    s = f / (2 + f)
    z = s * s
    half = 0.5 * f * f
    inner = fma(s, fma(z, _polynomial(series, z), half), k * low)
    return fma(k, high, f - (half - inner))


def split(x: Any) -> Any:
    """(m, k) with x = m 2^k and m between sqrt(1/2) and sqrt(2), for positive normal x: whole-number arithmetic on the
    bits.
    """
    half, digits, zero = (_HALF_32, 23, np.float32(0)) if x.dtype == types.float32 else (_HALF_64, 52, np.float64(0))
    whole = bits(x)
    # The difference to the bits of sqrt(1/2) has the exponent in its high bits, rounded down.
    k = (whole - half) >> digits
    return from_bits(whole - (k << digits)), convert(k, zero)


def _edges(x: Any, value: Any) -> Any:
    """What a logarithm is where its formula does not hold: at 0, at infinity, below 0 and at NaN."""
    return where(x == 0, -np.inf, where(x == np.inf, np.inf, where(x > 0, value, np.nan)))


def _log(x: Any) -> Any:
    """ln(x), of subnormal numbers too."""
    # A subnormal number has no exponent to take out until it is scaled up.
    tiny, lift = (2.0**-126, 24.0) if x.dtype == types.float32 else (2.0**-1022, 54.0)
    small = x < tiny
    m, k = split(where(small, x * 2.0**lift, x))
    return _edges(x, log_of(m - 1, k - small * lift))


def _log1p(x: Any) -> Any:
    """ln(1 + x), accurate near 0: what rounding 1 + x lost is put back to first order."""
    u = 1 + x
    # For u above 2 the rounding error is 1 - (u - x), below it x - (u - 1): the exact one of each.
    lost = where(u > 2, 1 - (u - x), x - (u - 1))
    m, k = split(u)
    return _edges(u, log_of(m - 1, k) + where(u == np.inf, 0.0, lost / u))


def _of_floats(formula: Callable[..., Any]) -> Callable[..., Any]:
    """What `teach` takes, of a formula for one vector of floating-point numbers. Everything else is Numba's."""
    define = defined_by(formula)

    def define_for(*kinds: Any) -> Any:
        fits = len(kinds) == 1 and isinstance(kinds[0], Vector) and kinds[0].is_float
        return define(*kinds) if fits else None

    return define_for


for _ufunc, _formula in {np.exp: _exp, np.log: _log, np.log1p: _log1p}.items():
    teach(_ufunc, _of_floats(_formula), (Vector,))


def sincos(angle: Any) -> Any:
    """(sin, cos) of angles between -pi/4 and pi/4, by two polynomials in the square of the angle."""
    sin, cos = (_SIN_32, _COS_32) if angle.dtype == types.float32 else (_SIN_64, _COS_64)
    z = angle * angle
    return fma(angle * z, _polynomial(sin, z), angle), fma(z * z, _polynomial(cos, z), fma(z, -0.5, 1.0))


# -- formulas ---------------------------------------------------------------------------------------------------------
# A loss as an argument of a kernel: its formulas are compiled into the kernel, on vectors.
#
# Numba can keep on disk only what its arguments' types say in full. The type here names the loss's class and a digest
# of its formulas, so a kernel compiled for a loss is found again by the next process, and is not when a formula
# changes.

# ruff: noqa: ARG001 (Numba looks an implementation up by all arguments, needed or not)


class FormulasType(types.Opaque):
    """The type of one loss's formulas."""

    def __init__(self, loss: type[Loss]) -> None:
        self.loss = loss
        compiled = (loss.value, loss.parts, loss.slope, loss.curvature, labels.sign)
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
def _compiled_constant(context: Any, _builder: Any, _kind: Any, _value: Any) -> Any:
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
