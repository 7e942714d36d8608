"""Observers: who sees the messages, and how much of the noise they know.

Where every site adds noise of its own, all observers see the same price. Where only sums over sites are ever opened,
those who know some sites' shares of the noise see less of it: of u shares that a sum holds at least, k colluding sites
leave max(1, u - k), since a site always knows that its own share is there. Where not every two sites share a key, so
many may also cut a group of them off from the rest, whose sum then opens by itself. docs/proofs/masked.md says why.
"""

from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import pairwise
from math import inf, isfinite
from typing import Any, final

from sottovoce.errors import InputError, UnsupportedError, expect
from sottovoce.privacy.accounting.accountant import epsilon as price
from sottovoce.privacy.events import Event, Gaussian, NonPrivate, Repeated, Sequence
from sottovoce.settings import read

MOST_SITES = 10**9
MOST_LINES = 100_000  # of a stranger's table
_ALL_LINES = 1000  # sites up to which a table has a line for every number of them
_SOME_LINES = 200  # of more sites
NONE = "none"  # in place of an infinite epsilon, where people read it
_STEPS = 100  # towards an epsilon that leaves room for a grid; three are enough unless there is next to none
# Sites up to which every two share a key; an even number. Above, each shares one with so many others, or with more
# where that is needed: a mask for each of them goes into every message.
MOST_COMPLETE = 200


@final
@dataclass(frozen=True)
class Observer:
    """Whoever carries the messages, together with `colluding` sites that share all they know."""

    colluding: int = 0

    def __post_init__(self) -> None:
        expect(self.colluding >= 0, "colluding >= 0 sites", colluding=self.colluding)


def against(colluding: int | None) -> str:
    """Against whom a price holds, as the end of a sentence; empty if it holds against everybody."""
    return "" if colluding is None else f" against at most {colluding} colluding site{'' if colluding == 1 else 's'}"


def assumed(n: int) -> int:
    """The default number c of colluding sites among n: fewer than half, but at least one if there is another site."""
    return max((n - 1) // 2, min(1, n - 1))


def expect_members(n: int, c: int, u: int) -> None:
    """Refuse numbers of sites n, of colluding sites c and of sites in a sum u with which no sum is safe."""
    for safe, expected, advice, came in (
        (u <= n, f"least_sites <= n={n} sites", "Name at most as many as there are", f"least_sites={u}"),
        (c < u, f"colluding < least_sites={u}", "Some honest site must be in every sum", f"colluding={c}"),
        (
            2 * u > n + c, f"2 least_sites > n + colluding = {n + c}",
            "Else two sums of one release could be opened, over different sites: raise least_sites", f"least_sites={u}",
        ),
    ):  # fmt: skip
        if not safe:
            raise InputError(f"Expected {expected}, got {came}. {advice}.")


# The weakest observer of all runs: it carries all messages, and no site helps it.
RELAY = Observer()


@final
@dataclass(frozen=True)
class Sight:
    """One line of a statement's table: the epsilon against the message server and so many colluding sites.

    `noise` is what is left of the noise, as a factor of every noise multiplier in the statement's event. A line holds
    for all that collude less, too.
    """

    colluding: int
    noise: float
    epsilon: float

    @classmethod
    def from_dict(cls, data: Any, event: Event, delta: float) -> "Sight":
        """The inverse of `settings.plain`, for a stranger's data: an epsilon below what the event costs is refused."""
        table = data if isinstance(data, dict) else {"observers": data}
        line = read(
            cls, table | {"epsilon": inf} if table.get("epsilon", 0) is None else table, "an observer", finite=False
        )
        k = line.colluding
        expect(k >= 0, "colluding >= 0", colluding=k)
        expect(0 < line.noise < inf, "a finite noise > 0", noise=line.noise)
        cost = seen(event, line.noise, delta)
        honest = line.epsilon >= cost * (1 - 1e-9)
        expect(honest, f"an epsilon of at least {cost:.6g} against {k} colluding sites", epsilon=line.epsilon)
        return line


def check_table(lines: tuple[Sight, ...]) -> None:
    """Refuse a stranger's table that no run can have: who collude more know more of the noise, and the event's own
    noise is what is left of it in one of the lines. In a table of one line, that is the line.
    """
    numbers, noises = [line.colluding for line in lines], [line.noise for line in lines]
    rising = all(a < b for a, b in pairwise(numbers))
    expect(rising, "observers in the order of colluding sites, each number once", colluding=numbers[:20])
    falling = all(a >= b for a, b in pairwise(noises))
    expect(falling, "observers that see no more noise than those who collude less", noise=noises[:20])
    expect(not lines or 1.0 in noises, "an observer who sees the event's own noise, noise=1", noise=noises[:20])


def table_of(sites: int, event: Event, delta: float, noise: Callable[[int], float]) -> tuple[Sight, ...]:
    """The lines for 0, 1, .. n - 1 colluding sites, in this order; of many sites, for some of these numbers.

    Among them are the two between which the noise falls below the event's own, and the two from which on all of it but
    one share is known: where sites can be cut off from a sum, it falls there at once.

    Args:
        sites: n.
        event: what is released, with the noise that is left where as many collude as was assumed.
        delta: of the statement.
        noise: what is left of the noise against so many, as a factor; it does not rise.
    """
    numbers, last = set(range(min(sites, _ALL_LINES))), sites - 1
    if sites > _ALL_LINES:
        numbers = {j * last // (_SOME_LINES - 1) for j in range(_SOME_LINES)}
        fallen = bisect_left(range(sites), True, key=lambda k: noise(k) < 1)
        known = bisect_left(range(sites), True, key=lambda k: noise(k) <= noise(last))
        numbers |= {k for first in (fallen, known) for k in (first - 1, first) if 0 <= k <= last}
    return tuple(Sight(k, left, seen(event, left, delta)) for k in sorted(numbers) for left in [noise(k)])


def keys_each(sites: int, colluding: int, least: int) -> int:
    """Number of other sites that a site shares a key with, if n sites make sums of at least u, and c collude.

    With all of them, up to `MOST_COMPLETE` sites. Above, with an even number of neighbours on a ring, more than
    c + n - u: so many can collude, or be left out of a sum, without anyone being cut off. It is never fewer than
    `MOST_COMPLETE`, so that more than c may collude before anyone can be.

    Args:
        sites: n.
        colluding: c.
        least: u.
    """
    if sites <= MOST_COMPLETE:
        return sites - 1
    enough = colluding + sites - least + 1
    return min(sites - 1, max(MOST_COMPLETE, enough + enough % 2))


def smallest_part(sites: int, keys: int, gone: int) -> int:
    """The least number of sites in a sum that can be opened, if any `gone` of them collude or are left out, and each
    shares keys with the `keys` nearest on a ring. It is exact, for the worst choice of who is gone.

    As long as fewer are gone than have keys with one site, nobody can be cut off, and all that are left are in it. All
    who have keys with one site cut it off alone. At least 1: an honest site's own share is in every sum that its rows
    are in.
    """
    expect(0 <= keys < sites, f"0 <= keys < {sites} sites", keys=keys)
    expect(gone >= 0, "gone >= 0 sites", gone=gone)
    return max(1, sites - gone) if gone < keys or keys == sites - 1 else 1


def shares_left(sites: int, colluding: int, least: int, k: int) -> int:
    """The least number of shares of the noise in an opened sum that k colluding sites do not know. Keys were made for c
    colluding sites, and those who collude also choose who is left out.
    """
    return smallest_part(sites, keys_each(sites, colluding, least), k + sites - least)


def weakened(event: Event, noise: float) -> Event:
    """The same Gaussian releases with every noise multiplier times `noise`."""
    match event:
        case Gaussian(sigma=sigma):
            return Gaussian(sigma * noise)
        case Repeated(event=inner, times=times):
            return Repeated(weakened(inner, noise), times)
        case Sequence(events=events):
            return Sequence(tuple(weakened(inner, noise) for inner in events))
        case NonPrivate():
            return event
    if noise == 1:
        return event
    raise UnsupportedError(
        f"Expected Gaussian releases where an observer knows a part of the noise, got {type(event).__name__}."
    )


def seen(event: Event, noise: float, delta: float) -> float:
    """Epsilon at delta against observers for whom every noise multiplier is `noise` times the event's."""
    if noise == 1 and delta == 0:
        from sottovoce.privacy.accounting.accountant import pure_epsilon

        return pure_epsilon(event)
    return price(weakened(event, noise), delta)


def on_a_grid(line: Sight, event: Event, delta: float, added: Callable[[float], float]) -> Sight:
    """The same line for noise that is drawn on a grid, which costs a part of delta that depends on epsilon itself.

    The result is the least epsilon, up to rounding and never below the line's own, at which the event is private with
    what the grid leaves of delta; infinite where it leaves nothing, since then nothing is promised.

    Args:
        line: for continuous noise.
        event: whose noise the line knows a part of.
        delta: of the whole statement, the grid's part included.
        added: from an epsilon to what the grid adds to delta against this observer; it does not fall.
    """
    found = line.epsilon
    for _ in range(_STEPS):
        left = delta - added(found)
        if not isfinite(found) or left <= 0:
            break
        needed = seen(event, line.noise, left)
        if needed <= found:
            return replace(line, epsilon=found)
        found = needed * (1 + 2.0**-40)  # a little further, so that rounding cannot keep this going
    return replace(line, epsilon=inf)
