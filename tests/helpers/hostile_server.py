"""A message server of somebody who means harm: real TLS with a good certificate, and whatever bytes it likes.

A script is a coroutine of one accepted connection. Most first behave (`greet`, `questions`) and then do not. Scripts
write with `flood`, which waits while the other end does not read: what grows is then the site, not this server.
"""

import asyncio
import ssl
from contextlib import asynccontextmanager, suppress
from typing import NamedTuple

from sottovoce.federation.agreement import certificates
from sottovoce.federation.agreement.certificates import TLSFiles

INFO = b'INFO {"server_id":"X","version":"2.11.0","headers":true,"max_payload":1048576,"jetstream":true}\r\n'
CHUNK = 1 << 16


class Question(NamedTuple):
    """What a site has published, and where it awaits the answer."""

    subject: str
    reply: str
    data: bytes


def papers(folder):
    """An authority with certificates for server and site `a`; returns (context of the server, of the site)."""
    certificates.create_authority(folder)
    certificates.issue_server(folder)
    certificates.issue_site(folder, "a")
    files = TLSFiles.within(folder, "server")
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(files.certificate, files.key)
    server.load_verify_locations(files.authority)
    server.verify_mode = ssl.CERT_REQUIRED
    return server, TLSFiles.within(folder, "a").context()


@asynccontextmanager
async def hostile(script, tls):
    """Its address, and the number of connections so far in a list."""
    tasks, calls = set(), []

    async def accepted(reader, writer):
        task = asyncio.current_task()
        tasks.add(task)
        calls.append(None)
        try:
            with suppress(OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
                await script(reader, writer)
        finally:
            tasks.discard(task)
            writer.transport.abort()

    server = await asyncio.start_server(accepted, "127.0.0.1", 0, ssl=tls)
    try:
        yield f"{'nats' if tls is None else 'tls'}://127.0.0.1:{server.sockets[0].getsockname()[1]}", calls
    finally:
        server.close()
        for task in list(tasks):
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        await asyncio.sleep(0.05)


async def flood(writer, chunk):
    """For ever, as fast as the other end reads."""
    while True:
        writer.write(chunk)
        await writer.drain()
        await asyncio.sleep(0)


async def greet(reader, writer, info=INFO):
    """INFO, and the answer to the first PING."""
    writer.write(info)
    while (await reader.readuntil(b"\r\n")) != b"PING\r\n":
        pass
    writer.write(b"PONG\r\n")


async def questions(reader, writer):
    """Everything that is published, while PINGs are answered."""
    while True:
        line = await reader.readuntil(b"\r\n")
        words = line.split()
        if words[0] == b"PING":
            writer.write(b"PONG\r\n")
        elif words[0] in (b"PUB", b"HPUB"):
            data = await reader.readexactly(int(words[-1]) + 2)
            if words[0] == b"HPUB":
                data = data[int(words[-2]) :]
            yield Question(words[1].decode(), words[2].decode(), data[:-2])


def answer(writer, question, data, sid=1):
    """A plain message to where the question awaits it."""
    writer.write(b"MSG %s %d %d\r\n%s\r\n" % (question.reply.encode(), sid, len(data), data))


def empty(writer, question, sid=1):
    """The mailbox is empty."""
    headers = b"NATS/1.0 404 Message Not Found\r\n\r\n"
    writer.write(b"HMSG %s %d %d %d\r\n%s\r\n" % (question.reply.encode(), sid, len(headers), len(headers), headers))
