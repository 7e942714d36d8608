"""The oracle on a GPU, through CuPy: the same methods on arrays that stay on the card.

Algorithms need no change: their lines are element-wise, and CuPy's arrays support them. Only the l inner steps are a
kernel of their own (`kernels/steps.cu`). There is no argmin here.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from importlib.resources import files
from typing import Any, NamedTuple, final

import numpy as np
from scipy.sparse import csr_array

from sottovoce.arrays import Array, Floats
from sottovoce.errors import UnsupportedError, expect
from sottovoce.oracle.kernels.random import expect_room
from sottovoce.oracle.kernels.spread import KNOTS
from sottovoce.oracle.loss_sums import clipped, settled
from sottovoce.oracle.packing import ROWS_AT_ONCE, pack
from sottovoce.oracle.plain import Inner, Oracle, Steps, one_by_one
from sottovoce.oracle.row_sums import half
from sottovoce.problem.evaluation import Scores, evaluate
from sottovoce.problem.rows import SparseRows

_LANES = 32  # threads of a warp
_WARPS = (4, 3, 6, 2, 1)  # numbers of warps that may share a tile; ties are decided by this order
_MOST_WARPS = 12  # the most warps that a multiprocessor has registers for
_RESERVED = 1024  # bytes of shared memory that the driver takes for a block
_SCORED_AT_ONCE = 1 << 28  # rows times models; a gigabyte in single precision
_SUMMED_AT_ONCE = 1 << 26  # numbers of a block of rows, or of their slopes; half a gigabyte in double precision
_NULL = np.uint64(0)


def cupy() -> Any:
    """The CuPy module; `UnsupportedError` if it is not installed or finds no GPU."""
    try:
        import cupy as cp
    except ImportError as error:
        raise UnsupportedError("device='cuda' needs CuPy. Install it with: pip install 'sottovoce[cuda]'") from error
    try:
        cp.cuda.runtime.getDeviceCount()
    except cp.cuda.runtime.CUDARuntimeError as error:
        raise UnsupportedError(f"device='cuda' needs a CUDA GPU, and CuPy finds none: {error}.") from error
    return cp


@cache
def _function(template: str) -> Any:
    """One instance of a kernel, compiled on first use and kept by CuPy on disk."""
    source = files("sottovoce.oracle.kernels").joinpath("steps.cu").read_text(encoding="utf-8")
    module = cupy().RawModule(code=source, options=("-std=c++17",), name_expressions=[template])
    return module.get_function(template)


class Tile(NamedTuple):
    """The runs and columns that a CUDA block works on."""

    warps: int  # warps that share its columns
    each: int  # columns of a thread
    sharing: int  # threads of a warp that share a run
    shared: bool  # True if its models are in shared memory

    @property
    def runs(self) -> int:
        """Number of runs in the tile."""
        return _LANES // self.sharing

    def numbers(self, features: int) -> int:
        """Number of numbers in its models and gradients."""
        return (1 + self.warps) * (features + 1) * _LANES * self.each


class HeldRows(NamedTuple):
    """Rows in the card's memory, as the kernel takes them."""

    template: str  # the kernel's template arguments that depend on the rows
    fetched: int  # bytes of shared memory that a warp reads them through
    struct: Any  # the kernel's `Rows`
    arrays: Any  # the arrays that it points to


def _power_of_two(least: int) -> int:
    """The smallest power of two that is at least `least`."""
    return 1 << (least - 1).bit_length()


@final
@dataclass(frozen=True, eq=False)
class CudaOracle(Oracle, vector_predictions=True):
    """The oracle with rows and models in the card's memory."""

    @property
    def _c(self) -> str:
        """The type of C++ for the precision."""
        return "float" if self.dtype == np.float32 else "double"

    def zeros(self, runs: int) -> Array:
        # An algorithm with a model at every node starts with this, before anything is charged, so the limit of the
        # kernel is checked here.
        most = (2**31 - 1) // (Tile(_WARPS[0], self._each, 1, False).numbers(0) * self.dtype.itemsize) - 1
        expect(
            self.sites.d <= most,
            f"at most {most} features with device='cuda', whose kernel counts bytes with 31 bits; or device='cpu'",
            features=self.sites.d,
        )
        zeros: Array = cupy().zeros((self.sites.n, self.d, runs), dtype=self.dtype)
        return zeros

    @property
    def _each(self) -> int:
        """Columns of a thread: one, or several if there are more outputs than a warp has threads."""
        return _power_of_two(-(-self.loss.outputs // _LANES))

    @cached_property
    def degree(self) -> Array:
        degrees: Array = self._on_card(self.degrees.reshape(-1, 1, 1))
        return degrees

    def _on_card(self, values: Any) -> Any:
        """A copy in the card's memory, in the oracle's precision."""
        return cupy().asarray(np.ascontiguousarray(values, dtype=self.dtype))

    @cached_property
    def _rows(self) -> HeldRows:
        held = self.sites.rows
        matrix = held.matrix if isinstance(held, SparseRows) else csr_array(held.block(0, len(self.sites.labels)))
        packed = pack(matrix, held.offsets, self.dtype)
        real = packed.ids >= 0
        labels, cap = np.ones(len(real)), np.ones(len(real))
        labels[real] = self.sites.labels
        cap *= np.finfo(self.dtype).max
        if self._slope_cap is not None:
            cap[real] = np.minimum(self._slope_cap[:, 0], np.finfo(self.dtype).max)
        arrays = {
            "entries": packed.entries.view(np.uint8),
            "dense": packed.dense,
            "columns": packed.columns,
            "starts": packed.starts,
            "offsets": packed.offsets,
            "ids": packed.ids,
            "labels": labels.astype(self.dtype),
            "cap": cap.astype(self.dtype),
            "share": (1.0 / self.divisor.reshape(-1)).astype(self.dtype),
        }
        on_card = {name: cupy().asarray(np.ascontiguousarray(a)) for name, a in arrays.items()}
        struct = np.array([a.data.ptr for a in on_card.values()], dtype=np.uint64)
        one = bool(np.all(np.diff(packed.starts) == 1))
        template = (
            f"{packed.group}, {len(packed.columns)}, {ROWS_AT_ONCE}, {{tile.warps}}, {{tile.each}}, {str(one).lower()}"
        )
        numbers = ROWS_AT_ONCE * (2 * packed.group + len(packed.columns) + 2)
        struct = struct.view([(name, np.uint64) for name in arrays])
        return HeldRows(template, 2 * numbers * self.dtype.itemsize, struct, on_card)

    def noisy_steps(self, w: Array, steps: Steps) -> Inner:
        # The weights of a batch need memory of rows times runs, so they are drawn one step at a time.
        return self._fused(w, steps) if steps.batch is None else one_by_one(self._fused, w, steps)

    def _fused(self, w: Array, steps: Steps, first_step: int = 0) -> Inner:
        cp, (nodes, d, runs), l, real = cupy(), w.shape, len(steps.eta), self.dtype.type
        mode, given, counter = self._noise(steps, first_step)
        weights = _NULL if steps.batch is None else self._weights(steps, first_step, runs)
        tile, rows = self._tile, self._rows
        tiles, numbers = -(-runs // tile.runs), tile.numbers(self.sites.d)
        room = _NULL if tile.shared else cp.empty((tiles, nodes, numbers), dtype=self.dtype)
        last, mean, total = cp.empty_like(w), cp.empty_like(w), cp.empty_like(w)
        spread = self.spread(steps.tight, steps.batch)
        parts = cp.asarray(spread.parts) if spread.parts.size else _NULL  # null where noise is for the worst model
        template = f"{rows.template.format(tile=tile)}, {str(tile.shared).lower()}"
        launch = _function(f"noisy_steps<{self._c}, {type(self.loss).__name__}, {template}>")
        launch.max_dynamic_shared_size_bytes = shared = numbers * self.dtype.itemsize if tile.shared else 0
        launch(
            (nodes, tiles), (_LANES * tile.warps,),
            (rows.struct, weights, given, self._on_card(steps.eta.reshape(l, -1)),
             cp.ascontiguousarray(steps.curvature.reshape(-1)),
             self._on_card(steps.sigma * self.sensitivity(steps.batch).reshape(-1)), cp.ascontiguousarray(w),
             cp.ascontiguousarray(steps.pull), last, mean, total, room,
             *map(np.int32, (nodes, d, self.loss.outputs, tile.sharing, runs, l, first_step)), real(self.loss.theta),
             real(self.lam * self.regulariser.l1), real(self.lam * self.regulariser.l2),
             real(math.inf if steps.radius is None else steps.radius), parts, np.int32(KNOTS), np.float64(spread.norm),
             np.int32(mode), *counter),
            shared_mem=shared,
        )  # fmt: skip
        return Inner(last, mean, total)

    @cached_property
    def _tile(self) -> Tile:
        """The tile that puts the most warps on a multiprocessor. If none fits, models are in the card's main memory."""
        limits = cupy().cuda.Device().attributes
        each = self._each
        sharing = _power_of_two(-(-self.loss.outputs // each))
        best, most = Tile(_WARPS[0], each, sharing, False), 0
        for warps in _WARPS:
            tile = Tile(warps, each, sharing, True)
            room = tile.numbers(self.sites.d) * self.dtype.itemsize + warps * self._rows.fetched
            blocks = min(_MOST_WARPS // warps, limits["MaxSharedMemoryPerMultiprocessor"] // (room + _RESERVED))
            if room <= limits["MaxSharedMemoryPerBlockOptin"] and blocks * warps > most:
                best, most = tile, blocks * warps
        return best

    def _noise(self, steps: Steps, first_step: int) -> tuple[int, Any, tuple[Any, ...]]:
        """(mode: 0 none, 1 seeded or 2 given; the given normals; key and counter)."""
        seeded = steps.noise.counters.normals
        key, place = ((0, 0), (0, 0)) if seeded is None else (seeded.normal_key, seeded.shape.first)
        counter = tuple(map(np.uint32, (*key, steps.k, *place)))
        if steps.sigma == 0:
            return 0, _NULL, counter
        if seeded is not None:
            return 1, _NULL, counter
        normals = [steps.noise.normals(steps.k, first_step + r) for r in range(len(steps.eta))]
        return 2, self._on_card(np.stack(normals)), counter

    def _weights(self, steps: Steps, r: int, runs: int) -> Any:
        """As `batch_weights`; drawn on the card if the source is counter-based."""
        seeded, batch, nodes = steps.noise.counters.batches, steps.batch, self.sites.n
        assert batch is not None
        if seeded is None:
            return self._on_card(self.batch_weights(steps.k, r, batch, steps.noise))
        expect_room(self.sites.rows.offsets, batch.size, seeded.shape.first_run, runs)
        weights = cupy().zeros((len(self.sites.labels), runs), dtype=self.dtype)
        _function(f"draw_batch<{self._c}>")(
            (nodes, -(-runs // 128)), (128,),
            (weights, cupy().asarray(self.sites.rows.offsets), np.int32(nodes), np.int32(runs), np.int32(batch.size),
             np.int32(batch.scheme == "poisson"), self.dtype.type(1 / batch.size), *seeded.batch_key,
             *map(np.uint32, (steps.k, r, seeded.shape.first_node, seeded.shape.first_run))),
        )  # fmt: skip
        if self.importances is not None:  # the kernel divides by the batch size alone
            weights *= self._on_card(np.repeat(self.importances, self.sites.counts)[:, None])
        return weights

    def score(self, models: Array) -> Scores:
        cp = cupy()
        on_card = cp.asarray(models, dtype=self.dtype)
        risk, accuracy = evaluate(
            self._dense_block, self._on_card(self.sites.labels), self.loss, on_card, block_size=_SCORED_AT_ONCE
        )
        return Scores(cp.asnumpy(risk), cp.asnumpy(accuracy))

    def _dense_block(self, first: int, last: int) -> Any:
        block = self.sites.rows.block(first, last)
        return self._on_card(block if isinstance(block, np.ndarray) else block.toarray())

    def expect_argmin(self) -> None:
        raise UnsupportedError("device='cuda' has no exact argmin. Run this algorithm with device='cpu'.")

    def argmin(self, pull: Array, curvature: Array, start: Array, tolerance: float) -> Array:
        self.expect_argmin()
        return super().argmin(pull, curvature, start, tolerance)

    # -- sums over all rows held here ---------------------------------------------------------------------------------
    # Sums are at a public model, one for all nodes. Model and sums are small, and are copied from and to host memory;
    # rows stay on the card. All is in double precision, which the sums' sensitivity assumes.

    @cached_property
    def _entries(self) -> Any:
        """All rows in double precision: a matrix, or (values, rows, columns) of the non-zeros of sparse rows."""
        held, cp = self.sites.rows, cupy()
        if not isinstance(held, SparseRows):
            return cp.asarray(held.block(0, len(self.sites.labels)))
        rows = np.repeat(np.arange(held.matrix.shape[0]), np.diff(held.matrix.indptr))
        return tuple(map(cp.asarray, (held.matrix.data, rows, held.matrix.indices.astype(np.int64))))

    def _blocks(self, beside: int) -> Iterator[tuple[slice, Any]]:
        """All rows, some at a time: their slice, and a dense (rows, p) block of them on the card. `beside` is how many
        more numbers the caller needs for every row.
        """
        count, p, held = len(self.sites.labels), self.sites.d, self.sites.rows
        step = max(1, _SUMMED_AT_ONCE // max(p, beside))
        for first in range(0, count, step):
            last = min(first + step, count)
            if not isinstance(held, SparseRows):
                yield slice(first, last), self._entries[first:last]
                continue
            some = slice(int(held.matrix.indptr[first]), int(held.matrix.indptr[last]))
            values, rows, columns = (part[some] for part in self._entries)
            block = cupy().zeros((last - first) * p)
            block[(rows - first) * p + columns] = values
            yield slice(first, last), block.reshape(-1, p)

    def gradient_sum(self, w: Array) -> Array:
        cp, loss, runs = cupy(), self.loss, w.shape[2]
        columns = cp.asarray(w, dtype=np.float64).reshape(self.sites.d, -1)  # outputs beside each other
        labels = cp.asarray(self.sites.labels[:, None])
        cap = None if self._slope_cap is None else cp.asarray(self._slope_cap)
        total = cp.zeros_like(columns)
        for some, a in self._blocks(columns.shape[1]):
            z = settled(a @ columns)
            if loss.outputs > 1:
                z = z.reshape(len(z), loss.outputs, runs).swapaxes(1, 2)
            slopes = clipped(loss.slope(z, labels[some], loss.theta), None if cap is None else cap[some])
            total += a.T @ (slopes if loss.outputs == 1 else slopes.swapaxes(1, 2).reshape(len(z), -1))
        sums: Array = cp.asnumpy(total).reshape(w.shape)
        return sums.astype(self.dtype, copy=False)

    def moments(self, full: bool) -> Floats:
        cp, p = cupy(), self.sites.d
        total = cp.zeros((p, p) if full else p)
        for _, a in self._blocks(p):
            total += a.T @ a if full else (a * a).sum(axis=0)
        sums: Floats = cp.asnumpy(total)
        return half(sums) if full else sums
