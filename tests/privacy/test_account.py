"""What a ledger has spent, in few bytes: a second ledger that books it refuses what the first would have refused."""

import json
import random
from math import inf, isinf, sqrt

import pytest

from sottovoce.errors import BudgetError, InputError, PrivacyError
from sottovoce.privacy import Gaussian, SampledGaussian
from sottovoce.privacy.books.account import ACCOUNT_BYTES, MOST_RECORDS, Account, Record, mark_of
from sottovoce.privacy.books.book import Assumed
from sottovoce.privacy.books.ledger import Ledger
from sottovoce.privacy.events import Sampling
from sottovoce.privacy.unit import Unit

FAR = 1e-30  # divergence of a round
SAMPLED = SampledGaussian(20.0, Sampling("poisson", 100, 10))


@pytest.fixture
def make(tmp_path):
    opened = []

    def made(name="rows", epsilon=3.0, **options):
        path = tmp_path / f"{name}.ledger"
        ledger = Ledger.open(path) if path.exists() else Ledger.create(path, "rows", epsilon, 1e-5, **options)
        opened.append(ledger)
        return ledger

    yield made
    for ledger in opened:
        ledger.close()


def book(ledger, run, rounds, sigma=20.0, first=1):
    for k in range(first, rounds + 1):
        ledger.reserve(run, k, sigma if not isinstance(sigma, float) else Gaussian(sigma), FAR)


def through_bytes(account):
    data = account.to_bytes()
    assert len(data) == ACCOUNT_BYTES
    return Account.from_bytes(data)


def test_a_ledger_that_was_set_back_comes_to_the_same_total(make):
    whole, old = make("whole"), make("old")
    for ledger in (whole, old):
        book(ledger, "one", 5)
        book(ledger, "two", 3, 15.0)
    book(whole, "two", 9, 15.0, first=4)
    book(whole, "three", 4, 30.0)
    missing = old.catch_up(through_bytes(whole.account()), whole.height)
    assert {record.run for record in missing} == {mark_of("two"), mark_of("three")}
    assert old.total() == pytest.approx(whole.total(), rel=1e-9)
    assert old.total() >= whole.total() * (1 - 1e-12)
    assert old.height > whole.height
    assert old.account().lacking(whole.account()) == ()
    assert old.catch_up(whole.account(), whole.height) == ()  # once is enough


def test_rounds_that_are_booked_after_all_count_once(make):
    """The run is gone on with, from its journal and its mailboxes: the same rounds are reserved again."""
    whole, old = make("whole"), make("old")
    book(whole, "one", 9)
    book(old, "one", 2)
    old.catch_up(through_bytes(whole.account()), whole.height)
    for k in range(3, 10):
        book(old, "one", k, first=k)
        assert old.total() == pytest.approx(whole.total(), rel=1e-9)
        assert old.total() >= whole.total() * (1 - 1e-12)
    book(whole, "one", 12, first=10)
    book(old, "one", 12, first=10)
    assert old.total() == pytest.approx(whole.total(), rel=1e-9)


def test_a_second_ledger_counts_both(make):
    """Two folders, each with runs of its own on the same rows: what either has spent counts in both."""
    here, there, both = make("here"), make("there"), make("both")
    for ledger in (there, both):
        book(ledger, "there", 6, 18.0)
    for ledger in (here, both):
        book(ledger, "here", 4, 25.0)
    here.catch_up(through_bytes(there.account()), there.height)
    assert here.total() == pytest.approx(both.total(), rel=1e-9)
    there.catch_up(through_bytes(here.account()), here.height)
    assert there.total() == pytest.approx(both.total(), rel=1e-9)
    assert there.height > here.height


def test_what_is_caught_up_survives(make):
    whole, old = make("whole"), make("old")
    book(whole, "one", 9)
    old.catch_up(whole.account(), whole.height)
    total, height = old.total(), old.height
    old.close()
    again = make("old")
    assert (again.total(), again.height) == (total, height)


def test_what_was_spent_is_booked_past_the_cap_and_then_all_is_refused(make):
    whole, small = make("whole", 3.0), make("small", 0.5)
    book(whole, "one", 50)
    small.catch_up(whole.account(), whole.height)
    assert small.total() > 0.5
    with pytest.raises(BudgetError, match="without it 1\\."):
        small.reserve("two", 1, Gaussian(1e6), FAR)
    assert small.rounds_left(Gaussian(1e6), FAR) == 0


def test_what_a_caught_up_price_rests_on_is_caught_up_too(make):
    whole, old = make("whole"), make("old")
    whole.reserve("one", 1, Gaussian(20.0), FAR, Assumed(3, 5))
    whole.reserve("two", 1, Gaussian(20.0), FAR, Assumed(2, 4))
    assert (whole.colluding(), old.colluding()) == (2, None)
    old.catch_up(through_bytes(whole.account()), whole.height)
    assert old.colluding() == 2
    assert make("old_again", 3.0).colluding() is None
    old.close()
    assert make("old").colluding() == 2


@pytest.mark.parametrize("seed", range(6))
def test_from_any_moment_on_both_ledgers_take_the_same(make, seed):
    """Runs by turns, a copy at some moment, and then caught up: the same rounds fit as in the ledger itself."""
    r = random.Random(seed)
    whole, old = make("whole"), make("old")
    rounds, copied = {}, r.randrange(40)
    sigmas = {run: r.uniform(12, 40) for run in "abcde"}
    for i in range(40):
        run = r.choice("abcde")
        rounds[run] = rounds.get(run, 0) + 1
        for ledger in (whole, old) if i < copied else (whole,):
            ledger.reserve(run, rounds[run], Gaussian(sigmas[run]), FAR)
    old.catch_up(through_bytes(whole.account()), whole.height)
    for sigma in (3.0, 8.0, 50.0):
        fits, there = old.rounds_left(Gaussian(sigma), FAR), whole.rounds_left(Gaussian(sigma), FAR)
        assert there - 1 <= fits <= there


def test_more_runs_than_fit_are_added_up_and_never_lost(make):
    whole, old = make("whole", 5.0), make("old", 5.0)
    for i in range(MOST_RECORDS + 5):
        book(whole, f"run {i}", 1 + i % 3, 30.0 + i)
        if i < MOST_RECORDS:
            book(old, f"run {i}", 1 + i % 3, 30.0 + i)
    told = through_bytes(whole.account())
    assert len(told.records) == MOST_RECORDS
    missing = old.catch_up(told, whole.height)
    assert len(missing) == 5  # the first six are one record, and the same six are here
    assert old.total() == pytest.approx(whole.total(), rel=1e-9)
    fresh = make("fresh", 5.0)
    fresh.catch_up(told, whole.height)
    assert fresh.total() == pytest.approx(whole.total(), rel=1e-9)
    # A ledger that has only some of those that were added up counts them all: too much, and never too little.
    part = make("part", 5.0)
    book(part, "run 0", 1, 30.0)
    part.catch_up(told, whole.height)
    assert part.total() > whole.total()


@pytest.mark.parametrize("early", [0, 3, 9])
def test_a_ledger_of_many_runs_goes_on_with_an_early_one_and_knows_its_own_word(make, early):
    """Whatever it has ever said of itself, it lacks nothing of; nor does a copy of it book an old run twice."""
    ledger, said = make("whole", 5.0), []
    for i in range(MOST_RECORDS + 8):
        book(ledger, f"run {i}", 2, 60.0 + i)
        said.append(through_bytes(ledger.account()))
    for k in range(3, 7):
        book(ledger, f"run {early}", k, 60.0 + early, first=k)
        said.append(through_bytes(ledger.account()))
    book(ledger, "one more", 2, 50.0)
    total = ledger.total()
    for account in said:
        assert ledger.account().lacking(account) == ()
        assert ledger.catch_up(account, 0) == ()
    assert ledger.total() == total
    ledger.close()
    again = make("whole", 5.0)
    assert all(again.account().lacking(account) == () for account in said)


@pytest.mark.parametrize("seed", range(8))
def test_of_two_copies_that_both_went_on_each_counts_the_old_runs_once(make, seed):
    """More runs than fit, and either copy goes on with old ones and begins new ones, in any order."""
    r = random.Random(seed)
    both = here, there, union = make("here", 9.0), make("there", 9.0), make("union", 9.0)
    last, sigma = {}, {}
    for i in range(MOST_RECORDS + 8):
        run = f"run {i}"
        last[run], sigma[run] = 2, r.uniform(50, 90)
        for ledger in both:
            book(ledger, run, 2, sigma[run])
    mine, theirs = r.sample(sorted(last), 6), [f"there {i}" for i in range(3)]
    for run in mine[:3]:  # each goes on with others: what is in both stays a part of the one or the other
        for ledger in (here, union):
            book(ledger, run, 4, sigma[run], first=3)
    for run in mine[3:]:
        for ledger in (there, union):
            book(ledger, run, 5, sigma[run], first=3)
    for run in theirs:
        for ledger in (there, union):
            book(ledger, run, 1, 40.0)
    missing = here.catch_up(through_bytes(there.account()), there.height)
    assert {record.run for record in missing} == {mark_of(run) for run in (*mine[3:], *theirs)}
    assert here.total() == pytest.approx(union.total(), rel=1e-9)
    # And back: what was caught up is known again, also where it is added up with other runs.
    book(here, "here", 2, 40.0)
    book(union, "here", 2, 40.0)
    there.catch_up(through_bytes(here.account()), here.height)
    assert there.total() >= union.total() * (1 - 1e-12)
    assert there.account().lacking(through_bytes(here.account())) == ()


def test_a_list_of_other_rounds_is_never_taken_for_ones_own(make):
    """The same runs, as many rounds in all, and the same weight: but not the same rounds."""
    here, there = make("here", 9.0), make("there", 9.0)
    for ledger, (one, other) in ((here, (2, 4)), (there, (4, 2))):
        book(ledger, "one", one, 60.0)
        book(ledger, "other", other, 60.0)
        for i in range(MOST_RECORDS - 1):
            book(ledger, f"run {i}", 1, 60.0)
    (listed,) = here.account().lacking(through_bytes(there.account()))
    assert listed.rounds == 0


def test_rounds_of_any_kind_count_in_a_book_of_the_same_kind_and_elsewhere_as_everything(make):
    whole, old = make("whole", mixed=True), make("old", mixed=True)
    for ledger in (whole, old):
        book(ledger, "one", 2, 20.0)
    book(whole, "batches", 5, SAMPLED)
    old.catch_up(through_bytes(whole.account()), whole.height)
    # The total is a price at other orders, and is only shown. What refuses is the moment at the book's own order.
    assert old.total() == pytest.approx(whole.total(), rel=1e-3)
    assert abs(old.rounds_left(SAMPLED, FAR) - whole.rounds_left(SAMPLED, FAR)) <= 1
    for other in (make("exact"), make("larger", 4.0, mixed=True)):
        other.catch_up(through_bytes(whole.account()), whole.height)
        assert isinf(other.total())
        with pytest.raises(BudgetError):
            other.reserve("two", 1, Gaussian(1e6), FAR)


def test_an_account_says_what_its_runs_weigh(make):
    ledger = make()
    book(ledger, "one", 4, 2.0 * sqrt(100))
    (record,) = ledger.account().records
    assert record == Record(mark_of("one"), 4, pytest.approx(4 / 400), pytest.approx(4 * FAR), True)
    assert ledger.account().first == FAR
    assert not Record(b"", 3, 1.0, 0.0).covers(Record(b"", 4, 1.0, 0.0))
    assert not Record(b"", 4, 0.5, 0.0).covers(Record(b"", 4, 1.0, 0.0))
    assert Record(b"", 4, inf, 0.0, False).covers(Record(b"", 4, 1.0, 0.0))


# -- raising the cap --------------------------------------------------------------------------------------------------


def signing(data):
    return b"signed " + data[:4]


def test_a_raised_cap_takes_more_and_is_kept(make):
    ledger = make(epsilon=1.0)
    book(ledger, "one", 20)
    left = ledger.rounds_left(Gaussian(20.0), FAR)
    raised = ledger.raise_cap(2.0, "ed25519:x", signing)
    assert (raised.epsilon, raised.signer, ledger.cap, ledger.header.epsilon) == (2.0, "ed25519:x", 2.0, 1.0)
    assert ledger.rounds_left(Gaussian(20.0), FAR) > left
    ledger.close()
    again = make(epsilon=1.0)
    assert (again.cap, again.raises()) == (2.0, (raised,))
    assert json.loads(raised.signed)[3] == 2.0


def test_a_raised_ledger_takes_what_one_made_with_that_cap_would_have(make):
    """One for mixtures keeps the order that goes with its first cap, and takes fewer."""
    for mixed in (False, True):
        raised, made = make(f"raised {mixed}", 1.0, mixed=mixed), make(f"made {mixed}", 2.0, mixed=mixed)
        for ledger in (raised, made):
            book(ledger, "one", 10)
        raised.raise_cap(2.0, "x", signing)
        fits, there = raised.rounds_left(Gaussian(20.0), FAR), made.rounds_left(Gaussian(20.0), FAR)
        assert 0.5 * there < fits < there if mixed else fits == there


@pytest.mark.parametrize("epsilon", [0.5, 1.0, inf, float("nan")])
def test_a_cap_is_never_lowered(make, epsilon):
    ledger = make(epsilon=1.0)
    book(ledger, "one", 3)
    with pytest.raises(InputError, match=r"a cap epsilon above 1\.0"):
        ledger.raise_cap(epsilon, "x", signing)
    assert ledger.cap == 1.0


def test_a_cap_below_what_was_spent_is_refused(make):
    whole, small = make("whole", 3.0), make("small", 0.5)
    book(whole, "one", 50)
    small.catch_up(whole.account(), whole.height)
    spent = small.total()
    with pytest.raises(BudgetError, match="The cap was not raised"):
        small.raise_cap(0.9 * spent, "x", signing)
    assert small.cap == 0.5
    small.raise_cap(1.1 * spent, "x", signing)
    small.reserve("two", 1, Gaussian(100.0), FAR)


def test_a_raise_that_slack_would_not_pay_for_is_refused(make):
    """A larger epsilon makes the gap of real noise weigh more: rounds on a coarse grid may then no longer fit."""
    ledger = make(epsilon=1.0)
    coarse = 1e-19
    ledger.reserve("one", 1, Gaussian(20.0), coarse)
    with pytest.raises(BudgetError, match="grid that is fine enough"):
        ledger.raise_cap(40.0, "x", signing)


def test_entries_that_cannot_be_are_refused_when_opened(make, tmp_path):
    ledger = make(epsilon=2.0)
    ledger._chain.append("", 0, "cap", {"epsilon": 1.0, "signer": "x", "signature": ""})
    ledger.close()
    with pytest.raises(PrivacyError, match=r"a cap of 1\.0 after 2\.0"):
        Ledger.open(tmp_path / "rows.ledger")


def test_an_entry_of_others_sight_that_does_not_say_the_unit_is_of_this_ledgers(make):
    """As they were first written."""
    ledger = make()
    book(ledger, "one", 4)
    runs = [{"run": mark_of("two").hex(), "rounds": 3, "weight": 0.01, "divergence": FAR, "plain": True}]
    body = {"height": 9, "first": FAR, "book": {"epsilon": 3.0, "delta": 1e-5, "order": None}, "runs": runs}
    ledger._chain.append("", 0, "caught up", body)
    ledger.close()
    again = make()
    assert again.height > 9
    assert {record.run: record.weight for record in again.account().records}[mark_of("two")] == 0.01


# -- attacks ----------------------------------------------------------------------------------------------------------


def test_what_was_priced_for_rows_counts_as_everything_where_people_are_protected(make):
    rows, people = make("rows"), make("people", unit=Unit(10, 3))
    book(rows, "one", 5)
    people.catch_up(through_bytes(rows.account()), rows.height)
    assert isinf(people.total())
    covered = make("covered")
    covered.catch_up(through_bytes(make("more", unit=Unit(10, 3)).account()), 1)
    assert covered.total() == 0


def test_rounds_after_those_that_were_caught_up_are_never_free(make):
    whole, new = make("whole"), make("new")
    book(whole, "one", 5)
    new.catch_up(through_bytes(whole.account()), whole.height)
    for ledger in (whole, new):
        book(ledger, "one", 10, first=6)
    assert new.total() == pytest.approx(whole.total(), rel=1e-9)
    assert new.total() >= whole.total() * (1 - 1e-12)
    # Nor for a third ledger, which hears of all ten from the second.
    third = make("third")
    third.catch_up(through_bytes(new.account()), new.height)
    assert third.total() == pytest.approx(whole.total(), rel=1e-9)
    assert third.total() >= whole.total() * (1 - 1e-12)
    assert new.account().lacking(through_bytes(whole.account())) == ()


def test_rounds_are_booked_one_after_the_other(make):
    ledger = make()
    with pytest.raises(PrivacyError, match=r"one after the other, got run='one', round=2 after 0"):
        ledger.reserve("one", 2, Gaussian(20.0), FAR)
    book(ledger, "one", 2)
    with pytest.raises(PrivacyError, match="round=4 after 2"):
        ledger.reserve("one", 4, Gaussian(20.0), FAR)


def test_everything_less_everything_is_not_nothing(make):
    """Both hold a first round that is no plain Gaussian; only the other goes on."""
    whole, old = make("whole", 8.0), make("old", 8.0)
    for ledger in (whole, old):
        ledger.reserve("one", 1, SAMPLED, FAR)
    book(whole, "one", 9, 15.0, first=2)
    old.catch_up(through_bytes(whole.account()), whole.height)
    assert old.total() >= whole.total()
    assert isinf(old.total())


def test_a_ledger_that_has_caught_up_has_no_fear_of_its_own_word(make):
    whole, new = make("whole", 8.0), make("new", 8.0)
    for number in range(MOST_RECORDS):
        book(whole, f"run {number}", 1)
    new.catch_up(through_bytes(whole.account()), whole.height)
    total = new.total()
    for k in range(1, 6):
        said = through_bytes(new.account())
        book(new, "mine", k, first=k)
        assert new.account().lacking(said) == ()
        assert new.account().lacking(through_bytes(whole.account())) == ()
    assert new.total() > total


def test_a_ledger_that_has_caught_up_with_a_list_knows_its_own_word(make):
    """Of its own five runs and what another has seen, more than fit: two lists, of which one was caught up. Once the
    first was unknown to the ledger that had made it: a false 13, and catching up booked it twice.
    """
    ledger, other = make("one", 8.0), make("other", 8.0)
    for i in range(5):
        book(ledger, f"old {i}", 1)
        book(other, f"old {i}", 1)
    for i in range(17):
        book(other, f"new {i}", 1)
    book(other, "old 0", 2, first=2)
    ledger.catch_up(through_bytes(other.account()), other.height)
    own = through_bytes(ledger.account())
    assert sum(record.rounds == 0 for record in own.records) == 2
    assert ledger.account().lacking(own) == ()


def test_a_cap_is_not_raised_over_what_would_then_count_as_everything(make):
    whole, new = make("whole", mixed=True), make("new", mixed=True)
    whole.reserve("one", 1, SAMPLED, FAR)
    new.catch_up(through_bytes(whole.account()), whole.height)
    assert 0 < new.total() < 3
    with pytest.raises(BudgetError, match="The cap was not raised"):
        new.raise_cap(5.0, "signer", lambda text: text[:8])
    assert 0 < new.total() < 3
