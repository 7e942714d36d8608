"""A schema must not say anything that was read off private rows, unless a person has looked at it."""

import json
import re
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import ceil
from typing import Any

from sottovoce.errors import InputError, PrivacyError, PrivacyLeakWarning
from sottovoce.files.schema import parse
from sottovoce.files.schema.cells import brief
from sottovoce.files.schema.schema import Schema

_SHOWN = 5


def note(schema: Schema) -> tuple[str, ...]:
    """What a privacy statement must say of a schema with values that nobody has reviewed; nothing if there are none."""
    if not schema.unreviewed:
        return ()
    return (f"The schema says {_listed(schema)} as read off a file, unreviewed. The guarantee does not cover this.",)


def require_reviewed(schema: Schema) -> None:
    """Refuse a schema that still has values read off a file. Call it before training."""
    if schema.unreviewed:
        raise PrivacyError(
            f"Expected a reviewed schema, got {_listed(schema)} still marked as read off a file. Replace each value by "
            "one from public knowledge or approve it, and delete its entry from unreviewed in the schema."
        )


def accept_unreviewed(schema: Schema) -> None:
    """Warn instead, where the caller accepts the leak. Models say so for good: see `note`."""
    for leak in note(schema):
        warnings.warn(leak, PrivacyLeakWarning, stacklevel=2)


def _listed(schema: Schema) -> str:
    shown, total = ", ".join(schema.unreviewed[:_SHOWN]), len(schema.unreviewed)
    return shown if total <= _SHOWN else f"{shown} and {total - _SHOWN} more"


# -- advice -----------------------------------------------------------------------------------------------------------
# What a schema could say better, from public numbers alone.

WORTH_SAYING = 0.85  # of the longest row; closer than that, another norm changes little


def on_row_norm(schema: Schema) -> str | None:
    """Whether `row_norm` is far above what rows will usually have, and what to say instead; None if it is not.

    Noise is as large as the longest row that the schema allows. Where rows are mostly much shorter, it is too large for
    them. Guessed is the norm of a row whose values are spread evenly over the declared bounds.
    """
    usual, longest = schema.usual_norm, schema.encoded_norm
    if schema.row_norm != "bound" or usual > WORTH_SAYING * longest:
        return None
    proposed = ceil(10 * usual) / 10
    return (
        f'row_norm = "bound" allows rows of norm {longest:.3g}, but values spread evenly over their bounds make about '
        f"{usual:.2g}. With row_norm = {proposed:g} the noise is {longest / proposed:.2g} times smaller beside the "
        "rows; only longer ones are shortened. If values are mostly near 0, less is better still. Choose it from "
        "public knowledge, not by looking at rows."
    )


# -- questions --------------------------------------------------------------------------------------------------------
# What is left to review of a schema, as few questions: all findings of a column are one, and columns of which the same
# was found are one as well. Only what was read off a file is asked for; the rest is the same whatever the rows are.


@dataclass(frozen=True)
class Question:
    """Columns of which the same was read off, or the label."""

    columns: tuple[str, ...]
    kind: str  # of the columns, or "label"
    found: dict[str, Any]  # values by key
    entries: tuple[str, ...]  # of `unreviewed`

    def split(self) -> list["Question"]:
        """A question for each column."""
        own = {name: tuple(e for e in self.entries if _owner(e) == name) for name in self.columns}
        return [Question((name,), self.kind, self.found, own[name]) for name in self.columns]

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {"columns": list(self.columns), "kind": self.kind, "found": self.found, "entries": list(self.entries)}


def questions(schema: Schema) -> list[Question]:
    """The label first, then the columns, those of one kind together, in the order of the schema."""
    asked = list[Question]()
    keys = [entry.removeprefix("label.") for entry in schema.unreviewed if entry.startswith("label.")]
    if keys:
        told = schema.label.to_dict()
        shown = {key: told[key] for key in [*keys, *({"positive"} & set(told))]}
        asked.append(Question((schema.label.column,), "label", shown, tuple(f"label.{key}" for key in keys)))
    return asked + _by_kind(schema)


def _by_kind(schema: Schema) -> list[Question]:
    open_keys: dict[str, list[str]] = {}
    for entry in schema.unreviewed:
        if not entry.startswith("label."):
            open_keys.setdefault(_owner(entry), []).append(entry.rpartition(".")[2])
    alike: dict[str, list[tuple[str, dict[str, Any], tuple[str, ...]]]] = {}
    kinds: dict[str, str] = {}
    for column in schema.columns:
        keys = open_keys.get(column.name)
        if keys:
            data = column.to_dict()
            found = {key: data[key] for key in data if key in keys}
            same = json.dumps([column.kind(), found])
            kinds[same] = column.kind()
            alike.setdefault(same, []).append((column.name, found, tuple(column.path(key) for key in keys)))
    order = list(dict.fromkeys(kinds.values()))
    asked = [
        Question(tuple(n for n, _, _ in group), kinds[same], group[0][1], tuple(e for _, _, es in group for e in es))
        for same, group in alike.items()
    ]
    return sorted(asked, key=lambda question: order.index(question.kind))


def left_after(schema: Schema, reviewed: Sequence[str]) -> tuple[str, ...]:
    """What is left to review once these entries are."""
    done = set(reviewed)
    return tuple(entry for entry in schema.unreviewed if entry not in done)


def entries_of(schema: Schema, names: Sequence[str]) -> tuple[str, ...]:
    """What is to be reviewed of these columns; the label goes by its column's name."""
    known = {column.name for column in schema.columns} | {schema.label.column}
    for name in names:
        if name not in known:
            raise InputError(f"Expected a column of the schema, got {brief(name)}. See --list.")
    chosen = set(names)
    return tuple(
        entry
        for entry in schema.unreviewed
        if (schema.label.column if entry.startswith("label.") else _owner(entry)) in chosen
    )


def _owner(entry: str) -> str:
    """The column that an entry speaks of. A column's name may have dots in it, a key has none."""
    return entry.removeprefix("columns.").rpartition(".")[0]


# -- editing ----------------------------------------------------------------------------------------------------------
# A schema file edited in place: comments, order and spelling of all else stay. Every edit is checked against what the
# text then means, so a file that is written in an unusual way is left alone rather than damaged.

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
