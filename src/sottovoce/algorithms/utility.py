"""Theorem 3 of the paper as a number: the right-hand side of the utility bound, in the form proved in
docs/proofs/ipadmm.md (Theorem 2 there).
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from sottovoce.algorithms.ipadmm import IPADMM
from sottovoce.errors import UnsupportedError, expect
from sottovoce.oracle.plain import Oracle

ASSUMPTIONS = (
    "the loss and the regulariser are convex",
    "every inner iterate and the minimiser lie in a set of diameter D that holds 0 (so with radius = D/2)",
    "the disagreement is that of the averages of the broadcasts",
    "the noise is Gaussian, and the gradients use all rows or an unbiased batch",
)


@dataclass(frozen=True)
class UtilityBound:
    """An upper bound on E[ sum_i L_i(w^_i) - L_i(w*) + beta sum_i sum_{j in N_i} ||w_i - w_j|| ]."""

    total: float
    step_term: float  # sum_i C D G_i / sqrt(t l)
    coupling_term: float  # sum_i (rho |N_i| D^2 + |N_i| beta^2 / rho) / t
    assumptions: tuple[str, ...] = ASSUMPTIONS


def utility_bound(algorithm: IPADMM, site: Oracle, beta: float) -> UtilityBound:
    """sum_i [ C D G_i / sqrt(t l) + (rho |N_i| D^2 + |N_i| beta^2 / rho) / t ], G_i^2 = (n omega_i c1 + lam Lip(phi))^2
    + d (sigma s_i)^2. L_i is a site's objective with its weight (`Oracle`), and w* minimises their mean.

    C = sqrt(2) for the schedule "monotone", 1 for "constant". The printed schedule "paper" has no such bound for
    l > 1, since the steps fall back at every round, and is refused there.

    Args:
        algorithm: the hyper-parameters.
        site: an oracle that holds all nodes (only its public numbers are used).
        beta: the price of a unit of disagreement; the bound on the edge duals in the paper.
    """
    expect(beta >= 0, "beta >= 0", beta=beta)
    if algorithm.schedule == "paper" and algorithm.local_steps > 1:
        raise UnsupportedError(
            "The utility bound needs steps that never fall back, which schedule='paper' does not give for "
            f"local_steps={algorithm.local_steps}. Use 'monotone' or 'constant'."
        )
    t, l, rho, diameter = algorithm.rounds, algorithm.local_steps, algorithm.rho, algorithm.diameter_for(site)
    constant = 1.0 if algorithm.schedule == "constant" else math.sqrt(2)
    steps = constant * diameter * algorithm.gradient_scale(site) / math.sqrt(t * l)
    coupling = site.degree * (rho * diameter**2 + beta**2 / rho) / t
    step_term, coupling_term = _sum(steps), _sum(coupling)
    return UtilityBound(step_term + coupling_term, step_term, coupling_term)


def _sum(terms: "np.ndarray[Any, Any]") -> float:
    return float(np.sum(terms))
