"""Mailboxes on a NATS server with JetStream. Sites only make outgoing connections.

A stream that keeps the first message of every subject gives one mailbox per subject; `subjects` has their names. A
reader listens to its neighbours' pushes, and looks into the mailbox itself whenever a push may have been missed: at
first, after every new connection, and now and then while it waits. Pushes only save time.

Anyone may have put the bytes that a mailbox returns; `mail` checks them. `link` restores lost connections.
"""

import json
import math
import ssl
from collections.abc import Callable, Sequence
from typing import Any, Self, TypeAlias, final

from sottovoce.errors import expect
from sottovoce.federation.transport.arrivals import Arrivals
from sottovoce.federation.transport.connection import Pushes, Server, SilenceError, plain
from sottovoce.federation.transport.frames import Message
from sottovoce.federation.transport.link import Link, UnderWayError, now
from sottovoce.federation.transport.subjects import inbox, mailbox, permissions, push, reading, stream_name
from sottovoce.federation.transport.transport import (
    PutOutcome,
    PutResult,
    RefusedError,
    Transport,
    UnreachableError,
    check_timeout,
)
from sottovoce.federation.transport.wire import Slot, check_run_id

STORE_FAILED = 10077  # the server's code for a full mailbox, and for a full stream
_RECORD = 34  # bytes that the server adds to each message in a file: lengths, number, time and checksum
_NOBODY = 503  # the server's status for a subject without a listener
# Seconds between two looks into a mailbox while its message is awaited.
FIRST_LOOK, LONGEST_LOOK = 0.05, 1.0
FINDING = 2.0  # seconds; a full mailbox may look empty on a server of a cluster that lags behind


# Called with a text about the server, None once it answers again; and the seconds until it is given up, if known.
Told: TypeAlias = Callable[[str | None, float | None], None]


def tell_nobody(words: str | None, left: float | None) -> None:
    """Ignore texts about the server."""
    del words, left


# -- setting up a run -------------------------------------------------------------------------------------------------


async def create_stream(
    url: str,
    run_id: str,
    max_message_size: int,
    *,
    max_messages: int = -1,
    max_bytes: int = -1,
    replicas: int = 1,
    tls: ssl.SSLContext | None = None,
    inbox_prefix: str = "_INBOX",
    timeout: float = 10.0,
    told: Told = tell_nobody,
) -> None:
    """Make the mailboxes of a run, with an operator's rights. Repeating it is fine; other settings are refused.

    Args:
        url: of the message server.
        run_id: of the new run.
        max_message_size: bytes of the largest message, see `mail.largest_message`.
        max_messages: of the whole run, so that no member can fill the disk; -1 for no limit.
        max_bytes: likewise, as the server counts them (`stored_size`). The server reserves them for this run.
        replicas: number of servers of a cluster that keep a copy.
        tls: the TLS context, with the operator's certificate.
        inbox_prefix: the answer is awaited below this subject.
        timeout: in seconds.
        told: called while the server does not answer.
    """
    check_run_id(run_id)
    check_timeout(timeout)
    expect(max_message_size >= 1, "max_message_size >= 1", max_message_size=max_message_size)
    wanted = _stream_config(run_id, max_message_size, max_messages, max_bytes, replicas)
    deadline = now() + timeout
    # For one request only; closed below in any case.
    pushes = Pushes((), lambda _: None, lambda: None)
    link = Link(Server(url, tls, inbox_prefix), pushes, max_message_size, _until(deadline, told))
    try:
        subject = f"$JS.API.STREAM.CREATE.{stream_name(run_id)}"
        answer = await link.request(subject, deadline, _read_answer, json.dumps(wanted).encode())
        _check_payload(link, run_id, max_message_size)
    finally:
        await link.close()
    if "error" in answer:
        raise RefusedError(f"Expected the server to make the stream of run_id={run_id!r}, got: {_reason_in(answer)}.")
    made = answer.get("config")
    # Older servers ignore settings that they do not know, without which a mailbox would not keep its first message.
    missed = sorted(key for key, value in wanted.items() if not isinstance(made, dict) or made.get(key) != value)
    if missed:
        raise RefusedError(
            f"Expected a stream as asked for, got other values for {', '.join(missed)}. Use nats-server 2.10 or later."
        )


def _stream_config(run_id: str, size: int, messages: int, total: int, replicas: int) -> dict[str, Any]:
    """The settings of a run's stream, as the server's interface takes them."""
    return {
        "name": stream_name(run_id),
        "subjects": [mailbox(run_id, "*", "*")],
        "storage": "file",
        "retention": "limits",
        # The next three make a subject a mailbox: it keeps its first message and refuses a second.
        "max_msgs_per_subject": 1,
        "discard": "new",
        "discard_new_per_subject": True,
        "max_msg_size": _with_headers(run_id, size),
        "max_msgs": messages,
        "max_bytes": total,
        "num_replicas": replicas,
        # Not even the operator can remove a message.
        "deny_delete": True,
        "deny_purge": True,
        "allow_direct": True,
        # Stored messages are also sent to listeners: pushes.
        "republish": {
            "src": mailbox(run_id, "*", "*"),
            "dest": push(run_id, "{{wildcard(1)}}", "{{wildcard(2)}}"),
        },
    }


def _until(deadline: float, told: Told) -> Callable[[str | None], None]:
    """A function that passes a text on together with the seconds until the deadline."""
    return lambda words: told(words, max(deadline - now(), 0.0))


def _headers(run_id: str) -> bytes:
    """The header that makes the server refuse a message that would not go into this run's stream."""
    return f"NATS/1.0\r\nNats-Expected-Stream: {stream_name(run_id)}\r\n\r\n".encode()


def _with_headers(run_id: str, size: int) -> int:
    """The size of a message in the server's limits: with its headers, in bytes."""
    return size + len(_headers(run_id))


def stored_size(run_id: str, slot: Slot, size: int) -> int:
    """The size of a message in the server's limit on stored bytes: with headers, subject and record."""
    return _with_headers(run_id, size) + len(mailbox(run_id, slot.token, slot.site)) + _RECORD


def _check_payload(link: Link, run_id: str, size: int) -> None:
    """Refuse a server that does not take this run's largest message, before anything is computed."""
    needed = _with_headers(run_id, size)
    if needed > link.max_payload:
        raise RefusedError(
            f"Expected a server that takes messages of {needed} bytes, got max_payload={link.max_payload}. "
            "Raise max_payload in the server's file."
        )


# -- answers ----------------------------------------------------------------------------------------------------------


class NotOpenError(SilenceError):
    """The server answers, but the run has no mailboxes there."""

    def told(self, server: Server) -> str:
        return (
            f"the run is not open on message server {server} yet; if this lasts, ask the operator to run: sottovoce "
            "federation open"
        )

    def given_up(self, server: Server, seconds: float) -> str:
        return (
            f"Expected the run to be open on message server {server} within {seconds:.3g} s, got nobody there who "
            "knows it. Ask the operator to run: sottovoce federation open."
        )


def _read_answer(message: Message) -> dict[str, Any]:
    """The server's answer as JSON; `SilenceError` if asking again may help, `RefusedError` if it is no answer."""
    if message.status == _NOBODY:
        raise SilenceError("nobody answers there; is JetStream enabled?")
    try:
        answer = json.loads(message.data)
    except (ValueError, RecursionError):
        answer = None
    if not isinstance(answer, dict):
        raise RefusedError(f"Expected an answer of the message server, got {plain(repr(message.data[:80]))}.")
    error = answer.get("error")
    if isinstance(error, dict) and error.get("code") == 503 and error.get("err_code") != STORE_FAILED:
        raise SilenceError(_reason_in(answer))
    return answer


def _reason_in(answer: dict[str, Any]) -> str:
    """The server's reason for a refusal, as text. Nested values are not shown: they could be too deep to print."""
    error = answer.get("error")
    reason = error.get("description") if isinstance(error, dict) else error
    return plain(reason) if isinstance(reason, str) else "no reason that could be read"


def _read_acknowledgement(message: Message) -> dict[str, Any]:
    """The answer to a put; `NotOpenError` if the run has no mailboxes on the server."""
    if message.status == _NOBODY:
        raise NotOpenError("nobody answers for the run")
    return _read_answer(message)


def _read_mailbox(message: Message) -> bytes | None:
    """The message in a mailbox; None if it is empty.

    A stored message may have headers that look like a status. It is recognised by the headers that the server adds.
    """
    status = None if b"\r\nNats-Sequence:" in message.headers else message.status
    match status:
        case None:
            return message.data
        case 404:
            return None
        case 503:
            raise NotOpenError("nobody answers for the run")
    raise SilenceError(f"it answers with status {status}")


# -- the transport ----------------------------------------------------------------------------------------------------


@final
class JetStreamTransport(Transport):
    """One site's access to the mailboxes of a run."""

    def __init__(self, link: Link, arrivals: Arrivals, run_id: str, max_message_size: int) -> None:
        self._link, self._arrivals = link, arrivals
        self._run_id, self._max_message_size = run_id, max_message_size
        self._empty: dict[Slot, float] = {}  # when the server last said that nothing is there

    @classmethod
    async def connect(
        cls,
        url: str,
        run_id: str,
        site: str,
        neighbours: Sequence[str],
        max_message_size: int,
        *,
        tls: ssl.SSLContext | None = None,
        timeout: float = 10.0,
        told: Told = tell_nobody,
    ) -> Self:
        """Connect, and look into a mailbox, so that an unknown run, a missing right and a low limit show at once.

        Args:
            url: of the message server.
            run_id: of the run.
            site: this site's name.
            neighbours: the sites that it hears.
            max_message_size: bytes of the largest message, see `mail.largest_message`.
            tls: the TLS context, with the site's certificate.
            timeout: of this call, in seconds.
            told: called while the server does not answer, for as long as the transport is used.
        """
        check_timeout(timeout)
        deadline = now() + timeout
        pushes = permissions(run_id, site, neighbours).pushes
        arrivals = Arrivals(neighbours, max_message_size)

        def heard(message: Message) -> None:
            match message.subject.split("."):
                case [_, _, token, name]:
                    arrivals.add(token, name, message.data)

        listening = Pushes(pushes, heard, arrivals.restart)
        link = Link(Server(url, tls, inbox(site)), listening, max_message_size, _until(deadline, told))
        transport = cls(link, arrivals, run_id, max_message_size)
        try:
            # No round has number 0, so this mailbox is always empty: the request only shows that it is allowed.
            await transport._look(Slot(0, site).checked(), deadline)
            _check_payload(link, run_id, max_message_size)
        except BaseException:
            await link.close()
            raise
        # From now on the caller of the transport decides when to give up.
        link.told = lambda words: told(words, None)
        return transport

    async def put_once(self, slot: Slot, data: bytes, timeout: float) -> PutResult:
        address, deadline = _check_address(slot, timeout)
        fits = len(data) <= self._max_message_size
        expect(fits, f"a message of at most {self._max_message_size} bytes", bytes=len(data))
        subject = mailbox(self._run_id, slot.token, slot.site)
        answer = await self._link.request(subject, deadline, _read_acknowledgement, data, _headers(self._run_id))
        error = answer.get("error")
        if error is None and answer.get("stream") == stream_name(self._run_id) and not answer.get("duplicate"):
            return PutResult(PutOutcome.STORED, data)
        # The mailbox is full. The caller compares the bytes: its own from before a crash, or another message.
        if isinstance(error, dict) and error.get("err_code") == STORE_FAILED:
            held = await self._await_message(address, min(deadline, now() + FINDING))
            if held is not None:
                return PutResult(PutOutcome.ALREADY_THERE, held)
        raise RefusedError(
            f"Expected the server to store {slot.kind.name.lower()} {slot.number} of site={slot.site!r}, got: "
            f"{_reason_in(answer) if error else 'an answer for something else'}. Ask the operator to check the run's "
            "stream."
        )

    async def get(self, slot: Slot, timeout: float) -> bytes | None:
        return await self._await_message(*_check_address(slot, timeout))

    async def look(self, slot: Slot, timeout: float) -> bytes | None:
        return await self._look(*_check_address(slot, timeout))

    async def close(self) -> None:
        await self._link.close()

    async def _await_message(self, address: Slot, deadline: float) -> bytes | None:
        """The message, from a push or from its mailbox, whichever comes first; None if there is none by the deadline.

        The pauses between two looks double up to a second, since pushes bring most messages.
        """
        answered, began = False, now()
        # While pushes come, one is likely to come now: looking at once would be an unneeded request.
        pause = min(FIRST_LOOK, (deadline - now()) / 2) if self._arrivals.flowing else 0.0
        while True:
            pushed = await self._arrivals.wait(address, min(pause, deadline - now()))
            if pushed is not None:
                return pushed
            if answered and now() >= deadline:
                return None
            try:
                stored = await self._look(address, deadline)
            except UnreachableError as error:
                # The server may be so far away that it answers only every other wait. It does not count as silent if it
                # has said just before this wait that the mailbox is empty.
                lately = self._empty.get(address, -math.inf) >= began - 2 * self._link.way
                if answered or (isinstance(error, UnderWayError) and lately):
                    return None
                raise
            if stored is not None:
                self._arrivals.mark_read(address)
                self._empty.pop(address, None)
                return stored
            answered, self._empty[address] = True, now()
            pause = min(max(2 * pause, FIRST_LOOK), LONGEST_LOOK)

    async def _look(self, address: Slot, deadline: float) -> bytes | None:
        """The content of the mailbox itself; None if it is empty."""
        return await self._link.request(reading(self._run_id, address.token, address.site), deadline, _read_mailbox)


def _check_address(slot: Slot, timeout: float) -> tuple[Slot, float]:
    """The address and the deadline; refused if the address or the timeout is invalid."""
    check_timeout(timeout)
    return slot.checked(), now() + timeout
