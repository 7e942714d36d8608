"""Documents as web pages: self-contained, figures inline, nothing fetched. Quick to import: it draws no figure."""

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from sottovoce.document import Document, Folded, Words
from sottovoce.document.html import html_of, prose

# All that comes in is text and is escaped; parts of a document are escaped where they become HTML.
_PAGES = Environment(
    loader=PackageLoader("sottovoce.studies.report"),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
    keep_trailing_newline=True,
)


_PAGES.filters |= {
    "kind": lambda part: type(part).__name__,
    "html": lambda parts: Markup(html_of(parts)),
    "prose": lambda text: Markup(prose(text)),
}
_PAGES.globals |= {"Folded": Folded, "Words": Words}


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
