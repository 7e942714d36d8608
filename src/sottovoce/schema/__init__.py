"""The public schema of a private file, and what follows from it.

`sottovoce.schema.files` encodes and checks CSV and Parquet files. It needs pyarrow, so it is not imported here.
"""

from sottovoce.schema.column import Column
from sottovoce.schema.columns import Age, Boolean, Categorical, Numeric, Seasonal
from sottovoce.schema.form import FileForm
from sottovoce.schema.labels import ClassLabel, Label, NumberLabel
from sottovoce.schema.review import accept_unreviewed, require_reviewed
from sottovoce.schema.schema import Schema

__all__ = [
    "Age",
    "Boolean",
    "Categorical",
    "ClassLabel",
    "Column",
    "FileForm",
    "Label",
    "NumberLabel",
    "Numeric",
    "Schema",
    "Seasonal",
    "accept_unreviewed",
    "require_reviewed",
]
