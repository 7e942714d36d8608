"""Countersignatures: every site signs the digest of the agreement, and no site starts before all have signed.

A signature is a small JSON file beside the agreement, `federation.NAME.sig`. It is over the site's name and the digest,
so any change of the agreement's content makes all signatures invalid.
"""

import base64
import binascii
import json
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import final

from sottovoce.errors import InputError
from sottovoce.federation.agreement.agreement import Agreement
from sottovoce.federation.agreement.identity import SigningContext, SigningKey
from sottovoce.federation.agreement.key_files import write_public

_FIELDS = {"site", "digest", "signature"}
_LARGEST_FILE = 10_000


class Consent(Enum):
    """The state of a site's signature of an agreement."""

    SIGNED = "signed"
    MISSING = "not signed yet"
    OTHER_VERSION = "signed another version"
    FORGED = "not its signature"
    UNREADABLE = "not a signature file"


@final
@dataclass(frozen=True)
class Countersignature:
    """One site's signature of an agreement.

    Args:
        site: its name.
        digest: of the agreement, 32 bytes.
        signature: over name and digest, with the site's key.
    """

    site: str
    digest: bytes
    signature: bytes

    @classmethod
    def make(cls, agreement: Agreement, site: str, key: SigningKey) -> "Countersignature":
        """Sign the agreement. The key must be the one that the agreement gives for this site."""
        agreed = agreement.member(site).public_key
        # Checked here, since a signature with another key would look forged to all others.
        if key.public != agreed:
            raise InputError(
                f"Expected the key of site {site} with fingerprint {agreed.fingerprint}, got {key.public.fingerprint}. "
                "Use the right key file, or agree on the new key first."
            )
        digest = agreement.digest()
        return cls(site, digest, key.sign(_signed(site, digest), SigningContext.AGREEMENT))

    def standing(self, agreement: Agreement, site: str) -> Consent:
        """The state of that site's signature of that agreement, given this one."""
        if self.site != site or not agreement.member(site).public_key.verify(
            self.signature, _signed(site, self.digest), SigningContext.AGREEMENT
        ):
            return Consent.FORGED
        return Consent.SIGNED if self.digest == agreement.digest() else Consent.OTHER_VERSION

    def dumps(self) -> str:
        """The text of the signature's file."""
        signature = base64.b64encode(self.signature).decode("ascii")
        return json.dumps({"site": self.site, "digest": self.digest.hex(), "signature": signature}, indent=2) + "\n"

    @classmethod
    def loads(cls, text: str) -> "Countersignature":
        """Read the text of a signature's file."""
        try:
            table = json.loads(text)
            if not isinstance(table, dict) or set(table) != _FIELDS:
                raise ValueError
            signature = base64.b64decode(table["signature"], validate=True)
            return cls(str(table["site"]), bytes.fromhex(table["digest"]), signature)
        except (ValueError, TypeError, RecursionError, binascii.Error):
            raise InputError(f"Expected JSON with {', '.join(sorted(_FIELDS))}, got {text[:80]!r}.") from None


def _signed(site: str, digest: bytes) -> bytes:
    """The bytes to sign. Names hold no zero byte, so different pairs of name and digest have different bytes."""
    return site.encode("ascii", "replace") + b"\0" + digest


def signature_file(agreement_file: Path, site: str, folder: Path | None = None) -> Path:
    """The path of a site's signature: beside the agreement, or in a folder of signatures."""
    return (agreement_file.parent if folder is None else folder) / f"{agreement_file.stem}.{site}.sig"


def write_signature(agreement: Agreement, site: str, key: SigningKey, path: Path) -> Countersignature:
    """Sign the agreement for one site, and write the signature as a new file. An existing one is never replaced."""
    made = Countersignature.make(agreement, site, key)
    write_public(path, made.dumps().encode("ascii"))
    return made


def standings(agreement: Agreement, agreement_file: Path, folder: Path | None = None) -> dict[str, Consent]:
    """The state of every site's signature, by name of the site, as its file shows it."""
    found: dict[str, Consent] = {}
    for site in agreement.names:
        try:
            with signature_file(agreement_file, site, folder).open("rb") as file:
                content = file.read(_LARGEST_FILE).decode("ascii")
            found[site] = Countersignature.loads(content).standing(agreement, site)
        except FileNotFoundError:
            found[site] = Consent.MISSING
        except (InputError, UnicodeDecodeError):
            found[site] = Consent.UNREADABLE
    return found


def verify_signatures(agreement: Agreement, agreement_file: Path, folder: Path | None = None) -> None:
    """Refuse an agreement unless every site has signed exactly this content.

    Args:
        agreement: as this site has read it.
        agreement_file: its path; signatures are named after it.
        folder: of signatures; None for beside the agreement.

    Raises:
        InputError: a signature is missing, of another version, forged or unreadable. It says whose, and what to do.
    """
    advice = {
        Consent.MISSING: "Ask it to run: sottovoce federation sign.",
        Consent.OTHER_VERSION: "Compare its agreement file with this one; after a change everyone signs again.",
        Consent.FORGED: "It was made with another key, or was changed. Ask the site directly.",
        Consent.UNREADABLE: "Ask the site to send the file again.",
    }
    for site, standing in standings(agreement, agreement_file, folder).items():
        if standing is not Consent.SIGNED:
            path = signature_file(agreement_file, site, folder)
            raise InputError(
                f"Expected the signature of site {site} in {str(path)!r}, got: {standing.value}. {advice[standing]}"
            )
