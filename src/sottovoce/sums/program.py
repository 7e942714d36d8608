"""Programs of sums: a question says what rows add to a sum, and a program asks questions and reads noisy sums.

    Question    what the rows of a site add to one sum, and by how much replacing a row can move it. Public.
    Line        one sum of a schedule: its size and its part of the budget, both known before the first sum
    Ask         what a program yields: its next question, and its answer if nothing more were opened
    Opened      what it is sent back: the noisy sum, the noise in it, and how many rows it is over

A program is a generator. It sees public numbers (`Known`) and opened sums, and neither rows nor masks nor noise. So the
same lines run in a simulation, over MPI, at a real site and under audit: only who opens the sums differs. And it can be
run again from the list of its opened sums, which is all that a site writes down. Arrays end in an axis of runs.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, NamedTuple, Self, TypeVar, final

import numpy as np

from sottovoce.arrays import Floats
from sottovoce.oracle.plain import Oracle
from sottovoce.oracle.row_sums import RowSums

T = TypeVar("T")
Held = TypeVar("Held", bound=RowSums, contravariant=True)  # what a question needs of rows


@dataclass(frozen=True, eq=False)
class Question(ABC, Generic[Held]):
    """A sum over all rows of all sites. Its fields are public: they follow from earlier sums, and from no row."""

    @abstractmethod
    def of(self, site: Held, rows: int) -> Floats:
        """The sum over the rows held here, without noise: (numbers, runs), or (numbers, 1) if it is the same in all
        runs. It must not leave a site.

        Args:
            site: the rows.
            rows: how many the whole sum is over, of all sites that take part in it.
        """

    @abstractmethod
    def sensitivity(self, site: Held, rows: int) -> Floats:
        """L2 sensitivity of the whole sum to one unit replaced, a row or a person: (1, runs) or (1, 1). It rests on
        public numbers of `site` alone.
        """

    @abstractmethod
    def largest(self, site: Held) -> float:
        """The most that one row adds to one number, in size."""

    def over(self, counts: Sequence[int]) -> int:
        """Number of rows that the sum is over, at sites with so many rows each."""
        return sum(counts)

    @property
    def point(self) -> Floats:
        """The numbers that follow from earlier sums by floating point: (numbers, runs). All sites must take the same
        bits.
        """
        return np.zeros((0, 1))

    def at(self, point: Floats) -> Self:  # noqa: ARG002
        """The same question with these numbers as its point."""
        return self


@dataclass(frozen=True, eq=False)
class AtPoint(Question[Oracle]):
    """A question about a model.

    Args:
        w: the model, (d, runs).
    """

    w: Floats

    @property
    def point(self) -> Floats:
        return self.w

    def at(self, point: Floats) -> Self:
        return replace(self, w=point)


class Line(NamedTuple):
    """One sum of a schedule."""

    kind: str  # what it sums up, in words of the statement
    numbers: int  # that it holds
    point: int  # numbers of its question's point
    part: float  # of the budget, mu^2


class Opened(NamedTuple):
    """A noisy sum, as everyone reads it."""

    question: Any  # as it was asked: with the point that all sites took
    value: Floats  # (numbers, runs)
    std: Floats  # (1, runs) or (1, 1), standard deviation of the noise in each number
    rows: int  # that it is over

    @property
    def mean(self) -> Floats:
        """The sum over the number of rows."""
        return self.value / self.rows

    @property
    def mean_std(self) -> Floats:
        """Standard deviation of the noise in each number of `mean`."""
        return self.std / self.rows


class Ask(NamedTuple):
    """What a program yields."""

    question: Question[Any]
    so_far: Any  # its answer if no further sum were opened


Program = Generator[Ask, Opened, T]


class Known(NamedTuple):
    """The public numbers that a program starts from."""

    runs: int
    features: int  # p
    data_norm: float  # B, bound on the norm of rows
    changed: int  # most rows, over all sites, that are replaced together: 1, or those of a person
    noise: tuple[float, ...]  # of each line, the noise in its sum if nobody is lost, over the sensitivity


@final
class Session(Generic[T]):
    """A program in progress.

    `ask` is its next question, None at the end. `answer` is what it has found so far.
    """

    def __init__(self, program: Program[T]) -> None:
        self._program = program
        self.ask: Ask | None = next(program)
        self.answer: Any = self.ask.so_far

    def tell(self, opened: Opened) -> None:
        """Send the program the sum that it asked for, and take its next question."""
        try:
            self.ask = self._program.send(opened)
            self.answer = self.ask.so_far
        except StopIteration as end:
            self.ask, self.answer = None, end.value


# -- questions to some of the rows ------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class _Some(Question[Oracle]):
    """A question to some of the rows.

    Args:
        inner: the question.
        every: one of so many rows of each site is held out, in an order that only the site knows.
    """

    inner: Question[Oracle]
    every: int

    @abstractmethod
    def chosen(self, site: Oracle) -> Oracle:
        """The rows that are asked, as an oracle."""

    def of(self, site: Oracle, rows: int) -> Floats:
        return self.inner.of(self.chosen(site), rows)

    def sensitivity(self, site: Oracle, rows: int) -> Floats:
        return self.inner.sensitivity(site, rows)

    def largest(self, site: Oracle) -> float:
        return self.inner.largest(site)

    @property
    def point(self) -> Floats:
        return self.inner.point

    def at(self, point: Floats) -> Self:
        return replace(self, inner=self.inner.at(point))


@final
class HeldOut(_Some):
    """A question to the rows that are held out."""

    def chosen(self, site: Oracle) -> Oracle:
        return site.apart(self.every)[1]

    def over(self, counts: Sequence[int]) -> int:
        return sum(rows // self.every for rows in counts)


@final
class LearntFrom(_Some):
    """A question to the rows that are not held out."""

    def chosen(self, site: Oracle) -> Oracle:
        return site.apart(self.every)[0]

    def over(self, counts: Sequence[int]) -> int:
        return sum(rows - rows // self.every for rows in counts)


def asking(program: Program[T], some: Callable[[Question[Oracle]], _Some]) -> Program[T]:
    """The same program, with every question to some of the rows."""
    try:
        ask = next(program)
        while True:
            opened = yield ask._replace(question=some(ask.question))
            ask = program.send(opened._replace(question=opened.question.inner))
    except StopIteration as end:
        found: T = end.value
        return found
