"""The recursions against the real algorithm on a quadratic problem: the Huber loss with a threshold out of reach."""

import numpy as np
import pytest

import sottovoce as sv
from sottovoce import graphs
from sottovoce.plan.moments import moments
from sottovoce.plan.task import spectrum
from sottovoce.problem.losses import Huber

D, ROWS, RUNS, LAM = 3, 40, 1500, 0.0


@pytest.fixture(scope="module")
def rows():
    """The same rows and labels at every node, so that all have the same Hessian and the same optimum."""
    rng = np.random.default_rng(3)
    a = rng.normal(size=(ROWS, D)) * np.array([1.0, 0.6, 0.3])
    a /= np.linalg.norm(a, axis=1, keepdims=True).max()
    return a, a @ np.array([1.0, -2.0, 3.0])


@pytest.mark.parametrize(
    ("graph", "rounds", "local_steps", "rho", "diameter"),
    [
        (graphs.complete(4), 6, 1, 0.05, 2.0),
        (graphs.complete(4), 5, 3, 0.02, 1.0),
        (graphs.ring(6), 7, 2, 0.1, 3.0),
        (graphs.complete(1), 8, 2, 0.1, 2.0),
    ],
    ids=["complete", "complete-3", "ring", "alone"],
)
def test_mean_and_variance_of_the_real_algorithm(rows, graph, rounds, local_steps, rho, diameter):
    a, b = rows
    n = graph.n
    sites = sv.Sites([a] * n, [b] * n)
    loss = Huber(threshold=1e3)  # its slope never reaches the threshold, so the risk is a parabola
    # The noise is scaled down by a huge epsilon, or else the threshold would drown everything.
    algorithm = sv.IPADMM(
        rounds=rounds, local_steps=local_steps, rho=rho, diameter=diameter * 1e3, epsilon=3e5, loss=loss, lam=LAM
    )
    result = sv.simulate(algorithm, sites, graph, runs=RUNS, seed=1, device="plain", record=1)

    site = algorithm.oracle(sites, graph)
    values, vectors = np.linalg.eigh(a.T @ a / ROWS)
    optimum = vectors.T @ np.linalg.lstsq(a, b, rcond=None)[0]
    laplacian = spectrum(graph)
    found = moments(
        curvatures=values,
        size=np.ones(D),
        optimum=optimum,
        laplacian=laplacian.values,
        multiplicity=laplacian.multiplicity,
        degree=float(graph.degrees.mean()),
        nodes=n,
        rounds=rounds,
        local_steps=local_steps,
        rho=rho,
        eta=np.concatenate([algorithm.eta(k, site)[:, 0, 0, 0] for k in range(1, rounds + 1)]),
        variance=float((algorithm.sigma(site) * site.sensitivity()[0, 0, 0]) ** 2),
    )
    consensus = result.consensus @ vectors
    error = np.sqrt(found.variance / RUNS)
    assert np.all(found.variance > 1e-6)  # else there would be nothing to test
    assert np.all(np.abs(consensus.mean(axis=0) - (optimum + found.bias)) < 5 * error + 1e-9)
    assert consensus.var(axis=0) == pytest.approx(found.variance, rel=5 * np.sqrt(2 / RUNS))
    if n > 1:
        # A few curvatures stand for all here, so this is close but not exact.
        deviations = (result.last - result.consensus[:, None, :]) @ vectors
        spread = float(np.mean(deviations**2 @ values) / values.sum())
        assert found.spread == pytest.approx(spread, rel=0.1)


def test_laplacian_of_a_ring():
    n = 10
    exact = np.sort(2 - 2 * np.cos(2 * np.pi * np.arange(1, n) / n))
    assert spectrum(graphs.ring(n)).values == pytest.approx(exact)
    assert spectrum(graphs.complete(7)) == (pytest.approx([7.0]), pytest.approx([6.0]))
    merged = spectrum(graphs.ring(200))
    assert (len(merged.values), merged.multiplicity.sum()) == (12, 199)
    assert merged.values @ merged.multiplicity == pytest.approx(400)  # the trace: twice the edges
