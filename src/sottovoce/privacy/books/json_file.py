"""The JSON file of a budget: all that was charged, in order, with the total, so that a changed list is noticed.

It is written whole or not at all, and changed under a lock, so that several processes take turns. It shows no
tampering: whoever changes the list can change the total with it. A real site keeps a `chain` instead.
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from math import inf, isclose, isfinite
from pathlib import Path
from typing import Any, NoReturn, final

from sottovoce.errors import InputError, UnsupportedError, expect
from sottovoce.privacy.books.book import Book, Cost, Limit
from sottovoce.privacy.events import Event
from sottovoce.privacy.parsing import event_from_dict
from sottovoce.privacy.unit import Unit
from sottovoce.settings import plain, typed
from sottovoce.settings.disk import taking_turns, write_whole

FORMAT = "sottovoce budget"
VERSION = 2  # 1 had no order
LARGEST_FILE = 2**26  # bytes


@final
@dataclass(frozen=True)
class Charged:
    """What a file says: a limit, and all that was charged under it.

    Args:
        limit: what may be charged.
        events: what was, in order.
    """

    limit: Limit
    events: tuple[Event, ...] = ()

    @property
    def book(self) -> Book:
        """The book that prices these charges. Noise in one process is ideal, so none has a divergence."""
        return Book.of(self.limit, map(Cost, self.events))

    def with_(self, event: Event) -> "Charged":
        """The same charges and one more."""
        return Charged(self.limit, (*self.events, event))

    def begins_with(self, other: "Charged") -> bool:
        """True if the other may be an earlier state of this one: it has the same limit, and its charges are the first
        of these.
        """
        return self.limit == other.limit and self.events[: len(other.events)] == other.events

    def price(self) -> float | None:
        """The total, None if it is infinite or unknown: both happen only where nothing is refused."""
        try:
            total = self.book.price()
        except UnsupportedError:
            return None
        return total if isfinite(total) else None

    def __str__(self) -> str:
        return f"epsilon={self.limit.epsilon!r}, delta={self.limit.delta!r}, events={len(self.events)}"


@contextmanager
def changing(place: Path) -> Iterator[None]:
    """Hold the file's lock, so that no other process changes it between reading and writing."""
    try:
        with taking_turns(place):
            yield
    except OSError as error:
        raise InputError(f"Expected to write path={str(place)!r}, got {error}.") from error


def write(place: Path, charged: Charged) -> None:
    """Replace the content of the file. Call it within `changing`."""
    limit = charged.limit
    data = {
        "format": FORMAT,
        "version": VERSION,
        "unit": limit.unit,
        "epsilon": limit.epsilon,
        "delta": limit.delta,
        "order": limit.order,
        "spent": charged.price(),
        "events": charged.events,
    }
    write_whole(place, json.dumps(plain(data), indent=1, allow_nan=False).encode(), 0o600)


def read(place: Path) -> Charged:
    """The content of a file.

    Raises:
        InputError: not all is as it was written, or costs what is written there, or within the limit, or of a kind
            that a book takes. Files of version 1 took any kind at any time.
    """
    data = _fields(place)
    epsilon = inf if data["epsilon"] is None else typed("epsilon", data["epsilon"], float)
    order = None if data["order"] is None or epsilon == inf else typed("order", data["order"], float)
    limit = Limit(epsilon, typed("delta", data["delta"], float), order, Unit.named(data["unit"]))
    charged = Charged(limit, tuple(map(event_from_dict, typed("events", data["events"], tuple[Any, ...]))))
    if not charged.book.knows():
        raise InputError(
            f"Expected plain Gaussian charges after the first in path={str(place)!r}, which was not made for mixtures, "
            "got others, whose total no proof covers. What was spent stays spent: keep the file as a record, and "
            "charge nothing more to these rows."
        )
    real, written = charged.price(), typed("spent", data["spent"], float | None)
    none = real is None or written is None
    expect(
        real is written if none else isclose(real or 0.0, written or 0.0, rel_tol=1e-6, abs_tol=1e-12),
        f"a total of spent={real!r}, which is what the events of path={str(place)!r} cost. Was the file changed?",
        spent=written,
    )
    expect(real is None or real <= epsilon, f"events within the file's epsilon={epsilon!r}", spent=real)
    return charged


def _fields(place: Path) -> dict[str, object]:
    """The fields of the file, refused unless they are just those that it must have. `read` checks their values."""
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
    """The fields of an object; refuses a field that comes twice, since readers would differ on which one counts."""
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("the same key twice")
    return found
