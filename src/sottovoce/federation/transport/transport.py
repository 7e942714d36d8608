"""The interface of transports: a mailbox for every address (`wire.Slot`), which takes one message and keeps it.

A transport is trusted only with delivery. It may lose, delay, change or invent bytes, so they must be unsealed
(`wire.unseal`) before use. It promises two things, as long as the server behaves:

    put once    the first message put into a mailbox stays there. A second put is told so, and returns that message:
                equal bytes are the site's own, sent before a crash; other bytes mean that its name is used twice.
    durable     when `put_once` returns, the message outlives the server's process.

No call takes longer than its timeout. A server that dies and comes back is waited for within it. Every call may be
cancelled at any time. A put that was cancelled or ran out of time may or may not have been done, and must be repeated
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
    """Messages cannot be exchanged with the server."""


class UnreachableError(TransportError):
    """The server did not answer in time. It is not known whether a put was done."""


class RefusedError(TransportError):
    """The server answered and refused: the site is not known, has no right to do this, or the settings differ."""


def check_timeout(timeout: float) -> None:
    """Refuse a timeout that is not finite and above 0 seconds."""
    expect(0 < timeout < inf, "a finite timeout > 0 seconds", timeout=timeout)


class PutOutcome(Enum):
    """How a put ended. Only the bytes show whose message the mailbox holds."""

    STORED = "stored"
    ALREADY_THERE = "already there"


@final
@dataclass(frozen=True)
class PutResult:
    """How a put ended, and the bytes that the mailbox now holds. If they are not those put, the name is used twice."""

    outcome: PutOutcome
    held: bytes


class Transport(ABC):
    """One site's access to the mailboxes of a run. Use it as an asynchronous context manager, or close it."""

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

        `UnreachableError` if the server has not answered, so that nothing is known of the mailbox. If `wire.unseal`
        refuses the bytes, ask a second time before blaming the site: the first answer may have been pushed by another,
        the second is read from the mailbox itself.
        """

    @abstractmethod
    async def look(self, slot: Slot, timeout: float) -> bytes | None:
        """The mailbox's content now, None if it is empty; `UnreachableError` if the server does not answer in time."""

    @abstractmethod
    async def close(self) -> None:
        """Close all connections; later calls are refused. Closing twice is fine."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()
