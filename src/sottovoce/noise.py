"""Noise is an argument.

An algorithm asks for the standard normals of (round k, local step r), and for the rows that a batch draws. The
simulator hands in seeded counter-based draws; a test hands in an array; a real site hands in a secure source.
"""

import os
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias, final

import numpy as np
from scipy.special import ndtri

from sottovoce.arrays import Array, Floats, Ints
from sottovoce.errors import InputError, expect
from sottovoce.kernels import philox

NoiseFunction: TypeAlias = Callable[[int], Array]


@dataclass(frozen=True)
class Shape:
    """What is simulated: which nodes, how many coordinates, which runs, in which precision."""

    nodes: int
    d: int
    runs: int
    first_node: int = 0
    first_run: int = 0
    dtype: type[np.floating] = np.float64


class Noise(ABC):
    """A source of standard normals and of batches, addressed by round k and local step r."""

    @abstractmethod
    def normals(self, k: int, r: int) -> Array:
        """Standard normals (nodes, d, runs)."""

    @property
    @abstractmethod
    def seeded(self) -> "SeededNoise":
        """The seeded source that batches come from."""

    @abstractmethod
    def draws(self, k: int, r: int, offsets: Ints, batch: int, scheme: str) -> Array:
        """How often each row is in its node's batch: (rows, runs)."""

    def added(self, gradient: Array, sigma: float, sensitivity: Floats, k: int, r: int) -> Array:
        """The gradient (nodes, d, runs) less sigma sensitivity z, z the normals of (k, r).

        A source that cannot give normals of that precision overrides this, and answers for the law of the result.
        """
        noisy: Array = gradient - sigma * sensitivity * self.normals(k, r)
        return noisy.astype(gradient.dtype, copy=False)


@final
class SeededNoise(Noise):
    """Counter-based draws, keyed by (seed, run, node, round, step, coordinate). For simulation only."""

    def __init__(self, seed: int, shape: Shape) -> None:
        expect(seed >= 0, "a non-negative seed", seed=seed)
        expect(shape.d <= 4 * philox.MAX_BLOCKS, f"at most {4 * philox.MAX_BLOCKS} coordinates", d=shape.d)
        self.shape = shape
        # Two keys from one seed: normals and batches never share a counter.
        words = np.random.SeedSequence(seed).generate_state(4, np.uint32)
        self.normal_key, self.batch_key = (words[0], words[1]), (words[2], words[3])

    @property
    def seeded(self) -> "SeededNoise":
        return self

    def normals(self, k: int, r: int) -> Array:
        s = self.shape
        out = np.empty((s.nodes, s.d, s.runs), dtype=s.dtype)
        philox.fill_normals(out, *self.normal_key, k, r, s.first_node, s.first_run)
        return out

    def draws(self, k: int, r: int, offsets: Ints, batch: int, scheme: str) -> Array:
        s = self.shape
        out = np.zeros((offsets[-1], s.runs), dtype=s.dtype)
        draw = philox.choose_poisson if scheme == "poisson" else philox.count_with_replacement
        draw(out, offsets, batch, *self.batch_key, k, r, s.first_node, s.first_run)
        return out


@final
class GivenNoise(Noise):
    """Normals handed in by the caller, a round at a time, as (runs, nodes, l, d); batches stay seeded."""

    def __init__(self, function: NoiseFunction, batches: SeededNoise) -> None:
        self.function = function
        self.batches = batches
        self._round: tuple[int, Array] | None = None

    @property
    def seeded(self) -> SeededNoise:
        return self.batches

    def normals(self, k: int, r: int) -> Array:
        if self._round is None or self._round[0] != k:
            self._round = (k, self._checked(k, np.asarray(self.function(k))))
        values = self._round[1]
        expect(r < values.shape[2], f"noise for local step {r} of round {k}", steps=values.shape[2])
        return np.ascontiguousarray(values[:, :, r, :].transpose(1, 2, 0), dtype=self.batches.shape.dtype)

    def _checked(self, k: int, values: Array) -> Array:
        s = self.batches.shape
        if values.ndim != 4 or (values.shape[0], values.shape[1], values.shape[3]) != (s.runs, s.nodes, s.d):
            raise InputError(
                f"Expected noise({k}) of shape (runs={s.runs}, nodes={s.nodes}, local_steps, d={s.d}), "
                f"got {values.shape}."
            )
        return values

    def draws(self, k: int, r: int, offsets: Ints, batch: int, scheme: str) -> Array:
        return self.batches.draws(k, r, offsets, batch, scheme)


def system_normals(runs: int, nodes: int, steps: int, d: int) -> NoiseFunction:
    """Standard normals from the operating system's cryptographic source, for private rows held by one process.

    Every number is the normal quantile of a uniform with 53 random bits, in the middle of its cell. Nothing is kept, so
    nothing can be drawn again. What is left is the gap between real numbers and floating point; sites that do not
    trust their neighbours use `sottovoce.secure`, which has none.
    """

    def draw(k: int) -> Array:  # noqa: ARG001
        words = np.frombuffer(os.urandom(8 * runs * nodes * steps * d), dtype=np.uint64)
        uniform = ((words >> np.uint64(11)).astype(np.float64) + 0.5) * 2.0**-53
        normals: Array = ndtri(uniform).reshape(runs, nodes, steps, d)
        return normals

    return draw
