"""Web pages from templates: self-contained, figures inline, nothing fetched. Quick to import: it draws no figure."""

from collections.abc import Sequence
from typing import NamedTuple

from jinja2 import Environment, PackageLoader, StrictUndefined

# All that comes in is text and is escaped, but for what is marked as markup: figures, which `page.inline` vouches for.
_PAGES = Environment(
    loader=PackageLoader("sottovoce.studies.report"),
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
    """The whole page, or a part of one, from a template of this package and its content."""
    return _PAGES.get_template(template).render(content)


def source(template: str) -> str:
    """A file beside the templates, as it stands."""
    loader = _PAGES.loader
    assert loader is not None
    return loader.get_source(_PAGES, template)[0]
