"""Times and events as codes: which cells rows are in, and how far a row can move their sum."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sottovoce.tables.follow_up import ALPHA
from tables.lives import ARM, LABEL, coding_of, dataset

PART = coding_of().parts[0]


def numbers(months, died):
    """The numbers of a row, (width,), by their names."""
    entries = PART.entries(np.array([[months / 12, died]]))
    row = np.zeros(PART.width)
    np.add.at(row, entries.places[0], entries.values[0])
    return {name: value for name, value in zip(PART.names, row.tolist(), strict=True) if value}


@pytest.mark.parametrize(
    ("months", "died", "expected"),
    [
        (0.0, 1, {"event, 0 to 1": 1}),
        (1.0, 1, {"event, 0 to 1": 1}),
        (1.0001, 1, {"event, 1 to 2": 1}),
        (12.0, 1, {"event, 11 to 12": 1}),
        (12.5, 1, {"beyond": 1}),
        (12.5, 0, {"beyond": 1}),
        (3.0, 0, {"censored, 2 to 3": 1}),
        (2.25, 0, {"censored, 2 to 3": 1, "not watched of 2 to 3": 0.75 * ALPHA}),
        (0.0, 0, {"censored, 0 to 1": 1, "not watched of 0 to 1": ALPHA}),
    ],
)
def test_a_row_is_in_one_cell(months, died, expected):
    assert numbers(months, died) == pytest.approx(expected)


def test_times_at_ends_of_bins_are_not_moved_on_by_rounding():
    part = coding_of(replace(LABEL, until=0.7, bins=7)).parts[0]
    times = np.array([0.1 * i for i in range(1, 8)])  # 0.30000000000000004 among them
    entries = part.entries(np.column_stack([times / 0.7, np.ones(7)]))
    assert entries.places[:, 0].tolist() == list(range(7))


@given(st.lists(st.tuples(st.floats(0, 30), st.booleans(), st.integers(0, 2)), min_size=2, max_size=2))
@settings(max_examples=200)
def test_replacing_a_row_moves_the_sum_by_the_square_root_of_two_at_most(both):
    coding = coding_of(by=ARM)
    codes = np.array([[arm, months / 12, died] for months, died, arm in both], dtype=float)
    one, other = coding.coded(dataset(codes)).features.toarray()
    assert min(one.min(), other.min()) >= 0
    assert max(np.linalg.norm(one), np.linalg.norm(other)) <= coding.data_norm * (1 + 1e-12)
    assert np.linalg.norm(one - other) <= math.sqrt(2) * (1 + 1e-12)


def test_some_rows_move_it_by_all_of_that():
    coding = coding_of(by=ARM)
    one, other = coding.coded(dataset(np.array([[0.0, 0.0, 0.0], [1.0, 0.5 + 1e-9, 0.0]]))).features.toarray()
    assert np.linalg.norm(one) == pytest.approx(1.0, rel=1e-12)
    assert np.linalg.norm(one - other) == pytest.approx(math.sqrt(2), rel=1e-6)
