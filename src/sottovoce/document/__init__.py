"""Documents for people, before layout: paragraphs, tables, figures and sections as plain data.

Each document is described once. `cli.output` lays it out on a terminal, `text` as plain text and `html` as HTML, within
the pages of `studies.report.rendering` and in notebooks. All of them escape its text as untrusted. With `--json`,
programs get numbers instead.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias, final

NOTHING = "–"  # in a cell without a number
Tone = Literal["plain", "soft", "strong", "banner", "good", "part", "bad"]


@final
@dataclass(frozen=True)
class Words:
    """A paragraph or a cell, with its tone.

    A banner must not be overlooked, a soft text may be; good, part and bad mark how a check came out.
    """

    text: str
    tone: Tone = "plain"


Cell: TypeAlias = str | Words


@final
@dataclass(frozen=True)
class Table:
    """A table of cells, with or without headings.

    Args:
        headings: one for each column; empty for none.
        rows: the cells, as many in each row.
        numbers: indices of the columns that are aligned on the right.
        strong: indices of the rows that are emphasised.
    """

    headings: tuple[str, ...]
    rows: Sequence[tuple[Cell, ...]]
    numbers: frozenset[int] = frozenset()
    strong: frozenset[int] = frozenset()

    def only(self, *headings: str) -> "Table":
        """The columns with these headings, in this order, for narrow outputs."""
        kept = [self.headings.index(heading) for heading in headings]
        rows = [tuple(row[place] for place in kept) for row in self.rows]
        numbers = frozenset(new for new, place in enumerate(kept) if place in self.numbers)
        return Table(headings, rows, numbers, self.strong)


@final
@dataclass(frozen=True)
class Facts:
    """Names with their values, one pair to a line."""

    pairs: Sequence[tuple[str, str]]


@final
@dataclass(frozen=True)
class Code:
    """Text to be copied verbatim: a command, or settings."""

    text: str


@final
class Svg(str):
    """A drawing that was made here, as `studies.report.svg.inline` makes it: HTML as it stands, not to be escaped."""

    __slots__ = ()


@final
@dataclass(frozen=True)
class Figure:
    """A drawing, shown on pages only: an `Svg`. Any other text is escaped."""

    drawing: str
    caption: str = ""


@final
@dataclass(frozen=True)
class FigureRow:
    """Small figures, shown side by side where the page is wide enough."""

    figures: Sequence[Figure]


@final
@dataclass(frozen=True)
class Folded:
    """Parts that a page shows only after a click on the summary."""

    summary: str
    parts: "Sequence[Part]"


@final
@dataclass(frozen=True)
class Section:
    """Parts under a heading. The name is the section's anchor, and must be unique in its document."""

    name: str
    heading: str
    parts: "Sequence[Part]"


Part: TypeAlias = Words | Table | Facts | Code | Figure | FigureRow | Folded | Section


@final
@dataclass(frozen=True)
class Document:
    """A document: a title, and its parts in order."""

    title: str
    parts: Sequence[Part]
