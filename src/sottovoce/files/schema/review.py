"""The review of a schema by a person: refusals and warnings until it is done, what is asked, and what is signed off.

Only what `unreviewed` lists is part of it. A few decisions are asked for one by one. All other values are shown on one
page, which is signed off as a whole; columns of which the same was read are one row of it.
"""

import json
import warnings
from dataclasses import dataclass
from typing import Any

from sottovoce.errors import PrivacyError, PrivacyLeakWarning
from sottovoce.files.schema.schema import Schema
from sottovoce.settings import plain

POSITIVE, PERSON_ROWS = "label.positive", "person.rows"
DECISIONS = (POSITIVE, PERSON_ROWS)
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
    told = () if not supplied(schema) else (f"{supplied(schema)} The guarantee does not cover this.",)
    return (*note(schema), *(() if schema.person is None else schema.person.notes), *site_notes(schema), *told)


def site_notes(schema: Schema) -> tuple[str, ...]:
    """A note on what effects of sites tell; empty if there are none."""
    if schema.site_effects is None:
        return ()
    return (
        "Every site has an effect of its own: what the rows of a site are like on the whole is told, with this noise. "
        "The guarantee covers each of its rows, not the site.",
    )


def supplied(schema: Schema) -> str:
    """A sentence on what the user supplied of labels and levels; empty if that is nothing."""
    shared = ", ".join(column.name for column in schema.columns if column.shares is not None)
    said = ["" if schema.supplied is None else schema.supplied.words, shared and f"shares of the levels of {shared}"]
    words = "; ".join(filter(None, said))
    return f"Supplied with the schema, not computed from the rows: {words}." if words else ""


def term_words(schema: Schema) -> list[str]:
    """A sentence on every term."""
    return [f"Term {term.name}: {term.words()}." for term in schema.terms or ()]


def site_words(schema: Schema) -> str:
    """A sentence on the effects of sites, if there are any."""
    if schema.site_effects is True:
        return "Sites: each has an effect of its own, compared with the first. They are named by whoever trains."
    return f"Sites: each has an effect of its own, by its name in column {schema.site_effects}."


def require_reviewed(schema: Schema) -> None:
    """Refuse a schema that still has unreviewed values from a file. Call it before training."""
    if schema.unreviewed:
        raise PrivacyError(
            f"Expected a reviewed schema, got {_entries(schema)} still marked as taken from a file. Review it: "
            "sottovoce schema review SCHEMA."
        )


def accept_unreviewed(schema: Schema) -> None:
    """Warn instead of refusing, where the caller accepts the leak. The statement of a model has a note: see `notes`."""
    for leak in note(schema):
        warnings.warn(leak, PrivacyLeakWarning, stacklevel=2)


def _entries(schema: Schema) -> str:
    shown, total = ", ".join(schema.unreviewed[:_SHOWN]), len(schema.unreviewed)
    return shown if total <= _SHOWN else f"{shown} and {total - _SHOWN} more"


@dataclass(frozen=True)
class PageRow:
    """Columns with the same values from the file, or the label: one row of the page that is signed off."""

    columns: tuple[str, ...]
    kind: str  # of the columns, or "label" or "person"
    found: dict[str, Any]  # values by key, with the reference level that was proposed


def decisions(schema: Schema) -> tuple[str, ...]:
    """The entries of `unreviewed` that are questions of their own, since no page can propose an answer."""
    return tuple(entry for entry in DECISIONS if entry in schema.unreviewed)


def page(schema: Schema) -> list[PageRow]:
    """What is left to sign off: the label first, then the columns, those of one kind together."""
    open_keys: dict[str, list[str]] = {}
    for entry in schema.unreviewed:
        if entry not in DECISIONS:
            owner, _, key = entry.rpartition(".")  # a column's name may have dots in it, a key has none
            open_keys.setdefault(owner, []).append(key)
    rows = list[PageRow]()
    whose = "" if schema.person is None else schema.person.column
    for owner, part, name in (("label", schema.label, schema.label.name), ("person", schema.person, whose)):
        if part is not None and owner in open_keys:
            data = plain(part)
            rows.append(PageRow((name,), owner, {key: data[key] for key in open_keys[owner]}))
    alike: dict[str, tuple[str, dict[str, Any], list[str]]] = {}
    for column in schema.columns:
        if keys := open_keys.get(f"columns.{column.name}"):
            data = plain(column)
            found = {key: data[key] for key in data if key in (*keys, "reference")}
            same = json.dumps([column.kind(), found])
            alike.setdefault(same, (column.kind(), found, []))[2].append(column.name)
    order = list(dict.fromkeys(kind for kind, _, _ in alike.values()))
    groups = sorted(alike.values(), key=lambda group: order.index(group[0]))
    return rows + [PageRow(tuple(columns), kind, found) for kind, found, columns in groups]
