import math

import numpy as np
import pytest

import sottovoce as sv
from helpers import problems

SIZES = (20, 30, 25)
GRAPH = sv.graphs.path(3)


def by_hand(sigma, constant, *, t, l, rho, lam, diameter, beta, d):
    total, n = 0.0, 3
    for m, degree in zip(SIZES, (1, 2, 1), strict=True):
        c2 = n + n * lam * diameter
        slack = 1 + 1e-12 + m * (m + 8) * 2.0**-53  # a row may be so much longer, and its sum so much off
        g = math.sqrt((c2 / n) ** 2 + d * (2 * sigma * slack / m) ** 2)
        total += constant * diameter / math.sqrt(t * l) * g + (rho * degree * diameter**2 + degree * beta**2 / rho) / t
    return total


@pytest.mark.parametrize(("schedule", "constant"), [("monotone", math.sqrt(2)), ("constant", 1.0)])
def test_bound_is_the_formula(schedule, constant):
    sites = problems.sites(np.random.default_rng(1), SIZES)
    algorithm = sv.IPADMM(rounds=50, local_steps=4, rho=0.1, lam=0.2, diameter=6.0, schedule=schedule)
    site = algorithm.oracle(sites, GRAPH)
    expected = by_hand(algorithm.sigma(site), constant, t=50, l=4, rho=0.1, lam=0.2, diameter=6.0, beta=0.5, d=5)
    assert sv.utility_bound(algorithm, site, beta=0.5).total == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("schedule", ["monotone", "constant"])
@pytest.mark.parametrize("epsilon", [math.inf, 20.0])
def test_bound_holds_in_simulation(schedule, epsilon):
    """Excess risk of w^ plus beta times the disagreement stays below the bound, with projection and ||w*|| <= D/2."""
    features, labels = problems.lists(np.random.default_rng(1), SIZES)
    lam, beta, diameter = 0.6, 0.2, 12.0
    algorithm = sv.IPADMM(epsilon=epsilon, rounds=200, local_steps=5, rho=0.1, lam=lam, diameter=diameter,
                          schedule=schedule, radius=diameter / 2)  # fmt: skip
    sites = sv.Sites(features, labels)
    result = sv.simulate(algorithm, sites, GRAPH, runs=8, seed=0, record=1)
    objective = problems.pooled_objective(features, labels, algorithm.loss, lam)
    minimiser, minimum = problems.pooled_minimum(features, labels, algorithm.loss, lam)
    assert np.linalg.norm(minimiser) <= diameter / 2
    # 3 times the pooled mean objective of each node's average bounds nothing by itself: use each node's own L_i.
    site = algorithm.oracle(sites, GRAPH)
    own = site.risk(result.average.transpose(1, 2, 0)) - site.risk(minimiser.reshape(1, 5, 1).repeat(3, axis=0))
    gaps = np.linalg.norm(result.average[:, [0, 1]] - result.average[:, [1, 2]], axis=2).sum(axis=1) * 2
    reached = float(np.mean(own.sum(axis=0) + beta * gaps))
    bound = sv.utility_bound(algorithm, site, beta)
    assert reached < bound.total
    assert objective(minimiser)[0] == pytest.approx(minimum)


def test_printed_schedule_has_no_bound_for_several_steps():
    sites = problems.sites(np.random.default_rng(1), SIZES)
    algorithm = sv.IPADMM(schedule="paper", local_steps=2, diameter=3.0)
    with pytest.raises(sv.UnsupportedError, match="never fall back"):
        sv.utility_bound(algorithm, algorithm.oracle(sites, GRAPH), beta=1.0)
    one = sv.IPADMM(schedule="paper", local_steps=1, diameter=3.0)
    two = sv.IPADMM(schedule="monotone", local_steps=1, diameter=3.0)
    bounds = [sv.utility_bound(a, a.oracle(sites, GRAPH), beta=1.0).total for a in (one, two)]
    assert bounds[0] == bounds[1]
