"""Predictions for tables in memory, in the kind that they came in: pandas, polars or Arrow."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from sottovoce.files.models.apply import PREDICTION, predict, schema_of
from sottovoce.files.models.model import Model

if TYPE_CHECKING:
    import pyarrow as pa

    from sottovoce.files.schema.files import Unknown

T = TypeVar("T")


def predict_table(model: Model, table: T, unknown: "Unknown" = "refuse", without: Sequence[str] = ()) -> T:
    """Predictions for all rows of a table, as a table of the same kind, in the same order.

    Args:
        model: with a schema, by whose names the columns are found; others are left alone.
        table: a pandas or polars data frame, a pyarrow table, or anything that hands over its columns by Arrow's
            PyCapsule interface, which comes back as a pyarrow table.
        unknown: what becomes of a category that the schema does not list, and has no "other" level for: refuse the
            table, "skip" the row, or ignore the column there ("other").
        without: columns that the table lacks, and that count as missing in every row, as the schema allows.

    The column `prediction` holds the class or the number, `probability NAME` the probability of each class, where the
    loss makes them. A row that the schema drops, or that is skipped, has nulls. A cell that it refuses is an error that
    names it.
    """
    import pyarrow as pa

    from sottovoce.files.schema.reading import rows_of

    schema_of(model)  # refuses a model without one
    rows = rows_of(table)
    number = model.classes is None
    said: Any = np.full(rows, np.nan) if number else np.full(rows, None, dtype=object)
    likely = np.full((rows, len(model.classes or ())), np.nan)
    told = np.zeros(rows, dtype=bool)
    for chunk in predict(model, table, unknown=unknown, without=without):
        at = chunk.rows - 1
        told[at] = True
        said[at] = chunk.decided if number else np.array(model.classes)[chunk.decided.astype(np.int64)]
        if chunk.probabilities is not None:
            likely[at] = chunk.probabilities
    columns = {PREDICTION: pa.array(said, pa.float64() if number else pa.string(), mask=~told)}
    if model.has_probabilities and model.classes is not None:
        columns |= {f"probability {name}": pa.array(likely[:, i], mask=~told) for i, name in enumerate(model.classes)}
    found: T = _like(table, pa.table(columns))
    return found


def _like(table: Any, made: "pa.Table") -> Any:
    """These columns as a table of the kind of the given one. A pandas index is kept."""
    library = type(table).__module__.partition(".")[0]
    if library == "pandas":
        frame = made.to_pandas()
        frame.index = table.index
        return frame
    if library == "polars":
        import polars

        return polars.from_arrow(made)
    return made
