"""A site's identity: a name, and an Ed25519 key pair.

A name is a short word that fits into file names, message subjects and certificates. The private half of the key never
leaves the site: it is a PEM file that only its owner may read (`key_files`). The public half is one line of text,
`ed25519:<base64 of 32 bytes>`, which goes into the agreement.

Every signature is over  context 0x00 data.  A context names the purpose and holds no zero byte, so a signature that was
made for one purpose is not valid for another.
"""

import base64
import binascii
import hashlib
import re
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, final

from sottovoce import settings
from sottovoce.errors import InputError, expect, naming
from sottovoce.federation.agreement.key_files import read_public, read_secret, write_public, write_secret

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

PREFIX = "ed25519:"
SIGNATURE_BYTES, KEY_BYTES = 64, 32
LONGEST_NAME = 40
# Names in files and certificates that no site may have.
AUTHORITY, SERVER, OPERATOR = "ca", "server", "operator"
_NAME = re.compile(rf"[a-z0-9](?:[a-z0-9-]{{0,{LONGEST_NAME - 2}}}[a-z0-9])?")


def check_site_name(name: str) -> None:
    """Refuse a name that does not fit into a file name, a subject or a certificate, or that is reserved."""
    expect(
        _NAME.fullmatch(name) is not None,
        f"a site's name of 1 to {LONGEST_NAME} small letters, digits and inner hyphens",
        name=name[: 2 * LONGEST_NAME],
    )
    expect(name not in (AUTHORITY, SERVER, OPERATOR), "a name that nobody else has", name=name)


def fingerprint_of(key: bytes) -> str:
    """80 bits of the SHA-256 of a public key, in groups of four digits."""
    # Finding a second key with the same 80 bits takes 2^80 keys, which is infeasible.
    digits = hashlib.sha256(key).hexdigest()[:20]
    return " ".join(digits[i : i + 4] for i in range(0, len(digits), 4))


class SigningContext(Enum):
    """The purpose of a signature."""

    AGREEMENT = b"sottovoce agreement v1"
    MESSAGE = b"sottovoce message v1"
    MODEL = b"sottovoce model v1"
    STATEMENT = b"sottovoce statement v1"
    MASK_KEY = b"sottovoce mask key v1"
    BOOKS = b"sottovoce books v1"  # these signatures are never sent: secrets are derived from them
    CAP = b"sottovoce cap v1"

    def bind(self, data: bytes) -> bytes:
        """The bytes to sign for this data."""
        return self.value + b"\0" + data


@final
@dataclass(frozen=True)
class PublicKey:
    """The public half of a key: 32 bytes, and one line of text in files."""

    raw: bytes

    def __post_init__(self) -> None:
        expect(len(self.raw) == KEY_BYTES, f"a public key of {KEY_BYTES} bytes", bytes=len(self.raw))

    @classmethod
    def from_text(cls, text: str) -> "PublicKey":
        """Read `ed25519:<base64>`; white space around it is ignored."""
        came = text.strip()
        try:
            raw = base64.b64decode(came.removeprefix(PREFIX).encode("ascii"), validate=True)
        except (binascii.Error, UnicodeEncodeError):
            raw = b""
        # Compared as text, so that one key has one spelling.
        if len(raw) != KEY_BYTES or str(cls(raw)) != came:
            # Only the beginning is shown: the text may be a private key, given by mistake.
            raise InputError(
                f"Expected a public key such as {PREFIX}<44 characters of base64>, got {len(came)} characters that "
                f"begin with {came[:11]!r}. Make one with: sottovoce site keygen."
            )
        return cls(raw)

    @classmethod
    def load(cls, path: Path) -> "PublicKey":
        """The key in a one-line text file."""
        with naming(file=path):
            return cls.from_text(read_public(path))

    def save(self, path: Path) -> None:
        """Write the one-line text file; an existing file is never replaced."""
        write_public(path, f"{self}\n".encode("ascii"))

    def verify(self, signature: bytes, data: bytes, context: SigningContext) -> bool:
        """True if the signature over this data was made with the private half, for this purpose.

        Args:
            signature: 64 bytes; any other length is invalid.
            data: the signed data.
            context: the purpose; a signature for another purpose is invalid.
        """
        from cryptography.exceptions import InvalidSignature
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

        try:
            Ed25519PublicKey.from_public_bytes(self.raw).verify(signature, context.bind(data))
        except (InvalidSignature, ValueError):
            return False
        return True

    @property
    def fingerprint(self) -> str:
        """Short enough to read out on the telephone."""
        return fingerprint_of(self.raw)

    def __str__(self) -> str:
        return PREFIX + base64.b64encode(self.raw).decode("ascii")


settings.made_by(PublicKey, PublicKey.from_text)


@final
@dataclass(frozen=True, repr=False, eq=False)
class SigningKey:
    """The private half of a key. It is never printed, and is written only to files that only their owner may read."""

    private: "Ed25519PrivateKey"

    @classmethod
    def generate(cls) -> "SigningKey":
        """A new key from the operating system's randomness."""
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

        return cls(Ed25519PrivateKey.generate())

    @classmethod
    def load(cls, path: Path) -> "SigningKey":
        """Read a PEM file that nobody but its owner may read or write."""
        from cryptography.exceptions import UnsupportedAlgorithm
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
        from cryptography.hazmat.primitives.serialization import load_pem_private_key

        pem = read_secret(path)
        try:
            # A key with a passphrase is refused: a site must be able to start again by itself.
            key = load_pem_private_key(pem, password=None)
        except (ValueError, TypeError, UnsupportedAlgorithm):
            key = None
        if not isinstance(key, Ed25519PrivateKey):
            raise InputError(
                f"Expected an Ed25519 private key in PEM form without a passphrase, got file {str(path)!r}. "
                "Make one with: sottovoce site keygen."
            )
        return cls(key)

    def save(self, path: Path) -> None:
        """Write a PEM file (PKCS8) that only its owner may read; an existing file is never replaced."""
        from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

        write_secret(path, self.private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))

    @property
    def public(self) -> PublicKey:
        """The public half of this key."""
        return PublicKey(self.private.public_key().public_bytes_raw())

    def sign(self, data: bytes, context: SigningContext) -> bytes:
        """The signature over this data, 64 bytes, valid for this purpose only."""
        return self.private.sign(context.bind(data))

    def __repr__(self) -> str:
        return f"SigningKey(public={self.public})"
