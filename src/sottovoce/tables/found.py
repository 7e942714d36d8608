"""What every table has that was found from a noisy sum: a title, its numbers as CSV, its guarantee, maybe a figure."""

from abc import abstractmethod
from typing import TYPE_CHECKING

from sottovoce.document.shown import Shown
from sottovoce.privacy import PrivacyStatement

if TYPE_CHECKING:
    from matplotlib.figure import Figure


class FoundTable(Shown):
    """A table with the guarantee of the rows that it was found from."""

    privacy: PrivacyStatement

    @property
    @abstractmethod
    def title(self) -> str:
        """What the table is, in a few words."""

    @abstractmethod
    def to_csv(self) -> str:
        """A line for each number, with its interval and a heading; empty cells where nothing is known."""

    def figure(self) -> "Figure | None":
        """The table as a figure of its own; None if it is not drawn."""
        return None
