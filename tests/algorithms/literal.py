"""Algorithm 1 of the paper, loop by loop, written from the reading of the paper alone: no stacks, no shared code."""

import math

import numpy as np


def logistic_gradient(a, b, w):
    return -b * a / (1.0 + math.exp(b * float(a @ w)))


def local_gradient(rows, labels, w, weight):
    g = np.zeros_like(w)
    for a, b in zip(rows, labels, strict=True):
        g += logistic_gradient(a, b, w) / len(labels)
    return g + weight * w


def eta(schedule, k, r, t, l, scale, diameter):
    factor = {"paper": 2 * k * r, "monotone": 2 * ((k - 1) * l + r), "constant": t * l}[schedule]
    return math.sqrt(factor) / diameter * scale


def algorithm_1(features, labels, edges, noise, *, t, l, rho, lam, diameter, sigma, schedule, c1=1.0):
    """One run. noise[k - 1][i][r] is the standard normal vector of node i. Returns (average, last) per node."""
    n, d = len(features), features[0].shape[1]
    neighbours = [[j for j in range(n) if (i, j) in edges or (j, i) in edges] for i in range(n)]
    inner = [np.zeros(d) for _ in range(n)]  # w~_i^{k,l}
    shared = [np.zeros(d) for _ in range(n)]  # w~_i^k
    gamma = [np.zeros(d) for _ in range(n)]
    sums = [np.zeros(d) for _ in range(n)]
    c2 = n * c1 + lam * diameter
    for k in range(1, t + 1):
        new = []
        for i in range(n):
            m, degree = len(labels[i]), len(neighbours[i])
            scale = math.sqrt((c2 / n) ** 2 + d * (2 * c1 * sigma / m) ** 2)
            w, trail = inner[i], []
            for r in range(l):
                sums[i] = sums[i] + w
                e = eta(schedule, k, r + 1, t, l, scale, diameter)
                pull = 2 * gamma[i] + rho * degree * shared[i]
                for j in neighbours[i]:
                    pull = pull + rho * shared[j]
                exact = (e * w - local_gradient(features[i], labels[i], w, lam / n) + pull) / (2 * rho * degree + e)
                s = 2 * c1 / ((2 * rho * degree + e) * m)
                w = exact + s * sigma * noise[k - 1][i][r]
                trail.append(w)
            inner[i] = w
            new.append(sum(trail) / l)
        shared = new
        for i in range(n):
            for j in neighbours[i]:
                gamma[i] = gamma[i] - rho / 2 * (shared[i] - shared[j])
    return [total / (t * l) for total in sums], shared
