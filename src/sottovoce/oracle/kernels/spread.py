"""A table of how far one row can move a gradient at a known model, the same for all oracles.

Two records' gradients at w are at most B `Loss.spread`(B ||w||) apart, with B the bound on rows, which is less than 2
c1 for a small model. To compute that in a kernel would take too long. So it is bounded once, at knots u = reach / (1 +
reach) = 0, 1/KNOTS, .. 1, by its value one knot further on, and interpolated linearly in between. The true spread grows
with the reach, so the interpolation is above it. Devices whose norms differ by rounding use noise that differs by
rounding. Proof: docs/proofs/ipadmm.md, Lemma 3.
"""

from functools import lru_cache
from typing import Literal, NamedTuple, TypeAlias, get_args

import numpy as np

from sottovoce.arrays import Array, Floats
from sottovoce.errors import expect
from sottovoce.problem.losses import Loss

Sensitivity: TypeAlias = Literal["plain", "tight"]
SENSITIVITIES: tuple[Sensitivity, ...] = get_args(Sensitivity)

# The table is flat from a reach of KNOTS - 1 on; below it, it is above the spread by less than 0.2 %.
KNOTS = 1024


class Spread(NamedTuple):
    """The tight sensitivity as a fraction of the plain one, as a function of the model.

    Args:
        norm: B, the bound on rows.
        parts: (KNOTS + 1,) fractions at the knots, at most 1; empty for the plain sensitivity at every model.
    """

    norm: float
    parts: Floats

    def at(self, w: Array) -> Floats:
        """The fraction at models (nodes, d, runs): (nodes, 1, runs). The last knot's if a norm is NaN or infinite."""
        with np.errstate(over="ignore", invalid="ignore"):
            norms = np.sqrt(np.sum(w.astype(np.float64, copy=False) ** 2, axis=1, keepdims=True))
            u = 1 - 1 / (1 + self.norm * norms)
        place = np.where(u < 1, u, 1.0) * KNOTS
        knot = np.minimum(place.astype(np.int64), KNOTS - 1)
        below = self.parts[knot]
        between: Floats = below + (place - knot) * (self.parts[knot + 1] - below)
        return between


PLAIN = Spread(0.0, np.empty(0))


@lru_cache(maxsize=32)
def knots_of(loss: Loss) -> Floats:
    """An upper bound, at every knot, on the loss's spread up to the next one: (KNOTS + 1,), never falling."""
    u = np.arange(1, KNOTS + 1) / KNOTS
    with np.errstate(divide="ignore"):
        reach = u / (1 - u) * (1 + 1e-12)  # a little larger, because knots are rounded
    # A few knots at a time, so that intermediate results of `Loss.spread` stay in cache.
    spread = np.maximum.accumulate(np.concatenate([loss.spread(some) for some in np.array_split(reach, KNOTS // 16)]))
    knots: Floats = np.append(spread, spread[-1])
    knots.flags.writeable = False
    return knots


def check_sensitivity(sensitivity: Sensitivity) -> None:
    """Refuse a sensitivity that is neither "plain" nor "tight"."""
    expect(sensitivity in SENSITIVITIES, f"sensitivity in {SENSITIVITIES}", sensitivity=sensitivity)
