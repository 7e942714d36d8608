"""Sums over all rows of the loss and of the right answers, for many models at once. Lanes are models.

These figures are read off rows without noise. They are for the holder of the rows, and no algorithm looks at them.
"""

from typing import Any

import numpy as np

from sottovoce.arrays import Array, Floats
from sottovoce.oracle.kernels.formulas import formulas, sign, value
from sottovoce.oracle.kernels.simd import Lanes, at, broadcast, convert, store, width
from sottovoce.oracle.kernels.tiles import Csr, Dense, aligned, claim, copy_in, dot, kernel, share_out
from sottovoce.problem.losses import Loss, expect_one_output

# Rows of one item of work. Each item's sums are added up in order, so the total depends on this number alone.
_BLOCK = 1024
_NARROW, _WIDE = Lanes(16), Lanes(32)


@kernel
def _score(counter: Any, items: int, rows: Any, labels: Any, of: Any, theta: float, models: Any, losses: Any, hits: Any,
           lanes: Any) -> None:  # fmt: skip
    """Into losses and hits, both (blocks, models): the sums of each block of rows."""
    d, size = models.shape[1], width(lanes)
    tiles = items // losses.shape[0]
    tile = aligned(d * size, models)
    sums = np.empty(2 * size)
    item = claim(counter)
    while item < items:
        block, first = item // tiles, item % tiles * size
        count = min(size, models.shape[2] - first)
        copy_in(tile, lanes, models, 0, first, count)
        # In double precision, whatever the models are in: a block has a thousand terms.
        loss, right = broadcast(0.0, lanes), broadcast(0.0, lanes)
        for j in range(block * _BLOCK, min((block + 1) * _BLOCK, len(labels))):
            b = at(labels, j)
            z = dot(rows, j, tile, lanes)
            loss = loss + convert(value(of, z, b, theta), 0.0)
            right = right + convert(sign(z) == b, 0.0)
        store(sums, 0, loss)
        store(sums, size, right)
        for q in range(count):
            losses[block, first + q] = sums[q]
            hits[block, first + q] = sums[size + q]
        item = claim(counter)


def score(rows: Csr | Dense, labels: Array, loss: Loss, models: Array) -> tuple[Floats, Floats]:
    """Sum of the losses, and number of rows whose label is the sign of the prediction, for each column of `models`.

    Args:
        rows: all rows, in the precision of `models`.
        labels: (rows,) in the precision of `models`.
        loss: the loss.
        models: (d, models), C-contiguous.

    Returns:
        Both (models,), summed in double precision. In regression the second means nothing.
    """
    expect_one_output(loss, "This kernel")
    blocks, count = -(-len(labels) // _BLOCK), models.shape[1]
    losses, hits = np.empty((blocks, count)), np.empty((blocks, count))
    lanes = _WIDE if count > _NARROW.count else _NARROW
    share_out(
        _score, blocks * -(-count // lanes.count), rows, labels, formulas(type(loss)), float(loss.theta),
        models[None], losses, hits, lanes,
    )  # fmt: skip
    return losses.sum(axis=0), hits.sum(axis=0)
