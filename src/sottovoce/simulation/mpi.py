"""A simulation spread over MPI processes: the same engine, and bit by bit the same result.

Every process holds the rows and the state of some consecutive nodes (`problem.share`). In a round it sends its nodes'
messages to the processes that hold their neighbours, and adds up those that its own nodes receive as one process would:
a row of the adjacency matrix at a time, neighbours in rising order. A sum over all nodes is passed from process to
process, each adding its own nodes in order, a few columns at a time so that all are at work. Draws of noise are
functions of a node's number. So no result depends on the number of processes.

A process that fails prints the reason in one line and ends the others, which would wait for it forever.
"""

import sys
import traceback
from collections.abc import Mapping
from functools import cache, cached_property
from time import monotonic, sleep
from types import TracebackType
from typing import Any, TypeVar, final

import numpy as np

from sottovoce.arrays import Array, Floats, Ints
from sottovoce.errors import InputError, SottovoceError
from sottovoce.noise.sources import Counters, Noise
from sottovoce.problem.graphs import CompleteGraph, EdgeGraph, Graph, Inbox
from sottovoce.problem.share import Share, share_bounds
from sottovoce.simulation.digests import digest
from sottovoce.simulation.exchange import Exchange, public_layout

T = TypeVar("T")

_SLAB = 4096  # nodes that are copied at a time to be added up
_SMALL = 2**18  # numbers below which a sum is passed on in one piece
_NOTHING: Array = np.empty(0)  # from processes that only receive
# Seconds that a failing process waits for the news that an earlier one has failed too, and then for the end.
_PATIENCE, _GRACE = 1.0, 20.0


@cache
def world() -> Any:
    """The communicator of all processes; made on first use."""
    try:
        from mpi4py import MPI
    except ImportError as error:
        raise InputError(
            f"Expected mpi4py and an MPI library for engine='mpi', got: {error}. Install them with: pip install "
            "'sottovoce[mpi]'"
        ) from error
    return MPI.COMM_WORLD


def joined() -> Any:
    """The communicator of all processes, for a process that takes part in a run. From now on, if one fails, all end."""
    comm = world()
    if comm.size > 1 and not among_others():
        _alarm()
        sys.excepthook = _hook
        import numba
        from mpi4py import MPI

        # The processes of a machine share its cores.
        processes = comm.Split_type(MPI.COMM_TYPE_SHARED).size
        numba.set_num_threads(max(1, numba.config.NUMBA_NUM_THREADS // processes))
    return comm


def among_others() -> bool:
    """True if this process takes part in a run of several processes."""
    return sys.excepthook is _hook


@cache
def _alarm() -> Any:
    """A communicator for news of failures only. All processes must make it together."""
    return world().Dup()


def fail(message: str, code: int) -> None:
    """Print the message and end all processes with that exit code. If several fail at once, as they do on a fault that
    all find, only the first of them prints.
    """
    alarm = _alarm()
    sent = [alarm.isend(None, dest=later) for later in range(alarm.rank + 1, alarm.size)]
    deadline = monotonic() + (_PATIENCE if alarm.rank else 0.0)
    while monotonic() < deadline and not alarm.iprobe():
        sleep(0.02)
    if alarm.rank and alarm.iprobe():
        sleep(_GRACE)  # time for the earlier one to end all; if it does not, this one does
    else:
        sys.stdout.flush()
        print(message, file=sys.stderr, flush=True)
    alarm.Abort(code)
    del sent


def _hook(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    if isinstance(error, SottovoceError):
        fail(f"sottovoce: error: {' '.join(str(error).split())}", 2)
    fail("".join(traceback.format_exception(kind, error, trace)), 1)


@final
class Ranks(Exchange):
    """Exchange between the MPI processes of one run.

    Args:
        comm: their communicator.
        graph: the network.
        share: the nodes held here.
        alike: True if all nodes hold the same model, and one message stands for the whole network: neither need be sent
            then (`Way.one_model`).
    """

    share: Share

    def __init__(self, comm: Any, graph: Graph, share: Share, alike: bool) -> None:
        self.comm, self.share, self.alike = comm, share, alike
        self.is_first = comm.rank == 0
        self._graph = graph

    @cached_property
    def _halo(self) -> "Halo":
        # All processes make it together, so only after they have checked that they were given the same graph.
        assert isinstance(self._graph, EdgeGraph)  # all graphs but complete ones are
        return Halo(self.comm, self._graph, self.share)

    def heard(self, messages: Array) -> Inbox:
        return _Heard(self, messages)

    def neighbour_sum(self, messages: Array) -> Array:
        """For every node held here the sum of its neighbours' messages."""
        if isinstance(self._graph, CompleteGraph):
            return self._sum_in_order(messages, np.dtype(np.float64)).astype(messages.dtype) - messages
        return self._halo.neighbour_sum(messages)

    def total(self, parts: Array) -> Array:
        return self._sum_in_order(parts, parts.dtype)

    def mean(self, values: Array) -> Array:
        mean: Array = self.total(values) / self.share.n
        return mean

    def consensus(self, models: Array) -> Array:
        if self.alike:  # added up from one model that stands for all, as in one process
            mean: Array = np.broadcast_to(models[:1], (self.share.n, *models.shape[1:])).mean(axis=0)
            return mean
        return self.mean(models)

    def published(self, models: Array) -> Array:
        if models.shape[1] == 1:  # NumPy adds up a single column pairwise, which needs all nodes at once
            everyone: Array = public_layout(self.gather(models)).mean(axis=1)
            return everyone
        return np.ascontiguousarray(self.mean(np.ascontiguousarray(models)).T)

    def chosen(self, models: Array, nodes: Ints) -> Array:
        if self.alike:
            return models[:1]
        here = nodes[(nodes >= self.share.first) & (nodes < self.share.last)] - self.share.first
        return self.gather(models[here])

    def gather(self, parts: Array) -> Array:
        """The arrays of all processes stacked in order, in every process."""
        parts = np.ascontiguousarray(parts)
        counts = self.comm.allgather(len(parts))
        whole = np.empty((sum(counts), *parts.shape[1:]), dtype=parts.dtype)
        unit = _unit(parts)
        self.comm.Allgatherv([parts, len(parts), unit], [whole, counts, unit])
        unit.Free()
        return whole

    def agreed(self, value: T) -> T:
        agreed: T = self.comm.bcast(value, root=0)
        return agreed

    def expect_same(self, facts: Mapping[str, object]) -> None:
        own = {name: digest(fact) for name, fact in facts.items()}
        digests: list[dict[str, bytes]] = self.comm.allgather(own)
        differ = [name for name in own if len({other.get(name) for other in digests}) > 1]
        strange = [rank for rank, other in enumerate(digests) if other != digests[0]]
        if differ:
            raise InputError(
                f"Expected the same run in every process, got another {', another '.join(differ)} in "
                f"{'processes' if len(strange) > 1 else 'process'} {', '.join(map(str, strange[:5]))} than in process "
                "0. Give all of them the same options, and every machine the same files and the same software."
            )

    def either(self, flag: bool) -> bool:
        from mpi4py import MPI

        return bool(self.comm.allreduce(flag, op=MPI.LOR))

    def noise(self, source: Noise) -> Noise:
        return _SharedDraws(self, source)

    def _sum_in_order(self, parts: Array, dtype: np.dtype[Any]) -> Array:
        """The sum over the first axis of all processes' arrays, added up in order as NumPy adds up rows."""
        flat, shape = np.ascontiguousarray(parts).reshape(len(parts), -1), parts.shape[1:]
        if flat.shape[1] < 2:  # NumPy adds up a single column pairwise, in an order that depends on its length
            total: Array = self.gather(flat).sum(axis=0, dtype=dtype).reshape(shape)
            return total
        pieces = 1 if flat.size < _SMALL else min(flat.shape[1] // 2, 4 * self.comm.size)
        carried = [self._pass_on(columns, dtype) for columns in np.array_split(flat, pieces, axis=1)]
        whole = np.concatenate(carried)
        self.comm.Bcast(whole, root=self.comm.size - 1)
        return whole.reshape(shape)

    def _pass_on(self, columns: Array, dtype: np.dtype[Any]) -> Array:
        """The sum from the process before plus the rows here, added one by one; sent to the process after."""
        rank, carry = self.comm.rank, np.empty(columns.shape[1], dtype=dtype)
        if rank > 0:
            self.comm.Recv(carry, source=rank - 1)
        started = rank > 0
        for first in range(0, len(columns), _SLAB):
            slab = columns[first : first + _SLAB]
            rows = np.concatenate([carry[None], slab], dtype=dtype) if started else slab.astype(dtype, copy=False)
            carry, started = np.add.reduce(rows, axis=0), True
        if rank + 1 < self.comm.size:
            self.comm.Send(carry, dest=rank + 1)
        return carry


@final
class _Heard(Inbox):
    """Inbox of the nodes held here: their neighbours' sum, or the sum over all nodes."""

    def __init__(self, ranks: Ranks, messages: Array) -> None:
        self._ranks, self._messages = ranks, messages

    def neighbours(self) -> Array:
        return self._ranks.neighbour_sum(self._messages)

    def everyone(self) -> Array:
        return self._messages if self._ranks.alike else self._ranks.total(self._messages)[None]


@final
class Halo:
    """Exchange of messages with neighbours that other processes hold, and the adjacency matrix's rows of the nodes
    here.

    Edges go both ways, so a process knows from its own edges which messages others need.
    """

    def __init__(self, comm: Any, graph: EdgeGraph, share: Share) -> None:
        links, bounds = graph.links(share.first, share.last), share_bounds(share.n, comm.size)
        columns = links.indices.astype(np.int64)
        away = np.flatnonzero((columns < share.first) | (columns >= share.last))
        theirs = np.unique(columns[away])  # in rising order, so process by process
        self.nodes, self.foreign = share.nodes, len(theirs)
        # Own messages lie first, then those of others. Stored columns stay in the order of nodes, in which a row is
        # added up.
        place = columns - share.first
        place[away] = share.nodes + np.searchsorted(theirs, columns[away])
        shape = (share.nodes, share.nodes + len(theirs))
        self._matrices: dict[Any, Any] = {
            kind: type(links)((links.data.astype(kind), place, links.indptr), shape=shape) for kind in (np.float64,)
        }
        self._receive = np.diff(np.searchsorted(theirs, bounds))
        owners = np.searchsorted(bounds, columns[away], side="right") - 1
        own = np.repeat(np.arange(share.nodes), np.diff(links.indptr))[away]
        pairs = np.unique(np.stack([owners, own]), axis=1)
        self._sent_rows, self._send = pairs[1], np.bincount(pairs[0], minlength=comm.size)
        around = np.flatnonzero(self._receive)
        self._send, self._receive = self._send[around], self._receive[around]
        self._comm = comm.Create_dist_graph_adjacent(around.tolist(), around.tolist())
        self._room: Array = np.empty((0, 0))

    def neighbour_sum(self, messages: Array) -> Array:
        """For every node here the sum of its neighbours' messages, wherever they are."""
        flat = np.ascontiguousarray(messages).reshape(self.nodes, -1)
        if self._room.shape[1:] != flat.shape[1:] or self._room.dtype != flat.dtype:
            self._room = np.empty((self.nodes + self.foreign, flat.shape[1]), dtype=flat.dtype)
        self._room[: self.nodes] = flat
        sent, unit = flat[self._sent_rows], _unit(flat)
        self._comm.Neighbor_alltoallv([sent, self._send, unit], [self._room[self.nodes :], self._receive, unit])
        unit.Free()
        kind = flat.dtype.type
        if kind not in self._matrices:
            self._matrices[kind] = self._matrices[np.float64].astype(kind)
        sums: Array = self._matrices[kind] @ self._room
        return sums.reshape(messages.shape)


@final
class _SharedDraws(Noise):
    """The noise of a process: its own source's, but `shared` draws are those of the first process."""

    def __init__(self, ranks: Ranks, source: Noise) -> None:
        self._ranks, self._source = ranks, source

    def normals(self, k: int, r: int) -> Array:
        return self._source.normals(k, r)

    def shared(self, k: int, r: int) -> Array:
        return self._ranks.agreed(self._source.shared(k, r) if self._ranks.is_first else _NOTHING)

    @property
    def counters(self) -> Counters:
        return self._source.counters

    @property
    def gives_normals(self) -> bool:
        return self._source.gives_normals

    def draws(self, k: int, r: int, offsets: Ints, batch: int, scheme: str) -> Array:
        return self._source.draws(k, r, offsets, batch, scheme)

    def order(self, offsets: Ints) -> Ints:
        return self._source.order(offsets)

    def added(self, gradient: Array, sigma: float, sensitivity: Floats, k: int, r: int) -> Array:
        return self._source.added(gradient, sigma, sensitivity, k, r)


def _unit(rows: Array) -> Any:
    """One row as a datatype of MPI: counts of rows stay small where counts of numbers would not fit."""
    from mpi4py import MPI
    from mpi4py.util.dtlib import from_numpy_dtype

    made = from_numpy_dtype(rows.dtype).Create_contiguous(int(np.prod(rows.shape[1:], dtype=np.int64)))
    assert isinstance(made, MPI.Datatype)
    return made.Commit()
