"""Shares of levels: public figures beside a column, which change predictions and no feature."""

import numpy as np
import pytest

from sottovoce.errors import InputError
from sottovoce.files.schema import Schema
from sottovoce.files.schema.editing import with_bounds
from sottovoce.files.schema.files import encode
from sottovoce.files.schema.review import notes
from sottovoce.settings import plain

TEXT = """
version = 1
[label]
column = "y"
classes = ["no", "yes"]
[[columns]]
name = "colour"
kind = "categorical"
categories = ["red", "green"]
other = true
reference = "green"
missing = "indicator"
{colour}
[[columns]]
name = "size"
kind = "numeric"
bounds = [0, 10]
edges = [3, 6]
{size}
[[columns]]
name = "fat"
kind = "boolean"
{fat}
[[columns]]
name = "weight"
kind = "numeric"
bounds = [0, 10]
scale = "unit"
{weight}
"""
GIVEN = {"colour": "shares = [0.5, 0.3, 0.15, 0.05]", "size": "shares = [0.2, 0.5, 0.3]", "fat": "shares = [0.1, 0.9]"}
CSV = "colour,size,fat,weight,y\nred,1,yes,2,no\ngreen,4,no,3,yes\npink,9,yes,4,no\n,3,no,5,yes\n"


def text(**given):
    return TEXT.format(**{"colour": "", "size": "", "fat": "", "weight": "", **given})


def test_they_are_kept_and_change_no_feature(tmp_path):
    with_shares, without = Schema.loads(text(**GIVEN)), Schema.loads(text())
    assert [column.shares for column in with_shares.columns] == [
        (0.5, 0.3, 0.15, 0.05),
        (0.2, 0.5, 0.3),
        (0.1, 0.9),
        None,
    ]
    assert Schema.loads(with_shares.dumps()) == with_shares
    assert with_shares.digest() == without.digest()
    assert "shares" not in str(plain(without))
    (tmp_path / "rows.csv").write_text(CSV)
    one, other = (encode(tmp_path / "rows.csv", schema).features.toarray() for schema in (with_shares, without))
    np.testing.assert_array_equal(one, other)


def test_statements_say_that_they_were_supplied():
    assert not notes(Schema.loads(text()))
    (note,) = notes(Schema.loads(text(**GIVEN) + "[supplied]\nbase_rate = 0.2\n"))
    assert "base rate 0.2; shares of the levels of colour, size, fat." in note
    assert "does not cover" in note


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (
            {"colour": "shares = [0.5, 0.3, 0.2]"},
            "hold 4 numbers, one for each of colour=red, colour=green, colour=<other>",
        ),
        ({"fat": "shares = [0.1]"}, "hold 2 numbers, one for each of fat=true, fat=false, got 1"),
        ({"size": "shares = [0.6, 0.6, -0.2]"}, r"columns.size.shares of 0 or more, got shares=\[0.6, 0.6, -0.2\]"),
        ({"size": "shares = [0.2, 0.5, 0.2]"}, "add up to 1, up to rounding, got shares=.*total=0.9"),
        ({"size": "shares = [20, 50, 30]"}, "add up to 1"),
        ({"weight": "shares = [0.5, 0.5]"}, "columns.weight.shares only where a column has levels"),
        ({"fat": 'shares = "0.1, 0.9"'}, "a list for columns.fat.shares"),
    ],
)
def test_refusals(given, message):
    with pytest.raises(InputError, match=message):
        Schema.loads(text(**given))


def test_whole_per_cents_of_many_levels_may_not_quite_add_up():
    assert Schema.loads(text(size="shares = [0.33, 0.33, 0.33]")).columns[1].shares == (0.33, 0.33, 0.33)
    with pytest.raises(InputError, match="add up to 1"):
        Schema.loads(text(size="shares = [0.33, 0.33, 0.32]"))


def test_other_bounds_cut_other_bins_whose_shares_nobody_knows():
    schema = Schema.loads(text(**GIVEN))
    again = Schema.loads(with_bounds(text(**GIVEN), schema, "size", 0, 20))
    assert again.columns[1].shares is None
    assert again.columns[0].shares == schema.columns[0].shares
