"""The same mailboxes twice: in memory, and on a real server. Both must keep the transport's contract."""

import asyncio
from itertools import count

from sottovoce.engines.network.jetstream import JetStreamTransport, create_stream
from sottovoce.engines.network.memory import MemoryTransport, Post

LARGEST = 4000  # bytes of a message
LONG = 10.0  # seconds: ample, even on a busy machine
SHORT = 0.2
_numbers = count(1)


def play(scene):
    """Run a scene to its end; one that hangs fails."""
    return asyncio.run(asyncio.wait_for(scene, 30.0))


class MemoryWorld:
    def __init__(self, trouble=None):
        self.post = Post(trouble)

    async def site(self, _name, _neighbours=()):
        return MemoryTransport(self.post)

    async def stop(self):
        self.post.stop()

    async def start(self):
        self.post.start()


class JetStreamWorld:
    """A run of its own on a shared server. Stopping is kill -9."""

    def __init__(self, server):
        self.server, self.run_id = server, f"run-{next(_numbers)}"
        self._made = False

    async def site(self, name, neighbours=()):
        if not self._made:
            await create_stream(self.server.url, self.run_id, LARGEST, timeout=LONG)
            self._made = True
        return await JetStreamTransport.connect(
            self.server.url, self.run_id, name, list(neighbours), LARGEST, timeout=LONG
        )

    async def stop(self):
        await asyncio.to_thread(self.server.kill)

    async def start(self):
        await asyncio.to_thread(self.server.start)
