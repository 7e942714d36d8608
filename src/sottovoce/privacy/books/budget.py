"""An analyst's budget for the rows of one data set: the `book` of one process, or of a file that processes share.

    total = the least epsilon, at the same delta, of a budget that takes all that was charged  <=  the budget's epsilon

The unit is one row of one site replaced by any other row, or one person's rows. Sites hold disjoint rows, so a fit at
all of them costs what it costs the worst site: one event, not one for each site. What a person at several sites pays,
the events of a run for people hold already. What is charged stays charged: a crash, an exception or an unused model
gives nothing back.

A budget lives in one process, for whoever fits models there, or in a `json_file`: one that was loaded has each charge
in its file before the work begins, and several processes take turns. A real site keeps a `ledger` instead.
"""

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from math import inf
from pathlib import Path
from threading import Lock, RLock
from types import TracebackType
from typing import NamedTuple, NoReturn, Self, final

from sottovoce.errors import BudgetError, PrivacyError, expect
from sottovoce.privacy.accounting.accountant import epsilon as epsilon_of
from sottovoce.privacy.accounting.accountant import leaves
from sottovoce.privacy.books import json_file
from sottovoce.privacy.books.book import Advice, Book, Cost, Limit
from sottovoce.privacy.books.json_file import Charged
from sottovoce.privacy.events import Event, Sequence
from sottovoce.privacy.unit import ROW, Unit

_ADVICE = Advice(
    grid="",  # noise in one process is ideal
    kind="This budget is not made for mixtures: make one that is (mixed=True, --mixed) before its first charge, or "
    "charge all that is planned first, as one Sequence.",
    total="Ask for a smaller epsilon or fewer rounds, or agree on a larger budget with those whose rows these are.",
)
_OTHER_UNIT = "Give the run the person column and the most rows of a person, or charge it to a budget of its own kind."


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
        mixed: True if any charge may be of any kind, at about a tenth more epsilon.
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
        self._charged = Charged(Limit.new(epsilon, delta, mixed=mixed, unit=unit))
        self._file: Path | None = None  # that all charges go to
        # How many of the events each file holds because we wrote or read them there.
        self._on_disk: dict[Path, int] = {}
        self._lock, self._process = RLock(), os.getpid()
        for event in spent:
            self.spend(event, unit)

    @property
    def epsilon(self) -> float:
        """What all events together may cost."""
        return self._charged.limit.epsilon

    @property
    def delta(self) -> float:
        """The delta of the whole budget, not of one event."""
        return self._charged.limit.delta

    @property
    def unit(self) -> Unit:
        """The unit that the budget protects: a row, or a person."""
        return self._charged.limit.unit

    @property
    def events(self) -> tuple[Event, ...]:
        """All that was charged, in order."""
        return self._charged.events

    @property
    def mixed(self) -> bool:
        """True if charges after the first may be other than plain Gaussians."""
        return self.epsilon == inf or self._charged.limit.order is not None

    def total(self) -> Budget:
        """What was spent: the smallest budget of this kind, at the same delta, that takes all that was charged.

        Without `mixed` it is the exact composition of all events. While there is more to come, what is guaranteed is
        the budget, not the total so far: who goes on until a result suits them chooses the total by the result.
        """
        return Budget(self._charged.book.price(), self.delta)

    def get_epsilon(self, delta: float) -> float:
        """The price, at any delta, of the same list of events if it had been fixed beforehand."""
        return epsilon_of(Sequence(self.events), delta)

    def check(self, event: Event, unit: Unit = ROW) -> None:
        """BudgetError if this event, priced for that unit, does not fit with all that was charged. Nothing is charged.

        PrivacyError if the unit is less than what the budget protects: the event's price then is not what it costs.
        """
        expect(isinstance(event, Event), "an Event", event=event)
        self._charged.limit.expect_covered(unit, "this budget", _OTHER_UNIT)
        leaves(event)  # refuses what nobody knows
        with self._lock:
            before = self._charged.book
            wanted = before.with_(Cost(event))
            if not wanted.fits():
                # What it would cost as the only charge, so that people see what they asked for.
                asked = Book.of(wanted.limit, [Cost(event)]).price()
                why = wanted.why_not(f"asked={asked:.6g}", before, _ADVICE)
                raise BudgetError(f"{why} Nothing was computed, nothing charged.")

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
                self._charged = self._charged.with_(event)
                return
            with json_file.changing(self._file):
                self._take_in(self._file)
                self.check(event, unit)
                self._write(self._file, self._charged.with_(event))

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
        with self._lock:
            return Budget(self._charged.book.left(), self.delta)

    def remaining_times(self, event: Event) -> float:
        """How often this event still fits: a whole number; inf if it costs nothing, or if nothing is refused."""
        with self._lock:
            return self._charged.book.times_left(Cost(event))

    def save(self, path: Path | str) -> None:
        """Write all to a JSON file, whole or not at all. A file that knows of more than this accountant stays.

        The file that an accountant was loaded from holds everything already.
        """
        place = Path(path).resolve()  # or a link to the file would become a second one
        with self._lock, json_file.changing(place):
            if place == self._file:
                self._take_in(place)
                return
            if place.exists():
                self._expect_forerunner(place)
            self._write(place, self._charged)

    @classmethod
    def load(cls, path: Path | str) -> "BudgetAccountant":
        """The accountant of a file that `save` wrote. From now on each charge is written there.

        Raises:
            InputError: not all is as it was written, or costs what is written there.
        """
        place = Path(path).resolve()
        charged = json_file.read(Path(path))
        accountant = cls(charged.limit.epsilon, charged.limit.delta)
        accountant._charged, accountant._file = charged, place
        accountant._on_disk[place] = len(charged.events)
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
        return len(self.events)

    def __bool__(self) -> bool:
        return True  # also before the first event: `accountant or default` must not lose it

    def __repr__(self) -> str:
        return f"BudgetAccountant({self._charged})"

    def __copy__(self) -> Self:
        return self  # scikit-learn's clone copies parameters; a second budget for the same rows would be a leak

    def __deepcopy__(self, memo: dict[int, object]) -> Self:
        return self

    def __reduce__(self) -> NoReturn:
        raise PrivacyError(
            "Expected to stay in one process, got pickled: what is charged to a copy is lost. Use n_jobs=1, or save() "
            "and load() one after the other. To pickle an estimator, set its accountant to None first."
        )

    def _write(self, place: Path, charged: Charged) -> None:
        """Write these charges to the file, then take them over. If the file cannot be written, nothing is charged."""
        json_file.write(place, charged)
        self._charged = charged
        self._on_disk[place] = len(charged.events)

    def _take_in(self, place: Path) -> None:
        """Take over what others have charged to this accountant's file; refuses one that lacks any of its own."""
        there = json_file.read(place)
        if not there.begins_with(self._charged):
            raise PrivacyError(
                f"Expected path={str(place)!r} to hold all that was charged to it, got {there}, which lacks some of "
                f"the {len(self)} events that this accountant knows of, or has other limits. What was spent stays "
                "spent: put the newest file back."
            )
        self._charged = there

    def _expect_forerunner(self, place: Path) -> None:
        """Refuse to overwrite a file that is not an earlier state of this accountant.

        It is not enough that its events are the first ones here: somebody else may have charged an equal event.
        """
        there, known = json_file.read(place), self._on_disk.get(place, 0)
        if len(there.events) > known or not self._charged.begins_with(there):
            raise PrivacyError(
                f"Expected path={str(place)!r} to hold an earlier state of this accountant, got {there}, with events "
                "or limits that this one does not have. Somebody else has spent, or it is another data set's. Load "
                "that file and spend from there, or save elsewhere."
            )


_INNERMOST: ContextVar[tuple[BudgetAccountant, ...]] = ContextVar("_INNERMOST", default=())
_OPEN: list[BudgetAccountant] = []
_OPEN_LOCK = Lock()
