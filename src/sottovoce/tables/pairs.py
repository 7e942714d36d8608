"""Tables of two columns with levels, from the second moments that a run on masked sums has released anyway.

A feature of a level is 1/B in the rows at that level and 0 in all others, with B as of the schema. So with M the opened
sum of a a^T and s the noise in each number of its half,

    B^2 M[i, j]          rows at both levels      noise  s B^2 / sqrt(2)
    B^2 M[i, i]          rows at the level        noise  s B^2
    B^2 M[i, last] / c   the same                 noise  s B^2 / (sqrt(2) c),      c the intercept

and all cells add up to N, which is public. A level without a feature, the reference, follows from the others. Of all
tables with the total N, that of weighted least squares is taken: it is linear in M, so its noise is normal with a known
covariance. It is post-processing of what the run's guarantee covers, and costs nothing.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from io import BytesIO
from itertools import combinations
from pathlib import Path
from typing import NamedTuple, final

import numpy as np

from sottovoce.arrays import Floats
from sottovoce.document import Folded, Part
from sottovoce.document.shown import Shown
from sottovoce.errors import InputError, expect
from sottovoce.files.schema import Column, Schema
from sottovoce.files.schema.encoding import slack
from sottovoce.oracle.row_sums import whole
from sottovoce.privacy import PrivacyStatement
from sottovoce.privacy.words import guarantee
from sottovoce.settings.disk import writable, write_whole
from sottovoce.sums.program import Opened
from sottovoce.tables.consistent import around, whole_counts
from sottovoce.tables.cross import CrossTable
from sottovoce.tally.intervals import share

MOMENTS = "moments.npz"  # beside the model
MOST_CELLS = 1000  # of a table: the covariance of its noise has as many numbers, squared


@final
@dataclass(frozen=True, eq=False)
class ReleasedMoments:
    """The second moments that a run has released, as its folder keeps them.

    Args:
        half: of the noisy matrix, of the first run.
        std: of the noise in each number.
        rows: N.
        model: the digest of the weights that the run ended with.
    """

    half: Floats
    std: float
    rows: int
    model: str

    @classmethod
    def of(cls, opened: Opened, model: str) -> "ReleasedMoments":
        """Those of an opened sum."""
        return cls(opened.value[:, 0], float(np.ravel(opened.std)[0]), opened.rows, model)

    def save(self, folder: Path) -> None:
        """Write them into a folder."""
        content = BytesIO()
        np.savez_compressed(content, half=self.half, std=self.std, rows=self.rows, model=self.model)
        with writable(folder / MOMENTS):
            write_whole(folder / MOMENTS, content.getvalue())

    @classmethod
    def load(cls, folder: Path) -> "ReleasedMoments":
        """Read those of a folder. A folder without them is refused, with the reason that there may be."""
        path = folder / MOMENTS
        if not path.exists():
            raise InputError(
                f"Expected a folder of a run that has released second moments, got no {MOMENTS} in {str(folder)!r}. "
                "Runs on masked sums do (--algorithm masked or least-squares), with up to 511 features; noise of each "
                "site's own releases none. For one table at a price: sottovoce describe --cross."
            )
        try:
            with np.load(BytesIO(path.read_bytes()), allow_pickle=False) as kept:
                half, std, rows, model = (kept[name] for name in ("half", "std", "rows", "model"))
                return cls(half.astype(np.float64), float(std), int(rows), str(model))
        except Exception as error:  # zipfile and numpy know a dozen kinds
            reason = str(error).splitlines()[0] if str(error) else type(error).__name__
            raise InputError(f"Expected moments of a run, got {str(path)!r}: {reason}.") from error


@final
@dataclass(frozen=True, repr=False)
class PairTables(Shown):
    """Counts of rows by level of any two columns, as a run has released them beside its model.

    Args:
        tables: one for each two columns, in the order of the schema. None has a test.
        left_out: pairs that are not shown, since they have too many cells.
        privacy: the guarantee of the run, which covers them.
    """

    tables: tuple[CrossTable, ...]
    left_out: tuple[str, ...]
    privacy: PrivacyStatement

    def described(self) -> list[Part]:
        """The tables, and what they rest on; in HTML, the guarantee in full, folded."""
        from sottovoce.tables.words import paired

        return [*paired(self), Folded("Its guarantee in full", guarantee(self.privacy))]


def pair_tables(schema: Schema, moments: ReleasedMoments, privacy: PrivacyStatement) -> PairTables:
    """The tables of any two columns with levels that these moments hold.

    Refused are schemas with fewer than two such columns, with weights, and those that shorten rows: their sums are no
    counts.

    Args:
        schema: of the run.
        moments: that it has released.
        privacy: its guarantee.
    """
    columns = list(_levelled(schema))
    names = ", ".join(column.column.name for column in columns) or "none"
    expect(len(columns) >= 2, "two columns with levels in the schema, for a table of both", columns=names)
    if schema.weight is not None or (schema.row_norm != "bound" and schema.data_norm < schema.encoded_norm):
        why = (
            f"rows that count by {schema.weight.column!r}" if schema.weight is not None
            else f"rows shortened to row_norm = {schema.row_norm:g}"
        )  # fmt: skip
        raise InputError(f"Expected second moments that are counts, got {why}. Ask: sottovoce describe --cross.")
    p = schema.d
    expect(len(moments.half) == p * (p + 1) // 2, f"moments of {p} features", numbers=len(moments.half))
    factor = (schema.encoded_norm * (1 + slack(schema.most_entries))) ** 2
    counts, noise = factor * whole(moments.half[None])[0], moments.std * factor / np.sqrt(2)
    together = privacy.unit.changed * privacy.unit.sites
    tables, left_out = list[CrossTable](), list[str]()
    for pair in combinations(columns, 2):
        if len(pair[0].names) * len(pair[1].names) > MOST_CELLS:
            left_out.append(" and ".join(one.column.name for one in pair))
            continue
        cells, covariance = _cells(counts, pair, schema.intercept, moments.rows)
        tables.append(_table(pair, cells, noise**2 * covariance, moments.rows, privacy, together))
    return PairTables(tuple(tables), tuple(left_out), privacy)


class _Levelled(NamedTuple):
    """A column with levels."""

    column: Column
    names: tuple[str, ...]  # of its levels
    features: tuple[int | None, ...]  # which feature says that a row is at the level; None: none does


def _levelled(schema: Schema) -> Iterator[_Levelled]:
    first = 0
    for column in schema.columns:
        if column.levels:
            place, value = column.at_levels(np.arange(len(column.levels)))
            features = tuple(first + int(p) if v else None for p, v in zip(place, value, strict=True))
            yield _Levelled(column, tuple(name.removeprefix(f"{column.name}=") for name in column.levels), features)
        first += column.width


def _cells(counts: Floats, pair: Sequence[_Levelled], intercept: float, rows: int) -> tuple[Floats, Floats]:
    """The cells of a table, flat, and the covariance of their noise, over the variance of the noise in a cell."""
    first, second = pair
    shape = len(first.names), len(second.names)
    size = shape[0] * shape[1]
    index, told = np.arange(size).reshape(shape), list[tuple[object, float, float]]()  # cells, their sum, its variance
    for i, p in enumerate(first.features):
        for j, q in enumerate(second.features):
            if p is not None and q is not None:
                told.append((index[i, j], counts[p, q], 1.0))
    margins = [(index[i], p) for i, p in enumerate(first.features)]
    margins += [(index[:, j], q) for j, q in enumerate(second.features)]
    for cells, p in margins:
        if p is not None:
            told.append((cells, counts[p, p], 2.0))
            if intercept > 0:
                told.append((cells, counts[p, -1] / intercept, 1 / intercept**2))
    sums = np.zeros((len(told), size))
    for place, (cells, _, _) in enumerate(told):
        sums[place, cells] = 1.0  # type: ignore[index]
    values, variances = np.array([one[1] for one in told]), np.array([one[2] for one in told])
    # All tables with the total N: N over the number of cells in each, and something that adds up to 0.
    even = rows / size
    free = sums - sums.mean(axis=1, keepdims=True)
    covariance: Floats = np.linalg.pinv((free.T / variances) @ free, hermitian=True)
    found: Floats = even + covariance @ (free.T @ ((values - even * sums.sum(axis=1)) / variances))
    return found, covariance


def _table(
    pair: Sequence[_Levelled], cells: Floats, covariance: Floats, rows: int, privacy: PrivacyStatement, together: int
) -> CrossTable:
    """The table as people read it: whole counts that add up to `rows`, with intervals from the noisy ones."""
    noise = np.maximum(np.diag(covariance), 0.0)
    found = [
        share(count, float(rows), (variance, 0.0, 0.0), together)
        for count, variance in zip(cells.tolist(), noise.tolist(), strict=True)
    ]
    counts = whole_counts(cells, rows).tolist()
    return CrossTable(
        rows=rows, columns=tuple(one.column.name for one in pair), levels=tuple(one.names for one in pair),
        counts=tuple(around(float(count), one.times(float(rows))) for count, one in zip(counts, found, strict=True)),
        shares=tuple(around(count / rows, one) for count, one in zip(counts, found, strict=True)),
        test=None, noise=float(np.sqrt(noise.max())), privacy=privacy,
    )  # fmt: skip
