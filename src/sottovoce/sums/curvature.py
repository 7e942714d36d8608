"""The second moments as a descent knows them: noisy eigenvalues, eigenvectors, and a ridge as large as their noise.

For wide tables only the diagonal m_j of M^ is known. In place of M^ stands the diagonal matrix of sum_i sqrt(m_i)
sqrt(m_j), which bounds it: a a^T <= (sum_j a_j^2 / s_j) diag(s) for every s > 0, by Cauchy and Schwarz; take s_j =
sqrt(m_j) and the mean.

Where Hessians are summed too, a Newton step with them is filled up in the same way.
"""

import math
from typing import NamedTuple

import numpy as np

from sottovoce.arrays import Array, Floats
from sottovoce.errors import PrivacyError
from sottovoce.oracle.row_sums import whole
from sottovoce.oracle.whitening import Whitening
from sottovoce.sums.program import Opened

# Chosen on some tables and judged on others: docs/proofs/masked.md says which, and how well they do.
LEAST_RIDGE, MOST_RIDGE = 1.3, 3.2
RIDGE_FROM, RIDGE_SLOPE = 0.0124, 0.77  # the part of the trace of M^ that is noise, from which on the factor grows
FLOOR = 1e-4  # of tau, as a part of the largest l_j: without noise there is none else

WIDEST_MATRIX = 511  # features: the half of a larger matrix would be more than 2^17 numbers, one mebibyte

TINY = np.finfo(np.float64).tiny


class Curvature(NamedTuple):
    """The estimate M^ of the second moments, in its eigenbasis."""

    values: Floats  # (p, runs) eigenvalues, or what bounds them where only the diagonal is known
    moments: Floats  # (p, runs) eigenvalues, or the diagonal
    basis: Floats | None  # (p, p, runs) eigenvectors, as columns; None for a diagonal
    tau: Floats  # (1, runs) by how much it is filled up

    @classmethod
    def of(cls, opened: Opened, p: int) -> "Curvature":
        """The curvature from the opened sum of `Moments` or `DiagonalMoments`, for p features."""
        M, std = opened.mean, float(opened.mean_std.item())
        if not np.isfinite(M).all():
            raise PrivacyError("Expected finite second moments, got some that are not: a site has spoilt their sum.")
        basis: Floats | None = None
        if p <= WIDEST_MATRIX:
            matrices = whole(M.T)
            found, vectors = np.linalg.eigh(matrices)
            values: Floats = np.maximum(found, 0.0).T
            moments = values
            basis, trace = np.ascontiguousarray(vectors.transpose(1, 2, 0)), np.trace(matrices, axis1=1, axis2=2)[None]
        else:
            largest = std * math.sqrt(2 * math.log(2 * p))  # to be expected of p
            moments = np.maximum(M, 0.0)
            roots = np.sqrt(moments + largest)
            values, trace = roots.sum(axis=0, keepdims=True) * roots, M.sum(axis=0, keepdims=True)
        edge = std * math.sqrt(p)  # size of the noise in M^, if it is whole
        tau = np.maximum(ridge(edge, trace), FLOOR * values.max(axis=0, keepdims=True))
        return cls(values, moments, basis, tau)

    def product(self, v: Floats, w: Floats) -> Floats:
        """<v, M^ w>, summed over the outputs: (1, runs)."""
        product: Floats = np.sum(self.values[:, None, :] * self.turned(v) * self.turned(w), axis=(0, 1))[None]
        return product

    def seen(self, whitening: Whitening | None) -> Floats:
        """Variance along each eigenvector of noise that has variance 1 in whitened coordinates: (p, runs)."""
        if whitening is None:
            return np.ones_like(self.values)
        if self.basis is None:
            return 1 / whitening.A**2
        # Divided as a model of p outputs, of which each is an eigenvector.
        p, _, runs = self.basis.shape
        turned = whitening.divide(self.basis.reshape(p * p, runs)).reshape(self.basis.shape)
        found: Floats = np.sum(turned**2, axis=0)
        return found

    def times(self, v: Floats) -> Floats:
        """M^ v: (d, runs) -> (d, runs)."""
        return self._scaled(v, self.values)

    def divide(self, v: Floats, scale: Floats) -> Floats:
        """v divided by the matrix that has these eigenvalues, (p, runs), and the eigenvectors of M^."""
        return self._scaled(v, 1 / scale)

    def _scaled(self, v: Floats, scale: Floats) -> Floats:
        turned = self.turned(v) * scale[:, None, :]
        if self.basis is not None:
            turned = np.einsum("ijr,jor->ior", self.basis, turned, optimize=True)
        return turned.reshape(v.shape)

    def turned(self, v: Floats) -> Array:
        """A model (d, runs) in the eigenbasis: (p, outputs, runs)."""
        parts = v.reshape(len(self.values), -1, v.shape[1])
        return parts if self.basis is None else np.einsum("jir,jor->ior", self.basis, parts, optimize=True)

    def matrix(self, run: int) -> Floats:
        """M^ of one run, (p, p); a bound on it if only its diagonal was asked for."""
        values = self.values[:, run]
        if self.basis is None:
            return np.diag(values)
        vectors = self.basis[:, :, run]
        found: Floats = (vectors * values) @ vectors.T
        return found


def newton_step(H: Floats, edge: Floats, gradient: Floats, ridge: Floats) -> Floats:
    """A Newton step, (p, runs), with Hessians and ridges, (runs, p, p), filled up by the size of the noise where that
    hides them: `edge`, (runs, 1).
    """
    values, vectors = np.linalg.eigh(H + ridge)
    floor = np.maximum(edge, FLOOR * values.max(axis=1, keepdims=True))
    scale = np.maximum(values, 0.0) + np.where(values < 2 * floor, floor, 0.0)
    turned = np.einsum("rji,rj->ri", vectors, gradient.T) / scale
    step: Floats = np.einsum("rij,rj->ri", vectors, turned).T
    return step


def ridge(edge: Floats | float, trace: Floats) -> Floats:
    """By how much a noisy matrix is filled up, if its noise has the size `edge`: more of it where more of the trace is
    noise.
    """
    part = edge / np.maximum(trace, np.maximum(edge, TINY))
    times = LEAST_RIDGE + RIDGE_SLOPE * np.log(np.maximum(part, RIDGE_FROM) / RIDGE_FROM)
    filled: Floats = edge * np.minimum(times, MOST_RIDGE)
    return filled
