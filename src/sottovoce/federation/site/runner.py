"""A site's rounds. With this order of steps a crash can only make the ledger count too much, never too little:

    reserve in the ledger - compute - outbox - bind the message in the ledger - publish
        - collect the neighbours' messages - absorb - checkpoint

With masked sums, one site first proposes the point of the sum, and the others use the same bits (`SitePart.prepare`).

Each step is on the disk before the next one begins, except a checkpoint, which is written with the next outbox. After a
crash the last checkpoint is loaded. If the outbox holds the next round, the same bytes are sent, and the state that was
stored with them is used. If it does not, the round is computed under the same reservation. Noise is a function of all
that was heard and of the numbers themselves (`OwnNoise.noise_after`), so a round that is computed twice gives the same.

A state folder that was restored from a copy, or a second one, lacks the messages sent since. So before a process sends
a message that is not in its outbox, it looks into its own mailbox: if there is a message, it can only send the same. If
there is none, it asks its neighbours what they last heard of it, and waits for their signed answers (`ask`). So a
server that has forgotten or hides messages of this site can only stop it. The answers also hold the last statements of
the site's books (`heads`), from this run and others: spending that its ledger lacks must be booked first.

Two folders that start at the same time for the same rows learn nothing of each other at their start. So neighbours are
asked again before the last message of a run, while all of them still wait for it, and before a run is refused for its
cost. Otherwise a full ledger would never learn of the other one.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from functools import partial
from typing import TypeAlias, TypeVar, cast

from sottovoce.errors import BudgetError, SottovoceError
from sottovoce.federation.site.absent import Policy, Silence, policy_for
from sottovoce.federation.site.board import Board
from sottovoce.federation.site.events import (
    Published,
    RoundBegan,
    RoundDone,
    RunBegan,
    RunFinished,
    ServerSilent,
    Waiting,
    end_by,
)
from sottovoce.federation.site.letters import Heard, Sighting
from sottovoce.federation.site.mail import Letter, Mail, Pace, Reply, refuse_other_rows
from sottovoce.federation.site.part import Finished, Hearing, Outcome, Standing
from sottovoce.federation.site.seat import Seat
from sottovoce.federation.site.shown import taken
from sottovoce.federation.site.stops import BehindError, LostNeighbourError, UsedTwiceError
from sottovoce.federation.site.watchers import Watcher
from sottovoce.federation.site.witness import Witness
from sottovoce.federation.transport.transport import PutOutcome, Transport, UnreachableError
from sottovoce.federation.transport.wire import Kind, Slot, books_of, digest_of

T = TypeVar("T")
Probe: TypeAlias = Callable[[str, int], None]
# The points at which a probe is called, in the order of a round. A masked sum has "began" once its point is known.
# "dropped" is reached only if a neighbour is dropped.
POINTS = (
    "began", "reserved", "computed", "in outbox", "bound", "published", "dropped", "collected", "absorbed",
    "checkpointed",
)  # fmt: skip
_SLICES = 6  # number of times that a silent neighbour is judged within the agreed time


def result_of(seat: Seat) -> Finished | None:
    """The result of a run that is finished; None if it is not."""
    if not seat.over:
        return None
    seat.journal.finish()  # the last process may have ended after the last round, and before it deleted the seed
    return _result(seat, seat.standing())


def so_far(seat: Seat) -> Finished | None:
    """The result so far of a run that has stopped, from messages that were paid for; None before there is any."""
    last = seat.standing()
    return _result(seat, last) if seat.part.has_result(last) else None


def not_asked(names: Iterable[str]) -> str:
    """The note on a refusal that says which neighbours have not answered."""
    return (
        f"Not asked whether more was spent on these rows from another folder: {', '.join(names)}. Run the same command "
        "again while they run, to find out."
    )


def no_probe(point: str, k: int) -> None:
    """The probe of a real site, which does nothing."""


async def run_site(
    seat: Seat,
    transport: Transport,
    *,
    watcher: Watcher | None = None,
    probe: Probe = no_probe,
    pace: Pace | None = None,
) -> Finished:
    """Take part in a run, from the journal's last round to the end.

    Args:
        seat: the site, with its rows, keys and files.
        transport: the way to the mailboxes. It is not closed.
        watcher: receives the events.
        probe: called with a name of `POINTS` and the round when that point is reached. For tests, which crash there.
        pace: how long single steps may take.

    Raises:
        BudgetError: the run does not fit under the ledger's cap. Nothing was drawn.
        BehindError: the ledger lacks what was spent on these rows.
        DamagedError: ledger and journal cannot be used, or do not belong together.
        LostNeighbourError, LeftBehindError, UsedTwiceError, ForkedError, DivergedError, UnreachableError: see these
            classes. The site has stopped cleanly.
    """
    told = Watcher() if watcher is None else watcher
    try:
        return await _Run(seat, transport, told, probe, Pace() if pace is None else pace).finish()
    # Also on cancellation and Ctrl-C: watchers are told that the run is over.
    except BaseException as error:
        told.tell(end_by(error))
        raise


class _Run:
    """One site's run in this process. The order within a round is that of the module's docstring."""

    def __init__(self, seat: Seat, transport: Transport, watcher: Watcher, probe: Probe, pace: Pace) -> None:
        self.seat, self.watcher, self.pace, self.probe = seat, watcher, pace, probe
        self.agreement, self.journal, self.part = seat.agreement, seat.journal, seat.part
        # Between two judgements of a neighbour. Nobody waits longer for one than for the server.
        self.seconds = min(pace.slice, pace.server, seat.agreement.lost_neighbour.wait_seconds / _SLICES)
        self.mail = Mail(
            seat.agreement, seat.site, seat.key, transport, watcher, pace, seat.books.statement,
            release=lambda t: seat.turn(t).release,
        )  # fmt: skip
        self.heard: dict[str, Sighting] = {}  # the last valid message of each neighbour, for answers
        self.board = Board(self.mail, self.heard, seat.heads)
        self.asked = False  # True if the neighbours have told this process what they heard of it
        self.last_asked = 0  # the round in which they were last asked

    async def finish(self) -> Finished:
        """Check ledger and journal, catch up on notices, and run all rounds that are left."""
        seat = self.seat
        seat.check_books()
        refused = seat.refused()
        if refused is not None:
            raise await self._refusal(refused)
        after = seat.standing()
        self.watcher.tell(RunBegan(seat.facts(), seat.spending()))
        if not seat.over:
            self.heard |= {name: after.witness.testimony[self.agreement.index(name)] for name in seat.neighbours}
            # Before the first notice is read: notices of dropped sites no longer count.
            self.board.ignore(self.journal.absent)
            await self.board.catch_up()
            async with self.board:
                policy = policy_for(self.agreement, seat.site, self.board)
                await policy.begin(self.journal.absent)
                while not seat.done:  # a sum that was given up adds a round
                    after = await self._round(self.journal.round + 1, after, policy)
                if self.part.confirms:
                    await self.part.confirm(self, after.witness, policy)
        self.journal.finish()
        self.watcher.tell(RunFinished(self.agreement.algorithm.messages, self.journal.absent))
        return _result(seat, after)

    # -- one round ----------------------------------------------------------------------------------------------------

    async def _round(self, k: int, before: Standing, policy: Policy) -> Standing:
        """One round, from local work to the checkpoint."""
        policy.check()
        self.watcher.tell(RoundBegan(k))
        ready = await self.part.prepare(self, k, before, policy)
        if ready is None:
            return self._give_up(k, before, {})
        self.probe("began", k)
        message, computed = await self._release(k, ready, policy)
        outcome = await self.mail.deliver(self.mail.slot(k, self.seat.site), message)
        self.watcher.tell(Published(k, outcome is PutOutcome.ALREADY_THERE))
        self.probe("published", k)
        letters, dropped = await self._collect(k, before.witness, policy)
        self.probe("collected", k)
        if dropped:
            return self._give_up(k, before, {self.seat.site: digest_of(message)} | _digests(letters))
        # Read back from the bytes that were sent: after a crash these are all there is, and the numbers are the same.
        own = self.mail.open_letter(self.mail.slot(k, self.seat.site), message)
        witness = self._extend_witness(k, before.witness, {self.seat.site: own, **letters})
        after = await self.part.take_in(k, computed, own, letters, witness)
        self.probe("absorbed", k)
        self._checkpoint(k, after, (self.seat.site, *letters))
        return after

    def _give_up(self, k: int, before: Standing, said: Mapping[str, bytes]) -> Standing:
        """The state after a sum that is given up. It opens nothing; only the messages that were heard are remembered:
        `said` holds their digests, by site.
        """
        # Booked also if this site has sent nothing: the ledger has no gaps, and this attempt was paid for beforehand.
        self.seat.reserve(k)
        after = before.with_witness(before.witness.given_up(self.agreement, k, said, self.journal.absent))
        self.probe("absorbed", k)
        self._checkpoint(k, after, tuple(said))
        return after

    def _checkpoint(self, k: int, after: Standing, senders: tuple[str, ...]) -> None:
        """Write down the state after round k, and tell the watcher."""
        self.journal.checkpoint(k, after.dumps(), after.opened)
        self.probe("checkpointed", k)
        shown = taken(self.agreement, senders, after, self.seat.turn(k + 1).attempt)
        self.watcher.tell(RoundDone(k, self.seat.spending(), shown))

    # -- speaking -----------------------------------------------------------------------------------------------------

    async def _release(self, k: int, before: Standing, policy: Policy) -> tuple[bytes, Standing]:
        """The message of round k and the state after it, from the outbox or computed now."""
        seat, slot, said = self.seat, self.mail.slot(k, self.seat.site), self.journal.said(k)
        held = None if said is not None or self.asked else await self._look_back(k, policy)
        if k == seat.last_number and said is None and held is None and self.last_asked < k:
            await self._ask_at_the_end(k, policy)
        # In this order: the rows are checked, the round is paid for, and only then are the rows used.
        seat.check_rows()
        seat.reserve(k)
        self.probe("reserved", k)
        if said is None:
            refuse_other_rows(slot, before.witness.binding_of(self.agreement, seat.site), seat.binding)
            computed = await self.part.compute(self, k, before)
            message, after = self.mail.seal(slot, computed.payload), computed.standing
            if held is not None:
                # Noise is a function of rows and history, so only other rows or another history give another message.
                if digest_of(held) != digest_of(message):
                    self.mail.refuse_held(slot, held)
                message = held  # as it was first sent, with the statement of that time
            self.journal.put(k, message, computed.state)
            self.probe("in outbox", k)
        else:
            message, after = said.message, self.part.resume(before, said.state)
        seat.bind(k, message)
        self.probe("bound", k)
        return message, after

    # -- what others know of this site --------------------------------------------------------------------------------

    async def _look_back(self, k: int, policy: Policy) -> bytes | None:
        """The message that the site's mailbox of round k holds already; if it is empty, the neighbours are asked."""
        own = self.mail.slot(k, self.seat.site)
        held = await self.mail.look(own)
        if held is None:
            await self.ask(k, policy)
        elif not self.mail.is_bound(own, held, self.seat.binding):
            self.mail.refuse_held(own, held)  # with other rows or another key, the same message cannot be computed
        return held

    async def ask(self, k: int, policy: Policy, but: frozenset[str] = frozenset()) -> None:
        """Ask all neighbours, except those in `but`, what they last heard of this site and of its books. Stops if any
        of it is not on this disk.
        """
        enough = partial(self.part.answered, k)
        answers = await self.gather(k, policy, await self._send_question(k), self._refuse_unasked, but, enough)
        self._refuse_news(answers)
        # Once per process is enough, since from now on every message passes through its outbox. A neighbour that has
        # not answered may still know more. It is asked before the next new message if it takes part in that round.
        self.asked = all(name in answers for name in self.seat.neighbours if self.seat.takes_part(name, k))

    async def _ask_at_the_end(self, k: int, policy: Policy) -> None:
        """Ask again, before the last message: another folder may have spent on the same rows during the run.

        Where sites can be dropped, a silent one is not waited for here: sites that wait for our message would drop us.
        """
        if self.seat.drops:
            self._refuse_news(await self._answers(k, self.agreement.lost_neighbour.wait_seconds / _SLICES))
        else:
            await self.ask(k, policy)

    async def _refusal(self, refused: BudgetError) -> SottovoceError:
        """Why the run does not begin: its cost, unless neighbours know of spending that the ledger lacks.

        The neighbours may not be there yet, and nothing is spent either way. So they are not waited for much longer
        than an answer takes.
        """
        k, seconds = self.journal.round + 1, _SLICES * self.seconds
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

    async def _send_question(self, k: int) -> Callable[[str, float], Awaitable[Reply[Heard]]]:
        """Ask all neighbours. Returns the function that awaits one neighbour's answer for so many seconds."""
        number, nonce = await self.board.ask(k, self.seat.books.data_set)
        self.last_asked = k
        return lambda name, seconds: self.board.hear_answer(name, number, nonce, seconds)

    async def _answers(self, k: int, seconds: float) -> dict[str, Heard]:
        """Ask all neighbours, and collect the answers that come within that time."""
        hear = await self._send_question(k)
        names = [name for name in self.seat.neighbours if self.seat.takes_part(name, k)]
        found = zip(names, await _all(hear(name, seconds) for name in names), strict=True)
        return {name: answer.content for name, answer in found if answer.content is not None}

    def _refuse_news(self, answers: Mapping[str, Heard]) -> None:
        """Stop if others have heard messages of this site, or of its books, that are not on this disk."""
        # First, since this writes down what is to be booked: a folder that was set back lacks both.
        behind = self.seat.books.lacking({name: heard.books for name, heard in answers.items()})
        last, path = self.journal.last_said(), self.seat.ledger.path
        to_book = (
            "" if behind is None else f" What it has cost is booked with: sottovoce ledger catch-up {path} --key KEY."
        )
        for name, heard in answers.items():
            if heard.round > last:
                raise UsedTwiceError(
                    f"Expected no site to have received round={last + 1} of site={self.seat.site!r}, which was never "
                    f"sent here, got a report of site={name!r} that it has received round={heard.round}, of which the "
                    "server has nothing. The state folder was restored from an old copy, or copied, and the server "
                    "has forgotten our messages or hides them. Nothing was drawn. Restore the newest state folder, "
                    f"or leave the run.{to_book}"
                )
            said = self.journal.said(last)
            if heard.round == last and said is not None and heard.digest != digest_of(said.message):
                raise UsedTwiceError(
                    f"Expected site={name!r} to have received what we sent in round={last}, got a report of another "
                    f"one in our name. Another process runs with this key, or {name} reports something false. Find out "
                    f"which before going on.{to_book}"
                )
        if behind is not None:
            raise behind

    async def _refuse_unasked(self, k: int, name: str) -> None:
        """Stop because a neighbour does not answer: it may know messages of this site that this process does not."""
        raise LostNeighbourError(
            f"Expected a report of site={name!r} in round={k} on what it last received from us, got none. A process "
            "that has just begun does not go on without a site that may know more of its past. When it is back, "
            "run the same command again."
        )

    # -- hearing ------------------------------------------------------------------------------------------------------

    async def _collect(self, k: int, witness: Witness, policy: Policy) -> Outcome:
        """The messages of all sites in round k, or the sites that were dropped."""

        def read(slot: Slot, data: bytes) -> Letter:
            letter = self.mail.open_letter(slot, data)
            refuse_other_rows(slot, witness.binding_of(self.agreement, slot.site), letter.words.binding)
            self.heard[slot.site] = Sighting(k, digest_of(data))
            self.seat.heads.hear(self.agreement.member(slot.site).public_key, self.agreement.run, k, books_of(data))
            return letter

        outcome = await self.part.collect(self, k, read, policy)
        self.seat.heads.flush()
        for name, letter in outcome.letters.items():
            # Before anything is absorbed: the run stops if testimonies contradict each other.
            witness.check(self.agreement, self.seat.site, name, letter.words.testimony)
        return outcome

    def hearing(self, k: int, read: Callable[[Slot, bytes], T], kind: Kind) -> Hearing[T]:
        """A function that asks sites once, concurrently, for their messages of that kind in round k. It stops the site
        if the server is away for too long.
        """
        away, seconds = 0.0, self.seconds

        async def hear(names: Collection[str]) -> dict[str, Reply[T]]:
            nonlocal away
            asked = list(names)
            found = await _all(self.mail.hear(Slot(k, name, kind), seconds, read) for name in asked)
            away = 0.0 if any(answer.reached for answer in found) else away + seconds
            self._check_server(away, k)
            return dict(zip(asked, found, strict=True))

        return hear

    async def gather(
        self,
        k: int,
        policy: Policy,
        hear: Callable[[str, float], Awaitable[Reply[T]]],
        drop: Callable[[int, str], Awaitable[None]],
        but: frozenset[str] = frozenset(),
        enough: Callable[[Collection[str], Mapping[str, Silence]], bool] = lambda found, silences: False,  # noqa: ARG005
    ) -> dict[str, T]:
        """The answers of all neighbours that take part in round k, except those in `but`. The policy decides about
        silent ones, unless the answers found are `enough`.
        """
        found: dict[str, T] = {}
        wanted = [name for name in self.seat.neighbours if self.seat.takes_part(name, k) and name not in but]
        silences = {name: Silence() for name in wanted}
        away, seconds = 0.0, self.seconds
        while silences:
            names = list(silences)
            answers = dict(zip(names, await _all(hear(name, seconds) for name in names), strict=True))
            for name, answer in answers.items():
                if answer.content is None:
                    silences[name].add(seconds, answer)
                else:
                    found[name] = answer.content
                    del silences[name]
            # One answer is enough to know that the server works.
            away = 0.0 if any(answer.reached for answer in answers.values()) else away + seconds
            self._check_server(away, k)
            self.board.check()
            if silences and enough(found, silences):
                return found
            if silences:
                self.watcher.tell(Waiting(k, {name: silence.total for name, silence in silences.items()}))
                # Decided after all were asked once more, so no site is dropped whose message has just come.
                for name in await policy.lost(k, silences):
                    await drop(k, name)
                    del silences[name]
        return found

    def _check_server(self, away: float, k: int) -> None:
        """Tell the watcher for how many seconds the server has been away, and stop after `pace.server`."""
        if away > 0:
            self.watcher.tell(ServerSilent(away))
        if away >= self.pace.server:
            raise UnreachableError(
                f"Expected an answer from the message server within {self.pace.server:g} s in round={k}, got none. "
                "When it is back, run the same command again."
            )

    def _extend_witness(self, k: int, witness: Witness, letters: Mapping[str, Letter]) -> Witness:
        """The witness after round k; stops if the remaining sites are no longer connected."""
        a, site = self.agreement, self.seat.site
        for name, letter in letters.items():
            witness = witness.with_binding(a, name, letter.words.binding)
        said = _digests(letters)
        told = {name: letter.words.testimony for name, letter in letters.items() if name != site}
        witness = witness.after(a, k, said, told, self.journal.absent)
        witness.refuse_torn(a, site, k)
        return witness


def _digests(letters: Mapping[str, Letter]) -> dict[str, bytes]:
    return {name: digest_of(letter.data) for name, letter in letters.items()}


async def _all(waiting: Iterable[Awaitable[T]]) -> list[T]:
    """Await all of them; if one fails, the others finish before its error is raised."""
    answers = await asyncio.gather(*waiting, return_exceptions=True)
    for answer in answers:
        if isinstance(answer, BaseException):
            raise answer
    return cast(list[T], answers)


def _result(seat: Seat, last: Standing) -> Finished:
    """The site's result in this state."""
    rounds = min(seat.turn(seat.journal.round + 1).release - 1, seat.agreement.algorithm.messages)
    return seat.part.result(rounds, last)
