"""The recursion as one would first write it in NumPy: vectorised over nodes, one run at a time, float64."""

from time import perf_counter

import numpy as np
import scipy.sparse as sp


class Contender:
    def __init__(self, problem, variant, _threads):
        self.p = p = problem
        self.b = p.labels
        if variant == "dense":
            self.rows = p.dense(np.float64)
            self.predict = lambda w: np.matmul(self.rows, w[:, :, None])[:, :, 0]
            self.adjoint = lambda s: np.matmul(s[:, None, :], self.rows)[:, 0, :]
        else:
            node = np.repeat(np.arange(p.n), p.m)
            columns = p.columns + np.repeat(node * p.d, np.diff(p.starts))
            shape = (p.n * p.m, p.n * p.d)
            blocks = sp.csr_array((p.values, columns.astype(np.int32), p.starts.astype(np.int32)), shape=shape)
            turned = blocks.T.tocsr()
            self.predict = lambda w: (blocks @ w.reshape(-1)).reshape(p.n, p.m)
            self.adjoint = lambda s: (turned @ s.reshape(-1)).reshape(p.n, p.d)

    def rounds(self, count, normals):
        """One run; normals(k, r) is (n, d)."""
        p = self.p
        w, w_bar, gamma, heard, total = (np.zeros((p.n, p.d)) for _ in range(5))
        for k in range(1, count + 1):
            pull, mean = p.pull(gamma, heard, w_bar), np.zeros_like(w)
            for r, eta in enumerate(p.eta(k)):
                slopes = -self.b / (1 + np.exp(self.b * self.predict(w)))
                g = self.adjoint(slopes) / p.m + p.l2 * w - p.std * normals(k, r)
                total += w
                w = (eta * w - g + pull) / (p.curvature + eta)
                mean += w
            w_bar = mean / p.l
            heard = w_bar.sum(axis=0) - w_bar
            gamma = gamma - p.dual_step(w_bar, heard)
        return w_bar

    def last(self, noise):
        runs = range(noise.shape[1])
        return np.stack([self.rounds(len(noise), lambda k, r, q=q: noise[k - 1, q, :, r]) for q in runs])

    def seconds(self, runs, rounds):
        rng, shape = np.random.default_rng(0), (self.p.n, self.p.d)
        started = perf_counter()
        for _ in range(runs):
            self.rounds(rounds, lambda _k, _r: rng.standard_normal(shape))
        return perf_counter() - started
