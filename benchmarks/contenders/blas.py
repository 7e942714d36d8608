"""All runs at once by matrix products, float32. "stack" does a step of all nodes in one call, with as many threads as
BLAS likes; the others take some nodes at a time through all l steps, so that these stay in cache, on a pool of threads.
"""

from concurrent.futures import ThreadPoolExecutor
from time import perf_counter

import numpy as np


class Contender:
    def __init__(self, problem, variant, threads):
        self.p = problem
        self.rows = problem.dense(np.float32)
        self.turned = np.ascontiguousarray(self.rows.transpose(0, 2, 1))
        self.b = problem.labels.astype(np.float32)[:, :, None]
        size = problem.n if variant == "stack" else int(variant.split()[1])
        self.parts = [slice(first, min(first + size, problem.n)) for first in range(0, problem.n, size)]
        self.map = map if variant == "stack" else ThreadPoolExecutor(threads).map

    def part(self, i, eta, w, pull, normals, mean, total):
        """l steps of the nodes of one part; w, mean and total are written in place."""
        p, rows, turned, b = self.p, self.rows[i], self.turned[i], self.b[i]
        here, pull = w[i], pull[i]
        mean[i] = 0
        for r, e in enumerate(np.float32(eta)):
            z = np.matmul(rows, here)
            z *= b
            np.exp(z, out=z)
            z += 1
            np.divide(-b / np.float32(p.m), z, out=z)
            g = np.matmul(turned, z)
            total[i] += here
            here *= e - np.float32(p.l2)
            here -= g
            here += pull
            here += np.float32(p.std) * normals(r, i)
            here *= 1 / np.float32(p.curvature + e)
            mean[i] += here
        mean[i] *= np.float32(1 / p.l)

    def rounds(self, count, runs, normals):
        """normals(k) -> (r, part) -> (nodes, d, runs)."""
        p = self.p
        w, w_bar, gamma, heard, total = (np.zeros((p.n, p.d, runs), np.float32) for _ in range(5))
        for k in range(1, count + 1):
            pull, eta, source = p.pull(gamma, heard, w_bar).astype(np.float32), p.eta(k), normals(k)
            for _ in self.map(lambda i: self.part(i, eta, w, pull, source, w_bar, total), self.parts):  # noqa: B023
                pass
            heard = w_bar.sum(axis=0) - w_bar
            gamma -= p.dual_step(w_bar, heard).astype(np.float32)
        return w_bar

    def last(self, noise):
        turned = noise.transpose(0, 3, 2, 4, 1).astype(np.float32)  # (rounds, l, n, d, runs)
        return self.rounds(len(noise), noise.shape[1], lambda k: lambda r, i: turned[k - 1, r, i]).transpose(2, 0, 1)

    def seconds(self, runs, rounds):
        p = self.p
        streams = {i.start: np.random.Generator(np.random.SFC64([0, i.start])) for i in self.parts}

        def normals(_k):
            return lambda _r, i: streams[i.start].standard_normal((i.stop - i.start, p.d, runs), dtype=np.float32)

        started = perf_counter()
        self.rounds(rounds, runs, normals)
        return perf_counter() - started
