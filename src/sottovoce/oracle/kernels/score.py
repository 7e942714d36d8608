"""Sums over all rows of the loss and of the correct predictions, for many models at once. Lanes are models.

These sums have no noise. They are for the holder of the rows, and no algorithm uses them.

Predictions are made in the precision of the models; sums over many rows are kept in double precision.
"""

from itertools import pairwise
from typing import Any

import numpy as np

from sottovoce.arrays import Array, Floats, Ints
from sottovoce.oracle.kernels.formulas import formulas, parts, sign
from sottovoce.oracle.kernels.simd import Lanes, at, broadcast, convert, kernel, lesser, store, width
from sottovoce.oracle.kernels.threads import claim, share_out
from sottovoce.oracle.kernels.tiles import Csr, Dense, aligned, copy_in, dot
from sottovoce.problem.losses import Loss, expect_one_output

# The most rows of one sum; sums are added up in order. An item of work is all sums that begin within that many rows, so
# that small ones share a copy of the models.
_PIECE = 1024
# Rows whose losses are summed in the precision of the models, and whose factors between 1 and 2 are multiplied before
# one logarithm: the product is at most 2^64, far below the largest number of single precision.
_FEW = 64
_LANES = {np.dtype(np.float32): Lanes(64), np.dtype(np.float64): Lanes(32)}


@kernel
def _score(counter: Any, items: int, rows: Any, labels: Any, starts: Any, groups: Any, of: Any, theta: float,
           models: Any, losses: Any, hits: Any, lanes: Any) -> None:  # fmt: skip
    """Into losses and hits, both (pieces, models): the sums over the rows from starts[piece] to the next."""
    d, size = models.shape[1], width(lanes)
    tiles = items // (len(groups) - 1)
    tile = aligned(d * size, models.dtype)
    sums = aligned(2 * size, losses.dtype)
    item = claim(counter)
    zero, one = models.dtype.type(0), models.dtype.type(1)
    while item < items:
        group, first = item // tiles, item % tiles * size
        count = lesser(size, models.shape[2] - first)
        copy_in(tile, lanes, models, 0, first, count)
        for piece in range(groups[group], groups[group + 1]):
            loss, right = broadcast(0.0, lanes), broadcast(0.0, lanes)
            end = starts[piece + 1]
            for start in range(starts[piece], end, _FEW):
                straight, product, found = broadcast(zero, lanes), broadcast(one, lanes), broadcast(zero, lanes)
                for j in range(start, lesser(start + _FEW, end)):
                    b = at(labels, j)
                    z = dot(rows, j, tile, lanes)
                    x, y = parts(of, z, b, theta)
                    straight, product = straight + x, product * y
                    found = found + (sign(z) == b)
                loss = loss + (convert(straight, 0.0) + np.log(convert(product, 0.0)))
                right = right + convert(found, 0.0)
            store(sums, 0, loss)
            store(sums, size, right)
            for q in range(count):
                losses[piece, first + q] = sums[q]
                hits[piece, first + q] = sums[size + q]
        item = claim(counter)


def score(rows: Csr | Dense, labels: Array, blocks: Ints, loss: Loss, models: Array) -> tuple[Floats, Floats]:
    """Sum of the losses, and number of rows whose label is the sign of the prediction, for each block of rows and each
    column of `models`. A block's sums depend on its own rows alone.

    Args:
        rows: all rows, in either precision.
        labels: (rows,) in either precision.
        blocks: (blocks + 1,) block i's rows are blocks[i] : blocks[i + 1], at least one.
        loss: the loss.
        models: (d, models), C-contiguous.

    Returns:
        Both (blocks, models), summed in double precision. The second is without meaning in regression.
    """
    expect_one_output(loss, "This kernel")
    starts = np.concatenate([np.arange(*ends, _PIECE) for ends in pairwise(blocks.tolist())] + [blocks[-1:]])
    pieces, count = len(starts) - 1, models.shape[1]
    groups = np.append(np.flatnonzero(np.diff(starts[:-1] // _PIECE, prepend=-1)), pieces)
    losses, hits = np.empty((pieces, count)), np.empty((pieces, count))
    # One width also for few models: a second one would take longer to compile than it saves.
    lanes = _LANES[models.dtype]
    share_out(
        _score, (len(groups) - 1) * -(-count // lanes.count), rows, labels, starts, groups, formulas(type(loss)),
        float(loss.theta), models[None], losses, hits, lanes,
    )  # fmt: skip
    firsts = np.searchsorted(starts[:-1], blocks[:-1])
    return np.add.reduceat(losses, firsts, axis=0), np.add.reduceat(hits, firsts, axis=0)
