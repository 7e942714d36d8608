"""Encoding against an encoder that works cell by cell, and the bound on norms in any order of summation."""

import json
import math
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schema.samples import FILE, HEADER, ROWS, SCHEMA, encode
from sottovoce.errors import InputError
from sottovoce.files.schema import ClassLabel, NumberLabel, Numeric, Schema, files, reading
from sottovoce.settings import plain

QUICK = settings(max_examples=60)


def compare(path, text, schema):
    """The library against the cell-by-cell encoder."""
    data = files.encode(path, schema)
    rows, labels, kept = encode(text, plain(schema))
    assert data.features.has_canonical_format
    assert np.count_nonzero(data.features.data) == data.features.nnz
    np.testing.assert_allclose(data.features.toarray(), rows, rtol=1e-13, atol=1e-15)
    np.testing.assert_array_equal(data.labels, labels)
    (chunk,) = files.encode_features(path, schema)
    np.testing.assert_array_equal(chunk.rows, kept)
    np.testing.assert_array_equal(chunk.features.toarray(), data.features.toarray())
    return data


def test_the_sample_by_hand(written, schema):
    data = files.encode(written(), schema)
    b = math.sqrt(6.25)
    one = dict(zip(data.names, data.features.toarray()[0] * b, strict=True))
    assert {name: round(value, 12) for name, value in one.items() if value} == {
        "age": 0.5, "pressure=[120,140)": 1, "ward=north": 1, "blood=A": 1, "smoker": 1, "intercept": 0.5,
    }  # fmt: skip
    clipped = dict(zip(data.names, data.features.toarray()[3] * b, strict=True))
    assert {name: round(value, 12) for name, value in clipped.items() if value} == {
        "age": 1, "dose": 0.5, "pressure=<missing>": 1, "ward=north": 1, "blood=0": 1, "smoker=<missing>": 1,
        "intercept": 0.5,
    }  # fmt: skip
    assert data.labels.tolist() == [1, -1, 1, -1, -1]
    assert data.features.max() == pytest.approx(schema.largest)
    assert (data.n_train, data.data_norm, data.name, data.names) == (5, 1.0, "clinic", schema.feature_names)


def test_rows_with_a_missing_value_are_left_out_where_the_schema_says_so(written, schema):
    path = written(HEADER + "\n".join([ROWS[0], ROWS[1].replace("south", "?"), ROWS[2]]) + "\n")
    assert len(files.encode(path, schema)) == 2
    (chunk,) = files.encode_features(path, schema)
    assert chunk.rows.tolist() == [1, 3]


NUMBERS = st.one_of(
    st.integers(-300, 300).map(str),
    st.floats(-300, 300).map(repr),
    st.sampled_from(["100", "120", "1e2", "+5", ".5", "5.", "-0", "1E-3"]),
)
ABSENT = st.sampled_from(["", "?", "NA", " "])


@st.composite
def tables(draw):
    def row():
        return [
            draw(NUMBERS),
            draw(NUMBERS | ABSENT),
            draw(NUMBERS | ABSENT),
            draw(st.sampled_from(["north", "south", "east", "wést", '"x,y"', " north "]) | ABSENT),
            draw(st.sampled_from(["A", "B", "AB", "0"]) | ABSENT),
            draw(st.sampled_from(["yes", "NO", "1", "0", "true", "False"]) | ABSENT),
            draw(st.sampled_from(["well", "ill", " ill"])),
        ]

    rows = [row() for _ in range(draw(st.integers(1, 12)))]
    rows[0][3] = "north"  # at least one row is kept
    return HEADER + "".join(",".join(cells) + "\n" for cells in rows)


@QUICK
@given(text=tables(), norm=st.sampled_from(["bound", 0.5, 1.0, 1.7, 9.0]), intercept=st.sampled_from([0.0, 0.5, 3.0]))
def test_agrees_with_the_cell_by_cell_encoder(written, text, norm, intercept):
    compare(written(text), text, replace(Schema.loads(SCHEMA), row_norm=norm, intercept=intercept))


def summed(row, order):
    total = 0.0
    for x in row[order]:
        total += x * x
    return math.sqrt(total)


@settings(max_examples=30)
@given(
    columns=st.integers(1, 60),
    norm=st.sampled_from(["bound"]) | st.floats(1e-3, 20),
    intercept=st.sampled_from([0.0, 1.0]) | st.floats(1e-3, 1e3),
    seed=st.integers(0, 2**32 - 1),
)
def test_no_order_of_summation_finds_a_row_that_is_too_long(columns, norm, intercept, seed):
    from sottovoce.files.schema.encoding import shorten

    parts = tuple(Numeric(name=f"x{i}", bounds=(0, 1), scale="unit") for i in range(columns))
    schema = Schema(parts, ClassLabel(column="y", classes=("a", "b")), intercept=intercept, row_norm=norm)
    rng = np.random.default_rng(seed)
    ones = np.ones((8, columns))
    ones[4:] = rng.random((4, columns)) ** rng.integers(0, 4)
    value = np.hstack([ones, np.full((8, 1), intercept)]) if intercept else ones
    for row in shorten(schema, value):
        orders = [np.arange(len(row)), np.arange(len(row))[::-1], np.argsort(row), rng.permutation(len(row))]
        assert max(summed(row, order) for order in orders) <= schema.data_norm
        assert np.linalg.norm(row) <= schema.data_norm
    longest = np.linalg.norm(shorten(schema, value[:1]))
    assert longest >= schema.data_norm * (1 - 1e-12)


def test_short_rows_are_not_lengthened(written, schema):
    data = files.encode(written(), replace(schema, row_norm=2.03, intercept=0.0))
    whole = files.encode(written(), replace(schema, row_norm=100.0, intercept=0.0))
    lengths, before = (np.linalg.norm(made.features.toarray(), axis=1) for made in (data, whole))
    np.testing.assert_allclose(lengths, np.minimum(before, 2.03), rtol=1e-12)
    assert before.min() < 2.03 < before.max()


@pytest.mark.parametrize("block", [200, 1000])
def test_chunks_make_no_difference(written, schema, monkeypatch, block):
    text = HEADER + "".join(ROWS[i % 5].replace("25,", f"{i % 90},") + "\n" for i in range(500))
    whole = files.encode(written(text), schema)
    monkeypatch.setattr(reading, "BLOCK", block)
    chunks = list(files.encode_features(written(text), schema))
    assert len(chunks) > 10
    np.testing.assert_array_equal(np.concatenate([chunk.rows for chunk in chunks]), np.arange(1, 501))
    parts = files.encode(written(text), schema)
    assert (parts.features != whole.features).nnz == 0
    np.testing.assert_array_equal(parts.labels, whole.labels)


def test_three_classes_and_numbers(written, schema):
    text = HEADER + "\n".join(row.rsplit(",", 1)[0] + f",{y}" for row, y in zip(ROWS, "abcab", strict=True)) + "\n"
    three = replace(schema, label=ClassLabel(column="outcome", classes=("a", "b", "c")))
    assert compare(written(text), text, three).labels.tolist() == [0, 1, 2, 0, 1]
    text = HEADER + "\n".join(row.rsplit(",", 1)[0] + f",{y}" for row, y in zip(ROWS, (1, -5, 2.5, 99, 0), strict=True))
    number = replace(schema, label=NumberLabel(column="outcome", bounds=(-1.0, 10.0)))
    assert compare(written(text), text, number).labels.tolist() == [1, -1, 2.5, 10, 0]


def typed():
    return pa.table({
        "age": pa.array([50, 25, 100, 200, 0], pa.int16()),
        "dose": pa.array([0.0, 10.0, -10.0, float("nan"), -99.0]),
        "pressure": pa.array([130, 99.5, 100, None, 250], pa.float32()),
        "ward": pa.array(["north", "south", "east", "north", "south"]).dictionary_encode(),
        "blood": pa.array(["A", "B", "AB", None, "0"], pa.large_string()),
        "smoker": pa.array([True, False, True, None, False]),
        "outcome": pa.array(["ill", "well", "ill", "well", "well"]),
        "when": pa.array([0, 1, 2, 3, 4], pa.timestamp("s")),
    })  # fmt: skip


def test_parquet_with_types_is_the_same(written, tmp_path, schema):
    csv = files.encode(written(), schema)
    pq.write_table(typed(), tmp_path / "rows.parquet", row_group_size=2)
    parquet = files.encode(tmp_path / "rows.parquet", schema)
    assert (parquet.features != csv.features).nnz == 0
    np.testing.assert_array_equal(parquet.labels, csv.labels)


def test_parquet_with_texts_is_the_same(written, tmp_path, schema):
    csv = files.encode(written(), schema)
    lines = [line.split(",") for line in FILE.splitlines()]
    for kind in (pa.string(), pa.large_binary(), pa.string_view()):
        columns = {name: pa.array(cells).cast(kind) for name, *cells in zip(*lines, strict=True)}
        pq.write_table(pa.table(columns), tmp_path / "rows.pq")
        assert (files.encode(tmp_path / "rows.pq", schema).features != csv.features).nnz == 0


def test_parquet_codes_as_categories(tmp_path):
    text = '[label]\ncolumn="y"\nclasses=["0","1"]\n[[columns]]\nname="x"\nkind="categorical"\ncategories=["1","2"]\n'
    schema = Schema.loads(text)
    pq.write_table(pa.table({"x": [1, 2, 1], "y": [0.0, 1.0, 0.0]}), tmp_path / "codes.parquet")
    data = files.encode(tmp_path / "codes.parquet", schema)
    assert data.labels.tolist() == [-1, 1, -1]
    assert (data.features.toarray()[:, :2] > 0).tolist() == [[True, False], [False, True], [True, False]]


@pytest.mark.parametrize("chunked", [False, True])
def test_sites_in_one_file(written, schema, monkeypatch, chunked):
    if chunked:
        monkeypatch.setattr(reading, "BLOCK", 150)
    lines = ["hospital," + HEADER] + [f"{'abc'[i % 3]},{ROWS[i % 5]}\n" for i in range(50)]
    lines[5] = lines[5].replace("north", "?")  # this row is left out, and its site with it
    path = written("".join(lines))
    data, sites = files.encode_by_site(path, schema, "hospital")
    assert "".join(sites) == "".join("abc"[i % 3] for i in range(50) if i + 1 != 5 or "north" not in ROWS[i % 5])
    assert len(sites) == len(data)
    assert data.names == schema.feature_names
    with pytest.raises(InputError, match="neither a feature nor the label, got site_column='ward'"):
        files.encode_by_site(path, schema, "ward")
    with pytest.raises(InputError, match="a column 'clinic' in file="):
        files.encode_by_site(path, schema, "clinic")
    with pytest.raises(InputError, match="a site in row 2, column 'hospital'"):
        files.encode_by_site(written("".join([*lines[:2], lines[2].replace("b,", ",", 1)])), schema, "hospital")


def test_prediction_needs_no_label(written, schema):
    text = "\n".join(line.rsplit(",", 1)[0] for line in FILE.splitlines()) + "\n"
    (chunk,) = files.encode_features(written(text), schema)
    with_label = files.encode(written(), schema)
    assert (chunk.features != with_label.features).nnz == 0
    with pytest.raises(InputError, match="a column 'outcome' in file="):
        files.encode(written(text), schema)


def test_the_schema_survives_json_with_its_encoding(written, schema):
    other = Schema.from_dict(json.loads(json.dumps(plain(schema), sort_keys=True)))
    assert (files.encode(written(), other).features != files.encode(written(), schema).features).nnz == 0
