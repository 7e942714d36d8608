"""What sites can compute together: public settings, what leaves a site, what that costs, and how rows come in.

    PrivateMethod   learns a model (`sottovoce.algorithms.base`)
    Analysis        reads noisy sums over all sites (`sottovoce.algorithms.analysis`); its answer may be a table

An agreement of real sites is about one of these. What it does with one, it asks here.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence as Listing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple, TypeAlias

from sottovoce.oracle.row_sums import RowSums
from sottovoce.privacy import PrivacyStatement
from sottovoce.privacy.unit import Unit
from sottovoce.problem.dataset import Dataset
from sottovoce.problem.factors import Factors
from sottovoce.problem.problem import encoded
from sottovoce.problem.sites import Sites

if TYPE_CHECKING:
    from sottovoce.files.schema import Schema

View: TypeAlias = Literal["messages", "average", "sums", "model"]
End: TypeAlias = Literal["model", "table"]


class Way(NamedTuple):
    """What sites send, and what follows from that for every computation."""

    label: str
    exchanges: str  # what a run is counted in
    one_model: bool  # all sites hold the same model
    complete: bool  # every site must hear every other
    masked: bool  # messages are masked, and rest on keys


OWN_NOISE = Way("own noise", "rounds", one_model=False, complete=False, masked=False)
MASKED_SUMS = Way("masked sums", "sums", one_model=True, complete=True, masked=True)


class Shape(NamedTuple):
    """Rows as a computation takes them, before any is read."""

    features: int  # numbers of a row
    data_norm: float  # bound on its norm


class Place(NamedTuple):
    """Where a site is among all: public numbers."""

    counts: Listing[int]  # m_i, rows of every site
    number: int  # of this site among them
    degree: int  # how many sites it hears


@dataclass(frozen=True, kw_only=True)
class Computation(ABC):
    """A computation on the rows of all sites, with its guarantee. All settings are public."""

    way: ClassVar[Way]
    view: ClassVar[View] = "messages"  # the most that an observer sees, and the guarantee is about
    ends_in: ClassVar[End] = "model"  # what a site is left with

    # -- the guarantee ------------------------------------------------------------------------------------------------

    @property
    @abstractmethod
    def epsilon(self) -> float:
        """Of the guarantee over everything that is released."""

    @property
    @abstractmethod
    def delta(self) -> float:
        """Of the same guarantee."""

    @property
    @abstractmethod
    def rounds(self) -> int:
        """How often sites exchange messages."""

    @property
    def messages(self) -> int:
        """Number of messages that a real site sends, without repeats."""
        return self.rounds

    @abstractmethod
    def check(self, site: Any) -> None:
        """Refuse rows that this cannot be run on, by public numbers, before any is looked at."""

    @abstractmethod
    def expect_unit(self, unit: Unit) -> None:
        """Refuse to protect a unit for which there is no proof."""

    @abstractmethod
    def colluders(self, n: int) -> int | None:
        """Number of colluding sites, of n, that the guarantee assumes; None: it holds against all others together."""

    @abstractmethod
    def promises(self, n: int) -> list[tuple[float, int]]:
        """Every epsilon that was asked for, with the number of colluding sites, of n, that it must hold against."""

    @abstractmethod
    def statement(self, site: Any) -> PrivacyStatement:
        """The guarantee of the whole run."""

    @abstractmethod
    def sigma(self, site: Any) -> float:
        """The noise multiplier: standard deviation over sensitivity, of each private step."""

    @abstractmethod
    def share_std(self, site: Any, rows: int) -> float:
        """Standard deviation of the noise that one site adds to each number of what is released, at the start of a run
        over so many rows in all.
        """

    @abstractmethod
    def grid_delta(self, colluding: int, epsilon: float, n: int, features: int, unit: Unit, bits: int) -> float:
        """What drawing noise on a grid of that many bits adds to delta for every unit at n real sites, at most, where
        such an epsilon is to hold against so many colluding sites.
        """

    @property
    @abstractmethod
    def released(self) -> str:
        """What leaves a site, in words."""

    @property
    @abstractmethod
    def noisy(self) -> str:
        """The numbers that `share_std` is about, in words: "each coordinate of a gradient"."""

    @property
    @abstractmethod
    def split(self) -> dict[str, float]:
        """The part of the budget that every kind of release takes."""

    # -- rows ---------------------------------------------------------------------------------------------------------

    @abstractmethod
    def expect_schema(self, schema: "Schema") -> None:
        """Refuse a schema whose rows this cannot take."""

    def shape(self, schema: "Schema") -> Shape:
        """The rows that `rows_in` returns: features, as the schema makes them."""
        return Shape(schema.d, schema.data_norm)

    def rows_in(self, path: Path, schema: "Schema", site: str | None = None) -> Dataset:
        """The private rows of a site's file, as this computes with them: features and labels."""
        return encoded(path, schema, site=site)[0]

    @abstractmethod
    def factors(self, schema: "Schema | None") -> Factors:
        """Weight and exposure of one row at their bounds, as far as this reads them."""

    @abstractmethod
    def at_site(self, sites: Sites, place: Place) -> RowSums:
        """The rows of the one site at that place, as this computes with them."""

    def remarks(self, schema: "Schema") -> tuple[str, ...]:  # noqa: ARG002
        """Notes of the statement that follow from the schema."""
        return ()

    def preview(self, schema: "Schema | None", site: Any, rows: int) -> tuple[str, ...]:  # noqa: ARG002
        """Sentences on what all sites will read, for those who are to agree: from public numbers. None where `released`
        says it all.
        """
        return ()
