"""What rivals refuse, and in which words."""

import math
from dataclasses import replace

import numpy as np
import pytest

import sottovoce as sv
from algorithms import harness
from helpers import every, problems
from sottovoce import algorithms as al

SIZES = (30, 200, 80, 50)
# Published forms pay for the Jacobian out of a pure epsilon, so they need a penalty that is not tiny.
RIVALS = every.algorithms({"rounds": 3, "rho": 1.0}, every.is_rival)
BY_GRADIENTS = every.algorithms({"rounds": 3, "rho": 1.0}, lambda line: every.is_rival(line) and not line.exact)


@pytest.fixture(name="sites")
def _sites():
    return problems.sites(np.random.default_rng(1), SIZES)


@pytest.mark.parametrize("kind", every.kinds(lambda line: every.needs_complete_graph(line.kind)))
def test_averaging_over_everyone_needs_a_complete_graph(kind, sites):
    with pytest.raises(sv.InputError, match=f"complete graph for {kind.__name__}, where every node hears all"):
        sv.simulate(kind(rounds=2), sites, sv.graphs.ring(4))


@pytest.mark.parametrize("kind", every.kinds(lambda line: every.is_rival(line) and "published" not in line.forms))
def test_a_published_form_that_does_not_exist(kind):
    with pytest.raises(sv.UnsupportedError, match=f"form='fair' for {kind.__name__}: it"):
        kind(form="published")


@pytest.mark.parametrize("algorithm", RIVALS.values(), ids=list(RIVALS))
def test_forms_and_calibrations(algorithm):
    with pytest.raises(sv.InputError, match="form in"):
        replace(algorithm, form="best")
    with pytest.raises(sv.InputError, match="set by its form"):
        replace(algorithm, calibration="paper")


def test_hyper_parameters():
    for kind, bad in [
        (al.MADMM, {"growth": 0.9}),
        (al.MADMM, {"most": 0.5}),
        (al.RADMM, {"gamma_r": -1.0}),
        (al.RyuKim, {"local_steps": 0}),
        (al.FixedPoint, {"relaxation": 1.5}),
        (al.FixedPoint, {"step": 0.0}),
        (al.DPADMM, {"diameter": 0.0}),
    ]:
        with pytest.raises(sv.InputError, match=next(iter(bad))):
            kind(**bad)


@pytest.mark.parametrize("kind", harness.OBJECTIVE)
def test_objective_perturbation_needs_curvature(kind, sites):
    with pytest.raises(sv.UnsupportedError, match="bound on every record's curvature"):
        sv.simulate(kind(rounds=2, loss=sv.losses.Hinge()), sites, sv.graphs.ring(4))
    with pytest.raises(sv.UnsupportedError, match="smooth regulariser"):
        sv.simulate(kind(rounds=2, regulariser=sv.regularisers.L1()), sites, sv.graphs.ring(4))


@pytest.mark.parametrize("kind", harness.OBJECTIVE)
@pytest.mark.parametrize("form", ["fair", "published"])
def test_a_jacobian_that_noise_cannot_pay_for(kind, form, sites):
    """DVP's published form buys it back with a ridge; all others must say so before the run."""
    algorithm = kind(rounds=100, rho=1e-4, form=form)
    site = algorithm.oracle(sites, sv.graphs.ring(4))
    if (kind, form) == (al.DVP, "published"):
        assert algorithm.statement(site).epsilon <= 1
        assert algorithm.ridge(1, site).min() > 0
        return
    with pytest.raises(sv.PrivacyError, match="Jacobian"):
        algorithm.statement(site)


@pytest.mark.parametrize("kind", every.kinds(lambda line: every.is_rival(line) and line.exact))
def test_an_exact_argmin_needs_double_precision(kind, sites):
    with pytest.raises(sv.InputError, match="float64"):
        sv.simulate(kind(rounds=2, rho=1.0), sites, sv.graphs.complete(4), dtype="float32")


@pytest.mark.parametrize("name", BY_GRADIENTS)
def test_gradient_methods_run_in_single_precision(name, sites):
    one, two = (
        sv.simulate(BY_GRADIENTS[name], sites, sv.graphs.complete(4), runs=2, seed=1, dtype=dtype)
        for dtype in ("float32", "float64")
    )
    assert one.last.dtype == np.float32
    np.testing.assert_allclose(one.last, two.last, atol=1e-3 * np.abs(two.last).max())


def test_published_pvp_needs_a_strongly_convex_regulariser(sites):
    with pytest.raises(sv.InputError, match="strongly convex"):
        sv.simulate(al.PVP(rounds=2, lam=0.0, form="published"), sites, sv.graphs.ring(4))


def test_published_dp_admm_is_refused_where_it_would_not_be_private(sites):
    algorithm = al.DPADMM(rounds=1, epsilon=30.0, form="published")
    with pytest.raises(sv.PrivacyError, match="really gives"):
        algorithm.statement(algorithm.oracle(sites, sv.graphs.ring(4)))
    honest = al.DPADMM(rounds=9, form="published")
    statement = honest.statement(honest.oracle(sites, sv.graphs.ring(4)))
    assert statement.sigma == pytest.approx(math.sqrt(18 * math.log(1.25e5)))
    assert statement.epsilon < 1


def test_mixing_and_curating_know_what_they_cannot_see(sites):
    part = al.DPDSGD(rounds=2).oracle(sites, sv.graphs.ring(4))
    alone = replace(part, n=9)
    with pytest.raises(sv.InputError, match="largest_degree"):
        al.DPDSGD(rounds=2).start(alone, 1)
    al.DPDSGD(rounds=2, largest_degree=5).start(alone, 1)
    with pytest.raises(sv.InputError, match="largest_degree >= 2"):
        al.DPDSGD(rounds=2, largest_degree=1).start(alone, 1)
    for kind in (al.NoisyAveragedGD, al.TrustedCurator):
        with pytest.raises(sv.InputError, match="no single site"):
            kind(rounds=2).start(alone, 1)


def test_recycling_pays_for_odd_rounds_only(sites):
    site = al.RADMM(rounds=6, rho=1.0).oracle(sites, sv.graphs.ring(4))
    spent = [al.RADMM(rounds=6, rho=1.0).spent(k, site) for k in range(1, 7)]
    assert spent[0] == spent[1] < spent[2] == spent[3] < spent[4] == spent[5]
    assert al.RADMM(rounds=6, rho=1.0).sigma(site) == al.RADMM(rounds=5, rho=1.0).sigma(site)
    assert al.RADMM(rounds=6, rho=1.0).sigma(site) < al.DVP(rounds=6, rho=1.0).sigma(site)


def test_the_worst_placed_node_sets_the_noise(sites):
    """One common sigma: what holds for the fewest rows and the fewest neighbours holds for all."""
    path = sv.graphs.path(4)
    common = al.DVP(rounds=3, rho=1.0).sigma(al.DVP(rounds=3, rho=1.0).oracle(sites, path))
    even = problems.sites(np.random.default_rng(1), (200,) * 4)
    assert common > al.DVP(rounds=3, rho=1.0).sigma(al.DVP(rounds=3, rho=1.0).oracle(even, path))
