"""Rows that are kept for the evaluation, chosen by an order that nobody knows: learnt from the others alone."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
import scipy.sparse as sp
from scipy import stats

import sottovoce as sv
from federation.test_summing import FIVE, GO_ON, SIZES, SPARING, Sums, assert_same, run, simulated
from helpers.federations import masked_agreement, masked_members
from helpers.sums import begun, curator
from sottovoce.errors import InputError, PrivacyError
from sottovoce.federation.agreement import toml_file
from sottovoce.federation.site.masks import Masks
from sottovoce.noise.sources import SeededNoise, Shape, SystemNoise
from sottovoce.problem.factors import Factors
from sottovoce.sums import evaluating
from sottovoce.sums.program import HeldOut, LearntFrom

TERMS = {"rounds": 6, "epsilon": 20.0, "evaluate": 0.3, "hold_out": 4}


def parts(sizes=(30, 3, 81), seed=0, d=4):
    rng = np.random.default_rng(seed)
    features = [rng.uniform(-0.5, 0.5, size=(m, d)) for m in sizes]
    return features, [np.where(a[:, 0] + 0.1 * rng.normal(size=len(a)) > 0, 1.0, -1.0) for a in features]


@pytest.mark.parametrize("sparse", [True, False])
def test_every_so_many_th_row_of_each_site_is_apart_with_all_that_belongs_to_it(sparse):
    features, labels = parts()
    weights = [np.linspace(0.1, 1, len(a)) for a in features]
    made = [sp.csr_array(a) for a in features] if sparse else features
    sites = sv.Sites(made, labels, private=True, factors=[Factors.of(weights=v) for v in weights])
    order = SystemNoise(Shape(3, 4, 1)).order(sites.rows.offsets)
    assert [sorted(order[a:b]) for a, b in pairwise([0, 30, 33, 114])] == [
        [*range(30)],
        [*range(30, 33)],
        [*range(33, 114)],
    ]
    place = np.empty(114, dtype=int)
    place[order] = np.concatenate([np.arange(m) for m in (30, 3, 81)])
    learnt, held = sites.apart(4, order)
    assert (learnt.counts.tolist(), held.counts.tolist()) == ([23, 3, 61], [7, 0, 20])
    assert learnt.private
    for part, out in ((learnt, False), (held, True)):
        which = np.split((place % 4 == 3) == out, [30, 33])
        block = part.rows.block(0, len(part.labels))
        rows = np.concatenate([a[w] for a, w in zip(features, which, strict=True)])
        np.testing.assert_array_equal(block.toarray() if sparse else block, rows)
        for own, all_ in ((part.labels, labels), (part.factors.weights, weights)):
            np.testing.assert_array_equal(own, np.concatenate([b[w] for b, w in zip(all_, which, strict=True)]))


def test_the_model_is_that_of_the_others_and_the_figures_are_of_those():
    """With the same noise: held-out rows are in no sum of learning, the others in none of the evaluation."""
    features, labels = parts((4000, 2400))
    algorithm = sv.MaskedNewton(**TERMS)
    sites = sv.Sites(features, labels)
    order = SeededNoise(1, Shape(2, 4, 1)).order(sites.rows.offsets)
    learnt, held = sites.apart(4, order)
    out = np.zeros(6400, dtype=bool)
    out[order] = np.concatenate([np.arange(m) % 4 == 3 for m in (4000, 2400)])
    result = sv.simulate(algorithm, sites, sv.graphs.complete(2), seed=1)
    # Labels of held-out rows are turned: nothing that is learnt changes.
    turned = sv.Sites(features, np.split(np.where(out, -1, 1) * np.concatenate(labels), [4000]))
    other = sv.simulate(algorithm, turned, sv.graphs.complete(2), seed=1)
    np.testing.assert_array_equal(result.consensus, other.consensus)
    without = replace(algorithm, evaluate=None, hold_out=None, rounds=4, epsilon=np.inf)
    exact = replace(without, rounds=60)
    alone = sv.simulate(exact, learnt, sv.graphs.complete(2)).consensus[0]
    assert alone @ result.consensus[0] > 0.95 * np.linalg.norm(alone) * np.linalg.norm(result.consensus[0])
    for run_, labels_ in ((result, held.labels), (other, -held.labels)):
        (told,) = run_.evaluated
        right = np.mean((held.rows.block(0, 1600) @ result.consensus[0] >= 0) == (labels_ > 0))
        assert told.question.rows == 1600
        assert told.answer.figures["accuracy"].value == pytest.approx(right, abs=0.01)
    assert any("one of every 4 rows of each site" in note for note in result.privacy.notes)
    assert [note[:37] for note in evaluating.about(result.privacy.notes)] == ["The model is evaluated on one of ever"]
    assert not any("looks better there" in note for note in result.privacy.notes)


def test_a_replaced_row_moves_each_sum_by_no_more_and_only_those_of_its_kind():
    features, labels = parts((40, 12))
    algorithm, as_they_lie = sv.MaskedNewton(**TERMS, colluding=0), np.arange(52)
    for row, kind in ((2, LearntFrom), (3, HeldOut)):
        changed = [a.copy() for a in features]
        changed[0][row] = [0.9, -0.3, 0.1, 0.2]
        other = [labels[0].copy(), labels[1]]
        other[0][row] *= -1
        ours, theirs = (
            replace(algorithm.oracle(sv.Sites(x, y), sv.graphs.complete(2)), order=lambda: as_they_lie)
            for x, y in ((features, labels), (changed, other))
        )
        session, opener = begun(algorithm, ours), curator(algorithm, ours)
        for k in range(1, 7):
            question, rows = session.ask.question, 39 if k < 5 else 13
            assert isinstance(question, LearntFrom if k < 5 else HeldOut)
            moved = np.linalg.norm(question.of(ours, rows) - question.of(theirs, rows))
            assert moved <= question.sensitivity(ours, rows).item()
            assert (moved > 0) <= isinstance(question, kind)
            opened = opener.open(k, question)
            assert opened.rows == rows
            noise = 0.01 * np.random.default_rng(k).normal(size=opened.value.shape)
            session.tell(opened._replace(value=opened.value + noise))
        evaluation = session.answer.evaluation
        assert (evaluation.question.placed_rows, evaluation.counted.rows) == (13, 13)


def test_a_row_that_moves_all_others_in_the_file_moves_no_sum_by_more():
    """A table in the order of some value, one row of which gets another value: the rows between are all one place on.
    By places, half of them would change sides. By a secret order, which is as likely for one file as for the other
    however their rows lie, no row but that one does.
    """
    m = 400
    features = np.tile(np.array([[0.9, 0.0, 0.0, 0.1], [-0.9, 0.0, 0.0, 0.1]]), (m // 2, 1))
    labels = np.ones(m)
    there = np.roll(np.arange(m), 1)  # the last row of the one is the first of the other
    algorithm = sv.MaskedNewton(**TERMS | {"hold_out": 2}, colluding=0)
    ours, theirs = (
        algorithm.oracle(sv.Sites([features[rows]], [labels[rows]], private=True), sv.graphs.complete(1))
        for rows in (np.arange(m), there)
    )
    order = SystemNoise(Shape(1, 4, 1)).order(ours.sites.rows.offsets)
    matched = replace(ours, order=lambda: order), replace(theirs, order=lambda: np.argsort(there)[order])
    session = begun(algorithm, ours)
    for k in (1, 2):
        question = session.ask.question
        np.testing.assert_allclose(*(question.of(site, 200) for site in matched), atol=1e-9)
        if k == 1:
            session.tell(curator(algorithm, matched[0]).open(k, question))
    by_places = [question.of(replace(site, order=lambda: np.arange(m)), 200) for site in (ours, theirs)]
    most = question.sensitivity(ours, 200).item()
    assert np.linalg.norm(by_places[0] - by_places[1]) > 50 * most
    with pytest.raises(PrivacyError, match="a secret order of the rows to hold one of 2 out, got none"):
        question.of(ours, 200)
    # Every place is held out as often as any other: 2,000 orders of 12 rows, one of 4 held out.
    offsets, held = np.array([0, 12]), np.zeros(12)
    for _ in range(2000):
        held[SystemNoise(Shape(1, 4, 1)).order(offsets)[3::4]] += 1
    # Places compete, so their sum of squares is 11/12 of a chi-squared's that they would have alone.
    assert stats.chi2.sf(float(np.sum((held - 500) ** 2 / (500 * 0.75))) * 11 / 12, 11) > 1e-9


def test_a_site_holds_the_same_rows_out_whenever_it_starts_and_no_two_sites_the_same():
    sums = Sums(TERMS)
    again = Masks(sums.agreement, "rome", sums.seeds["rome"])
    assert again.order(500).tolist() == sums.masks["rome"].order(500).tolist()
    assert sums.masks["oslo"].order(500).tolist() != again.order(500).tolist()
    assert sorted(again.order(500)) == [*range(500)]


def test_real_sites_read_what_a_simulation_with_the_same_noise_reads():
    held = sum(m // 4 for m in SIZES)
    sums = run(Sums(TERMS))
    assert_same(sums.session.values())
    oracle = sums.agreement.algorithm.oracle(sv.Sites(sums.features, sums.labels), sv.graphs.complete(5))
    starts = oracle.sites.rows.offsets[:-1]
    orders = [sums.masks[name].order(m) + first for name, m, first in zip(FIVE, SIZES, starts, strict=True)]
    session, _ = simulated(sums, replace(oracle, order=lambda: np.concatenate(orders)))
    np.testing.assert_allclose(sums.model(), session.answer.last, rtol=1e-6, atol=1e-6)
    own, other = (one.answer.evaluation.tallied(1.0)[0] for one in (sums.session["rome"], session))
    assert own.question.rows == other.question.rows == held
    accuracy, same = (one.answer.figures["accuracy"] for one in (own, other))
    assert accuracy.value == pytest.approx(same.value, abs=1e-6)


def test_a_site_that_is_lost_takes_its_held_out_rows_along():
    held = sum(m // 4 for m in SIZES)
    sums = Sums(TERMS | SPARING, lost_neighbour=GO_ON)
    for q in range(1, 6):
        sums.take(*sums.turn(q))
    sums.turn(6)
    left = tuple(name for name in FIVE if name != "oslo")
    sums.take(*sums.turn(6, attempt=1, members=left))
    found = [sums.session[name].answer.evaluation for name in left]
    gone = sums.agreement.member("oslo").rows // 4
    assert all(one.question.placed_rows == held for one in found)
    assert all(one.tallied(1.0)[0].question.rows == held - gone for one in found)


def test_it_is_agreed_on():
    made = masked_agreement(algorithm={"evaluate": 0.1, "rounds": 6})
    a = masked_agreement(algorithm={"evaluate": 0.1, "rounds": 6, "hold_out": 5})
    assert toml_file.loads(toml_file.dumps(a)) == a
    assert a.digest() != made.digest()
    assert "hold_out" not in toml_file.dumps(made)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"hold_out": 5}, "evaluate with hold_out, got evaluate=None.*give the share"),
        ({"hold_out": 1, "evaluate": 0.1}, "from 2 to 1000, of which one is held out, got hold_out=1"),
        ({"hold_out": 0, "evaluate": 0.1}, "got hold_out=0"),
        ({"hold_out": 2.5, "evaluate": 0.1}, "a whole number of rows .* got hold_out=2.5"),
        ({"hold_out": 1001, "evaluate": 0.1}, "got hold_out=1001"),
    ],
)
def test_what_makes_no_sense_is_refused(options, told):
    with pytest.raises(InputError, match=told):
        sv.MaskedNewton(**options)


def test_sites_too_small_to_hold_a_row_out_are_refused_by_the_public_count():
    features, labels = parts((5, 3))
    with pytest.raises(
        InputError, match="a site with hold_out=6 rows or more, whichever 2 sites take part, got rows=5"
    ):
        sv.simulate(sv.MaskedNewton(**TERMS | {"hold_out": 6}), sv.Sites(features, labels), sv.graphs.complete(2))


def test_sites_that_would_be_left_without_held_out_rows_are_refused_when_they_agree():
    sites = masked_members(FIVE, (2000, 4, 4, 4, 4))[2]
    terms = {"evaluate": 0.1, "rounds": 6, "hold_out": 5, "least_sites": 4, "spare": 1}
    told = "a site with hold_out=5 rows or more, whichever 4 sites take part, got rows=4"
    with pytest.raises(InputError, match=told):
        masked_agreement(sites, algorithm=terms, lost_neighbour=GO_ON)
