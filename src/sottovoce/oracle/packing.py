"""Rows as the kernel on a GPU reads them: non-zeros in groups of one size, and some common columns stored densely."""

from typing import Any, NamedTuple

import numpy as np

from sottovoce.arrays import Ints

ROWS_AT_ONCE = 4
_MOST_IN_A_GROUP = 16
MOST_DENSE = 8
_SPARSE_COST = 5  # accesses to shared memory for a non-zero with its column, relative to a number in a dense column


class Packed(NamedTuple):
    """Rows padded to whole groups of non-zeros, nodes to whole numbers of rows, as steps.cu reads them."""

    group: int
    entries: np.ndarray[Any, Any]  # (groups * group,) of (value, column)
    dense: np.ndarray[Any, Any]  # (padded rows, dense columns) values
    columns: np.ndarray[Any, Any]  # (dense columns,) int32, a multiple of four; d for padding
    starts: np.ndarray[Any, Any]  # (padded rows + 1,) int32
    offsets: np.ndarray[Any, Any]  # (nodes + 1,) int32
    ids: np.ndarray[Any, Any]  # (padded rows,) int32, -1 for padding


def pack(matrix: Any, offsets: Ints, dtype: np.dtype[Any]) -> Packed:
    """Take the dense columns out of CSR rows and pad the rest. Padding has value 0, in column d."""
    rows, d = matrix.shape
    columns = _dense_columns(matrix)
    padded = -(-np.diff(offsets) // ROWS_AT_ONCE) * ROWS_AT_ONCE
    new_offsets = np.concatenate([[0], np.cumsum(padded)])
    where = np.arange(rows) + np.repeat(new_offsets[:-1] - offsets[:-1], np.diff(offsets))
    ids = np.full(new_offsets[-1], -1)
    ids[where] = np.arange(rows)
    dense = np.zeros((len(ids), -(-len(columns) // 4) * 4), dtype=dtype)
    dense[where, : len(columns)] = matrix[:, columns].toarray()

    kept = ~np.isin(matrix.indices, columns)
    counts = np.add.reduceat(np.append(kept, False), matrix.indptr[:-1]) * (np.diff(matrix.indptr) > 0)
    columns = np.pad(columns, (0, dense.shape[1] - len(columns)), constant_values=d)
    group = _group(counts)
    groups = np.ones(len(ids), dtype=np.int64)
    groups[where] = np.maximum(1, -(-counts // group))
    starts = np.concatenate([[0], np.cumsum(groups)])
    kind = np.int32 if dtype == np.float32 else np.int64
    entries = np.zeros(starts[-1] * group, dtype=[("value", dtype), ("column", kind)])
    entries["column"] = d
    firsts = np.concatenate([[0], np.cumsum(counts)])[:-1]
    place = np.arange(int(counts.sum())) + np.repeat(starts[where] * group - firsts, counts)
    entries["value"][place], entries["column"][place] = matrix.data[kept], matrix.indices[kept]
    return Packed(group, entries, dense, *(a.astype(np.int32) for a in (columns, starts, new_offsets, ids)))


def _group(counts: Ints) -> int:
    """Number of non-zeros in a group, an even number, for rows with these numbers of non-zeros."""
    widest = max(2, int(counts.max(initial=0)))
    return min(_MOST_IN_A_GROUP, widest + widest % 2)


def _dense_columns(matrix: Any) -> Ints:
    """The columns to store densely, possibly none. All rows are padded to the widest, so the next one is always the
    column that most of the widest rows have; as many are taken as make the whole cheapest.
    """
    rows, d = matrix.shape
    counts, row = np.diff(matrix.indptr), np.repeat(np.arange(rows), np.diff(matrix.indptr))
    left = np.ones(len(row), dtype=bool)
    chosen: list[int] = []
    costs = []
    while True:
        group = _group(counts)
        padded = group * int(np.maximum(1, -(-counts // group)).sum())
        costs.append(_SPARSE_COST * padded + rows * -(-len(chosen) // 4) * 4)
        widest = counts.max(initial=0)
        if len(chosen) == MOST_DENSE or widest == 0:
            return np.sort(np.array(chosen[: int(np.argmin(costs))], dtype=np.int64))
        column = int(np.argmax(np.bincount(matrix.indices[left & (counts[row] == widest)], minlength=d)))
        chosen.append(column)
        gone = left & (matrix.indices == column)
        counts[row[gone]] -= 1
        left &= ~gone
