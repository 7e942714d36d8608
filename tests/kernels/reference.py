"""The inner recursion and small problems, in plain NumPy, for the kernels to be compared with."""

from typing import NamedTuple

import numpy as np
import scipy.sparse as sp

from sottovoce.oracle.kernels.steps import GIVEN, NONE, KernelDraws, KernelRows, Penalty
from sottovoce.oracle.kernels.tiles import Csr, Dense


class Problem(NamedTuple):
    matrix: np.ndarray
    offsets: np.ndarray
    labels: np.ndarray
    cap: np.ndarray
    eta: np.ndarray
    curvature: np.ndarray
    std: np.ndarray
    w: np.ndarray
    pull: np.ndarray
    z: np.ndarray


def problem(runs, loss, counts=(37, 1, 64, 5), d=11, l=3, seed=0):
    rng = np.random.default_rng(seed)
    rows, nodes = sum(counts), len(counts)
    matrix = rng.normal(size=(rows, d)) * (rng.random((rows, d)) < 0.4)
    labels = np.where(rng.random(rows) < 0.5, -1.0, 1.0)
    if loss.name in ("absolute", "huber", "quantile", "smoothed-quantile"):
        labels = rng.normal(size=rows)
    shape = (nodes, d, runs)
    return Problem(
        matrix, np.concatenate([[0], np.cumsum(counts)]), labels, rng.uniform(0.2, 2, rows),
        rng.uniform(0.5, 2, (l, nodes)), rng.uniform(1, 2, nodes), rng.uniform(0.1, 0.3, nodes),
        rng.normal(size=shape), rng.normal(size=shape), rng.normal(size=(l, *shape)),
    )  # fmt: skip


def rows_of(p, dtype, dense):
    if dense:
        return Dense(p.matrix.astype(dtype))
    csr = sp.csr_array(p.matrix.astype(dtype))
    return Csr(csr.data, csr.indices.astype(np.int32), csr.indptr.astype(np.int64))


def arguments(
    p, loss, dtype=np.float64, dense=False, l1=0.0, l2=0.0, radius=np.inf, caps=False, noise=True, weights=None
):
    """What `noisy_steps` takes."""
    cap = p.cap if caps else np.full_like(p.cap, np.inf)
    given = p.z.astype(dtype) if noise else np.empty((0, 0, 0, 0), dtype)
    weights = np.empty((0, 0, 0), dtype) if weights is None else weights.astype(dtype)
    draws = KernelDraws(GIVEN if noise else NONE, p.std, np.uint64(0), np.uint64(0), 0, 0, 0, 0, given, weights)
    none, counts = np.empty(0, dtype=dtype), np.diff(p.offsets).astype(np.float64)
    data = KernelRows(p.offsets, p.labels.astype(dtype), cap.astype(dtype), counts, none, none)
    return (
        rows_of(p, dtype, dense), data, loss,
        Penalty(l1, l2, radius), draws, p.eta, p.curvature, p.w.astype(dtype), p.pull.astype(dtype),
    )  # fmt: skip


def steps(p, loss, l1=0.0, l2=0.0, radius=np.inf, caps=False, noise=True, weights=None):
    """The recursion of `sottovoce.oracle.plain.Oracle.noisy_steps`, node by node."""
    last, mean, total = p.w.copy(), np.zeros_like(p.w), np.zeros_like(p.w)
    for i, (first, stop) in enumerate(zip(p.offsets[:-1], p.offsets[1:], strict=True)):
        a, b, cap = p.matrix[first:stop], p.labels[first:stop, None], p.cap[first:stop, None]
        w = p.w[i]
        for r in range(len(p.eta)):
            slopes = loss.slope(a @ w, b, loss.theta)
            if caps:
                slopes = np.clip(slopes, -cap, cap)
            slopes = slopes * (1 / (stop - first) if weights is None else weights[r, first:stop])
            g = a.T @ slopes + l1 * np.sign(w) + l2 * w - (p.std[i] * p.z[r, i] if noise else 0)
            total[i] += w
            w = (p.eta[r, i] * w - g + p.pull[i]) / (p.curvature[i] + p.eta[r, i])
            if radius < np.inf:
                w = w * (radius / np.maximum(np.sqrt((w * w).sum(axis=0)), radius))
            mean[i] += w / len(p.eta)
        last[i] = w
    return last, mean, total
