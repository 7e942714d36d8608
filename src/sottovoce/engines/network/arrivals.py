"""Messages that the server sent by itself, until they are asked for."""

import asyncio
from collections.abc import Sequence
from typing import final

from sottovoce.engines.network.transport import Slot
from sottovoce.engines.network.wire import LAST_ROUND

KEPT_PER_SITE = 8


@final
class Arrivals:
    """What was pushed and not yet taken.

    For each site only a few messages are kept, those of the earliest rounds that nobody has had yet: the others can be
    read from their mailboxes. So neither a fast site nor a bad one fills the memory. A mailbox's message is handed out
    at most once.
    """

    def __init__(self, sites: Sequence[str], largest: int) -> None:
        self._largest = largest
        self._kept: dict[str, dict[int, bytes]] = {site: {} for site in sites}
        self._had: dict[str, int] = dict.fromkeys(sites, -1)
        self._watchers: dict[Slot, set[asyncio.Future[None]]] = {}
        # Whether pushes have come on this connection: then the next one is worth waiting for.
        self.flowing = False

    def restart(self) -> None:
        """The connection is new: pushes may have been missed."""
        self.flowing = False

    def add(self, digits: str, site: str, data: bytes) -> None:
        """Keep a push, if its mailbox can still be asked for. The round comes as it stands in the subject."""
        address = _address(digits, site)
        if address is None or site not in self._kept or len(data) > self._largest or self._was_had(address):
            return
        self.flowing = True
        kept = self._kept[site]
        kept[address.round] = data
        if len(kept) > KEPT_PER_SITE:
            del kept[max(kept)]
        for watcher in self._watchers.get(address, ()):
            if not watcher.done():
                watcher.set_result(None)

    def had(self, address: Slot) -> None:
        """The message was read: a push of it is no longer wanted, nor are those of earlier rounds."""
        if address.round > LAST_ROUND // 2:
            # A notice, numbered from the end: it says nothing about the rounds.
            self._kept.get(address.site, {}).pop(address.round, None)
            return
        if address.site in self._kept:
            last = self._had[address.site] = max(self._had[address.site], address.round)
            self._kept[address.site] = {k: data for k, data in self._kept[address.site].items() if k > last}

    def _was_had(self, address: Slot) -> bool:
        return address.round <= self._had[address.site]

    def _take(self, address: Slot) -> bytes | None:
        data = self._kept.get(address.site, {}).get(address.round)
        if data is not None:
            self.had(address)
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


def _address(digits: str, site: str) -> Slot | None:
    """Of a mailbox, unless the round is not written as we write it: 007 and 7 are different mailboxes."""
    if not (digits.isascii() and digits.isdecimal() and len(digits) <= len(str(LAST_ROUND))):
        return None
    k = int(digits)
    return Slot(k, site) if str(k) == digits else None
