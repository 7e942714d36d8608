"""The bytes of a message: a payload of known length, bound to its mailbox and signed.

    "SVM4" | kind len(run) len(site) len(to) | number | length | digest | run | site | to | payload | books | signature
      4       1      1         1        1        8        4        32      .     .     .    length     700       64

All numbers are little-endian. `books` is a statement of the sender's ledger (`heads`); only models and sums have one.
The signature (Ed25519) is over everything before it. A reader knows every byte except payload, books and signature in
advance: run, agreement, kind, round, sender and length. So nothing is parsed before the message is trusted: first the
length must be exact, then the header equal byte for byte, then the signature valid; only then is the payload read
(`letters`). Fields of a wrong header are read only for the error.

Formal guarantees:
    `unseal` returns the payload that the owner of the key signed for exactly this mailbox, or raises `BadMessageError`.
    The same payload, books, mailbox and key always give the same bytes, so a message that is sent again after a crash
    is identical to the first. `digest_of` covers mailbox and payload alone: a message with the same payload and later
    books counts as the same message.
"""

import hashlib
import re
import struct
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple, Self, final

from sottovoce.errors import SottovoceError, expect
from sottovoce.federation.agreement.identity import (
    SIGNATURE_BYTES,
    PublicKey,
    SigningContext,
    SigningKey,
    check_site_name,
)

MAGIC = b"SVM4"
DIGEST_BYTES = 32
BOOKS_BYTES = 772  # of the statement of the sender's ledger in a model or a sum
NO_BOOKS = bytes(BOOKS_BYTES)  # of a sender that says nothing of its ledger
MOST_NUMBER = 2**30 - 1  # of a round or a notice; tokens stay short, and sums of a few such numbers stay exact
# 128 MiB: sixteen million numbers, far below the largest value of the length field.
LONGEST_PAYLOAD = 2**27
_FIXED = struct.Struct("<4scBBBQI")
_RUN = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")
_TOKEN = re.compile(r"([mnasp])(0|[1-9][0-9]{0,9})(?:-([a-z0-9-]{1,40}))?")


def check_run_id(run: str) -> None:
    """Refuse a run id that does not fit into one token of a subject, a stream's name and one length byte."""
    expect(_RUN.fullmatch(run) is not None, "a run id of 1 to 64 letters, digits, - and _", run=run[:80])


class Kind(Enum):
    """The kind of a message."""

    MODEL = "m"  # a site's noisy model of a round
    SUM = "s"  # its masked words for a sum over all sites
    POINT = "p"  # its proposal for the point of that sum, computed from earlier sums alone
    NOTICE = "n"  # about the run itself
    ANSWER = "a"  # to a question in another site's notice

    @property
    def books_bytes(self) -> int:
        """Number of bytes of such a message for its sender's books."""
        return BOOKS_BYTES if self in (Kind.MODEL, Kind.SUM) else 0


class Slot(NamedTuple):
    """The address of a mailbox, which takes one message for good.

    Args:
        number: the round of a model, a sum or a point; of a notice, its number at its site; of an answer, that of the
            notice it answers.
        site: the mailbox's owner, who signs its message.
        kind: model, sum, point, notice or answer.
        to: for an answer, the site that asked; else empty.
    """

    number: int
    site: str
    kind: Kind = Kind.MODEL
    to: str = ""

    @property
    def token(self) -> str:
        """The mailbox's name among those of its site: m17, n3, a3-berlin."""
        return f"{self.kind.value}{self.number}" + (f"-{self.to}" if self.to else "")

    @classmethod
    def of_token(cls, token: str, site: str) -> Self | None:
        """The address with this token; None unless it is a token in its exact form, such as m7 but not m007."""
        match = _TOKEN.fullmatch(token)
        if match is None or (match[1] == Kind.ANSWER.value) != (match[3] is not None):
            return None
        return cls(int(match[2]), site, Kind(match[1]), match[3] or "")

    def checked(self) -> Self:
        """This address; refused if its parts are invalid."""
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
    """All that a reader knows of a message in advance: every byte except the payload, the books and the signature.

    Args:
        run: its id.
        digest: of the agreement, 32 bytes.
        slot: the mailbox: kind, number, sender, and for an answer the site that asked.
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
        """The bytes before the payload."""
        number, site, kind, to = self.slot
        run, name, asker = self.run.encode("ascii"), site.encode("ascii"), to.encode("ascii")
        sizes = len(run), len(name), len(asker)
        fixed = _FIXED.pack(MAGIC, kind.value.encode("ascii"), *sizes, number, self.length)
        return fixed + self.digest + run + name + asker

    @property
    def size(self) -> int:
        """The message's exact number of bytes."""
        return sealed_size(self.run, self.slot, self.length)

    def __str__(self) -> str:
        """The sender and the message, for people."""
        number, site, kind, to = self.slot
        if kind in (Kind.MODEL, Kind.SUM, Kind.POINT):
            return f"site={site!r} in round={number}"
        return f"site={site!r}, its notice {number}" if kind is Kind.NOTICE else f"site={site!r}, its answer to {to!r}"


def sealed_size(run: str, slot: Slot, length: int) -> int:
    """The number of bytes of a message with a payload of this length; it does not depend on the round."""
    header = _FIXED.size + DIGEST_BYTES + len(run) + len(slot.site) + len(slot.to)
    return header + length + slot.kind.books_bytes + SIGNATURE_BYTES


def seal(place: Envelope, payload: bytes, key: SigningKey, books: bytes = NO_BOOKS) -> bytes:
    """The bytes to send: header, payload, books, signature. The same arguments always give the same bytes.

    Args:
        place: the message's mailbox and length.
        payload: of exactly that length.
        key: of the sender.
        books: the statement of its ledger, `BOOKS_BYTES`; left out of a notice or an answer.
    """
    expect(len(payload) == place.length, f"a payload of {place.length} bytes", bytes=len(payload))
    expect(len(books) == BOOKS_BYTES, f"{BOOKS_BYTES} bytes of books", bytes=len(books))
    body = place.header + payload + books[: place.slot.kind.books_bytes]
    return body + key.sign(body, SigningContext.MESSAGE)


def digest_of(message: bytes) -> bytes:
    """The SHA-256 of a model or a sum without its books and signature, by which other sites identify the message."""
    return hashlib.sha256(message[: -BOOKS_BYTES - SIGNATURE_BYTES]).digest()


def books_of(message: bytes) -> bytes:
    """The books in a model or a sum. The message must have been unsealed: nothing is checked here."""
    return message[-BOOKS_BYTES - SIGNATURE_BYTES : -SIGNATURE_BYTES]


def unseal(data: bytes, place: Envelope, public_key: PublicKey) -> bytes:
    """The payload, or `BadMessageError`. Checks length, header and signature in this order, but not the payload."""
    if len(data) != place.size:
        refusal = Refusal.TRUNCATED if len(data) < place.size else Refusal.OVERSIZED
        raise BadMessageError(refusal, f"expected exactly {place.size} bytes from {place}, got bytes={len(data)}.")
    header = place.header
    if data[: len(header)] != header:
        _refuse_header(data, place)
    body, signature = data[:-SIGNATURE_BYTES], data[-SIGNATURE_BYTES:]
    if not public_key.verify(signature, body, SigningContext.MESSAGE):
        raise BadMessageError(
            Refusal.FORGED,
            f"it is not signed with the key that the agreement gives for site={place.slot.site!r} "
            f"({public_key.fingerprint}).",
        )
    return body[len(header) : len(header) + place.length]


def _refuse_header(data: bytes, place: Envelope) -> None:
    """Raise the error for the first field that differs. The message has the right size, so all fields are there."""
    magic, kind, run_size, site_size, to_size, number, length = _FIXED.unpack_from(data)
    # These sizes are not trusted: a slice that reaches too far is too short, and then differs.
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
    """Text from outside, safe to print."""
    return repr(name[:64].decode("ascii", "backslashreplace"))
