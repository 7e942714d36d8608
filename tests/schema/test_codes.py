"""Codes of cells, as tables count them: levels and places of numbers, with what is missing kept apart."""

import numpy as np
import pandas as pd
import pytest

from sottovoce.errors import InputError
from sottovoce.files.schema import Age, Boolean, Categorical, ClassLabel, NumberLabel, Numeric, Schema, Seasonal
from sottovoce.files.schema.files import encode_codes

ROWS = pd.DataFrame(
    {
        "ward": ["b", "a", None, "zz"],
        "dose": [2.0, 11.0, None, -1.0],
        "weight": [60.0, 100.0, 80.0, 60.0],
        "born": ["2000-01-01", "1990-07-02", "1950-01-01", "2020-01-01"],
        "came": ["2024-01-01", "2024-01-07", "2024-01-03", "2024-01-02"],
        "smoker": ["yes", None, "no", "yes"],
        "ill": ["no", "yes", None, "no"],
        "who": ["p", "q", "q", "r"],
    }
)
SCHEMA = Schema(
    columns=(
        Categorical(name="ward", categories=("a", "b"), other=True, missing="row", reference="b"),
        Numeric(name="dose", bounds=(0, 10), scale="symmetric", missing="fill", fill=5.0),
        Numeric(name="weight", bounds=(50, 150), edges=(70, 100), reference=60.0),
        Age(name="born", on="2020-01-01", bounds=(0, 100), scale="unit"),
        Seasonal(name="came", by="weekday", reference="Monday"),
        Boolean(name="smoker", missing="indicator"),
    ),
    label=ClassLabel(column="ill", classes=("no", "yes"), missing="row"),
)


def codes_of(schema, rows=ROWS):
    columns = tuple(schema.described.values())
    data, _ = encode_codes(rows, schema, columns)
    return {column.name: data.features[:, place].tolist() for place, column in enumerate(columns)}, columns


def test_every_kind_has_its_codes_and_no_row_is_left_out():
    found, columns = codes_of(SCHEMA)
    nan = pytest.approx(np.nan, nan_ok=True)
    assert found["ward"] == [1, 0, nan, 2]  # the reference is a level like any other
    assert found["dose"] == [0.2, 1.0, nan, 0.0]  # cut to the bounds, and not filled in
    assert found["weight"] == [0, 2, 1, 0]
    assert found["born"] == pytest.approx([0.2, 0.295, 0.7, 0.0], abs=1e-3)
    assert found["came"] == [0, 6, 2, 1]
    assert found["smoker"] == [1, nan, 0, 1]
    assert found["ill"] == [0, 1, nan, 0]
    levels = {column.name: column.level_words for column in columns}
    assert levels["ward"] == ("a", "b", "<other>")
    assert levels["weight"] == ("[50, 70)", "[70, 100)", "[100, 150]")
    assert levels["dose"] == levels["born"] == ()
    assert levels["smoker"] == ("false", "true")


def test_a_number_with_bins_can_be_measured_too():
    measured = SCHEMA.described["weight"].measured()
    data, _ = encode_codes(ROWS, SCHEMA, (measured, SCHEMA.described["weight"]))
    assert data.features.tolist() == [[0.1, 0], [0.5, 2], [0.3, 1], [0.1, 0]]


def test_what_the_schema_refuses_is_refused():
    with pytest.raises(InputError, match="row 2, column 'weight'"):
        codes_of(SCHEMA, ROWS.assign(weight=[60.0, None, 80.0, 60.0]))
    strict = Schema(columns=(Categorical(name="ward", categories=("a", "b"), missing="row"),), label=SCHEMA.label)
    with pytest.raises(InputError, match="row 4, column 'ward'"):
        codes_of(strict)


def test_a_label_that_is_a_number_lies_between_its_bounds():
    schema = Schema(columns=SCHEMA.columns[:1], label=NumberLabel(column="weight", bounds=(50, 150)))
    assert codes_of(schema)[0]["weight"] == [0.1, 0.5, 0.3, 0.1]
