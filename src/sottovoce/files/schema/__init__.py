"""The public schema of a private file, and what follows from it.

    schema, parse, values        the schema and its file
    column, columns, dates       columns of features, and how their cells become numbers
    terms, curve                 interactions and splines: features that are made of columns
    labels, survival             the label: a class, a number, or times to an event
    person, factor               the person of a row, weights and exposures
    form, sniffing, unpacking    how a file is written: delimiter, decimal sign, packing
    reading, cells, arrow        a file as chunks of cells
    files, encoding              a file as encoded rows
    check, findings, problems    what of a file does not fit, and what people read of it
    draft, survey, names, round_numbers     a first version of a schema, from a file
    review, editing              the review of a draft by a person
    advice, inference            what a schema costs in noise, and what standard errors need

`files` and `check` need pyarrow, so they are not imported here.
"""

from sottovoce.files.schema.column import Column
from sottovoce.files.schema.columns import Age, Boolean, Categorical, Numeric, Seasonal
from sottovoce.files.schema.factor import Factor
from sottovoce.files.schema.form import FileForm
from sottovoce.files.schema.labels import ClassLabel, Label, NumberLabel
from sottovoce.files.schema.person import Person
from sottovoce.files.schema.review import accept_unreviewed, require_reviewed
from sottovoce.files.schema.schema import Schema
from sottovoce.files.schema.survival import SurvivalLabel
from sottovoce.files.schema.terms import Interaction, Spline, Term

__all__ = [
    "Age",
    "Boolean",
    "Categorical",
    "ClassLabel",
    "Column",
    "Factor",
    "FileForm",
    "Interaction",
    "Label",
    "NumberLabel",
    "Numeric",
    "Person",
    "Schema",
    "Seasonal",
    "Spline",
    "SurvivalLabel",
    "Term",
    "accept_unreviewed",
    "require_reviewed",
]
