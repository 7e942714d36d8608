"""Schemas written as TOML, with remarks for the person who reviews them."""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

_LINE = 100  # longer lists take one line per entry
_EXACT = 2.0**53
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")  # not allowed in a comment; remarks may quote a file


def render(data: Mapping[str, Any], remarks: Mapping[str, str]) -> str:
    """The text of a schema file.

    Args:
        data: what `Schema.to_dict` gives.
        remarks: comments by place: "" on top, "end", "unreviewed", "file", "label", or "columns.NAME".
    """
    top = {key: value for key, value in data.items() if key not in ("file", "label", "columns", "unreviewed")}
    lines = [*_comment(remarks, ""), *_pairs(top), ""]
    lines += [*_comment(remarks, "unreviewed"), f"unreviewed = {_spread(data['unreviewed'])}", ""]
    if "file" in data:
        lines += [*_comment(remarks, "file"), "[file]", *_pairs(data["file"]), ""]
    lines += [*_comment(remarks, "label"), "[label]", *_pairs(data["label"])]
    for column in data["columns"]:
        lines += ["", *_comment(remarks, f"columns.{column['name']}"), "[[columns]]", *_pairs(column)]
    ending = _comment(remarks, "end")
    return "\n".join(lines + (["", *ending] if ending else [])) + "\n"


def written(value: Any, spread: bool = False) -> str:
    """One value; a list with a line for each entry if it is to be spread."""
    return _spread(value) if spread else _value(value)


def _comment(remarks: Mapping[str, str], place: str) -> list[str]:
    return [f"# {_CONTROL.sub(' ', line)}".rstrip() for line in remarks.get(place, "").splitlines()]


def _pairs(table: Mapping[str, Any]) -> list[str]:
    return [f"{key} = {_value(value)}" for key, value in table.items()]


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return _number(value)
    if isinstance(value, str):
        return _text(value)
    line = f"[{', '.join(map(_value, value))}]"
    return line if len(line) <= _LINE else _spread(value)


def _spread(values: Sequence[Any]) -> str:
    return "[\n" + "".join(f"    {_value(value)},\n" for value in values) + "]" if values else "[]"


def _number(value: float) -> str:
    return str(int(value)) if value == int(value) and abs(value) < _EXACT else repr(float(value))


def _text(value: str) -> str:
    # JSON's escapes are TOML's, but for the delete character.
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
