"""Label sets: the labels that a loss accepts, and the label that a prediction gives."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import final

import numpy as np

from sottovoce.arrays import Array, Ints
from sottovoce.errors import InputError, UnsupportedError, expect


class LabelSet(ABC):
    """The labels that a loss accepts, and the label that a prediction gives."""

    @abstractmethod
    def check(self, labels: Array, before: int = 0) -> None:
        """Raise `InputError` unless every label belongs to the set. The error names the first bad row. It does not
        quote the label, which may be private. Rows are numbered from `before` on, the number of rows before these that
        are held elsewhere.
        """

    @abstractmethod
    def predict(self, z: Array) -> Array:
        """The predicted label for z; for vectors (last axis) one label each."""

    @abstractmethod
    def numbers(self, labels: Array) -> Ints:
        """The number of each label's class, from 0 on; 0 where a label is missing (NaN)."""

    def hits(self, z: Array, b: Array) -> Array:
        """1 where the predicted label is b, else 0; nan in regression. The mean is the accuracy."""
        hits: Array = 1.0 * (self.predict(z) == b)
        return hits


def sign(z: Array) -> Array:
    """The sign of z; a tie (z = 0) goes to +1. Kernels compile these lines too, so all devices share the rule."""
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
        """0 for the label -1, 1 for +1."""
        return (labels > 0).astype(np.int64)


@dataclass(frozen=True)
class Reals(LabelSet):
    """Labels of a regression: any finite numbers."""

    def check(self, labels: Array, before: int = 0) -> None:
        _check_rows(labels, np.isfinite(labels), "finite labels (drop or fill the rows whose label is missing)", before)

    def predict(self, z: Array) -> Array:
        return z

    def numbers(self, labels: Array) -> Ints:  # noqa: ARG002
        raise UnsupportedError("Expected a loss of classes to number them, got one of regression. Use the prediction.")

    def hits(self, z: Array, b: Array) -> Array:
        """All nan: accuracy has no meaning in regression."""
        return np.full(np.broadcast_shapes(np.shape(z), np.shape(b)), np.nan)


@final
@dataclass(frozen=True)
class Counts(Reals):
    """Labels that are counts from 0 to `most`; a prediction is the logarithm of the mean. Losses clip larger counts."""

    most: float

    def check(self, labels: Array, before: int = 0) -> None:
        good: Array = 1.0 * (np.isfinite(labels) & (labels >= 0))
        _check_rows(labels, good, "counts, finite numbers >= 0", before)

    def predict(self, z: Array) -> Array:
        """The mean exp(z), at most the largest count."""
        mean: Array = np.minimum(np.exp(np.minimum(z, 30.0)), self.most)
        return mean


@final
@dataclass(frozen=True)
class Times(Reals):
    """Times to an event, in intervals: above 0 and at most `intervals`; negative where rows were censored then. A
    prediction has the log-hazard of every interval on its last axis.
    """

    intervals: int

    def check(self, labels: Array, before: int = 0) -> None:
        good: Array = 1.0 * ((np.abs(labels) > 0) & (np.abs(labels) <= self.intervals))
        wanted = f"times above 0 and up to {self.intervals} intervals, negative where a row was censored"
        _check_rows(labels, good, wanted, before)

    def predict(self, z: Array) -> Array:
        """The share without an event until the end of the last interval."""
        kept: Array = np.exp(-np.sum(np.exp(np.minimum(z, 30.0)), axis=-1))
        return kept

    def hits(self, z: Array, b: Array) -> Array:
        return super().hits(z[..., 0], b)


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
