"""Checks of single values of a schema: finite numbers, rising bounds, clean texts."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from math import inf, isfinite
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from sottovoce.arrays import Bools, Floats
from sottovoce.errors import InputError, expect
from sottovoce.files.schema.findings import Findings
from sottovoce.settings import brief

__all__ = ["EMPTY_WORDS", "brief", "check_bounds", "check_word", "check_words", "number"]

# What files say for "no value", in lower case. A draft counts them as missing; elsewhere they are only recognised.
EMPTY_WORDS = ("", "?", "na", "n/a", "nan", "null", "none", "<na>", "#n/a", "nil")


def number(value: object) -> float | None:
    """A value as a finite float; None if it is none. True and False are no numbers."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        x = float(value)
    except OverflowError:
        return None
    return x + 0.0 if isfinite(x) else None  # -0.0 becomes 0.0: one number, one digest


def check_bounds(path: str, bounds: tuple[float, float]) -> None:
    """Two finite numbers, rising, with a finite difference."""
    low, high = bounds
    fine = -inf < low < high < inf and isfinite(high - low)
    expect(fine, f"{path} = [low, high] to be finite with low < high", bounds=list(bounds))


def check_words(path: str, words: tuple[str, ...], at_least: int) -> None:
    """Different, clean texts."""
    expect(len(words) >= at_least, f"{path} to hold at least {at_least}", count=len(words))
    seen: set[str] = set()
    for word in words:
        check_word(path, word)
        if word in seen:
            raise InputError(f"Expected {path} to be different from each other, got {brief(word)} twice.")
        seen.add(word)


def check_word(path: str, word: str) -> None:
    """A text that a cell can equal: cells are read as UTF-8 and without the spaces around them."""
    if not word or word != word.strip():
        raise InputError(f"Expected {path} to be text without spaces around it, not empty, got {brief(word)}.")
    try:
        word.encode()
    except UnicodeEncodeError:
        raise InputError(f"Expected {path} to be text that UTF-8 can hold, got {brief(word)}.") from None


# -- cells ------------------------------------------------------------------------------------------------------------
# One column of one chunk of a file, as the columns of a schema see it. What reads files gives the final classes.

Places: TypeAlias = NDArray[np.int32]


class Cells(ABC):
    """The cells of one column in some rows. Text comes without the spaces around it."""

    @abstractmethod
    def __len__(self) -> int:
        """How many rows."""

    @abstractmethod
    def missing(self) -> Bools:
        """Where there is no value: a null, a typed NaN, or a text that is declared to mean "missing"."""

    @abstractmethod
    def unreadable(self) -> Bools:
        """Where the bytes are not text."""

    @abstractmethod
    def numbers(self) -> Floats:
        """The numbers; NaN where a cell is not a finite one."""

    @abstractmethod
    def days(self, order: str) -> Floats:
        """Dates as days since 1970-01-01; NaN where a cell is none. `order` is that of year, month and day: "dmy"."""

    @abstractmethod
    def places(self, words: Sequence[str], first: int | None = None) -> Places:
        """Where each cell, or its first so many characters, stands among these words; -1 if it is none of them."""

    @abstractmethod
    def multiline(self) -> Bools:
        """Where a text has a line break inside, as after a quote that is never closed."""

    @abstractmethod
    def are_truths(self) -> bool:
        """Whether the file says of itself that the column holds truth values."""

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
