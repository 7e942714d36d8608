"""The privacy ledger: all that was ever reserved for the rows of one data set, across all runs, under one cap.

Before a round touches a row it is reserved here, and the reservation is on the disk before noise is drawn. A round that
would take all reservations past the cap is refused, by the `book` that all entries add up to (`booked`). So a crash can
only count too much. The files are in `chain`, what they can and cannot show in docs/explanation/ledger.md.

Two kinds of entries change what may still be spent. `raise_cap` raises the cap, signed by whoever may. `catch_up` books
what others have seen of a ledger of the same rows that is newer than this one, or another: by run, so that a round that
is in both counts once (`account`).
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from math import isfinite
from pathlib import Path
from threading import RLock
from types import TracebackType
from typing import Self

from sottovoce.errors import BudgetError, PrivacyError, expect
from sottovoce.privacy.books.account import Account, Record
from sottovoce.privacy.books.book import Advice, Assumed, Book, Cost, Limit
from sottovoce.privacy.books.booked import Booked
from sottovoce.privacy.books.chain import FORMAT, Chain, Header, LedgerEntry
from sottovoce.privacy.books.entries import (
    CAP,
    CAUGHT_UP,
    NOTE,
    RELEASED,
    RESERVE,
    Raise,
    Reservation,
    caught_body,
    checked_cost,
    expect_text,
)
from sottovoce.privacy.books.head import Head, OpenHead
from sottovoce.privacy.events import Event
from sottovoce.privacy.unit import ROW, Unit
from sottovoce.settings import plain, written_as

_ADVICE = Advice(
    grid="Agree on more grid_bits, or, before a ledger's first entry, make it with a smaller epsilon or a larger "
    "delta.",
    kind="A ledger that takes any kind is made for it, before its first entry (--cap-mixed).",
    total="Use fewer rounds, or more noise.",
)
_OTHER_UNIT = "Agree on people, with at least as many rows and sites of a person."
_MOST_ROUNDS = 10**9  # that anybody asks for


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

    def __init__(self, chain: Chain) -> None:
        self._chain, self._lock = chain, RLock()
        self._fits: Book | None = None  # some book that was priced, and is within the cap
        try:
            self._booked = Booked(chain.header)
            for entry in chain.replay():
                self._booked.take(entry)
        except BaseException:
            chain.close()
            raise

    @staticmethod
    def exists(path: Path | str) -> bool:
        """True if a ledger was made there. What a crash in `create` leaves is none: create it again."""
        return Chain.exists(Path(path))

    @staticmethod
    def unused(path: Path | str) -> bool:
        """True if nothing was ever written to a ledger there. If so, `create` makes it anew, with any cap."""
        return Chain.unused(Path(path))

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
            mixed: True if rounds of any kind may be reserved at any time, such as with sampled batches, at about a
                tenth more epsilon. Without it the first reservation may be of any kind, and all later ones must be
                plain Gaussians.
            unit: what the cap protects: a row, or a person. Runs that protect less are refused.
        """
        expect(epsilon > 0 and isfinite(epsilon), "a cap epsilon that is positive and finite", epsilon=epsilon)
        limit = Limit.new(epsilon, delta, mixed=mixed, unit=unit)
        expect_text(data_digest=data_digest)
        created = datetime.now(UTC).isoformat(timespec="seconds")
        header = Header(FORMAT, data_digest, unit.words, limit.epsilon, limit.delta, created, limit.order)
        return cls(Chain.create(Path(path), header))

    @classmethod
    def open(cls, path: Path | str, data_digest: str | None = None) -> "Ledger":
        """An existing ledger, verified as a whole: every entry, the chain, and the head.

        Args:
            path: of its file.
            data_digest: of the data set that it must be of; None for any.

        Raises:
            PrivacyError: it was changed or damaged, is of another data set, or another process holds it.
        """
        ledger = cls(Chain.open(Path(path)))
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
        self._booked.limit.expect_covered(unit, "the cap of this ledger", _OTHER_UNIT)
        cost = checked_cost(run, round_, event, divergence, assumed)
        with self._lock:
            # A crash after booking: the same round is not paid for twice.
            known = self._known(run, round_, cost)
            if known is not None:
                return known
            self._expect_next(run, round_)
            self._afford(run, {round_: cost}, f"run={run!r}, round={round_}")
            self._booked.take(self._chain.append(run, round_, RESERVE, plain(cost)))
            return self._booked.rounds[run, round_]

    def bind_message(self, run: str, round_: int, message_digest: str) -> Reservation:
        """Bind a reserved round to the one message that it may ever send. Call it before sending.

        The same message again changes nothing, so that a site that died in between can go on. Another message for the
        same round would be another release, and is refused.

        Args:
            run: the run's name.
            round_: a round of it that was reserved.
            message_digest: of the message's bytes, as text.
        """
        expect_text(message_digest=message_digest)
        with self._lock:
            reservation = self._booked.rounds.get((run, round_))
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
                body: dict[str, object] = {"message": message_digest}
                self._booked.take(self._chain.append(run, round_, RELEASED, body, OpenHead.sync_every_other))
            return self._booked.rounds[run, round_]

    def note(self, text: str) -> None:
        """Write down a remark of people. It costs nothing, and is chained like everything else."""
        expect(bool(text.strip()), "a note with text", text=text)
        with self._lock:
            self._booked.take(self._chain.append("", 0, NOTE, {"text": text}, OpenHead.sync_every_other))

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
        self._booked.limit.expect_covered(unit, "the cap of this ledger", _OTHER_UNIT)
        expect(len(costs) >= 1, "rounds >= 1", rounds=len(costs))
        checked = {cost: checked_cost(run, 1, *cost) for cost in set(costs)}  # many rounds, few costs
        booked = [checked[cost] for cost in costs]
        with self._lock:
            left = {k: cost for k, cost in enumerate(booked, 1) if self._known(run, k, cost) is None}
            return self._afford(run, left, f"run={run!r} of {len(costs)} rounds").price()

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
            before = self._booked.book()
            # What was caught up may count for more under another cap.
            raised = self._booked.book(limit=replace(self._booked.limit, epsilon=float(epsilon)))
            if not raised.fits():
                raise BudgetError(f"{raised.why_not(f'cap={epsilon!r}', before, _ADVICE)} The cap was not raised.")
            signature = sign(self._booked.to_sign(self.head, float(epsilon))).hex()
            body: dict[str, object] = {"epsilon": float(epsilon), "signer": signer, "signature": signature}
            self._booked.take(self._chain.append("", 0, CAP, body))
            return self._booked.raises[-1]

    def raises(self) -> tuple[Raise, ...]:
        """Every time that the cap was raised."""
        return tuple(self._booked.raises)

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
            self._booked.take(self._chain.append("", 0, CAUGHT_UP, caught_body(account, height, missing)))
            return missing

    def account(self) -> Account:
        """All that was spent, run by run: what others need to hold for this ledger to be caught up."""
        with self._lock:
            return self._booked.account()

    # -- what is refused ----------------------------------------------------------------------------------------------

    def _known(self, run: str, round_: int, cost: Cost) -> Reservation | None:
        """The reservation of this round, if there is one; `PrivacyError` if it was made with another cost."""
        known = self._booked.rounds.get((run, round_))
        if known is not None and known.cost != cost:
            raise PrivacyError(
                f"Expected the cost that run={run!r}, round={round_} was reserved with, {known.cost.event!r} with "
                f"divergence={known.cost.divergence!r}{_resting_on(known.cost)}, got {cost.event!r} with "
                f"divergence={cost.divergence!r}{_resting_on(cost)}. "
                "A run with other settings needs another name."
            )
        return known

    def _expect_next(self, run: str, round_: int) -> None:
        """Refuse a round that skips others: accounts state a run by its last round alone."""
        last = self._booked.last_round(run)
        if round_ > last + 1:
            raise PrivacyError(
                f"Expected rounds of a run one after the other, got run={run!r}, round={round_} after {last}. This is "
                "another ledger than the one that the run began with: put that one back."
            )

    def _afford(self, run: str, more: Mapping[int, Cost], what: str) -> Book:
        """The book with these rounds of a run; BudgetError if it does not fit."""
        wanted = self._booked.book(run, more)
        # No price is computed for the rounds of a run that was checked.
        if self._fits is None or not wanted.is_part_of(self._fits):
            if not wanted.fits():
                raise BudgetError(f"{wanted.why_not(what, self._booked.book(), _ADVICE)} Nothing was reserved.")
            self._fits = wanted
        return wanted

    # -- looking ------------------------------------------------------------------------------------------------------

    @property
    def unit(self) -> Unit:
        """The unit that the cap protects: a row, or a person."""
        return self._booked.limit.unit

    @property
    def header(self) -> Header:
        """What the ledger is of, and its cap."""
        return self._chain.header

    @property
    def head(self) -> Head:
        """The number of entries and the last hash. Keep it elsewhere: it proves what was there."""
        return self._chain.head

    @property
    def path(self) -> Path:
        """The path of the ledger's file."""
        return self._chain.path

    @property
    def cap(self) -> float:
        """The epsilon that all runs together may cost now, at the header's delta."""
        return self._booked.limit.epsilon

    @property
    def height(self) -> int:
        """The number of entries, and as many more as it takes to be above every ledger that was caught up with."""
        return self.head.entries + self._booked.ahead

    def total(self) -> float:
        """The least cap, at the same delta, that would have taken all reservations; inf if none would.

        For plain Gaussians it is the exact price of such a list. What is guaranteed while runs are still being chosen
        is the cap, not this.
        """
        return self._booked.book().price()

    def colluding(self) -> int | None:
        """Number of colluding sites of each run that the total holds against: the fewest that any round was booked
        against. None: against everybody.
        """
        with self._lock:
            return self._booked.book().colluding

    def left(self) -> float:
        """The epsilon, at the same delta, of the largest run with plain Gaussian noise that still fits."""
        with self._lock:
            return self._booked.book().left()

    def slack(self) -> float:
        """The part of delta that is kept for the gap between the real noise and the ideal one; 0 before any round."""
        return self._booked.book().slack

    def would_cost(self, event: Event, rounds: int = 1, divergence: float = 0.0) -> float:
        """The total if so many rounds more were reserved, as an epsilon at the cap's delta. Nothing is written or
        refused.
        """
        return self._booked.book().with_(Cost(event, divergence), rounds).price()

    def rounds_left(self, event: Event, divergence: float = 0.0) -> int:
        """How many more such rounds fit under the cap, at most 10^9."""
        return int(min(_MOST_ROUNDS, self._booked.book().times_left(Cost(event, divergence))))

    def reservations(self) -> tuple[Reservation, ...]:
        """All rounds that are paid for, in the order of booking."""
        return tuple(self._booked.rounds.values())

    def entries(self) -> Iterator[LedgerEntry]:
        """All entries of the chain, in order."""
        return self._chain.entries()

    def expect_known(self, head_hash: str) -> None:
        """Raise `PrivacyError` unless the chain goes through this hash, which was its head some time ago."""
        if head_hash != self.header.hash and all(entry.hash != head_hash for entry in self.entries()):
            raise PrivacyError(
                f"Expected a ledger that goes on from the head {head_hash!r}, got one of {self.head.entries} entries "
                "without it. This is another ledger, or a rewritten one: release nothing from these rows."
            )

    def close(self) -> None:
        """Release the ledger to other processes. Later calls that write are refused."""
        self._chain.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _resting_on(cost: Cost) -> str:
    """The assumption of a price, as a part of a sentence; empty if it has none."""
    return "" if cost.assumed is None else f" and {cost.assumed!r}"


def _whole(ledger: Ledger) -> dict[str, object]:
    """The ledger with its whole chain, to be exported."""
    total = {"epsilon": ledger.total(), "slack": ledger.slack(), "colluding": ledger.colluding()}
    entries = tuple(ledger.entries())
    return {"header": ledger.header, "head": ledger.head, "cap": ledger.cap, "total": total, "entries": entries}


written_as(Ledger, _whole)
