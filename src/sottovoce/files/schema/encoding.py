"""Chunks of cells turned into sparse rows that keep the schema's promise on norms.

A chunk of n rows and C columns is first a rectangle (n, C): in every row each column has at most one non-zero feature.
Terms and the intercept are added to its right once it is known which rows are kept.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, final

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from sottovoce.arrays import Bools, Floats
from sottovoce.errors import InputError
from sottovoce.files.schema.cells import Cells
from sottovoce.files.schema.findings import Finding, Findings
from sottovoce.files.schema.schema import Schema
from sottovoce.files.schema.terms import Entries, Side

Csr: TypeAlias = "sparse.csr_array[np.float64, tuple[int, int]]"
UNIT = 2.0**-53  # rounding error of one floating-point operation


@final
@dataclass(frozen=True)
class Encoding:
    """The features of one chunk, before rows are dropped."""

    schema: Schema
    place: NDArray[np.int32]  # (rows, columns), which feature of its column every entry is
    value: Floats
    finding: Findings  # (rows, columns)

    @property
    def kept(self) -> Bools:
        """True for each row that no column drops."""
        kept: Bools = ~(self.finding == Finding.DROPPED).any(axis=1)
        return kept

    def rows(self, kept: Bools) -> Csr:
        """The chosen rows as a sparse matrix, each of norm at most `data_norm`."""
        place, value = whole(self.schema, self.place[kept], self.value[kept])
        value = shorten(self.schema, value)
        there = value != 0
        ends = np.concatenate([[0], np.cumsum(there.sum(axis=1))]).astype(np.int32)
        return sparse.csr_array((value[there], place[there], ends), shape=(len(value), self.schema.d))


def encode_cells(schema: Schema, cells: Sequence[Cells]) -> Encoding:
    """Encode one chunk; the cells come in the order of the schema's columns."""
    if schema.site_effects is True:
        raise InputError(
            "Expected the names of the sites where site_effects = true, got none. Say --site-column, or write the "
            "agreement, which names them; or list them as categories of a column of the schema, and name that column "
            "in site_effects."
        )
    shape = len(cells[0]), len(schema.columns)
    place, value, finding = np.empty(shape, dtype=np.int32), np.empty(shape), np.empty(shape, dtype=np.uint8)
    for c, (column, own) in enumerate(zip(schema.columns, cells, strict=True)):
        place[:, c], value[:, c], finding[:, c] = column.encode(own)
    return Encoding(schema, place, value, finding)


def term_entries(schema: Schema, place: NDArray[np.int32], value: Floats) -> Iterator[Entries]:
    """The features of every term, from entries of the columns."""
    spots = {column.name: Side(place[:, c], value[:, c]) for c, column in enumerate(schema.columns)}
    for term, columns in schema.joined:
        yield term.entries(columns, [spots[name] for name in term.of])


def whole(schema: Schema, place: NDArray[np.int32], value: Floats) -> tuple[NDArray[np.int32], Floats]:
    """Which of all features every entry is, and its value, with those of terms and intercept to the right of those of
    the columns: (rows, entries).
    """
    widths = np.array([column.width for column in schema.columns], dtype=np.int32)
    first = np.cumsum(widths, dtype=np.int32)
    places, values, next_ = [place + (first - widths)], [value], int(first[-1])
    for (term, columns), made in zip(schema.joined, term_entries(schema, place, value), strict=True):
        places.append(made.place + np.int32(next_))
        values.append(made.value)
        next_ += term.width(columns)
    if schema.intercept > 0:
        places.append(np.full((len(value), 1), next_, dtype=np.int32))
        values.append(np.full((len(value), 1), schema.intercept))
    return np.concatenate(places, axis=1), np.concatenate(values, axis=1)


def slack(entries: int) -> float:
    """By how much of its length a row of so many entries is made shorter, for rounding.

    Each entry is rounded, squared and added up: the computed square is off by a factor of about 1 + (entries + 3) 2^-53
    at most, and the norm by half of it. This is several times that.
    """
    return (entries + 16) * 4 * UNIT


def shorten(schema: Schema, value: Floats) -> Floats:
    """Rows of at most `data_norm`, exactly: a little shorter, so that no order of summation can round above it."""
    room = 1 + slack(value.shape[1])
    if schema.row_norm == "bound":
        scaled: Floats = value / (schema.encoded_norm * room)
        return scaled
    longest = schema.data_norm / room
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
