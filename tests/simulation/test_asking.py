"""Statistics without a model: everything is refused or charged before a row is looked at, and noise is what is said."""

import math
from dataclasses import replace

import numpy as np
import pytest

import sottovoce as sv
from helpers.laws import assert_standard
from sottovoce.algorithms.tabulation import Tabulation
from sottovoce.noise.sources import SystemNoise
from sottovoce.oracle.row_sums import RowSums
from sottovoce.privacy.accounting.gaussian import mu_for
from sottovoce.privacy.unit import ROW, Unit
from sottovoce.problem.problem import Problem
from sottovoce.simulation.asking import ask

ASKED = Tabulation(epsilon=1.0, delta=1e-6, what="rows at each of three levels")


def problem(private=True, sites=3, unit=ROW, bound=1.0):
    parts = [np.repeat(np.eye(3), (4 + i, 2, 1), axis=0) for i in range(sites)]
    held = sv.Sites(parts, [np.zeros(len(part)) for part in parts], private=private, unit=unit, data_norm=bound)
    return Problem(held, sv.graphs.complete(sites))


def test_the_sum_is_exact_where_nothing_is_promised():
    for sites in (1, 3):
        told = ask(problem(private=False, sites=sites), replace(ASKED, epsilon=math.inf), runs=2)
        assert told.answer.value.T.tolist() == 2 * [[sum(4 + i for i in range(sites)), 2 * sites, sites]]
        assert told.answer.rows == sum(7 + i for i in range(sites))
        assert not told.privacy.private


@pytest.mark.parametrize("private", [False, True])
def test_it_has_the_noise_that_it_says_and_that_its_price_is_for(private):
    """With three sites, of which one may collude, there is noise of three shares, two of which are what is paid for."""
    runs, where = 4000, problem(private)
    told = ask(where, ASKED, runs=runs)
    exact = np.array([15, 6, 3])[:, None]
    least = math.sqrt(3 / 2) * math.sqrt(2) / mu_for(1.0, 1e-6)
    assert told.answer.std.item() == pytest.approx(least, rel=1e-6)
    assert told.privacy.runs == (runs if private else 1)
    assert_standard((told.answer.value - exact) / told.answer.std)
    with pytest.raises(AssertionError):
        assert_standard((told.answer.value - exact) / told.answer.std * 2 / 3)


def test_a_person_costs_as_many_rows_as_they_have():
    one, three = (ask(problem(unit=unit, sites=1), ASKED).answer.std.item() for unit in (ROW, Unit(3)))
    assert three == pytest.approx(3 * one, rel=1e-9)


def test_the_same_seed_is_the_same_noise_and_private_rows_take_none():
    first, second = (ask(problem(private=False), ASKED, seed=5) for _ in range(2))
    np.testing.assert_array_equal(first.answer.value, second.answer.value)
    assert first.seed == 5
    with pytest.raises(sv.PrivacyError, match="no seed with private rows"):
        ask(problem(), ASKED, seed=5)


def test_noise_of_private_rows_is_the_operating_system_s(monkeypatch):
    """Whoever knows what would be drawn by a seed cannot take it off."""
    monkeypatch.setattr(SystemNoise, "shared", lambda self, *_: np.zeros((1, self.shape.d, self.shape.runs)))
    private, public = (ask(problem(private), ASKED).answer.value[:, 0] for private in (True, False))
    assert private.tolist() == [15, 6, 3]
    assert public.tolist() != [15, 6, 3]


def untouched(monkeypatch):
    """A list of all sums that are computed from rows."""
    seen = []
    monkeypatch.setattr(RowSums, "totals", lambda _: seen.append(1))
    return seen


def test_what_a_budget_refuses_is_never_computed(monkeypatch):
    seen, charged = untouched(monkeypatch), []

    def refuse(statement):
        charged.append(statement)
        raise sv.BudgetError("spent")

    with pytest.raises(sv.BudgetError):
        ask(problem(), ASKED, runs=3, charge=refuse)
    assert seen == []
    assert [(one.target_epsilon, one.runs) for one in charged] == [(1.0, 3)]


@pytest.mark.parametrize(
    ("asked", "where", "wrong"),
    [
        (replace(ASKED, colluding=3), problem(), "colluding"),
        (replace(ASKED, least_sites=1), problem(), "least_sites"),
        (ASKED, problem(bound=math.inf), "data_norm"),
        (replace(ASKED, epsilon=1e16), problem(), "grid of 30 bits"),
    ],
)
def test_what_cannot_be_kept_is_refused_and_costs_nothing(asked, where, wrong):
    charged = []
    with pytest.raises(sv.SottovoceError, match=wrong):
        ask(where, asked, charge=charged.append)
    assert charged == []


@pytest.mark.parametrize("wrong", [{"epsilon": 0.0}, {"delta": 1.0}, {"spare": -1}, {"colluding": -1}])
def test_settings_that_mean_nothing_are_refused(wrong):
    with pytest.raises(sv.InputError, match=next(iter(wrong))):
        replace(ASKED, **wrong)


def test_the_statement_says_what_is_released_and_who_is_trusted():
    said = ask(problem(), ASKED).privacy.prose()
    assert "rows at each of three levels" in said
    assert "at most 1 of the 3 sites collude" in said
