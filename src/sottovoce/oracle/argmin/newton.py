"""The exact local argmin of decentralised ADMM, for every loss and regulariser, certified.

IPADMM and the algorithms of real sites do not use it: they take noisy gradient steps (`steps`). It is for rivals that
minimise exactly in every round, for ADMM without privacy, and for the pooled optimum, the reference for all others.

For each node i and run, with mu = curvature_i + weight l2 > 0:

    F(w) = (1/m_i) sum_j loss(<w, a_j>, b_j) + weight (l1 ||w||_1 + l2/2 ||w||^2) - <pull, w> + curvature_i/2 ||w||^2

Terms with a kink. A kinked loss here is max(lo r, hi r) in r = <w, a_j> - b_j, and |w_c| is one too, with the row e_c
and the label 0. Call these terms h_t(r_t), with slopes between lo_t and hi_t (the 1/m_i and weight l1 included).

Certificate. Give every kinked term a dual y_t in [lo_t, hi_t], every smooth row its own slope, and let g be the sum of
all these slopes times rows, plus mu w - pull. Then

    F(w) - min F  <=  G  :=  sum_t (h_t(r_t) - y_t r_t)  +  ||g||^2 / (2 mu).                                        (*)

Proof: h_t(x) >= y_t x for every x, as y_t is a slope between the two. Put y_t x in place of h_t. What is left is a
mu-strongly convex function below F, whose gradient at w is g, and which differs from F at w by the first sum. Its
minimum is at least its value at w minus ||g||^2 / (2 mu). Since F is mu-strongly convex, w is within sqrt(2 G / mu) of
the minimiser. A result is handed out only when sqrt(2 mu G), plus what rounding may hide, is at most `tolerance`: it is
then within tolerance / mu of the minimiser. Without kinks this reads ||grad F|| <= tolerance.

Method. Newton on F with the kinked terms replaced by max over y in [lo, hi] of y r - (y - y_t)^2 / (2 c), whose slope
is y_t + c r cut to [lo, hi]. When that is solved, the slopes become the new y_t (the method of multipliers, here also
the proximal point method on the dual). It converges for all rows, at a rate set by c. G asks r = 0 of the terms
at their kink to about tolerance^2, so residuals are computed with twice the digits. A Newton matrix is used for as long
as it halves the gradient. Where there are kinks, it and the duals are kept from call to call.
"""

import math
from typing import Any, NamedTuple

import numpy as np

from sottovoce.arrays import Floats, Ints
from sottovoce.oracle.argmin.factor import (
    add_exactly,
    add_row,
    copy,
    dot_dense,
    dot_row,
    factorise,
    residual,
    solve_factored,
)
from sottovoce.oracle.kernels.formulas import curvature, slope
from sottovoce.oracle.kernels.simd import kernel, part
from sottovoce.oracle.kernels.threads import claim

_EPS = 2.0**-52
# A few dozen are usual. Very stiff kinks take hundreds; a problem that takes more is reported as not certified.
_MOST_EVALUATIONS = 2000
# Stiffness of a kink, relative to the curvature around it: at the first solve, and where it stops growing by itself.
_SOFT, _STIFF, _STIFFEST = 1.0, 1e6, 1e12
# Newton steps of a call: below the first kinks may be stiffer next time, above the second softer.
_FEW, _MANY = 6, 12


class ArgminData(NamedTuple):
    """The data of all nodes, the same in every call."""

    offsets: Ints  # (nodes + 1,) node i's rows are offsets[i] : offsets[i + 1]
    labels: Floats  # (rows,)
    norms: Floats  # (rows,)
    low: Floats  # (rows,) slopes below and above the kink, over the node's divisor; empty for a smooth loss
    high: Floats
    l1: float  # weight of ||w||_1: lam times the regulariser's
    code: int  # number of the loss's formulas among those passed to the kernel
    theta: float  # shape parameter of the loss
    divisor: Floats  # (nodes,) of the sum over a node's rows


class Kept(NamedTuple):
    """State kept from one call to the next, for every run; a node's factor starts at `place`.

    Without kinks there are no duals, and nothing is kept: every array but `place` is empty.
    """

    factors: Floats  # (runs, room)
    place: Ints  # (nodes,)
    numbers: Floats  # (runs, nodes, 3) of `_LINES`, `_MU`, `_KAPPA`
    by_row: Floats  # (runs, 2, rows) duals, and c in the factor
    by_column: Floats  # (runs, nodes, 2, d) the same of the l1 part; empty if there is none


# What `factorise` returned (-2: no factor yet), the mu it had, and the stiffness of the kinks.
_LINES, _MU, _KAPPA = 0, 1, 2
# Lines of the working memory. By row: predictions (residuals if the loss is kinked), slopes, their derivatives, rows
# times step, duals, and the derivatives that are in the factor.
_Z, _S, _C, _U, _Y, _F = 0, 1, 2, 3, 4, 5
# By column: the model is w + tail; then the gradient, the step, and the l1 part's share of the above.
_W, _TAIL, _G, _STEP, _PULL, _S1, _C1, _Y1, _F1, _OLD, _OLD_TAIL, _DIAGONAL = 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11


class _Item(NamedTuple):
    """The problem of one node and run, with its working memory."""

    begin: int  # its first row
    m: int
    divisor: float  # of the sum over its rows
    mu: float
    steepest: float  # bound on the smooth loss's second derivative in w
    row: Floats  # (6, most rows of a node)
    column: Floats  # (12, d)


@part
def _slope(of: Any, code: int, z: float, b: float, theta: float) -> Any:
    """The loss's derivative in z; `of` holds the formulas of three losses, so that they share one kernel."""
    if code == 0:
        return slope(of[0], z, b, theta)
    return slope(of[1], z, b, theta) if code == 1 else slope(of[2], z, b, theta)


@part
def _curvature(of: Any, code: int, z: float, b: float, theta: float) -> Any:
    """The loss's second derivative in z, as in `_slope`."""
    if code == 0:
        return curvature(of[0], z, b, theta)
    return curvature(of[1], z, b, theta) if code == 1 else curvature(of[2], z, b, theta)


@part
def _cut(y: float, low: float, high: float) -> Any:
    """y, clipped to [low, high]."""
    return min(max(y, low), high)


@part
def _gap(y: float, r: float, low: float, high: float) -> Any:
    """h(r) - y r, without cancellation."""
    return (high - y) * r if r > 0 else (low - y) * r


@part
def _evaluate(rows: Any, p: Any, of: Any, it: Any, stiff: Any) -> Any:
    """Slopes, their derivatives and g at w. Returns ||g||, the kinks' part of 2 mu G, and a bound on rounding errors.

    `stiff` is c of a row at its kink, and of a coordinate at 0.
    """
    w, tail, g, pull = it.column[_W], it.column[_TAIL], it.column[_G], it.column[_PULL]
    kinked, share, size, gap = len(p.low) > 0, 1.0 / it.divisor, math.sqrt(dot_dense(w, w)), 0.0
    hidden = (it.mu + it.steepest) * size + math.sqrt(dot_dense(pull, pull))
    for k in range(len(g)):
        g[k] = (it.mu * w[k] - pull[k]) + it.mu * tail[k]
    for j in range(it.m):
        row = it.begin + j
        b, norm = p.labels[row], p.norms[row]
        if kinked:
            low, high = p.low[row], p.high[row]
            z = residual(rows, row, w, tail, b)
            s = _cut(it.row[_Y, j] + stiff[0] * z, low, high)
            c = stiff[0] if low < s < high and norm > 0 else 0.0
            gap += _gap(s, z, low, high)
        else:
            z = dot_row(rows, row, w)
            s, c = _slope(of, p.code, z, b, p.theta) * share, 0.0  # c is computed when it is needed
        hidden += abs(s) * norm
        it.row[_Z, j], it.row[_S, j], it.row[_C, j] = z, s, c
        add_row(rows, row, 0, s, g, 0)
    if p.l1 > 0:
        for k in range(len(g)):
            s = _cut(it.column[_Y1, k] + stiff[1] * w[k], -p.l1, p.l1)
            it.column[_S1, k] = s
            it.column[_C1, k] = stiff[1] if abs(s) < p.l1 else 0.0
            g[k] += s
            gap += _gap(s, w[k], -p.l1, p.l1)
    return math.sqrt(dot_dense(g, g)), 2 * it.mu * gap, 4 * _EPS * hidden


@part
def _derivative(p: Any, of: Any, it: Any, stiff: Any, t: float) -> Any:
    """Derivative of the objective along the step, at the fraction t of it; w is at t = 1. It rises with t."""
    back, w, step = 1 - t, it.column[_W], it.column[_STEP]
    total = it.mu * (dot_dense(w, step) - back * dot_dense(step, step)) - dot_dense(it.column[_PULL], step)
    for j in range(it.m):
        u, row = it.row[_U, j], it.begin + j
        z = it.row[_Z, j] - back * u
        if len(p.low) > 0:
            total += u * _cut(it.row[_Y, j] + stiff[0] * z, p.low[row], p.high[row])
        else:
            total += u * _slope(of, p.code, z, p.labels[row], p.theta) / it.divisor
    if p.l1 > 0:
        for k in range(len(w)):
            total += step[k] * _cut(it.column[_Y1, k] + stiff[1] * (w[k] - back * step[k]), -p.l1, p.l1)
    return total


@part
def _shorten(rows: Any, p: Any, of: Any, it: Any, stiff: Any, before: float, after: float) -> Any:
    """A fraction t of the step where the function still falls, but less steeply than at 0. 0 if rounding hides it.

    The derivative is `before` < 0 at 0 and `after` > 0 at 1, and it rises, so the function falls all the way to t.
    """
    for j in range(it.m):
        it.row[_U, j] = dot_row(rows, it.begin + j, it.column[_STEP])
    left, right, at_left, at_right = 0.0, 1.0, before, after
    for trial in range(100):
        t = (left + right) / 2 if trial % 2 else left + (right - left) * at_left / (at_left - at_right)
        here = _derivative(p, of, it, stiff, t)
        if here > 0:
            right, at_right = t, here
        else:
            left, at_left = t, here
            if here >= 0.3 * before:
                break
    return left


@part
def _same(x: Any, y: Any, n: int) -> bool:
    """True if the first n numbers of both are equal, bit by bit."""
    for k in range(n):  # noqa: SIM110 (compiled as it stands)
        if x[k] != y[k]:
            return False
    return True


@part
def _newton_step(rows: Any, p: Any, of: Any, it: Any, good: bool, numbers: Any, room: Any, temp: Any) -> Any:
    """Fill in the step, with the kept factor if it is good and has the same terms at their kink. True if it is new."""
    m, c, c1, diagonal = it.m, it.row[_F], it.column[_F1], it.column[_DIAGONAL]
    if len(p.low) > 0:
        # Another set of terms at their kink is another matrix.
        good = good and _same(c, it.row[_C], m)
    if p.l1 > 0:
        good = good and _same(c1, it.column[_C1], len(c1))
    if not good:
        for j in range(m):
            if len(p.low) > 0:
                c[j] = it.row[_C, j]
            else:
                c[j] = _curvature(of, p.code, it.row[_Z, j], p.labels[it.begin + j], p.theta) / it.divisor
        copy(c1, it.column[_C1])
    for k in range(len(c1)):
        diagonal[k] = it.mu + (c1[k] if p.l1 > 0 else 0.0)
        it.column[_STEP, k] = -it.column[_G, k]
    if not good:
        numbers[_LINES] = factorise(rows, it.begin, m, c, diagonal, room, temp)
        numbers[_MU] = it.mu
    solve_factored(rows, it.begin, m, c, diagonal, room, int(numbers[_LINES]), it.column[_STEP], temp)
    return not good


@part
def _stiffness(it: Any, scale: float, kappa: float) -> Any:
    """c of a row at its kink and of a coordinate at 0: kappa times the curvature that the kink has to stand up to.

    Around a coordinate that may be as much as mu + steepest, or as little as mu. Soft kinks go by mu alone.
    """
    return kappa * it.mu * scale, kappa * (it.mu + min(kappa / _STIFF, 1.0) * it.steepest)


@part
def _accept_slopes(it: Any) -> None:
    """Take the slopes as the new duals."""
    for j in range(it.m):
        it.row[_Y, j] = it.row[_S, j]
    copy(it.column[_Y1], it.column[_S1])


@part
def _minimise(rows: Any, p: Any, of: Any, it: Any, numbers: Any, room: Any, scale: float, tolerance: float,
              temp: Any) -> Any:  # fmt: skip
    """Move w to the minimiser. Returns sqrt(2 mu G) with all that rounding may add: the certificate."""
    kinked = len(p.low) > 0 or p.l1 > 0
    w, tail, g, step = it.column[_W], it.column[_TAIL], it.column[_G], it.column[_STEP]
    kappa = first = max(numbers[_KAPPA], _SOFT)
    stiff = _stiffness(it, scale, kappa)
    size, gap, hidden, t = 0.0, 0.0, 0.0, 1.0
    best, last_gap, error, was, before = np.inf, np.inf, np.inf, 0.0, 0.0
    good, fresh, stuck, stepped = numbers[_LINES] > -2 and numbers[_MU] == it.mu, False, 0, False
    steps = 0
    for _ in range(_MOST_EVALUATIONS):
        size, gap, hidden = _evaluate(rows, p, of, it, stiff)
        if stepped and t == 1 and size > 0.5 * best and dot_dense(g, step) > 0:
            # Too far. Either F falls, or the gradient is half of the smallest so far. The second can happen only so
            # often, so the two together converge; near the minimum the first alone would be a matter of rounding.
            t = _shorten(rows, p, of, it, stiff, before, dot_dense(g, step))
            copy(w, it.column[_OLD])
            copy(tail, it.column[_OLD_TAIL])
            add_exactly(w, tail, t, step)
            if t == 0 and fresh:
                # Only rounding, or a function too stiff for it, gets here. Softer kinks have the same minimiser.
                stuck += 1
                kappa, best = max(kappa / 100, _SOFT), np.inf
                stiff = _stiffness(it, scale, kappa)
            continue
        if stepped:
            good = size <= 0.5 * was
        best = min(best, size)
        error = math.sqrt(size * size + gap) + hidden + it.mu * math.sqrt(dot_dense(tail, tail))
        # A thousandth is left for `_clear`, which moves coordinates after the certificate was computed.
        if error <= 0.999 * tolerance or not error < np.inf or stuck > 3:
            break
        if kinked and size <= max(0.3 * math.sqrt(gap), 0.1 * tolerance, hidden):
            _accept_slopes(it)
            if kappa < _STIFF or gap > 0.25 * last_gap:
                kappa = min(10 * kappa, _STIFFEST)
            stiff = _stiffness(it, scale, kappa)
            last_gap, best, stepped = gap, np.inf, False
            continue
        fresh = _newton_step(rows, p, of, it, good, numbers, room, temp)
        was, before, t, stepped = size, dot_dense(g, step), 1.0, True
        steps += 1
        copy(it.column[_OLD], w)
        copy(it.column[_OLD_TAIL], tail)
        add_exactly(w, tail, 1.0, step)
    _accept_slopes(it)
    # Stiff kinks take few steps if most terms stay on their side of them, and many if not.
    numbers[_KAPPA] = min(10 * first, _STIFF) if steps < _FEW else max(first / 10, _SOFT) if steps > _MANY else first
    return error


@part
def _clear(it: Any, l1: float, tolerance: float) -> None:
    """Set coordinates at their kink to 0 where they hold rounding errors, far below the tolerance."""
    w = it.column[_W]
    least = 1e-3 * tolerance / (it.mu + it.steepest) / math.sqrt(len(w))
    for k in range(len(w)):
        if abs(it.column[_S1, k]) < l1 and abs(w[k]) < least:
            w[k] = 0.0


@part
def _load_kept(p: Any, it: Any, kept: Any, i: int, q: int) -> None:
    """Load duals and the factor's derivatives from the last call."""
    for j in range(it.m):
        it.row[_Y, j], it.row[_F, j] = kept.by_row[q, 0, it.begin + j], kept.by_row[q, 1, it.begin + j]
    if p.l1 > 0:
        copy(it.column[_Y1], kept.by_column[q, i, 0])
        copy(it.column[_F1], kept.by_column[q, i, 1])


@part
def _store_kept(p: Any, it: Any, kept: Any, i: int, q: int) -> None:
    """Store duals and the factor's derivatives for the next call."""
    for j in range(it.m):
        kept.by_row[q, 0, it.begin + j], kept.by_row[q, 1, it.begin + j] = it.row[_Y, j], it.row[_F, j]
    if p.l1 > 0:
        copy(kept.by_column[q, i, 0], it.column[_Y1])
        copy(kept.by_column[q, i, 1], it.column[_F1])


@kernel
def minimise_all(counter: Any, items: int, which: Any, rows: Any, p: Any, of: Any, kept: Any, scales: Any, mu: Any,
                 pull: Any, w: Any, tolerance: float, reached: Any) -> None:  # fmt: skip
    """The argmin of many (node, run) pairs, one at a time; an item is one of them.

    Args:
        counter: from which threads claim items.
        items: their number.
        which: node times runs + run, for each item.
        rows: `factor.FlatRows` of all nodes.
        p: `ArgminData`.
        of: formulas of three smooth losses, of which p.code names one.
        kept: state of the last call, replaced by that of this one.
        scales: (nodes, 3), of which the first is 1 / longest row squared, the second the bound on the loss's curvature.
        mu: (nodes,) strong convexity.
        pull: (nodes, d, runs).
        w: (nodes, d, runs) the starts, then the results.
        tolerance: of the certificate.
        reached: (nodes, runs) the certificates.
    """
    nodes, d, runs = w.shape
    keeps, most = len(kept.numbers) > 0, 0
    for i in range(nodes):
        most = max(most, p.offsets[i + 1] - p.offsets[i])
    row, column, temp = np.empty((6, most)), np.empty((12, d)), np.empty(d + most)
    own_room, own_numbers = np.empty(0 if keeps else min(most, d) ** 2), np.empty(3)
    item = claim(counter)
    while item < items:
        i, q = which[item] // runs, which[item] % runs
        it = _Item(p.offsets[i], p.offsets[i + 1] - p.offsets[i], p.divisor[i], mu[i], scales[i, 1], row, column)
        for k in range(d):
            column[_W, k], column[_TAIL, k], column[_PULL, k] = w[i, k, q], 0.0, pull[i, k, q]
            column[_S1, k] = column[_C1, k] = 0.0
        if keeps:
            _load_kept(p, it, kept, i, q)
        room, numbers = own_room, own_numbers
        numbers[_LINES], numbers[_KAPPA] = -2, 0.0
        if keeps:
            room, numbers = kept.factors[q, kept.place[i] :], kept.numbers[q, i]
        reached[i, q] = _minimise(rows, p, of, it, numbers, room, scales[i, 0], tolerance, temp)
        if p.l1 > 0:
            _clear(it, p.l1, tolerance)
        for k in range(d):
            w[i, k, q] = column[_W, k]
        if keeps:
            _store_kept(p, it, kept, i, q)
        item = claim(counter)
