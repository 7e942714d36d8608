"""What every algorithm must do, for all rivals in both forms: the common suite, on a graph that each can run on."""

import numpy as np
import pytest

import sottovoce as sv
from conformance import test_algorithms as suite
from rivals import harness
from sottovoce.noise import SeededNoise, Shape

SIZES = (30, 200, 80, 50)


@pytest.fixture(params=harness.RIVALS, name="algorithm")
def _algorithm(request, monkeypatch):
    # Objective perturbation has a price that noise cannot pay when there are only a handful of rows.
    monkeypatch.setattr(suite, "SIZES", SIZES)
    return harness.RIVALS[request.param]


@pytest.fixture(name="graph")
def _graph(algorithm):
    return sv.graphs.complete(4) if isinstance(algorithm, harness.EVERYONE) else suite.GRAPH


@pytest.fixture(name="sites")
def _sites():
    return suite.problems.sites(np.random.default_rng(1), SIZES, sparse=True)


test_shapes = suite.test_shapes_and_finite_numbers
test_seeds = suite.test_same_seed_same_result_and_another_seed_another
test_start = suite.test_start_does_not_depend_on_rows
test_cost = suite.test_cost_and_statement
test_history = suite.test_history_has_the_asked_rounds


def test_run_q_of_many_is_run_q_of_few(algorithm, sites, graph):
    many, few = (sv.simulate(algorithm, sites, graph, runs=runs, seed=4).last for runs in (19, 3))
    # An argmin is found to 1e-10, and published PVP's models are huge.
    np.testing.assert_allclose(many[:3], few, rtol=0, atol=1e-7 * (1 + np.abs(few).max()))


def test_handed_in_noise_equals_the_seeded_path(algorithm, sites, graph):
    seeded = SeededNoise(9, Shape(4, 5, 3))

    def noise(k):
        return np.stack([seeded.normals(k, r) for r in range(algorithm.draws_per_round)]).transpose(3, 1, 0, 2)

    given = sv.simulate(algorithm, sites, graph, runs=3, seed=9, noise=noise)
    drawn = sv.simulate(algorithm, sites, graph, runs=3, seed=9)
    np.testing.assert_allclose(given.last, drawn.last, rtol=0, atol=1e-9 * (1 + np.abs(drawn.last).max()))


def test_one_normal_less_than_declared_is_too_few(algorithm, sites, graph):
    def noise(k):
        return np.ones((3, 4, algorithm.draws_per_round - 1, 5))

    with pytest.raises(sv.InputError, match="noise for local step"):
        sv.simulate(algorithm, sites, graph, runs=3, noise=noise)


def test_the_statement_is_told_in_words(algorithm, sites, graph):
    statement = algorithm.statement(algorithm.oracle(sites, graph))
    assert algorithm.released in statement.prose()
    assert statement.calibration == ("paper" if algorithm.form == "published" else "exact")
    assert statement.delta == (0.0 if algorithm.form == "published" else algorithm.delta)
    assert statement.to_json()
