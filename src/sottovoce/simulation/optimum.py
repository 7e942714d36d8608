"""The pooled optimum: the loss that a trusted party with all rows, the same weights and no privacy would reach. It is a
reference for simulations.
"""

from time import perf_counter

import numpy as np

from sottovoce.algorithms.base import Method
from sottovoce.arrays import Floats
from sottovoce.errors import SottovoceError, UnsupportedError
from sottovoce.oracle.argmin.plain import objective_of, refuse_unsupported
from sottovoce.problem.evaluation import evaluate
from sottovoce.problem.sites import Sites

# Without a regulariser, a rank-deficient data set has many minimisers of the same risk; this selects one of them.
_LEAST_CURVATURE = 1e-10
# With more rows than this, evenly spaced ones are used: the optimum of a million rows is worse than that of all by
# about d / 2,000,000, which does not show in a reference, and takes a minute less.
MOST_ROWS = 1_000_000


class OutOfTimeError(SottovoceError):
    """The optimum was not found within the allowed seconds."""


def _row_shares(sites: Sites, algorithm: Method) -> Floats:
    """Weight of one row of each site in the objective, (n,)."""
    weighed = algorithm.importances(sites.counts)
    shares: Floats = (1.0 if weighed is None else weighed) / (sites.n * sites.counts)
    return shares


def same_optimum(sites: Sites, one: Method, other: Method) -> bool:
    """True if two algorithms have the same objective on these rows. Their weights may differ in name, and be the same
    for sites of equal size.
    """
    alike = (one.loss, one.regulariser, one.lam) == (other.loss, other.regulariser, other.lam)
    return alike and np.array_equal(_row_shares(sites, one), _row_shares(sites, other))


def pooled_model(sites: Sites, algorithm: Method, tolerance: float = 1e-9, seconds: float = float("inf")) -> Floats:
    """argmin_w sum_i (omega_i/m_i) sum_j u_ij loss_ij(w) + lam phi(w), (d,); (d * K,) for softmax over K classes.

    Raises:
        OutOfTimeError: it was not found within that many seconds.
    """
    refuse_unsupported(algorithm.loss, algorithm.regulariser, None)
    share = np.repeat(_row_shares(sites, algorithm), sites.counts)
    some = slice(None, None, -(-len(share) // MOST_ROWS))
    rows, share = sites.rows.block(0, len(sites.labels)), share[some] / share[some].sum() * share.sum()
    chosen = sites.factors[some]
    share = share if chosen.weights is None else share * chosen.weights
    end = perf_counter() + seconds

    def check_time() -> None:
        if perf_counter() > end:
            raise OutOfTimeError(f"Expected the optimum within {seconds:g} s, got none. Give it more, or leave it out.")

    objective = objective_of(algorithm.loss, rows[some], sites.labels[some], share, chosen.shifts, check_time)
    mu = max(algorithm.lam * (algorithm.regulariser.curvature or 0.0), _LEAST_CURVATURE)
    zeros = np.zeros(sites.d * algorithm.loss.outputs)
    return objective.argmin(zeros, mu, zeros, tolerance).astype(np.float64)


def name_of_optimum(sites: Sites, algorithm: Method) -> str:
    """Name of the optimum for tables and figures, which says how sites count unless every row counts the same."""
    alike = int(sites.counts.max()) - int(sites.counts.min()) <= 1
    if alike or algorithm.weights == "rows":
        return "all rows pooled, no privacy"
    return f"no privacy, sites count {'alike' if algorithm.weights == 'equal' else 'as their rows squared'}"


def pooled_optimum(sites: Sites, algorithm: Method, seconds: float = float("inf")) -> float | None:
    """Mean loss of `pooled_model` over all rows, each counting the same; None if the objective has no smooth solver."""
    try:
        model = pooled_model(sites, algorithm, seconds=seconds)
    except UnsupportedError:
        return None
    return float(evaluate(sites.rows.block, sites.labels, algorithm.loss, model[:, None], sites.factors).risk[0])
