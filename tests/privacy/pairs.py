"""Exact pairs of output laws of one sampled step, on a fine mesh, written without the library's accountants.

They are attained by real neighbouring data sets in one dimension, so their price is a lower bound on the truth. A row
is worth -1/2 or +1/2 sensitivities; means are in units of the noise.
"""

import numpy as np
from scipy.stats import binom, norm

Y = np.linspace(-14.0, 50.0, 80_001)


def multiplicity(sampling):
    if sampling.scheme == "poisson":
        return np.array([1 - sampling.batch / sampling.rows, sampling.batch / sampling.rows])
    p = binom.pmf(np.arange(min(sampling.batch, 30) + 1), sampling.batch, 1 / sampling.rows)
    return p[p > 1e-25]


def cells(p, shift, mesh):
    """Cell masses, each from the tail that keeps its digits."""
    total = np.zeros(len(mesh) - 1)
    for j, q in enumerate(p):
        z = mesh - j * shift
        total += q * np.where(z[:-1] > 0, -np.diff(norm.sf(z)), np.diff(norm.cdf(z)))
    return total


def pairs(sampling, sigma):
    """(name, P, Q): masses on a common mesh."""
    p = multiplicity(sampling)
    both = np.linspace(-32.0, 32.0, 80_001)
    plus, minus = cells(p, 0.5 / sigma, both), cells(p, -0.5 / sigma, both)
    found = [("opposite rows", plus, minus)]
    # Poisson leaves a gap where a row is absent; a draw with replacement puts another row there, at worst the opposite.
    shift = 0.5 / sigma if sampling.scheme == "poisson" else 1 / sigma
    moved, still = cells(p, shift, Y), cells([1.0], 0.0, Y)
    return [*found, ("row appears", moved, still), ("row vanishes", still, moved)]


def hockey_stick(P, Q, eps):
    return float(np.sum(np.maximum(P - np.exp(eps) * Q, 0.0)))


def composed_delta(P, Q, times, eps, interval, span, down):
    """delta(eps) of the T-fold product. `down` rounds every loss down: the result is then never above the truth."""
    keep = (P > 0) & (Q > 0)
    return compose(np.log(P[keep] / Q[keep]), P[keep], times, eps, interval, span, down)


def compose(losses, mass, times, eps, interval, span, down):
    size = 2 ** int(np.ceil(np.log2(2 * span / interval)))
    index = np.floor(losses / interval) if down else np.rint(losses / interval)
    near = np.abs(index * interval) < span  # leaving mass out only lowers delta
    folded = np.bincount(index[near].astype(np.int64) % size, weights=mass[near], minlength=size)
    total = np.fft.irfft(np.fft.rfft(folded) ** times, size)
    grid = np.fft.fftfreq(size, 1 / size) * interval
    above = grid > eps
    return float(np.sum(total[above] * -np.expm1(eps - grid[above])))
