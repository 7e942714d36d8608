"""Small problems of several classes, and an independent solver for them."""

import numpy as np
import scipy.sparse as sp
from scipy.optimize import minimize
from scipy.special import log_softmax, softmax

import sottovoce as sv
from helpers import problems

SIZES = (3, 40, 8, 1, 17)
GRAPH = sv.graphs.from_edges(5, [(0, 1), (1, 2), (2, 3), (1, 3), (3, 4)])


def lists(rng, sizes, d=5, classes=3):
    """Feature matrices and labels 0 .. classes - 1, one per site, drawn from one softmax model."""
    truth = 4 * rng.normal(size=(d, classes))
    features = [problems.rows(rng, m, d) for m in sizes]
    chances = [softmax(a @ truth, axis=1) for a in features]
    return features, [np.array([float(rng.choice(classes, p=p)) for p in rows]) for rows in chances]


def sites(rng, sizes=SIZES, d=5, classes=3, sparse=False):
    features, labels = lists(rng, sizes, d, classes)
    return sv.Sites([sp.csr_array(a) for a in features] if sparse else features, labels)


def pooled_objective(features, labels, classes, lam):
    """(1/n) sum_i (1/m_i) sum_j loss + lam ||w||^2/2 and its gradient, by SciPy's softmax."""
    n = len(features)

    def objective(flat):
        w = flat.reshape(-1, classes)
        value, gradient = lam * (flat @ flat) / 2, lam * w
        for a, b in zip(features, labels, strict=True):
            own = np.eye(classes)[b.astype(int)]
            value -= np.mean(np.sum(own * log_softmax(a @ w, axis=1), axis=1)) / n
            gradient = gradient + a.T @ (softmax(a @ w, axis=1) - own) / len(b) / n
        return value, gradient.ravel()

    return objective


def pooled_minimum(features, labels, classes, lam):
    """By L-BFGS, which shares no code with the library's solver."""
    objective = pooled_objective(features, labels, classes, lam)
    found = minimize(objective, np.zeros(features[0].shape[1] * classes), jac=True, method="L-BFGS-B",
                     options={"gtol": 1e-12, "ftol": 1e-16, "maxiter": 5000, "maxcor": 50})  # fmt: skip
    return found.x, found.fun
