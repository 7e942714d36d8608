"""Secrets between two sites: each has an X25519 key pair, made for one agreement.

The public half stands in the agreement as one line of text, `x25519:<base64 of the key>:<base64 of a signature>`. The
signature is the site's own, over its name and the key, so nobody can put forward a key in another site's name. The
private half is derived from a seed of 32 random bytes, and so is the key of the site's noise. With the seed and the
messages anyone could remove both masks and noise. So a seed is for one agreement, and deleted at the end of its run.

X25519 treats some different keys as equal: it ignores the highest bit, reads numbers from 2^255 - 19 on modulo that
number, and gives the same secrets for points that differ by one of small order. So a key is accepted only as the
smallest of these numbers, points of small order are refused, and `MaskKey.point` is equal exactly for those keys that
X25519 treats as equal.
"""

import base64
import binascii
import secrets
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn, final

from sottovoce import settings
from sottovoce.errors import InputError, PrivacyError, expect, naming
from sottovoce.federation.agreement.identity import (
    KEY_BYTES,
    SIGNATURE_BYTES,
    PublicKey,
    SigningContext,
    SigningKey,
    fingerprint_of,
)
from sottovoce.federation.agreement.key_files import read_public, read_secret, write_public, write_secret
from sottovoce.noise.sampler import encode_fields

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

PREFIX = "x25519:"
SEED_BYTES = 32
_FIELD = 2**255 - 19
_DOMAIN = "sottovoce seed v1"


@final
@dataclass(frozen=True)
class MaskKey:
    """The public half, signed by its owner.

    Args:
        raw: the key, 32 bytes.
        proof: 64 bytes, the owner's signature over its name and the key.
    """

    raw: bytes
    proof: bytes

    def __post_init__(self) -> None:
        expect(len(self.raw) == KEY_BYTES, f"a mask key of {KEY_BYTES} bytes", bytes=len(self.raw))
        expect(len(self.proof) == SIGNATURE_BYTES, f"a proof of {SIGNATURE_BYTES} bytes", bytes=len(self.proof))
        canonical = int.from_bytes(self.raw, "little") < _FIELD
        expect(canonical, "a mask key in its one spelling, below 2^255 - 19", key=self.raw.hex())
        _ = self.point  # refuses points of small order, with which every secret is zero

    @classmethod
    def from_text(cls, text: str) -> "MaskKey":
        """Read `x25519:<base64>:<base64>`; white space around it is ignored."""
        came = text.strip()
        parts = came.removeprefix(PREFIX).split(":")
        try:
            raw, proof = (base64.b64decode(part.encode("ascii"), validate=True) for part in parts)
        except (ValueError, binascii.Error, UnicodeEncodeError):
            raw, proof = b"", b""
        sizes = len(raw) == KEY_BYTES and len(proof) == SIGNATURE_BYTES
        # Compared as text, so that one key has one spelling.
        if not sizes or _text(raw, proof) != came:
            raise InputError(
                f"Expected a mask key such as {PREFIX}<44 characters of base64>:<88 characters>, got {len(came)} "
                f"characters that begin with {came[:11]!r}. Make one with: sottovoce site seed."
            )
        return cls(raw, proof)

    @classmethod
    def load(cls, path: Path) -> "MaskKey":
        """The key in a one-line text file."""
        with naming(file=path):
            return cls.from_text(read_public(path))

    def save(self, path: Path) -> None:
        """Write the one-line text file; an existing file is never replaced."""
        write_public(path, f"{self}\n".encode("ascii"))

    def is_of(self, name: str, key: PublicKey) -> bool:
        """True if the site of that name has signed it; `key` checks the site's signatures."""
        return key.verify(self.proof, _claim(name, self.raw), SigningContext.MASK_KEY)

    @cached_property
    def point(self) -> bytes:
        """32 bytes that are equal for two keys exactly if X25519 gives the same secrets with both.

        It is the secret with the publicly known private key 2^254. That is a multiple of 8 and prime to the order of
        the large subgroup, so only components of small order are lost; and X25519 does not see a sign anyway.
        """
        from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey

        try:
            return X25519PrivateKey.from_private_bytes(bytes(KEY_BYTES)).exchange(
                X25519PublicKey.from_public_bytes(self.raw)
            )
        except ValueError:
            raise InputError(
                f"Expected a mask key that secrets can be made with, got key={self.raw.hex()}, with which all of them "
                "are zero. Make one with: sottovoce site seed."
            ) from None

    @property
    def fingerprint(self) -> str:
        """Short enough to read out on the telephone."""
        return fingerprint_of(self.raw)

    def __str__(self) -> str:
        return _text(self.raw, self.proof)


settings.made_by(MaskKey, MaskKey.from_text)


@final
@dataclass(frozen=True, repr=False, eq=False)
class Seed:
    """The secret of one site under one agreement: 32 random bytes, from which the private half of its mask key and the
    key of its noise are derived. It is never printed.
    """

    raw: bytes

    def __post_init__(self) -> None:
        # The error does not show the bytes: they may be most of a seed.
        expect(len(self.raw) == SEED_BYTES, f"a seed of {SEED_BYTES} bytes", bytes=len(self.raw))

    @classmethod
    def generate(cls) -> "Seed":
        """A new seed from the operating system's cryptographic source."""
        return cls(secrets.token_bytes(SEED_BYTES))

    @classmethod
    def load(cls, path: Path) -> "Seed":
        """Read a file that nobody but its owner may read or write."""
        content = read_secret(path)
        expect(len(content) == SEED_BYTES, f"a seed file of {SEED_BYTES} bytes", file=str(path), bytes=len(content))
        return cls(content)

    def save(self, path: Path) -> None:
        """Write a file that only its owner may read; an existing file is never replaced."""
        write_secret(path, self.raw)

    def noise_key(self, agreement: str) -> bytes:
        """The key of the site's noise, 32 bytes; `agreement` is the agreement's digest in hexadecimal."""
        return hkdf(self.raw, _DOMAIN, "noise", agreement)

    def mask_key(self, name: str, key: SigningKey) -> MaskKey:
        """The public half, signed by the site of that name."""
        raw = self._private.public_key().public_bytes_raw()
        return MaskKey(raw, key.sign(_claim(name, raw), SigningContext.MASK_KEY))

    def is_of(self, public: MaskKey) -> bool:
        """True if that public half belongs to this seed."""
        return self._private.public_key().public_bytes_raw() == public.raw

    def secret_with(self, other: MaskKey) -> bytes:
        """The 32 bytes of the X25519 secret, which only the owners of the two private halves can compute. Keys are
        derived from it by `hkdf`.
        """
        from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PublicKey

        return self._private.exchange(X25519PublicKey.from_public_bytes(other.raw))

    @cached_property
    def _private(self) -> "X25519PrivateKey":
        from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

        return X25519PrivateKey.from_private_bytes(hkdf(self.raw, _DOMAIN, "x25519"))

    def __repr__(self) -> str:
        return "Seed(...)"

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        raise PrivacyError("Expected a seed that stays in its process, got one to be pickled or copied. Load it again.")


def hkdf(secret: bytes, *info: bytes | str | int | float) -> bytes:
    """A key of 32 bytes from a secret, by HKDF-SHA256 (RFC 5869) without a salt. Keys for different fields are
    independent to anyone without the secret.
    """
    from cryptography.hazmat.primitives.hashes import SHA256
    from cryptography.hazmat.primitives.kdf.hkdf import HKDF

    return HKDF(algorithm=SHA256(), length=KEY_BYTES, salt=None, info=encode_fields(*info)).derive(secret)


def _claim(name: str, raw: bytes) -> bytes:
    """The bytes that a site signs. Names hold no zero byte, so different pairs of name and key have different bytes."""
    return name.encode("ascii", "replace") + b"\0" + raw


def _text(raw: bytes, proof: bytes) -> str:
    """A mask key as one line of text."""
    key, signature = (base64.b64encode(part).decode("ascii") for part in (raw, proof))
    return f"{PREFIX}{key}:{signature}"
