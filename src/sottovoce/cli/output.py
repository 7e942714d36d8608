"""Lines and tables for people, with texts from files that may hold anything."""

import json
import math
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal
from typing import Any

from sottovoce import settings


class Stopped(Exception):  # noqa: N818
    """Interrupted by the user; the message says what is kept."""


def print_json(data: object, file: Any = None) -> None:
    """Print one JSON object: what `settings.plain` makes of the data."""
    print(json.dumps(settings.plain(data), indent=2, allow_nan=False), file=file)


def console(file: Any = None) -> Any:
    """A console for text and tables, on standard output unless another file is given."""
    from rich.console import Console

    return Console(highlight=False, file=file)


def table(*headings: str) -> Any:
    """A table with these headings, and no lines yet."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    lines = Table(box=SIMPLE_HEAD, pad_edge=False)
    for heading in headings:
        lines.add_column(heading)
    return lines


def verbatim(text: str) -> Any:
    """Text of a stranger as it is: neither markup nor terminal commands in it have an effect."""
    from rich.text import Text

    return Text("".join(letter if letter.isprintable() else " " for letter in text))


def say(shown: Any, text: str) -> None:
    """Print a line without breaking it, however long it is."""
    shown.print(verbatim(text), soft_wrap=True)


def note(text: str) -> None:
    """Print a remark for people on stderr: a program may read stdout."""
    print(f"sottovoce: note: {' '.join(text.split())}", file=sys.stderr, flush=True)


@contextmanager
def progress(quiet: bool, of: str = "round") -> Iterator[Callable[[int, int], None] | None]:
    """A bar with the time left. Only for a terminal: in a log it would be noise."""
    from rich.console import Console

    console = Console(stderr=True)
    if quiet or not console.is_terminal:
        yield None
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn(of), MofNCompleteColumn(), BarColumn(), TimeRemainingColumn(), TextColumn("left"))
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task(of, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


def exactly(value: float) -> str:
    """A number as it was given, without a trailing .0."""
    short = f"{value:g}"
    return short if float(short) == value else repr(value)


def up(value: float) -> str:
    """Six significant digits, never rounded down: neither a cost nor a needed noise may be understated."""
    return _rounded(value, ROUND_CEILING)


def down(value: float) -> str:
    """Six significant digits, never rounded up: what is left may not be overstated."""
    return _rounded(value, ROUND_FLOOR)


def _rounded(value: float, direction: str) -> str:
    if not math.isfinite(value):
        return str(value)
    return f"{float(Context(prec=6, rounding=direction).create_decimal(Decimal(value))):g}"


def counted(number: int, what: str) -> str:
    """A number with its noun: 1 round, 2 rounds."""
    return f"{number} {what}{'' if number == 1 else 's'}"
