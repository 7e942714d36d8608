"""A text that a site has signed: the text, and below it who signed and the signature.

    ...
    Signed by site berlin with the key
    ed25519:<base64>
    <base64 of the signature>

So a statement can be shown to others, who check it with the agreement that they have themselves.
"""

import base64
import binascii
from typing import NamedTuple, final

from sottovoce.errors import InputError
from sottovoce.federation.agreement.agreement import Agreement
from sottovoce.federation.agreement.identity import Context, PublicKey, SigningKey

_SIGNED = "\nSigned by site {site} with the key\n"


@final
class Signed(NamedTuple):
    """What was signed, by whom, with which key."""

    text: str
    site: str
    key: PublicKey


def sign_text(text: str, site: str, key: SigningKey) -> str:
    """The text with who signed, the key and the signature below it. Everything above the signature is signed."""
    body = text + _SIGNED.format(site=site) + f"{key.public}\n"
    signature = base64.b64encode(key.sign(body.encode("utf-8"), Context.STATEMENT)).decode("ascii")
    return f"{body}{signature}\n"


def read_signed(content: str) -> Signed:
    """What was signed; `InputError` unless every letter of it was.

    The key is the one in the text: that it is an agreed one is for `expect_member` to say.
    """
    *lines, who, key_line, last = content.rstrip("\n").split("\n") if content.count("\n") >= 3 else ["", "", "", ""]
    head, _, tail = who.partition("Signed by site ")
    site, _, rest = tail.partition(" ")
    if head or rest != "with the key":
        raise InputError("Expected a signed statement, got a text without a signature at its end.")
    # From the text itself; whether it is the agreed one is another question.
    key = PublicKey.from_text(key_line)
    # Byte by byte as it stands: no line is joined again that was split here.
    body = content[: content.rindex(last)]
    try:
        signature = base64.b64decode(last.encode("ascii"), validate=True)
    except (binascii.Error, UnicodeEncodeError):
        signature = b""
    if not key.verify(signature, body.encode("utf-8"), Context.STATEMENT):
        raise InputError(f"Expected a statement as site {site[:40]!r} signed it, got one that was changed since.")
    return Signed("\n".join(lines), site, key)


def expect_member(agreement: Agreement, site: str, key: PublicKey) -> None:
    """Refuse a signature of somebody else than the site that the agreement knows by this name."""
    agreed = agreement.member(site).public_key
    if key != agreed:
        raise InputError(
            f"Expected the signature of site {site} with the agreed key {agreed.fingerprint}, got one with the key "
            f"{key.fingerprint}. It was not made by that site."
        )
