"""Checks of single values of a schema: finite numbers, rising bounds, clean texts."""

from math import inf, isfinite

from sottovoce.errors import InputError, expect
from sottovoce.settings import brief

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
    """Refuse bounds that are not two finite, rising numbers with a finite difference."""
    low, high = bounds
    fine = -inf < low < high < inf and isfinite(high - low)
    expect(fine, f"{path} = [low, high] to be finite with low < high", bounds=list(bounds))


def check_words(path: str, words: tuple[str, ...], at_least: int) -> None:
    """Refuse fewer texts than `at_least`, equal ones, and any that `check_word` refuses."""
    expect(len(words) >= at_least, f"{path} to hold at least {at_least}", count=len(words))
    seen: set[str] = set()
    for word in words:
        check_word(path, word)
        if word in seen:
            raise InputError(f"Expected {path} to be different from each other, got {brief(word)} twice.")
        seen.add(word)


def check_word(path: str, word: str) -> None:
    """Refuse a text that no cell can equal: cells are read as UTF-8 and without the spaces around them."""
    if not word or word != word.strip():
        raise InputError(f"Expected {path} to be text without spaces around it, not empty, got {brief(word)}.")
    try:
        word.encode()
    except UnicodeEncodeError:
        raise InputError(f"Expected {path} to be text that UTF-8 can hold, got {brief(word)}.") from None
