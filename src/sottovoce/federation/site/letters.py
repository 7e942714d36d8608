"""What the payload of a message holds, by its kind.

    model    binding (32) | of every site, in order: round and flags (4), digest (32) | the vector, 8 bytes a number
    notice   about (1) | round (8) | site (4) | nonce (32)
    answer   nonce (32) | round (8) | digest (32)

`binding` stands for the sender's rows and noise key, see `commitment`: it never changes in a run. The list of sites is
the sender's testimony: what it last heard of everyone, see `witness`.
"""

import struct
from enum import IntEnum
from typing import NamedTuple, final

import numpy as np

from sottovoce.arrays import Floats
from sottovoce.errors import expect
from sottovoce.federation.transport.wire import DIGEST_BYTES, BadMessageError, Refusal

# Fresh for every question, so that an answer to an earlier one cannot be shown again.
NONCE_BYTES = 32
# The two highest bits of a sighting; rounds stay below both (`wire.MOST_NUMBER`).
_GONE, _LEFT = 2**31, 2**30
_SIGHTING = struct.Struct(f"<I{DIGEST_BYTES}s")
_NOTICE = struct.Struct(f"<BQI{NONCE_BYTES}s")
_ANSWER = struct.Struct(f"<{NONCE_BYTES}sQ{DIGEST_BYTES}s")
NOTICE_BYTES, ANSWER_BYTES = _NOTICE.size, _ANSWER.size


class Sighting(NamedTuple):
    """What somebody last heard of a site."""

    round: int = 0  # 0: nothing
    digest: bytes = bytes(DIGEST_BYTES)  # of its message in that round
    gone: bool = False  # somebody goes on without it
    left: bool = False  # the one who says this goes on without it

    def to_bytes(self) -> bytes:
        """36 bytes: the round with two flags in its highest bits, then the digest."""
        return _SIGHTING.pack(self.round | _GONE * self.gone | _LEFT * self.left, self.digest)


Testimony = tuple[Sighting, ...]


def pack_testimony(testimony: Testimony) -> bytes:
    """As bytes: one sighting after the other, in the order of the sites."""
    return b"".join(sighting.to_bytes() for sighting in testimony)


def unpack_testimony(data: bytes) -> Testimony:
    """What `pack_testimony` packed."""
    return tuple(
        Sighting(k & (_LEFT - 1), digest, bool(k & (_GONE | _LEFT)), bool(k & _LEFT))
        for k, digest in _SIGHTING.iter_unpack(data)
    )


@final
class Words(NamedTuple):
    """What a site says in a round.

    Args:
        vector: its noisy message, (model_size,) doubles. It is all that was ever computed from rows.
        binding: 32 bytes that stand for its rows and noise key.
        testimony: what it last heard of every site.
    """

    vector: Floats
    binding: bytes
    testimony: Testimony

    def to_bytes(self) -> bytes:
        """As a payload. Refuses what no reader would take."""
        finite = np.isfinite(self.vector)
        expect(self.vector.ndim == 1 and self.vector.dtype == np.float64, "a vector of float64",
               shape=self.vector.shape, dtype=self.vector.dtype)  # fmt: skip
        expect(bool(finite.all()), "finite numbers in a message", not_finite=int((~finite).sum()))
        expect(len(self.binding) == DIGEST_BYTES, f"a binding of {DIGEST_BYTES} bytes", bytes=len(self.binding))
        return self.binding + pack_testimony(self.testimony) + self.vector.astype("<f8").tobytes()


def words_size(sites: int, length: int) -> int:
    """Bytes of the payload of a message with `length` numbers, in a federation of so many sites."""
    return DIGEST_BYTES + sites * _SIGHTING.size + 8 * length


def read_words(payload: bytes, k: int, sites: int, radius: float) -> Words:
    """What a site says in round k, if it is within what was agreed.

    Everything that is taken in has a norm of at most `radius`. So no neighbour can make a number overflow, and whether
    one is refused depends on public numbers alone.
    """
    start = DIGEST_BYTES + sites * _SIGHTING.size
    vector = np.frombuffer(payload, dtype="<f8", offset=start).astype(np.float64)
    finite = np.isfinite(vector)
    if not finite.all():
        raise BadMessageError(
            Refusal.NOT_FINITE, f"expected finite numbers, got {int((~finite).sum())} of {len(vector)} that are not."
        )
    norm = norm_of(vector)
    if norm > radius:
        raise BadMessageError(
            Refusal.TOO_LARGE, f"expected a vector of norm at most {radius:g}, the agreed radius, got norm={norm:.6g}."
        )
    testimony = unpack_testimony(payload[DIGEST_BYTES:start])
    # A message of round k was signed before anyone could hear one of round k.
    latest = max(sighting.round for sighting in testimony)
    if latest >= k:
        raise BadMessageError(Refusal.MALFORMED, f"expected news of rounds before {k}, got some of round={latest}.")
    return Words(vector, payload[:DIGEST_BYTES], testimony)


def norm_of(vector: Floats) -> float:
    """The Euclidean norm, which may be as large as numbers go, but never overflows on the way."""
    largest = float(np.abs(vector).max())
    with np.errstate(over="ignore"):
        return 0.0 if largest == 0 else largest * float(np.linalg.norm(vector / largest))


class About(IntEnum):
    """What a notice says."""

    NOTHING = 0  # that counts
    GONE = 1  # "from that round on I go on without that site": it must stop, its messages no longer count everywhere
    WAITING = 2  # "I am alive, and still wait for others in that round": do not count me as lost
    QUESTION = 3  # "what did you last hear of me?"


@final
class Notice(NamedTuple):
    """One notice. `site` is who is gone, by number; 0 if nobody is. Only a question has a nonce."""

    about: About
    round: int
    site: int = 0
    nonce: bytes = bytes(NONCE_BYTES)

    def to_bytes(self) -> bytes:
        """As a payload of `NOTICE_BYTES` bytes."""
        return _NOTICE.pack(self.about, self.round, self.site, self.nonce)


def read_notice(payload: bytes) -> Notice:
    """A notice, or `BadMessageError`."""
    about, k, site, nonce = _NOTICE.unpack(payload)
    try:
        return Notice(About(about), k, site, nonce)
    except ValueError:
        raise BadMessageError(Refusal.MALFORMED, f"expected a notice, got one about={about}.") from None


@final
class Heard(NamedTuple):
    """The answer to a question: the last round that was heard of whoever asks, and the digest of that message."""

    nonce: bytes
    round: int
    digest: bytes

    def to_bytes(self) -> bytes:
        """As a payload of `ANSWER_BYTES` bytes."""
        return _ANSWER.pack(*self)


def read_answer(payload: bytes) -> Heard:
    """An answer. Its nonce has to be compared by whoever asked: an old answer would look as good."""
    return Heard(*_ANSWER.unpack(payload))
