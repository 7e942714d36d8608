"""Regularisers, all of one family: phi(w) = l1 ||w||_1 + (l2 / 2) ||w||^2.

A model is axis 1 of its array, as in (nodes, d, runs). A node's objective is the mean loss plus lam phi(w); lam is not
part of a regulariser. A regulariser reads no row, so it does not add to the sensitivity.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from math import sqrt
from typing import ClassVar, final

import numpy as np

from sottovoce import settings
from sottovoce.arrays import Array
from sottovoce.errors import expect


@dataclass(frozen=True)
class Regulariser(ABC):
    """A regulariser phi, given by the weights of its two parts."""

    name: ClassVar[str]

    @property
    @abstractmethod
    def l1(self) -> float:
        """Weight of ||w||_1 in phi."""

    @property
    @abstractmethod
    def l2(self) -> float:
        """Weight of ||w||^2 / 2 in phi."""

    def value(self, w: Array) -> Array:
        """The penalty of every model: (nodes, d, runs) to (nodes, runs)."""
        total: Array = np.sum(self.l1 * np.abs(w) + self.l2 / 2 * w * w, axis=1)
        return total

    def gradient(self, w: Array) -> Array:
        """l1 sign(w) + l2 w, a subgradient: the sign of 0 is 0."""
        return self.l1 * np.sign(w) + self.l2 * w

    def prox(self, w: Array, step: float | Array) -> Array:
        """The u that minimises step phi(u) + ||u - w||^2 / 2: shrink by step l1, divide by 1 + step l2.

        Args:
            w: models, of any shape.
            step: at least 0; a number, or an array that broadcasts.
        """
        shrunk = np.maximum(np.abs(w) - step * self.l1, 0.0)
        return np.sign(w) * shrunk / (1 + step * self.l2)

    def lipschitz(self, radius: float, d: int) -> float:
        """Lipschitz constant on the ball ||w|| <= radius in d dimensions: l1 sqrt(d) + l2 radius."""
        expect(radius >= 0, "radius >= 0", radius=radius)
        expect(d >= 1, "d >= 1", d=d)
        # Without the quadratic part an unbounded ball is allowed, and 0 * inf would be nan.
        return self.l1 * sqrt(d) + (self.l2 * radius if self.l2 else 0.0)

    @property
    def strong_convexity(self) -> float:
        """The largest c with which phi(w) - c ||w||^2 / 2 is convex."""
        return self.l2

    @property
    def curvature(self) -> float | None:
        """The second derivative, the same in every direction; None where the l1 part leaves a kink."""
        return None if self.l1 else self.l2


@final
@dataclass(frozen=True)
class L2(Regulariser):
    """Half the squared Euclidean norm, ||w||^2 / 2."""

    name = "l2"
    l1 = 0.0
    l2 = 1.0


@final
@dataclass(frozen=True)
class L1(Regulariser):
    """The sum of absolute values, ||w||_1."""

    name = "l1"
    l1 = 1.0
    l2 = 0.0


@final
@dataclass(frozen=True)
class ElasticNet(Regulariser):
    """mix ||w||_1 + (1 - mix) ||w||^2 / 2.

    Args:
        mix: from 0 (the same as `L2`) to 1 (the same as `L1`).
    """

    name = "elastic-net"
    mix: float = 0.5

    def __post_init__(self) -> None:
        expect(0 <= self.mix <= 1, "0 <= mix <= 1", mix=self.mix)

    @property
    def l1(self) -> float:
        return self.mix

    @property
    def l2(self) -> float:
        return 1 - self.mix


_BY_NAME: dict[str, type[Regulariser]] = {kind.name: kind for kind in (L2, L1, ElasticNet)}
NAMES: tuple[str, ...] = tuple(_BY_NAME)
settings.tagged(Regulariser, "name", _BY_NAME)


def by_name(name: str, **options: float) -> Regulariser:
    """The regulariser of that name; `by_name("elastic-net", mix=0.2)` sets its option."""
    return settings.read(Regulariser, {"name": name, **options}, f"options of {name}")  # type: ignore[type-abstract]
