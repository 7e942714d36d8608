"""Who shares a key with whom, where sites are too many for a key of every two.

All sites stand on a ring, in an order drawn by a hash, and each shares a key with the nearest of them, equally many on
both sides: a random regular graph that fewer sites than one has neighbours cannot cut (Harary's, with its nodes in
random order; Bell et al. 2020). It is never sent: whoever has the agreement derives it, and so derives the same.

The order follows from the names and keys of all members, and from nothing else: not from the run, the time or a
setting, which one person could try out until colluding sites stand where they like. Whoever registers last can still
try out keys. The guarantee does not rest on the order: it counts the worst that so many sites could do in any place.
What the order adds, for colluding sites that did not choose their place, is in docs/proofs/masked.md.
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
    """The names of all sites in the order of the ring, which has no beginning.

    The order in which they are given plays no part.
    """
    ends = [(site.name, site.public_key.raw, b"" if site.mask_key is None else site.mask_key.raw) for site in sites]
    seed = sha256(encode_fields(_SEED, len(ends), *(part for end in sorted(ends) for part in end))).digest()
    return tuple(
        sorted((name for name, *_ in ends), key=lambda name: sha256(encode_fields(_PLACE, seed, name)).digest())
    )


def nearest(order: Sequence[str], name: str, keys: int) -> frozenset[str]:
    """The `keys` sites nearest to this one on the ring, half of them on either side; or all others.

    Args:
        order: of all sites, see `ring`.
        name: of one of them.
        keys: an even number, or one less than there are sites.
    """
    n = len(order)
    expect(0 <= keys < n and (keys % 2 == 0 or keys == n - 1), f"an even number of keys below {n}, or all", keys=keys)
    place, side = order.index(name), (keys + 1) // 2
    found = (order[(place + step) % n] for step in range(-side, side + 1))
    return frozenset(found) - {name}
