"""`sottovoce describe`: paid for first, kept if it can be, and nothing of it without noise."""

import json

import pytest

from cli.conftest import SCHEMA, write
from sottovoce.privacy import BudgetAccountant


@pytest.fixture
def study(tmp_path):
    """A file with its schema."""
    schema = tmp_path / "schema.toml"
    schema.write_text(SCHEMA.format(classes='["no", "yes"]'))
    rows = write(tmp_path / "rows.csv", lambda age, smoker: "yes" if age > 60 or smoker else "no")
    return rows, "--schema", schema


def budget_in(tmp_path, epsilon=2.0):
    path = tmp_path / "budget.json"
    BudgetAccountant(epsilon, 1e-5).save(path)
    return path


def test_it_is_charged_kept_and_shown(study, tmp_path, cli):
    budget, outs = budget_in(tmp_path), [tmp_path / f"table{form}" for form in (".html", ".csv", ".json")]
    files = [part for out in outs for part in ("--out", out)]
    code, shown, said = cli("describe", *study, "--by", "smoker", "--epsilon", 1, "--delta", 1e-6, "--nodes", 3,
                            "--budget", budget, *files)  # fmt: skip
    assert (code, said) == (0, "")
    assert "age" in shown
    assert "median" in shown
    assert "It cost epsilon = 1, delta = 1e-06" in shown
    assert len(BudgetAccountant.load(budget)) == 1
    assert 0.5 < BudgetAccountant.load(budget).total().epsilon < 1.0  # at the budget's larger delta
    page, table, data = (out.read_text(encoding="utf-8") for out in outs)
    assert page.startswith("<!doctype html>")
    assert "Description of the rows" in page
    assert "upper quartile" in page
    assert "Its guarantee in full" in page
    told = json.loads(data)
    assert told["groups"] == ["false", "true"]
    assert table.splitlines()[0] == "column,level,group,figure,value,low,high"
    assert f",,false,count,{told['sizes'][0]['value']!r}" in table


def test_json_is_the_whole_table(study, tmp_path, answer):
    said = answer("describe", *study, "--epsilon", 1, "--column", "age", "--part", "age=1", "--budget",
                  budget_in(tmp_path))  # fmt: skip
    assert [column["name"] for column in said["columns"]] == ["age"]
    assert said["rows"] == 1200
    assert said["privacy"]["epsilon"] <= 1.0


@pytest.mark.parametrize("columns", [("smoker", "ill"), ("age", "smoker", "ill")])
def test_a_cross_table_takes_two_or_three_columns(study, cli, columns):
    code, shown, said = cli("describe", study[0], "--cross", *columns, *study[1:], "--epsilon", 1)
    assert code == 0
    assert "Chi-squared" in shown
    assert "p < 0.0003" in shown  # smokers are ill
    assert "Every release from the same rows costs" in said
    told = cli("describe", *study, "--cross", *columns, "--epsilon", 1, "--json")
    assert json.loads(told[1])["columns"] == list(columns)


def test_a_budget_that_would_be_overdrawn(study, tmp_path, cli):
    budget, out = budget_in(tmp_path, 0.5), tmp_path / "table.json"
    code, shown, said = cli("describe", *study, "--epsilon", 1, "--budget", budget, "--out", out)
    assert code != 0
    assert "Nothing was computed, nothing charged" in said
    assert not shown
    assert not out.exists()
    assert len(BudgetAccountant.load(budget)) == 0


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--epsilon", "1", "--by", "wings"), "'wings'"),
        (("--epsilon", "1", "--by", "age", "--column", "age"), "not described as well"),
        (("--epsilon", "1", "--column", "age", "--column", "age"), "every column once"),
        (("--epsilon", "1", "--part", "age"), "COLUMN=SHARE"),
        (("--epsilon", "1", "--part", "age=x"), "COLUMN=SHARE"),
        (("--epsilon", "1", "--part", "age=.5", "--part", "age=.5"), "one part of the budget for each"),
        (("--epsilon", "1", "--out", "table.txt"), "ends in one of"),
        (("--epsilon", "1", "smoker"), "only with --cross"),
        (("--epsilon", "1", "--cross", "smoker"), "two or three"),
        (("--epsilon", "1", "--cross", "smoker", "ill", "--by", "age"), "without --by"),
        (("--epsilon", "1", "--unreviewed", "maybe"), "unreviewed"),
        (("--epsilon", "30"), "--force"),
        ((), "--epsilon"),
    ],
)
def test_what_is_refused_costs_nothing(study, tmp_path, cli, options, words):
    budget = budget_in(tmp_path)
    code, shown, said = cli("describe", study[0], *options, *study[1:], "--budget", budget)
    assert code != 0
    assert words in said
    assert not shown
    assert len(BudgetAccountant.load(budget)) == 0


def test_a_schema_must_be_given(study, cli):
    code, _, said = cli("describe", study[0], "--epsilon", 1)
    assert code != 0
    assert "--schema" in said


def test_a_table_that_cannot_be_written_is_printed_since_it_is_paid_for(study, tmp_path, cli, monkeypatch):
    from sottovoce.errors import InputError
    from sottovoce.settings import disk

    def full(*_):
        raise InputError("Expected room on the disk, got none.")

    monkeypatch.setattr(disk, "write_whole", full)
    budget = budget_in(tmp_path)
    code, shown, said = cli("describe", *study, "--epsilon", 1, "--budget", budget, "--out", tmp_path / "table.csv")
    assert code != 0
    assert json.loads(shown)["rows"] == 1200
    assert "keep what was printed" in said
    assert len(BudgetAccountant.load(budget)) == 1


def test_a_file_that_exists_is_refused_before_anything_is_charged(study, tmp_path, cli):
    budget, out = budget_in(tmp_path), tmp_path / "table.csv"
    out.write_text("mine")
    code, _, said = cli("describe", *study, "--epsilon", 1, "--budget", budget, "--out", out)
    assert code != 0
    assert "exists" in said
    assert out.read_text() == "mine"
    assert len(BudgetAccountant.load(budget)) == 0
