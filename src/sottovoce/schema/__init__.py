"""The public schema of a private file, and what follows from it.

`sottovoce.schema.files` encodes and checks CSV and Parquet files. It needs pyarrow, so it is not imported here.
"""

from sottovoce.schema.column import Column
from sottovoce.schema.columns import Boolean, Categorical, Numeric
from sottovoce.schema.labels import ClassLabel, Label, NumberLabel
from sottovoce.schema.review import accept_unreviewed, require_reviewed
from sottovoce.schema.schema import Schema

__all__ = [
    "Boolean",
    "Categorical",
    "ClassLabel",
    "Column",
    "Label",
    "NumberLabel",
    "Numeric",
    "Schema",
    "accept_unreviewed",
    "require_reviewed",
]
