"""One connection to a message server, from dialling to the last byte.

It speaks as much of the NATS protocol as mailboxes need: subscribe once, publish with a subject for the answer,
answer PINGs. It is thrown away at the first thing that is odd (`frames`), or that a peer with good intentions would
not do: no sign of life, or never reading what it asks for. A connection that was refused or abandoned is closed
here, at once, not whenever the garbage is collected.

It does not try again, and has no time limits of its own but for PINGs: that is the `link`'s part.
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
# A connection without any sign of life is lost after about three of these, in seconds.
PING_EVERY = 5.0
UNANSWERED_PINGS = 2
SHUTTING = 1.0
# Bytes that may wait to be sent, besides two of the largest messages.
MOST_UNSENT = 1 << 20
# Numbers of subscriptions, which we choose: 1 for answers, from 2 on for pushes.
_INBOX, _FIRST_PUSH = 1, 2
# Room around a message for headers, and the largest answer of the server about itself.
_HEADERS, _ANSWER = 4096, 64 * 1024


class SilenceError(Exception):
    """No useful answer this time; asking again may help. Its text says why, in a few words."""

    def told(self, server: "Server") -> str:
        """What people see while it lasts: half a sentence, without a full stop."""
        return f"message server {server} does not answer ({self})"

    def given_up(self, server: "Server", seconds: float) -> str:
        """What they see in the end, after so many seconds: what was expected, what came, what to do."""
        return (
            f"Expected an answer from message server {server} within {seconds:.3g} s, got none ({self}). Check that it "
            "runs, that it can be reached from here, and that both ends or neither use TLS."
        )


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

    @property
    def host(self) -> str:
        """Its name or address, as certificates are checked against it."""
        return urlsplit(self.url).hostname or ""

    @property
    def port(self) -> int:
        """Where it listens; 4222 if the address does not say."""
        return urlsplit(self.url).port or DEFAULT_PORT

    def credentials(self) -> dict[str, str]:
        """User and password of the address, or the token in their place, as CONNECT wants them."""
        parts = urlsplit(self.url)
        if parts.username is None:
            return {}
        if parts.password is None:
            return {"auth_token": parts.username}
        return {"user": parts.username, "pass": parts.password}

    def __str__(self) -> str:
        """Where it is, without any password."""
        parts = urlsplit(self.url)
        return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"


@final
@dataclass(frozen=True)
class Pushes:
    """Subjects that the server sends by itself, what to do with them, and whom to tell that they start anew."""

    subjects: Sequence[str]
    heard: Callable[[Message], None]
    restarted: Callable[[], None]


def plain(text: object) -> str:
    """Words from outside, safe to print."""
    return "".join(letter if letter.isprintable() else "?" for letter in str(text)[:300])


@final
class Connection(asyncio.Protocol):
    """One dialled connection, and the questions that wait for an answer on it. Make it with `dial`."""

    def __init__(self, server: Server, pushes: Pushes, largest: int) -> None:
        loop = asyncio.get_running_loop()
        self._server, self._pushes = server, pushes
        self._frames = Frames(max(largest, _ANSWER) + _HEADERS)
        self._most_unsent = 2 * largest + MOST_UNSENT
        # Nobody else can guess where answers are awaited.
        self._inbox = f"{server.inbox_prefix}.{token_hex(8)}"
        self._numbers = count()
        self._waiting: dict[str, tuple[str, asyncio.Future[Message | Exception]]] = {}
        self._transport: asyncio.Transport | None = None
        self._ready: asyncio.Future[None] = loop.create_future()
        self._gone: asyncio.Future[None] = loop.create_future()
        self._end: Exception | None = None  # why it is of no more use
        self._pinging: asyncio.TimerHandle | None = None
        self._unanswered = 0
        # The largest message that the server takes, headers included; 0 before it has said so.
        self.max_payload = 0

    @classmethod
    async def dial(cls, server: Server, pushes: Pushes, largest: int) -> Self:
        """Connect and subscribe; `RefusedError` if the server does not want us, `SilenceError` if it is not there.

        Whoever calls this limits the time.
        """
        made = cls(server, pushes, largest)
        # TLS from the first byte on. Else a server, or whoever sits in between, could talk us out of it.
        secure: dict[str, Any] = {} if server.tls is None else {
            "ssl": server.tls, "server_hostname": server.host, "ssl_shutdown_timeout": SHUTTING,
        }  # fmt: skip
        try:
            await asyncio.get_running_loop().create_connection(lambda: made, server.host, server.port, **secure)
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
        """Whether it can be used, as far as is known: a peer that has just vanished shows at the next PING."""
        return self._end is None and self._ready.done()

    async def ask(self, subject: str, data: bytes, headers: bytes) -> Message:
        """One question, one answer, or `SilenceError`. Whoever calls this limits the time."""
        size = len(headers) + len(data)
        if size > self.max_payload:
            raise RefusedError(
                f"Expected a server that takes messages of {size} bytes, got max_payload={self.max_payload}. Raise "
                "max_payload in the server's file."
            )
        number = str(next(self._numbers))
        answer: asyncio.Future[Message | Exception] = asyncio.get_running_loop().create_future()
        # Before it is sent: the answer may come within the same turn of the loop.
        self._waiting[number] = (subject, answer)
        try:
            verb, sizes = "PUB", str(len(data))
            if headers:  # the second size counts them too, as NATS wants it
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
        """Hand bytes to the socket. Whoever does not read what it is sent is dropped, before its backlog fills the
        memory.
        """
        if self._end is not None:
            raise self._end
        assert self._transport is not None, "made by dial"
        self._transport.write(data)
        if self._transport.get_write_buffer_size() > self._most_unsent:
            self.drop(SilenceError("it does not read what it is sent"))

    # -- the end ------------------------------------------------------------------------------------------------------

    def drop(self, error: Exception) -> None:
        """Throw the connection away; whoever still waits gets this error. `shut` is still to be called."""
        if self._end is not None:
            return
        self._end = error
        if self._pinging is not None:
            self._pinging.cancel()
        if self._transport is not None:
            self._transport.abort()
        # Each gets the error as a result, and raises it itself: a future with an exception that nobody awaits would be
        # logged.
        for _, answer in self._waiting.values():
            _settle(answer, error)
        _settle(self._ready, None)

    async def shut(self) -> None:
        """Close it, whatever state it is in, and return when it is closed, or after a second."""
        self.drop(SilenceError("the connection was closed"))
        if self._transport is None:
            await asyncio.sleep(0)  # asyncio has closed its socket, but does so in the next turn of the loop
        else:
            await asyncio.wait([self._gone], timeout=SHUTTING)

    # -- what comes (called by asyncio) -------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The socket, or the TLS connection, is there."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        """Bytes have come. Whatever is wrong with them ends the connection, and is not raised into asyncio."""
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
        """One frame. Before its greeting a server may only complain."""
        if self.max_payload == 0 and not isinstance(frame, Info | Complaint):
            raise FrameError("something else than a greeting")
        match frame:
            case Message():
                self._deliver(frame)
            case Sign.PING:
                self._write(b"PONG\r\n")
            case Sign.PONG:
                self._unanswered = 0
                _settle(self._ready, None)
            case Complaint(text):
                self._complaint(text)
            case Info(text) if self.max_payload == 0:  # what it says of itself later changes nothing here
                self._greet(text)

    def _greet(self, text: bytes) -> None:
        """The server has introduced itself: do the same, subscribe, and ask for a sign that this was understood."""
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
        """Ask for a sign of life, and give up after two without one."""
        if self._unanswered >= UNANSWERED_PINGS:
            self.drop(SilenceError(f"no sign of life for {self._unanswered * PING_EVERY:g} s"))
            return
        self._unanswered += 1
        self._pinging = asyncio.get_running_loop().call_later(PING_EVERY, self._ping)
        self._write(b"PING\r\n")

    def _deliver(self, message: Message) -> None:
        """Hand a message to whoever waits for it. What nobody has asked for is dropped."""
        if _FIRST_PUSH <= message.sid < _FIRST_PUSH + len(self._pushes.subjects):
            self._pushes.heard(message)
        elif message.sid == _INBOX:
            prefix, _, number = message.subject.rpartition(".")
            if prefix == self._inbox and number in self._waiting:
                _settle(self._waiting[number][1], message)

    def _complaint(self, text: str) -> None:
        """The server refuses something: one question, or us altogether."""
        words = text.lower()
        if "permissions violation" in words:
            self._not_permitted(words)
        elif "authorization violation" in words or "authentication" in words:
            self.drop(
                RefusedError(
                    f"Expected message server {self._server} to know us, got: {plain(words)}. Check the certificate "
                    "against its file."
                )
            )
        else:
            self.drop(SilenceError(f"it says: {plain(words)}"))

    def _not_permitted(self, words: str) -> None:
        """One subject is closed to us: fail the question that was about it; a push is merely read from its mailbox."""
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
    """What the server takes at most, by its greeting."""
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
    """What went wrong with a connection, as one of our errors: refused for good, or silent for now."""
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
    # What the system says, without the numbers around it; asyncio puts the errors of several addresses into one text.
    numbers = {error.errno} if isinstance(error, OSError) and error.errno else set()
    numbers |= {int(number) for number in re.findall(r"\[Errno (\d+)\]", str(error))}
    known = sorted(os.strerror(number).lower() for number in numbers if number in errno.errorcode)
    return SilenceError(", ".join(known) or plain(error) or type(error).__name__)
