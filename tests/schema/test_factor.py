"""Columns that say how much a row counts, or of what exposure it is: read, bounded, refused, and never a feature."""

from dataclasses import replace

import numpy as np
import pytest

from sottovoce.errors import InputError
from sottovoce.files.schema import Factor, Schema, files
from sottovoce.files.schema.check import check
from sottovoce.files.schema.findings import Finding
from sottovoce.files.schema.inference import obstacles
from sottovoce.settings import plain

TOML = """
[label]
column = "ill"
classes = ["no", "yes"]
[weight]
column = "w"
bound = 4
[[columns]]
name = "age"
kind = "numeric"
bounds = [0, 100]
scale = "unit"
missing = "row"
"""
COUNTS = TOML.replace('classes = ["no", "yes"]', "bounds = [0, 9]\ncounts = true").replace(
    "[[columns]]", '[exposure]\ncolumn = "years"\nbound = 2\n[[columns]]'
)
WEIGHED, COUNTED = Schema.loads(TOML), Schema.loads(COUNTS)


def table(*rows):
    return "age,ill,w,years,clinic,who\n" + "".join(f"{line}\n" for line in rows)


GOOD = ("10,no,1,0.5,x,ann", "20,yes,4,2,y,bob", ",yes,0.25,1,x,ann", "40,no,1e-3,0.1,y,bob")


def test_a_weight_is_read_relative_to_its_bound_and_is_no_feature(written):
    data = files.encode(written(table(*GOOD)), WEIGHED)
    assert data.names == ("age", "intercept")
    np.testing.assert_allclose(data.factors.weights, [0.25, 1.0, 0.00025])  # the third row has no age, and is dropped
    assert data.factors.shifts is None
    assert Schema.loads(WEIGHED.dumps()) == WEIGHED == Schema.from_dict(plain(WEIGHED))
    assert WEIGHED.digest() != replace(WEIGHED, weight=Factor(column="w", bound=5.0)).digest()
    assert data.test.factors.told == data.train.factors.told == ("weights",)


def test_an_exposure_becomes_its_logarithm_over_the_bound(written):
    path = written(table(*(line.replace("no", "3").replace("yes", "1") for line in GOOD)))
    data = files.encode(path, COUNTED)
    np.testing.assert_allclose(data.factors.shifts, np.log([0.25, 1.0, 0.05]), atol=1e-15)
    np.testing.assert_allclose(data.factors.weights, [0.25, 1.0, 0.00025])
    (chunk,) = files.encode_features(path, COUNTED)
    np.testing.assert_allclose(chunk.exposures, [0.5, 2.0, 0.1])
    # To predict, nobody needs a weight.
    (chunk,) = files.encode_features(written("age,years\n10,1\n", "new.csv"), COUNTED)
    assert chunk.exposures.tolist() == [1.0]
    with pytest.raises(InputError, match="Expected a column 'years'"):
        list(files.encode_features(written("age\n10\n", "bare.csv"), COUNTED))


@pytest.mark.parametrize(
    ("cell", "finding"),
    [("0", "OUTSIDE"), ("-1", "OUTSIDE"), ("4.01", "OUTSIDE"), ("1e300", "OUTSIDE"), ("", "MISSING"), ("NA", "MISSING"),
     ("nan", "NOT_A_NUMBER"), ("inf", "NOT_A_NUMBER"), ("many", "NOT_A_NUMBER")],
)  # fmt: skip
def test_what_is_no_weight_is_refused_by_row_and_not_quoted(written, cell, finding):
    path = written(table(GOOD[0], f"20,yes,{cell},1,x,ann"))
    with pytest.raises(InputError, match=r"Expected a number above 0 and at most 4 in row 2, column 'w'") as caught:
        files.encode(path, WEIGHED)
    assert "4.01" not in str(caught.value)
    report = check(path, WEIGHED)
    assert not report.fits
    assert [problem.finding for problem in report.problems] == [Finding[finding]]
    assert (report.rows, report.used) == (2, 1)


def test_larger_weights_are_cut_to_the_bound_where_the_schema_says_so(written):
    cut = replace(WEIGHED, weight=replace(WEIGHED.weight, above="clip"))
    lines = [f"20,yes,{w},1,x,p{i}" for i, w in enumerate(["4.01", "1e300", "4", "0.5"])]
    path = written(table(*lines))
    np.testing.assert_array_equal(files.encode(path, cut).factors.weights, [1.0, 1.0, 1.0, 0.125])
    report = check(path, cut)
    assert report.fits
    assert [(one.column, one.finding, one.cells) for one in report.counts] == [("w", Finding.CLIPPED, 2)]
    for cell in ("0", "-5", "", "many"):
        with pytest.raises(InputError, match="row 1, column 'w'"):
            files.encode(written(table(f"20,yes,{cell},1,x,ann")), cut)
    assert Schema.loads(cut.dumps()) == cut
    assert cut.digest() != WEIGHED.digest()
    with pytest.raises(InputError, match="above among refuse, clip"):
        Schema.loads(TOML.replace("bound = 4", 'bound = 4\nabove = "drop"'))
    with pytest.raises(InputError, match="exposures that are not clipped"):
        replace(COUNTED, exposure=replace(COUNTED.exposure, above="clip"))


def test_a_column_that_is_not_there_is_named(written):
    path = written("age,ill\n1,no\n")
    with pytest.raises(InputError, match="Expected a column 'w'"):
        files.encode(path, WEIGHED)
    assert any(one.column == "w" and one.finding == Finding.NO_COLUMN for one in check(path, WEIGHED).problems)


def test_a_bound_is_one_number_however_it_is_written():
    for bound in (4, 4.0, np.float64(4), np.int8(4)):
        assert replace(WEIGHED, weight=Factor(column="w", bound=bound)).digest() == WEIGHED.digest()


@pytest.mark.parametrize("bound", ["0", "-1", "inf", "nan", '"max"', "true"])
def test_a_bound_is_a_public_number(bound):
    with pytest.raises(InputError, match="bound"):
        Schema.loads(TOML.replace("bound = 4", f"bound = {bound}"))


def test_what_goes_together_in_a_schema():
    for column in ("age", "ill"):
        with pytest.raises(InputError, match=r"weight.column that is neither a feature nor the label.*another name"):
            Schema.loads(TOML.replace('"w"', f'"{column}"'))
    with pytest.raises(InputError, match=r"exposure.column that is neither.*got column='w'"):
        Schema.loads(COUNTS.replace('"years"', '"w"'))
    with pytest.raises(InputError, match=r"an exposure only where the label counts.*counts = true"):
        Schema.loads(COUNTS.replace("counts = true", ""))
    with pytest.raises(InputError, match="bound"):
        Schema.loads(TOML.replace("bound = 4\n", ""))
    with pytest.raises(InputError, match="limit"):
        Schema.loads(TOML.replace("bound = 4", "bound = 4\nlimit = 3"))
    person = '[person]\ncolumn = "w"\nrows = 2\n[[columns]]'
    with pytest.raises(InputError, match=r"weight.column that is neither.*got column='w'"):
        Schema.loads(TOML.replace("[[columns]]", person))
    assert any("take [weight] out" in one for one in obstacles(WEIGHED))


def test_weights_stay_with_their_rows_when_people_have_too_many(written):
    person = '[person]\ncolumn = "who"\nrows = 1\nsurplus = "drop"\n[[columns]]'
    data = files.encode(written(table(*GOOD)), Schema.loads(TOML.replace("[[columns]]", person)))
    np.testing.assert_allclose(data.factors.weights, [0.25, 1.0])


def test_weights_stay_with_their_rows_at_sites(written):
    data, sites = files.encode_by_site(written(table(*GOOD)), WEIGHED, "clinic")
    assert sites.tolist() == ["x", "y", "y"]
    np.testing.assert_allclose(data.factors.weights, [0.25, 1.0, 0.00025])
    with pytest.raises(InputError, match="nor a weight or an exposure"):
        files.encode_by_site(written(table(*GOOD)), WEIGHED, "w")
