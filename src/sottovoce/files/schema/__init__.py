"""The public schema of a private file, and what follows from it.

`files` encodes CSV and Parquet files, `check` reports what does not fit. They need pyarrow, so they are not imported
here.
"""

from sottovoce.files.schema.column import Column
from sottovoce.files.schema.columns import Age, Boolean, Categorical, Numeric, Seasonal
from sottovoce.files.schema.factor import Factor
from sottovoce.files.schema.form import FileForm
from sottovoce.files.schema.labels import ClassLabel, Label, NumberLabel
from sottovoce.files.schema.person import Person
from sottovoce.files.schema.review import accept_unreviewed, require_reviewed
from sottovoce.files.schema.schema import Schema

__all__ = [
    "Age",
    "Boolean",
    "Categorical",
    "ClassLabel",
    "Column",
    "Factor",
    "FileForm",
    "Label",
    "NumberLabel",
    "Numeric",
    "Person",
    "Schema",
    "Seasonal",
    "accept_unreviewed",
    "require_reviewed",
]
