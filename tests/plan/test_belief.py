"""What is stated of the labels: made-up tables keep to it, plans and forecasts follow it, nonsense is refused."""

import math

import numpy as np
import pytest

from sottovoce import graphs
from sottovoce.errors import InputError
from sottovoce.plan import plan
from sottovoce.plan.predict import interval, no_model
from sottovoce.plan.surrogate import surrogate
from sottovoce.plan.synthetic import AMONG, EXPLAINED, MOST_ATTRIBUTES, Belief, table
from sottovoce.problem.losses import Huber, Logistic, Poisson, Softmax
from sottovoce.settings.supplied import PREDICTABILITY, Supplied

SMALL = {"sizes": [800] * 3, "d": 8, "graph": graphs.complete(3), "epsilon": 1.0, "max_rounds": 12}


def explained(data, loss):
    return 1 - surrogate(data, loss, ridge=1e-6).best / no_model(data, loss)


@pytest.mark.parametrize("rate", [0.02, 0.3, 0.9])
def test_tables_have_the_stated_base_rate(rate):
    shares = [np.mean(table(4000, 12, Logistic(), seed=s, belief=Belief(base_rate=rate)).labels == 1) for s in range(4)]
    assert np.mean(shares) == pytest.approx(rate, rel=0.15)


@pytest.mark.parametrize(("loss", "share"), [(Logistic(), 0.1), (Logistic(), 0.6), (Softmax(4), 0.4), (Huber(), 0.5)])
def test_the_best_model_explains_what_was_stated(loss, share):
    belief = Belief.of(Supplied(predictability=share), loss)
    found = [explained(table(4000, 12, loss, seed=s, belief=belief), loss) for s in range(4)]
    assert np.mean(found) == pytest.approx(share, abs=0.06)


def test_an_auc_is_a_rank():
    data = table(
        6000, 12, Logistic(), seed=1, belief=Belief.of(Supplied(base_rate=0.2, predictability="auc=0.85"), Logistic())
    )
    from sklearn.linear_model import LogisticRegression
    from sklearn.metrics import roc_auc_score

    model = LogisticRegression(C=1e4, max_iter=2000).fit(data.features, data.labels)
    assert roc_auc_score(data.labels, model.decision_function(data.features)) == pytest.approx(0.85, abs=0.03)


def test_classes_are_as_frequent_as_stated():
    shares = (0.6, 0.3, 0.1)
    labels = table(6000, 12, Softmax(3), seed=2, belief=Belief(base_rate=shares)).labels
    assert np.bincount(labels.astype(int)) / 6000 == pytest.approx(shares, abs=0.03)


def test_numbers_lie_in_their_bounds_and_spread_as_stated():
    labels = table(4000, 12, Huber(), seed=3, belief=Belief(label_spread=0.2)).labels
    assert np.abs(labels).max() <= 1
    assert labels.std() == pytest.approx(0.2, rel=0.15)


@pytest.mark.parametrize(("rate", "share"), [(0.01, 0.1), (0.1, 0.3), (0.3, 0.6)])
def test_counts_have_the_stated_mean_and_explained_deviance(rate, share):
    """scikit-learn's Poisson regression finds as much deviance explained as was stated."""
    from sklearn.linear_model import PoissonRegressor
    from sklearn.metrics import d2_tweedie_score

    found = []
    for seed in range(4):
        data = table(6000, 10, Poisson(), seed=seed, belief=Belief(base_rate=rate, explained=(share, share)))
        assert 0 <= data.labels.min() <= data.labels.max() <= 1
        assert data.labels.mean() == pytest.approx(rate, rel=0.2)
        features = data.features.toarray()
        model = PoissonRegressor(alpha=1e-9, max_iter=2000, fit_intercept=False).fit(features, data.labels)
        found.append(d2_tweedie_score(data.labels, model.predict(features), power=1))
    assert np.mean(found) == pytest.approx(share, abs=0.07)


def test_counts_spread_as_stated():
    labels = table(6000, 10, Poisson(), seed=2, belief=Belief(base_rate=0.05, label_spread=0.14)).labels
    assert labels.std() == pytest.approx(0.07, rel=0.2)


def test_counts_have_exposures_and_no_model_knows_of_them():
    data = table(6000, 8, Poisson(), seed=4, belief=Belief(base_rate=0.02), exposed=True)
    exposures = np.exp(data.factors.shifts)
    assert 0 < exposures.min() < 0.5 < exposures.max() <= 1
    assert data.labels.mean() == pytest.approx(0.02, rel=0.15)
    rate = data.labels.sum() / exposures.sum()  # the best constant rate of a Poisson law, in closed form
    means = rate * exposures
    assert means.max() < 1  # so nothing is clipped
    assert no_model(data, Poisson()) == pytest.approx(np.mean(means - data.labels * np.log(means)), rel=1e-4)
    plain = table(6000, 8, Poisson(), seed=4, belief=Belief(base_rate=0.02))
    m = plain.labels.mean()
    assert plain.factors.shifts is None
    assert no_model(plain, Poisson()) == pytest.approx(m * (1 - math.log(m)), rel=1e-4)


def test_tables_in_a_row_span_what_may_be_explained():
    """Told nothing of it, ten tables lie at 5, 15, ... 95 % of what was found on real ones, by scikit-learn's fit."""
    from sklearn.linear_model import LinearRegression

    found = []
    for seed in range(1000, 1000 + AMONG):
        data = table(6000, 8, Huber(), seed=seed, belief=Belief(label_spread=0.2))
        found.append(LinearRegression().fit(data.features.toarray(), data.labels).score(data.features, data.labels))
    wanted = np.interp((np.arange(AMONG) + 0.5) / AMONG, (0.05, 0.25, 0.5, 0.75, 0.95), EXPLAINED["numbers"])
    assert found == pytest.approx(wanted, abs=0.05)


@pytest.mark.parametrize("d", [1, 2, 3, 20, 400])
def test_rows_are_as_a_schema_scales_them(d):
    for seed in range(4):
        features = table(500, d, Logistic(), seed=seed).features.toarray()
        assert features.shape == (500, d)
        assert np.linalg.norm(features, axis=1).max() <= 1
        assert (features != 0).sum(axis=1).max() <= MOST_ATTRIBUTES + 1
        if d >= 3:  # a constant, as large as the largest entry: that of an attribute at its bound
            assert np.ptp(features[:, 0]) == 0
            assert features[0, 0] == pytest.approx(features.max(initial=0.0))


def test_no_model_is_the_best_constant():
    data = table(4000, 5, Logistic(), seed=0, belief=Belief(base_rate=0.1))
    p = float(np.mean(data.labels == 1))
    assert no_model(data, Logistic()) == pytest.approx(-p * math.log(p) - (1 - p) * math.log(1 - p), rel=1e-4)
    numbers = table(4000, 5, Huber(), seed=0)
    assert no_model(numbers, Huber()) == pytest.approx(numbers.labels.var() / 2, rel=0.02)


def test_what_is_stated_narrows_the_forecast():
    """A rare label has a small loss, and who says so is told so."""
    open_, rare = plan(**SMALL).predicted, plan(**SMALL, base_rate=0.02, predictability="hardly").predicted
    assert rare.joined.mean < 0.2 < open_.joined.mean
    assert rare.joined.high / rare.joined.low < 0.5 * open_.joined.high / open_.joined.low
    assert rare.nothing.low < 0.098 < rare.nothing.high  # the entropy of 2 %


def test_the_mean_of_counts_narrows_the_forecast():
    counts = SMALL | {"loss": Poisson()}
    open_, told = plan(**counts).predicted.masked, plan(**counts, base_rate=0.05).predicted.masked
    assert told.high / told.low < 0.2 * open_.high / open_.low
    assert told.low < 0.05 * (1 - math.log(0.05)) < told.high * 1.2


def test_the_more_predictable_the_less_is_lost():
    means = [plan(**SMALL, base_rate=0.3, predictability=word).predicted.together.mean for word in PREDICTABILITY]
    assert means == sorted(means, reverse=True)


def test_an_interval_holds_its_tables_and_little_beyond():
    found = interval(np.array([0.1, 0.2, 0.3, 0.4, 0.5]))
    assert found.mean == pytest.approx(0.3)
    assert 0.1 / 1.06 < found.low < 0.1
    assert 0.5 < found.high < 0.5 * 1.06


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"base_rate": 1.5}, "base_rate between 0 and 1, got base_rate=1.5"),
        ({"base_rate": (0.5, 0.5)}, "one share, that of the positive class, of two classes"),
        ({"base_rate": (0.5, 0.6), "loss": Softmax(2)}, "shares of all classes, which add up to 1"),
        ({"base_rate": 0.1, "loss": Softmax(3)}, "base_rate as 3 shares"),
        ({"base_rate": 0.1, "loss": Huber()}, "no base_rate for labels that are numbers"),
        ({"base_rate": (0.5, 0.5), "loss": Poisson()}, "base_rate as one number, the mean over the largest"),
        ({"exposed": True}, "a loss for counts with exposed=True, got loss='logistic'"),
        ({"label_spread": 0.1}, "label_spread for labels that are numbers"),
        ({"label_spread": 2.0, "loss": Huber()}, "label_spread in"),
        ({"predictability": "quite"}, "one of hardly, somewhat, well, almost, .* got predictability='quite'"),
        ({"predictability": 1.0}, "got predictability=1.0"),
        ({"predictability": "auc=0.4"}, "got predictability='auc=0.4'"),
        ({"predictability": "auc=0.8", "loss": Huber()}, "as a word or a share, unless there are two classes"),
        ({"colluding": 3}, r"colluding in 0 .. 2, got colluding=3"),
    ],
)
def test_refusals(change, message):
    with pytest.raises(InputError, match=message):
        plan(**(SMALL | change))
