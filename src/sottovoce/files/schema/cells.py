"""One column of one chunk of a file, as the columns of a schema see it. What reads files gives the final classes."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from sottovoce.arrays import Bools, Floats
from sottovoce.files.schema.findings import Findings

Places: TypeAlias = NDArray[np.int32]


class Cells(ABC):
    """The cells of one column in some rows. Text comes without the spaces around it."""

    @abstractmethod
    def __len__(self) -> int:
        """Number of rows in the chunk."""

    @abstractmethod
    def missing(self) -> Bools:
        """True for each cell without a value: a null, a typed NaN, or a text that is declared to mean "missing"."""

    @abstractmethod
    def unreadable(self) -> Bools:
        """True for each cell whose bytes are not UTF-8 text."""

    @abstractmethod
    def numbers(self) -> Floats:
        """The numbers; NaN where a cell is not a finite one."""

    @abstractmethod
    def days(self, order: str) -> Floats:
        """Dates as days since 1970-01-01; NaN where a cell is none. `order` is that of year, month and day: "dmy"."""

    @abstractmethod
    def places(self, words: Sequence[str], first: int | None = None) -> Places:
        """Index of each cell, or of its first characters, among these words; -1 if it is none of them."""

    @abstractmethod
    def multiline(self) -> Bools:
        """True for each text with a line break inside, as after a quote that is never closed."""

    @abstractmethod
    def are_truths(self) -> bool:
        """True if the file itself declares the column as truth values."""

    @abstractmethod
    def distinct(self) -> list[str]:
        """The different texts that occur, missing ones left out."""

    @abstractmethod
    def texts(self) -> list[str]:
        """Every cell as text, "" where it is null."""

    @abstractmethod
    def shown(self, row: int) -> str:
        """One cell as text, for messages."""


class Encoded(NamedTuple):
    """One column of a chunk, encoded: in every row at most one of the column's features is not zero."""

    place: Places  # which feature of the column
    value: Floats  # in [-1, 1]; 0 where there is nothing
    finding: Findings
