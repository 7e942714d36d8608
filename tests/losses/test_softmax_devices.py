"""The compiled kernels, on the CPU and on a GPU, give the plain oracle's numbers, whatever the variant; and the nodes
find the pooled optimum.
"""

import math
from dataclasses import replace

import numba
import numpy as np
import pytest

import sottovoce as sv
from helpers import every
from losses.softmax_problem import GRAPH, lists, pooled_minimum, pooled_objective, sites
from sottovoce.problem.losses import Softmax

D = 9
VARIANTS = {
    "full": {},
    "batches": {"batch_size": 3},
    "Poisson batches": {"batch_size": 1, "sampling": "poisson"},
    "projected": {"radius": 0.5},
    "clipped": {"max_grad_norm": 0.3},
    "l1": {"regulariser": sv.regularisers.L1(), "lam": 0.5},
    "elastic net": {"regulariser": sv.regularisers.ElasticNet(0.3), "lam": 0.5},
    "no noise": {"epsilon": math.inf},
    "weights": {"weights": "squared"},
    "tight": {"sensitivity": "tight"},
    "tight, all at once": {
        "sensitivity": "tight",
        "weights": "rows",
        "batch_size": 4,
        "radius": 0.5,
        "max_grad_norm": 1.2,
        "lam": 0.5,
    },
    "all at once": {"weights": "rows", "batch_size": 4, "radius": 0.5, "max_grad_norm": 0.3, "lam": 0.5},
}


def models(device, dtype="float64", sparse=True, runs=3, classes=4, noise=None, **options):
    held = sites(np.random.default_rng(1), d=D, classes=classes, sparse=sparse)
    settings = {"rounds": 3, "local_steps": 4, "diameter": 10.0, "rho": 0.05, **options}
    algorithm = sv.IPADMM(loss=Softmax(classes), **settings)
    return sv.simulate(algorithm, held, GRAPH, runs=runs, seed=3, noise=noise, device=device, dtype=dtype)


def assert_same(ours, theirs, tolerance):
    scale = np.abs(theirs.last).max()
    np.testing.assert_allclose(ours.last, theirs.last, rtol=0, atol=tolerance * scale)
    np.testing.assert_allclose(ours.average, theirs.average, rtol=0, atol=tolerance * scale)
    for name in ("risk_last", "risk_average", "risk_consensus", "disagreement"):
        np.testing.assert_allclose(ours.history[name], theirs.history[name], rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("device", every.DEVICES)
@pytest.mark.parametrize("sparse", [True, False], ids=["csr", "dense"])
@pytest.mark.parametrize("variant", VARIANTS)
def test_double_precision(device, sparse, variant):
    options = VARIANTS[variant]
    assert_same(models(device, sparse=sparse, **options), models("plain", sparse=sparse, **options), 1e-12)


@pytest.mark.parametrize("device", every.DEVICES)
@pytest.mark.parametrize("variant", ["clipped", "tight"])
@pytest.mark.parametrize(
    ("classes", "runs"), [(2, 1), (3, 1), (3, 5), (3, 30), (5, 16), (17, 2), (32, 2), (40, 1), (70, 2)]
)
def test_any_number_of_classes_and_runs(device, variant, classes, runs):
    """Chunks that are full and not, several tiles of runs, the last of them short; more classes than lanes."""
    options = {"classes": classes, "runs": runs, "radius": 2.0, **VARIANTS[variant]}
    assert_same(models(device, **options), models("plain", **options), 1e-12)


@pytest.mark.parametrize("device", every.DEVICES)
@pytest.mark.parametrize("runs", [1, 20])
@pytest.mark.parametrize("variant", ["full", "batches", "projected", "clipped", "tight"])
def test_single_precision(device, runs, variant):
    options = {"runs": runs, **VARIANTS[variant]}
    assert_same(models(device, "float32", **options), models("plain", **options), 3e-5)


@pytest.mark.parametrize("device", every.DEVICES)
def test_handed_in_noise(device):
    noise = np.random.default_rng(0).normal(size=(3, 2, 5, 4, D * 4))
    assert_same(*(models(where, runs=2, noise=lambda k: noise[k - 1]) for where in (device, "plain")), 1e-12)


@pytest.mark.parametrize("device", every.DEVICES)
def test_models_that_fill_no_shared_memory(device):
    """With so many coordinates a GPU's kernel keeps its models elsewhere."""
    rng = np.random.default_rng(0)
    held = sv.Sites(list(rng.normal(size=(2, 5, 700)) / 30), [rng.integers(3, size=5).astype(float) for _ in range(2)])
    algorithm = sv.IPADMM(loss=Softmax(3), rounds=2, local_steps=2, diameter=5.0, max_grad_norm=0.7)
    made = [
        sv.simulate(algorithm, held, sv.graphs.complete(2), runs=11, seed=1, device=name) for name in (device, "plain")
    ]
    assert_same(*made, 1e-12)


@pytest.mark.parametrize("device", every.DEVICES)
@pytest.mark.parametrize("variant", ["full", "tight", "all at once"])
def test_a_run_comes_out_the_same_whichever_runs_are_beside_it(device, variant):
    many = models(device, runs=19, **VARIANTS[variant])
    for runs in (1, 3, 8):
        few = models(device, runs=runs, **VARIANTS[variant])
        np.testing.assert_array_equal(few.last, many.last[:runs])
        np.testing.assert_array_equal(few.average, many.average[:runs])


def test_results_do_not_depend_on_the_number_of_threads():
    threads, many = numba.get_num_threads(), models("cpu", runs=9)
    numba.set_num_threads(1)
    try:
        one = models("cpu", runs=9)
    finally:
        numba.set_num_threads(threads)
    np.testing.assert_array_equal(one.last, many.last)


FOLLOWING_GRADIENTS = every.algorithms({"rounds": 3, "local_steps": 4}, lambda line: not line.exact)
del FOLLOWING_GRADIENTS["least-squares"], FOLLOWING_GRADIENTS["hazards"]  # of numbers and times, not of classes


@pytest.mark.parametrize("device", every.DEVICES)
@pytest.mark.parametrize("name", FOLLOWING_GRADIENTS)
def test_every_algorithm_that_follows_gradients_takes_it(device, name):
    algorithm = replace(FOLLOWING_GRADIENTS[name], loss=Softmax(3))
    held = sites(np.random.default_rng(2), sparse=True)
    ours, theirs = (
        sv.simulate(algorithm, held, sv.graphs.complete(5), runs=2, seed=5, device=where) for where in (device, "plain")
    )
    assert ours.last.shape == (2, 5, 15)
    assert ours.privacy.epsilon <= algorithm.epsilon
    if not every.has_printed_gaussian_noise(algorithm):
        assert ours.privacy.epsilon >= 0.99 * algorithm.epsilon
    assert_same(ours, theirs, 1e-12)


@pytest.mark.parametrize("device", every.DEVICES)
@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize(("classes", "runs"), [(2, 1), (3, 5), (17, 2)])
@pytest.mark.parametrize("clip", [None, 0.3])
def test_masked_sums_of_any_number_of_classes_and_runs(device, dtype, classes, runs, clip):
    held = sites(np.random.default_rng(1), d=D, classes=classes, sparse=True)
    algorithm = sv.MaskedNewton(loss=Softmax(classes), epsilon=8.0, rounds=5, colluding=1, max_grad_norm=clip)
    ours, theirs = (
        sv.simulate(algorithm, held, sv.graphs.complete(5), runs=runs, seed=3, device=where, dtype=precision)
        for where, precision in ((device, dtype), ("plain", "float64"))
    )
    assert_same(ours, theirs, 1e-9 if dtype == "float64" else 1e-4)


@pytest.mark.parametrize("device", ["plain", *every.DEVICES])
def test_ipadmm_on_a_ring_finds_the_pooled_optimum(device):
    features, labels = lists(np.random.default_rng(3), (4, 30, 9, 17, 1, 12))
    algorithm = sv.IPADMM(
        loss=Softmax(3), epsilon=math.inf, rounds=400, local_steps=10, diameter=10.0, rho=0.05, lam=0.3
    )
    result = sv.simulate(algorithm, sv.Sites(features, labels), sv.graphs.ring(6), seed=1, record=1, device=device)
    objective, (best, minimum) = pooled_objective(features, labels, 3, 0.3), pooled_minimum(features, labels, 3, 0.3)
    assert max(objective(w)[0] - minimum for w in result.last[0]) < 1e-6
    a, b = np.concatenate(features), np.concatenate(labels)
    right = np.mean((a @ best.reshape(-1, 3)).argmax(axis=1) == b)
    assert result.accuracy()["consensus"] == pytest.approx(right, abs=0.02)
    assert right > 0.6
