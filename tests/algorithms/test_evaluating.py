"""The two sums that say how good a learnt model is: what a row or a person moves them by, and what they cost."""

import math
from dataclasses import replace

import numpy as np
import pytest

import sottovoce as sv
from helpers.sums import curator, played
from sottovoce.algorithms import registry
from sottovoce.errors import InputError
from sottovoce.privacy.unit import Unit
from sottovoce.problem.factors import Factors
from sottovoce.sums import evaluating

LOSSES = {"logistic": sv.losses.Logistic(), "softmax": sv.losses.Softmax(3), "huber": sv.losses.Huber()}


def drawn(rng, loss, m=40, p=3):
    rows = rng.normal(size=(m, p))
    rows /= np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1)
    labels = {"logistic": rng.choice([-1.0, 1.0], size=m), "softmax": rng.integers(0, 3, size=m).astype(float)}
    return rows, labels.get(loss, rng.uniform(-3, 3, size=m))


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("k", [1, 4])
def test_replaced_rows_move_the_sums_by_no_more_than_the_noise_is_for(loss, k):
    """Replay: all that was heard stays, k rows of one person at each of two sites are others, whatever is in them."""
    rng, nearest = np.random.default_rng(k), np.zeros(2)
    for _ in range(40):
        parts = [drawn(rng, loss) for _ in range(2)]
        others = [(a.copy(), b.copy()) for a, b in parts]
        for (a, b), fresh in zip(others, [drawn(rng, loss) for _ in range(2)], strict=True):
            a[:k], b[:k] = fresh[0][:k], fresh[1][:k]
        algorithm = sv.MaskedNewton(rounds=4, evaluate=0.5, loss=LOSSES[loss], epsilon=20.0, colluding=0)
        ours, theirs = (
            algorithm.oracle(sv.Sites(*map(list, zip(*x, strict=True)), unit=Unit(k, 2)), sv.graphs.complete(2))
            for x in (parts, others)
        )
        session, opener = played(algorithm, ours, 2), curator(algorithm, ours)
        w = rng.normal(size=(ours.d, 1)) * 10.0 ** rng.integers(-2, 3)
        for i, q in enumerate((3, 4)):
            question = session.ask.question.at(w)
            moved = np.linalg.norm(question.of(ours, 80) - question.of(theirs, 80))
            allowed = float(question.sensitivity(ours, 80).item())
            assert allowed == pytest.approx(2 * k * evaluating.moved_by(LOSSES[loss])[i])
            assert moved <= allowed
            nearest[i] = max(nearest[i], moved / allowed)
            opened = opener.open(q, question)
            assert opened.rows == 80
            session.tell(opened._replace(value=opened.value + rng.normal(size=opened.value.shape)))
    assert np.all(nearest > 0.2)


def test_all_rows_of_a_person_in_one_cell_attain_the_bound():
    k, rows = 4, np.tile([[1.0, 0.0]], (10, 1))
    other = np.where(np.arange(10)[:, None] < k, -rows, rows)
    algorithm = sv.MaskedNewton(rounds=4, evaluate=0.5, epsilon=20.0, colluding=0)
    ours, theirs = (
        algorithm.oracle(sv.Sites([a, a], [np.ones(10)] * 2, unit=Unit(k, 2)), sv.graphs.complete(2))
        for a in (rows, other)
    )
    session, opener = played(algorithm, ours, 2), curator(algorithm, ours)
    for q in (3, 4):
        question = session.ask.question.at(np.array([[2.0], [0.0]]))
        moved = question.of(ours, 20) - question.of(theirs, 20)
        assert np.linalg.norm(moved) == pytest.approx(2 * k * math.sqrt(2))
        assert question.sensitivity(ours, 20).item() == pytest.approx(2 * k * math.sqrt(2))
        session.tell(opener.open(q, question))


@pytest.mark.parametrize(("share", "inference"), [(0.1, False), (0.5, True)])
def test_its_share_is_taken_off_the_rest(share, inference):
    algorithm = sv.MaskedNewton(rounds=8, evaluate=share, inference=inference, epsilon=1.0, delta=1e-5)
    without = replace(algorithm, evaluate=None, rounds=6)
    assert sum(algorithm.parts) == pytest.approx(1)
    assert algorithm.split["evaluation"] == pytest.approx(share)
    np.testing.assert_allclose(algorithm.parts[:6], (1 - share) * np.array(without.parts))
    kinds, before = ([line.kind for line in one.schedule(3)] for one in (algorithm, without))
    assert kinds == [*before, "evaluation", "evaluation"]
    rows, sites = drawn(np.random.default_rng(0), "logistic", 4000), 4
    both = sv.Sites(np.split(rows[0], sites), np.split(rows[1], sites))
    statement = algorithm.statement(algorithm.oracle(both, sv.graphs.complete(sites)))
    assert statement.epsilon == pytest.approx(1.0, rel=1e-6)
    assert statement.epsilon <= 1.0


def alone(algorithm, rows, labels):
    return algorithm.oracle(sv.Sites([rows], [labels]), sv.graphs.complete(1))


@pytest.mark.parametrize("extra", [{}, {"inference": True}, {"evaluate": 0.2}, {"inference": True, "evaluate": 0.2}])
def test_the_mean_of_the_models_counts_models_and_not_exchanges(extra):
    """Without noise nearly all models are the same, and so is their mean."""
    rows, labels = drawn(np.random.default_rng(1), "logistic", 400)
    # With inference the ridge is in the last step alone.
    algorithm = sv.MaskedNewton(rounds=150, epsilon=20.0, lam=0.0 if "inference" in extra else 0.5, **extra)
    found = played(algorithm, alone(algorithm, rows, labels), 150).answer
    np.testing.assert_allclose(found.average, found.last, rtol=0.004)


def test_it_counts_right():
    rng = np.random.default_rng(2)
    rows, _ = drawn(rng, "logistic", 3000)
    labels = np.where(rng.random(3000) < 1 / (1 + np.exp(-6 * rows[:, 0])), 1.0, -1.0)
    algorithm = sv.MaskedNewton(rounds=12, epsilon=20.0, evaluate=0.2)
    session = played(algorithm, alone(algorithm, rows, labels), 12)
    (found,) = session.answer.evaluation.tallied(1.0)
    right = float(((rows @ session.answer.last[:, 0] >= 0) == (labels > 0)).mean())
    assert right > 0.8
    assert found.answer.figures["accuracy"].value == pytest.approx(right, abs=1e-9)
    assert found.answer.figures["positive"].value == pytest.approx(float((labels > 0).mean()), abs=1e-9)
    assert played(algorithm, alone(algorithm, rows, labels), 11).answer.evaluation is None


@pytest.mark.parametrize("exposed", [False, True])
def test_of_counts_means_are_compared_with_counts_and_weights_play_no_part(exposed):
    """Not the logarithms of means; and of each row the mean of its own exposure."""
    rng = np.random.default_rng(3)
    rows = rng.uniform(-0.5, 0.5, size=(4000, 3))
    rows[:, 2] = 0.7
    exposures, weights = rng.uniform(0.2, 1, 4000), rng.uniform(0.01, 1, 4000)
    means = np.exp(rows @ [1.0, -1.0, -2.0]) * (exposures if exposed else 1.0)
    labels = np.minimum(rng.poisson(20 * means) / 20, 1.0)
    factors = Factors.of(weights=weights, exposures=exposures if exposed else None)
    algorithm = sv.MaskedNewton(rounds=12, epsilon=20.0, evaluate=0.2, loss=sv.losses.Poisson())
    result = sv.simulate(
        algorithm, sv.Sites([rows], [labels], factors=[factors]), sv.graphs.complete(1), seed=1
    )  # fmt: skip
    predicted = np.minimum(np.exp(factors.shifted(rows @ result.consensus[0])), 1.0)
    told = result.evaluated[0].answer.figures["mean_absolute_error"]
    assert told.value == pytest.approx(np.abs(predicted - labels).mean(), rel=0.02)
    noted = any("whatever its weight" in note for note in result.privacy.notes)
    assert noted


@pytest.mark.parametrize("name", ["ipadmm", "dp-dsgd"])
def test_noise_of_its_own_at_every_site_is_refused_by_name(name):
    with pytest.raises(InputError, match=f"algorithm='masked' with evaluate, got algorithm='{name}'"):
        registry.expect_own(name, {"evaluate": 0.1})


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"evaluate": 0.0}, "share of the budget between 0 and 1, got evaluate=0.0"),
        ({"evaluate": 1.0}, "share of the budget between 0 and 1, got evaluate=1.0"),
        ({"evaluate": math.nan}, "share of the budget between 0 and 1, got evaluate=nan"),
        ({"evaluate": 0.1, "epsilon": math.inf}, "a finite epsilon with evaluate, got epsilon=inf"),
        ({"evaluate": 0.1, "rounds": 3}, "rounds >= 4: .* two of the evaluation, got rounds=3"),
        ({"evaluate": 0.1, "rounds": 5, "inference": True}, "rounds >= 6 with inference"),
    ],
)
def test_shares_that_make_no_sense_are_refused(options, told):
    with pytest.raises(InputError, match=told):
        sv.MaskedNewton(**options)
