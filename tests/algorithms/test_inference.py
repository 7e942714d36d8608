"""Coefficients with standard errors: what is released for them, what it costs, and whether they are right."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given as drawn
from hypothesis import settings
from hypothesis import strategies as st

import sottovoce as sv
from algorithms.test_masked_privacy import accepts, hockey_stick, neighbours, parts, transcript_loss
from helpers.sums import opened, played
from sottovoce.algorithms.masked import INFERENCE
from sottovoce.errors import InputError
from sottovoce.estimators import PrivateLogisticRegression
from sottovoce.noise.sources import SeededNoise, Shape
from sottovoce.oracle.row_sums import half, whole
from sottovoce.oracle.whitening import Whitening
from sottovoce.privacy import delta, epsilon
from sottovoce.privacy.observers import weakened
from sottovoce.sums.inference import CRITICAL, FLOOR, USUAL, Evidence, infer

N, D, RUNS = 4, 3, 3000
ALL = sv.graphs.complete(N)


def algorithm_of(**options):
    return sv.MaskedNewton(**{"epsilon": 1.0, "delta": 0.05, "colluding": 1, "rounds": 5, "inference": True, **options})


def sites():
    return sv.Sites(*map(list, zip(*parts(), strict=True)))


# -- what is released -------------------------------------------------------------------------------------------------


def test_halves_are_isometric_and_come_back():
    rng = np.random.default_rng(0)
    a, b = (x + x.T for x in rng.normal(size=(2, 4, 4)))
    assert np.linalg.norm(half(a) - half(b)) == pytest.approx(np.linalg.norm(a - b))
    np.testing.assert_allclose(whole(half(a)[None])[0], a)


@pytest.mark.parametrize("sparse", [False, True])
def test_the_sum_of_hessians_is_that_of_the_loss(sparse):
    """Against differences of the sum of gradients."""
    from scipy import sparse as sp

    a, b = np.concatenate([x for x, _ in parts()]), np.concatenate([y for _, y in parts()])
    algorithm = algorithm_of(colluding=None)
    held = sv.Sites([sp.csr_array(a) if sparse else a], [b])
    site = algorithm.oracle(held, sv.graphs.complete(1))
    rng, h = np.random.default_rng(1), 1e-5
    u, A = rng.normal(size=(1, D, 2)), 0.3 * rng.normal(size=(D, D, 2))
    whitening = Whitening(A + A.transpose(1, 0, 2) + np.eye(D)[..., None], np.full((1, 2), 0.6))
    assert (whitening.counted(held.rows, np.ones((len(b), 1))) < 1).any()
    found = whole(site.whitened_hessian_sum(u, whitening)[0].T)
    for j in range(D):
        step = np.zeros((1, D, 1))
        step[0, j] = h
        sums = [site.whitened_gradient_sum(u + by, whitening) for by in (step, -step)]
        slope = (sums[0] - sums[1]) / (2 * h)
        np.testing.assert_allclose(found[:, :, j], slope[0].T, rtol=1e-6, atol=1e-8)


def moved(a, other, w, bound=1.0):
    """By how much replacing the first row moves the sum of Hessians at w, in coordinates that are those of the rows."""
    algorithm = algorithm_of(colluding=None)
    sums = []
    for first in (a, other):
        rows = np.vstack([first, np.full((3, 2), 0.1)])
        site = algorithm.oracle(sv.Sites([rows], [np.ones(4)], data_norm=bound), sv.graphs.complete(1))
        still = Whitening(np.eye(2)[..., None], np.full((1, 1), bound))
        sums.append(site.whitened_hessian_sum(np.asarray(w, dtype=float).reshape(1, 2, 1), still))
    return float(np.linalg.norm(sums[0] - sums[1])), site.whitened_hessian_sum_sensitivity(4, still).item()


def test_orthogonal_rows_at_the_zero_model_attain_the_sensitivity_of_hessians():
    far, bound = moved([2.0, 0.0], [0.0, 2.0], [0.0, 0.0], bound=2.0)
    assert bound == pytest.approx(math.sqrt(2) / 4 * 4, rel=1e-6)
    assert far == pytest.approx(bound, rel=1e-6)
    assert far <= bound


unit = st.floats(-1, 1)


@settings(max_examples=60)
@drawn(st.tuples(unit, unit), st.tuples(unit, unit), st.tuples(st.floats(-50, 50), st.floats(-50, 50)))
def test_no_row_moves_the_sum_of_hessians_further(a, other, w):
    a, other = (np.asarray(x) / max(1.0, float(np.linalg.norm(x)) * (1 + 1e-12)) for x in (a, other))
    far, bound = moved(a, other, w)
    assert far <= bound


@pytest.mark.parametrize("k", [4, 5])
def test_the_hessian_and_the_last_gradient_carry_their_noise(k):
    algorithm, held = algorithm_of(), sites()
    site = algorithm.oracle(held, ALL)
    question, value, *_ = opened(algorithm, site, SeededNoise(4, Shape(N, D, RUNS)), RUNS)[k - 1]
    moves = question.sensitivity(site, 12 * N)
    assert moves.shape == (1, RUNS)
    left = (value - question.of(site, 12 * N)) / (algorithm.multipliers(site.n)[k - 1] * moves)
    assert accepts(left * math.sqrt(3 / 4))
    assert not accepts(left * math.sqrt(3 / 4) * 2 / 3)


# -- what it costs ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rounds", [4, 5, 8, 12])  # with 8, the moments take as much as a gradient
def test_the_budget_is_dealt_out_whole_and_never_overdrawn(rounds):
    algorithm = algorithm_of(rounds=rounds, spare=1)
    assert sum(algorithm.parts) == pytest.approx(1)
    site = algorithm.oracle(sites(), ALL)
    sigmas = algorithm.multipliers(site.n)
    mu = math.sqrt(sum(s**-2 for s in sigmas) + max(s**-2 for s in sigmas))
    spent = algorithm.spent(rounds, site)
    assert spent <= 1.0
    assert epsilon(sv.privacy.Gaussian(1 / mu), 0.05) == pytest.approx(spent, rel=1e-9)
    np.testing.assert_allclose(list(algorithm.split.values()), INFERENCE)
    kinds = [line.kind for line in algorithm.schedule(D)]
    assert kinds == ["second moments", *(rounds - 3) * ["descent"], "Hessian", "last gradient"]


def test_with_less_noise_more_of_the_budget_goes_to_the_last_gradient():
    """By public numbers, once, and within bounds; what was agreed on stays."""
    shared = {"epsilon": 1.0, "delta": 1e-6, "inference": True}
    found = [sv.MaskedNewton(**shared).bound_to(rows, 16, 1) for rows in (10**3, 2 * 10**4, 10**5, 10**7)]
    assert all(sum(one.division) == pytest.approx(1) for one in found)
    assert list(found[0].split.values()) == pytest.approx(INFERENCE)
    assert [one.division[3] for one in found] == sorted(one.division[3] for one in found)
    assert found[0].division[3] < found[1].division[3] < found[2].division[3] == found[3].division[3]
    assert found[1].bound_to(10**7, 16, 1) == found[1]
    assert sv.MaskedNewton(**shared | {"focus": (1,)}).bound_to(10**7, 16, 1).division is None
    assert sv.MaskedNewton(**shared | {"inference": False}).bound_to(10**7, 16, 1).division is None
    for bad in ({"division": (0.2, 0.2, 0.2, 0.3)}, {"division": (0.5, 0.5, 0.0, 0.0)}):
        with pytest.raises(InputError, match="division as four parts of the budget"):
            sv.MaskedNewton(**shared | bad)
    with pytest.raises(InputError, match="with inference"):
        sv.MaskedNewton(division=INFERENCE)


@pytest.mark.parametrize("kind", ["orthogonal", "opposite", "removed"])
def test_no_transcript_with_a_hessian_tells_more_than_the_accountant_says(kind):
    algorithm = algorithm_of(colluding=0)
    pair = neighbours(kind)
    for ours, theirs in (pair, pair[::-1]):
        found, event = transcript_loss(algorithm, ours, theirs)
        for e in (0.0, 0.25, 0.5, 1.0, 1.5):
            assert hockey_stick(found, e) <= delta(event, e)


def test_who_leaves_the_hessian_out_of_the_books_is_caught():
    """Most of the budget is the Hessian's here: an event without it promises less than is seen."""
    algorithm = algorithm_of(colluding=0, epsilon=4.0)
    found, event = transcript_loss(algorithm, *neighbours("orthogonal"))
    believed = weakened(event, 2.5)
    assert max(hockey_stick(found, e) - delta(believed, e) for e in (0.0, 0.25, 0.5, 1.0)) > 0


# -- whether it is right ----------------------------------------------------------------------------------------------

TRUTH = np.array([1.5, -1.0, 0.7, -0.4])


def table(rows, seed, twin=False):
    rng = np.random.default_rng(seed)
    x = rng.uniform(-1, 1, size=(rows, 3))
    if twin:
        x[:, 2] = x[:, 1]
    a = np.column_stack([x, np.ones(rows)]) / 2
    b = np.where(rng.random(rows) < 1 / (1 + np.exp(-2 * a @ TRUTH)), 1.0, -1.0)
    return a, b


def fitted(a, b):
    """The maximum of the likelihood and its standard errors, by Newton's method."""
    w = np.zeros(a.shape[1])
    for _ in range(40):
        p = 1 / (1 + np.exp(-a @ w))
        information = a.T @ (a * (p * (1 - p))[:, None])
        w = w - np.linalg.solve(information, a.T @ (p - (b + 1) / 2))
    return w, np.sqrt(np.diag(np.linalg.inv(information)))


def run(a, b, runs=1, **options):
    algorithm = algorithm_of(**{"delta": 1e-6, "colluding": None, "rounds": 12, **options})
    return sv.simulate(algorithm, sv.Sites(np.array_split(a, N), np.array_split(b, N)), ALL, runs=runs, seed=2)


@pytest.mark.parametrize("lam", [1e-6, 1e-2])
def test_without_noise_it_is_the_textbook_whatever_the_ridge_of_the_model(lam):
    a, b = table(4000, 0)
    (evidence,) = run(a, b, epsilon=math.inf, rounds=100, lam=lam).evidence
    found = infer(evidence, np.eye(4))
    estimate, errors = fitted(a, b)
    np.testing.assert_allclose(found.values, estimate, atol=1e-4)
    np.testing.assert_allclose(found.errors, errors, rtol=1e-3)
    assert found.identified.all()


def test_errors_are_as_large_as_estimates_scatter():
    """Over the noise of many runs on the same rows, around what the rows say without it."""
    a, b = table(8000, 1)
    exact, sampling = fitted(a, b)
    results = [infer(replace(one, largest=0.5), np.eye(4)) for one in run(a, b, runs=300, epsilon=0.35).evidence]
    far = np.array([one.values for one in results]) - exact
    meant = np.sqrt(np.median([one.errors**2 for one in results], axis=0) - sampling**2)
    assert np.mean([one.identified for one in results]) > 0.97
    over = meant / far.std(axis=0)
    assert (over > 0.8).all()
    assert (over < 1.35).all()
    assert (np.abs(far.mean(axis=0)) < 0.3 * meant).all()
    assert far[:, 0].std() > 1.2 * sampling[0]  # the noise alone is more than who leaves it out would say of all


def test_columns_that_are_the_same_are_not_identified_and_spoil_no_other():
    a, b = table(20_000, 3, twin=True)
    found = [infer(evidence, np.eye(4)) for evidence in run(a, b, runs=40, epsilon=4.0).evidence]
    known = np.array([one.identified for one in found])
    assert not known[:, 1:3].any()
    assert known[:, [0, 3]].mean() > 0.9
    together = infer(run(a, b, epsilon=4.0).evidence[0], np.array([[0.0, 1.0, 1.0, 0.0]]))
    assert together.identified.all()  # their sum is
    assert abs(together.values[0] - 2 * (TRUTH[1] + TRUTH[2])) < 5 * together.errors[0]


def test_too_little_budget_identifies_nothing_and_intervals_are_wide_enough():
    a, b = table(500, 4)
    found = [infer(replace(e, largest=0.5), np.eye(4)) for e in run(a, b, runs=40, epsilon=0.2).evidence]
    assert not any(one.identified.any() for one in found)
    far = np.array([np.abs(one.values - TRUTH) / one.errors for one in found])
    assert np.isfinite(far).all()
    assert np.mean(far < CRITICAL) > 0.9


def test_a_direction_that_noise_hides_is_told_with_what_coefficients_usually_are():
    """Two columns that are all but the same: of their difference nothing is known, so it is within what is usual."""
    rng = np.random.default_rng(7)
    x = rng.uniform(-1, 1, size=(20_000, 2))
    a = np.column_stack([x, x[:, 1] + 1e-3 * rng.normal(size=len(x)), np.ones(len(x))]) / 2.1
    z = a @ (2.1 * np.array([1.0, 0.8, -0.3, -0.4]))
    b = np.where(rng.random(len(x)) < 1 / (1 + np.exp(-z)), 1.0, -1.0)
    found = [infer(replace(e, largest=1 / 2.1), np.eye(4) / 2.1) for e in run(a, b, runs=60, epsilon=2.0).evidence]
    assert not any(one.identified[[1, 2]].any() for one in found)
    assert all(one.identified[[0, 3]].all() for one in found)
    errors = np.array([one.errors for one in found])
    # Hidden ones are known ten times worse than the others at least, and usually no better than what is usual.
    assert (errors[:, 1:3] > 0.2).all()
    assert np.median(errors[:, 1:3]) > 1
    assert np.quantile(errors[:, 1:3], 0.9) < 50
    assert np.mean([np.abs(one.values - [1.0, 0.8, -0.3, -0.4]) < CRITICAL * one.errors for one in found]) > 0.9


def test_where_noise_hides_a_direction_the_point_there_is_not_told():
    """The descent came to 2 there, maybe by noise alone. Where it came further than what is supposed to be hidden, no
    more than that is taken off: all that goes with the direction would be wrong by the rest.
    """
    for came, told in ((2.0, 0.0), (-2.0, 0.0), (60.0, 60 - USUAL)):
        evidence = Evidence(np.array([1.0, came]), np.zeros(2), np.diag([0.2, 0.0]), 1e-4, 1e-3, 10_000)
        found = infer(evidence, np.eye(2))
        np.testing.assert_allclose(found.values, [1.0, told], atol=1e-12)
        assert found.identified.tolist() == [True, False]
        assert found.errors[0] < 0.1
        assert found.errors[1] > 1.0


def test_the_same_numbers_give_the_same_table_in_any_unit():
    rng = np.random.default_rng(5)
    h = np.diag([0.3, 0.2, 0.1]) + 0.01 * np.ones((3, 3))
    evidence = Evidence(rng.normal(size=3), 0.001 * rng.normal(size=3), h, 1e-3, 1e-3, 10_000)
    one, other = infer(evidence, np.eye(3)), infer(evidence, 7 * np.eye(3))
    np.testing.assert_allclose(7 * one.values, other.values)
    np.testing.assert_allclose(7 * one.errors, other.errors)
    assert (one.identified == other.identified).all()
    assert pytest.approx(1.959964) == CRITICAL


# -- what is refused --------------------------------------------------------------------------------------------------


def test_what_has_no_standard_errors_is_refused():
    with pytest.raises(InputError, match="rounds >= 4 with inference"):
        sv.MaskedNewton(inference=True, rounds=3)
    with pytest.raises(InputError, match="loss='logistic' or 'poisson' with inference"):
        sv.MaskedNewton(inference=True, loss=sv.losses.Huber())
    with pytest.raises(InputError, match="loss='logistic' or 'poisson' with inference"):
        sv.MaskedNewton(inference=True, loss=sv.losses.Softmax(3))
    with pytest.raises(InputError, match="no max_grad_norm"):
        sv.MaskedNewton(inference=True, max_grad_norm=0.5)
    wide = sv.Sites([np.eye(600)[:20]], [np.ones(20)])
    with pytest.raises(InputError, match="at most 511 features"):
        sv.simulate(sv.MaskedNewton(inference=True), wide, sv.graphs.complete(1), seed=0)


def test_a_run_that_did_not_ask_or_did_not_finish_leaves_no_evidence():
    a, b = table(200, 6)
    held = sv.Sites([a], [b])
    assert sv.simulate(sv.MaskedNewton(rounds=4), held, sv.graphs.complete(1), seed=0).evidence == ()
    algorithm = replace(sv.MaskedNewton(rounds=6), inference=True)
    site = algorithm.oracle(held, sv.graphs.complete(1))
    assert played(algorithm, site, 5).answer.evidence == ()
    assert len(played(algorithm, site, 6).answer.evidence) == 1


def test_where_classes_are_nearly_separate_nothing_is_called_identified():
    """The Hessian is taken on the way there, where rows still seem to say much of a flag that they say little of."""
    rng, rows = np.random.default_rng(5), 20_000
    flag = rng.random(rows) < 0.1
    a = np.column_stack([rng.uniform(-1, 1, size=rows), flag, np.ones(rows)]) / math.sqrt(3)
    z = a @ (np.array([1.0, -8.0, -0.5]) * math.sqrt(3))
    b = np.where(rng.random(rows) < 1 / (1 + np.exp(-z)), 1.0, -1.0)
    evidence = run(a, b, runs=10, epsilon=8.0, rounds=5).evidence
    seeming = np.array([infer(replace(one, hessian_point=None), np.eye(3)).identified for one in evidence])
    found = np.array([infer(one, np.eye(3)).identified for one in evidence])
    assert seeming[:, 1].mean() > 0.5
    assert not found[:, 1].any()
    assert found[:, [0, 2]].all()


def rare(rows, seed, effect, share, levels):
    """A number, a rare flag, and a category of many levels that says nothing: most columns are 0 in every row."""
    rng = np.random.default_rng(seed)
    level = rng.integers(levels, size=rows)[:, None] == np.arange(1, levels)
    x = np.column_stack([rng.uniform(-1, 1, rows), rng.random(rows) < share, level]).astype(float)
    return x, rng.random(rows) < 1 / (1 + np.exp(-(x[:, 0] + effect * x[:, 1] - 0.5)))


@pytest.mark.parametrize("lam", [1e-4, 1e-3])
@pytest.mark.parametrize("effect", [-2.5, 2.5])
def test_a_strong_effect_on_a_rare_level_is_held_whatever_the_ridge_of_the_model(effect, lam, recwarn):
    """It was around what the ridge left of it, and narrower than a Hessian taken there allows."""
    lines = []
    for seed in range(6):
        x, y = rare(20_000, seed, effect, 0.04, 20)
        known = {"epsilon": 10.0, "delta": 1e-6, "data_norm": 1.75, "classes": [False, True], "inference": True}
        lines.append(PrivateLogisticRegression(**known, lam=lam, random_state=seed).fit(x, y).summary().lines[1])
    shown = [line for line in lines if line.identified]
    assert len(shown) >= 4
    assert np.mean([line.low <= effect <= line.high for line in shown]) >= 0.8
    assert abs(np.mean([line.estimate for line in shown]) - effect) < 0.25


@pytest.mark.parametrize("off", [-1.5, -1.0, 1.0, 1.5])
def test_a_hessian_from_elsewhere_makes_no_interval_that_misses(off):
    """Without a draw: the released numbers are exact, of a model whose rare coefficient is off by so much."""
    x, y = rare(50_000, 0, -2.5, 0.02, 20)
    a = np.column_stack([x, np.ones(len(x))]) / 2
    exact, _ = fitted(a, np.where(y, 1.0, -1.0))
    point = exact + 2 * off * np.eye(len(exact))[1]
    p = 1 / (1 + np.exp(-a @ point))
    hessian, moments = a.T @ (a * (p * (1 - p))[:, None]) / len(a), a.T @ a / len(a)
    gradient = a.T @ (p - y) / len(a)
    evidence = Evidence(point, gradient, hessian, 1e-5, 1e-6, len(a), hessian_point=point, moments=moments, largest=0.5)
    found = infer(evidence, np.eye(len(exact)))
    misses = np.abs(found.values - exact) > CRITICAL * found.errors
    assert abs(found.values[1] - exact[1]) > 0.3  # one step does not get there
    assert not misses[found.identified].any()


def test_errors_grow_as_noise_hides_a_direction():
    """Its eigenvalue passes the floor. The bootstrap took half the floor for it just below, and errors fell."""
    noise, p = 0.01, 12

    def error(value):
        hessian = np.diag([*np.ones(p - 1), value * FLOOR * noise * math.sqrt(2 * p)])
        return infer(Evidence(np.full(p, 0.2), np.zeros(p), hessian, 0.01, noise, 10_000), np.eye(p)).errors[-1]

    errors = [error(value) for value in (1.2, 1.02, 0.98, 0.8, 0.4)]
    assert errors == sorted(errors)
