"""The entries of a ledger: their kinds, and the JSON of each kind's body.

    reserve      one round, and what it is booked as
    released     the one message that a round may send
    note         a remark of people
    cap          from here on another cap holds, signed by whoever may raise it
    caught up    what others have seen of a ledger of the same rows, and this one lacked

How entries are chained and kept is in `chain`, what they add up to in `booked`.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import inf, isfinite
from typing import NamedTuple

from sottovoce.errors import expect
from sottovoce.privacy.books.account import Account, Record
from sottovoce.privacy.books.book import Assumed, Cost, Limit
from sottovoce.privacy.events import Event
from sottovoce.privacy.parsing import event_from_dict
from sottovoce.privacy.unit import Unit
from sottovoce.settings import plain, written

RESERVE, RELEASED, NOTE, CAP, CAUGHT_UP = "reserve", "released", "note", "cap", "caught up"


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


class CaughtUp(NamedTuple):
    """What others had seen of a ledger, as far as this one lacked it.

    Args:
        height: of that ledger.
        first: the divergence of its first round.
        limit: its cap, under which the records were priced.
        records: of its runs, those that were lacking.
    """

    height: int
    first: float
    limit: Limit
    records: tuple[Record, ...]


# -- a round ----------------------------------------------------------------------------------------------------------


def checked_cost(run: str, round_: int, event: Event, divergence: float, assumed: Assumed | None = None) -> Cost:
    """The cost of one round, if run, round and cost can be booked at all."""
    expect_text(run=run)
    expect(type(round_) is int and round_ >= 1, "a round from 1", round=round_)
    expect(divergence >= 0 and isfinite(divergence), "a finite divergence >= 0", divergence=divergence)
    return _written(event, divergence, assumed)


def expect_text(**texts: object) -> None:
    """Refuse names that would not stand on one line of a list."""
    for name, text in texts.items():
        good = isinstance(text, str) and 0 < len(text) <= 200 and text.isprintable()
        expect(good, "1 to 200 printable characters", **{name: text})


@lru_cache(maxsize=256)
def _written(event: Event, divergence: float, assumed: Assumed | None) -> Cost:
    """The cost, as it is read again after it was written; refuses events that do not come back equal."""
    cost = cost_of(json.dumps(plain(Cost(event, float(divergence), assumed)), allow_nan=False))
    expect(cost.event == event, "an event that can be read again as it was written", event=event)
    return cost


# Entries that rest on nothing look as they always did.
written(Cost, ..., absent=(None,))


@lru_cache(maxsize=256)
def cost_of(body: str) -> Cost:
    """The cost that an entry's body states; refuses assumptions that are no whole numbers >= 0."""
    data = json.loads(body)
    assumed = None if data.get("assumed") is None else Assumed(**data["assumed"])
    if assumed is not None and not (type(assumed.colluding) is type(assumed.least_sites) is int and min(assumed) >= 0):
        raise ValueError(f"assumed={assumed!r}")
    return Cost(event_from_dict(data["event"]), data["divergence"], assumed)


# -- what others have seen --------------------------------------------------------------------------------------------


def caught_body(account: Account, height: int, missing: Sequence[Record]) -> dict[str, object]:
    """What an entry says of another ledger's account: its book, and the records that are booked here."""
    book = {
        "epsilon": account.epsilon, "delta": account.delta, "order": account.order or None, "unit": account.unit.words,
    }  # fmt: skip
    runs = [record._asdict() | {"run": record.run.hex()} for record in missing]
    # A weight that is everything is infinite, and written as null.
    body: dict[str, object] = plain({"height": height, "first": account.first, "book": book, "runs": runs})
    return body


def caught_of(body: str, here: Limit) -> CaughtUp:
    """What such an entry states. The oldest entries do not state a unit; theirs is that of this ledger."""
    data = json.loads(body)
    book = data["book"]
    unit = Unit.named(book["unit"]) if "unit" in book else here.unit
    limit = Limit(book["epsilon"], book["delta"], book["order"], unit)
    records = []
    for run in data["runs"]:
        weight = inf if run["weight"] is None else float(run["weight"])
        if not (weight >= 0 and run["divergence"] >= 0):
            raise ValueError("a record below zero")
        records.append(Record(**run | {"run": bytes.fromhex(run["run"]), "weight": weight}))
    return CaughtUp(int(data["height"]), float(data["first"]), limit, tuple(records))
