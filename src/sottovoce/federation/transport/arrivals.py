"""Messages that the server pushed, kept in memory until they are asked for. A lost one is read from its mailbox.

A push saves a question to the server. Nothing is checked or trusted here; `mail` checks what comes out.
"""

import asyncio
from collections.abc import Sequence
from typing import final

from sottovoce.federation.transport.wire import Kind, Slot

# Of each site and kind: a neighbour can be a round or two ahead, and a few notices may come together.
KEPT_EACH = 8


@final
class Arrivals:
    """Messages that were pushed and not yet handed out.

    For each site and kind only the few with the smallest numbers are kept; the others can be read from their mailboxes.
    So neither a fast site nor a dishonest one can fill the memory. The message of a mailbox is handed out at most once.

    Args:
        sites: whose messages are kept.
        largest: bytes of the largest message; a longer one is ignored.
    """

    def __init__(self, sites: Sequence[str], largest: int) -> None:
        self._largest = largest
        self._kept: dict[tuple[str, Kind], dict[Slot, bytes]] = {(site, kind): {} for site in sites for kind in Kind}
        # Rounds and notices are asked for in order, answers are not.
        self._last_read: dict[tuple[str, Kind], int] = {}
        self._watchers: dict[Slot, set[asyncio.Future[None]]] = {}
        # True if pushes have come on this connection: then the next one is worth waiting for.
        self.flowing = False

    def restart(self) -> None:
        """Note that the connection is new, so that pushes may have been missed."""
        self.flowing = False

    def add(self, token: str, site: str, data: bytes) -> None:
        """Keep a push, unless it is too long, or its mailbox or a later one was read. `token` is as in the subject."""
        address = Slot.of_token(token, site)
        if address is None or len(data) > self._largest:
            return
        if address.number <= self._last_read.get((site, address.kind), -1):
            return
        # None for a site that is not listened to.
        kept = self._kept.get((site, address.kind))
        if kept is None:
            return
        self.flowing = True
        kept[address] = data
        if len(kept) > KEPT_EACH:
            # The one with the largest number is asked for last, and can be read from its mailbox then.
            del kept[max(kept, key=lambda slot: slot.number)]
        for watcher in self._watchers.get(address, ()):
            if not watcher.done():
                watcher.set_result(None)

    def mark_read(self, address: Slot) -> None:
        """Forget pushes of a message that was read, and of all before it.

        Rounds and notices are read in order, so earlier ones are of no use. Answers are not read in order: only this
        one is forgotten.
        """
        place = address.site, address.kind
        if place not in self._kept:
            return
        if address.kind is Kind.ANSWER:
            self._kept[place].pop(address, None)
            return
        last = self._last_read[place] = max(self._last_read.get(place, -1), address.number)
        self._kept[place] = {slot: data for slot, data in self._kept[place].items() if slot.number > last}

    def _take(self, address: Slot) -> bytes | None:
        """Hand out a push and mark it as read; None if there is none."""
        data = self._kept.get((address.site, address.kind), {}).get(address)
        if data is not None:
            self.mark_read(address)
        return data

    async def wait(self, address: Slot, seconds: float) -> bytes | None:
        """The push for this mailbox, as soon as it is there; None if it does not come within so many seconds."""
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
