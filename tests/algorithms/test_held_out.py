"""Rows that a public rule keeps for the evaluation: learnt from the others alone, counted in nothing else."""

from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp

import sottovoce as sv
from federation.test_summing import FIVE, GO_ON, SIZES, SPARING, Sums, assert_same, run
from helpers.federations import masked_agreement
from sottovoce.algorithms import evaluating
from sottovoce.errors import InputError
from sottovoce.federation.agreement import signing
from sottovoce.federation.site.summing import _Everyone
from sottovoce.problem.factors import Factors

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
    learnt, held = sites.apart(4)
    assert (learnt.counts.tolist(), held.counts.tolist()) == ([23, 3, 61], [7, 0, 20])
    assert learnt.private
    for part, chosen in ((learnt, lambda j: j % 4 != 3), (held, lambda j: j % 4 == 3)):
        which = [np.array([chosen(j) for j in range(len(a))], dtype=bool) for a in features]
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
    learnt, held = sites.apart(4)
    result = sv.simulate(algorithm, sites, sv.graphs.complete(2), seed=1)
    # Labels of held-out rows are turned: nothing that is learnt changes.
    turned = sv.Sites(features, [np.where(np.arange(len(b)) % 4 == 3, -b, b) for b in labels])
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
    assert any("every 4-th row of each site" in note for note in result.privacy.notes)
    assert [note[:37] for note in evaluating.about(result.privacy.notes)] == ["The model is evaluated on every 4-th "]
    assert not any("looks better there" in note for note in result.privacy.notes)


def test_a_replaced_row_moves_each_sum_by_no_more_and_only_those_of_its_kind():
    features, labels = parts((40, 12))
    algorithm = sv.MaskedNewton(**TERMS, colluding=0)
    for row, kinds in ((2, {"moments", "gradient"}), (3, {"places", "counts"})):
        changed = [a.copy() for a in features]
        changed[0][row] = [0.9, -0.3, 0.1, 0.2]
        other = [labels[0].copy(), labels[1]]
        other[0][row] *= -1
        ours, theirs = (
            algorithm.oracle(sv.Sites(x, y), sv.graphs.complete(2)) for x, y in ((features, labels), (changed, other))
        )
        state = algorithm.start(ours, 1)
        for k in range(1, 7):
            sums = [algorithm.exact(k, state, site) for site in (ours, theirs)]
            moved = np.linalg.norm(sums[0] - sums[1])
            assert moved <= algorithm.sensitivity(k, state, ours).item()
            assert (moved > 0) <= (algorithm.kind(k) in kinds)
            noisy = sums[0] + 0.01 * np.random.default_rng(k).normal(size=sums[0].shape)
            state = algorithm.absorb(k, state, ours, _Everyone(noisy))
        assert state.asked[0, :, 0].tolist() == [13, 13]


def test_real_sites_read_what_a_simulation_with_the_same_noise_reads():
    held = sum(m // 4 for m in SIZES)
    sums = run(Sums(TERMS | {"total_held": held}))
    assert_same(sums.state.values())
    algorithm = replace(sums.agreement.algorithm, total_rows=None, total_held=None)
    oracle = algorithm.oracle(sv.Sites(sums.features, sums.labels), sv.graphs.complete(5))
    state = algorithm.start(oracle, 1)
    for q, noise in enumerate(sums.noise, 1):
        if algorithm.kind(q) == "places":
            np.testing.assert_allclose(state.w, sums.state["rome"].w, rtol=1e-6, atol=1e-6)
            state = state._replace(w=sums.state["rome"].w)
        total = algorithm.exact(q, state, oracle) + noise.reshape(1, -1, 1)
        state = algorithm.absorb(q, state, oracle, _Everyone(total))
    (simulated,) = algorithm.evaluated(6, state, oracle)
    (own,) = sums.site["rome"].algorithm.evaluated(6, sums.state["rome"], sums.site["rome"].oracle)
    assert own.question.rows == simulated.question.rows == held
    accuracy, other = (one.answer.figures["accuracy"] for one in (own, simulated))
    assert accuracy.value == pytest.approx(other.value, abs=1e-6)


def test_a_site_that_is_lost_takes_its_held_out_rows_along():
    held = sum(m // 4 for m in SIZES)
    sums = Sums(TERMS | SPARING | {"total_held": held}, lost_neighbour=GO_ON)
    for q in range(1, 6):
        sums.take(*sums.turn(q))
    sums.turn(6)
    left = tuple(name for name in FIVE if name != "oslo")
    sums.take(*sums.turn(6, attempt=1, members=left))
    found = [sums.site[name].algorithm.evaluated(6, sums.state[name], sums.site[name].oracle)[0] for name in left]
    gone = sums.agreement.member("oslo").rows // 4
    assert all(one.question.rows == held - gone for one in found)


def test_it_is_agreed_on_and_wrong_numbers_are_refused():
    made = masked_agreement(algorithm={"evaluate": 0.1, "rounds": 6})
    held = sum(site.rows // 5 for site in made.sites)
    a = masked_agreement(algorithm={"evaluate": 0.1, "rounds": 6, "hold_out": 5, "total_held": held})
    assert signing.loads(signing.dumps(a)) == a
    assert a.digest() != made.digest()
    assert "hold_out" not in signing.dumps(made)
    with pytest.raises(InputError, match=f"total_held={held}, of all sites, got total_held={held + 1}"):
        masked_agreement(algorithm={"evaluate": 0.1, "rounds": 6, "hold_out": 5, "total_held": held + 1})


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"hold_out": 5}, "evaluate with hold_out, got evaluate=None.*say which share"),
        ({"hold_out": 1, "evaluate": 0.1}, "from 2 to 1000, of which one is held out, got hold_out=1"),
        ({"hold_out": 0, "evaluate": 0.1}, "got hold_out=0"),
        ({"hold_out": 1001, "evaluate": 0.1}, "got hold_out=1001"),
        ({"total_held": 5, "evaluate": 0.1}, "no total_held without hold_out"),
    ],
)
def test_what_makes_no_sense_is_refused(options, told):
    with pytest.raises(InputError, match=told):
        sv.MaskedNewton(**options)


def test_sites_too_small_to_hold_a_row_out_are_refused_by_the_public_count():
    features, labels = parts((5, 3))
    with pytest.raises(InputError, match="a site with hold_out=6 rows or more, got rows=5"):
        sv.simulate(sv.MaskedNewton(**TERMS | {"hold_out": 6}), sv.Sites(features, labels), sv.graphs.complete(2))
