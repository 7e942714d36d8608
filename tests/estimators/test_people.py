"""`groups=`: estimators that protect people."""

import math
import warnings

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.model_selection import GroupKFold, cross_val_score

from sottovoce.algorithms import DVP, IPADMM
from sottovoce.errors import InputError, PrivacyError, PrivacyLeakWarning, UnsupportedError
from sottovoce.estimators import (
    PrivateLinearRegression,
    PrivateLinearSVC,
    PrivateLogisticRegression,
    PrivateRobustRegressor,
    PrivateSearch,
    dealing,
)
from sottovoce.privacy import ROW, BudgetAccountant, Unit
from sottovoce.problem.people import DROPPED

rng = np.random.default_rng(0)
X = rng.normal(size=(600, 3)) / 4
Y = np.where(X @ [3.0, -2.0, 1.0] + 0.3 * rng.normal(size=600) > 0, 1, -1)
WHO = np.arange(600) // 3  # three rows each
KNOWN = {"epsilon": 5.0, "delta": 1e-5, "data_norm": 1.0, "classes": [-1, 1]}


def made(kind=PrivateLogisticRegression, **more):
    return kind(**{**KNOWN, "rows_per_person": 3, **more})


@pytest.mark.parametrize("kind", [PrivateLogisticRegression, PrivateLinearSVC])
def test_people_are_protected_and_take_more_noise(kind):
    model = made(kind).fit(X, Y, groups=WHO)
    rows = kind(**KNOWN).fit(X, Y)
    assert model.privacy_.unit == Unit(3)
    assert rows.privacy_.unit == ROW
    assert model.privacy_.epsilon <= 5.0
    assert "every person" in model.privacy_.prose()
    assert model.to_model().privacy.unit == Unit(3)
    assert clone(model).rows_per_person == 3


def test_regression_and_other_kinds_of_names():
    names = np.array([f"p{i}" for i in WHO])
    model = PrivateRobustRegressor(epsilon=5.0, delta=1e-5, data_norm=1.0, y_bounds=(-1, 1), rows_per_person=3)
    assert model.fit(X, Y.astype(float), groups=names).privacy_.unit == Unit(3)
    mixed = np.array([int(i) if i % 2 else f"p{i}" for i in WHO], dtype=object)
    assert made().fit(X, Y, groups=mixed).privacy_.unit == Unit(3)
    same = np.array([1 if i % 2 else 1.0 for i in range(600)], dtype=object)  # one person: 1 == 1.0
    with pytest.raises(InputError, match="at most rows=3 rows of a person"):
        made().fit(X, Y, groups=same)


def test_the_surplus_is_refused_or_dropped():
    with pytest.raises(InputError, match=r"at most rows=2 rows.*surplus='drop'"):
        made(rows_per_person=2).fit(X, Y, groups=WHO)
    with pytest.warns(PrivacyLeakWarning, match=r"does not cover rows under other people's names.*surplus='refuse'"):
        model = made(rows_per_person=2, surplus="drop").fit(X, Y, groups=WHO)
    assert sum(model.site_rows_) == 400
    # What the names allow for is said whatever the rows are, and only there.
    assert DROPPED in model.privacy_.notes
    assert DROPPED in model.leaks_
    with pytest.warns(PrivacyLeakWarning, match="other people's names"):
        assert DROPPED in made(surplus="drop").fit(X, Y, groups=WHO).privacy_.notes
    assert DROPPED not in made().fit(X, Y, groups=WHO).privacy_.notes
    assert DROPPED not in PrivateLogisticRegression(**KNOWN, surplus="drop").fit(X, Y).privacy_.notes


def test_people_are_dealt_out_by_rows_or_are_at_as_many_sites_as_is_said():
    model = made(sites=7).fit(X, Y, groups=WHO)
    assert model.site_rows_ == (86, 86, 86, 86, 86, 85, 85)  # whoever the rows are of
    with pytest.raises(InputError, match="at least 3 rows at every site, as many as a person may have, got fewest=2"):
        made(sites=250).fit(X, Y, groups=WHO)
    sites = np.arange(600) % 3
    with pytest.raises(InputError, match="no more than sites=1 sites"):
        made(rows_per_person=1).fit(X, Y, sites=sites, groups=WHO)
    model = made(rows_per_person=1, sites_per_person=3).fit(X, Y, sites=sites, groups=WHO)
    assert model.privacy_.unit == Unit(1, 3)


def test_one_without_the_other_is_refused():
    with pytest.raises(InputError, match=r"groups in fit together with rows_per_person, or neither, got.*no groups"):
        made().fit(X, Y)
    with pytest.raises(InputError, match="rows_per_person=None and groups"):
        made(rows_per_person=None).fit(X, Y, groups=WHO)
    for bad in (0, -3):
        with pytest.raises(InputError, match="rows per person from 1"):
            made(rows_per_person=bad).fit(X, Y, groups=WHO)
    with pytest.raises(InputError, match="a group for every row"):
        made().fit(X, Y, groups=np.where(WHO == 5, np.nan, WHO))
    with pytest.raises(UnsupportedError, match="DVP: its noise in the objective"):
        made(algorithm=DVP(rounds=3)).fit(X, Y, groups=WHO)
    with pytest.raises(UnsupportedError, match="a batch may draw several"):
        made(algorithm=IPADMM(rounds=3, diameter=1.0, batch_size=10)).fit(X, Y, groups=WHO)


def test_a_budget_of_people_is_charged_for_people():
    with BudgetAccountant(6.0, 1e-5, unit=Unit(3)) as budget:
        made().fit(X, Y, groups=WHO)
        with pytest.raises(PrivacyError, match="as this budget does"):
            PrivateLogisticRegression(**{**KNOWN, "epsilon": 0.1}).fit(X, Y)
    assert len(budget) == 1


def test_a_search_scores_people_with_noise_for_people():
    search = PrivateSearch(made(), {"lam": [1e-4, 1e-2]}, epsilon=8.0, delta=1e-5, runs=2.0, random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        search.fit(X, Y, groups=WHO)
    assert search.privacy_.unit == Unit(3)
    assert search.best_estimator_.privacy_.unit == Unit(3)
    drawn = []

    class Random:
        def normalvariate(self, _, spread):
            drawn.append(spread)
            return 0.0

        def random(self):
            return 0.5

    costs = search._costs(1e-5)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        search._run({"lam": 1e-4}, costs, 1, Random(), (X, Y, None, WHO, {}), Unit(3))
    assert drawn == [3 * costs.score_sigma]
    with pytest.raises(InputError, match="candidates for parameters among"):
        PrivateSearch(made(), {"rows_per_person": [1, 3]}, delta=1e-5).fit(X, Y, groups=WHO)


def test_scikit_learn_passes_groups_to_splitters_as_ever():
    scores = cross_val_score(PrivateLogisticRegression(**KNOWN), X, Y, cv=GroupKFold(3), groups=WHO)
    assert scores.min() > 0.6


MISSING = {
    "pandas' NA": pd.Series(["a", pd.NA, "b"], dtype="string"),
    "not a number": [1.0, float("nan"), 2.0],
    "not a time": np.array(["2020-01-01", "NaT", "2020-01-02"], dtype="datetime64[D]"),
    "none": ["a", None, "b"],
}


@pytest.mark.parametrize("told", MISSING)
def test_every_row_is_of_somebody(told):
    for numbers in (dealing.people_of, dealing.by_labels):
        with pytest.raises(InputError, match=r"for every row, got rows_without=\[1\]"):
            numbers(MISSING[told], 3)


def test_names_of_mixed_kinds_are_told_apart():
    mixed = np.array([1, "a", 1, 2.5], dtype=object)
    assert dealing.people_of(mixed, 4).tolist() == [0, 1, 0, 2]
    assert [part.tolist() for part in dealing.by_labels(mixed, 4)] == [[0, 2], [1], [3]]


@pytest.mark.filterwarnings("ignore::sottovoce.errors.PrivacyLeakWarning")
@pytest.mark.parametrize("kind", [PrivateLinearRegression, PrivateLogisticRegression])
def test_rows_of_one_person_are_not_taken_for_independent(kind):
    """Every row twice, by the same person, says no more than once: errors must not shrink by sqrt(2)."""
    draws = np.random.default_rng(0)
    x = draws.uniform(-1, 1, size=(400, 2))
    y = x @ [1.0, -0.5] + 0.3 * draws.normal(size=400)
    y, given = (y, {"y_bounds": (-3, 3)}) if kind is PrivateLinearRegression else (y > 0, {"classes": [False, True]})
    given |= {} if kind is PrivateLinearRegression else {"inference": True}
    make = lambda **more: kind(epsilon=math.inf, data_norm=2.0, random_state=0, **given, **more)  # noqa: E731
    single = make().fit(x, y).summary()
    who = np.repeat(np.arange(400), 2)
    double = make(rows_per_person=2).fit(np.repeat(x, 2, axis=0), np.repeat(y, 2), groups=who).summary()
    for one, two in zip(single.lines, double.lines, strict=True):
        assert two.error == pytest.approx(one.error, rel=0.02)
    assert any("up to 2 rows" in note for note in double.notes)
    assert not any("up to 2 rows" in note for note in single.notes)


@pytest.mark.parametrize("bad", [0, -1, 10**7])
def test_so_many_rows_of_a_person_make_no_sense(bad):
    with pytest.raises(InputError, match=r"rows per person from 1 .* got rows=.*Say how many rows a person may have"):
        PrivateLogisticRegression(1.0, classes=[-1, 1], data_norm=2.0, rows_per_person=bad).fit(X, Y, groups=WHO)


def test_a_person_at_more_sites_than_was_said_is_refused_with_what_to_do():
    sites = np.arange(len(Y)) % 2
    with pytest.raises(
        InputError, match=r"no more than sites=1 sites, got one at more\. Declare more sites per person"
    ):
        made().fit(X, Y, groups=WHO, sites=sites)


@pytest.mark.parametrize("bounds", [(0, float("inf")), (float("nan"), 1), (1, 0), (0,)])
def test_labels_without_bounds_are_refused_with_what_to_do(bounds):
    with pytest.raises(InputError, match=r"y_bounds as two finite numbers.*give limits that hold for anyone"):
        PrivateLinearRegression(1.0, y_bounds=bounds, data_norm=2.0).fit(X, Y)
