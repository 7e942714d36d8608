"""The sum of a ledger's entries: its cap, its rounds, and the `book` that refuses.

It knows nothing of files. A ledger passes it every verified entry in order, those of the past and those that it has
just written. So a ledger states the same after a crash as before.
"""

import json
from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import replace
from math import isfinite
from typing import final

from sottovoce.errors import PrivacyError
from sottovoce.privacy.books.account import Account, Record, larger, mark_of, record_of
from sottovoce.privacy.books.book import Book, Cost, Limit
from sottovoce.privacy.books.caught import Caught, rest_of, together
from sottovoce.privacy.books.chain import Header, LedgerEntry
from sottovoce.privacy.books.entries import (
    CAP,
    CAUGHT_UP,
    NOTE,
    RELEASED,
    RESERVE,
    Raise,
    Reservation,
    caught_of,
    cost_of,
)
from sottovoce.privacy.books.head import Head
from sottovoce.privacy.events import Gaussian
from sottovoce.privacy.unit import Unit


@final
class Booked:
    """The sum of a ledger's entries so far; read it, and change it by `take` alone.

    Args:
        header: of the ledger. Its cap is the one at first.
    """

    def __init__(self, header: Header) -> None:
        self._header = header
        self.limit = Limit(header.epsilon, header.delta, header.order, Unit.named(header.unit))  # the cap as it is now
        self.rounds: dict[tuple[str, int], Reservation] = {}  # in the order of booking
        self.raises: list[Raise] = []
        self.ahead = 0  # how far the ledger stands above its number of entries, see `Ledger.height`
        self._costs: Counter[Cost] = Counter()
        self._runs: defaultdict[str, Counter[Cost]] = defaultdict(Counter)
        self._first: Cost | None = None
        self._last: dict[str, int] = {}  # round of each run
        self._touched: dict[bytes, int] = {}  # the last entry of each run, or of what was caught up of it
        self._history: list[tuple[bytes, int]] = []  # runs and rounds, as they were booked or caught up
        self._caught: dict[bytes, Caught] = {}  # by run

    # -- one more entry -----------------------------------------------------------------------------------------------

    def take(self, entry: LedgerEntry) -> None:
        """Add one verified entry; `PrivacyError` if it is none that the entries before allow."""
        try:
            self._take(entry)
        except (LookupError, TypeError, ValueError) as error:
            raise PrivacyError(
                f"Expected an entry that the entries before allow, got entry {entry.index}, kind={entry.kind!r}: "
                f"{error}. It was not written by this version: release nothing before that is understood."
            ) from error

    def _take(self, entry: LedgerEntry) -> None:
        """Add one entry. Any exception here means that this version did not write it."""
        place = entry.run, entry.round
        if entry.kind == RESERVE:
            if place in self.rounds:
                raise ValueError(f"round {entry.round} of run {entry.run!r} is reserved twice")
            cost = cost_of(entry.body)
            self.rounds[place] = Reservation(entry.run, entry.round, cost, entry.index)
            self._costs[cost] += 1
            self._runs[entry.run][cost] += 1
            self._last[entry.run] = max(entry.round, self._last.get(entry.run, 0))
            self._touched[mark_of(entry.run)] = entry.index
            self._history.append((mark_of(entry.run), self.last_round(entry.run)))
            self._first = self._first or cost
        elif entry.kind == RELEASED:
            self.rounds[place] = replace(self.rounds[place], message=json.loads(entry.body)["message"])
        elif entry.kind == CAP:
            self._take_cap(entry)
        elif entry.kind == CAUGHT_UP:
            self._take_caught(entry)
        elif entry.kind != NOTE:
            raise ValueError("an unknown kind")

    def _take_cap(self, entry: LedgerEntry) -> None:
        """Add an entry that raises the cap, from here on."""
        data = json.loads(entry.body)
        epsilon, before = float(data["epsilon"]), Head(entry.index - 1, entry.previous)
        if not (isfinite(epsilon) and epsilon > self.limit.epsilon):
            raise ValueError(f"a cap of {epsilon!r} after {self.limit.epsilon!r}")
        signed = self.to_sign(before, epsilon)
        self.raises.append(Raise(epsilon, data["signer"], data["signature"], signed, entry.index, entry.time))
        self.limit = replace(self.limit, epsilon=epsilon)

    def _take_caught(self, entry: LedgerEntry) -> None:
        """Add an entry that books what others had seen."""
        found = caught_of(entry.body, self.limit)
        for record in found.records:
            known = self._caught.get(record.run)
            whole = record if known is None else larger(record, known.under(found.limit))
            self._caught[record.run] = Caught(whole, found.limit)
            self._touched[record.run] = entry.index
            own = max((k for name, k in self._last.items() if mark_of(name) == record.run), default=0)
            self._history.append((record.run, max(own, whole.rounds)))
        self.ahead = max(self.ahead, found.height + 1 - entry.index)
        self._first = self._first or Cost(Gaussian(1.0), found.first)

    # -- what it adds up to -------------------------------------------------------------------------------------------

    def book(self, run: str = "", more: Mapping[int, Cost] | None = None, limit: Limit | None = None) -> Book:
        """All that counts: what was reserved here, and what of others' sight was not.

        Args:
            run: one with rounds that are not booked yet, if there are any.
            more: the costs of these rounds, by number. They count as if they were booked.
            limit: another than the one that holds now.
        """
        limit, more = limit or self.limit, more or {}
        first = self._first or next(iter(more.values()), None)
        book = Book(limit, self._costs + Counter(more.values()), first)
        for run_mark, caught in self._caught.items():
            record = caught.under(limit)
            same = self._same(run_mark, record)
            same += [cost for k, cost in more.items() if k <= record.rounds] if mark_of(run) == run_mark else []
            rest = rest_of(record, same, book.filter)
            book = book if rest is None else book.with_(rest)
        return book

    def account(self) -> Account:
        """All that was spent, run by run: what others need to hold for a ledger of these rows to be caught up."""
        limit, rule = self.limit, Book(self.limit, self._costs, self._first).filter
        found: dict[bytes, Record] = {}
        for run, costs in self._runs.items():
            found[mark_of(run)] = record_of(run, self._last[run], costs.items(), rule)
        for run_mark, caught in self._caught.items():
            here, own = caught.under(limit), found.get(run_mark)
            found[run_mark] = here if own is None else together(own, here, self._same(run_mark, here), rule)
        first = 0.0 if self._first is None else self._first.divergence
        # Those last that were last booked: what is added up first are runs that are over.
        records = sorted(found.values(), key=lambda record: self._touched[record.run])
        order = limit.order or 0.0
        return Account(limit.epsilon, limit.delta, order, first, tuple(records), limit.unit, self._history)

    def last_round(self, run: str) -> int:
        """The last round of a run that was booked here, or elsewhere and caught up; 0 if there is none."""
        caught = self._caught.get(mark_of(run))
        return max(self._last.get(run, 0), 0 if caught is None else caught.record.rounds)

    def to_sign(self, before: Head, epsilon: float) -> bytes:
        """The bytes that are signed to raise the cap after the entry `before`: this ledger, that entry, the new cap."""
        return json.dumps([self._header.hash, before.entries, before.hash, epsilon]).encode("ascii")

    def _same(self, run_mark: bytes, caught: Record) -> list[Cost]:
        """The costs of those rounds that were both booked here and caught up."""
        known = (name for name in self._runs if mark_of(name) == run_mark)
        places = ((name, k) for name in known for k in range(1, min(caught.rounds, self._last[name]) + 1))
        return [self.rounds[place].cost for place in places if place in self.rounds]
