"""Every device gives the plain path's numbers: to 1e-10 in double precision, to rounding in single precision."""

import math
from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp

import sottovoce as sv
from helpers import every, problems
from sottovoce.algorithms.masked import WIDEST_MATRIX
from sottovoce.algorithms.stepping import Stepping
from sottovoce.oracle.kernels import panels

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
    np.testing.assert_allclose(
        ours.history["disagreement"], theirs.history["disagreement"], rtol=tolerance, atol=tolerance
    )
    single = max(tolerance, 1e-6)  # compiled scores are made in single precision where nobody can tell
    for name in ("risk_last", "risk_average", "risk_consensus"):
        np.testing.assert_allclose(ours.history[name], theirs.history[name], rtol=single, atol=single)


@pytest.mark.parametrize("device", every.DEVICES)
@pytest.mark.parametrize("sparse", [True, False], ids=["csr", "dense"])
@pytest.mark.parametrize("runs", [3, 7], ids=["few", "more"])
@pytest.mark.parametrize("variant", VARIANTS)
def test_double_precision(device, sparse, variant, runs, monkeypatch):
    monkeypatch.setattr(panels, "pays", lambda *_: True)  # also for so small sites
    options = {**VARIANTS[variant], "runs": runs}
    assert_same(models(device, sparse=sparse, **options), models("plain", sparse=sparse, **options), 1e-10)


@pytest.mark.parametrize("device", every.DEVICES)
@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("runs", [1, 20])
@pytest.mark.parametrize("variant", TIGHT)
def test_noise_that_follows_the_model(device, dtype, runs, variant):
    options = {**TIGHT[variant], "sensitivity": "tight", "runs": runs}
    assert_same(models(device, dtype, **options), models("plain", **options), 1e-10 if dtype == "float64" else 3e-5)


@pytest.mark.parametrize("device", every.DEVICES)
def test_noise_that_follows_models_which_fill_no_shared_memory(device):
    """With so many coordinates the kernel keeps its models elsewhere, in columns that are further apart."""
    rng = np.random.default_rng(0)
    a = rng.normal(size=(12, 700)) / 30
    sites = sv.Sites([a[:5], a[5:]], [np.sign(a[:5, 0]), np.sign(a[5:, 0])])
    algorithm = sv.IPADMM(rounds=2, local_steps=2, diameter=5.0, sensitivity="tight")
    made = [
        sv.simulate(algorithm, sites, sv.graphs.complete(2), runs=3, seed=1, device=name) for name in (device, "plain")
    ]
    assert_same(*made, 1e-10)


FOLLOWING = every.algorithms(
    {"rounds": 3, "local_steps": 2, "diameter": 5.0, "sensitivity": "tight"},
    lambda line: issubclass(line.kind, sv.IPADMM | Stepping),
    forms=("fair",),
)


@pytest.mark.parametrize("device", every.DEVICES)
@pytest.mark.parametrize("sparse", [True, False], ids=["csr", "dense"])
@pytest.mark.parametrize("name", FOLLOWING)
def test_every_algorithm_whose_noise_follows_the_model(device, sparse, name):
    sites = problems.sites(np.random.default_rng(2), SIZES, d=9, sparse=sparse)
    algorithm, graph = FOLLOWING[name], every.graph_for(FOLLOWING[name], GRAPH)
    ours, theirs, plain = (
        sv.simulate(a, sites, graph, runs=3, seed=5, device=where)
        for a, where in ((algorithm, device), (algorithm, "plain"), (replace(algorithm, sensitivity="plain"), device))
    )
    assert_same(ours, theirs, 1e-10)
    assert np.abs(ours.last - plain.last).max() > 1e-3 * np.abs(plain.last).max()  # it is not the plain noise


# -- sums over all sites ----------------------------------------------------------------------------------------------

SUMS = {
    "full": {},
    "clipped": {"max_grad_norm": 0.3},
    "regularised": {"lam": 0.3},
    "no noise": {"epsilon": math.inf},
    "who may collude": {"colluding": 1, "least_sites": 4, "spare": 2, "worst_case_epsilon": 2.0},
}
SUMMED = [*every.SMOOTH, sv.losses.Poisson(), sv.losses.Softmax(3)]


def sums(device, dtype="float64", sparse=True, runs=3, loss=SUMMED[0], d=9, **options):
    """A run of masked sums. The rows are the same for all devices."""
    rng = np.random.default_rng(4)
    features, labels = problems.lists(rng, SIZES, d=d, classes=isinstance(loss.labels, sv.losses.Signs))
    if loss.outputs > 1:
        labels = [rng.integers(loss.outputs, size=len(a)).astype(float) for a in features]
    if isinstance(loss.labels, sv.losses.Counts):
        labels = [np.abs(b) for b in labels]
    held = sv.Sites([sp.csr_array(a) for a in features] if sparse else features, labels)
    algorithm = sv.MaskedNewton(**{"epsilon": 8.0, "rounds": 6, "loss": loss, "colluding": 1, **options})
    return sv.simulate(algorithm, held, sv.graphs.complete(5), runs=runs, seed=3, device=device, dtype=dtype)


@pytest.mark.parametrize("device", every.DEVICES)
@pytest.mark.parametrize("sparse", [True, False], ids=["csr", "dense"])
@pytest.mark.parametrize("variant", SUMS)
@pytest.mark.parametrize("loss", SUMMED, ids=lambda loss: loss.name)
def test_masked_sums(device, sparse, variant, loss):
    options = {**SUMS[variant], "sparse": sparse, "loss": loss}
    assert_same(sums(device, **options), sums("plain", **options), 1e-9)


@pytest.mark.parametrize("device", every.DEVICES)
@pytest.mark.parametrize("runs", [1, 20])
@pytest.mark.parametrize("loss", SUMMED, ids=lambda loss: loss.name)
def test_masked_sums_in_single_precision(device, runs, loss):
    """Gradients are rounded, sums are not: what is left is the rounding of one number at a time."""
    assert_same(sums(device, "float32", runs=runs, loss=loss), sums("plain", runs=runs, loss=loss), 1e-4)


@pytest.mark.parametrize("device", every.DEVICES)
@pytest.mark.parametrize("sparse", [True, False], ids=["csr", "dense"])
@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("runs", [1, 4])
@pytest.mark.parametrize("loss", [SUMMED[0], SUMMED[-1]], ids=lambda loss: loss.name)
def test_masked_sums_of_wide_tables_whose_moments_are_a_diagonal(device, sparse, dtype, runs, loss):
    options = {"sparse": sparse, "runs": runs, "loss": loss, "d": WIDEST_MATRIX + 2, "rounds": 4}
    assert_same(sums(device, dtype, **options), sums("plain", **options), 1e-9 if dtype == "float64" else 1e-4)


@pytest.mark.parametrize("device", every.DEVICES)
@pytest.mark.parametrize("sparse", [True, False], ids=["csr", "dense"])
def test_sums_by_parts_are_the_sums(device, sparse, monkeypatch):
    """A GPU takes some rows at a time; here so few that there are many parts, the last of them short."""
    monkeypatch.setattr("sottovoce.oracle.cuda._SUMMED_AT_ONCE", 7 * 9)
    assert_same(sums(device, sparse=sparse), sums("plain", sparse=sparse), 1e-9)


# -- the rest ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("device", every.DEVICES)
@pytest.mark.parametrize("loss", every.LOSSES, ids=lambda loss: loss.name)
def test_every_loss(device, loss):
    classes = isinstance(loss.labels, sv.losses.Signs)
    options = {"loss": loss, "classes": classes, "runs": 2}
    assert_same(models(device, **options), models("plain", **options), 1e-10)


@pytest.mark.parametrize("device", every.DEVICES)
@pytest.mark.parametrize("runs", [3, 7], ids=["few", "more"])
def test_sparse_rows_without_any_entry(device, runs):
    """An empty list of columns means rows of zeros, not full rows: only noise and penalty move the models."""
    labels = [np.where(np.arange(m) % 2, 1.0, -1.0) for m in SIZES]
    nothing = sv.Sites([sp.csr_array((m, 9)) for m in SIZES], labels)
    full = sv.Sites([np.zeros((m, 9)) for m in SIZES], labels)
    algorithm = sv.IPADMM(rounds=2, local_steps=3, diameter=10.0, rho=0.05, lam=0.2)
    ours, theirs = (
        sv.simulate(algorithm, held, GRAPH, runs=runs, seed=3, device=where)
        for held, where in ((nothing, device), (full, "plain"))
    )
    assert_same(ours, theirs, 1e-10)


@pytest.mark.parametrize("device", every.DEVICES)
@pytest.mark.parametrize("most", [1.0, 7.0])
def test_counts(device, most):
    features, labels = problems.lists(np.random.default_rng(1), SIZES, d=9, classes=False)
    held = sv.Sites(features, [np.abs(3 * b) for b in labels])
    algorithm = sv.IPADMM(rounds=3, local_steps=4, diameter=10.0, rho=0.05, loss=sv.losses.Poisson(most))
    found = [sv.simulate(algorithm, held, GRAPH, runs=2, seed=3, device=name) for name in (device, "plain")]
    assert_same(*found, 1e-10)


@pytest.mark.parametrize("device", every.DEVICES)
@pytest.mark.parametrize("sparse", [True, False], ids=["csr", "dense"])
@pytest.mark.parametrize("variant", ["batches", "projected", "clipped"])
def test_more_runs_than_a_tile_holds(device, sparse, variant):
    """And a last tile that is not full."""
    options = {"runs": 77, "sparse": sparse, **VARIANTS[variant]}
    ours = models(device, **options)
    assert_same(ours, models("plain", **options), 1e-10)
    np.testing.assert_allclose(models(device, **{**options, "runs": 3}).last, ours.last[:3], rtol=1e-12)


@pytest.mark.parametrize("device", every.DEVICES)
@pytest.mark.parametrize("runs", [1, 20, 150])
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


@pytest.mark.gpu
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
