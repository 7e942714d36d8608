"""Output laws of a perturbed argmin in one and two dimensions, on a mesh, written without the library's accountants.

The objective is mu/2 ||w||^2 - <g, w> + (1/m) (loss of one record + `others`) + <b, w>. Its argmin has the density
noise(b) det(Hessian) at b = -gradient(w), which is integrated as it stands.
"""

import numpy as np


class Logistic:
    """log(1 + e^{-s y t}) / s: slope within [-1, 1] and of one sign, curvature at most s/4."""

    one_sided = True

    def __init__(self, s):
        self.s, self.curvature_bound = s, s / 4

    def slope(self, t, y):
        return -y / (1 + np.exp(np.clip(self.s * y * t, -600, 600)))

    def curvature(self, t, _):
        return self.s / 4 / np.cosh(np.clip(self.s * t / 2, -300, 300)) ** 2


class Huber:
    """Slope s (t - y), cut off at -1 and 1: of either sign."""

    one_sided = False

    def __init__(self, s):
        self.s = self.curvature_bound = s

    def slope(self, t, y):
        return np.clip(self.s * (t - y), -1, 1)

    def curvature(self, t, y):
        return self.s * (np.abs(self.s * (t - y)) < 1)


class Argmins:
    """Log-densities of the argmin for each of `records`, pairs (x, y) with ||x|| <= 1, on one mesh of models."""

    def __init__(self, loss, m, mu, records, log_noise, reach, points, g=0.0, others=()):
        d = len(records[0][0])
        axis = np.linspace(-reach / mu, reach / mu, points)
        w = np.stack(np.meshgrid(*[axis] * d, indexing="ij"), -1).reshape(-1, d) + g / mu
        self.log_cell = d * np.log(axis[1] - axis[0])
        shared = mu * w - g
        hessian = np.broadcast_to(mu * np.eye(d), (len(w), d, d))
        for x, y in others:
            shared, hessian = self.add(loss, m, w, shared, hessian, np.asarray(x), y)
        self.log_density = []
        for x, y in records:
            gradient, full = self.add(loss, m, w, shared, hessian, np.asarray(x), y)
            self.log_density.append(log_noise(np.linalg.norm(gradient, axis=1)) + np.log(np.linalg.det(full)))
        self.masses = [np.exp(p + self.log_cell).sum() for p in self.log_density]
        # What the mesh misses is divided out: near alpha = 1 it would drown the divergence.
        self.log_density = [p - np.log(mass) for p, mass in zip(self.log_density, self.masses, strict=True)]

    @staticmethod
    def add(loss, m, w, gradient, hessian, x, y):
        t = w @ x
        slope, curvature = loss.slope(t, y) / m, loss.curvature(t, y) / m
        return gradient + slope[:, None] * x, hessian + curvature[:, None, None] * np.outer(x, x)

    def divergences(self, alpha):
        """(i, j, Renyi divergence of order alpha) for all ordered pairs of records."""
        for i, p in enumerate(self.log_density):
            for j, q in enumerate(self.log_density):
                if i != j:
                    e = alpha * p + (1 - alpha) * q
                    top = e.max()
                    yield i, j, (top + np.log(np.exp(e - top).sum()) + self.log_cell) / (alpha - 1)

    def log_ratio(self):
        """The largest log-ratio of two densities."""
        return max((p - q).max() for p in self.log_density for q in self.log_density)


def gaussian(std, d):
    return lambda norm: -0.5 * (norm / std) ** 2 - d / 2 * np.log(2 * np.pi * std**2)


def norm_laplace(scale, d):
    volume = {1: 2.0, 2: 2 * np.pi}[d]
    return lambda norm: -norm / scale - np.log(volume * scale**d)
