import numpy as np
import pytest
import scipy.sparse as sp

import sottovoce as sv
from algorithms.literal import algorithm_1

RUNS, T, L, D = 3, 4, 3, 7
EDGES = {(0, 1), (1, 2), (2, 3), (1, 3), (3, 4)}  # irregular: degrees 1, 3, 2, 3, 1
SIZES = (3, 11, 5, 1, 8)


def problem(rng):
    features, labels = [], []
    for m in SIZES:
        a = rng.normal(size=(m, D)) * (rng.random((m, D)) < 0.6)
        features.append(a / np.maximum(1.0, np.linalg.norm(a, axis=1, keepdims=True)))
        labels.append(rng.choice([-1.0, 1.0], size=m))
    return features, labels


@pytest.mark.parametrize("schedule", ["paper", "monotone", "constant"])
@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "csr"])
@pytest.mark.parametrize("local_steps", [1, L])
def test_engine_agrees_with_a_literal_transcription(schedule, sparse, local_steps):
    rng = np.random.default_rng(5)
    features, labels = problem(rng)
    noise = rng.normal(size=(T, RUNS, len(SIZES), local_steps, D))
    algorithm = sv.IPADMM(epsilon=2.0, delta=1e-4, rounds=T, local_steps=local_steps, rho=0.05, lam=0.3 / len(SIZES),
                          diameter=6.0, schedule=schedule)  # fmt: skip
    sites = sv.Sites(features=[sp.csr_array(a) for a in features] if sparse else features, labels=labels)
    graph = sv.graphs.from_edges(len(SIZES), EDGES)
    result = sv.simulate(algorithm, sites, graph, runs=RUNS, noise=lambda k: noise[k - 1])
    for q in range(RUNS):
        average, last = algorithm_1(
            features, labels, EDGES, noise[:, q], t=T, l=local_steps, rho=0.05, lam=0.3,
            diameter=6.0, sigma=result.privacy.sigma, schedule=schedule,
        )  # fmt: skip
        np.testing.assert_allclose(result.average[q], average, rtol=0, atol=1e-10)
        np.testing.assert_allclose(result.last[q], last, rtol=0, atol=1e-10)
    np.testing.assert_allclose(result.consensus, result.last.mean(axis=1), rtol=0, atol=1e-14)
