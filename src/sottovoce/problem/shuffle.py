"""A pseudo-random permutation of the numbers 0 .. n - 1 that is computed place by place instead of stored.

It is a Feistel network on the two halves of a number's bits, which can be inverted. A result beyond n - 1 is permuted
again until it is not (cycle walking). Both directions take about as long. It is for simulations, and not cryptographic.
"""

from dataclasses import dataclass
from typing import TypeAlias, final

import numpy as np
from numpy.typing import NDArray

from sottovoce.arrays import Ints

Words: TypeAlias = NDArray[np.uint64]

_ROUNDS = 6
# Splitmix64's increment and multipliers (Steele, Lea & Flood 2014).
_WEYL, _FIRST, _SECOND = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)


def splitmix64(words: Words) -> Words:
    """A pseudo-random 64-bit word for each word."""
    z = words + _WEYL
    z = (z ^ (z >> np.uint64(30))) * _FIRST
    z = (z ^ (z >> np.uint64(27))) * _SECOND
    out: Words = z ^ (z >> np.uint64(31))
    return out


@final
@dataclass(frozen=True)
class Shuffle:
    """The permutation of 0 .. n - 1 that the key determines."""

    n: int
    key: int

    @property
    def _half(self) -> int:
        """Bits of a half; two halves hold every number."""
        return max(1, -(-(self.n - 1).bit_length() // 2))

    def node(self, places: Ints) -> Ints:
        """The number at every place."""
        return self._walk(places, range(_ROUNDS), forward=True)

    def place(self, nodes: Ints) -> Ints:
        """The place of every number: the inverse of `node`."""
        return self._walk(nodes, range(_ROUNDS - 1, -1, -1), forward=False)

    def beside(self, nodes: Ints) -> Ints:
        """For each node the nodes at the places before and after it, the last place being before the first: (nodes,
        2).
        """
        at = self.place(nodes)
        return np.stack([self.node((at - 1) % self.n), self.node((at + 1) % self.n)], axis=1)

    def _walk(self, numbers: Ints, rounds: range, forward: bool) -> Ints:
        """The network applied to numbers until they are below n, with its rounds in this order."""
        found = self._feistel(numbers.astype(np.uint64), rounds, forward)
        beyond = np.flatnonzero(found >= self.n)
        while len(beyond):
            found[beyond] = self._feistel(found[beyond], rounds, forward)
            beyond = beyond[found[beyond] >= self.n]
        return found.astype(np.int64)

    def _feistel(self, words: Words, rounds: range, forward: bool) -> Words:
        """The network applied once to words of two halves, or its inverse."""
        half = np.uint64(self._half)
        mask = np.uint64((1 << self._half) - 1)
        high, low = words >> half, words & mask
        for number in rounds:
            kept = low if forward else high  # the half that this round leaves as it is
            round_key = splitmix64(np.array([(self.key + number) % 2**64], dtype=np.uint64))
            change = splitmix64(kept ^ round_key) & mask
            high, low = (kept, high ^ change) if forward else (low ^ change, kept)
        out: Words = (high << half) | low
        return out
