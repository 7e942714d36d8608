"""Label sets: the labels that a loss accepts, and what predictions mean among them."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import final

import numpy as np

from sottovoce.arrays import Array, Ints
from sottovoce.errors import InputError, UnsupportedError, expect


class LabelSet(ABC):
    """The labels that a loss accepts, and what a prediction means among them."""

    @abstractmethod
    def check(self, labels: Array, before: int = 0) -> None:
        """Raise `InputError`, naming the first bad row, unless every label belongs. Its label is not quoted: it may be
        private, and errors end up in logs. Rows are counted from `before` on: so many are held elsewhere.
        """

    @abstractmethod
    def predict(self, z: Array) -> Array:
        """The label that the prediction z stands for; of vectors (last axis), one label each."""

    @abstractmethod
    def numbers(self, labels: Array) -> Ints:
        """The number of each label's class, from 0 on; 0 where a label is missing (NaN)."""

    @abstractmethod
    def hits(self, z: Array, b: Array) -> Array:
        """1 where the predicted label is b, else 0; nan in regression. The mean is the accuracy."""


def sign(z: Array) -> Array:
    """The sign of z, where a tie (z = 0) goes to +1. Kernels compile these lines too: there is no other rule."""
    signs: Array = np.sign(z) + (z == 0)
    return signs


def _check_rows(labels: Array, good: Array, expected: str, before: int) -> None:
    """Raise `InputError` at the first row whose label is not good."""
    expect(labels.ndim == 1, "labels as a one-dimensional array", shape=labels.shape)
    bad = np.flatnonzero(~np.asarray(good, dtype=bool))
    if bad.size:
        raise InputError(f"Expected {expected}, got another in row={before + int(bad[0])}.")


@final
@dataclass(frozen=True)
class Signs(LabelSet):
    """Labels of two classes, -1 and +1."""

    def check(self, labels: Array, before: int = 0) -> None:
        _check_rows(labels, np.abs(labels) == 1, "labels -1 or +1 (for labels 0 and 1 pass 2 * labels - 1)", before)

    def predict(self, z: Array) -> Array:
        """The sign of z; a tie (z = 0) goes to +1."""
        return sign(z)

    def numbers(self, labels: Array) -> Ints:
        """-1 is the first class, +1 the second."""
        return (labels > 0).astype(np.int64)

    def hits(self, z: Array, b: Array) -> Array:
        hits: Array = 1.0 * (self.predict(z) == b)
        return hits


@dataclass(frozen=True)
class Reals(LabelSet):
    """Labels of a regression: any finite numbers."""

    def check(self, labels: Array, before: int = 0) -> None:
        _check_rows(labels, np.isfinite(labels), "finite labels (drop or fill the rows whose label is missing)", before)

    def predict(self, z: Array) -> Array:
        return z

    def numbers(self, labels: Array) -> Ints:  # noqa: ARG002
        raise UnsupportedError("Numbers of classes need a loss of classes, got one of regression. Use the prediction.")

    def hits(self, z: Array, b: Array) -> Array:
        """All nan: accuracy has no meaning in regression."""
        return np.full(np.broadcast_shapes(np.shape(z), np.shape(b)), np.nan)


@final
@dataclass(frozen=True)
class Counts(Reals):
    """Numbers from 0 to `most`, whose mean is predicted by its logarithm. A loss of them clips what lies beyond."""

    most: float

    def check(self, labels: Array, before: int = 0) -> None:
        good: Array = 1.0 * (np.isfinite(labels) & (labels >= 0))
        _check_rows(labels, good, "counts, finite numbers >= 0", before)

    def predict(self, z: Array) -> Array:
        """The mean: exp(z), and no more than the largest count."""
        mean: Array = np.minimum(np.exp(np.minimum(z, 30.0)), self.most)
        return mean


@final
@dataclass(frozen=True)
class Classes(LabelSet):
    """The classes 0 .. count - 1. A prediction has one number for each, on its last axis."""

    count: int

    def check(self, labels: Array, before: int = 0) -> None:
        good = (labels == np.floor(labels)) & (labels >= 0) & (labels < self.count)
        _check_rows(
            labels, good, f"labels among 0 .. {self.count - 1} (number the {self.count} classes from 0 on)", before
        )

    def predict(self, z: Array) -> Array:
        """The class with the largest number; of several, the first. NaN where a number is missing."""
        largest: Array = np.where(np.isnan(z).any(axis=-1), np.nan, np.argmax(z, axis=-1))
        return largest

    def numbers(self, labels: Array) -> Ints:
        return np.nan_to_num(labels).astype(np.int64)

    def hits(self, z: Array, b: Array) -> Array:
        hits: Array = 1.0 * (self.predict(z) == b)
        return hits
