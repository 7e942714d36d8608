"""How messages travel: a mailbox for every address (`wire.Slot`), which takes one message and keeps it.

A transport is trusted with nothing but delivery. It may lose, delay, change or invent bytes; what it hands out must be
unsealed (`wire.unseal`) before use. Two things it does promise, as long as the server behaves:

    put once    the first message put into a mailbox stays there. Whoever comes second is told, and given what is there:
                equal bytes are one's own, sent before a crash; other bytes mean that the name is used twice.
    durable     when `put_once` returns, the message outlives the server's process.

Nothing waits longer than its timeout. Servers that die and come back are waited for within it. Every call may be
cancelled at any time; a put that was cancelled or that ran out of time may or may not have been done, and is repeated
with the same bytes.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from enum import Enum
from math import inf
from types import TracebackType
from typing import Self, final

from sottovoce.errors import SottovoceError, expect
from sottovoce.federation.transport.wire import Slot


class TransportError(SottovoceError):
    """Messages cannot be exchanged."""


class UnreachableError(TransportError):
    """The server did not answer in time. Whether a put was done is not known."""


class RefusedError(TransportError):
    """The server answered, and will not do it: it does not know us, or does not let us, or is set up otherwise."""


def check_timeout(timeout: float) -> None:
    """No wait without an end."""
    expect(0 < timeout < inf, "a finite timeout > 0 seconds", timeout=timeout)


class PutOutcome(Enum):
    """How a put ended. Neither says whose bytes the mailbox holds: compare them."""

    STORED = "stored"
    ALREADY_THERE = "already there"


@final
@dataclass(frozen=True)
class PutResult:
    """How a put ended, and what the mailbox now holds. If that is not what was put, stop: the name is used twice."""

    outcome: PutOutcome
    held: bytes


class Transport(ABC):
    """Mailboxes of one run, as one site sees them. Use it as an asynchronous context manager, or close it."""

    @abstractmethod
    async def put_once(self, slot: Slot, data: bytes, timeout: float) -> PutResult:
        """Put a message into an empty mailbox.

        Args:
            slot: the mailbox, one of this site's own.
            data: the message. To be repeated with the same bytes if this fails.
            timeout: in seconds.

        Raises:
            UnreachableError: the server did not answer in time. The message may or may not be there.
            RefusedError: the server answered, and will not store it.
        """

    @abstractmethod
    async def get(self, slot: Slot, timeout: float) -> bytes | None:
        """The message, as soon as it is there; None if it is not there in time.

        `UnreachableError` if the server has not answered: no answer in time is not an empty mailbox. If what comes is
        refused by `wire.unseal`, ask a second time before blaming the site: the first answer may have been pushed by
        somebody else, the second is read from the mailbox itself.
        """

    @abstractmethod
    async def look(self, slot: Slot, timeout: float) -> bytes | None:
        """What the mailbox holds now, None if it is empty; `UnreachableError` if the server does not answer in time."""

    @abstractmethod
    async def close(self) -> None:
        """Let go of everything; later calls are refused. Closing twice is fine."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()
