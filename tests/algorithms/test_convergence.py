"""Without noise the nodes must find what a trusted party with all rows would find."""

import math

import numpy as np
import pytest

import sottovoce as sv
from helpers import every, problems

GRAPHS = {
    "complete": sv.graphs.complete(6),
    "ring": sv.graphs.ring(6),
    "path": sv.graphs.path(6),
    "star": sv.graphs.star(6),
    "grid": sv.graphs.grid(2, 3),
    "erdos-renyi": sv.graphs.erdos_renyi(6, 0.6, seed=1),
    "random-regular": sv.graphs.random_regular(6, 3, seed=1),
    "small-world": sv.graphs.small_world(6, 2, 0.3, seed=1),
    "edges": sv.graphs.from_edges(6, [(0, 1), (1, 2), (2, 0), (2, 3), (3, 4), (4, 5), (1, 5)]),
}
SIZES = (4, 30, 9, 17, 1, 12)


def excess(models, features, labels, loss, lam):
    """The worst node's excess over the pooled minimum, by the independent solver."""
    objective = problems.pooled_objective(features, labels, loss, lam)
    minimum = problems.pooled_minimum(features, labels, loss, lam)[1]
    return max(objective(w)[0] - minimum for w in models.reshape(-1, models.shape[-1]))


@pytest.mark.parametrize("name", GRAPHS)
def test_admm_reaches_the_pooled_optimum_on_every_graph(name):
    features, labels = problems.lists(np.random.default_rng(3), SIZES)
    algorithm = sv.ADMM(rounds=500, rho=0.05, lam=0.3)
    result = sv.simulate(algorithm, sv.Sites(features, labels), GRAPHS[name], record=1)
    assert abs(excess(result.last, features, labels, algorithm.loss, 0.3)) < 1e-8


@pytest.mark.parametrize(
    "loss", [sv.losses.Hinge(), sv.losses.Absolute(), sv.losses.Quantile(0.3)], ids=lambda x: x.name
)
def test_admm_reaches_the_pooled_optimum_for_kinked_losses(loss):
    """The consensus is the pooled minimiser: no direction goes down from it (a subgradient inequality, sampled)."""
    classes = isinstance(loss.labels, sv.losses.Signs)
    features, labels = problems.lists(np.random.default_rng(4), SIZES, classes=classes)
    algorithm = sv.ADMM(rounds=2000, rho=0.05, lam=0.3, loss=loss)
    result = sv.simulate(algorithm, sv.Sites(features, labels), GRAPHS["edges"], record=1)
    assert result.history.final("disagreement") < 1e-5
    objective = problems.pooled_objective(features, labels, loss, 0.3)
    w, rng = result.consensus[0], np.random.default_rng(0)
    around = [objective(w + 10**-k * rng.normal(size=5))[0] for k in range(6) for _ in range(400)]
    assert objective(w)[0] <= min(around) + 1e-6


# The one with kernels of its own has been compiled for `tests/kernels/test_argmin.py`, for other rows.
@pytest.mark.parametrize(
    "loss",
    [pytest.param(loss, marks=pytest.mark.slow) if loss.name == "smoothed-quantile" else loss for loss in every.SMOOTH],
    ids=lambda loss: loss.name,
)
def test_admm_reaches_the_pooled_optimum_for_every_smooth_loss(loss):
    classes = isinstance(loss.labels, sv.losses.Signs)
    features, labels = problems.lists(np.random.default_rng(4), SIZES, classes=classes)
    algorithm = sv.ADMM(rounds=800, rho=0.05, lam=0.3, loss=loss)
    result = sv.simulate(algorithm, sv.Sites(features, labels), GRAPHS["edges"], record=1)
    assert abs(excess(result.last, features, labels, loss, 0.3)) < 1e-8


def test_admm_fixed_point():
    """grad L_i(w*) = 2 gamma_i* at every node, and the duals add up to zero."""
    sites = problems.sites(np.random.default_rng(5), SIZES)
    graph = GRAPHS["edges"]
    algorithm = sv.ADMM(rounds=1500, rho=0.05, lam=0.3)
    site = algorithm.oracle(sites, graph)
    state = algorithm.start(site, runs=1)
    for k in range(1, algorithm.rounds + 1):
        message, state = algorithm.release(k, state, site, None)
        state = algorithm.absorb(k, state, site, graph.exchange(message))
    np.testing.assert_allclose(site.gradient(state.w), 2 * state.gamma, atol=1e-8)
    np.testing.assert_allclose(state.gamma.sum(axis=0), 0, atol=1e-12)


# Every graph with several steps; with one, which takes four times as long, the graph of unequal degrees alone.
@pytest.mark.parametrize(
    ("name", "local_steps"),
    [(name, 4) for name in GRAPHS]
    + [pytest.param(name, 1, marks=() if name == "edges" else pytest.mark.slow) for name in GRAPHS],
)
def test_ipadmm_without_noise_converges_on_every_graph(name, local_steps):
    # A constant eta of about the smoothness: D is chosen so that sqrt(t l) G / D = 1.
    rounds, lam = 6000 // local_steps, 0.3
    features, labels = problems.lists(np.random.default_rng(6), SIZES)
    diameter = 1.05 * math.sqrt(rounds * local_steps)
    algorithm = sv.IPADMM(epsilon=math.inf, rounds=rounds, local_steps=local_steps, rho=0.05, lam=lam,
                          diameter=diameter, schedule="constant")  # fmt: skip
    result = sv.simulate(algorithm, sv.Sites(features, labels), GRAPHS[name], record=1)
    assert abs(excess(result.last, features, labels, algorithm.loss, lam)) < 1e-6


@pytest.mark.parametrize("schedule", ["paper", "monotone"])
def test_ipadmm_with_growing_steps_approaches_the_optimum(schedule):
    features, labels = problems.lists(np.random.default_rng(7), SIZES)
    found = {}
    for rounds in (50, 2000):
        algorithm = sv.IPADMM(epsilon=math.inf, rounds=rounds, local_steps=5, rho=0.05, lam=0.3, diameter=20.0,
                              schedule=schedule)  # fmt: skip
        result = sv.simulate(algorithm, sv.Sites(features, labels), GRAPHS["ring"], record=1)
        found[rounds] = abs(excess(result.last, features, labels, algorithm.loss, 0.3))
    assert found[2000] < 1e-3
    assert found[2000] < found[50] / 5


@pytest.mark.parametrize(
    "loss", [sv.losses.Hinge(), sv.losses.Absolute(), sv.losses.Quantile(0.3)], ids=lambda x: x.name
)
def test_ipadmm_takes_losses_without_derivatives(loss):
    classes = isinstance(loss.labels, sv.losses.Signs)
    features, labels = problems.lists(np.random.default_rng(8), SIZES, classes=classes)
    algorithm = sv.IPADMM(epsilon=math.inf, rounds=1500, local_steps=4, rho=0.05, lam=0.3, diameter=8.0, loss=loss)
    sites = sv.Sites(features, labels)
    result = sv.simulate(algorithm, sites, GRAPHS["complete"], record=algorithm.rounds, device="plain")
    objective = problems.pooled_objective(features, labels, loss, 0.3)
    # Convex: if no point around is much better, none anywhere is.
    best = min(objective(w)[0] for w in result.average[0])
    rng = np.random.default_rng(0)
    trials = [
        objective(result.consensus[0] + scale * rng.normal(size=5))[0]
        for scale in (1, 0.3, 0.1, 0.03)
        for _ in range(500)
    ]
    assert best < min(trials) + 2e-3


def test_a_projected_run_stays_in_the_ball():
    sites = problems.sites(np.random.default_rng(9), SIZES)
    algorithm = sv.IPADMM(epsilon=0.5, rounds=5, local_steps=3, diameter=40.0, radius=1.5)
    result = sv.simulate(algorithm, sites, GRAPHS["ring"], runs=4, seed=1)
    assert np.linalg.norm(result.last, axis=2).max() <= 1.5 * (1 + 1e-12)
    free = sv.simulate(
        sv.IPADMM(epsilon=0.5, rounds=5, local_steps=3, diameter=40.0), sites, GRAPHS["ring"], runs=4, seed=1
    )
    assert np.linalg.norm(free.last, axis=2).max() > 1.5
