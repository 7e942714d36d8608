"""Reviews: few questions, every answer on the disk at once, and nothing of the file lost but what was answered."""

import io
import json
import os
import pty
import random
import sys
from dataclasses import replace

import pytest
import typer

from helpers.programs import started
from sottovoce.cli import main
from sottovoce.errors import InputError
from sottovoce.files.datasets.adult_csv import write_csv
from sottovoce.files.schema import Schema, editing
from sottovoce.files.schema.advice import on_row_norm
from sottovoce.files.schema.draft import draft
from sottovoce.files.schema.review import decisions, page

HEAD = "patient_id,age,days,city,smoker,f0,f1,f2,y\n"
ROWS = "".join(
    f"p{i},{17 + i % 60},{40 + i % 70}.5,{'Rome' if i % 2 else 'Oslo'},{'yes' if i % 3 else 'no'},{i % 9 / 8},"
    f"{i % 5 / 4},{i % 17 / 16},{'b' if i % 5 else 'a'}\n"
    for i in range(300)
)


@pytest.fixture
def drafted(written, tmp_path):
    path = tmp_path / "schema.toml"
    path.write_text(draft(written(HEAD + ROWS), "y", bins=4).text())
    return path


@pytest.fixture
def reviewing(drafted, capsys, monkeypatch):
    """Run the review with these answers: (exit code, stdout, stderr). It keeps what was asked in `reviewing.asked`."""
    prompt = typer.prompt

    def counted(text, **how):
        run.asked.append(text)
        return prompt(text, **how)

    monkeypatch.setattr(typer, "prompt", counted)

    def run(*answers, options=(), schema=drafted):
        run.asked = []
        monkeypatch.setattr(sys, "stdin", io.StringIO("".join(f"{answer}\n" for answer in answers)))
        code = main(["schema", "review", str(schema), *options])
        return (code, *capsys.readouterr())

    return run


def test_columns_alike_are_one_row_of_the_page(drafted):
    schema = Schema.load(drafted)
    assert decisions(schema) == ("label.positive", "person.rows")
    rows = page(schema)
    assert [(row.kind, row.columns) for row in rows] == [
        ("label", ("y",)),
        ("numeric", ("age",)),
        ("numeric", ("days",)),
        ("numeric", ("f0", "f1", "f2")),
        ("categorical", ("city",)),
        ("boolean", ("smoker",)),
    ]
    assert set(rows[1].found) == {"kind", "bounds", "edges", "missing", "reference"}
    assert set(rows[5].found) == {"kind", "missing"}


def clinic(rows=300):
    """A table of 20 columns, as a registry of patients may have it."""
    draw = random.Random(0)
    names = (
        "site,patient_id,name,notes,date_of_birth,admitted,sex,diagnosis,sample_weight,weight_kg,height_cm,systolic,"
        "heart_rate,hba1c,creatinine,stage,smoker,ward,insurance,died"
    )
    lines = [
        [
            draw.choice(["berlin", "paris"]), f"p{i}", f"Name {i}", f"seen on day {i}",
            f"19{draw.randint(20, 99)}-0{draw.randint(1, 9)}-11", f"202{draw.randint(0, 4)}-0{draw.randint(1, 9)}-21",
            draw.choice("FM"), f"I{draw.randint(10, 99)}.{draw.randint(0, 9)}", draw.uniform(0.2, 4),
            draw.uniform(40, 140), draw.uniform(150, 199), draw.randint(90, 190), draw.randint(45, 130),
            draw.choice(["", draw.uniform(4, 12)]), draw.uniform(40, 300), draw.randint(1, 4),
            draw.choice(["yes", "no", ""]), draw.choice(["north", "south", "west"]), draw.choice(["public", "private"]),
            draw.choice(["no", "no", "yes"]),
        ]
        for i in range(rows)
    ]  # fmt: skip
    return "\n".join([names, *(",".join(map(str, line)) for line in lines)]) + "\n"


def test_a_clinical_table_of_twenty_columns_needs_three_answers(written, tmp_path, reviewing):
    made, path = draft(written(clinic()), "died", bins=5), tmp_path / "clinic.toml"
    path.write_text(made.text())
    assert set(made.left_out) == {"site", "patient_id", "name", "notes", "diagnosis", "sample_weight"}
    assert len(made.schema.columns) == 13
    _, out, _ = reviewing("yes", "3", "y", schema=path)
    assert "All is reviewed." in out
    assert len(reviewing.asked) == 3
    schema = Schema.load(path)
    assert (schema.unreviewed, schema.classes, schema.person.rows) == ((), ("no", "yes"), 3)
    for name in made.left_out:
        assert f"Left out: '{name}'" in out


def test_adult_needs_two_answers(tmp_path, reviewing):
    table, path = tmp_path / "adult.csv", tmp_path / "adult.toml"
    write_csv(table, "train")
    path.write_text(draft(table, "income", bins=6).text())
    _, out, _ = reviewing("", "y", schema=path)
    assert "All is reviewed." in out
    assert len(reviewing.asked) == 2
    assert (Schema.load(path).unreviewed, Schema.load(path).classes) == ((), ("<=50K", ">50K"))


def test_nothing_counts_as_reviewed_without_a_signature_on_all_of_it(reviewing, drafted):
    before = Schema.load(drafted).unreviewed
    for answers in ((), ("b", "1"), ("b", "1", ""), ("b", "1", "yes"), ("b", "1", "Y", "sign")):
        code, out, err = reviewing(*answers)
        assert (code, err) == (0, "")
        assert "Left to review: " in out
        left = Schema.load(drafted).unreviewed
        assert set(before) - set(left) <= {"label.positive", "person.rows"}
    shown = reviewing("y")[1]
    for value in ("Oslo, Rome", "40 to 110; cut at 60, 80, 100", "f0, f1, f2", "0 to 120, as usual"):
        assert value in " ".join(shown.split())
    assert Schema.load(drafted).unreviewed == ()


def test_answers_are_kept_and_the_next_review_goes_on(reviewing, drafted):
    comments = [line for line in drafted.read_text().splitlines() if line.startswith("#")]
    assert "Left to review: the rows of a person, the page to sign off." in reviewing("a")[1]
    assert Schema.load(drafted).classes == ("b", "a")
    code, out, _ = reviewing("many", "0", "days 0 365", "age 0 110", "drop f1, f2", "y")
    assert code == 0
    assert "Expected a whole number of rows, got 'many'" in out
    assert "Protects single rows, not people" in out
    assert "All is reviewed." in out
    schema = Schema.load(drafted)
    assert (schema.unreviewed, schema.person) == ((), None)
    age, days, *rest = schema.columns
    assert (age.bounds, days.bounds, days.reference) == ((0.0, 110.0), (0.0, 365.0), 0.0)
    assert len(days.edges) >= 3
    assert [column.name for column in rest] == ["city", "smoker", "f0"]
    assert [line for line in drafted.read_text().splitlines() if line.startswith("#")] == comments
    assert "All is reviewed." in reviewing()[1]


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        ("sure", "Expected y, NAME LOW HIGH, drop NAME, NAME or Enter, got 'sure'"),
        ("age 9 1", "low < high"),
        ("age nan 1", "low < high"),
        ("city 0 1", "a column of numbers to set bounds of, got column='city'"),
        ("y 0 1", "a column of the schema, got 'y'"),
        ("drop y", "a column of the schema, got 'y'"),
        ("drop none", "a column of the schema, got 'none'"),
        ("drop patient_id", "a column of the schema, got 'patient_id'"),
    ],
)
def test_what_the_page_cannot_do_is_refused(reviewing, drafted, answer, told):
    reviewing("b", "1")
    before = drafted.read_text()
    _, out, _ = reviewing(answer)
    assert told in " ".join(out.split())
    assert drafted.read_text() == before


def test_the_bounds_of_a_label_are_on_the_page(written, tmp_path, reviewing):
    path = tmp_path / "costs.toml"
    path.write_text(draft(written("x,y\n" + "".join(f"{i % 7 / 7},{i * 1.5}\n" for i in range(30))), "y").text())
    _, out, _ = reviewing("y 0 1000", "y", schema=path)
    assert "0 to 44" in out
    assert (Schema.load(path).label.bounds, Schema.load(path).unreviewed) == ((0.0, 1000.0), ())


def test_the_last_column_stays(written, tmp_path, reviewing):
    path = tmp_path / "one.toml"
    path.write_text(draft(written("x,y\n" + "".join(f"{i % 7 / 7},{i % 2}\n" for i in range(30))), "y").text())
    assert "more than one column to drop one" in reviewing("1", "drop x", schema=path)[1]
    assert len(Schema.load(path).columns) == 1


def test_without_questions(reviewing, drafted):
    before = drafted.read_text()
    code, out, _ = reviewing(options=["--list"])
    assert code == 0
    assert "f0, f1, f2" in out
    assert "Left to review: the positive class, the rows of a person, the page to sign off." in out
    answer = json.loads(reviewing(options=["--json"])[1])
    assert answer["decisions"] == ["label.positive", "person.rows"]
    assert [row["columns"] for row in answer["page"]][3] == ["f0", "f1", "f2"]
    assert answer["unreviewed"] == len(Schema.load(drafted).unreviewed)
    assert drafted.read_text() == before


def test_marks_by_hand_are_on_the_page(drafted):
    schema = Schema.load(drafted)
    marked = replace(schema, unreviewed=("person.column", "columns.city.other"))
    assert [(row.kind, row.found) for row in page(marked)] == [
        ("person", {"column": "patient_id"}),
        ("categorical", {"other": True, "reference": "Oslo"}),
    ]
    with pytest.raises(InputError, match=r"person\.KEY"):
        replace(schema, unreviewed=("person.name",))


def test_a_file_that_somebody_else_edits_is_not_overwritten(drafted):
    from sottovoce.cli.review import _Work

    work = _Work(drafted, drafted.read_text())
    drafted.write_text(drafted.read_text() + "# mine\n")
    with pytest.raises(InputError, match="nobody else to edit"):
        work._keep(editing.with_positive(work.text, work.schema, "a"))
    assert drafted.read_text().endswith("# mine\n")


def test_on_a_terminal(drafted):
    ours, theirs = pty.openpty()
    code = "import sys; from sottovoce.cli import main; sys.exit(main(sys.argv[1:]))"
    with started(
        [sys.executable, "-c", code, "schema", "review", str(drafted)], stdin=theirs, stdout=theirs, stderr=theirs
    ) as process:
        os.close(theirs)
        os.write(ours, b"b\n2\nage 0 110\n\n")
        assert process.wait(60) == 0
    os.close(ours)
    schema = Schema.load(drafted)
    assert (schema.columns[0].bounds, schema.person.rows) == ((0.0, 110.0), 2)
    assert "columns.age.bounds" in schema.unreviewed


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
    wider = editing.with_bounds(ODD, schema, "a]b", -1.0, 11.0)
    assert Schema.loads(wider).columns[0].bounds == (-1.0, 11.0)
    for name, other in (("a]b", "x"), ("x", "a]b")):
        assert [column.name for column in Schema.loads(editing.without_columns(ODD, schema, name)).columns] == [other]
    assert "# of x" in editing.without_columns(ODD, schema, "a]b")
    with pytest.raises(InputError, match="a column of the schema, got 'b'"):
        editing.without_columns(ODD, schema, "x, b")
    inline = '[label]\ncolumn = "y"\nclasses = ["p", "q"]\n[[columns]]\nname = "x"\nkind = "boolean"\n'
    unusual = 'columns = [{name = "x", kind = "boolean"}, {name = "z", kind = "boolean"}]\n' + inline.split("[[")[0]
    with pytest.raises(InputError, match="Edit it by hand"):
        editing.without_columns(unusual, Schema.loads(unusual), "x")


def test_five_thousand_columns_alike_are_one_row(reviewing, drafted):
    columns = "".join(f'[[columns]]\nname = "g{i}"\nkind = "boolean"\n' for i in range(5000))
    marks = "".join(f'"columns.g{i}.kind", "columns.g{i}.missing",\n' for i in range(5000))
    drafted.write_text(f'unreviewed = [\n{marks}]\n[label]\ncolumn = "y"\nclasses = ["a", "b"]\n{columns}')
    (row,) = page(Schema.load(drafted))
    assert row.columns == tuple(f"g{i}" for i in range(5000))
    code, out, _ = reviewing("y")
    assert code == 0
    assert "g4999" in out
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
    # A number that is no shorter than the columns reach is as good as the bound, and is told so.
    assert "row_norm = 50 allows rows of norm 6, but" in on_row_norm(replace(many, row_norm=50.0))
    assert "the noise is 1.4 times smaller" in on_row_norm(replace(many, row_norm=5.0))
