"""A way to a server that takes its time: every byte arrives so many seconds later, in both directions."""

import asyncio
from contextlib import suppress

CHUNK = 1 << 16


class Relay:
    """Use as an asynchronous context manager. A server that dies is seen to be dead after the same delay."""

    def __init__(self, port, seconds):
        self._port, self._seconds = port, seconds
        self._tasks = set()

    async def __aenter__(self):
        self._server = await asyncio.start_server(self._accepted, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_):
        self._server.close()
        for task in list(self._tasks):
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
        await asyncio.sleep(0)

    async def _accepted(self, reader, writer):
        task = asyncio.current_task()
        self._tasks.add(task)
        ends = [writer]
        try:
            with suppress(OSError, asyncio.CancelledError):
                answers, questions = await asyncio.open_connection("127.0.0.1", self._port)
                ends.append(questions)
                await asyncio.gather(self._pass(reader, questions), self._pass(answers, writer))
        finally:
            self._tasks.discard(task)
            for end in ends:
                end.transport.abort()

    async def _pass(self, reader, writer):
        loop, chunks = asyncio.get_running_loop(), asyncio.Queue()

        async def deliver():
            while True:
                at, data = await chunks.get()
                await asyncio.sleep(max(at - loop.time(), 0.0))
                if not data:
                    raise ConnectionResetError
                writer.write(data)

        delivering = asyncio.ensure_future(deliver())
        try:
            while True:
                try:
                    data = await reader.read(CHUNK)
                except OSError:
                    data = b""
                chunks.put_nowait((loop.time() + self._seconds, data))
                if not data:
                    await delivering
        finally:
            delivering.cancel()
            with suppress(OSError, asyncio.CancelledError):
                await delivering
