"""Errors and warnings of this library.

Every message says what was expected, what came (name=value) and, where it helps, what to do about it. The command
line prints such an error as one line; anything else that escapes is a bug.
"""

from collections.abc import Iterator
from contextlib import contextmanager


class SottovoceError(Exception):
    """Base of every error that this library raises on purpose."""


class InputError(SottovoceError, ValueError):
    """A value from outside is not valid: data, a graph, a hyper-parameter, an option, a file."""


class PrivacyError(SottovoceError):
    """Going on would break the promised guarantee."""


class BudgetError(PrivacyError):
    """A release would cost more than is left of a budget. Nothing was computed, and nothing was spent."""


class UnsupportedError(SottovoceError, NotImplementedError):
    """A solver or an accountant needs something that its argument does not offer."""


class PrivacyLeakWarning(UserWarning):
    """A public setting was computed from private rows, because the caller asked for it. The guarantee does not cover
    that.
    """


def expect(condition: bool, expected: str, advice: str = "", /, **came: object) -> None:
    """Raise `InputError` unless the condition holds: "Expected <expected>, got name=value. <advice>."."""
    if not condition:
        values = ", ".join(f"{name}={value!r}" for name, value in came.items())
        raise InputError(f"Expected {expected}, got {values}.{f' {advice}.' if advice else ''}")


@contextmanager
def naming(**where: object) -> Iterator[None]:
    """Add to every `InputError` raised in this block where the value came from: "... In config='a.toml'."."""
    try:
        yield
    except InputError as error:
        places = ", ".join(f"{name}={str(place)!r}" for name, place in where.items())
        raise InputError(f"{error} In {places}.") from error
