"""The l noisy linearised steps of `steps` for few runs, one after another: lanes are rows, then columns.

Few runs do not fill a vector. Rows with enough non-zeros are therefore stored twice, in strips: one column of some rows
for products, some columns of one row for sums. Strips of zeros are left out. No sum runs across lanes. So every number
is the sum of the same terms in the same order as where lanes are runs, and the same bit for bit, as long as models are
finite: only zeros are left out or added.
"""

from typing import Any, NamedTuple

import numpy as np

from sottovoce.arrays import Array, Floats, Ints
from sottovoce.oracle.kernels.formulas import formulas, slope
from sottovoce.oracle.kernels.simd import Lanes, at, broadcast, fma, kernel, load, part, store, where, width
from sottovoce.oracle.kernels.steps import (
    NONE,
    KernelDraws,
    KernelRows,
    Penalty,
    accumulate,
    draw,
    move,
    scale_noise,
    settled,
    shrink,
    squared,
)
from sottovoce.oracle.kernels.threads import claim, share_out
from sottovoce.oracle.kernels.tiles import Csr, Dense, aligned, copy_in, copy_out
from sottovoce.problem.losses import Loss, expect_one_output

# Rows of a block, whose products are one vector: enough independent sums to hide the latency of one.
_ROWS = 32
# Columns of a strip of one row: one register.
_STRIP = {np.dtype(np.float32): Lanes(16), np.dtype(np.float64): Lanes(8)}
# Blocks of a group, whose slopes are computed before the first sum. With more blocks, fewer loops are short.
_BLOCKS = 4
# Panels are used if at least this fraction of the numbers is not zero, if filling up blocks multiplies the rows by no
# more than this, and up to this size in bytes, since rows are stored twice more.
_FULL, _FILLED, _MOST_BYTES = 1 / 16, 1.25, 1 << 27
# With more runs, vectors of them are faster.
MOST_RUNS = 5


class Panels(NamedTuple):
    """Rows of a stack of nodes. A block is 32 rows of a node, filled up with rows that belong to no sum; a group is
    four blocks of a node, or its remaining ones.
    """

    blocks: Ints  # (nodes + 1,) node i's blocks are blocks[i] : blocks[i + 1]
    groups: Ints  # (nodes + 1,) its groups, likewise
    # Strips for products: one column of a block.
    starts: Ints  # (blocks + 1,) those of block b are starts[b] : starts[b + 1], in the order of columns
    columns: Ints  # (strips,) the column of each
    down: Array  # (strips, 32)
    # Strips for sums: some columns of a row, where columns with few zeros lie side by side.
    begins: (
        Ints  # (groups * places + 1,) those of group q at place p begin at begins[q * places + p], in the order of rows
    )
    rows: Ints  # (strips,) the row of each, counted from the first of its group, in order
    across: Array  # (strips, 8 or 16)
    order: Ints  # (d,) where each column lies
    # The fields of `Data` for each row of a block: (blocks * 32,)
    labels: Array
    cap: Array
    weights: Array
    shifts: Array


def pays(rows: Csr | Dense, data: KernelRows, d: int) -> bool:
    """True if this kernel is faster on these rows, and worth the memory."""
    count = len(data.labels)
    held = len(rows.values) if isinstance(rows, Csr) else rows.values.size
    filled = _ROWS * int(np.sum(-(-np.diff(data.offsets) // _ROWS)))
    small = count * d * rows.values.itemsize <= _MOST_BYTES
    return small and held >= _FULL * count * d and filled <= _FILLED * count


def panels(rows: Csr | Dense, data: KernelRows, d: int) -> Panels:
    """The rows as this kernel reads them."""
    count, size = len(data.labels), _ROWS
    counts = np.diff(data.offsets)
    blocks = _ends(-(-counts // size))
    groups = _ends(-(-counts // (_BLOCKS * size)))
    local = np.arange(count) - np.repeat(data.offsets[:-1], counts)
    place = np.repeat(blocks[:-1] * size, counts) + local

    def filled_up(values: Array) -> Array:
        out = np.zeros((blocks[-1] * size, *values.shape[1:]), dtype=rows.values.dtype)
        out[place] = values
        return out

    if isinstance(rows, Dense):
        full = rows.values
    else:
        full = np.zeros((count, d), dtype=rows.values.dtype)
        full[np.repeat(np.arange(count), np.diff(rows.starts)), rows.columns] = rows.values
    group, row = np.repeat(groups[:-1], counts) + local // (_BLOCKS * size), local % (_BLOCKS * size)
    strips = filled_up(full).reshape(-1, size, d).swapaxes(1, 2)
    some = strips.any(axis=2)
    columns: Ints = np.nonzero(some)[1].astype(np.int32)
    begins, rows_at, across, order = _across(full, group, row, groups[-1])
    return Panels(
        blocks, groups, _ends(some.sum(axis=1)), columns, strips[some], begins, rows_at, across, order,
        filled_up(data.labels), filled_up(data.cap), filled_up(data.weights if len(data.weights) else np.ones(count)),
        filled_up(data.shifts if len(data.shifts) else np.zeros(count)),
    )  # fmt: skip


def _ends(counts: Ints) -> Ints:
    """The beginning of each of consecutive parts of these lengths, and the end of the last."""
    return np.concatenate([[0], np.cumsum(counts)])


def _across(full: Array, group: Ints, row: Ints, groups: int) -> tuple[Ints, Ints, Array, Ints]:
    """`Panels.begins`, `rows`, `across` and `order`, from all rows, each with its group and its place in it."""
    count, d = full.shape
    size = _STRIP[full.dtype].count
    places = -(-d // size)
    seldom_zero = np.argsort(-np.count_nonzero(full, axis=0), kind="stable")
    strips = np.zeros((count, places * size), dtype=full.dtype)
    strips[:, :d] = full[:, seldom_zero]
    strips = strips.reshape(count, places, size)
    which, at_place = np.nonzero(strips.any(axis=2))
    key = group[which] * places + at_place
    by_place = np.argsort(key, kind="stable")
    return (
        _ends(np.bincount(key, minlength=groups * places)), row[which][by_place].astype(np.int32),
        strips[which, at_place][by_place], np.argsort(seldom_zero),
    )  # fmt: skip


@part
def _gradient(panels: Any, of: Any, theta: float, share: Any, i: int, w: Any, g: Any, sums: Any, slopes: Any,
              lanes: Any) -> None:  # fmt: skip
    """The data's part of the gradient at w, into g: groups of rows one after another."""
    block_of, length, size = Lanes(_ROWS), _ROWS, width(lanes)
    places = len(sums) // size
    # A strip also holds zeros of rows that it is not stored for, and 0 times infinity is NaN: one row would change the
    # slopes of others. So products are with a finite model, which is in g until g gets the sums.
    most = np.finfo(w.dtype).max
    for place in range(0, len(w), size):
        x = load(w, place, lanes)
        store(g, place, np.minimum(where(x > -most, x, -most), most))
    sums[:] = 0
    block = panels.blocks[i]
    for group in range(panels.groups[i], panels.groups[i + 1]):
        first, last = block, min(block + _BLOCKS, panels.blocks[i + 1])
        while block < last:
            z = broadcast(w.dtype.type(0), block_of)
            for k in range(at(panels.starts, block), at(panels.starts, block + 1)):
                z = fma(load(panels.down, k * length, block_of), at(g, at(panels.columns, k)), z)
            place = block * length
            cap, label = load(panels.cap, place, block_of), load(panels.labels, place, block_of)
            s = slope(of, settled(z + load(panels.shifts, place, block_of)), label, theta)
            weight = share * load(panels.weights, place, block_of)
            store(slopes, (block - first) * length, np.minimum(np.maximum(s, -cap), cap) * weight)
            block += 1
        for p in range(places):
            total = load(sums, p * size, lanes)
            for k in range(at(panels.begins, group * places + p), at(panels.begins, group * places + p + 1)):
                total = fma(load(panels.across, k * size, lanes), at(slopes, at(panels.rows, k)), total)
            store(sums, p * size, total)
    for c in range(len(panels.order)):
        g[c] = at(sums, at(panels.order, c))


@kernel
def _steps(counter: Any, items: int, panels: Any, divisor: Any, of: Any, theta: float, penalty: Any, draws: Any,
           eta: Any, curvature: Any, start: Any, pull: Any, last: Any, mean: Any, total: Any, lanes: Any,
           ) -> None:  # fmt: skip
    """All nodes and runs; an item is a run of a node."""
    d, runs, one, size = start.shape[1], start.shape[2], Lanes(1), width(lanes)
    filled = (d + size - 1) // size * size
    dtype = start.dtype
    w, g, p, t = aligned(filled, dtype), aligned(filled, dtype), aligned(filled, dtype), aligned(filled, dtype)
    m, z, sums = aligned(filled, dtype), aligned(filled, dtype), aligned(filled, dtype)
    slopes, std, scale = aligned(_BLOCKS * _ROWS, dtype), aligned(1, dtype), aligned(1, dtype)
    w[:], g[:], p[:], z[:], std[:] = 0, 0, 0, 0, 0
    model = w[:d]
    share = start.dtype.type(1.0 / len(eta))
    item = claim(counter)
    while item < items:
        i, run = item // runs, item % runs
        copy_in(w, one, start, i, run, 1)
        copy_in(p, one, pull, i, run, 1)
        t[:], m[:] = 0, 0
        # A node without noise draws none, so an infinite epsilon uses no counter.
        largest = draws.std[i] if draws.mode != NONE else 0.0
        for r in range(len(eta)):
            _gradient(panels, of, theta, start.dtype.type(1.0 / divisor[i]), i, w, g, sums, slopes, lanes)
            if largest > 0:
                draw(z, draws, r, i, d, run, 1, one)
                scale_noise(std, largest, model, draws.spread, one)
            move(w, g, z, p, t, penalty, largest > 0, std[0], eta[r, i], curvature[i], lanes)
            if penalty.radius < np.inf:
                norm = np.sqrt(squared(model, one))
                store(scale, 0, penalty.radius / np.maximum(norm, penalty.radius))
                shrink(w, scale[0], lanes)
            accumulate(m, w, lanes)
        for c in range(d):
            m[c] *= share
        copy_out(last, i, run, 1, w, one)
        copy_out(mean, i, run, 1, m, one)
        copy_out(total, i, run, 1, t, one)
        item = claim(counter)


def noisy_steps(
    rows: Panels,
    divisor: Floats,
    loss: Loss,
    penalty: Penalty,
    draws: KernelDraws,
    eta: Floats,
    curvature: Floats,
    w: Array,
    pull: Array,
) -> tuple[Array, Array, Array]:
    """All l steps of all nodes and runs, as `steps.noisy_steps`; without batches."""
    expect_one_output(loss, "This kernel")
    last, mean, total = np.empty_like(w), np.empty_like(w), np.empty_like(w)
    of, theta = formulas(type(loss)), float(loss.theta)
    share_out(_steps, w.shape[0] * w.shape[2], rows, divisor, of, theta, penalty, draws, eta, curvature, w, pull,
              last, mean, total, _STRIP[w.dtype])  # fmt: skip
    return last, mean, total
