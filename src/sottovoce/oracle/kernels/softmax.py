"""The l noisy linearised steps of one round for softmax: the recursion of `steps`, with vector predictions.

A model is a (d, K) matrix, so a row is multiplied with K numbers for every run. To the row they are lanes like any
others: lane f = k R + q is class k of run q, R runs to a tile. Lanes come in chunks of one vector each, and every chunk
is a tile as in `tiles`:

    chunks[f // width][c * width + f % width] = W[c, k] of run q

Only the softmax of a row and the norm of a model combine lanes. For the first, a block of rows is transposed, so that
its lanes are rows. A run's numbers depend neither on threads nor on the other runs of its tile.
"""

from typing import Any, NamedTuple

import numpy as np

from sottovoce.arrays import Array, Floats, Ints
from sottovoce.oracle.kernels.random import tile_normals
from sottovoce.oracle.kernels.simd import Lanes, at, broadcast, kernel, load, part, store, where, width
from sottovoce.oracle.kernels.steps import (
    FEW,
    NARROW,
    NONE,
    SEEDED,
    KernelDraws,
    KernelRows,
    Penalty,
    accumulate,
    move,
    part_at,
    settled,
    shrink,
    squared,
)
from sottovoce.oracle.kernels.threads import claim, share_out
from sottovoce.oracle.kernels.tiles import Csr, Dense, aligned, dot, scatter
from sottovoce.problem.losses import Softmax

# Rows handled together; a multiple of the lanes of one vector.
_BLOCK = 32
_VANISHING = 1e-140  # slopes below it have squares that underflow in double precision
_ROOT_2 = 1.4142136  # sqrt(2), rounded up
# Classes times runs of a tile, unless there are more classes than that.
_MOST_LANES = 32


class _Layout(NamedTuple):
    """Layout of a tile."""

    classes: int
    room: int  # runs that fit in
    runs: int  # runs that it holds


class _Block(NamedTuple):
    """Working memory for a block of rows."""

    which: Ints  # (block,) the rows of the block that have some weight
    labels: Array  # (block,) of `which`, and so on
    cap: Array
    shares: Array
    products: Array  # (chunks, block * width) first <a_j, w>, then the weighted slopes; lanes are classes and runs
    turned: Array  # (chunks * width * block,) the same, lanes are rows


@part
def _copy_in(chunks: Any, columns: Any, first: int, shape: Any, lanes: Any) -> None:
    """Runs first.. of one node, from (d K, all runs); the lanes left over become 0."""
    size = width(lanes)
    chunks[:] = 0
    for c in range(columns.shape[0] // shape.classes):
        for k in range(shape.classes):
            for q in range(shape.runs):
                f = k * shape.room + q
                chunks[f // size, c * size + f % size] = columns[c * shape.classes + k, first + q]


@part
def _copy_out(columns: Any, first: int, chunks: Any, shape: Any, lanes: Any) -> None:
    """Runs first.. of one node, back into (d K, all runs)."""
    size = width(lanes)
    for c in range(columns.shape[0] // shape.classes):
        for k in range(shape.classes):
            for q in range(shape.runs):
                f = k * shape.room + q
                columns[c * shape.classes + k, first + q] = chunks[f // size, c * size + f % size]


@part
def _choose(data: Any, weights: Any, r: int, first: int, runs: int, begin: int, stop: int, block: Any) -> int:
    """Gather the rows begin .. stop - 1 that have some weight, with their labels and caps. Returns how many."""
    n = 0
    for j in range(begin, stop):
        drawn = weights.shape[0] == 0
        for q in range(0 if drawn else runs):
            drawn = drawn or weights[r, j, first + q] != 0
        if drawn:
            block.which[n], block.labels[n], block.cap[n] = j, data.labels[j], data.cap[j]
            n += 1
    return n


@part
def _turn(block: Any, n: int, shape: Any, lanes: Any) -> None:
    """Copy `products`, whose lanes are classes and runs, to `turned`, whose lanes are rows."""
    size = width(lanes)
    for f in range(shape.classes * shape.room):
        h, lane = f // size, f % size
        for row in range(n):
            block.turned[f * _BLOCK + row] = block.products[h, row * size + lane]


@part
def _turn_back(block: Any, n: int, shape: Any, lanes: Any) -> None:
    """Copy `turned` back to `products`."""
    size = width(lanes)
    for f in range(shape.classes * shape.room):
        h, lane = f // size, f % size
        for row in range(n):
            block.products[h, row * size + lane] = block.turned[f * _BLOCK + row]


@part
def _slopes(block: Any, n: int, q: int, shape: Any) -> None:
    """Turn the predictions of run q into p - e_b, clipped and weighted."""
    z, rows, classes = block.turned, Lanes(FEW), shape.classes
    step = shape.room * _BLOCK
    for row in range(0, n, FEW):
        begin = q * _BLOCK + row
        end = begin + classes * step
        b = load(block.labels, row, rows)
        zero = broadcast(z.dtype.type(0), rows)
        top, total, rest, squares = settled(load(z, begin, rows)), zero, zero, zero
        for place in range(begin + step, end, step):
            # The largest prediction is taken out of the exponentials, so none overflows.
            top = np.maximum(top, settled(load(z, place, rows)))
        for place in range(begin, end, step):
            e = np.exp(settled(load(z, place, rows)) - top)
            total = total + e
            store(z, place, e)
        inverse = 1 / total
        for k in range(classes):
            p = where(b == k, zero, load(z, begin + k * step, rows) * inverse)
            rest = rest + p
            squares = squares + p * p
            store(z, begin + k * step, p)
        cap = load(block.cap, row, rows)
        # The squares of small slopes underflow; sqrt(2) times the sum of the others is at least the slope's norm.
        length = where(rest < z.dtype.type(_VANISHING), z.dtype.type(_ROOT_2) * rest, np.sqrt(squares + rest * rest))
        scale = load(block.shares, row, rows) * where(length > cap, cap / length, z.dtype.type(1))
        for k in range(classes):
            # p_b - 1 is minus the sum of the others, which does not cancel.
            s = where(b == k, -rest, load(z, begin + k * step, rows))
            store(z, begin + k * step, s * scale)


@part
def _gradient(rows: Any, data: Any, weights: Any, r: int, i: int, first: int, w: Any, g: Any, block: Any, shape: Any,
              lanes: Any) -> None:  # fmt: skip
    """The data's part of the gradient at w, into g: products, slopes and sums, a block of rows at a time."""
    size = width(lanes)
    g[:] = 0
    start, stop = data.offsets[i], data.offsets[i + 1]
    block.shares[:] = 1.0 / data.divisor[i]
    for begin in range(start, stop, _BLOCK):
        n = _choose(data, weights, r, first, shape.runs, begin, min(begin + _BLOCK, stop), block)
        for h in range(len(w)):
            for row in range(n):
                store(block.products[h], row * size, dot(rows, at(block.which, row), w[h], lanes))
        _turn(block, n, shape, lanes)
        for q in range(shape.runs):
            for row in range(n if weights.shape[0] > 0 else 0):
                block.shares[row] = weights[r, block.which[row], first + q]
            for row in range(n if weights.shape[0] == 0 and data.weights.shape[0] > 0 else 0):
                block.shares[row] = data.weights[block.which[row]] / data.divisor[i]
            _slopes(block, n, q, shape)
        _turn_back(block, n, shape, lanes)
        for h in range(len(w)):
            scatter(rows, block.which, n, block.products[h], g[h], lanes)


@part
def _draw(z: Any, room: Any, draws: Any, r: int, i: int, first: int, shape: Any, lanes: Any) -> None:
    """Standard normals of local step r: drawn here from counters, or copied from those given."""
    if draws.mode == SEEDED:
        key, counter = (draws.k0, draws.k1), (draws.first_node + i, draws.k, draws.first_step + r)
        d = z.shape[1] // width(lanes) * shape.classes
        tile_normals(room.reshape(-1), d, room.shape[1], draws.first_run + first, shape.runs, key, counter)
        _copy_in(z, room[:d], 0, shape, lanes)
    else:
        _copy_in(z, draws.given[r, i], first, shape, lanes)


@part
def _scale(std: Any, largest: float, w: Any, spread: Any, shape: Any, lanes: Any) -> None:
    """The standard deviation of every lane's noise at w, into `std`: the same for all classes of a run."""
    std[:] = largest
    if len(spread.parts) > 0:
        for h in range(len(w)):
            store(std, h * width(lanes), squared(w[h], lanes))
        for q in range(shape.room):
            square = 0.0
            for k in range(shape.classes):
                square += std[k * shape.room + q]
            for k in range(shape.classes):
                std[k * shape.room + q] = largest * part_at(square, spread)


@part
def _onto_ball(w: Any, squares: Any, radius: float, shape: Any, lanes: Any) -> None:
    """Project every run's model; `squares` holds every lane's part of its norm."""
    for q in range(shape.room):
        square = 0.0
        for k in range(shape.classes):
            square += squares[k * shape.room + q]
        for k in range(shape.classes):
            squares[k * shape.room + q] = radius / max(np.sqrt(square), radius)
    for h in range(len(w)):
        shrink(w[h], load(squares, h * width(lanes), lanes), lanes)


@kernel
def _steps(counter: Any, items: int, rows: Any, data: Any, classes: int, room: int, penalty: Any, draws: Any, eta: Any,
           curvature: Any, start: Any, pull: Any, last: Any, mean: Any, total: Any, lanes: Any) -> None:  # fmt: skip
    """An item is a tile of runs of a node."""
    nodes, coordinates, all_runs = start.shape
    size = width(lanes)
    tiles = items // nodes
    chunks = (classes * room + size - 1) // size
    length = coordinates // classes * size
    w = aligned(chunks * length, start.dtype).reshape(chunks, length)
    g = aligned(chunks * length, start.dtype).reshape(chunks, length)
    p, z, t, m = np.empty_like(w), np.empty_like(w), np.empty_like(w), np.empty_like(w)
    normals = np.empty(((coordinates + 3) // 4 * 4, room if room <= 8 else (room + 15) // 16 * 16), start.dtype)
    squares, std = np.zeros(chunks * size, start.dtype), np.zeros(chunks * size, start.dtype)
    block = _Block(
        np.zeros(_BLOCK, np.int64), np.zeros(_BLOCK, start.dtype), np.ones(_BLOCK, start.dtype),
        np.ones(_BLOCK, start.dtype), np.zeros((chunks, _BLOCK * size), start.dtype),
        np.zeros(chunks * size * _BLOCK, start.dtype),
    )  # fmt: skip
    share = start.dtype.type(1.0 / len(eta))
    item = claim(counter)
    while item < items:
        i, first = item // tiles, item % tiles * room
        shape = _Layout(classes, room, min(room, all_runs - first))
        _copy_in(w, start[i], first, shape, lanes)
        _copy_in(p, pull[i], first, shape, lanes)
        t[:] = 0
        m[:] = 0
        largest = draws.std[i] if draws.mode != NONE else 0.0
        for r in range(len(eta)):
            _gradient(rows, data, draws.weights, r, i, first, w, g, block, shape, lanes)
            if largest > 0:
                _draw(z, normals, draws, r, i, first, shape, lanes)
                _scale(std, largest, w, draws.spread, shape, lanes)
            for h in range(chunks):
                scale = load(std, h * size, lanes)
                norms = move(w[h], g[h], z[h], p[h], t[h], penalty, largest > 0, scale, eta[r, i], curvature[i], lanes)
                store(squares, h * size, norms)
            if penalty.radius < np.inf:
                _onto_ball(w, squares, penalty.radius, shape, lanes)
            for h in range(chunks):
                accumulate(m[h], w[h], lanes)
        m *= share
        _copy_out(last[i], first, w, shape, lanes)
        _copy_out(mean[i], first, m, shape, lanes)
        _copy_out(total[i], first, t, shape, lanes)
        item = claim(counter)


def noisy_steps(
    rows: Csr | Dense,
    data: KernelRows,
    loss: Softmax,
    penalty: Penalty,
    draws: KernelDraws,
    eta: Floats,
    curvature: Floats,
    w: Array,
    pull: Array,
) -> tuple[Array, Array, Array]:
    """All l steps of all nodes and runs, as `steps.noisy_steps`; w and pull are (nodes, d K, runs)."""
    last, mean, total = np.empty_like(w), np.empty_like(w), np.empty_like(w)
    nodes, _, runs = w.shape
    # As few tiles as possible, of equal size: a last tile with one run would cost as much as a full one.
    tiles = -(-runs // max(1, _MOST_LANES // loss.classes))
    room = -(-runs // tiles)
    share_out(_steps, nodes * tiles, rows, data, loss.classes, room, penalty, draws, eta, curvature,
              np.ascontiguousarray(w), np.ascontiguousarray(pull), last, mean, total, NARROW)  # fmt: skip
    return last, mean, total
