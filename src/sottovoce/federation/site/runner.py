"""A site, round by round. The order of things makes sure that a crash can only count too much:

    reserve in the ledger - compute - outbox - bind the message in the ledger - publish
        - collect the neighbours' messages - absorb - checkpoint

Of masked sums, before all of this, one site says where the sum is taken, and the others take its bits (`Part.prepare`).

What comes before a dash is on the disk before what comes after it begins; only a checkpoint waits for the next outbox,
which it is written with. After a crash the last checkpoint is loaded. If the outbox holds the next round, the very same
bytes are sent and the state that goes with them is used. If it does not, the round is computed, under the same
reservation. Noise is a function of all that was heard and of the numbers themselves (`Seat.noise_after`), so what comes
out is what came out before, if it ever did.

A copy of the state folder that is put back, or a second one, does not know what was said since. So before a process
says anything that is not in its outbox, it looks into its own mailbox: what is there, it can only say again. Where
there is nothing, it asks its neighbours what they last heard of it, and waits for their signed answers (`ask`). A
server that has forgotten our words, or hides them, can then only stop us. With their answers comes what this site has
told them of its books (`heads`), in this run and in others: what its ledger lacks of that must be booked first.

Two folders that begin at the same time for the same rows are told nothing of each other at their start. So neighbours
are asked again before the last words of a run, while all of them still wait for these, and before a run is refused for
its cost: otherwise a ledger that is full would never hear of the other one.
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
    Watcher,
    end_by,
)
from sottovoce.federation.site.letters import Heard, Sighting
from sottovoce.federation.site.mail import Answer, Letter, Mail, Pace, refuse_other_rows
from sottovoce.federation.site.part import Finished, Hearing, Outcome, Standing
from sottovoce.federation.site.seat import Seat
from sottovoce.federation.site.shown import taken
from sottovoce.federation.site.stops import (
    BehindError,
    LostNeighbourError,
    UsedTwiceError,
)
from sottovoce.federation.site.witness import Witness
from sottovoce.federation.transport.transport import PutOutcome, Transport, UnreachableError
from sottovoce.federation.transport.wire import Kind, Slot, books_of, digest_of

T = TypeVar("T")
Probe: TypeAlias = Callable[[str, int], None]
# Where a probe is called, in the order of a round. A masked sum has begun once it is known where it is taken. "dropped"
# only happens when a neighbour is.
POINTS = (
    "began", "reserved", "computed", "in outbox", "bound", "published", "dropped", "collected", "absorbed",
    "checkpointed",
)  # fmt: skip
_SLICES = 6  # how often within the agreed time a silent neighbour is judged


def result_of(seat: Seat) -> Finished | None:
    """What a run that was finished before has left behind; None if it is not finished."""
    if not seat.over:
        return None
    seat.journal.finish()  # the process before may have been ended after its last round, and before it was wound up
    return _result(seat, seat.standing())


def so_far(seat: Seat) -> Finished | None:
    """What a run has shown until now, at a site that has stopped; None before there is a model. It is made of messages
    that were paid for.
    """
    last = seat.standing()
    return _result(seat, last) if seat.part.has_model(last) else None


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
        told.tell(end_by(error))
        raise


class _Run:
    """One site's part in one run, in this process. The order within a round is that of the module's first lines."""

    def __init__(self, seat: Seat, transport: Transport, watcher: Watcher, probe: Probe, pace: Pace) -> None:
        self.seat, self.watcher, self.pace, self._probe = seat, watcher, pace, probe
        self.agreement, self.journal, self.part = seat.agreement, seat.journal, seat.part
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
        after = seat.standing()
        self.watcher.tell(RunBegan(seat.facts(), seat.spending()))
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
                if self.part.confirms:
                    await self.part.confirm(self, after.witness, policy)
        self.journal.finish()
        self.watcher.tell(RunFinished(self.agreement.algorithm.rounds, self.journal.absent))
        return _result(seat, after)

    # -- one round ----------------------------------------------------------------------------------------------------

    async def _round(self, k: int, before: Standing, policy: Policy) -> Standing:
        """One round, from local work to the checkpoint."""
        policy.check()
        self.watcher.tell(RoundBegan(k))
        ready = await self.part.prepare(self, k, before, policy)
        if ready is None:
            return self._given_up(k, before, {})
        self.probe("began", k)
        message, computed = await self._release(k, ready, policy)
        outcome = await self.mail.deliver(self.mail.slot(k, self.seat.site), message)
        self.watcher.tell(Published(k, outcome is PutOutcome.ALREADY_THERE))
        self.probe("published", k)
        letters, dropped = await self._collect(k, before.witness, policy)
        self.probe("collected", k)
        if dropped:
            return self._given_up(k, before, {self.seat.site: digest_of(message)} | _digests(letters))
        # Read back from the bytes that were sent: after a crash these are all there is, and the numbers are the same.
        own = self.mail.open_letter(self.mail.slot(k, self.seat.site), message)
        witness = self._extend_witness(k, before.witness, {self.seat.site: own, **letters})
        after = await self.part.take_in(k, computed, own, letters, witness)
        self.probe("absorbed", k)
        self._checkpoint(k, after, (self.seat.site, *letters))
        return after

    def probe(self, point: str, k: int) -> None:
        """A point of round k is reached."""
        self._probe(point, k)

    def _given_up(self, k: int, before: Standing, said: Mapping[str, bytes]) -> Standing:
        """The site after a sum that is made again without somebody: nothing is learnt of it but who spoke for it, as
        far as that was heard. `said`: digests of these messages, by site.
        """
        # Booked also if this site has not spoken: the ledger knows no gaps, and this attempt was paid for beforehand.
        self.seat.reserve(k)
        after = before.with_witness(before.witness.given_up(self.agreement, k, said, self.journal.absent))
        self.probe("absorbed", k)
        self._checkpoint(k, after, tuple(said))
        return after

    def _checkpoint(self, k: int, after: Standing, senders: tuple[str, ...]) -> None:
        """Write down where the site stands after round k, and tell whoever watches."""
        self.journal.checkpoint(k, after.dumps(), after.opened)
        self.probe("checkpointed", k)
        shown = taken(self.agreement, senders, after, self.seat.turn(k + 1).attempt)
        self.watcher.tell(RoundDone(k, self.seat.spending(), shown))

    # -- speaking -----------------------------------------------------------------------------------------------------

    async def _release(self, k: int, before: Standing, policy: Policy) -> tuple[bytes, Standing]:
        """The message of round k and where the site stands with it: as the outbox has them, or computed now."""
        seat, slot, said = self.seat, self.mail.slot(k, self.seat.site), self.journal.said(k)
        held = None if said is not None or self.asked else await self._look_back(k, policy)
        if k == seat.last_number and said is None and held is None and self.last_asked < k:
            await self._ask_at_the_end(k, policy)
        # In this order: rows are hashed, the round is paid for, and only then is a row used.
        seat.check_rows()
        seat.reserve(k)
        self.probe("reserved", k)
        if said is None:
            refuse_other_rows(slot, before.witness.binding_of(self.agreement, seat.site), seat.binding)
            computed = await self.part.compute(self, k, before)
            message, after = self.mail.seal(slot, computed.payload), computed.standing
            if held is not None:
                # Noise is a function of the same things, so only other rows or another history bring out other words.
                if digest_of(held) != digest_of(message):
                    self.mail.refuse_held(slot, held)
                message = held  # as it was said first, with the books of that time
            self.journal.put(k, message, computed.state)
            self.probe("in outbox", k)
        else:
            message, after = said.message, self.part.resume(before, said.state)
        seat.bind(k, message)
        self.probe("bound", k)
        return message, after

    # -- what others know of us ---------------------------------------------------------------------------------------

    async def _look_back(self, k: int, policy: Policy) -> bytes | None:
        """What the site's mailbox of round k holds already; if it is empty, the neighbours are asked."""
        own = self.mail.slot(k, self.seat.site)
        held = await self.mail.look(own)
        if held is None:
            await self.ask(k, policy)
        elif not self.mail.is_bound(own, held, self.seat.binding):
            self.mail.refuse_held(own, held)  # computing would be in vain: with another key it cannot come out the same
        return held

    async def ask(self, k: int, policy: Policy, but: frozenset[str] = frozenset()) -> None:
        """Ask all neighbours `but` some what they last heard of us and of our books, and stop if any of it is news."""
        enough = partial(self.part.answered, k)
        answers = await self.gather(k, policy, await self._question(k), self._refuse_unasked, but, enough)
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
            await self.ask(k, policy)

    async def _told_before(self, refused: BudgetError) -> SottovoceError:
        """Why the run does not begin: its cost, unless neighbours tell that the ledger lacks what was spent elsewhere.

        They may not be there yet, and nothing is spent either way, so that they are not waited for much longer than an
        answer takes.
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

    async def _collect(self, k: int, witness: Witness, policy: Policy) -> Outcome:
        """Everyone's message of round k, but for those that the site goes on without."""

        def read(slot: Slot, data: bytes) -> Letter:
            letter = self.mail.open_letter(slot, data)
            refuse_other_rows(slot, witness.binding_of(self.agreement, slot.site), letter.words.binding)
            self.heard[slot.site] = Sighting(k, digest_of(data))
            self.seat.heads.hear(self.agreement.member(slot.site).public_key, self.agreement.run, k, books_of(data))
            return letter

        outcome = await self.part.collect(self, k, read, policy)
        self.seat.heads.flush()
        for name, letter in outcome.letters.items():
            # Before anything is absorbed: a run in which somebody lies is not gone on with.
            witness.check(self.agreement, self.seat.site, name, letter.words.testimony)
        return outcome

    def hearing(self, k: int, read: Callable[[Slot, bytes], T], kind: Kind) -> Hearing[T]:
        """Asks some once, side by side, for their messages of round k; stops if the server is away for too long."""
        away, seconds = 0.0, self.seconds

        async def hear(names: Collection[str]) -> dict[str, Answer[T]]:
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
            # One answer is enough to know that the server is there.
            away = 0.0 if any(answer.reached for answer in answers.values()) else away + seconds
            self._check_server(away, k)
            self.board.check()
            if silences and enough(found, silences):
                return found
            if silences:
                self.watcher.tell(Waiting(k, {name: silence.total for name, silence in silences.items()}))
                # Decided after everyone was asked once more: nobody is dropped whose message has just come.
                for name in await policy.lost(k, silences):
                    await drop(k, name)
                    del silences[name]
        return found

    @property
    def seconds(self) -> float:
        """Seconds between two judgements of those who are silent."""
        return min(self.pace.slice, self.agreement.lost_neighbour.wait_seconds / _SLICES)

    def _check_server(self, away: float, k: int) -> None:
        """Tell that the server is away, and stop when that has lasted for as long as `pace` allows, in seconds."""
        if away > 0:
            self.watcher.tell(ServerSilent(away))
        if away >= self.pace.server:
            raise UnreachableError(
                f"Expected an answer from the message server within {self.pace.server:g} s in round={k}, got none. "
                "When it is back, run the same command again."
            )

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


def _digests(letters: Mapping[str, Letter]) -> dict[str, bytes]:
    return {name: digest_of(letter.data) for name, letter in letters.items()}


async def _all(waiting: Iterable[Awaitable[T]]) -> list[T]:
    """All of them; if one fails, the others finish before its error is raised."""
    answers = await asyncio.gather(*waiting, return_exceptions=True)
    for answer in answers:
        if isinstance(answer, BaseException):
            raise answer
    return cast(list[T], answers)


def _result(seat: Seat, last: Standing) -> Finished:
    """What the site ends with."""
    rounds = min(seat.turn(seat.journal.round + 1).release - 1, seat.agreement.algorithm.rounds)
    return seat.part.result(rounds, last)
