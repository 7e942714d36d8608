"""Exact discrete Gaussian and uniform numbers, as a function of the words of a keyed stream.

**Stream.** `keyed(key)(label)` is the key stream of ChaCha20 (RFC 8439; nonce 0, block counter from 0) under the key
HMAC-SHA256(key, label). Its bytes are read as 64-bit words, little-endian, in order. Same key and label: same words.

**Draws**, version 1. Each takes words in the order of its lines, and none that it does not need.

    below(n)            w = next word, until w < 2^64 - (2^64 mod n); then w mod n
    coin(p, q, i, c)    true with chance e^-x, x = (p/q)^i / c <= 1. For k = 1, 2, ...: i times, stop unless
                        below(q) < p; then, if c k > 1, stop unless below(c k) = 0. True if it stopped at an odd k
    gaussian(s)         1. u = below(s); begin again unless coin(u, s, 1, 1)
                        2. v = how often in a row coin(0, 1, 0, 1) is true
                        3. minus = below(2); begin again if minus = 1 and u = v = 0
                        4. v = 0: begin again unless coin(s - u, s, 2, 2). Else, with j = v - 1: begin again unless
                           j^2 times coin(0, 1, 0, 2), then j times coin(u, s, 1, 1), then coin(u, s, 2, 2); the
                           first that is false ends it
                        5. the number is u + s v, or minus that

These are Algorithms 1 to 3 of Canonne, Kamath & Steinke (2020), without a number beyond 64 bits and without
floating-point numbers. The k-th coin of Algorithm 1 has chance x/k: here, that of i coins of chance p/q and one of
chance 1/(c k). Steps 1 to 3 are Algorithm 2, with t = s. Step 4 is the coin of Algorithm 3, of chance e^-y with
y = (|Y| - s)^2 / (2 s^2) = (u/s + v - 1)^2 / 2, as one coin for each term of y when the square is multiplied out.

Which words a draw takes never changes within a version. A change raises VERSION, which is part of every label. The
test vectors are in tests/noise/test_sampler.py.
"""

import hmac
import struct
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import suppress
from typing import Protocol, TypeAlias, assert_never, final

import numpy as np
from numpy.typing import NDArray

from sottovoce.arrays import Ints
from sottovoce.errors import expect
from sottovoce.oracle.kernels.discrete import OutOfWords, fill

VERSION = 1
KEY_BYTES = 32
WIDEST = 2**48  # scales; 2^15 standard deviations still are whole numbers of 63 bits
_WORDS = 2**64
_EACH = 16  # words asked for per number; a draw takes 15.0 on average at wide scales
_CHUNK = 2**20  # most words asked for at once

Words: TypeAlias = NDArray[np.uint64]


class WordStream(ABC):
    """Independent uniform 64-bit words, in order, each given once. Not safe to share between threads."""

    def __init__(self) -> None:
        self._ahead: Words = np.empty(0, dtype=np.uint64)

    @abstractmethod
    def _more(self, count: int) -> Words:
        """The next `count` words of the source, each given once."""

    def ahead(self, count: int) -> Words:
        """At least the next `count` words, without taking them."""
        missing = count - len(self._ahead)
        if missing > 0:
            self._ahead = np.concatenate((self._ahead, self._more(missing)))
        return self._ahead

    def take(self, count: int) -> Words:
        """The next `count` words, each given once."""
        taken = self.ahead(count)[:count]
        self._ahead = self._ahead[count:]
        return taken


@final
class Stream(WordStream):
    """The words of the ChaCha20 key stream of one key."""

    def __init__(self, key: bytes) -> None:
        from cryptography.hazmat.primitives.ciphers import Cipher
        from cryptography.hazmat.primitives.ciphers.algorithms import ChaCha20

        super().__init__()
        # Nonce and counter are 0: every key is used for one stream only, so none can repeat.
        self._cipher = Cipher(ChaCha20(key, bytes(16)), mode=None).encryptor()

    def _more(self, count: int) -> Words:
        return np.frombuffer(self._cipher.update(bytes(8 * count)), dtype="<u8").astype(np.uint64, copy=False)


def keyed(key: bytes) -> Callable[[bytes], Stream]:
    """The function that gives each label its stream under a secret key. The function alone holds the key, so nothing
    prints it.

    Formal guarantees:
        Streams of different labels are independent and uniform for all who lack the key, up to what it takes to tell
        HMAC-SHA256 and ChaCha20 from random functions. The same label gives the same stream.
    """
    # No message shows the value given: it may be most of a key.
    expect(isinstance(key, bytes), "a key of bytes", key=type(key).__name__)
    expect(len(key) == KEY_BYTES, f"a key of {KEY_BYTES} bytes", bytes=len(key))

    def stream(label: bytes) -> Stream:
        return Stream(hmac.digest(key, label, "sha256"))

    return stream


def encode_fields(*fields: bytes | str | int | float) -> bytes:
    """The fields as bytes, injectively: for each a letter for its kind, its length in 8 bytes, and its bytes. A
    floating-point number is encoded by its bits.
    """
    encoded = b""
    for field in fields:
        match field:
            case bytes():
                kind, value = b"b", field
            case str():
                kind, value = b"s", field.encode()
            case float():
                kind, value = b"f", struct.pack("<d", field)
            case int():
                kind, value = b"i", b"%d" % field
            case _:
                assert_never(field)
        encoded += kind + struct.pack("<Q", len(value)) + value
    return encoded


def discrete_gaussian(stream: WordStream, scale: int, count: int) -> Ints:
    """Independent whole numbers with P(x) proportional to exp(-x^2 / (2 scale^2)), exactly.

    Args:
        stream: source of the random words. The same words give the same numbers, on every machine.
        scale: a whole number from 1 to 2^48: about the standard deviation.
        count: how many.
    """
    expect(1 <= scale <= WIDEST, "1 <= scale <= 2^48", scale=scale)
    out, done = np.empty(count, dtype=np.int64), np.zeros(2, dtype=np.int64)
    wanted = 0
    while done[0] < count:
        wanted += min(_EACH * (count - int(done[0])) + 64, _CHUNK)
        words = stream.ahead(wanted)
        with suppress(OutOfWords):
            fill(out, words, np.uint64(scale), done)
        # A number that ran out of words is drawn again from its first word on, with more words behind it.
        wanted = len(words) - len(stream.take(int(done[1])))
        done[1] = 0
    return out


class WordSource(Protocol):
    """Anything that gives independent uniform 64-bit words: a `Stream`, or the operating system."""

    def take(self, count: int) -> Words:
        """The next `count` words, each given once."""


def uniform_below(stream: WordSource, bound: int, count: int) -> Ints:
    """Independent uniform whole numbers in 0 .. bound - 1, exactly: words that would favour some are thrown away.

    Args:
        stream: source of the random words.
        bound: from 1 to 2^62.
        count: how many.
    """
    expect(1 <= bound <= 2**62, "1 <= bound <= 2^62", bound=bound)
    # The largest word below a multiple of the bound: words above it would favour small numbers.
    last = np.uint64(_WORDS - _WORDS % bound - 1)
    found = np.empty(0, dtype=np.int64)
    while len(found) < count:
        words = stream.take(count - len(found))
        fair = words[words <= last] % np.uint64(bound)
        found = np.concatenate((found, fair.astype(np.int64)))
    return found


def shuffled(stream: WordSource, count: int) -> Ints:
    """The numbers 0 .. count - 1 in an order that is exactly uniform: sorted by words, drawn again if two are equal."""
    words = stream.take(count)
    while len(np.unique(words)) < count:
        words = stream.take(count)
    return np.argsort(words).astype(np.int64)
