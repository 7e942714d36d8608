"""The privacy ledger: all that was ever reserved for the rows of one data set, across all runs, under one cap.

Before a round touches a row it is reserved here, and the reservation is on the disk before noise is drawn. A round that
would take all reservations past the cap is refused. So a crash can only count too much.

Runs are chosen with sight of earlier ones, so what refuses is a `filter`, exact or mixed, at the delta

    delta - slack,     slack = min( delta / 1000, what 10^10 times the divergence of the first round adds to delta ),

and the divergences of the real noise from the ideal one may add up to what slack pays for
(docs/proofs/discrete-gaussian.md). Slack is fixed by the first round: a share that could be moved with sight of
results would protect nothing (docs/proofs/books.md). The files are in `ledger_store`, what they can and cannot show in
docs/explanation/ledger.md.
"""

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from functools import lru_cache
from math import fsum, inf, isfinite, nextafter
from pathlib import Path
from threading import RLock
from types import TracebackType
from typing import NamedTuple, Self

from sottovoce.errors import BudgetError, PrivacyError, expect
from sottovoce.privacy.accounting.gaussian import delta_of_divergence, divergence_within
from sottovoce.privacy.books.filter import Charges, Filter, order_for
from sottovoce.privacy.books.store import FORMAT, Head, Header, LedgerEntry, LedgerStore
from sottovoce.privacy.events import Event, event_from_dict
from sottovoce.privacy.unit import ROW, Unit

RESERVE, RELEASED, NOTE = "reserve", "released", "note"
_LARGEST_SLACK = 1e-3  # as a share of delta
_ROUNDS = 1e10  # like the first that slack pays for, if it may: far more than there ever are


class Cost(NamedTuple):
    """What one round is booked as.

    Args:
        event: its release, with ideal noise.
        divergence: the KL divergence of the noise that is really drawn from the noise that the event speaks of, in
            nats.
    """

    event: Event
    divergence: float = 0.0  # KL, of the real noise from the one that the event speaks of


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


class Ledger:
    """An open ledger. One process holds it at a time; `close` it, or use `with`.

    Formal guarantees:
        All that reserved rounds ever show is (cap.epsilon, cap.delta)-DP for one replaced row, for the noise as it is
        really drawn, and even if runs, rounds and stops are chosen with sight of all that came before. A reservation
        that was returned survives a crash.

    | what happens | then |
    | --- | --- |
    | a round would pass the cap | BudgetError; nothing is written |
    | a round that is no plain Gaussian, after the first reservation, in a ledger not made for mixtures | the same |
    | the same round with the same cost again | its reservation, as it was |
    | the same round with another cost, or with another message | PrivacyError |
    | a changed, missing or reordered entry, a missing head | PrivacyError when opened |
    | a failed write | PrivacyError; closed to writing until opened again |
    """

    def __init__(self, store: LedgerStore) -> None:
        self._store, self._lock = store, RLock()
        self._spent: Counter[Cost] = Counter()
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

    def reserve(self, run: str, round_: int, event: Event, divergence: float = 0.0, *, unit: Unit = ROW) -> Reservation:
        """Book one round. It is on the disk when this returns; only then may a row be touched.

        Args:
            run: the run's name, 1 to 200 printable characters.
            round_: from 1 on.
            event: what the round releases.
            divergence: of its real noise from the ideal one, in nats; see `Cost`.
            unit: what the event's noise multipliers are relative to.

        Raises:
            BudgetError: the round does not fit under the cap. Nothing was written.
            PrivacyError: the round was reserved before, with another cost; or it protects less than the cap does.
        """
        self._expect_unit(unit)
        cost = _checked(run, round_, event, divergence)
        with self._lock:
            # A crash after booking: the same round is not paid for twice.
            known = self._known(run, round_, cost)
            if known is not None:
                return known
            self._afford(Counter({cost: 1}), f"run={run!r}, round={round_}")
            body = {"event": cost.event.to_dict(), "divergence": cost.divergence}
            self._take(self._store.append(run, round_, RESERVE, body))
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
            left = Counter(cost for k, cost in enumerate(booked, 1) if self._known(run, k, cost) is None)
            self._afford(left, f"run={run!r} of {len(costs)} rounds")
            return self._price(self._spent + left)

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

    def total(self) -> float:
        """The least cap, at the same delta, that would have taken all reservations; inf if none would.

        For plain Gaussians it is the exact price of such a list. What is guaranteed while runs are still being chosen
        is the cap, not this.
        """
        return self._price(self._spent)

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

    def to_dict(self) -> dict[str, object]:
        """Everything as JSON-able data, with the chain. An infinite total is null."""
        total = self.total()
        return {
            "header": asdict(self.header),
            "head": self.head._asdict(),
            "total": {"epsilon": total if isfinite(total) else None, "slack": self.slack()},
            "entries": [entry._asdict() for entry in self.entries()],
        }

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
            self._rounds[place] = Reservation(entry.run, entry.round, _cost_of(entry.body), entry.index)
            self._spent[self._rounds[place].cost] += 1
        elif entry.kind == RELEASED:
            self._rounds[place] = replace(self._rounds[place], message=json.loads(entry.body)["message"])
        elif entry.kind != NOTE:
            raise ValueError("an unknown kind")

    def _known(self, run: str, round_: int, cost: Cost) -> Reservation | None:
        """The reservation of this round, if there is one; `PrivacyError` if it was made with another cost."""
        known = self._rounds.get((run, round_))
        if known is not None and known.cost != cost:
            raise PrivacyError(
                f"Expected the cost that run={run!r}, round={round_} was reserved with, {known.cost.event!r} with "
                f"divergence={known.cost.divergence!r}, got {cost.event!r} with divergence={cost.divergence!r}. "
                "A run with other settings needs another name."
            )
        return known

    def _afford(self, more: Counter[Cost], what: str) -> None:
        """Raise BudgetError if the total with these is past the cap."""
        wanted = self._spent + more
        # A filter that takes all of a list takes every part of it: no price is computed for the rounds of a run that
        # was checked.
        if wanted <= self._fits:  # part of what fits
            return
        if not self._within(wanted):
            raise BudgetError(f"{self._why_not(wanted, what)} Nothing was reserved.")
        self._fits = wanted

    def _within(self, costs: Counter[Cost]) -> bool:
        """Whether the filter takes these costs, and slack pays for what their real noise lacks."""
        rule = self._rule(costs)
        return _divergence(costs) <= rule.divergence and rule.filter.fits(self._charges(costs))

    def _price(self, costs: Counter[Cost]) -> float:
        """The least cap that takes these costs, at the same delta; inf if slack does not pay for their divergences."""
        rule = self._rule(costs)
        return rule.filter.price(self._charges(costs)) if _divergence(costs) <= rule.divergence else inf

    def _why_not(self, wanted: Counter[Cost], what: str) -> str:
        """What stands against these costs, in the words of an error: the grid, the kind of round, or the cap."""
        h, rule, charges = self.header, self._rule(wanted), self._charges(wanted)
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
            f"reservations with it would cost epsilon={self._price(wanted):.6g}, without it {self.total():.6g}. Use "
            "fewer rounds, or more noise."
        )

    def _first(self, costs: Counter[Cost]) -> Cost | None:
        """The first reservation. Before it, all that is asked for is of one kind."""
        return next(iter(self._rounds.values())).cost if self._rounds else next(iter(costs), None)

    def _rule(self, costs: Counter[Cost]) -> "_Rule":
        """What the cap and the first round make of the filter; the same for every later round."""
        first = self._first(costs)
        return _rule(self.header, 0.0 if first is None else first.divergence)

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


def _checked(run: str, round_: int, event: Event, divergence: float) -> Cost:
    """The cost of one round, if run, round and cost can be booked at all."""
    _expect_text(run=run)
    expect(type(round_) is int and round_ >= 1, "a round from 1", round=round_)
    expect(divergence >= 0 and isfinite(divergence), "a finite divergence >= 0", divergence=divergence)
    return _written(event, divergence)


@lru_cache(maxsize=256)
def _written(event: Event, divergence: float) -> Cost:
    """The cost, if it can be written down and read again."""
    text = json.dumps({"event": event.to_dict(), "divergence": float(divergence)}, allow_nan=False)
    cost = _cost_of(text)
    expect(cost.event == event, "an event that can be read again as it was written", event=event)
    return cost


@lru_cache(maxsize=256)
def _cost_of(body: str) -> Cost:
    """The cost that an entry's body tells of."""
    data = json.loads(body)
    return Cost(event_from_dict(data["event"]), data["divergence"])


def _expect_text(**texts: object) -> None:
    """Refuse names that would not stand on one line of a list."""
    for name, text in texts.items():
        good = isinstance(text, str) and 0 < len(text) <= 200 and text.isprintable()
        expect(good, "1 to 200 printable characters", **{name: text})
