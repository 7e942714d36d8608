"""The pages, and the site that is built of them: every link leads somewhere, nothing is swallowed or fetched."""

import re
import subprocess
import sys
from html.parser import HTMLParser
from importlib.util import find_spec
from inspect import isclass, ismodule, isroutine
from pathlib import Path

import pytest

import sottovoce
from helpers.browser import BROWSER, PHONE, Browser, fits

ROOT = Path(__file__).parents[2]
MODULES = [name for name in sottovoce.__all__ if ismodule(getattr(sottovoce, name))]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
LINK = re.compile(r"\]\((?!https?:|#)([^)#\s]+)")
ITEM = re.compile(r"(?:[-*+]|\d+\.) ")
TAGS = """
html head meta link title script style body header footer main nav article section aside div span p a em strong small
code pre h1 h2 h3 h4 h5 h6 ul ol li dl dt dd table thead tbody tr th td blockquote details summary hr br img svg path
form input label button abbr noscript symbol use circle line polyline wbr colgroup col
"""


@pytest.mark.parametrize(
    "page", ["README.md", "docs/index.md", "src/sottovoce/__init__.py", "src/sottovoce/cli/app.py"]
)
def test_nobody_says_that_masked_messages_are_private_by_themselves(page):
    text = " ".join((ROOT / page).read_text(encoding="utf-8").replace("*", "").split())
    assert not re.search(r"([Aa]ll that (it|a site) ever (says|sends)|[Ee]verything that a site sends) is", text)
    assert re.search(r"With masked sums, only sums over all sites are private\. Single messages are not: ", text)


def name_of(page):
    return str(page.relative_to(ROOT))


def prose(text):
    """Numbered lines outside of fenced and indented code, each with the line before it."""
    fenced, before = False, ""
    for number, line in enumerate(text.splitlines(), 1):
        if line.startswith("```"):
            fenced = not fenced
        elif not fenced and not line.startswith("    "):
            yield number, line, before
        before = line


def swallowed(text):
    """Lines that one Markdown takes for text and another for a list or a quotation, and what looks like a tag.

    Where sources are shown they are read as CommonMark. Other readers of Markdown want a blank line before a list.
    """
    for number, line, before in prose(text):
        goes_on = not before.strip() or before.startswith(("<!--", "#", "  ")) or ITEM.match(before)
        if ITEM.match(line) and not goes_on:
            yield f"line {number}: a list needs a blank line before it"
        if line.startswith(">") and not line.startswith("> "):
            yield f"line {number}: a comparison at the start of a line becomes a quotation"
        if re.search(r"<[a-zA-Z]", re.sub(r"`[^`]*`|<https?:[^>]*>", "", line)):
            yield f"line {number}: '<' before a letter becomes a tag; write ⟨ ⟩ or code"


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_pages_read_the_same_everywhere(page):
    assert list(swallowed(page.read_text(encoding="utf-8"))) == []


def test_what_is_swallowed_is_seen():
    text = "Mind that\n- a\n- b\n\nSo for all eps\n>= 0 and <a, w>\n\n```\n>= <b\n```\n\n- one\n- two `<x>`\n"
    assert [line.split(":")[0] for line in swallowed(text)] == ["line 2", "line 6", "line 6"]


def test_the_readme_is_short():
    assert len((ROOT / "README.md").read_text(encoding="utf-8").split()) <= 900


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_lead_somewhere(page):
    for target in LINK.findall(page.read_text(encoding="utf-8")):
        assert (page.parent / target).exists(), f"{name_of(page)} points to {target}, which is not there"


def test_every_public_module_has_a_page():
    pages = {page.stem for page in (ROOT / "docs" / "reference").glob("*.md")}
    assert pages == {"sottovoce", *MODULES}


class Seen(HTMLParser):
    """Tags of a page, what it loads, and its text."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.loads, self.ids = set(), set(), set()
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.add(tag)
        for name, value in attrs:
            if name == "src" or (name == "href" and tag == "link"):
                self.loads.add(value)
            if name == "id":
                self.ids.add(value)


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """The folder of the built site. Strict: links, anchors and pages outside the navigation end it."""
    if any(find_spec(name) is None for name in ("sphinx", "furo", "myst_parser", "sphinx_copybutton")):
        pytest.skip("Sphinx is not installed: pip install --group docs")
    place = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [sys.executable, "-m", "sphinx", "-qW", "--keep-going", "-d", tmp_path_factory.mktemp("read"), "docs", place],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return place


@pytest.fixture(scope="module")
def site(built):
    """The built site, by path."""
    return {str(path.relative_to(built)): Seen(path.read_text(encoding="utf-8")) for path in built.rglob("*.html")}


def test_nothing_is_fetched_from_elsewhere(site):
    assert len(site) > 40
    for path, seen in site.items():
        assert not [address for address in seen.loads if re.match(r"(?:https?:)?//", address)], path


def test_no_text_became_a_tag(site):
    for path, seen in site.items():
        assert seen.tags <= set(TAGS.split()), path


def test_a_table_of_a_docstring_is_a_table(built):
    text = (built / "reference" / "sottovoce.html").read_text(encoding="utf-8")
    assert re.search(r"<td>\s*<p>NaN or infinity in a row or a label</p>\s*</td>", text)
    for page in (built / "reference").glob("*.html"):
        assert "| —" not in page.read_text(encoding="utf-8"), page.name  # a line below a heading, as dashes


def test_no_line_of_code_ends_within_an_option(built):
    text = (built / "tutorial" / "first-model.html").read_text(encoding="utf-8")
    assert '<span class="whole">--test-data</span>' in text
    paths = (built / "map.html").read_text(encoding="utf-8")
    assert '<span class="whole">problem/</span><wbr><span class="whole">sites.py</span>' in paths


@pytest.mark.skipif(not BROWSER, reason="needs Chromium, which is not a Python package")
def test_pages_fit_a_telephone(built, tmp_path):
    pages = ("index", "tutorial/first-model", "how-to/schema", "map", "results", "reference/sottovoce", "genindex")
    with Browser(tmp_path / "profile") as browser:
        for page in pages:
            seen = browser.look((built / f"{page}.html").as_uri(), PHONE)
            assert fits(seen, PHONE), (page, seen)
            # Only a terminal's tables are wider than their block of code.
            wide = "[...document.querySelectorAll('pre')].filter((one) => one.scrollWidth > one.clientWidth + 1)"
            assert browser.value(f"{wide}.every((one) => one.closest('.highlight-text'))"), page


def test_the_reference_names_all_that_is_public(site):
    for name in MODULES:
        module = getattr(sottovoce, name)
        names = getattr(module, "__all__", None) or [key for key in vars(module) if not key.startswith("_")]
        own = {key for key in names if getattr(getattr(module, key), "__module__", "").startswith(module.__name__)}
        shown = {word.split(".")[-1] for word in site[f"reference/{name}.html"].ids if word.startswith(module.__name__)}
        assert {key for key in own if isroutine(getattr(module, key)) or isclass(getattr(module, key))} <= shown, name


@pytest.mark.parametrize("page", sorted((ROOT / "docs" / "proofs").glob("*.md")), ids=name_of)
def test_a_proof_that_replaces_rows_says_what_that_means_for_places(page):
    text = page.read_text(encoding="utf-8")
    assert "eplac" not in text or page.name == "places.md" or "](places.md)" in text
