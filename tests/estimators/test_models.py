"""With next to no noise the estimators find what scikit-learn finds; their outputs mean what they should."""

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.optimize import minimize
from sklearn.linear_model import LogisticRegression, QuantileRegressor

from sottovoce import IPADMM
from sottovoce.errors import InputError, UnsupportedError
from sottovoce.estimators import PrivateLinearSVC, PrivateLogisticRegression, PrivateRobustRegressor
from sottovoce.problem.losses import Huber, SmoothedHinge

# The seed makes the tests repeatable. Hardly any noise makes models that other solvers find, too.
pytestmark = [
    pytest.mark.filterwarnings("ignore:The noise came from a seed:sottovoce.errors.PrivacyLeakWarning"),
    pytest.mark.filterwarnings("ignore:epsilon=.* protects next to nothing:sottovoce.errors.PrivacyLeakWarning"),
]
EXACT = {"epsilon": 1e6, "device": "plain", "random_state": 0}


def steps(diameter):
    return {"algorithm": IPADMM(rounds=60, local_steps=25, rho=1e-2, diameter=diameter), **EXACT}


def scaled(X, norm):
    """As the estimators scale rows, written down again: bounded by 1, with a constant of half that."""
    longest = np.sqrt(1.25)
    rows = X / np.maximum(np.linalg.norm(X, axis=1, keepdims=True), norm)
    return np.hstack([rows, np.full((len(X), 1), 0.5)]) / longest


def margins(model, X, norm):
    rows = X / np.maximum(np.linalg.norm(X, axis=1, keepdims=True), norm) * norm
    return model.decision_function(rows)


def test_two_classes_against_scikit_learn(two):
    X, y = two
    ours = PrivateLogisticRegression(**steps(60.0), data_norm=4.0, classes=["no", "yes"], lam=1e-2).fit(X, y)
    theirs = LogisticRegression(C=1 / (1e-2 * len(y)), fit_intercept=False, tol=1e-10).fit(scaled(X, 4.0), y)
    assert margins(ours, X, 4.0) == pytest.approx(theirs.decision_function(scaled(X, 4.0)), abs=0.02)
    assert ours.coef_.shape == (1, 4)
    assert ours.intercept_.shape == (1,)
    assert ours.classes_.tolist() == ["no", "yes"]


def test_several_classes_against_scikit_learn(three):
    X, y = three
    ours = PrivateLogisticRegression(**steps(60.0), data_norm=3.0, classes=[0, 10, 20], lam=1e-2).fit(X, y)
    theirs = LogisticRegression(C=1 / (1e-2 * len(y)), fit_intercept=False, tol=1e-10).fit(scaled(X, 3.0), y)
    z = theirs.decision_function(scaled(X, 3.0))
    assert margins(ours, X, 3.0) == pytest.approx(z - z.mean(axis=1, keepdims=True), abs=0.02)
    assert ours.coef_.shape == (3, 3)
    assert ours.intercept_.shape == (3,)
    assert ours.coef_.sum(axis=0) == pytest.approx(0, abs=1e-12)


@pytest.mark.parametrize("sites", [1, 5])
def test_the_penalty_does_not_depend_on_the_number_of_sites(two, sites):
    X, y = two
    model = PrivateLogisticRegression(**steps(30.0), data_norm=4.0, classes=["no", "yes"], lam=0.1, sites=sites)
    theirs = LogisticRegression(C=1 / (0.1 * len(y)), fit_intercept=False, tol=1e-10).fit(scaled(X, 4.0), y)
    assert margins(model.fit(X, y), X, 4.0) == pytest.approx(theirs.decision_function(scaled(X, 4.0)), abs=0.02)


def test_support_vectors_against_a_general_solver(two):
    X, y = two
    ours = PrivateLinearSVC(**steps(30.0), data_norm=4.0, classes=["no", "yes"], lam=1e-2).fit(X, y)
    A, b, loss = scaled(X, 4.0), np.where(y == "yes", 1.0, -1.0), SmoothedHinge()

    def objective(w):
        slopes = loss.slope(A @ w, b, loss.theta)
        return loss.value(A @ w, b, loss.theta).mean() + 5e-3 * w @ w, A.T @ slopes / len(b) + 1e-2 * w

    best = minimize(objective, np.zeros(5), jac=True, options={"gtol": 1e-8}).x
    assert margins(ours, X, 4.0) == pytest.approx(A @ best, abs=0.02)


@pytest.mark.parametrize("intercept", [True, False])
def test_huber_against_a_general_solver(numbers, intercept):
    X, y = numbers
    ours = PrivateRobustRegressor(
        **steps(5.0), data_norm=5.0, y_bounds=(0, 100), lam=1e-3, threshold=0.1, fit_intercept=intercept
    ).fit(X, y)
    middle, half = (50.0, 50.0) if intercept else (0.0, 100.0)
    A, b, loss = scaled(X, 5.0) if intercept else X / 5.0, (y - middle) / half, Huber(0.1)

    def objective(w):
        slopes = loss.slope(A @ w, b, loss.theta)
        return loss.value(A @ w, b, loss.theta).mean() + 5e-4 * w @ w, A.T @ slopes / len(b) + 1e-3 * w

    best = minimize(objective, np.zeros(A.shape[1]), jac=True, options={"gtol": 1e-9}).x
    assert ours.predict(X) == pytest.approx(middle + half * (A @ best), abs=0.2)
    assert ours.coef_.shape == (3,)
    assert isinstance(ours.intercept_, float)
    assert (ours.intercept_ != 0) is intercept


@pytest.mark.parametrize(("loss", "level"), [("absolute", 0.5), ("quantile", 0.8)])
def test_quantiles_against_scikit_learn(numbers, loss, level):
    X, y = numbers
    ours = PrivateRobustRegressor(
        **steps(3.0), data_norm=5.0, y_bounds=(0, 100), lam=0.0, loss=loss, quantile=level
    ).fit(X, y)
    theirs = QuantileRegressor(quantile=level, alpha=0.0).fit(X, y)
    assert ours.predict(X) == pytest.approx(theirs.predict(X), abs=1.0)
    assert np.mean(y < ours.predict(X)) == pytest.approx(level, abs=0.04)


def test_labels_out_of_bounds_are_clipped(numbers, quick):
    X, y = numbers
    far = np.where(np.arange(len(y)) < 10, 1e6, y)
    fit = PrivateRobustRegressor(1.0, **quick, random_state=0, data_norm=5.0, y_bounds=(0.0, 95.0)).fit
    assert fit(X, y).coef_.tolist() == fit(X, far).coef_.tolist()


@pytest.mark.parametrize("labels", ["two", "three"])
def test_sparse_rows_and_single_precision_give_the_same_model(labels, quick, request):
    X, y = request.getfixturevalue(labels)
    X = np.where(np.abs(X) > 0.3, X, 0.0)
    make = PrivateLogisticRegression(
        1.0, **quick, random_state=7, sites=3, data_norm=2.0, classes=np.unique(y).tolist()
    ).fit
    dense = make(X, y)
    for other in (sp.csr_array(X), sp.csc_matrix(X), sp.coo_array(X)):
        sparse = make(other, y)
        assert sparse.coef_ == pytest.approx(dense.coef_, abs=1e-9)
        assert sparse.predict_proba(other) == pytest.approx(dense.predict_proba(X), abs=1e-9)
    single = make(X.astype(np.float32), y)
    assert single.coef_ == pytest.approx(dense.coef_, abs=1e-4)
    assert single.coef_.dtype == np.float64


def test_the_device_changes_nothing(two, quick):
    X, y = two
    given = {**quick, "random_state": 3, "data_norm": 2.0, "classes": ["no", "yes"], "sites": 4}
    plain = PrivateLogisticRegression(1.0, **given).fit(X, y)
    compiled = PrivateLogisticRegression(1.0, **{**given, "device": "cpu"}).fit(X, y)
    assert compiled.coef_ == pytest.approx(plain.coef_, abs=1e-9)


def test_probabilities(two, three, quick):
    for X, y in (two, three):
        model = PrivateLogisticRegression(
            5.0, **quick, random_state=0, data_norm=3.0, classes=np.unique(y).tolist()
        ).fit(X, y)
        p, z = model.predict_proba(X), model.decision_function(X)
        expected = 1 / (1 + np.exp(-z)) if z.ndim == 1 else np.exp(z[:, 1]) / np.exp(z).sum(axis=1)
        assert p[:, 1] == pytest.approx(expected)
        assert p.sum(axis=1) == pytest.approx(1)
        assert model.predict_log_proba(X) == pytest.approx(np.log(p))
        assert (model.classes_[p.argmax(axis=1)] == model.predict(X)).all()


def test_a_class_that_nobody_has_is_learnt_as_rare(two, quick):
    X, y = two
    model = PrivateLogisticRegression(
        10.0, **quick, random_state=0, data_norm=3.0, classes=["yes", "no", "unknown"]
    ).fit(X, y)
    assert model.classes_.tolist() == ["no", "unknown", "yes"]
    assert model.predict_proba(X)[:, 1].mean() < 0.1


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"data_norm": 0.0}, "data_norm between"),
        ({"data_norm": np.inf}, "data_norm between"),
        ({"classes": ["no", "no", "yes"]}, "different classes"),
        ({"classes": ["no", "maybe"]}, "labels among classes"),
        ({"classes": ["yes"]}, "labels among classes"),
        ({"sites": 0}, "sites as a whole number"),
        ({"sites": 2.5}, "sites as a whole number"),
        ({"sites": 301}, "at most as many sites as rows, 300"),
        ({"graph": "moebius"}, "a graph among"),
        ({"graph": 7}, "the name of a graph, or a Graph"),
        ({"algorithm": "adam"}, "algorithm among masked, ipadmm"),
        ({"epsilon": 0.0}, "epsilon > 0"),
        ({"delta": 1.0}, "0 < delta < 1"),
        ({"lam": -1.0}, "lam >= 0"),
        ({"accountant": 3}, "accountant as a BudgetAccountant"),
        ({"device": "abacus"}, "a device among"),
    ],
)
def test_bad_parameters(two, quick, change, message):
    given = {**quick, "epsilon": 1.0, "data_norm": 3.0, "classes": ["no", "yes"], **change}
    model = PrivateLogisticRegression(**given)
    with pytest.raises(InputError, match=message):
        model.fit(*two)
    assert not model.__sklearn_is_fitted__()


@pytest.mark.parametrize("bounds", [(1.0, 1.0), (2.0, 1.0), (0.0, np.inf), (1.0,), (1.0, 2.0, 3.0)])
def test_bad_bounds(numbers, quick, bounds):
    with pytest.raises(InputError, match="y_bounds as two finite numbers"):
        PrivateRobustRegressor(1.0, **quick, data_norm=3.0, y_bounds=bounds).fit(*numbers)


def test_bad_losses(two, numbers, quick):
    with pytest.raises(InputError, match="loss in"):
        PrivateRobustRegressor(1.0, **quick, data_norm=3.0, y_bounds=(0, 1), loss="squared").fit(*numbers)
    with pytest.raises(InputError, match="loss in"):
        PrivateLinearSVC(1.0, **quick, data_norm=3.0, classes=["no", "yes"], loss="squared").fit(*two)


def test_support_vectors_are_for_two_classes(three, quick):
    with pytest.raises(InputError, match=r"Only binary .* PrivateLogisticRegression"):
        PrivateLinearSVC(1.0, **quick, data_norm=3.0, classes=[0, 10, 20]).fit(*three)


def test_the_exact_argmin_does_not_take_several_classes(three):
    from sottovoce.algorithms import DVP

    with pytest.raises(UnsupportedError, match="needs a loss of one prediction per row"):
        PrivateLogisticRegression(algorithm=DVP(rounds=3), data_norm=3.0, classes=[0, 10, 20]).fit(*three)
