"""Opened sums: whoever opens them says how much noise they hold, and over how many rows they are."""

import math

import numpy as np
import pytest

import sottovoce as sv
from federation.test_summing import FIVE, GO_ON, SIZES, SPARING, D, Sums
from helpers.laws import assert_standard
from helpers.sums import Silent
from sottovoce.noise.sources import SeededNoise, Shape
from sottovoce.sums.opening import Curator, Shares
from sottovoce.sums.program import Opened
from sottovoce.sums.questions import Gradient, Moments

N, P, RUNS = 3, 4, 500


def site():
    rng = np.random.default_rng(2)
    rows = [rng.normal(size=(m, P)) / 4 for m in (9, 5, 30)]
    return sv.MaskedNewton().oracle(sv.Sites(rows, [np.sign(a[:, 0]) for a in rows]), sv.graphs.complete(N))


def opened(shares, k, question, noise=None, runs=RUNS):
    noise = SeededNoise(6, Shape(N, P, runs)) if noise is None else noise
    return Curator(shares, site(), [9, 5, 30], noise, runs).open(k, question)


@pytest.mark.parametrize("honest", [1, 2, 3])
def test_a_curators_sum_has_the_noise_that_it_says(honest):
    """One share of each of n sites, of which u - c together are what was calibrated."""
    question = Gradient(np.random.default_rng(1).normal(size=(P, RUNS)))
    told = opened(Shares((9.0, 0.5), honest), 2, question)
    exact = question.of(site(), 44)
    std = 0.5 * question.sensitivity(site(), 44) * math.sqrt(N / honest)
    np.testing.assert_allclose(told.std, std)
    assert told.std.shape == (1, RUNS)  # a gradient's sensitivity follows the model of each run
    assert told.question is question
    assert told.rows == 44
    assert_standard((told.value - exact) / std)
    with pytest.raises(AssertionError):
        assert_standard((told.value - exact) / std * 2 / 3)
    np.testing.assert_allclose(told.mean, told.value / 44)
    np.testing.assert_allclose(told.mean_std, std / 44)


def test_no_number_of_a_sum_and_no_sum_has_the_noise_of_another():
    shares = Shares((1.0, 1.0), N)
    noise = [opened(shares, k, Moments()) for k in (1, 2)]
    found = np.stack([one.value - opened(shares, 1, Moments(), Silent(P, RUNS)).value for one in noise])
    assert found.shape == (2, P * (P + 1) // 2, RUNS)  # more numbers than there are features
    assert len(np.unique(np.round(found, 9))) == found.size


def test_without_noise_a_sum_is_exact_in_every_run():
    told = opened(Shares((0.0,), N), 1, Moments(), runs=7)
    np.testing.assert_array_equal(told.value, np.repeat(site().moments(full=True)[:, None], 7, axis=1))
    assert told.std.item() == 0
    assert told.mean_std.item() == 0


# -- real sites, one of which is lost ---------------------------------------------------------------------------------


def attempts(q):
    """Sum q of five real sites, as it would have been opened, and as it is without one of them."""
    sums = Sums(SPARING, lost_neighbour=GO_ON)
    for k in range(1, q):
        sums.take(*sums.turn(k))
    left = tuple(name for name in FIVE if name != "oslo")
    found = []
    for attempt, members in enumerate((FIVE, left)):
        contexts, said = sums.turn(q, attempt, members)
        found.append([sums.site[name].open(contexts[name], sums.question[name], said) for name in members])
    return sums, left, *found


@pytest.mark.parametrize("q", [1, 3])
def test_a_sum_without_a_lost_site_says_its_rows_and_its_noise(q):
    sums, left, whole, again = attempts(q)
    gone = SIZES[FIVE.index("oslo")]
    assert {one.rows for one in whole} == {sum(SIZES)}
    assert {one.rows for one in again} == {sum(SIZES) - gone}
    analysis = sums.agreement.analysis
    for members, of in ((FIVE, whole), (left, again)):
        told = of[0]
        assert all(one.value.tobytes() == told.value.tobytes() for one in of)  # all read the same
        assert all(one.std.tobytes() == told.std.tobytes() for one in of)
        # One share of each of those who are left: with fewer of them there is less noise, and never less than u - c.
        needed = analysis.multipliers(5)[q - 1] * told.question.sensitivity(sums.site["rome"].oracle, told.rows).item()
        std = needed * math.sqrt(len(members) / analysis.honest(5))
        assert told.std.item() == pytest.approx(std, rel=1e-6)
        assert told.std.item() >= std
        exact = sum(told.question.of(sums.site[name].oracle, told.rows) for name in members)
        z = (told.value - exact) / told.std
        assert 0 < float(np.sum(z**2)) < 20 * len(z)
        assert len(z) == (D * (D + 1) // 2 if q == 1 else D)


def test_the_program_goes_on_with_the_rows_and_the_noise_of_those_who_are_left():
    """Means are over those rows: the same numbers over others would be another model."""
    sums, _, _, again = attempts(1)
    ours, theirs = (sums.site["rome"].begin() for _ in range(2))
    ours.tell(again[0])
    told = again[0]
    more = sum(SIZES) / told.rows
    # The same means from all rows: with as much more of everything, nothing else changes.
    theirs.tell(Opened(told.question, told.value * more, told.std * more, sum(SIZES)))
    np.testing.assert_allclose(*(one.ask.question.point for one in (ours, theirs)))
    gradient = np.linspace(-1, 1, D)[:, None]
    for session, rows in ((ours, told.rows), (theirs, sum(SIZES))):
        session.tell(Opened(session.ask.question, gradient * rows, np.full((1, 1), 0.1 * rows), rows))
    np.testing.assert_allclose(ours.answer.last, theirs.answer.last, rtol=1e-9)
    assert np.abs(ours.answer.last).max() > 0
