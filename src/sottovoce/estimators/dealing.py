"""Which rows belong to which site. Both the labels of the sites and the numbers of their rows are public."""

from typing import Any

import numpy as np
from sklearn.utils import check_consistent_length, column_or_1d

from sottovoce.arrays import Bools, Ints
from sottovoce.errors import expect
from sottovoce.privacy import Unit
from sottovoce.problem import people as people_module
from sottovoce.problem.people import Surplus
from sottovoce.problem.problem import grouped


def by_labels(labels: Any, rows: int) -> list[Ints]:
    """Rows of each site, one site for each label, sorted by label; labels without an order go by their first row."""
    return grouped(_numbers(labels, rows, "a site"))[1]


def people_of(groups: Any, rows: int) -> Ints:
    """Number of the person whom each row is of, (rows,); refuses rows without one."""
    return _numbers(groups, rows, "a group")


def _numbers(owners: Any, rows: int, what: str) -> Ints:
    """Number of the owner of each row, (rows,); equal values are one owner. Refuses missing ones."""
    owners = column_or_1d(owners)
    check_consistent_length(np.empty(rows), owners)
    missing = [row for row, owner in enumerate(owners.tolist()) if _is_missing(owner)]
    expect(not missing, f"{what} for every row", rows_without=missing[:5])
    try:
        return people_module.numbered(owners)
    except TypeError:  # values of mixed kinds can be equal, and have no order
        known: dict[Any, int] = {}
        return np.array([known.setdefault(owner, len(known)) for owner in owners.tolist()], dtype=np.int64)


def _is_missing(owner: Any) -> bool:
    """True for None, NaN, NaT, and pandas' NA, which is neither equal to itself nor not."""
    try:
        return owner is None or bool(owner != owner)
    except TypeError:
        return True


def without_surplus(sites: Any, people: Ints, unit: Unit, surplus: Surplus) -> tuple[Bools, Any]:
    """True for each row that is learnt from, and the sites of these: of every person at most as many rows as was
    declared; at each site, if `sites` is given.
    """
    labels = None if sites is None else column_or_1d(sites)
    kept = people_module.kept(
        people, unit, surplus, None if labels is None else _numbers(labels, len(people), "a site")
    )
    return kept, None if labels is None else labels[kept]


def counted(sites: Any, rows: int) -> int:
    """Number of sites that rows are dealt out to; refuses all but a whole number from 1 to the number of rows."""
    whole = isinstance(sites, int | np.integer) and not isinstance(sites, bool)
    expect(whole and sites >= 1, "sites as a whole number >= 1 (labels of sites go to fit)", sites=sites)
    expect(sites <= rows, f"at most as many sites as rows, {rows}", sites=sites)
    return int(sites)
