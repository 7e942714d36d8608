"""Awkward and broken files: read rightly, or refused by row and column, and never changed."""

import hashlib
import re

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from schema.samples import FILE, HEADER, ROWS
from sottovoce.errors import InputError
from sottovoce.files.schema import files, reading
from sottovoce.files.schema.check import check
from sottovoce.files.schema.draft import draft

HARMLESS = {
    "byte order mark": "\ufeff" + FILE,
    "windows lines": FILE.replace("\n", "\r\n"),
    "old mac lines": FILE.replace("\n", "\r"),
    "no last line break": FILE.rstrip("\n"),
    "blank lines": "\n\n" + FILE.replace("\n", "\n\n"),
    "spaces": FILE.replace(",", " ,\t"),
    "quotes": "\n".join(",".join(f'"{cell}"' for cell in line.split(",")) for line in FILE.splitlines()),
    "more columns": "\n".join(f'"a, ""b""\nc",{line},ü' for line in FILE.splitlines()),
    "other order": "\n".join(",".join(line.split(",")[::-1]) for line in FILE.splitlines()),
}


@pytest.mark.parametrize("text", HARMLESS.values(), ids=HARMLESS.keys())
def test_harmless(written, schema, text):
    data, plain = files.encode(written(text), schema), files.encode(written(FILE, "plain.csv"), schema)
    assert (data.features != plain.features).nnz == 0
    np.testing.assert_array_equal(data.labels, plain.labels)
    assert check(written(text), schema).fits


def swapped(row, old, new):
    assert old in ROWS[row - 1]
    return HEADER + "\n".join(line.replace(old, new, 1) if i == row else line for i, line in enumerate(ROWS, 1)) + "\n"


REFUSED = {
    "not a number": (swapped(2, "25,", "2s,"), "a number in row 2, column 'age', got '2s'"),
    "decimal comma": (swapped(2, "25,", '"2,5",'), "a number in row 2, column 'age', got '2,5'"),
    "infinite": (swapped(2, "25,", "inf,"), "a number in row 2, column 'age', got 'inf'"),
    "too large": (swapped(2, "25,", "1e999,"), "a number in row 2, column 'age', got '1e999'"),
    "nan": (swapped(2, "25,", "nan,"), "a number in row 2, column 'age', got 'nan'"),
    "hexadecimal": (swapped(2, "25,", "0x1,"), "a number in row 2, column 'age', got '0x1'"),
    "missing": (swapped(3, "100,", ","), "a number in row 3, column 'age', got ''. It counts as missing"),
    "unknown category": (swapped(3, "AB", "C"), "one of the categories A, B, AB, 0 in row 3, column 'blood', got 'C'"),
    "unknown truth": (swapped(3, "true", "maybe"), "row 3, column 'smoker', got 'maybe'"),
    "unknown class": (swapped(1, "ill", "sick"), "one of the classes well, ill in row 1, column 'outcome', got 'sick'"),
    "class in capitals": (swapped(1, "ill", "Ill"), "row 1, column 'outcome', got 'Ill'"),
    "missing label": (swapped(1, "ill", "NA"), "row 1, column 'outcome', got 'NA'. It counts as missing"),
    "first of two": (swapped(2, "25,", "x,").replace("true", "x"), "row 2, column 'age'"),
    "too few fields": (swapped(4, "200,?,", "200,"), "7 fields in row 4 of file=.*got 6"),
    "too many fields": (swapped(4, "200,", "200,1,"), "7 fields in row 4 of file=.*got 8"),
    "not UTF-8": (swapped(3, "east", "e").encode().replace(b",e,", b",\xe9,"), "UTF-8 text in row 3, column 'ward'"),
    "quote never closed": (swapped(3, "east", '"east') + FILE, "fields in row 3"),
    "quote never closed, last field": (swapped(3, ",ill", ',"ill'), "row 3, column 'outcome'"),
    "line break in a category": (swapped(3, "east", '"ea\nst"'), "row 3, column 'ward', got"),
    "no such column": (FILE.replace("ward", "unit"), "a column 'ward' in file=.*It has 'age', 'dose'"),
    "semicolons": (FILE.replace(",", ";"), "separated by semicolons"),
    "name twice": (FILE.replace("ward", "age"), "different column names in file=.*got 'age' twice"),
    "empty": ("", "with a header, got file=.*which is empty"),
    "blank": ("\n\n\n", "which is empty"),
    "header only": (HEADER, "at least one row in file=.*got rows: none"),
    "header without line break": (HEADER.rstrip(), "at least one row in file="),
    "header not UTF-8": (b"\xff,b\n1,2\n", "header in UTF-8"),
    "UTF-16": (FILE.encode("utf-16"), "in UTF-16. Save it as UTF-8"),
    "zero bytes": (bytes(1000), "a column 'age' in file="),
    "an image": (b"\x89PNG\r\n\x1a\n" + bytes(range(256)) * 4, "file="),
    "start of a Parquet file": (b"PAR1" + bytes(100), "a CSV or Parquet file that can be read"),
    "giant field in the header": ("x" * 200_000, "field larger than field limit"),
    "giant header": ("x," * 3_000_000, "header of at most 4194304 characters"),
}


@pytest.mark.parametrize(("content", "told"), REFUSED.values(), ids=REFUSED.keys())
def test_refused_by_name(written, schema, content, told):
    path = written(content)
    before = hashlib.sha256(path.read_bytes()).hexdigest()
    hidden = re.sub("(, column '.*?'), got '.*?'", r"\1, got a private value, not shown here .*", told)
    with pytest.raises(InputError, match=hidden) as caught:
        files.encode(path, schema)
    if told != hidden:  # only who asks what is wrong with a file is shown what it holds
        assert re.search(told, check(path, schema).problems[0].message)
    assert "rows.csv" in str(caught.value)
    assert len(str(caught.value)) < 800
    assert hashlib.sha256(path.read_bytes()).hexdigest() == before
    assert [entry.name for entry in path.parent.iterdir()] == ["rows.csv"]


def test_every_row_dropped(written, schema):
    text = HEADER + ROWS[0].replace("north", "?") + "\n"
    with pytest.raises(InputError, match="every row has a missing value and is dropped"):
        files.encode(written(text), schema)


def test_rows_are_numbered_across_chunks(written, schema, monkeypatch):
    monkeypatch.setattr(reading, "BLOCK", 300)
    lines = [ROWS[i % 5] for i in range(1000)]
    lines[777] = lines[777].replace(",", ",x", 1)
    with pytest.raises(InputError, match="row 778, column 'dose'"):
        files.encode(written(HEADER + "\n".join(lines)), schema)
    lines[555] += ",more"
    with pytest.raises(InputError, match="7 fields in row 556 "):
        files.encode(written(HEADER + "\n".join(lines)), schema)


def test_a_record_longer_than_a_block(written, schema, monkeypatch):
    monkeypatch.setattr(reading, "BLOCK", 1000)
    text = FILE * 30 + ROWS[0].replace("north", f'"{"n" * 5000}"') + "\n"
    with pytest.raises(InputError, match=r"records of at most 1000 bytes in file=.*after row [1-9].*never closed"):
        files.encode(written(text.replace("\n" + HEADER, "\n")), schema)


def test_a_giant_field_is_shown_in_short(written, schema):
    path = written(HEADER + ROWS[0].replace("ill", "z" * 1_000_000))
    with pytest.raises(InputError, match="row 1, column 'outcome', got a private value, not shown here") as caught:
        files.encode(path, schema)
    assert "zzz" not in str(caught.value)
    (problem,) = check(path, schema).problems
    assert "row 1, column 'outcome', got 'zzz" in problem.message
    assert len(problem.message) < 800


@pytest.mark.parametrize("name", ["none.csv", "none.parquet", "", "a\0b"])
def test_no_such_file(tmp_path, schema, name):
    with pytest.raises(InputError, match="can be read, got file="):
        files.encode(tmp_path / name, schema)


def test_not_a_parquet_file(written, schema):
    with pytest.raises(InputError, match=r"can be read, got file=.*rows\.parquet"):
        files.encode(written(FILE, "rows.parquet"), schema)


def test_a_truncated_parquet_file(tmp_path, schema):
    path = tmp_path / "rows.parquet"
    pq.write_table(pa.table({"age": list(range(1000))}), path)
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(InputError, match="can be read, got file="):
        files.encode(path, schema)


@pytest.mark.parametrize("wrong", [pa.array([1, 2], pa.duration("s")), pa.array([[1], [2]]), pa.array([{"a": 1}] * 2)])
def test_parquet_types_that_mean_nothing(tmp_path, schema, wrong):
    columns = {name: pa.array(["1", "2"]) for name in HEADER.strip().split(",")}
    pq.write_table(pa.table(columns | {"age": wrong}), tmp_path / "rows.parquet")
    with pytest.raises(InputError, match=r"text, numbers, dates or truth values in column 'age' of file=.*got type="):
        files.encode(tmp_path / "rows.parquet", schema)


def test_parquet_rows_are_numbered(tmp_path, schema):
    lines = [ROWS[i % 5].split(",") for i in range(300)]
    lines[250][4] = "C"
    names = HEADER.strip().split(",")
    columns = {name: [line[i] for line in lines] for i, name in enumerate(names)}
    pq.write_table(pa.table(columns), tmp_path / "rows.parquet", row_group_size=40)
    with pytest.raises(InputError, match="row 251, column 'blood', got a private value"):
        files.encode(tmp_path / "rows.parquet", schema)
    columns["blood"] = [line[4].encode() for line in lines]
    columns["blood"][99] = b"\xff"
    pq.write_table(pa.table(columns), tmp_path / "rows.parquet")
    with pytest.raises(InputError, match="UTF-8 text in row 100, column 'blood'"):
        files.encode(tmp_path / "rows.parquet", schema)


def test_drafting_refuses_what_cannot_be_read(written):
    with pytest.raises(InputError, match="UTF-8 text in row 1, column 'a'"):
        draft(written(b"a,b\n\xff,1\n"), "b")
    with pytest.raises(InputError, match="2 fields in row 2 of file="):
        draft(written("a,b\n1,2\n3\n"), "b")
