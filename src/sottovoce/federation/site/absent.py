"""What a site does about a neighbour that has fallen silent: the three policies that an agreement can name.

    wait    go on waiting; people are told
    stop    after `wait_seconds`, stop. The run can be resumed
    go-on   after `wait_seconds`, go on without it, but only in rounds after `go_on_after_round`

Going on has a trap. A site that waits says nothing, so its own neighbours, who wait for it in the next round, may
count it as lost as well: one failure would tear the run apart. So a site that waits says so now and then
(`notices`), and is then given time anew. Up to go_on_after_round everyone is waited for, however long it takes; so
is, in the round after, whoever says that it waits for others in such a round.

Otherwise waiting ends. A site is given time only if it waits in an earlier round than we do, so sites cannot wait
for each other in a circle; and none is given more than (1 + sites) times the agreed time, whatever it says.
"""

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, final

from sottovoce.federation.agreement.agreement import Agreement
from sottovoce.federation.site.board import Board
from sottovoce.federation.site.mail import Answer
from sottovoce.federation.site.stops import LostNeighbourError
from sottovoce.federation.site.witness import distances

# If one comes late, the next is still in time.
BEATS = 3  # how often within the agreed time a waiting site says that it is alive


@dataclass
class Silence:
    """How long a neighbour has been awaited in this round. All times are in seconds."""

    seconds: float = 0.0  # since it, or the server, last gave a sign of life
    total: float = 0.0
    bad: str = ""  # why what its mailbox holds was refused, if it holds anything
    excused: bool = False  # it waits for others in a round in which everyone is waited for
    notices: int = 0  # how often it had said that it waits when we last looked

    def add(self, seconds: float, answer: Answer[Any]) -> None:
        """So much more time has passed, with this answer at its end. A silent server says nothing about a site."""
        self.bad = answer.bad or self.bad
        if answer.reached:
            self.seconds, self.total = self.seconds + seconds, self.total + seconds
        else:
            self.seconds = 0.0


class Policy(ABC):
    """Decides about silent neighbours. It says whom to go on without; the runner writes that down and does it."""

    async def begin(self, absent: Mapping[str, int]) -> None:  # noqa: B027
        """Before the first round of this process; `absent` were dropped before it."""

    def check(self) -> None:  # noqa: B027
        """Before every round: stop if there is a reason."""

    @abstractmethod
    async def lost(self, k: int, silences: Mapping[str, Silence], voting: Collection[str] = ()) -> list[str]:
        """Of those that are awaited in round k, the ones to go on without. Those who are `voting` have spoken in it,
        and are awaited for what they have to say of others.
        """

    async def late(self, k: int, silences: Mapping[str, Silence], voting: Collection[str] = ()) -> list[str]:
        """The same, where nobody is gone on without, and all that hangs on it is whether to wait any longer."""
        return await self.lost(k, silences, voting)

    async def drop(self, k: int, name: str) -> None:  # noqa: B027
        """It was decided, and written down, to go on without this neighbour."""


@final
class Waits(Policy):
    """Wait for ever: nobody is ever lost."""

    async def lost(self, k: int, silences: Mapping[str, Silence], voting: Collection[str] = ()) -> list[str]:  # noqa: ARG002
        return []


@final
class Stops(Policy):
    """Stop the run, with an error that names who was silent, once one has been for `seconds`."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds

    async def lost(self, k: int, silences: Mapping[str, Silence], voting: Collection[str] = ()) -> list[str]:  # noqa: ARG002
        late = [name for name, silence in silences.items() if silence.seconds >= self._seconds]
        if late:
            raise LostNeighbourError(
                f"Expected the messages of {', '.join(late)} in round={k} within {self._seconds:g} s, got "
                f"{_came(silences, late)}. The agreement says to stop then. When they are back, run the same command "
                "again."
            )
        return []


@final
class GoesOn(Policy):
    """Go on without a silent neighbour, in rounds after the agreed one, as long as the rest stay connected."""

    def __init__(self, agreement: Agreement, site: str, board: Board) -> None:
        self._board, self._agreement, self._site = board, agreement, site
        self._seconds = agreement.lost_neighbour.wait_seconds
        self._first = agreement.lost_neighbour.go_on_after_round or 0
        self._absent: set[str] = set()
        self._told = (0, 0.0)  # the round in which we last said that we wait, and after how long

    async def begin(self, absent: Mapping[str, int]) -> None:
        for name, k in absent.items():
            await self._board.tell_gone(k, name)
            self._absent.add(name)

    def check(self) -> None:
        self._board.check()

    async def lost(self, k: int, silences: Mapping[str, Silence], voting: Collection[str] = ()) -> list[str]:
        late = await self.late(k, silences, voting)
        self._refuse_torn(k, late)
        return late

    async def late(self, k: int, silences: Mapping[str, Silence], voting: Collection[str] = ()) -> list[str]:
        """Of those that are awaited in round k, the ones that have been silent for too long, whatever follows."""
        self._board.check()
        for name, silence in silences.items():
            # Whoever has spoken in this round may still wait in it for others.
            self._excuse((k - 1, k) if name in voting else (k - 1,), name, silence)
        await self._say_that_we_wait(k, max(silence.total for silence in silences.values()))
        return [name for name, silence in silences.items() if k > self._first and self._late(silence)]

    async def drop(self, k: int, name: str) -> None:
        self._absent.add(name)
        await self._board.tell_gone(k, name)

    def _excuse(self, rounds: Collection[int], name: str, silence: Silence) -> None:
        """Give it time anew if it has said again that it waits for others, in one of these rounds.

        If it says that it waits in a later one, what is awaited of it should be there.
        """
        wait = self._board.wait_of(name)
        if wait.times > silence.notices and wait.round in rounds and not silence.bad:
            # An answer is not waited for without end, so neither is whoever asks.
            silence.seconds, silence.excused = 0.0, wait.round <= self._first and not wait.asks
        silence.notices = wait.times

    def _late(self, silence: Silence) -> bool:
        """Whether it counts as lost: silent for the agreed time, or excused so often that patience ends."""
        # A chain of honest waits is at most as long as there are sites; whoever asks for more is not honest.
        longest = (1 + len(self._agreement.sites)) * self._seconds
        return not silence.excused and (silence.seconds >= self._seconds or silence.total >= longest)

    async def _say_that_we_wait(self, k: int, waited: float) -> None:
        """Tell the neighbours that this site is alive, a few times within the agreed time."""
        if waited < self._told[1]:  # for something else: words, after answers
            self._told = self._told[0], 0.0
        told, after = self._told
        due = after + self._seconds / BEATS if told == k else self._seconds / BEATS
        # While everyone is waited for without end, once is enough: it excuses for good.
        if waited >= due and not (told == k and k <= self._first):
            self._told = k, waited
            await self._board.tell_waiting(k)

    def _refuse_torn(self, k: int, late: Collection[str]) -> None:
        """Stop, before anything is written, if those who are left would not be connected any more."""
        if not late:
            return
        away = self._absent | self._board.gone | set(late)
        if not _connected(self._agreement, away, self._site):
            raise LostNeighbourError(
                f"Expected those who are left to be connected, got none of {', '.join(sorted(away))} in round={k}, "
                f"without whom site={self._site!r} is alone or cut off from others. When they are back, run the same "
                "command again."
            )


def policy_for(agreement: Agreement, site: str, board: Board) -> Policy:
    """The policy that this agreement names, for this site."""
    lost = agreement.lost_neighbour
    if lost.policy == "go-on":
        return GoesOn(agreement, site, board)
    return Stops(lost.wait_seconds) if lost.policy == "stop" else Waits()


def _came(silences: Mapping[str, Silence], late: Collection[str]) -> str:
    """What came instead of good messages."""
    bad = [f"one of {name} that was refused ({silences[name].bad})" for name in late if silences[name].bad]
    return ", ".join(bad) or "none"


def _connected(agreement: Agreement, away: Collection[str], site: str) -> bool:
    """Whether a site and all others that are left reach each other, and there is at least one other."""
    left = [name for name in agreement.names if name not in away]
    return len(left) > 1 and distances(agreement, site, frozenset(away)).keys() == set(left)
