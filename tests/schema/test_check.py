"""Reports: every cell is counted, the first are named, and nothing stops at the first problem."""

import json

import pytest

from schema.samples import FILE, HEADER, ROWS
from sottovoce.files.schema import Schema, reading
from sottovoce.files.schema.check import check
from sottovoce.files.schema.findings import Finding
from sottovoce.settings import plain


def counts(report):
    return {(count.column, count.finding): count.cells for count in report.counts}


def test_the_sample_fits_with_notes(written, schema):
    report = check(written(), schema)
    assert report.fits
    assert (report.rows, report.used, report.problems) == (5, 5, ())
    assert counts(report) == {
        ("age", Finding.CLIPPED): 1,
        ("dose", Finding.CLIPPED): 1,
        ("dose", Finding.FILLED): 1,
        ("pressure", Finding.INDICATED): 1,
        ("ward", Finding.OTHER): 1,
        ("blood", Finding.FILLED): 1,
        ("smoker", Finding.INDICATED): 1,
    }
    assert [(note.row, note.column) for note in report.notes] == [
        (3, "ward"), (4, "age"), (4, "dose"), (4, "pressure"), (4, "blood"), (4, "smoker"), (5, "dose"),
    ]  # fmt: skip
    assert report.notes[0].message == "row 3, column 'ward': got 'east', unknown category: counted as \"other\"."
    json.dumps(plain(report), allow_nan=False)


@pytest.mark.parametrize("block", [250, reading.BLOCK])
def test_all_problems_are_found(written, schema, monkeypatch, block):
    monkeypatch.setattr(reading, "BLOCK", block)
    lines = [ROWS[i % 5] for i in range(400)]
    lines[10] = lines[10].replace("50,", "x,", 1)
    lines[20] += ",more"
    lines[21] = "1,2"
    lines[30] = lines[30].replace(",ill", ",sick")
    lines[40] = lines[40].replace("north", "NA")
    lines[300] = lines[300].replace(",A,", ",C,").replace("50,", ",", 1)
    lines[399] += ",last"
    report = check(written(HEADER + "\n\n".join(lines)), schema)
    assert not report.fits
    assert (report.rows, report.used) == (400, 393)  # three ragged, one dropped, three with refused cells
    assert [(problem.row, problem.column, problem.finding) for problem in report.problems] == [
        (11, "age", Finding.NOT_A_NUMBER),
        (21, None, Finding.RAGGED),
        (22, None, Finding.RAGGED),
        (31, "outcome", Finding.UNKNOWN),
        (301, "age", Finding.MISSING),
        (301, "blood", Finding.UNKNOWN),
        (400, None, Finding.RAGGED),
    ]
    assert counts(report)["ward", Finding.DROPPED] == 1
    assert "Expected 7 fields in row 22, as in the header, got 2." in [problem.message for problem in report.problems]


def test_only_the_first_are_told_but_all_are_counted(written, schema):
    report = check(written(HEADER + "\n".join(["x" + row for row in ROWS] * 20)), schema, keep=3)
    assert [problem.row for problem in report.problems] == [1, 2, 3]
    assert len(report.notes) == 3
    assert counts(report)["age", Finding.NOT_A_NUMBER] == 100


def test_columns_that_lack_and_columns_that_are_not_used(written, schema):
    report = check(written(FILE.replace("ward", "unit").replace("outcome", "result")), schema)
    assert [(problem.column, problem.finding) for problem in report.problems] == [
        ("ward", Finding.NO_COLUMN),
        ("outcome", Finding.NO_COLUMN),
    ]
    assert report.unused_columns == ("unit", "result")
    assert (report.rows, report.used) == (5, 0)
    assert counts(report)["age", Finding.CLIPPED] == 1


def test_no_rows(written, schema):
    report = check(written(HEADER), schema)
    assert [problem.finding for problem in report.problems] == [Finding.NO_ROWS]
    assert not check(written("a,b\n1,2\n"), schema).fits


def test_bytes_that_are_no_text(written, schema):
    content = FILE.encode().replace(b"east", b"\xe9ast").replace(b",AB,", b",\xe9,")
    report = check(written(content), schema)
    assert [(problem.row, problem.column, problem.finding) for problem in report.problems] == [
        (3, "ward", Finding.NOT_TEXT),
        (3, "blood", Finding.NOT_TEXT),
    ]


def test_whole_numbers_that_pandas_wrote_as_fractions(written):
    """Such a column has gaps: 1 becomes 1.0, which is not the text that was declared."""
    declared = Schema.loads(
        'version = 1\n[label]\ncolumn = "y"\nclasses = ["0", "1"]\n'
        '[[columns]]\nname = "code"\nkind = "categorical"\ncategories = ["5", "6"]\n'
        '[[columns]]\nname = "grade"\nkind = "categorical"\ncategories = ["1", "2"]\nother = true\n'
        '[[columns]]\nname = "smoker"\nkind = "boolean"\n'
    )
    report = check(written("code,grade,smoker,y\n5.0,2.0,1.0,0.0\n6,7.0,1,1\n"), declared)
    assert [(problem.row, problem.column) for problem in report.problems] == [(1, "code"), (1, "smoker"), (1, "y")]
    assert all("Without its .0 it is declared" in problem.message for problem in report.problems)
    noted = {(note.row, note.column): "Without its .0 it is declared" in note.message for note in report.notes}
    assert noted == {(1, "grade"): True, (2, "grade"): False}
