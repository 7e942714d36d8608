"""What sites tell their neighbours about the run itself (`letters.About`).

A site's notices lie in mailboxes of their own, numbered from 1 on. A question is answered in a mailbox of the answering
site, which is named after the question; nobody but the asker reads it. Every site listens to its neighbours' notices
from its first moment to its last, so questions are answered also while it computes or waits.

Only notices of neighbours are read, and they can speak only of their own neighbours. So a bad site can send away those
who must rely on it anyway, and no one else.
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
from sottovoce.federation.site.mail import Answer, Mail
from sottovoce.federation.site.stops import LeftBehindError
from sottovoce.federation.site.witness import left_behind
from sottovoce.federation.transport.transport import PutOutcome
from sottovoce.federation.transport.wire import BadMessageError, Kind, Refusal, Slot

LISTENING = 30.0  # seconds of one question for the next notice
MOST_QUESTIONS = 1000  # of one site in a run: one for each time that it is started and says something new
_AT_ONCE = 32  # notices that are looked for together, when a process catches up


class Wait(NamedTuple):
    """The last round in which a site said that it waits, and how often it has said so."""

    round: int
    times: int
    asks: bool = False  # for answers of others, before its words of the next round


def most_notices(agreement: Agreement) -> int:
    """How many notices one site may put: one for every site that it may lose, questions, and some to say it waits."""
    return (1 + format_of(agreement).spare) * len(agreement.sites) + agreement.algorithm.rounds + 16 + MOST_QUESTIONS


def most_answers(agreement: Agreement) -> int:
    """How many answers all sites together may put: one for each question of a neighbour."""
    return 2 * agreement.graph.edge_count * MOST_QUESTIONS


@final
class Board:
    """A site's own notices and its neighbours'. As an asynchronous context manager it listens in between.

    Args:
        mail: the site's letters.
        heard: what was last heard of each neighbour. It is kept up to date, for whoever asks.
        heads: what others have said of their books, for whoever asks.
    """

    def __init__(self, mail: Mail, heard: dict[str, Sighting], heads: Heads) -> None:
        a = mail.agreement
        self._mail, self._agreement, self._most = mail, a, most_notices(a)
        self._own = 1  # the first mailbox that is not known to be taken
        self._read = dict.fromkeys(a.neighbours(mail.site), 0)
        self._ignored, self._heard = set[str](), heard
        self._heads = heads
        self._questions: dict[str, tuple[int, Notice]] = {}  # the last of each neighbour that is not answered
        self._waits: dict[str, Wait] = {}
        self._gone: set[str] = set()
        self._decided_together = a.algorithm.way.one_model  # a vote counts when all who are left have cast it
        self._votes: dict[tuple[int, str], set[str]] = {}  # by round and voter
        self._told: set[tuple[int, str]] = set()  # of whom this process has said that it is gone, and since when
        self._news = asyncio.Event()
        self._stop: LeftBehindError | None = None
        self._failed: BaseException | None = None
        self._listeners: list[asyncio.Task[None]] = []

    def ignore(self, absent: Iterable[str]) -> None:
        """What these say does not count any more: the site goes on without them."""
        self._ignored |= set(absent)

    # -- speaking -----------------------------------------------------------------------------------------------------

    async def tell_gone(self, k: int, site: str) -> None:
        """Say that a neighbour takes no further part. After a crash it is said again, or found said."""
        self._ignored.add(site)
        await self.tell_vote(k, site)

    async def tell_vote(self, k: int, site: str) -> None:
        """Say that this site would go on without a neighbour. Until that is decided, it is still heard."""
        if (k, site) not in self._told:
            self._told.add((k, site))
            await self._put(Notice(About.GONE, k, self._agreement.index(site)), self._most, once=True)

    async def tell_waiting(self, k: int) -> None:
        """Say that this site is alive. The last few mailboxes are left for what matters more."""
        await self._put(Notice(About.WAITING, k), self._most - len(self._read))

    async def ask(self, k: int, data_set: bytes) -> tuple[int, bytes]:
        """Ask all neighbours what they last heard of this site, also of the books of its data set; the question's
        number and its nonce.
        """
        nonce = secrets.token_bytes(NONCE_BYTES)
        number = await self._put(
            Notice(About.QUESTION, k, nonce=nonce, data_set=data_set), self._most - len(self._read)
        )
        expect(number is not None, f"a site that is started at most {MOST_QUESTIONS} times in a run", round=k)
        return number or 0, nonce

    async def hear_answer(self, name: str, number: int, nonce: bytes, seconds: float) -> Answer[Heard]:
        """What a neighbour answers to our question."""

        def read(slot: Slot, data: bytes) -> Heard:
            heard = read_answer(self._mail.unseal(slot, data))
            if heard.nonce != nonce:
                raise BadMessageError(Refusal.WRONG_ROUND, f"site={name!r} has answered another question: replayed.")
            return heard

        return await self._mail.hear(Slot(number, name, Kind.ANSWER, self._mail.site), seconds, read)

    async def _put(self, notice: Notice, most: int, *, once: bool = False) -> int | None:
        """Into the next free mailbox, behind what a process before this one has said; None if there is no room left.

        What needs to be said only `once` is done if it is found said.
        """
        # What lies in a mailbox was said by an earlier process of this site: go on behind it.
        while self._own < most:
            slot = Slot(self._own, self._mail.site, Kind.NOTICE)
            self._own += 1
            data = self._mail.seal(slot, notice.to_bytes())
            result = await self._mail.put(slot, data)
            if result.outcome is PutOutcome.STORED or (once and result.held == data):
                return slot.number
        return None

    async def _answer(self, name: str) -> None:
        """Tell a neighbour what was last heard of it. Its question's nonce goes back with it."""
        number, asked = self._questions.pop(name)
        heard = self._heard.get(name, Sighting())
        books = self._heads.last(self._agreement.member(name).public_key, asked.data_set)
        slot = Slot(number, self._mail.site, Kind.ANSWER, name)
        answer = Heard(asked.nonce, heard.round, heard.digest, books)
        await self._mail.put(slot, self._mail.seal(slot, answer.to_bytes()))

    # -- listening ----------------------------------------------------------------------------------------------------

    async def catch_up(self) -> None:
        """Read what was said before this process began, and answer what is still to be answered."""
        await asyncio.gather(*(self._read_all(name) for name in self._read))
        self.check()

    def check(self) -> None:
        """Stop if a neighbour goes on without this site, or if listening has failed."""
        for error in (self._failed, self._stop):
            if error is not None:
                raise error

    def wait_of(self, name: str) -> Wait:
        """What a neighbour last said of its waiting."""
        return self._waits.get(name, Wait(0, 0))

    def votes_of(self, k: int, name: str) -> frozenset[str]:
        """Without whom a neighbour would make the sum in round k again."""
        return frozenset(self._votes.get((k, name), ()))

    async def news(self, seconds: float) -> None:
        """Wait until a notice comes, for so long at most."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self._news.wait(), seconds)
        self._news.clear()

    @property
    def gone(self) -> frozenset[str]:
        """Sites that some neighbour goes on without."""
        return frozenset(self._gone)

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
            # Raised by the next `check`: a task that fails by itself would be heard of by nobody.
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
                except BadMessageError as error:  # the listener asks for it again, and so knows how it ends
                    self._mail.tell(slot, data, error)
                    return
                self._read[name] += 1
            if not slots:
                return

    def _open(self, slot: Slot, data: bytes) -> Notice:
        """A notice. What its sender has signed and may not say is told, and counts for nothing."""
        payload = self._mail.unseal(slot, data)
        try:
            notice = read_notice(payload)
            if notice.about is About.GONE and notice.site not in self._numbers_around(slot.site):
                raise BadMessageError(
                    Refusal.MALFORMED, f"{slot.site} may speak of its own neighbours only, not of site={notice.site}."
                )
        except BadMessageError as error:
            self._mail.tell(slot, data, error)
            return Notice(About.NOTHING, 0)
        return notice

    def _numbers_around(self, name: str) -> set[int]:
        """The numbers of a site's neighbours: all that it may speak of."""
        return {self._agreement.index(other) for other in self._agreement.neighbours(name)}

    def _take(self, slot: Slot, notice: Notice) -> None:
        """Take a notice in: remember a question, a wait, or that somebody goes on without somebody."""
        name, watcher = slot.site, self._mail.watcher
        if name in self._ignored:
            return
        self._news.set()
        if notice.about is About.QUESTION:
            self._questions[name] = slot.number, notice
            # Whoever asks has just begun, and says nothing new before it has answers.
            self._waits[name] = Wait(notice.round - 1, self.wait_of(name).times + 1, asks=True)
        elif notice.about is About.WAITING:
            self._waits[name] = Wait(notice.round, self.wait_of(name).times + 1)
            watcher.tell(Noticed(name, f"waits for others in round {notice.round}"))
        elif notice.about is About.GONE:
            about = self._agreement.names[notice.site]
            watcher.tell(Noticed(name, f"goes on without {about} since round {notice.round}"))
            if self._agreement.lost_neighbour.policy != "go-on":
                return  # it may not do that, and whoever heeded it would be sent away by anyone
            if self._decided_together:
                self._votes.setdefault((notice.round, name), set()).add(about)
            elif about == self._mail.site:
                self._stop = left_behind(self._mail.site, name, notice.round)
            else:
                self._gone.add(about)
