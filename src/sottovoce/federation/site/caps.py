"""Raising the cap of a ledger: an entry that the site signs, so that nobody else can raise it.

The ledger itself takes any signature; who may sign is checked here. A site runs under a raised cap only if every raise
was signed with its own key. A raise with any other key would make the ledger useless, so it is refused. The key of the
ledger's site lies in a small file beside the ledger, which every run writes.
"""

from pathlib import Path

from sottovoce.errors import InputError
from sottovoce.federation.agreement.identity import PublicKey, SigningContext, SigningKey
from sottovoce.federation.site.stops import DamagedError
from sottovoce.privacy.books.entries import Raise
from sottovoce.privacy.books.ledger import Ledger
from sottovoce.settings.disk import write_whole


def raise_cap(ledger: Ledger, epsilon: float, key: SigningKey) -> Raise:
    """Set a higher cap for all runs on these rows. The entry is on the disk when this returns.

    Args:
        ledger: of the rows.
        epsilon: the new cap, at the same delta.
        key: the signing key of the site that the ledger belongs to. With any other, nothing is written.
    """
    check_raises(ledger, key.public)
    place = owner_path(ledger.path)
    if not place.exists():
        raise InputError(
            f"Expected the public key of the site that this ledger belongs to in {str(place)!r}, got no such file. "
            "sottovoce site run writes it before anything else, also if the run is then refused: run that first."
        )
    owner = PublicKey.from_text(place.read_text("ascii", "replace").strip())
    if key.public != owner:
        raise InputError(
            f"Expected the key {owner.fingerprint} of the site that this ledger belongs to, got "
            f"{key.public.fingerprint}: the site could not run under a cap that another key has raised. Nothing was "
            "written. Use the right key file."
        )
    return ledger.raise_cap(epsilon, str(key.public), lambda data: key.sign(data, SigningContext.CAP))


def owner_path(ledger: Path) -> Path:
    """The file with the public key of the ledger's site: the ledger's path with .key appended."""
    return ledger.with_name(f"{ledger.name}.key")


def claim(ledger: Ledger, key: PublicKey) -> None:
    """Write down that the ledger belongs to the site with this key; `DamagedError` if another key raised its cap."""
    check_raises(ledger, key)
    place, text = owner_path(ledger.path), f"{key}\n".encode("ascii")
    if not place.exists() or place.read_bytes() != text:
        write_whole(place, text)


def is_signed(raised: Raise) -> bool:
    """True if the signature was made with the key that the entry names."""
    try:
        key, signature = PublicKey.from_text(raised.signer), bytes.fromhex(raised.signature)
    except (InputError, ValueError):
        return False
    return key.verify(signature, raised.signed, SigningContext.CAP)


def check_raises(ledger: Ledger, key: PublicKey) -> None:
    """Refuse a ledger unless every raise of its cap was signed with this key."""
    for raised in ledger.raises():
        if raised.signer != str(key) or not is_signed(raised):
            raise DamagedError(
                f"Expected caps that were raised with the key {key.fingerprint} of this site, got entry={raised.entry} "
                f"of the ledger, which raises it to epsilon={raised.epsilon!r} without a signature of that key. "
                "Release nothing from these rows until it is known who did it."
            )
