"""What a site knows of all sites' messages, directly or by hearsay, and the checks that follow from it.

A relay may show one site a message and hide it from another, and a member may sign two different messages of one round.
So every message carries its sender's testimony: for every site, the last round that the sender knows of, and the digest
of that message. News travels one edge per round. Neighbours' distances to a third site differ by one at most, so two
testimonies about it soon name the same round. If their digests then differ, the two were told different things, and the
sites that see it name the third site and stop.

From testimonies a site also learns that a neighbour goes on without it, which other sites were dropped, and whether the
remaining ones are still connected: news of a site k edges away is k rounds old.
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

REMEMBERED = 4  # rounds: neighbours' knowledge of a third site is at most two rounds apart
_LENGTHS, _CHAIN = struct.Struct("<III"), b"sottovoce chain v1\0"
_GIVEN_UP = b"sottovoce sum given up v1\0"


@final
@dataclass(frozen=True)
class Witness:
    """What a site knows after a round. Every round makes a new one.

    Args:
        chain: a digest of all messages that were heard, and of which were missing. The next noise depends on it.
        testimonies: what this site knew of all sites after each of the last few rounds, newest first.
        bindings: of the sites, as first heard; empty for sites that were not heard.
    """

    chain: bytes
    testimonies: tuple[Testimony, ...]
    bindings: tuple[bytes, ...]

    @classmethod
    def start(cls, agreement: Agreement) -> "Witness":
        """The witness before round 1."""
        sites = len(agreement.sites)
        return cls(agreement.digest(), ((Sighting(),) * sites,), (b"",) * sites)

    @property
    def testimony(self) -> Testimony:
        """The testimony of the next message."""
        return self.testimonies[0]

    # -- one round ----------------------------------------------------------------------------------------------------

    def check(self, agreement: Agreement, site: str, sender: str, told: Testimony) -> None:
        """Stop if a neighbour's testimony contradicts what this site knows.

        Args:
            agreement: of the run.
            site: this site's name.
            sender: the neighbour.
            told: its testimony.

        Raises:
            LeftBehindError: it goes on without this site.
            UsedTwiceError: it has heard another message of this site than was sent.
            ForkedError: it has heard another message of a third site than this site.
        """
        mine = told[agreement.index(site)]
        # Checked first: a site that was dropped must send nothing more, whatever else does not fit.
        if mine.left:
            raise left_behind(site, sender, mine.round + 1)
        for name, sighting in zip(agreement.names, told, strict=True):
            i, k = agreement.index(name), sighting.round
            # Only rounds that this site remembers itself can be compared.
            known = next((t[i].digest for t in self.testimonies if t[i].round == k), None) if k > 0 else None
            if known is None or known == sighting.digest:
                continue
            if name == site:
                raise UsedTwiceError(
                    f"Expected site={sender!r} to have received what we sent in round={sighting.round}, got another "
                    f"message in our name. Another process runs with this key, or {sender} reports something false. "
                    "Find out which before going on."
                )
            raise ForkedError(
                f"Expected site={name!r} to send everyone the same in round={sighting.round}, got one message of it "
                f"here and another at site={sender!r}. {name}, {sender}, or one of those who passed it on does not "
                "keep to the agreement. Do not use this run's model; ask them."
            )

    def after(
        self,
        agreement: Agreement,
        k: int,
        said: Mapping[str, bytes],
        told: Mapping[str, Testimony],
        left: Mapping[str, int],
    ) -> "Witness":
        """What the site knows after round k.

        Args:
            agreement: of the run.
            k: the round.
            said: digests of the messages of round k that were heard, this site's own among them.
            told: the neighbours' testimonies in these messages.
            left: neighbours that this site goes on without.
        """
        best = list(self.testimony)
        for testimony in told.values():
            for i, (ours, theirs) in enumerate(zip(best, testimony, strict=True)):
                newest = theirs if theirs.round > ours.round else ours
                # That a site is gone spreads by hearsay; that it was left is this site's own decision.
                best[i] = newest._replace(gone=ours.gone or theirs.gone, left=ours.left)
        for name, digest in said.items():
            i = agreement.index(name)
            best[i] = best[i]._replace(round=k, digest=digest)
        for name in left:
            i = agreement.index(name)
            best[i] = best[i]._replace(gone=True, left=True)
        heard = (said.get(name, bytes(DIGEST_BYTES)) for name in agreement.names)
        # All parts have a fixed length, so no two histories have the same bytes.
        link = b"".join((_CHAIN, self.chain, struct.pack("<Q", k), pack_testimony(tuple(best)), *heard))
        testimonies = tuple(best), *self.testimonies[: REMEMBERED - 1]
        return replace(self, chain=hashlib.sha256(link).digest(), testimonies=testimonies)

    def given_up(self, agreement: Agreement, k: int, said: Mapping[str, bytes], left: Mapping[str, int]) -> "Witness":
        """What the site knows after a sum that was given up. Sites may have heard different messages for it, so these
        are remembered for answers and testimonies, and not part of the chain; the dropped sites are part of it.
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
        """The same with a site's binding, which is remembered from its first message on."""
        i = agreement.index(name)
        return replace(self, bindings=(*self.bindings[:i], binding, *self.bindings[i + 1 :]))

    def binding_of(self, agreement: Agreement, name: str) -> bytes | None:
        """A site's binding; None if the site has not been heard."""
        return self.bindings[agreement.index(name)] or None

    def refuse_torn(self, agreement: Agreement, site: str, k: int) -> None:
        """Stop if sites were dropped and the remaining ones are no longer connected: a relay could split a federation
        in this way.

        In a connected federation news of a site travels one edge per round. A site whose news still comes at this pace
        is not gone, whatever others say: otherwise one dishonest site could stop all.
        """
        full = distances(agreement, site, frozenset())
        told = zip(agreement.names, self.testimony, strict=True)
        # Dropped by this site, or said to be gone and silent for longer than its distance explains.
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
        """Bytes for the journal: lengths, chain, testimonies, bindings."""
        held, bound = b"".join(map(pack_testimony, self.testimonies)), [b or bytes(DIGEST_BYTES) for b in self.bindings]
        lengths = _LENGTHS.pack(len(self.bindings), len(self.testimonies), len(held))
        return b"".join((lengths, self.chain, held, *bound))

    @classmethod
    def loads(cls, data: bytes, agreement: Agreement) -> "Witness":
        """Read the journal's bytes; `DamagedError` if they are another federation's, or none."""
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


def left_behind(site: str, sender: str, k: int) -> LeftBehindError:
    """The error of a site whose neighbour `sender` has gone on without it since round k."""
    return LeftBehindError(
        f"Expected to take part until the end, got a report of site={sender!r} that it goes on without site={site!r} "
        f"since round={k}: we were silent for too long. The others finish the run."
    )


def distances(agreement: Agreement, site: str, gone: frozenset[str]) -> dict[str, int]:
    """The number of edges to every site that can be reached without those that are gone."""
    away, todo = {site: 0}, [site]
    for name in todo:
        for other in agreement.neighbours(name):
            if other not in gone and other not in away:
                away[other] = away[name] + 1
                todo.append(other)
    return away
