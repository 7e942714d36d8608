"""Two worlds that differ in one row, and what an observer sees of many runs in each.

The rows are made up and public: every other row, the graph and all settings are known to the observer, as the guarantee
allows. The row in question is the first of site 0. What is around it helps the attack, in one of two ways; which of
them, and which two rows, is found by search (`pairs`):

    still     the other rows cancel, so models stay small: opposite rows then are as far apart as they can be there
    driven    the other rows are alike and drive the models along one line, where the observer knows them to be. At
              large models two rows at an angle are farther apart than any two at small ones
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, NamedTuple, TypeAlias, final, get_args

import numpy as np

from sottovoce.algorithms.base import Method
from sottovoce.algorithms.computation import View
from sottovoce.arrays import Floats
from sottovoce.auditing.views import Watched
from sottovoce.noise.sources import NoiseFunction, Shape
from sottovoce.problem.graphs import Graph
from sottovoce.problem.losses import Loss
from sottovoce.problem.losses.labels import Classes, Signs, Times
from sottovoce.problem.problem import Problem
from sottovoce.problem.sites import Sites
from sottovoce.simulation.devices import DeviceName, Precision, by_name
from sottovoce.simulation.engine import solve

# Made for the shape of a block of runs; it must bring fresh noise every time.
NoiseMaker: TypeAlias = Callable[[Shape], NoiseFunction]
Around: TypeAlias = Literal["still", "driven"]
AROUND: tuple[Around, ...] = get_args(Around)
BLOCK = 2500  # runs at once
FAR = 100.0  # a label that no prediction comes near


class Row(NamedTuple):
    """A row in the plane that the search goes through."""

    angle: float  # against the direction in which the models are driven, in radians
    label: float


@final
@dataclass(frozen=True)
class Worlds:
    """What the two worlds have in common, and how to run one of them.

    Args:
        algorithm: what is audited.
        graph: of its sites.
        rows: at every site.
        features: at least 2.
        view: what the observer sees.
        around: how the other rows help.
        colluding: of masked sums, how many sites tell the observer all they know.
        device, dtype: where it runs, as for `simulate`.
        system: True if noise is the operating system's, as for private rows.
        noise: noise to be handed in, in place of the library's own.
    """

    algorithm: Method
    graph: Graph
    rows: int
    features: int
    view: View
    around: Around = "still"
    colluding: int = 0
    device: DeviceName = "cpu"
    dtype: Precision = "float64"
    system: bool = False
    noise: NoiseMaker | None = None

    def problem(self, row: Row, system: bool = False) -> Problem:
        """The problem in which site 0's first row is this one."""
        loss = self.algorithm.loss
        around = surroundings(self.around, self.rows, self.features)
        labels = np.full(self.rows, 0.0 if isinstance(loss.labels, Classes) else 1.0)
        own, own_labels = around.copy(), labels.copy()
        own[0], own_labels[0] = place(row, self.features), row.label
        features = [own, *[around] * (self.graph.n - 1)]
        sites = Sites(features, [own_labels, *[labels] * (self.graph.n - 1)], private=system, clip=True)
        return Problem(sites, self.graph)

    def seen(
        self, row: Row, runs: int, seed: int, *, own: bool = True, told: Callable[[int], None] | None = None,
        opened: list[Floats] | None = None,
    ) -> Floats:  # fmt: skip
        """Run the world of this row, and return what the observer sees: (runs, numbers).

        Args:
            row: which world.
            runs: how many.
            seed: of the simulated noise. The same seed is the same noise, in both worlds.
            own: with the noise that is audited; without it, with the simulator's own, as an observer would simulate.
            told: called with the number of runs that are done.
            opened: of masked sums, the sums themselves are added to it, (runs, numbers) each.
        """
        system = own and self.system
        problem, blocks = self.problem(row, system), []
        for first in range(0, runs, BLOCK):
            count = min(BLOCK, runs - first)
            watched = Watched.over(self.algorithm, self.view, self.colluding, by_name(self.device).to_host)
            given = None
            if own and self.noise is not None:
                width = problem.sites.d * self.algorithm.loss.outputs
                given = self.noise(Shape(self.graph.n, width, count))
            solve(
                problem, watched, runs=count, seed=None if system else seed + first, noise=given, record=1, scored=1,
                device=self.device, dtype=self.dtype,
            )  # fmt: skip
            blocks.append(watched.transcript())
            if opened is not None and self.view == "sums":
                opened.append(watched.sums())
            if told is not None:
                told(count)
        return np.concatenate(blocks)


def surroundings(around: Around, rows: int, features: int) -> Floats:
    """Features of all other rows of a site, (rows, features)."""
    found = np.zeros((rows, features))
    found[:, 0] = 1.0
    if around == "still":
        turns = np.arange(rows) * (np.pi / 2)  # right, up, left, down
        found[:, :2] = np.round(np.stack([np.cos(turns), np.sin(turns)], axis=1))
    return found


def labels_of(loss: Loss) -> tuple[float, ...]:
    """Labels that the row in question may have."""
    if isinstance(loss.labels, Signs):
        return (1.0,)  # a row with the other label is the opposite row with this one
    if isinstance(loss.labels, Times):
        last = float(loss.labels.intervals)
        return 1.0, last, -last  # an event in the first interval or at the end, and none
    return tuple(map(float, range(loss.labels.count))) if isinstance(loss.labels, Classes) else (-FAR, FAR)


def place(row: Row, features: int) -> Floats:
    """Features of the row, (features,), of norm 1."""
    vector = np.zeros(features)
    vector[:2] = np.cos(row.angle), np.sin(row.angle)
    return vector
