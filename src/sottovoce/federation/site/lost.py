"""Losing a site for good, where only sums over all are read: everyone's words of a sum, or who goes on without whom.

A masked sum needs the words of all of U. If one of them stays away, those who are left give the sum up and make it
again without it, all of them or none. V_i is the set of sites that site i would go on without. It is written down and
told in signed notices, it only grows, and it ends with the turn. A site

    completes    the sum, if it has everyone's words and V_i is empty,
    gives up     the sum, and drops V_i, if everyone outside of V_i has said that it would go on without all of V_i,
    follows      a site j outside of V_i that did either, as j's next message shows; whom j dropped must be in V_i.

A turn has two parts, and all of this holds in both. Nobody speaks for a sum before its proposer has said where it is
taken (`summing.proposer`). A site that waits for that has said nothing, and may give the sum up like any other. If the
proposal comes after all, it speaks, whatever V_i is: without its words nobody could complete the sum. So of a sum that
is given up some may have spoken for it and others not, and nothing that was said for it counts (`Witness.given_up`).

The message behind the last sum holds no words. By it a site that has completed that sum says so, with a digest of all
that it has heard, once it is written down; and it is done only when u sites in all have said the same (`confirm`).

Formal guarantees: two honest sites of which neither drops the other, and which follow honest ones only, end a turn
alike. Let i drop D = V_i and k drop E = V_k, i outside of E and k outside of D. i has heard k, so V_k holds D; k has
heard i, so V_i holds E; so D = E. If k has completed the sum, V_k is empty and holds no D. Whoever follows an honest j
does so outside of its own V, so nobody who heard it could have dropped j, and the same holds of j. An honest j that
drops E has heard from i that V_i holds E, so i loses nothing by asking for it; and whatever a bad j shows, i drops
nobody that it has not given up on itself. A bad j can part those who follow it from the others. Then they speak in
different contexts, and stop: in the next turn, or at the end.

At most c sites being bad, all honest sites that finish do so with the same model, whomever they followed. One that
finishes has u sites that hold the same last sum after the same words. Two sets of u share more than c, as
2 u > n + c, so an honest one; and that holds one sum for good, as it was on its disk before it said so.

It may not end: sites that suspect different ones, and of which each was suspected by somebody, wait for each other and
stop. That takes several who are late by about the agreed time in one turn, or a relay that wants it.

None of this is needed for privacy: sites that end a turn differently speak in different contexts next, and nothing
opens (docs/proofs/masked.md). What a sum costs that is made again was paid for beforehand.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import TYPE_CHECKING, Generic, NamedTuple, TypeAlias, TypeVar, cast, final

import numpy as np

from sottovoce.errors import SottovoceError
from sottovoce.federation.site.absent import Policy, Silence
from sottovoce.federation.site.board import Board
from sottovoce.federation.site.events import Waiting
from sottovoce.federation.site.letters import Heading, Point, SumWords
from sottovoce.federation.site.mail import Answer, Letter, Mail
from sottovoce.federation.site.masks import Turn, members_digest
from sottovoce.federation.site.stops import ForkedError, LostNeighbourError
from sottovoce.federation.site.witness import Witness, left_behind
from sottovoce.federation.transport.wire import DIGEST_BYTES, BadMessageError, Kind, Slot

if TYPE_CHECKING:
    from sottovoce.federation.site.seat import Seat

T = TypeVar("T")
Hearing: TypeAlias = Callable[[Collection[str]], Awaitable[dict[str, Answer[T]]]]


class Settled(NamedTuple, Generic[T]):
    """How a turn, or its first part, ended: with what was awaited, or with those whom it goes on without. What was said
    is that of others; if somebody was dropped, of those who are left, as far as it was heard.
    """

    letters: dict[str, T]
    dropped: frozenset[str]


class Hands(NamedTuple, Generic[T]):
    """What a turn needs of the process that it is a part of."""

    hear: Hearing[T]  # asks these once for their words, or their proposals
    ask: Callable[
        [frozenset[str]], Awaitable[None]
    ]  # asks all but these what they last heard of us, if it was not done
    dropped: Callable[[str], None]  # tells whoever watches


def end_of_run(seat: "Seat", witness: Witness) -> SumWords:
    """What a site says, where the message behind the last sum would be: that it holds this sum, after just these words
    of everyone, and will not make it again. It is made of no row.
    """
    t = seat.journal.round + 1
    members, notices = members_digest(seat.members(t)), seat.notices(t)
    heading = Heading(*seat.turn(t), members, notices, witness.chain, bytes(DIGEST_BYTES))
    return SumWords(np.zeros(0, dtype=np.uint64), heading, seat.binding, witness.testimony)


async def confirm(
    seat: "Seat", witness: Witness, mail: Mail, board: Board, policy: Policy, hear: Hearing[Letter]
) -> None:
    """Say that this site holds the run's last sum, and wait until u sites, itself among them, have said the same.

    Args:
        seat: the site, which has taken in the last sum.
        witness: all that it has heard until then.
        mail: how it speaks.
        board: what others say of the run.
        policy: how long the silent are waited for.
        hear: asks these once how the last sum ended for them.

    Raises:
        LeftBehindError: the others have made the sum again without this site.
        ForkedError: others hold another sum, and too few hold this one.
        LostNeighbourError: too few have spoken.
    """
    t, clock, ours = seat.journal.round, asyncio.get_running_loop().time, end_of_run(seat, witness)
    least = seat.agreement.analysis.members(len(seat.agreement.sites))
    # On the disk before it is said: a process that had forgotten it could vote to make the sum again.
    seat.journal.settle()
    place = mail.slot(t + 1, seat.site)
    await mail.deliver(place, mail.seal(place, ours.to_bytes()))
    ends = {seat.site: ours.heading}
    silences = {name: Silence() for name in seat.members(t) if name != seat.site}
    while (same := sum(end == ours.heading for end in ends.values())) < least:
        refuse_left_behind(seat, board, t)
        began = clock()
        answers = await hear(silences)
        for name, answer in answers.items():
            if answer.content is None:
                silences[name].add(clock() - began, answer)
            else:
                ends[name] = cast(SumWords, answer.content.words).heading
                del silences[name]
        if silences:
            mail.watcher.tell(Waiting(t, {name: silence.total for name, silence in silences.items()}))
        late = await policy.late(t, silences, silences.keys()) if silences else []
        same = sum(end == ours.heading for end in ends.values())
        if same + len(silences) - len(late) < least:
            raise _not_confirmed(seat, {n for n, end in ends.items() if end != ours.heading}, set(late), same, least)


def open_end(seat: "Seat", mail: Mail, slot: Slot, data: bytes) -> Letter:
    """What a site says behind the last sum, or `BadMessageError`; stops if it goes on without this one instead."""
    try:
        return mail.open_letter(slot, data)
    except BadMessageError:
        # Words for a sum that is made again are longer.
        words = mail.open_letter(slot, data, seat.turn(slot.number).release - 1).words
        if words.testimony[seat.agreement.index(seat.site)].left:
            raise left_behind(seat.site, slot.site, slot.number - 1) from None
        raise


def _not_confirmed(seat: "Seat", parted: set[str], late: set[str], same: int, least: int) -> SottovoceError:
    """Why a site that holds the last sum does not finish: some hold another, or too few have spoken."""
    expected = (
        f"Expected word from at least {least} sites that they hold the same last sum, in round={seat.journal.round}"
    )
    if parted:
        return ForkedError(
            f"{expected}, got it from {same}, and from {', '.join(sorted(parted))} that they hold one of another "
            "transcript. They, this site, or somebody whom both heard was told something else, or does not keep to the "
            "agreement. Do not use this run's model; ask them."
        )
    return LostNeighbourError(
        f"{expected}, got it from {same}, and nothing from {', '.join(sorted(late))}. Without it, they may have made "
        f"the sum again without site={seat.site!r}, and end with another model. When they are back, or the server "
        "shows what they said, run the same command again."
    )


def answered(seat: "Seat", t: int, found: Collection[str], silences: Mapping[str, Silence]) -> bool:
    """Whether a site may say its words of sum t though some have not answered what they last heard of it: where it may
    be gone on without them, and as many as a sum needs have answered.

    Half of the agreed time is left for its words: those who answered wait for them. Nobody is dropped for not
    answering; and no sum opens twice because somebody was not asked, as every other site speaks in one context of it
    only (docs/proofs/masked.md). So what may be missed is what the silent alone know of the site's books.
    """
    lost = seat.agreement.lost_neighbour
    if not (seat.drops and t > (lost.go_on_after_round or 0)):
        return False
    least = seat.agreement.analysis.members(len(seat.agreement.sites))
    # Without an attempt to spare, words that nobody can add up would be paid for.
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
            # As many as a sum needs: fewer cannot go on, whatever they say.
            enough = seat.site in without and len(left) >= least
            if enough and all(board.votes_of(k, other) >= without for other in left):
                raise left_behind(seat.site, name, k)


@final
class Gathering(Generic[T]):
    """One turn of one site, or the first part of it: what it has heard, and what has become of those who are silent.

    Args:
        seat: the site.
        t: the number of the message whose sum is to be read.
        mail, board, policy: how it hears, what others say of the run, and how long the silent are waited for.
        hands: see there.
        seconds: between two looks.
        proposers: in the first part, whose proposals are awaited; None in the second, where everyone's words are.
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
        self.complete = False  # somebody has completed the sum, and is followed
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
        """Whom the site has decided to go on without; after a crash, the process before it."""
        return frozenset(name for name, k in self.seat.journal.absent.items() if k == self.t)

    async def _settled(self) -> Settled[T] | None:
        refuse_left_behind(self.seat, self.board, self.t)
        if not self._dropped and self.votes and not self.complete:
            await self._follow()
        if not self._dropped and self.votes and not self.complete and self._all_agree():
            self._give_up(self.votes)
        dropped = self._dropped
        if dropped or (not self._awaited() and (self.proposers is not None or self.complete or not self.votes)):
            wanted = self.letters.keys() - dropped
            return Settled({name: self.letters[name] for name in self.seat.agreement.names if name in wanted}, dropped)
        return None

    def _all_agree(self) -> bool:
        """Whether all who would be left have said that they go on without all of V."""
        return all(self.board.votes_of(self.t, name) >= self.votes for name in self._left())

    def _left(self) -> frozenset[str]:
        """The others outside of V."""
        return self.members - self.votes - {self.site}

    def _give_up(self, without: frozenset[str]) -> None:
        """The sum is made again without these: written down before anything is said that shows it."""
        self.seat.journal.drop(self.t, *sorted(without))
        self.board.ignore(without)
        for name in sorted(without):
            self.hands.dropped(name)

    async def _follow(self) -> None:
        """Do as somebody outside of V has done, whose next message is there."""
        for name in sorted(self._left()):
            ended = await self._end_of(name)
            # An honest site that drops somebody has heard that we would: nobody else is dropped on one site's word.
            if ended is None or not ended <= self.votes:
                continue
            if ended:
                self._give_up(ended)
            self.complete = not ended
            return

    async def _end_of(self, name: str) -> frozenset[str] | None:
        """How a site has ended this turn: whom it dropped, nobody if it completed the sum; None if it is not shown."""
        turn = self.seat.turn(self.t)
        for slot in (self.mail.slot(self.t + 1, name), Slot(self.t + 1, name, Kind.POINT)):
            data = await self.mail.look(slot)
            # Which of the two it is for is what we want to know; messages for different releases may differ in length.
            for release in (turn.release + 1, turn.release) if data is not None else ():
                try:
                    return self._end_in(name, self._opened(slot, cast(bytes, data), release), turn)
                except BadMessageError:
                    continue
        return None

    def _opened(self, slot: Slot, data: bytes, release: int) -> SumWords | Point:
        """What a site says or proposes for the next turn, if it is for this release."""
        if slot.kind is Kind.POINT:
            return self.mail.open_point(slot, data, release)
        return cast(SumWords, self.mail.open_letter(slot, data, release).words)

    def _end_in(self, name: str, words: SumWords | Point, turn: Turn) -> frozenset[str] | None:
        """How a site has ended the turn, by its message for the next one."""
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
        """Whose words of this sum, or whose proposals for it, are still missing."""
        if self.proposers is not None:
            return self.proposers - self.letters.keys() - {self.site}
        return self.members - (frozenset() if self.complete else self.votes) - self.letters.keys() - {self.site}

    def _undecided(self) -> frozenset[str]:
        """Whose word is missing on those that this site would go on without."""
        if self._dropped or self.complete or not self.votes:
            return frozenset()
        return frozenset(n for n in self._left() if not self.board.votes_of(self.t, n) >= self.votes)

    async def _listen(self) -> None:
        """For one slice of time, or until there is news; then the policy judges those who are silent."""
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
                self._silences.pop(name, None)  # a sign of life: for its vote it has as long again
        # A proposal is taken also of a site that this one would go on without: nothing more hangs on when it comes.
        silent = (self._awaited() - (frozenset() if self.complete else self.votes)) | self._undecided()
        self._silences = {name: self._silences.get(name, Silence()) for name in sorted(silent)}
        for name, silence in self._silences.items():
            # By the clock: news comes early, and often.
            silence.add(min(clock() - began, self.seconds), answers.get(name, Answer(None)))
        self.board.check()
        if self._silences:
            self.mail.watcher.tell(Waiting(self.t, {name: s.total for name, s in self._silences.items()}))
            late = await self.policy.lost(self.t, self._silences, self._undecided() - self._awaited())
            if late:
                await self._lose(frozenset(late))

    async def _lose(self, late: frozenset[str]) -> None:
        """Say that the site would go on without these too; or stop, before that is written down."""
        if self.complete:
            self._refuse_hidden(late)
        self._refuse_too_few(late)
        # Whoever is silent may have heard more of us than we know. Those with whom we would go on are asked first.
        await self.hands.ask(self.votes | late)
        refuse_left_behind(self.seat, self.board, self.t)
        self.seat.journal.vote(self.t, *sorted(late))
        self.votes |= late
        self._silences = {}  # the others have as long to say what they think of it
        for name in sorted(late):
            await self.board.tell_vote(self.t, name)

    def _refuse_hidden(self, late: frozenset[str]) -> None:
        raise LostNeighbourError(
            f"Expected the words of {', '.join(sorted(late))} in round={self.t}, which others have read, got none: the "
            "server keeps them from this site. When it shows them, run the same command again."
        )

    def _refuse_too_few(self, late: frozenset[str]) -> None:
        """Stop if the sum may not be made again, or not with so few. What was learnt stands."""
        away, turn = self.votes | late, self.seat.turn(self.t)
        spare, left = self.seat.agreement.analysis.spare, len(self.members - away)
        if left >= self.least and turn.attempt < spare:
            return
        limit = (
            f"all {spare} spare attempts are used up"
            if turn.attempt >= spare
            else f"without them {left} sites would be left of the {self.least} that every sum must hold"
        )
        raise LostNeighbourError(
            f"Expected word from {', '.join(sorted(away))} for sum {turn.release} of "
            f"{self.seat.agreement.algorithm.rounds}, in round={self.t}, got none, and {limit}. What was learnt from "
            f"{turn.release - 1} sums stands. When they are back, run the same command again: the state folder keeps "
            "the seed for it."
        )
