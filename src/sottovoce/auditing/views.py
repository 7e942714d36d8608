"""What an observer gets to see of a run, written down round by round while the engine makes it.

    messages   all that all sites send: what the neighbours, or whoever carries the messages, see together
    average    nothing but the mean over sites of each round's messages: what a trusted curator publishes
    sums       the opened sums of masked messages, less what k colluding sites know of them
    model      the final consensus alone: what whoever is handed the model sees

An audit reads nothing else: a score is a function of what is written down here.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias, final, get_args

import numpy as np

from sottovoce.algorithms.averaged import TrustedCurator
from sottovoce.algorithms.base import Algorithm, Outputs
from sottovoce.algorithms.masked import MaskedNewton
from sottovoce.arrays import Array, Floats, Ints
from sottovoce.errors import UnsupportedError, expect
from sottovoce.noise.sources import Noise
from sottovoce.oracle.plain import DOUBLE, Oracle
from sottovoce.privacy import Event, PrivacyStatement
from sottovoce.privacy.observers import RELAY, Observer
from sottovoce.problem.graphs import Graph, Inbox
from sottovoce.problem.sites import Sites

View: TypeAlias = Literal["messages", "average", "sums", "model"]
VIEWS: tuple[View, ...] = get_args(View)


def usual_view(algorithm: Algorithm[Any]) -> View:
    """The strongest view that the algorithm promises anything about."""
    if isinstance(algorithm, MaskedNewton):
        return "sums"
    return "average" if isinstance(algorithm, TrustedCurator) else "messages"


def check_view(view: View, algorithm: Algorithm[Any]) -> None:
    """Refuse a view that the algorithm's claim is not about: its bound would say nothing of the claim."""
    expect(view in VIEWS, f"a view among {', '.join(VIEWS)}", view=view)
    usual, name = usual_view(algorithm), type(algorithm).__name__
    if view not in ("model", usual) and not (view == "average" and usual == "messages"):
        raise UnsupportedError(
            f"Expected view={usual!r} or 'model' for {name}, got view={view!r}: its claim is about no other."
        )


@final
@dataclass(frozen=True, kw_only=True)
class Watched(Algorithm[Any]):
    """Runs an algorithm unchanged, and records every round as an observer sees it.

    Args:
        inner: the algorithm.
        view: what is seen.
        colluding: of masked sums, k: that many of the last sites tell all they know.
        to_host: from the device's memory.
    """

    inner: Algorithm[Any]
    view: View
    colluding: int = 0
    to_host: Callable[[Array], Array]
    seen: list[Floats] = field(default_factory=list)  # one (runs, numbers) a round
    opened: list[Floats] = field(default_factory=list)  # of masked sums, the same with what colluding sites know

    @classmethod
    def over(cls, inner: Algorithm[Any], view: View, colluding: int, to_host: Callable[[Array], Array]) -> "Watched":
        """Wrap an algorithm, with its own number of rounds and its own loss."""
        return cls(rounds=inner.rounds, loss=inner.loss, inner=inner, view=view, colluding=colluding, to_host=to_host)

    def transcript(self) -> Floats:
        """All that was seen: (runs, numbers)."""
        return np.concatenate(self.seen, axis=1)

    def sums(self) -> Floats:
        """Of masked sums, all that were opened: (runs, numbers)."""
        return np.concatenate(self.opened, axis=1)

    def release(self, k: int, state: Any, site: Oracle, noise: Noise) -> tuple[Array, Any]:
        """Release as the algorithm does, and record what the observer sees of it."""
        if self.view == "sums":
            message, left = self._masked(k, state, site, noise)
            self.seen.append(self._noted(left))
            self.opened.append(self._noted(message))
            return message, state
        message, after = self.inner.release(k, state, site, noise)
        if self.view == "messages":
            self.seen.append(self._noted(message))
        elif self.view == "average":
            self.seen.append(self._noted(message.mean(axis=0, keepdims=True)))
        return message, after

    def outputs(self, k: int, state: Any) -> Outputs:
        """The algorithm's outputs. With view "model", the consensus after the last round is recorded."""
        found = self.inner.outputs(k, state)
        if self.view == "model" and k == self.rounds:
            self.seen.clear()  # asked for by the history first, and then for the result
            self.seen.append(self._noted(found.last.mean(axis=0, keepdims=True)))
        return found

    def _noted(self, message: Array) -> Floats:
        """A message (nodes, d, runs) of the device as (runs, nodes d) on the host."""
        here = np.asarray(self.to_host(message), dtype=np.float64)
        return np.ascontiguousarray(here.reshape(-1, here.shape[2]).T)

    def _masked(self, k: int, state: Any, site: Oracle, noise: Noise) -> tuple[Array, Array]:
        """The opened sum, and what is left of it for those who know the messages of the last `colluding` sites.

        Every site makes its own message, as a real one does, with its own share of the noise. Masks cancel in the sum,
        so none is made here: that they cancel and hide is tested where they are made.
        """
        assert isinstance(self.inner, MaskedNewton)
        one = self.inner.counting(site.sites.counts.tolist())
        parts = [one.release(k, state, alone, OfNode(noise, i))[0] for i, alone in enumerate(one_by_one(site))]
        opened: Array = np.sum(parts, axis=0)
        left: Array = np.sum(parts[: site.n - self.colluding], axis=0)
        return opened, left

    # -- all else is the algorithm's --------------------------------------------------------------------------------

    def oracle(
        self, sites: Sites, graph: Graph, kind: type[Oracle] = Oracle, dtype: np.dtype[Any] = DOUBLE, *apart: Any,
        **named: Any,
    ) -> Oracle:  # fmt: skip
        return self.inner.oracle(sites, graph, kind, dtype, *apart, **named)

    def importances(self, counts: Ints | Any) -> Floats | None:
        return self.inner.importances(counts)

    def start(self, site: Oracle, runs: int) -> Any:
        return self.inner.start(site, runs)

    def absorb(self, k: int, state: Any, site: Oracle, inbox: Inbox) -> Any:
        return self.inner.absorb(k, state, site, inbox)

    @property
    def draws_per_round(self) -> int:
        return self.inner.draws_per_round

    def cost(self, k: int, site: Oracle, observer: Observer = RELAY) -> Event:
        return self.inner.cost(k, site, observer)

    def spent(self, k: int, site: Oracle, runs: int = 1) -> float:
        return self.inner.spent(k, site, runs)

    def statement(self, site: Oracle) -> PrivacyStatement:
        return self.inner.statement(site)


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
            type(site)(held, site.degrees[i : i + 1], site.n, site.loss, site.regulariser, site.lam,
                       site.max_grad_norm, site.dtype, importances)
        )  # fmt: skip
    return alone
