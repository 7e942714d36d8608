"""A data set in memory: rows, labels, and the declared bound on the norm of rows."""

from dataclasses import dataclass, replace
from math import inf
from typing import TYPE_CHECKING, TypeAlias, final

import numpy as np
import scipy

from sottovoce.arrays import Bools, Floats, Ints
from sottovoce.document import Facts, Part, Words
from sottovoce.document.shown import Shown
from sottovoce.errors import expect
from sottovoce.privacy.unit import ROW, Unit
from sottovoce.problem.factors import ALIKE, Factors

if TYPE_CHECKING:
    Features: TypeAlias = scipy.sparse.csr_array[np.float64, tuple[int, int]] | Floats


@final
@dataclass(frozen=True, eq=False, repr=False)
class Dataset(Shown):
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

    def described(self) -> list[Part]:
        """Numbers of rows and features, bounds, and who is protected; of public rows, also the labels."""
        train = f", {self.n_train:,} of them for training" if 0 < self.n_train < len(self) else ""
        labels = [] if self.private else [("Labels", _label_words(self.labels))]
        facts = [
            ("Data set", self.name), ("Rows", f"{len(self):,}{train}"), ("Features", listed(self.names)), *labels,
            *declared(self.data_norm, self.private, self.unit, self.factors),
        ]  # fmt: skip
        return [Facts(facts), *([Words(HIDDEN, "soft")] if self.private else [])]

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


HIDDEN = "The rows are private: none is shown, and nothing that was computed from them."
_FEW = 5  # names or labels that are shown of many


def declared(data_norm: float, private: bool, unit: Unit, factors: Factors) -> list[tuple[str, str]]:
    """What was declared of rows, for a list of facts: all of it is public."""
    facts = [("Norm of a row", f"at most {data_norm:g}")]
    facts += [("Rows have", ", ".join(factors.told))] if factors.told else []
    return [*facts, *([("Rows are", "private"), ("Protects", str(unit))] if private else [("Rows are", "public")])]


def listed(names: tuple[str, ...]) -> str:
    """How many names there are, and the first of them."""
    shown = ", ".join(names[:_FEW]) + (", ..." if len(names) > _FEW else "")
    return f"{len(names):,}: {shown}" if names else "0"


def _label_words(labels: Floats) -> str:
    """The labels of public rows: the share of each, or the range of many."""
    values, counts = np.unique(labels, return_counts=True)
    if len(values) > _FEW:
        return f"numbers from {values[0]:g} to {values[-1]:g}"
    return ", ".join(f"{value:g} ({n / len(labels):.1%})" for value, n in zip(values, counts, strict=True))


def _dense(features: "Features") -> Floats:
    return features if isinstance(features, np.ndarray) else features.toarray()
