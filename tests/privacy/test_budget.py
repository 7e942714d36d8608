"""The accountant for people: what it adds up, what it refuses, what it survives."""

import copy
import json
import os
import pickle
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from math import inf, sqrt

import pytest
from dp_accounting.pld import PLDAccountant
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.base import BaseEstimator, clone

from sottovoce.errors import BudgetError, InputError, PrivacyError, UnsupportedError
from sottovoce.privacy import (
    Budget,
    BudgetAccountant,
    Gaussian,
    GaussianObjective,
    Laplace,
    NegativeBinomialRuns,
    NonPrivate,
    RepeatAndSelect,
    Repeated,
    SampledGaussian,
    Sampling,
    Sequence,
    epsilon,
    epsilon_of_mu,
    mu_for,
    sigma_for,
)
from sottovoce.settings import disk, plain

DELTA = 1e-5
FIT = Repeated(Gaussian(sigma_for(0.5, DELTA, 20)), 20)  # epsilon 0.5 on its own


def test_a_new_budget_is_whole():
    accountant = BudgetAccountant(1.0, DELTA)
    assert (accountant.epsilon, accountant.delta, len(accountant), accountant.events) == (1.0, DELTA, 0, ())
    assert accountant.total() == Budget(0.0, DELTA)
    assert accountant.remaining().epsilon == pytest.approx(1.0, rel=1e-8)
    assert bool(accountant)
    assert repr(accountant) == "BudgetAccountant(epsilon=1.0, delta=1e-05, events=0)"


@settings(max_examples=20)
@given(st.lists(st.tuples(st.floats(2.0, 60), st.integers(1, 40)), min_size=1, max_size=6))
def test_fits_compose_exactly_and_not_by_adding_up(fits):
    accountant = BudgetAccountant(inf, DELTA)
    for sigma, times in fits:
        accountant.spend(Repeated(Gaussian(sigma), times))
    mu = sqrt(sum(times / sigma**2 for sigma, times in fits))
    assert accountant.total().epsilon == pytest.approx(epsilon_of_mu(mu, DELTA), rel=1e-12)
    assert accountant.get_epsilon(1e-3) == pytest.approx(epsilon_of_mu(mu, 1e-3), rel=1e-12)
    added = sum(epsilon(event, DELTA) for event in accountant.events)
    assert accountant.total().epsilon <= added * (1 + 1e-12)
    assert len(accountant) == len(fits)


def test_the_total_is_googles():
    accountant, google = BudgetAccountant(3.0, DELTA), PLDAccountant(value_discretization_interval=5e-5)
    for sigma, times in ((20.0, 10), (12.0, 3), (9.0, 1), (20.0, 10)):
        event = Repeated(Gaussian(sigma), times)
        accountant.spend(event)
        google.compose(event.dp_event())
    assert accountant.total().epsilon == pytest.approx(google.get_epsilon(DELTA), abs=1e-4)
    assert accountant.get_epsilon(1e-7) == pytest.approx(google.get_epsilon(1e-7), abs=1e-4)


def test_what_does_not_fit_is_refused_and_not_charged():
    accountant = BudgetAccountant(1.0, DELTA)
    for _ in range(3):
        accountant.spend(FIT)
    with pytest.raises(BudgetError) as refused:
        accountant.spend(FIT)
    message = str(refused.value)
    assert message.startswith(
        "Expected to stay within the cap epsilon=1.0 at delta=1e-05, got asked=0.5: all charges with it"
    )
    assert "would cost epsilon=1.0" in message
    assert "without it 0.911" in message
    assert "in 3 charges, which leaves 0.362" in message
    assert "Ask for a smaller epsilon or fewer rounds" in message
    assert accountant.events == (FIT,) * 3
    accountant.check(Gaussian(60.0))
    assert len(accountant) == 3


def test_a_fit_calibrated_to_the_whole_budget_fits_once():
    accountant = BudgetAccountant(1.0, DELTA)
    accountant.spend(Repeated(Gaussian(sigma_for(1.0, DELTA, 300)), 300))
    assert accountant.remaining().epsilon == pytest.approx(0, abs=1e-4)
    with pytest.raises(BudgetError):
        accountant.check(Gaussian(100.0))


@settings(max_examples=25)
@given(
    st.floats(0.01, 8),
    st.sampled_from([1e-9, 1e-5, 1e-3]),
    st.lists(st.floats(0.05, 0.9), max_size=3),
    st.integers(1, 50),
)
def test_what_remains_can_be_spent_to_the_last(limit, delta, shares, steps):
    accountant = BudgetAccountant(limit, delta)
    for share in shares:
        accountant.spend(Gaussian(sigma_for(share * accountant.remaining().epsilon, delta, 1)))
    spent = sqrt(sum(1 / event.sigma**2 for event in accountant.events))
    left = accountant.remaining()
    exact = epsilon_of_mu(sqrt(mu_for(limit, delta) ** 2 - spent**2), delta)
    assert left.delta == delta
    assert left.epsilon == pytest.approx(exact, rel=1e-6)
    with pytest.raises(BudgetError):
        accountant.check(Gaussian(sigma_for(left.epsilon * 1.001, delta, 1)))
    accountant.spend(Repeated(Gaussian(sigma_for(left.epsilon, delta, steps)), steps))
    assert limit * (1 - 1e-6) <= accountant.total().epsilon <= limit


@pytest.mark.parametrize(
    "past",
    [
        Repeated(SampledGaussian(2.0, Sampling("poisson", 500, 20)), 20),
        Sequence((Gaussian(8.0), Repeated(Laplace(20.0), 2))),
        RepeatAndSelect(Gaussian(15.0), NegativeBinomialRuns(0.0, 0.1)),
    ],
    ids=["sampled", "laplace", "search"],
)
def test_what_remains_after_other_events(past):
    accountant = BudgetAccountant(2.0, DELTA, [past])
    left = accountant.remaining().epsilon
    assert 0.1 < left < 2.0
    accountant.check(Gaussian(sigma_for(left, DELTA, 1)))
    with pytest.raises(BudgetError):
        accountant.check(Gaussian(sigma_for(1.01 * left, DELTA, 1)))


def test_how_often_an_event_still_fits():
    accountant = BudgetAccountant(1.0, DELTA)
    times = accountant.remaining_times(FIT)
    assert times == int((mu_for(1.0, DELTA) / mu_for(0.5, DELTA)) ** 2) == 3
    small = Gaussian(500.0)
    times = accountant.remaining_times(small)
    accountant.check(Repeated(small, times))
    with pytest.raises(BudgetError):
        accountant.check(Repeated(small, times + 1))
    accountant.spend(FIT)
    assert accountant.remaining_times(FIT) == 2
    assert accountant.remaining_times(Gaussian(0.5)) == 0
    assert accountant.remaining_times(NonPrivate()) == 0
    assert accountant.remaining_times(Repeated(FIT, 0)) == inf
    assert BudgetAccountant(inf, DELTA).remaining_times(FIT) == inf
    search = RepeatAndSelect(FIT, NegativeBinomialRuns(0.0, 0.3))
    assert BudgetAccountant(2.0, DELTA).remaining_times(search) < BudgetAccountant(2.0, DELTA).remaining_times(FIT)


def test_no_noise_needs_infinite_books():
    accountant = BudgetAccountant(100.0, DELTA)
    with pytest.raises(BudgetError, match="asked=inf"):
        accountant.spend(NonPrivate())
    with pytest.raises(BudgetError, match="asked=inf"):
        accountant.check(RepeatAndSelect(NonPrivate(), NegativeBinomialRuns(1.0, 0.5)))
    books = BudgetAccountant(inf, DELTA)
    books.spend(FIT)
    assert books.total().epsilon == pytest.approx(0.5)
    assert books.remaining() == Budget(inf, DELTA)
    books.spend(NonPrivate())
    assert books.total().epsilon == inf


def test_after_the_first_charge_only_gaussians_unless_it_is_made_for_mixtures():
    sampled, other = SampledGaussian(2.0, Sampling("poisson", 500, 20)), GaussianObjective(9.0, 0.01)
    accountant = BudgetAccountant(5.0, DELTA, [sampled, FIT])
    assert not accountant.mixed
    assert accountant.total().epsilon == epsilon(Sequence((sampled, FIT)), DELTA)
    for event in (other, sampled, Laplace(1e6)):
        with pytest.raises(
            BudgetError, match=r"plain Gaussian noise after the first charge.*got asked=.*with event=.*mixed=True"
        ):
            accountant.spend(event)
        assert accountant.remaining_times(event) == 0
    assert accountant.events == (sampled, FIT)
    mixed = BudgetAccountant(5.0, DELTA, [sampled, other, FIT, sampled, Laplace(1e6)], mixed=True)
    assert mixed.mixed
    assert 0 < mixed.total().epsilon < 5.0
    # A plan is one charge.
    BudgetAccountant(5.0, DELTA, [Sequence((sampled, FIT, sampled)), FIT])


def test_mixtures_that_nobody_can_price():
    sampled, other = SampledGaussian(2.0, Sampling("poisson", 500, 20)), GaussianObjective(9.0, 0.01)
    with pytest.raises(UnsupportedError, match="No accountant for sampled"):
        BudgetAccountant(5.0, DELTA).spend(Sequence((sampled, other)))
    assert len(BudgetAccountant(inf, DELTA, [sampled, other])) == 2


@pytest.mark.parametrize("cap", [0.3, 1.0, 5.0])
def test_in_a_mixed_budget_what_is_said_is_what_is_refused(cap):
    accountant = BudgetAccountant(cap, DELTA, mixed=True)
    assert accountant.total().epsilon == 0
    charges = [Gaussian(sigma_for(0.3 * cap, DELTA, 1)), Laplace(20 / cap), Laplace(20 / cap)]
    for event in charges:
        before = accountant.total().epsilon
        accountant.spend(event)
        assert before < accountant.total().epsilon <= cap
    assert epsilon(Sequence(tuple(charges)), DELTA) < accountant.total().epsilon
    left = accountant.remaining().epsilon
    accountant.check(Gaussian(sigma_for(left, DELTA, 1)))
    with pytest.raises(BudgetError, match=rf"the cap epsilon={cap} .*leaves {left:.3g}.* for one more"):
        accountant.spend(Gaussian(sigma_for(1.01 * left, DELTA, 1)))
    accountant.spend(Repeated(Gaussian(sigma_for(left, DELTA, 7)), 7))
    assert cap * (1 - 1e-3) < accountant.total().epsilon <= cap
    # The budget that is named as the least takes all, and one that is a little smaller does not.
    least = accountant.total().epsilon
    BudgetAccountant(least, DELTA, accountant.events, mixed=True)
    with pytest.raises(BudgetError):
        BudgetAccountant(least * 0.98, DELTA, accountant.events, mixed=True)


def test_past_events_must_fit_too():
    assert len(BudgetAccountant(1.0, DELTA, (FIT, FIT))) == 2
    with pytest.raises(BudgetError, match=r"would cost epsilon=1\.0"):
        BudgetAccountant(1.0, DELTA, [FIT] * 4)


@pytest.mark.parametrize("limit", [0.0, -1.0, float("nan")])
def test_a_bad_epsilon_is_refused(limit):
    with pytest.raises(InputError, match="epsilon > 0"):
        BudgetAccountant(limit, DELTA)


@pytest.mark.parametrize("delta", [0.0, 1.0, -1e-5, float("nan")])
def test_a_bad_delta_is_refused(delta):
    with pytest.raises(InputError, match="delta strictly between"):
        BudgetAccountant(1.0, delta)


def test_only_events_are_charged():
    with pytest.raises(InputError, match=r"an Event, got event=0\.5"):
        BudgetAccountant(1.0, DELTA).spend(0.5)
    with pytest.raises(InputError, match="an Event"):
        BudgetAccountant(inf, DELTA).spend("fit")


def test_a_reservation_is_never_given_back():
    accountant = BudgetAccountant(1.0, DELTA)
    with accountant.reserve(FIT):
        assert accountant.events == (FIT,)
    with pytest.raises(ZeroDivisionError), accountant.reserve(FIT):
        1 / 0  # noqa: B018
    assert accountant.events == (FIT, FIT)
    entered = []
    with pytest.raises(BudgetError), accountant.reserve(Gaussian(1.0)):
        entered.append(1)
    assert not entered


def test_threads_cannot_overspend_together():
    accountant = BudgetAccountant(1.0, DELTA)
    fits = BudgetAccountant(1.0, DELTA).remaining_times(Gaussian(40.0))

    def attempt(_):
        try:
            accountant.spend(Gaussian(40.0))
        except BudgetError:
            return 0
        return 1

    with ThreadPoolExecutor(8) as pool:
        accepted = sum(pool.map(attempt, range(2 * fits)))
    assert accepted == len(accountant) == fits
    assert accountant.total().epsilon <= 1.0


# -- the default -------------------------------------------------------------------------------------------------------


def test_the_innermost_block_counts():
    outer, inner = BudgetAccountant(1.0, DELTA), BudgetAccountant(2.0, DELTA)
    assert BudgetAccountant.current() is None
    with outer as entered:
        assert entered is BudgetAccountant.current() is outer
        with inner, outer:
            assert BudgetAccountant.current() is outer
        with inner:
            assert BudgetAccountant.current() is inner
        assert BudgetAccountant.current() is outer
    assert BudgetAccountant.current() is None
    with pytest.raises(ZeroDivisionError), outer:
        1 / 0  # noqa: B018
    assert BudgetAccountant.current() is None


def test_a_thread_without_its_own_accountant_is_refused_while_one_is_open():
    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(BudgetAccountant.current).result() is None
        refused = pytest.raises(PrivacyError, match=r"open in another thread.*accountant=\.\.\.")
        with BudgetAccountant(1.0, DELTA), refused:
            pool.submit(BudgetAccountant.current).result()
        assert pool.submit(BudgetAccountant.current).result() is None


class Estimator(BaseEstimator):
    def __init__(self, accountant=None):
        self.accountant = accountant


def test_a_copy_is_the_same_accountant():
    """Or a grid search, which clones, would have one budget for each candidate."""
    accountant = BudgetAccountant(1.0, DELTA)
    assert copy.copy(accountant) is accountant
    assert copy.deepcopy([accountant])[0] is accountant
    assert clone(Estimator(accountant)).accountant is accountant


def test_other_processes_are_refused():
    accountant = BudgetAccountant(1.0, DELTA)
    with pytest.raises(PrivacyError, match="got pickled"):
        pickle.dumps(accountant)


def test_spending_after_a_fork_is_refused(monkeypatch):
    accountant, here = BudgetAccountant(1.0, DELTA), os.getpid()
    monkeypatch.setattr(os, "getpid", lambda: here + 1)
    with pytest.raises(PrivacyError, match=f"spend in process={here}"):
        accountant.spend(FIT)
    assert len(accountant) == 0


# -- files -------------------------------------------------------------------------------------------------------------

EVENTS = [
    FIT,
    Sequence((Gaussian(30.0), Laplace(50.0))),
    RepeatAndSelect(Gaussian(30.0), NegativeBinomialRuns(0.0, 0.2)),
]


def test_there_and_back(tmp_path):
    path = tmp_path / "rows.budget"
    accountant = BudgetAccountant(2.0, DELTA, EVENTS, mixed=True)
    accountant.save(path)
    read = BudgetAccountant.load(str(path))
    assert (read.epsilon, read.delta, read.events) == (2.0, DELTA, accountant.events)
    assert read.total() == accountant.total()
    assert read.mixed
    assert read.remaining() == accountant.remaining()
    assert sorted(file.name for file in tmp_path.iterdir()) == ["rows.budget", "rows.budget.lock"]
    data = json.loads(path.read_text())
    assert data["unit"] == "one row of one site replaced by any other row"
    assert data["spent"] == accountant.total().epsilon


def test_empty_and_infinite_books_are_kept_too(tmp_path):
    BudgetAccountant(1.0, DELTA).save(tmp_path / "new")
    assert BudgetAccountant.load(tmp_path / "new").events == ()
    mixture = [SampledGaussian(2.0, Sampling("poisson", 500, 20)), GaussianObjective(9.0, 0.01)]
    for name, events in {"finite": EVENTS, "open": [NonPrivate()], "unpriced": mixture}.items():
        BudgetAccountant(inf, DELTA, events).save(tmp_path / name)
        read = BudgetAccountant.load(tmp_path / name)
        assert read.epsilon == inf
        assert read.events == tuple(events)


def test_a_later_state_replaces_an_earlier_one_and_no_other(tmp_path):
    path = tmp_path / "rows.budget"
    mine = BudgetAccountant(2.0, DELTA, [FIT])
    mine.save(path)
    mine.spend(Gaussian(30.0))
    mine.save(path)
    mine.save(path)
    with pytest.raises(PrivacyError, match=r"hold an earlier state.*events=2.*Load that file"):
        BudgetAccountant(2.0, DELTA, [FIT, Gaussian(31.0)]).save(path)
    with pytest.raises(PrivacyError, match="hold an earlier state"):
        BudgetAccountant(3.0, DELTA, mine.events).save(path)
    assert BudgetAccountant.load(path).events == mine.events
    BudgetAccountant.load(path).spend(Gaussian(32.0))
    with pytest.raises(PrivacyError, match=r"hold an earlier state.*events=3.*Load that file"):
        mine.save(path)


def test_what_is_charged_to_a_loaded_accountant_is_in_its_file_before_the_work_begins(tmp_path):
    path, link = tmp_path / "rows.budget", tmp_path / "link"
    BudgetAccountant(1.0, DELTA).save(path)
    link.symlink_to(path)
    mine, theirs = BudgetAccountant.load(path), BudgetAccountant.load(link)
    with mine.reserve(FIT):
        assert BudgetAccountant.load(path).events == (FIT,)
    theirs.spend(FIT)
    theirs.save(link)  # it is there already, and a link stays one
    mine.save(path)
    assert link.is_symlink()
    assert mine.events == theirs.events == BudgetAccountant.load(path).events == (FIT, FIT)
    mine.spend(FIT)
    with pytest.raises(BudgetError, match="in 3 charges"):
        theirs.spend(FIT)
    assert BudgetAccountant.load(path).events == (FIT,) * 3


def test_a_file_that_was_set_back_takes_no_charge(tmp_path):
    path = tmp_path / "rows.budget"
    BudgetAccountant(1.0, DELTA, [FIT]).save(path)
    old, accountant = path.read_bytes(), BudgetAccountant.load(path)
    accountant.spend(FIT)
    path.write_bytes(old)
    with pytest.raises(PrivacyError, match=r"to hold all that was charged.*events=1.*the 2 events.*newest file"):
        accountant.spend(FIT)
    assert path.read_bytes() == old
    path.unlink()
    with pytest.raises(InputError, match="to read path="):
        accountant.spend(FIT)
    assert not path.exists()
    assert len(accountant) == 2


def test_whoever_waits_too_long_for_a_turn_charges_nothing(tmp_path, monkeypatch):
    path = tmp_path / "rows.budget"
    BudgetAccountant(1.0, DELTA).save(path)
    accountant = BudgetAccountant.load(path)
    monkeypatch.setattr("sottovoce.settings.disk.time.monotonic", iter(range(0, 10**6, 61)).__next__)
    with (
        disk.taking_turns(path),
        pytest.raises(InputError, match=r"to write path=.*another process is changing it for 60 s"),
    ):
        accountant.spend(FIT)
    accountant.spend(FIT)
    assert accountant.events == BudgetAccountant.load(path).events == (FIT,)


_SPENDER = """
import sys
from pathlib import Path
from sottovoce.errors import BudgetError
from sottovoce.privacy import BudgetAccountant, Gaussian

folder, me, other, trials, of_each = Path(sys.argv[1]), *sys.argv[2:4], int(sys.argv[4]), int(sys.argv[5])
for trial in range(trials):
    accountant = BudgetAccountant.load(folder / str(trial))
    (folder / f"{trial}.{me}").touch()
    while not (folder / f"{trial}.{other}").exists():  # both have loaded: now
        pass
    accepted = 0
    for _ in range(of_each):
        try:
            accountant.spend(Gaussian(40.0))
            accepted += 1
        except BudgetError:
            pass
    print(accepted)
"""


def test_two_processes_at_once_lose_no_charge_and_cannot_overspend_together(tmp_path):
    """Each takes what it can get of one file, from the same moment on, in 30 files one after the other."""
    trials, of_each = 30, 4
    cap = epsilon(Repeated(Gaussian(40.0), of_each + 1), DELTA) * 1.001  # for one more than what each asks for
    for trial in range(trials):
        BudgetAccountant(cap, DELTA).save(tmp_path / str(trial))
    begun = [
        subprocess.Popen(
            [sys.executable, "-c", _SPENDER, str(tmp_path), *names, str(trials), str(of_each)],
            stdout=subprocess.PIPE,
            text=True,
        )
        for names in ("ab", "ba")
    ]
    try:
        said = [process.communicate(timeout=60)[0].split() for process in begun]
    finally:
        for process in begun:
            process.kill()  # if one has failed, the other waits for it
    assert [process.returncode for process in begun] == [0, 0]
    accepted = [int(one) + int(other) for one, other in zip(*said, strict=True)]
    booked = [len(BudgetAccountant.load(tmp_path / str(trial))) for trial in range(trials)]
    assert accepted == booked == [of_each + 1] * trials


def test_a_failed_write_leaves_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "rows.budget"
    accountant = BudgetAccountant(2.0, DELTA, [FIT])
    accountant.save(path)
    before = path.read_bytes()
    accountant.spend(FIT)

    def full(_):
        raise OSError("No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(InputError, match=r"to write path=.*No space left"):
        accountant.save(path)
    loaded = BudgetAccountant.load(path)
    with pytest.raises(InputError, match=r"to write path=.*No space left"):
        loaded.spend(FIT)
    assert loaded.events == (FIT,)
    assert path.read_bytes() == before
    assert sorted(file.name for file in tmp_path.iterdir()) == ["rows.budget", "rows.budget.lock"]
    with pytest.raises(InputError, match="to write path="):
        accountant.save(tmp_path / "nowhere" / "rows.budget")


def saved(tmp_path, change):
    path = tmp_path / "rows.budget"
    BudgetAccountant(2.0, DELTA, EVENTS, mixed=True).save(path)
    data = json.loads(path.read_text())
    change(data)
    path.write_text(json.dumps(data))
    return path


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda d: d["events"].pop(), r"a total of spent=0\.\d+, .* Was the file changed\?, got spent="),
        (lambda d: d["events"].append(plain(FIT)), "a total of spent="),
        (lambda d: d["events"][0].update(times=19), "a total of spent="),
        (lambda d: d.update(spent=None), "a total of spent=.* got spent=None"),
        (lambda d: d.update(spent="1"), "a number for spent"),
        (lambda d: d.update(epsilon=0.5), r"events within the file's epsilon=0\.5"),
        (lambda d: d.update(epsilon=-1), "epsilon > 0"),
        (lambda d: d.update(epsilon=True), "a number for epsilon"),
        (lambda d: d.update(delta=0), "delta strictly between"),
        (lambda d: d.update(events={}), "a list for events"),
        (lambda d: d["events"].append({"kind": "Free"}), "kind among"),
        (lambda d: d.update(version=3), "version 1 or 2"),
        (lambda d: d.update(unit="one site"), "the unit"),
        (lambda d: d.update(order=-1.0), "an order that is positive"),
        (lambda d: d.update(order=None), r"plain Gaussian charges after the first in path=.*keep the file as a record"),
        (lambda d: d.update(format="ledger"), "a file of format 'sottovoce budget'"),
        (lambda d: d.pop("spent"), "with just the fields"),
        (lambda d: d.update(slack=1), "with just the fields"),
    ],
)
def test_a_changed_file_is_refused(tmp_path, change, message):
    with pytest.raises(InputError, match=message):
        BudgetAccountant.load(saved(tmp_path, change))


def test_files_of_the_first_version_are_read(tmp_path):
    def as_first(data):
        data.update(version=1)
        del data["order"]

    path = tmp_path / "rows.budget"
    BudgetAccountant(2.0, DELTA, [FIT, FIT]).save(path)
    data = json.loads(path.read_text())
    as_first(data)
    path.write_text(json.dumps(data))
    read = BudgetAccountant.load(path)
    assert (read.events, read.mixed) == ((FIT, FIT), False)
    read.spend(FIT)
    read.save(path)
    assert json.loads(path.read_text())["version"] == 2
    path.unlink()
    with pytest.raises(InputError, match=r"got others, whose total no proof covers.*charge nothing more"):
        BudgetAccountant.load(saved(tmp_path, as_first))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "a budget file in JSON"),
        ("[1", "a budget file in JSON"),
        ("[]", "a file of format"),
        ("[" * 100_000, "a budget file in JSON"),
        ('{"delta": NaN}', "NaN, which is no JSON number"),
        ('{"delta": 1, "delta": 2}', "the same key twice"),
        (f'{{"delta": {"9" * 5000}}}', "a budget file in JSON"),
        ("\udcff", "a budget file in JSON"),
    ],
)
def test_what_is_no_budget_file_is_refused(tmp_path, text, message):
    path = tmp_path / "rows.budget"
    path.write_bytes(text.encode(errors="surrogateescape"))
    with pytest.raises(InputError, match=message):
        BudgetAccountant.load(path)


def test_missing_and_huge_files_are_refused(tmp_path, monkeypatch):
    with pytest.raises(InputError, match="to read path="):
        BudgetAccountant.load(tmp_path / "none")
    monkeypatch.setattr("sottovoce.privacy.books.json_file.LARGEST_FILE", 100)
    path = saved(tmp_path, dict.copy)
    with pytest.raises(InputError, match="at most 100 bytes"):
        BudgetAccountant.load(path)
