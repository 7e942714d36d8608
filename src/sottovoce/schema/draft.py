"""A first version of a schema, read off a file. Each value that was read off is marked as unreviewed."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import inf
from pathlib import Path

from sottovoce.errors import InputError, expect
from sottovoce.schema import parse
from sottovoce.schema.column import Column, MissingPolicy
from sottovoce.schema.columns import FALSE, TRUE, Boolean, Categorical, Numeric
from sottovoce.schema.friendly import bounds_around, edges_between
from sottovoce.schema.labels import ClassLabel, Label, LabelMissing, NumberLabel
from sottovoce.schema.schema import Schema
from sottovoce.schema.survey import MOST_CATEGORIES, Seen, survey
from sottovoce.schema.values import brief

FEW_NUMBERS = 10  # up to so many different whole numbers are taken for categories
MOST_BINS = 1000
_TOP = """A draft. Values were read off a private file: they may say something about single rows.
Do not share this file, and do not train with it, before you have reviewed it.
The guide to every key is docs/how-to/schema.md."""
_UNREVIEWED = """What was read off the file. For each entry: replace the value by what is publicly known (a code book,
a law, a unit's range), or decide that it is harmless as it is. Then delete the entry. Training refuses what is left."""


@dataclass(frozen=True)
class Draft:
    """A schema that needs a review, and the columns that it leaves out, with reasons."""

    schema: Schema
    left_out: dict[str, str]

    def text(self) -> str:
        """As a schema file with comments."""
        data, remarks = self.schema.to_dict(), {"": _TOP, "unreviewed": _UNREVIEWED}
        if self.schema.classes is not None and len(self.schema.classes) == 2:
            remarks["label"] = "The second class is the one that counts as +1."
        left = "\n".join(f"Left out: {brief(name)}, {reason}." for name, reason in self.left_out.items())
        return parse.render(data, remarks | {"end": left} if left else remarks)


def draft(path: str | Path, label: str, bins: int | None = None) -> Draft:
    """Read a file and propose a schema for it.

    Args:
        path: a CSV or Parquet file.
        label: the column to learn.
        bins: cut each numeric column into about so many bins at round numbers; None scales it.
    """
    expect(bins is None or 2 <= bins <= MOST_BINS, f"2 <= bins <= {MOST_BINS}", bins=bins)
    columns, left_out, found = list[Column](), dict[str, str](), None
    for seen in survey(path):
        if seen.name == label:
            found = _label(seen)
        elif isinstance(column := _column(seen, bins), Column):
            columns.append(column)
        else:
            left_out[seen.name] = column
    if found is None:
        raise InputError(
            f"Expected a column {brief(label)} for the label in file={str(path)!r}, got none of that name."
        )
    if not columns:
        raise InputError(f"Expected a column to learn from beside the label in file={str(path)!r}, got {left_out}.")
    schema = Schema(tuple(columns), found)
    return Draft(replace(schema, unreviewed=_read_off(columns, found)), left_out)


def _read_off(columns: Sequence[Column], label: Label) -> tuple[str, ...]:
    values = ("kind", "bounds", "edges", "categories", "missing")
    marked = [f"label.{key}" for key in label.to_dict() if key in ("classes", "bounds", "missing")]
    return (*marked, *(column.path(key) for column in columns for key in column.to_dict() if key in values))


def _column(seen: Seen, bins: int | None) -> Column | str:
    """A column, or why there is none."""
    missing: MissingPolicy = "indicator" if seen.missing else "refuse"
    if not seen.name:
        return "it has no name"
    if not seen.values:
        return "it has no values"
    if len(seen.texts) == 2 and len(seen.texts & set(TRUE)) == len(seen.texts & set(FALSE)) == 1:
        return Boolean(name=seen.name, missing=missing)
    if seen.numeric and not _is_coded(seen):
        return _numeric(seen, missing, bins)
    if not seen.few:
        return f"it has more than {MOST_CATEGORIES} different texts"
    return Categorical(name=seen.name, missing=missing, categories=_ordered(seen), other=True)


def _numeric(seen: Seen, missing: MissingPolicy, bins: int | None) -> Column | str:
    bounds = bounds_around(seen.low, seen.high)
    if bounds is None:
        return "its numbers are too large"
    if bins is None:
        return Numeric(name=seen.name, missing=missing, bounds=bounds, scale="unit")
    return Numeric(name=seen.name, missing=missing, bounds=bounds, edges=edges_between(*bounds, bins))


def _label(seen: Seen) -> Label:
    missing: LabelMissing = "row" if seen.missing else "refuse"
    if seen.numeric and seen.values and not _is_coded(seen):
        bounds = bounds_around(seen.low, seen.high)
        expect(bounds is not None, "labels of moderate size", label=seen.name, low=seen.low, high=seen.high)
        assert bounds is not None
        return NumberLabel(column=seen.name, missing=missing, bounds=bounds)
    came = f"{len(seen.texts)} different values" if seen.few else f"more than {MOST_CATEGORIES} different texts"
    if not seen.few or len(seen.texts) < 2:
        raise InputError(f"Expected 2 to {MOST_CATEGORIES} classes or numbers in label={brief(seen.name)}, got {came}.")
    return ClassLabel(column=seen.name, missing=missing, classes=_ordered(seen))


def _is_coded(seen: Seen) -> bool:
    """Whether numbers rather are codes of categories."""
    return seen.whole and len(seen.texts) <= FEW_NUMBERS


def _ordered(seen: Seen) -> tuple[str, ...]:
    return tuple(sorted(seen.texts, key=lambda text: (_size(text), text)))


def _size(text: str) -> float:
    """Numbers sort by size, before texts."""
    try:
        return float(text)
    except ValueError:
        return inf
