"""What the payload of a message holds, by its kind.

    model    binding (32) | of every site, in order: round and flags (4), digest (32) | the vector, 8 bytes a number
    sum      binding (32) | of every site, as above | release (4) | attempt (4) | digests of U, of the notices, of the
             transcript and of the whole context (32 each) | the masked words, 8 bytes each; none behind the last sum
    point    version (48) | of every site, as above | release to context, as above, the context zero | grid step (8) |
             scale of the noise (8) | the public point as all are to hold it, 8 bytes a number
    notice   about (1) | round (8) | site (4) | nonce (32) | data set (32)
    answer   nonce (32) | round (8) | digest (32) | what the asker has said of its books, see `heads`

`binding` stands for the sender's rows and noise key, see `commitment`: it never changes in a run. The list of sites is
the sender's testimony: what it last heard of everyone, see `witness`. What a masked message was made for stands in it
in the clear (`Heading`): so sites that were told different things can be told from a sum that was spoilt.
"""

import struct
from enum import IntEnum
from typing import NamedTuple, final

import numpy as np

from sottovoce.arrays import Floats
from sottovoce.errors import expect
from sottovoce.federation.site.heads import HANDED, pack_handed, unpack_handed
from sottovoce.federation.site.masks import Context, Turn, members_digest
from sottovoce.federation.site.summing import Proposal
from sottovoce.federation.transport.wire import BOOKS_BYTES, DIGEST_BYTES, BadMessageError, Refusal
from sottovoce.noise import sampler
from sottovoce.noise.secure import Grid

# Fresh for every question, so that an answer to an earlier one cannot be shown again.
NONCE_BYTES = 32
# The two highest bits of a sighting; rounds stay below both (`wire.MOST_NUMBER`).
_GONE, _LEFT = 2**31, 2**30
_SIGHTING = struct.Struct(f"<I{DIGEST_BYTES}s")
_HEADING = struct.Struct(f"<II{DIGEST_BYTES}s{DIGEST_BYTES}s{DIGEST_BYTES}s{DIGEST_BYTES}s")
_POINT = struct.Struct("<dq")
VERSION_BYTES = 48
_NOTICE = struct.Struct(f"<BQI{NONCE_BYTES}s{DIGEST_BYTES}s")
_ANSWER = struct.Struct(f"<{NONCE_BYTES}sQ{DIGEST_BYTES}s{HANDED * BOOKS_BYTES}s")
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
    _expect_news(testimony, k)
    return Words(vector, payload[:DIGEST_BYTES], testimony)


def _expect_news(testimony: Testimony, k: int) -> None:
    """A message of round k was signed before anyone could hear one of round k."""
    latest = max(sighting.round for sighting in testimony)
    if latest >= k:
        raise BadMessageError(Refusal.MALFORMED, f"expected news of rounds before {k}, got some of round={latest}.")


def _expect_number(heading: "Heading", k: int) -> None:
    """A sum that is made again has a number of its own, so the two always go together."""
    if heading.release + heading.attempt != k:
        raise BadMessageError(
            Refusal.MALFORMED, f"expected release + attempt = {k}, got {heading.release} + {heading.attempt}."
        )


# -- masked sums ------------------------------------------------------------------------------------------------------


@final
class Heading(NamedTuple):
    """What a masked message says, in the clear, of the context that it was made in. Behind the last sum, where no words
    follow, it stands for what was heard until then, and has no context.
    """

    release: int
    attempt: int
    members: bytes  # digest of U
    notices: bytes
    transcript: bytes
    context: bytes  # digest of all of it, with the point and the grid

    @classmethod
    def of(cls, context: Context) -> "Heading":
        """Of a message in this context."""
        return cls(
            *context.turn, members_digest(context.members), context.notices, context.transcript, context.digest()
        )

    @property
    def turn(self) -> Turn:
        """Which sum it is part of."""
        return Turn(self.release, self.attempt)

    def refuse_other(self, sender: str, ours: "Heading", proposer: str) -> None:
        """Refuse a message that was made in another context than ours, and say where they part. Where only the point
        is another, whoever proposed it may have signed two.
        """
        if self == ours:
            return
        part = next(name for name, theirs, own in zip(self._fields, self, ours, strict=True) if theirs != own)
        words = {
            "release": f"release={ours.release}, got release={self.release}",
            "attempt": f"attempt={ours.attempt}, got attempt={self.attempt}",
            "members": "a sum over the same sites as here, got others",
            "notices": "the same notices of who was dropped as here, got others",
            "transcript": "the same words of everyone before as were heard here, got others",
            "context": f"the point that site={proposer!r} has proposed here, got another: {proposer} has signed two "
            f"for one sum, or {sender} does not keep to the agreement",
        }[part]
        raise BadMessageError(Refusal.OTHER_CONTEXT, f"site={sender!r} has masked {words}. Nothing opens with it.")


@final
class SumWords(NamedTuple):
    """What a site says for a sum.

    Args:
        words: y_i, (numbers,) masked words of 64 bits. Alone they are random.
        heading: what they were made for.
        binding: 32 bytes that stand for its rows and noise key.
        testimony: what it last heard of every site.
    """

    words: sampler.Words
    heading: Heading
    binding: bytes
    testimony: Testimony

    def to_bytes(self) -> bytes:
        """As a payload."""
        expect(self.words.ndim == 1 and self.words.dtype == np.uint64, "a vector of uint64",
               shape=self.words.shape, dtype=self.words.dtype)  # fmt: skip
        expect(len(self.binding) == DIGEST_BYTES, f"a binding of {DIGEST_BYTES} bytes", bytes=len(self.binding))
        heading = _HEADING.pack(*self.heading)
        return self.binding + pack_testimony(self.testimony) + heading + self.words.astype("<u8").tobytes()


def sum_size(sites: int, numbers: int) -> int:
    """Bytes of the payload of a masked message with so many numbers, in a federation of so many sites."""
    return DIGEST_BYTES + sites * _SIGHTING.size + _HEADING.size + 8 * numbers


def read_sum(payload: bytes, k: int, sites: int) -> SumWords:
    """What a site says for the k-th sum of a run, attempts counted. Every word is as good as another: none is refused.

    Args:
        payload: of `sum_size` bytes.
        k: the message's number, so that its testimony can be news of earlier ones only.
        sites: in the agreement.
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
    """What a site proposes for a sum, or would propose: it is made of earlier sums, and of no row.

    Args:
        version: of the software, as far as it must be the same everywhere.
        testimony: what the site last heard of every site.
        heading: which sum it is for; its context is zero, as there is none before there is a point.
        proposal: what all are to hold bit by bit.
    """

    version: str
    testimony: Testimony
    heading: Heading
    proposal: Proposal

    def to_bytes(self) -> bytes:
        """As a payload."""
        shared, grid = self.proposal
        version = self.version.encode("ascii").ljust(VERSION_BYTES, b"\0")
        expect(len(version) == VERSION_BYTES, f"a version of at most {VERSION_BYTES} characters", version=self.version)
        parts = version, pack_testimony(self.testimony), _HEADING.pack(*self.heading), _POINT.pack(*grid)
        return b"".join((*parts, shared.astype("<f8").tobytes()))


def point_size(sites: int, numbers: int) -> int:
    """Bytes of the payload of a proposal of so many numbers, in a federation of so many sites."""
    return VERSION_BYTES + sites * _SIGHTING.size + _HEADING.size + _POINT.size + 8 * numbers


def read_point(payload: bytes, k: int, sites: int) -> Point:
    """What a site proposes for the k-th sum of a run, attempts counted. Whether it may be taken is not decided here."""
    start = VERSION_BYTES + sites * _SIGHTING.size
    testimony, heading = unpack_testimony(payload[VERSION_BYTES:start]), Heading(*_HEADING.unpack_from(payload, start))
    _expect_news(testimony, k)
    _expect_number(heading, k)
    grid = Grid(*_POINT.unpack_from(payload, start + _HEADING.size))
    shared = np.frombuffer(payload, dtype="<f8", offset=start + _HEADING.size + _POINT.size).astype(np.float64)
    version = payload[:VERSION_BYTES].rstrip(b"\0").decode("ascii", errors="replace")
    return Point(version, testimony, heading, Proposal(shared, grid))


def norm_of(vector: Floats) -> float:
    """The Euclidean norm, which may be as large as numbers go, but never overflows on the way."""
    largest = float(np.abs(vector).max())
    with np.errstate(over="ignore"):
        return 0.0 if largest == 0 else largest * float(np.linalg.norm(vector / largest))


class About(IntEnum):
    """What a notice says."""

    NOTHING = 0  # that counts
    # "From that round on I go on without that site": it must stop, its messages no longer count everywhere. Of a masked
    # sum: "I would make it again without that site", which counts when all who are left have said so.
    GONE = 1
    WAITING = 2  # "I am alive, and still wait for others in that round": do not count me as lost
    QUESTION = 3  # "what did you last hear of me?"


@final
class Notice(NamedTuple):
    """One notice. `site` is who is gone, by number; 0 if nobody is. Only a question has a nonce, and says of which
    data set (`heads.Books.data_set`) the asker wants to know what it has said.
    """

    about: About
    round: int
    site: int = 0
    nonce: bytes = bytes(NONCE_BYTES)
    data_set: bytes = bytes(DIGEST_BYTES)

    def to_bytes(self) -> bytes:
        """As a payload of `NOTICE_BYTES` bytes."""
        return _NOTICE.pack(*self)


def read_notice(payload: bytes) -> Notice:
    """A notice, or `BadMessageError`."""
    about, *rest = _NOTICE.unpack(payload)
    try:
        return Notice(About(about), *rest)
    except ValueError:
        raise BadMessageError(Refusal.MALFORMED, f"expected a notice, got one about={about}.") from None


@final
class Heard(NamedTuple):
    """The answer to a question: the last round that was heard of whoever asks, the digest of that message, and what
    the asker was last heard to say of its books, in this run or others.
    """

    nonce: bytes
    round: int
    digest: bytes
    books: tuple[bytes, ...] = ()

    def to_bytes(self) -> bytes:
        """As a payload of `ANSWER_BYTES` bytes."""
        return _ANSWER.pack(*self[:3], pack_handed(self.books))


def read_answer(payload: bytes) -> Heard:
    """An answer. Its nonce has to be compared by whoever asked: an old answer would look as good."""
    nonce, k, digest, books = _ANSWER.unpack(payload)
    return Heard(nonce, k, digest, unpack_handed(books))
