"""The cap: exact composition, refused before anything is written, never passed."""

import hashlib
import json
import sqlite3
from math import exp, inf, sqrt

import pytest
from dp_accounting.pld import PLDAccountant
from hypothesis import given, settings
from hypothesis import strategies as st

from sottovoce.errors import BudgetError, InputError, PrivacyError, UnsupportedError
from sottovoce.noise.secure import SecureNoise
from sottovoce.privacy import (
    Gaussian,
    Laplace,
    NonPrivate,
    Repeated,
    SampledGaussian,
    Sampling,
    Sequence,
    epsilon,
    epsilon_of_mu,
    sigma_for,
)
from sottovoce.privacy.books import chain as chain
from sottovoce.privacy.books.book import Cost
from sottovoce.privacy.books.filter import Filter
from sottovoce.privacy.books.ledger import Ledger
from sottovoce.settings import plain


@pytest.fixture
def ledger(tmp_path):
    with Ledger.create(tmp_path / "rows.ledger", "digest", 1.0, 1e-5) as ledger:
        yield ledger


def test_a_new_ledger_has_spent_nothing(ledger):
    assert (ledger.total(), ledger.slack(), ledger.head.entries, ledger.reservations()) == (0.0, 0.0, 0, ())


def test_rounds_that_cost_differently_are_checked_as_one_run(ledger):
    """A first round that costs little, and others that share the rest, as masked sums have them."""
    mu = 1 / sigma_for(1.0, 1e-5, 1)
    costs = [Cost(Gaussian(1 / (mu * sqrt(part)))) for part in (0.03, *(0.97 / 4,) * 4)]
    assert ledger.check_rounds("run", costs) == pytest.approx(1.0, abs=1e-9)
    with pytest.raises(BudgetError, match=r"run='long' of 6 rounds.*Nothing was reserved"):
        ledger.check_rounds("long", [*costs, costs[0]])
    for k, cost in enumerate(costs[:3], 1):
        ledger.reserve("run", k, *cost)
    assert ledger.check_rounds("run", costs) == pytest.approx(1.0, abs=1e-9)  # what was reserved is counted once
    with pytest.raises(PrivacyError, match=r"Expected the cost that run='run', round=1 was reserved with"):
        ledger.check_rounds("run", costs[::-1])
    for k, cost in enumerate(costs[3:], 4):
        ledger.reserve("run", k, *cost)
    assert ledger.total() == pytest.approx(1.0, abs=1e-9)


def test_total_against_an_independent_accountant(tmp_path):
    events = [Repeated(Gaussian(20.0), 10), Gaussian(7.0), Sequence((Gaussian(15.0), Gaussian(30.0)))]
    theirs = PLDAccountant(value_discretization_interval=1e-4)
    with Ledger.create(tmp_path / "rows.ledger", "digest", 5.0, 1e-5) as ledger:
        for name, event in enumerate(events):
            theirs.compose(event.dp_event(), 5)
            for k in range(1, 6):
                ledger.reserve(f"run {name}", k, event)
        assert ledger.total() == pytest.approx(theirs.get_epsilon(1e-5), abs=1e-4)


def test_a_run_that_is_calibrated_to_the_cap_fits_exactly_and_not_one_round_more(ledger):
    event = Repeated(Gaussian(sigma_for(1.0, 1e-5, 50)), 10)
    assert ledger.rounds_left(event) == 5
    assert ledger.check_run("run", event, 5) == pytest.approx(1.0, abs=1e-9)
    for k in range(1, 6):
        ledger.reserve("run", k, event)
    assert ledger.rounds_left(event) == 0
    assert ledger.total() == pytest.approx(1.0, abs=1e-9)
    assert ledger.total() <= 1.0
    with pytest.raises(BudgetError, match=r"cap epsilon=1\.0 at delta=1e-05, got run='run', round=6"):
        ledger.reserve("run", 6, event)
    assert ledger.head.entries == 5


def test_a_whole_run_is_refused_before_its_first_round(ledger):
    event = Gaussian(sigma_for(1.0, 1e-5, 10))
    with pytest.raises(BudgetError, match=r"run='long' of 11 rounds.*Nothing was reserved"):
        ledger.check_run("long", event, 11)
    assert ledger.head.entries == 0
    ledger.check_run("fits", event, 10)
    for k in range(1, 8):
        ledger.reserve("fits", k, event)
    # After a crash: the seven rounds are counted once.
    assert ledger.check_run("fits", event, 10) <= 1.0
    with pytest.raises(BudgetError):
        ledger.check_run("another", event, 4)
    assert ledger.check_run("another", event, 3) <= 1.0


SAMPLED = SampledGaussian(20.0, Sampling("poisson", 100, 10))


def test_costs_without_noise_or_without_accountant_are_refused(ledger):
    with pytest.raises(BudgetError, match="epsilon=inf"):
        ledger.reserve("run", 1, NonPrivate())
    with pytest.raises(UnsupportedError, match="No accountant"):
        ledger.reserve("run", 1, Sequence((SAMPLED, Laplace(100.0))))
    assert ledger.head.entries == 0


def test_after_the_first_round_only_gaussians(ledger):
    ledger.reserve("run", 1, SAMPLED)
    ledger.reserve("run", 2, Gaussian(50.0))
    assert ledger.total() == epsilon(Sequence((SAMPLED, Gaussian(50.0))), 1e-5)
    for other in (Laplace(100.0), SAMPLED):
        with pytest.raises(BudgetError, match=r"plain Gaussian noise after.*round=3, with event=.*--cap-mixed"):
            ledger.reserve("run", 3, other)
        assert ledger.rounds_left(other) == 0
        assert ledger.would_cost(other) == inf
    with pytest.raises(BudgetError, match="run='other' of 2 rounds, with event='a Gaussian release over a Poisson"):
        ledger.check_run("other", SAMPLED, 2)
    assert ledger.head.entries == 2


def test_a_ledger_for_mixtures_takes_any_kind_and_remembers_it(tmp_path):
    path = tmp_path / "rows.ledger"
    with Ledger.create(path, "digest", 1.0, 1e-5, mixed=True) as ledger:
        assert ledger.header.order == 21.0
        ledger.check_run("run", SAMPLED, 2)
        for k, event in enumerate((SAMPLED, Gaussian(20.0), SAMPLED, Laplace(100.0)), 1):
            ledger.reserve("run", k, event)
        total = ledger.total()
        left = ledger.rounds_left(Laplace(100.0))
    with Ledger.open(path) as ledger:
        assert ledger.header.order == 21.0
        assert epsilon(Sequence((Gaussian(20.0), Laplace(100.0))), 1e-5) < ledger.total() == total < 1.0
        assert ledger.rounds_left(Laplace(100.0)) == left > 0
        ledger.check_run("more", Laplace(100.0), left)
        with pytest.raises(BudgetError, match=r"would cost epsilon=1\.\d+, without it 0\.\d+"):
            ledger.check_run("more", Laplace(100.0), left + 1)


def test_ledgers_of_the_first_format_go_on(tmp_path):
    """As version 1 wrote them: a header without an order."""
    path = tmp_path / "rows.ledger"
    connection = sqlite3.connect(path, isolation_level=None)
    for statement in chain._SCHEMAS[1]:
        connection.execute(statement)
    unit = "one row of one site replaced by any other row"
    header = (1, "digest", unit, 1.0, 1e-5, "2025-01-01T00:00:00+00:00")
    connection.execute("INSERT INTO header VALUES (?, ?, ?, ?, ?, ?)", header)
    last = hashlib.sha256(json.dumps(header, separators=(",", ":")).encode()).hexdigest()
    for k in (1, 2):
        body = '{"event":{"kind":"Gaussian","sigma":20.0},"divergence":1e-30}'
        fields = k, "run", k, "reserve", body, "2025-01-01T00:00:00+00:00", last
        last = hashlib.sha256(json.dumps(fields, separators=(",", ":")).encode()).hexdigest()
        connection.execute("INSERT INTO entries VALUES (?, ?, ?, ?, ?, ?, ?, ?)", (*fields, last))
    connection.close()
    (tmp_path / "rows.ledger.head").write_text(json.dumps({"entries": 2, "hash": last}))
    with Ledger.open(path, "digest") as ledger:
        assert (ledger.header.format, ledger.header.order, ledger.head.hash) == (1, None, last)
        assert ledger.total() == pytest.approx(epsilon(Repeated(Gaussian(20.0), 2), 1e-5), abs=1e-6)
        ledger.reserve("run", 3, Gaussian(20.0), 1e-30)
    with Ledger.open(path) as ledger:
        assert ledger.head.entries == 3


def test_reserving_again_returns_what_was_reserved(ledger):
    first = ledger.reserve("run", 1, Gaussian(10.0), 1e-30)
    assert ledger.reserve("run", 1, Gaussian(10.0), 1e-30) == first
    assert (first.run, first.round, first.entry, first.message) == ("run", 1, 1, None)
    for cost in ((Gaussian(9.0), 1e-30), (Gaussian(10.0), 0.0), (Gaussian(11.0), 1e-30)):
        with pytest.raises(PrivacyError, match="needs another name"):
            ledger.reserve("run", 1, *cost)
        with pytest.raises(PrivacyError, match="needs another name"):
            ledger.check_run("run", cost[0], 3, cost[1])
    assert ledger.head.entries == 1


def test_a_round_is_released_with_one_message_for_ever(ledger):
    with pytest.raises(PrivacyError, match="Expected a reserved round"):
        ledger.bind_message("run", 1, "ab")
    ledger.reserve("run", 1, Gaussian(10.0))
    assert ledger.bind_message("run", 1, "ab").message == "ab"
    assert ledger.bind_message("run", 1, "ab").message == "ab"
    assert ledger.reserve("run", 1, Gaussian(10.0)).message == "ab"
    with pytest.raises(PrivacyError, match=r"was released with, ab, got message_digest='cd'"):
        ledger.bind_message("run", 1, "cd")
    ledger.close()
    with Ledger.open(ledger._chain.path) as again:
        assert again.reserve("run", 1, Gaussian(10.0)).message == "ab"
        assert again.head.entries == 2


def test_the_gap_of_real_noise_is_paid_from_a_part_of_delta_that_the_first_round_fixes(ledger):
    event, divergence = Gaussian(5.0), 1e-30
    ledger.reserve("run", 1, event, divergence)
    slack = (1 + exp(1.0)) * sqrt(1e10 * divergence / 2)
    assert 1e-10 < slack < 1e-8
    assert ledger.slack() == pytest.approx(slack, rel=1e-9)
    assert ledger.total() == pytest.approx(epsilon(event, 1e-5 - slack), abs=1e-12)
    assert ledger.total() > epsilon(event, 1e-5)
    ledger.reserve("run", 2, Gaussian(1e3), 0.999e10 * divergence)
    assert ledger.slack() == pytest.approx(slack, rel=1e-9)
    with pytest.raises(
        BudgetError, match=r"a grid that is fine enough.*at most 1e-20 in all, got 1\.\d+e-20.*grid_bits"
    ):
        ledger.reserve("run", 3, Gaussian(1e3), 0.01e10 * divergence)
    assert ledger.rounds_left(Gaussian(1e5), divergence) == pytest.approx(1e7 - 1, abs=10)


def test_the_gap_takes_at_most_a_thousandth_of_delta(ledger):
    most = 2 * (1e-8 / (1 + exp(1.0))) ** 2
    assert ledger.would_cost(Gaussian(1e3), 1, 1.001 * most) == inf
    with pytest.raises(BudgetError, match="a grid that is fine enough"):
        ledger.reserve("run", 1, Gaussian(1e3), 1.001 * most)
    ledger.reserve("run", 1, Gaussian(1e3), 0.999 * most)
    assert ledger.slack() == pytest.approx(1e-8, rel=1e-9)


def test_the_default_secure_noise_does_not_show(ledger):
    event = Repeated(Gaussian(200.0), 10)
    divergence = SecureNoise(bytes(32), 100, 1000).divergence(10)
    ledger.check_run("run", event, 100, divergence)
    ledger.reserve("run", 1, event, divergence)
    assert 0 < ledger.slack() < 1e-7 * 1e-5
    assert ledger.would_cost(event, 99, divergence) == pytest.approx(epsilon(Repeated(event, 100), 1e-5), abs=1e-8)


@pytest.mark.parametrize("cap", [20.0, 30.0, 40.0])
def test_large_caps_take_runs_with_real_noise(tmp_path, cap):
    """The e^cap of a plain change of laws would swamp delta from about 30 on."""
    event = Repeated(Gaussian(sigma_for(cap / 2, 1e-5, 200)), 10)
    divergence = SecureNoise(bytes(32), 20, 1000).divergence(10)
    with Ledger.create(tmp_path / "rows.ledger", "digest", cap, 1e-5) as ledger:
        assert cap / 2 < ledger.check_run("run", event, 20, divergence) < cap / 2 + 0.01
        ledger.reserve("run", 1, event, divergence)


def test_caps_that_no_grid_is_fine_enough_for_say_so(tmp_path):
    divergence = SecureNoise(bytes(32), 20, 1000).divergence(10)
    with Ledger.create(tmp_path / "rows.ledger", "digest", 80.0, 1e-5) as ledger:
        with pytest.raises(BudgetError, match=r"cap epsilon=80\.0 .* more grid_bits, or.*a smaller epsilon"):
            ledger.check_run("run", Gaussian(10.0), 20, divergence)
        ledger.check_run("run", Gaussian(10.0), 20)


def test_rounds_of_a_checked_run_are_not_priced_again(ledger, monkeypatch):
    """A part of a run that fits, fits."""
    event = Gaussian(50.0)
    ledger.check_run("run", event, 4)
    monkeypatch.setattr(Filter, "fits", lambda *_: pytest.fail("priced again"))
    for k in range(1, 5):
        ledger.reserve("run", k, event)
    with pytest.raises(pytest.fail.Exception, match="priced again"):
        ledger.reserve("run", 5, event)


def test_what_was_checked_fits_no_more_once_another_run_has_begun(ledger):
    """Only the first round of all may be of any kind."""
    ledger.check_rounds("run", [Cost(SAMPLED), Cost(Gaussian(50.0))])
    ledger.reserve("other", 1, Gaussian(50.0))
    with pytest.raises(BudgetError, match=r"plain Gaussian noise after the first.*run='run', round=1"):
        ledger.reserve("run", 1, SAMPLED)


def test_what_was_checked_fits_no_more_once_another_round_has_fixed_slack(ledger):
    ledger.check_rounds("run", [Cost(Gaussian(50.0), divergence) for divergence in (1e-26, 1e-18, 1e-30)])
    ledger.reserve("other", 1, Gaussian(50.0), 1e-30)
    ledger.reserve("run", 1, Gaussian(50.0), 1e-26)
    with pytest.raises(BudgetError, match=r"at most 1e-20 in all, got 1e-18 with run='run', round=2"):
        ledger.reserve("run", 2, Gaussian(50.0), 1e-18)


def test_many_equal_rounds_are_cheap_to_price(ledger):
    event = Gaussian(1e5)
    assert ledger.would_cost(event, 10**5) == epsilon(Repeated(event, 10**5), 1e-5)


COST = st.tuples(
    st.sampled_from(["a", "b"]), st.integers(1, 4), st.sampled_from([2.0, 5.0, 6.0, 12.0, 40.0]),
    st.sampled_from([0.0, 1e-27, 1e-18]),
)  # fmt: skip


@given(st.lists(COST, max_size=10), st.sampled_from([0.3, 1.0]))
@settings(max_examples=30)
def test_the_cap_is_never_passed(tmp_path_factory, costs, cap):
    path = tmp_path_factory.mktemp("cap") / "rows.ledger"
    booked = {}

    def price(rounds):
        most = min(1e10 * rounds[0][1], 2 * (1e-8 / (1 + exp(cap))) ** 2) if rounds else 0.0
        if sum(divergence for _, divergence in rounds) > most:
            return inf
        slack = (1 + exp(cap)) * sqrt(most / 2)
        return epsilon_of_mu(sqrt(sum(1 / sigma**2 for sigma, _ in rounds)), 1e-5 - slack)

    with Ledger.create(path, "digest", cap, 1e-5) as ledger:
        for run, k, *cost in costs:
            try:
                ledger.reserve(run, k, Gaussian(cost[0]), cost[1])
            except BudgetError:
                assert price([*booked.values(), tuple(cost)]) > cap - 1e-9
            except PrivacyError:
                last = max((number for name, number in booked if name == run), default=0)
                assert k > last + 1 or booked[run, k] != tuple(cost)
            else:
                assert booked.setdefault((run, k), tuple(cost)) == tuple(cost)
            assert ledger.total() <= cap
            assert ledger.total() == pytest.approx(price(list(booked.values())), abs=1e-8)
    with Ledger.open(path) as again:
        assert again.head == ledger.head
        assert {(r.run, r.round): (r.cost.event.sigma, r.cost.divergence) for r in again.reservations()} == booked


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda ledger: ledger.reserve("", 1, Gaussian(9.0)), "run=''"),
        (lambda ledger: ledger.reserve("a\nb", 1, Gaussian(9.0)), "printable"),
        (lambda ledger: ledger.reserve("run", 0, Gaussian(9.0)), "round=0"),
        (lambda ledger: ledger.reserve("run", True, Gaussian(9.0)), "round=True"),
        (lambda ledger: ledger.reserve("run", 1, Gaussian(9.0), -1.0), "divergence=-1.0"),
        (lambda ledger: ledger.reserve("run", 1, Gaussian(9.0), float("nan")), "divergence=nan"),
        (lambda ledger: ledger.check_run("run", Gaussian(9.0), 0), "rounds=0"),
        (lambda ledger: ledger.check_rounds("run", []), "rounds=0"),
        (lambda ledger: ledger.bind_message("run", 1, ""), "message_digest=''"),
        (lambda ledger: ledger.note(" "), "a note with text"),
    ],
)
def test_bad_input_is_refused(ledger, call, message):
    with pytest.raises(InputError, match=message):
        call(ledger)
    assert ledger.head.entries == 0


@pytest.mark.parametrize(
    ("epsilon", "delta", "digest", "message"),
    [
        (0.0, 1e-5, "digest", "epsilon=0.0"), (inf, 1e-5, "digest", "epsilon=inf"), (1.0, 0.0, "digest", "delta=0.0"),
        (1.0, 1e-5, "", "data_digest=''"),
    ],
)  # fmt: skip
def test_a_ledger_needs_a_cap_and_a_data_set(tmp_path, epsilon, delta, digest, message):
    with pytest.raises(InputError, match=message):
        Ledger.create(tmp_path / "rows.ledger", digest, epsilon, delta)
    assert not list(tmp_path.iterdir())


def test_the_export_holds_everything(ledger):
    ledger.reserve("run", 1, Gaussian(10.0))
    ledger.bind_message("run", 1, "ab")
    ledger.note("looked at by the board")
    data = json.loads(json.dumps(plain(ledger), allow_nan=False))
    assert data["header"]["epsilon"] == 1.0
    assert data["head"] == {"entries": 3, "hash": data["entries"][-1]["hash"]}
    assert data["total"]["epsilon"] == ledger.total()
    assert [e["kind"] for e in data["entries"]] == ["reserve", "released", "note"]
    assert json.loads(data["entries"][0]["body"])["event"] == plain(Gaussian(10.0))
    assert data["entries"][1]["previous"] == data["entries"][0]["hash"]
