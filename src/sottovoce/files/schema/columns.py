"""Columns of a schema: how the cells of each kind become features.

| kind | features | value |
| --- | --- | --- |
| numeric with `scale` | 1 | (x - low) / (high - low), or twice that minus 1 |
| numeric with `edges` | 1 per bin | 1 in the bin that x falls into |
| age with `scale` or `edges` | as numeric | of the years from the date in the cell to a public one |
| season | 1 per quarter, month or weekday | 1 in that of the date |
| categorical | 1 per category, 1 more for "other" | 1 in the category of x, or of its first characters |
| boolean | 1 | 1 or 0 |
| any, with `missing = "indicator"` | 1 more | 1 where there is no value |

A one-hot column may have a `reference`: that level has no feature, so all of them are 0 there. Standard errors need
it, since features that add up to the intercept have no coefficients of their own.

In every row at most one feature of a column is not zero, and it is at most 1 in size. So a row's squared norm is at
most the number of columns, whatever the data.
"""

from abc import abstractmethod
from dataclasses import dataclass, replace
from datetime import date
from typing import Literal, Self, TypeAlias, final, get_args

import numpy as np

from sottovoce.arrays import Floats, Ints
from sottovoce.errors import InputError, expect
from sottovoce.files.schema.cells import Cells, Encoded, Places
from sottovoce.files.schema.column import Column, Units, listed
from sottovoce.files.schema.findings import Finding
from sottovoce.files.schema.values import check_bounds, check_words, number
from sottovoce.settings import brief, written

Scale: TypeAlias = Literal["unit", "symmetric"]
DateOrder: TypeAlias = Literal["ymd", "dmy", "mdy"]
Season: TypeAlias = Literal["quarter", "month", "weekday"]

YEAR = 365.2425  # days, on average
_EPOCH = date(1970, 1, 1)

OTHER = "<other>"
LONGEST_GROUP = 100  # characters of a code that may name its group
TRUE = ("true", "True", "TRUE", "t", "T", "yes", "Yes", "YES", "y", "Y", "1")
FALSE = ("false", "False", "FALSE", "f", "F", "no", "No", "NO", "n", "N", "0")


@dataclass(frozen=True, kw_only=True)
class Ranged(Column):
    """Numbers between two bounds, scaled, or one-hot by bin. What lies outside is moved to the nearest bound.

    With edges e_1 < ... < e_k the k + 1 bins are [low, e_1), [e_1, e_2), ..., [e_k, high].
    """

    bounds: tuple[float, float]
    scale: Scale | None = None
    edges: tuple[float, ...] | None = None
    reference: float | None = None  # with edges: a number in the bin that has no feature

    def _check(self) -> None:
        check_bounds(self.path("bounds"), self.bounds)
        if (self.scale is None) == (self.edges is None):
            raise InputError(
                f"Expected one of {self.path('scale')} and {self.path('edges')}, "
                f"got scale={self.scale!r}, edges={brief(self.edges)}."
            )
        expect(
            self.scale is None or self.scale in get_args(Scale),
            f"{self.path('scale')} among {', '.join(get_args(Scale))}",
            scale=self.scale,
        )
        low, high = self.bounds
        if (edges := self.edges) is not None:
            expect(len(edges) >= 1, f"{self.path('edges')} to hold an edge", edges=edges)
            # Not (a < b) also catches NaN.
            if not (low < edges[0] and edges[-1] <= high and all(np.diff(edges) > 0)):
                wanted = f"{self.path('edges')} to rise strictly, above {low:g} and up to {high:g}"
                raise InputError(f"Expected {wanted}, got edges={brief(list(edges))}.")
        if self.reference is not None and (self.edges is None or not low <= self.reference <= high):
            raise InputError(
                f"Expected {self.path('reference')} with edges, as a number between {low:g} and {high:g}, got "
                f"reference={self.reference:g}. Name one in the bin to compare with; a scaled number needs none."
            )
        if self.fill is not None:
            inside = number(self.fill) is not None and low <= float(self.fill) <= high
            expect(inside, f"{self.path('fill')} to be a number between {low:g} and {high:g}", fill=self.fill)

    @property
    def one_hot(self) -> bool:
        """True if the column is cut into bins."""
        return self.edges is not None

    @property
    def left_out(self) -> int | None:
        """Index of the bin that holds the reference; None without one."""
        return None if self.reference is None else int(self._spots(np.array([self.reference]))[0][0])

    @property
    def encoded_range(self) -> tuple[float, float]:
        """The least that a scaled number is encoded as, and the distance from there to the largest."""
        return (0.0, 1.0) if self.scale == "unit" else (-1.0, 2.0)

    def units(self) -> Units:
        slope, move, span, listed = super().units()
        if self.scale is not None:
            (low, high), (least, width) = self.bounds, self.encoded_range
            number = np.arange(self.width) == 0
            slope = np.where(number, width / (high - low), slope)
            move = np.where(number, least - slope * low, move)
            span = np.where(number, high - low, span)
        return Units(slope, move, span, listed)

    def _own_names(self) -> list[str]:
        if self.edges is None:
            return [self.name]
        return [f"{self.name}=[{level}" for level in self._between(",")]

    def _between(self, comma: str) -> list[str]:
        """The bins between the edges in words, without their opening bracket."""
        edges = self.edges or ()
        ends = [f"{end!r}".removesuffix(".0") for end in (self.bounds[0], *edges, self.bounds[1])]
        closing = [")"] * len(edges) + ["]"]
        return [f"{low}{comma}{high}{close}" for low, high, close in zip(ends[:-1], ends[1:], closing, strict=True)]

    @property
    def level_words(self) -> tuple[str, ...]:
        return () if self.edges is None else tuple(f"[{level}" for level in self._between(", "))

    def bare(self) -> Self:
        """The same as for every column; codes of a number are shares of its bounds, whatever its scale."""
        column = super().bare()
        return column if self.edges is not None else replace(column, scale="unit")

    def measured(self) -> Self:
        """The same as a number between its bounds, whether it has bins or not."""
        return replace(self, scale="unit", edges=None, reference=None, shares=None)

    def _code(self, encoded: Encoded) -> Floats:
        return encoded.place.astype(np.float64) if self.edges is not None else encoded.value

    def _present(self, cells: Cells) -> Encoded:
        x, unread = self._numbers(cells)
        unknown = np.isnan(x)
        finding = np.where((x < self.bounds[0]) | (x > self.bounds[1]), Finding.CLIPPED, Finding.FITS).astype(np.uint8)
        finding[unknown] = unread
        place, value = self._spots(np.clip(np.where(unknown, self.bounds[0], x), *self.bounds))
        return Encoded(place, value, finding)

    @abstractmethod
    def _numbers(self, cells: Cells) -> tuple[Floats, Finding]:
        """The number of every cell, NaN where there is none, and the finding for a cell without one."""

    def mean_square(self) -> float:
        # Evenly spread over the bounds: 1/3 for both scales.
        return 1 / 3 if self.edges is None else 1.0

    def _filling(self) -> tuple[int, float]:
        assert self.fill is not None
        place, value = self._spots(np.array([float(self.fill)]))
        return int(place[0]), float(value[0])

    def _spots(self, x: Floats) -> tuple[Places, Floats]:
        """Place and value of the feature of every number; the numbers lie within the bounds."""
        if self.edges is not None:
            return np.searchsorted(np.array(self.edges), x, side="right").astype(np.int32), np.ones(len(x))
        low, high = self.bounds
        share = np.clip((x - low) / (high - low), 0.0, 1.0)
        return np.zeros(len(x), dtype=np.int32), share if self.scale == "unit" else 2 * share - 1


@final
@dataclass(frozen=True, kw_only=True)
class Numeric(Ranged):
    """A column of numbers, taken as they are in the cell."""

    @classmethod
    def kind(cls) -> str:
        return "numeric"

    def wants(self) -> str:
        return "a number"

    def _numbers(self, cells: Cells) -> tuple[Floats, Finding]:
        return cells.numbers(), Finding.NOT_A_NUMBER


@final
@dataclass(frozen=True, kw_only=True)
class Age(Ranged):
    """The years from the date in the cell to a public one, as a date of birth or of admission becomes an age."""

    on: str  # the public date, as 2025-01-31
    order: DateOrder = "ymd"

    @classmethod
    def kind(cls) -> str:
        return "age"

    def wants(self) -> str:
        return _a_date(self.order)

    def _check(self) -> None:
        super()._check()
        _check_order(self.path("order"), self.order)
        try:
            written = date.fromisoformat(self.on).isoformat()
        except ValueError:
            written = ""
        expect(self.on == written, f"{self.path('on')} to be a date like 2025-01-31", on=self.on)

    def _numbers(self, cells: Cells) -> tuple[Floats, Finding]:
        ended = (date.fromisoformat(self.on) - _EPOCH).days
        return (ended - cells.days(self.order)) / YEAR, Finding.NOT_A_DATE


written(Age, "name", "kind", "on", "order", ..., "shares", "missing", "fill", absent=(None,))


@final
@dataclass(frozen=True, kw_only=True)
class Seasonal(Column):
    """The quarter, month or weekday of the date in the cell."""

    by: Season
    order: DateOrder = "ymd"
    reference: str | None = None

    @classmethod
    def kind(cls) -> str:
        return "season"

    def wants(self) -> str:
        return _a_date(self.order)

    def mean_square(self) -> float:
        return 1.0

    def _check(self) -> None:
        known = get_args(Season)
        expect(self.by in known, f"{self.path('by')} among {', '.join(known)}", by=self.by)
        _check_order(self.path("order"), self.order)
        fine = self.fill is None or self.fill in self._names()
        expect(fine, f"{self.path('fill')} among {', '.join(self._names())}", fill=self.fill)
        _check_level(self.path("reference"), self.reference, self._names())

    @property
    def one_hot(self) -> bool:
        """True: exactly one level is 1 in every row."""
        return True

    @property
    def left_out(self) -> int | None:
        """Index of the season that is the reference; None without one."""
        return None if self.reference is None else self._names().index(self.reference)

    def _names(self) -> tuple[str, ...]:
        return _SEASONS[self.by]

    @property
    def level_words(self) -> tuple[str, ...]:
        return self._names()

    def _own_names(self) -> list[str]:
        return [f"{self.name}={name}" for name in self._names()]

    def _present(self, cells: Cells) -> Encoded:
        days = cells.days(self.order)
        unknown = np.isnan(days)
        whole = np.where(unknown, 0, days).astype(np.int64)
        month = whole.astype("datetime64[D]").astype("datetime64[M]").astype(np.int64) % 12
        # 1970 began with a Thursday.
        place = {"quarter": month // 3, "month": month, "weekday": (whole + 3) % 7}[self.by].astype(np.int32)
        finding = np.where(unknown, Finding.NOT_A_DATE, Finding.FITS).astype(np.uint8)
        return Encoded(place, np.ones(len(place)), finding)

    def _filling(self) -> tuple[int, float]:
        return self._names().index(str(self.fill)), 1.0


_SEASONS: dict[str, tuple[str, ...]] = {
    "quarter": ("Q1", "Q2", "Q3", "Q4"),
    "month": ("January", "February", "March", "April", "May", "June", "July", "August", "September", "October",
              "November", "December"),
    "weekday": ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"),
}  # fmt: skip


def _check_level(path: str, reference: str | None, levels: tuple[str, ...], other: bool = False) -> None:
    """Refuse a reference that is no level, or the only one. `other`: there is one more, for all that is not listed."""
    known = reference is None or reference in levels
    if not known:
        raise InputError(
            f"Expected {path} among the levels {listed(levels)}, got reference={brief(reference)}. Name one."
        )
    expect(reference is None or len(levels) + other > 1, f"{path} beside other levels", levels=len(levels))


def _check_order(path: str, order: str) -> None:
    known = get_args(DateOrder)
    expect(order in known, f"{path} among {', '.join(known)}", order=order)


def _a_date(order: str) -> str:
    """What a cell with a date should be, for messages: an example in this order of year, month and day."""
    shown = "-".join({"y": "2024", "m": "12", "d": "31"}[letter] for letter in order)
    return f"a date like {shown}"


@final
@dataclass(frozen=True, kw_only=True)
class Categorical(Column):
    """One of some declared texts. With `other`, any other text has a feature of its own; without it, it is refused.

    With `first`, codes are cut to their first so many characters, and the categories are the groups that these name.
    """

    categories: tuple[str, ...]
    other: bool = False
    first: int | None = None
    reference: str | None = None

    @classmethod
    def kind(cls) -> str:
        return "categorical"

    def words(self) -> tuple[str, ...]:
        return self.categories

    def wants(self) -> str:
        what = "categories" if self.first is None else f"groups (the first {self.first} characters)"
        return f"one of the {what} {', '.join(self.categories[:5])}{', ...' if len(self.categories) > 5 else ''}"

    def _check(self) -> None:
        check_words(self.path("categories"), self.categories, at_least=1)
        known = self.fill is None or self.fill in self.categories
        expect(known, f"{self.path('fill')} among its categories", fill=self.fill)
        if self.first is not None:
            expect(1 <= self.first <= LONGEST_GROUP, f"1 <= {self.path('first')} <= {LONGEST_GROUP}", first=self.first)
            for group in self.categories:
                wanted = f"{self.path('categories')} of at most first={self.first} characters"
                expect(len(group) <= self.first, wanted, category=group)
        _check_level(self.path("reference"), self.reference, self.categories, self.other)

    @property
    def one_hot(self) -> bool:
        """True: exactly one level is 1 in every row."""
        return True

    @property
    def left_out(self) -> int | None:
        """Index of the category that is the reference; None without one."""
        return None if self.reference is None else self.categories.index(self.reference)

    def mean_square(self) -> float:
        return 1.0

    @property
    def level_words(self) -> tuple[str, ...]:
        return (*self.categories, OTHER) if self.other else self.categories

    def _own_names(self) -> list[str]:
        named = [f"{self.name}={category}" for category in self.categories]
        return named if self.other_name is None else [*named, self.other_name]

    def units(self) -> Units:
        found = super().units()
        return found._replace(listed=np.array([name != self.other_name for name in self.feature_names()]))

    @property
    def other_name(self) -> str | None:
        """Name of the feature for categories that are not listed; None if those are refused."""
        return f"{self.name}={OTHER}" if self.other else None

    def _present(self, cells: Cells) -> Encoded:
        place = cells.places(self.categories, self.first)
        finding = np.zeros(len(place), dtype=np.uint8)
        unknown = place < 0
        if unknown.any():
            # A text over several lines is a broken file, not a rare category: it may have swallowed rows.
            refused = unknown & cells.multiline() if self.other else unknown
            place[unknown] = len(self.categories) if self.other else 0
            finding[unknown] = Finding.OTHER
            finding[refused] = Finding.UNKNOWN
        return Encoded(place, np.ones(len(place)), finding)

    def _filling(self) -> tuple[int, float]:
        return self.categories.index(str(self.fill)), 1.0


written(Categorical, "name", "kind", "first", ..., "shares", "missing", "fill", absent=(None,))


@final
@dataclass(frozen=True, kw_only=True)
class Boolean(Column):
    """True or false, in declared spellings."""

    true_values: tuple[str, ...] = TRUE
    false_values: tuple[str, ...] = FALSE

    @classmethod
    def kind(cls) -> str:
        return "boolean"

    def words(self) -> tuple[str, ...]:
        return self.true_values + self.false_values

    def wants(self) -> str:
        return f"one of {', '.join(self.true_values)} or {', '.join(self.false_values)}"

    def _check(self) -> None:
        check_words(self.path("true_values"), self.true_values, at_least=1)
        check_words(self.path("false_values"), self.false_values, at_least=1)
        both = sorted(set(self.true_values) & set(self.false_values))
        expect(not both, f"{self.path('true_values')} and false_values to share no spelling", both=both)
        expect(self.fill is None or isinstance(self.fill, bool), f"{self.path('fill')} true or false", fill=self.fill)

    @property
    def levels(self) -> tuple[str, ...]:
        """True, false and, if it has a feature, missing."""
        return (f"{self.name}=true", f"{self.name}=false", *self._all_names()[1:])

    def at_levels(self, levels: Ints) -> tuple[Places, Floats]:
        """Place and value of the non-zero feature: true is the first, a missing value the second."""
        return (levels == 2).astype(np.int32), (levels != 1).astype(np.float64)

    def mean_square(self) -> float:
        return 0.5

    @property
    def level_words(self) -> tuple[str, ...]:
        return self.false_values[0], self.true_values[0]

    def _code(self, encoded: Encoded) -> Floats:
        return encoded.value

    def _own_names(self) -> list[str]:
        return [self.name]

    def _present(self, cells: Cells) -> Encoded:
        place = cells.places(self.true_values + self.false_values)
        finding = np.where(place < 0, Finding.UNKNOWN, Finding.FITS).astype(np.uint8)
        value = ((place >= 0) & (place < len(self.true_values))).astype(np.float64)
        return Encoded(np.zeros(len(place), dtype=np.int32), value, finding)

    def _filling(self) -> tuple[int, float]:
        return 0, float(self.fill is True)
