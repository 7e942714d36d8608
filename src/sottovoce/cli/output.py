"""What a command prints: documents on a terminal, JSON, remarks and a bar. Texts from files may hold anything."""

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from textwrap import fill
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sottovoce.document import Cell, Part, Table

from sottovoce import settings


class Stopped(Exception):  # noqa: N818
    """Interrupted by the user; the message says what is kept."""


def print_json(data: object, file: Any = None) -> None:
    """Print one JSON object: what `settings.plain` makes of the data."""
    print(json.dumps(settings.plain(data), indent=2, allow_nan=False), file=file)


def show(*parts: "Part | str", file: Any = None) -> None:
    """Print parts of a document, on standard output unless another file is given; a string is a paragraph. A terminal
    has no figures.
    """
    from rich.console import Console

    from sottovoce.document import Code, Facts, Folded, Section, Table, Words

    console = Console(highlight=False, file=file)
    for part in parts:
        match part:
            case str() | Words():
                # Elsewhere a paragraph is a line, however long: a program finds it whole, and an editor breaks it.
                text = _text(part)
                if console.is_terminal:
                    text.plain = fill(text.plain, console.width, break_long_words=False, break_on_hyphens=False)
                console.print(text, soft_wrap=True)
            case Table():
                console.print(_table(part))
            case Facts():
                show(*(f"{name}: {value}" for name, value in part.pairs), file=file)
            case Code():
                for line in part.text.splitlines():
                    console.print(_text(line), soft_wrap=True)
            case Folded():
                show(part.summary, *part.parts, file=file)
            case Section():
                show(Words(part.heading, "strong"), *part.parts, file=file)
    console.file.flush()


# How a terminal shows a tone; the others are plain there.
_STYLES = {"strong": "bold", "banner": "bold", "good": "green", "part": "yellow", "bad": "bold red"}


def _text(cell: "Cell") -> Any:
    """The text as it is: neither markup nor terminal commands in it have an effect."""
    from rich.text import Text

    from sottovoce.document.text import printable

    text, tone = (cell, "plain") if isinstance(cell, str) else (cell.text, cell.tone)
    return Text(printable(text), style=_STYLES.get(tone, ""))


def _table(part: "Table") -> Any:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table as Grid

    grid = Grid(box=SIMPLE_HEAD, pad_edge=False) if part.headings else Grid.grid(padding=(0, 2))
    for place in range(len(part.headings or part.rows[0])):
        justify: Any = "right" if place in part.numbers else "left"
        grid.add_column(_text(part.headings[place]) if part.headings else "", justify=justify, overflow="fold")
    for number, row in enumerate(part.rows):
        grid.add_row(*map(_text, row), style="bold" if number in part.strong else None)
    return grid


def note(text: str) -> None:
    """Print a remark for people on stderr: a program may read stdout."""
    print(f"sottovoce: note: {' '.join(text.split())}", file=sys.stderr, flush=True)


@contextmanager
def progress(quiet: bool, of: str = "round") -> Iterator[Callable[[int, int], None] | None]:
    """Yield a function that moves a progress bar; None if quiet, or where there is no terminal."""
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
