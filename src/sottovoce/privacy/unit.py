"""The unit of privacy: a row, or a person with all the rows that they may have.

    k   rows of a person at one site, at most; m_i where a site has fewer
    s   sites that a person may have rows at; n where there are fewer

A guarantee for people is one for rows as well: one row replaced is a person's rows replaced of which all but one stay.
docs/proofs/people.md says what it costs.
"""

import re
from dataclasses import dataclass
from typing import final

from sottovoce import settings
from sottovoce.errors import InputError, expect

MOST_ROWS, MOST_SITES = 10**6, 10**6
_SHOWN = re.compile(
    r"one person at (?:one site|up to (\d{1,7}) sites), with at most (\d{1,7}) rows?(?: at each)?, "
    r"all of them replaced by any other rows"
)


@final
@dataclass(frozen=True)
class Unit:
    """The unit that a guarantee protects: a row, or a person.

    Args:
        rows: k, the most rows that a person may have at one site. None: single rows are protected, and nobody is
            protected who stands behind several.
        sites: s, the most sites that a person may have rows at.
    """

    rows: int | None = None
    sites: int = 1

    def __post_init__(self) -> None:
        whole = type(self.changed) is int and type(self.sites) is int
        expect(whole, "whole numbers of rows and sites of a person", rows=self.rows, sites=self.sites)
        if not 1 <= self.changed <= MOST_ROWS:
            raise InputError(
                f"Expected rows per person from 1 to {MOST_ROWS}, got rows={self.rows}. Say how many rows a person may "
                "have at a site, or leave it out to protect single rows."
            )
        if not 1 <= self.sites <= MOST_SITES:
            raise InputError(
                f"Expected sites per person from 1 to {MOST_SITES}, got sites={self.sites}. Say at how many sites a "
                "person may have rows."
            )
        if self.rows is None and self.sites > 1:
            raise InputError(
                f"Expected the most rows of a person where people are at several sites, got sites={self.sites} and no "
                "rows. Give both, or neither to protect single rows."
            )

    @property
    def people(self) -> bool:
        """True if people are protected, and not only rows."""
        return self.rows is not None

    @property
    def changed(self) -> int:
        """k, the number of rows of one site that may be replaced together."""
        return 1 if self.rows is None else self.rows

    @property
    def single(self) -> bool:
        """True if at most one row is replaced: guarantees for rows then hold unchanged."""
        return self.changed == self.sites == 1

    def covers(self, other: "Unit") -> bool:
        """True if a guarantee for this unit is also one for the other."""
        known = self.people or not other.people
        return known and self.changed >= other.changed and self.sites >= other.sites

    @property
    def words(self) -> str:
        """The unit in words, for statements and files. `named` is the inverse."""
        if self.rows is None:
            return UNIT_OF_PRIVACY
        rows = f"{self.rows} row{'' if self.rows == 1 else 's'}"
        where, each = ("one site", "") if self.sites == 1 else (f"up to {self.sites} sites", " at each")
        return f"one person at {where}, with at most {rows}{each}, all of them replaced by any other rows"

    def __str__(self) -> str:
        return self.words

    @classmethod
    def named(cls, words: object) -> "Unit":
        """The unit that `words` describes; any other text is refused."""
        if words == UNIT_OF_PRIVACY:
            return ROW
        found = _SHOWN.fullmatch(words) if isinstance(words, str) else None
        unit = ROW if found is None else cls(int(found[2]), int(found[1] or 1))
        if unit.words != words:
            raise InputError(
                f"Expected the unit {UNIT_OF_PRIVACY!r}, or such as {cls(3, 2).words!r}, got unit={words!r:.200}. Use "
                "the sottovoce that wrote it."
            )
        return unit


settings.made_by(Unit, Unit.named)
UNIT_OF_PRIVACY = "one row of one site replaced by any other row"
ROW = Unit()
