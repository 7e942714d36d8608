"""Agreements that protect people: what must be said, what a site refuses, and what its books take."""

from dataclasses import replace
from math import sqrt
from pathlib import Path

import numpy as np
import pytest

import sottovoce as sv
from helpers.federations import agreement, masked_agreement, members
from sottovoce.cli import agreement as shown
from sottovoce.cli.site import files
from sottovoce.errors import BudgetError, InputError, PrivacyError, UnsupportedError
from sottovoce.federation.agreement import signing, toml_file
from sottovoce.federation.site.summing import Summing
from sottovoce.files.models.from_site import statement_of
from sottovoce.files.schema import Schema
from sottovoce.privacy import ROW, BudgetAccountant, Gaussian, Unit
from sottovoce.privacy.books.ledger import Ledger
from sottovoce.problem.people import DROPPED
from sottovoce.sums.questions import Moments

SCHEMA = """
[label]
column = "ill"
classes = ["no", "yes"]
[person]
column = "patient"
rows = 3
[[columns]]
name = "age"
kind = "numeric"
bounds = [0, 100]
scale = "unit"
[[columns]]
name = "smokes"
kind = "boolean"
"""
TEXT = Schema.loads(SCHEMA).dumps()
PEOPLE = {"schema": TEXT, "features": 3, "sites_per_person": 2}


def test_people_are_agreed_on_and_read_back():
    a = agreement(**PEOPLE)
    assert a.unit == Unit(3, 2)
    assert toml_file.loads(toml_file.dumps(a)) == a
    assert a.digest() != replace(a, sites_per_person=1).digest()
    assert agreement().unit == ROW
    assert "sites_per_person" not in toml_file.dumps(agreement())


def test_noise_and_statement_are_for_people():
    a, rows = agreement(**PEOPLE), agreement(schema=None, features=3)
    mine, plain = a.public_oracle("berlin"), rows.public_oracle("berlin")
    told = a.algorithm.statement(mine)
    assert told.unit == Unit(3, 2)
    assert told.epsilon <= a.algorithm.epsilon
    assert mine.sensitivity() == pytest.approx(3 * plain.sensitivity())
    assert told.sigma > 1.3 * rows.algorithm.statement(plain).sigma
    sums = masked_agreement(**PEOPLE)
    without = masked_agreement(features=3)
    assert Moments().sensitivity(sums.public_oracle("berlin"), 75) == pytest.approx(
        6 * Moments().sensitivity(without.public_oracle("berlin"), 75)
    )


@pytest.mark.parametrize("at", [1, 2, 3])
def test_a_masked_sum_pays_for_rounding_at_every_site_of_a_person(at):
    a = masked_agreement(**PEOPLE | {"sites_per_person": at})
    summing, sigma, n = Summing(a, a.public_oracle("berlin")), a.algorithm.multipliers(len(a.sites))[0], len(a.sites)
    grid = summing._grid(1, Moments(), a.names)
    moved = Moments().sensitivity(summing.oracle, sum(site.rows for site in a.sites)).item()
    rounded = max(2, at) * grid.step * sqrt(a.algorithm.schedule(a.features)[0].numbers)
    assert grid.scale * grid.step * sqrt(a.algorithm.honest(n)) >= sigma * (moved + rounded)


def test_the_grid_is_paid_for_at_every_site_of_a_person():
    one, two = (agreement(**(PEOPLE | {"sites_per_person": s}), grid_bits=20) for s in (1, 2))
    assert two.grid_delta > 1.2 * one.grid_delta
    notes = statement_of(two, "berlin").notes
    assert any("at more than 2 of the 3 sites is what the sites assured each other" in note for note in notes)
    assert statement_of(two, "berlin").unit == Unit(3, 2)
    everywhere = agreement(**(PEOPLE | {"sites_per_person": 3}))
    assert not any("assured" in note for note in statement_of(everywhere, "berlin").notes)


def test_terms_and_statement_say_what_dropping_a_surplus_does_not_cover():
    drop = Schema.loads(SCHEMA.replace("rows = 3", 'rows = 3\nsurplus = "drop"')).dumps()
    for made in (agreement, masked_agreement):
        cut, refusing = made(**PEOPLE | {"schema": drop}), made(**PEOPLE)
        assert DROPPED in statement_of(cut, "berlin").notes
        assert DROPPED in shown._people(cut)
        assert DROPPED not in (*statement_of(refusing, "berlin").notes, *shown._people(refusing))


def test_the_grid_is_paid_for_in_every_sum_that_too_many_colluders_may_open():
    one, two = (masked_agreement(**(PEOPLE | {"sites_per_person": s})) for s in (1, 2))
    assert two.grid_delta_against(1, 1.5) == one.grid_delta_against(1, 1.5)  # against one, every sum holds them all
    assert two.grid_delta_against(2, 1.5) == pytest.approx(2**0.5 * one.grid_delta_against(2, 1.5), rel=1e-9, abs=0)


def test_what_is_left_open_or_cannot_be_kept_is_refused():
    with pytest.raises(InputError, match=r"sites_per_person where the schema has a table \[person\].*Say at how many"):
        agreement(schema=TEXT, features=3)
    with pytest.raises(InputError, match="and only there, got sites_per_person=2"):
        agreement(sites_per_person=2)
    for bad in (0, 4):
        with pytest.raises(InputError, match="sites_per_person from 1 to 3"):
            agreement(schema=TEXT, features=3, sites_per_person=bad)
    batches = replace(agreement().algorithm, batch_size=4)
    with pytest.raises(UnsupportedError, match="a batch may draw several of a person's rows"):
        agreement(**PEOPLE, algorithm=batches)


def file_of(tmp_path, people):
    path = tmp_path / "rows.csv"
    path.write_text("patient,age,smokes,ill\n" + "".join(f"{p},{10 + i % 80},yes,no\n" for i, p in enumerate(people)))
    return path


def test_a_site_refuses_a_person_with_too_many_rows_before_it_says_anything(tmp_path):
    a = agreement(**PEOPLE)
    rows = files.rows_of(a, file_of(tmp_path, [i // 3 for i in range(30)]))
    assert rows.unit == Unit(3, 2)
    a.oracle_for("berlin", rows)
    with pytest.raises(InputError, match="at most rows=3 rows of a person"):
        files.rows_of(a, file_of(tmp_path, [0, 0, 0, 0, *range(1, 27)]))
    # Rows that protect less than was agreed are not taken, however they were made.
    fewer = sv.Sites([np.zeros((30, 3))], [np.ones(30)], data_norm=a.data_norm)
    with pytest.raises(InputError, match=r"rows that protect one person at up to 2 sites.*as agreed"):
        a.oracle_for("berlin", fewer)


def test_a_ledger_for_people_takes_no_run_for_less(tmp_path):
    unit = Unit(3, 2)
    with Ledger.create(tmp_path / "l", "d", 1.0, 1e-5, unit=unit) as ledger:
        assert ledger.unit == unit
        ledger.reserve("a", 1, Gaussian(20.0), unit=Unit(4, 2))
        for less in (ROW, Unit(2, 2), Unit(3, 1)):
            with pytest.raises(PrivacyError, match="as the cap of this ledger does"):
                ledger.reserve("a", 2, Gaussian(20.0), unit=less)
            with pytest.raises(PrivacyError, match="as the cap of this ledger does"):
                ledger.check_run("b", Gaussian(20.0), 2, unit=less)
        with pytest.raises(PrivacyError):
            ledger.reserve("a", 2, Gaussian(20.0))  # who says nothing is taken to protect rows
    assert Ledger.open(tmp_path / "l").unit == unit
    data = file_of(tmp_path, range(4))
    with files.open_ledger(tmp_path / "m", data, files.Cap(1.0, 1e-5), unit) as made:
        assert made.unit == unit


def test_a_budget_for_people_takes_no_run_for_less(tmp_path):
    budget = BudgetAccountant(1.0, 1e-5, unit=Unit(3))
    budget.spend(Gaussian(20.0), Unit(3, 2))
    for less in (ROW, Unit(2)):
        with pytest.raises(PrivacyError, match="as this budget does"):
            budget.spend(Gaussian(20.0), less)
    with pytest.raises(BudgetError):
        budget.spend(Gaussian(0.5), Unit(3))
    budget.save(tmp_path / "b")
    again = BudgetAccountant.load(tmp_path / "b")
    assert (again.unit, len(again)) == (Unit(3), 1)
    with pytest.raises(PrivacyError, match="events or limits that this one does not have"):
        BudgetAccountant(1.0, 1e-5).save(tmp_path / "b")
    # What protects people protects rows.
    rows = BudgetAccountant(1.0, 1e-5)
    rows.spend(Gaussian(20.0), Unit(3))


def test_members_are_named_in_what_people_read(capsys):
    from sottovoce.cli.agreement import tell

    a = agreement(members()[1], **PEOPLE)
    tell(a, signing.standings(a, Path("nowhere")))
    out = " ".join(capsys.readouterr().out.split())
    assert "for one person at up to 2 sites, with at most 3 rows at each" in out
    assert "That nobody has rows at more than 2 of the sites is what the sites assure each other" in out
