"""What sites tell their neighbours about the run itself, where the agreement allows to go on without a lost site.

    gone      "from round k on I go on without that site": it must stop, since its messages no longer count everywhere
    waiting   "I am alive, and still wait for others in round k": whoever waits for me should not count me as lost

A site's notices lie in mailboxes of its own, far above all rounds: the first in the last mailbox, the next below it.
A notice is a signed message like any other, as long as a model, with one number in front and zeros behind:

    2 (sites k + i) + kind,        i the number of the lost site, or 0

Only notices of neighbours are read, and they can speak only of their own neighbours. So a bad site can send away those
who must rely on it anyway, and no one else.
"""

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum
from types import TracebackType
from typing import NamedTuple, Self, final

import numpy as np

from sottovoce.arrays import Floats
from sottovoce.engines.network.agreement import Agreement
from sottovoce.engines.network.mail import Mail
from sottovoce.engines.network.stops import LeftBehindError
from sottovoce.engines.network.transport import Outcome, PutResult
from sottovoce.engines.network.wire import LAST_ROUND
from sottovoce.errors import InputError, SottovoceError, expect

LISTENING = 30.0  # seconds of one question for the next notice


class Kind(IntEnum):
    """What a notice says."""

    GONE = 0
    WAITING = 1


@final
@dataclass(frozen=True)
class Notice:
    """One notice. `site` is who is gone, by number; 0 if nobody is."""

    kind: Kind
    round: int
    site: int = 0

    def to_vector(self, sites: int, length: int) -> Floats:
        """As the payload of a message."""
        vector = np.zeros(length)
        vector[0] = 2 * (sites * self.round + self.site) + self.kind
        return vector

    @classmethod
    def from_vector(cls, vector: Floats, sites: int) -> "Notice":
        """From a payload; `InputError` if it is none."""
        number = float(vector[0])
        whole = number >= 0 and number.is_integer() and number < 2.0**53 and not vector[1:].any()
        expect(whole, "a whole number and zeros in a notice", first=number)
        place, kind = divmod(int(number), 2)
        k, site = divmod(place, sites)
        return cls(Kind(kind), k, site)


class Wait(NamedTuple):
    """The last round in which a site said that it waits, and how often it has said so."""

    round: int
    times: int


def most_notices(agreement: Agreement) -> int:
    """How many notices one site may put: one for every site that it may lose, and some to say that it waits."""
    return len(agreement.sites) + agreement.algorithm.rounds + 16


def most_messages(agreement: Agreement) -> int:
    """How many mailboxes of a run can ever be filled, for whoever limits its stream."""
    notices = most_notices(agreement) if agreement.lost_neighbour.policy == "go-on" else 0
    return len(agreement.sites) * (agreement.algorithm.rounds + notices)


@final
class Board:
    """A site's own notices and its neighbours'. As an asynchronous context manager it listens in between.

    Args:
        mail: the site's letters.
        absent: neighbours that the site goes on without. What they say does not count any more.
    """

    def __init__(self, mail: Mail, absent: Iterable[str]) -> None:
        a = mail.agreement
        numbers = 2 * len(a.sites) * (a.algorithm.rounds + 1)
        expect(numbers < 2**52, "fewer rounds, so that a notice is one exact number", rounds=a.algorithm.rounds)
        self._mail, self._agreement, self._most = mail, a, most_notices(a)
        self._own = 0  # mailboxes that are known to be taken
        self._read = dict.fromkeys(a.neighbours(mail.site), 0)
        self._ignored = set(absent)
        self._waits: dict[str, Wait] = {}
        self._gone: set[str] = set()
        self._left_behind: tuple[str, int] | None = None
        self._failed: BaseException | None = None
        self._listeners: list[asyncio.Task[None]] = []

    # -- speaking -----------------------------------------------------------------------------------------------------

    async def tell_gone(self, k: int, site: str) -> None:
        """Say that a neighbour takes no further part. After a crash it is said again, or found said."""
        self._ignored.add(site)
        vector = self._vector(Notice(Kind.GONE, k, self._agreement.index(site)))
        while self._own < self._most:
            data = self._next(vector)
            if (await self._put(data)).held == data:
                return

    async def tell_waiting(self, k: int) -> None:
        """Say that this site is alive. The last few mailboxes are left for what matters more."""
        vector = self._vector(Notice(Kind.WAITING, k))
        while self._own < self._most - len(self._read):
            if (await self._put(self._next(vector))).outcome is Outcome.STORED:
                return

    def _vector(self, notice: Notice) -> Floats:
        return notice.to_vector(len(self._agreement.sites), self._agreement.model_size)

    def _next(self, vector: Floats) -> bytes:
        return self._mail.sealed(LAST_ROUND - self._own, vector)

    async def _put(self, data: bytes) -> PutResult:
        result = await self._mail.put(LAST_ROUND - self._own, data)
        self._own += 1
        return result

    # -- listening ----------------------------------------------------------------------------------------------------

    async def catch_up(self) -> None:
        """Read what was said before this process began."""
        await asyncio.gather(*(self._read_all(name) for name in self._read))
        self.check()

    def check(self) -> None:
        """Stop if a neighbour goes on without this site, or if listening has failed."""
        if self._failed is not None:
            raise self._failed
        if self._left_behind is not None:
            name, k = self._left_behind
            raise LeftBehindError(
                f"Expected to take part until the end, got word from site={name!r} that it goes on without "
                f"site={self._mail.site!r} since round={k}: we were silent for too long. The others finish the run."
            )

    def wait_of(self, name: str) -> Wait:
        """What a neighbour last said of its waiting."""
        return self._waits.get(name, Wait(0, 0))

    @property
    def gone(self) -> frozenset[str]:
        """Sites that some neighbour goes on without."""
        return frozenset(self._gone)

    async def __aenter__(self) -> Self:
        self._listeners = [asyncio.get_running_loop().create_task(self._listen(name)) for name in self._read]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for listener in self._listeners:
            listener.cancel()
        await asyncio.gather(*self._listeners, return_exceptions=True)

    async def _listen(self, name: str) -> None:
        try:
            while self._read[name] < self._most:
                await self._read_next(name, LISTENING)
        except SottovoceError as error:
            self._failed = error

    async def _read_all(self, name: str) -> None:
        while self._read[name] < self._most and await self._read_next(name, self._mail.pace.look):
            pass

    async def _read_next(self, name: str, seconds: float) -> bool:
        k = LAST_ROUND - self._read[name]
        answer = await self._mail.hear(k, name, seconds)
        if answer.vector is None:
            return False
        self._read[name] += 1
        if name not in self._ignored:
            self._take(name, k, answer.vector)
        return True

    def _take(self, name: str, k: int, vector: Floats) -> None:
        a = self._agreement
        try:
            notice = Notice.from_vector(vector, len(a.sites))
            about = a.names[notice.site]
            if notice.kind is Kind.GONE:
                expect(about in a.neighbours(name), f"{name} to speak of its own neighbours only", about=about)
        except InputError as error:
            self._mail.watcher.refused(k, name, "not a notice", str(error))
            return
        if notice.kind is Kind.WAITING:
            self._waits[name] = Wait(notice.round, self.wait_of(name).times + 1)
            self._mail.watcher.noticed(name, f"waits for others in round {notice.round}")
            return
        self._mail.watcher.noticed(name, f"goes on without {about} since round {notice.round}")
        if about == self._mail.site:
            self._left_behind = name, notice.round
        else:
            self._gone.add(about)
