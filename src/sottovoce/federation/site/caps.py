"""Raising the cap of a ledger: an entry that the site signs, so that nobody else can have raised it.

The ledger itself keeps any signature; who may sign is known here. A site runs under a raised cap only if every raise
was signed with its own key.
"""

from sottovoce.errors import InputError
from sottovoce.federation.agreement.identity import Context, PublicKey, SigningKey
from sottovoce.federation.site.stops import DamagedError
from sottovoce.privacy.books.ledger import Ledger, Raise


def raise_cap(ledger: Ledger, epsilon: float, key: SigningKey) -> Raise:
    """Let all runs on these rows cost so much from now on. It is on the disk when this returns.

    Args:
        ledger: of the rows.
        epsilon: the new cap, at the same delta.
        key: the signing key of the site that the ledger belongs to.
    """
    return ledger.raise_cap(epsilon, str(key.public), lambda data: key.sign(data, Context.CAP))


def is_signed(raised: Raise) -> bool:
    """Whether the signature is of the key that is named beside it."""
    try:
        key, signature = PublicKey.from_text(raised.signer), bytes.fromhex(raised.signature)
    except (InputError, ValueError):
        return False
    return key.verify(signature, raised.signed, Context.CAP)


def check_raises(ledger: Ledger, key: PublicKey) -> None:
    """Stop unless every raise was signed with this key."""
    for raised in ledger.raises():
        if raised.signer != str(key) or not is_signed(raised):
            raise DamagedError(
                f"Expected caps that were raised with the key {key.fingerprint} of this site, got entry={raised.entry} "
                f"of the ledger, which raises it to epsilon={raised.epsilon!r} without a signature of that key. "
                "Release nothing from these rows until it is known who did it."
            )
