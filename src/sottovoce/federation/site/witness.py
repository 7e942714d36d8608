"""What a site knows of everyone's words, directly or by hearsay, and what follows from it.

A relay may show one site what it hides from another, and a member may sign two different messages of one round. So
every message carries its sender's testimony: of every site, the last round that the sender knows of, and the digest of
its message in that round. News travels one edge per round. Neighbours' distances to a third site differ by one at
most, so two testimonies about it soon speak of the same round: if they then differ, somebody was told something else,
and the sites that see it name it and stop.

From testimonies a site also learns at once that a neighbour goes on without it, who else was left, and, if some were,
whether the rest are still connected: of a site k edges away the news is k rounds old.
"""

import hashlib
import struct
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import final

from sottovoce.federation.agreement.agreement import Agreement
from sottovoce.federation.site.letters import Sighting, Testimony, pack_testimony, unpack_testimony
from sottovoce.federation.site.stops import (
    DamagedError,
    ForkedError,
    LeftBehindError,
    LostNeighbourError,
    UsedTwiceError,
)
from sottovoce.federation.transport.wire import DIGEST_BYTES

REMEMBERED = 4  # rounds of everyone: neighbours' knowledge of a third site is at most two rounds apart
_LENGTHS, _CHAIN = struct.Struct("<III"), b"sottovoce chain v1\0"
_GIVEN_UP = b"sottovoce sum given up v1\0"


@final
@dataclass(frozen=True)
class Witness:
    """What a site knows after a round. A new one is made by every round.

    Args:
        chain: a digest of all that was ever heard, and of who was missing. The next noise is bound to it.
        testimonies: the last few, newest first: what this site knew of everyone after each round.
        bindings: of the sites, as first heard; empty where nothing was.
    """

    chain: bytes
    testimonies: tuple[Testimony, ...]
    bindings: tuple[bytes, ...]

    @classmethod
    def start(cls, agreement: Agreement) -> "Witness":
        """Before round 1."""
        sites = len(agreement.sites)
        return cls(agreement.digest(), ((Sighting(),) * sites,), (b"",) * sites)

    @property
    def testimony(self) -> Testimony:
        """What goes into the next message."""
        return self.testimonies[0]

    def gone(self, agreement: Agreement) -> frozenset[str]:
        """Whom somebody goes on without."""
        return frozenset(n for n, s in zip(agreement.names, self.testimony, strict=True) if s.gone)

    # -- one round ----------------------------------------------------------------------------------------------------

    def check(self, agreement: Agreement, site: str, sender: str, told: Testimony) -> None:
        """Stop if what a neighbour testifies does not fit what we know.

        Args:
            agreement: whose sites these are.
            site: who we are.
            sender: the neighbour.
            told: its testimony.

        Raises:
            LeftBehindError: it goes on without us.
            UsedTwiceError: it has heard something else of us than we said.
            ForkedError: it was told something else by a third site than we were.
        """
        mine = told[agreement.index(site)]
        # First of all: whoever was left must say nothing more, whatever else does not fit.
        if mine.left:
            raise left_behind(site, sender, mine.round + 1)
        for name, sighting in zip(agreement.names, told, strict=True):
            # Only rounds that we remember ourselves can be compared.
            known = self._known(agreement.index(name), sighting.round)
            if known is None or known == sighting.digest:
                continue
            if name == site:
                raise UsedTwiceError(
                    f"Expected site={sender!r} to have heard what we said in round={sighting.round}, got another "
                    f"message in our name. Another process runs with this key, or {sender} does not tell the truth. "
                    "Find out which before going on."
                )
            raise ForkedError(
                f"Expected site={name!r} to tell everyone the same in round={sighting.round}, got one message of it "
                f"here and another at site={sender!r}. {name}, {sender}, or one of those who passed it on does not "
                "keep to the agreement. Do not use this run's model; ask them."
            )

    def _known(self, i: int, k: int) -> bytes | None:
        """The digest of a site's message of round k, if it is remembered."""
        return next((t[i].digest for t in self.testimonies if t[i].round == k), None) if k > 0 else None

    def after(
        self,
        agreement: Agreement,
        k: int,
        said: Mapping[str, bytes],
        told: Mapping[str, Testimony],
        left: Mapping[str, int],
    ) -> "Witness":
        """What is known after round k.

        Args:
            agreement: whose sites these are.
            k: the round.
            said: digests of the messages of round k that were heard, this site's own among them.
            told: the neighbours' testimonies in these messages.
            left: neighbours that this site goes on without.
        """
        best = list(self.testimony)
        for testimony in told.values():
            best = [_newer(ours, theirs) for ours, theirs in zip(best, testimony, strict=True)]
        for name, digest in said.items():
            i = agreement.index(name)
            best[i] = best[i]._replace(round=k, digest=digest)
        for name in left:
            i = agreement.index(name)
            best[i] = best[i]._replace(gone=True, left=True)
        newest = tuple(best)
        heard = (said.get(name, bytes(DIGEST_BYTES)) for name in agreement.names)
        # All parts have a fixed length, so no two histories have the same bytes.
        link = b"".join((_CHAIN, self.chain, struct.pack("<Q", k), pack_testimony(newest), *heard))
        testimonies = newest, *self.testimonies[: REMEMBERED - 1]
        return replace(self, chain=hashlib.sha256(link).digest(), testimonies=testimonies)

    def given_up(self, agreement: Agreement, k: int, said: Mapping[str, bytes], left: Mapping[str, int]) -> "Witness":
        """What is known after a sum that was given up. Not everyone has heard the same words for it, or has spoken, so
        these are remembered, for whoever asks, and are no part of the chain; who was left is.
        """
        known = list(self.testimony)
        for name, digest in said.items():
            known[agreement.index(name)] = Sighting(k, digest)
        gone = [name in left for name in agreement.names]
        newest = tuple(s._replace(gone=g or s.gone, left=g or s.left) for s, g in zip(known, gone, strict=True))
        link = b"".join((_GIVEN_UP, self.chain, struct.pack("<Q", k), bytes(gone)))
        testimonies = newest, *self.testimonies[: REMEMBERED - 1]
        return replace(self, chain=hashlib.sha256(link).digest(), testimonies=testimonies)

    def with_binding(self, agreement: Agreement, name: str, binding: bytes) -> "Witness":
        """The same, with a site's binding, which is remembered from its first message on."""
        i = agreement.index(name)
        return replace(self, bindings=(*self.bindings[:i], binding, *self.bindings[i + 1 :]))

    def binding_of(self, agreement: Agreement, name: str) -> bytes | None:
        """What a site has bound itself to, if it has been heard."""
        return self.bindings[agreement.index(name)] or None

    def refuse_torn(self, agreement: Agreement, site: str, k: int) -> None:
        """Stop if some were left and the rest is not connected any more: a relay could split a federation in this way.

        In a connected federation news of a site travels one edge per round. A site whose news still comes at this pace
        has not gone, whatever others say: otherwise one bad site could stop all.
        """
        full = distances(agreement, site, frozenset())
        told = zip(agreement.names, self.testimony, strict=True)
        # Left by ourselves, or said to be gone and indeed silent for longer than its distance explains.
        gone = frozenset(name for name, s in told if s.left or (s.gone and s.round < k - full[name]))
        if not gone:
            return
        away = distances(agreement, site, gone)
        late = [
            name
            for name, sighting in zip(agreement.names, self.testimony, strict=True)
            if name not in gone and name != site and (name not in away or sighting.round < k - away[name])
        ]
        if late or len(gone) >= len(agreement.sites) - 1:
            raise LostNeighbourError(
                f"Expected those who are left to be connected, got no news of {', '.join(late) or 'anyone'} in "
                f"round={k} while the run goes on without {', '.join(sorted(gone))}: site={site!r} is cut off from "
                "others. When they are back, run the same command again."
            )

    # -- as bytes -----------------------------------------------------------------------------------------------------

    def dumps(self) -> bytes:
        """As bytes, for the journal: lengths, chain, testimonies, bindings."""
        held, bound = b"".join(map(pack_testimony, self.testimonies)), [b or bytes(DIGEST_BYTES) for b in self.bindings]
        lengths = _LENGTHS.pack(len(self.bindings), len(self.testimonies), len(held))
        return b"".join((lengths, self.chain, held, *bound))

    @classmethod
    def loads(cls, data: bytes, agreement: Agreement) -> "Witness":
        """From the journal's bytes; `DamagedError` if they are another federation's, or none."""
        try:
            sites, count, size = _LENGTHS.unpack_from(data)
            start = _LENGTHS.size + DIGEST_BYTES
            told = unpack_testimony(data[start : start + size])
            ends = data[start + size :]
            if sites != len(agreement.sites) or len(told) != sites * count or len(ends) != sites * DIGEST_BYTES:
                raise ValueError("it is of another federation")
        except (ValueError, struct.error) as error:
            raise DamagedError(f"Expected what was heard in the journal, got other bytes: {error}.") from error
        bound = (ends[i : i + DIGEST_BYTES] for i in range(0, len(ends), DIGEST_BYTES))
        return cls(
            data[_LENGTHS.size : start],
            tuple(told[i : i + sites] for i in range(0, len(told), sites)),
            tuple(b if any(b) else b"" for b in bound),
        )


def _newer(ours: Sighting, theirs: Sighting) -> Sighting:
    """The later of two sightings of one site. That it is gone is hearsay and spreads; that it was left is one's own."""
    newest = theirs if theirs.round > ours.round else ours
    return newest._replace(gone=ours.gone or theirs.gone, left=ours.left)


def left_behind(site: str, sender: str, k: int) -> LeftBehindError:
    """The error of a site whose neighbour `sender` goes on without it since round k."""
    return LeftBehindError(
        f"Expected to take part until the end, got word from site={sender!r} that it goes on without site={site!r} "
        f"since round={k}: we were silent for too long. The others finish the run."
    )


def distances(agreement: Agreement, site: str, gone: frozenset[str]) -> dict[str, int]:
    """How many edges away everyone is who can be reached without those who are gone."""
    away, todo = {site: 0}, [site]
    for name in todo:
        for other in agreement.neighbours(name):
            if other not in gone and other not in away:
                away[other] = away[name] + 1
                todo.append(other)
    return away
