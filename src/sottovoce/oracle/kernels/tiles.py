"""Rows times a tile of models, in compiled code.

A tile is one node's model for `width` runs, flat as (d, width), aligned to cache lines and small enough to stay in
the first-level cache. `dot` keeps its sums in registers over a row's non-zeros; `scatter` adds multiples of rows.
"""

from typing import Any, NamedTuple

import numpy as np
from numba.extending import overload

from sottovoce.arrays import Array, Ints
from sottovoce.oracle.kernels.simd import PIECE, at, broadcast, fma, load, part, store, width

# ruff: noqa: ARG001 (Numba looks an implementation up by all arguments, needed or not)


_LINE = 64  # bytes of a cache line, and of the widest register


class Csr(NamedTuple):
    """Sparse rows, sorted by column, each column at most once."""

    values: Array  # (non-zeros,)
    columns: Ints  # (non-zeros,) int32
    starts: Ints  # (rows + 1,) int64


class Dense(NamedTuple):
    """Rows with all their numbers, zeros included."""

    values: Array  # (rows, d)


@part
def aligned(count: int, dtype: Any) -> Any:
    """An empty array of `count` numbers that begins at a cache line."""
    room = np.empty(count + _LINE, dtype)
    return room[(_LINE - np.int64(room.ctypes.data) % _LINE) % _LINE // room.itemsize :][:count]


@part
def copy_in(tile: Any, lanes: Any, stack: Any, i: int, first: int, runs: int) -> None:
    """Runs first.. of node i, from a stack (nodes, d, all runs) into a tile; the lanes left over become 0."""
    size = width(lanes)
    for c in range(stack.shape[1]):
        for q in range(runs):
            tile[c * size + q] = stack[i, c, first + q]
        for q in range(runs, size):
            tile[c * size + q] = 0


@part
def copy_out(stack: Any, i: int, first: int, runs: int, tile: Any, lanes: Any) -> None:
    """Runs first.. of node i, from a tile back into a stack (nodes, d, all runs)."""
    size = width(lanes)
    for c in range(stack.shape[1]):
        for q in range(runs):
            stack[i, c, first + q] = tile[c * size + q]


def dot(rows: Any, j: Any, tile: Any, lanes: Any) -> Any:
    """<a_j, w> for every lane of the tile w."""
    raise NotImplementedError("compiled code only")


def scatter(rows: Any, which: Any, n: Any, slopes: Any, tile: Any, lanes: Any) -> Any:
    """Add s_q a_{which[q]} to the tile for q = 0 .. n - 1, in this order; s_q is vector q of `slopes`."""
    raise NotImplementedError("compiled code only")


@overload(dot, jit_options=PIECE)
def _dot(rows: Any, j: Any, tile: Any, lanes: Any) -> Any:
    """`dot` for sparse and for dense rows."""
    if rows.instance_class is Csr:

        def sparse(rows: Any, j: Any, tile: Any, lanes: Any) -> Any:
            # One sum in registers over all non-zeros of the row.
            total, size = broadcast(tile.dtype.type(0), lanes), width(lanes)
            k, end = at(rows.starts, j), at(rows.starts, j + 1)
            while k + 4 <= end:
                total = fma(load(tile, at(rows.columns, k) * size, lanes), at(rows.values, k), total)
                total = fma(load(tile, at(rows.columns, k + 1) * size, lanes), at(rows.values, k + 1), total)
                total = fma(load(tile, at(rows.columns, k + 2) * size, lanes), at(rows.values, k + 2), total)
                total = fma(load(tile, at(rows.columns, k + 3) * size, lanes), at(rows.values, k + 3), total)
                k += 4
            for rest in range(k, end):
                total = fma(load(tile, at(rows.columns, rest) * size, lanes), at(rows.values, rest), total)
            return total

        return sparse

    def dense(rows: Any, j: Any, tile: Any, lanes: Any) -> Any:
        d = rows.values.shape[1]
        total = broadcast(tile.dtype.type(0), lanes)
        for c in range(d):
            total = fma(load(tile, c * width(lanes), lanes), at(rows.values, j * d + c), total)
        return total

    return dense


@overload(scatter, jit_options=PIECE)
def _scatter(rows: Any, which: Any, n: Any, slopes: Any, tile: Any, lanes: Any) -> Any:
    """`scatter` for sparse and for dense rows."""
    if rows.instance_class is Csr:

        def sparse(rows: Any, which: Any, n: Any, slopes: Any, tile: Any, lanes: Any) -> Any:
            # A column is in a row once: four places are read before the first of them is written, so that none waits.
            size = width(lanes)
            for q in range(n):
                s = load(slopes, q * size, lanes)
                k, end = at(rows.starts, at(which, q)), at(rows.starts, at(which, q) + 1)
                while k + 4 <= end:
                    c0, c1 = at(rows.columns, k) * size, at(rows.columns, k + 1) * size
                    c2, c3 = at(rows.columns, k + 2) * size, at(rows.columns, k + 3) * size
                    x0 = fma(s, at(rows.values, k), load(tile, c0, lanes))
                    x1 = fma(s, at(rows.values, k + 1), load(tile, c1, lanes))
                    x2 = fma(s, at(rows.values, k + 2), load(tile, c2, lanes))
                    x3 = fma(s, at(rows.values, k + 3), load(tile, c3, lanes))
                    store(tile, c0, x0)
                    store(tile, c1, x1)
                    store(tile, c2, x2)
                    store(tile, c3, x3)
                    k += 4
                for rest in range(k, end):
                    place = at(rows.columns, rest) * size
                    store(tile, place, fma(s, at(rows.values, rest), load(tile, place, lanes)))

        return sparse

    def dense(rows: Any, which: Any, n: Any, slopes: Any, tile: Any, lanes: Any) -> Any:
        # Column by column, so that a sum over the rows stays in registers.
        d = rows.values.shape[1]
        for c in range(d):
            total = load(tile, c * width(lanes), lanes)
            for q in range(n):
                total = fma(load(slopes, q * width(lanes), lanes), at(rows.values, at(which, q) * d + c), total)
            store(tile, c * width(lanes), total)

    return dense
