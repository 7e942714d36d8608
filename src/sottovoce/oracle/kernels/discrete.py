"""Whole numbers with exactly the discrete Gaussian law, made from random words: Canonne, Kamath & Steinke (2020).

Everything is 64-bit whole numbers; no floating-point number is formed. What is drawn, and which word decides what,
is defined in `sottovoce.noise.sampler`, which is what the rest of the library calls. A change of the order in which
words are taken changes the noise of resumed runs: see VERSION there.

The time of a draw depends on its result. Guarantees do not cover timing, and statements say so.
"""

from typing import Any

import numpy as np

from sottovoce.oracle.kernels.simd import (
    kernel,
    part,
)

_0, _1, _2 = np.uint64(0), np.uint64(1), np.uint64(2)
_LAST = np.uint64(2**64 - 1)


class OutOfWords(Exception):  # noqa: N818  not an error: the caller supplies more
    """A draw needs more words than are left. The caller repeats it from its first word on, with more words."""


@part
def below(words: Any, at: Any, n: Any) -> Any:
    """Uniform in 0 .. n - 1. The largest 2^64 mod n words would favour some results, and are discarded."""
    while True:
        i = at[0]
        if i >= words.size:
            raise OutOfWords
        at[0] = i + 1
        word = words[i]
        # Most words are no more than 2^64 - 1 - n, and need no second division.
        if word <= _LAST - n or word <= _LAST - (_LAST - n + _1) % n:
            return word % n


@part
def exp_coin(words: Any, at: Any, p: Any, q: Any, power: Any, c: Any) -> Any:
    """True with chance e^-x, x = (p/q)^power / c <= 1: Algorithm 1, whose k-th coin has chance x / k."""
    k = _1
    while True:
        for _ in range(power):
            if below(words, at, q) >= p:
                return k % _2 == _1
        if c * k > _1 and below(words, at, c * k) > _0:
            return k % _2 == _1
        k += _1


@part
def accept(words: Any, at: Any, s: Any, u: Any, v: Any) -> Any:
    """True with chance e^-(u + s v - s)^2 / (2 s^2): Algorithm 3's coin, as a product of smaller ones."""
    if v == _0:
        return exp_coin(words, at, s - u, s, 2, _2)
    j = v - _1  # the exponent is j^2 / 2 + j u/s + (u/s)^2 / 2
    for _ in range(j * j):
        if not exp_coin(words, at, _0, _1, 0, _2):
            return False
    for _ in range(j):
        if not exp_coin(words, at, u, s, 1, _1):
            return False
    return exp_coin(words, at, u, s, 2, _2)


@part
def gaussian(words: Any, at: Any, s: Any) -> Any:
    """One number of scale s: Algorithm 3 around Algorithm 2, t = s."""
    while True:
        u = below(words, at, s)
        if not exp_coin(words, at, u, s, 1, _1):
            continue
        v = _0
        while exp_coin(words, at, _0, _1, 0, _1):
            v += _1
        negative = below(words, at, _2) == _1
        if negative and u == _0 and v == _0:
            continue  # there is one zero, not two
        if accept(words, at, s, u, v):
            size = np.int64(u + s * v)
            return -size if negative else size


@kernel
def fill(out: Any, words: Any, s: Any, done: Any) -> None:
    """Fill `out` from number done[0] and word done[1] on; both count up with every complete number."""
    at = done[1:2].copy()
    for i in range(done[0], out.size):
        out[i] = gaussian(words, at, s)
        done[0], done[1] = i + 1, at[0]
