"""What sites say to each other, as bytes: a payload of known length, bound to its place and signed.

    "SVM4" | kind len(run) len(site) len(to) | number | length | digest | run | site | to | payload | books | signature
      4       1      1         1        1        8        4        32      .     .     .    length     700       64

All numbers are little-endian. `books` is what a site says of its ledger (`heads`); only models and sums have it. The
signature (Ed25519) is over everything before it. A reader knows every byte but payload, books and signature in
advance: which run, under which agreement, what kind of thing, which round, from whom, how long. So nothing is parsed
to decide whether to trust it. The length must be exact and the header must be equal, byte for byte; then the signature
must be right; only then the payload is looked at (`letters`). Fields are read one by one only to say what was wrong.

Formal guarantees:
    `unseal` returns the payload that the owner of the key signed for exactly this place, or raises `BadMessageError`.
    The same payload, books, place and key always give the same bytes, so that what is sent again after a crash cannot
    be told from what was sent before it. `digest_of` stands for place and payload alone: whoever says the same words
    with later books has said the same thing.
"""

import hashlib
import re
import struct
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple, Self, final

from sottovoce.errors import SottovoceError, expect
from sottovoce.federation.agreement.identity import SIGNATURE_BYTES, Context, PublicKey, SigningKey, check_site_name

MAGIC = b"SVM4"
DIGEST_BYTES = 32
BOOKS_BYTES = 772  # of what a model or a sum says of its sender's ledger
NO_BOOKS = bytes(BOOKS_BYTES)  # of a sender that says nothing of it
MOST_NUMBER = 2**30 - 1  # of a round or a notice; tokens stay short, and sums of a few stay exact everywhere
# 128 MiB: sixteen million numbers, and no length field is ever near its end.
LONGEST_PAYLOAD = 2**27
_FIXED = struct.Struct("<4scBBBQI")
_RUN = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")
_TOKEN = re.compile(r"([mnasp])(0|[1-9][0-9]{0,9})(?:-([a-z0-9-]{1,40}))?")


def check_run_id(run: str) -> None:
    """Refuse what would not fit into one token of a subject, into the name of a stream, and into one length byte."""
    expect(_RUN.fullmatch(run) is not None, "a run id of 1 to 64 letters, digits, - and _", run=run[:80])


class Kind(Enum):
    """What a message is."""

    MODEL = "m"  # what a site releases in a round
    SUM = "s"  # its masked words for a sum over all sites
    POINT = "p"  # where, by its reckoning, that sum is to be taken: made of earlier sums alone
    NOTICE = "n"  # something about the run itself
    ANSWER = "a"  # to a question in another site's notice

    @property
    def books_bytes(self) -> int:
        """Bytes that such a message has for its sender's books."""
        return BOOKS_BYTES if self in (Kind.MODEL, Kind.SUM) else 0


class Slot(NamedTuple):
    """The address of a mailbox: of a site, a kind and a number. It takes one message for ever.

    Args:
        number: the round of a model, a sum or a point; of a notice, its number at its site; of an answer, that of the
            notice it answers.
        site: whose mailbox it is, and who signs what is in it.
        kind: model, sum, point, notice or answer.
        to: whose question an answer answers; else empty.
    """

    number: int
    site: str
    kind: Kind = Kind.MODEL
    to: str = ""

    @property
    def token(self) -> str:
        """What the mailbox is called among those of its site: m17, n3, a3-berlin."""
        return f"{self.kind.value}{self.number}" + (f"-{self.to}" if self.to else "")

    @classmethod
    def of_token(cls, token: str, site: str) -> Self | None:
        """The address, or None unless the token is written as we write it: m007 and m7 are different mailboxes."""
        match = _TOKEN.fullmatch(token)
        if match is None or (match[1] == Kind.ANSWER.value) != (match[3] is not None):
            return None
        return cls(int(match[2]), site, Kind(match[1]), match[3] or "")

    def checked(self) -> Self:
        """The same; refused if it is no address."""
        whole = self.number % 1 == 0 and 0 <= self.number <= MOST_NUMBER
        expect(whole, f"a whole number in 0..{MOST_NUMBER} in an address", number=self.number)
        check_site_name(self.site)
        expect((self.kind is Kind.ANSWER) == bool(self.to), "whom it is for with an answer, and only then", to=self.to)
        if self.to:
            check_site_name(self.to)
        return self


class Refusal(Enum):
    """Why a message was refused."""

    TRUNCATED = "truncated"
    OVERSIZED = "oversized"
    MALFORMED = "malformed"
    WRONG_RUN = "wrong run"
    WRONG_AGREEMENT = "wrong agreement"
    WRONG_ROUND = "wrong round"
    WRONG_SENDER = "wrong sender"
    WRONG_KIND = "wrong kind"
    WRONG_SHAPE = "wrong shape"
    FORGED = "forged"
    NOT_FINITE = "not finite"
    TOO_LARGE = "too large"
    OTHER_ROWS = "other rows"
    OTHER_CONTEXT = "other context"
    OTHER_POINT = "other point"


class BadMessageError(SottovoceError):
    """A message that must not be used; `refusal` says why."""

    def __init__(self, refusal: Refusal, explanation: str) -> None:
        super().__init__(f"Refused a message ({refusal.value}): {explanation}")
        self.refusal = refusal


@final
@dataclass(frozen=True)
class Envelope:
    """What a reader knows about a message before it comes: every byte but the payload and the signature.

    Args:
        run: its id.
        digest: of the agreement, 32 bytes.
        slot: the mailbox: kind, number, sender, and whom an answer is for.
        length: of the payload, in bytes.
    """

    run: str
    digest: bytes
    slot: Slot
    length: int

    def __post_init__(self) -> None:
        check_run_id(self.run)
        self.slot.checked()
        expect(len(self.digest) == DIGEST_BYTES, f"a digest of {DIGEST_BYTES} bytes", bytes=len(self.digest))
        expect(1 <= self.length <= LONGEST_PAYLOAD, f"1 to {LONGEST_PAYLOAD} bytes of payload", length=self.length)

    @property
    def header(self) -> bytes:
        """Every byte before the payload."""
        number, site, kind, to = self.slot
        run, name, asker = self.run.encode("ascii"), site.encode("ascii"), to.encode("ascii")
        sizes = len(run), len(name), len(asker)
        fixed = _FIXED.pack(MAGIC, kind.value.encode("ascii"), *sizes, number, self.length)
        return fixed + self.digest + run + name + asker

    @property
    def size(self) -> int:
        """The exact number of bytes of the message."""
        return sealed_size(self.run, self.slot, self.length)

    def __str__(self) -> str:
        """Whose message it is, and which one, for people."""
        number, site, kind, to = self.slot
        if kind in (Kind.MODEL, Kind.SUM, Kind.POINT):
            return f"site={site!r} in round={number}"
        return f"site={site!r}, its notice {number}" if kind is Kind.NOTICE else f"site={site!r}, its answer to {to!r}"


def sealed_size(run: str, slot: Slot, length: int) -> int:
    """The number of bytes of a message with a payload of this length; the round does not matter."""
    header = _FIXED.size + DIGEST_BYTES + len(run) + len(slot.site) + len(slot.to)
    return header + length + slot.kind.books_bytes + SIGNATURE_BYTES


def seal(place: Envelope, payload: bytes, key: SigningKey, books: bytes = NO_BOOKS) -> bytes:
    """The bytes to send: header, payload, books, signature. The same arguments always give the same bytes.

    Args:
        place: where the message belongs.
        payload: of exactly the length that the place says.
        key: of the sender.
        books: what it says of its ledger, `BOOKS_BYTES`; left out of a notice or an answer.
    """
    expect(len(payload) == place.length, f"a payload of {place.length} bytes", bytes=len(payload))
    expect(len(books) == BOOKS_BYTES, f"{BOOKS_BYTES} bytes of books", bytes=len(books))
    body = place.header + payload + books[: place.slot.kind.books_bytes]
    return body + key.sign(body, Context.MESSAGE)


def digest_of(message: bytes) -> bytes:
    """The SHA-256 of a model or a sum, without the books and the signature: by this others know what was said."""
    return hashlib.sha256(message[: -BOOKS_BYTES - SIGNATURE_BYTES]).digest()


def books_of(message: bytes) -> bytes:
    """What a model or a sum says of its sender's books. The message must have been unsealed: nothing is checked."""
    return message[-BOOKS_BYTES - SIGNATURE_BYTES : -SIGNATURE_BYTES]


def unseal(data: bytes, place: Envelope, public_key: PublicKey) -> bytes:
    """The payload, or `BadMessageError`. In this order: length, header, signature; the payload is not looked at."""
    _check_size(data, place)
    header = place.header
    if data[: len(header)] != header:
        _refuse_header(data, place)
    body, signature = data[:-SIGNATURE_BYTES], data[-SIGNATURE_BYTES:]
    if not public_key.verify(signature, body, Context.MESSAGE):
        raise BadMessageError(
            Refusal.FORGED,
            f"it is not signed with the key that the agreement gives for site={place.slot.site!r} "
            f"({public_key.fingerprint}).",
        )
    return body[len(header) : len(header) + place.length]


def _check_size(data: bytes, place: Envelope) -> None:
    """Refuse a message of any other length than the one that follows from its place."""
    if len(data) != place.size:
        refusal = Refusal.TRUNCATED if len(data) < place.size else Refusal.OVERSIZED
        raise BadMessageError(refusal, f"expected exactly {place.size} bytes from {place}, got bytes={len(data)}.")


def _refuse_header(data: bytes, place: Envelope) -> None:
    """Find the field that differs. The size is right, so the fixed part and the digest are there."""
    magic, kind, run_size, site_size, to_size, number, length = _FIXED.unpack_from(data)
    # Sizes are a stranger's: slices that reach too far are merely short, and then differ.
    rest, ends = data[_FIXED.size :], [DIGEST_BYTES]
    for size in (run_size, site_size, to_size):
        ends.append(ends[-1] + size)
    digest, run, site, to = (rest[first:last] for first, last in zip([0, *ends], ends, strict=False))
    wanted = place.slot
    if magic != MAGIC:
        raise BadMessageError(Refusal.MALFORMED, f"expected it to begin with {MAGIC!r}, got {magic!r}.")
    if run != place.run.encode("ascii"):
        raise BadMessageError(Refusal.WRONG_RUN, f"expected run={place.run!r}, got run={_shown(run)}.")
    if digest != place.digest:
        raise BadMessageError(
            Refusal.WRONG_AGREEMENT,
            f"expected the agreement {place.digest.hex()[:16]}..., got {digest.hex()[:16]}... "
            "Compare the agreement files of both sites.",
        )
    if site != wanted.site.encode("ascii") or to != wanted.to.encode("ascii"):
        raise BadMessageError(Refusal.WRONG_SENDER, f"expected site={wanted.site!r}, got site={_shown(site)}.")
    if kind != wanted.kind.value.encode("ascii"):
        raise BadMessageError(Refusal.WRONG_KIND, f"expected {wanted.kind.name.lower()}, got kind={_shown(kind)}.")
    if number != wanted.number:
        raise BadMessageError(
            Refusal.WRONG_ROUND,
            f"expected {place}, got number={number}: replayed, or in a wrong place.",
        )
    raise BadMessageError(Refusal.WRONG_SHAPE, f"expected {place.length} bytes of payload, got length={length}.")


def _shown(name: bytes) -> str:
    """A name from outside, safe to print."""
    return repr(name[:64].decode("ascii", "backslashreplace"))
