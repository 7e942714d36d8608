"""Losing a site in a run of masked sums: collecting the words of all sites, or agreeing whom to go on without.

A masked sum needs the words of all of U. If one of these sites stays silent, the others give the sum up and repeat it
without that site, all of them or none. V_i is the set of sites that site i would go on without. It is written to the
journal and told in signed notices, it only grows, and it ends with the turn. A site

    completes    the sum, if it has everyone's words and V_i is empty,
    gives up     the sum, and drops V_i, if everyone outside of V_i has said that it would go on without all of V_i,
    follows      a site j outside of V_i that did either, as j's next message shows; whom j dropped must be in V_i.

A turn has two parts, and all of this holds in both. No site sends words for a sum before its proposer has named the
point (`summing.proposer`). A site that waits for the proposal has sent nothing, and may give the sum up like any other.
If the proposal comes after all, it sends its words, whatever V_i is: without them nobody could complete the sum. So for
a sum that is given up, some sites may have sent words and others not, and none of these words count
(`Witness.given_up`).

Formal guarantees: two honest sites of which neither drops the other, and which follow honest ones only, end a turn
alike. Let i drop D = V_i and k drop E = V_k, i outside of E and k outside of D. i has heard k, so V_k holds D; k has
heard i, so V_i holds E; so D = E. If k has completed the sum, V_k is empty and holds no D. Whoever follows an honest j
does so outside of its own V, so nobody who heard it could have dropped j, and the same holds of j. An honest j that
drops E has heard from i that V_i holds E, so i loses nothing by asking for it; and whatever a bad j shows, i drops
nobody that it has not given up on itself. A bad j can part those who follow it from the others. Then they speak in
different contexts, and stop: in the next turn, or at the end.

How sites that finish make sure that they hold the same model is in `confirmation`.

The run may not finish: sites that suspect different ones, and each of which is suspected by some site, wait for each
other and stop. That takes several sites that are late by about the agreed time in one turn, or a malicious relay.

Privacy does not depend on any of this: sites that end a turn differently mask in different contexts next, and nothing
opens (docs/proofs/masked.md). The cost of repeating a sum was paid beforehand.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import TYPE_CHECKING, Generic, NamedTuple, TypeVar, cast, final

from sottovoce.federation.site.absent import Policy, Silence
from sottovoce.federation.site.board import Board
from sottovoce.federation.site.events import Waiting
from sottovoce.federation.site.letters import Point, SumWords
from sottovoce.federation.site.mail import Mail, Reply
from sottovoce.federation.site.masks import Turn, members_digest
from sottovoce.federation.site.part import Hearing
from sottovoce.federation.site.stops import LostNeighbourError
from sottovoce.federation.site.witness import left_behind
from sottovoce.federation.transport.wire import BadMessageError, Kind, Slot

if TYPE_CHECKING:
    from sottovoce.federation.site.seat import Seat

T = TypeVar("T")


class Settled(NamedTuple, Generic[T]):
    """How a turn, or its first part, ended: with all letters that were awaited, or with the sites that were dropped.
    `letters` are those of other sites. If sites were dropped, they are those of the remaining ones that have come.
    """

    letters: dict[str, T]
    dropped: frozenset[str]


class Hands(NamedTuple, Generic[T]):
    """The functions of the running process that a turn calls."""

    hear: Hearing[T]  # asks these sites once for their words, or their proposals
    # Asks all sites but these what they last heard of this one, unless the process has done so.
    ask: Callable[[frozenset[str]], Awaitable[None]]
    dropped: Callable[[str], None]  # tells the watchers


def answered(seat: "Seat", t: int, found: Collection[str], silences: Mapping[str, Silence]) -> bool:
    """True if a site may send its words for sum t though some sites have not answered what they last heard of it. It
    may if sites can be dropped, and as many as a sum needs have answered.

    Half of the agreed time is left for its words, since the sites that answered wait for them. No site is dropped for
    not answering. And no sum opens twice because a site was not asked, as every other site masks in one context of it
    only (docs/proofs/masked.md). So all that may be missed is what only the silent sites know of this site's books.
    """
    lost = seat.agreement.lost_neighbour
    if not (seat.drops and t > (lost.go_on_after_round or 0)):
        return False
    least = seat.agreement.analysis.members(len(seat.agreement.sites))
    # Without a spare attempt, the site would pay for words that may never open.
    enough = 1 + len(found) >= least and seat.turn(t).attempt < seat.agreement.analysis.spare
    return enough and all(silence.seconds >= lost.wait_seconds / 2 for silence in silences.values())


def refuse_left_behind(seat: "Seat", board: Board, t: int) -> None:
    """Stop if the others have given up sum t, or the one before it, and go on without this site."""
    least = seat.agreement.analysis.members(len(seat.agreement.sites))
    for k in (t - 1, t):
        members = frozenset(seat.members(k))
        for name in members - {seat.site}:
            without = board.votes_of(k, name)
            left = members - without
            # Fewer sites than a sum needs cannot go on, whatever they say.
            enough = seat.site in without and len(left) >= least
            if enough and all(board.votes_of(k, other) >= without for other in left):
                raise left_behind(seat.site, name, k)


@final
class Gathering(Generic[T]):
    """One turn of one site, or its first part: what the site has heard, and the votes about silent sites.

    Args:
        seat: the site.
        t: the number of the message whose sum is to be read.
        mail, board, policy: read messages, read notices, and say how long silent sites are waited for.
        hands: functions of the process.
        seconds: between two looks.
        proposers: in the first part, the sites whose proposals are awaited; None in the second, which awaits words.
    """

    def __init__(
        self, seat: "Seat", t: int, mail: Mail, board: Board, policy: Policy, hands: Hands[T], seconds: float,
        proposers: frozenset[str] | None = None,
    ) -> None:  # fmt: skip
        self.seat, self.t, self.mail, self.board, self.policy, self.hands = seat, t, mail, board, policy, hands
        self.seconds, self.site = seconds, seat.site
        self.members = frozenset(seat.members(t))  # U
        self.least = seat.agreement.analysis.members(len(seat.agreement.sites))  # u
        self.letters: dict[str, T] = {}
        self.proposers = proposers
        self.votes = seat.journal.votes(t)  # V, of this site
        self.complete = False  # this site follows one that has completed the sum
        self._silences: dict[str, Silence] = {}

    async def settle(self) -> Settled[T]:
        """Listen until the turn ends, or stop."""
        for name in sorted(self.votes):
            await self.board.tell_vote(self.t, name)
        while (outcome := await self._settled()) is None:
            await self._listen()
        return outcome

    # -- how it ends --------------------------------------------------------------------------------------------------

    @property
    def _dropped(self) -> frozenset[str]:
        """The sites that this site has decided to go on without, in this process or an earlier one."""
        return frozenset(name for name, k in self.seat.journal.absent.items() if k == self.t)

    async def _settled(self) -> Settled[T] | None:
        """Follow other sites or give up the sum if this can be decided; the outcome once the turn has ended."""
        refuse_left_behind(self.seat, self.board, self.t)
        if not self._dropped and self.votes and not self.complete:
            await self._follow()
        if not self._dropped and self.votes and not self.complete and not self._undecided():
            self._give_up(self.votes)
        dropped = self._dropped
        if dropped or (not self._awaited() and (self.proposers is not None or self.complete or not self.votes)):
            wanted = self.letters.keys() - dropped
            return Settled({name: self.letters[name] for name in self.seat.agreement.names if name in wanted}, dropped)
        return None

    def _give_up(self, without: frozenset[str]) -> None:
        """Drop these sites. It is in the journal before any message shows it."""
        self.seat.journal.drop(self.t, *sorted(without))
        self.board.ignore(without)
        for name in sorted(without):
            self.hands.dropped(name)

    async def _follow(self) -> None:
        """End the turn as a site outside of V has ended it, if its next message is there."""
        for name in sorted(self.members - self.votes - {self.site}):
            ended = await self._end_of(name)
            # An honest site drops only those that this site has voted to drop: no one site's word drops any other.
            if ended is None or not ended <= self.votes:
                continue
            if ended:
                self._give_up(ended)
            self.complete = not ended
            return

    async def _end_of(self, name: str) -> frozenset[str] | None:
        """The sites that a site has dropped in this turn, none if it completed the sum; None if it has not shown it."""
        turn = self.seat.turn(self.t)
        for slot in (self.mail.slot(self.t + 1, name), Slot(self.t + 1, name, Kind.POINT)):
            data = await self.mail.look(slot)
            if data is None:
                continue
            # The release shows how the turn ended. Messages for different releases may differ in length, so try both.
            for release in (turn.release + 1, turn.release):
                try:
                    if slot.kind is Kind.POINT:
                        return self._end_in(name, self.mail.open_point(slot, data, release), turn)
                    words = self.mail.open_letter(slot, data, release).words
                    return self._end_in(name, cast(SumWords, words), turn)
                except BadMessageError:
                    continue
        return None

    def _end_in(self, name: str, words: SumWords | Point, turn: Turn) -> frozenset[str] | None:
        """The same, from the site's message for the next turn."""
        if words.heading.turn == Turn(turn.release + 1, turn.attempt):
            return frozenset()
        told = zip(self.seat.agreement.names, words.testimony, strict=True)
        dropped = self.members & {other for other, sighting in told if sighting.left}
        left = tuple(other for other in self.seat.agreement.names if other in self.members - dropped)
        sound = words.heading.turn == Turn(turn.release, turn.attempt + 1) and len(left) >= self.least
        if not sound or not dropped or words.heading.members != members_digest(left):
            return None
        if self.site in dropped:
            raise left_behind(self.site, name, self.t)
        return frozenset(dropped)

    # -- listening ----------------------------------------------------------------------------------------------------

    def _awaited(self) -> frozenset[str]:
        """The sites whose words for this sum, or whose proposals for it, are still missing."""
        if self.proposers is not None:
            return self.proposers - self.letters.keys() - {self.site}
        return self.members - (frozenset() if self.complete else self.votes) - self.letters.keys() - {self.site}

    def _undecided(self) -> frozenset[str]:
        """The sites outside of V that have not voted for all of V; none if nothing is to be decided."""
        if self._dropped or self.complete or not self.votes:
            return frozenset()
        left = self.members - self.votes - {self.site}
        return frozenset(name for name in left if not self.board.votes_of(self.t, name) >= self.votes)

    async def _listen(self) -> None:
        """Listen for one slice of time, or until a notice comes; then the policy judges the silent sites."""
        clock = asyncio.get_running_loop().time
        words, began = self._awaited(), clock()
        if words:
            answers = await self.hands.hear(words)
        else:
            await self.board.news(self.seconds)
            answers = {}
        for name, answer in answers.items():
            if answer.content is not None:
                self.letters[name] = answer.content
                self._silences.pop(name, None)  # a sign of life, so its vote has the full time again
        # A proposal counts also from a site in V, so such a site is not judged for its silence again.
        silent = (self._awaited() - (frozenset() if self.complete else self.votes)) | self._undecided()
        self._silences = {name: self._silences.get(name, Silence()) for name in sorted(silent)}
        for name, silence in self._silences.items():
            # Measured by the clock, since a notice may end the slice early.
            silence.add(min(clock() - began, self.seconds), answers.get(name, Reply(None)))
        self.board.check()
        if self._silences:
            self.mail.watcher.tell(Waiting(self.t, {name: s.total for name, s in self._silences.items()}))
            late = await self.policy.lost(self.t, self._silences, self._undecided() - self._awaited())
            if late:
                await self._lose(frozenset(late))

    async def _lose(self, late: frozenset[str]) -> None:
        """Vote to go on without these sites too; or stop, before that is written down."""
        if self.complete:
            raise LostNeighbourError(
                f"Expected the messages of {', '.join(sorted(late))} in round={self.t}, which others have read, got "
                "none: the server keeps them from this site. When it shows them, run the same command again."
            )
        self._refuse_too_few(late)
        # A silent site may know messages of this one that this one does not. So the remaining sites are asked first.
        await self.hands.ask(self.votes | late)
        refuse_left_behind(self.seat, self.board, self.t)
        self.seat.journal.vote(self.t, *sorted(late))
        self.votes |= late
        self._silences = {}  # the others have the full time to vote
        for name in sorted(late):
            await self.board.tell_vote(self.t, name)

    def _refuse_too_few(self, late: frozenset[str]) -> None:
        """Stop if the sum may not be repeated, or not with so few sites. Earlier sums stay valid."""
        away, turn = self.votes | late, self.seat.turn(self.t)
        spare, left = self.seat.agreement.analysis.spare, len(self.members - away)
        if left >= self.least and turn.attempt < spare:
            return
        limit = (
            f"all {spare} spare attempts are used up"
            if turn.attempt >= spare
            else f"without them {left} sites would be left of the {self.least} that every sum must include"
        )
        raise LostNeighbourError(
            f"Expected messages from {', '.join(sorted(away))} for sum {turn.release} of "
            f"{self.seat.agreement.algorithm.rounds}, in round={self.t}, got none, and {limit}. What was learnt from "
            f"{turn.release - 1} sums stands. When they are back, run the same command again: the state folder keeps "
            "the seed for it."
        )
