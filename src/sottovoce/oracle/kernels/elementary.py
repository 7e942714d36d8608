"""exp, log, log1p and sincos on vectors, to about one unit in the last place.

Each is a range reduction and a polynomial, with no table and no branch, so a lane's result depends on its own input
alone. Coefficients of exp are near-minimax fits made for this file; those of log, sin and cos are the classic ones of
FreeBSD's msun (double) and Cephes (single).
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from numba import types
from numba.extending import intrinsic, overload

from sottovoce.oracle.kernels.simd import (
    PIECE,
    Vector,
    bits,
    call_llvm,
    convert,
    fma,
    from_bits,
    piece,
    where,
)


def polynomial(single: tuple[float, ...], double: tuple[float, ...]) -> Any:
    """c0 + c1 x + c2 x^2 + ..., a function of vectors: by Horner's rule, as a chain of fused multiply-adds. The
    coefficients are those of the precision of x.
    """

    @intrinsic
    def horner(_typing: Any, x: Any) -> Any:
        def build(_context: Any, builder: Any, _sig: Any, args: Any) -> Any:
            kind = args[0].type
            *rest, value = [kind([c] * x.lanes) for c in (single if x.dtype == types.float32 else double)]
            for constant in reversed(rest):
                value = call_llvm(builder, "fma", value, args[0], constant)
            return value

        return x(x), build

    return horner


def constant(single: Any, double: Any) -> Any:
    """A number that depends on the precision of a vector: a function of the vector."""

    @intrinsic
    def of_precision(_typing: Any, x: Any) -> Any:
        number = single if x.dtype == types.float32 else double
        kind = types.int64 if isinstance(number, int) else types.float64
        return kind(x), lambda context, _builder, _sig, _args: context.get_constant(kind, number)

    return of_precision


# Twice exp on [-ln 2 / 2, ln 2 / 2]: the 2 lets the exponent reach both ends of its range.
_EXP_32 = (2.0, 2.0, 1.0, 2 * 0.16666576, 2 * 0.041666556, 2 * 0.008363203, 2 * 0.0013926213)
_EXP_64 = (
    2.0, 2.0, 2 * 0.5000000000000001, 2 * 0.16666666666666669, 2 * 0.04166666666662399, 2 * 0.008333333333330051,
    2 * 0.0013888888917281794, 2 * 0.00019841269863105968, 2 * 2.480152119021773e-05, 2 * 2.7557268378684192e-06,
    2 * 2.7620138719733994e-07, 2 * 2.5100424157005067e-08,
)  # fmt: skip
_LOG2_E = 1.4426950408889634
# ln 2 in two parts; the first has so few bits that its product with an exponent is exact.
_high, _low = constant(0.693145751953125, 0.6931471804855391), constant(1.4286068203094173e-06, 7.440617110012397e-11)
# Number of bits of the mantissa, below the exponent.
_digits = constant(23, 52)
# Adding this rounds to an integer, which the sum's low bits then hold.
_round = constant(1.5 * 2.0**23, 1.5 * 2.0**52)
# The exponent bits of 1/2: the power is half of 2^n, since the polynomial is twice exp.
_half_power = constant(126 << 23, 1022 << 52)
# ln 2^-125.5 and ln of the largest single, and the same for double: exp of numbers beyond has no normal result.
_least, _most = constant(-86.98, -708.0), constant(88.72283, 709.782712893384)

# log(1 + f) = f - f^2/2 + s (f^2/2 + R(s^2)), s = f / (2 + f)
_LOG_32 = (0.66666662693, 0.40000972152, 0.28498786688, 0.24279078841)
_LOG_64 = (
    6.666666666666735130e-01, 3.999999999940941908e-01, 2.857142874366239149e-01, 2.222219843214978396e-01,
    1.818357216161805012e-01, 1.531383769920937332e-01, 1.479819860511658591e-01,
)  # fmt: skip
# The bits of sqrt(1/2), below which a mantissa is doubled.
_half = constant(0x3F3504F3, 0x3FE6A09E667F3BCD)
# The least normal number, and the power of two by which smaller ones are scaled up.
_tiny, _lift = constant(2.0**-126, 2.0**-1022), constant(24.0, 54.0)
_lifted = constant(2.0**24, 2.0**54)

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


_exp_series, _log_series = polynomial(_EXP_32, _EXP_64), polynomial(_LOG_32, _LOG_64)
_sin_series, _cos_series = polynomial(_SIN_32, _SIN_64), polynomial(_COS_32, _COS_64)


def _exp(x: Any) -> Any:
    """exp(x); results below 2^-125 (2^-1021 in double) are 0, and too large ones infinity."""
    shifted = fma(x, _LOG2_E, _round(x))
    n = shifted - _round(x)
    rest = fma(n, -_low(x), fma(n, -_high(x), x))
    power = from_bits((bits(shifted) << _digits(x)) + _half_power(x))
    return where(x < _least(x), 0.0, where(x > _most(x), np.inf, _exp_series(rest) * power))


@piece
def log_of(f: Any, k: Any) -> Any:
    """ln(1 + f) + k ln 2 for f between sqrt(1/2) - 1 and sqrt(2) - 1 and whole k, both vectors of one kind: the classic
    series in s = f / (2 + f), with k ln 2 added in two parts.
    """
    s = f / (2 + f)
    z = s * s
    half = 0.5 * f * f
    inner = fma(s, fma(z, _log_series(z), half), k * _low(f))
    return fma(k, _high(f), f - (half - inner))


@piece
def split(x: Any) -> Any:
    """(m, k) with x = m 2^k and m between sqrt(1/2) and sqrt(2), for positive normal x: whole-number arithmetic on the
    bits.
    """
    whole = bits(x)
    # The difference to the bits of sqrt(1/2) has the exponent in its high bits, rounded down.
    k = (whole - _half(x)) >> _digits(x)
    return from_bits(whole - (k << _digits(x))), convert(k, x)


@piece
def _edges(x: Any, value: Any) -> Any:
    """`value`, replaced by the true logarithm of x where its formula does not hold: at 0, infinity, NaN and below 0."""
    return where(x == 0, -np.inf, where(x == np.inf, np.inf, where(x > 0, value, np.nan)))


def _log(x: Any) -> Any:
    """ln(x), of subnormal numbers too."""
    # A subnormal number is scaled up first, so that it has an exponent.
    small = x < _tiny(x)
    m, k = split(where(small, x * _lifted(x), x))
    return _edges(x, log_of(m - 1, k - small * _lift(x)))


def _log1p(x: Any) -> Any:
    """ln(1 + x), accurate near 0: the rounding error of 1 + x is corrected to first order."""
    u = 1 + x
    # For u above 2 the rounding error is 1 - (u - x), below it x - (u - 1): the exact one of each.
    lost = where(u > 2, 1 - (u - x), x - (u - 1))
    m, k = split(u)
    return _edges(u, log_of(m - 1, k) + where(u == np.inf, 0.0, lost / u))


def _of_floats(formula: Callable[..., Any]) -> Callable[..., Any]:
    """An argument of `overload` that gives the formula for a floating-point vector; other types are left to Numba."""

    def choose(x: Any) -> Any:
        return formula if isinstance(x, Vector) and x.is_float else None

    return choose


for _ufunc, _formula in {np.exp: _exp, np.log: _log, np.log1p: _log1p}.items():
    overload(_ufunc, jit_options=PIECE)(_of_floats(_formula))


@piece
def sincos(angle: Any) -> Any:
    """(sin, cos) of angles between -pi/4 and pi/4, by two polynomials in the square of the angle."""
    z = angle * angle
    return fma(angle * z, _sin_series(z), angle), fma(z * z, _cos_series(z), fma(z, -0.5, 1.0))
