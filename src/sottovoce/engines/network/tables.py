"""Tables that people agree on: read strictly, written as TOML, and encoded in one way only.

Strictly: nothing that is unknown, nothing that is missing, no number that is not finite, no text where a number
belongs. What is not understood is refused, since a site signs what it reads.

Canonically: JSON with sorted keys, no spaces, ASCII only. A float is written as the shortest decimal that reads back
as the same double, always with a point or an exponent; a whole number without. So equal tables have equal bytes, and
different tables have different ones.
"""

import json
import math
import tomllib
from collections.abc import Collection, Iterable, Mapping
from difflib import get_close_matches
from typing import Any, Literal, TypeAlias, get_args, get_origin

from sottovoce.errors import InputError, expect

Table: TypeAlias = Mapping[str, object]

LARGEST_TEXT = 4_000_000
_WORDS = {str: "text", int: "a whole number", float: "a number"}


# -- reading ----------------------------------------------------------------------------------------------------------


def parse(text: str) -> dict[str, Any]:
    """TOML as a dictionary. TOML itself refuses a key that is given twice."""
    expect(len(text) <= LARGEST_TEXT, f"at most {LARGEST_TEXT} characters of TOML", characters=len(text))
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise InputError(f"Expected TOML, got a mistake: {error}.") from error
    except RecursionError:
        raise InputError("Expected TOML, got tables nested too deeply.") from None


def refuse_odd(table: Table, known: Iterable[str], required: Collection[str], what: str) -> None:
    """Refuse a key that nobody knows, and the absence of one that is needed."""
    names = list(known)
    for key in table:
        if key not in names:
            close = get_close_matches(key, names, n=1)
            advice = f"Did you mean {close[0]}?" if close else f"Known: {', '.join(names)}."
            raise InputError(f"Expected {what}, got {key[:80]!r}. {advice}")
    missing = [name for name in names if name in required and name not in table]
    if missing:
        raise InputError(f"Expected {what} in full, got no {', '.join(missing)}. Nothing is left to a default here.")


def typed(name: str, value: object, hint: Any) -> Any:
    """The value as the type of its field: text, a whole number, or a finite number (a whole one will do)."""
    if get_origin(hint) is Literal:
        choices = get_args(hint)
        expect(value in choices, f"{name} among {', '.join(choices)}", **{name: value})
        return value
    kinds = [kind for kind in get_args(hint) or (hint,) if kind is not type(None)]
    kind = kinds[0]
    if get_origin(kind) is Literal:
        return typed(name, value, kind)
    if kind is float and type(value) in (int, float):
        number: Any = value
        # A whole number may be too large to be a float.
        expect(isinstance(number, float) or abs(number) < 2**1023, f"a smaller {name}", digits=len(str(number)))
        expect(math.isfinite(number), f"a finite number for {name}", **{name: number})
        return float(number)
    # bool is an int to Python, but nobody means `rounds = true`.
    expect(type(value) is kind, f"{_WORDS[kind]} for {name}", **{name: value})
    return value


def subtable(table: Table, name: str) -> dict[str, Any]:
    """The table of that name within a table."""
    value = table.get(name)
    expect(isinstance(value, dict), f"a table [{name}]", **{name: value})
    found: dict[str, Any] = dict(value)  # type: ignore[call-overload]
    return found


def listed(table: Table, name: str, most: int) -> list[Any]:
    """The list of that name, of limited length."""
    value = table.get(name)
    if not isinstance(value, list):
        raise InputError(f"Expected a list for {name}, got {name}={value!r}.")
    expect(len(value) <= most, f"at most {most} entries of {name}", entries=len(value))
    return value


# -- writing ----------------------------------------------------------------------------------------------------------


def canonical(table: Table) -> bytes:
    """The one encoding that digests are taken of."""
    return json.dumps(table, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False).encode("ascii")


def toml(value: object) -> str:
    """A value as TOML: text, a number, a list, or a table on one line."""
    if isinstance(value, str):
        return f'"{_escaped(value, keep="")}"'
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{key} = {toml(item)}" for key, item in value.items()) + " }"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(toml(item) for item in value) + "]"
    return repr(value)


def toml_text(text: str) -> str:
    """Text of several lines, readable as such."""
    quotes, newline = '"' * 3, "\n"
    return f"{quotes}{newline}{_escaped(text, keep=newline)}{quotes}"


def _escaped(text: str, keep: str) -> str:
    return "".join(char if char in keep or _plain(char) else _escape(char) for char in text)


def _plain(char: str) -> bool:
    return char.isprintable() and char not in '"\\'


def _escape(char: str) -> str:
    if char in '"\\':
        return "\\" + char
    return f"\\u{ord(char):04x}" if ord(char) < 0x10000 else f"\\U{ord(char):08x}"
