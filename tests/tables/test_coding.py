"""Coded rows: no number is negative, no row is longer than the coding says, and sums of them are exact."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import sottovoce as sv
from sottovoce.files.schema import Categorical, Numeric
from sottovoce.problem.dataset import Dataset
from sottovoce.tables.coding import LEAST_ALPHA, Coding, Levels, Number, bins_for, edges_of, equal_but

WARD = Categorical(name="ward", categories=("a", "b", "c"), missing="indicator")
SEX = Categorical(name="sex", categories=("f", "m"))
AGE = Numeric(name="age", bounds=(0, 1), scale="unit", missing="indicator")


def dataset(codes):
    names = tuple(map(str, range(codes.shape[1])))
    return Dataset(codes, np.zeros(len(codes)), names, len(codes), math.inf, "made up")


@st.composite
def codings(draw):
    inner = sorted(draw(st.lists(st.floats(0.001, 0.999), max_size=4, unique=True)))
    edges = Numeric(name="age", bounds=(0, 1), edges=tuple(inner)) if inner else AGE
    number = Number(AGE, edges_of(edges, draw(st.sampled_from([1, 2, 8, 64]))))
    parts = (Levels((WARD,)), number, Levels((SEX, WARD)))[: draw(st.integers(1, 3))]
    shares = draw(st.sampled_from([None, True]))
    if shares and len(parts) > 1:
        raw = np.array(draw(st.lists(st.floats(0.05, 1), min_size=len(parts), max_size=len(parts))))
        shares = tuple((raw / raw.sum()).tolist())
    else:
        shares = None
    return Coding(parts, shares, draw(st.sampled_from([None, Levels((SEX,)), Levels((WARD,))])))


def code(draw, column):
    if isinstance(column, Numeric):
        value = st.floats(0, 1) | st.sampled_from([0.0, 1.0, 0.5, 1 / 64, 63 / 64, math.nan])
    else:
        value = st.integers(0, len(column.level_words) - 1).map(float)
    return draw(value | st.just(math.nan) if column.missing == "indicator" else value)


@given(st.data())
@settings(max_examples=200)
def test_replacing_a_row_moves_the_sum_by_the_square_root_of_two_times_the_bound(data):
    coding = data.draw(codings())
    codes = np.array([[code(data.draw, column) for column in coding.columns] for _ in range(2)])
    coded = coding.coded(dataset(codes))
    sites = sv.Sites([coded.features], [coded.labels], data_norm=coded.data_norm)  # which checks their norms
    one, other = coded.features.toarray()
    assert coded.features.min() >= 0
    assert np.linalg.norm(one - other) <= math.sqrt(2) * sites.data_norm * (1 + 1e-12)
    assert coding.data_norm == pytest.approx(math.sqrt(len(coding.parts)))
    assert coded.features.shape[1] == coding.groups * coding.width == len(coding.names)


@given(st.data())
@settings(max_examples=100)
def test_a_number_comes_back_from_its_code(data):
    """x and x^2 are sums of what the code holds, whatever the bins."""
    inner = tuple(sorted(data.draw(st.lists(st.floats(0.001, 0.999), max_size=4, unique=True))))
    column = Numeric(name="age", bounds=(0, 1), edges=inner) if inner else AGE
    number = Number(AGE, edges_of(column, data.draw(st.sampled_from([1, 8, 64]))))
    x = data.draw(st.floats(0, 1))
    entries = number.entries(np.array([[x]]))
    (which, _, _), (one, v, w) = entries.places[0], entries.values[0]
    low, h = number.edges[which], number.widest
    assert one == 1
    assert low + h * v / number.alpha == pytest.approx(x, abs=1e-12)
    assert low**2 + 2 * h * w / number.alpha == pytest.approx(x**2, abs=1e-12)
    assert number.edges[which] <= x
    assert x < number.edges[which + 1] or x == 1
    assert max(np.diff(number.edges)) <= 1 / 64 + 1e-9 or number.alpha >= LEAST_ALPHA


def test_some_rows_move_it_by_all_of_that():
    coding = Coding((Levels((WARD,)), Levels((SEX,))), None, Levels((SEX,)))
    one, other = coding.coded(dataset(np.array([[0.0, 0.0, 0.0], [1.0, 1.0, 1.0]]))).features.toarray()
    assert np.linalg.norm(one - other) == pytest.approx(math.sqrt(2 * 2))


def test_sums_are_split_as_they_were_coded():
    rng = np.random.default_rng(3)
    coding = Coding((Levels((WARD,)), Levels((SEX,))), (0.3, 0.7), Levels((SEX,)))
    codes = np.column_stack([rng.integers(0, 2, 50), rng.integers(0, 3, 50), rng.integers(0, 2, 50)]).astype(float)
    codes[:5, 1] = np.nan
    ward, sex = coding.split(coding.coded(dataset(codes)).features.sum(axis=0))
    level = np.where(np.isnan(codes[:, 1]), 3, codes[:, 1])
    for g in range(2):
        np.testing.assert_allclose(ward[g], [np.sum((codes[:, 0] == g) & (level == k)) for k in range(4)])
        np.testing.assert_allclose(sex[g], [np.sum((codes[:, 0] == g) & (codes[:, 2] == k)) for k in range(2)])


def test_own_edges_are_kept_and_no_bin_is_wide():
    column = Numeric(name="x", bounds=(0, 100), edges=(1, 10))
    edges = edges_of(column, 8)
    assert {0.0, 0.01, 0.1, 1.0} <= {round(edge, 12) for edge in edges}
    assert np.all(np.diff(edges) > 0)
    assert np.diff(edges).max() <= 1 / 8


def test_more_rows_and_less_noise_make_more_bins():
    assert [bins_for(rows, 10.0) for rows in (10, 500, 5_000, 10**6)] == [8, 16, 64, 64]
    assert bins_for(1000, 0.0) == 64
    assert bins_for(500, 1.0) > bins_for(500, 100.0)


def test_what_is_left_of_a_budget_is_shared():
    assert equal_but({}, ["a", "b"]) is None
    assert equal_but({"a": 0.5}, ["a", "b", "c"]) == (0.5, 0.25, 0.25)
    assert equal_but({"a": 0.5, "b": 0.5}, ["a", "b"]) == (0.5, 0.5)


def test_too_many_cells_are_refused():
    many = Categorical(name="zip", categories=tuple(map(str, range(1100))))
    with pytest.raises(sv.InputError, match="cells"):
        Coding((Levels((many,)),), None, Levels((many,)))
