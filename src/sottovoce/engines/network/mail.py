"""One site's letters in one run: sealed for their place, delivered once, and opened only if they are sound.

A transport hands out whatever bytes it likes. Here they are checked. What is refused is told to the watcher and asked
for again, since the first answer may have been somebody else's; a mailbox that holds something bad for good is as good
as an empty one, but for the record.
"""

import asyncio
import hashlib
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import NamedTuple, NoReturn, TypeVar, final

from sottovoce.arrays import Floats
from sottovoce.engines.network.agreement import Agreement
from sottovoce.engines.network.events import Watcher
from sottovoce.engines.network.identity import SigningKey
from sottovoce.engines.network.stops import UsedTwiceError
from sottovoce.engines.network.transport import Outcome, PutResult, RefusedError, Transport, UnreachableError
from sottovoce.engines.network.wire import BadMessageError, Envelope, Expected, decode, encode
from sottovoce.errors import expect

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
        look: for the look into the site's own mailbox when it starts, and into its neighbours' notices.
        server: how long the server may be unreachable before the site stops. It can be resumed.
    """

    slice: float = 5.0
    look: float = 1.0
    server: float = 600.0

    def __post_init__(self) -> None:
        for name in ("slice", "look", "server"):
            expect(0 < getattr(self, name) <= 30 * 24 * 3600, f"seconds > 0 for {name}", **{name: getattr(self, name)})


class Answer(NamedTuple):
    """What came of asking for a message."""

    vector: Floats | None
    reached: bool = True  # the server answered
    bad: bool = False  # something was there, and was refused


@final
class Mail:
    """Letters of one site."""

    def __init__(
        self, agreement: Agreement, site: str, key: SigningKey, transport: Transport, watcher: Watcher, pace: Pace
    ) -> None:
        self.agreement, self.site, self.pace, self.watcher = agreement, site, pace, watcher
        self._key, self._transport = key, transport
        self._digest = agreement.digest()
        self._told: Counter[tuple[int, str]] = Counter()
        self._seen: set[bytes] = set()

    # -- sealing and opening ------------------------------------------------------------------------------------------

    def sealed(self, k: int, vector: Floats) -> bytes:
        """The signed bytes of the site's own message. The same vector always gives the same bytes."""
        return encode(Envelope(self.agreement.run, self._digest, k, self.site, vector), self._key)

    def opened(self, k: int, sender: str, data: bytes) -> Floats:
        """The vector that this site signed for this round, or `BadMessageError`."""
        place = Expected(self.agreement.run, self._digest, k, sender, self.agreement.model_size)
        return decode(data, place, self.agreement.member(sender).public_key)

    # -- delivering ---------------------------------------------------------------------------------------------------

    async def deliver(self, k: int, data: bytes) -> Outcome:
        """Put the site's own message into its mailbox. A server that is away is waited for."""
        result = await self.put(k, data)
        if result.held != data:
            self._refuse_held(k, result.held)
        return result.outcome

    async def put(self, k: int, data: bytes) -> PutResult:
        """The same, whatever the mailbox holds."""
        return await self._patiently(lambda: self._transport.put_once(k, self.site, data, self.pace.slice))

    async def expect_unsaid(self, k: int) -> None:
        """Stop if the mailbox of round k, which this site has not computed yet, is full already."""
        held = await self._patiently(lambda: self._transport.get(k, self.site, self.pace.look))
        if held is not None:
            self._refuse_held(k, held)

    def _refuse_held(self, k: int, held: bytes) -> NoReturn:
        try:
            self.opened(k, self.site, held)
        except BadMessageError as error:
            raise RefusedError(
                f"Expected the mailbox of site={self.site!r} in round={k} to hold our own message, got another: "
                f"{error} Ask whoever runs the message server."
            ) from error
        raise UsedTwiceError(
            f"Expected to be the only one who speaks as site={self.site!r}, got another signed message of round={k} "
            "on the server. Another process runs with this key, or the state folder was put back from an old copy. "
            "Find out which before going on."
        )

    async def _patiently(self, attempt: Callable[[], Awaitable[T]]) -> T:
        """Repeat while the server is away, but not for ever."""
        since = _now()
        while True:
            try:
                return await attempt()
            except UnreachableError:
                away = _now() - since
                self.watcher.server_silent(away)
                if away >= self.pace.server:
                    raise

    # -- asking -------------------------------------------------------------------------------------------------------

    async def hear_all(self, k: int, senders: Iterable[str], seconds: float) -> dict[str, Answer]:
        """What each of them said in round k, as far as it is there within that time."""
        names = list(senders)
        answers = await asyncio.gather(*(self.hear(k, name, seconds) for name in names), return_exceptions=True)
        found = {}
        for name, answer in zip(names, answers, strict=True):
            if isinstance(answer, BaseException):
                raise answer
            found[name] = answer
        return found

    async def hear(self, k: int, sender: str, seconds: float) -> Answer:
        """What it said, as soon as a good message is there; at the latest after that time."""
        deadline, rest, bad = _now() + seconds, FIRST_REST, False
        while (left := deadline - _now()) > 0:
            try:
                data = await self._transport.get(k, sender, left)
            except UnreachableError:
                # After a bad message little time may be left. But then the server did answer.
                return Answer(None, reached=bad, bad=bad)
            if data is None:
                return Answer(None, bad=bad)
            try:
                return Answer(self.opened(k, sender, data))
            except BadMessageError as error:
                bad = True
                self._tell(k, sender, data, error)
            await asyncio.sleep(min(rest, max(deadline - _now(), 0.0)))
            rest = min(2 * rest, LONGEST_REST)
        return Answer(None, bad=bad)

    def _tell(self, k: int, sender: str, data: bytes, error: BadMessageError) -> None:
        """Once for the same bytes, and a few times for each mailbox."""
        seen = hashlib.sha256(b"%d %s " % (k, sender.encode()) + data).digest()
        if seen in self._seen or self._told[k, sender] >= MOST_EACH or len(self._seen) >= MOST_TOLD:
            return
        self._seen.add(seen)
        self._told[k, sender] += 1
        self.watcher.refused(k, sender, error.refusal.value, str(error))


def _now() -> float:
    return asyncio.get_running_loop().time()
