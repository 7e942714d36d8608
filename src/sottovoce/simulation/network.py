"""A model of lines and machines that predicts, from public numbers, how long a run takes on a real network.

Each site is a machine with one line to the message server. In a round a site

    computes        `compute` seconds times m_i / (mean m) over its speed, while it is not away
    sends           one message, which its line carries in B / bandwidth seconds
    receives        its neighbours' messages, `latency` seconds later, one after the other: its line carries each in
                    B / bandwidth seconds, in the order in which they arrive
    goes on         when it has received them all. It waits for its neighbours only

so with a_1 <= ... <= a_q the times at which the q messages arrive and s = B / bandwidth, it goes on at

    max_j a_j + (q - j + 1) s,      and not before its own message is sent.

Lines are equally fast in both directions, and carry both at once. B is eight bytes a number plus `overhead` bytes a
message. If all sites are alike, a round on a graph of degree q takes compute + s + latency + q s.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple, final

import numpy as np

from sottovoce.arrays import Floats, Ints
from sottovoce.errors import expect
from sottovoce.problem.graphs import CompleteGraph, EdgeGraph, Graph

BYTES = 8  # of a number
MOST_OVERHEAD = 10**12  # bytes of a message


class Trace(NamedTuple):
    """Speed, bandwidth and absences of one site, where they differ from the network's."""

    speed: float = 1.0  # of its machine, relative to that of others
    bandwidth: float | None = None  # of its line, in bits a second; None: the network's
    away: tuple[tuple[float, float], ...] = ()  # spans (first, last second) in which it computes nothing


@final
@dataclass(frozen=True)
class NetworkModel:
    """Latency, bandwidth and speed of the sites' lines and machines.

    Args:
        latency: seconds from one site to another.
        bandwidth: of a site's line, in bits a second, each way.
        compute: seconds that a round takes a site with as many rows as the mean, at speed 1.
        overhead: bytes of a message besides its numbers.
        traces: the sites that differ from the others, by node.
    """

    latency: float
    bandwidth: float
    compute: float = 0.0
    overhead: int = 0
    traces: tuple[tuple[int, Trace], ...] = ()

    def __post_init__(self) -> None:
        expect(0 <= self.latency < np.inf, "a finite latency >= 0 s", latency=self.latency)
        expect(self.bandwidth > 0, "bandwidth > 0 bit", bandwidth=self.bandwidth)
        expect(0 <= self.compute < np.inf, "a finite compute >= 0 s", compute=self.compute)
        fine = 0 <= self.overhead <= MOST_OVERHEAD
        expect(fine, f"a whole number of bytes for overhead, at most {MOST_OVERHEAD:,}", overhead=self.overhead)
        for node, trace in self.traces:
            expect(trace.speed > 0, f"speed > 0 of node {node}", speed=trace.speed)
            expect(
                trace.bandwidth is None or trace.bandwidth > 0, f"bandwidth > 0 of node {node}", came=trace.bandwidth
            )
            ends = [0.0, *(end for span in trace.away for end in span)]
            rising = all(a <= b for a, b in pairwise(ends))
            expect(rising, f"spans of time in rising order for away of node {node}", away=trace.away)

    @property
    def words(self) -> str:
        """One line for people on latency, bandwidth and compute."""
        special = f", {len(self.traces)} sites of their own kind" if self.traces else ""
        return f"{self.latency * 1e3:g} ms, {self.bandwidth / 1e6:g} Mbit/s, {self.compute:g} s a round{special}"

    def expect_nodes(self, n: int) -> None:
        """Refuse traces of nodes that a network of n nodes does not have."""
        strange = next((node for node, _ in self.traces if not 0 <= node < n), None)
        expect(strange is None, f"sites among the nodes 0 .. {n - 1} of the graph", node=strange)

    def ends(self, graph: Graph, counts: Ints, numbers: Sequence[int]) -> Floats:
        """The times at which the last site has received all messages of each round, in seconds: (rounds,).

        Args:
            graph: the network.
            counts: m_i of every site.
            numbers: how many numbers a message of each round holds.
        """
        self.expect_nodes(graph.n)
        n, known = graph.n, dict(self.traces)
        traces = [known.get(node, _USUAL) for node in range(n)]
        work = self.compute * counts / counts.mean() / np.array([trace.speed for trace in traces])
        line = np.array([self.bandwidth if trace.bandwidth is None else trace.bandwidth for trace in traces])
        away = {node: trace.away for node, trace in self.traces if trace.away}
        now, found = np.zeros(n), []
        for count in numbers:
            carried = 8 * (BYTES * count + self.overhead) / line
            done = now + work
            for node, spans in away.items():
                done[node] = _end_of_work(now[node], work[node], spans)
            sent = done + carried
            now = np.maximum(sent, _times_received(graph, sent + self.latency, carried))
            found.append(float(now.max()))
        return np.array(found)


_USUAL = Trace()


def _end_of_work(start: float, work: float, spans: tuple[tuple[float, float], ...]) -> float:
    """The time at which `work` seconds of work end that begin at `start` and pause while the site is away."""
    for first, last in spans:
        if start >= last:
            continue
        if start + work <= first:
            break
        work -= max(0.0, first - start)
        start = last
    return start + work


def _times_received(graph: Graph, arrive: Floats, carried: Floats) -> Floats:
    """The times at which every node's line has carried all of its neighbours' messages: (nodes,).

    Args:
        graph: the network.
        arrive: (nodes,) the times at which the message of each node arrives at its neighbours.
        carried: (nodes,) the seconds in which each node's line carries a message.
    """
    if isinstance(graph, CompleteGraph):
        return _times_received_from_all(arrive, carried)
    assert isinstance(graph, EdgeGraph)
    links, degrees = graph.adjacency, graph.degrees
    times, row = arrive[links.indices], np.repeat(np.arange(graph.n), degrees)
    order = np.lexsort((times, row))  # node by node, the earliest first
    left = np.repeat(links.indptr[1:], degrees) - np.arange(len(times))  # messages that are not carried yet
    ends = times[order] + left * carried[row]
    received = np.zeros(graph.n)
    some = degrees > 0
    received[some] = np.maximum.reduceat(ends, links.indptr[:-1][some]) if some.any() else 0.0
    return received


def _times_received_from_all(arrive: Floats, carried: Floats) -> Floats:
    """`_times_received` for the complete graph: all messages are sorted once, and each node skips its own."""
    n = len(arrive)
    order = np.argsort(arrive, kind="stable")
    place = np.empty(n, dtype=np.int64)
    place[order] = np.arange(n)
    received = np.empty(n)
    for s in np.unique(carried):  # lines are of few kinds
        before = np.maximum.accumulate(arrive[order] + (n - 1 - np.arange(n)) * s)
        after = np.maximum.accumulate((arrive[order] + (n - np.arange(n)) * s)[::-1])[::-1]
        alike = np.flatnonzero(carried == s)
        p = place[alike]
        early = np.where(p > 0, before[p - 1], 0.0)
        received[alike] = np.maximum(early, np.where(p + 1 < n, after[np.minimum(p + 1, n - 1)], 0.0))
    return received
