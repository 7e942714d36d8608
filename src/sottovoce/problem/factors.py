"""Weights and exposures of rows, relative to public bounds.

With a weight v_j in (0, V] and an exposure e_j in (0, E], V and E public, the loss of row j is

    u_j loss(<w, a_j> + o_j, b_j),        u_j = v_j / V in (0, 1],        o_j = ln(e_j / E) <= 0.

A factor of at most 1 leaves every record's gradient, Hessian and moments within the convex hull of what they may be
without it, 0 included, so no sensitivity changes (docs/proofs/rows.md). V and E are never computed from rows.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from math import inf
from typing import Any, Literal, TypeVar, cast, final

import numpy as np

from sottovoce.arrays import Array, Floats, Ints
from sottovoce.errors import InputError, expect

AnyArray = TypeVar("AnyArray", bound=Array)


@final
@dataclass(frozen=True, eq=False, repr=False)
class Factors:
    """Weights and exposures of some rows, relative to public bounds. Make them with `of`.

    Args:
        weights: (rows,) u_j; None where every row counts alike.
        shifts: (rows,) o_j, added to predictions; None where there are no exposures.

    Formal guarantees: 0 <= u_j <= 1, and o_j <= 0 is finite.
    """

    weights: Floats | None = None
    shifts: Floats | None = None

    def __post_init__(self) -> None:
        if self.weights is not None:
            bounded = bool(np.all((self.weights >= 0) & (self.weights <= 1)))
            expect(bounded, "weights over their public bound, from 0 to 1: make them by Factors.of", bounded=bounded)
        if self.shifts is not None:
            bounded = bool(np.all((self.shifts <= 0) & np.isfinite(self.shifts)))
            expect(bounded, "ln(exposure / bound), finite and <= 0: make them by Factors.of", bounded=bounded)
        lengths = {len(part) for part in (self.weights, self.shifts) if part is not None}
        expect(len(lengths) <= 1, "as many weights as exposures", lengths=sorted(lengths))

    @classmethod
    def of(
        cls, *, weights: Any = None, weight_bound: float = 1.0, exposures: Any = None, exposure_bound: float = 1.0
    ) -> "Factors":
        """Factors from weights and exposures in their own units. A value that is missing, not above 0 or above its
        bound is refused. The error names the row, and does not quote the value, which is private.

        Args:
            weights: (rows,) how much each row counts; None: all alike.
            weight_bound: V, the most that a row may count. Public, and never computed from these rows.
            exposures: (rows,) how long, or how much, each row was observed: its expected count is in proportion.
            exposure_bound: E, the largest exposure allowed. Public likewise.
        """
        v = None if weights is None else _within("weight", weights, weight_bound)
        e = None if exposures is None else _within("exposure", exposures, exposure_bound)
        # The difference of logarithms, because a quotient that underflows to 0 has none.
        shifts = None if e is None else np.minimum(np.log(e) - np.log(exposure_bound), 0.0)
        return cls(None if v is None else v / weight_bound, shifts)

    def __repr__(self) -> str:
        return f"Factors({', '.join(self.told)})"  # the values are private, and texts end up in logs

    @property
    def plain(self) -> bool:
        """True if all rows have the same weight and the same exposure."""
        return self.weights is None and self.shifts is None

    @property
    def told(self) -> tuple[str, ...]:
        """Names of the factors that are set: "weights", "shifts", both or none."""
        return tuple(field.name for field in fields(self) if getattr(self, field.name) is not None)

    def __getitem__(self, rows: "slice | Ints | Any") -> "Factors":
        """The factors of some rows."""
        return Factors(*(None if part is None else part[rows] for part in (self.weights, self.shifts)))

    def shifted(self, z: AnyArray) -> AnyArray:
        """Predictions (rows, ...) plus o_j of each row."""
        return z if self.shifts is None else cast(AnyArray, z + self.shifts.reshape(-1, *(1,) * (z.ndim - 1)))

    def weighed(self, numbers: AnyArray) -> AnyArray:
        """Numbers of every row (rows, ...) times its weight u_j."""
        if self.weights is None:
            return numbers
        return cast(AnyArray, numbers * self.weights.reshape(-1, *(1,) * (numbers.ndim - 1)))

    def expect_rows(self, rows: int) -> None:
        """Refuse factors for another number of rows."""
        for name in self.told:
            came, given = len(getattr(self, name)), "exposures" if name == "shifts" else name
            expect(came == rows, f"one of {given} for each of {rows} rows", came=came)


ALIKE = Factors()

# Advice in the error where a bound is exceeded. It does not suggest cutting exposures, which would not fit their
# counts.
_ADVICE = {
    "weight": "Leave out rows that should not count, cut weights to the bound, or declare a larger one, beside which "
    "all others count less: it costs signal, not noise.",
    "exposure": "Leave out rows that were not observed, or declare a larger bound: it costs no noise.",
}


def stacked(parts: Sequence[Factors]) -> Factors:
    """The factors of several sites, below each other. Refused if only some sites have them."""
    kinds = {part.told for part in parts}
    expect(len(kinds) <= 1, "weights and exposures at every site, or at none", sites=sorted(kinds))
    return Factors(
        *(
            np.concatenate([getattr(part, name) for part in parts]) if parts and name in parts[0].told else None
            for name in ("weights", "shifts")
        )
    )


def expect_bound(name: str, bound: Any) -> None:
    """Refuse a bound that is not a finite number > 0."""
    number = isinstance(bound, float | int | np.number) and not isinstance(bound, bool)
    if not number or not 0 < bound < inf:
        raise InputError(
            f"Expected {name} as a finite public number > 0, got {name}={bound!r}. Give the largest value that is "
            "possible, from knowledge that does not come from these rows."
        )


def _within(what: Literal["weight", "exposure"], values: Any, bound: float) -> Floats:
    """A copy of the values as doubles, all in (0, bound]; the first other one is refused by its row."""
    expect_bound(f"{what}_bound", bound)
    try:
        found: Floats = np.array(values, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise InputError(f"Expected {what}s as numbers, got {what}s that are none. Give one for each row.") from error
    expect(found.ndim == 1, f"one {what} for each row, as a one-dimensional array", shape=found.shape)
    bad = np.flatnonzero(~((found > 0) & (found <= bound)))
    if bad.size:
        raise InputError(
            f"Expected every {what} above zero and at most {what}_bound={bound:g}, got another in row={int(bad[0])}. "
            f"{_ADVICE[what]}"
        )
    return found
