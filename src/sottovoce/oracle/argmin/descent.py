"""The exact local argmin of a smooth loss, for many runs side by side: Newton's method with conjugate gradients.

IPADMM and the algorithms of real sites do not use it: they take noisy gradient steps (`steps`). It is for rivals that
minimise exactly in every round, for ADMM without privacy, and for the pooled optimum, the reference for all others.

For each node i and run, with mu = curvature_i + weight l2 > 0:

    F(w) = (1/m_i) sum_j loss(<w, a_j>, b_j) - <pull, w> + mu/2 ||w||^2

Lanes are runs: a row's pattern is the same for all of them, so a non-zero of a row is one SIMD operation. Nothing is
factorised. The Hessian is mu I plus the loss's part, and where mu is not far below the loss's curvature, conjugate
gradients need a few products with the rows for what a factorisation needs d^3 / 3 operations for. With small mu they
need more, but d at most, and the rows are sparse.

Certificate. ||grad F(w)||, plus a bound on rounding errors, is at most `tolerance`: then w is within tolerance / mu of
the minimiser, because F is mu-strongly convex. A lane that does not reach it in a bounded number of steps is left to
`sottovoce.oracle.argmin.newton`.

Method. H step = -g is solved to ||H step + g|| <= forcing ||g||, where the forcing follows how fast g falls (Eisenstat
and Walker 1996). Then, as in `newton`: either F falls along all of the step, or the gradient is half of the smallest so
far, or the step is shortened until F does. Lanes that are done keep their model and wait for the others. Which lanes
wait for which changes no number: each does the operations that it would do alone, in the same order.

Precision. Models, gradients and certificates are in double precision. The step alone is found in single precision, at
half the time, unless mu is too small for that: it need not be better than the forcing, and what it came to is measured
in double.

Start. At the minimiser w, ||mu w - pull|| is the norm of the loss's gradient, which is at most G, the largest slope
times the mean norm of a row. So pull / mu is within G / mu of it. A start that is not within G / mu of pull / mu is
replaced by pull / mu: the last minimiser is worth little where noise that is fresh in every round has moved it since.
"""

from typing import Any, NamedTuple

import numpy as np

from sottovoce.arrays import Array, Floats, Ints
from sottovoce.oracle.kernels.formulas import curvature, slope
from sottovoce.oracle.kernels.simd import (
    any_lane,
    at,
    broadcast,
    convert,
    fma,
    kernel,
    load,
    part,
    piece,
    store,
    where,
    width,
)
from sottovoce.oracle.kernels.threads import claim
from sottovoce.oracle.kernels.tiles import aligned, copy_in, copy_out, dot, scatter

_EPS = 2.0**-52
# Rows handled together, so that their intermediate results stay in the first-level cache.
_BLOCK = 32
# Newton needs about ten. A problem that needs more is ill-conditioned, and solved faster with a factorisation.
_MOST_EVALUATIONS = 60
# The forcing is between these. Within a factor of three either way, they make little difference to the time.
_MOST, _LEAST = 0.003, 1e-6
# The forcing that single precision can reach, over the condition number: a few roundings.
_ROUNDING = 2.0**-22
# Rows whose curvature is this small a part of mu are left out of H, which changes a step by no more than that part.
_NOTHING = 1e-7


class _Tile(NamedTuple):
    """One node and `width` runs. Arrays by column are (d, width), by row (rows, width), by run (width,), all flat."""

    w: Floats  # by column: the model
    pull: Floats
    g: Floats  # the gradient there
    step: Floats
    old: Floats  # the model before the step
    z: Floats  # by row: predictions, and rows times step; only where a step is shortened
    u: Floats
    c: Array  # curvatures, in single precision: of all rows, then of `which` alone
    which: Ints  # (rows,) the rows that have some curvature
    block: Floats  # (block, width)
    size: Floats  # by run: ||g||
    hidden: Floats  # bound on its rounding error
    active: Floats  # 1 where the certificate is still to come, else 0
    forcing: Floats
    spent: Floats  # steps of conjugate gradients so far
    before: Floats  # derivative of F along the step, at its beginning and at its end
    after: Floats
    fraction: Floats  # how much of the step to take
    best: Floats  # smallest ||g|| so far


class _Solve(NamedTuple):
    """Working memory of conjugate gradients, in either precision; by column, but for the last."""

    part: Array  # the step over ||g||
    rest: Array  # the residual
    direction: Array
    image: Array  # H times that
    block: Array  # (block, width)


class _Node(NamedTuple):
    """The numbers of a node that all its runs share."""

    begin: int  # its first row
    m: int
    divisor: float  # of the sum over its rows
    mu: float
    steepest: float  # bound on the loss's second derivative in w
    slope: float  # bound on its first: G


@piece
def _slope(of: Any, code: int, z: Any, b: float, theta: float) -> Any:
    """The loss's derivative in z; `of` holds the formulas of three losses, so that they share one kernel."""
    if code == 0:
        return slope(of[0], z, b, theta)
    return slope(of[1], z, b, theta) if code == 1 else slope(of[2], z, b, theta)


@piece
def _curvature(of: Any, code: int, z: Any, b: float, theta: float) -> Any:
    """The loss's second derivative in z, as in `_slope`."""
    if code == 0:
        return curvature(of[0], z, b, theta)
    return curvature(of[1], z, b, theta) if code == 1 else curvature(of[2], z, b, theta)


@piece
def _product(x: Any, y: Any, lanes: Any) -> Any:
    """<x, y> of every run: one number per lane."""
    total = broadcast(x.dtype.type(0), lanes)
    for place in range(0, len(x), width(lanes)):
        total = fma(load(x, place, lanes), load(y, place, lanes), total)
    return total


@part
def _evaluate(rows: Any, p: Any, of: Any, node: Any, t: Any, lanes: Any) -> None:
    """The gradient at w, its norm with a bound on the rounding error, and the curvatures of all rows.

    Negligible curvatures are set to 0. Slope and curvature of a row are computed together, since they share an
    exponential.
    """
    wide, share = width(lanes), 1.0 / node.divisor
    for place in range(0, len(t.g), wide):
        store(t.g, place, node.mu * load(t.w, place, lanes) - load(t.pull, place, lanes))
    total = broadcast(0.0, lanes)
    for first in range(0, node.m, _BLOCK):
        n = min(_BLOCK, node.m - first)
        for q in range(n):
            t.which[q] = node.begin + first + q
            store(t.block, q * wide, dot(rows, node.begin + first + q, t.w, lanes))
        for q in range(n):
            j = node.begin + first + q
            z, norm = load(t.block, q * wide, lanes), at(p.norms, j)
            s = _slope(of, p.code, z, at(p.labels, j), p.theta) * share
            c = _curvature(of, p.code, z, at(p.labels, j), p.theta)
            c = where(c * (norm * norm) > _NOTHING * node.mu, c * share, 0.0)
            total = total + np.abs(s) * norm
            store(t.block, q * wide, s)
            store(t.c, (first + q) * wide, convert(c, np.float32(0)))
        scatter(rows, t.which, n, t.block, t.g, lanes)
    sizes = (node.mu + node.steepest) * np.sqrt(_product(t.w, t.w, lanes)) + np.sqrt(_product(t.pull, t.pull, lanes))
    store(t.size, 0, np.sqrt(_product(t.g, t.g, lanes)))
    # Four roundings for each term of the gradient: a product, two sums, and the slope itself.
    store(t.hidden, 0, 4 * _EPS * (sizes + total))


@part
def _gather_curved_rows(node: Any, t: Any, lanes: Any) -> int:
    """Move curvatures of rows that have some in an active lane to the front. Returns the number of these rows."""
    wide, n = width(lanes), 0
    active = convert(load(t.active, 0, lanes), np.float32(0))
    for q in range(node.m):
        c = load(t.c, q * wide, lanes) * active
        if any_lane(c):
            store(t.c, n * wide, c)
            t.which[n] = node.begin + q
            n += 1
    return n


@part
def _apply_hessian(rows: Any, mu: Any, n: int, x: Any, t: Any, lanes: Any) -> None:
    """image <- H direction, from n rows with curvature."""
    wide = width(lanes)
    for place in range(0, len(x.image), wide):
        store(x.image, place, mu * load(x.direction, place, lanes))
    for first in range(0, n, _BLOCK):
        count, some = min(_BLOCK, n - first), t.which[first : first + _BLOCK]
        for q in range(count):
            c = convert(load(t.c, (first + q) * wide, lanes), mu)
            store(x.block, q * wide, c * dot(rows, at(some, q), x.direction, lanes))
        scatter(rows, some, count, x.block, x.image, lanes)


@part
def _newton_step(rows: Any, node: Any, most: int, x: Any, t: Any, lanes: Any) -> None:
    """step <- about -H^-1 g in active lanes, 0 in the others; rows and x are of one precision.

    Conjugate gradients work on g / ||g||, whose numbers single precision holds however small or large g is.
    """
    wide, n, none = width(lanes), _gather_curved_rows(node, t, lanes), x.rest.dtype.type(0)
    active, size, mu = load(t.active, 0, lanes), load(t.size, 0, lanes), x.rest.dtype.type(node.mu)
    inverse = where(active, 1.0 / size, 0.0)
    busy, zero = convert(active, none), broadcast(none, lanes)
    for place in range(0, len(t.g), wide):
        rest = convert(where(active, -load(t.g, place, lanes) * inverse, 0.0), none)
        store(x.rest, place, rest)
        store(x.direction, place, rest)
        store(x.part, place, zero)
    # Starting from 0 the residual is -g itself, and the first direction too.
    squares = _product(x.rest, x.rest, lanes)
    goal = convert(load(t.forcing, 0, lanes), none)
    goal = goal * goal
    for _ in range(most):
        _apply_hessian(rows, mu, n, x, t, lanes)
        store(t.spent, 0, load(t.spent, 0, lanes) + convert(busy, 0.0))
        length = where(busy, squares / _product(x.direction, x.image, lanes), none)
        for place in range(0, len(t.g), wide):
            store(x.part, place, fma(length, load(x.direction, place, lanes), load(x.part, place, lanes)))
            store(x.rest, place, fma(-length, load(x.image, place, lanes), load(x.rest, place, lanes)))
        left = _product(x.rest, x.rest, lanes)
        # A lane that is solved stops moving: its step would only collect rounding.
        busy = busy & (left > goal)
        if not any_lane(busy):
            break
        turn = where(busy, left / squares, none)
        for place in range(0, len(t.g), wide):
            store(x.direction, place, fma(turn, load(x.direction, place, lanes), load(x.rest, place, lanes)))
        squares = left
    for place in range(0, len(t.g), wide):
        part = convert(load(x.part, place, lanes), 0.0)
        store(t.step, place, where(active, size * part, 0.0))


@part
def _shorten(rows: Any, p: Any, of: Any, node: Any, t: Any, lanes: Any) -> None:
    """A fraction of the step where F still falls, but less steeply than at 0. 0 if rounding hides it.

    The derivative is `before` < 0 at 0 and `after` > 0 at 1, and it rises, so F falls all the way there. In lanes where
    it is not so the fraction means nothing.
    """
    wide, share = width(lanes), 1.0 / node.divisor
    for q in range(node.m):
        store(t.z, q * wide, dot(rows, node.begin + q, t.w, lanes))
        store(t.u, q * wide, dot(rows, node.begin + q, t.step, lanes))
    linear = node.mu * _product(t.w, t.step, lanes) - _product(t.pull, t.step, lanes)
    square = node.mu * _product(t.step, t.step, lanes)
    before, zero = load(t.before, 0, lanes), broadcast(0.0, lanes)
    left, right, at_left, at_right = zero, zero + 1.0, before, load(t.after, 0, lanes)
    busy = (before < 0) & (at_right > 0)
    for trial in range(100):
        # False position and bisection take turns: the first is fast, the second cannot stall.
        part_way = zero + 0.5 if trial % 2 else at_left / (at_left - at_right)
        here = left + (right - left) * part_way
        back, slopes = 1 - here, zero
        for q in range(node.m):
            u = load(t.u, q * wide, lanes)
            z = load(t.z, q * wide, lanes) - back * u
            slopes = fma(u, _slope(of, p.code, z, at(p.labels, node.begin + q), p.theta), slopes)
        found = linear - back * square + slopes * share
        above, below = busy & (found > 0), busy & (found <= 0)
        right, at_right = where(above, here, right), where(above, found, at_right)
        left, at_left = where(below, here, left), where(below, found, at_left)
        # Enough once the slope is three tenths of what it was: an exact minimum along the step would be wasted.
        busy = busy & ((found > 0) | (found < 0.3 * before))
        if not any_lane(busy):
            break
    store(t.fraction, 0, left)


@part
def _move(rows: Any, p: Any, of: Any, node: Any, t: Any, lanes: Any) -> None:
    """Take the step in active lanes, shortened where it went too far. A lane whose step shrinks to 0 by rounding
    becomes inactive.
    """
    wide, active = width(lanes), load(t.active, 0, lanes)
    store(t.before, 0, _product(t.g, t.step, lanes))
    for place in range(0, len(t.w), wide):
        w = load(t.w, place, lanes)
        store(t.old, place, w)
        store(t.w, place, where(active, w + load(t.step, place, lanes), w))
    _evaluate(rows, p, of, node, t, lanes)
    after = _product(t.g, t.step, lanes)
    store(t.after, 0, after)
    # Too far: the derivative has changed its sign, and the gradient has not halved.
    far = active & (after > 0) & (load(t.size, 0, lanes) > 0.5 * load(t.best, 0, lanes))
    if any_lane(far):
        _shorten(rows, p, of, node, t, lanes)
        fraction = load(t.fraction, 0, lanes)
        for place in range(0, len(t.w), wide):
            new = fma(fraction, load(t.step, place, lanes), load(t.old, place, lanes))
            store(t.w, place, where(far, new, load(t.w, place, lanes)))
        store(t.active, 0, where(far & (fraction == 0), 0.0, active))
        _evaluate(rows, p, of, node, t, lanes)


@part
def _descend(rows: Any, light: Any, p: Any, of: Any, node: Any, tolerance: float, single: Any, double: Any, t: Any,
             lanes: Any) -> None:  # fmt: skip
    """Move the active lanes to their minimisers, within a bounded number of steps; `light` are the rows in single
    precision.
    """
    fewest = min(node.m, len(t.w) // width(lanes))
    # Exact arithmetic would take `fewest` steps for one solve, and a factorisation costs about as much as that many.
    most, budget = fewest + 20, 4 * fewest + 200
    reach = _ROUNDING * (1 + node.steepest / node.mu)
    _evaluate(rows, p, of, node, t, lanes)
    was = load(t.size, 0, lanes)
    store(t.best, 0, was)
    store(t.spent, 0, broadcast(0.0, lanes))
    for _ in range(_MOST_EVALUATIONS):
        size = load(t.size, 0, lanes)
        error = size + load(t.hidden, 0, lanes)
        active = load(t.active, 0, lanes) & (error > 0.999 * tolerance) & (error < np.inf)
        active = active & (size > 0) & (load(t.spent, 0, lanes) < budget)
        store(t.active, 0, active)
        if not any_lane(active):
            break
        store(t.best, 0, np.minimum(load(t.best, 0, lanes), size))
        ratio = size / was
        forcing = np.maximum(np.minimum(ratio * np.sqrt(ratio), _MOST), max(reach, _LEAST) if reach < _MOST else _LEAST)
        # No smaller than the certificate needs.
        store(t.forcing, 0, np.maximum(forcing, 0.3 * tolerance / size))
        was = size
        if reach < _MOST:
            _newton_step(light, node, most, single, t, lanes)
        else:
            _newton_step(rows, node, most, double, t, lanes)
        _move(rows, p, of, node, t, lanes)


@part
def _room(d: int, rows: int, dtype: Any, lanes: Any) -> Any:
    """An empty tile of d columns and this number of rows."""
    wide = width(lanes)
    long, tall = d * wide, rows * wide
    return _Tile(
        aligned(long, dtype), aligned(long, dtype), aligned(long, dtype), aligned(long, dtype),
        aligned(long, dtype), aligned(tall, dtype), aligned(tall, dtype), aligned(tall, np.float32),
        np.empty(rows, np.int64), aligned(_BLOCK * wide, dtype), aligned(wide, dtype), aligned(wide, dtype),
        aligned(wide, dtype), aligned(wide, dtype), aligned(wide, dtype), aligned(wide, dtype),
        aligned(wide, dtype), aligned(wide, dtype), aligned(wide, dtype),
    )  # fmt: skip


@part
def _solve_room(d: int, dtype: Any, lanes: Any) -> Any:
    """Empty working memory for conjugate gradients, in the precision of `dtype`."""
    long = d * width(lanes)
    return _Solve(
        aligned(long, dtype), aligned(long, dtype), aligned(long, dtype), aligned(long, dtype),
        aligned(_BLOCK * width(lanes), dtype),
    )  # fmt: skip


@part
def _replace_far_start(node: Any, t: Any, lanes: Any) -> None:
    """Replace a start that is further from pull / mu than the minimiser can be by pull / mu."""
    wide, squares = width(lanes), broadcast(0.0, lanes)
    for place in range(0, len(t.w), wide):
        apart = node.mu * load(t.w, place, lanes) - load(t.pull, place, lanes)
        squares = fma(apart, apart, squares)
    far = squares > node.slope * node.slope
    for place in range(0, len(t.w), wide):
        store(t.w, place, where(far, load(t.pull, place, lanes) / node.mu, load(t.w, place, lanes)))


@kernel
def descend_all(counter: Any, items: int, rows: Any, light: Any, p: Any, of: Any, scales: Any, mu: Any, pull: Any,
                start: Any, tolerance: float, w: Any, reached: Any, lanes: Any) -> None:  # fmt: skip
    """The argmin of many runs side by side; an item is a tile of runs of a node.

    Args:
        counter: from which threads claim items.
        items: their number, nodes times tiles.
        rows: `tiles.Csr` or `tiles.Dense` of all nodes.
        light: the same in single precision.
        p: `newton.ArgminData`.
        of: formulas of three smooth losses, of which p.code names one.
        scales: (nodes, 3), of which the second and third bound the loss's curvature and its gradient.
        mu: (nodes,) strong convexity.
        pull: (nodes, d, runs).
        start: (nodes, d, runs).
        tolerance: of the certificate.
        w: (nodes, d, runs) gets the results.
        reached: (nodes, runs) gets their certificates.
        lanes: the number of runs of a tile.
    """
    nodes, d, all_runs = start.shape
    wide, most = width(lanes), 0
    for i in range(nodes):
        most = max(most, p.offsets[i + 1] - p.offsets[i])
    t, double = _room(d, most, np.float64, lanes), _solve_room(d, np.float64, lanes)
    single = _solve_room(d, np.float32, lanes)
    tiles = items // nodes
    item = claim(counter)
    while item < items:
        i, first = item // tiles, item % tiles * wide
        runs = min(wide, all_runs - first)
        node = _Node(p.offsets[i], p.offsets[i + 1] - p.offsets[i], p.divisor[i], mu[i], scales[i, 1], scales[i, 2])
        copy_in(t.w, lanes, start, i, first, runs)
        copy_in(t.pull, lanes, pull, i, first, runs)
        _replace_far_start(node, t, lanes)
        for q in range(wide):
            t.active[q] = 1.0 if q < runs else 0.0
        _descend(rows, light, p, of, node, tolerance, single, double, t, lanes)
        copy_out(w, i, first, runs, t.w, lanes)
        for q in range(runs):
            reached[i, first + q] = t.size[q] + t.hidden[q]
        item = claim(counter)
