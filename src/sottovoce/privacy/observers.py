"""Who looks on, and what they can see.

Where every site adds noise of its own, all observers see the same price. Where only sums over sites are ever opened,
those who know some sites' shares of the noise see less of it: of u shares that a sum holds at least, k colluding sites
leave max(1, u - k), since a site always knows that its own share is there. docs/proofs/masked.md says why.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from itertools import combinations, pairwise
from math import comb, inf, isfinite
from typing import TYPE_CHECKING, Any, final

from sottovoce.errors import InputError, UnsupportedError, expect
from sottovoce.privacy.accounting.accountant import epsilon as price
from sottovoce.privacy.events import Event, Gaussian, NonPrivate, Repeated, Sequence
from sottovoce.settings import read

if TYPE_CHECKING:
    import networkx as nx

MOST_LINES = 100_000  # of a stranger's table
NONE = "none"  # in place of an infinite epsilon, where people read it
_STEPS = 100  # towards an epsilon that leaves room for a grid; three are enough unless there is next to none
_MOST_CUTS = 200_000  # sets of sites that are looked at one by one; beyond, the worst is assumed


@final
@dataclass(frozen=True)
class Observer:
    """Whoever carries the messages, together with `colluding` sites that tell it all they know."""

    colluding: int = 0

    def __post_init__(self) -> None:
        expect(self.colluding >= 0, "colluding >= 0 sites", colluding=self.colluding)


def against(colluding: int | None) -> str:
    """Against whom a price holds, as the end of a sentence; nothing for one that holds against everybody."""
    return "" if colluding is None else f" against at most {colluding} colluding site{'' if colluding == 1 else 's'}"


def assumed(n: int) -> int:
    """c, how many of n sites collude where nobody says it: fewer than half, but at least one if there is another."""
    return max((n - 1) // 2, min(1, n - 1))


def expect_members(n: int, c: int, u: int) -> None:
    """Refuse numbers of sites, of colluding ones and of those in a sum with which no sum is safe."""
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


# The weakest one that anybody must reckon with: it carries all messages, and no site helps it.
RELAY = Observer()


@final
@dataclass(frozen=True)
class Sight:
    """One line of a table: what holds against so many colluding sites and the relay.

    `noise` is what is left of the noise, as a factor of every noise multiplier in the statement's event. A line holds
    for all that collude less, too.
    """

    colluding: int
    noise: float
    epsilon: float

    def to_dict(self) -> dict[str, object]:
        """The fields; an infinite epsilon is null."""
        shown = self.epsilon if isfinite(self.epsilon) else None
        return {"colluding": self.colluding, "noise": self.noise, "epsilon": shown}

    @classmethod
    def from_dict(cls, data: Any, event: Event, delta: float) -> "Sight":
        """The inverse, for data from a stranger: refused where it claims less than the event costs."""
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


def shares_left(shares: int, colluding: int) -> int:
    """How many shares of the noise in a sum of at least `shares` such sites do not know: never none, since an honest
    site's own share is in every sum that its rows are in.
    """
    expect(shares >= 1, "at least one share of noise", shares=shares)
    return max(1, shares - colluding)


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
    """Epsilon against those who see only so much of the noise."""
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
        found = needed * (1 + 2.0**-40)  # a little further, so that rounding does not go on for ever
    return replace(line, epsilon=inf)


def smallest_part(keys: "nx.Graph[Any]", gone: int) -> int:
    """The size of the smallest group of sites that can be cut off from all others in a graph of keys, if any `gone`
    sites collude or fall silent: a sum over that group alone can then be opened, and holds no more shares than that.

    Where nothing can be cut off, it is all that are left. Where there are too many sets of sites to look at, it is 1:
    the worst, and never too much.
    """
    import networkx as nx

    n = keys.number_of_nodes()
    expect(0 <= gone < n, f"0 <= gone < {n} sites", gone=gone)
    if gone < n - 1 and (gone == 0 or nx.node_connectivity(keys) > gone):
        return n - gone if nx.is_connected(keys) else min(map(len, nx.connected_components(keys)))
    if comb(n, gone) > _MOST_CUTS:
        return 1
    return min(_parts(keys, combinations(list(keys), gone)))


def _parts(keys: "nx.Graph[Any]", cuts: Iterable[tuple[Any, ...]]) -> Iterable[int]:
    """The size of the smallest group that each cut leaves."""
    import networkx as nx

    for cut in cuts:
        left = keys.copy()
        left.remove_nodes_from(cut)
        yield min(map(len, nx.connected_components(left)))
