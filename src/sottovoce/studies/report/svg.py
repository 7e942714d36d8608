"""Figures as SVG within a page, or as the bytes of a file."""

import io
import re

from matplotlib.figure import Figure

from sottovoce.document import Svg
from sottovoce.drawing.style import GRID, INK, PAPER, style


def inline(svg: str, name: str) -> Svg:
    """An SVG file as part of a page: ids made unique, addresses dropped, ink and paper taken from the page."""
    body = svg[svg.index("<svg") :]
    body = re.sub(r"<metadata>.*?</metadata>", "", body, flags=re.DOTALL)
    body = re.sub(r'\sxmlns(:\w+)?="[^"]*"', "", body).replace("xlink:href", "href")
    body = re.sub(r'\bid="', f'id="{name}-', body)
    body = re.sub(r'href="#', f'href="#{name}-', body).replace("url(#", f"url(#{name}-")
    for colour, variable in ((INK, "var(--ink)"), (GRID, "var(--grid)"), (PAPER, "var(--paper)")):
        body = body.replace(colour, variable)
    return Svg(body.replace("<svg", '<svg role="img"', 1))


def picture(figure: Figure, kind: str) -> bytes:
    """The figure as the bytes of a file; `kind` is "svg" or "png"."""
    buffer = io.BytesIO()
    with style():
        # No date and no version: the same results give the same file.
        figure.savefig(buffer, format=kind, metadata={"Date": None, "Creator": None} if kind == "svg" else None)
    return buffer.getvalue()
