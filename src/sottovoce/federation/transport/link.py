"""A link to the message server that restores its connection.

There is one connection at a time. If anything goes wrong with it (the server dies, the network goes quiet, an answer
does not come), it is closed, and the next request connects again. So there is no state to repair, but requests must be
safe to repeat. Nothing may wait without limit: every attempt has a time limit, and every request a deadline.

Attempts outlive the requests that began them. Connecting takes several round trips to the server, an answer one. A
request with less time than that would otherwise end every attempt early, and never reach a server that is only far
away. The next equal request joins the attempt under way.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import NamedTuple, TypeVar, final

from sottovoce.federation.transport.connection import Connection, Pushes, Server, SilenceError
from sottovoce.federation.transport.frames import Message
from sottovoce.federation.transport.transport import TransportError, UnreachableError

LOG = logging.getLogger(__name__)
T = TypeVar("T")

# Seconds. The time limit of an attempt doubles with each one, and so does the pause before the next.
FIRST_PATIENCE, LONGEST_PATIENCE = 2.0, 16.0
FIRST_REST, LONGEST_REST = 0.02, 1.0
# Seconds until people are told that there is no answer yet, and between two equal texts.
SOON, TELL_EVERY = 1.5, 1.0


def now() -> float:
    """The event loop's clock, in seconds, for deadlines. It never goes backwards."""
    return asyncio.get_running_loop().time()


class _CutShortError(SilenceError):
    """The deadline came before the attempt ended, which says little about the server."""


class UnderWayError(UnreachableError):
    """The request was sent without an error so far, and the answer may still come."""


class _Question(NamedTuple):
    """The content of a request. Equal ones share one attempt."""

    subject: str
    data: bytes
    headers: bytes


@final
class Link:
    """Requests that survive the loss of a connection.

    Args:
        server: its address and TLS context.
        pushes: the subjects to listen to.
        largest: bytes of this run's largest message. The server may send nothing much larger.
        told: called with a short text whenever there is no answer, and with None once there is. May be replaced.
    """

    def __init__(self, server: Server, pushes: Pushes, largest: int, told: Callable[[str | None], None]) -> None:
        self.server, self._pushes, self._largest, self.told = server, pushes, largest, told
        self._connection: Connection | None = None
        # Tasks return errors instead of raising them, since possibly nobody awaits them.
        self._dialling: asyncio.Task[Connection | Exception] | None = None
        self._asking: dict[_Question, asyncio.Task[Message | Exception]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._closed = False
        self._dial_patience = self._ask_patience = FIRST_PATIENCE
        self._far = 0.0  # seconds that the last connecting took
        self.way = 0.0  # seconds that the last answer took
        self._rest = 0.0  # seconds before the next connecting
        self._words, self._tell_next = "", 0.0
        # The largest message that the server takes, headers included; known once connected.
        self.max_payload = 0

    # -- requests -----------------------------------------------------------------------------------------------------

    async def request(
        self,
        subject: str,
        deadline: float,
        read: Callable[[Message], T],
        data: bytes = b"",
        headers: bytes = b"",
    ) -> T:
        """Send a request until `read` accepts the answer.

        Args:
            subject: of the request.
            deadline: on the clock of `now`. `UnreachableError` if there is no answer by then.
            read: from the server's message to what is returned; raises `SilenceError` to ask again.
            data: the request's content.
            headers: in NATS's form; empty for none.
        """
        question, began, rest = _Question(subject, data, headers), now(), FIRST_REST
        silence: SilenceError | None = None
        while True:
            try:
                answer = read(await self._answer(question, deadline))
            except _CutShortError as error:
                # A server that is only far away must not count as silent.
                kind = UnderWayError if silence is None and self._live() else UnreachableError
                raise kind((silence or error).given_up(self.server, now() - began)) from None
            except SilenceError as error:
                silence = error
                self._tell(silence)
            else:
                if self._words:
                    self._words = ""  # so that people are told of the next trouble at once
                    self.told(None)
                self._rest = 0.0
                self._ask_patience = max(FIRST_PATIENCE, min(self._far, LONGEST_PATIENCE))
                return answer
            await asyncio.sleep(max(min(rest, deadline - now()), 0.0))
            rest = min(2 * rest, LONGEST_REST)

    async def _answer(self, question: _Question, deadline: float) -> Message:
        """The answer of the attempt that is under way, or of a new one, until the deadline."""
        self._check_open()
        attempt = self._asking.get(question)
        if attempt is None:
            attempt = self._asking[question] = asyncio.get_running_loop().create_task(self._attempt(question))
            # Removed when it is over, even if requests still wait for it: the next request begins a new one.
            attempt.add_done_callback(lambda _: self._asking.pop(question, None))
        began, soon = now(), True
        while not attempt.done():
            left = deadline - now()
            if left <= 0:
                raise _CutShortError(f"silence for {now() - began:.3g} s")
            await asyncio.wait([attempt], timeout=min(left, SOON) if soon else left)
            if soon and not attempt.done() and left > SOON:
                self._tell(SilenceError(f"silence for {SOON:g} s so far"))
            soon = False
        # Cancelled by `close`, or with the event loop, and so without a result.
        if attempt.cancelled():
            self._check_open()
            raise SilenceError("the attempt was abandoned")
        came = attempt.result()
        if isinstance(came, Exception):
            raise came
        return came

    def _tell(self, silence: SilenceError) -> None:
        """Report why there is no answer; the same text at most once a second, as many requests may fail together."""
        words = silence.told(self.server)
        if words != self._words or now() >= self._tell_next:
            self._words, self._tell_next = words, now() + TELL_EVERY
            self.told(words)

    # -- attempts -----------------------------------------------------------------------------------------------------

    async def _attempt(self, question: _Question) -> Message | Exception:
        """Connect if needed, and ask once. Errors are returned, since possibly nobody awaits the task."""
        connection = await self._connect()
        if isinstance(connection, Exception):
            return connection
        patience, began = self._ask_patience, now()
        try:
            async with asyncio.timeout(patience):
                answer = await connection.ask(*question)
        # A connection that does not answer is closed: it may be dead without either end knowing.
        except TimeoutError:
            self._ask_patience = max(self._ask_patience, min(2 * patience, LONGEST_PATIENCE))
            silence = SilenceError(f"silence for {patience:.3g} s")
            connection.drop(silence)
            return silence
        except (SilenceError, TransportError) as error:
            return error
        self.way = now() - began
        return answer

    def _live(self) -> Connection | None:
        """The connection, if there is one that works; else None."""
        return self._connection if self._connection is not None and self._connection.alive else None

    async def _connect(self) -> Connection | Exception:
        """A connection that works, which is made if there is none, or the error of making it."""
        if (live := self._live()) is not None:
            return live
        if self._dialling is None or self._dialling.done():
            self._dialling = asyncio.get_running_loop().create_task(self._dial())
        # Several attempts await this task, and none of them may cancel it.
        dialling = self._dialling
        await asyncio.wait([dialling])
        return SilenceError("the connection was closed") if dialling.cancelled() else dialling.result()

    async def _dial(self) -> Connection | Exception:
        """Close the old connection, pause, and connect once."""
        if self._connection is not None:
            LOG.debug("the connection to message server %s was lost", self.server)
            self._shut(self._connection)
            self._connection = None
        await asyncio.sleep(self._rest)
        # Grows until there is an answer, to spare a server that accepts connections and then breaks them.
        self._rest = min(max(2 * self._rest, FIRST_REST), LONGEST_REST)
        began, patience = now(), self._dial_patience
        try:
            async with asyncio.timeout(patience):
                self._connection = await Connection.dial(self.server, self._pushes, self._largest)
        except TimeoutError:
            self._dial_patience = min(2 * patience, LONGEST_PATIENCE)
            return SilenceError(f"no connection within {patience:.3g} s")
        except (SilenceError, TransportError) as error:
            return error
        self._far = now() - began
        self._dial_patience = max(FIRST_PATIENCE, min(2 * self._far, LONGEST_PATIENCE))
        # Connecting took several round trips, so an answer that takes as long is not late.
        self._ask_patience = max(self._ask_patience, min(self._far, LONGEST_PATIENCE))
        self.max_payload = self._connection.max_payload
        self._pushes.restarted()
        return self._connection

    # -- the end ------------------------------------------------------------------------------------------------------

    def _check_open(self) -> None:
        """Refuse requests after `close`."""
        if self._closed:
            raise TransportError("Expected an open transport, got one that was closed. Open a new one.")

    def _shut(self, connection: Connection) -> None:
        """Close a connection without waiting for it."""
        # A task of its own, which goes on if the caller is cancelled.
        task = asyncio.get_running_loop().create_task(connection.shut())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def close(self) -> None:
        """Close the connection and end all attempts; waiting and later requests are refused."""
        self._closed = True
        if self._connection is not None:
            connection, self._connection = self._connection, None
            connection.drop(TransportError("Expected an open transport, got one that was closed meanwhile."))
            self._shut(connection)
        for task in (*self._asking.values(), *([] if self._dialling is None else [self._dialling])):
            task.cancel()
        left = {*self._asking.values(), *self._tasks} | ({self._dialling} if self._dialling else set())
        if left:
            await asyncio.wait(left)
