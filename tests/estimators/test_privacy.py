"""What the guarantee rests on: bounded rows, a constant that counts, noise of the right size, and honest words."""

import math
import pickle
import warnings
from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from sottovoce import MaskedNewton, privacy
from sottovoce.algorithms import ADMM, DPADMM, IPADMM
from sottovoce.errors import InputError, PrivacyError, PrivacyLeakWarning
from sottovoce.estimators import (
    PrivateLinearRegression,
    PrivateLinearSVC,
    PrivateLogisticRegression,
    PrivatePoissonRegressor,
    PrivateRobustRegressor,
    training,
)
from sottovoce.estimators.scaling import CONSTANT, Scale

SEEDED = "ignore:The noise came from a seed:sottovoce.errors.PrivacyLeakWarning"
ONE_STEP = {
    "algorithm": IPADMM(rounds=1, local_steps=1, rho=1e-2, diameter=1.0), "lam": 0.0, "device": "plain"
}  # fmt: skip
CLASSES = [-1.0, 1.0]


def step_size(sigma, rows, d, c1):
    """1 / eta of the first step, by Theorem 3's formula, with D = 1 and no penalty."""
    return 1 / (math.sqrt(2) * math.sqrt(c1**2 + d * (2 * c1 * sigma / rows) ** 2))


def inner_model(model, norm):
    """coef_ and intercept_ as the algorithm saw them."""
    longest = math.sqrt(1 + CONSTANT**2)
    return np.append(model.coef_.ravel() * norm, model.intercept_ / CONSTANT) * longest


# -- rows --------------------------------------------------------------------------------------------------------------


@settings(max_examples=50)
@given(st.integers(0, 2**32), st.floats(-9, 9), st.sampled_from([0.0, CONSTANT]))
def test_no_row_is_longer_than_one_and_short_rows_keep_their_meaning(seed, magnitude, constant):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(20, 6)) * 10.0 ** rng.uniform(-3, 3, size=(20, 1)) * (rng.random((20, 6)) < 0.6)
    scale = Scale(10.0**magnitude, constant)
    rows = scale.bounded(X)
    assert np.linalg.norm(rows, axis=1).max() <= 1 + 1e-12
    assert scale.bounded(sp.csr_array(X)).toarray() == pytest.approx(rows, abs=1e-15)
    weights = rng.normal(size=(rows.shape[1], 2))
    coef, intercept = scale.restored(weights)
    short = np.linalg.norm(X, axis=1) <= scale.data_norm
    assert (X @ coef + intercept)[short] == pytest.approx((rows @ weights)[short], abs=1e-9)


def test_a_row_beyond_all_bounds_is_still_bounded():
    rows = Scale(1.0, CONSTANT).bounded(np.array([[1e200, 1e200], [3.0, 4.0]]))
    assert np.linalg.norm(rows, axis=1).max() <= 1 + 1e-12
    assert rows[1] * math.sqrt(1.25) == pytest.approx([0.6, 0.8, 0.5])


# -- sensitivity and noise of a whole fit ------------------------------------------------------------------------------


@pytest.mark.filterwarnings(SEEDED)
@settings(max_examples=40)
@given(st.integers(0, 2**32), st.floats(-2, 6), st.sampled_from(CLASSES))
def test_another_row_moves_a_step_by_no_more_than_the_noise_is_made_for(seed, magnitude, label):
    rng = np.random.default_rng(seed)
    X, y = rng.normal(size=(12, 3)), rng.choice(CLASSES, size=12)
    model = PrivateLinearSVC(1.0, **ONE_STEP, loss="hinge", data_norm=2.0, classes=CLASSES, random_state=5)
    before = inner_model(model.fit(X, y), 2.0)
    X[4], y[4] = rng.normal(size=3) * 10.0**magnitude, label
    after = inner_model(model.fit(X, y), 2.0)
    allowed = 2 / 12 * step_size(model.privacy_.sigma, 12, 4, 1.0)
    assert np.linalg.norm(after - before) <= allowed * (1 + 1e-9)


@pytest.mark.filterwarnings(SEEDED)
def test_the_bound_is_attained_with_the_constant_counted_in():
    X, y = np.zeros((12, 3)), np.array(CLASSES * 6)
    X[0] = [0.0, 2.0, 0.0]
    model = PrivateLinearSVC(1.0, **ONE_STEP, loss="hinge", data_norm=2.0, classes=CLASSES, random_state=5)
    before = inner_model(model.fit(X, y), 2.0)
    y[0] = -y[0]
    after = inner_model(model.fit(X, y), 2.0)
    allowed = 2 / 12 * step_size(model.privacy_.sigma, 12, 4, 1.0)
    assert np.linalg.norm(after - before) == pytest.approx(allowed)


@pytest.mark.parametrize("classes", [2, 3])
def test_the_noise_of_the_operating_system_is_large_enough(classes):
    """One step from zero on rows whose gradients cancel: what is left is noise, of a known size."""
    labels = list(range(classes))
    X, y = np.zeros((30, 5)), np.tile(labels, 30 // classes)
    # With these diameter and sigma the noise is alone: the constant's slopes add up to nothing.
    model = PrivateLogisticRegression(1.0, **ONE_STEP, data_norm=1.0, classes=labels)
    found = [inner_model(model.fit(X, y), 1.0) if classes == 2 else model.fit(X, y).coef_ for _ in range(150)]
    c1, d = (1.0, 6) if classes == 2 else (math.sqrt(2), 18)
    std = 2 * c1 * model.privacy_.sigma / 30 * step_size(model.privacy_.sigma, 30, d, c1)
    if classes == 3:  # the mean over classes was taken off, and rows were scaled
        std *= math.sqrt(2 / 3) / math.sqrt(1 + CONSTANT**2)
    assert np.std(found) == pytest.approx(std, rel=0.15)
    assert abs(np.mean(found)) < 6 * std / math.sqrt(np.size(found))


def test_two_fits_differ(two, quick):
    model = PrivateLogisticRegression(1.0, **quick, data_norm=3.0, classes=["no", "yes"])
    assert not np.array_equal(model.fit(*two).coef_, model.fit(*two).coef_)


def test_rows_are_private_unless_a_seed_says_that_this_is_a_test(two, quick, monkeypatch):
    seen = []
    engine = training.solve

    def solve(problem, *rest, **more):
        seen.append((problem.sites.private, more["seed"]))
        return engine(problem, *rest, **more)

    monkeypatch.setattr(training, "solve", solve)
    public = {**quick, "data_norm": 3.0, "classes": ["no", "yes"]}
    PrivateLogisticRegression(1.0, **public).fit(*two)
    with pytest.warns(PrivacyLeakWarning, match="noise came from a seed"):
        PrivateLogisticRegression(1.0, **public, random_state=1).fit(*two)
    assert seen[0] == (True, None)
    assert seen[1][0] is False
    assert isinstance(seen[1][1], int)


# -- statements --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("labels", ["two", "three"])
@pytest.mark.parametrize("epsilon", [0.3, 4.0])
def test_one_budget_whatever_the_number_of_classes(labels, epsilon, quick, request):
    X, y = request.getfixturevalue(labels)
    classes = np.unique(y).tolist()
    model = PrivateLogisticRegression(epsilon, **quick, delta=1e-6, data_norm=3.0, classes=classes, sites=3).fit(X, y)
    said = model.privacy_
    assert 0.999 * epsilon < said.epsilon <= epsilon
    assert said.delta == 1e-6
    assert privacy.epsilon(said.event, 1e-6) == said.epsilon
    assert said.event == privacy.Repeated(privacy.Repeated(privacy.Gaussian(said.sigma), 5), 20)
    assert said.notes == ()


def test_no_warning_if_everything_public_is_given(two, numbers, quick):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        PrivateLogisticRegression(1.0, **quick, data_norm=3.0, classes=["no", "yes"]).fit(*two)
        PrivateLinearSVC(1.0, **quick, data_norm=3.0, classes=["no", "yes"]).fit(*two)
        PrivateRobustRegressor(1.0, **quick, data_norm=3.0, y_bounds=(0, 100)).fit(*numbers)


@pytest.mark.parametrize(
    ("change", "note"),
    [
        ({"data_norm": None}, "data_norm was computed from the private rows"),
        ({"classes": None}, "classes were taken from the private labels"),
        ({"random_state": 0}, "noise came from a seed"),
        ({"random_state": np.random.RandomState(0)}, "noise came from a seed"),
        ({"epsilon": math.inf}, "no noise is added"),
    ],
)
def test_what_is_not_covered_is_said_twice(two, quick, change, note):
    model = PrivateLogisticRegression(**{**quick, "data_norm": 3.0, "classes": ["no", "yes"], **change})
    with pytest.warns(PrivacyLeakWarning, match=note) as caught:
        model.fit(*two)
    assert len(caught) == 1
    assert caught[0].filename == __file__
    assert note in model.privacy_.prose()


def test_bounds_of_labels_read_off(numbers, quick):
    with pytest.warns(PrivacyLeakWarning, match="bounds of y were computed from"):
        model = PrivateRobustRegressor(1.0, **quick, data_norm=3.0).fit(*numbers)
    assert model.y_bounds_ == (numbers[1].min(), numbers[1].max())


@pytest.mark.filterwarnings("ignore:With epsilon = inf:sottovoce.errors.PrivacyLeakWarning")
def test_without_noise_there_is_no_promise(two, quick):
    model = PrivateLogisticRegression(math.inf, **quick, data_norm=3.0, classes=["no", "yes"]).fit(*two)
    assert not model.privacy_.private
    assert model.privacy_.prose().startswith("NOT PRIVATE")


def test_nothing_but_the_release_is_kept(two, quick):
    X, y = two
    model = PrivateLogisticRegression(1.0, **quick, data_norm=3.0, classes=["no", "yes"], sites=3).fit(X, y)
    fitted = {name for name in vars(model) if name.endswith("_")}
    assert fitted == {
        "classes_", "coef_", "inference_", "intercept_", "leaks_", "loss_", "n_features_in_", "n_iter_", "n_sites_",
        "plan_", "privacy_", "site_rows_", "weighted_",
    }  # fmt: skip
    assert model.inference_ is None  # it was not asked for; else it is a function of released sums alone
    content = pickle.dumps(model)
    for word in (
        b"history",
        b"History",
        b"risk",
        b"accuracy",
        b"seed",
        b"sottovoce.simulation",
        b"sottovoce.problem.sites",
    ):
        assert word not in content, word


def test_a_plan_follows_from_public_numbers_only(two):
    X, y = two
    model = PrivateLogisticRegression(2.0, data_norm=3.0, classes=["no", "yes"], algorithm="ipadmm", device="plain")
    settings_one = model.fit(X, y).plan_.settings
    assert settings_one["rounds"] == model.n_iter_
    assert model.fit(-5 * X, y[::-1]).plan_.settings == settings_one
    kept = pickle.loads(pickle.dumps(model)).plan_
    assert kept.settings == settings_one
    assert b"risk" not in pickle.dumps(model)


# -- algorithms --------------------------------------------------------------------------------------------------------


def test_an_algorithm_gets_the_guarantee_of_the_estimator(two):
    given = DPADMM(epsilon=50.0, delta=0.1, rounds=7, lam=3.0)
    model = PrivateLogisticRegression(0.5, data_norm=3.0, classes=["no", "yes"], algorithm=given, device="plain")
    model.fit(*two)
    assert model.n_iter_ == 7
    assert model.plan_ is None
    assert model.privacy_.epsilon <= 0.5
    assert model.privacy_.delta == 1e-5
    assert given.epsilon == 50.0


@pytest.mark.parametrize(
    ("model", "told"),
    [(PrivateLinearSVC(loss="huber"), "got loss='huber'"),
     (PrivateRobustRegressor(loss="hinge"), "got loss='hinge'"),
     (PrivateRobustRegressor(loss="poisson"), "got loss='poisson'"),
     (PrivateRobustRegressor(), "labels that are numbers in a regression, got text"),
     (PrivateLinearRegression(y_bounds=(0, 1)), "labels that are numbers in a regression, got text"),
     (PrivatePoissonRegressor(y_max=9), "labels that are numbers in a regression, got text")],
)  # fmt: skip
def test_a_loss_for_other_labels_is_refused_before_the_charge(two, model, told):
    x, y = two
    labels = np.where(y == y[0], "no", "yes") if "text" in told else np.arange(len(y)) % 2
    budget = privacy.BudgetAccountant(epsilon=1.0, delta=1e-5)
    with pytest.raises(InputError, match=told):
        model.set_params(epsilon=0.5, data_norm=1.0, accountant=budget).fit(x, labels)
    assert budget.events == ()


def test_settings_that_nothing_would_use_are_refused(two):
    for change, message in (
        ({"algorithm": ADMM(rounds=5)}, "a private algorithm"),
        ({"algorithm": "newton"}, "among masked, ipadmm, None, or a private algorithm"),
        ({"algorithm": IPADMM(), "inference": True}, "inference as a field of the algorithm"),
        ({"algorithm": "ipadmm", "inference": True}, "inference=False with algorithm='ipadmm'"),
        ({"graph": "ring", "sites": 4, "inference": True}, "a complete graph"),
    ):
        with pytest.raises(InputError, match=message):
            PrivateLogisticRegression(data_norm=3.0, classes=["no", "yes"], **change).fit(*two)


@pytest.mark.parametrize(
    ("change", "masked"),
    [({}, True), ({"sites": 3}, True), ({"sites": 3, "graph": "ring"}, False)],
)
def test_masked_sums_unless_something_speaks_against_them(two, change, masked):
    model = PrivateLogisticRegression(1.0, data_norm=3.0, classes=["no", "yes"], device="plain", **change).fit(*two)
    assert (model.plan_ is None) == masked
    assert ("second moments" in model.privacy_.released) == masked
    assert model.privacy_.epsilon <= 1.0


def test_a_loss_with_a_kink_is_learnt_by_ipadmm(two):
    svm = PrivateLinearSVC(1.0, loss="hinge", data_norm=3.0, classes=["no", "yes"], device="plain").fit(*two)
    assert svm.plan_ is not None


def test_what_masked_sums_assume_is_said_and_kept(two):
    given = {"data_norm": 3.0, "classes": ["no", "yes"], "device": "plain"}
    alone = PrivateLogisticRegression(1.0, **given).fit(*two).privacy_
    assert "whoever holds its rows is trusted" in alone.prose()
    several = PrivateLogisticRegression(
        1.0, **given, sites=6, algorithm=MaskedNewton(colluding=2, least_sites=5, spare=1, worst_case_epsilon=1.5)
    ).fit(*two)
    told = several.privacy_.prose()
    assert "at most 2 of the 6 sites collude" in told
    assert "at least 5 sites" in told
    assert "whoever runs it sees the rows of all sites" in told
    assert len(several.privacy_.observers) == 6
    assert several.privacy_.observers[-1].epsilon <= 1.5


def test_the_number_of_exchanges_follows_from_public_numbers_only(two):
    X, y = two
    model = PrivateLogisticRegression(2.0, data_norm=3.0, classes=["no", "yes"], device="plain")
    first = model.fit(X, y).n_iter_
    assert model.fit(-5 * X, y[::-1]).n_iter_ == first
    assert model.set_params(algorithm=MaskedNewton(rounds=3)).fit(X, y).n_iter_ == 3


def test_gradients_can_be_clipped(two, quick):
    """With clipping at 1/10 the noise is a tenth: eta scales with c1, so the models differ, not the statement."""
    given = {**quick, "data_norm": 3.0, "classes": ["no", "yes"]}
    short = replace(given["algorithm"], max_grad_norm=0.1)
    clipped = PrivateLogisticRegression(1.0, **given | {"algorithm": short}).fit(*two)
    assert clipped.privacy_.sigma == PrivateLogisticRegression(1.0, **given).fit(*two).privacy_.sigma
    with pytest.raises(InputError, match="max_grad_norm > 0"):
        PrivateLogisticRegression(1.0, **given | {"algorithm": replace(short, max_grad_norm=0.0)}).fit(*two)


def test_a_run_that_costs_more_than_asked_is_refused(two, quick, monkeypatch):
    honest = IPADMM.sigma
    monkeypatch.setattr(IPADMM, "sigma", lambda self, site: honest(self, site) * 0.99)
    monkeypatch.setattr(IPADMM, "release", lambda *_, **__: pytest.fail("computed"))
    with pytest.raises(PrivacyError, match=r"Expected a run within epsilon=1\.0"):
        PrivateLogisticRegression(1.0, **quick, data_norm=3.0, classes=["no", "yes"]).fit(*two)
