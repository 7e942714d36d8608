"""Intervals against other libraries where there is no noise, and how often they hold where there is."""

import numpy as np
import pytest
from scipy import optimize, stats
from sklearn import metrics

from sottovoce.problem import losses
from sottovoce.tally import SeveralClasses, Terms, TwoClasses, bins_for, evaluate, question_for
from sottovoce.tally.intervals import Interval, ScoreCells, mean, nearest_counts, ratio

HARDLY = 1e-9  # a noise that changes nothing


def scored(count, seed=0, middle=-1.0, spread=2.0):
    draws = np.random.default_rng(seed)
    z = middle + spread * draws.standard_normal((count, 1))
    return z, np.where(draws.random(count) < 1 / (1 + np.exp(-z[:, 0])), 1.0, -1.0)


def exact(question, z, labels):
    placed = question.bins_of(question.places(z, labels))
    return question.answer(placed, question.counts(placed, z, labels), HARDLY)


@pytest.mark.parametrize("right", [0, 3, 50, 97, 100])
def test_without_noise_a_share_is_wilsons(right):
    found = ScoreCells(np.array([100.0 - right, right]), HARDLY, 100).share(np.array([0.0, 1.0]), np.ones(2))
    other = stats.binomtest(right, 100).proportion_ci(method="wilson")
    assert (found.low, found.high) == pytest.approx((other.low, other.high), abs=1e-8)
    assert found.value == pytest.approx(right / 100)


def test_noise_widens_and_too_much_says_so():
    cells = [ScoreCells(np.array([60.0, 40.0, 20.0, 30.0]), std, 150) for std in (HARDLY, 5.0, 200.0)]
    part, whole = np.array([0.0, 0, 0, 1]), np.array([0.0, 0, 1, 1])
    widths = [one.high - one.low for one in (c.share(part, whole) for c in cells)]
    assert widths[0] < widths[1] < widths[2] == 1
    assert cells[2].share(part, whole) == Interval(None, 0.0, 1.0)
    assert ratio(1.0, -3.0, (1.0, 0.0, 1.0)) == Interval(None, 0.0, 1.0)


def test_counts_are_the_nearest():
    noisy = np.random.default_rng(0).normal(3, 4, 12)
    found = nearest_counts(noisy, 30.0)
    best = optimize.minimize(
        lambda x: np.sum((x - noisy) ** 2), np.full(12, 2.5), bounds=[(0, None)] * 12, options={"ftol": 1e-15},
        constraints={"type": "eq", "fun": lambda x: x.sum() - 30},
    )  # fmt: skip
    assert found == pytest.approx(best.x, abs=1e-4)
    assert found.sum() == pytest.approx(30)
    lines = np.stack([noisy, noisy[::-1]])
    assert nearest_counts(lines, 30.0)[1] == pytest.approx(found[::-1])
    assert not nearest_counts(lines, 0.0).any()


def test_figures_are_scikit_learns_but_for_the_bins():
    z, labels = scored(60_000)
    answer, positive, called = exact(TwoClasses(60_000, 40), z, labels), labels > 0, z[:, 0] >= 0
    figures = {name: one.value for name, one in answer.figures.items()}
    assert figures["accuracy"] == pytest.approx(metrics.accuracy_score(positive, called), abs=1e-9)
    assert figures["recall"] == pytest.approx(metrics.recall_score(positive, called), abs=1e-9)
    assert figures["precision"] == pytest.approx(metrics.precision_score(positive, called), abs=1e-9)
    assert figures["positive"] == pytest.approx(positive.mean(), abs=1e-9)
    assert figures["auc"] == pytest.approx(metrics.roc_auc_score(positive, z[:, 0]), abs=2e-4)
    assert figures["average_precision"] == pytest.approx(metrics.average_precision_score(positive, z[:, 0]), abs=3e-3)
    matrix = metrics.confusion_matrix(positive, called)
    assert [[one.value for one in line] for line in answer.confusion] == pytest.approx(matrix.astype(float), abs=1e-4)
    for point in answer.roc:
        above = 1 / (1 + np.exp(-z[:, 0])) >= point.threshold - 1e-12
        assert point.true_positive_rate.value == pytest.approx(above[positive].mean(), abs=1e-6)
        assert point.false_positive_rate.value == pytest.approx(above[~positive].mean(), abs=1e-6)
    for group in answer.calibration:
        inside = (expit(z) >= group.low - 1e-12) & (expit(z) < group.high - 1e-12)
        assert group.observed.value == pytest.approx(positive[inside].mean(), abs=1e-6)
        assert group.predicted == pytest.approx(expit(z)[inside].mean(), abs=0.01)


def expit(z):
    return 1 / (1 + np.exp(-z[:, 0]))


@pytest.mark.parametrize("bins", [5, 9, 20])
def test_auc_knows_the_order_within_bins(bins):
    """Half a win for every pair of a bin would fall short by far more."""
    z, labels = scored(200_000)
    true = metrics.roc_auc_score(labels > 0, z[:, 0])
    assert exact(TwoClasses(200_000, bins), z, labels).figures["auc"].value == pytest.approx(true, abs=0.02 / bins)


def test_rows_of_one_score_have_no_order():
    """As scikit-learn has it: a tie is half a win, and all rows of one score are called at one threshold."""
    z, labels = scored(60_000)
    z = 2 * np.round(z / 2)
    found = exact(TwoClasses(60_000, 14), z, labels).figures
    assert found["auc"].value == pytest.approx(metrics.roc_auc_score(labels > 0, z[:, 0]), abs=1e-3)
    expected = metrics.average_precision_score(labels > 0, z[:, 0])
    assert found["average_precision"].value == pytest.approx(expected, abs=1e-3)


def test_the_spread_of_auc_is_that_of_other_samples():
    own = [exact(TwoClasses(2000, 12), *scored(2000, seed)).figures["auc"] for seed in range(300)]
    spread = np.std([one.value for one in own])
    width = np.mean([one.high - one.low for one in own])
    assert width == pytest.approx(2 * 1.96 * spread, rel=0.15)


def test_the_rarer_class_is_the_one_of_average_precision():
    z, labels = scored(40_000, middle=3.0)
    assert (labels > 0).mean() > 0.8
    found = exact(TwoClasses(40_000, 40), z, labels).figures
    assert found["average_precision"].value == pytest.approx(
        metrics.average_precision_score(labels < 0, -z[:, 0]), abs=5e-3
    )
    assert found["majority"].value == pytest.approx((labels > 0).mean(), abs=1e-6)


def test_another_threshold():
    z, labels = scored(20_000)
    question = question_for(losses.Logistic(), 20_000, Terms(epsilon=1.0, delta=1e-5), threshold=0.2)
    found = exact(question, z, labels).figures
    assert found["recall"].value == pytest.approx((expit(z)[labels > 0] >= 0.2).mean(), abs=1e-6)


def test_several_classes():
    draws = np.random.default_rng(0)
    z, k = draws.normal(size=(30_000, 4)) * 2, 4
    labels = np.where(draws.random(30_000) < 0.7, z.argmax(axis=1), draws.integers(0, k, 30_000)).astype(float)
    answer, decided = exact(SeveralClasses(30_000, 20, classes=k), z, labels), z.argmax(axis=1)
    assert answer.figures["accuracy"].value == pytest.approx((decided == labels).mean(), abs=1e-6)
    matrix = metrics.confusion_matrix(labels, decided)
    assert [[one.value for one in line] for line in answer.confusion] == pytest.approx(matrix.astype(float), abs=1e-3)
    recall = metrics.recall_score(labels, decided, average=None)
    assert [one.recall.value for one in answer.by_class] == pytest.approx(recall, abs=1e-6)
    top = (np.exp(z) / np.exp(z).sum(axis=1, keepdims=True)).max(axis=1)
    for group in answer.calibration:
        inside = (top >= group.low - 1e-12) & (top < group.high - 1e-12)
        assert group.observed.value == pytest.approx((decided == labels)[inside].mean(), abs=1e-6)
        assert group.predicted == pytest.approx(top[inside].mean(), abs=0.02)


def test_errors_of_numbers():
    terms, errors = Terms(epsilon=20.0, delta=1e-5), np.random.default_rng(0).normal(size=(40_000, 1))
    question = question_for(losses.Huber(), 40_000, terms, width=100.0)
    found = evaluate(question, terms, errors, np.zeros(40_000)).figures
    assert found["clipped_at"].low < 10  # far below the label's width, without anybody having said so
    assert found["mean_absolute_error"].value == pytest.approx(np.abs(errors).mean(), rel=0.01)
    assert found["root_mean_square_error"].value == pytest.approx(1.0, rel=0.01)


def test_a_mean_stays_within_its_bounds():
    assert mean(-3.0, 0.1, 5.0, 10) == Interval(0.0, 0.0, pytest.approx(0.7, abs=0.1))
    assert mean(200.0, 0.0, 1.0, 10).low <= 1


def test_bins_follow_from_public_numbers():
    assert bins_for(10, 5.0) == 4
    assert bins_for(10**12, 5.0) == 256
    assert bins_for(50_000, 5.0) > bins_for(50_000, 50.0) > bins_for(1_000, 50.0)


POPULATION = scored(400_000, 7, middle=-1.5)


def coverage(noise, repetitions=300):
    """How often intervals hold the population's figures if they take the noise for `noise` times what it is."""
    z, labels = POPULATION
    positive, terms, draws = labels > 0, Terms(epsilon=0.5, delta=1e-5, sites=5, colluding=2), np.random.default_rng(1)
    true = {
        "accuracy": np.mean((z[:, 0] >= 0) == positive), "auc": metrics.roc_auc_score(positive, z[:, 0]),
        "average_precision": metrics.average_precision_score(positive, z[:, 0]),
        "precision": np.mean(positive[z[:, 0] >= 0]),
    }  # fmt: skip
    question, held = question_for(losses.Logistic(), 4000, terms), dict.fromkeys(true, 0)
    answer = type(question).answer
    for _ in range(repetitions):
        rows = draws.integers(0, len(z), 4000)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(type(question), "answer", lambda own, at, noisy, std: answer(own, at, noisy, noise * std))
            figures = evaluate(question, terms, z[rows], labels[rows]).figures
        for name, target in true.items():
            held[name] += figures[name].low <= target <= figures[name].high
    return {name: count / repetitions for name, count in held.items()}


def test_intervals_hold():
    """95 % of 300 is 285 +- 3.8: five standard deviations below are 266, and that must be reached."""
    found = coverage(1.0)
    assert all(share >= 0.887 for share in found.values()), found
    assert found["auc"] < 1  # and they are no wider than they have to be


def test_intervals_that_forget_the_noise_do_not_hold():
    found = coverage(0.01, 150)
    assert all(share < 0.87 for share in found.values()), found
