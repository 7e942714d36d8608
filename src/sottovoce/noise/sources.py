"""Noise sources: standard normals and batches, addressed by round and local step.

Noise is an argument. An algorithm asks for the standard normals of (round k, local step r), and for the rows that a
batch draws. The simulator hands in seeded counter-based draws, or, if rows are private, the operating system's; a test
hands in an array; a real site hands in a secure source (`sottovoce.noise.secure`).

A source has no sigma and no price: the caller of `added` decides how much noise a gradient gets, and `privacy` computes
what that costs.
"""

import os
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias, final

import numpy as np
import scipy
from numpy.typing import NDArray

from sottovoce.arrays import Array, Floats, Ints
from sottovoce.errors import InputError, UnsupportedError, expect
from sottovoce.noise.sampler import Words, WordStream, shuffled, uniform_below
from sottovoce.oracle.kernels import random

NoiseFunction: TypeAlias = Callable[[int], Array]


@dataclass(frozen=True)
class Shape:
    """The nodes, coordinates and runs that noise is drawn for, and its precision.

    Args:
        nodes, d, runs: the axes of every array of noise, in this order.
        first_node, first_run: numbers of the first node and run, for a part of a larger simulation. Draws depend on a
            node's and a run's number, not on how many there are.
        dtype: of the normals.
    """

    nodes: int
    d: int
    runs: int
    first_node: int = 0
    first_run: int = 0
    dtype: type[np.floating] = np.float64

    @property
    def first(self) -> tuple[int, int]:
        """Numbers of the first node and the first run."""
        return self.first_node, self.first_run


class Noise(ABC):
    """A source of standard normals and of batches, addressed by round k and local step r."""

    @abstractmethod
    def normals(self, k: int, r: int) -> Array:
        """Standard normals (nodes, d, runs) of round k, local step r. The same arguments are the same draw, or
        refused.
        """

    @property
    def counters(self) -> "Counters":
        """Counter-based sources that a kernel can draw from by itself; None where it must call this source."""
        return Counters(normals=None, batches=None)

    @property
    def gives_normals(self) -> bool:
        """True if `normals` can be asked for. A source that cannot give them adds its noise itself, in `added`."""
        return True

    def shared(self, k: int, r: int) -> Array:
        """Standard normals (1, d, runs) for a value that is released only as the sum over all nodes held here: those
        of the first node.
        """
        return self.normals(k, r)[:1]

    def vector(self, k: int, numbers: int) -> Array:
        """Standard normals (numbers, runs) of round k for a release of any length: the shared ones of as many steps as
        that takes.
        """
        parts, drawn = [self.shared(k, 0)[0]], 1
        while drawn * len(parts[0]) < numbers:
            parts.append(self.shared(k, drawn)[0])
            drawn += 1
        return np.concatenate(parts)[:numbers]

    @abstractmethod
    def draws(self, k: int, r: int, offsets: Ints, batch: int, scheme: str) -> Array:
        """How often each row is in its node's batch: (rows, runs).

        Args:
            k: the round.
            r: the local step.
            offsets: (nodes + 1,) node i's rows are offsets[i] : offsets[i + 1].
            batch: draws at every node, or rows on average.
            scheme: "replacement" or "poisson", as in `privacy.Sampling`.
        """

    def order(self, offsets: Ints) -> Ints:  # noqa: ARG002
        """The numbers of all rows, every node's own in a random order: (rows,). Call it once, for all rounds.

        Args:
            offsets: as of `draws`.
        """
        raise UnsupportedError(f"Expected a source that puts rows in order, got {type(self).__name__}.")

    def added(self, gradient: Array, sigma: float, sensitivity: Floats, k: int, r: int) -> Array:
        """The gradient (nodes, d, runs) less sigma sensitivity z, z the normals of (k, r).

        A source without `normals` overrides this, and is then responsible for the law of the result.

        Args:
            gradient: without noise; not changed.
            sigma: the noise multiplier, without a unit.
            sensitivity: (nodes, 1, 1), the replace-one l2 sensitivity of every node's gradient. The noise's standard
                deviation in each coordinate is sigma times this.
            k: the round.
            r: the local step.
        """
        noisy: Array = gradient - sigma * sensitivity * self.normals(k, r)
        return noisy.astype(gradient.dtype, copy=False)

    def added_to_sum(self, exact: Floats, sigma: float, sensitivity: float, k: int) -> Floats:
        """A sum (numbers,) over the rows of one site, in one run, with noise: that of `vector`. A source without
        normals overrides this as it does `added`.
        """
        noisy: Floats = exact + sigma * sensitivity * self.vector(k, len(exact))[:, 0]
        return noisy


class Counters(NamedTuple):
    """Counter-based sources of normals and of batches; None where there is none."""

    normals: "SeededNoise | None"
    batches: "SeededNoise | None"


@final
class SeededNoise(Noise):
    """Counter-based draws, keyed by (seed, run, node, round, step, coordinate). For simulation only."""

    def __init__(self, seed: int, shape: Shape) -> None:
        expect(seed >= 0, "a non-negative seed", seed=seed)
        expect(shape.d <= 4 * random.MAX_BLOCKS, f"at most {4 * random.MAX_BLOCKS} coordinates", d=shape.d)
        self.shape, self._seed = shape, seed
        # Two keys from one seed: normals and batches never share a counter.
        words = np.random.SeedSequence(seed).generate_state(4, np.uint32)
        self.normal_key, self.batch_key = (words[0], words[1]), (words[2], words[3])

    @property
    def counters(self) -> Counters:
        return Counters(self, self)

    def normals(self, k: int, r: int) -> Array:
        return self._of(self.shape.nodes, k, r)

    def shared(self, k: int, r: int) -> Array:
        return self._of(1, k, r)

    def _of(self, nodes: int, k: int, r: int) -> Array:
        s = self.shape
        out = np.empty((nodes, s.d, s.runs), dtype=s.dtype)
        random.fill_normals(out, *self.normal_key, k, r, s.first_node, s.first_run)
        return out

    def draws(self, k: int, r: int, offsets: Ints, batch: int, scheme: str) -> Array:
        s = self.shape
        out = np.zeros((offsets[-1], s.runs), dtype=s.dtype)
        draw = random.choose_poisson if scheme == "poisson" else random.count_with_replacement
        draw(out, offsets, batch, *self.batch_key, k, r, s.first_node, s.first_run)
        return out

    def order(self, offsets: Ints) -> Ints:
        def of_node(i: int) -> Ints:
            rng = np.random.default_rng(np.random.SeedSequence(self._seed, spawn_key=(self.shape.first_node + i,)))
            return np.arange(offsets[i], offsets[i + 1])[rng.permutation(int(offsets[i + 1] - offsets[i]))]

        return np.concatenate([of_node(i) for i in range(len(offsets) - 1)])


@final
class GivenNoise(Noise):
    """Normals from the caller, a round at a time, as (runs, nodes, l, d); batches come from another source."""

    def __init__(self, function: NoiseFunction, batches: "SeededNoise | SystemNoise") -> None:
        self.function = function
        self.batches = batches
        self._round: tuple[int, Array] | None = None

    @property
    def counters(self) -> Counters:
        return Counters(None, self.batches.counters.batches)

    def normals(self, k: int, r: int) -> Array:
        s = self.batches.shape
        if self._round is None or self._round[0] != k:
            values = np.asarray(self.function(k))
            if values.ndim != 4 or (values.shape[0], values.shape[1], values.shape[3]) != (s.runs, s.nodes, s.d):
                raise InputError(
                    f"Expected noise({k}) of shape (runs={s.runs}, nodes={s.nodes}, local_steps, d={s.d}), "
                    f"got {values.shape}."
                )
            self._round = (k, values)
        values = self._round[1]
        expect(r < values.shape[2], f"noise for local step {r} of round {k}", steps=values.shape[2])
        return np.ascontiguousarray(values[:, :, r, :].transpose(1, 2, 0), dtype=s.dtype)

    def draws(self, k: int, r: int, offsets: Ints, batch: int, scheme: str) -> Array:
        return self.batches.draws(k, r, offsets, batch, scheme)

    def order(self, offsets: Ints) -> Ints:
        return self.batches.order(offsets)


@final
class SystemNoise(Noise):
    """Draws from the operating system's cryptographic source, for private rows held by one process.

    Every normal is the quantile of a uniform with 53 random bits, in the middle of its cell; batches are exact. Nothing
    is stored, so nothing can be drawn again. The law differs from the normal one by floating-point rounding; sites that
    do not trust their neighbours use `sottovoce.noise.secure`, whose law is exact.
    """

    def __init__(self, shape: Shape) -> None:
        self.shape = shape

    def normals(self, k: int, r: int) -> Array:  # noqa: ARG002
        return self._of(self.shape.nodes)

    def shared(self, k: int, r: int) -> Array:  # noqa: ARG002
        return self._of(1)

    def _of(self, nodes: int) -> Array:
        s = self.shape
        words = _SYSTEM.take(nodes * s.d * s.runs)
        # In the middle of its cell, so that neither 0 nor 1 comes up: their quantiles are infinite.
        uniform = ((words >> np.uint64(11)).astype(np.float64) + 0.5) * 2.0**-53
        normals: Array = scipy.special.ndtri(uniform).reshape(nodes, s.d, s.runs).astype(s.dtype, copy=False)
        return normals

    def draws(self, k: int, r: int, offsets: Ints, batch: int, scheme: str) -> Array:  # noqa: ARG002
        runs = self.shape.runs
        out = np.zeros((int(offsets[-1]), runs), dtype=self.shape.dtype)
        for first, last in zip(offsets[:-1].tolist(), offsets[1:].tolist(), strict=True):
            rows = last - first
            if scheme == "poisson":  # each row on its own, with chance exactly batch / rows
                out[first:last] = uniform_below(_SYSTEM, rows, rows * runs).reshape(rows, runs) < batch
            else:
                chosen = uniform_below(_SYSTEM, rows, batch * runs)
                np.add.at(out[first:last], (chosen, np.tile(np.arange(runs), batch)), 1)
        return out

    def order(self, offsets: Ints) -> Ints:
        counts = zip(offsets[:-1].tolist(), np.diff(offsets).tolist(), strict=True)
        return np.concatenate([shuffled(_SYSTEM, count) + first for first, count in counts])


class _SystemWords:
    """Uniform 64-bit words of the operating system."""

    def take(self, count: int) -> NDArray[np.uint64]:
        """Fresh words of the operating system's cryptographic source, `count` of them."""
        return np.frombuffer(os.urandom(8 * count), dtype=np.uint64)


_SYSTEM = _SystemWords()


@final
class SystemStream(WordStream):
    """The operating system's words as a stream, for exact draws over private rows in one process; takes no seed."""

    def _more(self, count: int) -> Words:
        return _SYSTEM.take(count)
