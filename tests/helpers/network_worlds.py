"""The same mailboxes twice: in memory, and on a real server. Both must keep the transport's contract."""

import asyncio
from itertools import count

from helpers.clock import Clock
from helpers.memory import MemoryTransport, Post
from sottovoce.federation.transport.jetstream import JetStreamTransport, create_stream
from sottovoce.federation.transport.transport import PutOutcome, PutResult
from sottovoce.federation.transport.wire import Kind, Slot

LARGEST = 4000  # bytes of a message
LONG = 60.0  # seconds: ample, even on a busy machine
SHORT = 0.2
_numbers = count(1)


def play(scene):
    """Run a scene to its end; one that hangs fails. Without real connections, nothing is waited for: see `Clock`."""
    with asyncio.Runner(loop_factory=Clock) as runner:
        return runner.run(asyncio.wait_for(scene, 600.0))


async def get_many(transport, k, names, timeout):
    """The messages of a round that are there in time, by site."""
    found = await asyncio.gather(*(transport.get(Slot(k, name), timeout) for name in names))
    return {name: data for name, data in zip(names, found, strict=True) if data is not None}


class MemoryWorld:
    def __init__(self, trouble=None):
        self.post = Post(trouble)

    async def site(self, _name, _neighbours=()):
        return MemoryTransport(self.post)

    async def stop(self):
        self.post.stop()

    async def start(self):
        self.post.start()


class LyingWorld(MemoryWorld):
    """A relay in bad hands. `shows(reader, slot, data)` is what a reader is shown of what lies in a mailbox, or would
    lie there: None for nothing. `takes(slot, data)` is whether a message is kept at all; its sender is told that it is.
    """

    def __init__(self, shows=None, takes=None):
        super().__init__()
        self.shows = shows or (lambda *shown: shown[2])
        self.takes = takes or (lambda *_: True)
        self.sent = []  # whatever was ever put, in order

    async def site(self, name, _neighbours=()):
        return LyingTransport(self, name)

    def said(self, name):
        """By round, the different messages that a site has ever put."""
        found = {}
        for slot, data in self.sent:
            if slot.site == name and slot.kind is Kind.MODEL:
                found.setdefault(slot.number, set()).add(data)
        return found


class LyingTransport(MemoryTransport):
    def __init__(self, world, name):
        super().__init__(world.post)
        self.world, self.name = world, name

    async def put_once(self, slot, data, timeout):
        self.world.sent.append((slot, data))
        if not self.world.takes(slot, data):
            return PutResult(PutOutcome.STORED, data)
        return await super().put_once(slot, data, timeout)

    async def look(self, slot, timeout):
        return self.world.shows(self.name, slot, await super().look(slot, timeout))

    async def get(self, slot, timeout):
        clock, rest = asyncio.get_running_loop().time, 0.005
        until = clock() + timeout
        while (data := await self.look(slot, timeout)) is None and clock() < until:
            await asyncio.sleep(rest)
            rest = min(2 * rest, 0.04)  # who waits long is content to look less often
        return data


class JetStreamWorld:
    """A run of its own on a shared server. Stopping is kill -9."""

    def __init__(self, server, largest=LARGEST):
        self.server, self.run_id, self.largest = server, f"run-{next(_numbers)}", largest
        self._made = False

    async def site(self, name, neighbours=()):
        if not self._made:
            await create_stream(self.server.url, self.run_id, self.largest, timeout=LONG)
            self._made = True
        return await JetStreamTransport.connect(
            self.server.url, self.run_id, name, list(neighbours), self.largest, timeout=LONG
        )

    async def stop(self):
        await asyncio.to_thread(self.server.kill)

    async def start(self):
        await asyncio.to_thread(self.server.start)
