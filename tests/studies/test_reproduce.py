"""The whole study, small: every path from the command line to the page."""

import csv
import json
import re
from html.parser import HTMLParser
from xml.etree import ElementTree

import pytest
from pyarrow import parquet

from helpers.browser import BROWSER, DESK, PHONE, Browser, fits
from sottovoce.studies import measured
from sottovoce.studies.reproduce import NAMES

FIGURES = [name for name in NAMES if name != "table"]


@pytest.fixture(scope="module", name="folder")
def _folder(tmp_path_factory):
    from sottovoce.cli import main

    out = tmp_path_factory.mktemp("study") / "reproduction"
    assert main(["reproduce", "--quick", "--quiet", "--out", str(out)]) == 0
    return out


def files(folder):
    return {path: path.stat().st_mtime_ns for path in (folder / "cells").iterdir()}


def test_all_files_are_there(folder):
    expected = {"cells", "figures", "index.html", "verdict.json", "results.csv", "results.parquet", "curves.csv",
                "curves.parquet"}  # fmt: skip
    assert {path.name for path in folder.iterdir()} == expected
    assert {path.name for path in (folder / "figures").iterdir()} == {
        f"{name}.{kind}" for name in FIGURES for kind in ("svg", "png")
    }


def test_results_are_the_same_in_both_forms(folder):
    table = parquet.read_table(folder / "results.parquet").to_pylist()
    with (folder / "results.csv").open() as file:
        lines = list(csv.DictReader(file))
    assert len(lines) == len(table) > 100
    assert [line["panel"] for line in lines] == [line["panel"] for line in table]
    assert [float(line["risk_last"]) for line in lines] == pytest.approx([line["risk_last"] for line in table])
    assert {line["panel"] for line in table} == set(NAMES)
    ipadmm = [line for line in table if line["algorithm"] == "ipadmm"]
    assert all(line["epsilon"] <= line["epsilon_target"] for line in ipadmm)


@pytest.mark.parametrize("name", FIGURES)
def test_figures_are_svg_and_png(folder, name):
    root = ElementTree.parse(folder / "figures" / f"{name}.svg").getroot()
    assert root.tag.endswith("svg")
    assert len(list(root.iter())) > 50
    assert (folder / "figures" / f"{name}.png").read_bytes().startswith(b"\x89PNG")


class Checked(HTMLParser):
    """Notes what a page would fetch, its ids, and whether its tags are closed in order."""

    VOID = ("meta", "br", "link", "img", "hr")

    def __init__(self):
        super().__init__()
        self.open, self.fetched, self.ids, self.wrong = [], [], [], []

    def handle_starttag(self, tag, attributes):
        if tag not in self.VOID:
            self.open.append(tag)
        for name, value in attributes:
            if name in ("src", "href", "xlink:href") and not value.startswith("#"):
                self.fetched.append(value)
            if name == "id":
                self.ids.append(value)

    def handle_startendtag(self, tag, attributes):
        self.handle_starttag(tag, attributes)
        if tag not in self.VOID:
            self.open.pop()

    def handle_endtag(self, tag):
        if not self.open or self.open.pop() != tag:
            self.wrong.append(tag)


def test_the_page_is_self_contained(folder):
    text = (folder / "index.html").read_text(encoding="utf-8")
    page = Checked()
    page.feed(text)
    assert (page.open, page.wrong, page.fetched) == ([], [], [])
    assert len(page.ids) == len(set(page.ids)) > 100
    assert not re.search(r"@import|url\((?!#)|<script|https?://", text)
    targets = re.findall(r'href="#([^"]+)"', text)
    assert set(targets) <= set(page.ids)
    # A figure for every part of a panel; of those that are files, none is missing.
    drawn = [re.search(rf'id="{name}-\d', text) for name in FIGURES]
    assert text.count("<svg") > len(FIGURES)
    assert all(drawn), drawn
    assert text.index("Verdict") < text.index("<svg")


@pytest.mark.skipif(not BROWSER, reason="needs Chromium, which is not a Python package")
def test_a_browser_draws_it_wide_and_narrow(folder, tmp_path):
    with Browser(tmp_path / "profile") as browser:
        for width in (PHONE, DESK):
            seen = browser.look((folder / "index.html").as_uri(), width)
            assert fits(seen, width), seen


def test_the_verdict_is_data(folder):
    verdict = json.loads((folder / "verdict.json").read_text())
    assert verdict["quick"] is True
    names = [claim["name"] for claim in verdict["claims"]]
    assert {"trend in epsilon", "trend in l", "rivals", "steady", "tuned", "exact noise", "monotone steps"} <= set(
        names
    )
    for claim in verdict["claims"]:
        assert claim["verdict"] in ("holds", "holds only if", "does not hold", "not shown", "not tested")
        assert bool(claim["condition"]) == (claim["verdict"] == "holds only if")
        for comparison in claim["comparisons"]:
            assert 0 <= comparison["p"] <= comparison["p_holm"] <= 1


def test_a_rerun_computes_nothing_and_says_the_same(folder, monkeypatch, answer):
    before, verdict = files(folder), json.loads((folder / "verdict.json").read_text())
    monkeypatch.setattr(measured, "run", lambda *_: pytest.fail("computed again"))
    assert answer("reproduce", "--quick", "--out", folder) == verdict
    assert files(folder) == before


def test_after_an_interruption_only_the_rest_is_computed(tmp_path, monkeypatch, cli):
    real, done = measured.run, []

    def run(cell, progress):
        if len(done) == 2 and not stopped:
            stopped.append(cell)
            raise KeyboardInterrupt
        done.append(cell)
        return real(cell, progress)

    stopped = []
    monkeypatch.setattr(measured, "run", run)
    out = tmp_path / "new" / "reproduction"
    arguments = ("reproduce", "--quick", "--only", "fig1,diameter", "--out", out)
    code, stdout, err = cli(*arguments)
    assert (code, stdout, err.count("\n")) == (130, "", 1)
    assert "kept" in err
    assert len(files(out)) == 2
    assert [path.name for path in out.iterdir()] == ["cells"]
    assert cli(*arguments)[0] == 0
    assert len(done) == len(set(done)) == len(files(out))
    assert stopped[0] in done


def test_a_broken_file_is_computed_again(tmp_path, cli):
    arguments = ("reproduce", "--quick", "--quiet", "--only", "fig1", "--out", tmp_path)
    assert cli(*arguments)[0] == 0
    broken = sorted((tmp_path / "cells").iterdir())[0]
    whole = parquet.read_table(broken)
    broken.write_bytes(b"PAR1")
    assert cli(*arguments)[0] == 0
    again = parquet.read_table(broken)
    assert again["risk_last"].to_pylist() == whole["risk_last"].to_pylist()


WRONG = {
    "unknown figure": (["--only", "fig9"], "'fig9'"),
    "close figure": (["--only", "fgi1"], "Did you mean 'fig1'?"),
    "no figure": (["--only", ","], "got none"),
    "half a run": (["--runs", "2.5"], "a whole number for --runs, got '2.5'"),
    "one run": (["--runs", "1"], "runs=1"),
    "folder of something else": (["--out", "full"], "full"),
    "folder is a file": (["--out", "full/kept"], "file"),
    "unknown option": (["--quik"], "--quick"),
}


@pytest.mark.parametrize(("argv", "told"), WRONG.values(), ids=WRONG.keys())
def test_one_line_and_nothing_written(cli, tmp_path, monkeypatch, argv, told):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "kept").write_text("precious")
    code, out, err = cli("reproduce", *argv)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert told in err
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["full", "kept"]
