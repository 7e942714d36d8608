"""The pooled optimum: what a trusted party with all rows and no privacy would reach. A yardstick for simulations."""

from typing import Any

import numpy as np

from sottovoce.algorithms.base import Algorithm
from sottovoce.argmin import objective_of, refuse_unsupported
from sottovoce.arrays import Floats
from sottovoce.errors import UnsupportedError
from sottovoce.evaluation import evaluate
from sottovoce.sites import Sites

# Without any regulariser a rank-deficient data set has many minimisers of one risk; this picks one of them.
_LEAST_CURVATURE = 1e-10


def pooled_model(sites: Sites, algorithm: Algorithm[Any], tolerance: float = 1e-9) -> Floats:
    """argmin_w (1/n) sum_i (1/m_i) sum_j loss_ij(w) + (lam/n) phi(w), (d,); (d * K,) for softmax over K classes."""
    refuse_unsupported(algorithm.loss, algorithm.regulariser, None)
    share = np.repeat(1.0 / (sites.n * sites.counts), sites.counts)
    objective = objective_of(algorithm.loss, sites.rows.block(0, len(sites.labels)), sites.labels, share)
    mu = max(algorithm.lam / sites.n * (algorithm.regulariser.curvature or 0.0), _LEAST_CURVATURE)
    zeros = np.zeros(sites.d * algorithm.loss.outputs)
    return objective.argmin(zeros, mu, zeros, tolerance).astype(np.float64)


def pooled_optimum(sites: Sites, algorithm: Algorithm[Any]) -> float | None:
    """The pooled optimum's mean loss over all rows; None where the objective has no smooth solver."""
    try:
        model = pooled_model(sites, algorithm)
    except UnsupportedError:
        return None
    return float(evaluate(sites.rows.block, sites.labels, algorithm.loss, model[:, None]).risk[0])
