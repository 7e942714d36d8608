"""`sottovoce survival` and the schema of times to an event: what is charged, kept, shown and refused."""

import json

import pytest

from sottovoce.privacy import BudgetAccountant
from tables.lives import SCHEMA, rows


@pytest.fixture
def study(tmp_path):
    (tmp_path / "schema.toml").write_text(SCHEMA.dumps(), encoding="utf-8")
    rows(600).to_csv(tmp_path / "rows.csv", index=False)
    return tmp_path / "rows.csv", "--schema", tmp_path / "schema.toml"


@pytest.fixture
def budget(tmp_path):
    BudgetAccountant(2.0, 1e-5).save(tmp_path / "budget.json")
    return tmp_path / "budget.json"


def test_it_is_charged_kept_drawn_and_shown(study, budget, tmp_path, cli):
    outs = [tmp_path / f"curves{form}" for form in (".html", ".csv", ".json", ".svg", ".png")]
    code, shown, said = cli("survival", *study, "--by", "arm", "--epsilon", 1, "--delta", 1e-6, "--nodes", 3,
                            "--budget", budget, *(part for out in outs for part in ("--out", out)))  # fmt: skip
    assert (code, said) == (0, "")
    for words in ("Rows at risk", "median", "mean up to 12", "Log-rank", "It cost epsilon = 1, delta = 1e-06"):
        assert words in shown
    assert len(BudgetAccountant.load(budget)) == 1
    assert 0.5 < BudgetAccountant.load(budget).total().epsilon < 1.0  # at the budget's larger delta
    page, table, data, drawing = (out.read_text(encoding="utf-8") for out in outs[:4])
    assert page.startswith("<!doctype html>")
    assert "<svg" in page
    assert "Its guarantee in full" in page
    assert table.startswith("group,figure,time,value,low,high\nall,survival,0.0,1.0,")
    assert json.loads(data)["log_rank"]["freedom"] == 2
    assert "<svg" in drawing
    assert outs[4].read_bytes().startswith(b"\x89PNG")


def test_json_is_all_of_it(study, budget, answer):
    said = answer("survival", *study, "--epsilon", 1, "--budget", budget)
    assert [curve["group"] for curve in said["curves"]] == ["all"]
    assert said["log_rank"] is None
    assert said["times"] == [float(month) for month in range(13)]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--epsilon", "1", "--by", "wings"), "'wings'"),
        (("--epsilon", "1", "--by", "months"), "not of the label"),
        (("--epsilon", "1", "--out", "curves.txt"), "ends in one of"),
        (("--epsilon", "30"), "--force"),
        ((), "--epsilon"),
    ],
)
def test_what_is_refused_costs_nothing(study, budget, cli, options, words):
    code, shown, said = cli("survival", study[0], *options, *study[1:], "--budget", budget)
    assert code != 0
    assert words in said
    assert not shown
    assert len(BudgetAccountant.load(budget)) == 0


def test_descriptions_have_no_drawing(study, cli):
    code, _, said = cli("describe", *study, "--epsilon", 1, "--out", "table.svg")
    assert code != 0
    assert ".html, .csv, .json" in said


def test_times_and_events_are_described_as_columns(study, answer, budget):
    said = answer("describe", *study, "--epsilon", 1, "--budget", budget)
    assert [column["name"] for column in said["columns"]] == ["arm", "months", "died"]


def test_a_schema_is_drafted_shown_and_checked(study, tmp_path, cli, answer):
    out, asked = tmp_path / "draft.toml", ("--time", "months", "--event", "died", "--until", "12")
    said = answer("schema", "draft", study[0], *asked, "--out", out)
    assert [entry for entry in said["unreviewed"] if entry.startswith("label")] == []
    text = out.read_text(encoding="utf-8")
    assert '[label]\ntime = "months"\nevent = "died"\nuntil = 12\nbins = 12\n' in text
    assert 'name = "months"' not in text
    assert "time until died, censored at 12, in 12 bins" in cli("schema", "show", out)[1]
    code, shown, _ = cli("schema", "check", study[0], "--schema", out)
    assert code == 0
    assert "outside the bounds: clipped" in shown  # beyond 12 months
    code, shown, _ = cli("schema", "review", out, "--list")
    assert code == 0
    assert "Learns months: time until died" in shown


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ((), "Expected --label"),
        (("--label", "died", "--until", "3"), "--label without --until"),
        (("--label", "died", "--time-bins", "3"), "--label without --time-bins"),
        (("--time", "months", "--event", "died"), "until=None"),
        (("--time", "moons", "--event", "died", "--until", "12"), "'moons'"),
        (("--time", "months", "--event", "died", "--until", "-1"), "above 0"),
    ],
)
def test_a_draft_needs_a_label(study, tmp_path, cli, options, words):
    out = tmp_path / "draft.toml"
    code, _, said = cli("schema", "draft", study[0], *options, "--out", out)
    assert code != 0
    assert words in said
    assert not out.exists()
