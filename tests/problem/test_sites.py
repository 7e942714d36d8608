import math

import numpy as np
import pytest
import scipy.sparse as sp

import sottovoce as sv
from helpers import every, problems
from sottovoce.oracle.cpu import CompiledOracle
from sottovoce.oracle.cuda import CudaOracle
from sottovoce.oracle.plain import Oracle
from sottovoce.problem.rows import DenseRows, SparseRows

A = np.array([[0.6, 0.8], [0.0, 1.0], [0.3, 0.0]])


def sites(features=None, labels=None, **options):
    features = [A, A[:1]] if features is None else features
    labels = [[1.0, -1.0, 1.0], [1.0]] if labels is None else labels
    return sv.Sites(features, labels, **options)


@pytest.mark.parametrize("bad", [math.nan, math.inf])
@pytest.mark.parametrize("sparse", [False, True])
def test_features_must_be_finite(bad, sparse):
    broken = A.copy()
    broken[1, 0] = bad
    with pytest.raises(sv.InputError, match=r"finite features, got NaN or infinity at site 1, row 1"):
        sites([sp.csr_array(A), sp.csr_array(broken)] if sparse else [A, broken], [[1.0] * 3, [1.0] * 3])


def test_labels_must_be_finite_and_in_the_loss_s_set():
    with pytest.raises(sv.InputError, match="finite labels, got NaN or infinity at site 0, row 2"):
        sites(labels=[[1.0, -1.0, math.nan], [1.0]])
    wrong = sites(labels=[[1.0, 0.0, 1.0], [1.0]])
    with pytest.raises(sv.InputError, match="labels -1 or \\+1"):
        sv.IPADMM().oracle(wrong, sv.graphs.complete(2))
    sv.IPADMM(loss=sv.losses.Huber()).oracle(wrong, sv.graphs.complete(2))


def test_empty_sites_and_lengths():
    with pytest.raises(sv.InputError, match="at least one row at every site"):
        sites([A, A[:0]], [[1.0] * 3, []])
    with pytest.raises(sv.InputError, match="one label for each row of site 0"):
        sites(labels=[[1.0], [1.0]])
    with pytest.raises(sv.InputError, match="as many label vectors"):
        sites(labels=[[1.0]])
    with pytest.raises(sv.InputError, match="one d"):
        sites([A, A[:1, :1]])
    with pytest.raises(sv.InputError, match="at least one site"):
        sites([], [])


@pytest.mark.parametrize("sparse", [False, True])
def test_long_rows_are_refused_or_clipped(sparse):
    long = 3 * A
    features = [sp.csr_array(long)] if sparse else [long]
    with pytest.raises(sv.InputError, match=r"data_norm=1, got 3 at site 0, row 0.*clip=True"):
        sites(features, [[1.0] * 3])
    clipped = sites(features, [[1.0] * 3], clip=True)
    norms = clipped.rows.norms()
    assert np.all(norms <= 1 + 1e-15)
    np.testing.assert_allclose(norms, [1.0, 1.0, 0.9])
    np.testing.assert_allclose(long, 3 * A)  # the caller's rows stay as they are
    assert sites(features, [[1.0] * 3], data_norm=3.0).data_norm == 3.0


def test_dense_and_sparse_rows_agree():
    rng = np.random.default_rng(2)
    features, labels = problems.lists(rng, (3, 9, 4))
    dense, sparse = sv.Sites(features, labels), sv.Sites([sp.csr_array(a) for a in features], labels)
    assert isinstance(dense.rows, DenseRows)
    assert isinstance(sparse.rows, SparseRows)
    w, s = rng.normal(size=(3, 5, 2)), rng.normal(size=(16, 2))
    stacked = np.concatenate([a @ w[i] for i, a in enumerate(features)])
    np.testing.assert_allclose(dense.rows.predict(w), stacked, atol=1e-14)
    np.testing.assert_allclose(sparse.rows.predict(w), stacked, atol=1e-14)
    parts = np.split(s, [3, 12])
    gathered = np.stack([a.T @ part for a, part in zip(features, parts, strict=True)])
    np.testing.assert_allclose(dense.rows.adjoint(s), gathered, atol=1e-14)
    np.testing.assert_allclose(sparse.rows.adjoint(s), gathered, atol=1e-14)


@pytest.mark.parametrize("loss", every.LOSSES, ids=lambda loss: loss.name)
def test_gradient_is_the_derivative_of_the_risk(loss):
    rng = np.random.default_rng(3)
    data = problems.sites(rng, (5, 2, 7), classes=isinstance(loss.labels, sv.losses.Signs))
    site = sv.IPADMM(loss=loss, lam=0.5).oracle(data, sv.graphs.complete(3))
    w, step = rng.normal(size=(3, 5, 2)), rng.normal(size=(3, 5, 2))
    h = 1e-6
    difference = (site.risk(w + h * step) - site.risk(w - h * step)) / (2 * h)
    np.testing.assert_allclose(difference, np.sum(site.gradient(w) * step, axis=1), rtol=1e-5, atol=1e-8)


def test_split_holds_the_data_once():
    data = sv.datasets.adult()
    split = sv.Sites.split(data, nodes=100, seed=0)
    assert split.counts.tolist() == [452] * 100
    assert np.shares_memory(split.rows._stacked.data, split.rows.matrix.data)  # the block-diagonal form shares them
    with pytest.raises(sv.InputError, match="nodes"):
        sv.Sites.split(data, nodes=50_000)


def test_simulate_refuses_what_does_not_fit():
    with pytest.raises(sv.InputError, match="one site for every node"):
        sv.simulate(sv.IPADMM(), sites(), sv.graphs.complete(3))
    with pytest.raises(sv.InputError, match="runs >= 1"):
        sv.simulate(sv.IPADMM(), sites(), sv.graphs.complete(2), runs=0)
    with pytest.raises(sv.InputError, match=r"noise\(1\) of shape"):
        sv.simulate(sv.IPADMM(), sites(), sv.graphs.complete(2), noise=lambda _: np.zeros((1, 2, 10, 9)))
    with pytest.raises(sv.InputError, match="recorded rounds within"):
        sv.simulate(sv.IPADMM(rounds=5), sites(), sv.graphs.complete(2), record=[9])


@pytest.mark.parametrize(
    "options",
    [{"epsilon": 0}, {"epsilon": -1}, {"epsilon": math.nan}, {"delta": 1}, {"delta": 0}, {"rounds": 0},
     {"local_steps": 0}, {"rho": 0}, {"lam": -1}, {"diameter": 0}, {"diameter": math.nan},
     {"schedule": "x"}, {"calibration": "x"}, {"batch_size": 0}, {"radius": -1.0}, {"sampling": "x"}],
    ids=str,
)  # fmt: skip
def test_bad_hyper_parameters_are_refused(options):
    (name,) = options
    with pytest.raises(sv.InputError, match=name):
        sv.IPADMM(**options)


def test_admm_refuses_what_its_solver_cannot_do():
    with pytest.raises(sv.UnsupportedError, match="smooth loss, which hinge is not"):
        sv.simulate(sv.ADMM(loss=sv.losses.Hinge()), sites(), sv.graphs.complete(2), device="plain")
    with pytest.raises(sv.UnsupportedError, match="smooth regulariser, which l1 is not"):
        sv.simulate(sv.ADMM(regulariser=sv.regularisers.L1()), sites(), sv.graphs.complete(2), device="plain")
    with pytest.raises(sv.UnsupportedError, match="max_grad_norm"):
        sv.simulate(sv.ADMM(max_grad_norm=0.1), sites(), sv.graphs.complete(2))


def test_a_hundred_thousand_sites():
    n, m, d = 100_000, 10, 12
    rng = np.random.default_rng(0)
    matrix = sp.csr_array(sp.random(n * m, d, density=0.2, random_state=rng, format="csr"))
    matrix.data /= math.sqrt(d)
    labels = rng.choice([-1.0, 1.0], size=n * m)
    data = sv.datasets.Dataset(matrix, labels, tuple(map(str, range(d))), n * m, 1.0, "synthetic")
    algorithm = sv.IPADMM(rounds=2, local_steps=2, diameter=10.0)
    result = sv.simulate(algorithm, sv.Sites.split(data, nodes=n), sv.graphs.random_regular(n, 4), seed=0)
    assert result.last.shape == (1, n, d)
    assert np.isfinite(result.last).all()


def secret(**options):
    rng = np.random.default_rng(0)
    features, labels = problems.lists(rng, (30, 40))
    return sv.Sites(features, labels, private=True, **options)


IP = sv.IPADMM(rounds=2, local_steps=3, diameter=5.0)


@pytest.mark.parametrize("device", ["cpu", "plain"])
def test_noise_for_private_rows_is_the_system_s(monkeypatch, device):
    sv.simulate(IP, secret(), sv.graphs.complete(2), runs=4, device=device)  # compiles, which draws names of files
    asked = []

    def urandom(count):
        asked.append(count)
        return np.random.default_rng(len(asked)).bytes(count)

    monkeypatch.setattr("os.urandom", urandom)
    monkeypatch.setattr("secrets.randbits", lambda _: pytest.fail("seeded") if asked else 3)
    one = sv.simulate(IP, secret(), sv.graphs.complete(2), runs=4, device=device)
    assert asked == [8 * 4 * 2 * 5] * 6  # two rounds of 3 steps: 4 runs, 2 nodes, 5 coordinates of 8 bytes
    asked.clear()
    again = sv.simulate(IP, secret(), sv.graphs.complete(2), runs=4, device=device)
    np.testing.assert_array_equal(one.last, again.last)
    assert one.seed is None


def test_private_rows_are_never_seeded():
    with pytest.raises(sv.PrivacyError, match="Expected no seed with private rows, got seed=0"):
        sv.simulate(IP, secret(), sv.graphs.complete(2), seed=0)


@pytest.mark.parametrize("device", ["cpu", "plain"])
def test_private_rows_in_single_precision_are_refused(device):
    with pytest.raises((sv.PrivacyError, sv.InputError), match="dtype='float64'"):
        sv.simulate(IP, secret(), sv.graphs.complete(2), device=device, dtype="float32")


@pytest.mark.parametrize("kind", [Oracle, CompiledOracle, CudaOracle])
def test_no_oracle_takes_private_rows_in_single_precision(kind):
    graph = sv.graphs.complete(2)
    with pytest.raises(sv.PrivacyError, match="Expected dtype='float64' with private rows, got dtype='float32'"):
        IP.oracle(secret(), graph, kind, np.dtype(np.float32))
    IP.oracle(secret(), graph, kind)


def test_runs_on_private_rows_are_counted_together():
    graph = sv.graphs.complete(2)
    study = sv.simulate(IP, sites([A, A], [[1.0] * 3] * 2), graph, runs=9, seed=0)
    real = sv.simulate(IP, secret(), graph, runs=9)
    assert study.privacy.epsilon == pytest.approx(1.0, rel=1e-6)
    more = sv.IPADMM(rounds=2 * 9, local_steps=3, diameter=5.0, epsilon=real.privacy.epsilon)
    site = more.oracle(secret(), graph)
    # Nine runs of 2 rounds are as many steps of the same noise as one run of 18 rounds.
    assert more.sigma(site) == pytest.approx(real.privacy.sigma, rel=1e-6)
    assert real.privacy.runs == 9
    assert real.history.final("epsilon") == pytest.approx(real.privacy.epsilon, rel=1e-9)


@pytest.mark.parametrize("kind", ["dense", "csr"])
def test_totals_take_what_is_negative_as_nothing(kind):
    """The bound on a table's sum rests on it: two rows without negative numbers are at a right angle or less."""
    mixed = np.array([[0.5, -0.5], [-0.25, 0.75], [0.0, 0.25]])
    rows = sites([sp.csr_array(mixed) if kind == "csr" else mixed], [[1.0] * 3]).rows
    assert rows.totals().tolist() == [0.5, 1.0]
    assert rows.regrouped(np.array([0, 1, 3])).part(1, 2).totals().tolist() == [0.0, 1.0]
