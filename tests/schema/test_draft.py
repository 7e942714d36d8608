"""Drafts: they load, their own file fits them, and everything that was read off is marked."""

import re
import string

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sottovoce.errors import InputError, PrivacyError
from sottovoce.files.schema import Boolean, Categorical, NumberLabel, Numeric, Schema, require_reviewed
from sottovoce.files.schema.check import check
from sottovoce.files.schema.draft import draft
from sottovoce.files.schema.round_numbers import bounds_around, edges_between

MIXED = "id,age,city,grade,smoker,note,y\n" + "".join(
    f"p{i},{17 + i % 60},{'Rome' if i % 2 else 'Oslo'},{i % 4},{'yes' if i % 3 else 'no'},,{'b' if i % 5 else 'a'}\n"
    for i in range(300)
)


def test_kinds_and_marks(written):
    made = draft(written(MIXED), "y")
    age, city, grade, smoker = made.schema.columns
    assert isinstance(age, Numeric)
    assert (age.bounds, age.scale) == ((0.0, 120.0), "unit")  # usual of an age
    assert isinstance(city, Categorical)
    assert (city.categories, city.other, city.reference) == (("Oslo", "Rome"), True, "Oslo")
    assert isinstance(grade, Categorical)
    assert grade.categories == ("0", "1", "2", "3")
    assert isinstance(smoker, Boolean)
    assert made.schema.classes == ("a", "b")
    assert made.left_out == {"id": "by its name it identifies rows", "note": "by its name it is free text"}
    assert set(made.schema.unreviewed) == {
        "label.classes", "label.positive", "label.missing",
        "columns.age.kind", "columns.age.bounds", "columns.age.missing",
        "columns.city.kind", "columns.city.categories", "columns.city.missing",
        "columns.grade.kind", "columns.grade.categories", "columns.grade.missing",
        "columns.smoker.kind", "columns.smoker.missing",
    }  # fmt: skip


def test_the_text_is_the_schema_one_entry_a_line(written):
    made = draft(written(MIXED), "y")
    assert Schema.loads(made.text()) == made.schema
    for entry in made.schema.unreviewed:
        assert f'    "{entry}",\n' in made.text()
    assert "# Left out: 'id', by its name it identifies rows" in made.text()
    with pytest.raises(PrivacyError, match=r"label\.classes.*still marked as taken from a file"):
        require_reviewed(made.schema)
    reviewed = Schema.loads(re.sub(r"unreviewed = \[.*?\]", "unreviewed = []", made.text(), flags=re.DOTALL))
    require_reviewed(reviewed)
    assert reviewed.digest() == made.schema.digest()


def test_bins_are_cut_at_round_numbers(written):
    file = written(MIXED.replace("age", "days"))
    (days, *_) = draft(file, "y", bins=6).schema.columns
    assert (days.edges, days.reference) == ((20.0, 30.0, 40.0, 50.0, 60.0, 70.0), 16.0)
    assert "columns.days.edges" in draft(file, "y", bins=6).schema.unreviewed


def test_usual_bounds_are_marked_and_give_way_to_rows_outside(written):
    made = draft(written(MIXED), "y").schema
    assert "columns.age.bounds" in made.unreviewed  # that all rows lie within them is private, too
    (age, *_) = draft(written(MIXED.replace(",17,", ",170,")), "y").schema.columns
    assert age.bounds == (10.0, 170.0)


def test_missing_values_are_noticed(written):
    text = "x,c,y\n" + "".join(f"{i / 7},{'?' if i == 3 else 'u'},{'' if i == 5 else i % 2}\n" for i in range(50))
    made = draft(written(text), "y").schema
    assert [column.missing for column in made.columns] == ["refuse", "indicator"]
    assert made.label.missing == "row"
    assert check(written(text), made).fits


def test_a_label_of_numbers(written):
    made = draft(written("x,y\n" + "".join(f"{i},{i * 1.5}\n" for i in range(30))), "y").schema
    assert isinstance(made.label, NumberLabel)
    assert made.label.bounds == (0.0, 44.0)
    assert "label.bounds" in made.unreviewed


def test_parquet(tmp_path):
    path = tmp_path / "rows.parquet"
    pq.write_table(
        pa.table({"flag": [True, True, None] * 9, "x": [0.5, float("nan"), 3.0] * 9, "y": [0, 1, 1] * 9}), path
    )
    made = draft(path, "y").schema
    flag, x = made.columns
    assert isinstance(flag, Boolean)
    assert flag.missing == "indicator"
    assert {"columns.flag.kind", "columns.flag.missing"} & set(made.unreviewed) == {"columns.flag.missing"}
    assert (x.bounds[0], x.bounds[1], x.missing) == (0.5, 3.0, "indicator")
    assert check(path, made).fits


WRONG = {
    "no such label": ("a,b\n1,2\n", "c", None, "a column 'c' for the label"),
    "no rows": ("a,b\n", "b", None, "at least one row"),
    "one class": ("a,b\n1,x\n2,x\n", "b", None, "2 to 100 classes or numbers in label='b', got 1 different values"),
    "label is an identifier": (
        "a,b\n" + "".join(f"{i},p{i}\n" for i in range(200)), "b", None, "more than 100 different texts",
    ),
    "label always missing": ("a,b\n1,?\n", "b", None, "got 0 different values"),
    "nothing but the label": ("b\n1\n2\n", "b", None, "a column to learn from"),
    "one bin": ("a,b\n1,2\n", "b", 1, "2 <= bins <= 1000, got bins=1"),
    "too many bins": ("a,b\n1,2\n", "b", 10**9, "2 <= bins <= 1000"),
    "label too large": ("a,b\n" + "".join(f"{i},{i}e306\n" for i in range(30)), "b", None, "labels of moderate size"),
}  # fmt: skip


@pytest.mark.parametrize(("text", "label", "bins", "told"), WRONG.values(), ids=WRONG.keys())
def test_refused(written, text, label, bins, told):
    with pytest.raises(InputError, match=told):
        draft(written(text), label, bins)


FINITE = st.floats(-1e300, 1e300) | st.floats(-1e3, 1e3) | st.integers(-1000, 1000).map(float)


@given(FINITE, FINITE, st.integers(2, 1000))
def test_round_bounds_hold_the_range_and_round_edges_lie_within(one, other, bins):
    low, high = min(one, other), max(one, other)
    bottom, top = bounds_around(low, high)
    assert bottom <= low <= high <= top
    assert bottom < top
    assert (
        top - bottom
        <= 1.3 * (high - low) + 1e-11 * max(abs(low), abs(high)) + (max(abs(low), 1.0) if low == high else 0) + 1e-290
    )
    edges = edges_between(bottom, top, bins)
    Numeric(name="x", bounds=(bottom, top), edges=edges)
    assert len(edges) <= 2 * bins


CELL = st.text(string.ascii_letters + "0123456789.-? é", max_size=6)


@settings(max_examples=50)
@given(
    st.lists(st.tuples(CELL, CELL, st.sampled_from(["1", "0", "?"])), min_size=1, max_size=20),
    st.sampled_from([None, 4]),
)
def test_a_file_fits_its_own_draft(written, rows, bins):
    path = written("a,b,y\n" + "".join(",".join(row) + "\n" for row in rows))
    try:
        made = draft(path, "y", bins)
    except InputError:
        return
    read = Schema.loads(made.text())
    assert read == made.schema
    report = check(path, read)
    assert report.fits, report.problems
    assert not any(count.finding.name in ("CLIPPED", "OTHER") for count in report.counts)
