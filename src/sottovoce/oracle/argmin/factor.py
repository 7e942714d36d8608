"""Linear algebra of one node's rows, in compiled code: products with a row, and solves with

    H = diag(D) + sum_j c_j a_j a_j^T,         D > 0, c >= 0.

IPADMM and the algorithms of real sites do not use it: they take noisy gradient steps (`steps`). It is for rivals that
minimise exactly in every round, for ADMM without privacy, and for the pooled optimum, the reference for all others.
Only `sottovoce.oracle.argmin.newton` calls it.

H is d x d. Where fewer than d rows have c_j > 0, the matrix that is factorised has one line for each of those instead:

    H^-1 = D^-1 - D^-1 A^T S M^-1 S A D^-1,     S = diag(sqrt(c)),  M = I + S A D^-1 A^T S.

No BLAS: its own threads would get in the way of ours, and its sums may depend on how many there are.
"""

import math
from typing import Any, NamedTuple

from numba import njit

from sottovoce.arrays import Floats, Ints
from sottovoce.oracle.kernels.simd import PART, fma, part

_EPS = 2.0**-52
# Here the compiler may reorder a sum, so that it uses vectors; the order is the same every time.
_sum = njit(**PART, fastmath={"reassoc", "contract"})


class FlatRows(NamedTuple):
    """All nodes' rows; row j's entries are values[starts[j] : starts[j + 1]]."""

    values: Floats  # (entries,)
    columns: Ints  # (entries,) int32, rising within a row; empty for full rows
    starts: Ints  # (rows + 1,) int64


@_sum
def dot_row(rows: Any, j: int, w: Any) -> Any:
    """<a_j, w>, with w of length d."""
    first, last, total = rows.starts[j], rows.starts[j + 1], 0.0
    if len(rows.columns) == 0:
        for e in range(last - first):
            total += rows.values[first + e] * w[e]
    else:
        for e in range(first, last):
            total += rows.values[e] * w[rows.columns[e]]
    return total


@_sum
def dot_dense(x: Any, y: Any) -> Any:
    """<x, y> of two vectors of one length."""
    total = 0.0
    for c in range(len(x)):
        total += x[c] * y[c]
    return total


@_sum
def _dot_from(x: Any, at: int, y: Any, first: int, last: int) -> Any:
    """Sum of x[at + c] y[c] over c = first .. last - 1."""
    total = 0.0
    for c in range(first, last):
        total += x[at + c] * y[c]
    return total


@part
def copy(out: Any, x: Any) -> None:
    """out <- x. A loop, since Numba takes seconds to compile an assignment to a slice."""
    for c in range(len(x)):
        out[c] = x[c]


@part
def add_row(rows: Any, j: int, skip: int, s: float, out: Any, at: int) -> None:
    """out[at:] += s a_j, without the first `skip` entries of the row."""
    first, last = rows.starts[j], rows.starts[j + 1]
    if len(rows.columns) == 0:
        for e in range(skip, last - first):
            out[at + e] += s * rows.values[first + e]
    else:
        for e in range(first + skip, last):
            out[at + rows.columns[e]] += s * rows.values[e]


@part
def residual(rows: Any, j: int, w: Any, tail: Any, b: float) -> Any:
    """<a_j, w + tail> - b, as if computed with twice the digits: each rounding error is kept and added at the end."""
    first, last = rows.starts[j], rows.starts[j + 1]
    total, rest = -b, 0.0
    for e in range(first, last):
        c = e - first if len(rows.columns) == 0 else rows.columns[e]
        product = rows.values[e] * w[c]
        rest += fma(rows.values[e], w[c], -product) + rows.values[e] * tail[c]
        new = total + product
        back = new - total
        rest += (total - (new - back)) + (product - back)
        total = new
    return total + rest


@part
def add_exactly(w: Any, tail: Any, size: float, step: Any) -> None:
    """w + tail += size step, as a sum of two numbers of which the second is within a rounding error of the first."""
    for c in range(len(w)):
        change = size * step[c]
        new = w[c] + change
        back = new - w[c]
        low = tail[c] + ((w[c] - (new - back)) + (change - back))
        w[c] = new + low
        tail[c] = low - (w[c] - new)


@part
def _cholesky(h: Any, n: int, temp: Any) -> None:
    """H = U^T U in place, in the upper half. A pivot that rounding made too small is raised, so U always exists."""
    for k in range(n):
        temp[k] = h[k * n + k]
    for k in range(n):
        # Relative to its own diagonal entry: one stiff coordinate must not raise the pivots of soft ones.
        pivot = math.sqrt(max(h[k * n + k], _EPS * temp[k]))
        h[k * n + k] = pivot
        for c in range(k + 1, n):
            h[k * n + c] /= pivot
        for i in range(k + 1, n):
            ratio = h[k * n + i]
            if ratio != 0.0:
                for c in range(i, n):
                    h[i * n + c] -= ratio * h[k * n + c]


@part
def _back(u: Any, n: int, x: Any) -> None:
    """x <- (U^T U)^-1 x."""
    for k in range(n):
        x[k] /= u[k * n + k]
        for c in range(k + 1, n):
            x[c] -= x[k] * u[k * n + c]
    for k in range(n - 1, -1, -1):
        x[k] = (x[k] - _dot_from(u, k * n, x, k + 1, n)) / u[k * n + k]


@part
def factorise(rows: Any, begin: int, m: int, c: Any, diagonal: Any, room: Any, temp: Any) -> int:
    """Factorise H into `room`; c[j] belongs to row begin + j, j < m. Returns the number of lines of M, or -1 if H
    itself was factorised. `temp` has room for max(d, m) numbers.
    """
    d, n = len(diagonal), 0
    for j in range(m):
        n += c[j] > 0
    # As many weighted rows as coordinates: H itself is the smaller matrix.
    if n >= d:
        for k in range(d * d):
            room[k] = 0.0
        for k in range(d):
            room[k * d + k] = diagonal[k]
        for j in range(m):
            if c[j] > 0:
                first = rows.starts[begin + j]
                for e in range(rows.starts[begin + j + 1] - first):
                    k = e if len(rows.columns) == 0 else rows.columns[first + e]
                    add_row(rows, begin + j, e, c[j] * rows.values[first + e], room, k * d)
        _cholesky(room, d, temp)
        return -1
    p = 0
    for j in range(m):
        if c[j] > 0:
            for k in range(d):
                temp[k] = 0.0
            add_row(rows, begin + j, 0, math.sqrt(c[j]), temp, 0)
            for k in range(d):
                temp[k] /= diagonal[k]
            q = p
            # Only the upper half is filled in, which is all that the factorisation reads.
            for other in range(j, m):
                if c[other] > 0:
                    room[p * n + q] = math.sqrt(c[other]) * dot_row(rows, begin + other, temp)
                    q += 1
            room[p * n + p] += 1.0
            p += 1
    _cholesky(room, n, temp)
    return n


@part
def solve_factored(rows: Any, begin: int, m: int, c: Any, diagonal: Any, room: Any, n: int, x: Any, temp: Any) -> None:
    """x <- H^-1 x in place.

    Args:
        rows: all nodes' rows.
        begin: the node's first row.
        m: how many rows it has.
        c: their weights in H, as they were at `factorise`.
        diagonal: D, as it was there.
        room: the factor.
        n: what `factorise` returned.
        x: the right side, then the solution.
        temp: room for n numbers.
    """
    d = len(diagonal)
    if n < 0:
        _back(room, d, x)
        return
    for k in range(d):
        x[k] /= diagonal[k]
    p = 0
    for j in range(m):
        if c[j] > 0:
            temp[p] = math.sqrt(c[j]) * dot_row(rows, begin + j, x)
            p += 1
    _back(room, n, temp)
    for k in range(d):
        # D D^-1 x again, so that the second product is added before the last division.
        x[k] *= diagonal[k]
    p = 0
    for j in range(m):
        if c[j] > 0:
            add_row(rows, begin + j, 0, -math.sqrt(c[j]) * temp[p], x, 0)
            p += 1
    for k in range(d):
        x[k] /= diagonal[k]
