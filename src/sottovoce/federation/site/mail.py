"""One site's messages in one run: sealed for their mailbox, delivered once, and opened only if they are valid.

A transport may return any bytes; they are checked here. A refused message is reported to the watcher and asked for
again, since the first answer may have been a forged push. A mailbox that holds an invalid message for good is treated
as empty. What to do about a silent neighbour is decided elsewhere (`absent`).
"""

import asyncio
import hashlib
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Generic, NamedTuple, NoReturn, TypeVar, final

from sottovoce.errors import expect
from sottovoce.federation.agreement.agreement import Agreement
from sottovoce.federation.agreement.identity import SigningKey
from sottovoce.federation.site.events import Refused, ServerSilent
from sottovoce.federation.site.formats import format_of
from sottovoce.federation.site.letters import ANSWER_BYTES, NOTICE_BYTES, ModelWords, Point, SumWords, read_point
from sottovoce.federation.site.stops import UsedTwiceError
from sottovoce.federation.site.watchers import Watcher
from sottovoce.federation.transport.transport import PutOutcome, PutResult, RefusedError, Transport, UnreachableError
from sottovoce.federation.transport.wire import (
    NO_BOOKS,
    BadMessageError,
    Envelope,
    Kind,
    Refusal,
    Slot,
    digest_of,
    seal,
    sealed_size,
    unseal,
)

T = TypeVar("T")
# Seconds between two questions after a bad answer.
FIRST_REST, LONGEST_REST = 0.02, 1.0
# Refusals that are reported, of one mailbox and in all: a dishonest server must not fill the disk with logs.
MOST_EACH, MOST_TOLD = 5, 1000


@final
@dataclass(frozen=True, kw_only=True)
class Pace:
    """How long single steps may take, in seconds. It changes no results, so sites need not agree on it.

    Args:
        slice: of one request to the server. Between two, watchers are told and policies consulted.
        server: how long the server may be unreachable before the site stops. The run can be resumed.
    """

    slice: float = 5.0
    server: float = 600.0

    def __post_init__(self) -> None:
        for name in ("slice", "server"):
            expect(0 < getattr(self, name) <= 30 * 24 * 3600, f"seconds > 0 for {name}", **{name: getattr(self, name)})


class Reply(NamedTuple, Generic[T]):
    """The outcome of asking for a message."""

    content: T | None
    reached: bool = True  # the server answered
    bad: str = ""  # why the mailbox's content was refused; empty if nothing was


class Letter(NamedTuple):
    """A site's message of a round, and its bytes, whose digest other sites testify to."""

    words: ModelWords | SumWords
    data: bytes


def largest_message(agreement: Agreement) -> int:
    """Bytes of the largest message of a run."""
    size = format_of(agreement).largest
    return max(sealed_size(agreement.run, Slot(0, name), size) for name in agreement.names)


def largest_notice(agreement: Agreement) -> int:
    """Bytes of the largest notice or answer of a run."""
    longest = max(agreement.names, key=len)
    slot = Slot(0, longest, Kind.ANSWER, longest)
    return sealed_size(agreement.run, slot, max(NOTICE_BYTES, ANSWER_BYTES))


def no_books() -> bytes:
    """The statement of a site that says nothing of its ledger. Others then cannot warn it."""
    return NO_BOOKS


@final
class Mail:
    """Sends and reads messages for one site.

    Args:
        agreement: gives the sites, their keys and the sizes of messages.
        site: which of them this is.
        key: its private key, to sign with.
        transport: the way to the mailboxes. Nothing that it returns is trusted.
        watcher: is told of refused messages, and when the server is silent.
        pace: how long a request may take.
        books: the statement of the site's ledger that goes into every model and sum, see `heads`.
        release: from the number of a message to the release that it is for, as this site knows the run. They are equal
            as long as no sum is repeated.
    """

    def __init__(
        self, agreement: Agreement, site: str, key: SigningKey, transport: Transport, watcher: Watcher, pace: Pace,
        books: Callable[[], bytes] = no_books, release: Callable[[int], int] = int,
    ) -> None:  # fmt: skip
        self.agreement, self.site, self.pace, self.watcher = agreement, site, pace, watcher
        self._key, self._transport, self._books, self._release = key, transport, books, release
        self._digest = agreement.digest()
        self._small = {Kind.NOTICE: NOTICE_BYTES, Kind.ANSWER: ANSWER_BYTES}
        self._format = format_of(agreement)
        self._told: Counter[Slot] = Counter()
        self._seen: set[bytes] = set()

    def slot(self, k: int, site: str) -> Slot:
        """The mailbox of a site's message of round k."""
        return Slot(k, site, self._format.kind)

    # -- sealing and opening ------------------------------------------------------------------------------------------

    def seal(self, slot: Slot, payload: bytes) -> bytes:
        """The signed bytes of one of the site's own messages. Equal payloads and books give equal bytes."""
        books = self._books() if slot.kind.books_bytes else NO_BOOKS
        return seal(self._envelope(slot), payload, self._key, books)

    def unseal(self, slot: Slot, data: bytes, release: int | None = None) -> bytes:
        """The payload that the slot's site signed for this mailbox, or `BadMessageError`."""
        return unseal(data, self._envelope(slot, release), self.agreement.member(slot.site).public_key)

    def open_letter(self, slot: Slot, data: bytes, release: int | None = None) -> Letter:
        """A site's message of a round, or `BadMessageError`. `release`: of the message, where this site cannot know
        it.
        """
        words = self._format.read(self.unseal(slot, data, release), slot.number)
        self._refuse_sending_away(slot.site, words)
        return Letter(words, data)

    def open_point(self, slot: Slot, data: bytes, release: int | None = None) -> Point:
        """A site's proposal for a sum, or `BadMessageError`."""
        point = read_point(self.unseal(slot, data, release), slot.number, len(self.agreement.sites))
        self._refuse_sending_away(slot.site, point)
        return point

    def _refuse_sending_away(self, sender: str, words: ModelWords | SumWords | Point) -> None:
        """Refuse a testimony in which sites are dropped against the agreement: under another policy than "go-on", or by
        a site that is not their neighbour.
        """
        a = self.agreement
        gone = {name for name, s in zip(a.names, words.testimony, strict=True) if s.gone}
        left = {name for name, s in zip(a.names, words.testimony, strict=True) if s.left}
        if (gone and a.lost_neighbour.policy != "go-on") or not left <= set(a.neighbours(sender)):
            raise BadMessageError(
                Refusal.MALFORMED,
                f"{sender} may not go on without {', '.join(sorted(left or gone))}, as agreed.",
            )

    def is_bound(self, slot: Slot, data: bytes, binding: bytes) -> bool:
        """True if this is a valid message with that binding."""
        try:
            return self.open_letter(slot, data).words.binding == binding
        except BadMessageError:
            return False

    def _envelope(self, slot: Slot, release: int | None = None) -> Envelope:
        """The parts of the message in this mailbox that every reader knows in advance."""
        q = self._release(slot.number) if release is None else release
        sized = self._format.proposal if slot.kind is Kind.POINT else self._format.payload
        length = self._small.get(slot.kind) or sized(q)
        return Envelope(self.agreement.run, self._digest, slot, length)

    # -- delivering ---------------------------------------------------------------------------------------------------

    async def deliver(self, slot: Slot, data: bytes) -> PutOutcome:
        """Put the site's own message into its mailbox. A server that is away is waited for.

        A message that lies there already may differ in its statement of books. It counts as the same message if its
        digest, which leaves the statement out, is the same.
        """
        result = await self.put(slot, data)
        if result.held != data:
            try:
                self.unseal(slot, result.held)
                same = digest_of(result.held) == digest_of(data)
            except BadMessageError:
                same = False
            if not same:
                self.refuse_held(slot, result.held, "Ours was refused by the server")
        return result.outcome

    async def put(self, slot: Slot, data: bytes) -> PutResult:
        """Put bytes into a mailbox, and return what the mailbox then holds, which may be something else."""
        return await self._patiently(lambda: self._transport.put_once(slot, data, self.pace.slice))

    async def look(self, slot: Slot) -> bytes | None:
        """The content of a mailbox, None if it is empty. A server that is away is waited for."""
        return await self._patiently(lambda: self._transport.look(slot, self.pace.slice))

    def refuse_held(self, slot: Slot, held: bytes, ours: str = "Ours was not sent") -> NoReturn:
        """Stop because a mailbox of this site holds another message than this site's."""
        try:
            self.unseal(slot, held)
        except BadMessageError as error:
            raise RefusedError(
                f"Expected the mailbox of {self._envelope(slot)} to hold our own message, got another: {error} Ask "
                "whoever runs the message server."
            ) from error
        raise UsedTwiceError(
            f"Expected to be the only process of site={self.site!r}, got another signed message of "
            f"round={slot.number} on the server. Another process runs with this key, or the state folder is not the "
            f"one that this run began with. {ours}; find out which before going on."
        )

    async def _patiently(self, attempt: Callable[[], Awaitable[T]]) -> T:
        """Repeat an attempt while the server is away, for as long as `pace.server` allows."""
        clock = asyncio.get_running_loop().time
        since = clock()
        while True:
            try:
                return await attempt()
            except UnreachableError:
                away = clock() - since
                self.watcher.tell(ServerSilent(away))
                if away >= self.pace.server:
                    raise

    # -- asking -------------------------------------------------------------------------------------------------------

    async def hear(self, slot: Slot, seconds: float, read: Callable[[Slot, bytes], T]) -> Reply[T]:
        """Wait for a message that `read` accepts.

        Args:
            slot: the mailbox.
            seconds: how long to wait. A message that `read` refuses is asked for again within this time.
            read: from the bytes to what is returned; raises `BadMessageError` to refuse them.
        """
        clock, rest, bad = asyncio.get_running_loop().time, FIRST_REST, ""
        deadline = clock() + seconds
        # A refused message is asked for again: a push may have been forged, and the second time the mailbox is read.
        while (left := deadline - clock()) > 0:
            try:
                data = await self._transport.get(slot, left)
            except UnreachableError:
                # After a refused message little time may be left. But the server did answer before.
                return Reply(None, reached=bool(bad), bad=bad)
            if data is None:
                return Reply(None, bad=bad)
            try:
                return Reply(read(slot, data))
            except BadMessageError as error:
                bad = error.refusal.value
                self.tell(slot, data, error)
            await asyncio.sleep(min(rest, max(deadline - clock(), 0.0)))
            rest = min(2 * rest, LONGEST_REST)
        return Reply(None, bad=bad)

    def tell(self, slot: Slot, data: bytes, error: BadMessageError) -> None:
        """Report a refused message to the watcher: once for the same bytes, and a few times for each mailbox."""
        seen = hashlib.sha256(f"{slot.token} {slot.site} ".encode() + data).digest()
        if seen in self._seen or self._told[slot] >= MOST_EACH or len(self._seen) >= MOST_TOLD:
            return
        # Digests only, to bound the memory: a dishonest server may send any number of different messages.
        self._seen.add(seen)
        self._told[slot] += 1
        self.watcher.tell(Refused(slot.number, slot.site, error.refusal.value, str(error)))


def refuse_other_rows(slot: Slot, known: bytes | None, binding: bytes) -> None:
    """Refuse a message of a site whose earlier messages were bound to other rows or to another noise key."""
    if known is not None and known != binding:
        raise BadMessageError(
            Refusal.OTHER_ROWS,
            f"site={slot.site!r} bound itself to other rows or another noise key in an earlier round than in "
            f"round={slot.number}. It was set up anew in the middle of the run.",
        )
