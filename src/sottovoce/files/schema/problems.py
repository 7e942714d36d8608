"""What people read of cells that do not fit a schema, and of columns that are missing: what was expected, and advice.

What a cell holds is private. It is quoted only for those who ask what is wrong with a file.
"""

import json
import re
from collections.abc import Sequence
from typing import NamedTuple, TypeAlias

import numpy as np

from sottovoce.arrays import Bools
from sottovoce.errors import InputError
from sottovoce.files.schema.column import Column
from sottovoce.files.schema.factor import Factor
from sottovoce.files.schema.findings import CellProblem, Finding, Findings
from sottovoce.files.schema.form import DELIMITERS
from sottovoce.files.schema.labels import ColumnLabel
from sottovoce.files.schema.reading import Chunk, ReadTable
from sottovoce.files.schema.values import EMPTY_WORDS
from sottovoce.settings import brief

Described: TypeAlias = Column | ColumnLabel | Factor  # what a schema says of one column of a file


class Checked(NamedTuple):
    """A chunk, the parts of the schema that its columns belong to, and the finding of every cell."""

    chunk: Chunk
    parts: Sequence[Described]
    findings: Findings  # (rows, parts)

    def first(self, chosen: Bools, most: int, quoted: bool = True) -> list[CellProblem]:
        """The first of the chosen cells, by row and then by column. What they hold is quoted for those who ask what is
        wrong with a file (`schema check`), and for nobody else: errors end up in logs, and logs travel.
        """
        problems = []
        for row, place in np.argwhere(chosen)[:most].tolist():
            finding, number, part = Finding(self.findings[row, place]), int(self.chunk.rows[row]), self.parts[place]
            where, came = f"row {number}, column {brief(column_of(part))}", self.chunk.cells[place].shown(row)
            if finding.refused:
                wanted = "UTF-8 text" if finding is Finding.NOT_TEXT else part.wants()
                hidden = f"a private value, not shown here ({finding.words}; sottovoce schema check shows it)"
                message = f"Expected {wanted} in {where}, got {repr(came) if quoted else hidden}."
            else:
                message = f"{where}: got {came!r}, {finding.words}."
            problems.append(CellProblem(number, column_of(part), finding, message + _advice(finding, came, part)))
        return problems


def _advice(finding: Finding, came: str, part: Described) -> str:
    """Advice for a message: how the user can mend such a cell."""
    if finding in (Finding.UNKNOWN, Finding.OTHER) and came.endswith(".0") and came[:-2] in part.words():
        return (
            " Without its .0 it is declared: a column of whole numbers with gaps was written as fractions, as pandas "
            'does. Write whole numbers (in pandas: .astype("Int64")), or declare them with .0, too.'
        )
    if "\n" in came or "\r" in came:
        return " It goes over several lines: look there for a quote that is never closed."
    if finding in (Finding.NOT_A_NUMBER, Finding.NOT_A_DATE, Finding.UNKNOWN) and came.lower() in EMPTY_WORDS:
        return " If it stands for no value, add it to missing_values in the schema."
    if finding is Finding.NOT_A_NUMBER and _COMMA.fullmatch(came):
        return ' If the comma is a decimal sign, say decimal = "," under [file] in the schema.'
    return _ADVICE.get(finding, "")


_COMMA = re.compile(r"[+-]?\d*,\d+")
_ADVICE = {
    Finding.MISSING: ' It counts as missing: fill it in, or choose in the schema what happens then (missing = "...").',
    Finding.UNKNOWN: " Correct it, or declare it in the schema.",
    Finding.OUTSIDE: " Leave the row out, declare a larger bound, or have larger weights cut to it: "
    'above = "clip" in the schema, under [weight].',
    Finding.NEGATIVE: " Correct it, or leave the row out.",
    Finding.NOT_A_DATE: ' Correct it, or say another order of year, month and day in the schema (order = "dmy").',
}


def nameless(what: str, where: str, finding: Finding) -> str:
    """The message for a cell that should name a person or a site, and does not."""
    if finding is Finding.NOT_TEXT:
        return f"Expected a {what} as UTF-8 text in {where}, got other bytes, as of Latin-1. Save the file as UTF-8."
    return f"Expected a {what} in {where}, got none. Fill it in."


def refuse(table: ReadTable, checked: Checked) -> None:
    """Raise an `InputError` that names the first refused cell, if there is one."""
    refused = checked.findings >= Finding.MISSING
    if refused.any():
        (problem,) = checked.first(refused, 1, quoted=False)
        raise InputError(f"{problem.message} In file={str(table.path)!r}.")


def require(table: ReadTable, names: Sequence[str]) -> None:
    """Raise an `InputError` unless the file has these columns."""
    places = table.places(names)
    for name in names:
        if name not in places:
            raise InputError(f"Expected a column {brief(name)} in file={str(table.path)!r}. {columns_of(table)}")


def columns_of(table: ReadTable) -> str:
    """The columns that the file has, and the likely mistake where a column is missing."""
    signs = [sign for sign in DELIMITERS if sign in table.names[0]] if len(table.names) == 1 else []
    if signs:
        return (
            f"Its fields are separated by {DELIMITERS[signs[0]]}: say so with --delimiter, or as delimiter = "
            f"{json.dumps(signs[0])} under [file] in the schema."
        )
    shown = f"It has {', '.join(map(brief, table.names[:10]))}{', ...' if len(table.names) > 10 else ''}."
    if any(_is_number(name) for name in table.names):
        return f"{shown} If that is no header but a row, say the names of the columns: names = [...] under [file]."
    return shown


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def column_of(part: Described) -> str:
    """The name of the column in the file."""
    return part.name if isinstance(part, Column) else part.column
