"""A default for the diameter D, from public numbers only.

D sets the step length: eta^s = sqrt(2 s) G / D. Too small and the models never get far from zero; too large and they
drown in noise. What is best depends on the unknown problem, so we take the best D for an assumed one: a quadratic risk

    sum_i lambda_i (w_i - w*_i)^2,      lambda_i = c / (i H_d),   |w*_i| = COEFFICIENT / norm bound,

whose curvatures add up to c, the most that the loss allows for rows of the declared norm, and fall off as 1/i, as those
of real tables tend to. T steps of gradient descent, whose averaged gradient carries noise of variance v per coordinate,
cover a distance y = sum_s 1/eta^s and leave

    risk(y) = sum_i lambda_i w*_i^2 e^{-2 lambda_i y} + v y / (2 T) sum_i (1 - e^{-2 lambda_i y}).

We minimise over y, no further than eta >= c allows, and D follows from y = sqrt(2 T) D / G. No row is looked at.
"""

import math
from functools import lru_cache

import numpy as np
import scipy

from sottovoce.arrays import Floats
from sottovoce.oracle.plain import Oracle

# Log-odds per feature that we expect to matter: a factor of e^3 = 20 in the odds.
COEFFICIENT = 3.0


@lru_cache(maxsize=64)
def assumed_best_diameter(*, d: int, steps: int, scale: float, noise: float, curvature: float, signal: float) -> float:
    """D for the assumed problem.

    Args:
        d: coordinates.
        steps: T = t l.
        scale: G, the root mean square norm of one node's noisy gradient; see `common_scale` where nodes differ.
        noise: v, the variance per coordinate of the gradient noise averaged over nodes.
        curvature: c, the bound on the loss's curvature in w.
        signal: |w*_i|, the size of a coefficient.
    """
    fall_off = 1.0 / np.arange(1, d + 1)
    lambdas = curvature * fall_off / fall_off.sum()

    def risk(log_y: float) -> float:
        y = math.exp(log_y)
        left = np.exp(-2 * lambdas * y)
        return float(np.sum(lambdas * signal**2 * left) + noise * y / (2 * steps) * np.sum(1 - left))

    # eta^T = sqrt(2 T) G / D >= c, where gradient descent is stable, is y <= 2 T / c.
    farthest = math.log(2 * steps / curvature)
    found = scipy.optimize.minimize_scalar(risk, bounds=(farthest - 20, farthest), method="bounded")
    return math.exp(float(found.x)) * scale / math.sqrt(2 * steps)


def common_scale(site: Oracle, steepest: Floats, variance: Floats) -> float:
    """G of the network, for `assumed_best_diameter`, from c1 n omega_i and v_i of every node (nodes, 1, 1).

    Nodes that keep together move as one whose eta is the mean of theirs, so it is the mean of G_i. Where all count the
    same it is the root of the mean square, as ever.
    """
    if site.importances is None:
        return math.sqrt(site.c1**2 + site.d * float(np.mean(variance)))
    return float(np.mean(np.sqrt(steepest**2 + site.d * variance)))
