"""The l noisy linearised steps of one round in one kernel, where a simulation spends its time.

For each node i and run, with w = w~^{k,0} to begin with, for r = 0 .. l - 1:

    g      = sum_j c_j clip(slope(<w, a_j> + o_j, b_j)) a_j + l1 sign(w) + l2 w - std_i(w) z_r
    total += w
    w      = (eta_r w - g + pull) / (curvature + eta_r),    and onto the ball of `radius`
    mean  += w / l

c_j is u_j / divisor_i, or given. std_i(w) is one number for all w, or that number times `Spread.at(w)`.

A node's rows, models and scratch stay in cache for all l steps. Lanes are runs; a tile of them is the unit of parallel
work. A lane does the same operations in the same order however wide its tile is, so results depend neither on threads
nor on which runs are computed together.
"""

# ruff: noqa: ARG001 (Numba looks an implementation up by all arguments, needed or not)

import math
from typing import Any, NamedTuple

import numpy as np
from numba.extending import overload

from sottovoce.arrays import Array, Floats, Ints
from sottovoce.oracle.kernels.elementary import constant
from sottovoce.oracle.kernels.formulas import formulas, slope
from sottovoce.oracle.kernels.random import LANES, block_normals, run_normals
from sottovoce.oracle.kernels.simd import (
    PART,
    Lanes,
    any_lane,
    at,
    broadcast,
    kernel,
    lesser,
    load,
    part,
    piece,
    store,
    where,
    width,
)
from sottovoce.oracle.kernels.spread import KNOTS, PLAIN, Spread
from sottovoce.oracle.kernels.threads import claim, share_out
from sottovoce.oracle.kernels.tiles import Csr, Dense, aligned, copy_in, copy_out, dot, scatter
from sottovoce.problem.losses import Loss, expect_one_output

NONE, SEEDED, GIVEN = 0, 1, 2

# Rows handled together; a multiple of the lanes of one vector.
_BLOCK = 32
FEW = 16
ONE, NARROW = Lanes(1), Lanes(FEW)
# Four registers of 512 bits: enough independent sums to hide the latency of one.
WIDE = {np.dtype(np.float32): Lanes(64), np.dtype(np.float64): Lanes(32)}


class KernelRows(NamedTuple):
    """The public and private numbers of each row of a stack of nodes that a step needs besides the features."""

    offsets: Ints  # (nodes + 1,) int64: node i's rows are offsets[i] : offsets[i + 1]
    labels: Array  # (rows,)
    cap: Array  # (rows,) the largest |slope|; infinity or the largest number for no clipping
    divisor: Floats  # (nodes,) of the sum over a node's rows
    weights: Array  # (rows,) u_j; empty where rows count alike
    shifts: Array  # (rows,) o_j, added to predictions; empty if there are none


class Penalty(NamedTuple):
    """The regulariser's weights times lam, and the radius of the ball to project onto."""

    l1: float
    l2: float
    radius: float  # infinity if there is none


class KernelDraws(NamedTuple):
    """Noise and batches of one call."""

    mode: int  # NONE, SEEDED (drawn here from counters) or GIVEN
    std: Floats  # (nodes,) standard deviation of the noise in every coordinate of a gradient: sigma times sensitivity
    k0: np.uint64  # key of seeded noise
    k1: np.uint64
    k: int  # the round
    first_step: int  # number of the first local step of this call, for callers that pass one batch at a time
    first_node: int  # number of the first node
    first_run: int  # number of the first run
    given: Array  # (l, nodes, d, runs) standard normals; empty unless GIVEN
    weights: Array  # (l, rows, runs) in place of u_j / divisor_i; empty for all rows
    spread: Spread = PLAIN  # the fraction of std that is needed at a model


class _Scratch(NamedTuple):
    """Working memory for a block of rows."""

    which: Ints  # (block,) the rows of the block that have some weight
    slopes: Array  # (block * lanes,) first <a_j, w>, then the weighted slopes
    weights: Array  # (lanes,) the weights of one row, where there are fewer runs than lanes
    labels: Array  # (block,) of `which`, and so on; for vectors of rows only
    cap: Array
    shares: Array


@piece
def _weights(weights: Any, r: int, j: int, first: int, runs: int, room: Any, lanes: Any) -> Any:
    """The weights of row j as a vector; 0 in lanes beyond the last run."""
    place = (r * weights.shape[1] + j) * weights.shape[2] + first
    if runs == width(lanes):
        return load(weights, place, lanes)
    for q in range(runs):
        room[q] = at(weights, place + q)
    return load(room, 0, lanes)


# The square root of the largest number.
_far = constant(math.sqrt(np.finfo(np.float32).max), math.sqrt(np.finfo(np.float64).max))


@piece
def settled(z: Any) -> Any:
    """Predictions as a slope takes them: finite, by the rule of `oracle.settled`.

    A model may be so large that <w, a> overflows. If that reached a sum for some rows only, whoever chose the model
    would learn something about the rows.
    """
    # In this order each of the two is one instruction, and NaN becomes the lower end.
    return np.minimum(where(z > -_far(z), z, -_far(z)), _far(z))


def _slopes(
    data: Any, of: Any, theta: Any, weights: Any, share: Any, at_: Any, n: Any, scratch: Any, lanes: Any
) -> Any:
    """Turn the n products of a block into weighted slopes. `at_` is (local step, first run, runs)."""
    raise NotImplementedError("compiled code only")


@overload(_slopes, jit_options=PART)
def _slopes_of(
    data: Any, of: Any, theta: Any, weights: Any, share: Any, at_: Any, n: Any, scratch: Any, lanes: Any
) -> Any:
    """`_slopes`: lanes are runs, or rows where there is only one run."""
    if lanes.count > 1:

        def of_runs(
            data: Any, of: Any, theta: Any, weights: Any, share: Any, at_: Any, n: Any, scratch: Any, lanes: Any
        ) -> Any:
            for q in range(n):
                j, place = at(scratch.which, q), q * width(lanes)
                cap = at(data.cap, j)
                z = load(scratch.slopes, place, lanes)
                if data.shifts.shape[0] > 0:
                    z = z + at(data.shifts, j)
                s = slope(of, settled(z), at(data.labels, j), theta)
                weight = broadcast(share if data.weights.shape[0] == 0 else share * at(data.weights, j), lanes)
                if weights.shape[0] > 0:
                    weight = _weights(weights, at_[0], j, at_[1], at_[2], scratch.weights, lanes)
                store(scratch.slopes, place, np.minimum(np.maximum(s, -cap), cap) * weight)

        return of_runs

    def of_rows(
        data: Any, of: Any, theta: Any, weights: Any, share: Any, at_: Any, n: Any, scratch: Any, lanes: Any
    ) -> Any:
        # With one run, the lanes are rows.
        for q in range(n):
            j = at(scratch.which, q)
            scratch.labels[q], scratch.cap[q] = at(data.labels, j), at(data.cap, j)
            own = share if data.weights.shape[0] == 0 else share * at(data.weights, j)
            scratch.shares[q] = weights[at_[0], j, at_[1]] if weights.shape[0] > 0 else own
            if data.shifts.shape[0] > 0:
                scratch.slopes[q] += at(data.shifts, j)
        rows = Lanes(FEW)
        for q in range(0, n, FEW):
            cap = load(scratch.cap, q, rows)
            s = slope(of, settled(load(scratch.slopes, q, rows)), load(scratch.labels, q, rows), theta)
            clipped = np.minimum(np.maximum(s, -cap), cap)
            store(scratch.slopes, q, clipped * load(scratch.shares, q, rows))

    return of_rows


@part
def _gradient(rows: Any, data: Any, of: Any, theta: float, weights: Any, r: int, i: int, first: int, runs: int,
              w: Any, g: Any, scratch: Any, lanes: Any) -> None:  # fmt: skip
    """The data's part of the gradient at the tile w, into the tile g.

    A block of rows at a time: all products, then all slopes, then all sums. Each of the three loops has another
    bottleneck (loads, arithmetic, stores), and a core looks ahead only far enough to overlap a loop with itself.
    """
    size = width(lanes)
    zero = broadcast(w.dtype.type(0), lanes)
    for place in range(0, len(g), size):
        store(g, place, zero)
    start, stop = data.offsets[i], data.offsets[i + 1]
    share = w.dtype.type(1.0 / data.divisor[i])
    for begin in range(start, stop, _BLOCK):
        n = 0
        for j in range(begin, lesser(begin + _BLOCK, stop)):
            if weights.shape[0] == 0 or any_lane(_weights(weights, r, j, first, runs, scratch.weights, lanes)):
                scratch.which[n] = j
                store(scratch.slopes, n * size, dot(rows, j, w, lanes))
                n += 1
        _slopes(data, of, theta, weights, share, (r, first, runs), n, scratch, lanes)
        scatter(rows, scratch.which, n, scratch.slopes, g, lanes)


def draw(z: Any, draws: Any, r: Any, i: Any, d: Any, first: Any, runs: Any, lanes: Any) -> Any:
    """Standard normals of local step r into the tile z: drawn here from counters, or copied from those given."""
    raise NotImplementedError("compiled code only")


@overload(draw, jit_options=PART)
def _draw(z: Any, draws: Any, r: Any, i: Any, d: Any, first: Any, runs: Any, lanes: Any) -> Any:
    """`draw`: the choice of `tile_normals` between lanes of runs and of blocks is made when compiling."""
    normals = run_normals if lanes.count % LANES.count == 0 else block_normals

    def drawn(z: Any, draws: Any, r: Any, i: Any, d: Any, first: Any, runs: Any, lanes: Any) -> Any:
        if draws.mode == SEEDED:
            key, counter = (draws.k0, draws.k1), (draws.first_node + i, draws.k, draws.first_step + r)
            normals(z, d, width(lanes), draws.first_run + first, runs, key, counter)
        else:
            copy_in(z, lanes, draws.given[r], i, first, runs)

    return drawn


@part
def part_at(square: float, spread: Any) -> float:
    """`Spread.at` for one model of that squared norm."""
    u = 1.0 - 1.0 / (1.0 + spread.norm * np.sqrt(np.float64(square)))
    place = KNOTS * (u if u < 1.0 else 1.0)  # False for NaN
    knot = lesser(np.int64(place), KNOTS - 1)
    below = spread.parts[knot]
    between: float = below + (place - knot) * (spread.parts[knot + 1] - below)
    return between


@piece
def squared(w: Any, lanes: Any) -> Any:
    """Every lane's sum of squares."""
    total = broadcast(w.dtype.type(0), lanes)
    for place in range(0, len(w), width(lanes)):
        x = load(w, place, lanes)
        total = total + x * x
    return total


@part
def scale_noise(std: Any, largest: float, w: Any, spread: Any, lanes: Any) -> None:
    """The standard deviation of every lane's noise at the tile w, into `std`."""
    if len(spread.parts) == 0:
        std[:] = largest
    else:
        store(std, 0, squared(w, lanes))
        for q in range(len(std)):
            std[q] = largest * part_at(std[q], spread)


@piece
def move(w: Any, g: Any, z: Any, pull: Any, total: Any, penalty: Any, noisy: bool, std: Any, eta: float,
         curvature: float, lanes: Any) -> Any:  # fmt: skip
    """One step of the recursion, after the data's part of the gradient and before the ball. Returns every lane's
    ||w||^2. `std` is a vector, used only if `noisy`.
    """
    size = width(lanes)
    # One division for all coordinates of the model.
    inverse = 1.0 / (curvature + eta)
    squares = broadcast(w.dtype.type(0), lanes)
    for place in range(0, len(w), size):
        old = load(w, place, lanes)
        slopes = load(g, place, lanes) + penalty.l1 * np.sign(old) + penalty.l2 * old
        if noisy:
            slopes = slopes - std * load(z, place, lanes)
        store(total, place, load(total, place, lanes) + old)
        new = (eta * old - slopes + load(pull, place, lanes)) * inverse
        squares = squares + new * new
        store(w, place, new)
    return squares


@piece
def shrink(w: Any, scale: Any, lanes: Any) -> None:
    """Multiply every coordinate by the vector `scale`."""
    for place in range(0, len(w), width(lanes)):
        store(w, place, load(w, place, lanes) * scale)


@piece
def accumulate(total: Any, w: Any, lanes: Any) -> None:
    """total += w, coordinate by coordinate."""
    for place in range(0, len(w), width(lanes)):
        store(total, place, load(total, place, lanes) + load(w, place, lanes))


@part
def _update(w: Any, g: Any, z: Any, pull: Any, total: Any, mean: Any, penalty: Any, noisy: bool, std: Any, eta: float,
            curvature: float, lanes: Any) -> None:  # fmt: skip
    """One whole step: move, project onto the ball if there is one, and add to the mean."""
    squares = move(w, g, z, pull, total, penalty, noisy, load(std, 0, lanes), eta, curvature, lanes)
    if penalty.radius < np.inf:
        shrink(w, penalty.radius / np.maximum(np.sqrt(squares), penalty.radius), lanes)
    accumulate(mean, w, lanes)


@kernel
def _steps(counter: Any, items: int, rows: Any, data: Any, of: Any, theta: float, penalty: Any, draws: Any, eta: Any,
           curvature: Any, start: Any, pull: Any, last: Any, mean: Any, total: Any, begin: int, end: int,
           lanes: Any) -> None:  # fmt: skip
    """Runs begin .. end - 1 of all nodes; an item is a tile of runs of a node."""
    d = start.shape[1]
    size = width(lanes)
    tiles = items // start.shape[0]
    length = d * size
    dtype = start.dtype
    w, g, p, t, m = (
        aligned(length, dtype), aligned(length, dtype), aligned(length, dtype), aligned(length, dtype),
        aligned(length, dtype),
    )  # fmt: skip
    z, std = aligned((d + 3) // 4 * 4 * size, dtype), np.zeros(size, dtype)
    scratch = _Scratch(
        np.zeros(_BLOCK, np.int64), aligned(_BLOCK * size, dtype), np.zeros(size, dtype),
        np.zeros(_BLOCK, dtype), np.zeros(_BLOCK, dtype), np.zeros(_BLOCK, dtype),
    )  # fmt: skip
    scratch.slopes[:] = 0
    share = start.dtype.type(1.0 / len(eta))
    item = claim(counter)
    while item < items:
        i, first = item // tiles, begin + item % tiles * size
        runs = lesser(size, end - first)
        copy_in(w, lanes, start, i, first, runs)
        copy_in(p, lanes, pull, i, first, runs)
        t[:] = 0
        m[:] = 0
        # A node without noise draws none, so an infinite epsilon uses no counter.
        largest = draws.std[i] if draws.mode != NONE else 0.0
        for r in range(len(eta)):
            _gradient(rows, data, of, theta, draws.weights, r, i, first, runs, w, g, scratch, lanes)
            if largest > 0:
                draw(z, draws, r, i, d, first, runs, lanes)
                scale_noise(std, largest, w, draws.spread, lanes)
            _update(w, g, z, p, t, m, penalty, largest > 0, std, eta[r, i], curvature[i], lanes)
        for place in range(length):
            m[place] *= share
        copy_out(last, i, first, runs, w, lanes)
        copy_out(mean, i, first, runs, m, lanes)
        copy_out(total, i, first, runs, t, lanes)
        item = claim(counter)


def _plan(runs: int, dtype: Any) -> list[tuple[int, int, Lanes]]:
    """(first run, last run + 1, lanes) of each call: wide vectors, and narrow ones for a small remainder."""
    wide = WIDE[np.dtype(dtype)]
    if runs == 1:
        return [(0, 1, ONE)]
    rest = runs % wide.count
    if rest == 0 or rest > wide.count // 2:
        return [(0, runs, wide)]
    return [(0, runs - rest, wide), (runs - rest, runs, NARROW)][runs < wide.count :]


def noisy_steps(
    rows: Csr | Dense,
    data: KernelRows,
    loss: Loss,
    penalty: Penalty,
    draws: KernelDraws,
    eta: Floats,
    curvature: Floats,
    w: Array,
    pull: Array,
) -> tuple[Array, Array, Array]:
    """All l steps of all nodes and runs. Arrays are of w's precision, except those annotated as Floats.

    Args:
        rows: the private rows.
        data: their labels, nodes, caps and divisors.
        loss: the loss.
        penalty: the regulariser and the ball.
        draws: noise and batches.
        eta: (l, nodes) step parameters.
        curvature: (nodes,) quadratic term of the augmented Lagrangian.
        w: (nodes, d, runs) where to start.
        pull: (nodes, d, runs) linear term of the augmented Lagrangian.

    Returns:
        last, mean and total, as in `sottovoce.oracle.plain.Inner`.
    """
    expect_one_output(loss, "This kernel")
    last, mean, total = np.empty_like(w), np.empty_like(w), np.empty_like(w)
    of, theta = formulas(type(loss)), float(loss.theta)
    for first, stop, lanes in _plan(w.shape[2], w.dtype):
        items = len(w) * -(-(stop - first) // lanes.count)
        share_out(_steps, items, rows, data, of, theta, penalty, draws, eta, curvature, w, pull,
                  last, mean, total, first, stop, lanes)  # fmt: skip
    return last, mean, total
