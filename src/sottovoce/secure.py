"""Noise for real sites: exact discrete Gaussians on a grid, from the operating system's cryptographic source.

Floating-point normals are not normal: their low bits can betray what they were added to. So a site rounds its gradient
to a grid g Z^d, g a power of two, and subtracts g times whole numbers whose law is exactly the discrete Gaussian
(OpenDP's sampler, after Canonne, Kamath & Steinke 2020). All arithmetic after the rounding is exact.

Rounding, and the floating-point sums behind the gradient, add to its sensitivity s. The noise pays for it:

    scale g >= sigma (s + 2 g sqrt(d) + gamma N s),      gamma = (N + 8) u / (1 - (N + 8) u),  u = 2^-53,

with N the most terms that a gradient sums. So sigma stays what the accountant was told. What a discrete law costs more
than a continuous one is `SecureNoise.divergence`. Proofs: docs/proofs/discrete-gaussian.md.
"""

import os
from functools import lru_cache
from math import ceil, frexp, ldexp, sqrt
from typing import Any, final

import numpy as np

from sottovoce.arrays import Array, Floats, Ints
from sottovoce.errors import PrivacyError, expect
from sottovoce.noise import Noise, SeededNoise
from sottovoce.privacy.discrete import discretisation_divergence
from sottovoce.privacy.gaussian import UNIT

GRID_BITS = 30  # the noise is at least 2^30 grid units wide: 1e7 draws differ from the ideal with chance 2e-16
_CLAMP = 2.0**52  # grid units; below it, floating-point numbers are finer than half the grid
_WIDEST = 2**51  # of a release, in grid units: whatever was clamped lies above it
_WORDS = 2**64


@final
class SecureNoise(Noise):
    """The noise of one site in one run. It holds no seed: nothing can be drawn again.

    Args:
        d: coordinates of a model.
        terms: the most terms that one gradient sums: the site's rows, or the batch size if that is more.
        grid_bits: the grid is at most 2^-grid_bits of the noise's standard deviation.

    Formal guarantees: given all earlier releases, `added` costs `Gaussian(sigma)` (with batches, `SampledGaussian`),
    for a law that is off by `divergence(1)`. Each (round, step) is served once, in order.

    | input | what happens |
    | --- | --- |
    | NaN or infinity in a gradient | refused |
    | a release beyond 2^51 grid units | refused, judged on the noisy numbers: that reveals nothing more |
    | a second draw for the same (round, step), or one out of order | refused |
    | several nodes or runs, or an algorithm that asks for normals | refused |
    """

    def __init__(self, d: int, terms: int, grid_bits: int = GRID_BITS) -> None:
        expect(d >= 1, "at least one coordinate", d=d)
        expect(1 <= terms < 2**50, "1 <= terms < 2^50", terms=terms)
        expect(8 <= grid_bits <= 40, "8 <= grid_bits <= 40", grid_bits=grid_bits)
        self.d, self.terms, self.grid_bits = d, terms, grid_bits
        self._last = (0, -1)

    # -- what a real site does ----------------------------------------------------------------------------------------

    def added(self, gradient: Array, sigma: float, sensitivity: Floats, k: int, r: int) -> Array:
        if gradient.shape != (1, self.d, 1) or np.size(sensitivity) != 1:
            raise PrivacyError(
                f"Expected the gradient of one site in one run, shape (1, {self.d}, 1), got shape={gradient.shape}. "
                "Give every site a secure source of its own."
            )
        if not np.isfinite(gradient).all():
            raise PrivacyError(
                f"Expected a finite gradient, got NaN or infinity in round k={k}, step r={r}. "
                "The models have diverged: use shorter steps, or a smaller diameter."
            )
        self._advance(k, r)
        s = float(np.asarray(sensitivity).reshape(()))
        grid = self.grid(sigma, s)
        noise = discrete_gaussian(self.scale(sigma, s), self.d)
        released = on_grid(gradient, grid) - noise.reshape(gradient.shape)
        if np.abs(released).max() > _WIDEST:
            raise PrivacyError(
                f"Expected a gradient below 2^51 grid units, got more in round k={k}, step r={r} with grid={grid:g}. "
                f"Use fewer than grid_bits={self.grid_bits}."
            )
        noisy: Array = released.astype(np.float64) * grid
        return noisy

    def draws(self, k: int, r: int, offsets: Ints, batch: int, scheme: str) -> Array:  # noqa: ARG002
        if len(offsets) != 2:
            raise PrivacyError(f"Expected the rows of one site, got nodes={len(offsets) - 1}.")
        rows = int(offsets[-1])
        expect(batch <= self.terms, "a batch of at most `terms` rows", batch=batch, terms=self.terms)
        expect(rows <= self.terms, "at most `terms` rows", rows=rows, terms=self.terms)
        if scheme == "poisson":
            # Each row on its own, with chance exactly batch / rows.
            return (uniform_below(rows, rows) < batch).astype(np.float64)[:, None]
        return np.bincount(uniform_below(rows, batch), minlength=rows).astype(np.float64)[:, None]

    # -- public numbers -----------------------------------------------------------------------------------------------

    def grid(self, sigma: float, sensitivity: float) -> float:
        """g, the largest power of two with 2^grid_bits g <= sigma sensitivity."""
        std = sigma * sensitivity
        expect(1e-200 < std < 1e200, "1e-200 < sigma sensitivity < 1e200", sigma=sigma, sensitivity=sensitivity)
        return ldexp(1.0, frexp(std)[1] - 1 - self.grid_bits)

    def scale(self, sigma: float, sensitivity: float) -> int:
        """The noise's scale in grid units, a whole number."""
        n = self.terms + 8
        sums = n * UNIT / (1 - n * UNIT) * self.terms * sensitivity
        grid = self.grid(sigma, sensitivity)
        paid = sigma * (sensitivity + 2 * grid * sqrt(self.d) + sums) * (1 + 1e-12)
        if paid > 2 * sigma * sensitivity:
            raise PrivacyError(
                "Expected rounding errors below the sensitivity itself, got more with "
                f"terms={self.terms}, d={self.d}, sigma={sigma:g}. Sum fewer rows, or use more than "
                f"grid_bits={self.grid_bits}."
            )
        return ceil(paid / grid)

    def divergence(self, steps: int) -> float:
        """A bound on the KL divergence of `steps` noisy steps from what the accountant prices, for the ledger."""
        return discretisation_divergence(steps * self.d, 2.0**self.grid_bits)

    # -- what is refused ----------------------------------------------------------------------------------------------

    def normals(self, k: int, r: int) -> Array:
        raise PrivacyError(
            f"Expected an algorithm that adds its noise in gradients, got one that asks for normals in round k={k}, "
            f"step r={r}. Real-valued normals are for simulations; use an algorithm with noisy steps, such as IPADMM."
        )

    @property
    def seeded(self) -> SeededNoise:
        raise PrivacyError(
            "Expected an oracle that takes secure noise, got one that draws seeded noise. A real site computes with "
            "the plain oracle, device='plain'."
        )

    def _advance(self, k: int, r: int) -> None:
        if (k, r) <= self._last:
            raise PrivacyError(
                f"Expected a step after (round, step)={self._last}, got ({k}, {r}). Noise for a step is drawn once: "
                "send again what was sent, or start the round from a new source if nothing was."
            )
        self._last = (k, r)


def require_secure(noise: Noise, *, for_tests: bool = False) -> None:
    """Raise `PrivacyError` unless the noise is fit for a real site. Only a test may say `for_tests`."""
    if not isinstance(noise, SecureNoise) and not for_tests:
        raise PrivacyError(
            f"Expected secure noise at a real site, got noise={type(noise).__name__}. "
            "Seeded and given noise can be computed again and taken off: use SecureNoise."
        )


def on_grid(gradient: Array, grid: float) -> Ints:
    """The nearest multiples of the grid, in grid units, clamped to 2^52. Division by a power of two is exact."""
    with np.errstate(over="ignore"):  # an infinite quotient is clamped like any other
        units: Ints = np.rint(np.clip(gradient / grid, -_CLAMP, _CLAMP)).astype(np.int64)
    return units


def discrete_gaussian(scale: int, count: int) -> Ints:
    """Independent whole numbers with P(x) proportional to exp(-x^2 / (2 scale^2)), exactly."""
    return np.array(_mechanism(scale)([0] * count), dtype=np.int64)


@lru_cache(maxsize=8)
def _mechanism(scale: int) -> Any:
    """OpenDP's Gaussian mechanism on vectors of whole numbers. It reads the scale as an exact rational."""
    from opendp.domains import atom_domain, vector_domain
    from opendp.measurements import make_gaussian
    from opendp.metrics import l2_distance
    from opendp.mod import enable_features

    enable_features("contrib")
    return make_gaussian(vector_domain(atom_domain(T="i64")), l2_distance(T="f64"), scale=float(scale))


def uniform_below(bound: int, count: int) -> Ints:
    """Independent uniform whole numbers in 0 .. bound - 1, exactly: words that would favour some are thrown away."""
    expect(1 <= bound <= 2**62, "1 <= bound <= 2^62", bound=bound)
    last = np.uint64(_WORDS - _WORDS % bound - 1)
    found = np.empty(0, dtype=np.int64)
    while len(found) < count:
        words = np.frombuffer(os.urandom(8 * (count - len(found))), dtype=np.uint64)
        fair = words[words <= last] % np.uint64(bound)
        found = np.concatenate((found, fair.astype(np.int64)))
    return found
