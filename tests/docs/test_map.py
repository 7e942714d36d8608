"""The map leads somewhere: every file on it exists, and every name beside a file is defined there."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
QUOTED = re.compile(r"`([^`]+)`")


def places(text):
    """(file, names that are said to be in it) of each table's second column. A name belongs to the file before it."""
    for line in text.splitlines():
        if not line.startswith("| ") or line.startswith("| ---"):
            continue
        answer = line.strip("|").split(" | ")[1]
        found = []
        for quoted in QUOTED.findall(answer):
            if "/" in quoted:
                found.append((quoted, []))
            else:
                assert found, f"a name before any file: {line}"
                found[-1][1].append(quoted)
        yield from found


MAP = list(places((ROOT / "docs" / "map.md").read_text(encoding="utf-8")))


def defines(text, name):
    last = re.escape(name.split(".")[-1])
    return re.search(rf"^\s*(?:class|def) {last}\b|^(?:\w+, )*{last}\b[^=\n(]*=", text, flags=re.MULTILINE)


def test_it_is_read_right():
    lines = "| question | file |\n| --- | --- |\n| a? | `x/y.py`: `A.b`, `c`; or `z/` |"
    assert list(places(lines)) == [("x/y.py", ["A.b", "c"]), ("z/", [])]
    assert defines("class A:\n    def b(self): ...\n", "A.b")
    assert defines("ONE, TWO = 1, 2\n", "TWO")
    assert not defines("x = f(c)\nfrom y import c\n", "c")
    assert len(MAP) > 60


@pytest.mark.parametrize(("path", "names"), MAP, ids=[path for path, _ in MAP])
def test_places(path, names):
    assert (ROOT / path).exists(), f"{path} is on docs/map.md and is not there: correct the map"
    for name in names:
        text = (ROOT / path).read_text(encoding="utf-8")
        assert all(defines(text, part) for part in name.split(".")), f"{name} is not in {path}: correct docs/map.md"


def test_files_that_contributors_are_sent_to():
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    named = re.findall(r"`((?:src|tests|docs)/[^`]+)`", text)
    assert len(named) > 8
    for path in named:
        assert (ROOT / path).exists(), path
