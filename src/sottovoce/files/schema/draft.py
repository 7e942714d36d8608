"""A first version of a schema, drafted from a file. Each value that was taken from it is marked as unreviewed."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime
from math import inf
from pathlib import Path
from typing import Any

from sottovoce.errors import InputError, expect
from sottovoce.files.schema import names, parse
from sottovoce.files.schema.column import Column, MissingPolicy
from sottovoce.files.schema.columns import FALSE, TRUE, YEAR, Age, Boolean, Categorical, Numeric, Ranged
from sottovoce.files.schema.form import FileForm
from sottovoce.files.schema.labels import ClassLabel, Label, LabelMissing, NumberLabel, positive_last
from sottovoce.files.schema.person import Person
from sottovoce.files.schema.review import PERSON_ROWS
from sottovoce.files.schema.round_numbers import bounds_around, edges_between
from sottovoce.files.schema.schema import Schema
from sottovoce.files.schema.sniffing import sniff
from sottovoce.files.schema.survey import MISSING_VALUES, MOST_CATEGORIES, Seen, survey
from sottovoce.files.schema.survival import SurvivalLabel
from sottovoce.settings import brief, plain

FEW_NUMBERS = 10  # up to so many different whole numbers are taken for categories
MOST_BINS = 1000
LEFT_OUT = "Left out: "  # with which a remark on a column begins
_READ_OFF = {"kind", "order", "bounds", "edges", "categories", "classes", "missing"}
_TOP = """A draft. Values were taken from a private file: they may reveal something about single rows.
Do not share this file, and do not train with it, before `sottovoce schema review` has shown you all of them.
The guide to every key is docs/how-to/schema.md."""
_UNREVIEWED = "What was taken from the file, or is for people to decide. Training refuses what is left here."
_FORM = "How this file is written. Files of other sites may differ; what they mean does not."


@dataclass(frozen=True)
class SchemaDraft:
    """A schema that needs a review, and the columns that it leaves out, with reasons."""

    schema: Schema
    left_out: dict[str, str]

    def text(self) -> str:
        """The text of a schema file, with comments for the reviewer."""
        data, remarks = plain(self.schema), {"": _TOP, "unreviewed": _UNREVIEWED, "file": _FORM}
        left = "\n".join(f"{LEFT_OUT}{brief(name)}, {reason}." for name, reason in self.left_out.items())
        return parse.render(data, remarks | {"end": left} if left else remarks)


def draft(
    path: str | Path, label: str | SurvivalLabel, bins: int | None = None, form: FileForm | None = None,
    positive: str | None = None, keep: Collection[str] = (),
) -> SchemaDraft:  # fmt: skip
    """Read a file and propose a schema for it.

    By their names alone, columns that say whose row it is, names, free texts and weights are left out, and some
    numbers get the bounds that are usual. The first level of each column of levels is the reference.

    Args:
        path: a CSV or Parquet file.
        label: the column to learn, or times to an event, none of which is read from the file.
        bins: cut each numeric column into about so many bins at round numbers; None scales it.
        form: how a CSV file is written; None guesses it from the first lines.
        positive: of two classes the one that is looked for; None takes the second, in order, and leaves it to the
            review.
        keep: columns to use although their names, or numbers that are all different, suggest that they are no features.
    """
    expect(bins is None or 2 <= bins <= MOST_BINS, f"2 <= bins <= {MOST_BINS}", bins=bins)
    form = sniff(Path(path)) if form is None else form
    columns, left_out = list[Column](), dict[str, str]()
    found: Label | None = None if isinstance(label, str) else label
    of_label = () if isinstance(label, str) else (label.time, label.event)
    read, all_seen = list[str](), survey(path, form)
    for name in keep:
        if name not in (seen.name for seen in all_seen):
            raise InputError(f"Expected a column of file={str(path)!r} to keep, got {brief(name)}.")
    for name in of_label:
        if name not in (seen.name for seen in all_seen):
            raise _no_label(path, name, all_seen)
    for seen in (seen for seen in all_seen if seen.name not in of_label):
        if seen.name == label:
            found = _label(seen, positive)
            open_keys = _READ_OFF | ({"positive"} if positive is None else set())
            read += [f"label.{key}" for key in plain(found) if key in open_keys]
        elif isinstance(column := _column(seen, bins, seen.name in keep), Column):
            columns.append(column)
            declared = {"kind"} if seen.truths else set()  # by the file itself, whatever its rows are
            read += [column.path(key) for key in plain(column) if key in _READ_OFF - declared]
        else:
            left_out[seen.name] = column
    if found is None:
        raise _no_label(path, label, all_seen)
    if not columns:
        raise InputError(f"Expected a column to learn from beside the label in file={str(path)!r}, got {left_out}.")
    # Of several columns that say whose a row is, the first.
    people = [seen.name for seen in all_seen if seen.name in left_out and names.role(seen.name) == "person"]
    person = Person(column=people[0], rows=1) if people else None
    read += [] if person is None else [PERSON_ROWS]
    schema = Schema(tuple(columns), found, missing_values=MISSING_VALUES, file=form, person=person)
    read.sort(key=lambda entry: not entry.startswith("label."))
    return SchemaDraft(replace(schema, unreviewed=tuple(read)), left_out)


def _no_label(path: str | Path, name: object, all_seen: Sequence[Seen]) -> InputError:
    """What is said of a file that has no column of this name for the label."""
    shown = ", ".join(brief(seen.name) for seen in all_seen[:10]) + (", ..." if len(all_seen) > 10 else "")
    return InputError(
        f"Expected a column {brief(name)} for the label in file={str(path)!r}, got none of that name but {shown}. "
        "If that is no header but a row, say --no-header."
    )


def _column(seen: Seen, bins: int | None, keep: bool) -> Column | str:
    """The proposed column, or the reason why the schema leaves it out."""
    missing: MissingPolicy = "indicator" if seen.missing else "refuse"
    role = None if keep else names.role(seen.name)
    if not seen.name:
        return "it has no name"
    if role is not None and not (role == "row" and seen.few and not seen.different):
        return names.ROLES[role]
    if not seen.values:
        return "it has no values"
    if seen.truths:
        return Boolean(name=seen.name, missing=missing)
    if len(seen.texts) == 2 and len(seen.texts & set(TRUE)) == len(seen.texts & set(FALSE)) == 1:
        return Boolean(name=seen.name, missing=missing)
    if seen.dated:
        return _age(seen, missing, bins)
    if seen.different and not keep:
        return "its whole numbers are all different, as those of an identifier. If it is a quantity, say --keep"
    if seen.numeric and not _is_coded(seen):
        bounds = _bounds(seen.name, seen.low, seen.high)
        return "its numbers are too large" if bounds is None else _ranged(Numeric, seen.name, missing, bounds, bins)
    if not seen.few:
        return (
            f"it has more than {MOST_CATEGORIES} different texts. If they are codes, cut them into groups by their "
            'first characters: kind = "categorical", first = 2, and categories from the public list of groups'
        )
    levels = _sort_texts(seen)
    return Categorical(name=seen.name, missing=missing, categories=levels, other=True, reference=levels[0])


def _bounds(name: str, low: float, high: float) -> tuple[float, float] | None:
    """The bounds that are usual for the name, if all numbers lie within, else round ones around them."""
    usual = names.usual_bounds(name)
    return usual if usual is not None and usual[0] <= low <= high <= usual[1] else bounds_around(low, high)


def _ranged(
    kind: type[Ranged], name: str, missing: MissingPolicy, bounds: tuple[float, float], bins: int | None, **more: Any
) -> Column:
    """A column of numbers, scaled, or in bins of which the first is the reference."""
    more |= {"scale": "unit"} if bins is None else {"edges": edges_between(*bounds, bins), "reference": bounds[0]}
    return kind(name=name, missing=missing, bounds=bounds, **more)


def _age(seen: Seen, missing: MissingPolicy, bins: int | None) -> Column | str:
    """Years up to a date that does not come from the file: the first of January of this year."""
    order, (first, last) = next(iter(seen.spans.items()))
    on = date(datetime.now(UTC).year, 1, 1)
    until = (on - date(1970, 1, 1)).days
    bounds = _bounds(seen.name, (until - last) / YEAR, (until - first) / YEAR)
    assert bounds is not None  # years have four digits
    return _ranged(Age, seen.name, missing, bounds, bins, on=on.isoformat(), order=order)


def _label(seen: Seen, positive: str | None) -> Label:
    missing: LabelMissing = "row" if seen.missing else "refuse"
    if seen.numeric and seen.values and not _is_coded(seen):
        bounds = bounds_around(seen.low, seen.high)
        expect(bounds is not None, "labels of moderate size", label=seen.name, low=seen.low, high=seen.high)
        assert bounds is not None
        expect(positive is None, f"classes in label={brief(seen.name)}, got numbers, so none", positive=positive)
        return NumberLabel(column=seen.name, missing=missing, bounds=bounds)
    came = f"{len(seen.texts)} different values" if seen.few else f"more than {MOST_CATEGORIES} different texts"
    if not seen.few or len(seen.texts) < 2:
        raise InputError(f"Expected 2 to {MOST_CATEGORIES} classes or numbers in label={brief(seen.name)}, got {came}.")
    return ClassLabel(column=seen.name, missing=missing, classes=positive_last(_sort_texts(seen), positive))


def _is_coded(seen: Seen) -> bool:
    """True if there are so few whole numbers that they are likely to be codes of categories."""
    return seen.whole and len(seen.texts) <= FEW_NUMBERS


def _sort_texts(seen: Seen) -> tuple[str, ...]:
    def rank(text: str) -> tuple[float, str]:  # numbers sort by size, before texts
        try:
            return float(text), text
        except ValueError:
            return inf, text

    return tuple(sorted(seen.texts, key=rank))
