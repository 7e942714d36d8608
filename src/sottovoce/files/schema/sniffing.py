"""The form of a file guessed from its first lines, for a draft. A person sees the guess in the schema."""

import csv
import io
import re
from collections.abc import Sequence
from pathlib import Path

from sottovoce.files.schema.form import DELIMITERS, FileForm
from sottovoce.files.schema.reading import reading
from sottovoce.files.schema.unpacking import opened

_LOOKED_AT = 2**18  # bytes
_RECORDS = 200
_POINT = re.compile(r"\s*[+-]?\d*\.\d+\s*")
_COMMA = re.compile(r"\s*[+-]?\d*,\d+\s*")


def sniff(path: Path, delimiter: str | None = None, decimal: str | None = None, header: bool = True) -> FileForm:
    """Guess delimiter and decimal sign, unless they are given. Without a header, columns are called column1,
    column2, ...
    """
    if delimiter is not None:
        FileForm(delimiter)  # refused before it is tried
    with reading(path), opened(path) as file:
        text = file.read(_LOOKED_AT).decode("utf-8-sig", errors="replace")
    found = {sign: _records(text, sign) for sign in ([delimiter] if delimiter else DELIMITERS)}
    # The most fields win, among those that every record has alike; a file of one column has none, and any sign will do.
    best = max(found, key=lambda sign: _fields(found[sign]))
    names = None if header else tuple(f"column{i}" for i in range(1, len((found[best] or [[""]])[0]) + 1))
    # The decimal sign is a comma if numbers have one and none has a point.
    cells = [cell for record in found[best][1:] for cell in record]
    commas = any(_COMMA.fullmatch(cell) for cell in cells)
    guessed = "," if commas and not any(_POINT.fullmatch(cell) for cell in cells) else "."
    return FileForm(best, decimal or guessed, names)


def _records(text: str, delimiter: str) -> list[list[str]]:
    lines = io.StringIO(text, newline="")
    records = list[list[str]]()
    try:
        for record in csv.reader(lines, delimiter=delimiter):
            if record:
                records.append(record)
            if len(records) == _RECORDS:
                return records
    except csv.Error:
        return []
    # The last record may be cut off by where the look ended.
    return records[:-1] if len(records) > 1 and len(text) >= _LOOKED_AT else records


def _fields(records: Sequence[Sequence[str]]) -> int:
    """Number of fields of every record; 1 if records differ."""
    sizes = {len(record) for record in records}
    return sizes.pop() if len(sizes) == 1 else 1
