"""Columns of a schema as programs without this library take them: numbers and texts. What cannot be put so is named."""

from collections.abc import Sequence

import numpy as np

from sottovoce.files.schema import Boolean, Categorical, Column, Numeric, Schema
from sottovoce.files.schema.cells import Encoded


def obstacle(schema: Schema | None) -> str | None:
    """Why the columns cannot be inputs elsewhere; None if they can."""
    if schema is None:
        return "no schema"
    for column in schema.columns:
        if not isinstance(column, Numeric | Categorical | Boolean):
            return f"dates in column {column.name!r}"
        if isinstance(column, Categorical) and column.first is not None:
            return f"codes that are cut to {column.first} characters in column {column.name!r}"
    return None


def encoded(column: Column, texts: Sequence[str | None], markers: Sequence[str] = ()) -> Encoded:
    """These texts as the column itself encodes them; None and the markers are missing values."""
    import pyarrow as pa

    from sottovoce.files.schema.arrow import cells_of

    return column.encode(cells_of(pa.array(texts, pa.string()), markers))


def missing_numbers(schema: Schema) -> list[float]:
    """The numbers that are declared to mean a missing value, in rising order."""
    import pyarrow as pa

    from sottovoce.files.schema.arrow import cells_of

    marked = cells_of(pa.array(list(schema.missing_values), pa.string()), (), schema.file.decimal).numbers()
    return sorted({float(x) for x in marked if not np.isnan(x)})
