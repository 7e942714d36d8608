"""Schema files: read strictly, by the type hints of `Schema`, its columns and its label; written with remarks for the
person who reviews them.
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sottovoce import settings
from sottovoce.errors import InputError
from sottovoce.files.schema.column import Column
from sottovoce.files.schema.columns import Age, Boolean, Categorical, Numeric, Seasonal
from sottovoce.files.schema.labels import ClassLabel, Label, NumberLabel, positive_last
from sottovoce.files.schema.survival import SurvivalLabel
from sottovoce.settings import toml

VERSION = 1
MISSING_VALUES = ("", "?", "NA")
_EXACT = 2.0**53
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")  # not allowed in a comment; remarks may quote a file
LARGEST_FILE = 64 * 2**20  # bytes; a schema of a million categories is smaller


def read_text(path: Path) -> str:
    """The text of a schema file."""
    try:
        with path.open("rb") as file:
            raw = file.read(LARGEST_FILE + 1)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise InputError(f"Expected a schema file, got schema={str(path)!r}: {reason}.") from error
    if len(raw) > LARGEST_FILE:
        raise InputError(f"Expected a schema file of at most {LARGEST_FILE} bytes, got schema={str(path)!r}.")
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(f"Expected a schema file in UTF-8, got schema={str(path)!r}: {error.reason}.") from error


def fields(data: object) -> object:
    """The fields of `Schema`, as they are read: without the version, and an intercept of true or false as a number."""
    if not isinstance(data, Mapping):
        return data
    found = {key: float(value) if key == "intercept" and isinstance(value, bool) else value
             for key, value in data.items()}  # fmt: skip
    version = found.pop("version", VERSION)
    if isinstance(version, bool) or version != VERSION:
        raise InputError(
            f"Expected version = {VERSION}, got version={settings.brief(version)}. Use the sottovoce that wrote it."
        )
    return found


def _label(table: dict[str, Any]) -> tuple[type[Label], dict[str, Any]]:
    """The class of label that a table describes: one with classes, with bounds, or with a time and an event."""
    for key in ("exposure", "offset", "weight"):
        if key in table:
            raise InputError(
                f"Expected a label without {key}, got {key}={settings.brief(table[key])}. Say it in a table of its "
                f"own, [{'weight' if key == 'weight' else 'exposure'}], with column and bound; an offset is the "
                "logarithm of an exposure."
            )
    if "time" in table or "event" in table:
        needed = ("time", "event", "until")
        settings.check_keys(table, (*needed, "bins", "edges"), needed, "keys of label, of times to an event")
        return SurvivalLabel, table
    known = ("column", "missing", "classes", "positive", "bounds", "counts")
    settings.check_keys(table, known, ("column",), "keys of label")
    classes, bounds = table.get("classes"), table.get("bounds")
    if (classes is None) == (bounds is None):
        came = f"{settings.brief(classes)} and {settings.brief(bounds)}"
        raise InputError(
            f"Expected one of label.classes and label.bounds, got {came}. Give the classes, or limits of a number that "
            "hold for anyone: labels are clipped to them."
        )
    if (positive := table.get("positive")) is None:
        return ClassLabel if bounds is None else NumberLabel, table
    if bounds is not None:
        raise InputError(f"Expected label.positive with label.classes only, got positive={settings.brief(positive)}.")
    # Which class is positive is said by their order alone, once the file is read.
    listed = settings.typed("label.classes", classes, tuple[str, ...])
    ordered = positive_last(listed, settings.typed("label.positive", positive, str))
    return ClassLabel, {key: value for key, value in table.items() if key != "positive"} | {"classes": ordered}


settings.tagged(Column, "kind", {kind.kind(): kind for kind in (Numeric, Age, Seasonal, Categorical, Boolean)})
settings.choose(Label, _label)


def render(data: Mapping[str, Any], remarks: Mapping[str, str]) -> str:
    """The text of a schema file.

    Args:
        data: a schema, as `settings.plain` gives it.
        remarks: comments by place: "" on top, "end", "unreviewed", "file", "person", "weight", "exposure",
            "supplied", "label", or "columns.NAME".
    """
    own = ("file", "person", "weight", "exposure", "supplied")
    top = {key: value for key, value in data.items() if key not in (*own, "label", "columns", "terms", "unreviewed")}
    lines = [*_comment(remarks, ""), *_pairs(top), ""]
    lines += [*_comment(remarks, "unreviewed"), f"unreviewed = {toml.inline(data['unreviewed'], spread=True)}", ""]
    for place in own:
        if place in data:
            lines += [*_comment(remarks, place), f"[{place}]", *_pairs(data[place]), ""]
    lines += [*_comment(remarks, "label"), "[label]", *_pairs(data["label"])]
    for column in data["columns"]:
        lines += ["", *_comment(remarks, f"columns.{column['name']}"), "[[columns]]", *_pairs(column)]
    for term in data.get("terms", ()):
        lines += ["", "[[terms]]", *_pairs(term)]
    ending = _comment(remarks, "end")
    return "\n".join(lines + (["", *ending] if ending else [])) + "\n"


def _comment(remarks: Mapping[str, str], place: str) -> list[str]:
    return [f"# {_CONTROL.sub(' ', line)}".rstrip() for line in remarks.get(place, "").splitlines()]


def _pairs(table: Mapping[str, Any]) -> list[str]:
    return toml.pairs({key: _short(value) for key, value in table.items()})


def _short(value: Any) -> Any:
    """Turn whole floats into ints, so that they are written without a decimal point."""
    if isinstance(value, list):
        return [_short(item) for item in value]
    return int(value) if isinstance(value, float) and value == int(value) and abs(value) < _EXACT else value
