"""The label of a schema: a class among declared ones, or a number between declared bounds. Times to an event, which are
read from two columns, are in `survival`.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, TypeAlias, final, get_args

import numpy as np

from sottovoce.arrays import Floats
from sottovoce.errors import expect
from sottovoce.files.schema.cells import Cells
from sottovoce.files.schema.column import Column
from sottovoce.files.schema.columns import Categorical, Numeric
from sottovoce.files.schema.findings import Finding, Findings
from sottovoce.files.schema.values import check_bounds, check_word, check_words
from sottovoce.problem.losses.scalar import LEAST_COUNT, MOST_COUNT
from sottovoce.settings import written

LabelMissing: TypeAlias = Literal["refuse", "row"]


class EncodedLabels(NamedTuple):
    """The labels of a chunk, and what was found: (rows,), or for a whole label (rows, columns that it is read from)."""

    value: Floats
    finding: Findings


@dataclass(frozen=True, kw_only=True)
class Label(ABC):
    """What is learnt of a row."""

    @property
    @abstractmethod
    def name(self) -> str:
        """The column that is learnt; of times to an event, that of the times."""

    @property
    @abstractmethod
    def parts(self) -> "tuple[ColumnLabel | Column, ...]":
        """What is read: this, from its one column, or several columns."""

    @abstractmethod
    def learnt(self, cells: Sequence[Cells]) -> EncodedLabels:
        """The labels of a chunk as numbers, from the cells of all its `parts`."""

    @abstractmethod
    def as_columns(self) -> tuple[Column, ...]:
        """The label as further columns, for what treats all columns alike."""

    @abstractmethod
    def meaning(self) -> str:
        """The label in words: the number of each class, the range, or how long rows are watched."""


@dataclass(frozen=True, kw_only=True)
class ColumnLabel(Label):
    """A label in one column. One that is missing is refused, or its row is dropped."""

    column: str
    missing: LabelMissing = "refuse"

    @property
    def name(self) -> str:
        return self.column

    @property
    def parts(self) -> "tuple[ColumnLabel, ...]":
        return (self,)

    def learnt(self, cells: Sequence[Cells]) -> EncodedLabels:
        value, finding = self.encode(cells[0])
        return EncodedLabels(value, finding[:, None])

    def as_columns(self) -> tuple[Column, ...]:
        return (self.as_column(),)

    def __post_init__(self) -> None:
        check_word("label.column", self.column)
        policies = ", ".join(get_args(LabelMissing))
        expect(self.missing in get_args(LabelMissing), f"label.missing among {policies}", missing=self.missing)
        self._check()

    def encode(self, cells: Cells) -> EncodedLabels:
        """The labels of a chunk as numbers, and what was found in each cell."""
        value, finding = self._present(cells)
        missing = cells.missing()
        value[missing] = 0.0
        finding[missing] = Finding.MISSING if self.missing == "refuse" else Finding.DROPPED
        finding[cells.unreadable()] = Finding.NOT_TEXT
        return EncodedLabels(value, finding)

    @abstractmethod
    def as_column(self) -> Column:
        """The label as one more column."""

    def words(self) -> tuple[str, ...]:
        """The texts that a cell may be, where they are declared."""
        return ()

    @abstractmethod
    def wants(self) -> str:
        """What a cell should be, for messages."""

    @abstractmethod
    def _check(self) -> None: ...

    @abstractmethod
    def _present(self, cells: Cells) -> EncodedLabels:
        """Encode all cells as if none were missing."""


@final
@dataclass(frozen=True, kw_only=True)
class ClassLabel(ColumnLabel):
    """One of two or more classes. Of two, the first is -1 and the second, the positive one, +1; of more, they are 0, 1,
    2, ...
    """

    classes: tuple[str, ...]

    @property
    def positive(self) -> str | None:
        """The second of two classes, which counts as +1; None if there are more."""
        return self.classes[1] if len(self.classes) == 2 else None

    def as_column(self) -> Column:
        return Categorical(name=self.column, missing=self.missing, categories=self.classes)

    def words(self) -> tuple[str, ...]:
        return self.classes

    def wants(self) -> str:
        return f"one of the classes {', '.join(self.classes[:5])}{', ...' if len(self.classes) > 5 else ''}"

    def meaning(self) -> str:
        shown = [f"{name} is {value:+g}" for name, value in zip(self.classes[:20], self.values, strict=False)]
        return ", ".join(shown) + (", ..." if len(self.classes) > 20 else "")

    @property
    def values(self) -> Floats:
        """The number that stands for each class, in the order of `classes`."""
        return np.array([-1.0, 1.0]) if len(self.classes) == 2 else np.arange(float(len(self.classes)))

    def _check(self) -> None:
        check_words("label.classes", self.classes, at_least=2)

    def _present(self, cells: Cells) -> EncodedLabels:
        place = cells.places(self.classes)
        finding = np.where(place < 0, Finding.UNKNOWN, Finding.FITS).astype(np.uint8)
        return EncodedLabels(self.values[np.maximum(place, 0)], finding)


written(ClassLabel, "column", "classes", "positive", "missing", absent=(None,))


def positive_last(classes: tuple[str, ...], positive: str | None) -> tuple[str, ...]:
    """Two classes in the order that makes one of them the positive one."""
    if positive is None:
        return classes
    expect(len(classes) == 2, f"label.positive with two classes only, got {len(classes)} and", positive=positive)
    expect(positive in classes, "label.positive among label.classes", positive=positive, classes=list(classes))
    return classes if classes[1] == positive else classes[::-1]


@final
@dataclass(frozen=True, kw_only=True)
class NumberLabel(ColumnLabel):
    """A number in its own units. What lies outside the bounds is moved to the nearest bound.

    Args:
        counts: True if it says how often something happened, to be learnt by the logarithm of its mean.
    """

    bounds: tuple[float, float]
    counts: bool = False

    def as_column(self) -> Column:
        return Numeric(name=self.column, missing=self.missing, bounds=self.bounds, scale="unit")

    def wants(self) -> str:
        return "a number"

    def meaning(self) -> str:
        return f"a {'count' if self.counts else 'number'} from {self.bounds[0]:g} to {self.bounds[1]:g}"

    def _check(self) -> None:
        check_bounds("label.bounds", self.bounds)
        fine = not self.counts or (self.bounds[0] == 0 and LEAST_COUNT <= self.bounds[1] <= MOST_COUNT)
        expect(fine, f"label.bounds from 0 to {LEAST_COUNT:g} .. {MOST_COUNT:g} with counts = true", bounds=self.bounds)

    def _present(self, cells: Cells) -> EncodedLabels:
        x = cells.numbers()
        unknown, outside = np.isnan(x), (x < self.bounds[0]) | (x > self.bounds[1])
        finding = np.where(outside, Finding.CLIPPED, Finding.FITS).astype(np.uint8)
        finding[unknown] = Finding.NOT_A_NUMBER
        return EncodedLabels(np.clip(np.where(unknown, self.bounds[0], x), *self.bounds), finding)


written(NumberLabel, "column", "bounds", "counts", "missing", absent=(False,))
