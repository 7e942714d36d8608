"""A site, round by round. The order of things makes sure that a crash can only count too much:

    reserve in the ledger - compute - outbox - bind the message in the ledger - publish
        - collect the neighbours' messages - absorb - checkpoint

Of masked sums, before all of this, one site says where the sum is taken, and the others take its bits (`_agree`).

What comes before a dash is on the disk before what comes after it begins; only a checkpoint waits for the next outbox,
which it is written with. After a crash the last checkpoint is loaded. If the outbox holds the next round, the very same
bytes are sent and the state that goes with them is used. If it does not, the round is computed, under the same
reservation. Noise is a function of all that was heard and of the numbers themselves (`Seat.noise_after`), so what comes
out is what came out before, if it ever did.

A copy of the state folder that is put back, or a second one, does not know what was said since. So before a process
says anything that is not in its outbox, it looks into its own mailbox: what is there, it can only say again. Where
there is nothing, it asks its neighbours what they last heard of it, and waits for their signed answers (`_ask`). A
server that has forgotten our words, or hides them, can then only stop us. With their answers comes what this site has
told them of its books (`heads`), in this run and in others: what its ledger lacks of that must be booked first.

Two folders that begin at the same time for the same rows are told nothing of each other at their start. So neighbours
are asked again before the last words of a run, while all of them still wait for these, and before a run is refused for
its cost: otherwise a ledger that is full would never hear of the other one.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple, TypeAlias, TypeVar, cast, final

import numpy as np

from sottovoce.arrays import Array, Floats
from sottovoce.errors import BudgetError, InputError, SottovoceError, UnsupportedError
from sottovoce.federation.site import events
from sottovoce.federation.site.absent import Policy, Silence, policy_for
from sottovoce.federation.site.board import Board
from sottovoce.federation.site.commitment import one_thread, protocol
from sottovoce.federation.site.events import Watcher
from sottovoce.federation.site.letters import Heading, Heard, Point, Sighting, SumWords, Words, norm_of
from sottovoce.federation.site.lost import (
    Gathering,
    Hands,
    Hearing,
    Outcome,
    answered,
    confirm,
    open_end,
    refuse_left_behind,
)
from sottovoce.federation.site.mail import Answer, Letter, Mail, Pace, refuse_other_rows
from sottovoce.federation.site.masks import Context, Past
from sottovoce.federation.site.seat import Seat, as_message
from sottovoce.federation.site.shown import taken
from sottovoce.federation.site.snapshot import Snapshot, pack_state, unpack_state
from sottovoce.federation.site.stops import (
    BehindError,
    DivergedError,
    ForkedError,
    LostNeighbourError,
    SpoiledError,
    UsedTwiceError,
)
from sottovoce.federation.site.summing import proposer
from sottovoce.federation.site.witness import Witness
from sottovoce.federation.transport.transport import PutOutcome, Transport, UnreachableError
from sottovoce.federation.transport.wire import DIGEST_BYTES, BadMessageError, Kind, Refusal, Slot, books_of, digest_of
from sottovoce.problem.graphs import Inbox
from sottovoce.problem.problem import Answers
from sottovoce.tally.evaluation import Tallied

T = TypeVar("T")
Probe: TypeAlias = Callable[[str, int], None]
# Where a probe is called, in the order of a round. A masked sum has begun once it is known where it is taken. "dropped"
# only happens when a neighbour is.
POINTS = (
    "began", "reserved", "computed", "in outbox", "bound", "published", "dropped", "collected", "absorbed",
    "checkpointed",
)  # fmt: skip
_SLICES = 6  # how often within the agreed time a silent neighbour is judged


@final
@dataclass(frozen=True, eq=False)
class Finished:
    """What a run leaves behind at a site.

    Args:
        model: the mean of the site's own last message and those of its neighbours, (d,). It is made of public messages
            only. On a complete graph it is the consensus, the same everywhere; elsewhere neighbouring sites nearly
            agree.
        own: the site's own last message.
        rounds: how many are done; of masked sums, how many were read.
        absent: neighbours that the site went on without, each with the first round without it.
        state: the algorithm's, after the last round. It must not leave the site.
        tallied: how good the model is, as far as two more sums tell, the same at all sites; None unless that was
            agreed on, and done.
    """

    model: Floats
    own: Floats
    rounds: int
    absent: Mapping[str, int]
    state: Any
    tallied: Tallied | None = None


def result_of(seat: Seat) -> Finished | None:
    """What a run that was finished before has left behind; None if it is not finished."""
    if not seat.over:
        return None
    seat.journal.finish()  # the process before may have been ended after its last round, and before it was wound up
    return _result(seat, seat.last_snapshot())


def so_far(seat: Seat) -> Finished | None:
    """What a run has shown until now, at a site that has stopped; None before there is a model. It is made of messages
    that were paid for: of masked sums the second is the first with a model, of other rounds every one has one.
    """
    done = seat.turn(seat.journal.round + 1).release - 1
    return _result(seat, seat.last_snapshot()) if done >= (2 if seat.masked else 1) else None


def not_asked(names: Iterable[str]) -> str:
    """What goes with a refusal that not everybody was asked about."""
    return (
        f"Not asked whether more was spent on these rows from another folder: {', '.join(names)}. Run the same command "
        "again while they run, to find out."
    )


def no_probe(point: str, k: int) -> None:
    """The probe of a real site: it does nothing."""


async def run_site(
    seat: Seat,
    transport: Transport,
    *,
    watcher: Watcher | None = None,
    probe: Probe = no_probe,
    pace: Pace | None = None,
) -> Finished:
    """Take part in a run, from where the journal stands to the end.

    Args:
        seat: the site, with everything that it has.
        transport: the way to the others. It is not closed.
        watcher: is told what happens.
        probe: called with a name of `POINTS` and the round, whenever that point is reached. For tests, which die there.
        pace: how long single steps may take.

    Raises:
        BudgetError: the run does not fit under the ledger's cap. Nothing was drawn.
        BehindError: the ledger lacks what was spent on these rows.
        DamagedError: ledger and journal cannot be used, or do not belong together.
        LostNeighbourError, LeftBehindError, UsedTwiceError, ForkedError, DivergedError, UnreachableError: see there.
            The site has stopped cleanly.
    """
    told = Watcher() if watcher is None else watcher
    try:
        return await _Run(seat, transport, told, probe, Pace() if pace is None else pace).finish()
    # Cancellation and Ctrl-C too: whoever watches learns that it is over.
    except BaseException as error:
        told.tell(events.end_by(error))
        raise


class _Run:
    """One site's part in one run, in this process. The order within a round is that of the module's first lines."""

    def __init__(self, seat: Seat, transport: Transport, watcher: Watcher, probe: Probe, pace: Pace) -> None:
        self.seat, self.watcher, self.probe, self.pace = seat, watcher, probe, pace
        self.agreement, self.algorithm, self.journal = seat.agreement, seat.agreement.algorithm, seat.journal
        release = lambda t: seat.turn(t).release  # noqa: E731
        self.mail = Mail(
            seat.agreement, seat.site, seat.key, transport, watcher, pace, seat.books.statement, release
        )  # fmt: skip
        self.heard: dict[str, Sighting] = {}  # the last good message of each neighbour, for whoever asks
        self.board = Board(self.mail, self.heard, seat.heads)
        self.asked = False  # whether the neighbours have told this process what they heard of it
        self.last_asked = 0  # the round in which they were last asked

    async def finish(self) -> Finished:
        """Check, catch up, and run all rounds that are left."""
        seat = self.seat
        seat.check_books()
        refused = seat.refused()
        if refused is not None:
            raise await self._told_before(refused)
        after = seat.last_snapshot()
        self.watcher.tell(events.RunBegan(seat.facts(), seat.spending()))
        if not seat.over:
            self.heard |= {name: after.witness.testimony[self.agreement.index(name)] for name in seat.neighbours}
            # Before the first notice is read: what those say who were left no longer counts.
            self.board.ignore(self.journal.absent)
            await self.board.catch_up()
            async with self.board:
                policy = policy_for(self.agreement, seat.site, self.board)
                await policy.begin(self.journal.absent)
                while not seat.done:  # a sum that is given up adds a round
                    after = await self._round(self.journal.round + 1, after, policy)
                if seat.confirms:
                    await self._confirm(after.witness, policy)
        self.journal.finish()
        self.watcher.tell(events.RunFinished(self.algorithm.rounds, self.journal.absent))
        return _result(seat, after)

    # -- one round ----------------------------------------------------------------------------------------------------

    async def _round(self, k: int, before: Snapshot, policy: Policy) -> Snapshot:
        """One round, from local work to the checkpoint."""
        policy.check()
        if self.seat.masked:  # whoever was left behind says nothing more, not even what is in its outbox
            refuse_left_behind(self.seat, self.board, k)
        self.watcher.tell(events.RoundBegan(k))
        context = None
        if self.seat.masked:
            agreed = await self._agree(k, before, policy)
            if agreed is None:
                return self._given_up(k, before, {})
            context, before = agreed.context, replace(before, state=agreed.state)
        self.probe("began", k)
        message, state = await self._release(k, before, policy, context)
        outcome = await self.mail.deliver(self.mail.slot(k, self.seat.site), message)
        self.watcher.tell(events.Published(k, outcome is PutOutcome.ALREADY_THERE))
        self.probe("published", k)
        letters, dropped = await self._collect(k, before.witness, policy)
        self.probe("collected", k)
        if dropped:
            return self._given_up(k, before, {self.seat.site: digest_of(message)} | _digests(letters))
        # Read back from the bytes that were sent: after a crash these are all there is, and the numbers are the same.
        own = self.mail.open_letter(self.mail.slot(k, self.seat.site), message)
        after = await self._taken_in(k, replace(before, state=state), own, letters, context)
        self.probe("absorbed", k)
        self._checkpoint(k, after, self.seat.turn(k).release, (self.seat.site, *letters))
        return after

    def _given_up(self, k: int, before: Snapshot, said: Mapping[str, bytes]) -> Snapshot:
        """The site after a sum that is made again without somebody: nothing is learnt of it but who spoke for it, as
        far as that was heard. `said`: digests of these messages, by site.
        """
        # Booked also if this site has not spoken: the ledger knows no gaps, and this attempt was paid for beforehand.
        self.seat.reserve(k)
        after = replace(before, witness=before.witness.given_up(self.agreement, k, said, self.journal.absent))
        self.probe("absorbed", k)
        self._checkpoint(k, after, None, tuple(said))
        return after

    def _checkpoint(self, k: int, after: Snapshot, opened: int | None, senders: tuple[str, ...]) -> None:
        """Write down where the site stands after round k, and tell whoever watches; `opened`: what was read."""
        self.journal.checkpoint(k, after.dumps())
        self.probe("checkpointed", k)
        shown = taken(self.agreement, opened, senders, after, self.seat.turn(k + 1).attempt)
        self.watcher.tell(events.RoundDone(k, self.seat.spending(), shown))

    # -- where a sum is taken -----------------------------------------------------------------------------------------

    async def _agree(self, k: int, before: Snapshot, policy: Policy) -> "_Agreed | None":
        """The context of sum k, as its proposer has signed it, and the state with its bits; None if the sum is given up
        before this site has spoken. Before the first sum everyone proposes, so that all know that they fit together.
        """
        seat, site, members = self.seat, self.seat.site, self.seat.members(k)
        by, own = proposer(k, members), await asyncio.to_thread(self._own_point, k, before)
        place = Slot(k, site, Kind.POINT)

        async def propose() -> Point:
            # What lies there already, a process before this one has said: it holds, whatever we would say now.
            held = (await self.mail.put(place, self.mail.seal(place, own.to_bytes()))).held
            try:
                return self._checked(k, before, site, self.mail.open_point(place, held), own)
            except BadMessageError:
                self.mail.refuse_held(place, held)

        def read(slot: Slot, data: bytes) -> Point:
            return self._checked(k, before, slot.site, self.mail.open_point(slot, data), own)

        ask = self._hearing(k, read, Kind.POINT)

        async def hear(names: Collection[str]) -> dict[str, Answer[Point]]:
            found = await ask(names)
            if seat.drops and any(answer.content is None for answer in found.values()):
                await propose()  # so that whoever is still in the turn before learns how it ended here
            return found

        awaited = frozenset(members) if k == 1 else frozenset((by,))
        mine = {site: await propose()} if site in awaited else {}
        outcome = await self._settle(k, policy, hear, awaited)
        if outcome.dropped:
            return None
        taken_up = (mine | outcome.letters)[by].proposal
        state = seat.summing.adopted(seat.turn(k).release, before.state, members, taken_up)
        context = seat.summing.context(seat.turn(k), taken_up, members, seat.notices(k), before.witness.chain)
        past = self._past()
        if past.said == context.turn and past.context != context.digest():
            raise ForkedError(
                f"Expected the point at which this site has spoken in round={k}, got another that is signed by "
                f"site={by!r}. It has signed two for one sum, and does not keep to the agreement. Nothing more was "
                "said. Ask them."
            )
        return _Agreed(context, state)

    def _own_point(self, k: int, before: Snapshot) -> Point:
        """What this site would propose for sum k: from earlier sums alone."""
        seat, members, turn = self.seat, self.seat.members(k), self.seat.turn(k)
        with one_thread():
            made = seat.summing.proposal(turn.release, before.state, members)
        context = seat.summing.context(turn, made, members, seat.notices(k), before.witness.chain)
        heading = Heading.of(context)._replace(context=bytes(DIGEST_BYTES))
        return Point(protocol(), before.witness.testimony, heading, made)

    def _checked(self, k: int, before: Snapshot, name: str, came: Point, own: Point) -> Point:
        """A proposal that may be taken. Any other stops the run, and names its sender. Where that can be gone on
        without, or is this site itself, it is refused instead: `BadMessageError`.
        """
        seat = self.seat
        try:
            # First of all, and stopping everybody before the first sum: nothing is spent, and it is soon mended.
            if came.version != own.version:
                raise InputError(
                    f"Expected {own.version} at all sites, as here, got {came.version} at site={name!r}. Nothing was "
                    f"said in round={k}. What was proposed stays on the server: install the same version everywhere, "
                    "and agree on a new run."
                )
            # A heading stands for all that was heard. Testimony only helps to say where two part: whoever lies in it
            # alone sends nobody away, and whoever judges by it need not come to what others come to.
            if came.heading != own.heading:
                before.witness.check(self.agreement, seat.site, name, came.testimony)
                self._refuse_other(k, name, came.heading, own.heading, name)
            self._refuse_off(k, before, name, came)
        except SottovoceError as error:
            if name != seat.site and (not seat.drops or (k == 1 and isinstance(error, InputError))):
                raise
            raise BadMessageError(Refusal.OTHER_POINT, str(error)) from error
        return came

    def _refuse_off(self, k: int, before: Snapshot, name: str, came: Point) -> None:
        """Stop if a proposal is not what was computed here, up to rounding."""
        seat = self.seat
        try:
            seat.summing.adopted(seat.turn(k).release, before.state, seat.members(k), came.proposal)
        except BadMessageError as error:
            raise SpoiledError(
                f"Expected of site={name!r} in round={k} what follows from all sums before, up to rounding. {error} It "
                "does not keep to the agreement, or its computer does not. Nothing was said for this sum, and what was "
                "learnt before it stands."
            ) from error

    def _refuse_other(self, k: int, name: str, theirs: Heading, ours: Heading, by: str) -> None:
        """Stop if somebody speaks in another context than this site; `by` has proposed it."""
        try:
            theirs.refuse_other(name, ours, by)
        except BadMessageError as error:
            raise ForkedError(f"Expected everyone to have heard the same until round={k}. {error}") from error

    # -- speaking -----------------------------------------------------------------------------------------------------

    async def _release(self, k: int, before: Snapshot, policy: Policy, context: Context | None) -> tuple[bytes, Any]:
        """The message of round k and the state after it: as the outbox has them, or computed now."""
        seat, said = self.seat, self.journal.said(k)
        held = None if said is not None or self.asked else await self._look_back(k, policy)
        if k == seat.last_number and said is None and held is None and self.last_asked < k:
            await self._ask_at_the_end(k, policy)
        # In this order: rows are hashed, the round is paid for, and only then is a row used.
        seat.check_rows()
        seat.reserve(k)
        self.probe("reserved", k)
        if said is None:
            message, state = await self._compute(k, before, context)
            if held is not None:
                # Noise is a function of the same things, so only other rows or another history bring out other words.
                if digest_of(held) != digest_of(message):
                    self.mail.refuse_held(self.mail.slot(k, seat.site), held)
                message = held  # as it was said first, with the books of that time
            self.journal.put(k, message, pack_state(state))
            self.probe("in outbox", k)
        else:
            message, state = said.message, unpack_state(said.state, seat.start.state)
        seat.bind(k, message)
        self.probe("bound", k)
        return message, state

    async def _compute(self, k: int, before: Snapshot, context: Context | None) -> tuple[bytes, Any]:
        """Draw the noise and compute round k: the sealed message, and the state after it. Nothing is written
        or sent.
        """
        seat, witness, slot = self.seat, before.witness, self.mail.slot(k, self.seat.site)
        refuse_other_rows(slot, witness.binding_of(self.agreement, seat.site), seat.binding)
        if context is not None:
            said = await self._masked(before, context)
            self.probe("computed", k)
            return self.mail.seal(slot, said.to_bytes()), before.state  # it changes with the sum alone
        noise, oracle = seat.noise_after(witness.chain), self._oracle(k - 1)

        def release() -> tuple[Array, Any]:
            with one_thread():
                return self.algorithm.release(k, before.state, oracle, noise)

        vector, state = await asyncio.to_thread(release)  # while a site computes, it goes on listening
        self.probe("computed", k)
        words = Words(np.ascontiguousarray(vector[0, :, 0]), seat.binding, witness.testimony)
        # Judged on noisy numbers: that they are too large tells nothing more.
        if not norm_of(words.vector) <= self.agreement.reach:
            raise DivergedError(
                f"Expected a model of norm at most {self.agreement.reach:g}, the agreed radius, got a noisy one that "
                f"is longer in round={k}. The steps are too long: agree on a smaller diameter, or on a larger radius."
            )
        return self.mail.seal(slot, words.to_bytes()), state

    async def _masked(self, before: Snapshot, context: Context) -> SumWords:
        """This site's masked words in that context."""
        seat, witness = self.seat, before.witness
        past = self._past()

        def speak() -> SumWords:
            with one_thread():
                words = seat.summing.words(context, before.state, seat.masks, past)
            return SumWords(words, Heading.of(context), seat.binding, witness.testimony)

        return await asyncio.to_thread(speak)

    def _past(self) -> Past:
        """What this site last spoke for, as its outbox has it."""
        last = self.journal.last_said()
        said = self.journal.said(last)
        if said is None:
            return Past()
        words = self.mail.open_letter(self.mail.slot(last, self.seat.site), said.message).words
        heading = cast(SumWords, words).heading
        return Past(heading.turn, heading.context)

    # -- what others know of us ---------------------------------------------------------------------------------------

    async def _look_back(self, k: int, policy: Policy) -> bytes | None:
        """What the site's mailbox of round k holds already; if it is empty, the neighbours are asked."""
        own = self.mail.slot(k, self.seat.site)
        held = await self.mail.look(own)
        if held is None:
            await self._ask(k, policy)
        elif not self.mail.is_bound(own, held, self.seat.binding):
            self.mail.refuse_held(own, held)  # computing would be in vain: with another key it cannot come out the same
        return held

    async def _ask(self, k: int, policy: Policy, but: frozenset[str] = frozenset()) -> None:
        """Ask all neighbours `but` some what they last heard of us and of our books, and stop if any of it is news."""
        enough = partial(answered, self.seat, k)
        answers = await self._gather(k, policy, await self._question(k), self._refuse_unasked, but, enough)
        self._refuse_news(answers)
        # Once a process: from now on everything that is said passes through its own outbox. Whoever was left out or
        # silent may still know more, and is asked before the next new words if it takes part in them.
        self.asked = all(name in answers for name in self.seat.neighbours if self.seat.takes_part(name, k))

    async def _ask_at_the_end(self, k: int, policy: Policy) -> None:
        """Ask again, before the last words: another folder may have spent on the same rows all the while.

        Where a silent neighbour can be dropped, it is not waited for here: those who wait for our words would drop us.
        """
        if self.seat.drops:
            self._refuse_news(await self._answers(k, self.agreement.lost_neighbour.wait_seconds / _SLICES))
        else:
            await self._ask(k, policy)

    async def _told_before(self, refused: BudgetError) -> SottovoceError:
        """Why the run does not begin: its cost, unless neighbours tell that the ledger lacks what was spent elsewhere.

        They may not be there yet, and nothing is spent either way, so that they are not waited for much longer than an
        answer takes.
        """
        k, seconds = self.journal.round + 1, _SLICES * self._slice
        try:
            answers = await asyncio.wait_for(self._answers(k, seconds), 2 * seconds)
            self._refuse_news(answers)
        except (TimeoutError, UnreachableError):
            answers = {}
        except (BehindError, UsedTwiceError) as news:
            return news
        silent = [name for name in self.seat.neighbours if name not in answers]
        if silent:
            refused.add_note(not_asked(silent))
        return refused

    async def _question(self, k: int) -> Callable[[str, float], Awaitable[Answer[Heard]]]:
        """Ask all neighbours; how to hear one's answer, within so many seconds."""
        number, nonce = await self.board.ask(k, self.seat.books.data_set)
        self.last_asked = k
        return lambda name, seconds: self.board.hear_answer(name, number, nonce, seconds)

    async def _answers(self, k: int, seconds: float) -> dict[str, Heard]:
        """What those neighbours answer who do so within that time."""
        hear = await self._question(k)
        names = [name for name in self.seat.neighbours if self.seat.takes_part(name, k)]
        found = zip(names, await _all(hear(name, seconds) for name in names), strict=True)
        return {name: answer.content for name, answer in found if answer.content is not None}

    def _refuse_news(self, answers: Mapping[str, Heard]) -> None:
        """Stop if others have heard of us, or of our books, what is not on this disk."""
        # First of all, since this writes down what is to be booked: a folder that was set back lacks both.
        behind = self.seat.books.lacking({name: heard.books for name, heard in answers.items()})
        last, path = self.journal.last_said(), self.seat.ledger.path
        to_book = (
            "" if behind is None else f" What it has cost is booked with: sottovoce ledger catch-up {path} --key KEY."
        )
        for name, heard in answers.items():
            if heard.round > last:
                raise UsedTwiceError(
                    f"Expected nobody to have heard round={last + 1} of site={self.seat.site!r}, which was never said "
                    f"here, got word from site={name!r} that it has heard our round={heard.round}, and nothing of it "
                    "from the server. The state folder was put back from an old copy, or copied, and the server has "
                    "forgotten our messages or hides them. Nothing was drawn. Put the newest state folder back, or "
                    f"leave the run.{to_book}"
                )
            said = self.journal.said(last)
            if heard.round == last and said is not None and heard.digest != digest_of(said.message):
                raise UsedTwiceError(
                    f"Expected site={name!r} to have heard what we said in round={last}, got word of another message "
                    f"in our name. Another process runs with this key, or {name} does not tell the truth. Find out "
                    f"which before going on.{to_book}"
                )
        if behind is not None:
            raise behind

    async def _refuse_unasked(self, k: int, name: str) -> None:
        """Stop: whoever does not answer may be the one who knows more of us than we do."""
        raise LostNeighbourError(
            f"Expected word from site={name!r} in round={k} of what it last heard of us, got none. A process that has "
            "just begun does not go on without somebody who may know more of it than itself. When it is back, run the "
            "same command again."
        )

    # -- hearing ------------------------------------------------------------------------------------------------------

    async def _collect(self, k: int, witness: Witness, policy: Policy) -> Outcome[Letter]:
        """Everyone's message of round k, but for those that the site goes on without."""

        def read(slot: Slot, data: bytes) -> Letter:
            letter = self.mail.open_letter(slot, data)
            refuse_other_rows(slot, witness.binding_of(self.agreement, slot.site), letter.words.binding)
            self.heard[slot.site] = Sighting(k, digest_of(data))
            self.seat.heads.hear(self.agreement.member(slot.site).public_key, self.agreement.run, k, books_of(data))
            return letter

        async def drop(k: int, name: str) -> None:
            if not self.asked:  # whoever is silent may have heard more of us, and later nobody would ask it
                await self._ask(k, policy)
            await self._drop(k, name, policy)

        if self.seat.masked:
            outcome = await self._settle(k, policy, self._hearing(k, read))
        else:
            letters = await self._gather(
                k, policy, lambda name, seconds: self.mail.hear(self.mail.slot(k, name), seconds, read), drop
            )
            outcome = Outcome(letters, frozenset())
        self.seat.heads.flush()
        for name, letter in outcome.letters.items():
            # Before anything is absorbed: a run in which somebody lies is not gone on with.
            witness.check(self.agreement, self.seat.site, name, letter.words.testimony)
        return outcome

    async def _settle(
        self, k: int, policy: Policy, hear: Hearing[T], proposers: frozenset[str] | None = None
    ) -> Outcome[T]:
        """The same for a masked sum, which all who take part read, or give up together; first for its proposal."""

        async def ask(but: frozenset[str]) -> None:
            if not self.asked:
                await self._ask(k, policy, but)

        def dropped(name: str) -> None:
            self.probe("dropped", k)
            self.watcher.tell(events.Dropped(k, name))

        hands = Hands(hear, ask, dropped)
        return await Gathering(self.seat, k, self.mail, self.board, policy, hands, self._slice, proposers).settle()

    async def _confirm(self, witness: Witness, policy: Policy) -> None:
        """Of the last sum: wait until enough others hold it too."""

        def read(slot: Slot, data: bytes) -> Letter:
            return open_end(self.seat, self.mail, slot, data)

        hear = self._hearing(self.journal.round + 1, read)
        await confirm(self.seat, witness, self.mail, self.board, policy, hear)

    def _hearing(self, k: int, read: Callable[[Slot, bytes], T], kind: Kind = Kind.SUM) -> Hearing[T]:
        """Asks some once, side by side, for their messages of round k; stops if the server is away for too long."""
        away, seconds = 0.0, self._slice

        async def hear(names: Collection[str]) -> dict[str, Answer[T]]:
            nonlocal away
            asked = list(names)
            found = await _all(self.mail.hear(Slot(k, name, kind), seconds, read) for name in asked)
            away = 0.0 if any(answer.reached for answer in found) else away + seconds
            self._check_server(away, k)
            return dict(zip(asked, found, strict=True))

        return hear

    async def _gather(
        self,
        k: int,
        policy: Policy,
        hear: Callable[[str, float], Awaitable[Answer[T]]],
        drop: Callable[[int, str], Awaitable[None]],
        but: frozenset[str] = frozenset(),
        enough: Callable[[Collection[str], Mapping[str, Silence]], bool] = lambda found, silences: False,  # noqa: ARG005
    ) -> dict[str, T]:
        """What each neighbour that takes part, `but` some, has to say in round k; the policy decides about those who
        are silent, unless what was found is `enough`.
        """
        found: dict[str, T] = {}
        wanted = [name for name in self.seat.neighbours if self.seat.takes_part(name, k) and name not in but]
        silences = {name: Silence() for name in wanted}
        away, seconds = 0.0, self._slice
        while silences:
            names = list(silences)
            answers = dict(zip(names, await _all(hear(name, seconds) for name in names), strict=True))
            for name, answer in answers.items():
                if answer.content is None:
                    silences[name].add(seconds, answer)
                else:
                    found[name] = answer.content
                    del silences[name]
            # One answer is enough to know that the server is there.
            away = 0.0 if any(answer.reached for answer in answers.values()) else away + seconds
            self._check_server(away, k)
            self.board.check()
            if silences and enough(found, silences):
                return found
            if silences:
                self.watcher.tell(events.Waiting(k, {name: silence.total for name, silence in silences.items()}))
                # Decided after everyone was asked once more: nobody is dropped whose message has just come.
                for name in await policy.lost(k, silences):
                    await drop(k, name)
                    del silences[name]
        return found

    @property
    def _slice(self) -> float:
        """Seconds between two judgements of those who are silent."""
        return min(self.pace.slice, self.agreement.lost_neighbour.wait_seconds / _SLICES)

    def _check_server(self, away: float, k: int) -> None:
        """Tell that the server is away, and stop when that has lasted for as long as `pace` allows, in seconds."""
        if away > 0:
            self.watcher.tell(events.ServerSilent(away))
        if away >= self.pace.server:
            raise UnreachableError(
                f"Expected an answer from the message server within {self.pace.server:g} s in round={k}, got none. "
                "When it is back, run the same command again."
            )

    async def _drop(self, k: int, name: str, policy: Policy) -> None:
        """Go on without a neighbour: written down, then told."""
        # Written down first: whoever was told that a site is gone can rely on it, also after a crash.
        self.journal.drop(k, name)
        self.probe("dropped", k)
        self.watcher.tell(events.Dropped(k, name))
        await policy.drop(k, name)

    async def _taken_in(
        self, k: int, before: Snapshot, own: Letter, letters: Mapping[str, Letter], context: Context | None
    ) -> Snapshot:
        """The site after round k."""
        if context is None:
            return self._absorb(k, before, own, letters)

        def add_up() -> Any:
            with one_thread():  # so that a site that comes back computes the same
                return self._summed(k, before, {self.seat.site: own, **letters}, context)

        state = await asyncio.to_thread(add_up)
        witness = self._extend_witness(k, before.witness, {self.seat.site: own, **letters})
        return replace(before, state=state, witness=witness)

    def _summed(self, k: int, before: Snapshot, letters: Mapping[str, Letter], context: Context) -> Any:
        """The state after sum k; stops if somebody has masked something else than everyone here was told."""
        ours, by, said = Heading.of(context), proposer(k, context.members), {}
        for name, letter in letters.items():
            words = cast(SumWords, letter.words)
            self._refuse_other(k, name, words.heading, ours, by)
            said[name] = words.words
        return self.seat.summing.absorbed(context, before.state, said)

    def _absorb(self, k: int, before: Snapshot, own: Letter, letters: Mapping[str, Letter]) -> Snapshot:
        """Take in a round, and undo the past of those who are absent from this round on."""
        said, state = as_message(_vector(own)), before.state
        heard = {name: as_message(_vector(letter)) for name, letter in letters.items()}
        edges: dict[str, Array] = {}
        for name, edge in before.edges.items():
            if name in heard:
                edges[name] = edge + (said - heard[name])
            else:
                state = self.algorithm.without(state, edge)
        # In the order of the sites, as a simulation does.
        total = np.zeros_like(said)
        for name in self.seat.neighbours:
            if name in heard:
                total = total + heard[name]
        witness = self._extend_witness(k, before.witness, {self.seat.site: own, **letters})
        after = self.algorithm.absorb(k, state, self._oracle(k), FromNeighbours(total))
        return Snapshot(after, said, total, witness, edges)

    def _extend_witness(self, k: int, witness: Witness, letters: Mapping[str, Letter]) -> Witness:
        """What is known after round k; stops if those who are left are not connected any more."""
        a, site = self.agreement, self.seat.site
        for name, letter in letters.items():
            witness = witness.with_binding(a, name, letter.words.binding)
        said = _digests(letters)
        told = {name: letter.words.testimony for name, letter in letters.items() if name != site}
        witness = witness.after(a, k, said, told, self.journal.absent)
        witness.refuse_torn(a, site, k)
        return witness

    def _oracle(self, k: int) -> Any:
        """For the neighbours that were left at the end of round k."""
        left = sum(self.seat.takes_part(name, k) for name in self.seat.neighbours)
        return self.seat.oracle if left == len(self.seat.neighbours) else self.seat.with_neighbours(left)


class _Agreed(NamedTuple):
    """Where a sum is taken: its context, and the state with the bits that stand in it."""

    context: Context
    state: Any


def _digests(letters: Mapping[str, Letter]) -> dict[str, bytes]:
    return {name: digest_of(letter.data) for name, letter in letters.items()}


def _vector(letter: Letter) -> Floats:
    """The noisy vector of a message that is not masked."""
    return cast(Words, letter.words).vector


@final
class FromNeighbours(Inbox):
    """What a site hears that nobody speaks to but its neighbours."""

    def __init__(self, total: Array) -> None:
        self._total = total

    def neighbours(self) -> Array:
        return self._total

    def everyone(self) -> Array:
        raise UnsupportedError(
            "Expected an algorithm that needs its neighbours' messages only, got one that asks for everyone's sum: a "
            "site of this run does not hear it."
        )


async def _all(waiting: Iterable[Awaitable[T]]) -> list[T]:
    """All of them; if one fails, the others finish before its error is raised."""
    answers = await asyncio.gather(*waiting, return_exceptions=True)
    for answer in answers:
        if isinstance(answer, BaseException):
            raise answer
    return cast(list[T], answers)


def _result(seat: Seat, last: Snapshot) -> Finished:
    """What the site ends with: the mean of its own last message and of those that it heard, and its state. Of masked
    sums, the model that everyone computes from them.
    """
    rounds = min(seat.turn(seat.journal.round + 1).release - 1, seat.agreement.algorithm.rounds)
    if seat.masked:
        model = np.asarray(seat.agreement.algorithm.outputs(rounds, last.state).last[0, :, 0], dtype=np.float64)
        return Finished(model, model, rounds, seat.journal.absent, last.state, _tallied(seat, rounds, last.state))
    left = sum(seat.takes_part(name, rounds) for name in seat.neighbours)
    said, heard = (np.asarray(array[0, :, 0], dtype=np.float64) for array in (last.said, last.heard))
    return Finished((said + heard) / (1 + left), said, rounds, seat.journal.absent, last.state)


def _tallied(seat: Seat, rounds: int, state: Any) -> Tallied | None:
    """How good the model is, from public numbers alone: no row is looked at."""
    a = seat.agreement
    unit = Answers.of(a.encoding, a.algorithm.loss.outputs).scale
    with one_thread():  # so that all sites find the same, bit by bit
        return next(iter(a.algorithm.evaluated(rounds, state, seat.oracle, unit)), None)
