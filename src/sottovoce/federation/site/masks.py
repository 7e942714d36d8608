"""Masked words: what a site says of its rows where only the sum over all sites may be read.

In release q, of a vector v_i of site i's rows, over a grid g and with j over those of the set U of who takes part that
site i shares a key with (all of them, but in large federations: `Agreement.key_partners`),

    x_i = round(v_i / g) + Z_i                                          Z_i discrete Gaussian of scale s, exactly
    y_i = x_i + sum_{j > i} F(k_ij, ctx) - sum_{j < i} F(k_ij, ctx)      mod 2^64
    everyone:  S = sum_{i in U} y_i mod 2^64, read with its sign, times g

F(k, ctx) are the words of ChaCha20 (zero nonce) under the key HMAC-SHA256(k, ctx), and k_ij comes from both sites'
X25519 secret by HKDF-SHA256. Its label holds the agreement and both ends with all their keys, so even a key that is put
forward by two sites makes two secrets.

`Context` is all that has been said: two sites that were told different things use different masks, and nothing opens.
Noise is a function of the context, of g and s, and of round(v/g) itself, so a site that is set back says the same words
again, and another value gets other noise. What a site may answer for at all is one function, `expect_turn`.
Proofs: docs/proofs/masked.md.
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

# No other use of these keys begins a label like this.
_PAIR, _MASK, _NOISE, _ORDER = "sottovoce pair v1", "sottovoce mask", "sottovoce share", "sottovoce order of rows"
_CONTEXT, _PARTING = "sottovoce context v3", "sottovoce parting v1"
LARGEST_SUM = 2**62  # grid steps, in size; a sum below it is read with the right sign
_TAIL = 40  # standard deviations of a sum's noise that are never seen: their chance is below e^-800


# -- the context ------------------------------------------------------------------------------------------------------


class Turn(NamedTuple):
    """Which sum: the release q, from 1 on, and how many sums of this run were given up before it."""

    release: int
    attempt: int

    def is_behind(self, other: "Turn") -> bool:
        """Whether it comes before the other in release or attempt. Neither ever goes back."""
        return self.release < other.release or self.attempt < other.attempt


class Parting(NamedTuple):
    """A sum that was given up: all who are left have said, of all who were dropped, that they go on without them."""

    number: int  # of the message for that sum
    dropped: tuple[str, ...]
    left: tuple[str, ...]


@final
@dataclass(frozen=True, kw_only=True)
class Context:
    """All that two sites must agree on, bit for bit, for their masks to cancel.

    Args:
        agreement: its digest, 32 bytes.
        turn: which sum of which attempt.
        members: U, who takes part, in the order of the agreement.
        notices: a digest of all notices by which somebody was dropped, 32 bytes; see `notices_digest`.
        transcript: a digest of all sums so far and what they were made of, 32 bytes.
        point: the bits of the public point, as the proposer of this sum has signed them; see `bits`. Empty where there
            is none.
        grid: g, a power of two, from the proposer too.
        scale: s, of the noise of each site, in grid steps; from the proposer too.
        numbers: how many words a message holds.
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
        """Injectively: every field with its kind and length first, and the names behind how many there are."""
        return encode_fields(
            _CONTEXT, self.agreement, *(int(part) for part in self.turn), len(self.members), *self.members,
            self.notices, self.transcript, self.point, float(self.grid), int(self.scale), int(self.numbers),
        )  # fmt: skip

    def digest(self) -> bytes:
        """32 bytes that stand for exactly this context."""
        return sha256(self.to_bytes()).digest()


def members_digest(members: Sequence[str]) -> bytes:
    """32 bytes that stand for U."""
    return sha256(encode_fields(_CONTEXT, *members)).digest()


def notices_digest(partings: Sequence["Parting"]) -> bytes:
    """32 bytes that stand for all notices by which somebody was dropped: who said of whom, and in which turn.

    Of their words, not of their bytes: a notice that is put again, into another mailbox, says the same.
    """
    said = (
        encode_fields(_PARTING, int(p.number), len(p.dropped), *p.dropped, len(p.left), *p.left) for p in partings
    )  # fmt: skip
    return sha256(b"".join(said)).digest()


def bits(point: Array) -> bytes:
    """A point, as it is in a context: every number by its bits."""
    return np.ascontiguousarray(point, dtype="<f8").tobytes()


# -- what a site may answer for ---------------------------------------------------------------------------------------


class Past(NamedTuple):
    """What a site has said in the run when it is asked to speak."""

    said: Turn = Turn(0, 0)  # the last that it has spoken for
    context: bytes = b""  # the digest of the context that it spoke in


def expect_turn(agreement: Agreement, site: str, context: Context, past: Past) -> None:
    """Refuse to speak, unless every rule that the guarantee rests on holds in this site's own view.

    The site is in U, U is within the agreement and holds at least u sites, releases and attempts are as many as were
    paid for, and (release, attempt) only ever rises. For one that it has spoken for there is one context, in which it
    may say the same words again.

    Args:
        agreement: of masked sums.
        site: which this is.
        context: in which it is to speak.
        past: what it has said, from its journal.

    Formal guarantees: whatever a site is told, it speaks for at most `rounds` + `spare` different turns, and for each
    in one context that it is a part of, with at least u sites. Nothing here depends on rows.
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
    _rule(same, f"the one context in which {tuple(past.said)} was spoken for", context=context.digest().hex())


def _rule(kept: bool, expected: str, **came: object) -> None:
    if not kept:
        shown = ", ".join(f"{name}={value!r}" for name, value in came.items())
        raise PrivacyError(f"Expected {expected}, got {shown}. Nothing was said: ask the others what they heard.")


# -- the grid ---------------------------------------------------------------------------------------------------------


def largest_honest(grid: Grid, total: float, sites: int) -> int:
    """The most grid steps, in size, that a number of a sum of honest sites can be, but for a chance below e^-800 each.

    Args:
        grid: of the release.
        total: a bound on the exact sum over all sites, in each coordinate: rows times what one row adds at most.
        sites: |U|.
    """
    most = ceil(total / grid.step * (1 + 1e-9)) + sites + _TAIL * grid.scale * (isqrt(sites) + 1)
    expect(most < LARGEST_SUM, "sums below 2^62 grid steps: ask for a smaller epsilon, or for fewer rows", steps=most)
    return most


# -- speaking and reading ---------------------------------------------------------------------------------------------


@final
class Masks:
    """The secrets of one site under one agreement, and the one way to say something with them.

    Args:
        agreement: of masked sums.
        site: which of its sites this is.
        seed: of this site for this agreement; refused if its public half is not in the agreement.

    Formal guarantees: for all who lack the seed and the other end's, a pair's masks in different contexts are
    independent uniform words, up to what it takes to tell HKDF, HMAC-SHA256, ChaCha20 and X25519 from ideal ones. The
    same context and value give the same words. Values of all sizes are taken: NaN is 0, and what is beyond 2^52 steps
    is 2^52 steps.
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
        others = [agreement.member(name) for name in agreement.key_partners(site)]
        # Functions hold the keys, not attributes: nothing that prints or stores this object can show them.
        self._pairs = {other.name: keyed(self._pair(digest, own, other, seed)) for other in others}
        self._noise = keyed(seed.noise_key(digest.hex()))

    def _pair(self, digest: bytes, own: Member, other: Member, seed: Seed) -> bytes:
        """k_ij: the same at both ends, and a function of who they are."""
        assert other.mask_key is not None  # every site has one, or there would be no such agreement
        first, second = sorted((own, other), key=lambda member: self.agreement.index(member.name))
        return pair_key(seed.secret_with(other.mask_key), digest, first, second)

    def words(self, context: Context, value: Array, past: Past) -> Words:
        """y_i: what the site says in this context, if it may (`expect_turn`).

        Args:
            context: in which it speaks; its grid is the one that the value is rounded to, its scale that of the noise.
            value: v_i, (numbers,), as it was computed from rows.
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
        """The order of this site's rows by which some are held out: the same for the whole run, however often it
        starts.
        """
        return shuffled(self._noise(encode_fields(_ORDER, VERSION, rows)), rows)

    def _mask(self, context: Context) -> Words:
        """The sum of the masks that this site shares with others of U: added for those behind it in the agreement,
        subtracted for those before it.
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
    """The key of two sites, from their X25519 secret: bound to the agreement and, in its order, to both ends with all
    their keys.
    """
    ends = [part for end in (first, second) for part in (end.name, _raw(end), end.public_key.raw)]
    return hkdf(secret, _PAIR, agreement, *ends)


def _raw(member: Member) -> bytes:
    return b"" if member.mask_key is None else member.mask_key.raw


def open_sum(context: Context, said: Mapping[str, Words], most: int) -> Ints:
    """S, in grid steps: what all sites of U have said, summed, with its sign.

    Args:
        context: in which they spoke.
        said: by site, of all of U and of nobody else.
        most: the largest size of an honest sum, see `largest_honest`.

    Raises:
        SpoiledError: no honest sites can have made this sum. Somebody has said something else than was agreed, or was
            told something else; who it was cannot be told from a sum.
    """
    expect(set(said) == set(context.members), "the words of all who take part", sites=sorted(said)[:9])
    total = np.zeros(context.numbers, dtype=np.uint64)
    for name in context.members:
        expect(said[name].shape == total.shape, f"{context.numbers} words of site {name}", shape=said[name].shape)
        total = total + said[name]
    steps: Ints = total.view(np.int64)
    # Compared on both sides: the size of -2^63 is no number of 64 bits.
    beyond = int(((steps > most) | (steps < -most)).sum())
    if beyond:
        raise SpoiledError(
            f"Expected a sum of at most {most} grid steps in size in release={context.turn.release}, "
            f"attempt={context.turn.attempt}, got {beyond} of {context.numbers} numbers beyond it. A member has spoilt "
            "it, or sites were told different things; what was learnt before it stands."
        )
    return steps


def from_steps(steps: Ints, grid: float) -> Floats:
    """A sum in the units of what was summed. Steps beyond 2^53 are rounded, to the same number everywhere."""
    return steps.astype(np.float64) * grid
