"""The documentation's site: `make docs` builds it into `site`, and ends with an error where anything is amiss.

Pages are plain Markdown. What is public is read off the package; its docstrings are plain text with `code` in them.
"""

import inspect
import json
import re
from collections.abc import Iterator
from itertools import groupby
from typing import Any

from docutils.nodes import document
from myst_parser.parsers.sphinx_ import MystParser
from sphinx.application import Sphinx
from sphinx.ext.napoleon import GoogleDocstring
from sphinx.util import logging

project = "sottovoce"
copyright = "the sottovoce developers"
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx_copybutton"]
html_theme = "furo"
html_title = "sottovoce"
html_static_path = ["_static"]
html_css_files = ["narrow.css"]
html_show_sphinx = False
html_copy_source = False

# Pages read here as they do where sources are shown: what only MyST knows is off, but for directives.
myst_disable_syntax = ["myst_line_comment", "myst_block_break", "myst_target", "myst_role"]
myst_heading_anchors = 4

smartquotes_action = "D"  # dashes; a prime is no apostrophe
highlight_language = "none"
default_role = "code"
add_module_names = False
autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
autodoc_preserve_defaults = True
python_maximum_signature_line_length = 88
python_use_unqualified_type_names = True

NAVIGATION = {
    "Tutorial": ["tutorial/first-model", "tutorial/notebook"],
    "How-to": [
        "how-to/schema",
        "how-to/estimators",
        "how-to/coefficients",
        "how-to/budget",
        "how-to/export",
        "how-to/evaluate",
        "how-to/describe",
        "how-to/survival",
        "how-to/federation",
        "how-to/masked-federation",
        "how-to/run-a-site",
        "how-to/simulate",
        "how-to/large-networks",
        "how-to/add-an-algorithm",
        "how-to/add-an-analysis",
    ],
    "Explanation": [
        "explanation/guarantee",
        "explanation/pitfalls",
        "explanation/audit",
        "explanation/planner",
        "explanation/unequal",
        "explanation/ledger",
        "design",
        "map",
        "notation",
        "results",
        "benchmarks",
    ],
    "Proofs": [
        "proofs/README",
        "proofs/ipadmm",
        "proofs/gaussian",
        "proofs/sampling",
        "proofs/discrete-gaussian",
        "proofs/books",
        "proofs/selection",
        "proofs/places",
        "proofs/people",
        "proofs/rows",
        "proofs/norms",
        "proofs/softmax",
        "proofs/poisson",
        "proofs/masked",
        "proofs/inference",
        "proofs/hazards",
        "proofs/evaluation",
        "proofs/tables",
        "proofs/laplace",
        "proofs/objective-perturbation",
        "proofs/dpadmm",
        "proofs/pvp",
        "proofs/dvp",
        "proofs/madmm",
        "proofs/radmm",
        "proofs/fixedpoint",
        "proofs/dpdsgd",
        "proofs/averaged",
        "proofs/ryukim",
    ],
    "Reference": [
        "reference/sottovoce",
        "reference/algorithms",
        "reference/privacy",
        "reference/estimators",
        "reference/datasets",
        "reference/losses",
        "reference/graphs",
        "reference/regularisers",
        "reference/schema",
        "reference/models",
        "reference/tally",
        "reference/tables",
        "reference/plan",
    ],
}

ARRAY = re.compile(r"[\w.~]*ndarray\[tuple\[[\w.~]*Any, \.\.\.\], [\w.~]*dtype\[[\w.~]+\]\]")
LOGGER = logging.getLogger(__name__)
ROW = re.compile(r" *\\\| .* \\\|$")  # of a Markdown table, escaped
LONGEST = 36  # letters that are kept on one line: those of a telephone
HEADING = re.compile(r"[A-Z]\w+:$")
ARGUMENTS = re.compile(r"^Args:\n((?:    .*\n|\n)+)", flags=re.MULTILINE)
NAMED = re.compile(r"^    ([\w*]+(?:, [\w*]+)*):", flags=re.MULTILINE)


class Notebook(MystParser):
    """Shows a notebook as a page: its text, its code, and the outputs that are stored in it. Nothing is run."""

    supported = ("notebook",)

    def parse(self, inputstring: str, document: document) -> None:
        """Read the cells as Markdown."""
        cells = json.loads(inputstring)["cells"]
        super().parse("\n\n".join(part for cell in cells for part in markdown_of(cell)), document)


def markdown_of(cell: dict[str, Any]) -> Iterator[str]:
    """A cell of a notebook, and what it has put out: HTML where there is some, else pictures or plain text."""
    source = "".join(cell["source"])
    if cell["cell_type"] == "markdown":
        yield source
        return
    yield f"```python\n{source}\n```"
    for output in cell["outputs"]:
        data = output.get("data", {"text/plain": output.get("text", "")})
        if "text/html" in data:
            yield raw("".join(data["text/html"]))
        elif "image/png" in data:
            picture = "".join(data["image/png"]).replace("\n", "")
            yield raw(f'<img alt="what the cell above draws" src="data:image/png;base64,{picture}">')
        else:
            yield f"```{{code-block}} text\n:class: output\n\n{''.join(data['text/plain'])}\n```"


def raw(html: str) -> str:
    """HTML as it stands, scrolled where it is wider than the page."""
    return f'````{{raw}} html\n<div class="output">\n{html}\n</div>\n````'


def add_navigation(app: Sphinx, page: str, source: list[str]) -> None:
    """Put the list of pages behind the text of the front page, where only the site has it."""
    if page == "index":
        for caption, pages in NAVIGATION.items():
            source[0] += "\n".join(["\n```{toctree}", ":hidden:", f":caption: {caption}", "", *pages, "```\n"])


def check_arguments(app: Sphinx, what: str, name: str, thing: Any, options: Any, lines: list[str]) -> None:
    """Warn of arguments that a docstring describes and its function does not take."""
    found = ARGUMENTS.search("\n".join(lines) + "\n")
    if found is None:
        return
    taken = {parameter.lstrip("*") for parameter in inspect.signature(thing).parameters}
    for described in NAMED.findall(found[1]):
        for parameter in described.split(", "):
            if parameter.lstrip("*") not in taken:
                LOGGER.warning("%s: its docstring describes an argument %r, which it does not take", name, parameter)


def translate(app: Sphinx, what: str, name: str, thing: Any, options: Any, lines: list[str]) -> None:
    """Make reStructuredText of a docstring: |r|, coef_ and a*b are no markup, and indented lines stay lines."""
    if what == "module":  # cleaning takes the indentation of a list that ends the text for that of the text
        lines[:] = (thing.__doc__ or "").splitlines()
    before, block = "", False
    written: list[str] = []
    for line in lines:
        if line.startswith("    ") and not before.strip() and written and not block:
            last = next((other for other in reversed(written) if other.strip()), "")
            block = not (HEADING.match(last) or last.startswith(" "))
            if block:
                written += ["::", ""]
        elif line.strip() and not line.startswith(" "):
            block = False
        parts = re.split(r"(`[^`]*`)", line)
        if not block:
            parts[::2] = [re.sub(r"([|*]|(?<=\w)_(?!\w))", r"\\\1", part) for part in parts[::2]]
        written.append("".join(parts))
        before = line
    written = laid_out(written)
    # "method", since of a property what stands before a colon would be taken for its type.
    lines[:] = GoogleDocstring(written, what="class" if what == "class" else "method").lines()


def laid_out(written: list[str]) -> list[str]:
    """The lines of a docstring, its Markdown tables as those of reStructuredText."""
    found: list[str] = []
    for table, lines in groupby(written, key=lambda line: bool(ROW.match(line))):
        if not table:
            found += lines
            continue
        first, _, *others = lines
        margin = first[: len(first) - len(first.lstrip())]
        found += [f"{margin}.. list-table::", f"{margin}   :header-rows: 1", ""]
        for line in (first, *others):
            cells = re.split(r" \\\| ", line.strip()[3:-3])
            found += [f"{margin}   {'  - ' if i else '* - '}{cell}" for i, cell in enumerate(cells)]
        found.append("")
    return found


def keep_words_whole(app: Sphinx, page: str, template: str, context: dict[str, Any], doctree: Any) -> None:
    """Let no line of code end within an option such as --out: lines end at spaces, and in a path behind a slash."""
    if "body" in context:
        text = re.sub(r"(?s)<pre>.*?</pre>", lambda found: _each_word(found[0]), context["body"])
        context["body"] = re.sub(r'(?<=<span class="pre">)[^<]+', lambda found: _by_slashes(found[0]), text)


def _each_word(code: str) -> str:
    """Highlighted code, with the words that have a hyphen in one piece."""
    parts = re.split("(<[^>]*>)", code)
    parts[::2] = [re.sub(r"\S*-\S*", lambda found: _whole(found[0]), part) for part in parts[::2]]
    return "".join(parts)


def _by_slashes(word: str) -> str:
    return "<wbr>".join(_whole(part) for part in re.findall("[^/]*/|[^/]+", word))


def _whole(word: str) -> str:
    return f'<span class="whole">{word}</span>' if len(word) <= LONGEST else word


def skip(app: Sphinx, what: str, name: str, thing: Any, skipped: bool, options: Any) -> bool | None:
    """True for fields of named tuples, whose docstrings Python has made."""
    return True if str(thing.__doc__).startswith("Alias for field number") else None


def shorten(app: Sphinx, what: str, name: str, thing: Any, options: Any, taken: str | None, given: str | None) -> Any:
    """The signature with `ndarray` for arrays of whatever shape and kind."""
    return tuple(text and ARRAY.sub("ndarray", text) for text in (taken, given))


def setup(app: Sphinx) -> None:
    """Called by Sphinx."""
    app.add_source_suffix(".ipynb", "notebook")
    app.add_source_parser(Notebook)
    app.connect("source-read", add_navigation)
    app.connect("autodoc-skip-member", skip)
    app.connect("autodoc-process-signature", shorten)
    app.connect("autodoc-process-docstring", check_arguments)
    app.connect("autodoc-process-docstring", translate)
    app.connect("html-page-context", keep_words_whole)
