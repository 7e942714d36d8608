"""A guarantee as parts of a document: in full, and against how many colluding sites which epsilon holds."""

from math import isfinite

from sottovoce.document import Part, Table, Words
from sottovoce.numerals import up
from sottovoce.privacy.observers import NONE, Sight
from sottovoce.privacy.statement import PrivacyStatement, milestones


def guarantee(privacy: PrivacyStatement) -> list[Part]:
    """The statement in full, and its table where epsilon depends on who colludes."""
    return [Words(privacy.prose(), "plain" if privacy.private else "bad"), *observers(privacy.observers)]


def observers(sights: tuple[Sight, ...]) -> list[Part]:
    """A table of epsilon by the number of colluding sites; nothing where epsilon does not depend on it."""
    if len(sights) < 2:
        return []
    assumed = max((line.colluding for line in sights if line.noise >= 1), default=None)
    rows = [
        (
            str(line.colluding),
            up(line.epsilon) if isfinite(line.epsilon) else NONE,
            "assumed" if line.colluding == assumed else "",
        )
        for line in milestones(sights)
    ]
    return [Table(("colluding sites, with the message server", "epsilon", ""), rows, frozenset({0, 1}))]
