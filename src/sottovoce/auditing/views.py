"""What an observer sees of a run, recorded round by round while the engine makes it.

    messages   all that all sites send: what the neighbours, or whoever carries the messages, see together; with a head
               start, the moments of every site are the first of them
    average    nothing but the mean over sites of each round's messages: what a trusted curator publishes
    sums       the opened sums of masked messages, less what k colluding sites know of them
    model      the final consensus alone, as whoever gets the model sees it

An audit reads nothing else: a score is a function of what is recorded here.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, final, get_args

import numpy as np

from sottovoce.algorithms.base import Method, Network, Round
from sottovoce.algorithms.computation import OWN_NOISE, View, Way
from sottovoce.arrays import Array, Floats, Ints
from sottovoce.errors import UnsupportedError, expect
from sottovoce.noise.sources import Noise
from sottovoce.oracle.loss_sums import DOUBLE
from sottovoce.oracle.plain import Oracle
from sottovoce.privacy import Event, PrivacyStatement
from sottovoce.privacy.observers import RELAY, Observer
from sottovoce.problem.graphs import Graph, Inbox
from sottovoce.problem.sites import Sites
from sottovoce.sums.opening import Curator, Opener, Shares
from sottovoce.sums.program import Opened, Question

VIEWS: tuple[View, ...] = get_args(View)


def check_view(view: View, method: Method) -> None:
    """Refuse a view that the method's claim is not about: its bound would say nothing of the claim."""
    expect(view in VIEWS, f"a view among {', '.join(VIEWS)}", view=view)
    usual, name = method.view, type(method).__name__
    if view not in ("model", usual) and not (view == "average" and usual == "messages"):
        raise UnsupportedError(
            f"Expected view={usual!r} or 'model' for {name}, got view={view!r}: its guarantee covers no other view."
        )


@final
@dataclass(frozen=True, kw_only=True)
class Watched(Method):
    """Plays a method unchanged, and records every round as an observer sees it.

    Args:
        inner: the method.
        seen_as: what is seen.
        colluding: of masked sums, k: that many of the last sites tell all they know.
        to_host: from the device's memory.
    """

    way: ClassVar[Way] = OWN_NOISE  # of no consequence: rounds are recorded in one process

    inner: Method
    seen_as: View
    colluding: int = 0
    to_host: Callable[[Array], Array]
    seen: list[Floats] = field(default_factory=list)  # one (runs, numbers) a round
    opened: list[Floats] = field(default_factory=list)  # of masked sums, the same with what colluding sites know

    @classmethod
    def over(cls, inner: Method, view: View, colluding: int, to_host: Callable[[Array], Array]) -> "Watched":
        """Wrap a method, with its own number of rounds and its own loss."""
        return cls(
            rounds=inner.rounds, loss=inner.loss, inner=inner, seen_as=view, colluding=colluding, to_host=to_host
        )

    def transcript(self) -> Floats:
        """All that was seen: (runs, numbers)."""
        return np.concatenate(self.seen, axis=1)

    def sums(self) -> Floats:
        """Of masked sums, all that were opened: (runs, numbers)."""
        return np.concatenate(self.opened, axis=1)

    def play(self, site: Oracle, runs: int, network: Network, noise: Noise) -> Iterator[Round]:
        """Play the method on a network whose messages or sums are recorded."""
        return self._play(self.inner.play(site, runs, _Recording(network, self), noise))

    def _play(self, rounds: Iterator[Round]) -> Iterator[Round]:
        last = None
        for last in rounds:
            yield last
        if self.seen_as == "model" and last is not None:
            self.seen.append(self.note(last.outputs().last.mean(axis=0, keepdims=True)))

    def saw(self, messages: Array) -> None:
        """Record what all nodes send at a time, (nodes, numbers, runs), as far as it is seen."""
        if self.seen_as == "messages":
            self.seen.append(self.note(messages))
        elif self.seen_as == "average":
            self.seen.append(self.note(messages.mean(axis=0, keepdims=True)))

    def note(self, message: Array) -> Floats:
        """A message (nodes, d, runs) of the device as (runs, nodes d) on the host."""
        here = np.asarray(self.to_host(message), dtype=np.float64)
        return np.ascontiguousarray(here.reshape(-1, here.shape[2]).T)

    # -- all else is the method's -------------------------------------------------------------------------------------

    def oracle(
        self, sites: Sites, graph: Graph, kind: type[Oracle] = Oracle, dtype: np.dtype[Any] = DOUBLE, *apart: Any,
        **named: Any,
    ) -> Oracle:  # fmt: skip
        return self.inner.oracle(sites, graph, kind, dtype, *apart, **named)

    def importances(self, counts: Ints | Any) -> Floats | None:
        return self.inner.importances(counts)

    def cost(self, k: int, site: Oracle, observer: Observer = RELAY) -> Event:
        return self.inner.cost(k, site, observer)

    def spent(self, k: int, site: Oracle, runs: int = 1) -> float:
        return self.inner.spent(k, site, runs)

    def statement(self, site: Oracle) -> PrivacyStatement:
        return self.inner.statement(site)


@final
class _Recording(Network):
    """A network that records what passes through it."""

    def __init__(self, network: Network, watched: Watched) -> None:
        self.network, self.watched = network, watched

    def heard(self, messages: Array) -> Inbox:
        self.watched.saw(messages)
        return self.network.heard(messages)

    def opener(self, shares: Shares, site: Oracle, counts: Sequence[int], noise: Noise, runs: int) -> Opener:
        if self.watched.seen_as == "model":
            return self.network.opener(shares, site, counts, noise, runs)
        return _SiteBySite(shares, site, counts, noise, runs, self.watched)


@final
class _SiteBySite(Opener):
    """Opens the sum of all sites' messages. Of masked ones it records the sum without those of the last `colluding`
    sites, which know theirs; else what is seen of the messages.

    Every site makes its own message, as a real one does, with its own share of the noise. Masks cancel in the sum,
    so none is made here: that they cancel and hide is tested where they are made.
    """

    def __init__(
        self, shares: Shares, site: Oracle, counts: Sequence[int], noise: Noise, runs: int, watched: Watched
    ) -> None:
        self.sites = [
            Curator(shares, alone, counts, OfNode(noise, i), runs) for i, alone in enumerate(one_by_one(site))
        ]
        self.watched = watched

    def open(self, k: int, question: Question[Any]) -> Opened:
        said = [site.open(k, question) for site in self.sites]
        values = np.stack([one.value for one in said])
        opened: Floats = np.sum(values, axis=0)
        self.watched.saw(values)
        if self.watched.seen_as == "sums":
            left: Floats = np.sum(values[: len(values) - self.watched.colluding], axis=0)
            self.watched.seen.append(np.ascontiguousarray(left.T))
            self.watched.opened.append(np.ascontiguousarray(opened.T))
        return said[0]._replace(value=opened, std=said[0].std * len(said) ** 0.5)


@final
class OfNode(Noise):
    """One node's part of a source of noise for all nodes."""

    def __init__(self, whole: Noise, node: int) -> None:
        self.whole, self.node = whole, node

    def normals(self, k: int, r: int) -> Array:
        return self.whole.normals(k, r)[self.node : self.node + 1]

    def draws(self, k: int, r: int, offsets: Ints, batch: int, scheme: str) -> Array:  # noqa: ARG002
        raise UnsupportedError("Expected all rows, got a batch: masked sums draw none. Leave batch_size out.")


def one_by_one(site: Oracle) -> list[Oracle]:
    """One oracle for each node, as if it were a site of its own."""
    rows, labels, offsets = site.sites.rows, site.sites.labels, site.sites.rows.offsets
    alone = []
    for i, (first, last) in enumerate(zip(offsets[:-1].tolist(), offsets[1:].tolist(), strict=True)):
        held = Sites([rows.block(first, last)], [labels[first:last]], data_norm=site.sites.data_norm,
                     private=site.sites.private, factors=[site.sites.factors[first:last]])  # fmt: skip
        importances = site.importance[i : i + 1, 0, 0]
        alone.append(
            type(site)(held, site.n, site.loss, site.degrees[i : i + 1], site.regulariser, site.lam, importances,
                       max_grad_norm=site.max_grad_norm, dtype=site.dtype)
        )  # fmt: skip
    return alone
