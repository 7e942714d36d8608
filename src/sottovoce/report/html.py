"""Parts of a self-contained web page: its own style, light or dark, figures inline, nothing fetched."""

import io
import re
from collections.abc import Iterable, Sequence
from html import escape
from typing import NamedTuple

from matplotlib.figure import Figure

from sottovoce.report.style import GRID, INK, PAPER, style

_CSS = """
:root { color-scheme: light dark; --paper: #fefefe; --ink: #1b1f27; --soft: #5a6270; --grid: #d9dde3; --card: #f5f6f8;
  --good: #00634a; --part: #7a5200; --bad: #a33c00; }
@media (prefers-color-scheme: dark) { :root { --paper: #14171c; --ink: #e6e8ec; --soft: #a3abb8; --grid: #363c47;
  --card: #1d2128; --good: #4fd0a8; --part: #f0b94a; --bad: #ff9d6b; } }
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 2rem 1.25rem 4rem; max-width: 70rem; background: var(--paper); color: var(--ink);
  font: 16px/1.55 system-ui, -apple-system, "Segoe UI", Roboto, sans-serif; }
h1 { font-size: 1.7rem; line-height: 1.25; margin: 0 0 .4rem; } h2 { font-size: 1.2rem; margin: 2.6rem 0 .6rem; }
p, li { max-width: 46rem; } .soft, figcaption { color: var(--soft); font-size: .875rem; }
figure { margin: 0 0 1rem; } figure svg { width: 100%; height: auto; max-width: 54rem; display: block; }
figcaption { max-width: 46rem; margin-top: .4rem; }
.scroll { overflow-x: auto; margin: .6rem 0 1rem; }
table { border-collapse: collapse; font-size: .84rem; font-variant-numeric: tabular-nums; }
th, td { padding: .34rem .7rem .34rem 0; text-align: left; vertical-align: top; border-bottom: 1px solid var(--grid); }
th { font-weight: 600; color: var(--soft); vertical-align: bottom; } th.n, td.n { text-align: right; }
td.n { white-space: nowrap; } td:not(.n) { min-width: 6.4rem; }
.holds, .won { color: var(--good); font-weight: 600; } .only, .partly { color: var(--part); font-weight: 600; }
.fails, .lost { color: var(--bad); font-weight: 600; }
.banner { background: var(--card); border-left: 4px solid var(--part); padding: .7rem 1rem; margin: 1rem 0; }
details { margin: .5rem 0; } summary { cursor: pointer; } code, pre { font: .85rem ui-monospace, Consolas, monospace; }
pre { background: var(--card); padding: .8rem 1rem; overflow-x: auto; }
nav a { margin-right: .9rem; white-space: nowrap; } a { color: inherit; }
@media print { body { max-width: none; } details { display: block; } }
"""
_CLASSES = {
    "holds": "holds",
    "holds only if": "only",
    "does not hold": "fails",
    "not shown": "only",
    "won": "won",
    "lost": "lost",
}


class TextTable(NamedTuple):
    """Cells of text. `numbers` are the columns to line up on the right."""

    headings: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]
    numbers: frozenset[int]


def document(title: str, body: Iterable[str]) -> str:
    """The whole page."""
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title><style>{_CSS}</style></head>\n<body>\n" + "\n".join(body) + "\n</body></html>\n"
    )


def table(content: TextTable) -> str:
    """A table whose numbers line up."""

    def mark(place: int, text: str) -> str:
        names = ["n"] if place in content.numbers else []
        names += [name for word, name in _CLASSES.items() if text == word or text.startswith(f"{word}:")]
        return f' class="{" ".join(names)}"' if names else ""

    head = "".join(f"<th{mark(i, '')}>{escape(text)}</th>" for i, text in enumerate(content.headings))
    rows = "".join(
        "<tr>" + "".join(f"<td{mark(i, text)}>{escape(text)}</td>" for i, text in enumerate(row)) + "</tr>"
        for row in content.rows
    )
    return f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table></div>'


def inline(svg: str, name: str) -> str:
    """An SVG file as part of a page: ids made unique, addresses dropped, ink and paper taken from the page."""
    body = svg[svg.index("<svg") :]
    body = re.sub(r"<metadata>.*?</metadata>", "", body, flags=re.DOTALL)
    body = re.sub(r'\sxmlns(:\w+)?="[^"]*"', "", body).replace("xlink:href", "href")
    body = re.sub(r'\bid="', f'id="{name}-', body)
    body = re.sub(r'href="#', f'href="#{name}-', body).replace("url(#", f"url(#{name}-")
    for colour, variable in ((INK, "var(--ink)"), (GRID, "var(--grid)"), (PAPER, "var(--paper)")):
        body = body.replace(colour, variable)
    return body.replace("<svg", '<svg role="img"', 1)


def picture(figure: Figure, kind: str) -> bytes:
    """The figure as SVG or PNG."""
    buffer = io.BytesIO()
    with style():
        # No date and no version: the same results give the same file.
        figure.savefig(buffer, format=kind, metadata={"Date": None, "Creator": None} if kind == "svg" else None)
    return buffer.getvalue()
