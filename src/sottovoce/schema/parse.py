"""Schema files read strictly: every key is known and of the right type, or the file is refused by the key's name."""

import tomllib
from collections.abc import Callable, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from sottovoce.errors import InputError
from sottovoce.schema.column import Column
from sottovoce.schema.columns import FALSE, TRUE, Age, Boolean, Categorical, Numeric, Seasonal
from sottovoce.schema.form import USUAL, FileForm
from sottovoce.schema.keys import Keys
from sottovoce.schema.labels import ClassLabel, Label, NumberLabel, positive_last
from sottovoce.schema.values import brief, number

VERSION = 1
MISSING_VALUES = ("", "?", "NA")
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


def read_toml(text: str) -> dict[str, Any]:
    """The tables of a TOML text."""
    try:
        return tomllib.loads(text)
    except ValueError as error:  # also numbers with too many digits
        raise InputError(f"Expected a schema in TOML, got: {error}.") from error
    except RecursionError:
        raise InputError("Expected a schema in TOML, got lists or tables nested too deeply.") from None


def fields(data: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of `Schema`."""
    keys = Keys(data, "")
    version = keys.raw("version", VERSION)
    if isinstance(version, bool) or version != VERSION:
        raise InputError(
            f"Expected version = {VERSION}, got version={brief(version)}. Use the sottovoce that wrote it."
        )
    found = {
        "name": keys.text("name", "table"),
        "intercept": _intercept(keys.raw("intercept", True)),
        "row_norm": _row_norm(keys.raw("row_norm", "bound")),
        "missing_values": keys.texts("missing_values", MISSING_VALUES),
        "unreviewed": keys.texts("unreviewed", ()),
        "file": _file(Keys(keys.raw("file", {}), "file")),
        "label": _label(Keys(keys.raw("label"), "label")),
        "columns": tuple(_column(table, i) for i, table in enumerate(keys.tables("columns"), start=1)),
    }
    keys.finish()
    return found


def _intercept(value: object) -> float:
    found = float(value) if isinstance(value, bool) else number(value)
    if found is None:
        raise InputError(f"Expected intercept to be true, false or a number, got {brief(value)}.")
    return found


def _row_norm(value: object) -> float | str:
    found = value if isinstance(value, str) else number(value)
    if found is None:
        raise InputError(f'Expected row_norm to be "bound" or a number, got {brief(value)}.')
    return found


def _file(keys: Keys) -> FileForm:
    delimiter, decimal = keys.text("delimiter", USUAL.delimiter), keys.text("decimal", USUAL.decimal)
    names = keys.texts("names", None)
    keys.finish()
    return FileForm(delimiter, decimal, names)


def _label(keys: Keys) -> Label:
    column, missing = keys.text("column"), keys.text("missing", "refuse")
    classes, bounds = keys.texts("classes", None), keys.bounds("bounds", None)
    positive = keys.text("positive", None)
    keys.finish()
    if (classes is None) == (bounds is None):
        raise InputError(f"Expected one of label.classes and label.bounds, got {brief(classes)} and {brief(bounds)}.")
    if bounds is None:
        return ClassLabel(column=column, missing=missing, classes=positive_last(classes, positive))
    if positive is not None:
        raise InputError(f"Expected label.positive with label.classes only, got positive={brief(positive)}.")
    return NumberLabel(column=column, missing=missing, bounds=bounds)


def _column(table: object, position: int) -> Column:
    keys = Keys(table, f"columns[{position}]")
    keys.path = f"columns.{keys.text('name')}"
    name = keys.path.removeprefix("columns.")
    kind = keys.text("kind")
    if kind not in _KINDS:
        near = get_close_matches(kind, _KINDS, 1)
        advice = f"Did you mean {near[0]!r}?" if near else "Correct it."
        raise InputError(f"Expected {keys.of('kind')} among {', '.join(_KINDS)}, got {brief(kind)}. {advice}")
    common = {"name": name, "missing": keys.text("missing", "refuse"), "fill": _fill(keys)}
    make, read = _KINDS[kind]
    own = read(keys)
    keys.finish()  # before anything is checked: a key that is misspelt also is one that lacks
    return make(**common, **own)


def _fill(keys: Keys) -> float | str | bool | None:
    value = keys.raw("fill", None)
    if value is None or isinstance(value, str | bool):
        return value
    found = number(value)
    if found is None:
        raise InputError(f"Expected {keys.of('fill')} to be a number, a text or a truth value, got {brief(value)}.")
    return found


def _numeric(keys: Keys) -> dict[str, Any]:
    return {"bounds": keys.bounds("bounds"), "scale": keys.text("scale", None), "edges": keys.numbers("edges", None)}


def _age(keys: Keys) -> dict[str, Any]:
    return {"on": keys.text("on"), "order": keys.text("order", "ymd"), **_numeric(keys)}


def _season(keys: Keys) -> dict[str, Any]:
    return {"by": keys.text("by"), "order": keys.text("order", "ymd")}


def _categorical(keys: Keys) -> dict[str, Any]:
    return {"first": keys.whole("first", None), "categories": keys.texts("categories"),
            "other": keys.truth("other", False)}  # fmt: skip


def _boolean(keys: Keys) -> dict[str, Any]:
    return {"true_values": keys.texts("true_values", TRUE), "false_values": keys.texts("false_values", FALSE)}


_KINDS: dict[str, tuple[Callable[..., Column], Callable[[Keys], dict[str, Any]]]] = {
    Numeric.kind(): (Numeric, _numeric),
    Age.kind(): (Age, _age),
    Seasonal.kind(): (Seasonal, _season),
    Categorical.kind(): (Categorical, _categorical),
    Boolean.kind(): (Boolean, _boolean),
}
