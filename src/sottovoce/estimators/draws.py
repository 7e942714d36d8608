"""Where the randomness of a fit comes from: the operating system, or a seed for tests."""

import random
import secrets
from abc import ABC, abstractmethod
from typing import Any, TypeAlias, final

import numpy as np
from sklearn.utils import check_random_state

RandomState: TypeAlias = "int | np.random.RandomState | None"


class Draws(ABC):
    """Randomness of a fit. `seed` is that of dealing and noise; None leaves them to the operating system."""

    seed: int | None

    @abstractmethod
    def random(self) -> random.Random:
        """Generator for the number of runs of a search, and for its candidates."""

    @abstractmethod
    def child(self) -> int | None:
        """The random_state of one fit in a search; None for the operating system."""


@final
class SystemDraws(Draws):
    """The operating system's cryptographic source. Nothing is kept, so nothing can be drawn again."""

    seed = None

    def random(self) -> random.Random:
        return secrets.SystemRandom()

    def child(self) -> None:
        return None


@final
class SeededDraws(Draws):
    """Randomness from one number. Whoever knows it can subtract the noise."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self._children = np.random.default_rng(seed)

    def random(self) -> random.Random:
        return random.Random(self.seed)

    def child(self) -> int:
        return int(self._children.integers(2**31))


def draws_of(random_state: RandomState) -> Draws:
    """The operating system's randomness for None; seeded for a number or NumPy's RandomState, as in scikit-learn."""
    if random_state is None:
        return SystemDraws()
    generator: Any = check_random_state(random_state)
    return SeededDraws(int(generator.randint(2**31 - 1)))
