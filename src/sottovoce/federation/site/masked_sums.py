"""A site's part in a run of masked sums: it sends masked words, and all sites go on from the sum.

All sites run one program (`sottovoce.sums`), a function of the opened sums alone. So the only state that a site writes
down is the list of these sums, and after a crash it runs the program again on them. If the point of the program's
question differs from the recorded one by more than rounding, the site refuses; otherwise it uses the recorded bits.

Before a sum, one of the sites proposes its point, and the others use the same bits (`prepare`). If a site is lost, the
sum is given up and repeated without it (`lost`).
"""

import asyncio
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from math import sqrt
from typing import Any, cast, final

import numpy as np

from sottovoce.errors import InputError, SottovoceError, expect
from sottovoce.federation.site import confirmation, lost
from sottovoce.federation.site.absent import Policy, Silence
from sottovoce.federation.site.events import Dropped
from sottovoce.federation.site.letters import Heading, Point, SumWords
from sottovoce.federation.site.mail import Letter, Reply
from sottovoce.federation.site.masks import Context, Masks, Parting, Past
from sottovoce.federation.site.norm import norm_of
from sottovoce.federation.site.part import (
    Computed,
    Counted,
    Finished,
    Hearing,
    Learnt,
    Outcome,
    Process,
    SitePart,
    Standing,
)
from sottovoce.federation.site.snapshot import pack_arrays, unpack_arrays
from sottovoce.federation.site.software import one_thread, protocol
from sottovoce.federation.site.stops import DamagedError, ForkedError, SpoiledError
from sottovoce.federation.site.summing import Summing, proposer
from sottovoce.federation.site.witness import Witness
from sottovoce.federation.transport.wire import DIGEST_BYTES, BadMessageError, Kind, Refusal, Slot
from sottovoce.privacy.accounting.discrete import discretisation_divergence
from sottovoce.privacy.books.book import Assumed, Cost
from sottovoce.problem.answers import Answers
from sottovoce.sums.descent import Fit
from sottovoce.sums.program import HeldOut, LearntFrom, Opened, Question, Session
from sottovoce.sums.questions import Gradient, WhitenedGradient


@final
@dataclass(frozen=True, eq=False)
class AfterSum(Standing):
    """A site after a sum, or in the middle of one.

    Args:
        witness: what it knows of all sites' messages.
        session: the program. It is the same object in all standings of a process, and never goes back.
        context: of the sum that is being made.
        question: of that sum, with the bits that all sites use.
        opened: the last opened sum, packed.
        gradient: norm of the noisy gradient of the mean loss, if that was opened last.
    """

    witness: Witness
    session: Session[Any]
    context: Context | None = None
    question: Question[Any] | None = None
    opened: bytes | None = None
    gradient: float | None = None

    def dumps(self) -> bytes:
        return self.witness.dumps()

    def with_witness(self, witness: Witness) -> "AfterSum":
        return AfterSum(witness, self.session)

    def size(self, senders: int) -> float | None:  # noqa: ARG002
        return self.gradient


@final
class MaskedSums(SitePart):
    """A site's part in a run of masked sums."""

    def check(self) -> None:
        noise = self.seat.noise
        expect(noise is None, "masked sums with noise from the site's own seed", noise=type(noise).__name__)
        if not self.seat.over:
            _ = self.masks  # refuses a seed that does not belong to the agreed mask key

    @cached_property
    def masks(self) -> Masks:
        """The site's secrets in this run, from the seed in its journal."""
        return Masks(self.agreement, self.seat.site, self.journal.seed)

    @cached_property
    def summing(self) -> Summing:
        """The site's sums. Rows to hold out, if any, are chosen in an order that follows from the seed."""
        oracle = self.seat.oracle
        return Summing(self.agreement, replace(oracle, order=lambda: self.masks.order(len(oracle.sites.labels))))

    # -- where it stands ----------------------------------------------------------------------------------------------

    @property
    def start(self) -> AfterSum:
        return AfterSum(Witness.start(self.agreement), self.summing.begin())

    def load(self, content: bytes, k: int) -> AfterSum:
        sums, wanted = self.journal.sums(), self.seat.turn(k + 1).release - 1
        if len(sums) != wanted:
            raise DamagedError(
                f"Expected {wanted} opened sums in the journal after round {k}, got {len(sums)}. Restore the journal."
            )
        with one_thread():
            session = replay(self.summing, sums)
        return AfterSum(Witness.loads(content, self.agreement), session)

    def has_result(self, last: Standing) -> bool:
        return self.agreement.analysis.found(cast(AfterSum, last).session.answer)

    # -- numbers and prices -------------------------------------------------------------------------------------------

    def partings(self) -> list[Parting]:
        absent, names = self.journal.absent, self.agreement.names
        return [
            Parting(
                t,
                tuple(name for name in names if absent.get(name) == t),
                tuple(name for name in names if self.seat.takes_part(name, t)),
            )
            for t in sorted(set(absent.values()))
        ]

    @property
    def confirms(self) -> bool:
        """True if sites may be dropped in the last sum, since the others could then have repeated it."""
        first = self.agreement.lost_neighbour.go_on_after_round or 0
        return self.seat.drops and self.seat.last_number > first

    def cost(self, q: int) -> Cost:
        """The cost does not depend on the attempt; it holds against the assumed number of colluding sites."""
        a, analysis, n = self.agreement, self.agreement.analysis, len(self.agreement.sites)
        scale = 2.0**a.grid_bits * sqrt(analysis.honest(n))
        divergence = discretisation_divergence(self.summing.schedule[q - 1].numbers, scale)
        assumed = Assumed(analysis.colluders(n), analysis.members(n))
        return Cost(analysis.cost(q, self.seat.oracle, analysis.agreed(self.seat.oracle)), divergence, assumed)

    def spare_costs(self) -> list[Cost]:
        """The cost of the most expensive sum, for each spare attempt that is left."""
        analysis, n = self.agreement.analysis, len(self.agreement.sites)
        sigmas, numbers = analysis.multipliers(n), range(1, analysis.opened + 1)
        dearest = min(numbers, key=lambda q: sigmas[q - 1])
        longest = max(numbers, key=lambda q: self.summing.schedule[q - 1].numbers)
        each = self.cost(dearest)._replace(divergence=self.cost(longest).divergence)
        return [each] * (analysis.spare - len(self.partings()))

    # -- the point of a sum -------------------------------------------------------------------------------------------

    async def prepare(self, process: Process, k: int, before: Standing, policy: Policy) -> AfterSum | None:
        """The context of sum k, as its proposer has signed it, and the question with its bits; None if the sum is given
        up before this site has sent words. Before the first sum all sites propose, so that incompatible ones show.
        """
        before = cast(AfterSum, before)
        # A site that was left behind sends nothing more, not even what is in its outbox.
        lost.refuse_left_behind(self.seat, process.board, k)
        seat, site, members, mail = self.seat, self.seat.site, self.seat.members(k), process.mail
        by, own = proposer(k, members), await asyncio.to_thread(self._own_point, k, before)
        place = Slot(k, site, Kind.POINT)

        async def propose() -> Point:
            # A proposal that lies there already came from an earlier process of this site, and stays valid.
            held = (await mail.put(place, mail.seal(place, own.to_bytes()))).held
            try:
                return self._accept_point(k, before, site, mail.open_point(place, held), own)
            except BadMessageError:
                mail.refuse_held(place, held)

        def read(slot: Slot, data: bytes) -> Point:
            return self._accept_point(k, before, slot.site, mail.open_point(slot, data), own)

        ask = process.hearing(k, read, Kind.POINT)

        async def hear(names: Collection[str]) -> dict[str, Reply[Point]]:
            found = await ask(names)
            if seat.drops and any(answer.content is None for answer in found.values()):
                await propose()  # so that sites that are still in the turn before see how it ended here
            return found

        awaited = frozenset(members) if k == 1 else frozenset((by,))
        mine = {site: await propose()} if site in awaited else {}
        outcome = await self._settle(process, k, policy, hear, awaited)
        if outcome.dropped:
            return None
        proposal = (mine | outcome.letters)[by].proposal
        turn = seat.turn(k)
        question = self.summing.adopt(turn.release, self._question(before), members, proposal)
        context = self.summing.context(turn, proposal, members, seat.notices(k), before.witness.chain)
        past = self._past(process)
        if past.said == context.turn and past.context != context.digest():
            raise ForkedError(
                f"Expected the point at which this site has sent its part in round={k}, got another that is signed by "
                f"site={by!r}. It has signed two for one sum, and does not keep to the agreement. Nothing more was "
                "sent. Ask them."
            )
        return AfterSum(before.witness, before.session, context, question)

    def _question(self, standing: AfterSum) -> Question[Any]:
        """The next question of the program in this state."""
        ask = standing.session.ask
        assert ask is not None  # the program has as many questions as the run has rounds
        return ask.question

    def _own_point(self, k: int, before: AfterSum) -> Point:
        """This site's own proposal for sum k, from earlier sums alone."""
        seat, members, turn = self.seat, self.seat.members(k), self.seat.turn(k)
        with one_thread():
            made = self.summing.propose(turn.release, self._question(before), members)
        context = self.summing.context(turn, made, members, seat.notices(k), before.witness.chain)
        heading = Heading.of(context)._replace(context=bytes(DIGEST_BYTES))
        return Point(protocol(), before.witness.testimony, heading, made)

    def _accept_point(self, k: int, before: AfterSum, name: str, came: Point, own: Point) -> Point:
        """The proposal of site `name`, if it is acceptable. Any other stops the run with an error that names it.
        If the sender can be dropped, or is this site itself, the proposal is refused instead: `BadMessageError`.
        """
        seat = self.seat
        try:
            # Checked first, and stops all sites before the first sum: nothing is spent, and it is easily mended.
            if came.version != own.version:
                raise InputError(
                    f"Expected {own.version} at all sites, as here, got {came.version} at site={name!r}. Nothing was "
                    f"sent in round={k}. What was proposed stays on the server: install the same version everywhere, "
                    "and agree on a new run."
                )
            # The heading decides: it identifies all that was heard. The testimony only helps to say what differs. A
            # site that lies only in its testimony has nobody dropped, and sites could judge a testimony differently.
            if came.heading != own.heading:
                before.witness.check(self.agreement, seat.site, name, came.testimony)
                _refuse_other(k, name, came.heading, own.heading, name)
            try:
                self.summing.adopt(seat.turn(k).release, self._question(before), seat.members(k), came.proposal)
            except BadMessageError as error:
                raise SpoiledError(
                    f"Expected of site={name!r} in round={k} what follows from all sums before, up to rounding. "
                    f"{error} It does not keep to the agreement, or its computer does not. Nothing was sent for this "
                    "sum, and what was learnt before it stands."
                ) from error
        except SottovoceError as error:
            if name != seat.site and (not seat.drops or (k == 1 and isinstance(error, InputError))):
                raise
            raise BadMessageError(Refusal.OTHER_POINT, str(error)) from error
        return came

    # -- speaking -----------------------------------------------------------------------------------------------------

    async def compute(self, process: Process, k: int, before: Standing) -> Computed:
        before = cast(AfterSum, before)
        context, question = before.context, before.question
        assert context is not None and question is not None  # noqa: PT018, `prepare` came first
        past = self._past(process)

        def speak() -> SumWords:
            with one_thread():
                words = self.summing.words(context, question, self.masks, past)
            return SumWords(words, Heading.of(context), self.seat.binding, before.witness.testimony)

        said = await asyncio.to_thread(speak)
        process.probe("computed", k)
        return Computed(said.to_bytes(), b"", before)  # what follows changes with the sum alone

    def resume(self, before: Standing, state: bytes) -> Standing:  # noqa: ARG002
        return before

    def _past(self, process: Process) -> Past:
        """This site's last masked message, from its outbox."""
        last = self.journal.last_said()
        said = self.journal.said(last)
        if said is None:
            return Past()
        words = process.mail.open_letter(process.mail.slot(last, self.seat.site), said.message).words
        heading = cast(SumWords, words).heading
        return Past(heading.turn, heading.context)

    # -- hearing ------------------------------------------------------------------------------------------------------

    async def collect(self, process: Process, k: int, read: Callable[[Slot, bytes], Letter], policy: Policy) -> Outcome:
        """The words of all sites, which either all sites read, or give up together."""
        outcome = await self._settle(process, k, policy, process.hearing(k, read, Kind.SUM))
        return Outcome(outcome.letters, outcome.dropped)

    async def _settle(
        self, process: Process, k: int, policy: Policy, hear: Hearing[lost.T], proposers: frozenset[str] | None = None
    ) -> lost.Settled[lost.T]:
        """Collect what `hear` asks for until the turn, or its first part, ends for all sites alike."""

        async def ask(but: frozenset[str]) -> None:
            if not process.asked:
                await process.ask(k, policy, but)

        def dropped(name: str) -> None:
            process.probe("dropped", k)
            process.watcher.tell(Dropped(k, name))

        hands = lost.Hands(hear, ask, dropped)
        return await lost.Gathering(
            self.seat, k, process.mail, process.board, policy, hands, process.seconds, proposers
        ).settle()

    async def take_in(
        self, k: int, before: Standing, own: Letter, letters: Mapping[str, Letter], witness: Witness
    ) -> Standing:
        """Open the sum; stops if a site has masked in another context than this one."""
        before = cast(AfterSum, before)
        context, question = before.context, before.question
        assert context is not None and question is not None  # noqa: PT018
        ours, by, said = Heading.of(context), proposer(k, context.members), {}
        for name, letter in {self.seat.site: own, **letters}.items():
            words = cast(SumWords, letter.words)
            _refuse_other(k, name, words.heading, ours, by)
            said[name] = words.words

        def go_on() -> Opened:
            with one_thread():  # so that a restarted site computes the same
                opened = self.summing.open(context, question, said)
                before.session.tell(opened)
                return opened

        opened = await asyncio.to_thread(go_on)
        inner = opened.question.inner if isinstance(opened.question, HeldOut | LearntFrom) else opened.question
        gradient = norm_of(opened.mean[:, 0]) if isinstance(inner, Gradient | WhitenedGradient) else None
        return AfterSum(witness, before.session, opened=pack(opened), gradient=gradient)

    async def confirm(self, process: Process, witness: Witness, policy: Policy) -> None:
        def read(slot: Slot, data: bytes) -> Letter:
            return confirmation.open_end(self.seat, process.mail, slot, data)

        hear = process.hearing(self.journal.round + 1, read, Kind.SUM)
        await confirmation.confirm(self.seat, witness, process.mail, process.board, policy, hear)

    def answered(self, k: int, found: Collection[str], silences: Mapping[str, Silence]) -> bool:
        return lost.answered(self.seat, k, found, silences)

    # -- the result ---------------------------------------------------------------------------------------------------

    def result(self, rounds: int, last: Standing) -> Finished:
        """What follows from the opened sums alone: the same at all sites."""
        answer = cast(AfterSum, last).session.answer
        if self.agreement.algorithm.ends_in == "table":
            return Counted(rounds=rounds, absent=self.journal.absent, state=answer, opened=answer)
        return self._learnt(rounds, answer)

    def _learnt(self, rounds: int, fit: Fit) -> Learnt:
        """The model, and how good it is."""
        model = np.asarray(fit.last[:, 0], dtype=np.float64)
        tallied = None
        if fit.evaluation is not None:
            unit = Answers.of(self.agreement.encoding, self.agreement.learning.loss.outputs).scale
            with one_thread():  # so that all sites find the same, bit by bit
                tallied = fit.evaluation.tallied(unit)[0]
        evidence = fit.evidence[0] if fit.evidence else None
        return Learnt(
            rounds=rounds, absent=self.journal.absent, state=fit, model=model, own=model, tallied=tallied,
            evidence=evidence, moments=fit.moments,
        )  # fmt: skip


def _refuse_other(k: int, name: str, theirs: Heading, ours: Heading, by: str) -> None:
    """Stop if site `name` is in another context than this one, which site `by` has proposed."""
    try:
        theirs.refuse_other(name, ours, by)
    except BadMessageError as error:
        raise ForkedError(f"Expected all sites to have received the same until round={k}. {error}") from error


# -- opened sums on the disk ------------------------------------------------------------------------------------------


def pack(opened: Opened) -> bytes:
    """An opened sum of one run as bytes: its point, its value, the standard deviation of its noise, its number of
    rows.
    """
    point, value = opened.question.point[:, 0], opened.value[:, 0]
    about = np.array([opened.std.item(), float(opened.rows)])
    return pack_arrays({"point": point, "value": value, "about": about})


def unpack(data: bytes, question: Question[Any], numbers: int, summing: Summing) -> Opened:
    """The opened sum of this question; `DamagedError` if the bytes are not of one, up to rounding of its point."""
    shapes = {"point": question.point[:, 0].shape, "value": (numbers,), "about": (2,)}
    arrays = {name: array.astype(np.float64, copy=False) for name, array in unpack_arrays(data, shapes).items()}
    try:
        asked = summing.with_point(question, arrays["point"])
    except BadMessageError as error:
        raise DamagedError(
            f"Expected in the journal the sum that the program asks for next. {error} The journal is another run's, or "
            "was damaged: restore it."
        ) from error
    std, rows = arrays["about"].tolist()
    return Opened(asked, arrays["value"][:, None], np.full((1, 1), std), int(rows))


def replay(summing: Summing, sums: list[bytes]) -> Session[Any]:
    """Run the program again on these packed sums."""
    session = summing.begin()
    for line, data in zip(summing.schedule, sums, strict=False):
        assert session.ask is not None  # as many questions as lines
        session.tell(unpack(data, session.ask.question, line.numbers, summing))
    return session
