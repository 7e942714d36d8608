"""A budget for the rows of one data set, and all that was ever charged to it.

    total = the least epsilon, at the same delta, of a budget that takes all that was charged  <=  the budget's epsilon

What is charged next is chosen with sight of earlier results, so what accepts and refuses is a `filter`, not a sum of
epsilons. The unit is one row of one site replaced by any other row, or one person's rows. Sites hold disjoint rows, so
a fit at all of them costs what it costs the worst site: one event, not one for each site. What a person at several
sites pays, the events of a run for people hold already. What is charged stays charged: a crash, an
exception or an unused model gives nothing back.

A budget lives in one process, for whoever fits models there, or in a file: one that was loaded has each charge in its
file before the work begins, and several processes take turns. It shows no tampering; a real site keeps a `ledger`
instead.
"""

import json
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from math import inf, isclose, isfinite
from pathlib import Path
from threading import Lock, RLock
from types import TracebackType
from typing import Any, NamedTuple, NoReturn, Self, final

from sottovoce.errors import BudgetError, InputError, PrivacyError, UnsupportedError, expect
from sottovoce.privacy.accounting.accountant import epsilon as epsilon_of
from sottovoce.privacy.accounting.accountant import leaves
from sottovoce.privacy.accounting.calibration import sigma_for
from sottovoce.privacy.accounting.gaussian import epsilon_of_mu
from sottovoce.privacy.books.filter import Charges, Filter, order_for
from sottovoce.privacy.events import Event, Gaussian, Sequence
from sottovoce.privacy.parsing import event_from_dict
from sottovoce.privacy.unit import ROW, Unit
from sottovoce.settings import plain, typed
from sottovoce.settings.disk import taking_turns, write_whole

FORMAT = "sottovoce budget"
# Read by `load`, which says what becomes of older files.
VERSION = 2  # 1 had no order
LARGEST_FILE = 2**26  # bytes
# Beyond, a double is no exact count any more.
MOST_TIMES = 2**53


class Budget(NamedTuple):
    """An epsilon and the delta that it holds at."""

    epsilon: float
    delta: float


@final
class BudgetAccountant:
    """Charges events to one data set and refuses what would pass (epsilon, delta).

    The first charge may be any event, all later ones plain Gaussians, priced exactly. Releases that are planned
    together can be charged first, as one `Sequence`. In a `with` block it is the accountant of every estimator that was
    given none.

    Args:
        epsilon: what all charges together may cost; `math.inf` only keeps the books: all is charged, nothing refused.
        delta: of the whole budget, not of one charge.
        spent: events of the past, charged in this order.
        mixed: whether any charge may be of any kind, at about a tenth more epsilon.
        unit: what the budget protects: a row, or a person. A run that protects less is refused.

    Formal guarantees:
        All that was done under what `spend` or `reserve` accepted is (epsilon, delta)-DP for one replaced unit, even if
        each event was chosen with sight of all earlier results. Calls from several threads take turns, and so do
        processes that have loaded the same file. A copy is the same accountant, and there is none in another process:
        pickling is refused, so is spending after a fork.
    """

    def __init__(
        self, epsilon: float, delta: float, spent: Iterable[Event] = (), *, mixed: bool = False, unit: Unit = ROW
    ) -> None:
        expect(epsilon > 0, "epsilon > 0 (math.inf to only keep the books)", epsilon=epsilon)
        expect(0 < delta < 1, "delta strictly between 0 and 1", delta=delta)
        self._limit, self._unit = Budget(float(epsilon), float(delta)), unit
        order = order_for(epsilon, delta) if mixed and isfinite(epsilon) else None
        self._filter = Filter(*self._limit, order) if isfinite(epsilon) else None
        self._events: tuple[Event, ...] = ()
        self._file: Path | None = None  # that all charges go to
        # How many of the events each file holds because we wrote or read them there.
        self._on_disk: dict[Path, int] = {}
        self._lock, self._process = RLock(), os.getpid()
        for event in spent:
            self.spend(event, unit)

    @property
    def epsilon(self) -> float:
        """What all events together may cost."""
        return self._limit.epsilon

    @property
    def delta(self) -> float:
        """The delta of the whole budget, not of one event."""
        return self._limit.delta

    @property
    def unit(self) -> Unit:
        """What it protects."""
        return self._unit

    @property
    def events(self) -> tuple[Event, ...]:
        """All that was charged, in order."""
        return self._events

    @property
    def mixed(self) -> bool:
        """Whether charges after the first may be other than plain Gaussians."""
        return self._filter is None or self._filter.order is not None

    def total(self) -> Budget:
        """What was spent: the smallest budget of this kind, at the same delta, that takes all that was charged.

        Without `mixed` it is the exact composition of all events. While there is more to come, what is guaranteed is
        the budget, not the total so far: who goes on until a result suits them chooses the total by the result.
        """
        if self._filter is None:
            return Budget(self.get_epsilon(self.delta), self.delta)
        return Budget(self._filter.price(self._charges), self.delta)

    def get_epsilon(self, delta: float) -> float:
        """The price, at any delta, of the same list of events if it had been fixed beforehand."""
        return epsilon_of(Sequence(self._events), delta)

    def check(self, event: Event, unit: Unit = ROW) -> None:
        """BudgetError if this event, priced for that unit, does not fit with all that was charged. Nothing is charged.

        PrivacyError if the unit is less than what the budget protects: the event's price then is not what it costs.
        """
        expect(isinstance(event, Event), "an Event", event=event)
        if not unit.covers(self._unit):
            raise PrivacyError(
                f"Expected a run that protects {self._unit}, as this budget does, got one for {unit}. Give the run the "
                "person column and the most rows of a person, or charge it to a budget of its own kind."
            )
        leaves(event)  # refuses what nobody knows
        if self._filter is not None:
            with self._lock:
                if not self._filter.fits(self._charges.with_(event)):
                    self._refuse(self._filter, event)

    def spend(self, event: Event, unit: Unit = ROW) -> None:
        """Charge the event, before it happens; BudgetError, with nothing charged, if it does not fit.

        An accountant that was loaded first takes in what others have charged to its file since, and writes the charge
        there before this returns. Nobody else can charge in between.

        Args:
            event: all that is about to be done to the rows. It stays charged, whatever comes of it.
            unit: what its noise multipliers are relative to.
        """
        if os.getpid() != self._process:
            raise PrivacyError(
                f"Expected to spend in process={self._process}, where this accountant lives, got "
                f"process={os.getpid()}. What is charged to a copy is lost: fit in the accountant's own process "
                "(n_jobs=1)."
            )
        with self._lock:
            if self._file is None:
                self.check(event, unit)
                self._events = (*self._events, event)
                return
            with _changing(self._file):
                self._take_in(self._file)
                self.check(event, unit)
                self._write(self._file, (*self._events, event))

    @contextmanager
    def reserve(self, event: Event, unit: Unit = ROW) -> Iterator[None]:
        """Charge first, then do the work in the block. What fails in it is paid for all the same."""
        self.spend(event, unit)
        yield

    def remaining(self) -> Budget:
        """What one more Gaussian release may cost on its own, at the budget's delta.

        Not epsilon minus the total: with only Gaussians, sqrt(mu^2 - spent mu^2) is left. A fit of many Gaussian steps
        with this epsilon fits just as well. For any other event ask `remaining_times`.

        Formal guarantees:
            `check(Gaussian(sigma_for(result.epsilon, delta, 1)))` passes, if result.epsilon > 0.
        """
        if self._filter is None:
            return self._limit
        with self._lock:
            # `room` is exact but for rounding; what is told must really fit.
            charges, step = self._charges, 1e-9
            left = epsilon_of_mu(self._filter.room(charges), self.delta) * (1 - step)
            while left > 0 and not self._filter.fits(charges.with_(Gaussian(sigma_for(left, self.delta, 1)))):
                left, step = max(0.0, left * (1 - step)), 2 * step
            return Budget(left, self.delta)

    def remaining_times(self, event: Event) -> float:
        """How often this event still fits: a whole number; inf if it costs nothing, or if nothing is refused."""
        book = self._filter
        if book is None or not leaves(event):
            return inf
        with self._lock:
            charges, good, stride = self._charges, 0, 1
            while good + stride <= MOST_TIMES and book.fits(charges.with_(event, good + stride)):
                good, stride = good + stride, 2 * stride
            while stride > 1:
                stride //= 2
                if book.fits(charges.with_(event, good + stride)):
                    good += stride
            return good

    def save(self, path: Path | str) -> None:
        """Write all to a JSON file, whole or not at all. A file that knows of more than this accountant stays.

        The file that an accountant was loaded from holds everything already.
        """
        place = Path(path).resolve()  # or a link to the file would become a second one
        with self._lock, _changing(place):
            if place == self._file:
                self._take_in(place)
                return
            if place.exists():
                self._expect_forerunner(place)
            self._write(place, self._events)

    @classmethod
    def load(cls, path: Path | str) -> "BudgetAccountant":
        """The accountant of a file that `save` wrote. From now on each charge is written there.

        Raises:
            InputError: not all is as it was written, or costs what is written there.
        """
        accountant = cls._read_from(Path(path))
        accountant._file = Path(path).resolve()
        accountant._on_disk[accountant._file] = len(accountant)
        return accountant

    @classmethod
    def _read_from(cls, path: Path) -> "BudgetAccountant":
        """What a file says now, checked, and without a tie to it."""
        data = _read(path)
        limit = inf if data["epsilon"] is None else typed("epsilon", data["epsilon"], float)
        accountant = cls(limit, typed("delta", data["delta"], float), unit=Unit.named(data["unit"]))
        if accountant._filter is not None and data["order"] is not None:
            accountant._filter = Filter(*accountant._limit, typed("order", data["order"], float))
        accountant._events = tuple(event_from_dict(event) for event in typed("events", data["events"], tuple[Any, ...]))
        accountant._expect_proved(path)
        real, written = accountant._price(), typed("spent", data["spent"], float | None)
        expect(
            _same(real, written),
            f"a total of spent={real!r}, which is what the events of path={str(path)!r} cost. Was the file changed?",
            spent=written,
        )
        expect(real is None or real <= limit, f"events within the file's epsilon={limit!r}", spent=real)
        return accountant

    @classmethod
    def current(cls) -> "BudgetAccountant | None":
        """The accountant of the innermost `with` block around here; None if there is none.

        Raises:
            PrivacyError: a `with` block is open, but in another thread. Threads do not inherit it, and a fit that is
                charged to nobody would go unnoticed.
        """
        if _INNERMOST.get():
            return _INNERMOST.get()[-1]
        if _OPEN:
            raise PrivacyError(
                "Expected an accountant for this fit: a BudgetAccountant is open in another thread, and threads do not "
                "inherit it. Give it to the estimator (accountant=...), or fit in the thread of the `with` block "
                "(n_jobs=1). For rows that need no accountant, give BudgetAccountant(math.inf, delta)."
            )
        return None

    def __enter__(self) -> Self:
        with _OPEN_LOCK:
            # Beside the context variable, which other threads do not see: they must not fit unnoticed.
            _OPEN.append(self)
        _INNERMOST.set((*_INNERMOST.get(), self))
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        with _OPEN_LOCK:
            _OPEN.remove(self)
        _INNERMOST.set(_INNERMOST.get()[:-1])

    def __len__(self) -> int:
        return len(self._events)

    def __bool__(self) -> bool:
        return True  # also before the first event: `accountant or default` must not lose it

    def __repr__(self) -> str:
        return f"BudgetAccountant(epsilon={self.epsilon!r}, delta={self.delta!r}, events={len(self)})"

    def __copy__(self) -> Self:
        return self  # scikit-learn's clone copies parameters; a second budget for the same rows would be a leak

    def __deepcopy__(self, memo: dict[int, object]) -> Self:
        return self

    def __reduce__(self) -> NoReturn:
        raise PrivacyError(
            "Expected to stay in one process, got pickled: what is charged to a copy is lost. Use n_jobs=1, or save() "
            "and load() one after the other. To pickle an estimator, set its accountant to None first."
        )

    @property
    def _charges(self) -> Charges:
        """What was charged, as the filter takes it."""
        return Charges.of(self._events)

    def _price(self) -> float | None:
        """The total, None if it is infinite or unknown: both happen only in books that refuse nothing."""
        try:
            total = self.total().epsilon
        except UnsupportedError:
            return None
        return total if isfinite(total) else None

    def _expect_proved(self, path: Path | str) -> None:
        """Refuse a file of version 1 with charges that no proof covers: it took any kind at any time."""
        if self._filter is not None and not self._filter.knows(self._charges):
            raise InputError(
                f"Expected plain Gaussian charges after the first in path={str(path)!r}, which was not made for "
                "mixtures, got others, whose total no proof covers. What was spent stays spent: keep the file as a "
                "record, and charge nothing more to these rows."
            )

    def _refuse(self, book: Filter, event: Event) -> NoReturn:
        """Raise `BudgetError`: the kind of event is wrong, or the total too high. It says what was asked, spent and
        left.
        """
        together = self._charges.with_(event)
        if not book.knows(together):
            raise BudgetError(
                f"Expected plain Gaussian releases after the first charge, got event={event.words!r}. What is "
                "charged later is chosen with sight of earlier results, and this budget is not made for mixtures. "
                "Nothing was computed, nothing charged. Make one that is (mixed=True, --mixed) before its first "
                "charge, or charge all that is planned first, as one Sequence."
            )
        # What it would cost as the only charge, so that people see what they asked for.
        alone = book.price(Charges.of([event]))
        left = f", left for one more Gaussian fit={self.remaining().epsilon:.4g}"
        raise BudgetError(
            f"Expected a total of at most epsilon={self.epsilon!r} at delta={self.delta!r}, got "
            f"{book.price(together):.10g}: asked={alone:.6g}, spent={self.total().epsilon:.6g} by {len(self)} "
            f"events{left}. Nothing was computed, nothing charged. "
            "Ask for a smaller epsilon or fewer rounds, or agree on a larger budget with those whose rows these are."
        )

    def _content(self) -> dict[str, object]:
        """What a file says. The total goes along, so that `load` can tell whether the events were changed."""
        return {
            "format": FORMAT,
            "version": VERSION,
            "unit": self._unit,
            "epsilon": self.epsilon,
            "delta": self.delta,
            "order": None if self._filter is None else self._filter.order,
            "spent": self._price(),
            "events": self._events,
        }

    def _write(self, place: Path, events: tuple[Event, ...]) -> None:
        """Have these events, and so has the file. If it cannot be written, they are not charged."""
        before, self._events = self._events, events
        try:
            write_whole(place, json.dumps(plain(self._content()), indent=1, allow_nan=False).encode(), 0o600)
        except BaseException:
            self._events = before
            raise
        self._on_disk[place] = len(self)

    def _same_book(self, other: "BudgetAccountant") -> bool:
        """Whether both have the same limit, kind and unit."""
        return (other._limit, other._filter, other._unit) == (self._limit, self._filter, self._unit)

    def _take_in(self, place: Path) -> None:
        """What others have charged to our file since we last had it counts before anything more is charged."""
        there = BudgetAccountant._read_from(place)
        if not self._same_book(there) or there._events[: len(self)] != self._events:
            raise PrivacyError(
                f"Expected path={str(place)!r} to hold all that was charged to it, got {there!r}, which lacks some of "
                f"the {len(self)} events that this accountant knows of, or has other limits. What was spent stays "
                "spent: put the newest file back."
            )
        self._events = there._events

    def _expect_forerunner(self, place: Path) -> None:
        """What lies there must be an earlier state of this accountant.

        It is not enough that its events are the first of ours: an equal event may have been charged by somebody else.
        """
        there, known = BudgetAccountant._read_from(place), self._on_disk.get(place, 0)
        if not self._same_book(there) or len(there) > known or there._events != self._events[: len(there)]:
            raise PrivacyError(
                f"Expected path={str(place)!r} to hold an earlier state of this accountant, got {there!r}, with events "
                "or limits that this one does not have. Somebody else has spent, or it is another data set's. Load "
                "that file and spend from there, or save elsewhere."
            )


@contextmanager
def _changing(place: Path) -> Iterator[None]:
    """Read, check and write a budget file in one, with nobody in between."""
    try:
        with taking_turns(place):
            yield
    except OSError as error:
        raise InputError(f"Expected to write path={str(place)!r}, got {error}.") from error


_INNERMOST: ContextVar[tuple[BudgetAccountant, ...]] = ContextVar("_INNERMOST", default=())
_OPEN: list[BudgetAccountant] = []
_OPEN_LOCK = Lock()


def _read(place: Path) -> dict[str, object]:
    """The fields of a saved budget. Their values are checked by `load`."""
    try:
        # Measured before it is read: a wrong path may lead to anything.
        size = place.stat().st_size
        text = place.read_bytes() if size <= LARGEST_FILE else b""
    except OSError as error:
        raise InputError(f"Expected to read path={str(place)!r}, got {error}.") from error
    expect(size <= LARGEST_FILE, f"a budget file of at most {LARGEST_FILE} bytes", path=str(place), size=size)
    try:
        data = json.loads(text.decode(), parse_constant=_no_constant, object_pairs_hook=_once)
    except (ValueError, RecursionError) as error:
        raise InputError(f"Expected a budget file in JSON at path={str(place)!r}, got: {error}.") from error
    old = isinstance(data, dict) and data.get("version") == 1
    fields = {"format", "version", "unit", "epsilon", "delta", "spent", "events"} | (set() if old else {"order"})
    good = isinstance(data, dict) and set(data) == fields and data["format"] == FORMAT
    expect(good, f"a file of format {FORMAT!r} with just the fields {sorted(fields)}", path=str(place))
    expect(data["version"] in (1, VERSION), f"version 1 or {VERSION}", version=data["version"])
    return {"order": None, **data}


def _no_constant(name: str) -> NoReturn:
    """Refuse NaN and infinity, which Python reads and JSON does not know."""
    raise ValueError(f"{name}, which is no JSON number")


def _once(pairs: list[tuple[str, object]]) -> dict[str, object]:
    """The fields of an object, refused if one comes twice: readers would differ on which one counts."""
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("the same key twice")
    return found


def _same(real: float | None, written: float | None) -> bool:
    """Whether a computed and a written total are one number but for rounding, or both unknown."""
    if real is None or written is None:
        return real is written
    return isclose(real, written, rel_tol=1e-6, abs_tol=1e-12)
