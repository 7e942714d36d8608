"""Edits of a schema file that keep its comments and layout.

Every edit is checked against what the text then means. A file in an unusual form is refused rather than damaged.
"""

from dataclasses import replace
from typing import Any

import tomlkit
from tomlkit.exceptions import TOMLKitError
from tomlkit.items import AoT, Comment, Table

from sottovoce.errors import InputError
from sottovoce.files.schema.schema import Schema
from sottovoce.settings import plain


def with_unreviewed(text: str, schema: Schema, entries: tuple[str, ...]) -> str:
    """The text with these entries under `unreviewed`."""
    document = tomlkit.parse(text)
    marks = tomlkit.array()
    marks.extend(entries)
    document["unreviewed"] = marks.multiline(bool(entries))
    return _text_of(document, replace(schema, unreviewed=entries))


def with_column(text: str, schema: Schema, name: str, changes: dict[str, Any]) -> str:
    """The text with other values for keys of one column."""
    i = [column.name for column in schema.columns].index(name)
    columns = list(schema.columns)
    columns[i] = replace(columns[i], **changes)  # refused here if it does not fit
    document = tomlkit.parse(text)
    _columns(document)[i].update({key: list(v) if isinstance(v, tuple) else v for key, v in changes.items()})
    return _text_of(document, replace(schema, columns=tuple(columns)))


def without_column(text: str, schema: Schema, name: str) -> str:
    """The text without a column, and without what was to be reviewed of it."""
    i = [column.name for column in schema.columns].index(name)
    gone = {schema.columns[i].path(key) for key in plain(schema.columns[i])}
    left = tuple(entry for entry in schema.unreviewed if entry not in gone)
    document = tomlkit.parse(with_unreviewed(text, schema, left))
    columns, keys = _columns(document), list(document)
    before = columns[i - 1] if i else document[keys[max(keys.index("columns") - 1, 0)]]
    if isinstance(before, Table):  # comments at the end of a table are about the next one
        for _, item in columns[i].value.body:
            if isinstance(item, Comment):
                before.add(item)
    del columns[i]
    return _text_of(document, replace(schema, columns=schema.columns[:i] + schema.columns[i + 1 :], unreviewed=left))


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
