"""A schema file edited in place: comments, order and spelling of all else stay. Every edit is checked against what the
text then means, so a file that is written in an unusual way is left alone rather than damaged.
"""

import re
from dataclasses import replace
from typing import Any

from sottovoce.errors import InputError
from sottovoce.schema import parse
from sottovoce.schema.schema import Schema

_KEY = r"^[ \t]*{key}[ \t]*=[ \t]*"
_COLUMN = re.compile(r"^[ \t]*\[\[[ \t]*columns[ \t]*\]\][^\n]*\n", re.MULTILINE)
_TABLE = re.compile(r"^[ \t]*\[", re.MULTILINE)
# One piece of a list: a text in quotes, a comment, a bracket, or anything else.
_PIECE = re.compile(r'"(?:[^"\\\n]|\\.)*"|\'[^\'\n]*\'|#[^\n]*|\[|\]|[^"\'#\[\]]+')


def with_unreviewed(text: str, schema: Schema, entries: tuple[str, ...]) -> str:
    """The text with these entries under `unreviewed`."""
    first = _TABLE.search(text)
    edited = _set(text, 0, len(text) if first is None else first.start(), "unreviewed", list(entries))
    return _checked(edited, replace(schema, unreviewed=entries))


def with_column(text: str, schema: Schema, name: str, changes: dict[str, Any]) -> str:
    """The text with other values for keys of one column."""
    i = _position(schema, name)
    columns = list(schema.columns)
    columns[i] = replace(columns[i], **changes)  # refused here if it does not fit
    for key, value in changes.items():
        text = _set(text, *_block(text, i), key, _plain(value)) or text
    return _checked(text, replace(schema, columns=tuple(columns)))


def without_column(text: str, schema: Schema, name: str) -> str:
    """The text without a column, and without what was to be reviewed of it."""
    i = _position(schema, name)
    gone = {schema.columns[i].path(key) for key in schema.columns[i].to_dict()}
    left = tuple(entry for entry in schema.unreviewed if entry not in gone)
    text = with_unreviewed(text, schema, left)
    header, end = _COLUMN.search(text, _start(text, i)), _block(text, i)[1]
    edited = None if header is None else text[: header.start()] + text[end:].lstrip("\n")
    columns = schema.columns[:i] + schema.columns[i + 1 :]
    return _checked(edited, replace(schema, columns=columns, unreviewed=left))


def _position(schema: Schema, name: str) -> int:
    return [column.name for column in schema.columns].index(name)


def _start(text: str, i: int) -> int:
    starts = [found.start() for found in _COLUMN.finditer(text)]
    return starts[i] if i < len(starts) else len(text)


def _block(text: str, i: int) -> tuple[int, int]:
    """Where the keys of the i-th column begin and end; up to the comment lines before the next table."""
    header = _COLUMN.search(text, _start(text, i))
    if header is None:
        return len(text), len(text)
    end = _start(text, i + 1)
    lines = text[header.end() : end].splitlines(keepends=True)
    while lines and (not lines[-1].strip() or lines[-1].lstrip().startswith("#")):
        end -= len(lines.pop())
    return header.end(), end


def _set(text: str, start: int, end: int, key: str, value: Any) -> str | None:
    """The text with another value for a key between two places; None if the key is not there."""
    found = re.compile(_KEY.format(key=re.escape(key)), re.MULTILINE).search(text, start, end)
    if found is None:
        return None
    stop = _value_end(text, found.end())
    return text[: found.end()] + parse.written(value, spread=key == "unreviewed") + text[stop:]


def _value_end(text: str, at: int) -> int:
    """Where a value ends: a list at its last bracket, anything else with its line."""
    if not text.startswith("[", at):
        newline = text.find("\n", at)
        return len(text) if newline < 0 else newline
    depth = 0
    for piece in _PIECE.finditer(text, at):
        depth += {"[": 1, "]": -1}.get(piece.group(), 0)
        if depth == 0:
            return piece.end()
    return len(text)


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def _checked(text: str | None, wanted: Schema) -> str:
    try:
        if text is not None and Schema.loads(text) == wanted:
            return text
    except InputError:
        pass
    raise InputError("Expected a schema that is written as drafts are, got another form. Edit it by hand.")
