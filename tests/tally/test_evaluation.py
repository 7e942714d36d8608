"""The question that fits a loss, and the answer as a thing to keep."""

import json

import numpy as np
import pytest

from sottovoce.errors import InputError
from sottovoce.problem import losses
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
    data = found().to_dict()
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
    assert any("flatter" in note for note in found(500).privacy.notes)
    assert any("flatter" in note for note in found(497).privacy.notes)  # some were left over when they were dealt out
    assert not any("flatter" in note for note in found(550).privacy.notes)
