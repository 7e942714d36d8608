"""Base class of the columns of a schema: a name, features, and a policy for missing values."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Literal, TypeAlias, get_args

from sottovoce.errors import InputError, expect
from sottovoce.files.schema.cells import Cells, Encoded
from sottovoce.files.schema.findings import Finding
from sottovoce.files.schema.values import check_word
from sottovoce.settings import written

MissingPolicy: TypeAlias = Literal["refuse", "row", "indicator", "fill"]
Fill: TypeAlias = float | str | bool


@dataclass(frozen=True, kw_only=True)
class Column(ABC):
    """One column of the file and what becomes of its cells."""

    name: str
    missing: MissingPolicy = "refuse"
    fill: Fill | None = None

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

    def feature_names(self) -> list[str]:
        """Names of the features, in order. The features of a one-hot column are named "column=category"."""
        names = self._own_names() + ([f"{self.name}=<missing>"] if self.missing == "indicator" else [])
        return [name for place, name in enumerate(names) if place != self.left_out]

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
        if (out := self.left_out) is not None:
            value[place == out] = 0.0
            place[place == out] = 0
            place[place > out] -= 1
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


written(Column, "name", "kind", ..., "missing", "fill", absent=(None,))
