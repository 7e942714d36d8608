"""The review of a schema by a person: refusals and warnings until it is done, and the questions to ask.

Only values that were taken from a file are asked about. All findings of a column are one question, and so are columns
with the same findings.
"""

import json
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sottovoce.errors import InputError, PrivacyError, PrivacyLeakWarning
from sottovoce.files.schema.schema import Schema
from sottovoce.settings import brief, plain

_SHOWN = 5


def note(schema: Schema) -> tuple[str, ...]:
    """The note of a privacy statement on values that nobody has reviewed; empty if there are none."""
    if not schema.unreviewed:
        return ()
    return (
        f"Values in the schema were taken from a file and not reviewed: {_entries(schema)}. The guarantee does not "
        "cover this.",
    )


def notes(schema: Schema) -> tuple[str, ...]:
    """All notes that a schema adds to a privacy statement."""
    return (*note(schema), *(() if schema.person is None else schema.person.notes))


def require_reviewed(schema: Schema) -> None:
    """Refuse a schema that still has unreviewed values from a file. Call it before training."""
    if schema.unreviewed:
        raise PrivacyError(
            f"Expected a reviewed schema, got {_entries(schema)} still marked as taken from a file. Replace each value "
            "by one from public knowledge or approve it, and delete its entry from unreviewed in the schema."
        )


def accept_unreviewed(schema: Schema) -> None:
    """Warn instead of refusing, where the caller accepts the leak. The statement of a model has a note: see `notes`."""
    for leak in note(schema):
        warnings.warn(leak, PrivacyLeakWarning, stacklevel=2)


def _entries(schema: Schema) -> str:
    shown, total = ", ".join(schema.unreviewed[:_SHOWN]), len(schema.unreviewed)
    return shown if total <= _SHOWN else f"{shown} and {total - _SHOWN} more"


@dataclass(frozen=True)
class ReviewQuestion:
    """Columns with the same values from the file, or the label."""

    columns: tuple[str, ...]
    kind: str  # of the columns, or "label"
    found: dict[str, Any]  # values by key
    entries: tuple[str, ...]  # of `unreviewed`

    def split(self) -> list["ReviewQuestion"]:
        """The same question for each of its columns on its own."""
        own = {name: tuple(e for e in self.entries if _owner(e) == name) for name in self.columns}
        return [ReviewQuestion((name,), self.kind, self.found, own[name]) for name in self.columns]


def questions(schema: Schema) -> list[ReviewQuestion]:
    """The label first, then the columns, those of one kind together, in the order of the schema."""
    asked = list[ReviewQuestion]()
    keys = [entry.removeprefix("label.") for entry in schema.unreviewed if entry.startswith("label.")]
    if keys:
        told = plain(schema.label)
        shown = {key: told[key] for key in [*keys, *({"positive"} & set(told))]}
        asked.append(ReviewQuestion((schema.label.column,), "label", shown, tuple(f"label.{key}" for key in keys)))
    return asked + _by_kind(schema)


def _by_kind(schema: Schema) -> list[ReviewQuestion]:
    open_keys: dict[str, list[str]] = {}
    for entry in schema.unreviewed:
        if not entry.startswith("label."):
            open_keys.setdefault(_owner(entry), []).append(entry.rpartition(".")[2])
    alike: dict[str, list[tuple[str, dict[str, Any], tuple[str, ...]]]] = {}
    kinds: dict[str, str] = {}
    for column in schema.columns:
        keys = open_keys.get(column.name)
        if keys:
            data = plain(column)
            found = {key: data[key] for key in data if key in keys}
            same = json.dumps([column.kind(), found])
            kinds[same] = column.kind()
            alike.setdefault(same, []).append((column.name, found, tuple(column.path(key) for key in keys)))
    order = list(dict.fromkeys(kinds.values()))
    asked = [
        ReviewQuestion(
            tuple(n for n, _, _ in group), kinds[same], group[0][1], tuple(e for _, _, es in group for e in es)
        )
        for same, group in alike.items()
    ]
    return sorted(asked, key=lambda question: order.index(question.kind))


def left_after(schema: Schema, reviewed: Sequence[str]) -> tuple[str, ...]:
    """The entries of `unreviewed` that stay once these are reviewed."""
    done = set(reviewed)
    return tuple(entry for entry in schema.unreviewed if entry not in done)


def entries_of(schema: Schema, names: Sequence[str]) -> tuple[str, ...]:
    """The unreviewed entries of these columns; the label goes by its column's name."""
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
