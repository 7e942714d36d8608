"""Notices: what sites tell their neighbours about the run itself (`letters.About`).

A site's notices lie in mailboxes of their own, numbered from 1 on. A question is answered in a mailbox of the answering
site, named after the question; only the asker reads it. Every site listens to its neighbours' notices from the start of
the process to its end, so it answers questions also while it computes or waits.

A site reads only its neighbours' notices, and a notice may name only neighbours of its sender. So a dishonest site can
remove only its own neighbours from the run.
"""

import asyncio
import secrets
from collections.abc import Iterable
from contextlib import suppress
from types import TracebackType
from typing import NamedTuple, Self, final

from sottovoce.errors import SottovoceError, expect
from sottovoce.federation.agreement.agreement import Agreement
from sottovoce.federation.site.events import Noticed
from sottovoce.federation.site.formats import format_of
from sottovoce.federation.site.heads import Heads
from sottovoce.federation.site.letters import NONCE_BYTES, About, Heard, Notice, Sighting, read_answer, read_notice
from sottovoce.federation.site.mail import Mail, Reply
from sottovoce.federation.site.stops import LeftBehindError
from sottovoce.federation.site.witness import left_behind
from sottovoce.federation.transport.transport import PutOutcome
from sottovoce.federation.transport.wire import BadMessageError, Kind, Refusal, Slot

LISTENING = 30.0  # seconds that one request for the next notice may take
MOST_QUESTIONS = 1000  # of one site in a run: one for each time that it is started and says something new
_AT_ONCE = 32  # mailboxes that are looked into together, when a process catches up


class Wait(NamedTuple):
    """The last round in which a site said that it waits, and how often it has said so."""

    round: int
    times: int
    asks: bool = False  # it waits for answers of others, before its message of the next round


def most_notices(agreement: Agreement) -> int:
    """Largest number of notices of one site: one for each site that it may lose, questions, signs of waiting."""
    return (1 + format_of(agreement).spare) * len(agreement.sites) + agreement.algorithm.messages + 16 + MOST_QUESTIONS


def most_answers(agreement: Agreement) -> int:
    """Largest number of answers of all sites together: one for each question of a neighbour."""
    return 2 * agreement.graph.edge_count * MOST_QUESTIONS


@final
class Board:
    """A site's own notices and its neighbours'. It listens while it is used as an asynchronous context manager.

    Args:
        mail: sends and reads the site's messages.
        heard: what was last heard of each neighbour, for answers. The caller keeps it up to date.
        heads: what others have said of their books, for answers.
    """

    def __init__(self, mail: Mail, heard: dict[str, Sighting], heads: Heads) -> None:
        a = mail.agreement
        self._mail, self._agreement, self._most = mail, a, most_notices(a)
        self._own = 1  # the first mailbox of this site that is not known to be full
        self._read = dict.fromkeys(a.neighbours(mail.site), 0)
        self._ignored, self._heard = set[str](), heard
        self._heads = heads
        self._questions: dict[str, tuple[int, Notice]] = {}  # the last unanswered one of each neighbour
        self._waits: dict[str, Wait] = {}
        self.gone: set[str] = set()  # sites that some neighbour goes on without
        self._decided_together = a.algorithm.way.one_model  # a vote counts when all remaining sites have cast it
        self._votes: dict[tuple[int, str], set[str]] = {}  # by round and voter
        self._told: set[tuple[int, str]] = set()  # votes that this process has sent: the round and the site to drop
        self._news = asyncio.Event()
        self._stop: LeftBehindError | None = None
        self._failed: BaseException | None = None
        self._listeners: list[asyncio.Task[None]] = []

    def ignore(self, absent: Iterable[str]) -> None:
        """Ignore notices of these sites from now on: this site goes on without them."""
        self._ignored |= set(absent)

    # -- speaking -----------------------------------------------------------------------------------------------------

    async def tell_gone(self, k: int, site: str) -> None:
        """Say that a neighbour takes no further part, unless an earlier process of this site has said it."""
        self._ignored.add(site)
        await self.tell_vote(k, site)

    async def tell_vote(self, k: int, site: str) -> None:
        """Say that this site would go on without a neighbour. The neighbour is still heard until that is decided."""
        if (k, site) not in self._told:
            self._told.add((k, site))
            await self._put(Notice(About.GONE, k, self._agreement.index(site)), self._most, once=True)

    async def tell_waiting(self, k: int) -> None:
        """Say that this site is alive and waits. The last few mailboxes are kept free for other notices."""
        await self._put(Notice(About.WAITING, k), self._most - len(self._read))

    async def ask(self, k: int, data_set: bytes) -> tuple[int, bytes]:
        """Ask all neighbours what they last heard of this site and of its books for this data set. Returns the
        question's number and its nonce.
        """
        nonce = secrets.token_bytes(NONCE_BYTES)
        number = await self._put(
            Notice(About.QUESTION, k, nonce=nonce, data_set=data_set), self._most - len(self._read)
        )
        expect(number is not None, f"a site that is started at most {MOST_QUESTIONS} times in a run", round=k)
        return number or 0, nonce

    async def hear_answer(self, name: str, number: int, nonce: bytes, seconds: float) -> Reply[Heard]:
        """A neighbour's answer to this site's question with that number and nonce."""

        def read(slot: Slot, data: bytes) -> Heard:
            heard = read_answer(self._mail.unseal(slot, data))
            if heard.nonce != nonce:
                raise BadMessageError(Refusal.WRONG_ROUND, f"site={name!r} has answered another question: replayed.")
            return heard

        return await self._mail.hear(Slot(number, name, Kind.ANSWER, self._mail.site), seconds, read)

    async def _put(self, notice: Notice, most: int, *, once: bool = False) -> int | None:
        """Put a notice into the next free mailbox and return its number; None if no mailbox below `most` is free.

        With `once`, a mailbox that already holds the same notice is as good.
        """
        # A full mailbox was filled by an earlier process of this site, so go on to the next one.
        while self._own < most:
            slot = Slot(self._own, self._mail.site, Kind.NOTICE)
            self._own += 1
            data = self._mail.seal(slot, notice.to_bytes())
            result = await self._mail.put(slot, data)
            if result.outcome is PutOutcome.STORED or (once and result.held == data):
                return slot.number
        return None

    async def _answer(self, name: str) -> None:
        """Answer a neighbour's last question: what was last heard of it, with the question's nonce."""
        number, asked = self._questions.pop(name)
        heard = self._heard.get(name, Sighting())
        books = self._heads.last(self._agreement.member(name).public_key, asked.data_set)
        slot = Slot(number, self._mail.site, Kind.ANSWER, name)
        answer = Heard(asked.nonce, heard.round, heard.digest, books)
        await self._mail.put(slot, self._mail.seal(slot, answer.to_bytes()))

    # -- listening ----------------------------------------------------------------------------------------------------

    async def catch_up(self) -> None:
        """Read the notices that were put before this process began."""
        await asyncio.gather(*(self._read_all(name) for name in self._read))
        self.check()

    def check(self) -> None:
        """Stop if a neighbour goes on without this site, or if listening has failed."""
        for error in (self._failed, self._stop):
            if error is not None:
                raise error

    def wait_of(self, name: str) -> Wait:
        """The last round in which a neighbour said that it waits."""
        return self._waits.get(name, Wait(0, 0))

    def votes_of(self, k: int, name: str) -> frozenset[str]:
        """The sites without which a neighbour would repeat the sum of round k."""
        return frozenset(self._votes.get((k, name), ()))

    async def news(self, seconds: float) -> None:
        """Wait until a notice comes, at most so many seconds."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self._news.wait(), seconds)
        self._news.clear()

    async def __aenter__(self) -> Self:
        self._listeners = [asyncio.get_running_loop().create_task(self._listen(name)) for name in self._read]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for listener in self._listeners:
            listener.cancel()
        await asyncio.gather(*self._listeners, return_exceptions=True)

    async def _listen(self, name: str) -> None:
        """Read one neighbour's notices as they come, and answer its questions, until the run ends."""
        try:
            while self._read[name] < self._most:
                if name in self._questions:
                    await self._answer(name)
                slot = Slot(self._read[name] + 1, name, Kind.NOTICE)
                answer = await self._mail.hear(slot, LISTENING, self._open)
                if answer.content is not None:
                    self._read[name] += 1
                    self._take(slot, answer.content)
        except SottovoceError as error:
            # Raised by the next `check`: nobody awaits this task.
            self._failed = error

    async def _read_all(self, name: str) -> None:
        """Read all notices of one neighbour that are there already; many at once, since the server may be far away."""
        while True:
            first = self._read[name] + 1
            slots = [Slot(i, name, Kind.NOTICE) for i in range(first, min(first + _AT_ONCE, self._most))]
            for slot, data in zip(slots, await asyncio.gather(*map(self._mail.look, slots)), strict=True):
                if data is None:
                    return
                try:
                    self._take(slot, self._open(slot, data))
                except BadMessageError as error:  # the listener asks for it again
                    self._mail.tell(slot, data, error)
                    return
                self._read[name] += 1
            if not slots:
                return

    def _open(self, slot: Slot, data: bytes) -> Notice:
        """The notice in a mailbox, or `BadMessageError`. One that its sender has signed but may not put is reported to
        the watcher, and read as `About.NOTHING`.
        """
        payload, a = self._mail.unseal(slot, data), self._agreement
        try:
            notice = read_notice(payload)
            if notice.about is About.GONE and notice.site not in {a.index(n) for n in a.neighbours(slot.site)}:
                raise BadMessageError(
                    Refusal.MALFORMED, f"{slot.site} may speak of its own neighbours only, not of site={notice.site}."
                )
        except BadMessageError as error:
            self._mail.tell(slot, data, error)
            return Notice(About.NOTHING, 0)
        return notice

    def _take(self, slot: Slot, notice: Notice) -> None:
        """Take in a notice: a question, a wait, or that its sender goes on without a site."""
        name, watcher = slot.site, self._mail.watcher
        if name in self._ignored:
            return
        self._news.set()
        if notice.about is About.QUESTION:
            self._questions[name] = slot.number, notice
            # A site that asks has just started, and sends nothing new before it has answers.
            self._waits[name] = Wait(notice.round - 1, self.wait_of(name).times + 1, asks=True)
        elif notice.about is About.WAITING:
            self._waits[name] = Wait(notice.round, self.wait_of(name).times + 1)
            watcher.tell(Noticed(name, f"waits for others in round {notice.round}"))
        elif notice.about is About.GONE:
            about = self._agreement.names[notice.site]
            watcher.tell(Noticed(name, f"goes on without {about} since round {notice.round}"))
            if self._agreement.lost_neighbour.policy != "go-on":
                return  # under another policy a site may not do that, so its notice counts for nothing
            if self._decided_together:
                self._votes.setdefault((notice.round, name), set()).add(about)
            elif about == self._mail.site:
                self._stop = left_behind(self._mail.site, name, notice.round)
            else:
                self.gone.add(about)
