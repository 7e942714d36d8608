"""How far one row can move a gradient at a known model: a table that all oracles read alike.

Two records' gradients at w are at most B `Loss.spread`(B ||w||) apart, B the bound on rows, which is less than 2 c1 for
a small model. Its maximum would be dear inside a kernel. So it is bounded once, at knots u = reach / (1 + reach) = 0,
1/KNOTS, .. 1, by its value one knot further on. In between, straight lines: the true spread grows with the reach, so
they lie above it, and two devices whose norms differ by rounding draw noise that differs by no more than rounding.
Proof: docs/proofs/ipadmm.md, Lemma 3.
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
    """The tight sensitivity as a part of the plain one, as a function of the model.

    Args:
        norm: B, the bound on rows.
        parts: (KNOTS + 1,) at most 1; empty where noise is for the plain sensitivity, whatever the model.
    """

    norm: float
    parts: Floats

    def at(self, w: Array) -> Floats:
        """The part at models (nodes, d, runs): (nodes, 1, runs). 1 where a model's norm overflows or is no number."""
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
        reach = u / (1 - u) * (1 + 1e-12)  # a little further: the knots themselves are rounded
    # A few knots at a time: what a loss needs for each of them then stays in cache.
    spread = np.maximum.accumulate(np.concatenate([loss.spread(some) for some in np.array_split(reach, KNOTS // 16)]))
    knots: Floats = np.append(spread, spread[-1])
    knots.flags.writeable = False
    return knots


def check_sensitivity(sensitivity: Sensitivity) -> None:
    """Refuse what is none of the two."""
    expect(sensitivity in SENSITIVITIES, f"sensitivity in {SENSITIVITIES}", sensitivity=sensitivity)
