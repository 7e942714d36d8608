"""Parts of a document as HTML: the body of a page, and what a notebook shows of an object.

All text is escaped, since it may come from a stranger's file. The one thing that is not is a drawing of ours (`Svg`).
Only the standard library is needed, so that every installation has it.
"""

from collections.abc import Iterable, Iterator, Mapping
from html import escape
from re import sub

from sottovoce.document import Cell, Code, Facts, Figure, FigureRow, Folded, Part, Section, Svg, Table, Words

# For notebooks, whose own style aligns every cell on the right. Colours are theirs, light or dark.
_NOTEBOOK = """
.sottovoce table, .sottovoce dl { margin: 0.4em 0; }
.sottovoce table { border-collapse: collapse; }
.sottovoce th, .sottovoce td { text-align: left; padding: 0.15em 0.8em 0.15em 0; vertical-align: top; }
.sottovoce .whole { white-space: nowrap; }
.sottovoce .scroll { overflow-x: auto; }
.sottovoce .n { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
.sottovoce dl > div { display: flex; gap: 1em; }
.sottovoce dt { min-width: 8em; font-weight: bold; }
.sottovoce dd { margin: 0; }
.sottovoce p { margin: 0.4em 0; max-width: 52em; }
.sottovoce .soft { opacity: 0.75; }
.sottovoce .strong, .sottovoce .banner { font-weight: bold; }
.sottovoce details { margin: 0.4em 0; }
"""


def prose(text: str) -> str:
    """Escaped text in which no line ends within an option such as --out, or a number such as 1e-05."""
    return sub(r"--[\w-]+|\b[\d.]+e-\d+\b", r'<span class="whole">\g<0></span>', escape(text))


def html_of(parts: Iterable[Part]) -> str:
    """The parts in order, without a page around them. What is no part of a document is refused."""
    return "\n".join(_part(part) for part in parts)


def notebook_html(parts: Iterable[Part]) -> str:
    """The parts as the output of a cell, with a style for them and for nothing else on the page."""
    return f'<div class="sottovoce"><style>{_NOTEBOOK}</style>\n{html_of(parts)}\n</div>'


def _part(part: Part) -> str:
    match part:
        case Words(text, tone):
            return _tag("p", prose(text), **{"class": {"plain": "", "bad": "banner bad"}.get(tone, tone)})
        case Table():
            return f'<div class="scroll"><table>{"".join(_table(part))}</table></div>'
        case Facts(pairs):
            facts = (f"<div>{_tag('dt', escape(name))}{_tag('dd', prose(value))}</div>" for name, value in pairs)
            return f'<dl class="list">{"".join(facts)}</dl>'
        case Code(text):
            return _tag("pre", escape(text))
        case Figure(drawing, caption):
            drawn = drawing if isinstance(drawing, Svg) else escape(drawing)
            return _tag("figure", drawn + (_tag("figcaption", prose(caption)) if caption else ""))
        case FigureRow(figures):
            return f'<div class="pair">{html_of(figures)}</div>'
        case Folded(summary, parts):
            return _tag("details", f"{_tag('summary', escape(summary))}\n{html_of(parts)}")
        case Section(name, heading, parts):
            return _tag("section", f"{_tag('h2', escape(heading))}\n{html_of(parts)}", id=name)
    raise TypeError(f"Expected a part of a document, got {type(part).__name__}.")


def _table(table: Table) -> Iterator[str]:
    if table.headings:
        yield f"<thead>\n{_row('th', table.headings, table)}</thead>"
    yield "\n<tbody>"
    for place, row in enumerate(table.rows):
        yield _row("td", row, table, strong=place in table.strong)
    yield "</tbody>"


def _row(tag: str, cells: Iterable[Cell], table: Table, strong: bool = False) -> str:
    inner = "".join(_cell(tag, cell, place in table.numbers) for place, cell in enumerate(cells))
    return f"{_tag('tr', inner, **{'class': 'strong' if strong else ''})}\n"


def _cell(tag: str, cell: Cell, number: bool) -> str:
    text, tone = (cell, "plain") if isinstance(cell, str) else (cell.text, cell.tone)
    # Long cells may break, and have room for some words in a line; short ones stay on one line.
    room = ["wide"] if len(text) > 48 else ["w"] if len(text) > 15 else []
    classes = (["n"] if number else []) + room + ([tone] if tone != "plain" else [])
    return _tag(tag, prose(text), **{"class": " ".join(classes)})


def _tag(name: str, inner: str, **attributes: str) -> str:
    """An element around what is HTML already; attributes without a value are left out."""
    return f"<{name}{_written(attributes)}>{inner}</{name}>"


def _written(attributes: Mapping[str, str]) -> str:
    return "".join(f' {name}="{escape(value)}"' for name, value in attributes.items() if value)
