"""What sites say to each other, as bytes: one vector, bound to its place and signed.

    "SVM1" | len(run) len(site) | round | count | digest | run | site | payload | signature
      4         1         1        8       4       32      .      .    8 count      64        bytes, little-endian

The signature (Ed25519) is over everything before it. A reader knows every byte but the payload and the signature in
advance: which run, under which agreement, which round, from whom, how long. So nothing is parsed to decide whether to
trust it. The length must be exact and the header must be equal, byte for byte; then the signature must be right; only
then the payload is looked at. Fields are read one by one only to say what was wrong.

Formal guarantees:
    `decode` returns the vector that the owner of the key signed for exactly this place, with finite numbers only, or
    raises `BadMessageError`. The same envelope and key always give the same bytes, so that what is sent again after a
    crash cannot be told from what was sent before it.
"""

import re
import struct
from dataclasses import dataclass
from enum import Enum
from typing import final

import numpy as np

from sottovoce.arrays import Floats
from sottovoce.engines.network.identity import SIGNATURE_BYTES, Context, PublicKey, SigningKey, check_site_name
from sottovoce.errors import SottovoceError, expect

MAGIC = b"SVM1"
DIGEST_BYTES = 32
LAST_ROUND = 2**53  # beyond this a round would not survive a trip through JSON or a float
LONGEST_PAYLOAD = 2**24
_FIXED = struct.Struct("<4sBBQI")
_RUN = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")


def check_run_id(run: str) -> None:
    """Refuse what would not fit into one token of a subject, into the name of a stream, and into one length byte."""
    expect(_RUN.fullmatch(run) is not None, "a run id of 1 to 64 letters, digits, - and _", run=run[:80])


def check_round(k: int) -> None:
    """Refuse rounds that have no address."""
    expect(0 <= k <= LAST_ROUND and k % 1 == 0, f"a whole round in 0..{LAST_ROUND}", round=k)


class Refusal(Enum):
    """Why a message was refused."""

    TRUNCATED = "truncated"
    OVERSIZED = "oversized"
    MALFORMED = "malformed"
    WRONG_RUN = "wrong run"
    WRONG_AGREEMENT = "wrong agreement"
    WRONG_ROUND = "wrong round"
    WRONG_SENDER = "wrong sender"
    WRONG_SHAPE = "wrong shape"
    FORGED = "forged"
    NOT_FINITE = "not finite"


class BadMessageError(SottovoceError):
    """A message that must not be used; `refusal` says why."""

    def __init__(self, refusal: Refusal, explanation: str) -> None:
        super().__init__(f"Refused a message ({refusal.value}): {explanation}")
        self.refusal = refusal


@final
@dataclass(frozen=True)
class Expected:
    """What a reader knows about a message before it comes. `length` counts the payload's numbers, d times outputs."""

    run: str
    digest: bytes
    round: int
    site: str
    length: int

    def __post_init__(self) -> None:
        check_run_id(self.run)
        check_site_name(self.site)
        check_round(self.round)
        expect(len(self.digest) == DIGEST_BYTES, f"a digest of {DIGEST_BYTES} bytes", bytes=len(self.digest))
        expect(1 <= self.length <= LONGEST_PAYLOAD, f"1 to {LONGEST_PAYLOAD} numbers", length=self.length)

    @property
    def header(self) -> bytes:
        """Every byte before the payload."""
        run, site = self.run.encode("ascii"), self.site.encode("ascii")
        return _FIXED.pack(MAGIC, len(run), len(site), self.round, self.length) + self.digest + run + site

    @property
    def size(self) -> int:
        """The exact number of bytes of the message."""
        return message_size(self.run, self.site, self.length)


def message_size(run: str, site: str, length: int) -> int:
    """The number of bytes of a message with this many numbers; the round does not matter."""
    return _FIXED.size + DIGEST_BYTES + len(run) + len(site) + 8 * length + SIGNATURE_BYTES


@final
@dataclass(frozen=True, eq=False)
class Envelope:
    """One vector and its place: the run, the digest of the agreement, the round and the site that says it."""

    run: str
    digest: bytes
    round: int
    site: str
    payload: Floats

    def __post_init__(self) -> None:
        expect(self.payload.ndim == 1, "a payload with one axis", shape=self.payload.shape)
        expect(self.payload.dtype == np.float64, "a payload of float64", dtype=self.payload.dtype)
        finite = np.isfinite(self.payload)
        expect(bool(finite.all()), "a payload of finite numbers", not_finite=int((~finite).sum()))
        _ = self.place  # checks the other fields

    @property
    def place(self) -> Expected:
        """What the reader of this message expects."""
        return Expected(self.run, self.digest, self.round, self.site, len(self.payload))


def encode(envelope: Envelope, key: SigningKey) -> bytes:
    """The bytes to send."""
    body = envelope.place.header + envelope.payload.astype("<f8").tobytes()
    return body + key.sign(body, Context.MESSAGE)


def decode(data: bytes, expected: Expected, public_key: PublicKey) -> Floats:
    """The vector, or `BadMessageError`."""
    _check_size(data, expected)
    header = expected.header
    if data[: len(header)] != header:
        _refuse_header(data, expected)
    body, signature = data[:-SIGNATURE_BYTES], data[-SIGNATURE_BYTES:]
    if not public_key.verify(signature, body, Context.MESSAGE):
        raise BadMessageError(
            Refusal.FORGED,
            f"it is not signed with the key that the agreement gives for site={expected.site!r} "
            f"({public_key.fingerprint}).",
        )
    payload = np.frombuffer(body, dtype="<f8", offset=len(header)).astype(np.float64)
    finite = np.isfinite(payload)
    if not finite.all():
        raise BadMessageError(
            Refusal.NOT_FINITE,
            f"expected {expected.length} finite numbers from site={expected.site!r} in round={expected.round}, "
            f"got {int((~finite).sum())} that are not.",
        )
    return payload


def _check_size(data: bytes, expected: Expected) -> None:
    if len(data) != expected.size:
        refusal = Refusal.TRUNCATED if len(data) < expected.size else Refusal.OVERSIZED
        raise BadMessageError(
            refusal,
            f"expected exactly {expected.size} bytes ({expected.length} numbers) from site={expected.site!r} in "
            f"round={expected.round}, got bytes={len(data)}.",
        )


def _refuse_header(data: bytes, expected: Expected) -> None:
    """Find the field that differs. The size is right, so the fixed part and the digest are there."""
    magic, run_size, site_size, k, count = _FIXED.unpack_from(data)
    digest_end = _FIXED.size + DIGEST_BYTES
    run_end = digest_end + run_size
    digest, run, site = data[_FIXED.size : digest_end], data[digest_end:run_end], data[run_end : run_end + site_size]
    if magic != MAGIC:
        raise BadMessageError(Refusal.MALFORMED, f"expected it to begin with {MAGIC!r}, got {magic!r}.")
    if run != expected.run.encode("ascii"):
        raise BadMessageError(Refusal.WRONG_RUN, f"expected run={expected.run!r}, got run={_shown(run)}.")
    if digest != expected.digest:
        raise BadMessageError(
            Refusal.WRONG_AGREEMENT,
            f"expected the agreement {expected.digest.hex()[:16]}..., got {digest.hex()[:16]}... "
            "Compare the agreement files of both sites.",
        )
    if site != expected.site.encode("ascii"):
        raise BadMessageError(Refusal.WRONG_SENDER, f"expected site={expected.site!r}, got site={_shown(site)}.")
    if k != expected.round:
        raise BadMessageError(
            Refusal.WRONG_ROUND,
            f"expected round={expected.round} of site={expected.site!r}, got round={k}: replayed, or in a wrong place.",
        )
    raise BadMessageError(Refusal.WRONG_SHAPE, f"expected {expected.length} numbers, got count={count}.")


def _shown(name: bytes) -> str:
    """A name from outside, safe to print."""
    return repr(name[:64].decode("ascii", "backslashreplace"))
