"""One connection to a message server, from dialling to closing.

It implements as much of the NATS protocol as mailboxes need: subscribe once, publish with a subject for the answer,
answer PINGs. It is closed at the first byte that is not as expected (`frames`), and when the peer shows no sign of life
or does not read what it is sent. A connection that was refused or abandoned is closed at once, and not left to the
garbage collector.

It does not try again, and has no time limits except for PINGs. `link` does both.
"""

import asyncio
import errno
import json
import logging
import os
import re
import socket
import ssl
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import count
from secrets import token_hex
from typing import Any, Self, final
from urllib.parse import urlsplit

from sottovoce.errors import expect
from sottovoce.federation.transport.frames import Complaint, Frame, FrameError, Frames, Info, Message, Sign
from sottovoce.federation.transport.subjects import describe_subject
from sottovoce.federation.transport.transport import RefusedError

LOG = logging.getLogger(__name__)

DEFAULT_PORT = 4222
# Seconds. A connection without any sign of life is lost after about three of these.
PING_EVERY = 5.0
UNANSWERED_PINGS = 2
SHUTTING = 1.0  # seconds that closing may take
# Bytes that may wait to be sent, besides two of the largest messages.
MOST_UNSENT = 1 << 20
# Numbers of subscriptions, which the client chooses: 1 for answers, from 2 on for pushes.
_INBOX, _FIRST_PUSH = 1, 2
# Bytes: of the headers around a message, and of the server's largest answer about itself.
_HEADERS, _ANSWER = 4096, 64 * 1024


class SilenceError(Exception):
    """No useful answer this time; asking again may help. Its text gives the reason in a few words."""

    def told(self, server: "Server") -> str:
        """The text for people while it lasts: half a sentence, without a full stop."""
        return f"message server {server} does not answer ({self})"

    def given_up(self, server: "Server", seconds: float) -> str:
        """The text of the error after so many seconds: what was expected, what came, what to do."""
        return (
            f"Expected an answer from message server {server} within {seconds:.3g} s, got none ({self}). Check that it "
            "runs, that it can be reached from here, and that both ends or neither use TLS."
        )


@final
@dataclass(frozen=True)
class Server:
    """The message server's address and TLS context. Answers go to subjects below `inbox_prefix`."""

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

    def credentials(self) -> dict[str, str]:
        """User and password of the address, or the token in their place, as CONNECT needs them."""
        parts = urlsplit(self.url)
        if parts.username is None:
            return {}
        if parts.password is None:
            return {"auth_token": parts.username}
        return {"user": parts.username, "pass": parts.password}

    def __str__(self) -> str:
        """The address without user and password."""
        parts = urlsplit(self.url)
        return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"


@final
@dataclass(frozen=True)
class Pushes:
    """Subjects of pushes, a function for each message, and one to call when a new connection starts them again."""

    subjects: Sequence[str]
    heard: Callable[[Message], None]
    restarted: Callable[[], None]


def plain(text: object) -> str:
    """Text from outside, safe to print: at most 300 characters, unprintable ones replaced."""
    return "".join(letter if letter.isprintable() else "?" for letter in str(text)[:300])


@final
class Connection(asyncio.Protocol):
    """One connection, and the requests that await an answer on it. Make it with `dial`."""

    def __init__(self, server: Server, pushes: Pushes, largest: int) -> None:
        loop = asyncio.get_running_loop()
        self._server, self._pushes = server, pushes
        self._frames = Frames(max(largest, _ANSWER) + _HEADERS)
        self._most_unsent = 2 * largest + MOST_UNSENT
        # A subject for answers that nobody else can guess.
        self._inbox = f"{server.inbox_prefix}.{token_hex(8)}"
        self._numbers = count()
        self._waiting: dict[str, tuple[str, asyncio.Future[Message | Exception]]] = {}
        self._transport: asyncio.Transport | None = None
        self._ready: asyncio.Future[None] = loop.create_future()
        self._gone: asyncio.Future[None] = loop.create_future()
        self._end: Exception | None = None  # why it can no longer be used
        self._pinging: asyncio.TimerHandle | None = None
        self._unanswered = 0
        # The largest message that the server takes, headers included; 0 before it has said so.
        self.max_payload = 0

    @classmethod
    async def dial(cls, server: Server, pushes: Pushes, largest: int) -> Self:
        """Connect and subscribe; `RefusedError` if the server refuses the site, `SilenceError` if it does not answer.

        The caller limits the time.
        """
        made, parts = cls(server, pushes, largest), urlsplit(server.url)
        # TLS from the first byte on. Otherwise a server, or anyone in between, could turn it off.
        secure: dict[str, Any] = {} if server.tls is None else {
            "ssl": server.tls, "server_hostname": parts.hostname or "", "ssl_shutdown_timeout": SHUTTING,
        }  # fmt: skip
        try:
            await asyncio.get_running_loop().create_connection(
                lambda: made, parts.hostname or "", parts.port or DEFAULT_PORT, **secure
            )
            await asyncio.wait([made._ready])  # a plain await would cancel it along with the caller
            if made._end is not None:
                raise made._end
        except BaseException as error:
            await made.shut()
            raise (_explain(server, error) if isinstance(error, OSError) else error) from None
        return made

    # -- asking -------------------------------------------------------------------------------------------------------

    @property
    def alive(self) -> bool:
        """True if it can be used, as far as is known: a peer that has just vanished is noticed at the next PING."""
        return self._end is None and self._ready.done()

    async def ask(self, subject: str, data: bytes, headers: bytes) -> Message:
        """Send one request and return its answer, or raise `SilenceError`. The caller limits the time."""
        size = len(headers) + len(data)
        if size > self.max_payload:
            raise RefusedError(
                f"Expected a server that takes messages of {size} bytes, got max_payload={self.max_payload}. Raise "
                "max_payload in the server's file."
            )
        number = str(next(self._numbers))
        answer: asyncio.Future[Message | Exception] = asyncio.get_running_loop().create_future()
        # Registered before it is sent: the answer may come within the same turn of the loop.
        self._waiting[number] = (subject, answer)
        try:
            verb, sizes = "PUB", str(len(data))
            if headers:  # the second size includes them, as NATS requires
                verb, sizes = "HPUB", f"{len(headers)} {size}"
            line = f"{verb} {subject} {self._inbox}.{number} {sizes}\r\n"
            self._write(b"".join((line.encode(), headers, data, b"\r\n")))
            came = await answer
        finally:
            del self._waiting[number]
        if isinstance(came, Exception):
            raise came
        return came

    def _write(self, data: bytes) -> None:
        """Hand bytes to the socket. A peer that does not read is dropped before its backlog fills the memory."""
        if self._end is not None:
            raise self._end
        assert self._transport is not None, "made by dial"
        self._transport.write(data)
        if self._transport.get_write_buffer_size() > self._most_unsent:
            self.drop(SilenceError("it does not read what it is sent"))

    # -- the end ------------------------------------------------------------------------------------------------------

    def drop(self, error: Exception) -> None:
        """Abort the connection; pending requests fail with this error. `shut` must still be called."""
        if self._end is not None:
            return
        self._end = error
        if self._pinging is not None:
            self._pinging.cancel()
        if self._transport is not None:
            self._transport.abort()
        # The error is set as a result, which the waiting request raises: asyncio would log an exception that nobody
        # awaits.
        for _, answer in self._waiting.values():
            _settle(answer, error)
        _settle(self._ready, None)

    async def shut(self) -> None:
        """Close it in any state. Returns when it is closed, or after a second."""
        self.drop(SilenceError("the connection was closed"))
        if self._transport is None:
            await asyncio.sleep(0)  # asyncio closes the socket in the next turn of the loop
        else:
            await asyncio.wait([self._gone], timeout=SHUTTING)

    # -- receiving (called by asyncio) --------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The socket, or the TLS connection, is open."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        """Take in bytes. An error in them ends the connection, and is not raised into asyncio."""
        try:
            for frame in self._frames.feed(data):
                if self._end is not None:
                    return
                self._take(frame)
        except FrameError as error:
            self.drop(SilenceError(f"it sent {error}"))
        except SilenceError as error:
            self.drop(error)

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection is closed, by either side."""
        reason = SilenceError("the connection was lost") if exc is None else _explain(self._server, exc)
        self.drop(reason)
        _settle(self._gone, None)

    def _take(self, frame: Frame) -> None:
        """Take in one frame. Before its greeting the server may only send a complaint."""
        if self.max_payload == 0 and not isinstance(frame, Info | Complaint):
            raise FrameError("something else than a greeting")
        match frame:
            case Message():
                prefix, _, number = frame.subject.rpartition(".")
                if _FIRST_PUSH <= frame.sid < _FIRST_PUSH + len(self._pushes.subjects):
                    self._pushes.heard(frame)
                # Any other message was not asked for, and is ignored.
                elif frame.sid == _INBOX and prefix == self._inbox and number in self._waiting:
                    _settle(self._waiting[number][1], frame)
            case Sign.PING:
                self._write(b"PONG\r\n")
            case Sign.PONG:
                self._unanswered = 0
                _settle(self._ready, None)
            case Complaint(text):
                self._take_complaint(text)
            case Info(text) if self.max_payload == 0:  # later ones change nothing
                self._greet(text)

    def _greet(self, text: bytes) -> None:
        """Answer the server's greeting, subscribe, and send a PING, whose answer shows that this was accepted."""
        self.max_payload = _payload_limit(text)
        wishes = {
            "verbose": False, "pedantic": False, "tls_required": self._server.tls is not None, "lang": "sottovoce",
            "version": "1", "protocol": 1, "headers": True, "no_responders": True, "echo": True,
        }  # fmt: skip
        lines = [f"CONNECT {json.dumps(wishes | self._server.credentials())}", f"SUB {self._inbox}.* {_INBOX}"]
        lines += [f"SUB {subject} {sid}" for sid, subject in enumerate(self._pushes.subjects, _FIRST_PUSH)]
        self._write("".join(f"{line}\r\n" for line in (*lines, Sign.PING.value.decode())).encode())
        self._pinging = asyncio.get_running_loop().call_later(PING_EVERY, self._ping)

    def _ping(self) -> None:
        """Send a PING, or drop the connection after two without an answer."""
        if self._unanswered >= UNANSWERED_PINGS:
            self.drop(SilenceError(f"no sign of life for {self._unanswered * PING_EVERY:g} s"))
            return
        self._unanswered += 1
        self._pinging = asyncio.get_running_loop().call_later(PING_EVERY, self._ping)
        self._write(b"PING\r\n")

    def _take_complaint(self, text: str) -> None:
        """Fail what the server refuses: one request, or the whole connection."""
        words = text.lower()
        if "permissions violation" in words:
            self._refuse_subject(words)
        elif "authorization violation" in words or "authentication" in words:
            self.drop(
                RefusedError(
                    f"Expected message server {self._server} to know us, got: {plain(words)}. Check the certificate "
                    "against its file."
                )
            )
        else:
            self.drop(SilenceError(f"it says: {plain(words)}"))

    def _refuse_subject(self, words: str) -> None:
        """Fail the request whose subject the server refuses. Messages of refused pushes are read from mailboxes."""
        for subject, answer in self._waiting.values():
            if f'"{subject.lower()}"' in words:
                _settle(
                    answer,
                    RefusedError(
                        f"Expected the server to let us use {describe_subject(subject)}, got: permissions violation. "
                        "Check that certificate and --site belong together, and the server's file."
                    ),
                )
        for subject in self._pushes.subjects:
            if f'"{subject.lower()}"' in words:
                LOG.warning(
                    "the message server does not let us hear %s; it is looked for instead", describe_subject(subject)
                )


def _settle(future: "asyncio.Future[Any]", result: object) -> None:
    """Set a result, unless the future was settled or cancelled before."""
    if not future.done():
        future.set_result(result)


# -- greetings and errors ---------------------------------------------------------------------------------------------


def _payload_limit(text: bytes) -> int:
    """The size of the largest message that the server takes, from its greeting; `FrameError` for another greeting."""
    try:
        info = json.loads(text)
    except (ValueError, RecursionError):
        info = None
    limit = info.get("max_payload") if isinstance(info, dict) else None
    if not isinstance(info, dict) or type(limit) is not int or limit < 1:
        raise FrameError("a greeting that is not one of a NATS server")
    if info.get("headers") is not True:
        raise FrameError("a greeting of a server without headers. Use nats-server 2.10 or later")
    return limit


def _explain(server: Server, error: Exception) -> Exception:
    """An error of a connection as `RefusedError`, if it will not go away by itself, or as `SilenceError`."""
    if isinstance(error, ssl.SSLEOFError | ssl.SSLZeroReturnError):
        return SilenceError("it breaks off the TLS connection")
    if isinstance(error, ssl.SSLError):
        return RefusedError(
            f"Expected a TLS connection to message server {server} on which both sides accept each other's "
            f"certificate, got: {plain(error)}. Check the authority, the certificates, and handshake_first on the "
            "server."
        )
    if isinstance(error, socket.gaierror):
        return SilenceError(f"its name is not known: {plain(error.strerror).lower()}")
    # The system's text without the error numbers; asyncio puts the errors of several addresses into one text.
    numbers = {error.errno} if isinstance(error, OSError) and error.errno else set()
    numbers |= {int(number) for number in re.findall(r"\[Errno (\d+)\]", str(error))}
    known = sorted(os.strerror(number).lower() for number in numbers if number in errno.errorcode)
    return SilenceError(", ".join(known) or plain(error) or type(error).__name__)
