"""Models times a symmetric matrix of each run, for a stack of nodes. Lanes are coordinates of the result.

Every number is the sum over the columns of the matrix, in rising order and without a second rounding of products. So it
depends neither on threads nor on the nodes and runs beside it: a node alone gets the same bits as in a network, which a
product of BLAS does not promise.
"""

from typing import Any

import numpy as np

from sottovoce.arrays import Array, Floats
from sottovoce.oracle.kernels.simd import Lanes, at, broadcast, fma, kernel, load, store, width
from sottovoce.oracle.kernels.threads import claim, share_out
from sottovoce.oracle.kernels.tiles import aligned

_LANES = Lanes(32)


def rows_of(matrices: Floats) -> Floats:
    """Symmetric matrices (p, p, runs) as `turned` reads them: (runs, p, p and zeros up to whole vectors)."""
    p, _, runs = matrices.shape
    out = np.zeros((runs, p, -(-p // _LANES.count) * _LANES.count))
    out[:, :, :p] = matrices.transpose(2, 0, 1)
    return out


@kernel
def _turned(counter: Any, items: int, rows: Any, models: Any, out: Any, lanes: Any) -> None:
    """An item is a node in one run; those of one run follow each other."""
    nodes, p, outputs = models.shape[0], models.shape[1], models.shape[2]
    length, size = rows.shape[2], width(lanes)
    found = aligned(length, rows.dtype)
    item = claim(counter)
    while item < items:
        run, i = item // nodes, item % nodes
        for k in range(outputs):
            for place in range(0, length, size):
                total = broadcast(0.0, lanes)
                for c in range(p):
                    row = load(rows, (run * p + c) * length + place, lanes)
                    total = fma(row, np.float64(models[i, c, k, run]), total)
                store(found, place, total)
            for c in range(p):
                out[i, c, k, run] = at(found, c)
        item = claim(counter)


def turned(rows: Floats, models: Array) -> Array:
    """A v of every model v, each output by itself: (nodes, p outputs, runs) -> the same.

    Args:
        rows: the matrices, from `rows_of`.
        models: in either precision. Products are in double precision.
    """
    nodes, d, runs = models.shape
    p = rows.shape[1]
    parts = np.ascontiguousarray(models).reshape(nodes, p, d // p, runs)
    out = np.empty_like(parts)
    share_out(_turned, nodes * runs, rows, parts, out, _LANES)
    return out.reshape(nodes, d, runs)
