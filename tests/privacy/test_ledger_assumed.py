"""Rounds of masked sums are booked against so many colluding sites, and the ledger says so wherever it says a price."""

import json

import pytest

from sottovoce.cli import main
from sottovoce.errors import BudgetError, PrivacyError
from sottovoce.privacy import Gaussian
from sottovoce.privacy.books.book import Assumed, Cost
from sottovoce.privacy.books.ledger import Ledger
from sottovoce.settings import plain

DIGEST = "hmac-sha256:" + "0" * 64
THREE, ONE = Assumed(3, 8), Assumed(1, 5)


@pytest.fixture
def ledger(tmp_path):
    with Ledger.create(tmp_path / "rows.ledger", DIGEST, 2.0, 1e-5) as ledger:
        yield ledger


def test_the_fewest_colluders_of_any_round_are_what_the_total_holds_against(ledger, tmp_path):
    assert ledger.colluding() is None
    ledger.reserve("own noise", 1, Gaussian(50.0))
    assert ledger.colluding() is None
    ledger.reserve("hospitals", 1, Gaussian(50.0), 0.0, THREE)
    assert ledger.colluding() == 3
    ledger.reserve("banks", 1, Gaussian(50.0), 0.0, ONE)
    assert ledger.colluding() == 1
    ledger.close()
    with Ledger.open(tmp_path / "rows.ledger") as again:
        assert again.colluding() == 1
        assert [r.cost.assumed for r in again.reservations()] == [None, THREE, ONE]
        bodies = [json.loads(entry.body) for entry in again.entries()]
        assert bodies[1]["assumed"] == {"colluding": 3, "least_sites": 8}
        assert "assumed" not in bodies[0]
        assert plain(again)["total"]["colluding"] == 1


def test_an_assumption_changes_no_price_and_is_part_of_the_booking(ledger):
    ledger.reserve("run", 1, Gaussian(10.0), 0.0, ONE)
    assert ledger.total() == pytest.approx(Ledger.would_cost(ledger, Gaussian(10.0), 0), rel=1e-12)
    assert ledger.reserve("run", 1, Gaussian(10.0), 0.0, ONE).entry == 1
    for other in (None, THREE):
        with pytest.raises(PrivacyError, match=r"the cost that run='run', round=1 was reserved with.*colluding=1"):
            ledger.reserve("run", 1, Gaussian(10.0), 0.0, other)


def test_whoever_asks_what_was_spent_is_told_against_whom(ledger, tmp_path, capsys):
    ledger.reserve("run", 1, Gaussian(10.0), 0.0, ONE)
    with pytest.raises(BudgetError, match=r"against at most 1 colluding site, which.*Use fewer rounds"):
        ledger.check_rounds("next", [Cost(Gaussian(0.1))])
    ledger.close()
    assert main(["ledger", "show", str(tmp_path / "rows.ledger")]) == 0
    told = " ".join(capsys.readouterr().out.split())
    assert "of 2, at delta = 1e-05 against at most 1 colluding site." in told
    assert main(["ledger", "show", "--json", str(tmp_path / "rows.ledger")]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["total"]["colluding"] == 1
    assert "against at most 1 colluding site" in shown["runs"][0]["each"]
