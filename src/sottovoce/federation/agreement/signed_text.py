"""Signed texts: a text, and below it the site that signed it, its key and the signature.

    ...
    Signed by site berlin with the key
    ed25519:<base64>
    <base64 of the signature>

Others can check such a statement with their own copy of the agreement.
"""

import base64
import binascii
from typing import NamedTuple, final

from sottovoce.errors import InputError
from sottovoce.federation.agreement.agreement import Agreement
from sottovoce.federation.agreement.identity import PublicKey, SigningContext, SigningKey

_SIGNED = "\nSigned by site {site} with the key\n"


@final
class Signed(NamedTuple):
    """A signed text, the site that signed it, and the key."""

    text: str
    site: str
    key: PublicKey


def sign_text(text: str, site: str, key: SigningKey) -> str:
    """The text with the site, the key and the signature below it. Everything above the signature is signed."""
    body = text + _SIGNED.format(site=site) + f"{key.public}\n"
    signature = base64.b64encode(key.sign(body.encode("utf-8"), SigningContext.STATEMENT)).decode("ascii")
    return f"{body}{signature}\n"


def read_signed(content: str) -> Signed:
    """Read a signed text; refused if it was changed after signing.

    It is checked with the key in the text itself. Whether that key is an agreed one is checked by `expect_member`.
    """
    *lines, who, key_line, last = content.rstrip("\n").split("\n") if content.count("\n") >= 3 else ["", "", "", ""]
    head, _, tail = who.partition("Signed by site ")
    site, _, rest = tail.partition(" ")
    if head or rest != "with the key":
        raise InputError("Expected a signed statement, got a text without a signature at its end.")
    key = PublicKey.from_text(key_line)
    # The bytes as they stand, not joined from the lines that were split above.
    body = content[: content.rindex(last)]
    try:
        signature = base64.b64decode(last.encode("ascii"), validate=True)
    except (binascii.Error, UnicodeEncodeError):
        signature = b""
    if not key.verify(signature, body.encode("utf-8"), SigningContext.STATEMENT):
        raise InputError(f"Expected a statement as site {site[:40]!r} signed it, got one that was changed since.")
    return Signed("\n".join(lines), site, key)


def expect_member(agreement: Agreement, site: str, key: PublicKey) -> None:
    """Refuse a key other than the one that the agreement has for this site."""
    agreed = agreement.member(site).public_key
    if key != agreed:
        raise InputError(
            f"Expected the signature of site {site} with the agreed key {agreed.fingerprint}, got one with the key "
            f"{key.fingerprint}. It was not made by that site."
        )
