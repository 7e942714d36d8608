"""Parts of a document as HTML and as plain text: all of it is there, lines up, and is escaped."""

from html.parser import HTMLParser

import pytest

from sottovoce.document import Code, Facts, Figure, FigureRow, Folded, Section, Svg, Table, Words
from sottovoce.document.html import html_of, notebook_html
from sottovoce.document.text import WIDTH, table_lines, text_of

EVIL = """<script>alert(1)</script>&"'\x1b[31m\n"""
DRAWN = "<svg><path d='M0 0'/></svg>"
TABLE = Table(("name", "count"), [("a", "1"), (Words("bc", "good"), "234")], frozenset({1}), frozenset({1}))


class Seen(HTMLParser):
    """The tags of a page with their attributes, in order, each closed by its own; and its text."""

    def __init__(self, page):
        super().__init__()
        self.tags, self.texts, self.open = [], [], []
        self.feed(page)
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if data.strip():
            self.texts.append(data)


@pytest.mark.parametrize(
    "part",
    [
        Words(EVIL), Words(EVIL, "bad"), Table((EVIL,), [(EVIL,), (Words(EVIL, "good"),)]), Facts([(EVIL, EVIL)]),
        Code(EVIL), Figure(Svg(DRAWN), EVIL), Figure(EVIL, "x"), Folded(EVIL, [Words(EVIL)]),
        Section(EVIL, EVIL, [Words(EVIL)]), FigureRow([Figure(Svg(DRAWN), EVIL)]),
    ],
    ids=lambda part: type(part).__name__,
)  # fmt: skip
def test_a_strangers_text_is_text_everywhere(part):
    seen = Seen(html_of([part]))
    assert "script" not in {tag for tag, _ in seen.tags}
    assert any(EVIL.strip() in text for text in seen.texts)
    assert "\x1b" not in text_of([part])


def test_only_a_drawing_of_ours_is_markup():
    assert DRAWN in html_of([Figure(Svg(DRAWN), "ours")])
    assert "svg" not in {tag for tag, _ in Seen(html_of([Figure(DRAWN, "a stranger's")])).tags}


def test_tones_numbers_and_names_become_classes_and_ids():
    seen = Seen(html_of([TABLE, Words("x", "bad"), Words("y"), Words("z", "soft"), Section("here", "Here", [])]))
    tags = seen.tags
    assert ("th", {"class": "n"}) in tags
    assert ("td", {"class": "n"}) in tags
    assert ("td", {"class": "good"}) in tags
    assert [attrs for tag, attrs in tags if tag == "tr"] == [{}, {}, {"class": "strong"}]
    assert [attrs for tag, attrs in tags if tag == "p"] == [{"class": "banner bad"}, {}, {"class": "soft"}]
    assert ("section", {"id": "here"}) in tags


def test_a_folded_part_is_only_in_html():
    part = Folded("more", [Words("hidden")])
    assert Seen(html_of([part])).texts == ["more", "hidden"]
    assert text_of([Words("seen"), part]) == "seen"


def test_a_notebook_gets_a_style_for_nothing_else():
    page = notebook_html([TABLE])
    style = page.split("<style>")[1].split("</style>")[0]
    assert all(line.startswith(".sottovoce ") for line in style.strip().splitlines())
    assert Seen(page).tags[0] == ("div", {"class": "sottovoce"})


def test_columns_line_up():
    assert text_of([TABLE]).splitlines() == ["name  count", "-----------", "a         1", "bc      234"]
    assert text_of([Table((), [("a", "b"), ("ccc", "d")])]).splitlines() == ["a    b", "ccc  d"]
    assert text_of([Table((), [])]) == ""
    assert text_of([Facts([("a", "1"), ("long", "2")])]).splitlines() == ["a:    1", "long: 2"]


def test_a_long_name_is_cut_and_a_long_paragraph_broken():
    assert table_lines(Table((), [("x" * 40, "1")]), 10) == ["xxxxxxx...  1"]
    lines = text_of([Words("word " * 100)]).splitlines()
    assert len(lines) > 5
    assert max(map(len, lines)) <= WIDTH


def test_tables_stand_between_blank_lines():
    assert text_of([Words("a"), TABLE, Words("b")]).splitlines()[1::5] == ["", ""]
    assert not text_of([Words("a"), TABLE]).endswith("\n")


def test_what_is_no_part_is_refused():
    with pytest.raises(TypeError, match="a part of a document, got object"):
        html_of([object()])
