"""Estimators are evaluated privately, on the account of whoever pays for them."""

import math

import numpy as np
import pytest

from helpers.laws import noise_of_evaluations
from sottovoce.errors import BudgetError, InputError
from sottovoce.estimators import PrivateLogisticRegression, PrivateRobustRegressor
from sottovoce.privacy import BudgetAccountant, Unit

pytestmark = pytest.mark.filterwarnings("ignore::sottovoce.errors.PrivacyLeakWarning")


def fitted(rows, **more):
    return PrivateLogisticRegression(5.0, data_norm=4.0, device="plain", random_state=1, **more).fit(*rows)


def test_two_classes(two):
    found = fitted(two, classes=["no", "yes"]).evaluate_privately(*two, epsilon=5.0)
    figures = found.answer.figures
    assert found.classes == ("no", "yes")
    assert figures["accuracy"].low <= figures["accuracy"].value <= figures["accuracy"].high
    assert figures["auc"].value > 0.7
    assert any("too good" in note for note in found.privacy.notes)


def test_the_seed_of_a_fit_is_not_that_of_an_evaluation(two):
    model = fitted(two, classes=["no", "yes"])
    first, second = (model.evaluate_privately(*two, epsilon=1.0) for _ in range(2))
    assert first.answer != second.answer


def test_three_classes(three):
    found = fitted(three, classes=[0, 10, 20]).evaluate_privately(*three, epsilon=5.0)
    assert found.classes == ("0", "10", "20")
    total = sum(one.value for line in found.answer.confusion for one in line if one.value is not None)
    assert total == pytest.approx(400, abs=60)


def test_numbers(numbers):
    X, y = numbers
    model = PrivateRobustRegressor(5.0, y_bounds=(0, 100), data_norm=4.0, device="plain", random_state=1).fit(X, y)
    figures = model.evaluate_privately(X, y, epsilon=5.0).answer.figures
    clipped = np.minimum(np.abs(model.predict(X) - y), figures["clipped_at"].low)
    assert figures["mean_absolute_error"].value == pytest.approx(clipped.mean(), rel=0.4)


def test_it_is_charged(two):
    accountant = BudgetAccountant(math.inf, 1e-5)
    model = fitted(two, classes=["no", "yes"], accountant=accountant)
    model.evaluate_privately(*two, epsilon=1.0)
    assert len(accountant) == 2
    with BudgetAccountant(0.5, 1e-5) as small:
        model.set_params(accountant=None)
        with pytest.raises(BudgetError, match="Nothing was computed"):
            model.evaluate_privately(*two, epsilon=1.0, delta=1e-5)
        assert len(small) == 0


def test_people_who_were_protected_in_the_fit_are_protected_here(two, monkeypatch):
    """Three rows each, at up to two sites: all six may be replaced, so the noise of both sums is six times as large."""
    found_noise = noise_of_evaluations(monkeypatch)
    people = {"rows_per_person": 3, "sites_per_person": 2, "sites": 2, "classes": ["no", "yes"]}
    who = np.arange(len(two[1])) // 3
    budget = BudgetAccountant(math.inf, 1e-5, unit=Unit(3, 2))
    protected = PrivateLogisticRegression(5.0, data_norm=4.0, device="plain", accountant=budget, **people)
    found = protected.fit(*two, groups=who).evaluate_privately(*two, epsilon=1.0, delta=1e-5)
    assert found.privacy.unit == Unit(3, 2)
    assert len(budget) == 2  # a budget for people takes no charge for rows
    fitted(two, classes=["no", "yes"]).evaluate_privately(*two, epsilon=1.0, delta=1e-5)
    first, second, *rows = found_noise
    assert first / rows[0] == pytest.approx(6, rel=0.1)
    assert second / rows[1] == pytest.approx(6, rel=0.1)


def test_refusals(two):
    X, y = two
    model = fitted(two, classes=["no", "yes"])
    with pytest.raises(InputError, match="got others"):
        model.evaluate_privately(X, np.where(y == "no", "perhaps", y), epsilon=1.0)
    with pytest.raises(InputError, match="epsilon"):
        model.evaluate_privately(X, y, epsilon=0.0)
    with pytest.raises(ValueError, match="inconsistent"):
        model.evaluate_privately(X, y[:-1], epsilon=1.0)
    with pytest.raises(ValueError, match="not fitted"):
        PrivateLogisticRegression().evaluate_privately(X, y, epsilon=1.0)
