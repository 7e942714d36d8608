"""Messages that the server sent by itself, until they are asked for. Memory only: what is lost here is read again.

A push is a hint that saves a question. Nothing here is checked or trusted; `mail` opens what comes out.
"""

import asyncio
from collections.abc import Sequence
from typing import final

from sottovoce.federation.transport.wire import (
    Kind,
    Slot,
)

# Of each site and kind: a neighbour can be a round or two ahead, and a few notices may come together.
KEPT_EACH = 8


@final
class Arrivals:
    """What was pushed and not yet taken.

    For each site and kind only a few messages are kept, those with the smallest numbers that nobody has had yet: the
    others can be read from their mailboxes. So neither a fast site nor a bad one fills the memory. A mailbox's message
    is handed out at most once.
    """

    def __init__(self, sites: Sequence[str], largest: int) -> None:
        self._largest = largest
        self._kept: dict[tuple[str, Kind], dict[Slot, bytes]] = {(site, kind): {} for site in sites for kind in Kind}
        # Rounds and notices are asked for in order, answers are not.
        self._last_read: dict[tuple[str, Kind], int] = {}
        self._watchers: dict[Slot, set[asyncio.Future[None]]] = {}
        # Whether pushes have come on this connection: then the next one is worth waiting for.
        self.flowing = False

    def restart(self) -> None:
        """The connection is new: pushes may have been missed."""
        self.flowing = False

    def add(self, token: str, site: str, data: bytes) -> None:
        """Keep a push, if its mailbox can still be asked for. The address comes as it stands in the subject."""
        address = Slot.of_token(token, site)
        if address is None or len(data) > self._largest or self._was_read(address):
            return
        # A stranger's push has no place here.
        kept = self._kept.get((site, address.kind))
        if kept is None:
            return
        self.flowing = True
        kept[address] = data
        if len(kept) > KEPT_EACH:
            # The furthest ahead: it is asked for last, and can be read from its mailbox then.
            del kept[max(kept, key=lambda slot: slot.number)]
        for watcher in self._watchers.get(address, ()):
            if not watcher.done():
                watcher.set_result(None)

    def mark_read(self, address: Slot) -> None:
        """The message was read: a push of it is no longer wanted, nor are those before it.

        Rounds and notices are read in order, so what is before is of no use. Answers are not: only this one is
        forgotten.
        """
        place = address.site, address.kind
        if place not in self._kept:
            return
        if address.kind is Kind.ANSWER:
            self._kept[place].pop(address, None)
            return
        last = self._last_read[place] = max(self._last_read.get(place, -1), address.number)
        self._kept[place] = {slot: data for slot, data in self._kept[place].items() if slot.number > last}

    def _was_read(self, address: Slot) -> bool:
        """Whether this mailbox, or a later one of its site and kind, was read before."""
        return address.number <= self._last_read.get((address.site, address.kind), -1)

    def _take(self, address: Slot) -> bytes | None:
        """A push that was kept, marked as read; None if there is none."""
        data = self._kept.get((address.site, address.kind), {}).get(address)
        if data is not None:
            self.mark_read(address)
        return data

    async def wait(self, address: Slot, seconds: float) -> bytes | None:
        """A push, as soon as it is there; None if it does not come in time."""
        data = self._take(address)
        if data is not None or seconds <= 0:
            return data
        watcher = asyncio.get_running_loop().create_future()
        watchers = self._watchers.setdefault(address, set())
        watchers.add(watcher)
        try:
            await asyncio.wait([watcher], timeout=seconds)
        finally:
            watchers.discard(watcher)
            if not watchers:
                self._watchers.pop(address, None)
        return self._take(address)
