"""Encode a file by its schema, or only check it. Both read chunks, so only the result grows with the file."""

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, Literal, NamedTuple, TypeAlias, get_args

import numpy as np
from numpy.typing import NDArray

from sottovoce.arrays import Bools, Floats, Ints
from sottovoce.errors import InputError, expect
from sottovoce.files.schema.column import Column
from sottovoce.files.schema.columns import Categorical
from sottovoce.files.schema.encoding import Csr, Encoding, encode_cells, stack
from sottovoce.files.schema.factor import Factor
from sottovoce.files.schema.findings import CellProblem, Finding, Findings, Report, Tally
from sottovoce.files.schema.form import DELIMITERS
from sottovoce.files.schema.labels import Label
from sottovoce.files.schema.person import Person
from sottovoce.files.schema.reading import Chunk, Ragged, ReadTable, Source, open_table
from sottovoce.files.schema.schema import Schema
from sottovoce.files.schema.values import EMPTY_WORDS
from sottovoce.problem.dataset import Dataset
from sottovoce.problem.factors import Factors
from sottovoce.problem.people import kept as people_kept
from sottovoce.problem.people import numbered, within
from sottovoce.settings import brief

KEPT = 20  # problems that a report shows
Texts: TypeAlias = NDArray[np.str_]
Part: TypeAlias = Column | Label | Factor


Unknown: TypeAlias = Literal["refuse", "skip", "other"]  # what to do with a category that a schema does not list


class FeatureChunk(NamedTuple):
    """Encoded rows and their numbers in the file. Rows that the schema drops, or that were to be skipped, are not among
    them.
    """

    features: Csr
    rows: Ints
    passed: tuple[list[str], ...]  # columns that were only asked to be passed on, as text
    exposures: Floats | None  # where the schema says them
    unknown: Ints  # numbers of rows with a category that the schema does not list, and has no "other" level for
    other: int  # rows, with a category that the schema has an "other" level for


def encode(path: Source, schema: Schema) -> Dataset:
    """All rows of a file, or of a table in memory (pandas, polars, Arrow), with labels. The first cell that the schema
    refuses is named in an `InputError`.

    They are taken to be private; if anyone may see them, say so: `replace(data, private=False)`. Where the schema names
    people, nobody has more rows in it than that: a file where somebody has is refused, or their surplus is dropped.
    """
    return _encode_rows(path, schema, None)[0]


def encode_by_site(path: Source, schema: Schema, site_column: str) -> tuple[Dataset, Texts]:
    """Encode a file that holds the rows of several sites; also returns the site of every encoded row. A person's limit
    on rows holds at each site.
    """
    parts: list[Part] = [*schema.columns, schema.label, *schema.factors]
    reserved = {*map(_name, parts)}
    own = "a site column that is neither a feature nor the label"
    own += ", nor a weight or an exposure," if schema.factors else ""
    if schema.person is not None:
        reserved, own = reserved | {schema.person.column}, f"{own} nor the person"
    expect(site_column not in reserved, own, site_column=site_column)
    data, sites = _encode_rows(path, schema, site_column)
    assert sites is not None  # as a column was asked for
    return data, sites


def _encode_rows(path: Source, schema: Schema, site_column: str | None) -> tuple[Dataset, Texts | None]:
    """The encoded rows of a file, and the site of each; None for the sites without a `site_column`."""
    table, people = open_table(path, schema.file), _Numbers()
    chunks, labels, persons, sites = list[Csr](), list[Floats](), list[Ints](), list[Texts]()
    factors = list[list[Floats]]()
    person = None if schema.person is None else schema.person.column
    more = [name for name in (person, site_column) if name is not None]
    for part in _encode_chunks(table, schema, more):
        if person is not None:
            persons.append(people.of(_names_in(table, part.chunk, -len(more), person, "person"))[part.kept])
        if site_column is not None:
            sites.append(_names_in(table, part.chunk, -1, site_column, "site")[part.kept])
        chunks.append(part.features)
        labels.append(part.labels)
        factors.append(part.factors)
    if not sum(map(len, labels)):
        came = "every row has a missing value and is dropped" if labels else "none"
        raise InputError(f"Expected at least one row in file={str(table.path)!r}, got rows: {came}.")
    y, features = np.concatenate(labels), stack(schema, chunks)  # which empties the list of chunks
    named = {"weight": schema.weight, "exposure": schema.exposure}  # in the order of `schema.factors`
    given, columns = dict[str, Any](), zip(*factors, strict=True)
    for name, factor in named.items():
        if factor is not None:
            given |= {f"{name}s": np.concatenate(next(columns)), f"{name}_bound": factor.bound}
    data = Dataset(features, y, schema.feature_names, len(y), schema.data_norm, schema.name, private=True)
    data = replace(data, factors=Factors.of(**given))
    owners = np.concatenate(sites) if sites else None
    if schema.person is None:
        return data, owners
    whose = np.concatenate(persons)
    at = None if owners is None else numbered(owners)
    try:
        kept = people_kept(whose, schema.person.unit(), schema.person.surplus, at)
    except InputError as error:
        raise InputError(f"{error} In file={str(table.path)!r}.") from error
    data = replace(data, unit=schema.unit, people=whose)
    if kept.all():
        return data, owners
    return replace(data.taken(kept), n_train=int(kept.sum())), None if owners is None else owners[kept]


class _Numbers:
    """Numbers texts from 0, across all chunks of a file."""

    def __init__(self) -> None:
        self._known: dict[str, int] = {}

    def of(self, texts: Texts) -> Ints:
        """The number of each text; equal texts have equal numbers."""
        names, places = np.unique(texts, return_inverse=True)
        numbers = [self._known.setdefault(str(name), len(self._known)) for name in names]
        found: Ints = np.array(numbers, dtype=np.int64)[places.reshape(-1)]
        return found


def encode_features(
    path: Source, schema: Schema, passed: Sequence[str] = (), unknown: Unknown = "refuse"
) -> Iterator[FeatureChunk]:
    """The features only, chunk by chunk, as for a prediction; the label's column may be missing. Columns in `passed`
    go with them as they are. For counts, exposures are read too, since each prediction is for its row's exposure.

    A category that the schema does not list goes to the column's "other" level, if it has one. If not, the file is
    refused, the row is skipped, or the column is ignored in that row ("other"): its features are all 0, as those of
    the reference level are.
    """
    known = get_args(Unknown)
    expect(unknown in known, f"unknown among {', '.join(known)}", unknown=unknown)
    table = open_table(path, schema.file)
    parts: list[Part] = [*schema.columns, *([] if schema.exposure is None else [schema.exposure])]
    names = [*map(_name, parts)]
    own = [name for name in passed if name not in names]  # a column is read once
    _require(table, [*names, *own])
    first, many = list[CellProblem](), 0
    for chunk in table.chunks([*names, *own], schema.missing_values):
        encoding = encode_cells(schema, chunk.cells[: len(schema.columns)])
        exposed = None if schema.exposure is None else schema.exposure.encode(chunk.cells[len(schema.columns)])
        new = _new_categories(schema, encoding, chunk)
        findings = [np.where(new, Finding.OTHER, encoding.finding), *([] if exposed is None else [exposed.finding])]
        _refuse(table, _Checked(chunk, parts, np.column_stack(findings)))
        strange: Bools = new.any(axis=1) & encoding.kept
        if unknown == "refuse" and strange.any():
            first = first or _Checked(chunk, schema.columns, encoding.finding).first(
                new & strange[:, None], 1, quoted=False
            )
            many += int(strange.sum())
        if first:
            continue  # nothing is predicted any more: the rest is read to say how many there are
        encoding.value[:, : len(schema.columns)][new] = 0.0
        kept = encoding.kept & ~strange if unknown == "skip" else encoding.kept
        texts = tuple(_texts(table, chunk, name, [*names, *own].index(name)) for name in passed)
        beside = tuple([column[i] for i in np.flatnonzero(kept)] for column in texts)
        other = int((kept & (encoding.finding == Finding.OTHER).any(axis=1)).sum())
        exposures = None if exposed is None else exposed.value[kept]
        yield FeatureChunk(encoding.rows(kept), chunk.rows[kept], beside, exposures, chunk.rows[strange], other)
    if first:
        raise InputError(
            f"{first[0].message} In file={str(table.path)!r}. Rows with such a category: {many}. To predict the "
            "others, skip them (--unknown skip), or ignore the column there (--unknown other)."
        )


def _new_categories(schema: Schema, encoding: Encoding, chunk: Chunk) -> Bools:
    """True for each cell with a category that the schema does not list, and has no level for: (rows, columns).

    A text over several lines is not counted as one: it is a broken file, and may have swallowed rows.
    """
    new: Bools = encoding.finding == Finding.UNKNOWN
    for place, column in enumerate(schema.columns):
        if not isinstance(column, Categorical):
            new[:, place] = False
        elif new[:, place].any():
            new[:, place] &= ~chunk.cells[place].multiline()
    return new


def _texts(table: ReadTable, chunk: Chunk, name: str, place: int) -> list[str]:
    cells = chunk.cells[place]
    bad = np.flatnonzero(cells.unreadable())
    if len(bad):
        where = f"row {chunk.rows[bad[0]]}, column {brief(name)} of file={str(table.path)!r}"
        raise InputError(f"Expected UTF-8 text in {where}, got other bytes, as of Latin-1. Save the file as UTF-8.")
    return cells.texts()


def check(path: Source, schema: Schema, keep: int = KEPT) -> Report:
    """What of a file does not fit, by row and column; the first `keep` problems and notes are listed one by one."""
    table, tally, skipped = open_table(path, schema.file), Tally(keep), list[Ragged]()
    wanted: list[Part] = [*schema.columns, schema.label, *schema.factors]
    counted = None if schema.person is None else _People(schema.person)
    places = table.places([*map(_name, wanted), *([] if counted is None else [counted.person.column])])
    there = [part for part in wanted if _name(part) in places]
    for part in wanted:
        if part not in there:
            message = f"Expected a column {brief(_name(part))} in the file. {_known(table)}"
            tally.add(CellProblem(None, _name(part), Finding.NO_COLUMN, message))
    if counted is not None and counted.person.column not in places:
        message = f"Expected a column {brief(counted.person.column)} in the file, which names people. {_known(table)}"
        tally.add(CellProblem(None, counted.person.column, Finding.NO_COLUMN, message))
        counted = None
    rows = used = 0
    # A file without any of the columns has nothing to be read; its rows are not counted.
    asked = [*map(_name, there), *([] if counted is None else [counted.person.column])]
    for chunk in table.tolerant(asked, schema.missing_values, skipped) if there else ():
        cells = chunk.cells[: len(there)]
        findings = np.stack([part.encode(own).finding for part, own in zip(there, cells, strict=True)], axis=1)
        if counted is not None:
            used_here: Bools = np.all(findings < Finding.DROPPED, axis=1)
            counted.take(chunk, used_here, tally)
        for part, own_findings in zip(there, findings.T, strict=True):
            tally.count(_name(part), own_findings)
        refused = findings >= Finding.MISSING
        noted = (findings != Finding.FITS) & ~refused
        checked = _Checked(chunk, there, findings)
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
        self.person, self._numbers = person, _Numbers()
        self._rows, self._whose = list[Ints](), list[Ints]()

    def take(self, chunk: Chunk, used: Bools, tally: Tally) -> None:
        """Count the people of the next rows; only rows that are `used` count towards the limit."""
        cells = chunk.cells[-1]
        findings, names = self.person.findings(cells), cells.distinct()
        tally.count(self.person.column, findings)
        for row in np.flatnonzero(findings)[: tally.room(True)]:
            number, finding = int(chunk.rows[row]), Finding(findings[row])
            where = f"row {number}, column {brief(self.person.column)}"
            tally.keep(CellProblem(number, self.person.column, finding, _nameless("person", where, finding)))
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


class _Checked(NamedTuple):
    """A chunk, the parts of the schema that its columns belong to, and the finding of every cell."""

    chunk: Chunk
    parts: Sequence[Part]
    findings: Findings  # (rows, parts)

    def first(self, chosen: Bools, most: int, quoted: bool = True) -> list[CellProblem]:
        """The first of the chosen cells, by row and then by column. What they hold is quoted for those who ask what is
        wrong with a file (`schema check`), and for nobody else: errors end up in logs, and logs travel.
        """
        problems = []
        for row, place in np.argwhere(chosen)[:most].tolist():
            finding, number, part = Finding(self.findings[row, place]), int(self.chunk.rows[row]), self.parts[place]
            where, came = f"row {number}, column {brief(_name(part))}", self.chunk.cells[place].shown(row)
            if finding.refused:
                wanted = "UTF-8 text" if finding is Finding.NOT_TEXT else part.wants()
                hidden = f"a private value, not shown here ({finding.words}; sottovoce schema check shows it)"
                message = f"Expected {wanted} in {where}, got {repr(came) if quoted else hidden}."
            else:
                message = f"{where}: got {came!r}, {finding.words}."
            problems.append(CellProblem(number, _name(part), finding, message + _advice(finding, came, part)))
        return problems


def _advice(finding: Finding, came: str, part: Part) -> str:
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
    Finding.OUTSIDE: " Leave the row out, cut it to the bound, or declare a larger bound in the schema.",
    Finding.NOT_A_DATE: ' Correct it, or say another order of year, month and day in the schema (order = "dmy").',
}


class _LabelledChunk(NamedTuple):
    """A chunk, which of its rows are kept, and the features and labels of those."""

    chunk: Chunk
    kept: Bools
    features: Csr
    labels: Floats
    factors: list[Floats]  # in the order of the schema's


def _encode_chunks(table: ReadTable, schema: Schema, more: Sequence[str]) -> Iterator[_LabelledChunk]:
    """Encoded chunks with labels; the columns in `more` are read along. The first refused cell raises."""
    wanted: list[Part] = [*schema.columns, schema.label, *schema.factors]
    names, first = [*map(_name, wanted), *more], len(schema.columns) + 1
    _require(table, names)
    for chunk in table.chunks(names, schema.missing_values):
        encoding = encode_cells(schema, chunk.cells[: len(schema.columns)])
        labels = schema.label.encode(chunk.cells[len(schema.columns)])
        factors = [part.encode(chunk.cells[first + i]) for i, part in enumerate(schema.factors)]
        findings = [encoding.finding, labels.finding, *(part.finding for part in factors)]
        _refuse(table, _Checked(chunk, wanted, np.column_stack(findings)))
        kept = encoding.kept & (labels.finding != Finding.DROPPED)
        beside = [part.value[kept] for part in factors]
        yield _LabelledChunk(chunk, kept, encoding.rows(kept), labels.value[kept], beside)


def _names_in(table: ReadTable, chunk: Chunk, place: int, column: str, what: str) -> Texts:
    """The texts of a column that must name something in every row; an empty or unreadable cell is refused."""
    cells = chunk.cells[place]
    missing, unreadable = cells.missing(), cells.unreadable()
    bad = np.flatnonzero(missing | unreadable)
    if len(bad):
        where = f"row {chunk.rows[bad[0]]}, column {brief(column)} of file={str(table.path)!r}"
        raise InputError(_nameless(what, where, Finding.NOT_TEXT if unreadable[bad[0]] else Finding.MISSING))
    names = cells.distinct()
    return np.array(names)[cells.places(names)]


def _nameless(what: str, where: str, finding: Finding) -> str:
    """The message for a cell that should name a person or a site, and does not."""
    if finding is Finding.NOT_TEXT:
        return f"Expected a {what} as UTF-8 text in {where}, got other bytes, as of Latin-1. Save the file as UTF-8."
    return f"Expected a {what} in {where}, got none. Fill it in."


def _refuse(table: ReadTable, checked: _Checked) -> None:
    refused = checked.findings >= Finding.MISSING
    if refused.any():
        (problem,) = checked.first(refused, 1, quoted=False)
        raise InputError(f"{problem.message} In file={str(table.path)!r}.")


def _require(table: ReadTable, names: Sequence[str]) -> None:
    places = table.places(names)
    for name in names:
        if name not in places:
            raise InputError(f"Expected a column {brief(name)} in file={str(table.path)!r}. {_known(table)}")


def _known(table: ReadTable) -> str:
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


def _name(part: Part) -> str:
    return part.name if isinstance(part, Column) else part.column
