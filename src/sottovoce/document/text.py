"""Parts of a document as plain text in columns, for what Python prints. A terminal's colours and width are the
command line's (`cli.output`).
"""

from collections.abc import Iterable, Iterator
from textwrap import fill

from sottovoce.document import Cell, Code, Facts, Figure, FigureRow, Folded, Part, Section, Table, Words

WIDTH = 88  # of a paragraph, as most notebooks and terminals have it
WIDEST = 56  # of the cells in a first column; longer ones are cut, so that the numbers beside them stay on the line


def printable(text: str) -> str:
    """The text without line breaks and terminal commands, each replaced by a space: it may be a stranger's."""
    return "".join(letter if letter.isprintable() else " " for letter in text)


def text_of(parts: Iterable[Part]) -> str:
    """The parts in order, with a blank line around tables. Figures are left out, and so are folded parts."""
    found = list[str]()
    for part in parts:
        lines, apart = list(_lines(part)), isinstance(part, Table)
        if lines and found and (apart or found[-1] == ""):
            found += [] if found[-1] == "" else [""]
        found += [*lines, ""] if apart else lines
    return "\n".join(found).rstrip("\n")


def _lines(part: Part) -> Iterator[str]:
    match part:
        case Words(text):
            yield fill(printable(text), WIDTH, break_long_words=False, break_on_hyphens=False)
        case Table():
            lines = table_lines(part)
            yield from [lines[0], "-" * max(map(len, lines)), *lines[1:]] if part.headings else lines
        case Facts(pairs):
            wide = max(len(name) for name, _ in pairs) + 2
            yield from (f"{printable(name) + ':':<{wide}}{printable(value)}" for name, value in pairs)
        case Code(text):
            yield from map(printable, text.splitlines())
        case Section(_, heading, parts):
            yield printable(heading)
            yield from (line for inner in parts for line in _lines(inner))
        case Figure() | FigureRow() | Folded():
            pass


def table_lines(table: Table, widest: int = WIDEST) -> list[str]:
    """The headings, if there are any, and the rows, one line each, in columns that line up."""
    rows = [[_cell(cell) for cell in row] for row in ([table.headings] if table.headings else []) + [*table.rows]]
    first = [row[0] if len(row[0]) <= widest else f"{row[0][: widest - 3]}..." for row in rows]
    cells = [[name, *row[1:]] for name, row in zip(first, rows, strict=True)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    return ["  ".join(_aligned(cell, wide, place in table.numbers)
                      for place, (cell, wide) in enumerate(zip(row, widths, strict=True))).rstrip()
            for row in cells]  # fmt: skip


def _aligned(cell: str, wide: int, number: bool) -> str:
    return cell.rjust(wide) if number else cell.ljust(wide)


def _cell(cell: Cell) -> str:
    return printable(cell if isinstance(cell, str) else cell.text)
