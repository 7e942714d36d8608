"""Base class of the columns of a schema: a name, features, and a policy for missing values."""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple, Self, TypeAlias, get_args

import numpy as np

from sottovoce.arrays import Bools, Floats, Ints
from sottovoce.errors import InputError, expect
from sottovoce.files.schema.cells import Cells, Encoded, Places
from sottovoce.files.schema.findings import Finding, Findings
from sottovoce.files.schema.values import check_word
from sottovoce.settings import brief, written

ROUNDED = 0.005  # by how much a share may be off that is written in whole per cents
MissingPolicy: TypeAlias = Literal["refuse", "row", "indicator", "fill"]
Fill: TypeAlias = float | str | bool


class Units(NamedTuple):
    """How features follow from what they stand for in its own unit: feature = slope x + move, where x is a number, or 1
    at a level and 0 elsewhere. One of each for every feature.
    """

    slope: Floats
    move: Floats
    span: Floats  # how far x goes from lowest to highest
    listed: Bools  # False for what stands for all that the schema does not list


@dataclass(frozen=True, kw_only=True)
class Column(ABC):
    """One column of the file and what becomes of its cells.

    `shares` says how many of the rows are at each of its `levels`, from published figures. Predictions of intervals
    use it, and nothing else: it changes no feature.
    """

    name: str
    missing: MissingPolicy = "refuse"
    fill: Fill | None = None
    shares: tuple[float, ...] | None = None

    def __post_init__(self) -> None:
        check_word("columns.name", self.name)
        policies = get_args(MissingPolicy)
        expect(self.missing in policies, f"{self.path('missing')} among {', '.join(policies)}", missing=self.missing)
        if (self.missing == "fill") != (self.fill is not None):
            raise InputError(
                f'Expected {self.path("fill")} together with missing = "fill" and only then, '
                f"got missing={self.missing!r}, fill={self.fill!r}."
            )
        self._check()
        self._check_shares()

    def _check_shares(self) -> None:
        """Refuse shares that are not one for each level, or are no shares."""
        shares, levels = self.shares, self.levels
        if shares is None:
            return
        path = self.path("shares")
        if not levels:
            raise InputError(f"Expected {path} only where a column has levels, got shares={brief(list(shares))}.")
        if len(shares) != len(levels):
            raise InputError(
                f"Expected {path} to hold {len(levels)} numbers, one for each of {listed(levels)}, "
                f"got {len(shares)}: {brief(list(shares))}."
            )
        expect(all(share >= 0 for share in shares), f"{path} of 0 or more", shares=list(shares))
        total, off = math.fsum(shares), ROUNDED * len(levels)
        expect(abs(total - 1) <= off, f"{path} to add up to 1, up to rounding", shares=list(shares), total=total)

    def path(self, key: str) -> str:
        """The name of one of this column's keys in messages and in `unreviewed`."""
        return f"columns.{self.name}.{key}"

    @property
    def width(self) -> int:
        """Number of features that the column becomes, without the reference level."""
        return len(self._own_names()) + (self.missing == "indicator") - (self.left_out is not None)

    @property
    def one_hot(self) -> bool:
        """True if exactly one of the features is 1 in every row, unless one is left out."""
        return False

    @property
    def left_out(self) -> int | None:
        """The place of the reference level, which has no feature: what others are compared with. None if all have."""
        return None

    @property
    def levels(self) -> tuple[str, ...]:
        """Names of the levels that a row can be at, the reference and that for missing values among them; empty for a
        number.
        """
        return tuple(self._all_names()) if self.one_hot else ()

    def _all_names(self) -> list[str]:
        """Names of all features, that of the reference among them."""
        return self._own_names() + ([f"{self.name}=<missing>"] if self.missing == "indicator" else [])

    @property
    def level_words(self) -> tuple[str, ...]:
        """The few things that a cell may be, in words, without the column's name and without missing; empty for
        numbers.
        """
        return ()

    def bare(self) -> Self:
        """The same without what is for learning alone: a filling, a reference. What is missing stays missing."""
        changed: dict[str, Any] = {} if self.left_out is None else {"reference": None}
        kept: MissingPolicy = "refuse" if self.missing == "refuse" else "indicator"
        return replace(self, missing=kept, fill=None, shares=None, **changed)

    def codes(self, cells: Cells) -> tuple[Floats, Findings]:
        """Of every cell of a `bare` column: the number of its level or, for a number, its place between the bounds as a
        share; NaN where it is missing. And what was found there.
        """
        encoded = self.encode(cells)
        return np.where(encoded.finding == Finding.INDICATED, np.nan, self._code(encoded)), encoded.finding

    def _code(self, encoded: Encoded) -> Floats:
        return encoded.place.astype(np.float64)

    def feature_names(self) -> list[str]:
        """Names of the features, in order. The features of a one-hot column are named "column=category"."""
        return [name for place, name in enumerate(self._all_names()) if place != self.left_out]

    def units(self) -> Units:
        """How its features follow from numbers and levels."""
        ones = np.ones(self.width)
        return Units(ones, np.zeros(self.width), ones, np.ones(self.width, dtype=np.bool_))

    def at_levels(self, levels: Ints) -> tuple[Places, Floats]:
        """Place and value of the non-zero feature of rows at these levels, by their numbers in `levels`."""
        return self._without_reference(levels.astype(np.int32), np.ones(len(levels)))

    def _without_reference(self, place: Places, value: Floats) -> tuple[Places, Floats]:
        """The same where the reference level has no feature. The arguments are changed."""
        if (out := self.left_out) is not None:
            value[place == out] = 0.0
            place[place == out] = 0
            place[place > out] -= 1
        return place, value

    def encode(self, cells: Cells) -> Encoded:
        """Place and value of the non-zero feature of every cell of a chunk, and what was found there."""
        place, value, finding = self._present(cells)
        missing = cells.missing()
        if missing.any():
            absent: tuple[int, float, Finding] = 0, 0.0, Finding.MISSING
            if self.missing == "row":
                absent = 0, 0.0, Finding.DROPPED
            elif self.missing == "indicator":
                absent = len(self._own_names()), 1.0, Finding.INDICATED
            elif self.missing == "fill":
                absent = *self._filling(), Finding.FILLED
            place[missing], value[missing], finding[missing] = absent
        finding[cells.unreadable()] = Finding.NOT_TEXT
        place, value = self._without_reference(place, value)
        return Encoded(place, value, finding)

    @classmethod
    @abstractmethod
    def kind(cls) -> str:
        """Name of the kind in a schema file."""

    def words(self) -> tuple[str, ...]:
        """The texts that a cell may be, where they are declared."""
        return ()

    @abstractmethod
    def wants(self) -> str:
        """What a cell should be, for messages."""

    @abstractmethod
    def mean_square(self) -> float:
        """Guess of what the column adds to a row's squared norm, for evenly spread values. Reads no row."""

    @abstractmethod
    def _check(self) -> None: ...

    @abstractmethod
    def _own_names(self) -> list[str]:
        """Names of the features without that for missing values, but with the reference level."""

    @abstractmethod
    def _present(self, cells: Cells) -> Encoded:
        """Encode all cells as if none were missing."""

    @abstractmethod
    def _filling(self) -> tuple[int, float]:
        """Place and value of the declared filling."""


def listed(levels: tuple[str, ...]) -> str:
    """The first ten names."""
    return ", ".join(levels[:10]) + (", ..." if len(levels) > 10 else "")


written(Column, "name", "kind", ..., "shares", "missing", "fill", absent=(None,))
