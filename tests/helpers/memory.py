"""A transport without a server, for tests: several sites in one process share a `Post`.

It keeps the contract of `transport`, and has trouble on demand: it can lose what is put, deliver it late, change it on
the way, or be down.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from math import inf
from typing import final

from sottovoce.federation.transport.transport import (
    PutOutcome,
    PutResult,
    Transport,
    TransportError,
    UnreachableError,
    check_timeout,
)
from sottovoce.federation.transport.wire import Slot


@final
@dataclass(frozen=True)
class Trouble:
    """What goes wrong, by mailbox. Nothing, unless a test says so."""

    # The first so many puts never arrive: their sender hears nothing.
    lost: Mapping[Slot, int] = field(default_factory=dict)
    # A put is answered, but readers see the message only after so many seconds.
    late: Mapping[Slot, float] = field(default_factory=dict)
    # Readers get this function of the message.
    altered: Mapping[Slot, Callable[[bytes], bytes]] = field(default_factory=dict)


@final
class Post:
    """The mailboxes. They outlive the transports that use them, as a server's file store does."""

    def __init__(self, trouble: Trouble | None = None) -> None:
        self.trouble = Trouble() if trouble is None else trouble
        self._held: dict[Slot, bytes] = {}
        self._readable_at: dict[Slot, float] = {}
        self._lost: Counter[Slot] = Counter()
        self._up = True
        self._waiters: set[asyncio.Future[None]] = set()

    def stop(self) -> None:
        """Go down: nobody is answered until `start`. What is held stays."""
        self._up = False
        self._tell_all()

    def start(self) -> None:
        """Come back, with everything that was held."""
        self._up = True
        self._tell_all()

    async def put(self, address: Slot, data: bytes, timeout: float) -> PutResult:
        """Hold the message, unless the mailbox is taken; then return what is there."""
        deadline = _now() + timeout
        await self._answering(deadline)
        if self._lost[address] < self.trouble.lost.get(address, 0):
            self._lost[address] += 1
            await asyncio.sleep(deadline - _now())
            raise UnreachableError(f"Expected an answer to a put within {timeout:g} s, got none. Put it again.")
        if address in self._held:
            return PutResult(PutOutcome.ALREADY_THERE, self._held[address])
        self._held[address] = bytes(data)
        self._readable_at[address] = _now() + self.trouble.late.get(address, 0.0)
        self._tell_all()
        return PutResult(PutOutcome.STORED, self._held[address])

    async def get(self, address: Slot, timeout: float) -> bytes | None:
        """What is held, as soon as it may be seen; None if that is not before the timeout, in seconds."""
        deadline = _now() + timeout
        await self._answering(deadline)
        while not (self._up and self._readable_at.get(address, inf) <= _now()):
            if _now() >= deadline:
                return None
            falls_due = self._readable_at.get(address, deadline) if self._up else deadline
            await self._news(min(deadline, falls_due))
        return self.trouble.altered.get(address, bytes)(self._held[address])

    async def look(self, address: Slot, timeout: float) -> bytes | None:
        """What is held and may be seen now; None if nothing is."""
        await self._answering(_now() + timeout)
        if self._readable_at.get(address, inf) > _now():
            return None
        return self.trouble.altered.get(address, bytes)(self._held[address])

    async def _answering(self, deadline: float) -> None:
        """Wait until the post is up; `UnreachableError` if it is not by the deadline."""
        while not self._up:
            if _now() >= deadline:
                raise UnreachableError("Expected an answer in time, got none: the post is down. Start it again.")
            await self._news(deadline)

    async def _news(self, deadline: float) -> None:
        """Wait until something changes, or the time is up."""
        waiter = asyncio.get_running_loop().create_future()
        self._waiters.add(waiter)
        try:
            await asyncio.wait([waiter], timeout=max(deadline - _now(), 0.0))
        finally:
            self._waiters.discard(waiter)

    def _tell_all(self) -> None:
        """Wake everyone who waits: something has changed."""
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_result(None)


def _now() -> float:
    """The event loop's clock, in seconds."""
    return asyncio.get_running_loop().time()


class MemoryTransport(Transport):
    """One site's way to a shared `Post`."""

    def __init__(self, post: Post) -> None:
        self._post = post
        self._closed = False

    async def put_once(self, slot: Slot, data: bytes, timeout: float) -> PutResult:
        self._check(timeout)
        return await self._post.put(slot.checked(), data, timeout)

    async def get(self, slot: Slot, timeout: float) -> bytes | None:
        self._check(timeout)
        return await self._post.get(slot.checked(), timeout)

    async def look(self, slot: Slot, timeout: float) -> bytes | None:
        self._check(timeout)
        return await self._post.look(slot.checked(), timeout)

    async def close(self) -> None:
        self._closed = True

    def _check(self, timeout: float) -> None:
        """Refuse a wait without an end, and anything after `close`."""
        check_timeout(timeout)
        if self._closed:
            raise TransportError("Expected an open transport, got one that was closed. Open a new one.")
