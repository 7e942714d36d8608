"""Files of practitioners against a schema: encoded, or only checked. In chunks: only the result grows with the file."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from sottovoce.arrays import Floats, Ints
from sottovoce.datasets import Dataset
from sottovoce.errors import InputError, expect
from sottovoce.schema.cells import Bools
from sottovoce.schema.column import Column
from sottovoce.schema.encoding import Csr, encode_cells, stack
from sottovoce.schema.findings import Finding, Findings, Problem, Report, Tally
from sottovoce.schema.labels import Label
from sottovoce.schema.reading import Chunk, Ragged, Table, open_table
from sottovoce.schema.schema import Schema
from sottovoce.schema.values import brief

KEPT = 20  # problems that a report shows
Texts: TypeAlias = NDArray[np.str_]


class FeatureChunk(NamedTuple):
    """Encoded rows and their numbers in the file. Rows that the schema drops are not among them."""

    features: Csr
    rows: Ints


def encode(path: str | Path, schema: Schema) -> Dataset:
    """All rows of a file, with labels. The first cell that the schema refuses is named in an `InputError`.

    They are taken to be private; if anyone may see them, say so: `replace(data, private=False)`.
    """
    table = open_table(path)
    parts = [(rows, labels) for _, _, rows, labels in _labelled(table, schema, [])]
    return _dataset(table, schema, parts)


def encode_by_site(path: str | Path, schema: Schema, site_column: str) -> tuple[Dataset, Texts]:
    """The same for a file that holds the rows of several sites: also the site of every encoded row."""
    reserved = {schema.label.column, *(column.name for column in schema.columns)}
    expect(
        site_column not in reserved, "a site column that is neither a feature nor the label", site_column=site_column
    )
    table, sites = open_table(path), list[Texts]()
    parts = []
    for chunk, kept, rows, labels in _labelled(table, schema, [site_column]):
        sites.append(_sites(table, chunk, site_column)[kept])
        parts.append((rows, labels))
    return _dataset(table, schema, parts), np.concatenate(sites)


def encode_features(path: str | Path, schema: Schema) -> Iterator[FeatureChunk]:
    """The features only, chunk by chunk, as for a prediction. The label's column may be missing."""
    table = open_table(path)
    names = [column.name for column in schema.columns]
    _require(table, names)
    for chunk in table.chunks(names, schema.missing_values):
        encoding = encode_cells(schema, chunk.cells)
        _refuse(table, _Checked(chunk, schema.columns, encoding.finding))
        yield FeatureChunk(encoding.rows(encoding.kept), chunk.rows[encoding.kept])


def check(path: str | Path, schema: Schema, keep: int = KEPT) -> Report:
    """What of a file does not fit, by row and column; the first `keep` problems and notes are told one by one."""
    table, tally, skipped = open_table(path), Tally(keep), list[Ragged]()
    wanted: list[Column | Label] = [*schema.columns, schema.label]
    there = [part for part in wanted if _name(part) in table.names]
    for part in wanted:
        if part not in there:
            message = f"Expected a column {brief(_name(part))} in the file. {_known(table)}"
            tally.add(Problem(None, _name(part), Finding.NO_COLUMN, message))
    rows = used = 0
    # A file without any of the columns has nothing to be read; its rows are not counted.
    for chunk in table.tolerant([_name(part) for part in there], schema.missing_values, skipped) if there else ():
        findings = np.stack([part.encode(own).finding for part, own in zip(there, chunk.cells, strict=True)], axis=1)
        _tell(tally, _Checked(chunk, there, findings))
        rows += len(chunk.rows)
        used += int(np.count_nonzero(~(findings == Finding.DROPPED).any(axis=1)))
    for gap in skipped:
        message = f"Expected {gap.expected} fields in row {gap.row}, as in the header, got {gap.came}."
        tally.add(Problem(gap.row, None, Finding.RAGGED, message))
    if there and not rows and not skipped:
        tally.add(Problem(None, None, Finding.NO_ROWS, "Expected at least one row below the header."))
    unused = [name for name in table.names if name not in {_name(part) for part in wanted}]
    return tally.report(rows + len(skipped), used, unused)


class _Checked(NamedTuple):
    """A chunk, what its columns should be, and what was found in them."""

    chunk: Chunk
    parts: Sequence[Column | Label]
    findings: Findings  # (rows, parts)

    def first(self, chosen: Bools, most: int) -> list[Problem]:
        """The first of the chosen cells, by row and then by column."""
        return [self._problem(int(row), int(part)) for row, part in np.argwhere(chosen)[:most]]

    def _problem(self, row: int, part: int) -> Problem:
        finding, number, name = Finding(self.findings[row, part]), int(self.chunk.rows[row]), _name(self.parts[part])
        where, came = f"row {number}, column {brief(name)}", self.chunk.cells[part].shown(row)
        wanted = "UTF-8 text" if finding is Finding.NOT_TEXT else self.parts[part].wants()
        if finding.refused:
            message = f"Expected {wanted} in {where}, got {came!r}.{_ADVICE.get(finding, '')}"
        else:
            message = f"{where}: got {came!r}, {finding.words}."
        return Problem(number, name, finding, message)


_ADVICE = {
    Finding.MISSING: ' It counts as missing: fill it in, or say in the schema what is to be done (missing = "...").',
    Finding.UNKNOWN: " Correct it, or declare it in the schema.",
}


def _labelled(table: Table, schema: Schema, more: Sequence[str]) -> Iterator[tuple[Chunk, Bools, Csr, Floats]]:
    """Chunks with the columns of the schema and more; which of their rows are kept; features and labels of those."""
    wanted: list[Column | Label] = [*schema.columns, schema.label]
    names = [*map(_name, wanted), *more]
    _require(table, names)
    for chunk in table.chunks(names, schema.missing_values):
        encoding = encode_cells(schema, chunk.cells[: len(schema.columns)])
        labels = schema.label.encode(chunk.cells[len(schema.columns)])
        _refuse(table, _Checked(chunk, wanted, np.column_stack([encoding.finding, labels.finding])))
        kept = encoding.kept & (labels.finding != Finding.DROPPED)
        yield chunk, kept, encoding.rows(kept), labels.value[kept]


def _dataset(table: Table, schema: Schema, parts: Sequence[tuple[Csr, Floats]]) -> Dataset:
    if not sum(len(labels) for _, labels in parts):
        came = "every row has a missing value and is dropped" if parts else "none"
        raise InputError(f"Expected at least one row in file={str(table.path)!r}, got rows: {came}.")
    labels = np.concatenate([labels for _, labels in parts])
    features = stack(schema, [rows for rows, _ in parts])
    return Dataset(features, labels, schema.feature_names, len(labels), schema.data_norm, schema.name, private=True)


def _sites(table: Table, chunk: Chunk, column: str) -> Texts:
    """The last column of the chunk, as texts."""
    cells = chunk.cells[-1]
    bad = np.flatnonzero(cells.missing() | cells.unreadable())
    if len(bad):
        where = f"row {chunk.rows[bad[0]]}, column {brief(column)} of file={str(table.path)!r}"
        raise InputError(f"Expected a site in {where}, got {cells.shown(int(bad[0]))!r}. Fill it in.")
    names = cells.distinct()
    return np.array(names)[cells.places(names)]


def _refuse(table: Table, checked: _Checked) -> None:
    refused = checked.findings >= Finding.MISSING
    if refused.any():
        (problem,) = checked.first(refused, 1)
        raise InputError(f"{problem.message} In file={str(table.path)!r}.")


def _tell(tally: Tally, checked: _Checked) -> None:
    for part, findings in zip(checked.parts, checked.findings.T, strict=True):
        tally.count(_name(part), findings)
    refused = checked.findings >= Finding.MISSING
    noted = (checked.findings != Finding.FITS) & ~refused
    for problem in checked.first(refused, tally.room(True)) + checked.first(noted, tally.room(False)):
        tally.keep(problem)


def _require(table: Table, names: Sequence[str]) -> None:
    for name in names:
        if name not in table.names:
            raise InputError(f"Expected a column {brief(name)} in file={str(table.path)!r}. {_known(table)}")


def _known(table: Table) -> str:
    if len(table.names) == 1 and ";" in table.names[0]:
        return "Its fields are separated by semicolons. Save it with commas."
    return f"It has {', '.join(map(brief, table.names[:10]))}{', ...' if len(table.names) > 10 else ''}."


def _name(part: Column | Label) -> str:
    return part.column if isinstance(part, Label) else part.name
