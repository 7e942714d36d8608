"""Schemas written as TOML, with remarks for the person who reviews them."""

import re
from collections.abc import Mapping
from typing import Any

from sottovoce import settings

_EXACT = 2.0**53
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")  # not allowed in a comment; remarks may quote a file


def render(data: Mapping[str, Any], remarks: Mapping[str, str]) -> str:
    """The text of a schema file.

    Args:
        data: what `Schema.to_dict` gives.
        remarks: comments by place: "" on top, "end", "unreviewed", "label", or "columns.NAME".
    """
    top = {key: value for key, value in data.items() if key not in ("label", "columns", "unreviewed")}
    lines = [*_comment(remarks, ""), *_pairs(top), ""]
    lines += [*_comment(remarks, "unreviewed"), f"unreviewed = {settings.toml(data['unreviewed'], spread=True)}", ""]
    lines += [*_comment(remarks, "label"), "[label]", *_pairs(data["label"])]
    for column in data["columns"]:
        lines += ["", *_comment(remarks, f"columns.{column['name']}"), "[[columns]]", *_pairs(column)]
    ending = _comment(remarks, "end")
    return "\n".join(lines + (["", *ending] if ending else [])) + "\n"


def _comment(remarks: Mapping[str, str], place: str) -> list[str]:
    return [f"# {_CONTROL.sub(' ', line)}".rstrip() for line in remarks.get(place, "").splitlines()]


def _pairs(table: Mapping[str, Any]) -> list[str]:
    return settings.pairs({key: _short(value) for key, value in table.items()})


def _short(value: Any) -> Any:
    """Whole numbers are written as such."""
    if isinstance(value, list):
        return [_short(item) for item in value]
    return int(value) if isinstance(value, float) and value == int(value) and abs(value) < _EXACT else value
