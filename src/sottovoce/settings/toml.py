"""Reading and writing of TOML text; a mistake is reported in one line.

It is written by our own code: what people review needs comments and a layout (short lists on one line, schemas as text
of several lines), and a file that is written again must have the same bytes.
"""

import json
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sottovoce.errors import InputError, expect, naming

LARGEST_TEXT = 4_000_000
_LONGEST_LINE = 100  # longer lists take one line per entry


def parse(text: str, what: str = "TOML", most: int = LARGEST_TEXT) -> dict[str, Any]:
    """The tables of a text. TOML itself refuses a key that is given twice."""
    expect(len(text) <= most, f"at most {most} characters of {what}", characters=len(text))
    try:
        return tomllib.loads(text)
    except ValueError as error:  # also numbers with too many digits
        raise InputError(f"Expected {what}, got a mistake: {error}.") from error
    except RecursionError:
        raise InputError(f"Expected {what}, got lists or tables nested too deeply.") from None


def load(path: Path) -> dict[str, Any]:
    """The settings in a file of options. They may be spelt with - or _, and are named with _ here."""
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise InputError(f"Expected a TOML file, got config={str(path)!r}: {error.strerror}.") from error
    except UnicodeDecodeError as error:
        raise InputError(f"Expected a TOML file in UTF-8, got config={str(path)!r}: {error}.") from error
    with naming(config=path):
        return underscored(parse(text))


def underscored(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings with names spelt with _; a name that comes twice is refused."""
    spelt = {name.replace("-", "_"): value for name, value in settings.items()}
    expect(len(spelt) == len(settings), "every setting once, with - or with _", settings=list(settings))
    return spelt


def pairs(table: Mapping[str, Any]) -> list[str]:
    """The lines of a table. What is None is left out."""
    return [f"{key} = {inline(value)}" for key, value in table.items() if value is not None]


def inline(value: Any, *, spread: bool = False) -> str:
    """A value as TOML: text, a truth, a number, a list, or a table on one line. `spread`: a list's entries, one a line.

    Python writes numbers as TOML reads them: inf, and the fewest digits that read back as the same double.
    """
    if isinstance(value, str):
        return f'"{_escape(value)}"'
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{key} = {inline(item)}" for key, item in value.items()) + " }"
    if not isinstance(value, list | tuple):
        return repr(value)
    line = f"[{', '.join(map(inline, value))}]"
    if not value or (len(line) <= _LONGEST_LINE and not spread):
        return line
    return "[\n" + "".join(f"    {inline(item)},\n" for item in value) + "]"


def multiline(text: str) -> str:
    """Text of several lines, readable as such."""
    return '"""\n' + "\n".join(map(_escape, text.split("\n"))) + '"""'


def _escape(text: str) -> str:
    """Text with JSON's escapes, which TOML shares. Unprintable letters are escaped too: people sign what they see."""
    seen = json.dumps(text, ensure_ascii=False)[1:-1]
    return "".join(
        char if char.isprintable() else f"\\u{ord(char):04x}" if ord(char) < 0x10000 else f"\\U{ord(char):08x}"
        for char in seen
    )
