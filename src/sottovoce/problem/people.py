"""Rows per person: counted, checked against the declared bound, and cut to it by a public rule.

The person of a row never becomes a feature, and is not stored with the sites' rows. Refusals here depend on private
counts, so only the holder of the rows may see them: they happen where rows are read, before a run.
"""

from typing import TYPE_CHECKING, Any, Literal, TypeAlias, get_args

import numpy as np

from sottovoce.arrays import Bools, Ints
from sottovoce.errors import InputError, expect

if TYPE_CHECKING:
    from sottovoce.privacy.unit import Unit  # importing its package takes long, and schemas need this module early

Surplus: TypeAlias = Literal["refuse", "drop"]
SURPLUS: tuple[Surplus, ...] = get_args(Surplus)
# A sentence that the statement must include if a surplus may be dropped, whatever the rows are.
DROPPED = (
    "Of people with more rows than that, only the first ones are learnt from. The guarantee then covers whatever a "
    "person's rows say under names that are theirs alone. It does not cover rows under other people's names: these "
    "push rows of others out, as many as somebody enters, and nobody checks names."
)


def numbered(people: Any) -> Ints:
    """The number of each row's person, from 0 on: (rows,). Equal names get equal numbers."""
    found: Ints = np.unique(np.asarray(people), return_inverse=True)[1].reshape(-1).astype(np.int64)
    return found


def within(people: Ints, most: int, sites: Ints | None = None) -> Bools:
    """True for each row that is among the first `most` of its person; counted per site if sites are given.

    It depends on the rows under the same name alone. So a person who uses no other name changes nothing for others.
    """
    keys = (people,) if sites is None else (sites, people)
    # Stable, so that a person's rows stay in the order of the file.
    order = np.lexsort(keys[::-1])
    new = np.zeros(len(people), dtype=bool)
    for key in keys:
        new[1:] |= key[order][1:] != key[order][:-1]
    new[:1] = True
    places = np.arange(len(people))
    rank = places - np.maximum.accumulate(np.where(new, places, 0))
    kept: Bools = np.empty(len(people), dtype=bool)
    kept[order] = rank < most
    return kept


def kept(people: Ints, unit: "Unit", surplus: Surplus, sites: Ints | None = None) -> Bools:
    """True for each row to learn from: the first `unit.changed` of a person at a site. Further ones are refused or
    dropped, as `surplus` says.
    """
    expect(surplus in SURPLUS, f"surplus among {', '.join(SURPLUS)}", surplus=surplus)
    found = within(people, unit.changed, sites)
    if surplus == "refuse" and not found.all():
        raise InputError(
            f"Expected at most rows={unit.changed} rows of a person at a site, got more of one, first at row "
            f"{int(np.argmin(found)) + 1} of those that are used. Declare more rows per person, which costs as much "
            "more noise, or say surplus='drop' to learn from the first ones only, which does not cover rows under "
            "others' names."
        )
    return found


def expect_within(people: Ints, sites: Ints, unit: "Unit") -> None:
    """Refuse rows of people who have more of them at a site, or are at more sites, than the unit allows."""
    kept(people, unit, "refuse", sites)
    pairs = np.unique(np.stack([people, sites]), axis=1)
    if int(np.bincount(pairs[0]).max(initial=0)) > unit.sites:
        raise InputError(
            f"Expected people at no more than sites={unit.sites} sites, got one at more. Declare more sites per "
            "person, which costs more noise, or keep such people's rows at that many sites only."
        )
