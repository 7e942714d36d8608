"""The rows of all nodes as one matrix, and the two linear maps that every oracle needs.

All nodes' rows lie below each other, node by node; `offsets[i]:offsets[i + 1]` are node i's. With w of shape (nodes, d,
runs):

    predict(w)[j]  = <a_j, w_i>              for every row j of node i          (rows, runs)
    adjoint(s)_i   = sum over node i's rows of s_j a_j                          (nodes, d, runs)

If a loss has several outputs, a model is a (d, outputs) matrix, flattened row by row. For the rows these are `outputs`
times as many runs, so `predict_vectors` and `adjoint_vectors` only rearrange axes.

Dense and sparse rows are two final classes of one interface. Neither adds noise, checks a norm or knows a loss:
`Sites` checks rows, and only the classes of `sottovoce.oracle` compute with them.
"""

from abc import ABC, abstractmethod
from functools import cached_property
from typing import Any, NoReturn, TypeAlias, final

import numpy as np
import scipy

from sottovoce.arrays import Array, Floats, Ints
from sottovoce.errors import InputError, expect

Matrix: TypeAlias = "Array | scipy.sparse.csr_array | scipy.sparse.csr_matrix"

# The squares of shorter rows may underflow. They are first multiplied by a power of two, which is exact.
_SHORT, _LENGTHENED = 1e-140, 2.0**600
_BLOCK = 2**18  # rows that are squared at a time: with millions of rows, a copy of all would not fit into memory


class Rows(ABC):
    """The rows of all nodes, below each other."""

    def __init__(self, offsets: Ints, d: int) -> None:
        self.offsets = offsets
        self.d = d

    @property
    def nodes(self) -> int:
        """Number of nodes that have rows here."""
        return len(self.offsets) - 1

    @property
    def counts(self) -> Ints:
        """m_i, the number of rows at every node."""
        return np.diff(self.offsets)

    @abstractmethod
    def predict(self, w: Array) -> Array:
        """<a_j, w_i> for every row j of every node i: (nodes, d, runs) -> (rows, runs)."""

    @abstractmethod
    def adjoint(self, s: Array) -> Array:
        """Sum of s_j a_j over every node's rows: (rows, runs) -> (nodes, d, runs)."""

    def predict_vectors(self, w: Array, outputs: int) -> Array:
        """As `predict`, for models that are flat (d, outputs) matrices: -> (rows, runs, outputs)."""
        z = self.predict(w.reshape(self.nodes, self.d, -1))
        return z.reshape(len(z), outputs, -1).swapaxes(1, 2)

    def adjoint_vectors(self, s: Array) -> Array:
        """As `adjoint`, of outer products: (rows, runs, outputs) -> (nodes, d * outputs, runs)."""
        rows, runs, outputs = s.shape
        g = self.adjoint(s.swapaxes(1, 2).reshape(rows, outputs * runs))
        return g.reshape(self.nodes, self.d * outputs, runs)

    @abstractmethod
    def regrouped(self, offsets: Ints) -> "Rows":
        """The same rows assigned to other nodes, node i's from offsets[i] on; the values are shared."""

    def pooled(self) -> "Rows":
        """The same rows assigned to one node; the values are shared."""
        return self.regrouped(self.offsets[[0, -1]])

    @abstractmethod
    def part(self, first: int, last: int) -> "Rows":
        """The rows of the nodes first .. last - 1; the values are shared."""

    @abstractmethod
    def totals(self) -> Floats:
        """Sum of all rows, with their negative numbers as 0: (d,)."""

    @abstractmethod
    def moments(self, weights: Floats | None = None) -> Floats:
        """Sum of a a^T over all rows, each times its weight (rows,) if weights are given: (d, d)."""

    @abstractmethod
    def squares(self, weights: Floats | None = None) -> Floats:
        """The diagonal of `moments`, computed without the rest: (d,)."""

    @abstractmethod
    def block(self, first: int, last: int) -> Matrix:
        """Rows first..last-1 as a matrix, whichever nodes they belong to."""

    def norms(self) -> Floats:
        """Euclidean norm of every row (rows,); inf where its square overflows. They are checked against data_norm."""
        norms = np.sqrt(self._squares(slice(None)))
        short = np.flatnonzero(norms < _SHORT)
        if len(short):
            norms[short] = np.sqrt(self._squares(short, _LENGTHENED)) / _LENGTHENED
        return norms

    @abstractmethod
    def _squares(self, which: slice | Ints, factor: float = 1.0) -> Floats:
        """Squared norms of these rows times the factor; inf where that overflows."""

    @abstractmethod
    def scaled(self, factors: Floats) -> "Rows":
        """Every row times its factor, as new rows; these stay as they are."""

    @abstractmethod
    def is_finite(self) -> bool:
        """True if no entry is NaN or infinite."""


@final
class DenseRows(Rows):
    """Rows stored as one (rows, d) array."""

    def __init__(self, values: Array, offsets: Ints) -> None:
        super().__init__(offsets, values.shape[1])
        self.values = np.ascontiguousarray(values)

    def predict(self, w: Array) -> Array:
        z = np.empty((len(self.values), w.shape[2]), dtype=w.dtype)
        for i, (first, last) in enumerate(zip(self.offsets[:-1], self.offsets[1:], strict=True)):
            np.matmul(self.values[first:last], w[i], out=z[first:last])
        return z

    def adjoint(self, s: Array) -> Array:
        g = np.empty((self.nodes, self.d, s.shape[1]), dtype=s.dtype)
        for i, (first, last) in enumerate(zip(self.offsets[:-1], self.offsets[1:], strict=True)):
            np.matmul(self.values[first:last].T, s[first:last], out=g[i])
        return g

    def regrouped(self, offsets: Ints) -> "DenseRows":
        return DenseRows(self.values, offsets)

    def part(self, first: int, last: int) -> "DenseRows":
        begin, end = self.offsets[[first, last]]
        return DenseRows(self.values[begin:end], self.offsets[first : last + 1] - begin)

    def totals(self) -> Floats:
        total = np.zeros(self.d)
        for first in range(0, len(self.values), _BLOCK):  # see _BLOCK
            total += np.maximum(self.values[first : first + _BLOCK], 0.0).sum(axis=0)
        return total

    def moments(self, weights: Floats | None = None) -> Floats:
        if weights is None:
            moments: Floats = self.values.T @ self.values
            return moments
        total = np.zeros((self.d, self.d))
        for first in range(0, len(self.values), _BLOCK):  # see _BLOCK: no weighted copy of all rows
            part = self.values[first : first + _BLOCK]
            total += part.T @ (weights[first : first + _BLOCK, None] * part)
        return total

    def squares(self, weights: Floats | None = None) -> Floats:
        by = () if weights is None else (weights,)
        squares: Floats = np.einsum("jd,jd->d" if weights is None else "jd,jd,j->d", self.values, self.values, *by)
        return squares

    def block(self, first: int, last: int) -> Matrix:
        return self.values[first:last]

    def _squares(self, which: slice | Ints, factor: float = 1.0) -> Floats:
        with np.errstate(over="ignore"):
            values = self.values[which] if factor == 1 else factor * self.values[which]
            squares: Floats = np.einsum("jd,jd->j", values, values, dtype=np.float64)
        return squares

    def scaled(self, factors: Floats) -> "DenseRows":
        return DenseRows(self.values * factors[:, None], self.offsets)

    def is_finite(self) -> bool:
        return bool(np.isfinite(self.values).all())


@final
class SparseRows(Rows):
    """Rows stored as one CSR matrix."""

    def __init__(self, matrix: "scipy.sparse.csr_array", offsets: Ints) -> None:
        super().__init__(offsets, matrix.shape[1])
        self.matrix = matrix

    @cached_property
    def _stacked(self) -> "scipy.sparse.csr_array":
        """The block-diagonal matrix of all nodes, so that one product serves all of them. Shares the values."""
        node = np.repeat(np.arange(self.nodes), self.counts)
        shift = np.repeat(node * self.d, np.diff(self.matrix.indptr))
        indices = (self.matrix.indices + shift).astype(np.int32 if self.nodes * self.d < 2**31 else np.int64)
        shape = (self.matrix.shape[0], self.nodes * self.d)
        return scipy.sparse.csr_array((self.matrix.data, indices, self.matrix.indptr), shape=shape)

    def predict(self, w: Array) -> Array:
        z: Array = self._stacked @ w.reshape(self.nodes * self.d, -1)
        return z

    def adjoint(self, s: Array) -> Array:
        g: Array = self._stacked.T @ s
        return g.reshape(self.nodes, self.d, -1)

    def regrouped(self, offsets: Ints) -> "SparseRows":
        return SparseRows(self.matrix, offsets)

    def part(self, first: int, last: int) -> "SparseRows":
        begin, end = self.offsets[[first, last]]
        return SparseRows(self.matrix[begin:end], self.offsets[first : last + 1] - begin)

    def totals(self) -> Floats:
        total = np.zeros(self.d)
        np.add.at(total, self.matrix.indices, np.maximum(self.matrix.data, 0.0))
        return total

    def moments(self, weights: Floats | None = None) -> Floats:
        other = self.matrix if weights is None else scipy.sparse.diags_array(weights) @ self.matrix
        moments: Floats = (self.matrix.T @ other).toarray()
        return moments

    def squares(self, weights: Floats | None = None) -> Floats:
        squares: Floats = np.zeros(self.d)
        by = 1.0 if weights is None else np.repeat(weights, np.diff(self.matrix.indptr))
        np.add.at(squares, self.matrix.indices, by * self.matrix.data**2)
        return squares

    def block(self, first: int, last: int) -> Matrix:
        return self.matrix[first:last]

    def _squares(self, which: slice | Ints, factor: float = 1.0) -> Floats:
        rows = self.matrix if isinstance(which, slice) and which == slice(None) else self.matrix[which]
        squares = np.empty(rows.shape[0])
        for first in range(0, len(squares), _BLOCK):
            last = min(first + _BLOCK, len(squares))
            begin, end = rows.indptr[first], rows.indptr[last]
            with np.errstate(over="ignore"):
                squared = (factor * rows.data[begin:end]) ** 2
            ends = rows.indptr[first : last + 1] - begin
            block = scipy.sparse.csr_array(
                (squared, rows.indices[begin:end], ends), shape=(last - first, rows.shape[1])
            )
            squares[first:last] = block.sum(axis=1)
        return squares

    def scaled(self, factors: Floats) -> "SparseRows":
        data = self.matrix.data * np.repeat(factors, np.diff(self.matrix.indptr))
        return SparseRows(
            scipy.sparse.csr_array((data, self.matrix.indices, self.matrix.indptr), shape=self.matrix.shape),
            self.offsets,
        )

    def is_finite(self) -> bool:
        return bool(np.isfinite(self.matrix.data).all())


@final
class RowsElsewhere(Rows):
    """Rows that other processes hold. Only their number at each node is known here; everything else is refused."""

    def regrouped(self, offsets: Ints) -> "RowsElsewhere":
        return RowsElsewhere(offsets, self.d)

    def part(self, first: int, last: int) -> "RowsElsewhere":
        return RowsElsewhere(self.offsets[first : last + 1] - self.offsets[first], self.d)

    def _refuse(self, *_: object, **__: object) -> NoReturn:
        raise InputError(
            f"Expected rows that this process holds, got nodes={self.nodes} whose rows other processes hold. Use the "
            "oracle of the nodes that are held here."
        )

    predict = adjoint = totals = moments = squares = block = _squares = scaled = is_finite = _refuse


def stack(features: list[Any]) -> Rows:
    """Stack the nodes' matrices below each other: CSR if all are sparse, else dense. Values become doubles.

    Args:
        features: for each node a (rows, d) matrix, all of one d.
    """
    expect(len(features) > 0, "at least one site", sites=len(features))
    widths = {matrix.shape[1] if matrix.ndim == 2 else None for matrix in features}
    if len(widths) != 1 or None in widths:
        raise InputError(
            f"Expected every site's features as a (rows, d) matrix of one d, got d in {sorted(map(str, widths))}."
        )
    offsets = np.concatenate([[0], np.cumsum([matrix.shape[0] for matrix in features])]).astype(np.int64)
    if all(scipy.sparse.issparse(matrix) for matrix in features):
        return SparseRows(_canonical(scipy.sparse.vstack(features, format="csr")), offsets)
    dense = [matrix if isinstance(matrix, np.ndarray) else np.asarray(matrix.toarray()) for matrix in features]
    return DenseRows(np.concatenate(dense).astype(np.float64, copy=False), offsets)


def take(features: Matrix, parts: list[Ints]) -> Rows:
    """Rows of one matrix, dealt out to nodes: part i holds the row numbers of node i, in order."""
    offsets = np.concatenate([[0], np.cumsum([len(part) for part in parts])]).astype(np.int64)
    order = np.concatenate(parts)
    if scipy.sparse.issparse(features):
        return SparseRows(_canonical(scipy.sparse.csr_array(features)[order]), offsets)
    return DenseRows(np.asarray(features)[order].astype(np.float64, copy=False), offsets)


def _canonical(matrix: Any) -> Any:
    """The matrix with float64 values, sorted columns and duplicates added up, as kernels need it."""
    matrix = scipy.sparse.csr_array(matrix, dtype=np.float64)
    matrix.sum_duplicates()
    return matrix
