"""Tuning on private rows: one budget for fits, scores and choice."""

import math
import random
import warnings
from dataclasses import replace

import numpy as np
import pytest
from sklearn.base import clone, is_classifier
from sklearn.exceptions import NotFittedError

from sottovoce.algorithms import IPADMM
from sottovoce.errors import BudgetError, InputError, PrivacyError, PrivacyLeakWarning
from sottovoce.estimators import PrivateLogisticRegression, PrivateRobustRegressor, PrivateSearch, search, training
from sottovoce.estimators.draws import SystemDraws
from sottovoce.privacy import BudgetAccountant, RepeatAndSelect, epsilon
from sottovoce.privacy.accounting.accountant import plain_mu

SEEDED = pytest.mark.filterwarnings("ignore:The noise came from a seed:sottovoce.errors.PrivacyLeakWarning")
PUBLIC = {"data_norm": 3.0, "classes": ["no", "yes"]}
STEPS = IPADMM(rounds=10, local_steps=5, rho=1e-2, diameter=30.0)


@pytest.fixture
def base(quick):
    return PrivateLogisticRegression(**{**quick, "algorithm": STEPS}, **PUBLIC)


@SEEDED
def test_the_better_candidate_wins(base, two, monkeypatch):
    monkeypatch.setattr(search, "repetitions", lambda *_: 8)
    # With a bound of 1e5 the rows drown in the noise that is made for it.
    found = PrivateSearch(base, {"data_norm": [1e5, 3.0]}, 20.0, runs=12, random_state=1).fit(*two)
    assert found.best_params_ == {"data_norm": 3.0}
    assert found.score(*two) > 0.7
    assert found.best_score_ == pytest.approx(found.score(*two), abs=0.1)
    assert (found.predict(two[0]) == found.best_estimator_.predict(two[0])).all()
    assert is_classifier(found)


def test_the_whole_search_stays_within_its_guarantee(base, two):
    accountant = BudgetAccountant(1.0, 1e-6)
    found = PrivateSearch(base, {"lam": [1e-4, 1e-2]}, 1.0, delta=1e-6, runs=5, accountant=accountant).fit(*two)
    assert isinstance(found.privacy_.event, RepeatAndSelect)
    assert 0.99 < found.privacy_.epsilon == epsilon(found.privacy_.event, 1e-6) <= 1.0
    assert accountant.events == (found.privacy_.event,)
    # A model that is handed on must not claim the price of its own fit alone.
    assert found.best_estimator_.privacy_ == found.privacy_
    assert found.best_estimator_.to_model().privacy == found.privacy_
    with pytest.raises(BudgetError):
        clone(found).fit(*two)


def test_every_fit_and_score_has_the_noise_that_was_paid_for(base, two, monkeypatch):
    fits, scores = [], []

    class Spy(random.SystemRandom):
        def normalvariate(self, mu=0.0, sigma=1.0):
            scores.append(sigma)
            return super().normalvariate(mu, sigma)

    honest = PrivateLogisticRegression.fit

    def fit(self, *args, **kwargs):
        fits.append(honest(self, *args, **kwargs).privacy_.event)
        return self

    monkeypatch.setattr(PrivateLogisticRegression, "fit", fit)
    monkeypatch.setattr(SystemDraws, "random", lambda _: Spy())
    monkeypatch.setattr(search, "repetitions", lambda *_: 3)
    found = PrivateSearch(base, {"algorithm": [replace(STEPS, rounds=5), STEPS]}, 1.0, runs=5, score_share=0.3).fit(
        *two
    )
    fit_event, score_event = found.privacy_.event.event.events
    assert [plain_mu(event) for event in fits] == pytest.approx([1 / fit_event.sigma] * 3)
    assert max(plain_mu(event) for event in fits) <= 1 / fit_event.sigma
    assert found.privacy_.sigma == pytest.approx(1 / plain_mu(fits[0]), rel=1e-6)
    assert scores == [score_event.sigma] * 3
    assert (fit_event.sigma / score_event.sigma) ** 2 == pytest.approx(0.3 / 0.7)


def test_a_surrounding_accountant_pays_once(base, two):
    with BudgetAccountant(1.0, 1e-5) as accountant:
        PrivateSearch(base, {"lam": [1e-4, 1e-2]}, 1.0, runs=3).fit(*two)
    assert len(accountant) == 1


def test_nothing_is_computed_without_a_budget(base, two, monkeypatch):
    monkeypatch.setattr(PrivateLogisticRegression, "fit", lambda *_, **__: pytest.fail("computed"))
    found = PrivateSearch(base, {"lam": [1e-4]}, 1.0, accountant=BudgetAccountant(0.5, 1e-5))
    with pytest.raises(BudgetError):
        found.fit(*two)
    with pytest.raises(NotFittedError):
        found.predict(two[0])


def test_row_scores_lie_between_0_and_1(numbers, quick, base, two):
    X, y = numbers
    model = PrivateRobustRegressor(1.0, **quick, data_norm=0.01, y_bounds=(0, 100)).fit(X, y)
    scores = model.row_scores(1e3 * X, y * 3 - 100)
    assert scores.min() >= 0
    assert scores.max() <= 1
    expected = 1 - np.abs(np.clip(model.predict(X), 0, 100) - y) / 100
    assert model.row_scores(X, y) == pytest.approx(expected)
    assert base.fit(*two).row_scores(*two).mean() == pytest.approx(base.score(*two))


@SEEDED
@pytest.mark.filterwarnings("ignore:epsilon=.*protects next to nothing:sottovoce.errors.PrivacyLeakWarning")
def test_regression(numbers, quick, monkeypatch):
    monkeypatch.setattr(search, "repetitions", lambda *_: 8)
    model = PrivateRobustRegressor(**quick, data_norm=3.0, y_bounds=(0, 100))
    tried = [replace(STEPS, rounds=20, diameter=diameter) for diameter in (1e-9, 3.0)]
    found = PrivateSearch(model, {"algorithm": tried}, 30.0, runs=10, random_state=3).fit(*numbers)
    assert found.best_params_ == {"algorithm": tried[1]}  # with the other nothing moves from zero


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"candidates": {"epsilon": [1.0]}}, "candidates for parameters among"),
        ({"candidates": {"classes": [["no"]]}}, "candidates for parameters among"),
        ({"candidates": {"depth": [1]}}, "candidates for parameters among"),
        ({"estimator": 7}, "an estimator of this package"),
        ({"score_share": 1.0}, "0 < score_share < 1"),
        ({"runs": 0.5}, "mean number of runs"),
        ({"epsilon": math.inf}, "epsilon to be positive and finite"),
    ],
)
def test_bad_searches(base, two, change, message):
    given = {"estimator": base, "candidates": {"lam": [1e-4]}, **change}
    with pytest.raises(InputError, match=message):
        PrivateSearch(**given).fit(*two)


def test_noise_that_the_price_does_not_know_is_refused(base, two):
    batches = IPADMM(rounds=2, batch_size=10, local_steps=1)
    model = base.set_params(algorithm=batches)
    with pytest.raises(PrivacyError, match="plain Gaussian noise"):
        PrivateSearch(model, {"lam": [1e-4]}, runs=2).fit(*two)


@pytest.mark.filterwarnings("error::sottovoce.errors.PrivacyLeakWarning")
def test_who_is_trusted_is_a_note_and_no_leak(two):
    """What masked sums rest on goes with the statement; nothing was given away that anyone must be warned of."""
    masked = PrivateLogisticRegression(**PUBLIC, device="plain")
    found = PrivateSearch(masked, {"lam": [1e-4, 1e-2]}, 2.0, runs=3).fit(*two)
    assert found.best_estimator_.leaks_ == ()
    assert "whoever holds its rows is trusted" in found.privacy_.prose()
    assert found.privacy_.epsilon <= 2.0


# -- nothing tells how many fits there were ---------------------------------------------------------------------------


@pytest.mark.filterwarnings("always")
def test_the_number_of_fits_shows_in_no_warning_log_or_line(base, two, monkeypatch, caplog, capfd):
    """Every fit warns, as NumPy and scikit-learn may, and every candidate has something of its own to say."""
    honest, made = training.train, []

    def loud(*given):
        solved = honest(*given)  # a rehearsal ends in here
        warnings.warn(f"fit number {len(made)}", RuntimeWarning, stacklevel=1)
        made.append(np.float64(1e308) * 10)  # NumPy warns, or prints, as it was told to
        return solved

    monkeypatch.setattr(training, "train", loud)
    X, y = two
    told = []
    for number in (1, 2, 7):
        made.clear()
        monkeypatch.setattr(search, "repetitions", lambda *_, number=number: number)
        with caplog.at_level("DEBUG"), np.errstate(all="print"), warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            PrivateSearch(base, {"data_norm": [None, 3.0], "lam": [1e-4, 1e-2]}, 1.0).fit(X, y[:, None])
        assert len(made) == number
        told.append(([str(one.message) for one in caught], caplog.messages[:], capfd.readouterr()))
        caplog.clear()
    assert told[0] == told[1] == told[2]
    messages = told[0][0]
    assert sum("data_norm was computed from" in message for message in messages) == 1
    assert not any("fit number" in message for message in messages)


@pytest.mark.parametrize("number", [1, 9])
def test_a_candidate_is_refused_whether_it_is_drawn_or_not(base, two, monkeypatch, number):
    monkeypatch.setattr(search, "repetitions", lambda *_: number)
    monkeypatch.setattr(random.SystemRandom, "randrange", lambda *_: 0)  # the first candidate is drawn, always
    accountant = BudgetAccountant(1.0, 1e-5)
    with pytest.raises(InputError, match="lam"):
        PrivateSearch(base, {"lam": [1e-4, -1.0]}, 1.0, accountant=accountant).fit(*two)
    batches = IPADMM(rounds=2, batch_size=10, local_steps=1)
    model = clone(base).set_params(algorithm=None)
    with pytest.raises(PrivacyError, match="plain Gaussian noise"):
        PrivateSearch(model, {"algorithm": [None, batches]}, 1.0, accountant=accountant).fit(*two)
    assert len(accountant) == 0


def test_a_fit_that_fails_is_the_worst_of_all_and_stops_nothing(base, two, monkeypatch):
    """Steps of 1e300 end in infinity. To stop there would tell that they were drawn, and so how many were."""
    monkeypatch.setattr(search, "repetitions", lambda *_: 4)
    drawn = iter([1, 0, 1, 1, 1, 1, 1, 1])
    monkeypatch.setattr(random.SystemRandom, "randrange", lambda *_: next(drawn))
    monkeypatch.setattr(random.SystemRandom, "normalvariate", lambda *_: -1e9)  # the one that did not fail scores worst
    model = PrivateSearch(base, {"algorithm": [STEPS, replace(STEPS, diameter=1e300)]}, 1.0)
    assert model.fit(*two).best_params_ == {"algorithm": STEPS}
    with pytest.raises(InputError, match="finite model"):
        model.fit(*two)
    with pytest.raises(NotFittedError):
        model.predict(two[0])


def test_an_answer_comes_at_a_multiple_of_a_public_time(base, two, monkeypatch):
    now, slept = [100.0], []
    monkeypatch.setattr(search.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(search.time, "sleep", slept.append)
    honest = PrivateLogisticRegression.fit

    def slow(self, *args, **kwargs):
        now[0] += 7.0
        return honest(self, *args, **kwargs)

    monkeypatch.setattr(PrivateLogisticRegression, "fit", slow)
    for number, wait in ((1, 13.0), (2, 6.0), (3, 19.0)):
        monkeypatch.setattr(search, "repetitions", lambda *_, number=number: number)
        PrivateSearch(base, {"lam": [1e-4]}, 1.0, answer_every=20.0).fit(*two)
        assert slept.pop() == pytest.approx(wait)
    with pytest.raises(InputError, match="answer_every as seconds above 0"):
        PrivateSearch(base, {"lam": [1e-4]}, 1.0, answer_every=0.0).fit(*two)


def test_leaks_are_said_once(base, two):
    model = base.set_params(data_norm=None)
    with pytest.warns(PrivacyLeakWarning, match="data_norm was computed from") as caught:
        found = PrivateSearch(model, {"lam": [1e-4]}, runs=5).fit(*two)
    assert len(caught) == 1
    assert "data_norm was computed from" in found.privacy_.prose()
