"""A site, round by round. The order of things makes sure that a crash can only count too much:

    reserve in the ledger - compute - outbox - bind the message in the ledger - publish
        - collect the neighbours' messages - absorb - checkpoint

What comes before a dash is on the disk before what comes after it begins; only a checkpoint waits for the next outbox,
which it is written with. After a crash the last checkpoint is loaded. If the outbox holds the next round, the very same
bytes are sent and the state that goes with them is used. If it does not, nothing of that round was ever sent, and it is
computed: under the same reservation, with new noise.
"""

import asyncio
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from typing import Any, TypeAlias, final

import numpy as np

from sottovoce.arrays import Array, Floats
from sottovoce.engines.network.absent import Policy, Silence, policy_for
from sottovoce.engines.network.events import Watcher
from sottovoce.engines.network.mail import Mail, Pace
from sottovoce.engines.network.notices import Board
from sottovoce.engines.network.seat import Seat, as_message
from sottovoce.engines.network.snapshot import Snapshot, pack_state, unpack_state
from sottovoce.engines.network.transport import Outcome, Transport, UnreachableError

Probe: TypeAlias = Callable[[str, int], None]
# Where a probe is called, in the order of a round. "dropped" only happens when a neighbour is.
POINTS = (
    "reserved", "computed", "in outbox", "bound", "published", "dropped", "collected", "absorbed", "checkpointed",
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
        rounds: how many there were.
        absent: neighbours that the site went on without, each with the first round without it.
        state: the algorithm's, after the last round. It must not leave the site.
    """

    model: Floats
    own: Floats
    rounds: int
    absent: Mapping[str, int]
    state: Any


def result_of(seat: Seat) -> Finished | None:
    """What a run that was finished before has left behind; None if it is not finished."""
    return _finished(seat, seat.resumed()) if seat.journal.round == seat.agreement.algorithm.rounds else None


def unwatched(point: str, k: int) -> None:
    """The probe that does nothing."""


async def run_site(
    seat: Seat,
    transport: Transport,
    *,
    watcher: Watcher | None = None,
    probe: Probe = unwatched,
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
        DamagedError: ledger and journal cannot be used, or do not belong together.
        LostNeighbourError, LeftBehindError, UsedTwiceError, UnreachableError: see there. The site has stopped cleanly.
    """
    told = Watcher() if watcher is None else watcher
    try:
        return await _Run(seat, transport, told, probe, Pace() if pace is None else pace).finish()
    except BaseException as error:
        told.stopped(error)
        raise


class _Run:
    def __init__(self, seat: Seat, transport: Transport, watcher: Watcher, probe: Probe, pace: Pace) -> None:
        self.seat, self.watcher, self.probe, self.pace = seat, watcher, probe, pace
        self.algorithm, self.journal = seat.agreement.algorithm, seat.journal
        self.mail = Mail(seat.agreement, seat.site, seat.key, transport, watcher, pace)

    async def finish(self) -> Finished:
        seat, rounds = self.seat, self.algorithm.rounds
        seat.check_books()
        seat.check_budget()
        after = seat.resumed()
        self.watcher.began(seat.facts(), seat.spending())
        if self.journal.round < rounds:
            async with AsyncExitStack() as stack:
                policy = await self._begin(stack)
                for k in range(self.journal.round + 1, rounds + 1):
                    after = await self._round(k, after, policy)
            self.journal.settle()
        self.watcher.finished(rounds, self.journal.absent)
        return _finished(seat, after)

    async def _begin(self, stack: AsyncExitStack) -> Policy:
        """Look whether somebody speaks in our name, and what the neighbours have said about us."""
        board = Board(self.mail, self.journal.absent) if self.seat.drops else None
        k = self.journal.round + 1
        if self.journal.said(k) is None:
            await self.mail.expect_unsaid(k)
        if board is not None:
            await board.catch_up()
            await stack.enter_async_context(board)
        policy = policy_for(self.seat.agreement, self.seat.site, board)
        await policy.begin(self.journal.absent)
        return policy

    # -- one round ----------------------------------------------------------------------------------------------------

    async def _round(self, k: int, before: Snapshot, policy: Policy) -> Snapshot:
        policy.check()
        self.watcher.round_began(k)
        message, state = await self._release(k, before.state)
        outcome = await self.mail.deliver(k, message)
        self.watcher.published(k, outcome is Outcome.ALREADY_THERE)
        self.probe("published", k)
        heard = await self._collect(k, policy)
        self.probe("collected", k)
        after = self._absorb(k, replace(before, state=state), self.mail.opened(k, self.seat.site, message), heard)
        self.probe("absorbed", k)
        self.journal.checkpoint(k, after.dumps())
        self.probe("checkpointed", k)
        self.watcher.round_done(k, self.seat.spending())
        return after

    async def _release(self, k: int, state: Any) -> tuple[bytes, Any]:
        """The message of round k and the state after it: as the outbox has them, or computed now."""
        seat = self.seat
        seat.reserve(k)
        self.probe("reserved", k)
        said = self.journal.said(k)
        if said is None:
            # In a thread: while a site computes, it goes on listening.
            vector, state = await asyncio.to_thread(self.algorithm.release, k, state, self._oracle(k - 1), seat.source)
            self.probe("computed", k)
            message = self.mail.sealed(k, np.ascontiguousarray(vector[0, :, 0]))
            self.journal.put(k, message, pack_state(state))
            self.probe("in outbox", k)
        else:
            message, state = said.message, unpack_state(said.state, seat.start.state)
        seat.bind(k, message)
        self.probe("bound", k)
        return message, state

    async def _collect(self, k: int, policy: Policy) -> dict[str, Floats]:
        """Everyone's message of round k, but for those that the site goes on without."""
        heard: dict[str, Floats] = {}
        silences = {name: Silence() for name in self.seat.neighbours if self.seat.takes_part(name, k)}
        away, seconds = 0.0, min(self.pace.slice, self.seat.agreement.lost_neighbour.wait_seconds / _SLICES)
        while silences:
            answers = await self.mail.hear_all(k, silences, seconds)
            for name, answer in answers.items():
                if answer.vector is None:
                    silences[name].add(seconds, answer)
                else:
                    heard[name] = answer.vector
                    del silences[name]
            away = 0.0 if any(answer.reached for answer in answers.values()) else away + seconds
            self._check_server(away, k)
            if silences:
                self.watcher.waiting(k, {name: silence.total for name, silence in silences.items()})
                for name in await policy.lost(k, silences):
                    await self._drop(k, name, policy)
                    del silences[name]
        return heard

    def _check_server(self, away: float, k: int) -> None:
        if away > 0:
            self.watcher.server_silent(away)
        if away >= self.pace.server:
            raise UnreachableError(
                f"Expected an answer from the message server within {self.pace.server:g} s in round={k}, got none. "
                "When it is back, run the same command again."
            )

    async def _drop(self, k: int, name: str, policy: Policy) -> None:
        # Written down first: whoever was told that a site is gone can rely on it, also after a crash.
        self.journal.drop(k, name)
        self.probe("dropped", k)
        self.watcher.dropped(k, name)
        await policy.drop(k, name)

    def _absorb(self, k: int, before: Snapshot, said: Floats, heard: Mapping[str, Floats]) -> Snapshot:
        """Take in a round, and undo the past of those who are absent from this round on."""
        own, state = as_message(said), before.state
        edges: dict[str, Array] = {}
        for name, edge in before.edges.items():
            if name in heard:
                edges[name] = edge + (own - as_message(heard[name]))
            else:
                state = self.algorithm.without(state, edge)
        # In the order of the sites, as a simulation does.
        total = np.zeros_like(own)
        for name in self.seat.neighbours:
            if name in heard:
                total = total + as_message(heard[name])
        return Snapshot(self.algorithm.absorb(k, state, self._oracle(k), total), own, total, edges)

    def _oracle(self, k: int) -> Any:
        """For the neighbours that were left at the end of round k."""
        left = sum(self.seat.takes_part(name, k) for name in self.seat.neighbours)
        return self.seat.oracle if left == len(self.seat.neighbours) else self.seat.with_neighbours(left)


def _finished(seat: Seat, last: Snapshot) -> Finished:
    rounds = seat.agreement.algorithm.rounds
    left = sum(seat.takes_part(name, rounds) for name in seat.neighbours)
    said, heard = (np.asarray(array[0, :, 0], dtype=np.float64) for array in (last.said, last.heard))
    return Finished((said + heard) / (1 + left), said, rounds, seat.journal.absent, last.state)
