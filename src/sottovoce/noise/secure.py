"""Noise for real sites: exact discrete Gaussians on a grid, as a function of a secret key and of the value they hide.

Floating-point normals are not exactly normal: their low bits can reveal what they were added to. So a site rounds its
gradient to a grid g Z^d, g a power of two, and subtracts g times whole numbers whose law is exactly the discrete
Gaussian (`sottovoce.noise.sampler`). All arithmetic after the rounding is exact.

Noise is a function. Its words come from a stream that is keyed by the site's secret noise key and by a label of
everything that determines the release, including the rounded gradient itself. So a site that is restored from a backup
sends the same messages again, and two different values never share their noise.

Rounding, and the floating-point sums behind the gradient, add to its sensitivity s. The noise pays for it:

    scale g >= sigma (s + 2 g sqrt(d) + gamma N s),      gamma = (N + 8) u / (1 - (N + 8) u),  u = 2^-53,

with N the most terms that a gradient sums. So sigma stays the one that the accountant was given. What a discrete law
costs more than a continuous one is `SecureNoise.divergence`. Proofs: docs/proofs/discrete-gaussian.md.
"""

from collections.abc import Callable
from hashlib import sha256
from math import ceil, frexp, ldexp, sqrt
from typing import NamedTuple, NoReturn, final

import numpy as np

from sottovoce.arrays import Array, Floats, Ints
from sottovoce.errors import PrivacyError, expect
from sottovoce.noise.sampler import VERSION, Stream, discrete_gaussian, encode_fields, keyed, uniform_below
from sottovoce.noise.sources import Noise
from sottovoce.privacy.accounting.discrete import discretisation_divergence
from sottovoce.privacy.accounting.gaussian import UNIT

GRID_BITS = 30  # the noise is at least 2^30 grid units wide: 1e7 draws differ from the ideal with chance 2e-16
_CLAMP = 2.0**52  # grid units; below it, floating-point numbers are finer than half the grid
_WIDEST = 2**51  # of a release, in grid units; a floating-point number times the grid is exact up to here
_DOMAIN = "sottovoce site noise"  # no other use of the key begins a label like this


@final
class SecureNoise(Noise):
    """The noise of one site: a function of its key, of the messages received, and of the value that it hides.

    Args:
        key: the site's secret noise key, 32 bytes, one for each agreement: `federation.agreement.exchange.Seed`.
            Whoever has it can subtract the noise from every message: delete it when the run ends.
        d: coordinates of a model.
        terms: the most terms that one gradient sums: the site's rows, or the batch size if that is more.
        grid_bits: the grid is at most 2^-grid_bits of the noise's standard deviation.
        context: see `within`.

    Formal guarantees: for all who lack the key, and given all earlier releases, `added` costs `Gaussian(sigma)` (with
    batches, `SampledGaussian`), for a law that is off by `divergence(1)`. This is computational: it holds up to what
    it takes to tell HMAC-SHA256 and ChaCha20 from random functions. The same (context, round, step, value) is the same
    release, however often it is asked for. `added` is defined for every gradient, and refuses none.

    | input | what happens |
    | --- | --- |
    | NaN in a gradient | taken as 0 |
    | infinity, or more than 2^52 grid units | taken as 2^52 grid units, with its sign |
    | a release beyond 2^51 grid units | released as 2^51 grid units, with its sign: judged on the noisy numbers |
    | a second draw for the same (round, step), or one out of order | refused, until `within` starts anew |
    | several nodes or runs, or an algorithm that asks for normals | refused |
    | printing, pickling, copying | never shows the key; pickling and copying are refused |
    """

    def __init__(self, key: bytes, d: int, terms: int, grid_bits: int = GRID_BITS, context: bytes = b"") -> None:
        expect(d >= 1, "at least one coordinate", d=d)
        expect(1 <= terms < 2**50, "1 <= terms < 2^50", terms=terms)
        expect(8 <= grid_bits <= 40, "8 <= grid_bits <= 40", grid_bits=grid_bits)
        expect(isinstance(context, bytes), "a context of bytes", context=type(context).__name__)
        self.d, self.terms, self.grid_bits = d, terms, grid_bits
        self._context = context
        self._last = (0, -1)
        # Functions hold the key, not attributes: nothing that prints or stores this object can show it.
        self._keyed = keyed(key)
        self._bound_to: Callable[[bytes], SecureNoise] = lambda context: SecureNoise(key, d, terms, grid_bits, context)
        self._as_long: Callable[[int], SecureNoise] = lambda d: SecureNoise(key, d, terms, grid_bits, context)

    def within(self, context: bytes) -> "SecureNoise":
        """The same key, bound to this context in place of the old one; the order of steps starts anew.

        Args:
            context: bytes that identify everything that the gradient depends on but the rows and (round, step): the
                agreement, all messages received, the sites dropped, the commitment to the rows, the software. Two
                draws with the same context, round and step must be for the same function of the rows.
        """
        return self._bound_to(context)

    def __repr__(self) -> str:
        return f"SecureNoise(key=..., d={self.d}, terms={self.terms}, grid_bits={self.grid_bits})"

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        raise PrivacyError(
            "Expected a noise key that stays in its process, got a SecureNoise to be pickled or copied. "
            "Make another from the key file, or call within()."
        )

    # -- releases and batches -----------------------------------------------------------------------------------------

    def added(self, gradient: Array, sigma: float, sensitivity: Floats, k: int, r: int) -> Array:
        if gradient.shape != (1, self.d, 1) or np.size(sensitivity) != 1:
            raise PrivacyError(
                f"Expected the gradient of one site in one run, shape (1, {self.d}, 1), got shape={gradient.shape}. "
                "Give every site a secure source of its own."
            )
        self._advance(k, r)
        s = float(np.asarray(sensitivity).reshape(()))
        grid, scale = self.grid(sigma, s), self.scale(sigma, s)
        value = on_grid(gradient, grid)
        stream = self._stream("gaussian", k, r, float(sigma), scale, grid, self.d, value_digest(value))
        noise = discrete_gaussian(stream, scale, self.d)
        # Clipped after the noise: that is post-processing, and tells nothing about the gradient.
        released = np.clip(value - noise.reshape(value.shape), -_WIDEST, _WIDEST)
        noisy: Array = released.astype(np.float64) * grid
        return noisy

    def added_to_sum(self, exact: Floats, sigma: float, sensitivity: float, k: int) -> Floats:
        """The same for a sum of any length over the rows of this site: it is rounded to a grid of its own."""
        self._advance(k, 0)
        one = exact.reshape(1, -1, 1)
        noisy = self._as_long(len(exact)).added(one, sigma, np.full((1, 1, 1), sensitivity), k, 0)
        return noisy[0, :, 0].astype(np.float64, copy=False)

    def draws(self, k: int, r: int, offsets: Ints, batch: int, scheme: str) -> Array:
        if len(offsets) != 2:
            raise PrivacyError(f"Expected the rows of one site, got nodes={len(offsets) - 1}.")
        rows = int(offsets[-1])
        expect(batch <= self.terms, "a batch of at most `terms` rows", batch=batch, terms=self.terms)
        expect(rows <= self.terms, "at most `terms` rows", rows=rows, terms=self.terms)
        stream = self._stream("batch", k, r, rows, batch, scheme)
        if scheme == "poisson":
            # Each row on its own, with chance exactly batch / rows.
            return (uniform_below(stream, rows, rows) < batch).astype(np.float64)[:, None]
        return np.bincount(uniform_below(stream, rows, batch), minlength=rows).astype(np.float64)[:, None]

    def _stream(self, kind: str, k: int, r: int, *rest: bytes | str | int | float) -> Stream:
        """The words of one draw. Everything that the draw depends on is in the label, so no two draws share their
        words.
        """
        return self._keyed(encode_fields(_DOMAIN, VERSION, kind, self._context, int(k), int(r), *rest))

    # -- public numbers -----------------------------------------------------------------------------------------------

    def grid(self, sigma: float, sensitivity: float) -> float:
        """g, the largest power of two with 2^grid_bits g <= sigma sensitivity."""
        return finest_grid(sigma * sensitivity, self.grid_bits)

    def scale(self, sigma: float, sensitivity: float) -> int:
        """The noise's scale in grid units, a whole number. Refused if rounding would exceed the sensitivity itself."""
        n = self.terms + 8
        sums = n * UNIT / (1 - n * UNIT) * self.terms * sensitivity
        grid = self.grid(sigma, sensitivity)
        paid = sigma * (sensitivity + 2 * grid * sqrt(self.d) + sums) * (1 + 1e-12)
        # All of these numbers are public, so a refusal tells nothing about rows.
        if paid > 2 * sigma * sensitivity:
            raise PrivacyError(
                "Expected rounding errors below the sensitivity itself, got more with "
                f"terms={self.terms}, d={self.d}, sigma={sigma:g}. Sum fewer rows, or use more than "
                f"grid_bits={self.grid_bits}."
            )
        return ceil(paid / grid)

    def divergence(self, steps: int) -> float:
        """A bound on the KL divergence, in nats, of `steps` noisy steps from what the accountant prices; for the
        ledger.
        """
        return discretisation_divergence(steps * self.d, 2.0**self.grid_bits)

    # -- what is refused ----------------------------------------------------------------------------------------------

    def normals(self, k: int, r: int) -> Array:
        raise PrivacyError(
            f"Expected an algorithm that adds its noise in gradients, got one that asks for normals in round k={k}, "
            f"step r={r}. Real-valued normals are for simulations; use an algorithm with noisy steps, such as IPADMM."
        )

    @property
    def gives_normals(self) -> bool:
        """False: the low bits of floating-point normals can reveal what they were added to."""
        return False

    def _advance(self, k: int, r: int) -> None:
        """Refuse a step that is not after the last one: noise of a step is drawn once."""
        if (k, r) <= self._last:
            raise PrivacyError(
                f"Expected a step after (round, step)={self._last}, got ({k}, {r}). Noise for a step is drawn once: "
                "send again what was sent, or draw it again with within(), from the same context."
            )
        self._last = (k, r)


def require_secure(noise: Noise, *, for_tests: bool = False) -> None:
    """Raise `PrivacyError` unless the noise is fit for a real site.

    Args:
        noise: the source that the site was given.
        for_tests: accept any source. Only tests may set it.
    """
    if not isinstance(noise, SecureNoise) and not for_tests:
        raise PrivacyError(
            f"Expected secure noise at a real site, got noise={type(noise).__name__}. "
            "Whoever knows the seed can subtract the noise: use SecureNoise."
        )


def finest_grid(std: float, bits: int) -> float:
    """The largest power of two of which 2^bits are at most `std`."""
    expect(1e-200 < std < 1e200, "noise of a standard deviation between 1e-200 and 1e200", std=std)
    return ldexp(1.0, frexp(std)[1] - 1 - bits)


class Grid(NamedTuple):
    """The grid that a release is rounded to: its step g, a power of two, and the scale s of every site's noise in steps
    of it. Both are public.
    """

    step: float
    scale: int


def grid_for(
    sigma: float, sensitivity: float, shares: int, numbers: int, sites: int, step: float | None = None
) -> Grid:
    """The grid of a release, and a scale of noise that covers the rounding to it.

    g is the largest power of two with 2^30 g <= sigma Delta / sqrt(shares), and

        s g sqrt(shares) >= sigma (Delta + max(2, sites) g sqrt(numbers)),

    since each site rounds its own vector, which moves it by at most g sqrt(numbers) / 2, in each of two data sets. So
    sigma stays the one that accountants were given.

    Args:
        sigma: the noise multiplier of the sum.
        sensitivity: Delta, with the rounding of floating-point sums in it.
        shares: u - c, how many shares of noise must be enough.
        numbers: how many numbers a message holds.
        sites: the most sites at which rows may be that are protected together.
        step: g, if it is chosen already; s then covers the rounding to it.
    """
    sizes = {"shares": shares, "numbers": numbers, "sites": sites}
    expect(min(sizes.values()) >= 1, "shares >= 1, numbers >= 1 and sites >= 1", **sizes)
    step = finest_grid(sigma * sensitivity / sqrt(shares), GRID_BITS) if step is None else step
    paid = sigma * (sensitivity + max(2, sites) * step * sqrt(numbers)) * (1 + 1e-12)
    # All of these numbers are public, so a refusal tells nothing about rows.
    if paid > 2 * sigma * sensitivity:
        raise PrivacyError(
            f"Expected rounding below the sensitivity itself, got more with numbers={numbers}, sigma={sigma:g}. Ask "
            "for a larger epsilon, or for fewer features."
        )
    return Grid(step, ceil(paid / step / sqrt(shares)))


def on_grid(gradient: Array, grid: float) -> Ints:
    """The nearest multiples of the grid, in grid units, clamped to 2^52; NaN is 0. Defined for every gradient.

    Division by a power of two is exact, so the only rounding is to the nearest multiple: at most half a grid unit in
    each coordinate.

    Args:
        gradient: of any shape, with anything in it.
        grid: a power of two.
    """
    with np.errstate(all="ignore"):  # an infinite quotient is clamped like any other
        quotient = np.where(np.isnan(gradient), 0.0, gradient).astype(np.float64) / grid
        units: Ints = np.rint(np.clip(quotient, -_CLAMP, _CLAMP)).astype(np.int64)
    return units


def value_digest(value: Ints) -> bytes:
    """SHA-256 (32 bytes) of the value that the noise hides. Being part of the label, it gives another value other
    noise.
    """
    return sha256(encode_fields(*value.shape, value.astype("<i8").tobytes())).digest()
