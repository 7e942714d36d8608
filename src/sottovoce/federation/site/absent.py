"""What a site does about a silent neighbour: the three policies that an agreement can name.

    wait    go on waiting; people are told
    stop    after `wait_seconds`, stop. The run can be resumed
    go-on   after `wait_seconds`, go on without it, but only in rounds after `go_on_after_round`

A site that waits says nothing. So its own neighbours, who wait for it in the next round, could count it as lost too,
and one failure would break up the whole run. Therefore a site that waits says so now and then (`board`), and its
neighbours then restart its clock. Up to go_on_after_round every site is waited for without limit. In the round after
that, so is a site that says it still waits in such a round.

In later rounds waiting ends. A site's clock restarts only if it waits in an earlier round than this site, so sites
cannot wait for each other in a circle. No site is given more than (1 + sites) times the agreed time, whatever it says.
"""

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, final

from sottovoce.federation.agreement.agreement import Agreement
from sottovoce.federation.site.board import Board
from sottovoce.federation.site.mail import Reply
from sottovoce.federation.site.stops import LostNeighbourError
from sottovoce.federation.site.witness import distances

# How often a waiting site says, within the agreed time, that it is alive. If one notice is late, the next is in time.
BEATS = 3


@dataclass
class Silence:
    """How long a neighbour has been silent in this round. All times are in seconds."""

    seconds: float = 0.0  # since it, or the server, last gave a sign of life
    total: float = 0.0
    bad: str = ""  # why the content of its mailbox was refused; empty if nothing was
    excused: bool = False  # it waits for others in a round in which everyone is waited for
    notices: int = 0  # how often it had said that it waits, at the last look

    def add(self, seconds: float, answer: Reply[Any]) -> None:
        """Add the time since the last answer. Time without an answer of the server does not count against the site."""
        self.bad = answer.bad or self.bad
        if answer.reached:
            self.seconds, self.total = self.seconds + seconds, self.total + seconds
        else:
            self.seconds = 0.0


class Policy(ABC):
    """Decides which silent neighbours to go on without. The caller writes the decision down and carries it out."""

    async def begin(self, absent: Mapping[str, int]) -> None:  # noqa: B027
        """Prepare for the first round of this process. `absent` are the sites that earlier processes have dropped."""

    def check(self) -> None:  # noqa: B027
        """Called before every round; raises if the site has to stop."""

    @abstractmethod
    async def lost(self, k: int, silences: Mapping[str, Silence], voting: Collection[str] = ()) -> list[str]:
        """The sites awaited in round k that the run goes on without. Those in `voting` have spoken in round k; what is
        awaited of them is their vote about others.
        """

    async def late(self, k: int, silences: Mapping[str, Silence], voting: Collection[str] = ()) -> list[str]:
        """The sites that are late in round k, where being late only ends the waiting and drops nobody."""
        return await self.lost(k, silences, voting)

    async def drop(self, k: int, name: str) -> None:  # noqa: B027
        """Called after the decision to go on without this neighbour is in the journal."""


@final
class Waits(Policy):
    """Wait for ever; no site is ever lost."""

    async def lost(self, k: int, silences: Mapping[str, Silence], voting: Collection[str] = ()) -> list[str]:  # noqa: ARG002
        return []


@final
class Stops(Policy):
    """Stop the run once a neighbour has been silent for `seconds`. The error names the silent neighbours."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds

    async def lost(self, k: int, silences: Mapping[str, Silence], voting: Collection[str] = ()) -> list[str]:  # noqa: ARG002
        late = [name for name, silence in silences.items() if silence.seconds >= self._seconds]
        if late:
            bad = [f"one of {name} that was refused ({silences[name].bad})" for name in late if silences[name].bad]
            raise LostNeighbourError(
                f"Expected the messages of {', '.join(late)} in round={k} within {self._seconds:g} s, got "
                f"{', '.join(bad) or 'none'}. The agreement says to stop then. When they are back, run the same "
                "command again."
            )
        return []


@final
class GoesOn(Policy):
    """Go on without a silent neighbour, in rounds after the agreed one, as long as the other sites stay connected."""

    def __init__(self, agreement: Agreement, site: str, board: Board) -> None:
        self._board, self._agreement, self._site = board, agreement, site
        self._seconds = agreement.lost_neighbour.wait_seconds
        self._first = agreement.lost_neighbour.go_on_after_round or 0
        self._absent: set[str] = set()
        self._told = (0, 0.0)  # the round in which this site last said that it waits, and after how many seconds

    async def begin(self, absent: Mapping[str, int]) -> None:
        for name, k in absent.items():
            await self._board.tell_gone(k, name)
            self._absent.add(name)

    def check(self) -> None:
        self._board.check()

    async def lost(self, k: int, silences: Mapping[str, Silence], voting: Collection[str] = ()) -> list[str]:
        late = await self.late(k, silences, voting)
        # Stop, before anything is written, if the sites that are left would no longer be connected.
        away = self._absent | self._board.gone | set(late)
        if late and not are_connected(self._agreement, away, self._site):
            raise LostNeighbourError(
                f"Expected those who are left to be connected, got none of {', '.join(sorted(away))} in round={k}, "
                f"without whom site={self._site!r} is alone or cut off from others. When they are back, run the same "
                "command again."
            )
        return late

    async def late(self, k: int, silences: Mapping[str, Silence], voting: Collection[str] = ()) -> list[str]:
        self._board.check()
        for name, silence in silences.items():
            # A site that has spoken in this round may still wait for others in it.
            self._excuse((k - 1, k) if name in voting else (k - 1,), name, silence)
        await self._say_that_we_wait(k, max(silence.total for silence in silences.values()))
        # A chain of honest waits has at most as many links as there are sites, so a longer wait is not honest.
        longest = (1 + len(self._agreement.sites)) * self._seconds
        return [
            name
            for name, silence in silences.items()
            if k > self._first and not silence.excused
            and (silence.seconds >= self._seconds or silence.total >= longest)
        ]  # fmt: skip

    async def drop(self, k: int, name: str) -> None:
        self._absent.add(name)
        await self._board.tell_gone(k, name)

    def _excuse(self, rounds: Collection[int], name: str, silence: Silence) -> None:
        """Restart a neighbour's clock if it has said again that it waits for others, in one of these rounds.

        A neighbour that waits in a later round must have sent its message already, so that does not count.
        """
        wait = self._board.wait_of(name)
        if wait.times > silence.notices and wait.round in rounds and not silence.bad:
            # Answers are not waited for without limit, so a site that waits for answers is not either.
            silence.seconds, silence.excused = 0.0, wait.round <= self._first and not wait.asks
        silence.notices = wait.times

    async def _say_that_we_wait(self, k: int, waited: float) -> None:
        """Tell the neighbours that this site is alive, a few times within the agreed time."""
        if waited < self._told[1]:  # the wait for something else has begun: for messages, after answers
            self._told = self._told[0], 0.0
        told, after = self._told
        due = after + self._seconds / BEATS if told == k else self._seconds / BEATS
        # While all sites are waited for without limit, one notice is enough: it excuses for good.
        if waited >= due and not (told == k and k <= self._first):
            self._told = k, waited
            await self._board.tell_waiting(k)


def policy_for(agreement: Agreement, site: str, board: Board) -> Policy:
    """The policy that this agreement names, for this site."""
    lost = agreement.lost_neighbour
    if lost.policy == "go-on":
        return GoesOn(agreement, site, board)
    return Stops(lost.wait_seconds) if lost.policy == "stop" else Waits()


def are_connected(agreement: Agreement, away: Collection[str], site: str) -> bool:
    """True if `site` and all others outside of `away` reach each other, and there is at least one other."""
    left = [name for name in agreement.names if name not in away]
    return len(left) > 1 and distances(agreement, site, frozenset(away)).keys() == set(left)
