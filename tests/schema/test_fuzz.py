"""Whatever bytes come: an answer or an InputError, in few words; no warning, no other exception, no file touched."""

import io

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schema.samples import FILE, SCHEMA
from sottovoce.errors import InputError
from sottovoce.files.schema import Schema, files
from sottovoce.files.schema.check import check
from sottovoce.files.schema.draft import draft
from sottovoce.settings import plain

FUZZ = settings(max_examples=150)


def refusal(act, *arguments):
    """The message of an InputError; None if all went well. Anything else escapes and fails the test."""
    try:
        act(*arguments)
    except InputError as error:
        return str(error)
    return None


def survives(act, *arguments):
    told = refusal(act, *arguments)
    assert told is None or (told.startswith("Expected ") and len(told) < 1500)
    return told is None


def each_way(path, schema):
    before = path.read_bytes()
    # Encoding works if and only if the check finds nothing to refuse and a row to use.
    usable = survives(check, path, schema) and (report := check(path, schema)).fits and report.used > 0
    assert survives(files.encode, path, schema) == usable
    survives(lambda: list(files.encode_features(path, schema)))
    survives(files.encode_by_site, path, schema, "site")
    survives(draft, path, "outcome")
    survives(draft, path, "outcome", 5)
    assert path.read_bytes() == before
    assert [entry.name for entry in path.parent.iterdir()] == [path.name]


@st.composite
def mutated(draw, original):
    """A valid file after a few edits: bytes changed, cut out, doubled, put in."""
    content = bytearray(original)
    odd = st.binary(max_size=6) | st.sampled_from(
        [b'"', b",", b"\n", b"\r", b"\0", b"\xff", b"nan", b"1e999", b"[", b"="]
    )
    for _ in range(draw(st.integers(1, 5))):
        at = draw(st.integers(0, len(content)))
        length = draw(st.integers(0, 12))
        content[at : at + length] = draw(odd)
    return bytes(content)


@FUZZ
@given(content=st.binary(max_size=300))
def test_bytes_as_a_file(written, schema, content):
    each_way(written(content), schema)


@FUZZ
@given(content=st.text('a,b"\n\r;0. \ufeffé\x00', max_size=200))
def test_text_as_a_file(written, schema, content):
    each_way(written(content), schema)


@FUZZ
@given(content=mutated(FILE.encode()))
def test_a_csv_file_with_edits(written, schema, content):
    each_way(written(content), schema)


def packed():
    lines = [line.split(",") for line in FILE.splitlines()]
    buffer = io.BytesIO()
    pq.write_table(pa.table({name: cells for name, *cells in zip(*lines, strict=True)}), buffer)
    return buffer.getvalue()


@settings(FUZZ, max_examples=60)
@given(content=mutated(packed()))
def test_a_parquet_file_with_edits(written, schema, content):
    each_way(written(content, "rows.parquet"), schema)


@FUZZ
@given(text=st.text(max_size=200) | st.text('[]{}="\n.#a1', max_size=60))
def test_text_as_a_schema(text):
    with pytest.raises(InputError):
        Schema.loads(text)


@settings(FUZZ, max_examples=300)
@given(content=mutated(SCHEMA.encode()))
def test_a_schema_with_edits(written, content):
    path = written(content, "schema.toml")
    if not survives(Schema.load, path):
        return
    schema = Schema.load(path)
    assert Schema.loads(schema.dumps()) == schema
    assert len(schema.feature_names) == schema.d
    assert 0 < schema.data_norm <= schema.encoded_norm


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


@FUZZ
@given(place=st.integers(0, 200), value=JSON)
def test_a_schema_with_one_value_replaced(schema, place, value):
    data = plain(schema)
    spots = [(data, key) for key in data] + [(data["label"], key) for key in data["label"]]
    spots += [(column, key) for column in data["columns"] for key in column]
    holder, key = spots[place % len(spots)]
    holder[key] = value
    survives(Schema.from_dict, data)
