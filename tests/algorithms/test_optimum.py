"""Without noise every rival finds what a trusted party with all rows would find, and is the algorithm that it says."""

import math

import numpy as np
import pytest
import scipy

import sottovoce as sv
from algorithms import harness
from helpers import every, problems
from sottovoce import algorithms as al
from sottovoce.simulation import optimum

SIZES = (4, 30, 9, 17, 1, 12)
IRREGULAR = sv.graphs.from_edges(6, [(0, 1), (1, 2), (2, 0), (2, 3), (3, 4), (4, 5), (1, 5)])
LAM, RHO = 0.3, 0.05
QUIET = {"epsilon": math.inf, "rho": RHO, "lam": LAM}
NOISELESS = {
    "pvp": (al.PVP(rounds=500, **QUIET), 1e-8),
    "pvp, published": (al.PVP(rounds=500, form="published", **QUIET), 1e-8),
    "dvp": (al.DVP(rounds=500, **QUIET), 1e-8),
    "m-admm": (al.MADMM(rounds=500, **QUIET), 1e-8),
    "m-admm, growing": (al.MADMM(rounds=800, growth=1.05, most=2.0, **QUIET), 1e-6),
    "r-admm": (al.RADMM(rounds=1000, **QUIET), 1e-8),
    "r-admm, other gamma_r": (al.RADMM(rounds=1000, gamma_r=1.0, **QUIET), 1e-6),
    "dp-admm": (al.DPADMM(rounds=3000, **QUIET), 1e-8),
    # Steps that shorten for ever come close, and no closer in a short test.
    "ryu-kim": (al.RyuKim(rounds=1500, local_steps=4, diameter=20.0, **QUIET), 1e-5),
    "dp-dsgd": (al.DPDSGD(rounds=20000, diameter=10.0, **QUIET), 1e-3),
    "fixed point": (al.FixedPoint(rounds=500, **QUIET), 1e-8),
    "noisy averaged": (al.NoisyAveragedGD(rounds=3000, diameter=10.0, **QUIET), 1e-8),
    "trusted curator": (al.TrustedCurator(rounds=3000, diameter=10.0, **QUIET), 1e-8),
}


def graph_for(algorithm):
    return every.graph_for(algorithm, IRREGULAR)


@pytest.mark.parametrize("name", NOISELESS)
def test_every_rival_reaches_the_pooled_optimum_without_noise(name):
    algorithm, close = NOISELESS[name]
    features, labels = problems.lists(np.random.default_rng(3), SIZES)
    result = sv.simulate(algorithm, sv.Sites(features, labels), graph_for(algorithm), record=1)
    objective = problems.pooled_objective(features, labels, algorithm.loss, LAM)
    minimum = problems.pooled_minimum(features, labels, algorithm.loss, LAM)[1]
    excess = max(objective(w)[0] - minimum for w in result.last[0])
    assert -1e-10 < excess < close
    assert not result.privacy.private


def messages(algorithm, sites, graph, noise=None, runs=1, rounds=None):
    """All messages of a run, round by round."""
    site = algorithm.oracle(sites, graph)
    state, sent = algorithm.start(site, runs), []
    for k in range(1, (rounds or algorithm.rounds) + 1):
        message, state = algorithm.release(k, state, site, noise)
        state = algorithm.absorb(k, state, site, graph.exchange(message))
        sent.append(message)
    return np.stack(sent)


@pytest.mark.parametrize("kind", [al.PVP, al.DVP, al.MADMM])
def test_without_noise_it_is_admm_round_by_round(kind):
    sites = problems.sites(np.random.default_rng(5), SIZES)
    ours = messages(kind(rounds=12, **QUIET), sites, IRREGULAR)
    theirs = messages(al.ADMM(rounds=12, rho=RHO, lam=LAM), sites, IRREGULAR)
    np.testing.assert_allclose(ours, theirs, atol=1e-7)


def test_m_admm_with_a_constant_penalty_is_dvp():
    """Penalty noise e is a linear term b = 2 rho |N_i| e, so the same b gives the same models."""
    sites = problems.sites(np.random.default_rng(6), (40, 90, 60, 170, 50, 120))
    z = np.random.default_rng(0).normal(size=(4, 2, 6, 2, 5))
    options = {"rounds": 4, "rho": 1.0, "epsilon": 2.0}
    one, two = (
        messages(kind(**options), sites, IRREGULAR, harness.given(z, 6, 5, 2), runs=2) for kind in (al.DVP, al.MADMM)
    )
    np.testing.assert_allclose(one, two, atol=1e-9)
    growing = messages(al.MADMM(growth=1.5, **options), sites, IRREGULAR, harness.given(z, 6, 5, 2), runs=2)
    assert np.abs(growing[1:] - two[1:]).max() > 1e-3


def test_the_penalty_grows_up_to_its_cap():
    algorithm = al.MADMM(rho=0.5, growth=2.0, most=6.0)
    assert [algorithm.penalty(k) for k in (1, 2, 3, 4, 5, 5000)] == pytest.approx([0.5, 1.0, 2.0, 3.0, 3.0, 3.0])
    assert {al.MADMM(rho=0.5).penalty(k) for k in (1, 2, 100)} == {0.5}


@pytest.mark.parametrize("gamma_r", [None, 0.7])
def test_an_even_step_of_r_admm_is_the_linearised_step_with_the_noisy_gradient(gamma_r):
    """w - [g - 2 gamma + rho sum_j (w_i - w_j)] / (2 rho |N_i| + gamma_R), with g = grad L(w) + b, row by row."""
    sites = problems.sites(np.random.default_rng(7), (40, 90, 60, 170, 50, 120))
    algorithm = al.RADMM(rounds=4, rho=1.0, epsilon=2.0, gamma_r=gamma_r)
    site = algorithm.oracle(sites, IRREGULAR)
    z = np.random.default_rng(1).normal(size=(4, 2, 6, 2, 5))
    z[:, :, :, 1] = 0.0  # an exact argmin
    noise, state = harness.given(z, 6, 5, 2), algorithm.start(site, 2)
    proximal = 0.25 + site.lam if gamma_r is None else gamma_r
    expected = exact = site.zeros(2)
    for k in range(1, 5):
        sent, state = algorithm.release(k, state, site, noise)
        if k % 2 == 0:
            np.testing.assert_allclose(sent, expected, atol=1e-8)
            assert np.abs(sent - exact).max() > 1e-3
        state = algorithm.absorb(k, state, site, IRREGULAR.exchange(sent))
        b = algorithm.sigma(site) * site.sensitivity() * noise.normals(k, 0)
        pulled = site.degree * sent - IRREGULAR.neighbour_sum(sent)
        expected, exact = (
            sent - (site.gradient(sent) + x - 2 * state.gamma + pulled) / (2 * site.degree + proximal) for x in (b, 0)
        )


def test_dp_admm_is_ipadmm_with_one_step_and_its_own_eta():
    """For a loss without curvature the two have the same eta, too, and then all is the same."""
    sites = problems.sites(np.random.default_rng(8), SIZES)
    options = {"rounds": 5, "rho": RHO, "diameter": 7.0, "loss": sv.losses.Hinge()}
    ours = sv.simulate(al.DPADMM(**options), sites, IRREGULAR, runs=3, seed=1)
    theirs = sv.simulate(al.IPADMM(local_steps=1, **options), sites, IRREGULAR, runs=3, seed=1)
    np.testing.assert_allclose(ours.last, theirs.last, atol=1e-12)
    assert ours.privacy.epsilon == theirs.privacy.epsilon


def test_dp_admm_steps_are_the_printed_ones():
    """1 / eta = c3 + 4 c1 sqrt(d k ln(1.25/delta)) / (m eps c_w), eps for one of t rounds, eps sqrt(t) in all."""
    sites = problems.sites(np.random.default_rng(8), SIZES)
    algorithm = al.DPADMM(rounds=9, diameter=7.0, lam=0.0, epsilon=0.6, form="published")
    site = algorithm.oracle(sites, IRREGULAR)
    each = 0.6 / 3
    for k in (1, 4):
        printed = 0.25 + 4 * math.sqrt(5 * k * math.log(1.25e5)) / (np.array(SIZES) * each * 7.0)
        np.testing.assert_allclose(algorithm.eta(k, site)[:, 0, 0], printed, rtol=1e-9)


def test_one_round_of_dsgd_and_of_the_fixed_point_by_hand():
    sites = problems.sites(np.random.default_rng(9), SIZES)
    z = np.random.default_rng(2).normal(size=(1, 1, 6, 1, 5))
    dsgd = al.DPDSGD(rounds=1, diameter=3.0)
    site = dsgd.oracle(sites, IRREGULAR)
    noisy = site.gradient(site.zeros(1)) - dsgd.sigma(site) * site.sensitivity() * z[0].transpose(1, 3, 2, 0)[..., 0, :]
    v = -noisy / dsgd.eta(1, site)
    mixing = np.eye(6) - (np.diag(IRREGULAR.degrees) - IRREGULAR.neighbour_sum(np.eye(6))) / (1 + 3)
    result = sv.simulate(dsgd, sites, IRREGULAR, noise=lambda k: z[k - 1])
    np.testing.assert_allclose(result.last[0], mixing @ v[:, :, 0], atol=1e-12)
    np.testing.assert_allclose(mixing.sum(axis=0), 1)

    fixed = al.FixedPoint(rounds=1, step=2.0, relaxation=0.3, epsilon=math.inf)
    site = fixed.oracle(sites, sv.graphs.complete(6))
    x = site.argmin(site.zeros(1), np.full((6, 1, 1), 0.5), site.zeros(1), 1e-10)
    result = sv.simulate(fixed, sites, sv.graphs.complete(6))
    np.testing.assert_allclose(result.last[0, 3], 0.6 * x.mean(axis=0)[:, 0], atol=1e-9)


def test_averaged_gradient_descent_by_hand():
    features, labels = problems.lists(np.random.default_rng(10), SIZES)
    algorithm = al.NoisyAveragedGD(rounds=3, diameter=4.0, epsilon=math.inf, lam=LAM)
    objective, w = problems.pooled_objective(features, labels, algorithm.loss, LAM), np.zeros(5)
    scale = 1 + LAM * 4.0
    for k in (1, 2, 3):
        w = w - objective(w)[1] * 4.0 / (math.sqrt(2 * k) * scale)
    result = sv.simulate(algorithm, sv.Sites(features, labels), sv.graphs.complete(6))
    np.testing.assert_allclose(result.last[0], np.tile(w, (6, 1)), atol=1e-12)


def test_rounding_does_not_drive_averaging_nodes_apart():
    """Even where steps are far too long (eta below 1/2), everyone holds the same model."""
    sites = problems.sites(np.random.default_rng(11), SIZES)
    algorithm = al.NoisyAveragedGD(rounds=150, diameter=60.0)
    last = sv.simulate(algorithm, sites, sv.graphs.complete(6), seed=1, record=1).last[0]
    assert np.abs(last - last[0]).max() <= 1e-12 * np.abs(last).max()


@pytest.mark.parametrize("loss", [sv.losses.Logistic(), sv.losses.Huber()])
def test_of_many_features_only_products_with_the_hessian_are_taken(monkeypatch, loss):
    """The pooled optimum is the same, whichever way its linear systems are solved."""
    features, labels = problems.lists(np.random.default_rng(3), SIZES)
    sites, algorithm = sv.Sites(features, labels), sv.IPADMM(epsilon=1.0, lam=LAM, loss=loss)
    factorised = optimum.pooled_model(sites, algorithm)
    monkeypatch.setattr("sottovoce.oracle.argmin.plain._MOST_FACTORISED", 1)
    monkeypatch.setattr(scipy.linalg, "solve", lambda *_, **__: pytest.fail("factorised"))
    assert optimum.pooled_model(sites, algorithm) == pytest.approx(factorised, abs=1e-7)


def test_the_pooled_optimum_is_given_up_in_time():
    features, labels = problems.lists(np.random.default_rng(3), SIZES)
    sites, algorithm = sv.Sites(features, labels), sv.IPADMM(epsilon=1.0, lam=LAM)
    with pytest.raises(optimum.OutOfTimeError, match="within 0 s"):
        optimum.pooled_model(sites, algorithm, seconds=0.0)
    assert optimum.pooled_optimum(sites, algorithm, seconds=60.0) > 0


def test_two_algorithms_share_an_optimum_only_where_their_objectives_agree():
    rng = np.random.default_rng(0)

    def dealt(*counts):
        rows = [rng.uniform(-0.5, 0.5, (count, 2)) for count in counts]
        return sv.Sites(rows, [np.where(rng.random(count) < 0.5, -1.0, 1.0) for count in counts])

    equal, rows = sv.IPADMM(weights="equal"), sv.IPADMM(weights="rows")
    assert optimum.same_optimum(dealt(3, 3), equal, rows)
    assert not optimum.same_optimum(dealt(2, 5), equal, rows)
    assert optimum.same_optimum(dealt(2, 5), rows, sv.IPADMM(weights="rows", epsilon=0.3, rounds=7))
    assert not optimum.same_optimum(dealt(3, 3), equal, sv.IPADMM(lam=0.1))
    assert not optimum.same_optimum(dealt(3, 3), equal, sv.IPADMM(loss=sv.losses.Huber()))
