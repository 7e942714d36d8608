"""Estimators among their kind: budgets, sites, pipelines, grids, copies and files."""

import math
import pickle
from dataclasses import replace

import numpy as np
import pytest
from sklearn import config_context
from sklearn.base import clone
from sklearn.datasets import load_breast_cancer, load_iris
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV, GroupKFold, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from sottovoce import IPADMM, graphs
from sottovoce.errors import BudgetError, InputError, PrivacyError
from sottovoce.estimators import PrivateLogisticRegression, PrivateRobustRegressor
from sottovoce.privacy import BudgetAccountant

# Hardly any noise, to compare with what others compute; that it protects nothing is said, and tested elsewhere.
pytestmark = pytest.mark.filterwarnings("ignore:epsilon=.* protects next to nothing")

PUBLIC = {"data_norm": 3.0, "classes": ["no", "yes"]}

# -- budgets -----------------------------------------------------------------------------------------------------------


def test_a_fit_is_charged_before_it_is_computed(two, quick, monkeypatch):
    accountant = BudgetAccountant(1.5, 1e-5)
    model = PrivateLogisticRegression(1.0, **quick, **PUBLIC, accountant=accountant).fit(*two)
    assert accountant.events == (model.privacy_.event,)
    monkeypatch.setattr(IPADMM, "release", lambda *_, **__: pytest.fail("computed"))
    with pytest.raises(BudgetError, match=r"within the cap epsilon=1\.5"):
        model.set_params(epsilon=1.4).fit(*two)
    assert len(accountant) == 1
    with pytest.raises(NotFittedError):
        model.predict(two[0])


def test_what_fails_on_the_way_is_paid_for(two, quick, monkeypatch):
    accountant = BudgetAccountant(1.5, 1e-5)
    monkeypatch.setattr(IPADMM, "release", lambda *_, **__: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        PrivateLogisticRegression(1.0, **quick, **PUBLIC, accountant=accountant).fit(*two)
    assert len(accountant) == 1


def test_bad_input_costs_nothing(two, quick):
    X, y = two
    accountant = BudgetAccountant(1.5, 1e-5)
    for rows, labels in ((np.full_like(X, np.nan), y), (X, y[:-1]), (X, np.full_like(y, "never"))):
        with pytest.raises(ValueError, match=r"NaN|inconsistent|labels among"):
            PrivateLogisticRegression(1.0, **quick, **PUBLIC, accountant=accountant).fit(rows, labels)
    assert len(accountant) == 0


def test_the_accountant_of_a_block(two, quick):
    with BudgetAccountant(2.0, 1e-5) as accountant:
        PrivateLogisticRegression(1.0, **quick, **PUBLIC).fit(*two)
        own = BudgetAccountant(2.0, 1e-5)
        PrivateLogisticRegression(1.0, **quick, **PUBLIC, accountant=own).fit(*two)
    PrivateLogisticRegression(1.0, **quick, **PUBLIC).fit(*two)
    assert len(accountant) == len(own) == 1


@pytest.mark.filterwarnings("ignore:With epsilon = inf:sottovoce.errors.PrivacyLeakWarning")
def test_no_budget_pays_for_no_noise(two, quick):
    with pytest.raises(BudgetError, match="would cost epsilon=inf"):
        PrivateLogisticRegression(math.inf, **quick, **PUBLIC, accountant=BudgetAccountant(100.0, 1e-5)).fit(*two)


def test_copies_share_their_accountant(two, quick):
    accountant = BudgetAccountant(10.0, 1e-5)
    model = PrivateLogisticRegression(1.0, **quick, **PUBLIC, accountant=accountant)
    assert clone(model).accountant is accountant
    scores = cross_val_score(model, *two, cv=3, error_score="raise")
    assert len(scores) == len(accountant) == 3
    with pytest.raises(PrivacyError, match="set its accountant to None"):
        pickle.dumps(model)


def test_no_process_escapes_the_accountant_of_a_block(two, quick):
    model = PrivateLogisticRegression(1.0, **quick, **PUBLIC)
    with BudgetAccountant(2.0, 1e-5):
        with pytest.raises(PrivacyError, match="in another process nobody would charge it"):
            pickle.dumps(model)
        assert pickle.loads(pickle.dumps(model.fit(*two))).privacy_ == model.privacy_
    assert pickle.loads(pickle.dumps(clone(model))).get_params() == model.get_params()


def test_a_grid_on_private_rows_is_charged_fit_by_fit(two, quick):
    accountant = BudgetAccountant(2.0, 1e-5)
    model = PrivateLogisticRegression(1.0, **quick, **PUBLIC, accountant=accountant)
    grid = GridSearchCV(model, {"lam": [1e-4, 1e-2]}, cv=2, error_score="raise")
    with pytest.raises(BudgetError):
        grid.fit(*two)
    assert accountant.total().epsilon <= 2.0
    assert 1 < len(accountant) < 5


# -- sites -------------------------------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore:The noise came from a seed:sottovoce.errors.PrivacyLeakWarning")
def test_site_labels_say_who_holds_what(two, quick):
    X, y = two
    labels = np.repeat(["west", "north", "east"], [150, 100, 50])
    order = np.random.default_rng(0).permutation(300)
    model = PrivateLogisticRegression(1.0, **quick, **PUBLIC, random_state=0, graph="ring")
    sorted_rows = model.fit(X, y, sites=labels).coef_
    assert model.n_sites_ == 3
    assert model.site_rows_ == (50, 100, 150)
    mixed = model.fit(X[order], y[order], sites=labels[order].tolist()).coef_
    assert mixed == pytest.approx(sorted_rows, abs=1e-12)


def test_rows_are_dealt_out_evenly_and_all_of_them(two, quick):
    model = PrivateLogisticRegression(1.0, **quick, **PUBLIC, sites=7).fit(*two)
    assert model.site_rows_ == (43, 43, 43, 43, 43, 43, 42)
    assert model.n_sites_ == 7


def test_every_site_adds_noise_for_its_own_few_rows(quick):
    """30 sites of 10 rows: the spread of the consensus after one step, by hand."""
    X, y = np.zeros((300, 2)), np.tile([0, 1], 150)
    one = {**quick, "algorithm": replace(quick["algorithm"], rounds=1, local_steps=1, diameter=1.0), "lam": 0.0}
    model = PrivateLogisticRegression(1.0, **one, sites=30, data_norm=2.0, classes=[0, 1])
    found = [model.fit(X, y).coef_ for _ in range(150)]
    noise = 2 * model.privacy_.sigma / 10  # on a gradient, c1 = 1
    eta = math.sqrt(2) * math.sqrt(1 + 3 * noise**2)
    std = noise / (eta + 2 * 1e-2 * 29) / math.sqrt(30)
    assert np.std(found) == pytest.approx(std / (2.0 * math.sqrt(1.25)), rel=0.25)


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (["a"] * 299, "inconsistent numbers of samples"),
        ([["a", "b"]] * 300, "should be a 1d array"),
        ([None] + ["a"] * 299, "a site for every row"),
        ([np.nan] + [1.0] * 299, "a site for every row"),
    ],
)
def test_bad_site_labels(two, quick, labels, message):
    with pytest.raises(ValueError, match=message):
        PrivateLogisticRegression(1.0, **quick, **PUBLIC).fit(*two, sites=labels)


def test_graphs(two, quick):
    given = PrivateLogisticRegression(1.0, **quick, **PUBLIC, sites=5, graph=graphs.star(5)).fit(*two)
    assert given.n_sites_ == 5
    alone = PrivateLogisticRegression(1.0, **quick, **PUBLIC, graph="ring").fit(*two)
    assert alone.n_sites_ == 1
    with pytest.raises(InputError, match="one node for every site"):
        given.set_params(sites=4).fit(*two)


def test_site_labels_are_routed(two, quick):
    X, y = two
    labels = np.tile([0, 1, 2], 100)
    with config_context(enable_metadata_routing=True):
        model = PrivateLogisticRegression(1.0, **quick, **PUBLIC).set_fit_request(sites=True)
        flow = make_pipeline(StandardScaler(), model).fit(X, y, sites=labels)
        assert flow[-1].n_sites_ == 3
        grid = GridSearchCV(model, {"lam": [1e-4, 1e-3]}, cv=GroupKFold(3)).fit(X, y, sites=labels, groups=labels)
        assert grid.best_estimator_.n_sites_ == 3
    grid = GridSearchCV(model, {"lam": [1e-4]}, cv=2).fit(X, y, sites=labels)
    assert grid.best_estimator_.n_sites_ == 3


# -- public data: everything goes --------------------------------------------------------------------------------------


def test_a_grid_of_pipelines_on_public_data(quick):
    X, y = load_breast_cancer(return_X_y=True)
    model = PrivateLogisticRegression(5.0, **quick, data_norm=5.0, classes=[0, 1])
    flow = make_pipeline(StandardScaler(), model)
    values = {"privatelogisticregression__epsilon": [0.001, 5.0], "privatelogisticregression__sites": [1, 2]}
    grid = GridSearchCV(flow, values, cv=3).fit(X, y)
    assert grid.best_params_["privatelogisticregression__epsilon"] == 5.0
    assert grid.score(X, y) > 0.9


def test_several_classes_on_public_data(quick):
    X, y = load_iris(return_X_y=True)
    model = PrivateLogisticRegression(30.0, **quick, data_norm=10.0, classes=[0, 1, 2])
    assert cross_val_score(model, X, y, cv=3).mean() > 0.7


# -- copies and files --------------------------------------------------------------------------------------------------


def test_pickled_and_back(two, numbers, quick):
    for model, (X, y) in (
        (PrivateLogisticRegression(1.0, **quick, **PUBLIC, sites=2), two),
        (PrivateRobustRegressor(1.0, **quick, data_norm=3.0, y_bounds=(0, 100)), numbers),
    ):
        model.fit(X, y)
        back = pickle.loads(pickle.dumps(model))
        assert (back.predict(X) == model.predict(X)).all()
        assert back.privacy_ == model.privacy_
        assert repr(back) == repr(model)


def test_a_copy_is_not_fitted(two, quick):
    model = PrivateLogisticRegression(1.0, **quick, **PUBLIC).fit(*two)
    assert clone(model).get_params() == model.get_params()
    with pytest.raises(NotFittedError):
        clone(model).predict(two[0])


@pytest.mark.parametrize("case", ["two", "three", "numbers"])
@pytest.mark.parametrize("intercept", [True, False])
def test_as_a_model_file(case, intercept, quick, tmp_path, request):
    from sottovoce import models

    X, y = request.getfixturevalue(case)
    given = {**quick, "data_norm": 3.0, "fit_intercept": intercept}
    if case == "numbers":
        fitted = PrivateRobustRegressor(1.0, **given, y_bounds=(0, 100)).fit(X, y)
    else:
        fitted = PrivateLogisticRegression(1.0, **given, classes=np.unique(y).tolist()).fit(X, y)
    models.save(fitted.to_model(), tmp_path / "model.safetensors")
    model = models.load(tmp_path / "model.safetensors")
    assert model.privacy == fitted.privacy_
    assert model.provenance["rows"] == {"site-1": len(y)}
    extended = np.hstack([X, np.ones((len(X), 1))]) if intercept and case != "numbers" else X
    if case == "numbers":
        assert model.names == ("x0", "x1", "x2")
        assert model.decide(extended) == pytest.approx(fitted.predict(X))
    else:
        assert model.names[-1] == ("intercept" if intercept else f"x{X.shape[1] - 1}")
        assert [model.classes[i] for i in model.decide(extended)] == [str(name) for name in fitted.predict(X).tolist()]
        assert model.probabilities(extended) == pytest.approx(fitted.predict_proba(X))


def test_as_a_model_with_a_schema(quick):
    from sottovoce.files.schema import ClassLabel, Numeric, Schema

    schema = Schema(
        columns=(Numeric(name="age", bounds=(0.0, 100.0), scale="unit"),),
        label=ClassLabel(column="ill", classes=("no", "yes")),
    )
    X, y = np.array([[0.1, 0.7], [0.6, 0.7]] * 20), np.array(["no", "yes"] * 20)
    given = {**quick, "data_norm": schema.data_norm, "classes": ["no", "yes"]}
    fitted = PrivateLogisticRegression(1.0, **given, fit_intercept=False).fit(X, y)
    model = fitted.to_model(schema)
    assert model.names == ("age", "intercept")
    assert model.schema == schema
    assert model.privacy.notes == ()
    (note,) = fitted.to_model(replace(schema, unreviewed=("columns.age.bounds",))).privacy.notes
    assert "columns.age.bounds" in note
    with pytest.raises(InputError, match="Fit with fit_intercept=False"):
        PrivateLogisticRegression(1.0, **given).fit(X, y).to_model(schema)
    with pytest.raises(NotFittedError):
        PrivateLogisticRegression().to_model()
