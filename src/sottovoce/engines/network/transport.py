"""How messages travel: a mailbox for every (round, site), which takes one message and keeps it.

A transport is trusted with nothing but delivery. It may lose, delay, change or invent bytes; what it hands out must be
decoded (`wire.decode`) before use. Two things it does promise, as long as the server behaves:

    put once    the first message put into a mailbox stays there. Whoever comes second is told, and given what is there:
                equal bytes are one's own, sent before a crash; other bytes mean that the name is used twice.
    durable     when `put_once` returns, the message outlives the server's process.

Nothing waits longer than its timeout. Servers that die and come back are waited for within it. Every call may be
cancelled at any time; a put that was cancelled or that ran out of time may or may not have been done, and is repeated
with the same bytes.
"""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from math import inf
from types import TracebackType
from typing import NamedTuple, Self, final

from sottovoce.engines.network.identity import check_site_name
from sottovoce.engines.network.wire import check_round
from sottovoce.errors import SottovoceError, expect


class TransportError(SottovoceError):
    """Messages cannot be exchanged."""


class UnreachableError(TransportError):
    """The server did not answer in time. Whether a put was done is not known."""


class RefusedError(TransportError):
    """The server answered, and will not do it: it does not know us, or does not let us, or is set up otherwise."""


class Slot(NamedTuple):
    """The address of a mailbox."""

    round: int
    site: str


def slot(k: int, site: str) -> Slot:
    """A checked address."""
    check_round(k)
    check_site_name(site)
    return Slot(k, site)


def check_timeout(timeout: float) -> None:
    """No wait without an end."""
    expect(0 < timeout < inf, "a finite timeout > 0 seconds", timeout=timeout)


class Outcome(Enum):
    """How a put ended."""

    STORED = "stored"
    ALREADY_THERE = "already there"


@final
@dataclass(frozen=True)
class PutResult:
    """How a put ended, and what the mailbox now holds. If that is not what was put, stop: the name is used twice."""

    outcome: Outcome
    held: bytes


class Transport(ABC):
    """Mailboxes of one run, as one site sees them. Use it as an asynchronous context manager, or close it."""

    @abstractmethod
    async def put_once(self, k: int, site: str, data: bytes, timeout: float) -> PutResult:
        """Put a message into an empty mailbox; `UnreachableError` if the server does not answer in time."""

    @abstractmethod
    async def get(self, k: int, site: str, timeout: float) -> bytes | None:
        """The message, as soon as it is there; None if it is not there in time.

        `UnreachableError` if the server has not answered: no answer in time is not an empty mailbox. If what comes is
        refused by `wire.decode`, ask a second time before blaming the site: the first answer may have been pushed by
        somebody else, the second is read from the mailbox itself.
        """

    @abstractmethod
    async def close(self) -> None:
        """Let go of everything; later calls are refused. Closing twice is fine."""

    async def get_many(self, k: int, sites: Iterable[str], timeout: float) -> dict[str, bytes]:
        """The messages of a round that are there in time, by site.

        `UnreachableError` if there is none and the server never answered.
        """
        wanted = list(dict.fromkeys(sites))
        # Cancelling this call cancels all of them.
        answers = await asyncio.gather(*(self.get(k, site, timeout) for site in wanted), return_exceptions=True)
        unreachable = [answer for answer in answers if isinstance(answer, UnreachableError)]
        for answer in answers:
            if isinstance(answer, BaseException) and not isinstance(answer, UnreachableError):
                raise answer
        heard = {site: data for site, data in zip(wanted, answers, strict=True) if isinstance(data, bytes)}
        if unreachable and not heard:
            raise unreachable[0]
        return heard

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()
