"""The oracle on a GPU, through CuPy: the same methods on arrays that stay on the card.

The algorithms do not know: their lines are element-wise, and CuPy's arrays answer to them. Only the l inner steps are a
kernel of their own (kernels/steps.cu). There is no argmin here.
"""

import math
from dataclasses import dataclass
from functools import cache, cached_property
from importlib.resources import files
from typing import Any, final

import numpy as np

from sottovoce.arrays import Array
from sottovoce.errors import UnsupportedError
from sottovoce.evaluation import Scores, evaluate
from sottovoce.noise import SeededNoise
from sottovoce.oracle import Inner, Oracle, Steps, one_by_one
from sottovoce.rows import DenseRows, SparseRows

# A block keeps two models per thread in shared memory; two blocks of at most this many bytes share a multiprocessor.
_SHARED_BYTES = 112 * 1024
_MOST_THREADS = 128


def cupy() -> Any:
    """CuPy, or a refusal that says what is missing."""
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
    source = files("sottovoce.kernels").joinpath("steps.cu").read_text(encoding="utf-8")
    module = cupy().RawModule(code=source, options=("-std=c++17",), name_expressions=[template])
    return module.get_function(template)


@final
@dataclass(frozen=True, eq=False)
class CudaOracle(Oracle):
    """Rows and models on the card."""

    @property
    def _c(self) -> str:
        return "float" if self.dtype == np.float32 else "double"

    def zeros(self, runs: int) -> Array:
        zeros: Array = cupy().zeros((self.sites.n, self.d, runs), dtype=self.dtype)
        return zeros

    @cached_property
    def degree(self) -> Array:
        degrees: Array = self._on_card(self.degrees.reshape(-1, 1, 1))
        return degrees

    def _on_card(self, values: Any) -> Any:
        return cupy().asarray(np.ascontiguousarray(values, dtype=self.dtype))

    @cached_property
    def _entries(self) -> tuple[Any, Any]:
        """Non-zeros packed as (value, column), and where each row starts. Dense rows are full ones."""
        rows = self.sites.rows
        if isinstance(rows, SparseRows):
            values, columns, starts = rows.matrix.data, rows.matrix.indices, rows.matrix.indptr
        else:
            assert isinstance(rows, DenseRows)
            count, d = rows.values.shape
            values, columns, starts = rows.values.ravel(), np.tile(np.arange(d), count), np.arange(count + 1) * d
        kind = np.int32 if self.dtype == np.float32 else np.int64
        packed = np.empty(len(values), dtype=[("value", self.dtype), ("column", kind)])
        packed["value"], packed["column"] = values, columns
        cp = cupy()
        return cp.asarray(packed.view(np.uint8)), cp.asarray(starts.astype(np.int64))

    @cached_property
    def _fixed(self) -> tuple[Any, ...]:
        """What a kernel needs to know of the rows: offsets, labels, caps (0 for none)."""
        cap = (
            0 if self._slope_cap is None else self._on_card(np.minimum(self._slope_cap[:, 0], np.finfo(self.dtype).max))
        )
        return cupy().asarray(self.sites.rows.offsets), self._on_card(self.sites.labels), cap

    def noisy_steps(self, w: Array, steps: Steps) -> Inner:
        # The weights of a batch fill as much room as the rows times the runs, so they are drawn one step at a time.
        return self._fused(w, steps) if steps.batch is None else one_by_one(self._fused, w, steps)

    def _fused(self, w: Array, steps: Steps, first_step: int = 0) -> Inner:
        cp, (nodes, d, runs), l, real = cupy(), w.shape, len(steps.eta), self.dtype.type
        mode, given, counter = self._noise(steps, first_step)
        weights = 0 if steps.batch is None else self._weights(steps, first_step, runs)
        threads, in_shared = self._tile(d, runs)
        tiles = -(-runs // threads)
        room = 0 if in_shared else cp.empty((tiles, nodes, 2, d, threads), dtype=self.dtype)
        last, mean, total = cp.empty_like(w), cp.empty_like(w), cp.empty_like(w)
        launch = _function(f"noisy_steps<{self._c}, {type(self.loss).__name__}, {str(in_shared).lower()}>")
        launch.max_dynamic_shared_size_bytes = shared = 2 * d * threads * self.dtype.itemsize if in_shared else 0
        offsets, labels, cap = self._fixed
        launch(
            (nodes, tiles), (threads,),
            (*self._entries, offsets, labels, cap, weights, given, self._on_card(steps.eta.reshape(l, -1)),
             cp.ascontiguousarray(steps.curvature.reshape(-1)),
             self._on_card(steps.sigma * self.sensitivity(steps.batch).reshape(-1)), cp.ascontiguousarray(w),
             cp.ascontiguousarray(steps.pull), last, mean, total, room, np.int32(nodes), np.int32(d), np.int32(runs),
             np.int32(l), np.int32(first_step), real(self.loss.theta), real(self.weight * self.regulariser.l1),
             real(self.weight * self.regulariser.l2), real(math.inf if steps.radius is None else steps.radius),
             np.int32(mode), *counter),
            shared_mem=shared,
        )  # fmt: skip
        return Inner(last, mean, total)

    def _tile(self, d: int, runs: int) -> tuple[int, bool]:
        """(threads of a block, whether its models fit into shared memory)."""
        fits = _SHARED_BYTES // (2 * d * self.dtype.itemsize) // 32 * 32
        threads = min(_MOST_THREADS, -(-runs // 32) * 32)
        return (min(threads, fits), True) if fits >= 32 else (threads, False)

    def _noise(self, steps: Steps, first_step: int) -> tuple[int, Any, tuple[Any, ...]]:
        """(0 none, 1 seeded or 2 given; the given normals; key and counter)."""
        seeded = steps.noise.seeded
        shape = seeded.shape
        counter = (*seeded.normal_key, *map(np.uint32, (steps.k, shape.first_node, shape.first_run)))
        if steps.sigma == 0:
            return 0, 0, counter
        if isinstance(steps.noise, SeededNoise):
            return 1, 0, counter
        normals = [steps.noise.normals(steps.k, first_step + r) for r in range(len(steps.eta))]
        return 2, self._on_card(np.stack(normals)), counter

    def _weights(self, steps: Steps, r: int, runs: int) -> Any:
        """As `batch_weights`, drawn on the card."""
        seeded, batch, nodes = steps.noise.seeded, steps.batch, self.sites.n
        assert batch is not None
        weights = cupy().zeros((len(self.sites.labels), runs), dtype=self.dtype)
        _function(f"draw_batch<{self._c}>")(
            (nodes, -(-runs // 128)), (128,),
            (weights, self._fixed[0], np.int32(nodes), np.int32(runs), np.int32(batch.size),
             np.int32(batch.scheme == "poisson"), self.dtype.type(1 / batch.size), *seeded.batch_key,
             *map(np.uint32, (steps.k, r, seeded.shape.first_node, seeded.shape.first_run))),
        )  # fmt: skip
        return weights

    def score(self, models: Array) -> Scores:
        cp = cupy()
        risk, accuracy = evaluate(self._dense_block, self._fixed[1], self.loss, cp.asarray(models))
        return Scores(cp.asnumpy(risk), cp.asnumpy(accuracy))

    def _dense_block(self, first: int, last: int) -> Any:
        block = self.sites.rows.block(first, last)
        return self._on_card(block if isinstance(block, np.ndarray) else block.toarray())

    def argmin(self, pull: Array, curvature: Array, start: Array, tolerance: float) -> Array:  # noqa: ARG002
        raise UnsupportedError("device='cuda' has no exact argmin. Run this algorithm with device='cpu'.")
