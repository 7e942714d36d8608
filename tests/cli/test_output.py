"""How a document is laid out on a terminal, and where there is none."""

import io

import pytest

from sottovoce.cli.output import show
from sottovoce.document import Code, Facts, Figure, Folded, Section, Table, Words

PATH = "/a/folder/of/a/name/that/is/longer/than/a/line"


class Terminal(io.StringIO):
    def isatty(self):
        return True


def printed(*parts, file=None):
    into = io.StringIO() if file is None else file
    show(*parts, file=into)
    return into.getvalue().splitlines()


@pytest.fixture(autouse=True)
def narrow(monkeypatch):
    for name in ("NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "30")


def test_a_paragraph_is_a_line_but_on_a_terminal_which_is_narrow():
    words = f"It was written to {PATH} and nowhere else."
    assert printed(words) == [words]
    assert printed(words, file=Terminal()) == ["It was written to", PATH, "and nowhere else."]


def test_what_is_to_be_copied_is_never_broken():
    command = "sottovoce train --nodes 5 --graph ring --epsilon 1"
    assert printed(Code(command), file=Terminal()) == [command]


def test_numbers_line_up_and_nothing_is_cut():
    rows = [("a", "1"), ("a name of several words, (in brackets)", "1,000")]
    lines = printed(Table(("what", "number"), rows, frozenset({1})))
    assert all(line.rstrip().endswith(end) for line, end in zip(lines[3:5], ("    1", "1,000"), strict=True))
    assert "(in brackets)" in " ".join(" ".join(lines).split())
    assert printed(Table((), [("epsilon", "1"), ("delta", "0.1")])) == ["epsilon  1  ", "delta    0.1"]


def test_text_of_a_stranger_stays_text():
    hostile = "[bold]x[/] \x1b[31mred\x07"
    assert printed(hostile) == ["[bold]x[/]  [31mred "]
    assert "[bold]x" in " ".join(printed(Table(("[red]h",), [(hostile,)])))


def test_parts_of_parts_are_printed_and_figures_are_not():
    inner = [Words("Two.", "bad"), Facts([("a", "b")]), Figure("<svg/>", "drawn")]
    assert printed(Section("name", "One", [Folded("More", inner)])) == ["One", "More", "Two.", "a: b"]


def test_a_table_may_be_shown_in_part():
    whole = Table(("a", "b", "c"), [("1", "2", Words("3", "bad"))], frozenset({0, 2}), frozenset({0}))
    assert whole.only("c", "b") == Table(("c", "b"), [(Words("3", "bad"), "2")], frozenset({0}), frozenset({0}))
