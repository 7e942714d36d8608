"""`MaskedNewton.focus`: single coefficients are asked for, and the budget goes to these."""

import math
from dataclasses import replace

import numpy as np
import pytest

import sottovoce as sv
from sottovoce.algorithms.masked import features_of
from sottovoce.errors import InputError
from sottovoce.estimators import PrivateLogisticRegression
from sottovoce.oracle.whitening import Whitening
from sottovoce.privacy.unit import ROW
from sottovoce.problem.losses.base import BESIDE
from sottovoce.studies.config import TrainConfig
from sottovoce.sums.inference import CRITICAL, infer
from sottovoce.sums.program import Opened
from sottovoce.sums.questions import FocusedGradient

TRUTH = np.array([1.5, -1.0, 0.5, -0.5])


def rows(rng, n):
    """A number, a flag, a number that goes with the first, and a constant; no row is longer than 1."""
    x = rng.uniform(-1, 1, size=n)
    a = np.column_stack([x, rng.random(n) < 0.3, (x + rng.uniform(-1, 1, size=n)) / 2, np.ones(n)]) / 2
    return a, np.where(rng.random(n) < 1 / (1 + np.exp(-2 * a @ TRUTH)), 1.0, -1.0)


def many(rng, n, p=14):
    """Flags of which each goes with the one before, and a constant."""
    flags = rng.random((n, p - 1)) < 0.4
    flags[:, 1:] |= flags[:, :-1] & (rng.random((n, p - 2)) < 0.3)
    a, truth = np.column_stack([flags, np.ones(n)]) / math.sqrt(p), np.tile([0.8, -0.6], p // 2) / 2
    return a, np.where(rng.random(n) < 1 / (1 + np.exp(-math.sqrt(p) * a @ truth)), 1.0, -1.0), math.sqrt(p) * truth


def found(a, b, runs=2, **settings):
    settings = {"epsilon": 1.0, "delta": 1e-6, "lam": 1e-4, "inference": True, **settings}
    sites = sv.Sites([a], [b])
    result = sv.simulate(sv.MaskedNewton(**settings), sites, sv.graphs.complete(1), runs=runs, seed=1, device="plain")
    told = [infer(replace(one, largest=float(a.max())), np.eye(a.shape[1])) for one in result.evidence]
    return np.array([one.values for one in told]), np.array([one.errors for one in told])


@pytest.mark.parametrize("loss", ["logistic", "poisson"])
def test_a_focused_sum_is_that_of_a_loop_over_rows(loss):
    rng = np.random.default_rng(1)
    a, b = rows(rng, 40)
    if loss == "poisson":
        b = rng.integers(0, 2, 40) / 1.0
    kind = sv.losses.Logistic() if loss == "logistic" else sv.losses.Poisson()
    A, u, X = rng.normal(size=(4, 4, 1)), rng.normal(size=(4, 1)), rng.normal(size=(8, 1))
    whitening = Whitening(A + A.transpose(1, 0, 2), np.array([[0.8]]))
    site = sv.MaskedNewton(loss=kind).oracle(sv.Sites([a[:15], a[15:]], [b[:15], b[15:]]), sv.graphs.complete(2))
    said = FocusedGradient(u, whitening, X).of(site, 40)[:, 0]
    gradient, bent = np.zeros(2), np.zeros((2, 4))
    for t, label in zip(a @ whitening.A[..., 0], b, strict=True):
        s, z = X[:, 0].reshape(4, 2).T @ t, t @ u[:, 0]
        counted = min(1.0, 0.64 / (t @ t)) / max(1.0, math.hypot(*s))
        if loss == "logistic":
            slope, curvature = -label / (1 + math.exp(label * z)), math.exp(z) / (1 + math.exp(z)) ** 2 * 4
        else:
            slope, curvature = min(math.exp(z), 1) - label, math.exp(z) * (z < 0)
        gradient += counted * slope * s
        bent += counted * BESIDE * curvature / 0.8 * np.outer(s, t)
    np.testing.assert_allclose(said, [*gradient, *bent.ravel()], rtol=1e-10)


@pytest.mark.parametrize("loss", [sv.losses.Logistic(), sv.losses.Poisson(), sv.losses.Poisson(3.0)])
def test_no_slope_and_curvature_are_longer_together(loss):
    """And for the logistic loss, some are as long."""
    z = np.linspace(-8, 8, 4001)
    labels = [-1.0, 1.0] if isinstance(loss, sv.losses.Logistic) else [0.0, loss.most]
    pairs = [np.stack([loss.slope(z, b, loss.theta), BESIDE * loss.curvature(z, b, loss.theta) / loss.smoothness_bound])
             for b in labels]  # fmt: skip
    for reach in (0.0, 0.5, 2.0, 8.0):
        longest = max(np.linalg.norm(pair[:, np.abs(z) <= reach], axis=0).max() for pair in pairs)
        said = float(loss.steepness(np.array(reach)))
        assert longest <= said
        assert not isinstance(loss, sv.losses.Logistic) or longest > 0.999 * said


@pytest.mark.parametrize("reach", [0.0, 1.0, 5.0, 30.0])
def test_rows_that_are_sure_of_the_wrong_label_attain_the_sensitivity(reach):
    """Opposite along what is asked for, and the same beside it."""
    small = 1e-3
    pair = [np.array([[math.sqrt(1 - small**2), side * small]]) for side in (1, -1)]
    u, X = np.array([[-reach], [0.0]]), np.array([[0.0], [2 / small]])
    whitening, sums = Whitening(np.eye(2)[..., None], np.ones((1, 1))), []
    for row in pair:
        site = sv.MaskedNewton().oracle(sv.Sites([row], [np.ones(1)], data_norm=1.0), sv.graphs.complete(1))
        sums.append(FocusedGradient(u, whitening, X).of(site, 1))
    apart = float(np.linalg.norm(sums[0] - sums[1]))
    allowed = float(FocusedGradient(u, whitening, X).sensitivity(site, 1).item())
    assert 0.999 * allowed < apart <= allowed


def test_intervals_of_what_is_asked_for_hold_and_are_narrower():
    """On 12 tables, with two draws of the noise for each."""
    rng, held, widths = np.random.default_rng(2), [], []
    for _ in range(12):
        a, b, truth = many(rng, 8000)
        plain, asked = found(a, b)[1], found(a, b, focus=(5,))
        widths.append(np.mean(asked[1][:, 5]) / np.mean(plain[:, 5]))
        held.append(np.abs(asked[0] - truth) <= CRITICAL * asked[1])
    assert np.mean(widths) < 0.9
    assert np.mean(held) > 0.9
    assert np.mean(np.array(held)[..., 5]) > 0.8


def test_without_noise_it_is_the_fit_itself():
    a, b = rows(np.random.default_rng(3), 3000)
    plain, asked = found(a, b, epsilon=math.inf, rounds=40), found(a, b, epsilon=math.inf, rounds=40, focus=(1, 2))
    np.testing.assert_allclose(asked[0], plain[0], atol=1e-4)
    # Rows that are long along what is asked for count less, which costs a little.
    assert np.all(asked[1][:, 1:3] < 1.4 * plain[1][:, 1:3])
    assert np.all(asked[1] > 0.99 * plain[1])


def test_the_budget_is_dealt_out_whole_and_sizes_are_those_of_the_questions():
    algorithm = sv.MaskedNewton(rounds=7, inference=True, focus=(0, 3), epsilon=1.0)
    lines, session = algorithm.schedule(4), algorithm.begin(1, 4, 1.0, ROW, 2)
    assert sum(line.part for line in lines) == pytest.approx(1)
    assert [line.kind for line in lines][-2:] == ["focused gradient"] * 2
    for line in lines:
        question = session.ask.question
        assert line.point == len(question.point)
        session.tell(Opened(question, 1e3 + np.zeros((line.numbers, 2)), np.ones((1, 1)), 1000))
    assert session.ask is None


NAMES = ("age", "sex=Male", "region=a", "region=b", "region=<other>", "regional")


def test_columns_are_all_their_levels():
    assert features_of(["region"], NAMES) == (2, 3, 4)
    assert features_of(["sex=Male", "age", "sex"], NAMES) == (1, 0)
    with pytest.raises(InputError, match=r"Expected focus among .*got focus='regio'.*Did you mean"):
        features_of(["regio"], NAMES)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: sv.MaskedNewton(focus=(1,)), "inference with focus"),
        (lambda: TrainConfig(data="x.csv", schema="x.toml", nodes=3, focus=("age",)), "inference with focus"),
        (
            lambda: TrainConfig(algorithm="ipadmm", inference=True, focus=("age",)),
            "algorithm='masked', 'least-squares' or 'hazards' with inference",
        ),
        (lambda: sv.MaskedNewton(inference=True, focus=(1,), rounds=4), "rounds >= 5 with inference.*2 focused"),
        (lambda: sv.MaskedNewton(inference=True, focus=(1, 1)), "different features"),
        (lambda: found(*rows(np.random.default_rng(0), 50), focus=(4,)), "features below 4"),
        (lambda: PrivateLogisticRegression(focus="x0").fit(np.eye(4), [0, 1, 0, 1]), "inference=True with focus"),
    ],
)
def test_what_makes_no_sense_is_refused(make, message):
    with pytest.raises(InputError, match=message):
        make()


def test_an_estimator_takes_names_of_columns_and_its_table_says_them():
    a, b = rows(np.random.default_rng(5), 3000)
    model = PrivateLogisticRegression(epsilon=4.0, delta=1e-6, data_norm=1.0, classes=[-1, 1], inference=True,
                                      focus=["x1"], random_state=0)  # fmt: skip
    with pytest.warns(sv.PrivacyLeakWarning):
        model.fit(a[:, :3], b)
    assert "The budget went to x1" in model.summary().text()
    assert model.summary().budget["focused gradient"] == pytest.approx(0.4)
