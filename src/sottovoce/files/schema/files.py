"""Encode a file by its schema. It is read in chunks, so only the result grows with the file."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from math import inf
from typing import Any, Literal, NamedTuple, TypeAlias, get_args

import numpy as np

from sottovoce.arrays import Bools, Floats, Ints, Texts
from sottovoce.errors import InputError, expect
from sottovoce.files.schema.arrow import same_cells
from sottovoce.files.schema.column import Column
from sottovoce.files.schema.columns import Categorical
from sottovoce.files.schema.encoding import Csr, Encoding, encode_cells, stack
from sottovoce.files.schema.findings import CellProblem, Finding, Findings
from sottovoce.files.schema.person import PersonNumbers
from sottovoce.files.schema.problems import Checked, Described, column_of, columns_of, nameless, refuse, require
from sottovoce.files.schema.reading import Chunk, ReadTable, Source, open_table
from sottovoce.files.schema.schema import Schema
from sottovoce.problem.dataset import Dataset
from sottovoce.problem.factors import Factors
from sottovoce.problem.people import kept as people_kept
from sottovoce.problem.people import numbered
from sottovoce.settings import brief

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
    findings: Findings  # (rows, columns) in the file: what the schema did with cells of these rows, or why it drops one


def encode(path: Source, schema: Schema, site: str | None = None) -> Dataset:
    """All rows of a file, or of a table in memory (pandas, polars, Arrow), with labels. The first cell that the schema
    refuses is named in an `InputError`.

    They are taken to be private; if anyone may see them, say so: `replace(data, private=False)`. Where the schema names
    people, nobody has more rows in it than that: a file where somebody has is refused, or their surplus is dropped.

    With `site`, all rows are of that site, if sites have effects: their column is not read.
    """
    given = {schema.site_effects: site} if site is not None and isinstance(schema.site_effects, str) else {}
    return _encode_rows(path, schema, None, given=given)[0]


def site_names(path: Source, schema: Schema, site_column: str) -> list[str]:
    """The names of all sites in a file, in order."""
    table = open_table(path, schema.file)
    require(table, [site_column])
    chunks = table.chunks([site_column], schema.missing_values)
    return sorted({str(name) for chunk in chunks for name in _names_in(table, chunk, 0, site_column, "site")})


def encode_by_site(path: Source, schema: Schema, site_column: str) -> tuple[Dataset, Texts]:
    """Encode a file that holds the rows of several sites; also returns the site of every encoded row. A person's limit
    on rows holds at each site.
    """
    _expect_free(schema, site_column)
    data, sites = _encode_rows(path, schema, site_column)
    assert sites is not None  # as a column was asked for
    return data, sites


def _expect_free(schema: Schema, site_column: str) -> None:
    """Refuse a column of sites that the schema uses for something else."""
    parts: list[Described] = [*schema.columns, *schema.label.parts, *schema.factors]
    reserved = {*map(column_of, parts)} - {schema.site_effects}
    own = "a site column that is neither a feature nor the label"
    own += ", nor a weight or an exposure," if schema.factors else ""
    if schema.person is not None:
        reserved, own = reserved | {schema.person.column}, f"{own} nor the person"
    expect(site_column not in reserved, own, site_column=site_column)


def encode_codes(
    path: Source, schema: Schema, columns: Sequence[Column], site_column: str | None = None
) -> tuple[Dataset, Texts | None]:
    """All rows of a file as the codes of these columns (`Column.codes`), in this order, as a table counts them; and the
    site of each row, None without a site column. No row is left out where a value is missing: that is NaN.

    The columns are `Column.bare`. Labels are 0, and weights are not read. All else is as for `encode`.
    """
    if site_column is not None:
        _expect_free(schema, site_column)
    return _encode_rows(path, replace(schema, weight=None, exposure=None), site_column, columns)


def _encode_rows(
    path: Source, schema: Schema, site_column: str | None, columns: Sequence[Column] | None = None,
    given: Mapping[str, str] | None = None,
) -> tuple[Dataset, Texts | None]:  # fmt: skip
    """The encoded rows of a file, and the site of each; None for the sites without a `site_column`. With `columns`,
    their codes instead of features. Columns that are `given` are not read, and have that text in all rows.
    """
    table, people = open_table(path, schema.file), PersonNumbers()
    chunks, labels, persons, sites = list[Any](), list[Floats](), list[Ints](), list[Texts]()
    factors = list[list[Floats]]()
    person = None if schema.person is None else schema.person.column
    more = [name for name in (person, site_column) if name is not None]
    read = _code_chunks(table, schema, columns, more) if columns is not None else (
        _encode_chunks(table, schema, more, given or {})
    )  # fmt: skip
    for part in read:
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
    y, norm = np.concatenate(labels), schema.data_norm if columns is None else inf
    features = stack(schema, chunks) if columns is None else np.concatenate(chunks)  # the first empties the list
    told = schema.feature_names if columns is None else tuple(column.name for column in columns)
    named = {"weight": schema.weight, "exposure": schema.exposure}  # in the order of `schema.factors`
    given, measured = dict[str, Any](), zip(*factors, strict=True)
    for name, factor in named.items():
        if factor is not None:
            given |= {f"{name}s": np.concatenate(next(measured)), f"{name}_bound": factor.bound}
    data = Dataset(features, y, told, len(y), norm, schema.name, private=True)
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


def encode_features(
    path: Source, schema: Schema, passed: Sequence[str] = (), unknown: Unknown = "refuse", without: Sequence[str] = ()
) -> Iterator[FeatureChunk]:
    """The features only, chunk by chunk, as for a prediction; the label's column may be missing. Columns in `passed`
    go with them as they are. For counts, exposures are read too, since each prediction is for its row's exposure.

    A category that the schema does not list goes to the column's "other" level, if it has one. If not, the file is
    refused, the row is skipped, or the column is ignored in that row ("other"): its features are all 0, as those of
    the reference level are. Columns in `without` are not in the file, and count as missing in every row.
    """
    known = get_args(Unknown)
    expect(unknown in known, f"unknown among {', '.join(known)}", unknown=unknown)
    table = open_table(path, schema.file)
    parts: list[Described] = [*schema.columns, *([] if schema.exposure is None else [schema.exposure])]
    names = [*map(column_of, parts)]
    own = [name for name in passed if name not in names]  # a column is read once
    _check_without(table, schema, without)
    require(table, [name for name in [*names, *own] if name not in without])
    first, many = list[CellProblem](), 0
    for chunk in _given(table, [*names, *own], dict.fromkeys(without), schema.missing_values):
        encoding = encode_cells(schema, chunk.cells[: len(schema.columns)])
        exposed = None if schema.exposure is None else schema.exposure.encode(chunk.cells[len(schema.columns)])
        new = _new_categories(schema, encoding, chunk)
        findings = [np.where(new, Finding.OTHER, encoding.finding), *([] if exposed is None else [exposed.finding])]
        refuse(table, Checked(chunk, parts, np.column_stack(findings)))
        strange: Bools = new.any(axis=1) & encoding.kept
        if unknown == "refuse" and strange.any():
            first = first or Checked(chunk, schema.columns, encoding.finding).first(
                new & strange[:, None], 1, quoted=False
            )
            many += int(strange.sum())
        if first:
            continue  # nothing is predicted any more: the rest is read to say how many there are
        encoding.value[new] = 0.0
        kept = encoding.kept & ~strange if unknown == "skip" else encoding.kept
        texts = tuple(_texts(table, chunk, name, [*names, *own].index(name)) for name in passed)
        beside = tuple([column[i] for i in np.flatnonzero(kept)] for column in texts)
        done = (kept[:, None] & ~new) | (encoding.finding == Finding.DROPPED)
        found: Findings = np.where(done, encoding.finding, Finding.FITS).astype(np.uint8)
        exposures = None if exposed is None else exposed.value[kept]
        yield FeatureChunk(encoding.rows(kept), chunk.rows[kept], beside, exposures, chunk.rows[strange], found)
    if first:
        raise InputError(
            f"{first[0].message} In file={str(table.path)!r}. Rows with such a category: {many}. To predict the "
            "others, skip them (--unknown skip), or ignore the column there (--unknown other)."
        )


def _check_without(table: ReadTable, schema: Schema, without: Sequence[str]) -> None:
    """Refuse a column of the schema that the file lacks, unless it is in `without`, and there what the file has, or
    what the schema has no value for where it is missing.
    """
    there = table.places([column.name for column in schema.columns])
    lacking = [column for column in schema.columns if column.name not in there]
    optional = [column.name for column in lacking if column.missing in ("indicator", "fill")]
    for name in without:
        if name not in optional:
            raise InputError(
                "Expected a column that the file lacks and that the schema has a value for where it is missing (of "
                f"those: {', '.join(map(brief, optional)) or 'none'}), got without={brief(name)}."
            )
    for name in (column.name for column in lacking if column.name not in without):
        advice = f" To have it count as missing in every row: --without {name}." if name in optional else ""
        raise InputError(f"Expected a column {brief(name)} in file={str(table.path)!r}. {columns_of(table)}{advice}")
    expect(len(there) > 0, "at least one column of the schema in the file", columns=len(there))


def _given(
    table: ReadTable, names: Sequence[str], given: Mapping[str, str | None], markers: Sequence[str]
) -> Iterator[Chunk]:
    """The chunks of these columns. Those that are `given` are not read: every row has that text, or a missing value."""
    read = list(dict.fromkeys(name for name in names if name not in given))  # a column is read once
    for chunk in table.chunks(read, markers):
        found = dict(zip(read, chunk.cells, strict=True))
        found |= {name: same_cells(len(chunk.rows), text) for name, text in given.items()}
        yield Chunk(chunk.rows, tuple(found[name] for name in names))


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


class _LabelledChunk(NamedTuple):
    """A chunk, which of its rows are kept, and the features and labels of those."""

    chunk: Chunk
    kept: Bools
    features: "Csr | Floats"
    labels: Floats
    factors: list[Floats]  # in the order of the schema's


def _encode_chunks(
    table: ReadTable, schema: Schema, more: Sequence[str], given: Mapping[str, str]
) -> Iterator[_LabelledChunk]:
    """Encoded chunks with labels; the columns in `more` are read along, and those that are `given` are not read. The
    first refused cell raises.
    """
    label, own = schema.label, len(schema.columns)
    wanted: list[Described] = [*schema.columns, *label.parts, *schema.factors]
    names, first = [*map(column_of, wanted), *more], own + len(label.parts)
    require(table, [name for name in names if name not in given])
    for chunk in _given(table, names, given, schema.missing_values):
        encoding = encode_cells(schema, chunk.cells[:own])
        labels = label.learnt(chunk.cells[own:first])
        factors = [part.encode(chunk.cells[first + i]) for i, part in enumerate(schema.factors)]
        findings = [encoding.finding, labels.finding, *(part.finding for part in factors)]
        refuse(table, Checked(chunk, wanted, np.column_stack(findings)))
        kept = encoding.kept & ~(labels.finding == Finding.DROPPED).any(axis=1)
        beside = [part.value[kept] for part in factors]
        yield _LabelledChunk(chunk, kept, encoding.rows(kept), labels.value[kept], beside)


def _code_chunks(
    table: ReadTable, schema: Schema, columns: Sequence[Column], more: Sequence[str]
) -> Iterator[_LabelledChunk]:
    """Chunks of codes, with 0 as labels; the columns in `more` are read along. The first refused cell raises."""
    names = list(dict.fromkeys(column.name for column in columns))  # a column is read once
    require(table, [*names, *more])
    for chunk in table.chunks([*names, *more], schema.missing_values):
        coded = [column.codes(chunk.cells[names.index(column.name)]) for column in columns]
        own = replace(chunk, cells=tuple(chunk.cells[names.index(column.name)] for column in columns))
        refuse(table, Checked(own, columns, np.column_stack([finding for _, finding in coded])))
        rows = len(chunk.rows)
        codes = np.column_stack([values for values, _ in coded])
        yield _LabelledChunk(chunk, np.ones(rows, dtype=bool), codes, np.zeros(rows), [])


def _names_in(table: ReadTable, chunk: Chunk, place: int, column: str, what: str) -> Texts:
    """The texts of a column that must name something in every row; an empty or unreadable cell is refused."""
    cells = chunk.cells[place]
    missing, unreadable = cells.missing(), cells.unreadable()
    bad = np.flatnonzero(missing | unreadable)
    if len(bad):
        where = f"row {chunk.rows[bad[0]]}, column {brief(column)} of file={str(table.path)!r}"
        raise InputError(nameless(what, where, Finding.NOT_TEXT if unreadable[bad[0]] else Finding.MISSING))
    names = cells.distinct()
    return np.array(names)[cells.places(names)]
