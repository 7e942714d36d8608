"""One site's letters in one run: sealed for their place, delivered once, and opened only if they are sound.

A transport hands out whatever bytes it likes. Here they are checked. What is refused is told to the watcher and
asked for again, since the first answer may have been somebody else's; a mailbox that holds something bad for good is
as good as an empty one, but for the record. What to do about a silent neighbour is decided elsewhere (`absent`).
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
from sottovoce.federation.site.events import Refused, ServerSilent, Watcher
from sottovoce.federation.site.formats import format_of
from sottovoce.federation.site.letters import (
    ANSWER_BYTES,
    NOTICE_BYTES,
    Point,
    SumWords,
    Words,
    read_point,
)
from sottovoce.federation.site.stops import UsedTwiceError
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
# Refusals that are told, of one mailbox and in all: a bad server must not fill the disk with logs.
MOST_EACH, MOST_TOLD = 5, 1000


@final
@dataclass(frozen=True, kw_only=True)
class Pace:
    """How long single steps may take, in seconds. None of it is agreed on: it changes no numbers.

    Args:
        slice: of one question to the server. Between two, watchers are told and policies consulted.
        server: how long the server may be unreachable before the site stops. It can be resumed.
    """

    slice: float = 5.0
    server: float = 600.0

    def __post_init__(self) -> None:
        for name in ("slice", "server"):
            expect(0 < getattr(self, name) <= 30 * 24 * 3600, f"seconds > 0 for {name}", **{name: getattr(self, name)})


class Answer(NamedTuple, Generic[T]):
    """What came of asking for a message."""

    content: T | None
    reached: bool = True  # the server answered
    bad: str = ""  # something was there, and was refused for this reason


class Letter(NamedTuple):
    """What a neighbour said in a round, and the bytes that it came as: their digest is what others testify to."""

    words: Words | SumWords
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
    """Of a site that says nothing of its ledger: others then cannot warn it."""
    return NO_BOOKS


@final
class Mail:
    """Letters of one site.

    Args:
        agreement: whose sites, keys and sizes count.
        site: which of them this is.
        key: its private key, to sign with.
        transport: the way to the mailboxes. It is trusted with nothing.
        watcher: is told what was refused, and that the server is silent.
        pace: how long a question may take.
        books: what every model and sum says of the site's ledger, see `heads`.
        release: from the number of a message to what is released in it, as this site knows the run. Where no sum is
            made again, they are the same.
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
        """The signed bytes of the site's own message. The same payload and books always give the same bytes."""
        books = self._books() if slot.kind.books_bytes else NO_BOOKS
        return seal(self._envelope(slot), payload, self._key, books)

    def unseal(self, slot: Slot, data: bytes, release: int | None = None) -> bytes:
        """The payload that the slot's site signed for this place, or `BadMessageError`."""
        return unseal(data, self._envelope(slot, release), self.agreement.member(slot.site).public_key)

    def open_letter(self, slot: Slot, data: bytes, release: int | None = None) -> Letter:
        """What a site said in a round, or `BadMessageError`. `release`: of what, if that is not for us to know."""
        words = self._format.read(self.unseal(slot, data, release), slot.number)
        self._refuse_sending_away(slot.site, words)
        return Letter(words, data)

    def open_point(self, slot: Slot, data: bytes, release: int | None = None) -> Point:
        """What a site proposes for a sum, or `BadMessageError`."""
        point = read_point(self.unseal(slot, data, release), slot.number, len(self.agreement.sites))
        self._refuse_sending_away(slot.site, point)
        return point

    def _refuse_sending_away(self, sender: str, words: Words | SumWords | Point) -> None:
        """Nobody goes on without others where that was not agreed, nor without those who are not its neighbours."""
        a = self.agreement
        gone = {name for name, s in zip(a.names, words.testimony, strict=True) if s.gone}
        left = {name for name, s in zip(a.names, words.testimony, strict=True) if s.left}
        if (gone and a.lost_neighbour.policy != "go-on") or not left <= set(a.neighbours(sender)):
            raise BadMessageError(
                Refusal.MALFORMED,
                f"{sender} may not go on without {', '.join(sorted(left or gone))}, as agreed.",
            )

    def is_bound(self, slot: Slot, data: bytes, binding: bytes) -> bool:
        """Whether this is a sound message with that binding."""
        try:
            return self.open_letter(slot, data).words.binding == binding
        except BadMessageError:
            return False

    def _envelope(self, slot: Slot, release: int | None = None) -> Envelope:
        """What every reader knows of the message in this mailbox before it comes."""
        q = self._release(slot.number) if release is None else release
        sized = self._format.proposal if slot.kind is Kind.POINT else self._format.payload
        length = self._small.get(slot.kind) or sized(q)
        return Envelope(self.agreement.run, self._digest, slot, length)

    # -- delivering ---------------------------------------------------------------------------------------------------

    async def deliver(self, slot: Slot, data: bytes) -> PutOutcome:
        """Put the site's own message into its mailbox. A server that is away is waited for.

        What lies there already may speak of older books. If the words are the same, nothing else was said.
        """
        result = await self.put(slot, data)
        if result.held != data and not self.is_same(slot, result.held, data):
            self.refuse_held(slot, result.held, "Ours was refused by the server")
        return result.outcome

    def is_same(self, slot: Slot, held: bytes, ours: bytes) -> bool:
        """Whether what a mailbox holds was signed by this site, and says what ours says."""
        return self.is_signed(slot, held) and digest_of(held) == digest_of(ours)

    def is_signed(self, slot: Slot, held: bytes) -> bool:
        """Whether what a mailbox holds was signed by whoever it belongs to, for just this place."""
        try:
            self.unseal(slot, held)
        except BadMessageError:
            return False
        return True

    async def put(self, slot: Slot, data: bytes) -> PutResult:
        """Put it into its mailbox, and return what the mailbox then holds, which may be something else."""
        return await self._patiently(lambda: self._transport.put_once(slot, data, self.pace.slice))

    async def look(self, slot: Slot) -> bytes | None:
        """What a mailbox holds now. A server that is away is waited for."""
        return await self._patiently(lambda: self._transport.look(slot, self.pace.slice))

    def refuse_held(self, slot: Slot, held: bytes, ours: str = "Ours was not sent") -> NoReturn:
        """Stop: a mailbox of this site holds something else than what this site says."""
        try:
            self.unseal(slot, held)
        except BadMessageError as error:
            raise RefusedError(
                f"Expected the mailbox of {self._envelope(slot)} to hold our own message, got another: {error} Ask "
                "whoever runs the message server."
            ) from error
        raise UsedTwiceError(
            f"Expected to be the only one who speaks as site={self.site!r}, got another signed message of "
            f"round={slot.number} on the server. Another process runs with this key, or the state folder is not the "
            f"one that this run began with. {ours}; find out which before going on."
        )

    async def _patiently(self, attempt: Callable[[], Awaitable[T]]) -> T:
        """Repeat while the server is away, but not for ever."""
        since = _now()
        while True:
            try:
                return await attempt()
            except UnreachableError:
                away = _now() - since
                self.watcher.tell(ServerSilent(away))
                if away >= self.pace.server:
                    raise

    # -- asking -------------------------------------------------------------------------------------------------------

    async def hear(self, slot: Slot, seconds: float, read: Callable[[Slot, bytes], T]) -> Answer[T]:
        """What was said, as soon as something that can be read is there; at the latest after that time.

        Args:
            slot: whose message, and which.
            seconds: how long to wait. A message that `read` refuses is asked for again within this time.
            read: makes something of the bytes, or raises `BadMessageError`.
        """
        deadline, rest, bad = _now() + seconds, FIRST_REST, ""
        # A bad message is asked for again: a push may have been forged, the mailbox itself is asked the second time.
        while (left := deadline - _now()) > 0:
            try:
                data = await self._transport.get(slot, left)
            except UnreachableError:
                # After a bad message little time may be left. But then the server did answer.
                return Answer(None, reached=bool(bad), bad=bad)
            if data is None:
                return Answer(None, bad=bad)
            try:
                return Answer(read(slot, data))
            except BadMessageError as error:
                bad = error.refusal.value
                self.tell(slot, data, error)
            await asyncio.sleep(min(rest, max(deadline - _now(), 0.0)))
            rest = min(2 * rest, LONGEST_REST)
        return Answer(None, bad=bad)

    def tell(self, slot: Slot, data: bytes, error: BadMessageError) -> None:
        """Tell the watcher of a refused message: once for the same bytes, and a few times for each mailbox."""
        seen = hashlib.sha256(f"{slot.token} {slot.site} ".encode() + data).digest()
        if seen in self._seen or self._told[slot] >= MOST_EACH or len(self._seen) >= MOST_TOLD:
            return
        # Digests only: a bad server may send as many different bytes as it likes.
        self._seen.add(seen)
        self._told[slot] += 1
        self.watcher.tell(Refused(slot.number, slot.site, error.refusal.value, str(error)))


def refuse_other_rows(slot: Slot, known: bytes | None, binding: bytes) -> None:
    """Refuse a message of a site that has bound itself to other rows, or to another noise key, before."""
    if known is not None and known != binding:
        raise BadMessageError(
            Refusal.OTHER_ROWS,
            f"site={slot.site!r} bound itself to other rows or another noise key in an earlier round than in "
            f"round={slot.number}. It was set up anew in the middle of the run.",
        )


def _now() -> float:
    """The event loop's clock, in seconds."""
    return asyncio.get_running_loop().time()
