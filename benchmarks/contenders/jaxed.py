"""JAX: all rounds in one jitted program, batched over nodes and runs, float32. Layouts:

    batch    one batched matrix product for all nodes; runs are columns
    nodes    node by node, each through its l steps, by a plain matrix product
    gather   sparse rows, padded to the longest: gathers for the products, scattered adds for the sums

and generators: threefry, JAX's default, and rbg, its faster one. "wide" asks XLA for vectors of 512 bits.
"""

from functools import partial
from time import perf_counter

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax


class Contender:
    def __init__(self, problem, variant, _threads):
        self.p = problem
        self.layout, generator, *_ = variant.split(", ")
        self.key = jax.random.key(0, impl={"threefry": "threefry2x32", "rbg": "unsafe_rbg"}[generator])
        rows = self._padded() if self.layout == "gather" else jnp.asarray(problem.dense(np.float32))
        self.data = rows, jnp.asarray(problem.labels, jnp.float32)[:, :, None]
        self.compiled = {}

    def _padded(self):
        p = self.p
        lengths = np.diff(p.starts)
        row, place = (
            np.repeat(np.arange(len(lengths)), lengths),
            np.arange(len(p.values)) - np.repeat(p.starts[:-1], lengths),
        )
        columns, values = (
            np.zeros((len(lengths), lengths.max()), np.int32),
            np.zeros((len(lengths), lengths.max()), np.float32),
        )
        columns[row, place], values[row, place] = p.columns, p.values
        return tuple(jnp.asarray(a.reshape(p.n, p.m, -1)) for a in (columns, values))

    def gradient(self, rows, b, w):
        """The data's part, for one node or for a stack: rows (.., m, d), w (.., d, runs)."""
        p = self.p
        if self.layout == "gather":
            return jax.vmap(partial(_sparse_gradient, p.m))(*rows, b, w)
        s = -b / (p.m * (1 + jnp.exp(b * jnp.matmul(rows, w))))
        return jnp.matmul(jnp.swapaxes(rows, -1, -2), s)

    def steps(self, data, w, pull, eta, draw):
        """l steps; draw(r) is shaped like w. Returns the last w and the mean."""
        p = self.p

        def step(r, carry):
            w, mean, total = carry
            g = self.gradient(*data, w) + p.l2 * w - p.std * draw(r)
            new = (eta[r] * w - g + pull) / (p.curvature + eta[r])
            return new, mean + new / p.l, total + w

        return lax.fori_loop(0, p.l, step, (w, jnp.zeros_like(w), jnp.zeros_like(w)))

    def round(self, data, k, state, draw):
        """draw(node or None, r) -> normals."""
        p = self.p
        w, w_bar, gamma, heard, total = state
        pull = p.pull(gamma, heard, w_bar)
        eta = p.eta_scale * jnp.sqrt(2.0 * ((k - 1) * p.l + jnp.arange(1, p.l + 1)))
        if self.layout == "nodes":

            def one(node):
                i, *mine = node
                return self.steps(tuple(mine[:2]), *mine[2:], eta, lambda r: draw(i, r))

            w, w_bar, steps = lax.map(one, (jnp.arange(p.n), *data, w, pull))
        else:
            w, w_bar, steps = self.steps(data, w, pull, eta, lambda r: draw(None, r))
        heard = w_bar.sum(axis=0) - w_bar
        return w, w_bar, gamma - p.dual_step(w_bar, heard), heard, total + steps

    def program(self, runs, noise=None):
        """All rounds, compiled; noise (rounds, l, n, d, runs) in place of own draws."""
        p = self.p
        shape = (p.n, p.d, runs)

        def draw(key, k, i, r):
            if noise is not None:
                return noise[k - 1, r] if i is None else noise[k - 1, r, i]
            of_step = jax.random.fold_in(jax.random.fold_in(key, k), r)
            if i is None:
                return jax.random.normal(of_step, shape)
            return jax.random.normal(jax.random.fold_in(of_step, i), shape[1:])

        @jax.jit
        def run(data, key, rounds):
            state = tuple(jnp.zeros(shape, jnp.float32) for _ in range(5))

            def body(k, s):
                return self.round(data, k, s, lambda i, r: draw(key, k, i, r))

            return lax.fori_loop(1, rounds + 1, body, state)

        return run

    def last(self, noise):
        given = jnp.asarray(noise.transpose(0, 3, 2, 4, 1), jnp.float32)
        state = self.program(noise.shape[1], given)(self.data, self.key, len(noise))
        return np.asarray(state[1]).transpose(2, 0, 1)

    def seconds(self, runs, rounds):
        if runs not in self.compiled:
            self.compiled[runs] = self.program(runs)
            jax.block_until_ready(self.compiled[runs](self.data, self.key, 1))
        started = perf_counter()
        jax.block_until_ready(self.compiled[runs](self.data, self.key, rounds))
        return perf_counter() - started


def _sparse_gradient(m, columns, values, b, w):
    """One node: columns and values (m, k), w (d, runs)."""
    z = sum(values[:, q, None] * w[columns[:, q]] for q in range(columns.shape[1]))
    s = -b / (m * (1 + jnp.exp(b * z)))
    added = values[:, :, None] * s[:, None, :]
    return jnp.zeros_like(w).at[columns.reshape(-1)].add(added.reshape(-1, w.shape[1]))
