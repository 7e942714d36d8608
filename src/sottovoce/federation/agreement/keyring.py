"""The pairs of sites that share a key, in federations with too many sites for a key of every pair.

All sites stand on a ring, in an order given by a hash, and each shares a key with its nearest sites, equally many on
both sides. This is a random regular graph that cannot be cut by removing fewer sites than each has neighbours (Harary's
graph with its nodes in random order; Bell et al. 2020). It is never sent: everyone derives it from the agreement.

The order follows only from the names and keys of all members. It does not depend on the run, the time or a setting,
which one person could vary until colluding sites stand where they want. The site that registers last can still try out
keys. The guarantee does not rest on the order: it assumes the worst places for colluding sites. What the order adds,
for colluding sites that did not choose their place, is in docs/proofs/masked.md.
"""

from collections.abc import Sequence
from hashlib import sha256
from typing import TYPE_CHECKING

from sottovoce.errors import expect
from sottovoce.noise.sampler import encode_fields

if TYPE_CHECKING:
    from sottovoce.federation.agreement.agreement import Member

_SEED, _PLACE = "sottovoce ring v1", "sottovoce place v1"


def ring(sites: "Sequence[Member]") -> tuple[str, ...]:
    """The names of all sites in the order of the ring, which does not depend on the order of `sites`."""
    ends = [(site.name, site.public_key.raw, b"" if site.mask_key is None else site.mask_key.raw) for site in sites]
    seed = sha256(encode_fields(_SEED, len(ends), *(part for end in sorted(ends) for part in end))).digest()
    return tuple(
        sorted((name for name, *_ in ends), key=lambda name: sha256(encode_fields(_PLACE, seed, name)).digest())
    )


def nearest(order: Sequence[str], name: str, keys: int) -> frozenset[str]:
    """The `keys` sites nearest to this one on the ring, half of them on either side; or all others.

    Args:
        order: of all sites, see `ring`.
        name: of one site.
        keys: an even number, or the number of sites less one.
    """
    n = len(order)
    expect(0 <= keys < n and (keys % 2 == 0 or keys == n - 1), f"an even number of keys below {n}, or all", keys=keys)
    place, side = order.index(name), (keys + 1) // 2
    found = (order[(place + step) % n] for step in range(-side, side + 1))
    return frozenset(found) - {name}
