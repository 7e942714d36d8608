"""Programs of sums: the same sums give the same answers again, and schedules say beforehand what is asked."""

import math
from dataclasses import dataclass, fields, replace
from itertools import pairwise

import numpy as np
import pytest

import sottovoce as sv
from helpers.sums import begun, opened, same_question
from sottovoce.algorithms.hazards import ProportionalHazards
from sottovoce.algorithms.squares import LeastSquares
from sottovoce.noise.sources import SeededNoise, Shape
from sottovoce.oracle.whitening import Whitening
from sottovoce.privacy.unit import ROW, Unit
from sottovoce.sums.curvature import WIDEST_MATRIX
from sottovoce.sums.evaluating import ScoreCounts, ScorePlaces
from sottovoce.sums.hazards import HazardGradient, HazardStart
from sottovoce.sums.program import Ask, AtPoint, HeldOut, LearntFrom, Opened, Question, Session, asking
from sottovoce.sums.questions import (
    DiagonalMoments,
    FocusedGradient,
    Gradient,
    Moments,
    ResidualMoments,
    WhitenedCountHessian,
    WhitenedGradient,
    WhitenedHessian,
)

SIZES, P, RUNS = (31, 8, 40), 4, 2
POISSON = sv.losses.Poisson()
ANALYSES = {
    "learnt": sv.MaskedNewton(rounds=5),
    "of three classes": sv.MaskedNewton(rounds=4, loss=sv.losses.Softmax(3), evaluate=0.2),
    "inferred": sv.MaskedNewton(rounds=6, inference=True),
    "asked for": sv.MaskedNewton(rounds=8, inference=True, focus=(0,)),
    "counts, inferred": sv.MaskedNewton(rounds=8, inference=True, evaluate=0.3, loss=POISSON),
    "evaluated": sv.MaskedNewton(rounds=4, evaluate=0.4, loss=sv.losses.Huber()),
    "held out": sv.MaskedNewton(rounds=7, evaluate=0.4, hold_out=3, inference=True),
    "without noise": sv.MaskedNewton(rounds=9, inference=True, epsilon=math.inf),
    "least squares": LeastSquares(inference=True),
    "hazards": ProportionalHazards(inference=True, rounds=5, loss=sv.losses.PiecewiseExponential((0.0, 1.0, 2.0, 9.0))),
}
KINDS = {
    "second moments": (Moments, DiagonalMoments), "descent": (Gradient, WhitenedGradient),
    "Hessian": (WhitenedHessian, WhitenedCountHessian), "last gradient": (WhitenedGradient,),
    "focused gradient": (FocusedGradient,),
    "evaluation": (ScorePlaces, ScoreCounts), "residual moments": (ResidualMoments,),
    "moments and events": (HazardStart,), "hazards": (HazardGradient,),
}  # fmt: skip


def drawn(loss, sizes=SIZES, p=P, unit=ROW):
    rng = np.random.default_rng(1)
    rows = [rng.normal(size=(m, p)) / (3 * math.sqrt(p)) for m in sizes]
    rows = [a / np.maximum(np.linalg.norm(a, axis=1, keepdims=True), 1.0) for a in rows]
    if isinstance(loss.labels, sv.losses.Times):
        labels = [rng.choice([-1.0, 1.0], size=m) * rng.uniform(1e-9, loss.outputs, size=m) for m in sizes]
    elif loss.outputs > 1:
        labels = [rng.integers(0, loss.outputs, size=m).astype(float) for m in sizes]
    elif isinstance(loss.labels, sv.losses.Reals):
        labels = [rng.uniform(0, 1, size=m) for m in sizes]
    else:
        labels = [rng.choice([-1.0, 1.0], size=m) for m in sizes]
    return sv.Sites(rows, labels, unit=unit)


def played(algorithm, sizes=SIZES, p=P, unit=ROW):
    """The oracle, with rows held out as they lie, and all sums of two runs."""
    site = algorithm.oracle(drawn(algorithm.loss, sizes, p, unit), sv.graphs.complete(len(sizes)))
    order, noise = np.arange(sum(sizes)), SeededNoise(3, Shape(len(sizes), site.d, RUNS))
    return replace(site, order=lambda: order), opened(algorithm, site, noise, RUNS)


def inner(question):
    return question.inner if isinstance(question, HeldOut | LearntFrom) else question


def bits(found):
    """All that was found, as bytes and plain values, however deep it lies."""
    if isinstance(found, np.ndarray):
        return found.shape, found.dtype.str, found.tobytes()
    if isinstance(found, tuple):
        return tuple(map(bits, found))
    if hasattr(found, "__dataclass_fields__"):
        return type(found), tuple(bits(getattr(found, field.name)) for field in fields(found))
    return found


# -- the same again ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("algorithm", ANALYSES.values(), ids=ANALYSES)
def test_the_same_sums_give_the_same_bits_again(algorithm):
    """From what a site writes down: the point that all took, the sum, its noise, and how many rows it is over."""
    site, sums = played(algorithm)
    written = [(one.question.point.copy(), one.value.copy(), one.std.copy(), one.rows) for one in sums]
    once, again = begun(algorithm, site, RUNS), begun(algorithm, site, RUNS)
    for told, (point, *numbers) in zip(sums, written, strict=True):
        assert same_question(once.ask.question, told.question)
        assert bits(once.answer) == bits(again.answer)
        question = again.ask.question.at(point)
        assert same_question(question, told.question)
        once.tell(told)
        again.tell(Opened(question, *numbers))
    assert once.ask is None
    assert again.ask is None
    assert np.isfinite(once.answer.last).all()
    assert bits(once.answer) == bits(again.answer)
    assert len(once.answer.evidence) == RUNS * (getattr(algorithm, "inference", True))
    assert (once.answer.evaluation is not None) == (getattr(algorithm, "evaluate", None) is not None)


@pytest.mark.parametrize("algorithm", ANALYSES.values(), ids=ANALYSES)
def test_other_sums_give_another_answer(algorithm):
    """Else bits would be the same whatever was told: the last sum counts too."""
    site, sums = played(algorithm)
    answers = []
    for added in (0.0, 1e-3):
        session = begun(algorithm, site, RUNS)
        for told in sums[:-1]:
            session.tell(told)
        session.tell(sums[-1]._replace(value=sums[-1].value + added))
        answers.append(bits(session.answer))
    assert answers[0] != answers[1]


@pytest.mark.parametrize("algorithm", ANALYSES.values(), ids=ANALYSES)
def test_what_follows_rests_on_the_point_that_all_took(algorithm):
    """Not on the one that was computed here, which other processors round otherwise."""
    site, sums = played(algorithm)

    def found(moved=None):
        session = begun(algorithm, site, RUNS)
        for k, told in enumerate(sums):
            point = session.ask.question.point
            session.tell(told._replace(question=session.ask.question.at(point + 1e-3 * (k == moved))))
        return bits(session.answer)

    own = found()
    for k, line in enumerate(algorithm.schedule(P)):
        assert (found(k) == own) == (line.point == 0), line.kind


def test_the_answer_so_far_is_that_of_the_sums_so_far():
    algorithm = ANALYSES["held out"]
    site, sums = played(algorithm)
    session = begun(algorithm, site, RUNS)
    np.testing.assert_array_equal(session.answer.last, np.zeros((P, RUNS)))
    models = []
    for told in sums:
        session.tell(told)
        models.append(session.answer.last)
        assert session.answer.last.shape == session.answer.average.shape == (P, RUNS)
        learnt, judged = len(models) >= 5, len(models) == 7
        assert len(session.answer.evidence) == RUNS * learnt
        assert (session.answer.evaluation is not None) == judged
    np.testing.assert_array_equal(models[0], 0)  # second moments alone are no model
    assert all(np.any(one != other) for one, other in pairwise(models[:5]))
    assert all(np.array_equal(one, models[4]) for one in models[4:])


# -- questions to some of the rows ------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Rows(AtPoint):
    """The sum of all rows, of the first feature twice over."""

    def of(self, site, rows):  # noqa: ARG002
        return site.sites.rows.block(0, len(site.sites.labels)).sum(axis=0)[:, None]

    def sensitivity(self, site, rows):
        return np.full((1, 1), 2.0 * site.changed_in_sum(rows))

    def largest(self, site):
        return site.sites.data_norm


def two_questions():
    heard = []
    for k in range(2):
        heard.append((yield Ask(Rows(np.full((P, 1), float(k))), tuple(heard))))
    return heard


@pytest.mark.parametrize("kind", [HeldOut, LearntFrom])
def test_every_question_goes_to_some_of_the_rows_and_the_program_sees_none_of_it(kind):
    session, counts = Session(asking(two_questions(), lambda question: kind(question, 3))), [31, 8, 2]
    asked = []
    while session.ask is not None:
        question = session.ask.question
        asked.append(question)
        assert isinstance(question, kind)
        assert isinstance(question.inner, Rows)
        taken = question.at(question.point + 0.5)
        session.tell(Opened(taken, np.zeros((P, 1)), np.ones((1, 1)), taken.over(counts)))
    assert len(asked) == len(session.answer) == 2
    for k, told in enumerate(session.answer):
        assert isinstance(told.question, Rows)
        np.testing.assert_array_equal(told.question.w, k + 0.5)  # the point that all took
        assert told.rows == {HeldOut: 10 + 2, LearntFrom: 21 + 6 + 2}[kind]


@pytest.mark.parametrize("every", [2, 3, 8, 1000])
@pytest.mark.parametrize("counts", [(1,), (31, 8, 40), (2, 1, 7, 1000)])
def test_rows_of_both_add_up_to_all(counts, every):
    question = Rows(np.zeros((P, 1)))
    held, learnt = HeldOut(question, every), LearntFrom(question, every)
    assert held.over(counts) + learnt.over(counts) == question.over(counts) == sum(counts)
    assert held.over(counts) == sum(m // every for m in counts)
    site = sv.MaskedNewton().oracle(drawn(sv.losses.Logistic(), counts), sv.graphs.complete(len(counts)))
    order = np.concatenate([np.random.default_rng(4).permutation(m) for m in counts])
    order += np.repeat(site.sites.rows.offsets[:-1], counts)
    site = replace(site, order=lambda: order)
    sums = [one.of(site, one.over(counts)) for one in (held, learnt)]
    np.testing.assert_allclose(sums[0] + sums[1], question.of(site, sum(counts)), atol=1e-12)
    # As many rows are really in each as it says that it is over.
    for one in (held, learnt):
        chosen = one.chosen(site)
        assert len(chosen.sites.labels) == one.over(counts)
        assert one.over([m for m in counts if m > 2]) == one.over(counts) - one.over([m for m in counts if m <= 2])


def test_learning_asks_the_others_and_evaluation_those_that_are_held_out():
    algorithm = ANALYSES["held out"]
    _, sums = played(algorithm)
    _, whole = played(replace(algorithm, hold_out=None))
    kinds = [type(one.question) for one in sums]
    assert kinds == [*5 * [LearntFrom], *2 * [HeldOut]]
    assert all(one.question.every == 3 for one in sums)
    assert [type(inner(one.question)) for one in sums] == [type(one.question) for one in whole]
    held = 10 + 2 + 13
    assert [one.rows for one in sums] == [*5 * [79 - held], *2 * [held]]
    assert [one.rows for one in whole] == 7 * [79]


# -- equal questions --------------------------------------------------------------------------------------------------


def test_questions_are_the_same_bit_by_bit():
    w = np.array([[0.1], [0.2]])
    assert same_question(Gradient(w), Gradient(w.copy()))
    assert same_question(Moments(), Moments())
    assert not same_question(Moments(), DiagonalMoments())
    A = Whitening(np.eye(2)[..., None], np.ones((1, 1)))
    assert not same_question(WhitenedGradient(w, A), WhitenedHessian(w, A))
    assert not same_question(WhitenedHessian(w, A), WhitenedHessian(w, Whitening(np.nextafter(A.A, 1), A.c)))
    assert not same_question(Gradient(w), Gradient(np.nextafter(w, 1)))
    assert not same_question(Gradient(0 * w), Gradient(-0.0 * w))
    assert same_question(Gradient(w * np.nan), Gradient(w * np.nan))


def test_questions_within_and_beside_others_are_compared_too():
    w, loss = np.array([[0.1], [0.2]]), sv.losses.Logistic()
    places = ScorePlaces(w, loss=loss, noise=(1.0, 2.0), changed=1, data_norm=1.0)
    assert same_question(places, replace(places, w=w.copy(), loss=sv.losses.Logistic()))
    for other in ({"loss": POISSON}, {"noise": (1.0, 2.1)}, {"changed": 2}, {"data_norm": 1.5}, {"w": 2 * w}):
        assert not same_question(places, replace(places, **other))
    counts = ScoreCounts(places, np.ones((3, 1)), 7)
    assert same_question(counts, ScoreCounts(replace(places, w=w.copy()), np.ones((3, 1)), 7))
    assert not same_question(counts, ScoreCounts(replace(places, w=2 * w), np.ones((3, 1)), 7))
    assert not same_question(counts, ScoreCounts(places, np.zeros((3, 1)), 7))
    assert not same_question(counts, ScoreCounts(places, np.ones((3, 1)), 8))
    assert same_question(HeldOut(counts, 3), HeldOut(counts.at(w), 3))
    assert not same_question(HeldOut(counts, 3), HeldOut(counts, 4))
    assert not same_question(HeldOut(counts, 3), LearntFrom(counts, 3))
    assert not same_question(HeldOut(counts, 3), HeldOut(counts.at(2 * w), 3))


# -- the schedule -----------------------------------------------------------------------------------------------------

SCHEDULED = ANALYSES | {
    f"{name}, {rounds} sums": replace(ANALYSES[name], rounds=rounds)
    for name, rounds in [("learnt", 2), ("learnt", 40), ("inferred", 4), ("counts, inferred", 6), ("held out", 30)]
}


@pytest.mark.parametrize("p", [1, P])
@pytest.mark.parametrize("algorithm", SCHEDULED.values(), ids=SCHEDULED)
def test_a_schedule_says_what_is_asked(algorithm, p):
    p = max(p, 2) if isinstance(algorithm, ProportionalHazards) else p  # a feature, and the constant
    _, sums = played(algorithm, p=p)
    schedule = algorithm.schedule(p)
    assert len(sums) == len(schedule) == algorithm.opened
    for line, told in zip(schedule, sums, strict=True):
        assert isinstance(inner(told.question), KINDS[line.kind])
        assert told.value.shape == (line.numbers, RUNS)
        assert told.question.point.shape in ((line.point, RUNS), (line.point, 1))
        assert told.std.shape in ((1, RUNS), (1, 1))
    assert sum(line.part for line in schedule) == pytest.approx(1, abs=1e-12)
    assert min(line.part for line in schedule) > 0
    assert algorithm.parts == tuple(line.part for line in schedule)  # whatever the number of features
    assert sum(algorithm.split.values()) == pytest.approx(1, abs=1e-12)


def test_so_does_that_of_a_wide_table():
    p = WIDEST_MATRIX + 1
    _, sums = played(ANALYSES["learnt"], (3, 4, 5), p)
    assert [len(one.value) for one in sums] == [line.numbers for line in ANALYSES["learnt"].schedule(p)] == 5 * [p]
    assert isinstance(sums[0].question, DiagonalMoments)
    assert ANALYSES["learnt"].schedule(WIDEST_MATRIX)[0].numbers == WIDEST_MATRIX * (WIDEST_MATRIX + 1) // 2


@pytest.mark.parametrize("name", [name for name in ANALYSES if name != "without noise"])
def test_the_noise_in_every_sum_is_that_of_its_part(name):
    """mu^2 of a sum is (sensitivity / noise)^2 of those who do not collude, and its part of all."""
    algorithm = replace(ANALYSES[name], colluding=1)
    site, sums = played(algorithm)
    known = math.sqrt((len(SIZES) - 1) / len(SIZES))  # of the noise, to none of those who collude
    spent = [(one.question.sensitivity(site, one.rows) / (known * one.std)) ** 2 for one in sums]
    spent = np.array([np.ravel(one)[0] for one in spent])
    np.testing.assert_allclose(spent / spent.sum(), algorithm.parts, rtol=1e-9)
    assert sv.privacy.epsilon(sv.privacy.Gaussian(1 / math.sqrt(spent.sum())), 1e-5) == pytest.approx(1.0, rel=1e-6)


@pytest.mark.parametrize("unit", [ROW, Unit(2, 2), Unit(3, 50), Unit(90, 2)], ids=str)
@pytest.mark.parametrize("name", ["evaluated", "held out", "counts, inferred"])
def test_programs_know_beforehand_how_much_noise_there_will_be(name, unit):
    """Bins follow from it, and so do standard errors from how many rows are replaced together."""
    algorithm = replace(ANALYSES[name], colluding=1, epsilon=8.0)
    site, sums = played(algorithm, unit=unit)
    session = begun(algorithm, site, RUNS)
    for told in sums:
        session.tell(told)
    together, places = unit.changed * min(unit.sites, len(SIZES)), inner(sums[-2].question)
    assert places.changed == together
    for noise, told in zip(places.noise, sums[-2:], strict=True):
        assert noise * min(together, told.rows) == pytest.approx(told.std.item(), rel=1e-9)
    assert all(evidence.together == together for evidence in session.answer.evidence)
    assert places.data_norm == site.sites.data_norm


def test_questions_know_public_numbers_alone():
    """Whoever holds other rows of as many, or none, asks the same: a program is told sums, and shown no row."""
    algorithm = ANALYSES["held out"]
    site, sums = played(algorithm)
    public = replace(site, sites=drawn(sv.losses.Logistic()).elsewhere(np.array(SIZES)))
    session = begun(algorithm, public, RUNS)
    for told in sums:
        assert same_question(session.ask.question, told.question)
        ours, theirs = (session.ask.question.sensitivity(one, told.rows) for one in (site, public))
        np.testing.assert_array_equal(ours, theirs)
        assert session.ask.question.largest(site) == session.ask.question.largest(public)
        session.tell(told)
    assert isinstance(sums[0].question, Question)
