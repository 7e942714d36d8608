"""What objective perturbation is charged for: every private round, both of its releases, at the node where each tells
most.
"""

import numpy as np
import pytest

import sottovoce as sv
from sottovoce import algorithms as al
from sottovoce.algorithms.laplace import NORM_LAPLACE_NORMALS
from sottovoce.noise.sources import GivenNoise, SeededNoise, Shape
from sottovoce.privacy import Gaussian, GaussianObjective
from sottovoce.privacy.releases import leaves

# A node with many neighbours and few rows, and others, so that no one node is worst in everything.
GRAPH = sv.graphs.from_edges(5, [(0, 1), (0, 2), (0, 3), (3, 4)])
SIZES = (40, 200, 90, 30, 70)
TAU, SIGMA_O = 1e-10, 1e-5  # of the solver, and of what hides its error
C = 0.25  # largest curvature of the logistic loss, for rows of norm 1
RIVALS = {
    "dvp": al.DVP(rounds=4, rho=1.0, lam=0.3),
    "m-admm": al.MADMM(rounds=4, rho=1.0, lam=0.3, growth=1.3),
    "r-admm": al.RADMM(rounds=5, rho=1.0, lam=0.3),
}
PRIVATE = {"dvp": (1, 2, 3, 4), "m-admm": (1, 2, 3, 4), "r-admm": (1, 3, 5)}
PENALTY = {"dvp": lambda _: 1.0, "m-admm": lambda k: 1.3 ** (k - 1), "r-admm": lambda _: 1.0}


@pytest.fixture(name="sites")
def _sites():
    rng = np.random.default_rng(0)
    rows = [rng.normal(size=(m, 3)) / 10 for m in SIZES]
    return sv.Sites(rows, [np.where(rng.random(m) < 0.5, -1.0, 1.0) for m in SIZES])


def by_node(name, k):
    """(kappa_i, noise multiplier of the second release) of every node in round k, by docs/proofs/dvp.md."""
    mu = [0.3 + 2 * PENALTY[name](k) * degree for degree in GRAPH.degrees]
    return [(C / (m * one), SIGMA_O * one / (2 * TAU)) for m, one in zip(SIZES, mu, strict=True)]


@pytest.mark.parametrize("name", RIVALS)
def test_both_releases_of_every_private_round_are_charged_at_the_worst_node(name, sites):
    algorithm = RIVALS[name]
    site = algorithm.oracle(sites, GRAPH)
    charged = leaves(algorithm.event(algorithm.rounds, site))
    objective = sorted((leaf for leaf in charged.elements() if isinstance(leaf, GaussianObjective)), key=_kappa)
    hidden = sorted((leaf.sigma for leaf in charged.elements() if isinstance(leaf, Gaussian)), reverse=True)
    assert len(objective) == len(hidden) == len(PRIVATE[name])
    assert sum(charged.values()) == 2 * len(PRIVATE[name])
    nodes = [by_node(name, k) for k in PRIVATE[name]]
    kappas = sorted(max(kappa for kappa, _ in places) for places in nodes)
    multipliers = sorted((min(multiplier for _, multiplier in places) for places in nodes), reverse=True)
    np.testing.assert_allclose([leaf.kappa for leaf in objective], kappas, rtol=1e-11)
    # The norm's slack counts: a declared constant below the true one would be no bound.
    assert all(leaf.kappa > kappa for leaf, kappa in zip(objective, kappas, strict=True))
    np.testing.assert_allclose(hidden, multipliers, rtol=1e-14)
    assert {leaf.sigma for leaf in objective} == {algorithm.sigma(site)}


def _kappa(leaf):
    return leaf.kappa


def test_no_one_node_is_worst_in_everything():
    places = by_node("dvp", 1)
    assert max(places)[0] != max(places, key=lambda place: -place[1])[0]


@pytest.mark.parametrize("name", RIVALS)
def test_a_run_is_charged_round_by_round(name, sites):
    algorithm = RIVALS[name]
    site = algorithm.oracle(sites, GRAPH)
    for k in range(1, algorithm.rounds + 1):
        private = sum(q <= k for q in PRIVATE[name])
        assert sum(leaves(algorithm.event(k, site)).values()) == 2 * private


PUBLISHED = {
    "dvp": al.DVP(rounds=3, rho=1.0, lam=0.3, form="published", epsilon=4.0),
    "dvp, with a ridge": al.DVP(rounds=3, rho=0.01, lam=0.3, form="published"),
    "m-admm": al.MADMM(rounds=3, rho=1.0, lam=0.3, growth=1.3, form="published", epsilon=4.0),
    "r-admm": al.RADMM(rounds=3, rho=1.0, lam=0.3, form="published", epsilon=4.0),
}


def released(algorithm, site, radius_of_b, radius_of_o):
    """What round 1 sends if the two l2-Laplace vectors, before their scales, are so long along the first axis."""
    along, z = np.array([1.0, 0, 0]), np.zeros((1, 5, 2 * NORM_LAPLACE_NORMALS, 3))
    for first, radius in ((0, radius_of_b), (NORM_LAPLACE_NORMALS, radius_of_o)):
        z[:, :, first], z[:, :, first + 1] = along, np.sqrt(2 * radius) * along
    noise = GivenNoise(lambda _: z, SeededNoise(0, Shape(5, 3, 1)))
    return algorithm.release(1, algorithm.start(site, 1), site, noise)[0]


@pytest.mark.parametrize("name", PUBLISHED)
def test_the_two_noises_and_the_jacobian_share_one_pure_epsilon(name, sites):
    """Both scales are read off what is sent, not off the formulas that set them."""
    algorithm = PUBLISHED[name]
    site = algorithm.oracle(sites, GRAPH)
    mu = 0.3 + 2 * algorithm.rho * GRAPH.degrees.reshape(-1, 1, 1) + algorithm.ridge(1, site)
    still, moved = released(algorithm, site, 0.0, 0.0), released(algorithm, site, 1.0, 0.0)
    # At the argmin, b is what is left of the gradient; nothing was heard yet.
    b = -(site.gradient(moved) + (mu - 0.3) * moved)
    o = released(algorithm, site, 0.0, 1.0) - still
    price_of_b = site.sensitivity() / np.linalg.norm(b, axis=1, keepdims=True)
    price_of_o = 2 * TAU / mu / np.linalg.norm(o, axis=1, keepdims=True)
    spent = price_of_b + algorithm.jacobian(1, site) + price_of_o
    share = algorithm.epsilon / (2 if name == "r-admm" else 3)  # R-ADMM looks at rows in rounds 1 and 3 only
    np.testing.assert_allclose(spent, np.full((5, 1, 1), share), rtol=1e-5)
    # The proof needs ln(1 + kappa); a paper may take more.
    assert np.all(algorithm.jacobian(1, site) >= np.log1p(C / (np.array(SIZES).reshape(-1, 1, 1) * mu)))
