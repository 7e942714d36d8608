"""Payloads of messages, by kind: their layout, and reading and writing them.

    model    binding (32) | of every site, in order: round and flags (4), digest (32) | the vector, 8 bytes a number
    sum      binding (32) | of every site, as above | release (4) | attempt (4) | digests of U, of the notices, of the
             transcript and of the whole context (32 each) | the masked words, 8 bytes each; none after the last sum
    point    version (48) | of every site, as above | release to context, as above, the context zero | grid step (8) |
             scale of the noise (8) | the public point as all are to hold it, 8 bytes a number
    notice   about (1) | round (8) | site (4) | nonce (32) | data set (32)
    answer   nonce (32) | round (8) | digest (32) | statements of the asker's books, see `heads`

`binding` identifies the sender's rows and noise key, see `commitment`; it never changes in a run. The list of sites is
the sender's testimony: what it last heard of every site, see `witness`. A masked message names its context in the clear
(`Heading`). So sites that heard different messages can be told apart from a sum that somebody has spoilt.
"""

import struct
from enum import IntEnum
from typing import NamedTuple, final

import numpy as np

from sottovoce.arrays import Floats
from sottovoce.errors import expect
from sottovoce.federation.site.heads import HANDED, pack_handed, unpack_handed
from sottovoce.federation.site.masks import Context, Turn, members_digest
from sottovoce.federation.site.norm import norm_of
from sottovoce.federation.site.summing import Proposal
from sottovoce.federation.transport.wire import BOOKS_BYTES, DIGEST_BYTES, BadMessageError, Refusal
from sottovoce.noise import sampler
from sottovoce.noise.secure import Grid

# New for every question, so that an answer to an earlier one cannot be replayed.
NONCE_BYTES = 32
# Flags in the two highest bits of a sighting's first number; rounds stay below both (`wire.MOST_NUMBER`).
_GONE, _LEFT = 2**31, 2**30
_SIGHTING = struct.Struct(f"<I{DIGEST_BYTES}s")
_HEADING = struct.Struct(f"<II{DIGEST_BYTES}s{DIGEST_BYTES}s{DIGEST_BYTES}s{DIGEST_BYTES}s")
_POINT = struct.Struct("<dq")
VERSION_BYTES = 48
_NOTICE = struct.Struct(f"<BQI{NONCE_BYTES}s{DIGEST_BYTES}s")
_ANSWER = struct.Struct(f"<{NONCE_BYTES}sQ{DIGEST_BYTES}s{HANDED * BOOKS_BYTES}s")
NOTICE_BYTES, ANSWER_BYTES = _NOTICE.size, _ANSWER.size


class Sighting(NamedTuple):
    """The last message that a site has heard of another site, directly or by hearsay."""

    round: int = 0  # 0: none
    digest: bytes = bytes(DIGEST_BYTES)  # of the message
    gone: bool = False  # some site goes on without it
    left: bool = False  # the site that says this goes on without it

    def to_bytes(self) -> bytes:
        """36 bytes: the round with two flags in its highest bits, then the digest."""
        return _SIGHTING.pack(self.round | _GONE * self.gone | _LEFT * self.left, self.digest)


Testimony = tuple[Sighting, ...]


def pack_testimony(testimony: Testimony) -> bytes:
    """The sightings as bytes, in the order of the sites."""
    return b"".join(sighting.to_bytes() for sighting in testimony)


def unpack_testimony(data: bytes) -> Testimony:
    """The testimony that `pack_testimony` packed."""
    return tuple(
        Sighting(k & (_LEFT - 1), digest, bool(k & (_GONE | _LEFT)), bool(k & _LEFT))
        for k, digest in _SIGHTING.iter_unpack(data)
    )


@final
class ModelWords(NamedTuple):
    """The message of a site with noise of its own, in one round.

    Args:
        vector: the noisy model, (model_size,) doubles. Nothing else in a message is computed from rows.
        binding: 32 bytes that identify its rows and noise key.
        testimony: what it last heard of every site.
    """

    vector: Floats
    binding: bytes
    testimony: Testimony

    def to_bytes(self) -> bytes:
        """The payload; refused if no reader would accept it."""
        finite = np.isfinite(self.vector)
        expect(self.vector.ndim == 1 and self.vector.dtype == np.float64, "a vector of float64",
               shape=self.vector.shape, dtype=self.vector.dtype)  # fmt: skip
        expect(bool(finite.all()), "finite numbers in a message", not_finite=int((~finite).sum()))
        expect(len(self.binding) == DIGEST_BYTES, f"a binding of {DIGEST_BYTES} bytes", bytes=len(self.binding))
        return self.binding + pack_testimony(self.testimony) + self.vector.astype("<f8").tobytes()


def words_size(sites: int, length: int) -> int:
    """Bytes of the payload of a noisy model with `length` numbers, in a federation of so many sites."""
    return DIGEST_BYTES + sites * _SIGHTING.size + 8 * length


def read_words(payload: bytes, k: int, sites: int, radius: float) -> ModelWords:
    """Read a site's noisy model of round k, or raise `BadMessageError`.

    A vector with a norm above `radius` is refused. So no neighbour can make a number overflow, and whether a vector is
    refused depends on public numbers alone.
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
    _expect_news(testimony, k)
    return ModelWords(vector, payload[:DIGEST_BYTES], testimony)


def _expect_news(testimony: Testimony, k: int) -> None:
    """Refuse a testimony of round k or later in a message of round k: no site could have heard one before signing."""
    latest = max(sighting.round for sighting in testimony)
    if latest >= k:
        raise BadMessageError(Refusal.MALFORMED, f"expected news of rounds before {k}, got some of round={latest}.")


def _expect_number(heading: "Heading", k: int) -> None:
    """Refuse a heading that does not fit message number k: a sum that is repeated has a number of its own."""
    if heading.release + heading.attempt != k:
        raise BadMessageError(
            Refusal.MALFORMED, f"expected release + attempt = {k}, got {heading.release} + {heading.attempt}."
        )


# -- masked sums ------------------------------------------------------------------------------------------------------


@final
class Heading(NamedTuple):
    """The part of a masked message that names, in the clear, the context that it was made in.

    The message after the last sum holds no words. Its heading names what was heard until then, and has no context.
    """

    release: int
    attempt: int
    members: bytes  # digest of U
    notices: bytes
    transcript: bytes
    context: bytes  # digest of all of it, with the point and the grid

    @classmethod
    def of(cls, context: Context) -> "Heading":
        """The heading of a message that is made in this context."""
        return cls(
            *context.turn, members_digest(context.members), context.notices, context.transcript, context.digest()
        )

    @property
    def turn(self) -> Turn:
        """The sum that the message is part of."""
        return Turn(self.release, self.attempt)

    def refuse_other(self, sender: str, ours: "Heading", proposer: str) -> None:
        """Refuse a message that was made in another context than ours, and name the first field that differs. If only
        the point differs, the proposer may have signed two.
        """
        if self == ours:
            return
        part = next(name for name, theirs, own in zip(self._fields, self, ours, strict=True) if theirs != own)
        words = {
            "release": f"release={ours.release}, got release={self.release}",
            "attempt": f"attempt={ours.attempt}, got attempt={self.attempt}",
            "members": "a sum over the same sites as here, got others",
            "notices": "the same notices of who was dropped as here, got others",
            "transcript": "the same earlier messages as were received here, got others",
            "context": f"the point that site={proposer!r} has proposed here, got another: {proposer} has signed two "
            f"for one sum, or {sender} does not keep to the agreement",
        }[part]
        raise BadMessageError(Refusal.OTHER_CONTEXT, f"site={sender!r} has masked {words}. Nothing opens with it.")


@final
class SumWords(NamedTuple):
    """The masked message of a site for one sum.

    Args:
        words: y_i, (numbers,) masked words of 64 bits. Without those of the other sites they are random.
        heading: the context that they were made in.
        binding: 32 bytes that identify its rows and noise key.
        testimony: what it last heard of every site.
    """

    words: sampler.Words
    heading: Heading
    binding: bytes
    testimony: Testimony

    def to_bytes(self) -> bytes:
        """The payload of the message."""
        expect(self.words.ndim == 1 and self.words.dtype == np.uint64, "a vector of uint64",
               shape=self.words.shape, dtype=self.words.dtype)  # fmt: skip
        expect(len(self.binding) == DIGEST_BYTES, f"a binding of {DIGEST_BYTES} bytes", bytes=len(self.binding))
        heading = _HEADING.pack(*self.heading)
        return self.binding + pack_testimony(self.testimony) + heading + self.words.astype("<u8").tobytes()


def sum_size(sites: int, numbers: int) -> int:
    """Bytes of the payload of a masked message with so many numbers, in a federation of so many sites."""
    return DIGEST_BYTES + sites * _SIGHTING.size + _HEADING.size + 8 * numbers


def read_sum(payload: bytes, k: int, sites: int) -> SumWords:
    """Read a site's masked message for the k-th sum of a run, attempts counted. No words are refused, as all values are
    possible.

    Args:
        payload: of `sum_size` bytes.
        k: the message's number. Its testimony may only speak of earlier ones.
        sites: number of sites in the agreement.
    """
    start = DIGEST_BYTES + sites * _SIGHTING.size
    heading = Heading(*_HEADING.unpack_from(payload, start))
    words = np.frombuffer(payload, dtype="<u8", offset=start + _HEADING.size).astype(np.uint64)
    testimony = unpack_testimony(payload[DIGEST_BYTES:start])
    _expect_news(testimony, k)
    _expect_number(heading, k)
    return SumWords(words, heading, payload[:DIGEST_BYTES], testimony)


@final
class Point(NamedTuple):
    """A site's proposal for a sum. It is computed from earlier sums, and from no row.

    Args:
        version: of the protocol (`software.protocol`), which must be the same at all sites.
        testimony: what the site last heard of every site.
        heading: the sum that it is for. Its context is zero, since a context needs a point.
        proposal: the numbers that all sites are to use, bit by bit.
    """

    version: str
    testimony: Testimony
    heading: Heading
    proposal: Proposal

    def to_bytes(self) -> bytes:
        """The payload of the message."""
        shared, grid = self.proposal
        version = self.version.encode("ascii").ljust(VERSION_BYTES, b"\0")
        expect(len(version) == VERSION_BYTES, f"a version of at most {VERSION_BYTES} characters", version=self.version)
        parts = version, pack_testimony(self.testimony), _HEADING.pack(*self.heading), _POINT.pack(*grid)
        return b"".join((*parts, shared.astype("<f8").tobytes()))


def point_size(sites: int, numbers: int) -> int:
    """Bytes of the payload of a proposal of so many numbers, in a federation of so many sites."""
    return VERSION_BYTES + sites * _SIGHTING.size + _HEADING.size + _POINT.size + 8 * numbers


def read_point(payload: bytes, k: int, sites: int) -> Point:
    """Read a site's proposal for the k-th sum of a run, attempts counted. Whether it is acceptable is not checked
    here.
    """
    start = VERSION_BYTES + sites * _SIGHTING.size
    testimony, heading = unpack_testimony(payload[VERSION_BYTES:start]), Heading(*_HEADING.unpack_from(payload, start))
    _expect_news(testimony, k)
    _expect_number(heading, k)
    grid = Grid(*_POINT.unpack_from(payload, start + _HEADING.size))
    shared = np.frombuffer(payload, dtype="<f8", offset=start + _HEADING.size + _POINT.size).astype(np.float64)
    version = payload[:VERSION_BYTES].rstrip(b"\0").decode("ascii", errors="replace")
    return Point(version, testimony, heading, Proposal(shared, grid))


class About(IntEnum):
    """The subject of a notice."""

    NOTHING = 0  # to be ignored
    # "I go on without that site from that round on". That site must stop, as its messages no longer count everywhere.
    # With masked sums: "I would repeat the sum without that site", which counts once all remaining sites have said so.
    GONE = 1
    WAITING = 2  # "I am alive, and still wait for others in that round", so do not count me as lost
    QUESTION = 3  # "what did you last hear of me?"


@final
class Notice(NamedTuple):
    """One notice. `site` is the number of the site that is gone, 0 in other notices. Only a question has a nonce, and
    names the data set (`heads.Books.data_set`) of whose books the asker wants to know.
    """

    about: About
    round: int
    site: int = 0
    nonce: bytes = bytes(NONCE_BYTES)
    data_set: bytes = bytes(DIGEST_BYTES)

    def to_bytes(self) -> bytes:
        """The payload, of `NOTICE_BYTES` bytes."""
        return _NOTICE.pack(*self)


def read_notice(payload: bytes) -> Notice:
    """Read a notice, or raise `BadMessageError`."""
    about, *rest = _NOTICE.unpack(payload)
    try:
        return Notice(About(about), *rest)
    except ValueError:
        raise BadMessageError(Refusal.MALFORMED, f"expected a notice, got one about={about}.") from None


@final
class Heard(NamedTuple):
    """The answer to a question: the last round that was heard of the asker, the digest of that message, and the last
    statements of its books, in this run or others.
    """

    nonce: bytes
    round: int
    digest: bytes
    books: tuple[bytes, ...] = ()

    def to_bytes(self) -> bytes:
        """The payload, of `ANSWER_BYTES` bytes."""
        return _ANSWER.pack(*self[:3], pack_handed(self.books))


def read_answer(payload: bytes) -> Heard:
    """Read an answer. The asker has to compare its nonce: an old answer would look as good."""
    nonce, k, digest, books = _ANSWER.unpack(payload)
    return Heard(nonce, k, digest, unpack_handed(books))
