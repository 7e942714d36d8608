"""The account of a ledger: what it has spent, run by run, in a few hundred bytes, so that another ledger can book it.

Of every run it holds the last round and a weight: mu^2 of the plain Gaussians that take as much of the book. In an
exact book only the sum of mu^2 counts, in a mixed one the log-moment at its order, lambda (1 + lambda) mu^2 / 2 of a
plain Gaussian, so nothing is lost (docs/proofs/books.md). A round of any other kind has a weight in the book that it
was booked in, and no other: elsewhere it counts as everything.

The size is fixed, so that it tells nobody how many runs there were. If they are more than fit, those that were touched
longest ago are added up, and so are their marks:

    mark of a list    sum over its runs of SHA-256( run, last round ), mod 2^128

It does not depend on the order of booking, and a list within a list counts as its runs. A ledger knows a list again by
its own history: the runs that it had at some moment, less those that stand beside the list by themselves.
"""

import hashlib
import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from math import fsum, inf, isnan
from typing import NamedTuple, Self, final

from sottovoce.privacy.accounting.accountant import plain_mu
from sottovoce.privacy.books.book import Cost, colluding_of, fewest
from sottovoce.privacy.books.filter import Filter
from sottovoce.privacy.events import Event
from sottovoce.privacy.unit import ROW, Unit

MOST_RECORDS, MARK_BYTES = 16, 16
_UP = 1 + 1e-15  # what a few roundings may have taken off
_SAME = 1 - 1e-9  # weights that are as close as this are of the same rounds
_BOOK, _RECORD = struct.Struct("<ddddIII"), struct.Struct(f"<{MARK_BYTES}sIIdd")
_MODULUS = 2 ** (8 * MARK_BYTES)
_OTHERWISE = 2**31  # in the number of rounds: not all of them were plain
_EVERYBODY = 2**32 - 1  # in place of a number of colluding sites
ACCOUNT_BYTES = _BOOK.size + MOST_RECORDS * _RECORD.size


@final
class Record(NamedTuple):
    """What one run has taken, or several that were added up."""

    run: bytes  # see `mark_of`; of several, the mark of their list
    rounds: int  # the last that was reserved; 0 where several runs were added up
    weight: float  # mu^2, rounded up
    divergence: float  # of all its rounds, in nats
    plain: bool = True  # True if the weight holds in any book
    colluding: int | None = None  # against how many colluding sites it holds; None: against everybody

    def to_bytes(self) -> bytes:
        """The record in 40 bytes, little-endian."""
        rounds, colluding = self.rounds | _OTHERWISE * (not self.plain), self.colluding
        return _RECORD.pack(
            self.run, rounds, _EVERYBODY if colluding is None else colluding, self.weight, self.divergence
        )

    def covers(self, other: "Record") -> bool:
        """True if this record of the same run counts for at least as much. A round of a run always costs the same."""
        alike = self.plain and other.plain
        return self.rounds >= other.rounds and (not alike or self.weight >= _SAME * other.weight)


@final
@dataclass(frozen=True)
class Account:
    """All that was spent, in the order of booking.

    Args:
        epsilon, delta: the cap of the book.
        order: lambda of a mixed book; 0 for an exact one.
        first: the divergence of its first round, which fixes how much of delta is kept for noise on a grid.
        records: of its runs, those last that were last booked. As bytes they are at most `MOST_RECORDS`.
        unit: what its prices protect.
        history: run and round of all that was ever booked, in order; of a ledger's own account. It stays there.
    """

    epsilon: float
    delta: float
    order: float
    first: float
    records: tuple[Record, ...]
    unit: Unit = ROW
    history: Sequence[tuple[bytes, int]] = field(default=(), compare=False, repr=False)

    def to_bytes(self) -> bytes:
        """The account in `ACCOUNT_BYTES` bytes, however many runs there were. The oldest records become one."""
        kept = _merge_oldest(self.records)
        body = b"".join(record.to_bytes() for record in kept)
        unit = self.unit.rows or 0, self.unit.sites
        book = _BOOK.pack(self.epsilon, self.delta, self.order, self.first, *unit, len(kept))
        return (book + body).ljust(ACCOUNT_BYTES, b"\0")

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        """The account that `to_bytes` wrote, with old records added up."""
        epsilon, delta, order, first, rows, sites, count = _BOOK.unpack_from(data)
        found = list(_RECORD.iter_unpack(data[_BOOK.size : _BOOK.size + min(count, MOST_RECORDS) * _RECORD.size]))
        records = (
            Record(run, k & (_OTHERWISE - 1), w, d, not k & _OTHERWISE, None if c == _EVERYBODY else c)
            for run, k, c, w, d in found
        )
        return cls(epsilon, delta, order, first, tuple(records), Unit(rows or None, sites))

    def lacking(self, other: "Account") -> tuple[Record, ...]:
        """What the other has spent and this has not: the records of theirs that are to be booked here."""
        own, beside = {record.run: record for record in self.records}, {record.run for record in other.records}
        return tuple(
            record
            for record in other.records
            if not (own[record.run].covers(record) if record.run in own else self._had(record, beside))
        )

    def _had(self, listed: Record, beside: set[bytes]) -> bool:
        """True if a list is of just the runs that this book held at some moment, without those `beside` it."""
        weight = fsum(record.weight for record in self.records if record.run not in beside)
        if listed.rounds or not weight >= _SAME * listed.weight:
            return False
        wanted, total, terms = int.from_bytes(listed.run), 0, dict[bytes, int]()
        for run, last in self.history:
            if run not in beside:
                total -= terms.get(run, 0)
                terms[run] = _term(run, last)
                total += terms[run]
                if total % _MODULUS == wanted:
                    return True
        return False


@lru_cache(maxsize=4096)
def mark_of(run: str) -> bytes:
    """16 bytes by which a run is known in an account."""
    return hashlib.sha256(b"sottovoce run v1\0" + run.encode()).digest()[:MARK_BYTES]


def record_of(run: str, last: int, costs: Iterable[tuple[Cost, int]], rule: Filter) -> Record:
    """What a run has taken of a book.

    Args:
        run: its name.
        last: its last round.
        costs: of its rounds, each with the number of times.
        rule: the filter of the book.
    """
    listed = tuple(costs)
    plain = all(_plain_weight(cost.event) is not None for cost, _ in listed)
    weight = fsum(times * _weight(cost.event, rule) for cost, times in listed) * _UP
    divergence = fsum(times * cost.divergence for cost, times in listed)
    return Record(mark_of(run), last, weight, divergence, plain, colluding_of(cost for cost, _ in listed))


def larger(one: Record, other: Record) -> Record:
    """The record of one run that covers both: rounds are booked in order, so the longer one holds the shorter."""
    return Record(
        one.run, max(one.rounds, other.rounds), max(one.weight, other.weight), max(one.divergence, other.divergence),
        one.plain and other.plain, fewest((one.colluding, other.colluding)),
    )  # fmt: skip


@lru_cache(maxsize=4096)
def _plain_weight(event: Event) -> float | None:
    """mu^2 of a plain Gaussian event; None for any other. Cached, since every message needs it of all bookings."""
    mu = plain_mu(event)
    return None if mu is None else mu * mu * _UP


def _weight(event: Event, rule: Filter) -> float:
    """mu^2 of plain Gaussians that take as much of this book; inf if there are none."""
    plain = _plain_weight(event)
    if plain is not None:
        return plain
    if rule.order is None:
        return inf
    share = rule.share(event)
    return inf if isnan(share) else 2 * share / rule.order / (1 + rule.order) * _UP


def _merge_oldest(records: tuple[Record, ...]) -> tuple[Record, ...]:
    """At most `MOST_RECORDS` records, of which the first stands for all older ones."""
    extra = len(records) - MOST_RECORDS
    if extra <= 0:
        return records
    old = records[: extra + 1]
    weight, divergence = fsum(r.weight for r in old) * _UP, fsum(r.divergence for r in old) * _UP
    mark = (sum(_term(r.run, r.rounds) for r in old) % _MODULUS).to_bytes(MARK_BYTES)
    merged = Record(mark, 0, weight, divergence, all(r.plain for r in old), fewest(r.colluding for r in old))
    return (merged, *records[extra + 1 :])


def _term(run: bytes, last: int) -> int:
    """The number that a run adds to the mark of a list. A list, whose last round is 0, adds its own mark."""
    if last == 0:
        return int.from_bytes(run)
    return int.from_bytes(hashlib.sha256(b"sottovoce runs v2\0" + run + last.to_bytes(4)).digest()[:MARK_BYTES])
