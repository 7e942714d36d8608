"""Chunks of cells turned into sparse rows that keep the schema's promise on norms.

A chunk of n rows and C columns is first a rectangle (n, C): in every row each column has at most one non-zero feature.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, final

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from sottovoce.arrays import Bools, Floats
from sottovoce.files.schema.cells import Cells
from sottovoce.files.schema.findings import Finding, Findings
from sottovoce.files.schema.schema import Schema

Csr: TypeAlias = "sparse.csr_array[np.float64, tuple[int, int]]"
UNIT = 2.0**-53  # rounding error of one floating-point operation


@final
@dataclass(frozen=True)
class Encoding:
    """The features of one chunk, before rows are dropped."""

    schema: Schema
    place: NDArray[np.int32]  # (rows, columns and intercept), feature of every entry
    value: Floats
    finding: Findings  # (rows, columns)

    @property
    def kept(self) -> Bools:
        """True for each row that no column drops."""
        kept: Bools = ~(self.finding == Finding.DROPPED).any(axis=1)
        return kept

    def rows(self, kept: Bools) -> Csr:
        """The chosen rows as a sparse matrix, each of norm at most `data_norm`."""
        value, place = shorten(self.schema, self.value[kept]), self.place[kept]
        there = value != 0
        ends = np.concatenate([[0], np.cumsum(there.sum(axis=1))]).astype(np.int32)
        return sparse.csr_array((value[there], place[there], ends), shape=(len(value), self.schema.d))


def encode_cells(schema: Schema, cells: Sequence[Cells]) -> Encoding:
    """Encode one chunk; the cells come in the order of the schema's columns."""
    n, width = len(cells[0]), len(schema.columns) + (schema.intercept > 0)
    place = np.empty((n, width), dtype=np.int32)
    value = np.empty((n, width))
    finding = np.empty((n, len(schema.columns)), dtype=np.uint8)
    first = 0
    for c, (column, own) in enumerate(zip(schema.columns, cells, strict=True)):
        encoded = column.encode(own)
        place[:, c], value[:, c], finding[:, c] = encoded.place + np.int32(first), encoded.value, encoded.finding
        first += column.width
    if schema.intercept > 0:
        place[:, -1], value[:, -1] = first, schema.intercept
    return Encoding(schema, place, value, finding)


def shorten(schema: Schema, value: Floats) -> Floats:
    """Rows of at most `data_norm`, exactly: a little shorter, so that no order of summation can round above it.

    Each of k entries is rounded, squared and added up: the computed square is off by a factor of about
    1 + (k + 3) 2^-53 at most, and the norm by half of it. `slack` is several times that.
    """
    slack = (value.shape[1] + 16) * 4 * UNIT
    if schema.row_norm == "bound":
        scaled: Floats = value / (schema.encoded_norm * (1 + slack))
        return scaled
    longest = schema.data_norm / (1 + slack)
    norms = np.sqrt(np.sum(value**2, axis=1, keepdims=True))
    clipped: Floats = value * (longest / np.maximum(norms, longest))
    return clipped


def stack(schema: Schema, chunks: list[Csr]) -> Csr:
    """Chunks below each other, as one matrix in canonical form. The list is emptied on the way, so that rows are never
    held twice.
    """
    entries, rows = sum(chunk.nnz for chunk in chunks), sum(chunk.shape[0] for chunk in chunks)
    wide: Any = np.int32 if entries < 2**31 else np.int64
    data: Floats = np.empty(entries)
    columns: NDArray[Any] = np.empty(entries, dtype=wide)
    ends: NDArray[Any] = np.zeros(rows + 1, dtype=wide)
    at = row = 0
    chunks.reverse()
    while chunks:
        chunk = chunks.pop()
        data[at : at + chunk.nnz], columns[at : at + chunk.nnz] = chunk.data, chunk.indices
        ends[row + 1 : row + 1 + chunk.shape[0]] = chunk.indptr[1:].astype(wide) + wide(at)
        at, row = at + chunk.nnz, row + chunk.shape[0]
    return sparse.csr_array((data, columns, ends), shape=(rows, schema.d))
