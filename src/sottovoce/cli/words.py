"""Lines and tables for people, with texts from files that may hold anything."""

import json
from typing import Any


def print_json(data: dict[str, Any], file: Any = None) -> None:
    """One JSON object."""
    print(json.dumps(data, indent=2, allow_nan=False), file=file)


def console(file: Any = None) -> Any:
    """Where people read; standard output unless another file is given."""
    from rich.console import Console

    return Console(highlight=False, file=file)


def table(*headings: str) -> Any:
    """An empty table."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    lines = Table(box=SIMPLE_HEAD, pad_edge=False)
    for heading in headings:
        lines.add_column(heading)
    return lines


def plain(text: str) -> Any:
    """Names from a file, never taken for markup or for terminal commands."""
    from rich.text import Text

    return Text("".join(letter if letter.isprintable() else " " for letter in text))


def say(shown: Any, text: str) -> None:
    """A line, however long."""
    shown.print(plain(text), soft_wrap=True)
