"""The problem that every contender solves, as plain arrays in one .npz file, so that none needs the library.

For k = 1.., from w = w_bar = gamma = heard = 0, every node i and run:

    pull = 2 gamma + rho (heard + degree w_bar)
    for r = 1..l:  g = (1/m) sum_j slope_j a_ij + l2 w - std z,     slope_j = -b_ij / (1 + exp(b_ij <w, a_ij>))
                   w = (eta w - g + pull) / (2 rho degree + eta),   eta = eta_scale sqrt(2 ((k - 1) l + r))
    w_bar = mean of the l new w;  heard = sum of the neighbours' w_bar;  gamma -= (rho / 2) (degree w_bar - heard)

The graph is complete, so heard = (sum of all w_bar) - w_bar.
"""

from pathlib import Path
from typing import NamedTuple

import numpy as np

ROUNDS_CHECKED, RUNS_CHECKED = 3, 2
ROUNDS = 100


class Problem(NamedTuple):
    values: np.ndarray  # (non-zeros,) float64, rows of all nodes below each other, as CSR
    columns: np.ndarray  # (non-zeros,) int32
    starts: np.ndarray  # (n m + 1,) int64
    labels: np.ndarray  # (n, m)
    d: int
    l: int
    rho: float
    l2: float
    degree: float
    std: float
    eta_scale: float
    noise: np.ndarray  # (rounds, runs, n, l, d) for the check
    expected: np.ndarray  # (runs, n, d) the last broadcasts that this noise leads to

    @property
    def n(self):
        return self.labels.shape[0]

    @property
    def m(self):
        return self.labels.shape[1]

    def dense(self, dtype):
        """(n, m, d)."""
        rows = np.zeros((self.n * self.m, self.d), dtype)
        rows[np.repeat(np.arange(self.n * self.m), np.diff(self.starts)), self.columns] = self.values
        return rows.reshape(self.n, self.m, self.d)

    def eta(self, k):
        """(l,) of round k."""
        return self.eta_scale * np.sqrt(2 * ((k - 1) * self.l + np.arange(1, self.l + 1)))

    @property
    def curvature(self):
        return 2 * self.rho * self.degree

    def pull(self, gamma, heard, w_bar):
        return 2 * gamma + self.rho * (heard + self.degree * w_bar)

    def dual_step(self, w_bar, heard):
        return self.rho / 2 * (self.degree * w_bar - heard)

    @property
    def facts(self):
        return {
            "dataset": "adult", "graph": "complete", "nodes": self.n, "rows_per_node": self.m, "d": self.d,
            "non_zeros": len(self.values), "local_steps": self.l, "noise_std": self.std,
        }  # fmt: skip


def load(path):
    with np.load(path) as arrays:
        return Problem(*(arrays[name] if arrays[name].ndim else arrays[name].item() for name in Problem._fields))


def pieces(rounds=ROUNDS, nodes=100, local_steps=10):
    """The same problem as the library's objects: algorithm, sites, graph."""
    import sottovoce as sv

    sites = sv.Sites.split(sv.datasets.adult(), nodes, seed=0)
    return sv.IPADMM(rounds=rounds, local_steps=local_steps, diameter=10.0), sites, sv.graphs.complete(nodes)


def build(path: Path, nodes=100, local_steps=10):
    """Write the problem, with what the library's plain float64 form makes of some handed-in noise."""
    import ours

    algorithm, sites, graph = pieces(ROUNDS_CHECKED, nodes, local_steps)
    site = algorithm.oracle(sites, graph)
    noise = np.random.default_rng(1).standard_normal((ROUNDS_CHECKED, RUNS_CHECKED, nodes, local_steps, site.d))
    result = ours.simulate(algorithm, sites, graph, runs=RUNS_CHECKED, noise=lambda k: noise[k - 1], device="plain")
    matrix = sites.rows.matrix
    problem = Problem(
        values=matrix.data, columns=matrix.indices.astype(np.int32), starts=matrix.indptr.astype(np.int64),
        labels=sites.labels.reshape(nodes, -1), d=site.d, l=local_steps, rho=algorithm.rho, l2=site.lam,
        degree=float(graph.degrees[0]), std=algorithm.sigma(site) * float(site.sensitivity().max()),
        eta_scale=float(algorithm.eta(1, site)[0, 0, 0, 0]) / np.sqrt(2), noise=noise, expected=result.last,
    )  # fmt: skip
    np.savez(path, **problem._asdict())
    return problem
