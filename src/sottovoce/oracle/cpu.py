"""The oracle on all cores of a CPU, with compiled kernels for the costly methods."""

import math
from dataclasses import dataclass
from functools import cached_property
from typing import final

import numpy as np

from sottovoce.arrays import Array, Bools, Floats
from sottovoce.oracle.argmin.solver import ArgminSolver
from sottovoce.oracle.kernels import panels, softmax
from sottovoce.oracle.kernels import steps as kernel
from sottovoce.oracle.kernels.score import score
from sottovoce.oracle.kernels.tiles import Csr, Dense
from sottovoce.oracle.plain import Inner, Oracle, Steps, one_by_one
from sottovoce.problem.losses import Signs, Softmax
from sottovoce.problem.rows import DenseRows, SparseRows

# Models whose predictions are at most this are scored in single precision: rounding a model moves a prediction by at
# most 6e-8 of this, and a mean over rows by far less, which does not show in the four digits that people read.
_SINGLE = 100.0


@final
@dataclass(frozen=True, eq=False)
class CompiledOracle(Oracle, vector_predictions=True, row_factors=True):
    """The oracle on compiled kernels, in single or double precision."""

    @cached_property
    def _rows(self) -> Csr | Dense:
        """The rows as kernels read them. In double precision the values are those of the sites, not a copy."""
        rows = self.sites.rows
        if isinstance(rows, DenseRows):
            return Dense(rows.values.astype(self.dtype, copy=False))
        assert isinstance(rows, SparseRows)
        m = rows.matrix
        return Csr(
            m.data.astype(self.dtype, copy=False), m.indices.astype(np.int32, copy=False), m.indptr.astype(np.int64)
        )

    @cached_property
    def _data(self) -> kernel.KernelRows:
        """Labels, caps, divisors and factors of the rows, as kernels read them."""
        most = np.finfo(self.dtype).max
        cap = np.full(len(self.sites.labels), most) if self._slope_cap is None else self._slope_cap[:, 0]
        labels, cap = self.sites.labels.astype(self.dtype), np.minimum(cap, most).astype(self.dtype)
        none, factors = np.empty(0, dtype=self.dtype), self.sites.factors
        weights, shifts = (
            none if part is None else part.astype(self.dtype) for part in (factors.weights, factors.shifts)
        )
        return kernel.KernelRows(self.sites.rows.offsets, labels, cap, self.divisor.reshape(-1), weights, shifts)

    @cached_property
    def _panels(self) -> panels.Panels | None:
        """The rows as panels, for few runs; None where panels are not faster."""
        held = self._rows, self._data, self.sites.d
        return panels.panels(*held) if panels.pays(*held) else None

    def noisy_steps(self, w: Array, steps: Steps) -> Inner:
        if steps.sigma > 0 and not steps.noise.gives_normals:
            return super().noisy_steps(w, steps)  # the source adds its noise itself, step by step
        # The weights of a batch need memory of rows times runs, so they are drawn one step at a time.
        return self._fused(w, steps) if steps.batch is None else one_by_one(self._fused, w, steps)

    def _fused(self, w: Array, steps: Steps, first_step: int = 0) -> Inner:
        """All steps in one call of the kernel that fits loss, runs and rows."""
        l, phi = len(steps.eta), self.regulariser
        penalty = kernel.Penalty(
            self.lam * phi.l1, self.lam * phi.l2, math.inf if steps.radius is None else steps.radius
        )
        data, draws = (self._rows, self._data), self._draws(steps, first_step)
        step = steps.eta.reshape(l, -1), steps.curvature.astype(np.float64).reshape(-1)
        models = w, np.ascontiguousarray(steps.pull, dtype=self.dtype)
        if isinstance(self.loss, Softmax):
            return Inner(*softmax.noisy_steps(*data, self.loss, penalty, draws, *step, *models))
        if w.shape[2] <= panels.MOST_RUNS and steps.batch is None and self._panels is not None:
            few = self._panels, self._data.divisor
            return Inner(*panels.noisy_steps(*few, self.loss, penalty, draws, *step, *models))
        return Inner(*kernel.noisy_steps(*data, self.loss, penalty, draws, *step, *models))

    def _draws(self, steps: Steps, first_step: int) -> kernel.KernelDraws:
        """Noise and batch of the steps: a key if the kernel can draw by itself, else arrays."""
        k, noise, batch = steps.k, steps.noise, steps.batch
        given, weights = np.empty((0, 0, 0, 0), dtype=self.dtype), np.empty((0, 0, 0), dtype=self.dtype)
        mode, counter = kernel.NONE, noise.counters.normals
        key, place = ((0, 0), (0, 0)) if counter is None else (counter.normal_key, counter.shape.first)
        if batch is not None:
            weights = self.batch_weights(k, first_step, batch, noise)[None].astype(self.dtype, copy=False)
        if steps.sigma > 0 and counter is not None:
            mode = kernel.SEEDED
        elif steps.sigma > 0:
            mode = kernel.GIVEN
            normals = [noise.normals(k, first_step + r) for r in range(len(steps.eta))]
            given = np.stack(normals).astype(self.dtype, copy=False)
        return kernel.KernelDraws(
            mode, (steps.sigma * self.sensitivity(batch)).reshape(-1), np.uint64(key[0]), np.uint64(key[1]), k,
            first_step, *place, given, weights, self.spread(steps.tight, batch),
        )  # fmt: skip

    @cached_property
    def _solver(self) -> ArgminSolver:
        """The argmin solver. For kinked problems it keeps factors and duals of every node and run between calls."""
        return ArgminSolver(
            self._rows, self.sites.d, self.sites.rows.offsets, self.sites.labels, self.loss, self.regulariser,
            self.lam, divisor=self.divisor.reshape(-1), max_grad_norm=self.max_grad_norm,
        )  # fmt: skip

    @property
    def _solves_plainly(self) -> bool:
        """True if the plain form must find an argmin: compiled solvers take one output and rows without factors."""
        return self.loss.outputs > 1 or not self.sites.factors.plain

    def expect_argmin(self) -> None:
        if self._solves_plainly:
            super().expect_argmin()
        else:
            _ = self._solver  # its constructor refuses what it cannot solve

    def argmin(self, pull: Array, curvature: Array, start: Array, tolerance: float) -> Array:
        if self._solves_plainly:
            return super().argmin(pull, curvature, start, tolerance)
        return self._solver.solve(pull, curvature.astype(np.float64), start, tolerance)

    def _score_sums(self, models: Array) -> tuple[Floats, Floats]:
        if self.loss.outputs > 1 or not self.sites.factors.plain:
            return super()._score_sums(models)
        # Models whose predictions are all small enough for single precision.
        near: Bools = self.sites.data_norm * np.sqrt(np.einsum("cq,cq->q", models, models)) <= _SINGLE
        blocks = len(self._block_rows) - 1
        losses, hits = np.empty((blocks, len(near))), np.empty((blocks, len(near)))
        # Each model by its own size, so that its score does not depend on the other models.
        for kind, chosen in ((np.dtype(np.float32), near), (self.dtype, ~near)):
            if chosen.any():
                columns = np.ascontiguousarray(models[:, chosen], dtype=kind)
                found = score(self._rows, self._data.labels, self._block_rows, self.loss, columns)
                losses[:, chosen], hits[:, chosen] = found
        signs = isinstance(self.loss.labels, Signs)  # in regression no prediction is correct or wrong
        return losses, hits if signs else np.full_like(hits, np.nan)
