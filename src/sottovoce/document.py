"""What people are shown, before it is laid out: sentences, tables, figures and sections, as plain data.

A thing is described once. `cli.output` lays it out on a terminal, `studies.report.rendering` on a page, and both take
all text for that of a stranger. Programs read something else: with `--json` they get numbers, not their words.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias, final

NOTHING = "–"  # in a cell without a number
Tone = Literal["plain", "soft", "strong", "banner", "good", "part", "bad"]


@final
@dataclass(frozen=True)
class Words:
    """A paragraph, or a cell, and how it is meant.

    A banner is what must not be missed; soft is what may be; good, part and bad are how something came out.
    """

    text: str
    tone: Tone = "plain"


Cell: TypeAlias = str | Words


@final
@dataclass(frozen=True)
class Table:
    """Cells under headings, or a few columns that need none.

    Args:
        headings: of the columns; empty for none.
        rows: of cells, all as many.
        numbers: places of the columns that are lined up on the right.
        strong: places of the rows that stand out.
    """

    headings: tuple[str, ...]
    rows: Sequence[tuple[Cell, ...]]
    numbers: frozenset[int] = frozenset()
    strong: frozenset[int] = frozenset()

    def only(self, *headings: str) -> "Table":
        """The columns of these headings, in this order, for where there is no room for all."""
        kept = [self.headings.index(heading) for heading in headings]
        rows = [tuple(row[place] for place in kept) for row in self.rows]
        numbers = frozenset(new for new, place in enumerate(kept) if place in self.numbers)
        return Table(headings, rows, numbers, self.strong)


@final
@dataclass(frozen=True)
class Facts:
    """Names, each with what is to be said of it."""

    pairs: Sequence[tuple[str, str]]


@final
@dataclass(frozen=True)
class Code:
    """Text to be copied as it stands: a command, or settings."""

    text: str


@final
@dataclass(frozen=True)
class Figure:
    """A drawing, which only a page has room for: SVG that stands in a page, as `studies.report.svg.inline` makes it."""

    drawing: str
    caption: str


@final
@dataclass(frozen=True)
class Figures:
    """Small figures, side by side where there is room."""

    figures: Sequence[Figure]


@final
@dataclass(frozen=True)
class Folded:
    """What a page opens only when asked to."""

    summary: str
    parts: "Sequence[Part]"


@final
@dataclass(frozen=True)
class Section:
    """Parts under a heading. A page leads to it by its name, which no other section of the page may have."""

    name: str
    heading: str
    parts: "Sequence[Part]"


Part: TypeAlias = Words | Table | Facts | Code | Figure | Figures | Folded | Section


@final
@dataclass(frozen=True)
class Document:
    """A whole page."""

    title: str
    parts: Sequence[Part]
