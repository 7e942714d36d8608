"""A data set in memory: rows, labels, and the declared bound on the norm of rows."""

from dataclasses import dataclass, replace
from math import inf
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
from scipy import sparse

from sottovoce.arrays import Bools, Floats, Ints
from sottovoce.errors import expect
from sottovoce.privacy.unit import ROW, Unit
from sottovoce.problem.factors import ALIKE, Factors

if TYPE_CHECKING:
    Features: TypeAlias = sparse.csr_array[np.float64, tuple[int, int]] | Floats


@dataclass(frozen=True, eq=False)
class Dataset:
    """Rows a_j with labels b_j; the first `n_train` rows are for training.

    `data_norm` is a declared bound on every row's Euclidean norm. It is not computed here: a bound computed
    from private rows would itself tell something about them. `Sites` checks the rows against it.

    `private` is True if the rows need protection, as those of a file do: whatever would leak them is then refused. It
    is False for public rows, as in the packaged data sets.

    `unit` is what is protected: rows, or people with at most so many rows each. `people` numbers the person of each
    row; the number has no other meaning. With None, rows cannot be checked against the unit.

    `factors` are the rows' weights and exposures, relative to their public bounds.
    """

    features: "Features"  # (rows, d)
    labels: Floats  # (rows,)
    names: tuple[str, ...]  # of the d columns
    n_train: int
    data_norm: float
    name: str
    private: bool = False
    unit: Unit = ROW
    people: Ints | None = None
    factors: Factors = ALIKE

    def __post_init__(self) -> None:
        expect(self.features.ndim == 2, "features of shape (rows, d)", shape=self.features.shape)
        rows, d = self.features.shape
        expect(self.labels.shape == (rows,), f"one label for each of {rows} rows", shape=self.labels.shape)
        expect(len(self.names) == d, f"one name for each of {d} columns", names=len(self.names))
        expect(0 <= self.n_train <= rows, f"0 <= n_train <= {rows}", n_train=self.n_train)
        expect(0 < self.data_norm <= inf, "data_norm > 0", data_norm=self.data_norm)
        count = None if self.people is None else len(self.people)
        expect(count in (None, rows), f"one person for each of {rows} rows", people=count)
        self.factors.expect_rows(rows)

    def __len__(self) -> int:
        return int(self.features.shape[0])

    @property
    def d(self) -> int:
        """Number of feature columns."""
        return int(self.features.shape[1])

    @property
    def train(self) -> "Dataset":
        """The first `n_train` rows, as a data set of their own."""
        return replace(self.taken(slice(0, self.n_train)), n_train=self.n_train)

    @property
    def test(self) -> "Dataset":
        """The rows after the first `n_train`, as a data set of their own."""
        return self.taken(slice(self.n_train, len(self)))

    def taken(self, rows: slice | Ints | Bools) -> "Dataset":
        """The chosen rows with their labels, people and factors. `n_train` is 0: the caller sets it."""
        people = None if self.people is None else self.people[rows]
        return replace(
            self, features=self.features[rows], labels=self.labels[rows], n_train=0, people=people,
            factors=self.factors[rows],
        )  # fmt: skip

    def values(self, column: str) -> Floats:
        """One column as a dense vector (rows,); an unknown name is refused."""
        attributes = ", ".join(dict.fromkeys(name.split("=")[0] for name in self.names))
        expect(column in self.names, f"a column among {attributes}", column=column)
        return _dense(self.features[:, [self.names.index(column)]])[:, 0]

    def categories(self, attribute: str) -> Ints | None:
        """The category of every row in a one-hot attribute; None if there is no such attribute.

        The columns of a one-hot attribute are named "attribute=category". Categories count from 1 in the
        order of their columns; 0 is a row that has none of them.
        """
        hot = [i for i, column in enumerate(self.names) if column.startswith(f"{attribute}=")]
        if not hot:
            return None
        present = _dense(self.features[:, hot]) != 0
        most = int(present.sum(axis=1).max(initial=0))
        expect(most <= 1, f"at most one non-zero per row among the columns {attribute}=...", most=most)
        codes: Ints = present @ np.arange(1, len(hot) + 1)
        return codes


def _dense(features: "Features") -> Floats:
    return features if isinstance(features, np.ndarray) else features.toarray()
