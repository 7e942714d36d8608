"""Documents as web pages: self-contained, figures inline, nothing fetched. Quick to import: it draws no figure."""

import re

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from sottovoce.document import Document

# All that comes in is text and is escaped, but for what is marked as markup: figures, which `svg.inline` vouches for.
_PAGES = Environment(
    loader=PackageLoader("sottovoce.studies.report"),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
    keep_trailing_newline=True,
)


def _prose(text: str) -> Markup:
    """Escaped text in which no line ends within an option such as --out, or a number such as 1e-05."""
    return Markup(re.sub(r"--[\w-]+|\b[\d.]+e-\d+\b", r'<span class="whole">\g<0></span>', str(escape(text))))


_PAGES.filters["kind"] = lambda part: type(part).__name__
_PAGES.filters["prose"] = _prose


def page_of(document: Document) -> str:
    """A document as one HTML page."""
    return render_page("document.html.j2", title=document.title, parts=document.parts)


def render_page(template: str, **content: object) -> str:
    """HTML from a template of this package and its content: a whole page, or a part of one."""
    return _PAGES.get_template(template).render(content)


def source(template: str) -> str:
    """A file beside the templates, as it stands."""
    loader = _PAGES.loader
    assert loader is not None
    return loader.get_source(_PAGES, template)[0]
