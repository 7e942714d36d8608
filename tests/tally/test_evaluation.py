"""The question that fits a loss, and the answer as a thing to keep."""

import json

import numpy as np
import pytest
from scipy import special

from sottovoce.errors import InputError
from sottovoce.problem import losses
from sottovoce.settings import plain
from sottovoce.tally import (
    Numbers,
    PrivateEvaluation,
    SeveralClasses,
    Terms,
    TwoClasses,
    evaluate_privately,
    question_for,
)

TERMS = Terms(epsilon=1.0, delta=1e-5)


def found(learnt=None):
    draws = np.random.default_rng(0)
    z = draws.normal(size=(500, 1))
    labels = np.where(draws.random(500) < 0.5, 1.0, -1.0)
    return evaluate_privately(losses.Logistic(), z, labels, TERMS, classes=("no", "yes"), learnt=learnt)


def test_each_loss_has_its_question():
    assert isinstance(question_for(losses.Logistic(), 100, TERMS), TwoClasses)
    assert question_for(losses.Logistic(), 100, TERMS).odds
    assert not question_for(losses.SmoothedHinge(), 100, TERMS).odds
    assert isinstance(question_for(losses.Softmax(5), 100, TERMS), SeveralClasses)
    assert isinstance(question_for(losses.Huber(), 100, TERMS, width=3.0), Numbers)
    assert question_for(losses.SmoothedHinge(), 100, TERMS, threshold=1.5).threshold == 1.5
    assert question_for(losses.Logistic(), 100, TERMS, threshold=0.75).threshold == pytest.approx(np.log(3))


@pytest.mark.parametrize(
    ("loss", "rows", "given", "words"),
    [
        (losses.Logistic(), 0, {}, "rows=0"),
        (losses.Logistic(), 9, {"threshold": 1.0}, "threshold=1"),
        (losses.Logistic(), 9, {"threshold": 0.0}, "threshold=0"),
        (losses.Softmax(3), 9, {"threshold": 0.5}, "Leave it out"),
        (losses.Huber(), 9, {"threshold": 0.5, "width": 1.0}, "Leave it out"),
        (losses.Huber(), 9, {}, "width=None"),
        (losses.Huber(), 9, {"width": 0.0}, "width=0"),
    ],
)
def test_refusals(loss, rows, given, words):
    with pytest.raises(InputError, match=words):
        question_for(loss, rows, TERMS, **given)


def test_labels_of_no_class_are_refused_before_anything_is_charged():
    charged = []
    with pytest.raises(InputError, match="label"):
        evaluate_privately(
            losses.Logistic(), np.zeros((3, 1)), np.array([1.0, -1.0, 0.5]), TERMS, charge=charged.append
        )
    with pytest.raises(InputError, match="label"):
        evaluate_privately(losses.Softmax(3), np.zeros((2, 3)), np.array([1.0, 3.0]), TERMS, charge=charged.append)
    assert not charged


def test_it_can_be_kept(tmp_path):
    one = found()
    one.save(tmp_path / "evaluation.json")
    assert PrivateEvaluation.load(tmp_path / "evaluation.json") == one
    with pytest.raises(InputError, match="exists"):
        one.save(tmp_path / "evaluation.json")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda data: data["privacy"].update(epsilon=0.01), "epsilon of at least"),
        (lambda data: data["answer"]["figures"]["auc"].update(low="0"), "answer|low"),
        (lambda data: data["answer"].update(roc=3), "roc"),
        (lambda data: data.update(rows="many"), "rows"),
        (lambda data: data.update(more=1), "more"),
        (lambda data: data.update(format="x"), "format"),
        (lambda data: data.pop("answer"), "answer"),
    ],
)
def test_a_strangers_file_is_checked(tmp_path, change, words):
    data = plain(found())
    data = json.loads(json.dumps(data))
    change(data)
    (tmp_path / "a.json").write_text(json.dumps(data))
    with pytest.raises(InputError, match=words):
        PrivateEvaluation.load(tmp_path / "a.json")


@pytest.mark.parametrize("text", ["", "[1]", "{", "[" * 100_000])
def test_no_evaluation_at_all(tmp_path, text):
    (tmp_path / "a.json").write_text(text)
    with pytest.raises(InputError, match="Expected an evaluation"):
        PrivateEvaluation.load(tmp_path / "a.json")


def test_rows_that_it_may_have_been_learnt_from_are_named():
    assert any("too good" in note for note in found(500).privacy.notes)
    assert any("too good" in note for note in found(497).privacy.notes)  # some were left over when they were dealt out
    assert not any("too good" in note for note in found(550).privacy.notes)


def ranked(rows=20_000):
    """Log-odds, labels that follow them, and the AUC among these rows."""
    draws = np.random.default_rng(7)
    z = 1.5 * draws.normal(size=rows)
    positive = draws.random(rows) < special.expit(z)
    ranks = np.argsort(np.argsort(z)) + 1.0
    many = positive.sum()
    return z, positive, (ranks[positive].sum() - many * (many + 1) / 2) / (many * (rows - many))


@pytest.mark.parametrize(("times", "centre"), [(1e-5, 0.0), (1.0, 30.0), (0.005, -5.0), (1e4, 0.0)])
def test_scores_in_a_narrow_cell_are_no_ties_and_public_numbers_take_them_apart(times, centre):
    z, positive, truth = ranked()
    terms = Terms(epsilon=4.0, delta=1e-6)
    for given, width in (({}, 1.0), ({"reach": 8 * times, "centre": centre}, 0.03)):
        figures = evaluate_privately(
            losses.Logistic(), (times * z + centre)[:, None], np.where(positive, 1.0, -1.0), terms, **given
        ).answer.figures
        found = figures["auc"]
        assert found.low - 0.01 <= truth <= found.high + 0.01
        assert found.high - found.low <= width
    assert abs(found.value - truth) < 0.02


def test_rows_of_one_cell_widen_average_precision_as_far_as_their_order_might_move_it():
    z, positive, _ = ranked()
    rank = np.argsort(-z)
    exact = float((np.cumsum(positive[rank]) / np.arange(1, len(z) + 1))[positive[rank]].mean())
    found = evaluate_privately(
        losses.Logistic(), 1e-5 * z[:, None], np.where(positive, 1.0, -1.0), Terms(epsilon=4.0, delta=1e-6)
    ).answer.figures["average_precision"]
    assert found.low - 0.01 <= exact <= found.high + 0.01


def test_a_weighted_class_has_the_threshold_and_the_calibration_of_its_probabilities():
    draws = np.random.default_rng(3)
    odds = 2 * draws.normal(size=20_000) - 1
    positive, loss = draws.random(20_000) < special.expit(odds), losses.WeightedLogistic(weight=5.0)
    terms = Terms(epsilon=8.0, delta=1e-6)
    ask = lambda **given: evaluate_privately(  # noqa: E731
        loss, (odds + np.log(5))[:, None], np.where(positive, 1.0, -1.0), terms, **given
    )
    for threshold in (0.2, 0.9):
        found = ask(threshold=threshold)
        assert found.threshold == threshold
        exact = (special.expit(odds[positive]) >= threshold).mean()
        assert found.answer.figures["recall"].value == pytest.approx(exact, abs=0.02)
    usual = ask()
    assert usual.threshold == pytest.approx(1 / 6)  # z >= 0, where the model decides
    assert len(usual.answer.calibration) >= 5
    for group in usual.answer.calibration:
        assert group.predicted == pytest.approx(group.observed.value, abs=0.05)
    with pytest.raises(InputError, match=r"threshold=1\.5"):
        ask(threshold=1.5)


def test_too_many_classes_are_refused_before_anything_is_charged():
    charged, k = [], 1100
    with pytest.raises(InputError, match="fewer classes"):
        evaluate_privately(losses.Softmax(k), np.zeros((5, k)), np.arange(5.0), TERMS, charge=charged.append)
    assert not charged
