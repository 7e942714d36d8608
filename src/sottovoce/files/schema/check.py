"""Check a file by its schema, and report all that does not fit. The file is read in chunks."""

import numpy as np

from sottovoce.arrays import Bools, Ints
from sottovoce.files.schema.findings import CellProblem, Finding, Report, Tally
from sottovoce.files.schema.person import Person, PersonNumbers
from sottovoce.files.schema.problems import Checked, Described, column_of, columns_of, nameless
from sottovoce.files.schema.reading import Chunk, Ragged, Source, open_table
from sottovoce.files.schema.schema import Schema
from sottovoce.problem.people import within
from sottovoce.settings import brief

KEPT = 20  # problems that a report shows


def check(path: Source, schema: Schema, keep: int = KEPT) -> Report:
    """What of a file does not fit, by row and column; the first `keep` problems and notes are listed one by one."""
    table, tally, skipped = open_table(path, schema.file), Tally(keep), list[Ragged]()
    wanted: list[Described] = [*schema.columns, *schema.label.parts, *schema.factors]
    counted = None if schema.person is None else _People(schema.person)
    places = table.places([*map(column_of, wanted), *([] if counted is None else [counted.person.column])])
    there = [part for part in wanted if column_of(part) in places]
    for part in wanted:
        if part not in there:
            message = f"Expected a column {brief(column_of(part))} in the file. {columns_of(table)}"
            tally.add(CellProblem(None, column_of(part), Finding.NO_COLUMN, message))
    if counted is not None and counted.person.column not in places:
        message = (
            f"Expected a column {brief(counted.person.column)} in the file, which names people. {columns_of(table)}"
        )
        tally.add(CellProblem(None, counted.person.column, Finding.NO_COLUMN, message))
        counted = None
    rows = used = 0
    # A file without any of the columns has nothing to be read; its rows are not counted.
    asked = [*map(column_of, there), *([] if counted is None else [counted.person.column])]
    for chunk in table.tolerant(asked, schema.missing_values, skipped) if there else ():
        cells = chunk.cells[: len(there)]
        findings = np.stack([part.encode(own).finding for part, own in zip(there, cells, strict=True)], axis=1)
        if counted is not None:
            used_here: Bools = np.all(findings < Finding.DROPPED, axis=1)
            counted.take(chunk, used_here, tally)
        for part, own_findings in zip(there, findings.T, strict=True):
            tally.count(column_of(part), own_findings)
        refused = findings >= Finding.MISSING
        noted = (findings != Finding.FITS) & ~refused
        checked = Checked(chunk, there, findings)
        for problem in checked.first(refused, tally.room(True)) + checked.first(noted, tally.room(False)):
            tally.keep(problem)
        rows += len(chunk.rows)
        # Neither dropped nor refused; without all of its columns, no row is of any use.
        used += int(np.count_nonzero(~(findings >= Finding.DROPPED).any(axis=1))) if len(there) == len(wanted) else 0
    if counted is not None:
        used -= counted.report(tally)
    for gap in skipped:
        message = f"Expected {gap.expected} fields in row {gap.row}, as in the header, got {gap.came}."
        tally.add(CellProblem(gap.row, None, Finding.RAGGED, message))
    if there and not rows and not skipped:
        tally.add(CellProblem(None, None, Finding.NO_ROWS, "Expected at least one row below the header."))
    unused = [name for i, name in enumerate(table.names) if i not in places.values()]
    return tally.report(rows + len(skipped), used, unused)


class _People:
    """Counts, for a report, the rows without a person and those beyond the limit per person."""

    def __init__(self, person: Person) -> None:
        self.person, self._numbers = person, PersonNumbers()
        self._rows, self._whose = list[Ints](), list[Ints]()

    def take(self, chunk: Chunk, used: Bools, tally: Tally) -> None:
        """Count the people of the next rows; only rows that are `used` count towards the limit."""
        cells = chunk.cells[-1]
        findings, names = self.person.findings(cells), cells.distinct()
        tally.count(self.person.column, findings)
        for row in np.flatnonzero(findings)[: tally.room(True)]:
            number, finding = int(chunk.rows[row]), Finding(findings[row])
            where = f"row {number}, column {brief(self.person.column)}"
            tally.keep(CellProblem(number, self.person.column, finding, nameless("person", where, finding)))
        named = used & (findings == Finding.FITS)
        if named.any():
            self._whose.append(self._numbers.of(np.array(names)[cells.places(names)[named]]))
            self._rows.append(chunk.rows[named])

    def report(self, tally: Tally) -> int:
        """Report the rows beyond the limit per person to the tally, and return their number."""
        if not self._rows:
            return 0
        rows, refused = np.concatenate(self._rows), self.person.surplus == "refuse"
        beyond = rows[~within(np.concatenate(self._whose), self.person.rows)]
        finding, column = Finding.SURPLUS if refused else Finding.CUT, self.person.column
        tally.count(column, np.full(len(beyond), finding, dtype=np.uint8))
        for row in map(int, beyond[: tally.room(refused)]):
            expected = f"at most {self.person.rows} rows of a person, as the schema says"
            advice = (
                'Raise person.rows, which costs as much more noise, or say person.surplus = "drop", which does not '
                "cover rows under others' names."
            )
            message = f"Expected {expected}, got one more at row {row}. {advice}"
            noted = f"row {row}, column {brief(column)}: {finding.words}."
            tally.keep(CellProblem(row, column, finding, message if refused else noted))
        return len(beyond)
