"""Sites: the rows of every node, checked once against the declared bounds that the noise is calibrated to."""

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Literal, TypeAlias, final, get_args

import numpy as np

from sottovoce.arrays import Floats, Ints
from sottovoce.document import Facts, Part
from sottovoce.document.shown import Shown
from sottovoce.errors import InputError, PrivacyError, expect
from sottovoce.privacy.unit import ROW, Unit
from sottovoce.problem import people as people_module
from sottovoce.problem import rows as rows_module
from sottovoce.problem.dataset import Dataset, declared
from sottovoce.problem.factors import ALIKE, Factors
from sottovoce.problem.factors import stacked as below
from sottovoce.problem.partition import Partition, even, refuse_reading, secret_order
from sottovoce.problem.rows import DenseRows, Matrix, Rows, RowsElsewhere

# Scaling a row to norm 1 in floating point may leave it a few ulps above 1. `Oracle.sensitivity` includes this.
NORM_SLACK = 1e-12
SHORTEST_BOUND = 1e-300  # of data_norm; much shorter rows have too few digits to be checked against it


Weights: TypeAlias = Literal["equal", "rows", "squared"]
WEIGHTS: tuple[Weights, ...] = get_args(Weights)
_POWERS: dict[Weights, int] = {"equal": 0, "rows": 1, "squared": 2}


def importances(counts: Ints | Sequence[int], weights: Weights) -> Floats:
    """n omega_i of every site of a network, from its public row counts m_i; 1 for all where all count the same.

    The network learns sum_i omega_i (mean loss of site i), with omega_i adding up to 1 and proportional to

        equal     1, the paper's
        rows      m_i: the mean loss over all rows. With noise at every site, a small one adds as much noise as a large
                  one, so many small ones can drown a large one
        squared   m_i^2: of all weights, the least noise in the weighted mean. Where rows are alike, sites that join
                  never add noise to what the largest would have alone
    """
    expect(weights in WEIGHTS, f"weights among {', '.join(WEIGHTS)}", weights=weights)
    sizes = np.asarray(counts, dtype=np.float64)
    relative = (sizes / sizes.max()) ** _POWERS[weights]
    # Summed exactly, so that every site of a federation finds the same number.
    found: Floats = relative * (len(relative) / math.fsum(relative))
    return found


@final
class Sites(Shown):
    """Rows and labels of a stack of nodes.

    Args:
        features: one (m_i, d) matrix per node, dense or CSR; unequal m_i are fine.
        labels: one vector of m_i labels per node.
        data_norm: declared bound on every row's Euclidean norm. The noise is calibrated to it, so it must not be
            computed from the data. `math.inf` if there is none (then `max_grad_norm` is needed).
        clip: scale rows that are too long down to `data_norm`. Without it they are refused.
        private: the rows need protection. Noise then comes from the operating system, and what would weaken the
            guarantee is refused: a seed, single precision. False for public rows, as in a study.
        unit: what the guarantee is for: rows, or people with at most so many rows each. Like data_norm, it is declared,
            and the noise is calibrated to it.
        people: for each node, the person of each of its rows; equal values are the same person, at all nodes. They are
            checked against the unit and not stored. None: the unit is not checked.
        factors: for each node, weights and exposures of its rows (`Factors.of`); None: rows count alike.

    Formal guarantees: every row held has norm at most data_norm (1 + 1e-12) and counts at most once, every number is
    finite, no node is empty.
    Labels are checked against the loss's label set when the two meet, before anything is computed.

    | input | what happens |
    | --- | --- |
    | NaN or infinity in a row or a label | refused, naming the site |
    | a row longer than data_norm | refused, naming site and row; scaled down if clip |
    | an empty site, lengths that differ, several d | refused |
    | a person with more rows at a site, or at more sites, than the unit allows | refused |
    """

    def __init__(
        self,
        features: Sequence[Matrix],
        labels: Sequence[Floats | Sequence[float]],
        *,
        data_norm: float = 1.0,
        clip: bool = False,
        private: bool = False,
        unit: Unit = ROW,
        people: Sequence[Sequence[object]] | None = None,
        factors: Sequence[Factors] | None = None,
    ) -> None:
        expect(
            len(features) == len(labels),
            "as many label vectors as feature matrices",
            features=len(features),
            labels=len(labels),
        )
        stacked = rows_module.stack(list(features))
        vectors = [np.asarray(b, dtype=np.float64).reshape(-1) for b in labels]
        for i, (m, b) in enumerate(zip(stacked.counts, vectors, strict=True)):
            expect(len(b) == m, f"one label for each row of site {i}", rows=int(m), labels=len(b))
        self.private, self.unit = private, unit
        if people is not None:
            lengths = [len(part) for part in people]
            expect(lengths == stacked.counts.tolist(), "a person for every row of every site", people=lengths[:5])
            whose = people_module.numbered(np.concatenate([np.asarray(part) for part in people]))
            self._expect_people(whose, np.repeat(np.arange(stacked.nodes), stacked.counts))
        if factors is not None:
            expect(len(factors) == stacked.nodes, "factors for every site", sites=stacked.nodes, factors=len(factors))
            for part, m in zip(factors, stacked.counts, strict=True):
                part.expect_rows(int(m))
        self._hold(stacked, np.concatenate(vectors), data_norm, clip, ALIKE if factors is None else below(factors))

    @classmethod
    def split(
        cls,
        data: Dataset,
        nodes: int,
        seed: int | None = None,
        *,
        partition: Partition = even,
        clip: bool = False,
        key: bytes | None = None,
    ) -> "Sites":
        """Deal one data set out to nodes, row by row; evenly and at random unless a partition says otherwise.

        Args:
            data: the rows. Where people are given, each may have at most as many rows in all as the unit allows.
            nodes: how many.
            seed: of the order of public rows; None is 0. Refused with private ones.
            partition: how many rows each node gets, and of public rows which; see `sottovoce.problem.partition`.
            clip: as for `Sites`.
            key: 32 secret bytes, fresh for each run, where several processes must deal private rows out alike. None:
                the operating system draws the order, and nobody can draw it again.

        Formal guarantees: private rows are dealt out by a uniform order that does not depend on them, on their places
        or on their people. docs/proofs/places.md says what follows for a row, and for a person whose rows come to
        lie at several sites.
        """
        if not data.private:
            expect(key is None, "no key with public rows, but a seed", private=data.private)
            return cls._of(data, partition(data, nodes, 0 if seed is None else seed), clip, dealt=True)
        refuse_reading(partition)
        if seed is not None:
            raise PrivacyError(
                f"Expected no seed to deal private rows out by, got seed={seed}. Whoever knows it could tell one row's "
                "place in the file by the rows that it moves to other sites. Leave it out, or give a secret key where "
                "several processes must deal alike."
            )
        order = secret_order(len(data), key)
        # They keep that order within a site: floating-point sums then do not depend on the order in the file.
        return cls._of(data, [order[part] for part in partition(data, nodes, 0)], clip, dealt=True)

    @classmethod
    def owned(cls, data: Dataset, parts: list[Ints], *, clip: bool = False) -> "Sites":
        """The rows of one data set where each has an owner: part i holds the numbers of node i's rows. Which site owns
        which row is public.
        """
        return cls._of(data, parts, clip, dealt=False)

    @classmethod
    def _of(cls, data: Dataset, parts: list[Ints], clip: bool, dealt: bool) -> "Sites":
        sites = cls.__new__(cls)
        sites.private, sites.unit = data.private, data.unit
        taken = np.concatenate(parts)
        labels, rows = np.asarray(data.labels, dtype=np.float64)[taken], rows_module.take(data.features, parts)
        if data.people is not None:
            # Dealt out, a person's rows may come to lie at any site: their total must be within the bound.
            whose, owners = (data.people, np.zeros(len(data), dtype=np.int64)) if dealt else (
                data.people[taken], np.repeat(np.arange(rows.nodes), rows.counts)
            )  # fmt: skip
            sites._expect_people(whose, owners)
        fewest = int(rows.counts.min())
        if dealt and rows.nodes > 1 and fewest < data.unit.changed:
            raise InputError(
                f"Expected at least {data.unit.changed} rows at every site, as many as a person may have, got "
                f"fewest={fewest}: noise at a smaller site is for its own rows, and a person may have all of several. "
                "Deal the rows out to fewer sites."
            )
        sites._hold(rows, labels, data.data_norm, clip, data.factors[taken])
        return sites

    @classmethod
    def stacked(
        cls, features: Floats, labels: Floats, counts: Ints, *, data_norm: float = 1.0, private: bool = False
    ) -> "Sites":
        """Sites of rows that lie below each other, counts[i] of them node i's. Nothing is copied."""
        expect(len(features) == len(labels) == int(counts.sum()), "as many rows and labels as counts add up to",
               rows=len(features), labels=len(labels), counts=int(counts.sum()))  # fmt: skip
        sites = cls.__new__(cls)
        sites.private, sites.unit = private, ROW
        offsets = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
        sites._hold(DenseRows(features, offsets), labels, data_norm, clip=False, factors=ALIKE)
        return sites

    def _expect_people(self, people: Ints, owners: Ints) -> None:
        """Refuse people if the unit is rows, or if one has more rows or sites than the unit allows."""
        expected = "a unit of privacy that bounds the rows of a person, since people are given"
        expect(self.unit.people, expected, unit=self.unit.words)
        people_module.expect_within(people, owners, self.unit)

    def _hold(self, rows: Rows, labels: Floats, data_norm: float, clip: bool, factors: Factors) -> None:
        """Store the rows. Empty sites, numbers that are not finite and, unless `clip`, too long rows are refused."""
        expect(data_norm >= SHORTEST_BOUND, f"data_norm >= {SHORTEST_BOUND:g}, in a larger unit", data_norm=data_norm)
        empty = np.flatnonzero(rows.counts == 0)
        expect(len(empty) == 0, "at least one row at every site", empty_sites=empty[:5].tolist())
        self.data_norm = float(data_norm)
        self.labels, self.factors = labels, factors
        self.rows = rows
        bad = np.flatnonzero(~np.isfinite(labels))
        if len(bad):
            raise InputError(f"Expected finite labels, got NaN or infinity at {self.where(bad[0])}.")
        norms = rows.norms()
        if not rows.is_finite():
            raise InputError(
                f"Expected finite features, got NaN or infinity at {self.where(int(np.argmin(np.isfinite(norms))))}."
            )
        longest = int(np.argmax(norms))
        if norms[longest] > self.data_norm * (1 + NORM_SLACK):
            if not clip:
                came = "a longer one" if self.private else f"{norms[longest]:.6g}"  # no error quotes a private row
                raise InputError(
                    f"Expected rows of norm at most data_norm={self.data_norm:g}, got {came} at "
                    f"{self.where(longest)}. Scale the rows, declare a larger data_norm, or pass clip=True."
                )
            self.rows = rows.scaled(np.minimum(1.0, self.data_norm / np.maximum(norms, self.data_norm)))

    def regrouped(self, offsets: Ints) -> "Sites":
        """The same rows assigned to other sites, site i's from offsets[i] on. Nothing is copied or checked again."""
        return self._like(self.rows.regrouped(offsets), self.labels, self.factors)

    def part(self, first: int, last: int) -> "Sites":
        """The sites first .. last - 1. Nothing is copied."""
        begin, end = self.rows.offsets[[first, last]]
        return self._like(self.rows.part(first, last), self.labels[begin:end], self.factors[begin:end])

    def elsewhere(self, counts: Ints) -> "Sites":
        """All sites of the network that these belong to, with `counts` rows each, none of which are held here."""
        offsets = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
        return self._like(RowsElsewhere(offsets, self.d), self.labels[:0], self.factors[:0])

    def _like(self, rows: Rows, labels: Floats, factors: Factors) -> "Sites":
        """Sites with these rows, which are checked already, and the declarations of this object."""
        sites = Sites.__new__(Sites)
        sites.private, sites.data_norm, sites.unit = self.private, self.data_norm, self.unit
        sites.rows, sites.labels, sites.factors = rows, labels, factors
        return sites

    def apart(self, every: int, order: Ints) -> tuple["Sites", "Sites"]:
        """Every site's rows in two parts: all but every `every`-th in the given order (`Noise.order`), and the others.
        Sites with fewer rows than `every` have none in the second part.
        """
        places = np.arange(len(self.labels)) - np.repeat(self.rows.offsets[:-1], self.counts)
        out, offsets = np.zeros(len(self.labels), dtype=bool), self.rows.offsets
        out[order] = places % every == every - 1
        all_rows, found = self.rows.block(0, len(self.labels)), []
        for chosen in (~out, out):
            parts = [np.flatnonzero(chosen[first:last]) + first for first, last in pairwise(offsets.tolist())]
            which = np.concatenate(parts)
            found.append(self._like(rows_module.take(all_rows, parts), self.labels[which], self.factors[which]))
        return found[0], found[1]

    def where(self, row: int) -> str:
        """Site and number of a row, for error messages."""
        site = int(np.searchsorted(self.rows.offsets, row, side="right")) - 1
        return f"site {site}, row {row - int(self.rows.offsets[site])}"

    @property
    def n(self) -> int:
        """Number of nodes, one for each site."""
        return self.rows.nodes

    @property
    def d(self) -> int:
        """Number of features of a row."""
        return self.rows.d

    @property
    def counts(self) -> Ints:
        """m_i, the public number of rows at every node: (n,)."""
        return self.rows.counts

    def __len__(self) -> int:
        return self.n

    def described(self) -> list[Part]:
        """Numbers of sites, rows and features, bounds, and who is protected: what is public of any rows."""
        m = self.counts
        each = f"{m.min():,}" if m.min() == m.max() else f"{m.min():,} to {m.max():,}"
        return [
            Facts(
                [
                    ("Sites", f"{self.n:,}"), ("Rows", f"{m.sum():,}, {each} at each site"),
                    ("Features", f"{self.d:,}"), *declared(self.data_norm, self.private, self.unit, self.factors),
                ]
            )
        ]  # fmt: skip
