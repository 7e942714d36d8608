"""Small problems that several tests share, and an independent solver for them."""

import numpy as np
import scipy.sparse as sp
from scipy.optimize import minimize

import sottovoce as sv


def rows(rng, m, d, density=0.7):
    a = rng.normal(size=(m, d)) * (rng.random((m, d)) < density)
    return a / np.maximum(1.0, np.linalg.norm(a, axis=1, keepdims=True))


def lists(rng, sizes, d=5, classes=True):
    """Feature matrices and labels, one per site, from one noisy linear model."""
    truth = 3 * rng.normal(size=d)
    features = [rows(rng, m, d) for m in sizes]
    noisy = [a @ truth + rng.normal(size=len(a)) for a in features]
    return features, [np.where(z > 0, 1.0, -1.0) if classes else z for z in noisy]


def sites(rng, sizes, d=5, classes=True, sparse=False):
    features, labels = lists(rng, sizes, d, classes)
    return sv.Sites([sp.csr_array(a) for a in features] if sparse else features, labels)


def pooled_objective(features, labels, loss, lam):
    """(1/n) sum_i (1/m_i) sum_j loss + lam ||w||^2/2 and its gradient, for scipy."""
    n = len(features)

    def objective(w):
        value, gradient = lam * (w @ w) / 2, lam * w
        for a, b in zip(features, labels, strict=True):
            value += np.mean(loss.value(a @ w, b, loss.theta)) / n
            gradient = gradient + a.T @ loss.slope(a @ w, b, loss.theta) / len(b) / n
        return value, gradient

    return objective


def pooled_minimum(features, labels, loss, lam):
    """By L-BFGS, which shares no code with the library's solver."""
    objective = pooled_objective(features, labels, loss, lam)
    found = minimize(objective, np.zeros(features[0].shape[1]), jac=True, method="L-BFGS-B",
                     options={"gtol": 1e-12, "ftol": 1e-16, "maxiter": 5000, "maxcor": 50})  # fmt: skip
    return found.x, found.fun
