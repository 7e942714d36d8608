"""The privacy ledger: all that was ever reserved for the rows of one data set, across all runs, under one cap.

Before a round touches a row it is reserved here, and the reservation is on the disk before noise is drawn. A round that
would take all reservations past the cap is refused. So a crash can only count too much.

Runs are chosen with sight of earlier ones, so what refuses is a `filter`, exact or mixed, at the delta

    delta - slack,     slack = min( delta / 1000, what 10^10 times the divergence of the first round adds to delta ),

and the divergences of the real noise from the ideal one may add up to what slack pays for
(docs/proofs/discrete-gaussian.md). Slack is fixed by the first round: a share that could be moved with sight of
results would protect nothing (docs/proofs/books.md). The files are in `store`, what they can and cannot show in
docs/explanation/ledger.md.

Two kinds of entries change what may still be spent. `raise_cap` raises the cap, signed by whoever may. `catch_up` books
what others have seen of a ledger of the same rows that is newer than this one, or another: by run, so that a round that
is in both counts once (`account`).
"""

import json
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import lru_cache
from math import fsum, inf, isfinite, isinf, nextafter, sqrt
from pathlib import Path
from threading import RLock
from types import TracebackType
from typing import Any, NamedTuple, Self

from sottovoce.errors import BudgetError, PrivacyError, expect
from sottovoce.privacy.accounting.discrete import delta_of_divergence, divergence_within
from sottovoce.privacy.accounting.gaussian import epsilon_of_mu
from sottovoce.privacy.books.account import Account, Record, fewest, larger, mark_of, record_of
from sottovoce.privacy.books.filter import Charges, Filter, order_for
from sottovoce.privacy.books.head import Head
from sottovoce.privacy.books.store import FORMAT, Header, LedgerEntry, LedgerStore
from sottovoce.privacy.events import Event, Gaussian, NonPrivate
from sottovoce.privacy.observers import against
from sottovoce.privacy.parsing import event_from_dict
from sottovoce.privacy.unit import ROW, Unit
from sottovoce.settings import plain, written, written_as

RESERVE, RELEASED, NOTE, CAP, CAUGHT_UP = "reserve", "released", "note", "cap", "caught up"
_DOWN = 1 - 1e-15  # what a few roundings may have added
_LARGEST_SLACK = 1e-3  # as a share of delta
_ROUNDS = 1e10  # like the first that slack pays for, if it may: far more than there ever are


class Assumed(NamedTuple):
    """What the price of a round rests on, where sites share their noise: at most so many of the run's sites collude,
    and its sum holds so many of them at least.
    """

    colluding: int
    least_sites: int


class Cost(NamedTuple):
    """What one round is booked as.

    Args:
        event: its release, with ideal noise.
        divergence: the KL divergence of the noise that is really drawn from the noise that the event speaks of, in
            nats.
        assumed: None where the noise is all the site's own: the price then holds against everybody.
    """

    event: Event
    divergence: float = 0.0  # KL, of the real noise from the one that the event speaks of
    assumed: Assumed | None = None


written(Cost, ..., absent=(None,))  # in entries


@dataclass(frozen=True)
class Reservation:
    """A round that is paid for. With a `message` it was released: that message may be sent again, no other.

    Args:
        run, round: which one.
        cost: as it was reserved.
        entry: the number of its entry in the chain.
        message: the digest of the one message that it may send; None before there is one.
    """

    run: str
    round: int
    cost: Cost
    entry: int
    message: str | None = None


@dataclass(frozen=True)
class Raise:
    """A cap that was raised.

    Args:
        epsilon: what all runs may cost from then on.
        signer: the public key of whoever raised it, as text.
        signature: over `signed`, in hexadecimal. The ledger keeps it; whoever knows keys verifies it.
        signed: the bytes: which ledger, behind which entry, and to what.
        entry: the number of its entry in the chain.
        time: when, in UTC.
    """

    epsilon: float
    signer: str
    signature: str
    signed: bytes
    entry: int
    time: str


class Ledger:
    """An open ledger. One process holds it at a time; `close` it, or use `with`.

    Formal guarantees:
        All that reserved rounds ever show is (cap.epsilon, cap.delta)-DP for one replaced row, for the noise as it is
        really drawn, and even if runs, rounds and stops are chosen with sight of all that came before. Where rounds
        were booked under an assumption, it holds against at most `colluding` colluding sites of each run. A
        reservation that was returned survives a crash.

    | what happens | then |
    | --- | --- |
    | a round would pass the cap | BudgetError; nothing is written |
    | a round that is no plain Gaussian, after the first reservation, in a ledger not made for mixtures | the same |
    | the same round with the same cost again | its reservation, as it was |
    | the same round with another cost, or with another message | PrivacyError |
    | a changed, missing or reordered entry, a missing head | PrivacyError when opened |
    | a failed write | PrivacyError; closed to writing until opened again |
    | the cap is raised | from that entry on; never lowered |
    | what others have seen is caught up | it counts, also past the cap: what was spent stays spent |
    """

    def __init__(self, store: LedgerStore) -> None:
        self._store, self._lock = store, RLock()
        self._booked: Counter[Cost] = Counter()
        self._runs: defaultdict[str, Counter[Cost]] = defaultdict(Counter)
        self._last: dict[str, int] = {}  # round of each run
        self._touched: dict[bytes, int] = {}  # the last entry of each run, or of what was caught up of it
        self._history: list[tuple[bytes, int]] = []  # runs and rounds, as they were booked or caught up
        self._caught: dict[bytes, tuple[Record, Header]] = {}  # by run, with the book that it is of
        self._first_cost: Cost | None = None
        self._raises: list[Raise] = []
        self._ahead, self._cap = 0, store.header
        self._fits: Counter[Cost] = Counter()  # some composition that was priced, and is within the cap
        self._rounds: dict[tuple[str, int], Reservation] = {}
        try:
            for entry in store.replay():
                self._take(entry)
        except BaseException:
            store.close()
            raise

    @staticmethod
    def exists(path: Path | str) -> bool:
        """Whether a ledger was made there. What a crash in `create` leaves is none: create it again."""
        return LedgerStore.exists(Path(path))

    @staticmethod
    def unused(path: Path | str) -> bool:
        """Whether nothing was ever written to a ledger there. If so, `create` makes it anew, with any cap."""
        return LedgerStore.unused(Path(path))

    @classmethod
    def create(
        cls, path: Path | str, data_digest: str, epsilon: float, delta: float, *, mixed: bool = False, unit: Unit = ROW
    ) -> "Ledger":
        """A new ledger for the data set with that digest. From its first entry on, the cap is for all time.

        Args:
            path: of the file to make. One that is not in force is replaced.
            data_digest: by which the data set is known; keyed with a secret, so that it says nothing of the rows.
            epsilon: what all runs on these rows together may cost.
            delta: at which that holds.
            mixed: whether rounds of any kind may be reserved at any time, such as with sampled batches, at about a
                tenth more epsilon. Without it the first reservation may be of any kind, and all later ones must be
                plain Gaussians.
            unit: what the cap protects: a row, or a person. Runs that protect less are refused.
        """
        expect(epsilon > 0 and isfinite(epsilon), "a cap epsilon that is positive and finite", epsilon=epsilon)
        expect(0 < delta < 1, "a cap delta strictly between 0 and 1", delta=delta)
        _expect_text(data_digest=data_digest)
        created = datetime.now(UTC).isoformat(timespec="seconds")
        order = order_for(epsilon, delta) if mixed else None
        header = Header(FORMAT, data_digest, unit.words, float(epsilon), float(delta), created, order)
        return cls(LedgerStore.create(Path(path), header))

    @classmethod
    def open(cls, path: Path | str, data_digest: str | None = None) -> "Ledger":
        """An existing ledger, verified as a whole: every entry, the chain, and the head.

        Args:
            path: of its file.
            data_digest: of the data set that it must be of; None for any.

        Raises:
            PrivacyError: it was changed or damaged, is of another data set, or another process holds it.
        """
        ledger = cls(LedgerStore.open(Path(path)))
        if data_digest is not None and data_digest != ledger.header.data_digest:
            ledger.close()
            raise PrivacyError(
                f"Expected the ledger of data_digest={data_digest!r}, got one of {ledger.header.data_digest!r} at "
                f"path={str(path)!r}. Every data set has a ledger of its own."
            )
        return ledger

    # -- spending -----------------------------------------------------------------------------------------------------

    def reserve(
        self, run: str, round_: int, event: Event, divergence: float = 0.0, assumed: Assumed | None = None, *,
        unit: Unit = ROW,
    ) -> Reservation:  # fmt: skip
        """Book one round. It is on the disk when this returns; only then may a row be touched.

        Args:
            run: the run's name, 1 to 200 printable characters.
            round_: from 1 on.
            event: what the round releases.
            divergence: of its real noise from the ideal one, in nats; see `Cost`.
            assumed: what that price rests on, if anything.
            unit: what the event's noise multipliers are relative to.

        Raises:
            BudgetError: the round does not fit under the cap. Nothing was written.
            PrivacyError: the round was reserved before, with another cost; or it protects less than the cap does.
        """
        self._expect_unit(unit)
        cost = _checked(run, round_, event, divergence, assumed)
        with self._lock:
            # A crash after booking: the same round is not paid for twice.
            known = self._known(run, round_, cost)
            if known is not None:
                return known
            self._expect_next(run, round_)
            self._afford(run, {round_: cost}, f"run={run!r}, round={round_}")
            self._take(self._store.append(run, round_, RESERVE, plain(cost)))
            return self._rounds[run, round_]

    def bind_message(self, run: str, round_: int, message_digest: str) -> Reservation:
        """Bind a reserved round to the one message that it may ever send. Call it before sending.

        The same message again changes nothing, so that a site that died in between can go on. Another message for the
        same round would be another release, and is refused.

        Args:
            run: the run's name.
            round_: a round of it that was reserved.
            message_digest: of the message's bytes, as text.
        """
        _expect_text(message_digest=message_digest)
        with self._lock:
            reservation = self._rounds.get((run, round_))
            if reservation is None:
                raise PrivacyError(
                    f"Expected a reserved round, got run={run!r}, round={round_}. Reserve it before touching a row."
                )
            # The one thing that must never happen: two different messages under one booking.
            if reservation.message not in (None, message_digest):
                raise PrivacyError(
                    f"Expected the message that run={run!r}, round={round_} was released with, {reservation.message}, "
                    f"got message_digest={message_digest!r}. Another message is another release: send the first again."
                )
            if reservation.message is None:
                self._take(self._store.append_free(run, round_, RELEASED, {"message": message_digest}))
            return self._rounds[run, round_]

    def note(self, text: str) -> None:
        """Write down a remark of people. It costs nothing, and is chained like everything else."""
        expect(bool(text.strip()), "a note with text", text=text)
        with self._lock:
            self._store.append_free("", 0, NOTE, {"text": text})

    def check_run(self, run: str, event: Event, rounds: int, divergence: float = 0.0, *, unit: Unit = ROW) -> float:
        """The `total` after all rounds of a run, those reserved before among them. Raises BudgetError past the cap.

        Nothing is written. It also makes the run's reservations quick: what is part of a run that fits, fits.

        Args:
            run: the run's name.
            event: what each of its rounds releases.
            rounds: how many there are.
            divergence: of one round's real noise from the ideal one, in nats.
            unit: what the event's noise multipliers are relative to.
        """
        return self.check_rounds(run, [Cost(event, divergence)] * rounds, unit=unit)

    def check_rounds(self, run: str, costs: Sequence[Cost], *, unit: Unit = ROW) -> float:
        """The same for rounds that do not all cost the same.

        Args:
            run: the run's name.
            costs: of every round, from the first on.
            unit: what they are priced for.
        """
        self._expect_unit(unit)
        expect(len(costs) >= 1, "rounds >= 1", rounds=len(costs))
        checked = {cost: _checked(run, 1, *cost) for cost in set(costs)}  # many rounds, few costs
        booked = [checked[cost] for cost in costs]
        with self._lock:
            left = {k: cost for k, cost in enumerate(booked, 1) if self._known(run, k, cost) is None}
            self._afford(run, left, f"run={run!r} of {len(costs)} rounds")
            return self._price(self._with(run, left))

    # -- what changes the cap, and what others have seen --------------------------------------------------------------

    def raise_cap(self, epsilon: float, signer: str, sign: Callable[[bytes], bytes]) -> Raise:
        """From now on all runs may cost so much more. It is an entry like any other, and on the disk at the return.

        Args:
            epsilon: the new cap, at the same delta: above the old one, and no less than what was spent.
            signer: the public key of whoever raises it, as text.
            sign: makes the signature of these bytes.

        Raises:
            BudgetError: what was spent does not fit under it either.
        """
        expect(isfinite(epsilon) and epsilon > self.cap, f"a cap epsilon above {self.cap!r}", epsilon=epsilon)
        with self._lock:
            raised = replace(self._cap, epsilon=float(epsilon))
            spent = self._with("", {}, raised)  # what was caught up may count for more under another cap
            if not self._within(spent, raised):
                raise BudgetError(f"{self._why_not(spent, f'a cap of {epsilon!r}', raised)} The cap was not raised.")
            signature = sign(self._raising(self.head, float(epsilon))).hex()
            body: dict[str, object] = {"epsilon": float(epsilon), "signer": signer, "signature": signature}
            self._take(self._store.append("", 0, CAP, body))
            return self._raises[-1]

    def raises(self) -> tuple[Raise, ...]:
        """Every time that the cap was raised."""
        return tuple(self._raises)

    def catch_up(self, account: Account, height: int) -> tuple[Record, ...]:
        """Book all that an account has spent and this ledger has not. On the disk at the return, past the cap or not.

        Args:
            account: of a ledger of the same rows.
            height: of that ledger, see `height`; this one's is above it afterwards.

        Returns:
            What was booked: nothing, if all of it was here.
        """
        with self._lock:
            missing = self.account().lacking(account)
            if not missing and self.height > height:
                return ()
            book = {
                "epsilon": account.epsilon, "delta": account.delta, "order": account.order or None,
                "unit": account.unit.words,
            }  # fmt: skip
            body: dict[str, object] = {
                "height": height, "first": account.first, "book": book, "runs": [_record_body(r) for r in missing],
            }  # fmt: skip
            self._take(self._store.append("", 0, CAUGHT_UP, body))
            return missing

    def account(self) -> Account:
        """All that was spent, run by run: what others need to hold for this ledger to be caught up."""
        with self._lock:
            h, rule = self._cap, self._rule(self._booked).filter
            found: dict[bytes, Record] = {}
            for run, costs in self._runs.items():
                listed = ((cost.event, cost.divergence, times) for cost, times in costs.items())
                found[mark_of(run)] = record_of(run, self._last[run], listed, rule, _colluding(costs))
            for run_mark, (record, book) in self._caught.items():
                here = self._read(record, book, self._cap)
                own = found.get(run_mark)
                found[run_mark] = here if own is None else _together(own, here, self._same(run_mark, here), rule)
            first = 0.0 if self._first_cost is None else self._first_cost.divergence
            # Those last that were last booked: what is added up first are runs that are over.
            records = sorted(found.values(), key=lambda record: self._touched[record.run])
            return Account(h.epsilon, h.delta, h.order or 0.0, first, tuple(records), self.unit, self._history)

    def _expect_next(self, run: str, round_: int) -> None:
        """Refuse a round that leaves others out: prices of a run are told apart by its last round alone."""
        last = self._last_known(run)
        if round_ > last + 1:
            raise PrivacyError(
                f"Expected rounds of a run one after the other, got run={run!r}, round={round_} after {last}. This is "
                "another ledger than the one that the run began with: put that one back."
            )

    def _last_known(self, run: str) -> int:
        """The last round of a run that was booked here, or elsewhere and caught up."""
        caught = self._caught.get(mark_of(run))
        return max(self._last.get(run, 0), 0 if caught is None else caught[0].rounds)

    def _expect_unit(self, unit: Unit) -> None:
        """Refuse a price for less than what the cap protects: it is not what the round costs."""
        if not unit.covers(self.unit):
            raise PrivacyError(
                f"Expected a run that protects {self.unit}, as the cap of this ledger does, got one for {unit}. Agree "
                "on people, with at least as many rows and sites of a person."
            )

    # -- looking ------------------------------------------------------------------------------------------------------

    @property
    def unit(self) -> Unit:
        """What the cap protects."""
        return Unit.named(self.header.unit)

    @property
    def header(self) -> Header:
        """What the ledger is of, and its cap."""
        return self._store.header

    @property
    def head(self) -> Head:
        """The number of entries and the last hash. Keep it elsewhere: it proves what was there."""
        return self._store.head

    @property
    def path(self) -> Path:
        """Of its file."""
        return self._store.path

    @property
    def cap(self) -> float:
        """The epsilon that all runs together may cost now, at the header's delta."""
        return self._cap.epsilon

    @property
    def height(self) -> int:
        """The number of entries, and as many more as it takes to be above every ledger that was caught up with."""
        return self.head.entries + self._ahead

    def total(self) -> float:
        """The least cap, at the same delta, that would have taken all reservations; inf if none would.

        For plain Gaussians it is the exact price of such a list. What is guaranteed while runs are still being chosen
        is the cap, not this.
        """
        return self._price(self._spent)

    def colluding(self) -> int | None:
        """Against how many colluding sites of each run the total holds: the fewest that any round was booked against.
        None: against everybody.
        """
        with self._lock:
            return fewest((_colluding(self._booked), *(record.colluding for record, _ in self._caught.values())))

    def left(self) -> float:
        """About the epsilon, at the same delta, of the largest run with plain Gaussian noise that would still fit."""
        with self._lock:
            spent = self._spent
            room = self._rule(spent).filter.room(self._charges(spent)) if self._within(spent) else 0.0
        return epsilon_of_mu(room, self.header.delta) if room > 0 else 0.0

    def slack(self) -> float:
        """The part of delta that is kept for the gap between the real noise and the ideal one; 0 before any round."""
        return self._rule(self._spent).slack

    def would_cost(self, event: Event, rounds: int = 1, divergence: float = 0.0) -> float:
        """The total if so many rounds more were reserved, as an epsilon at the cap's delta. Nothing is written or
        refused.
        """
        return self._price(self._spent + Counter({Cost(event, divergence): rounds}))

    def rounds_left(self, event: Event, divergence: float = 0.0) -> int:
        """How many more such rounds fit under the cap, at most 10^9."""

        def fits(rounds: int) -> bool:
            return self._within(self._spent + Counter({Cost(event, divergence): rounds}))

        low, high = 0, 1
        while high <= 10**9 and fits(high):
            low, high = high, 2 * high
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if fits(middle) else (low, middle)
        return low

    def reservations(self) -> tuple[Reservation, ...]:
        """All rounds that are paid for, in the order of booking."""
        return tuple(self._rounds.values())

    def entries(self) -> Iterator[LedgerEntry]:
        """The whole chain."""
        return self._store.entries()

    def expect_known(self, head_hash: str) -> None:
        """Raise `PrivacyError` unless the chain goes through this hash, which was its head some time ago."""
        if head_hash != self.header.hash and all(entry.hash != head_hash for entry in self.entries()):
            raise PrivacyError(
                f"Expected a ledger that goes on from the head {head_hash!r}, got one of {self.head.entries} entries "
                "without it. This is another ledger, or a rewritten one: release nothing from these rows."
            )

    def close(self) -> None:
        """Let other processes have it. Later calls that write are refused."""
        self._store.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # -- the books ----------------------------------------------------------------------------------------------------

    def _take(self, entry: LedgerEntry) -> None:
        """Add one verified entry to the books."""
        try:
            self._book(entry)
        except (LookupError, TypeError, ValueError) as error:
            raise PrivacyError(
                f"Expected an entry that the entries before allow, got entry {entry.index}, kind={entry.kind!r}: "
                f"{error}. It was not written by this version: release nothing before that is understood."
            ) from error

    def _book(self, entry: LedgerEntry) -> None:
        """Add one entry to the books; any exception here means that this version did not write it."""
        place = entry.run, entry.round
        if entry.kind == RESERVE:
            if place in self._rounds:
                raise ValueError(f"round {entry.round} of run {entry.run!r} is reserved twice")
            cost = _cost_of(entry.body)
            self._rounds[place] = Reservation(entry.run, entry.round, cost, entry.index)
            self._booked[cost] += 1
            self._runs[entry.run][cost] += 1
            self._last[entry.run] = max(entry.round, self._last.get(entry.run, 0))
            self._touched[mark_of(entry.run)] = entry.index
            self._history.append((mark_of(entry.run), self._last_known(entry.run)))
            self._first_cost = self._first_cost or cost
        elif entry.kind == RELEASED:
            self._rounds[place] = replace(self._rounds[place], message=json.loads(entry.body)["message"])
        elif entry.kind == CAP:
            self._book_cap(entry)
        elif entry.kind == CAUGHT_UP:
            self._book_caught(entry)
        elif entry.kind != NOTE:
            raise ValueError("an unknown kind")

    def _book_cap(self, entry: LedgerEntry) -> None:
        """From this entry on there is another cap."""
        data = json.loads(entry.body)
        epsilon, before = float(data["epsilon"]), Head(entry.index - 1, entry.previous)
        if not (isfinite(epsilon) and epsilon > self.cap):
            raise ValueError(f"a cap of {epsilon!r} after {self.cap!r}")
        signed = self._raising(before, epsilon)
        self._raises.append(Raise(epsilon, data["signer"], data["signature"], signed, entry.index, entry.time))
        self._cap, self._fits = replace(self._cap, epsilon=epsilon), Counter()

    def _book_caught(self, entry: LedgerEntry) -> None:
        """What others had seen counts from this entry on."""
        data = json.loads(entry.body)
        book = replace(self.header, **data["book"])
        for record in map(_record_from, data["runs"]):
            known = self._caught.get(record.run)
            self._caught[record.run] = (record if known is None else larger(record, self._read(*known, book)), book)
            self._touched[record.run] = entry.index
            own = max((k for name, k in self._last.items() if mark_of(name) == record.run), default=0)
            self._history.append((record.run, max(own, self._caught[record.run][0].rounds)))
        self._ahead = max(self._ahead, int(data["height"]) + 1 - entry.index)
        self._first_cost = self._first_cost or Cost(Gaussian(1.0), float(data["first"]))
        self._fits = Counter()

    def _raising(self, before: Head, epsilon: float) -> bytes:
        """What is signed when the cap is raised behind this entry: this ledger, this place, this number."""
        return json.dumps([self.header.hash, before.entries, before.hash, epsilon]).encode("ascii")

    @staticmethod
    def _read(record: Record, book: Header, here: Header) -> Record:
        """The record of one book as it counts in another. What was priced for less than this one protects counts as
        everything, and so does what is not plain Gaussian, unless both books are of one kind.
        """
        alike = (book.epsilon, book.delta, book.order) == (here.epsilon, here.delta, here.order)
        covered = Unit.named(book.unit).covers(Unit.named(here.unit))
        return record if covered and (record.plain or alike) else record._replace(weight=inf)

    @property
    def _spent(self) -> Counter[Cost]:
        """All that counts: what was reserved here, and what of others' sight was not."""
        return self._with("", {})

    def _with(self, run: str, more: Mapping[int, Cost], cap: Header | None = None) -> Counter[Cost]:
        """All that would count with these rounds of one run on top, by number; under this cap or another."""
        wanted = self._booked + Counter(more.values())
        for run_mark, (record, book) in self._caught.items():
            same = self._same(run_mark, record)
            same += [cost for k, cost in more.items() if k <= record.rounds] if mark_of(run) == run_mark else []
            extra = _rest(self._read(record, book, cap or self._cap), same, self._rule(wanted).filter)
            wanted = wanted + Counter(extra)
        return wanted

    def _same(self, run_mark: bytes, caught: Record) -> list[Cost]:
        """What was booked here of the rounds that were caught up. Later ones are others, whatever they cost."""
        known = (name for name in self._runs if mark_of(name) == run_mark)
        places = ((name, k) for name in known for k in range(1, min(caught.rounds, self._last[name]) + 1))
        return [self._rounds[place].cost for place in places if place in self._rounds]

    def _known(self, run: str, round_: int, cost: Cost) -> Reservation | None:
        """The reservation of this round, if there is one; `PrivacyError` if it was made with another cost."""
        known = self._rounds.get((run, round_))
        if known is not None and known.cost != cost:
            raise PrivacyError(
                f"Expected the cost that run={run!r}, round={round_} was reserved with, {known.cost.event!r} with "
                f"divergence={known.cost.divergence!r}{_resting_on(known.cost)}, got {cost.event!r} with "
                f"divergence={cost.divergence!r}{_resting_on(cost)}. "
                "A run with other settings needs another name."
            )
        return known

    def _afford(self, run: str, more: Mapping[int, Cost], what: str) -> None:
        """Raise BudgetError if the total with these rounds of a run is past the cap."""
        wanted = self._with(run, more)
        # A filter that takes all of a list takes every part of it: no price is computed for the rounds of a run that
        # was checked.
        if wanted <= self._fits:  # part of what fits
            return
        if not self._within(wanted):
            raise BudgetError(f"{self._why_not(wanted, what)} Nothing was reserved.")
        self._fits = wanted

    def _within(self, costs: Counter[Cost], cap: Header | None = None) -> bool:
        """Whether the filter takes these costs, and slack pays for what their real noise lacks; under this cap or
        another.
        """
        rule = self._rule(costs, cap)
        return _divergence(costs) <= rule.divergence and rule.filter.fits(self._charges(costs))

    def _price(self, costs: Counter[Cost]) -> float:
        """The least cap that takes these costs, at the same delta; inf if slack does not pay for their divergences."""
        rule = self._rule(costs)
        return rule.filter.price(self._charges(costs)) if _divergence(costs) <= rule.divergence else inf

    def _why_not(self, wanted: Counter[Cost], what: str, cap: Header | None = None) -> str:
        """What stands against these costs, in the words of an error: the grid, the kind of round, or the cap."""
        h, rule, charges = cap or self._cap, self._rule(wanted, cap), self._charges(wanted)
        if _divergence(wanted) > rule.divergence:
            return (
                f"Expected noise on a grid that is fine enough for the cap epsilon={h.epsilon!r} at delta={h.delta!r} "
                f"and for the first round: divergences of at most {rule.divergence:.3g} in all, got "
                f"{_divergence(wanted):.3g} with {what}. Agree on more grid_bits, or, before a ledger's first entry, "
                "make it with a smaller epsilon or a larger delta."
            )
        if not rule.filter.knows(charges):
            return (
                "Expected plain Gaussian rounds after the first reservation, since what comes later is chosen with "
                f"sight of what was released, got {what}, which has other rounds. A ledger that takes any kind is made "
                "for it, before its first entry (--cap-mixed)."
            )
        return (
            f"Expected to stay within the cap epsilon={h.epsilon!r} at delta={h.delta!r}, got {what}: all "
            f"reservations with it would cost epsilon={self._price(wanted):.6g}, without it {self.total():.6g}"
            f"{against(self.colluding())}. Use fewer rounds, or more noise."
        )

    def _first(self, costs: Counter[Cost]) -> Cost | None:
        """The first reservation, here or of whoever was caught up with. Before it, all that is asked for is of one
        kind.
        """
        return next(iter(costs), None) if self._first_cost is None else self._first_cost

    def _rule(self, costs: Counter[Cost], cap: Header | None = None) -> "_Rule":
        """What the cap and the first round make of the filter; the same for every later round."""
        first = self._first(costs)
        return _rule(cap or self._cap, 0.0 if first is None else first.divergence)

    def _charges(self, costs: Counter[Cost]) -> Charges:
        """These costs as the filter takes them: events alone, and which came first."""
        counts: Counter[Event] = Counter()
        for cost, times in costs.items():
            counts[cost.event] += times
        first = self._first(costs)
        return Charges(None if first is None else first.event, counts)


class _Rule(NamedTuple):
    """What is refused, by the cap and the first round."""

    filter: Filter
    divergence: float  # the most, of all rounds together
    slack: float  # the part of delta that it takes


@lru_cache(maxsize=64)
def _rule(header: Header, first: float) -> _Rule:
    """The filter at delta - slack, and the divergence that slack pays for. `first` is the first round's divergence."""
    most = min(_ROUNDS * first, divergence_within(_LARGEST_SLACK * header.delta, header.epsilon))
    slack = delta_of_divergence(most, header.epsilon)
    # One number further down: the subtraction may have rounded up.
    rest = nextafter(header.delta - slack, 0.0) if slack > 0 else header.delta
    return _Rule(Filter(header.epsilon, rest, header.order), most, slack)


def _divergence(costs: Counter[Cost]) -> float:
    """All divergences together, in nats: those of adaptive draws add up."""
    return fsum(times * cost.divergence for cost, times in costs.items())


def _colluding(costs: Iterable[Cost]) -> int | None:
    """Against how many colluding sites all these costs hold; None: against everybody."""
    return fewest(None if cost.assumed is None else cost.assumed.colluding for cost in costs)


def _rest(caught: Record, own: Sequence[Cost], rule: Filter) -> dict[Cost, int]:
    """What a run has taken elsewhere and not here, as one plain Gaussian; nothing if there is no more.

    `own` are the same rounds, as far as they were booked here.
    """
    here = record_of("", len(own), ((cost.event, cost.divergence, 1) for cost in own), rule)
    divergence = max(0.0, caught.divergence - here.divergence)
    if isinf(caught.weight):
        return {} if own and len(own) >= caught.rounds else {Cost(NonPrivate(), divergence): 1}
    weight = caught.weight - here.weight
    if not weight > 0:
        return {Cost(Gaussian(1e150), divergence): 1} if divergence > 0 else {}
    return {Cost(Gaussian(max(_DOWN / sqrt(weight), 1e-150)), divergence): 1}


def _together(own: Record, caught: Record, same: Sequence[Cost], rule: Filter) -> Record:
    """What a run has taken here and elsewhere; `same` are the rounds of the one that are among the other's."""
    rest = record_of("", 0, ((c.event, c.divergence, n) for c, n in _rest(caught, same, rule).items()), rule)
    return Record(
        own.run, max(own.rounds, caught.rounds), own.weight + rest.weight, own.divergence + rest.divergence,
        own.plain and caught.plain, fewest((own.colluding, caught.colluding)),
    )  # fmt: skip


def _record_body(record: Record) -> dict[str, object]:
    """A record as an entry tells of it; a weight that is everything is null."""
    body: dict[str, object] = plain(record._asdict() | {"run": record.run.hex()})
    return body


def _record_from(data: dict[str, Any]) -> Record:
    """The record that an entry tells of."""
    weight = inf if data["weight"] is None else float(data["weight"])
    if not (weight >= 0 and data["divergence"] >= 0):
        raise ValueError("a record below zero")
    return Record(**data | {"run": bytes.fromhex(data["run"]), "weight": weight})


def _checked(run: str, round_: int, event: Event, divergence: float, assumed: Assumed | None = None) -> Cost:
    """The cost of one round, if run, round and cost can be booked at all."""
    _expect_text(run=run)
    expect(type(round_) is int and round_ >= 1, "a round from 1", round=round_)
    expect(divergence >= 0 and isfinite(divergence), "a finite divergence >= 0", divergence=divergence)
    return _written(event, divergence, assumed)


@lru_cache(maxsize=256)
def _written(event: Event, divergence: float, assumed: Assumed | None) -> Cost:
    """The cost, if it can be written down and read again."""
    cost = _cost_of(json.dumps(plain(Cost(event, float(divergence), assumed)), allow_nan=False))
    expect(cost.event == event, "an event that can be read again as it was written", event=event)
    return cost


@lru_cache(maxsize=256)
def _whole(ledger: Ledger) -> dict[str, object]:
    """The ledger with its whole chain, to be exported."""
    total = {"epsilon": ledger.total(), "slack": ledger.slack(), "colluding": ledger.colluding()}
    entries = tuple(ledger.entries())
    return {"header": ledger.header, "head": ledger.head, "cap": ledger.cap, "total": total, "entries": entries}


written_as(Ledger, _whole)


def _cost_of(body: str) -> Cost:
    """The cost that an entry's body tells of."""
    data = json.loads(body)
    assumed = None if data.get("assumed") is None else Assumed(**data["assumed"])
    if assumed is not None and not (type(assumed.colluding) is type(assumed.least_sites) is int and min(assumed) >= 0):
        raise ValueError(f"assumed={assumed!r}")
    return Cost(event_from_dict(data["event"]), data["divergence"], assumed)


def _resting_on(cost: Cost) -> str:
    return "" if cost.assumed is None else f" and {cost.assumed!r}"


def _expect_text(**texts: object) -> None:
    """Refuse names that would not stand on one line of a list."""
    for name, text in texts.items():
        good = isinstance(text, str) and 0 < len(text) <= 200 and text.isprintable()
        expect(good, "1 to 200 printable characters", **{name: text})
