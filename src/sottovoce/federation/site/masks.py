"""Masked words: the message of a site where only the sum over all sites may be read.

In release q, v_i is a vector computed from site i's rows, g the step of a grid, U the set of sites that take part, and
j runs over the sites in U that site i shares a key with (all of them, except in large federations:
`Agreement.key_partners`):

    x_i = round(v_i / g) + Z_i                                          Z_i discrete Gaussian of scale s, exactly
    y_i = x_i + sum_{j > i} F(k_ij, ctx) - sum_{j < i} F(k_ij, ctx)      mod 2^64
    everyone:  S = sum_{i in U} y_i mod 2^64, read with its sign, times g

F(k, ctx) are the words of ChaCha20 (zero nonce) under the key HMAC-SHA256(k, ctx), and k_ij comes from both sites'
X25519 secret by HKDF-SHA256. Its label holds the agreement and both sites with all their keys, so even a key that two
sites put forward makes two secrets.

`Context` stands for all that has been said: two sites that heard different messages use different masks, and nothing
opens. Noise is a function of the context, of g and s, and of round(v/g) itself. So a site that is set back sends the
same words again, and another value gets other noise. One function decides what a site may send: `expect_turn`.
Proofs: docs/proofs/masked.md. Words such as turn, context and proposal: docs/how-to/masked-federation.md.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from math import ceil, isqrt
from typing import NamedTuple, NoReturn, final

import numpy as np

from sottovoce.arrays import Array, Floats, Ints
from sottovoce.errors import InputError, PrivacyError, expect
from sottovoce.federation.agreement.agreement import Agreement, Member
from sottovoce.federation.agreement.exchange import Seed, hkdf
from sottovoce.federation.site.stops import SpoiledError
from sottovoce.federation.transport.wire import DIGEST_BYTES
from sottovoce.noise.sampler import VERSION, Words, discrete_gaussian, encode_fields, keyed, shuffled
from sottovoce.noise.secure import GRID_BITS, Grid, on_grid, value_digest

# Prefixes of labels; no other use of these keys has one of them.
_PAIR, _MASK, _NOISE, _ORDER = "sottovoce pair v1", "sottovoce mask", "sottovoce share", "sottovoce order of rows"
_CONTEXT, _PARTING = "sottovoce context v3", "sottovoce parting v1"
LARGEST_SUM = 2**62  # grid steps, in size; a sum below it is read with the right sign
_TAIL = 40  # standard deviations of a sum's noise; the probability of more is below e^-800


# -- the context ------------------------------------------------------------------------------------------------------


class Turn(NamedTuple):
    """A sum of a run: its release q, from 1 on, and the number of sums that were given up before it."""

    release: int
    attempt: int

    def is_behind(self, other: "Turn") -> bool:
        """True if release or attempt is smaller than the other's. Neither ever decreases in a run."""
        return self.release < other.release or self.attempt < other.attempt


class Parting(NamedTuple):
    """A sum that was given up: all sites in `left` have said that they go on without all sites in `dropped`."""

    number: int  # of the message for that sum
    dropped: tuple[str, ...]
    left: tuple[str, ...]


@final
@dataclass(frozen=True, kw_only=True)
class Context:
    """All that two sites must agree on, bit for bit, for their masks to cancel.

    Args:
        agreement: its digest, 32 bytes.
        turn: the sum, and the attempt.
        members: U, the sites that take part, in the order of the agreement.
        notices: a digest of all notices by which sites were dropped, 32 bytes; see `notices_digest`.
        transcript: a digest of all sums so far and of the messages they were made of, 32 bytes.
        point: the bits of the public point, as the proposer of this sum has signed them; see `bits`. Empty if the sum
            has no point.
        grid: g, a power of two, from the proposer too.
        scale: s, of the noise of each site, in grid steps; from the proposer too.
        numbers: number of words in a message.
    """

    agreement: bytes
    turn: Turn
    members: tuple[str, ...]
    notices: bytes
    transcript: bytes
    point: bytes
    grid: float
    scale: int
    numbers: int

    def __post_init__(self) -> None:
        for name in ("agreement", "notices", "transcript"):
            size = len(getattr(self, name))
            expect(size == DIGEST_BYTES, f"a digest of {DIGEST_BYTES} bytes for {name}", bytes=size)
        expect(self.numbers >= 1, "at least one number", numbers=self.numbers)

    def to_bytes(self) -> bytes:
        """An injective encoding: every field after its kind and length, and the names after their number."""
        return encode_fields(
            _CONTEXT, self.agreement, *(int(part) for part in self.turn), len(self.members), *self.members,
            self.notices, self.transcript, self.point, float(self.grid), int(self.scale), int(self.numbers),
        )  # fmt: skip

    def digest(self) -> bytes:
        """32 bytes that identify this context."""
        return sha256(self.to_bytes()).digest()


def members_digest(members: Sequence[str]) -> bytes:
    """32 bytes that identify U."""
    return sha256(encode_fields(_CONTEXT, *members)).digest()


def notices_digest(partings: Sequence["Parting"]) -> bytes:
    """32 bytes that identify all notices by which sites were dropped: who dropped whom, and in which turn.

    The digest is of their content, not of their bytes: a notice that is put again, into another mailbox, is the same.
    """
    said = (
        encode_fields(_PARTING, int(p.number), len(p.dropped), *p.dropped, len(p.left), *p.left) for p in partings
    )  # fmt: skip
    return sha256(b"".join(said)).digest()


def bits(point: Array) -> bytes:
    """A point as it stands in a context: the bits of every number."""
    return np.ascontiguousarray(point, dtype="<f8").tobytes()


# -- when a site may send words ---------------------------------------------------------------------------------------


class Past(NamedTuple):
    """The last masked message of a site in the run."""

    said: Turn = Turn(0, 0)  # the turn that it was for
    context: bytes = b""  # the digest of the context that it was made in


def expect_turn(agreement: Agreement, site: str, context: Context, past: Past) -> None:
    """Refuse to send words, unless every rule that the guarantee rests on holds in this site's own view.

    The site is in U, U is within the agreement and holds at least u sites, releases and attempts are as many as were
    paid for, and (release, attempt) never decreases. For a turn that the site has sent words for there is one context,
    in which it may send the same words again.

    Args:
        agreement: of masked sums.
        site: this site's name.
        context: in which it is to send words.
        past: its last message, from its journal.

    Formal guarantees: whatever a site is told, it sends words for at most `rounds` + `spare` different turns, and for
    each in one context that it is a part of, with at least u sites. Nothing here depends on rows.
    """
    a, (q, attempt), u = agreement.analysis, context.turn, agreement.analysis.members(len(agreement.sites))
    _rule(context.agreement == agreement.digest(), "the agreement that was signed", agreement=context.agreement.hex())
    known = tuple(name for name in agreement.names if name in set(context.members))
    _rule(context.members == known, "sites of this agreement, each once and in its order", members=context.members[:9])
    _rule(site in context.members, f"site {site} among those whose sum is made", members=context.members[:9])
    _rule(len(context.members) >= u, f"at least {u} sites in a sum", sites=len(context.members))
    _rule(1 <= q <= a.opened, f"1 <= release <= {a.opened}", release=q)
    _rule(0 <= attempt <= a.spare, f"at most {a.spare} spare attempts in all", attempt=attempt)
    _rule(not context.turn.is_behind(past.said), f"a turn after {tuple(past.said)}", turn=tuple(context.turn))
    same = context.turn != past.said or context.digest() == past.context
    _rule(same, f"the one context in which {tuple(past.said)} was sent", context=context.digest().hex())


def _rule(kept: bool, expected: str, **came: object) -> None:
    """Refuse to send words unless this rule is kept."""
    if not kept:
        shown = ", ".join(f"{name}={value!r}" for name, value in came.items())
        raise PrivacyError(f"Expected {expected}, got {shown}. Nothing was sent: ask the others what they received.")


# -- the grid ---------------------------------------------------------------------------------------------------------


def largest_honest(grid: Grid, total: float, sites: int) -> int:
    """The largest absolute value, in grid steps, of a number of a sum of honest sites. Each number exceeds it with a
    probability below e^-800.

    Args:
        grid: of the release.
        total: a bound on the exact sum over all sites, in each coordinate: number of rows times the bound for one row.
        sites: |U|.
    """
    most = ceil(total / grid.step * (1 + 1e-9)) + sites + _TAIL * grid.scale * (isqrt(sites) + 1)
    expect(most < LARGEST_SUM, "sums below 2^62 grid steps: ask for a smaller epsilon, or for fewer rows", steps=most)
    return most


# -- masking and opening ----------------------------------------------------------------------------------------------


@final
class Masks:
    """The secrets of one site under one agreement, and the only way to mask with them.

    Args:
        agreement: of masked sums.
        site: which of its sites this is.
        seed: of this site for this agreement; refused if its public half is not in the agreement.

    Formal guarantees: to anyone without the seeds of both sites of a pair, the pair's masks in different contexts are
    independent uniform words, up to the advantage of telling HKDF, HMAC-SHA256, ChaCha20 and X25519 from ideal ones.
    The same context and value give the same words. Values of all sizes are accepted: NaN counts as 0, and more than
    2^52 steps as 2^52 steps.
    """

    def __init__(self, agreement: Agreement, site: str, seed: Seed) -> None:
        _ = agreement.analysis  # refuses an agreement on anything else
        own = agreement.member(site)
        if own.mask_key is None or not seed.is_of(own.mask_key):
            raise InputError(
                f"Expected the seed of site {site} for this agreement, got another. Give the file that its mask key "
                "was made with: sottovoce site seed."
            )
        self.agreement, self.site, digest = agreement, site, agreement.digest()
        # Functions hold the keys, not attributes: nothing that prints or stores this object can show them.
        self._pairs, self._noise = {}, keyed(seed.noise_key(digest.hex()))
        for name in agreement.key_partners(site):
            other = agreement.member(name)
            assert other.mask_key is not None  # every site of such an agreement has one
            first, second = (own, other) if agreement.index(site) < agreement.index(name) else (other, own)
            self._pairs[name] = keyed(pair_key(seed.secret_with(other.mask_key), digest, first, second))

    def words(self, context: Context, value: Array, past: Past) -> Words:
        """y_i: the site's masked words in this context; refused unless `expect_turn` allows them.

        Args:
            context: its grid is the one that the value is rounded to, its scale that of the noise.
            value: v_i, (numbers,), as computed from rows.
            past: see `expect_turn`.
        """
        expect_turn(self.agreement, self.site, context, past)
        expect(value.shape == (context.numbers,), f"a value of shape ({context.numbers},)", shape=value.shape)
        expect(context.scale >= 2**GRID_BITS, f"noise of at least 2^{GRID_BITS} grid steps", scale=context.scale)
        steps = on_grid(value, context.grid)
        label = encode_fields(
            _NOISE, VERSION, context.to_bytes(), float(context.grid), int(context.scale), value_digest(steps)
        )  # fmt: skip
        noisy = steps + discrete_gaussian(self._noise(label), context.scale, context.numbers)
        return noisy.view(np.uint64) + self._mask(context)

    def order(self, rows: int) -> Ints:
        """The order of this site's rows, by which some are held out. It stays the same for the whole run."""
        return shuffled(self._noise(encode_fields(_ORDER, VERSION, rows)), rows)

    def _mask(self, context: Context) -> Words:
        """The sum of the masks that this site shares with others of U: added for sites after it in the agreement,
        subtracted for sites before it.
        """
        label, own = encode_fields(_MASK, context.to_bytes()), self.agreement.index(self.site)
        total = np.zeros(context.numbers, dtype=np.uint64)
        for name in context.members:
            if name not in self._pairs:
                continue
            mask = self._pairs[name](label).take(context.numbers)
            total = total + mask if self.agreement.index(name) > own else total - mask
        return total

    def __repr__(self) -> str:
        return f"Masks(site={self.site!r})"

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        raise PrivacyError("Expected masks that stay in their process, got some to be pickled or copied. Make others.")


def pair_key(secret: bytes, agreement: bytes, first: Member, second: Member) -> bytes:
    """k_ij: the key of two sites, from their X25519 secret. It is bound to the agreement's digest and, in the order of
    the agreement, to both sites with all their keys.
    """
    ends: list[bytes | str] = []
    for end in (first, second):
        ends += [end.name, b"" if end.mask_key is None else end.mask_key.raw, end.public_key.raw]
    return hkdf(secret, _PAIR, agreement, *ends)


def open_sum(context: Context, said: Mapping[str, Words], most: int) -> Ints:
    """S, in grid steps: the signed sum of the words of all sites of U.

    Args:
        context: in which the words were made.
        said: the words by site, of all of U and of no other site.
        most: the largest absolute value of an honest sum, see `largest_honest`.

    Raises:
        SpoiledError: honest sites cannot have made this sum. A site does not keep to the agreement, or heard other
            messages than the rest; which site it was cannot be seen from a sum.
    """
    expect(set(said) == set(context.members), "the words of all who take part", sites=sorted(said)[:9])
    total = np.zeros(context.numbers, dtype=np.uint64)
    for name in context.members:
        expect(said[name].shape == total.shape, f"{context.numbers} words of site {name}", shape=said[name].shape)
        total = total + said[name]
    steps: Ints = total.view(np.int64)
    # Compared on both sides, since the absolute value of -2^63 does not fit into 64 bits.
    beyond = int(((steps > most) | (steps < -most)).sum())
    if beyond:
        raise SpoiledError(
            f"Expected a sum of at most {most} grid steps in size in release={context.turn.release}, "
            f"attempt={context.turn.attempt}, got {beyond} of {context.numbers} numbers beyond it. A member has spoilt "
            "it, or sites were told different things; what was learnt before it stands."
        )
    return steps


def from_steps(steps: Ints, grid: float) -> Floats:
    """A sum in the units of its terms. Above 2^53 steps it is rounded, to the same number at all sites."""
    return steps.astype(np.float64) * grid
