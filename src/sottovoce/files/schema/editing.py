"""Edits of a schema file that keep its comments and layout.

Every edit is checked against what the text then means. A file in an unusual form is refused rather than damaged.
"""

from dataclasses import replace
from typing import Any

import tomlkit
from tomlkit.exceptions import TOMLKitError
from tomlkit.items import AoT, Comment, Table

from sottovoce.errors import InputError, expect
from sottovoce.files.schema.columns import Ranged
from sottovoce.files.schema.labels import ClassLabel, NumberLabel, positive_last
from sottovoce.files.schema.review import PERSON_ROWS, POSITIVE
from sottovoce.files.schema.round_numbers import edges_between
from sottovoce.files.schema.schema import Schema
from sottovoce.files.schema.values import check_bounds
from sottovoce.settings import brief, plain


def with_unreviewed(text: str, schema: Schema, entries: tuple[str, ...]) -> str:
    """The text with these entries under `unreviewed`."""
    document = tomlkit.parse(text)
    _mark(document, entries)
    return _text_of(document, replace(schema, unreviewed=entries))


def with_positive(text: str, schema: Schema, name: str) -> str:
    """The text with this class as the positive one, which is then decided."""
    label = schema.label
    assert isinstance(label, ClassLabel)  # only these have a positive class to decide
    label, left = replace(label, classes=positive_last(label.classes, name)), _without(schema, {POSITIVE})
    document = tomlkit.parse(text)
    _table(document, "label")["positive"] = name
    _mark(document, left)
    return _text_of(document, replace(schema, label=label, unreviewed=left))


def with_person_rows(text: str, schema: Schema, rows: int | None) -> str:
    """The text with so many rows of a person at most, or without people (None), which is then decided."""
    assert schema.person is not None  # or there would be nothing to decide
    person, left = None if rows is None else replace(schema.person, rows=rows), _without(schema, {PERSON_ROWS})
    document = tomlkit.parse(text)
    if rows is None:
        del document["person"]
    else:
        _table(document, "person")["rows"] = rows
    _mark(document, left)
    return _text_of(document, replace(schema, person=person, unreviewed=left))


def with_bounds(text: str, schema: Schema, name: str, low: float, high: float) -> str:
    """The text with other bounds of a column of numbers, or of the label. Between them as many bins are cut as there
    were, and the first is the reference if there was one.
    """
    check_bounds("bounds", (low, high))
    document, label = tomlkit.parse(text), schema.label
    if isinstance(label, NumberLabel) and name == label.column:
        _table(document, "label")["bounds"] = [low, high]
        return _text_of(document, replace(schema, label=replace(label, bounds=(low, high))))
    i = _place(schema, name)
    column = schema.columns[i]
    expect(isinstance(column, Ranged), "a column of numbers to set bounds of", column=name, kind=column.kind())
    assert isinstance(column, Ranged)
    changes: dict[str, Any] = {"bounds": (low, high)}
    if column.shares is not None:  # they were of other bins
        changes["shares"] = None
        del _columns(document)[i]["shares"]
    if column.edges is not None:
        changes["edges"] = edges_between(low, high, len(column.edges) + 1)
    if column.reference is not None:
        changes["reference"] = low
    texts = {key: list(v) if isinstance(v, tuple) else v for key, v in changes.items() if v is not None}
    _columns(document)[i].update(texts)
    columns = (*schema.columns[:i], replace(column, **changes), *schema.columns[i + 1 :])
    return _text_of(document, replace(schema, columns=columns))


def without_columns(text: str, schema: Schema, names: str) -> str:
    """The text without the columns of these names, separated by commas, and without what was to be reviewed of them."""
    known = [column.name for column in schema.columns]
    for name in [names] if names in known else [part.strip() for part in names.split(",")]:
        text = _without_column(text, schema, name)
        schema = Schema.loads(text)
    return text


def _without_column(text: str, schema: Schema, name: str) -> str:
    i = _place(schema, name)
    expect(len(schema.columns) > 1, "more than one column to drop one", columns=len(schema.columns))
    left = _without(schema, {schema.columns[i].path(key) for key in plain(schema.columns[i])})
    document = tomlkit.parse(text)
    _mark(document, left)
    columns, keys = _columns(document), list(document)
    before = columns[i - 1] if i else document[keys[max(keys.index("columns") - 1, 0)]]
    if isinstance(before, Table):  # comments at the end of a table are about the next one
        for _, item in columns[i].value.body:
            if isinstance(item, Comment):
                before.add(item)
    del columns[i]
    return _text_of(document, replace(schema, columns=schema.columns[:i] + schema.columns[i + 1 :], unreviewed=left))


def _place(schema: Schema, name: str) -> int:
    """Index of the column of this name; refused if it is none."""
    names = [column.name for column in schema.columns]
    if name not in names:
        raise InputError(f"Expected a column of the schema, got {brief(name)}. Write its name as on the page.")
    return names.index(name)


def _without(schema: Schema, done: set[str]) -> tuple[str, ...]:
    return tuple(entry for entry in schema.unreviewed if entry not in done)


def _mark(document: tomlkit.TOMLDocument, entries: tuple[str, ...]) -> None:
    marks = tomlkit.array()
    marks.extend(entries)
    document["unreviewed"] = marks.multiline(bool(entries))


def _table(document: tomlkit.TOMLDocument, name: str) -> Table:
    table = document[name]
    if not isinstance(table, Table):
        raise InputError(_UNUSUAL)
    return table


def _columns(document: tomlkit.TOMLDocument) -> AoT:
    columns = document["columns"]
    if not isinstance(columns, AoT):
        raise InputError(_UNUSUAL)
    return columns


def _text_of(document: tomlkit.TOMLDocument, wanted: Schema) -> str:
    """The text of the document; refused unless it reads back as this schema."""
    try:
        text = tomlkit.dumps(document)
        if Schema.loads(text) == wanted:
            return text
    except (InputError, TOMLKitError):
        pass
    raise InputError(_UNUSUAL)


_UNUSUAL = "Expected a schema that is written as drafts are, got another form. Edit it by hand."
