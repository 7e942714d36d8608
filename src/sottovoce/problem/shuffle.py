"""A random order of the numbers 0 .. n - 1 that is computed place by place instead of stored.

Two halves of a number's bits take turns to scramble each other (Feistel), which can be undone, and numbers that come
out beyond n - 1 are scrambled again until they are not. Both directions take about as long. It is as random as a
simulation needs; it hides nothing.
"""

from dataclasses import dataclass
from typing import TypeAlias, final

import numpy as np
from numpy.typing import NDArray

from sottovoce.arrays import Ints

Words: TypeAlias = NDArray[np.uint64]

_TURNS = 6
# Splitmix64's increment and multipliers (Steele, Lea & Flood 2014).
_WEYL, _FIRST, _SECOND = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)


def mixed(words: Words) -> Words:
    """Splitmix64 of every word: a 64-bit word that looks unrelated to it."""
    z = words + _WEYL
    z = (z ^ (z >> np.uint64(30))) * _FIRST
    z = (z ^ (z >> np.uint64(27))) * _SECOND
    out: Words = z ^ (z >> np.uint64(31))
    return out


@final
@dataclass(frozen=True)
class Shuffle:
    """The numbers 0 .. n - 1 in a random order that the key determines."""

    n: int
    key: int

    @property
    def _half(self) -> int:
        """Number of bits of a half; two halves hold every number."""
        return max(1, -(-(self.n - 1).bit_length() // 2))

    def node(self, places: Ints) -> Ints:
        """The number at every place."""
        return self._walked(places, range(_TURNS), forth=True)

    def place(self, nodes: Ints) -> Ints:
        """The place of every number: the inverse of `node`."""
        return self._walked(nodes, range(_TURNS - 1, -1, -1), forth=False)

    def beside(self, nodes: Ints) -> Ints:
        """The two numbers before and after each, in a closed chain: (nodes, 2)."""
        at = self.place(nodes)
        return np.stack([self.node((at - 1) % self.n), self.node((at + 1) % self.n)], axis=1)

    def _walked(self, numbers: Ints, turns: range, forth: bool) -> Ints:
        found = self._scrambled(numbers.astype(np.uint64), turns, forth)
        beyond = np.flatnonzero(found >= self.n)
        while len(beyond):
            found[beyond] = self._scrambled(found[beyond], turns, forth)
            beyond = beyond[found[beyond] >= self.n]
        return found.astype(np.int64)

    def _scrambled(self, words: Words, turns: range, forth: bool) -> Words:
        half = np.uint64(self._half)
        mask = np.uint64((1 << self._half) - 1)
        high, low = words >> half, words & mask
        for turn in turns:
            if forth:
                high, low = low, high ^ (self._turned(low, turn) & mask)
            else:
                high, low = low ^ (self._turned(high, turn) & mask), high
        scrambled: Words = (high << half) | low
        return scrambled

    def _turned(self, words: Words, turn: int) -> Words:
        return mixed(words ^ mixed(np.array([(self.key + turn) % 2**64], dtype=np.uint64)))
