"""Terms of a schema: features that are made of columns that are features themselves.

| kind | features | value |
| --- | --- | --- |
| interaction of two columns | 1 for each pair of their features | the product of the two |
| spline of a number | 1 for each knot but the first and the last | a natural cubic spline, over its largest norm |

Terms are made of encoded cells: of a number between its bounds, of a level that is not the reference, of a missing
value that is filled in or has a feature of its own. In every row the features of a term have norm at most 1, as those
of a column have: the product of two numbers that are at most 1 in size is at most 1, and a spline is divided by a bound
on its norm over all that the bounds of the column allow.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import NamedTuple, final

import numpy as np

from sottovoce.arrays import Floats
from sottovoce.errors import InputError, expect
from sottovoce.files.schema.cells import Places
from sottovoce.files.schema.column import Column, Units
from sottovoce.files.schema.columns import Ranged
from sottovoce.files.schema.curve import Curve, curve
from sottovoce.settings import brief, check_choice, tagged

FEWEST_KNOTS, MOST_KNOTS = 3, 30
LEAST_GAP = 1e-3  # between two knots, in widths of the bounds


class Side(NamedTuple):
    """A column as a term is made of it: in every row, which of the column's features is not zero, and its value."""

    place: Places
    value: Floats


class Restored(NamedTuple):
    """Weights of a term, (features, outputs), as coefficients in the units of its columns."""

    own: Floats  # of the term's features
    beside: tuple[Floats, ...]  # what they add to the coefficients of the features of each column, if anything
    constant: Floats  # and to the constant, (outputs,)


class Entries(NamedTuple):
    """The features of a term that may not be zero, (rows, entries): which of the term's features, and the values."""

    place: Places
    value: Floats


@dataclass(frozen=True, kw_only=True)
class Term(ABC):
    """Features made of columns of the schema. Methods take these columns, in the order of `of`."""

    @property
    @abstractmethod
    def of(self) -> tuple[str, ...]:
        """Names of the columns that it is made of."""

    @property
    def name(self) -> str:
        """The name in messages: of the columns, joined by colons."""
        return ":".join(self.of)

    def path(self, key: str) -> str:
        """The name of one of its keys in messages."""
        return f"terms.{self.name}.{key}"

    def sides(self, columns: Mapping[str, Column], label: Sequence[str]) -> tuple[Column, ...]:
        """Its columns among those of a schema. Refuses one that is not there, is the label, or does not suit."""
        for name in self.of:
            if name in label:
                raise InputError(
                    f"Expected terms made of columns that the label is predicted from, got {brief(name)}, the label."
                )
            check_choice(self.path("column" if len(self.of) == 1 else "columns"), name, list(columns))
        return tuple(columns[name] for name in self.of)

    @classmethod
    @abstractmethod
    def kind(cls) -> str:
        """Name of the kind in a schema file."""

    @abstractmethod
    def words(self) -> str:
        """What it says, in words."""

    @property
    @abstractmethod
    def most_entries(self) -> int:
        """The most of its features that are not zero in a row."""

    @abstractmethod
    def width(self, columns: tuple[Column, ...]) -> int:
        """Number of its features."""

    @abstractmethod
    def feature_names(self, columns: tuple[Column, ...]) -> list[str]:
        """Names of its features."""

    @abstractmethod
    def entries(self, columns: tuple[Column, ...], sides: Sequence[Side]) -> Entries:
        """Its features in every row, of norm at most 1."""

    @abstractmethod
    def units(self, columns: tuple[Column, ...]) -> Units:
        """How its features follow from its columns in their own units, but for what `restored` adds to others."""

    @abstractmethod
    def restored(self, columns: tuple[Column, ...], weights: Floats) -> Restored:
        """Coefficients of these weights of its features."""

    @abstractmethod
    def mean_square(self, columns: tuple[Column, ...]) -> float:
        """Guess of what it adds to a row's squared norm, for evenly spread values. Reads no row."""


@final
@dataclass(frozen=True, kw_only=True)
class Interaction(Term):
    """The products of all features of two columns, so that the effect of one may depend on the other."""

    columns: tuple[str, str]

    def __post_init__(self) -> None:
        first, second = self.columns
        if first == second:
            raise InputError(
                f"Expected an interaction of two columns, got {brief(first)} twice. For a curve of one number, use "
                'kind = "spline".'
            )

    @property
    def of(self) -> tuple[str, ...]:
        return self.columns

    @classmethod
    def kind(cls) -> str:
        return "interaction"

    def words(self) -> str:
        return f"the effect of {self.columns[0]} may depend on {self.columns[1]}, and the other way round"

    @property
    def most_entries(self) -> int:
        return 1

    def width(self, columns: tuple[Column, ...]) -> int:
        return columns[0].width * columns[1].width

    def feature_names(self, columns: tuple[Column, ...]) -> list[str]:
        levels = ([name.removeprefix(column.name)[1:] for name in column.feature_names()] for column in columns)
        pairs = (":".join(filter(None, pair)) for pair in product(*levels))
        return [f"{self.name}={pair}" if pair else self.name for pair in pairs]

    def entries(self, columns: tuple[Column, ...], sides: Sequence[Side]) -> Entries:
        first, second = sides
        place = first.place * np.int32(columns[1].width) + second.place
        return Entries(place[:, None], (first.value * second.value)[:, None])

    def units(self, columns: tuple[Column, ...]) -> Units:
        first, second = (column.units() for column in columns)
        slope, span = (np.outer(*pair).ravel() for pair in ((first.slope, second.slope), (first.span, second.span)))
        return Units(slope, np.zeros(len(slope)), span, np.outer(first.listed, second.listed).ravel())

    def restored(self, columns: tuple[Column, ...], weights: Floats) -> Restored:
        # (s x + m)(t y + n) = s t x y + s n x + m t y + m n
        (s, m, *_), (t, n, *_) = (column.units() for column in columns)
        block = weights.reshape(len(s), len(t), -1)
        own, first, second, constant = (
            np.einsum(f"i,j,ijk->{left}k", *by, block)
            for left, by in (("ij", (s, t)), ("i", (s, n)), ("j", (m, t)), ("", (m, n)))
        )
        return Restored(own.reshape(weights.shape), (first, second), constant)

    def mean_square(self, columns: tuple[Column, ...]) -> float:
        return columns[0].mean_square() * columns[1].mean_square()


@final
@dataclass(frozen=True, kw_only=True)
class Spline(Term):
    """A restricted cubic spline of a number, beside the number itself: a smooth curve that is straight below the first
    knot and above the last.

    Feature j is the natural cubic spline that is 1 at knot j + 1 and 0 at all others. So the coefficient of the number
    is the slope of the straight line through the curve at the outer knots, and the coefficient of feature j says how
    far the curve is from this line at its knot. A missing value that is not filled in has no curve: all are 0.

    Args:
        column: a number with `scale`.
        knots: three or more public numbers within its bounds, in rising order. Choose them from public knowledge.
    """

    column: str
    knots: tuple[float, ...]

    def __post_init__(self) -> None:
        many = f"{FEWEST_KNOTS} to {MOST_KNOTS} numbers in {self.path('knots')}"
        expect(FEWEST_KNOTS <= len(self.knots) <= MOST_KNOTS, many, knots=len(self.knots))
        # Not (a < b) also catches NaN.
        if not all(low < high for low, high in zip(self.knots, self.knots[1:], strict=False)):
            raise InputError(
                f"Expected {self.path('knots')} to rise strictly, got knots={brief(list(self.knots))}. Sort them, and "
                "give each once."
            )

    @property
    def of(self) -> tuple[str, ...]:
        return (self.column,)

    @classmethod
    def kind(cls) -> str:
        return "spline"

    def words(self) -> str:
        said = [f"{knot:g}" for knot in self.knots]
        where = f"{', '.join(said[:-1])} and {said[-1]}"
        return f"a curve of {self.column} with knots at {where}, straight beyond the outer ones"

    def sides(self, columns: Mapping[str, Column], label: Sequence[str]) -> tuple[Column, ...]:
        (column,) = found = super().sides(columns, label)
        if not isinstance(column, Ranged) or column.scale is None:
            raise InputError(
                f"Expected a spline of a number with {column.path('scale')}, got kind={column.kind()!r}"
                f"{' with edges' if column.levels else ''}. Levels and bins have effects of their own already."
            )
        low, high = column.bounds
        if not low <= self.knots[0] <= self.knots[-1] <= high:
            raise InputError(
                f"Expected {self.path('knots')} within {column.path('bounds')}, {low:g} to {high:g}, got "
                f"knots={brief(list(self.knots))}. Numbers beyond the bounds are moved to them: move the knots inside."
            )
        gap = min(np.diff(self.knots)) / (high - low)
        wanted = f"{self.path('knots')} at least {LEAST_GAP:g} of the width of the bounds apart"
        expect(gap >= LEAST_GAP, wanted, knots=list(self.knots))
        return found

    @property
    def most_entries(self) -> int:
        return len(self.knots) - 2

    def width(self, columns: tuple[Column, ...]) -> int:  # noqa: ARG002
        return self.most_entries

    def feature_names(self, columns: tuple[Column, ...]) -> list[str]:  # noqa: ARG002
        return [f"{self.column}=<bend at {f'{knot!r}'.removesuffix('.0')}>" for knot in self.knots[1:-1]]

    def number(self, columns: tuple[Column, ...]) -> Ranged:
        """The column, as a number."""
        (column,) = columns
        assert isinstance(column, Ranged)  # `sides` has refused others
        return column

    def curve(self, columns: tuple[Column, ...]) -> Curve:
        """The features before they are divided by `Curve.reach`, as a function of the share of the bounds."""
        low, high = self.number(columns).bounds
        return curve(tuple((knot - low) / (high - low) for knot in self.knots))

    def entries(self, columns: tuple[Column, ...], sides: Sequence[Side]) -> Entries:
        (side,), made, (least, width) = sides, self.curve(columns), self.number(columns).encoded_range
        share = (side.value - least) / width
        # Where the value is missing, the number's own feature, the first of the column, says nothing.
        value = made.values(share) / made.reach * (side.place == 0)[:, None]
        place = np.broadcast_to(np.arange(value.shape[1], dtype=np.int32), value.shape)
        return Entries(place, value)

    def units(self, columns: tuple[Column, ...]) -> Units:
        size = self.width(columns)
        return Units(np.full(size, 1 / self.curve(columns).reach), np.zeros(size), np.ones(size), np.ones(size, bool))

    def restored(self, columns: tuple[Column, ...], weights: Floats) -> Restored:
        return Restored(weights * self.units(columns).slope[:, None], (), np.zeros(weights.shape[1]))

    def mean_square(self, columns: tuple[Column, ...]) -> float:
        made = self.curve(columns)
        square = np.sum((made.values(np.linspace(0.0, 1.0, 1001)) / made.reach) ** 2, axis=1)
        return float(square.mean())


tagged(Term, "kind", {kind.kind(): kind for kind in (Interaction, Spline)})


def expect_once(terms: Sequence[Term]) -> None:
    """Refuse two terms of the same kind and columns."""
    seen = set[tuple[str, frozenset[str]]]()
    for term in terms:
        own = term.kind(), frozenset(term.of)
        if own in seen:
            raise InputError(f"Expected different terms, got two of kind={own[0]!r} of {term.name}. Take one out.")
        seen.add(own)
