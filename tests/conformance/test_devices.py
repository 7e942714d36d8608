"""Every device gives the plain path's numbers: to 1e-10 in double precision, to rounding in single precision."""

import math

import numpy as np
import pytest

import sottovoce as sv
from helpers import every, problems

SIZES = (3, 40, 8, 1, 17)
GRAPH = sv.graphs.from_edges(5, [(0, 1), (1, 2), (2, 3), (1, 3), (3, 4)])
VARIANTS = {
    "full": {},
    "batches": {"batch_size": 3},
    "Poisson batches": {"batch_size": 1, "sampling": "poisson"},
    "projected": {"radius": 0.5},
    "clipped": {"max_grad_norm": 0.1},
    "l1": {"regulariser": sv.regularisers.L1(), "lam": 0.5},
    "elastic net": {"regulariser": sv.regularisers.ElasticNet(0.3), "lam": 0.5},
    "no noise": {"epsilon": math.inf},
    "weights by rows": {"weights": "rows"},
    "weights by squared rows, batches": {"weights": "squared", "batch_size": 3},
    "weights, clipped, Poisson": {"weights": "rows", "batch_size": 1, "sampling": "poisson", "max_grad_norm": 0.1},
}
# A GPU refuses these: tests/sensitivity/test_tight.py.
TIGHT = {
    "full": {},
    "batches, clipped": {"batch_size": 3, "max_grad_norm": 0.7},
    "weights, projected": {"weights": "rows", "radius": 0.5},
}


def models(device, dtype="float64", sparse=True, runs=3, classes=True, noise=None, **options):
    sites = problems.sites(np.random.default_rng(1), SIZES, d=9, classes=classes, sparse=sparse)
    algorithm = sv.IPADMM(**{"rounds": 3, "local_steps": 4, "diameter": 10.0, "rho": 0.05, **options})
    return sv.simulate(algorithm, sites, GRAPH, runs=runs, seed=3, noise=noise, device=device, dtype=dtype)


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
    assert_same(models(device, sparse=sparse, **options), models("plain", sparse=sparse, **options), 1e-10)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("runs", [1, 20])
@pytest.mark.parametrize("variant", TIGHT)
def test_noise_that_follows_the_model(dtype, runs, variant):
    options = {**TIGHT[variant], "sensitivity": "tight", "runs": runs}
    assert_same(models("cpu", dtype, **options), models("plain", **options), 1e-10 if dtype == "float64" else 3e-5)


@pytest.mark.parametrize("device", every.DEVICES)
@pytest.mark.parametrize("loss", every.LOSSES, ids=lambda loss: loss.name)
def test_every_loss(device, loss):
    classes = isinstance(loss.labels, sv.losses.Signs)
    options = {"loss": loss, "classes": classes, "runs": 2}
    assert_same(models(device, **options), models("plain", **options), 1e-10)


@pytest.mark.parametrize("device", every.DEVICES)
@pytest.mark.parametrize("runs", [1, 20])
@pytest.mark.parametrize("variant", ["full", "batches", "projected", "weights by rows"])
def test_single_precision(device, runs, variant):
    options = VARIANTS[variant]
    # Smooth losses only: at a kink rounding may choose the other side.
    assert_same(models(device, "float32", runs=runs, **options), models("plain", runs=runs, **options), 3e-5)


@pytest.mark.parametrize("device", every.DEVICES)
def test_handed_in_noise(device):
    noise = np.random.default_rng(0).normal(size=(3, 2, 5, 4, 9))
    given = [models(d, runs=2, noise=lambda k: noise[k - 1]) for d in (device, "plain")]
    assert_same(*given, 1e-10)


@pytest.mark.skipif(not every.has_gpu(), reason="no GPU")
@pytest.mark.parametrize("sampling", ["replacement", "poisson"])
def test_batches_of_very_many_rows(sampling):
    """More rows, and draws, at one node than 20 bits can number blocks of four. The others share one way to draw."""
    rng, rows = np.random.default_rng(0), (1 << 22) + 4099
    sites = sv.Sites([rng.uniform(-1, 1, size=(rows, 1))], [rng.choice([-1.0, 1.0], size=rows)])
    size = (1 << 22) + 5 if sampling == "replacement" else rows // 3
    algorithm = sv.IPADMM(rounds=1, local_steps=2, diameter=9.0, batch_size=size, sampling=sampling)
    ours, theirs = (
        sv.simulate(algorithm, sites, sv.graphs.complete(1), runs=2, seed=3, device=name) for name in ("cuda", "cpu")
    )
    np.testing.assert_allclose(ours.last, theirs.last, rtol=1e-9)


def test_unknown_devices_and_precisions_are_refused():
    with pytest.raises(sv.InputError, match="device among"):
        models("tpu")
    with pytest.raises(sv.InputError, match="float64"):
        models("plain", "float32")
    if not every.has_gpu():
        with pytest.raises(sv.UnsupportedError, match="device='cuda' needs"):
            models("cuda")
