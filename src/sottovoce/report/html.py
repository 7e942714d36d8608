"""Web pages from templates: self-contained, figures inline, nothing fetched."""

import io
import re
from collections.abc import Sequence
from typing import NamedTuple

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup
from matplotlib.figure import Figure

from sottovoce.report.style import GRID, INK, PAPER, style

# All that comes in is text and is escaped, but for the figures, which `inline` vouches for.
_PAGES = Environment(
    loader=PackageLoader("sottovoce.report"),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
    keep_trailing_newline=True,
)


class TextTable(NamedTuple):
    """Cells of text. `numbers` are the columns to line up on the right."""

    headings: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]
    numbers: frozenset[int]


def render_page(template: str, **content: object) -> str:
    """The whole page, from a template of this package and its content."""
    return _PAGES.get_template(template).render(content)


def inline(svg: str, name: str) -> Markup:
    """An SVG file as part of a page: ids made unique, addresses dropped, ink and paper taken from the page."""
    body = svg[svg.index("<svg") :]
    body = re.sub(r"<metadata>.*?</metadata>", "", body, flags=re.DOTALL)
    body = re.sub(r'\sxmlns(:\w+)?="[^"]*"', "", body).replace("xlink:href", "href")
    body = re.sub(r'\bid="', f'id="{name}-', body)
    body = re.sub(r'href="#', f'href="#{name}-', body).replace("url(#", f"url(#{name}-")
    for colour, variable in ((INK, "var(--ink)"), (GRID, "var(--grid)"), (PAPER, "var(--paper)")):
        body = body.replace(colour, variable)
    return Markup(body.replace("<svg", '<svg role="img"', 1))


def picture(figure: Figure, kind: str) -> bytes:
    """The figure as the bytes of a file; `kind` is "svg" or "png"."""
    buffer = io.BytesIO()
    with style():
        # No date and no version: the same results give the same file.
        figure.savefig(buffer, format=kind, metadata={"Date": None, "Creator": None} if kind == "svg" else None)
    return buffer.getvalue()
