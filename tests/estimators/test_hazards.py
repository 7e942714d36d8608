"""Proportional hazards as an estimator: the usual fit without noise, survival, concordance, and refusals."""

import math

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.linear_model import PoissonRegressor

import sottovoce as sv
from sottovoce import models
from sottovoce.errors import PrivacyLeakWarning
from sottovoce.estimators import PrivateProportionalHazards
from sottovoce.privacy import BudgetAccountant
from sottovoce.problem.figures import concordance

BETA = np.array([0.8, -0.5])
GIVEN = {"until": 4.0, "bins": 4, "delta": 1e-6, "data_norm": 2.5}


def drawn(n=1500, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 1, (n, 2))
    died, left = rng.exponential(1 / (0.3 * np.exp(X @ BETA))), rng.uniform(0.5, 6, n)
    return X, np.minimum(died, left), died <= left


def quiet(X, y, **given):
    with pytest.warns(PrivacyLeakWarning, match="no noise"):
        return PrivateProportionalHazards(math.inf, **{**GIVEN, **given}).fit(X, y)


def test_without_noise_it_is_the_poisson_regression_of_person_intervals():
    X, time, event = drawn()
    ends = [0, 0.5, 1, 2.5, 4]
    made = quiet(X, (time, event), bins=ends[1:-1])
    who, where = np.nonzero(time[:, None] > ends[:-1])
    spent = np.minimum(time[who], np.take(ends, where + 1)) - np.take(ends, where)
    here = event[who] & (time[who] <= np.take(ends, where + 1))
    theirs = PoissonRegressor(alpha=0, fit_intercept=False, solver="newton-cholesky", tol=1e-12)
    theirs.fit(np.column_stack([X[who], np.eye(4)[where]]), here / spent, sample_weight=spent)
    np.testing.assert_allclose(made.coef_, theirs.coef_[:2], rtol=1e-6)
    np.testing.assert_allclose(made.intercept_ - np.log(np.diff(ends)), theirs.coef_[2:], rtol=1e-6)
    np.testing.assert_allclose([line.estimate for line in made.summary().lines], theirs.coef_[:2], rtol=1e-6)
    assert [line.name for line in made.summary().lines] == ["x0", "x1"]
    np.testing.assert_allclose(made.summary().lines[0].ratio, np.exp(theirs.coef_[0]), rtol=1e-6)
    # The share without an event: exp of minus the hazard that has come together until then.
    hazards = np.exp(theirs.coef_[2:]) * np.exp(X[:3] @ made.coef_)[:, None]
    together = [0.5 * hazards[:, 0], hazards @ [0.5, 0.5, 1.5, 1.5]]
    np.testing.assert_allclose(made.predict_survival(X[:3], [0.5, 4.0]), np.exp(-np.transpose(together)), rtol=1e-6)
    np.testing.assert_allclose(made.predict(X), X @ made.coef_)
    # And so says the model that it becomes.
    model = made.to_model()
    features = np.column_stack([X, np.ones(len(X))])
    np.testing.assert_allclose(model.survival(features, [1.0]), made.predict_survival(X, [1.0]))
    np.testing.assert_allclose(model.decide(features), made.predict_survival(X, [4.0])[:, 0])


def test_times_come_in_all_forms():
    X, time, event = drawn(200)
    structured = np.array(list(zip(event, time, strict=True)), dtype=[("event", bool), ("time", float)])
    first, *others = (quiet(X, y).coef_ for y in ((time, event), structured, np.column_stack([time, event])))
    for other in others:
        np.testing.assert_allclose(first, other, rtol=1e-9)


def test_with_noise_it_is_within_its_budget_and_knows_how_sure_it_is(tmp_path):
    X, time, event = drawn(6000)
    with BudgetAccountant(2.0, 1e-5) as accountant:
        made = PrivateProportionalHazards(2.0, **GIVEN).fit(X, (time, event))
    assert accountant.total().epsilon <= 2.0
    lines = made.summary().lines
    assert all(abs(line.estimate - beta) < 4 * line.error for line, beta in zip(lines, BETA, strict=True))
    assert all(line.identified for line in lines)
    assert abs(made.score(X, (time, event)) - 0.66) < 0.03
    models.save(made.to_model(), tmp_path / "model.safetensors")
    back = models.load(tmp_path / "model.safetensors")
    assert back.loss == made.loss_
    assert back.timed.ends == (0.0, 1.0, 2.0, 3.0, 4.0)
    assert "hazard ratio" in str(made.summary())


def test_concordance_is_harrells():
    """Pair by pair."""
    rng = np.random.default_rng(3)
    scores, time, event = rng.integers(0, 4, 60) / 2, rng.integers(0, 20, 60) / 4, rng.random(60) < 0.6
    right = pairs = 0.0
    for i in range(60):
        for j in range(60):
            if event[i] and (time[i] < time[j] or (time[i] == time[j] and not event[j])):
                pairs += 1
                right += (scores[i] > scores[j]) + 0.5 * (scores[i] == scores[j])
    assert concordance(scores, time, event) == pytest.approx(right / pairs)


@pytest.mark.parametrize(
    ("y", "said"),
    [
        ((np.array([1.0, -1.0]), np.array([1, 0])), "times of 0 or more, got another in row=1"),
        ((np.array([1.0, np.nan]), np.array([1, 0])), "times of 0 or more, got another in row=1"),
        ((np.array([1.0, 2.0]), np.array([1, 2])), "events that are 0 or 1, got another in row=1"),
        ((np.array([1.0, 2.0]), np.array([1])), "a time and an event for each row"),
        (np.array([1.0, 2.0]), "y as"),
        ((np.array(["a", "b"]), np.array([1, 0])), "times and events as numbers"),
    ],
)
def test_labels_that_are_no_times_are_refused_and_nothing_is_charged(y, said):
    with BudgetAccountant(1.0, 1e-5) as accountant, pytest.raises(sv.InputError, match=said):
        PrivateProportionalHazards(**GIVEN).fit(np.zeros((2, 1)), y)
    assert not accountant.events


def test_what_it_has_no_meaning_for_is_refused():
    X, time, event = drawn(100)
    made = quiet(X, (time, event))
    assert clone(made).get_params() == made.get_params()
    with pytest.raises(sv.InputError, match="no schema for a model of times"):
        made.to_model(schema=object())
    with pytest.raises(sv.UnsupportedError, match="got times to an event"):
        made.evaluate_privately(X, time, epsilon=1.0)
    with pytest.raises(sv.InputError, match="times from 0 to 4"):
        made.predict_survival(X, [5.0])
    with pytest.raises(sv.InputError, match="the ends of two intervals or more"):
        PrivateProportionalHazards(until=4.0, bins=1, delta=1e-6, data_norm=2.0).fit(X, (time, event))
    with pytest.warns(PrivacyLeakWarning, match="last time was computed"):
        PrivateProportionalHazards(1.0, delta=1e-6, data_norm=2.0).fit(X, (time, event))
    with pytest.raises(sv.InputError, match="algorithm as ProportionalHazards"):
        PrivateProportionalHazards(1.0, **GIVEN, algorithm="masked").fit(X, (time, event))
