"""`sottovoce schema`: tables, JSON, exit codes, and output files that are whole or not there."""

import json
import os
from pathlib import Path

import pytest
import typer

from schema.samples import FILE, SCHEMA
from sottovoce.cli import main
from sottovoce.cli.schema import schema_app
from sottovoce.files.schema import Schema


@pytest.fixture
def cli(capsys, monkeypatch, tmp_path):
    """Run the command line in an empty folder that holds a schema and a file: (exit code, stdout, stderr)."""
    app = typer.Typer()
    app.add_typer(schema_app)
    monkeypatch.setattr("sottovoce.cli.app.app", app)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    (tmp_path / "agreed.toml").write_text(SCHEMA)
    (tmp_path / "rows.csv").write_text(FILE)

    def run(*argv):
        code = main(["schema", *map(str, argv)])
        return (code, *capsys.readouterr())

    return run


def listing():
    return sorted(os.listdir())


def test_check_of_a_file_that_fits(cli):
    code, out, err = cli("check", "rows.csv", "--schema", "agreed.toml")
    assert (code, err) == (0, "")
    assert "The file fits: 5 rows read, 5 usable." in out
    assert "outside the bounds: clipped" in out
    assert "refused" not in out


def test_check_of_a_file_that_does_not_fit(cli, tmp_path):
    (tmp_path / "rows.csv").write_text(FILE.replace("25,", "[bold]x,").replace("AB", "C") + "1,2\n")
    code, out, err = cli("check", "rows.csv", "--schema", "agreed.toml")
    assert (code, err) == (1, "")
    assert "Expected a number in row 2, column 'age', got '[bold]x'." in out
    assert "row 3, column 'blood', got 'C'" in out
    assert "Expected 7 fields in row 6" in out
    assert "The file does NOT fit: 6 rows read" in out


def test_check_as_json(cli, tmp_path):
    (tmp_path / "rows.csv").write_text(FILE.replace("25,", "x,"))
    code, out, err = cli("check", "rows.csv", "--schema", "agreed.toml", "--json")
    assert (code, err) == (1, "")
    answer = json.loads(out)
    assert answer["fits"] is False
    assert answer["problems"][0]["row"] == 2
    assert answer["problems"][0]["column"] == "age"
    assert answer["digest"] == Schema.loads(SCHEMA).digest()


def test_show(cli, tmp_path):
    code, out, err = cli("show", "agreed.toml")
    assert (code, err) == (0, "")
    assert "d = 17 features, data_norm = 1," in out
    assert "Label: outcome, well is -1, ill is +1." in out
    assert "Needs a review" not in out
    (tmp_path / "marked.toml").write_text('unreviewed = ["columns.age.bounds"]\n' + SCHEMA)
    assert "Needs a review before training: columns.age.bounds." in cli("show", "marked.toml")[1]
    answer = json.loads(cli("show", "marked.toml", "--json")[1])
    assert (answer["d"], answer["data_norm"], answer["unreviewed"]) == (17, 1.0, ["columns.age.bounds"])
    assert answer["features"][-1] == "intercept"


def test_draft_then_check(cli):
    code, out, err = cli("draft", "rows.csv", "--label", "outcome", "--bins", "4")
    assert (code, err) == (0, "")
    assert "Review them before training: sottovoce schema review" in out
    assert Schema.load("schema.toml").unreviewed
    assert cli("check", "rows.csv")[0] == 0


def test_columns_that_names_speak_against_are_kept_if_asked(cli, tmp_path):
    (tmp_path / "sites.csv").write_text("site,notes,age,ill\n" + "a,x,20,no\nb,y,30.5,yes\n" * 9)
    out = cli("draft", "sites.csv", "--label", "ill")[1]
    assert "Left out: 'site', by its name it says whose site a row is" in out
    assert cli("draft", "sites.csv", "--label", "ill", "--keep", "site", "--force")[0] == 0
    assert [column.name for column in Schema.load("schema.toml").columns] == ["site", "age"]
    assert "to keep, got 'place'" in cli("draft", "sites.csv", "--label", "ill", "--keep", "place", "--force")[2]


def test_draft_as_json(cli):
    code, out, _ = cli("draft", "rows.csv", "--label", "outcome", "--out", "new.toml", "--json")
    answer = json.loads(out)
    assert (code, answer["schema"], answer["d"]) == (0, "new.toml", Schema.load("new.toml").d)
    assert "label.classes" in answer["unreviewed"]


def test_draft_overwrites_only_when_told(cli):
    assert cli("draft", "rows.csv", "--label", "outcome")[0] == 0
    first = Schema.load("schema.toml")
    code, out, err = cli("draft", "rows.csv", "--label", "ward")
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert "out='schema.toml', which exists" in err
    assert Schema.load("schema.toml") == first
    assert cli("draft", "rows.csv", "--label", "ward", "--force")[0] == 0
    assert Schema.load("schema.toml").label.column == "ward"


def test_draft_onto_standard_output(cli):
    before = listing()
    code, out, err = cli("draft", "rows.csv", "--label", "outcome", "--positive", "well", "--out", "-")
    assert (code, listing()) == (0, before)
    assert Schema.loads(out).classes == ("ill", "well")
    assert "Review them before training: sottovoce schema review" in err


def test_delimiters_as_people_type_them(cli, tmp_path):
    (tmp_path / "tabs.tsv").write_text(FILE.replace(",", "\t"))
    assert "say so with --delimiter" in cli("check", "tabs.tsv", "--schema", "agreed.toml")[1]
    for said in ("tab", "\t", "\\t"):
        assert cli("check", "tabs.tsv", "--schema", "agreed.toml", "--delimiter", said)[0] == 0
    code, out, _ = cli("draft", "tabs.tsv", "--label", "outcome", "--out", "tabs.toml")
    assert (code, Schema.load("tabs.toml").file.delimiter) == (0, "\t")
    assert "separated by tabs" in out
    (tmp_path / "bare.csv").write_text("\n".join(FILE.splitlines()[1:]))
    assert cli("draft", "bare.csv", "--label", "column7", "--no-header", "--out", "bare.toml")[0] == 0
    assert cli("check", "bare.csv", "--schema", "bare.toml")[0] == 0


WRONG = {
    "no file": (["draft", "none.csv", "--label", "y"], "none.csv"),
    "no label": (["draft", "rows.csv"], "--label"),
    "label not there": (["draft", "rows.csv", "--label", "y"], "a column 'y' for the label"),
    "half a bin": (["draft", "rows.csv", "--label", "outcome", "--bins", "1.5"], "--bins"),
    "no such delimiter": (["draft", "rows.csv", "--label", "outcome", "--delimiter", "x"], "file.delimiter among"),
    "no such decimal sign": (["draft", "rows.csv", "--label", "outcome", "--decimal", ";"], "file.decimal among"),
    "no such class": (["draft", "rows.csv", "--label", "outcome", "--positive", "x"], "label.positive among"),
    "one bin": (["draft", "rows.csv", "--label", "outcome", "--bins", "1"], "bins=1"),
    "onto itself": (["draft", "rows.csv", "--label", "outcome", "--out", "rows.csv", "--force"], "another file to"),
    "into nowhere": (["draft", "rows.csv", "--label", "outcome", "--out", "no/such/x.toml"], "No such file"),
    "onto a folder": (["draft", "rows.csv", "--label", "outcome", "--out", ".", "--force"], "can be written"),
    "check without schema": (["check", "rows.csv"], "schema.toml"),
    "check against a table": (["check", "rows.csv", "--schema", "rows.csv"], "in TOML"),
    "check of a folder": (["check", ".", "--schema", "agreed.toml"], "can be read"),
    "show a table": (["show", "rows.csv"], "rows.csv"),
    "unknown command": (["shwo", "agreed.toml"], "shwo"),
}  # fmt: skip


@pytest.mark.parametrize(("argv", "told"), WRONG.values(), ids=WRONG.keys())
def test_one_line_and_nothing_written(cli, argv, told):
    before = listing()
    code, out, err = cli(*argv)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert err.startswith("sottovoce: error: ")
    assert told in err
    assert listing() == before
    assert Path("rows.csv").read_text() == FILE


@pytest.mark.parametrize(("trouble", "code"), [(OSError(28, "No space left"), 2), (KeyboardInterrupt(), 130)])
def test_trouble_while_writing_leaves_nothing(cli, monkeypatch, trouble, code):
    from sottovoce.files.schema.draft import SchemaDraft

    def fail(_):
        raise trouble

    monkeypatch.setattr(SchemaDraft, "text", fail)
    before = listing()
    came, out, err = cli("draft", "rows.csv", "--label", "outcome")
    assert (came, out, err.count("\n")) == (code, "", 1)
    assert listing() == before
