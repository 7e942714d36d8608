"""Files as people have them: packed, delimited otherwise, with decimal commas, without a header, with dates."""

import bz2
import gzip
import io
import lzma
import zipfile
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from schema.samples import FILE, HEADER, ROWS
from sottovoce.errors import InputError
from sottovoce.files.schema import FileForm, Schema, files
from sottovoce.files.schema.check import check
from sottovoce.files.schema.draft import draft
from sottovoce.files.schema.sniffing import sniff

PLAIN = FILE.encode()


def zipped(*names):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in names:
            archive.writestr(name, PLAIN)
    return buffer.getvalue()


PACKED = {
    "gzip": gzip.compress(PLAIN),
    "two gzips below each other": gzip.compress(PLAIN[:40]) + gzip.compress(PLAIN[40:]),
    "bzip2": bz2.compress(PLAIN),
    "xz": lzma.compress(PLAIN),
    "zip": zipped("rows.csv", "__MACOSX/rows.csv"),
    "plain, whatever its name ends in": PLAIN,
}


def same(data, other):
    assert (data.features != other.features).nnz == 0
    np.testing.assert_array_equal(data.labels, other.labels)


@pytest.mark.parametrize("content", PACKED.values(), ids=PACKED.keys())
@pytest.mark.parametrize("name", ["rows.csv", "rows.csv.gz"])
def test_packed_files_read_as_plain_ones(written, schema, content, name):
    path = written(content, name)
    same(files.encode(path, schema), files.encode(written(FILE, "plain.csv"), schema))
    assert check(path, schema).fits
    assert draft(path, "outcome").schema.label.column == "outcome"


BROKEN = {
    "cut off gzip": (gzip.compress(PLAIN * 50)[:-30], "can be read"),
    "damaged gzip": (gzip.compress(PLAIN)[:20] + b"xxxx" + gzip.compress(PLAIN)[24:], "can be read"),
    "cut off zip": (zipped("a.csv")[:-10], "can be read"),
    "two members": (zipped("a.csv", "b.csv"), "one file in zip.*got 2: \\['a.csv', 'b.csv'\\]. Unpack it"),
    "no member": (zipped(), "one file in zip"),
    "workbook": (zipped("[Content_Types].xml", "xl/sheet.xml"), "office document. Save the sheet"),
    "old workbook": (b"\xd0\xcf\x11\xe0" + bytes(100), "office document. Save the sheet"),
    "packed Parquet": (gzip.compress(b"PAR1" + bytes(50)), "which is packed. Unpack it"),
    "UTF-16 inside": (gzip.compress(FILE.encode("utf-16")), "Save it as UTF-8"),
}


@pytest.mark.parametrize(("content", "told"), BROKEN.values(), ids=BROKEN.keys())
def test_what_cannot_be_unpacked_is_refused(written, schema, content, told):
    for act in (lambda p: files.encode(p, schema), lambda p: check(p, schema), lambda p: draft(p, "outcome")):
        with pytest.raises(InputError, match=told) as caught:
            act(written(content))
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize("sign", [";", "\t", "|"])
def test_delimiters_are_found_out_and_remembered(written, schema, sign):
    path = written(FILE.replace(",", sign))
    made = draft(path, "outcome").schema
    assert made.file == FileForm(sign)
    assert Schema.loads(made.dumps()) == made
    assert check(path, made).fits
    told = replace(schema, file=FileForm(sign))
    same(files.encode(path, told), files.encode(written(FILE, "plain.csv"), schema))
    assert told.digest() == schema.digest()
    with pytest.raises(InputError, match="say so with --delimiter, or as delimiter = "):
        files.encode(path, schema)


EUROPEAN = "x;y\n" + "".join(f"{i // 7},{i % 7}5;{'a' if i % 3 else 'b'}\n" for i in range(60))


def test_decimal_commas(written):
    made = draft(written(EUROPEAN), "y").schema
    assert made.file == FileForm(";", ",")
    data = files.encode(written(EUROPEAN), made)
    plain = files.encode(written(EUROPEAN.replace(",", ".").replace(";", ","), "p.csv"), replace(made, file=FileForm()))
    same(data, plain)
    # A point may separate thousands: 1.234 is not guessed at.
    with pytest.raises(InputError, match=r"a number in row 1, column 'x', got a private value"):
        files.encode(written(EUROPEAN.replace("0,05", "1.234", 1)), made)
    with pytest.raises(InputError, match=r'schema check shows it\). If the comma is a decimal sign, say decimal = ","'):
        files.encode(written(EUROPEAN), replace(made, file=FileForm(";")))


def test_commas_in_quotes_do_not_mislead(written):
    text = 'a,b,y\n"x;y;z","1;2;3",p\n"u;v;w","4;5;6",q\n'
    assert sniff(written(text)) == FileForm()
    assert sniff(written("only\n1\n2\n")) == FileForm()
    assert sniff(written("a;b\n1,5;2\n3,5\n"), delimiter=";") == FileForm(";", ",")


def test_a_file_without_a_header(written, schema):
    names = tuple(HEADER.strip().split(","))
    path, plain = written("\n".join(ROWS) + "\n"), written(FILE, "plain.csv")
    told = replace(schema, file=FileForm(names=names))
    same(files.encode(path, told), files.encode(plain, schema))
    assert check(path, told).rows == len(ROWS)
    assert Schema.loads(told.dumps()) == told
    with pytest.raises(InputError, match="If that is no header but a row, say the names of the columns"):
        files.encode(path, schema)
    with pytest.raises(InputError, match=r"7 fields in row 2 of file=.*got 2"):
        files.encode(written(ROWS[0] + "\n1,2\n"), told)
    with pytest.raises(InputError, match=r"a number in row 2, column 'age', got a private value"):
        files.encode(written(ROWS[0] + "\n" + ROWS[1].replace("25", "x", 1)), told)
    with pytest.raises(InputError, match=r"7 fields in row 1 of file=.*file.names of the schema, got 3"):
        files.encode(written("1,2,3\n"), told)
    problems = check(written(ROWS[0] + "\n1,2\n"), told).problems
    assert [problem.row for problem in problems] == [2]
    path = written("\n".join(ROWS) + "\n")
    made = draft(path, "column7", form=sniff(path, header=False)).schema
    assert made.file.names == tuple(f"column{i}" for i in range(1, 8))
    with pytest.raises(InputError, match="If that is no header but a row, say --no-header"):
        draft(path, "outcome")


def test_names_that_differ_in_case(written, schema):
    same(files.encode(written(HEADER.upper() + "\n".join(ROWS)), schema), files.encode(written(FILE, "p.csv"), schema))
    # As written goes first, and one column of the file never stands for two.
    both = files.encode(written(FILE.replace("age,", "AGE,age,").replace("\n5", "\nx,5").replace("\n2", "\nx,2")
                                .replace("\n1", "\nx,1").replace("\n0", "\nx,0")), schema)  # fmt: skip
    same(both, files.encode(written(FILE, "p.csv"), schema))
    twice = replace(schema, columns=(*schema.columns, replace(schema.columns[0], name="AGE")))
    with pytest.raises(InputError, match="a column 'AGE' in file="):
        files.encode(written(FILE), twice)
    with pytest.raises(InputError, match="a column 'age' in file="):
        files.encode(written(FILE.replace("age,dose", "Age,AGE")), schema)


@pytest.mark.parametrize("word", ["nan", "NaN", "null", "N/A"])
def test_words_for_no_value(written, schema, word):
    text = FILE.replace("25,", f"{word},")
    with pytest.raises(InputError, match="If it stands for no value, add it to missing_values in the schema"):
        files.encode(written(text), schema)
    made = draft(written(text), "outcome").schema
    assert made.columns[0].missing == "indicator"
    assert check(written(text), made).fits


def test_an_open_quote_in_a_column_that_is_not_used(written, schema):
    noted = "\n".join(f"{line},note" for line in FILE.splitlines())
    files.encode(written(noted), schema)
    cut = noted.replace("25,10,99.5,south,B,no,well,note", '25,10,99.5,south,B,no,well,"note')
    for text in (cut, cut + "\n", cut + "\n\n"):
        for act in (files.encode, check):
            with pytest.raises(InputError, match=r"quotes that are closed in file=.*Close it, or delete it"):
                act(written(text), schema)
    closed = noted + '\n50,0,130,north,A,yes,ill,"a note\nof two lines"\n'
    assert check(written(closed), schema).rows == 6


DATED = """
[label]
column = "y"
classes = ["a", "b"]
[[columns]]
name = "born"
kind = "age"
on = "2024-01-01"
bounds = [0, 100]
edges = [18, 65]
[[columns]]
name = "seen"
kind = "season"
by = "month"
"""


def test_dates_as_ages_and_seasons(written):
    schema = Schema.loads(DATED)
    assert schema.feature_names[:4] == ("born=[0,18)", "born=[18,65)", "born=[65,100]", "seen=January")
    text = "born,seen,y\n2010-05-01,2023-02-28,a\n1990-01-01 12:00,2023-12-31,b\n1930-12-31,20240229,a\n"
    dense = files.encode(written(text), schema).features.toarray()
    assert [list(np.flatnonzero(row)) for row in dense] == [[0, 4, 15], [1, 14, 15], [2, 4, 15]]
    with pytest.raises(InputError, match=r"a date like 2024-12-31 in row 2, column 'seen', got a private value.*order"):
        files.encode(written(text.replace("2023-12-31", "2023-02-29")), schema)
    american = Schema.loads(DATED.replace('by = "month"', 'by = "weekday"\norder = "mdy"'))
    row = files.encode(written("born,seen,y\n2010-05-01,12/25/2023,a\n"), american).features.toarray()[0]
    assert american.feature_names[int(np.flatnonzero(row)[1])] == "seen=Monday"


def test_timestamps_in_parquet_read_as_in_csv(written, tmp_path):
    from datetime import datetime

    schema = Schema.loads(DATED)
    born = [datetime(2010, 5, 1), datetime(1990, 1, 1, 12, 30), datetime(1930, 12, 31)]
    seen = [datetime(2023, 2, 28).date(), datetime(2023, 12, 31).date(), datetime(2024, 2, 29).date()]
    pq.write_table(pa.table({"born": born, "seen": seen, "y": ["a", "b", "a"]}), tmp_path / "rows.parquet")
    lines = "".join(f"{a},{b},{c}\n" for a, b, c in zip(born, seen, "aba", strict=True))
    same(files.encode(tmp_path / "rows.parquet", schema), files.encode(written(f"born,seen,y\n{lines}"), schema))
    made = draft(tmp_path / "rows.parquet", "y").schema
    assert [column.kind() for column in made.columns] == ["age", "age"]
    assert made == draft(written(f"born,seen,y\n{lines}"), "y").schema


def test_drafted_dates(written):
    text = "when,y\n" + "".join(f"{1 + i % 28}.{1 + i % 12}.{1950 + i % 50},{'ab'[i % 2]}\n" for i in range(300))
    (when,) = draft(written(text), "y").schema.columns
    assert (when.kind(), when.order) == ("age", "dmy")
    assert check(written(text), draft(written(text), "y").schema).fits
    assert "columns.when.order" in draft(written(text), "y").schema.unreviewed


def test_codes_cut_into_groups(written):
    schema = Schema.loads(
        '[label]\ncolumn = "y"\nclasses = ["a", "b"]\n[[columns]]\nname = "icd"\nkind = "categorical"\nfirst = 1\n'
        'categories = ["I", "J"]\nother = true\n'
    )
    dense = files.encode(written("icd,y\nI21.4,a\nJ45,b\nC50.9,a\n"), schema).features.toarray()
    assert [int(np.flatnonzero(row)[0]) for row in dense] == [0, 1, 2]
    assert Schema.loads(schema.dumps()) == schema
    with pytest.raises(InputError, match="at most first=1 characters, got category='I2'"):
        Schema.loads(schema.dumps().replace('"I"', '"I2"'))


def test_identifiers_are_left_out_with_a_reason(written):
    text = "nr,patient_id,amount,y\n" + "".join(f"{7 * i},{i % 150},{i % 120},{'ab'[i % 2]}\n" for i in range(300))
    made = draft(written(text), "y")
    assert [column.name for column in made.schema.columns] == ["amount"]
    assert "all different" in made.left_out["nr"]
    assert "whose row it is" in made.left_out["patient_id"]
    assert (made.schema.person.column, made.schema.person.rows) == ("patient_id", 1)
    kept = draft(written(text), "y", keep=["nr"])
    assert [column.name for column in kept.schema.columns] == ["nr", "amount"]
    with pytest.raises(InputError, match=r"a column of file=.* to keep, got 'nx'"):
        draft(written(text), "y", keep=["nx"])
    assert "# Left out: 'nr', its whole numbers are all different" in made.text()


def test_the_positive_class_is_said(written):
    text = "x,y\n" + "".join(f"{i / 7},{'ill' if i % 3 else 'well'}\n" for i in range(60))
    made = draft(written(text), "y", positive="ill").schema
    assert made.classes == ("well", "ill")
    assert 'positive = "ill"' in made.dumps()
    head = '[label]\ncolumn = "y"\nclasses = ["ill", "well"]\n'
    rest = '[[columns]]\nname = "x"\nkind = "boolean"\n'
    said = Schema.loads(head + 'positive = "ill"\n' + rest)
    assert said.classes == ("well", "ill")
    assert said.digest() == Schema.loads(head.replace('"ill", "well"', '"well", "ill"') + rest).digest()
    with pytest.raises(InputError, match=r"label\.positive among label\.classes"):
        Schema.loads(head + 'positive = "sick"\n' + rest)
    with pytest.raises(InputError, match=r"label\.positive with two classes only"):
        Schema.loads(head.replace('"ill", ', '"ill", "dead", ') + 'positive = "ill"\n' + rest)
    with pytest.raises(InputError, match=r"label\.positive with label\.classes only"):
        Schema.loads('[label]\ncolumn = "y"\nbounds = [0, 1]\npositive = "ill"\n' + rest)
