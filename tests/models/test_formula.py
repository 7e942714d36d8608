"""Formulas give what the model predicts, computed by SQLite and by the package formulas, on whatever a file holds."""

import csv
import sqlite3
from dataclasses import replace

import numpy as np
import pytest

from models.clinics import CLINIC, cells, encoded_one_by_one, model_of
from sottovoce.cli import main
from sottovoce.errors import InputError, UnsupportedError
from sottovoce.files import models
from sottovoce.files.models.formula import formula
from sottovoce.files.schema import Interaction, Schema, files
from sottovoce.problem.losses import Huber, Logistic, Poisson, SmoothedHinge, Softmax, WeightedLogistic

# Where Python compiles that package first, it warns of how it is written.
pytestmark = pytest.mark.filterwarnings("ignore::SyntaxWarning")


def typed(columns, schema):
    """The same cells as a database has them: numbers, texts, and None for a number that is missing."""
    kinds = {column.name: column.kind() for column in schema.columns}

    def of(name, text):
        if kinds[name] != "numeric":
            return str(text)
        return None if text in schema.missing_values else float(text)

    return {name: [of(name, text) for text in texts] for name, texts in columns.items()}


def by_sql(model, columns):
    """Names and rows of the query's answers, without the columns of the table."""
    schema, base = model.schema, sqlite3.connect(":memory:")
    quoted = ['"' + name.replace('"', '""') + '"' for name in columns]
    numeric = [column.name for column in schema.columns if column.kind() == "numeric"]
    kinds = ["REAL" if name in numeric else "TEXT" for name in columns]
    base.execute(f"CREATE TABLE new_rows ({', '.join(map(' '.join, zip(quoted, kinds, strict=True)))})")
    marks = ", ".join("?" * len(columns))
    base.executemany(f"INSERT INTO new_rows VALUES ({marks})", zip(*columns.values(), strict=True))
    found = base.execute(formula(model, "sql"))
    names = [one[0] for one in found.description][len(columns) :]
    return names, [row[len(columns) :] for row in found.fetchall()]


def by_sheet(model, columns):
    """The same from the formulas of a spreadsheet; None where they have an error, as #N/A."""
    import formulas  # takes seconds

    told = dict(line.split(": ", 1) for line in formula(model, "spreadsheet").splitlines() if line[1:2] in "12")
    places = {told[f"{letter}1"]: letter for letter in "ABCDEFGHIJ" if f"{letter}1" in told}
    made = {
        name: formulas.Parser().ast(told[f"{letter}2"])[1].compile()
        for name, letter in places.items() if f"{letter}2" in told
    }  # fmt: skip
    rows = []
    for row in zip(*columns.values(), strict=True):
        known = {f"{places[name]}2": "" if x is None else x for name, x in zip(columns, row, strict=True)}
        for name, function in made.items():
            value = np.asarray(function(*(known[i] for i in function.inputs))).item()
            known[f"{places[name]}2"] = None if str(value).startswith("#") else value
            if known[f"{places[name]}2"] is None:
                break
        rows.append([known.get(f"{places[name]}2") for name in made])
    return [*made], rows


KINDS = {
    "logistic": (Logistic(), ("well", "ill")),
    "class weights": (WeightedLogistic(4.0), ("well", "ill")),
    "hinge": (SmoothedHinge(), ("it's", 'not "well"')),
    "number": (Huber(0.5), None),
    "counts": (Poisson(2.0), None),
}


@pytest.mark.parametrize("form", ["sql", "spreadsheet"])
@pytest.mark.parametrize(("loss", "classes"), KINDS.values(), ids=KINDS)
def test_formulas_predict_what_the_model_predicts(loss, classes, form, tmp_path):
    schema = replace(CLINIC, missing_values=("", "?", "NA", "-3"))
    model = model_of(schema, loss, classes, offset=3.0 if isinstance(loss, Huber) else 0.0)
    columns = cells(200 if form == "sql" else 60)
    names, found = {"sql": by_sql, "spreadsheet": by_sheet}[form](model, typed(columns, schema))
    rows = encoded_one_by_one(columns, schema, tmp_path)
    assert names[0] in ("sottovoce_score", "score")
    for row, answers in zip(rows, found, strict=True):
        said = dict(zip(names[1:], answers[1:], strict=True))
        if row is None:
            assert set(answers) == {None}
            continue
        one = row[None, :]
        assert answers[0] == pytest.approx(model.outputs(one)[0, 0], rel=1e-12, abs=1e-12)
        if classes is None:
            assert said == {"prediction": pytest.approx(model.decide(one)[0], rel=1e-12)}
            continue
        assert said.pop("prediction") == classes[int(model.decide(one)[0])]
        chances = model.probabilities(one)[0] if model.has_probabilities else []
        assert said == {f"probability {name}": pytest.approx(p) for name, p in zip(classes, chances, strict=False)}
    assert 10 < sum(row is not None for row in rows) < len(rows) - 10


ODD = """
intercept = 2
row_norm = "bound"
missing_values = ["", "N'A", "-9"]
[label]
column = "out"
classes = ["a", "b"]
[[columns]]
name = 'it"s; DROP TABLE new_rows; --'
kind = "categorical"
categories = ["x', 'y", "A", "a", "*", '"q"', "?"]
reference = "A"
missing = "indicator"
[[columns]]
name = "select"
kind = "numeric"
bounds = [1e-7, 1e15]
scale = "unit"
missing = "fill"
fill = 0.1
[[columns]]
name = "k"
kind = "numeric"
bounds = [-1, 1]
edges = [0.1, 0.30000000000000004]
reference = 0.2
missing = "indicator"
"""
ODD_CELLS = {
    'it"s; DROP TABLE new_rows; --': ["x', 'y", "A", "a", "*", '"q"', "?", "N'A", "", "b"],
    "select": ["1e-7", "1e15", "3.25", "5e14", "", "-9", "0", "1e300", "12345.678"],
    "k": ["0.1", "0.3", "0.30000000000000004", "-5", "5", "", "-9", "0.2", "0"],
}


@pytest.mark.parametrize("form", ["sql", "spreadsheet"])
def test_odd_names_levels_and_numbers(form, tmp_path):
    schema = Schema.loads(ODD)
    model = model_of(schema, Logistic(), ("a", "b"))
    draw = np.random.default_rng(1)
    columns = {name: draw.choice(texts, 100).tolist() for name, texts in ODD_CELLS.items()}
    _, found = {"sql": by_sql, "spreadsheet": by_sheet}[form](model, typed(columns, schema))
    path, rows = tmp_path / "row.csv", []
    for row in zip(*columns.values(), strict=True):
        with path.open("w", newline="") as file:
            csv.writer(file).writerows([list(columns), row])
        try:
            (chunk,) = files.encode_features(path, schema)
        except InputError:
            rows.append(None)
        else:
            rows.append(model.outputs(chunk.features)[0, 0])
    assert None in rows
    # Spreadsheets keep 15 digits.
    assert [answers[0] for answers in found] == [
        None if z is None else pytest.approx(z, rel=1e-12 if form == "sql" else 1e-9, abs=1e-12) for z in rows
    ]


def test_numbers_that_a_database_keeps_as_text_have_no_prediction():
    model = model_of()
    row = ("50", 1.0, 100.0, "north", "A", "yes")
    base = sqlite3.connect(":memory:")
    base.execute("CREATE TABLE new_rows (age TEXT, dose REAL, pressure REAL, ward TEXT, blood TEXT, smoker TEXT)")
    base.execute("INSERT INTO new_rows VALUES (?, ?, ?, ?, ?, ?)", row)
    query = formula(model, "sql")
    assert base.execute(query).fetchone()[-4:] == (None,) * 4
    base.execute("ALTER TABLE new_rows RENAME COLUMN age TO old")
    base.execute("ALTER TABLE new_rows ADD COLUMN age REAL")
    base.execute("UPDATE new_rows SET age = CAST(old AS REAL)")
    assert None not in base.execute(query).fetchone()[-4:]


REFUSED = {
    "no schema": (lambda: model_of(None, d=3), "no schema"),
    "three classes": (lambda: model_of(loss=Softmax(3), classes=("a", "b", "c")), "3 classes"),
    "rows are shortened": (lambda: model_of(replace(CLINIC, row_norm=1.2)), r"rows that are shortened to .* = 1\.2"),
    "backslash": (lambda: model_of(replace(CLINIC, missing_values=("\\",))), "with a backslash"),
    "control character": (lambda: model_of(classes=("a", "b\x1b[2J")), "control character"),
    "terms": (
        lambda: model_of(replace(CLINIC, terms=(Interaction(columns=("age", "smoker")),))),
        "the term age:smoker, of kind 'interaction'",
    ),
    "codes": (
        lambda: model_of(replace(CLINIC, columns=(*CLINIC.columns[:4], replace(CLINIC.columns[4], first=2)))),
        "codes that are cut to 2 characters in column 'blood'",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("make", "told"), REFUSED.values(), ids=REFUSED)
def test_what_is_not_simple_is_refused_by_name(make, told):
    for form in ("sql", "spreadsheet"):
        with pytest.raises(UnsupportedError, match=f"{told}.*Use sottovoce predict or export"):
            formula(make(), form)


def test_what_a_spreadsheet_cannot_take_is_refused():
    long = replace(CLINIC.columns[3], categories=("x" * 256, "y"))
    with pytest.raises(UnsupportedError, match="at most 255 characters"):
        formula(model_of(replace(CLINIC, columns=(long,))), "spreadsheet")
    many = replace(CLINIC.columns[3], categories=tuple(f"level {i}" for i in range(500)))
    with pytest.raises(UnsupportedError, match="at most 8192 characters"):
        formula(model_of(replace(CLINIC, columns=(many,))), "spreadsheet")
    assert "'level 499'" in formula(model_of(replace(CLINIC, columns=(many,))), "sql")


def test_on_the_command_line(tmp_path, capsys):
    path = tmp_path / "model.safetensors"
    models.save(model_of(), path)
    assert main(["show", str(path), "--formula", "sql"]) == 0
    out = capsys.readouterr().out
    assert out == formula(models.load(path), "sql") + "\n"
    assert out.startswith("-- The model promises")
    assert main(["show", str(path), "--formula", "r"]) == 2
    assert "formula among" in capsys.readouterr().err
    assert main(["show", str(path), "--formula", "sql", "--json"]) == 2
