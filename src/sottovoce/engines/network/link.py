"""A line to the message server that mends itself.

There is one connection at a time. Whatever goes wrong with it (the server dies, the network goes quiet, an answer does
not come), it is thrown away, and the next request dials afresh. So there is no state to repair, and requests must be
such that asking twice does no harm. Nothing is trusted to wake up by itself: every attempt has a time limit of its own,
and every request a deadline.
"""

import asyncio
import logging
import ssl
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import count
from secrets import token_hex
from typing import TypeVar, final
from urllib.parse import urlsplit

import nats.errors
from nats.aio.client import Client
from nats.aio.msg import Msg

from sottovoce.engines.network.transport import RefusedError, TransportError, UnreachableError
from sottovoce.errors import expect

LOG = logging.getLogger(__name__)
T = TypeVar("T")
Heard = Callable[[Msg], Awaitable[None]]

# Seconds. An attempt is given up after a while that doubles, as does the rest before the next one.
FIRST_PATIENCE, LONGEST_PATIENCE = 2.0, 16.0
FIRST_REST, LONGEST_REST = 0.02, 1.0
# A connection without any sign of life is lost after about three of these.
PING_EVERY = 5
SHUTTING = 1.0


class _Harmless(logging.Filter):
    """asyncio complains of how the client library turns a connection into a TLS one, whenever such a one ends."""

    def filter(self, record: logging.LogRecord) -> bool:
        return not record.getMessage().startswith("returning true from eof_received()")


logging.getLogger("asyncio").addFilter(_Harmless())


class SilenceError(Exception):
    """No useful answer this time; asking again may help."""


class CutShortError(SilenceError):
    """The deadline came before patience ran out: this says little about the server."""


@final
@dataclass(frozen=True)
class Server:
    """Where the message server is, and how to come in. Answers go to subjects below `inbox_prefix`."""

    url: str
    tls: ssl.SSLContext | None
    inbox_prefix: str

    def __post_init__(self) -> None:
        try:
            parts = urlsplit(self.url)
            fits = parts.scheme in ("nats", "tls") and bool(parts.hostname) and parts.port != 0
        except ValueError:
            fits = False
        expect(fits, "a server such as nats://host:4222", url=self.url.rpartition("@")[2])

    def __str__(self) -> str:
        """Where it is, without any password."""
        return f"nats://{urlsplit(self.url).netloc.rpartition('@')[2]}"


@final
@dataclass(frozen=True)
class Pushes:
    """Subjects that the server sends by itself, what to do with them, and whom to tell that they start anew."""

    subjects: Sequence[str]
    heard: Heard
    restarted: Callable[[], None]


def plain(text: object) -> str:
    """Words from outside, safe to print."""
    return "".join(letter if letter.isprintable() else "?" for letter in str(text)[:300])


def now() -> float:
    """The clock of deadlines."""
    return asyncio.get_running_loop().time()


class _Connection:
    """One dialled connection, and the questions that wait for an answer on it."""

    def __init__(self, server: Server) -> None:
        self._client = Client()
        self._server = server
        # Nobody else can guess where answers are awaited.
        self._inbox = f"{server.inbox_prefix}.{token_hex(8)}"
        self._numbers = count()
        self._waiting: dict[str, tuple[str, asyncio.Future[Msg | Exception]]] = {}
        self._last_error: Exception | None = None

    async def dial(self, pushes: Pushes) -> None:
        """Connect and subscribe; `RefusedError` if the server does not want us, `SilenceError` if it is not there."""
        try:
            await self._client.connect(
                [self._server.url],
                tls=self._server.tls,
                # Else a server, or whoever sits in between, could talk the client out of TLS.
                tls_handshake_first=self._server.tls is not None,
                inbox_prefix=self._server.inbox_prefix,
                allow_reconnect=False,
                max_reconnect_attempts=1,
                reconnect_time_wait=0,
                # Of each step on the way; the whole is limited by whoever waits for it.
                connect_timeout=int(LONGEST_PATIENCE),
                ping_interval=PING_EVERY,
                error_cb=self._on_error,
                closed_cb=self._on_closed,
            )
            await self._client.subscribe(f"{self._inbox}.*", cb=self._on_answer)
            for subject in pushes.subjects:
                await self._client.subscribe(subject, cb=pushes.heard)
            await self._client.flush()
        except (OSError, TimeoutError, nats.errors.Error) as error:
            raise self._explained(error) from error

    def _explained(self, error: Exception) -> Exception:
        reason = self._last_error if isinstance(error, nats.errors.NoServersError) and self._last_error else error
        broken_off = isinstance(reason, ssl.SSLEOFError | ssl.SSLZeroReturnError)
        if isinstance(reason, ssl.SSLError) and not broken_off:
            return RefusedError(
                f"Expected a TLS connection to {self._server} on which both sides accept each other's certificate, "
                f"got: {plain(reason)}. Check the authority, the certificates, and handshake_first on the server."
            )
        if "authorization violation" in str(reason).lower():
            return RefusedError(
                f"Expected {self._server} to know us, got: {plain(reason)}. Check the certificate against its file."
            )
        return SilenceError(f"{type(reason).__name__}: {plain(reason)}")

    @property
    def alive(self) -> bool:
        """As far as is known."""
        return self._client.is_connected

    @property
    def max_payload(self) -> int:
        """The largest message that the server takes, with headers."""
        return self._client.max_payload

    async def ask(self, subject: str, data: bytes, headers: dict[str, str] | None) -> Msg:
        """One question, one answer, or `SilenceError`. Whoever calls this limits the time."""
        number = str(next(self._numbers))
        answer: asyncio.Future[Msg | Exception] = asyncio.get_running_loop().create_future()
        self._waiting[number] = (subject, answer)
        try:
            await self._send(subject, data, f"{self._inbox}.{number}", headers)
            came = await answer
        except (OSError, nats.errors.Error) as error:
            raise SilenceError(f"{type(error).__name__}: {plain(error)}") from error
        finally:
            del self._waiting[number]
        if isinstance(came, Exception):
            raise came
        return came

    async def _send(self, subject: str, data: bytes, reply: str, headers: dict[str, str] | None) -> None:
        task = asyncio.current_task()
        cancelled_before = task.cancelling() if task else 0
        await self._client.publish(subject, data, reply=reply, headers=headers)
        if task and task.cancelling() > cancelled_before:
            # The client swallows cancellations while it waits for a full buffer.
            raise asyncio.CancelledError

    def fail_all(self, error: Exception) -> None:
        """Whoever still waits gets this error."""
        for _, answer in self._waiting.values():
            if not answer.done():
                answer.set_result(error)

    async def shut(self) -> None:
        """Let go, within a short time, whatever state it is in."""
        with suppress(Exception):
            async with asyncio.timeout(SHUTTING):
                await self._client.close()

    async def _on_answer(self, message: Msg) -> None:
        _, answer = self._waiting.get(message.subject.rpartition(".")[2], ("", None))
        if answer is not None and not answer.done():
            answer.set_result(message)

    async def _on_closed(self) -> None:
        self.fail_all(SilenceError("the connection was lost"))

    async def _on_error(self, error: Exception) -> None:
        self._last_error = error
        text = str(error).lower()
        if "permissions violation" not in text:
            LOG.debug("message server: %s", plain(error))
            return
        LOG.warning("message server: %s", plain(error))
        for subject, answer in self._waiting.values():
            if f'"{subject.lower()}"' in text and not answer.done():
                answer.set_result(
                    RefusedError(f"Expected the server to let us use {subject}, got: {plain(error)}. Check its file.")
                )


@final
class Link:
    """Requests that survive the loss of a connection."""

    def __init__(self, server: Server, pushes: Pushes) -> None:
        self._server, self._pushes = server, pushes
        self._connection: _Connection | None = None
        self._dialling = asyncio.Lock()
        self._shutting: set[asyncio.Task[None]] = set()
        self._closed = False
        # The largest message that the server takes, headers included; known once connected.
        self.max_payload = 0

    async def request(
        self,
        subject: str,
        deadline: float,
        read: Callable[[Msg], T],
        data: bytes = b"",
        headers: dict[str, str] | None = None,
    ) -> T:
        """Ask until `read` accepts an answer; it raises `SilenceError` for one that says: not now."""
        patience, rest, reason = FIRST_PATIENCE, FIRST_REST, ""
        while (left := deadline - now()) > 0:
            try:
                return read(await self._attempt(subject, data, headers, min(patience, left), patience))
            except SilenceError as silence:
                reason = reason if reason and isinstance(silence, CutShortError) else str(silence)
            LOG.info("no answer on %s, asking again: %s", subject, reason)
            await asyncio.sleep(max(min(rest, deadline - now()), 0.0))
            patience, rest = min(2 * patience, LONGEST_PATIENCE), min(2 * rest, LONGEST_REST)
        raise UnreachableError(
            f"Expected an answer from {self._server} on {subject} in time, got none ({reason or 'no time was left'}). "
            "Check that the server runs, that both or neither use TLS, and that the run was created on it."
        )

    async def _attempt(
        self, subject: str, data: bytes, headers: dict[str, str] | None, within: float, patience: float
    ) -> Msg:
        connection = self._connection
        try:
            async with asyncio.timeout(within):
                if connection is None or not connection.alive:
                    connection = await self._connected()
                answer = await connection.ask(subject, data, headers)
        except TimeoutError:
            if within < patience:
                raise CutShortError(f"silence for {within:.3g} s") from None
            if connection is not None:
                self._drop(connection)
            raise SilenceError(f"silence for {within:.3g} s") from None
        if answer.headers and answer.headers.get("Status") == "503" and not answer.data:
            raise SilenceError("nobody answers there")
        return answer

    async def _connected(self) -> _Connection:
        async with self._dialling:
            self._check_open()
            if self._connection is not None and not self._connection.alive:
                self._drop(self._connection)
            if self._connection is None:
                self._connection = await self._dialled()
                self.max_payload = self._connection.max_payload
                self._pushes.restarted()
            return self._connection

    async def _dialled(self) -> _Connection:
        connection = _Connection(self._server)
        try:
            await connection.dial(self._pushes)
            self._check_open()
        except BaseException:
            self._shut(connection)
            raise
        return connection

    def _check_open(self) -> None:
        if self._closed:
            raise TransportError("Expected an open transport, got one that was closed. Open a new one.")

    def _drop(self, connection: _Connection) -> None:
        if self._connection is connection:
            LOG.info("dropping the connection to %s", self._server)
            self._connection = None
            connection.fail_all(SilenceError("the connection was dropped"))
            self._shut(connection)

    def _shut(self, connection: _Connection) -> None:
        # A task of its own: it goes on when the caller is cancelled.
        task = asyncio.get_running_loop().create_task(connection.shut())
        self._shutting.add(task)
        task.add_done_callback(self._shutting.discard)

    async def close(self) -> None:
        """Shut everything; later requests are refused."""
        self._closed = True
        if self._connection is not None:
            connection, self._connection = self._connection, None
            connection.fail_all(TransportError("Expected an open transport, got one that was closed meanwhile."))
            self._shut(connection)
        if self._shutting:
            await asyncio.wait(set(self._shutting))
