"""A guarantee as a table: it says no more and no less than the statement, which is folded below it."""

from dataclasses import replace
from math import inf, nextafter

import numpy as np
import pytest

import sottovoce as sv
from helpers import problems
from sottovoce.document import Folded, Words
from sottovoce.numerals import down, up
from sottovoce.privacy.unit import Unit
from sottovoce.privacy.words import guarantee


def statement(algorithm, n=12):
    sites = problems.sites(np.random.default_rng(0), (9,) * n)
    return algorithm.statement(algorithm.oracle(sites, sv.graphs.complete(n)))


MASKED = statement(sv.MaskedNewton(epsilon=1.0, colluding=2, rounds=11))
ALONE = statement(sv.IPADMM(epsilon=1.0, delta=1e-5, rounds=3, local_steps=2))


def rows(privacy):
    """The table by the names of its lines; notes are apart."""
    table = guarantee(privacy)[0]
    return {cell.text: text for cell, text in table.rows if cell.text != "note"}


def test_the_table_says_what_holds_against_whom():
    found = rows(ALONE)
    assert found["against"] == "whoever carries the messages and all 11 other sites together"
    assert found["protected"] == "every single row: one row of one site replaced by any other row"
    assert found["epsilon"] == f"{up(ALONE.epsilon)} at delta = 1e-05, for the whole run"
    assert "if more collude" not in found
    found = rows(MASKED)
    assert found["against"] == "whoever carries the messages together with at most 2 other sites, as assumed"
    worst = MASKED.observers[-1].epsilon
    assert worst > 1.5
    assert found["if more collude"] == f"epsilon = {up(worst)} against all 11 other sites"
    several, people = ALONE.of_runs(3), replace(ALONE, unit=Unit(4))
    assert rows(several)["epsilon"] == f"{up(several.epsilon)} at delta = 1e-05, for all 3 runs together"
    assert rows(people)["protected"].startswith("every person: one person at one site")
    assert rows(replace(ALONE, observers=()))["against"] == "whoever sees all that was released"


def test_where_nothing_holds_against_more_that_is_said():
    lines = (*MASKED.observers[:-1], replace(MASKED.observers[-1], epsilon=inf))
    assert rows(replace(MASKED, observers=lines))["if more collude"] == "no guarantee against all 11 other sites"
    everybody = statement(sv.MaskedNewton(epsilon=1.0, colluding=11, rounds=11))
    assert "at most 11 other sites" in rows(everybody)["against"]
    assert "if more collude" not in rows(everybody)


@pytest.mark.parametrize("privacy", [MASKED, ALONE.noting("One limit.", "Another.")], ids=["masked", "own"])
def test_nothing_is_left_out_of_the_table_and_the_full_text_is_folded(privacy):
    table, full, *more = guarantee(privacy)
    assert tuple(text for cell, text in table.rows if cell.text == "note") == privacy.notes != ()
    assert rows(privacy)["not covered"].split("; ") == list(privacy.not_covered)
    assert rows(privacy)["assumed public"].split("; ") == list(privacy.public)
    for words in (*privacy.not_covered, *privacy.public, *privacy.notes):
        assert words in privacy.prose()
    assert isinstance(full, Folded)
    assert [part.text for part in full.parts] == [privacy.prose()]
    assert len(more) == (len(privacy.observers) > 1)


def test_what_is_not_private_is_a_warning_and_nothing_is_folded():
    naked = replace(ALONE, epsilon=inf)
    assert guarantee(naked) == [Words(naked.prose(), "bad")]


def test_numbers_that_are_short_stay_as_they_are():
    for value in (0.1, 0.3, 1e-5, 1.0, 2.5, 123456.0):
        assert float(up(value)) == float(down(value)) == value
        above, below = nextafter(value, inf), nextafter(value, 0)
        assert float(up(above)) >= above
        assert float(down(below)) <= below
    assert up(1.0000001) == "1.00001"
    assert down(0.9999999) == "0.999999"
