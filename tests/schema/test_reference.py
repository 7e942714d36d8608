"""Reference levels: one level of a one-hot column without a feature."""

import numpy as np
import pytest

from sottovoce.errors import InputError
from sottovoce.files.schema import Schema
from sottovoce.files.schema.files import encode

TEXT = """
version = 1
[label]
column = "y"
classes = ["no", "yes"]
[[columns]]
name = "colour"
kind = "categorical"
categories = ["red", "green", "blue"]
other = true
reference = "green"
missing = "indicator"
[[columns]]
name = "size"
kind = "numeric"
bounds = [0, 10]
edges = [3, 6]
reference = 4
[[columns]]
name = "day"
kind = "season"
by = "quarter"
reference = "Q1"
"""
CSV = """colour,size,day,y
red,1,2024-01-01,no
green,4,2024-05-01,yes
blue,9,2024-08-01,no
pink,3,2024-12-01,yes
,5,2024-02-01,no
"""


def test_the_reference_level_has_no_feature(tmp_path):
    schema = Schema.loads(TEXT)
    assert schema.feature_names == (
        "colour=red", "colour=blue", "colour=<other>", "colour=<missing>", "size=[0,3)", "size=[6,10]",
        "day=Q2", "day=Q3", "day=Q4", "intercept",
    )  # fmt: skip
    (tmp_path / "rows.csv").write_text(CSV)
    rows = encode(tmp_path / "rows.csv", schema).features.toarray() * schema.encoded_norm
    expected = [
        [1, 0, 0, 0, 1, 0, 0, 0, 0, 1],
        [0, 0, 0, 0, 0, 0, 1, 0, 0, 1],
        [0, 1, 0, 0, 0, 1, 0, 1, 0, 1],
        [0, 0, 1, 0, 0, 0, 0, 0, 1, 1],
        [0, 0, 0, 1, 0, 0, 0, 0, 0, 1],
    ]
    np.testing.assert_allclose(rows, expected, atol=1e-12)
    assert Schema.loads(schema.dumps()) == schema
    assert schema.digest() != Schema.loads(TEXT.replace('reference = "green"\n', "")).digest()


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('reference = "green"', 'reference = "pink"', "columns.colour.reference among the levels red, green, blue"),
        ("reference = 4", "reference = 11", "columns.size.reference with edges"),
        ("edges = [3, 6]", 'scale = "unit"', "columns.size.reference with edges"),
        ('reference = "Q1"', 'reference = "Q5"', "columns.day.reference among the levels Q1, Q2"),
        ('categories = ["red", "green", "blue"]\nother = true', 'categories = ["green"]', "beside other levels"),
    ],
)
def test_a_reference_that_is_no_level_is_refused(old, new, said):
    with pytest.raises(InputError, match=said):
        Schema.loads(TEXT.replace(old, new))
