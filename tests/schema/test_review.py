"""Reviews: few questions, every answer on the disk at once, and nothing of the file lost but what was answered."""

import json
import os
import pty
import sys
from dataclasses import replace

import pytest

from helpers.programs import started
from sottovoce.errors import InputError
from sottovoce.files.schema import Schema, editing
from sottovoce.files.schema.advice import on_row_norm
from sottovoce.files.schema.draft import draft
from sottovoce.files.schema.review import questions

HEAD = "age,weight,city,smoker,f0,f1,f2,y\n"
ROWS = "".join(
    f"{17 + i % 60},{40 + i % 70}.5,{'Rome' if i % 2 else 'Oslo'},{'yes' if i % 3 else 'no'},{i % 9 / 8},{i % 5 / 4},"
    f"{i % 17 / 16},{'b' if i % 5 else 'a'}\n"
    for i in range(300)
)


@pytest.fixture
def drafted(written, tmp_path):
    path = tmp_path / "schema.toml"
    path.write_text(draft(written(HEAD + ROWS), "y", bins=4).text())
    return path


@pytest.fixture
def reviewing(drafted, capsys, monkeypatch):
    """Run the review with these answers: (exit code, stdout, stderr)."""
    import io

    from sottovoce.cli import main

    def run(*answers, options=()):
        monkeypatch.setattr(sys, "stdin", io.StringIO("".join(f"{answer}\n" for answer in answers)))
        code = main(["schema", "review", str(drafted), *options])
        return (code, *capsys.readouterr())

    return run


def test_one_question_for_all_that_was_found_of_a_column_and_for_columns_alike(drafted):
    schema = Schema.load(drafted)
    asked = questions(schema)
    assert [(question.kind, question.columns) for question in asked] == [
        ("label", ("y",)),
        ("numeric", ("age",)),
        ("numeric", ("weight",)),
        ("numeric", ("f0", "f1", "f2")),
        ("categorical", ("city",)),
        ("boolean", ("smoker",)),
    ]
    assert sorted(entry for question in asked for entry in question.entries) == sorted(schema.unreviewed)
    assert set(asked[1].found) == {"kind", "bounds", "edges", "missing"}
    assert set(asked[5].found) == {"kind", "missing"}


def test_answers_are_kept_and_the_next_review_goes_on(reviewing, drafted):
    before = drafted.read_text()
    code, out, err = reviewing("y", "0 120", "q")
    assert (code, err) == (0, "")
    assert "Left to review: 4" in out
    schema = Schema.load(drafted)
    assert schema.columns[0].bounds == (0.0, 120.0)
    assert len(schema.columns[0].edges) >= 3
    assert not [entry for entry in schema.unreviewed if entry.startswith(("label.", "columns.age."))]
    comments = [line for line in before.splitlines() if line.startswith("#")]
    assert [line for line in drafted.read_text().splitlines() if line.startswith("#")] == comments
    code, out, _ = reviewing("d", "y", "y", "y")
    assert "All is reviewed." in out
    schema = Schema.load(drafted)
    assert schema.unreviewed == ()
    assert [column.name for column in schema.columns] == ["age", "city", "smoker", "f0", "f1", "f2"]
    assert "All is reviewed." in reviewing()[1]


def test_one_by_one_later_and_nonsense(reviewing, drafted):
    _, out, _ = reviewing("l", "l", "l", "o", "y", "", "sure", "9 1", "x y", "nan 1", "a", "d", "0 2", "l", "l")
    assert "Expected y, two numbers" in out
    assert "low < high" in out
    assert "f1" in out
    schema = Schema.load(drafted)
    assert [column.name for column in schema.columns] == ["age", "weight", "city", "smoker", "f0", "f2"]
    assert schema.columns[-1].bounds == (0.0, 2.0)
    left = {question.columns for question in questions(schema)}
    assert left == {("y",), ("age",), ("weight",), ("city",), ("smoker",)}


def test_without_questions(reviewing, drafted):
    before = drafted.read_text()
    code, out, _ = reviewing(options=["--list"])
    assert code == 0
    assert "f0, f1, f2" in out
    assert drafted.read_text() == before
    answer = json.loads(reviewing(options=["--yes", "f1", "--yes", "y", "--json"])[1])
    assert [question["columns"] for question in answer["questions"]][2] == ["f0", "f2"]
    assert not [entry for entry in Schema.load(drafted).unreviewed if entry.startswith(("label.", "columns.f1."))]
    code, _, err = reviewing(options=["--yes", "none"])
    assert (code, err.count("\n")) == (2, 1)
    assert "a column of the schema, got 'none'" in err
    assert reviewing("y")[0] == 0  # the input ends before the questions do


def test_a_file_that_somebody_else_edits_is_not_overwritten(drafted, monkeypatch):
    from sottovoce.cli.review import _Work

    work = _Work(drafted, drafted.read_text())
    drafted.write_text(drafted.read_text() + "# mine\n")
    with pytest.raises(InputError, match="nobody else to edit"):
        work.approve_columns(["age"])
    assert drafted.read_text().endswith("# mine\n")


def test_on_a_terminal(drafted):
    ours, theirs = pty.openpty()
    code = "import sys; from sottovoce.cli import main; sys.exit(main(sys.argv[1:]))"
    with started(
        [sys.executable, "-c", code, "schema", "review", str(drafted)], stdin=theirs, stdout=theirs, stderr=theirs
    ) as process:
        os.close(theirs)
        os.write(ours, b"y\n0 120\nq\n")
        assert process.wait(60) == 0
    os.close(ours)
    assert Schema.load(drafted).columns[0].bounds == (0.0, 120.0)


ODD = """
unreviewed = ["columns.a]b.bounds", 'columns.x.kind', # why ]
  "columns.x.missing"]
[label]
column = "y"
classes = ["p", "q"]

# of a
[[columns]]
name = "a]b"
kind = "numeric"
bounds = [ 0, # zero
  10 ]
scale = "unit"

# of x
[[columns]] # here
name = "x"
kind = "boolean"
"""


def test_editing_by_hand_is_respected():
    schema = Schema.loads(ODD)
    text = editing.with_unreviewed(ODD, schema, ("columns.x.kind",))
    assert Schema.loads(text) == replace(schema, unreviewed=("columns.x.kind",))
    assert "# of a" in text
    wider = editing.with_column(ODD, schema, "a]b", {"bounds": (-1.0, 11.0)})
    assert Schema.loads(wider).columns[0].bounds == (-1.0, 11.0)
    for name, other in (("a]b", "x"), ("x", "a]b")):
        assert [column.name for column in Schema.loads(editing.without_column(ODD, schema, name)).columns] == [other]
    assert "# of x" in editing.without_column(ODD, schema, "a]b")
    inline = '[label]\ncolumn = "y"\nclasses = ["p", "q"]\n[[columns]]\nname = "x"\nkind = "boolean"\n'
    unusual = 'columns = [{name = "x", kind = "boolean"}, {name = "z", kind = "boolean"}]\n' + inline.split("[[")[0]
    with pytest.raises(InputError, match="Edit it by hand"):
        editing.without_column(unusual, Schema.loads(unusual), "x")


def test_five_thousand_columns_alike_are_one_question(reviewing, drafted):
    columns = "".join(f'[[columns]]\nname = "g{i}"\nkind = "boolean"\n' for i in range(5000))
    marks = "".join(f'"columns.g{i}.kind", "columns.g{i}.missing",\n' for i in range(5000))
    drafted.write_text(f'unreviewed = [\n{marks}]\n[label]\ncolumn = "y"\nclasses = ["a", "b"]\n{columns}')
    code, out, _ = reviewing("y")
    assert code == 0
    assert "[1 of 1] boolean: g0, g1, g2, g3, g4, g5 and 4994 more" in out
    assert Schema.load(drafted).unreviewed == ()


def test_advice_on_the_norm_comes_from_the_schema_alone(drafted):
    schema = Schema.load(drafted)
    assert on_row_norm(schema) is None  # bins: every row is about as long as allowed
    scaled = '[[columns]]\nname = "x{}"\nkind = "numeric"\nbounds = [0, 1]\nscale = "unit"\n'
    label = '[label]\ncolumn = "y"\nclasses = ["a", "b"]\n'
    many = Schema.loads(label + "".join(scaled.format(i) for i in range(35)))
    assert many.usual_norm == pytest.approx((35 / 3 + 1) ** 0.5)
    assert "row_norm = 3.6 the noise is 1.7 times smaller" in on_row_norm(many)
    assert on_row_norm(replace(many, row_norm=3.6)) is None
