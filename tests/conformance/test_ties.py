"""A prediction that says nothing (z = 0) means the second class, wherever a class is made of it; among equal largest
numbers the first wins.
"""

import numpy as np
import pytest

import sottovoce as sv
from sottovoce import losses, models
from sottovoce.cli.demo import scoring
from sottovoce.estimators import PrivateLinearSVC, PrivateLogisticRegression
from sottovoce.files.models import apply
from sottovoce.files.schema import ClassLabel, Numeric, Schema
from sottovoce.oracle.cpu import CompiledOracle
from sottovoce.oracle.plain import Oracle
from sottovoce.privacy import Gaussian, PrivacyStatement

MARGINS = [losses.Logistic(), losses.Hinge(), losses.SmoothedHinge()]
ROWS = np.array([[0.5, 0.0], [0.0, 0.5], [-0.5, 0.5]])  # with w = (0, 1) of sign 0, + and +; with (1, 0) +, 0 and -
WEIGHTS = np.array([[0.0, 1.0], [1.0, 0.0], [-0.0, -0.0], [0.0, 0.0]]).T
SIGNS = np.array([[1, 1, 1], [1, 1, -1], [1, 1, 1], [1, 1, 1]])


def statement():
    return PrivacyStatement(
        event=Gaussian(1.0), epsilon=5.0, target_epsilon=5.0, delta=1e-5, calibration="exact", sigma=1.0, released="x"
    )


def model(weights, loss, **more):
    return models.Model(
        weights=weights, loss=loss, names=("a", "b"), classes=("no", "yes"), privacy=statement(), **more
    )


@pytest.mark.parametrize("loss", MARGINS, ids=lambda loss: loss.name)
@pytest.mark.parametrize("kind", [Oracle, CompiledOracle])
@pytest.mark.parametrize("sparse", [False, True])
def test_accuracy_counts_a_tie_as_plus_one(loss, kind, sparse):
    from scipy.sparse import csr_array

    sites = sv.Sites([csr_array(ROWS) if sparse else ROWS], [[1.0, 1.0, 1.0]])
    site = kind(sites, 1, loss, np.array([0]), sv.regularisers.L2(), 0.1)
    assert site.score(WEIGHTS).accuracy.tolist() == (SIGNS == 1).mean(axis=1).tolist()


@pytest.mark.parametrize("loss", MARGINS, ids=lambda loss: loss.name)
def test_losses_and_models_decide_alike(loss):
    for w, signs in zip(WEIGHTS.T, SIGNS, strict=True):
        assert loss.predict(ROWS @ w).tolist() == signs.tolist()
        assert model(w[:, None], loss).decide(ROWS).tolist() == (signs > 0).tolist()


@pytest.mark.parametrize("kind", [PrivateLogisticRegression, PrivateLinearSVC])
def test_estimators_and_what_they_export_decide_alike(kind):
    fitted = kind(epsilon=1.0, delta=1e-5, data_norm=1.0, classes=["no", "yes"], fit_intercept=False).fit(
        ROWS, ["no", "yes", "no"]
    )
    for w, signs in zip(WEIGHTS.T, SIGNS, strict=True):
        fitted.coef_, fitted.intercept_ = w[None], np.zeros(1)
        assert fitted.predict(ROWS).tolist() == ["yes" if sign > 0 else "no" for sign in signs]
        assert fitted.to_model().decide(ROWS).tolist() == (signs > 0).tolist()


def test_of_several_classes_the_first_wins():
    loss, rows = losses.Softmax(3), np.eye(2)
    weights = np.array([[0.0, 1.0, 1.0], [0.0, 0.0, 0.0]])
    z = rows @ weights
    assert loss.predict(z).tolist() == [1, 0]
    several = models.Model(weights=weights, loss=loss, names=("a", "b"), classes=("x", "y", "z"), privacy=statement())
    assert several.decide(rows).tolist() == [1, 0]
    fitted = PrivateLogisticRegression(
        epsilon=1.0, delta=1e-5, data_norm=1.0, classes=["x", "y", "z"], fit_intercept=False
    ).fit(np.eye(2).repeat(2, 0), ["x", "y", "z", "x"])
    fitted.coef_, fitted.intercept_ = weights.T, np.zeros(3)
    assert fitted.predict(rows).tolist() == ["y", "x"]


def test_a_model_file_and_its_figures_say_the_same(tmp_path):
    """Dose 0 is a feature of 0, and so a tie."""
    schema = Schema(
        columns=(Numeric(name="dose", bounds=(-1.0, 1.0), scale="symmetric"),),
        label=ClassLabel(column="ill", classes=("no", "yes")),
        intercept=0.0,
    )
    made = models.Model(
        weights=np.ones((1, 1)), loss=losses.Logistic(), names=schema.feature_names, classes=("no", "yes"),
        privacy=statement(), schema=schema,
    )  # fmt: skip
    models.save(made, tmp_path / "model.safetensors")
    loaded = models.load(tmp_path / "model.safetensors")
    (tmp_path / "rows.csv").write_text("dose,ill\n-1,yes\n0,yes\n1,yes\n0,no\n")
    apply.write_predictions(loaded, tmp_path / "rows.csv", tmp_path / "out.csv")
    lines = (tmp_path / "out.csv").read_text().splitlines()[1:]
    assert [line.split(",")[1] for line in lines] == ["no", "yes", "yes", "yes"]
    found = apply.evaluate(loaded, tmp_path / "rows.csv")
    assert (found.figures.accuracy, found.confusion) == (0.5, ((0, 1), (1, 2)))


def test_the_demo_s_simulated_accuracy_is_by_the_same_rule():
    site = CompiledOracle(
        sv.Sites([ROWS], [np.ones(3)]), 1, losses.Logistic(), np.array([0]), sv.regularisers.L2(), 0.1
    )
    assert scoring.mean_scores(site, WEIGHTS[None]).accuracy.tolist() == [1, 2 / 3, 1, 1]
