"""Digests of a run's inputs, by which processes check that all were given the same.

They are compared within one run of one program only, so their format may change.
"""

import hashlib
import re
from collections.abc import Iterator
from typing import Any

import numpy as np

from sottovoce.problem.graphs import EdgeGraph, Graph
from sottovoce.problem.sites import Sites

_AT_ONCE = 2**16  # rows or nodes that are digested at a time
_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")  # in the default `repr` of an object; it differs between processes


def digest(value: object) -> bytes:
    """16 bytes that identify a graph, rows, an array, or anything else by its `repr`, such as a dataclass."""
    code = hashlib.blake2b(digest_size=16)
    for part in _parts(value):
        code.update(len(part).to_bytes(8, "little"))  # else two lists of parts could have the same bytes
        code.update(part)
    return code.digest()


def _parts(value: object) -> Iterator[bytes]:
    """The bytes that make up a value, some nodes or rows at a time: not all of them need fit into memory."""
    if isinstance(value, Graph):
        yield f"{type(value).__name__} {value.n}".encode()
        if isinstance(value, EdgeGraph):
            for first in range(0, value.n, _AT_ONCE):
                links = value.links(first, min(first + _AT_ONCE, value.n))
                yield from _parts(links.indptr)
                yield from _parts(links.indices)
    elif isinstance(value, Sites):
        factors = [array for array in (value.factors.weights, value.factors.shifts) if array is not None]
        for array in (value.rows.offsets, value.labels, *factors):
            yield from _parts(array)
        for first in range(0, len(value.labels), _AT_ONCE):
            block: Any = value.rows.block(first, min(first + _AT_ONCE, len(value.labels)))
            dense = isinstance(block, np.ndarray)
            for array in (block,) if dense else (block.data, block.indices, block.indptr):
                yield from _parts(array)
    elif isinstance(value, np.ndarray):
        # Sparse matrices have short or long indices, whichever fits.
        same = value.astype(np.int64, copy=False) if value.dtype.kind in "iu" else value
        yield f"{same.dtype.str} {same.shape}".encode()
        yield same.tobytes()
    else:
        yield _ADDRESS.sub("", repr(value)).encode()
