"""Public class weights: what they do to sensitivity, to decisions and to probabilities."""

import json
import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import sottovoce as sv
from algorithms.harness import hockey_stick
from algorithms.test_masked_privacy import transcript_loss
from sottovoce.errors import InputError, UnsupportedError
from sottovoce.estimators import PrivateLogisticRegression
from sottovoce.files.models import Model, to_sklearn
from sottovoce.files.models.onnx_graph import to_onnx
from sottovoce.oracle.cpu import CompiledOracle
from sottovoce.privacy import delta
from sottovoce.problem.losses import Logistic, WeightedLogistic
from sottovoce.studies.build import bind
from sottovoce.studies.config import TrainConfig

rng = np.random.default_rng(0)
KNOWN = {"delta": 1e-5, "data_norm": 2.0, "classes": [0, 1]}


def table(rows=20_000, rate=0.01):
    """A rare class, as likely as a logistic model with an intercept says."""
    x = rng.normal(size=(rows, 3)) / 2
    z = x @ [2.0, -1.0, 0.5] + math.log(rate / (1 - rate))
    return x, (rng.random(rows) < 1 / (1 + np.exp(-z))).astype(int)


@given(st.integers(0, 2**32 - 1))
@settings(max_examples=300)
def test_no_two_records_are_further_apart_than_the_spread(seed):
    draws = np.random.default_rng(seed)
    loss = WeightedLogistic(float(10 ** draws.uniform(-2, 2)))
    rows = draws.normal(size=(2, 3))
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    if draws.random() < 0.5:
        rows[1] = -rows[0]
    w, b = draws.normal(size=3) * 10 ** draws.uniform(-2, 1.5), draws.choice([-1.0, 1.0], size=2)
    slopes = loss.slope(rows @ w, b, loss.theta)
    assert np.abs(slopes).max() <= loss.slope_bound * (1 + 1e-12)
    apart = np.linalg.norm(slopes[0] * rows[0] - slopes[1] * rows[1])
    assert apart <= loss.spread(np.array(np.linalg.norm(w))) * (1 + 1e-12)


@pytest.mark.parametrize("weight", [30.0, 0.2])
def test_the_bound_is_attained_by_the_heavier_class(weight):
    """Two rows of the heavier class, turned round, at w = 0: slopes of weight / 2 each."""
    loss, label = WeightedLogistic(weight), 1.0 if weight > 1 else -1.0
    a = np.array([[1.0, 0.0]])
    sites = [sv.Sites([x], [[label]]) for x in (a, -a)]
    ours, theirs = (sv.MaskedNewton(loss=loss).oracle(s, sv.graphs.complete(1)) for s in sites)
    moved = np.linalg.norm(ours.gradient_sum(np.zeros((1, 2, 1))) - theirs.gradient_sum(np.zeros((1, 2, 1))))
    assert moved == pytest.approx(max(1.0, weight))
    assert moved == pytest.approx(ours.gradient_sum_sensitivity(np.zeros((1, 2, 1)), 1).item(), rel=2e-3)
    assert ours.sensitivity().item() == pytest.approx(2 * max(1.0, weight))


def test_no_transcript_tells_more_with_weights():
    """A record of the rare class for one of the other: noise for the plain loss would be caught."""
    a, labels = np.tile([[1.0, 0.0]], (10, 1)), -np.ones(10)
    other, turned = a.copy(), labels.copy()
    other[0], turned[0] = [0.8, 0.6], 1.0
    rest = np.array([[0.6, 0.8]]), np.array([1.0])
    pair = [sv.Sites([x, rest[0]], [y, rest[1]]) for x, y in ((a, labels), (other, turned))]
    algorithm = sv.MaskedNewton(epsilon=1.0, delta=0.05, colluding=0, rounds=4, loss=WeightedLogistic(10.0))
    for ours, theirs in (pair, pair[::-1]):
        loss, event = transcript_loss(algorithm, ours, theirs)
        for e in (0.0, 0.5, 1.0):
            assert hockey_stick(loss, e) <= delta(event, e)


@pytest.mark.parametrize("weight", [25.0, 0.3])
def test_the_compiled_form_is_the_plain_one(weight):
    features, labels = [rng.normal(size=(40, 4)) / 9 for _ in range(3)], [rng.choice([-1.0, 1.0], 40) for _ in range(3)]
    algorithm = sv.IPADMM(rounds=4, local_steps=3, diameter=2.0, loss=WeightedLogistic(weight))
    sites, graph = sv.Sites(features, labels), sv.graphs.ring(3)
    plain, fast = (sv.simulate(algorithm, sites, graph, runs=5, seed=1, device=name) for name in ("plain", "cpu"))
    np.testing.assert_allclose(fast.last, plain.last, rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(fast.consensus, plain.consensus, rtol=1e-10, atol=1e-12)
    assert algorithm.oracle(sites, graph, CompiledOracle).risk(np.ones((3, 4, 1))) == pytest.approx(
        algorithm.oracle(sites, graph).risk(np.ones((3, 4, 1)))
    )
    # A weight of one is no weight.
    one, none = (replace(algorithm, loss=loss) for loss in (WeightedLogistic(1.0), Logistic()))
    same = [sv.simulate(a, sites, graph, runs=2, seed=1).last for a in (one, none)]
    np.testing.assert_allclose(*same, rtol=1e-12)


def test_probabilities_stay_probabilities_and_decisions_weigh():
    """Without noise: the weighted fit finds the rare class, and its probabilities are near the true shares."""
    x, y = table()
    plain = PrivateLogisticRegression(math.inf, **KNOWN)
    model = PrivateLogisticRegression(math.inf, **KNOWN, class_weight={0: 1, 1: 99})
    for fitted in (plain, model):
        with pytest.warns(UserWarning, match="no noise"):
            fitted.fit(x, y)
    assert plain.predict(x).mean() < 0.01
    assert 0.15 < model.predict(x).mean() < 0.6
    assert np.mean(model.predict(x)[y == 1]) > 0.6
    for fitted in (plain, model):
        assert fitted.predict_proba(x)[:, 1].mean() == pytest.approx(y.mean(), rel=0.15)
    kept = model.to_model()
    features = np.hstack([x, np.ones((len(x), 1))])
    np.testing.assert_allclose(kept.probabilities(features), model.predict_proba(x), rtol=1e-9)
    assert np.array_equal(kept.decide(features), model.predict(x))
    with pytest.raises(UnsupportedError, match="Use ONNX"):
        to_sklearn(kept)


def test_a_graph_knows_the_weight():
    onnxruntime = pytest.importorskip("onnxruntime")
    privacy = sv.simulate(
        sv.MaskedNewton(rounds=2), sv.Sites([np.zeros((9, 1))], [np.ones(9)]), sv.graphs.complete(1), seed=0
    ).privacy
    model = Model(rng.normal(size=(3, 1)), WeightedLogistic(20.0), ("a", "b", "c"), ("no", "yes"), privacy)
    x = rng.normal(size=(30, 3))
    session = onnxruntime.InferenceSession(to_onnx(model).SerializeToString(), providers=["CPUExecutionProvider"])
    label, probabilities = session.run(["label", "probabilities"], {"features": x})
    np.testing.assert_allclose(probabilities, model.probabilities(x), rtol=1e-12)
    assert label.tolist() == [("no", "yes")[int(i)] for i in model.decide(x)]


@pytest.mark.parametrize("bad", [0.0, -1.0, math.nan, math.inf, 1e9])
def test_weights_that_make_no_sense_are_refused(bad):
    with pytest.raises(InputError, match=r"a weight of a class from .*Give a public number > 0"):
        WeightedLogistic(bad)


@pytest.mark.parametrize(
    "given", ["balanced", {0: 1}, {0: 1, 2: 3}, {0: 1, 1: 0}, {0: -1, 1: 2}, {0: 1, 1: math.nan}, [1, 2]]
)
def test_weights_are_never_counted_from_rows(given):
    x, y = table(200, 0.3)
    with pytest.raises(InputError, match=r"class_weight|weight"):
        PrivateLogisticRegression(**KNOWN, class_weight=given).fit(x, y)


def test_classes_that_were_read_off_take_no_weights():
    x, y = table(200, 0.3)
    with pytest.raises(InputError, match="two declared classes"):
        PrivateLogisticRegression(delta=1e-5, data_norm=2.0, class_weight={0: 1, 1: 5}).fit(x, y)


def test_a_configuration_with_a_weight_means_the_same_when_it_is_read_back():
    config = TrainConfig(positive_weight=20.0, algorithm="masked", nodes=3)
    problem, algorithm = bind(config)
    assert algorithm.loss == WeightedLogistic(20.0)
    again = TrainConfig.from_toml(config.resolved(algorithm).to_toml())
    assert bind(again).algorithm.loss == WeightedLogistic(20.0)
    with pytest.raises(InputError, match="two classes and the logistic loss with positive_weight"):
        problem.answers.loss("hinge", 3.0)
    assert json.dumps(again.to_toml())
