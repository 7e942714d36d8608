"""What replacing one row moves the two sums by: never more than is said, and as much as is said."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sottovoce.tally import Numbers, SeveralClasses, TwoClasses
from sottovoce.tally.questions import PLACING

QUESTIONS = {
    "two": TwoClasses(6, 5, threshold=0.3),
    "margin": TwoClasses(6, 5, odds=False),
    "several": SeveralClasses(6, 5, classes=4),
    "numbers": Numbers(6, 5, width=7.0),
}
# What attains the bound: one row against another, as (z, label).
FURTHEST_APART = {
    "two": (([-3.0], -1.0), ([3.0], 1.0)),
    "margin": (([-3.0], -1.0), ([3.0], 1.0)),
    "several": (([9.0, 0, 0, 0], 0.0), ([0, 0.1, 0, 0], 2.0)),
    "numbers": (([0.0], 0.0), ([7.0], 0.0)),
}
any_number = st.floats(allow_nan=True, allow_infinity=True, width=64)


def label_of(name, draw):
    if name == "several":
        return float(draw(st.integers(0, 3)))
    return draw(st.floats(-3.5, 3.5)) if name == "numbers" else draw(st.sampled_from([-1.0, 1.0]))


def placed(question, draw):
    noisy = draw(st.lists(st.floats(-20, 20), min_size=len(question.borders) + 1, max_size=len(question.borders) + 1))
    return question.bins_of(np.array(noisy))


@pytest.mark.parametrize("name", QUESTIONS)
@given(data=st.data())
def test_no_row_moves_more(name, data):
    question, draw = QUESTIONS[name], data.draw
    outputs = 4 if name == "several" else 1
    z = np.array([draw(st.lists(any_number, min_size=outputs, max_size=outputs)) for _ in range(7)])
    labels = np.array([label_of(name, draw) for _ in range(7)])
    where = placed(question, draw)
    own, other = np.r_[0:6], np.r_[0:5, 6]  # the last row is another
    with np.errstate(all="ignore"):
        first = [question.places(z[rows], labels[rows]) for rows in (own, other)]
        second = [question.counts(where, z[rows], labels[rows]) for rows in (own, other)]
    assert first[0].sum() == first[1].sum() == 6
    assert np.linalg.norm(first[0] - first[1]) <= PLACING
    assert second[0].shape == second[1].shape == (question.numbers(where),)
    assert np.linalg.norm(second[0] - second[1]) <= question.sensitivity


@pytest.mark.parametrize("name", QUESTIONS)
def test_it_is_attained(name):
    question = QUESTIONS[name]
    rows = [(np.array([z]), np.array([label])) for z, label in FURTHEST_APART[name]]
    where = question.bins_of(np.full(len(question.borders) + 1, 6 / (len(question.borders) + 1)))
    first, second = ([measure(*row) for row in rows] for measure in
                     (question.places, lambda z, b: question.counts(where, z, b)))  # fmt: skip
    assert np.linalg.norm(first[0] - first[1]) == pytest.approx(PLACING, rel=1e-12)
    assert np.linalg.norm(second[0] - second[1]) == pytest.approx(question.sensitivity, rel=2e-6)


def test_the_order_of_rows_does_not_count():
    """Sums of errors are of whole numbers: else rounding would depend on the other rows."""
    question = Numbers(10_000, 5, width=7.0)
    z = np.random.default_rng(0).normal(size=(10_000, 1))
    where = question.bins_of(question.places(z, np.zeros(10_000)))
    again = question.counts(where, z[::-1], np.zeros(10_000))
    assert (question.counts(where, z, np.zeros(10_000)) == again).all()


def test_sites_sum_up_to_all():
    """A site's part is what it counts of its own rows, whatever others hold."""
    draws = np.random.default_rng(0)
    for name, outputs in (("two", 1), ("several", 4), ("numbers", 1)):
        question = QUESTIONS[name]
        z = draws.normal(size=(90, outputs))
        labels = draws.integers(0, 4, 90) * 1.0 if name == "several" else draws.choice([-1.0, 1.0], 90)
        where = question.bins_of(question.places(z, labels))
        parts = [question.counts(where, z[k::3], labels[k::3]) for k in range(3)]
        np.testing.assert_allclose(sum(parts), question.counts(where, z, labels), atol=1e-6)


def test_probabilities_of_several_classes_are_their_own():
    z = np.random.default_rng(0).normal(size=(50, 4)) * 3
    shares = np.exp(z) / np.exp(z).sum(axis=1, keepdims=True)
    top = shares.max(axis=1)
    assert QUESTIONS["several"].scores(z, np.zeros(50)) == pytest.approx(np.log(top / (1 - top)), rel=1e-9)
    assert math.isclose(QUESTIONS["several"].borders.min(), -math.log(3), abs_tol=0.2)
