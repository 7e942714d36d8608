"""Which rows belong to which site. Both the labels of the sites and the numbers of their rows are public."""

from typing import Any

import numpy as np
from sklearn.utils import check_consistent_length, column_or_1d

from sottovoce.arrays import Ints
from sottovoce.errors import expect
from sottovoce.estimators.draws import Draws
from sottovoce.problem import grouped


def by_labels(labels: Any, rows: int) -> list[Ints]:
    """One site for each label, in the order of the sorted labels."""
    owners = column_or_1d(labels)
    check_consistent_length(np.empty(rows), owners)
    if owners.dtype.kind in "fO":
        missing = [row for row, owner in enumerate(owners.tolist()) if owner is None or owner != owner]
        expect(not missing, "a site for every row", rows_without=missing[:5])
    return grouped(owners)[1]


def at_random(sites: Any, rows: int, draws: Draws) -> list[Ints]:
    """All rows, evenly: the sizes differ by at most one, whatever the rows are."""
    whole = isinstance(sites, int | np.integer) and not isinstance(sites, bool)
    expect(whole and sites >= 1, "sites as a whole number >= 1 (labels of sites go to fit)", sites=sites)
    expect(sites <= rows, f"at most as many sites as rows, {rows}", sites=sites)
    if sites == 1:
        return [np.arange(rows)]
    return [np.sort(part) for part in np.array_split(draws.order(rows), sites)]
