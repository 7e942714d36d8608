"""Natural cubic splines over [0, 1] with given knots, and a bound on their norm there.

With knots t_1 < ... < t_k, function j of k - 2 is the natural cubic spline that is 1 at t_(j + 1) and 0 at all other
knots. Natural: its second derivative is 0 at t_1 and t_k, and it is straight beyond them. Together with 1 and x these
functions span all natural cubic splines with these knots, as the truncated powers of restricted cubic splines do; but
they are local, so that noise of one size in all directions disturbs no part of a curve far more than another.

The bound: between two points of a piece, the k - 2 values are a cubic curve in space, which lies in the convex hull of
its four Bezier points. A norm is convex, so it is nowhere larger there than at one of these points.
"""

from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import final

import numpy as np

from sottovoce.arrays import Floats

_PARTS = 32  # of each piece: the bound is about a thousandth larger than the norm
_ROOM = 1 + 1e-9  # for rounding


@final
@dataclass(frozen=True, eq=False)
class Curve:
    """The k - 2 functions as cubic pieces.

    Args:
        knots: (k,), where pieces end; the first and the last piece are straight.
        starts: (k + 1,), the point from which each piece counts.
        powers: (4, k + 1, k - 2), the coefficients of 1, s, s^2, s^3 of every piece and function; s is the distance
            from the start.
    """

    knots: Floats
    starts: Floats
    powers: Floats

    def values(self, x: Floats) -> Floats:
        """The functions at points of [0, 1], (points, k - 2)."""
        piece = np.searchsorted(self.knots, x, side="right")
        s = (x - self.starts[piece])[:, None]
        a, b, c, d = self.powers[:, piece]
        found: Floats = ((d * s + c) * s + b) * s + a
        return found

    @property
    def reach(self) -> float:
        """A bound on the norm of the k - 2 values, all over [0, 1]."""
        ends = np.unique(np.concatenate([[0.0], self.knots, [1.0]]))
        grid = np.concatenate([np.linspace(*pair, _PARTS + 1)[:-1] for pair in pairwise(ends)])
        grid = np.append(grid, 1.0)
        third = (np.diff(grid) / 3)[:, None]
        value, slope = self.values(grid), self._slopes(grid)
        points = value, value[:-1] + slope[:-1] * third, value[1:] - slope[1:] * third
        return float(max(np.linalg.norm(part, axis=1).max() for part in points)) * _ROOM

    def _slopes(self, x: Floats) -> Floats:
        """The derivatives at points of [0, 1], (points, k - 2)."""
        piece = np.searchsorted(self.knots, x, side="right")
        s = (x - self.starts[piece])[:, None]
        _, b, c, d = self.powers[:, piece]
        found: Floats = (3 * d * s + 2 * c) * s + b
        return found


@lru_cache(maxsize=64)
def curve(knots: tuple[float, ...]) -> Curve:
    """The functions of these knots, of [0, 1], three at least and in rising order."""
    t, k = np.array(knots), len(knots)
    y, h = np.eye(k)[:, 1:-1], np.diff(t)[:, None]  # (k, k - 2) and (k - 1, 1)
    rise = np.diff(y, axis=0) / h
    # Second derivatives at the inner knots, from first derivatives that agree there.
    system = np.diag(2 * (h[:-1] + h[1:])[:, 0]) + np.diag(h[1:-1, 0], 1) + np.diag(h[1:-1, 0], -1)
    bent = np.zeros((k, k - 2))
    bent[1:-1] = np.linalg.solve(system, 6 * np.diff(rise, axis=0))
    slope, end = rise - h * (2 * bent[:-1] + bent[1:]) / 6, rise[-1:] + h[-1:] * bent[-2:-1] / 6
    none = np.zeros((1, k - 2))
    powers = np.stack([
        np.concatenate([y[:1], y]),
        np.concatenate([slope[:1], slope, end]),
        np.concatenate([none, bent[:-1] / 2, none]),
        np.concatenate([none, np.diff(bent, axis=0) / (6 * h), none]),
    ])  # fmt: skip
    return Curve(t, np.concatenate([t[:1], t]), powers)
