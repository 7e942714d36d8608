"""Devices that a simulation can run on. They change its speed, and results by rounding at most."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, Literal, TypeAlias, final

import numpy as np

from sottovoce.algorithms.base import Method
from sottovoce.arrays import Array
from sottovoce.errors import expect
from sottovoce.oracle.cpu import CompiledOracle
from sottovoce.oracle.loss_sums import DOUBLE
from sottovoce.oracle.plain import Oracle
from sottovoce.problem.graphs import CompleteGraph, EdgeGraph, Exchanged, Graph, Inbox
from sottovoce.problem.sites import Sites

DeviceName: TypeAlias = Literal["cpu", "plain", "cuda"]
Precision: TypeAlias = Literal["float64", "float32"]


class Device(ABC):
    """What computes on a device: the oracle, the exchange, and the copy back to host memory."""

    @abstractmethod
    def oracle(self, algorithm: Method, sites: Sites, graph: Graph, dtype: Precision, *apart: Any) -> Oracle:
        """The oracle of the rows and the algorithm's objective on this device. If other processes hold other nodes,
        `apart` is the share and the total of `Method.oracle`; else it is empty.
        """

    def exchange(self, graph: Graph) -> Callable[[Array], Inbox]:
        """The function from all nodes' messages (nodes, d, runs) to their inbox."""
        return graph.exchange

    def to_host(self, array: Array) -> Array:
        """The array in host memory."""
        return array


@final
class Plain(Device):
    """Plain NumPy, the reference that the others are tested against. Double precision only."""

    def oracle(self, algorithm: Method, sites: Sites, graph: Graph, dtype: Precision, *apart: Any) -> Oracle:
        expect(dtype == "float64", "dtype='float64' with device='plain'", dtype=dtype)
        return algorithm.oracle(sites, graph, Oracle, DOUBLE, *apart)


@final
class Cpu(Device):
    """Compiled kernels on all cores."""

    def oracle(self, algorithm: Method, sites: Sites, graph: Graph, dtype: Precision, *apart: Any) -> Oracle:
        return algorithm.oracle(sites, graph, CompiledOracle, np.dtype(dtype), *apart)


@final
class Cuda(Device):
    """A GPU, through CuPy. Everything stays on the card until the end."""

    def oracle(self, algorithm: Method, sites: Sites, graph: Graph, dtype: Precision, *apart: Any) -> Oracle:
        from sottovoce.oracle.cuda import CudaOracle, cupy

        expect(not apart, "device='cpu' or 'plain' with engine='mpi'", device="cuda")
        cupy()  # raises if there is no GPU
        return algorithm.oracle(sites, graph, CudaOracle, np.dtype(dtype))

    def exchange(self, graph: Graph) -> Callable[[Array], Inbox]:
        from sottovoce.oracle.cuda import cupy

        cupy()  # raises if there is no GPU
        if isinstance(graph, CompleteGraph):
            return graph.exchange
        assert isinstance(graph, EdgeGraph)
        from cupyx.scipy.sparse import csr_matrix

        matrices = {dtype: csr_matrix(graph.adjacency.astype(dtype)) for dtype in (np.float32, np.float64)}

        def neighbour_sum(messages: Array) -> Array:
            sums: Array = matrices[messages.dtype.type] @ messages.reshape(graph.n, -1)
            return sums.reshape(messages.shape)

        return lambda messages: Exchanged(messages, neighbour_sum)

    def to_host(self, array: Array) -> Array:
        from sottovoce.oracle.cuda import cupy

        host: Array = cupy().asnumpy(array)
        return host


_DEVICES: dict[str, Device] = {"cpu": Cpu(), "plain": Plain(), "cuda": Cuda()}


def by_name(name: DeviceName) -> Device:
    """The device of that name; an unknown one is refused."""
    expect(name in _DEVICES, f"a device among {', '.join(_DEVICES)}", device=name)
    return _DEVICES[name]
