"""What every algorithm must do. One that has a line in the registry is tested here."""

import math
import subprocess
import sys

import numpy as np
import pytest

import sottovoce as sv
from helpers import every, problems
from helpers.sums import begun, same_question
from sottovoce.algorithms import registry
from sottovoce.algorithms.analysis import Analysis
from sottovoce.algorithms.rival import Rival
from sottovoce.noise.sources import SeededNoise, Shape
from sottovoce.privacy import Event

# Every line of the registry in every form, with a penalty that all can work with on so few rows; and some guises.
COMMON = {"rounds": 3, "rho": 1.0}
GUISES = {
    "ipadmm, paper schedule": sv.IPADMM(rounds=3, local_steps=4, diameter=10.0, schedule="paper"),
    "ipadmm, constant schedule": sv.IPADMM(rounds=3, local_steps=4, diameter=10.0, schedule="constant"),
    "ipadmm, batches with replacement": sv.IPADMM(rounds=3, local_steps=4, diameter=10.0, batch_size=3),
    "ipadmm, Poisson batches": sv.IPADMM(rounds=3, local_steps=4, diameter=10.0, batch_size=3, sampling="poisson"),
    "ipadmm, projected": sv.IPADMM(rounds=3, local_steps=4, diameter=10.0, radius=2.0),
    "ipadmm, clipped": sv.IPADMM(rounds=3, local_steps=4, diameter=10.0, max_grad_norm=0.2),
    "ipadmm, given diameter": sv.IPADMM(rounds=3, local_steps=4, diameter=10.0),
    "ipadmm, tight": sv.IPADMM(rounds=3, local_steps=4, diameter=10.0, sensitivity="tight"),
    "ipadmm, l1": sv.IPADMM(rounds=3, local_steps=4, regulariser=sv.regularisers.L1()),
    "pvp, tiny penalty": sv.PVP(rounds=3),
    "dvp, published with a ridge": sv.DVP(rounds=3, form="published"),
    "madmm, fast growth": sv.MADMM(rounds=3, rho=1.0, growth=1.2),
    "dpadmm, given diameter": sv.DPADMM(rounds=3, diameter=5.0),
    "dpadmm, tight": sv.DPADMM(rounds=3, diameter=5.0, sensitivity="tight"),
    "ryu-kim, tight": sv.RyuKim(rounds=3, local_steps=4, diameter=5.0, sensitivity="tight"),
    "dp-dsgd, tight": sv.DPDSGD(rounds=3, diameter=5.0, sensitivity="tight"),
    "noisy-averaged-gd, tight": sv.NoisyAveragedGD(rounds=3, diameter=5.0, sensitivity="tight"),
    "trusted-curator, tight": sv.TrustedCurator(rounds=3, diameter=5.0, sensitivity="tight"),
}
ALGORITHMS = every.algorithms(COMMON) | GUISES
GRAPH = sv.graphs.from_edges(4, [(0, 1), (1, 2), (2, 3), (1, 3)])
SIZES = (3, 20, 8, 5)
# Published forms pay for a Jacobian out of a pure epsilon, which noise cannot buy for a handful of rows.
MORE = (30, 200, 80, 50)


@pytest.fixture(params=ALGORITHMS, name="algorithm")
def _algorithm(request):
    return ALGORITHMS[request.param]


@pytest.fixture(name="graph")
def _graph(algorithm):
    return every.graph_for(algorithm, GRAPH)


@pytest.fixture(name="sites")
def _sites(algorithm):
    return sites_for(algorithm, seed=1)


def sites_for(algorithm, seed):
    sizes = MORE if form(algorithm) == "published" else SIZES
    return problems.sites(np.random.default_rng(seed), sizes, sparse=True)


def form(algorithm):
    """ "fair" or "published"; IPADMM and ADMM know no such word."""
    return getattr(algorithm, "form", "fair")


def private(algorithm):
    return not isinstance(algorithm, sv.ADMM)


def wide(algorithm, sites):
    """Number of coordinates of a model."""
    return sites.d * algorithm.loss.outputs


def draws(algorithm, sites):
    """How many normal vectors a node may draw in a round."""
    if isinstance(algorithm, Analysis):  # those that the largest sum takes
        return max(-(-line.numbers // wide(algorithm, sites)) for line in algorithm.schedule(sites.d))
    return algorithm.draws_per_round


def slack(algorithm, models):
    """How far two ways to the same numbers may be apart: an argmin is found to 1e-10, and published models are huge."""
    exact = any(line.kind is type(algorithm) for line in registry.REGISTRY.values() if line.exact)
    return (1e-7 if exact else 1e-13) * (1 + np.abs(models).max())


def test_shapes_and_finite_numbers(algorithm, sites, graph):
    result = sv.simulate(algorithm, sites, graph, runs=5, seed=2)
    assert result.average.shape == result.last.shape == (5, 4, wide(algorithm, sites))
    assert result.consensus.shape == (5, wide(algorithm, sites))
    assert np.isfinite(result.average).all()
    assert np.isfinite(result.last).all()
    np.testing.assert_allclose(result.consensus, result.last.mean(axis=1))


def test_same_seed_same_result_and_another_seed_another(algorithm, sites, graph):
    one, two, other = (sv.simulate(algorithm, sites, graph, runs=2, seed=s) for s in (5, 5, 6))
    assert np.array_equal(one.last, two.last)
    assert np.array_equal(one.average, two.average)
    assert np.array_equal(one.last, other.last) != private(algorithm)


def test_run_q_of_many_is_run_q_of_few(algorithm, sites, graph):
    many = sv.simulate(algorithm, sites, graph, runs=19, seed=4)
    few = sv.simulate(algorithm, sites, graph, runs=3, seed=4)
    np.testing.assert_allclose(many.last[:3], few.last, rtol=0, atol=slack(algorithm, few.last))


def test_handed_in_noise_equals_the_seeded_path(algorithm, sites, graph):
    seeded = SeededNoise(9, Shape(4, wide(algorithm, sites), 3))
    steps = max(1, draws(algorithm, sites))

    def noise(k):
        return np.stack([seeded.normals(k, r) for r in range(steps)]).transpose(3, 1, 0, 2)

    given = sv.simulate(algorithm, sites, graph, runs=3, seed=9, noise=noise)
    drawn = sv.simulate(algorithm, sites, graph, runs=3, seed=9)
    np.testing.assert_allclose(given.last, drawn.last, rtol=0, atol=slack(algorithm, drawn.last))


def test_start_does_not_depend_on_rows(algorithm, sites, graph):
    ours, theirs = (algorithm.oracle(rows, graph) for rows in (sites, sites_for(algorithm, seed=77)))
    if isinstance(algorithm, Analysis):
        one, other = (begun(algorithm, site, 2) for site in (ours, theirs))
        assert same_question(one.ask.question, other.ask.question)
        starts = [one.answer[:2], other.answer[:2]]
    else:
        starts = [algorithm.start(site, 2) for site in (ours, theirs)]
    for one, other in zip(*starts, strict=True):
        assert np.array_equal(one, other)


def test_cost_and_statement(algorithm, sites, graph):
    site = algorithm.oracle(sites, graph)
    statement = algorithm.statement(site)
    assert isinstance(algorithm.cost(1, site), Event)
    if not private(algorithm):
        assert math.isinf(statement.epsilon)
        assert "NOT PRIVATE" in statement.prose()
        return
    assert statement.epsilon <= algorithm.epsilon
    if not every.has_printed_gaussian_noise(algorithm):  # a printed formula may ask for more noise than is needed
        assert statement.epsilon > 0.99 * algorithm.epsilon
    spent = [algorithm.spent(k, site) for k in range(1, 4)]
    assert spent == sorted(spent)
    assert spent[-1] == statement.epsilon


def test_one_normal_less_than_declared_is_too_few(algorithm, sites, graph):
    if not private(algorithm):
        pytest.skip("it draws none")

    needed = draws(algorithm, sites)

    def noise(k):
        return np.ones((3, 4, needed - 1, wide(algorithm, sites)))

    with pytest.raises(sv.InputError, match="noise for local step"):
        sv.simulate(algorithm, sites, graph, runs=3, noise=noise)


def test_the_statement_is_told_in_words(algorithm, sites, graph):
    statement = algorithm.statement(algorithm.oracle(sites, graph))
    assert not private(algorithm) or algorithm.released in statement.prose()
    assert statement.to_json()
    if isinstance(algorithm, Rival):
        assert statement.calibration == ("paper" if algorithm.form == "published" else "exact")
        assert statement.delta == (0.0 if algorithm.pure else algorithm.delta)


def test_history_has_the_asked_rounds(algorithm, sites, graph):
    result = sv.simulate(algorithm, sites, graph, runs=2, seed=1, record=[1, 2])
    assert result.history["round"].tolist() == [1, 1, 2, 2, 3, 3]
    assert result.history["run"].tolist() == [0, 1] * 3
    for name in ("risk_average", "risk_last", "risk_consensus", "accuracy_last", "disagreement", "epsilon"):
        assert result.history[name].shape == (6,)


def test_history_figures_are_what_they_say():
    sites = problems.sites(np.random.default_rng(1), SIZES, sparse=True)
    result = sv.simulate(ALGORITHMS["ipadmm"], sites, GRAPH, runs=2, seed=1, record=1)
    a, b = sites.rows.matrix.toarray(), sites.labels
    risks = [[np.logaddexp(0, -b * (a @ w)).mean() for w in nodes] for nodes in result.last]
    hits = [[np.mean(np.where(a @ w >= 0, 1, -1) == b) for w in nodes] for nodes in result.last]
    np.testing.assert_allclose(result.history.final("risk_last"), np.mean(risks, axis=1))
    np.testing.assert_allclose(result.history.final("accuracy_last"), np.mean(hits, axis=1))
    distances = np.linalg.norm(result.last - result.consensus[:, None], axis=2).mean(axis=1)
    np.testing.assert_allclose(result.history.final("disagreement"), distances)
    assert result.risk()["last"] == pytest.approx(np.mean(risks))


THREADS = """
import sys, numpy as np, numba, sottovoce as sv
numba.set_num_threads(int(sys.argv[1]))
rng = np.random.default_rng(0)
a = [rng.normal(size=(m, 6)) / 10 for m in (3, 30, 9, 14)]
sites = sv.Sites(a, [np.sign(rng.normal(size=len(x))) for x in a])
r = sv.simulate(sv.IPADMM(rounds=3, local_steps=3, diameter=9.0), sites, sv.graphs.ring(4), runs=7, seed=3)
sys.stdout.write(r.last.tobytes().hex() + r.average.tobytes().hex() + r.history["risk_last"].tobytes().hex())
"""


def test_result_does_not_depend_on_the_number_of_threads():
    import numba

    counts = ["1", str(numba.config.NUMBA_NUM_THREADS)]
    one, many = (subprocess.run([sys.executable, "-c", THREADS, c], capture_output=True, check=True) for c in counts)
    assert one.stdout == many.stdout
    assert len(one.stdout) > 1000
