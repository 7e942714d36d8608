"""Digests of what a run rests on, by which processes find out whether they were given the same.

They are compared within one run of one program: no format is promised.
"""

import hashlib
import re
from collections.abc import Iterator
from typing import Any

import numpy as np

from sottovoce.problem.graphs import EdgeGraph, Graph
from sottovoce.problem.sites import Sites

_AT_ONCE = 2**16  # rows or nodes
_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")  # of an object without a text of its own: each process has another


def digest(value: object) -> bytes:
    """16 bytes that identify a graph, rows, an array, or anything else by its `repr`, such as a dataclass."""
    code = hashlib.blake2b(digest_size=16)
    for part in _parts(value):
        code.update(len(part).to_bytes(8, "little"))  # so that no two lists of parts have the same bytes
        code.update(part)
    return code.digest()


def _parts(value: object) -> Iterator[bytes]:
    if isinstance(value, Graph):
        yield from _graph(value)
    elif isinstance(value, Sites):
        yield from _rows(value)
    elif isinstance(value, np.ndarray):
        yield from _array(value)
    else:
        yield _ADDRESS.sub("", repr(value)).encode()


def _array(array: "np.ndarray[Any, Any]") -> Iterator[bytes]:
    # Sparse matrices have short or long indices, whichever fits.
    same = array.astype(np.int64, copy=False) if array.dtype.kind in "iu" else array
    yield f"{same.dtype.str} {same.shape}".encode()
    yield same.tobytes()


def _graph(graph: Graph) -> Iterator[bytes]:
    """All edges, some nodes at a time: a graph by a rule need not fit into memory."""
    yield f"{type(graph).__name__} {graph.n}".encode()
    if isinstance(graph, EdgeGraph):
        for first in range(0, graph.n, _AT_ONCE):
            links = graph.links(first, min(first + _AT_ONCE, graph.n))
            yield from _array(links.indptr)
            yield from _array(links.indices)


def _rows(sites: Sites) -> Iterator[bytes]:
    """All numbers that gradients are made of, bit by bit."""
    factors = [array for array in (sites.factors.weights, sites.factors.shifts) if array is not None]
    for array in (sites.rows.offsets, sites.labels, *factors):
        yield from _array(array)
    for first in range(0, len(sites.labels), _AT_ONCE):
        block: Any = sites.rows.block(first, min(first + _AT_ONCE, len(sites.labels)))
        dense = isinstance(block, np.ndarray)
        for array in (block,) if dense else (block.data, block.indices, block.indptr):
            yield from _array(array)
