"""Columns that are no numbers are refused by name, with advice, and without a cell of a private row."""

import datetime

import numpy as np
import pandas as pd
import polars as pl
import pytest
from scipy import sparse

from sottovoce.errors import InputError
from sottovoce.estimators import PrivateLogisticRegression, PrivateRobustRegressor, PrivateSearch
from sottovoce.estimators.columns import expect_finite, expect_numbers

SECRET = "Zebrafish"
COUNT = 6
NUMBERS = np.linspace(0.1, 0.9, COUNT)
WORDS = [SECRET, "other"] * 3
DAYS = [datetime.date(1987, 6, 5)] * COUNT
TIMES = [datetime.datetime(1987, 6, 5)] * COUNT


def pandas_of(values, **kind):
    return pd.DataFrame({"a": NUMBERS, "b": pd.Series(values, **kind)})


def polars_of(values, **kind):
    return pl.DataFrame({"a": NUMBERS, "b": pl.Series(values, **kind)})


NAMED = {
    "pandas text": (pandas_of(WORDS), "text in column 'b'"),
    "pandas objects": (pandas_of(WORDS, dtype=object), "text in column 'b'"),
    "pandas strings": (pandas_of(WORDS, dtype="string"), "text in column 'b'"),
    "pandas mixed": (pandas_of([1, SECRET] * 3, dtype=object), "text beside numbers in column 'b'"),
    "pandas categories": (pandas_of(WORDS, dtype="category"), "categories in column 'b'"),
    "pandas times": (pandas_of(pd.to_datetime(TIMES)), "dates in column 'b'"),
    "pandas days": (pandas_of(DAYS, dtype=object), "dates in column 'b'"),
    "pandas durations": (pandas_of(pd.to_timedelta([1] * COUNT, unit="D")), "dates in column 'b'"),
    "pandas none": (pandas_of([True, None] * 3, dtype=object), r"missing values \(NaN\) in column 'b'"),
    "pandas NA": (pandas_of([1, pd.NA] * 3, dtype=object), r"missing values \(NaN\) in column 'b'"),
    "pandas complex": (pandas_of([1j] * COUNT), "complex numbers in column 'b'"),
    "polars text": (polars_of(WORDS), "text in column 'b'"),
    "polars categories": (polars_of(WORDS, dtype=pl.Categorical), "categories in column 'b'"),
    "polars enum": (polars_of(WORDS, dtype=pl.Enum([SECRET, "other"])), "categories in column 'b'"),
    "polars days": (polars_of(DAYS), "dates in column 'b'"),
    "polars times": (polars_of(TIMES), "dates in column 'b'"),
    "polars objects": (polars_of([1, SECRET] * 3, dtype=pl.Object), "text beside numbers in column 'b'"),
    "array of objects": (np.column_stack([NUMBERS.astype(object), WORDS]), "text in column 1 "),
    "array of text": (np.array([WORDS, WORDS]).T, "text in columns 0, 1 "),
    "array of times": (np.array([TIMES], dtype="datetime64[s]").T, "dates in column 0 "),
    "lists": ([[x, word] for x, word in zip(NUMBERS, WORDS, strict=True)], "text in column 1 "),
}
FINE = {
    "pandas numbers": pandas_of(NUMBERS),
    "pandas booleans": pandas_of(NUMBERS > 0.5),
    "pandas nullable": pandas_of(NUMBERS > 0.5, dtype="boolean"),
    "pandas objects": pandas_of([1, 2.5] * 3, dtype=object),
    "polars numbers": polars_of(NUMBERS),
    "polars booleans": polars_of(NUMBERS > 0.5),
    "array of objects": np.column_stack([NUMBERS, NUMBERS]).astype(object),
    "lists": [[x, 1] for x in NUMBERS],
    "sparse": sparse.csr_array(NUMBERS[:, None]),
    "ragged, which scikit-learn refuses": [[1], [2, 3]],
}


@pytest.mark.parametrize("name", NAMED)
def test_the_error_names_the_column_and_no_cell(name):
    table, words = NAMED[name]
    with pytest.raises(InputError, match=words) as caught:
        expect_numbers(table)
    said = str(caught.value)
    assert SECRET not in said
    assert "1987" not in said
    assert said.startswith("Expected numbers in all columns of X, got ")
    assert len(said.split(". ", 1)[1]) > 20  # advice


@pytest.mark.parametrize("name", FINE)
def test_numbers_pass(name):
    expect_numbers(FINE[name])


def test_each_kind_is_named_once_with_its_columns():
    frame = pd.DataFrame({"job": WORDS, "town": WORDS, "born": DAYS, "sex": pd.Categorical(WORDS), "age": NUMBERS})
    with pytest.raises(InputError) as caught:
        expect_numbers(frame)
    said = str(caught.value)
    assert "text in columns 'job', 'town'; dates in column 'born'; categories in column 'sex'." in said
    assert said.count("OneHotEncoder") == 1
    assert "age" not in said.split(". ", 1)[0]
    wide = pd.DataFrame({f"c{k}": WORDS for k in range(9)})
    with pytest.raises(InputError, match="columns 'c0', 'c1', 'c2', 'c3', 'c4' and 4 more"):
        expect_numbers(wide)


def test_missing_values_and_infinity_are_named():
    X = np.column_stack([NUMBERS, NUMBERS, NUMBERS])
    X[1, 1], X[2, 2] = np.nan, np.inf
    for matrix in (X, sparse.csr_array(X)):
        with pytest.raises(InputError, match=r"infinity in column 'c'; missing values \(NaN\) in column 'b'"):
            expect_finite(matrix, ["a", "b", "c"])
    with pytest.raises(InputError, match=r"in column 2; missing values \(NaN\) in column 1 \(counted from 0\)"):
        expect_finite(X, None)
    expect_finite(np.eye(3), None)


@pytest.mark.parametrize("kind", [pandas_of, polars_of])
def test_fits_predictions_and_searches_refuse_by_name(kind):
    y = [0, 1] * 3
    model = PrivateLogisticRegression(1.0, delta=1e-6, data_norm=1.5, classes=[0, 1])
    line = PrivateRobustRegressor(1.0, delta=1e-6, data_norm=1.5, y_bounds=(0, 1))
    for estimator in (model, line, PrivateSearch(model, {"lam": [1e-3]})):
        with pytest.raises(InputError, match="text in column 'b'"):
            estimator.fit(kind(WORDS), y)
    with pytest.raises(InputError, match=r"missing values \(NaN\) in column 'b'"):
        model.fit(kind([None, 1.0] * 3), y)
    model.fit(kind(NUMBERS), y)
    with pytest.raises(InputError, match="text in column 'b'"):
        model.predict(kind(WORDS))
    with pytest.raises(InputError, match=r"missing values \(NaN\) in column 'b'"):
        model.predict(kind([None, 1.0] * 3))


def test_one_dimension_is_refused_without_a_cell():
    """scikit-learn's own error prints the whole array."""
    with pytest.raises(InputError, match=r"got shape=\(6,\). Reshape your data") as caught:
        expect_numbers(NUMBERS)
    assert "0.1" not in str(caught.value)
