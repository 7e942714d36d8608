"""CSV and Parquet files in chunks of cells, through pyarrow. Files are only ever read.

CSV is UTF-8 (with or without a byte order mark), in the form that the schema says, and may be packed; fields may be
quoted and then hold delimiters and line breaks. Every cell is read as text, so that a bad one can be named. Rows
count from 1 below the header; blank lines do not count. In Parquet, columns may be text, numbers, dates or truth
values; a typed NaN counts as missing. Names of columns that differ only in case are the same where nothing fits
better.
"""

import codecs
import csv
import re
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from io import TextIOWrapper
from pathlib import Path
from typing import Any, Protocol, TextIO, TypeAlias, final, runtime_checkable

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as parquet

from sottovoce.arrays import Ints
from sottovoce.errors import InputError
from sottovoce.files.schema.arrow import cells_of, is_supported
from sottovoce.files.schema.cells import Cells
from sottovoce.files.schema.form import USUAL, FileForm
from sottovoce.files.schema.unpacking import BROKEN, is_packed, opened
from sottovoce.settings import brief

BLOCK = 4 * 2**20  # bytes of a CSV file read at a time, and so the longest record
WIDE, WIDEST = 64, 16  # one block more for so many columns, up to so many blocks: each chunk of a column costs time
CELLS = 2**21  # of a Parquet file read at a time
_PARQUET = b"PAR1"
_RAGGED = re.compile(r"Row #(\d+): Expected (\d+) columns, got (\d+)")
_TEXT = pa.dictionary(pa.int32(), pa.binary())


@dataclass(frozen=True)
class Chunk:
    """Some rows of a file: their numbers, and the cells of the columns asked for, in that order."""

    rows: Ints
    cells: tuple[Cells, ...]


@dataclass(frozen=True)
class Ragged:
    """A row that was skipped, since it has another number of fields than the header."""

    row: int
    expected: int
    came: int


class ReadTable(ABC):
    """Base of all tables: named columns, read in chunks."""

    def __init__(self, path: Path, names: Sequence[str]) -> None:
        self.path, self.names = path, tuple(names)
        seen: set[str] = set()
        for name in names:
            if name in seen:
                raise InputError(f"Expected different column names in file={str(path)!r}, got {brief(name)} twice.")
            seen.add(name)

    def places(self, names: Sequence[str]) -> dict[str, int]:
        """Index of each column of these names: as written, or else the only one left that differs in case alone."""
        own = {name: i for i, name in enumerate(self.names)}
        found = {name: own[name] for name in names if name in own}
        folded: dict[str, list[int]] = {}
        for i in sorted(set(range(len(self.names))) - set(found.values())):
            folded.setdefault(self.names[i].casefold(), []).append(i)
        for name in names:
            if name not in found and len(near := folded.get(name.casefold(), [])) == 1:
                found[name] = near.pop()
        return found

    @abstractmethod
    def chunks(self, names: Sequence[str], markers: Sequence[str]) -> Iterator[Chunk]:
        """The cells of these columns. Texts among `markers` count as missing. A ragged row is an error."""

    @abstractmethod
    def tolerant(self, names: Sequence[str], markers: Sequence[str], skipped: list[Ragged]) -> Iterator[Chunk]:
        """The cells of these columns; ragged rows are skipped and appended to `skipped`."""


Source: TypeAlias = Any  # a path, or a table in memory; what else comes is refused by `open_table`


@runtime_checkable
class ArrowColumns(Protocol):
    """Whatever hands over its columns by Arrow's PyCapsule interface, as data frames do."""

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """A capsule with a stream of batches."""


def rows_of(table: Source) -> int:
    """Number of rows of a table in memory."""
    return int(_as_arrow(table).num_rows)


def _as_arrow(table: Source) -> Any:
    """Columns as Arrow has them, of whatever can hand them over."""
    if isinstance(table, pa.Table):
        return table
    if isinstance(table, pa.RecordBatch):
        return pa.Table.from_batches([table])
    if type(table).__module__.partition(".")[0] == "pandas" and type(table).__name__ == "DataFrame":
        return pa.Table.from_pandas(table, preserve_index=False)  # else the index would be a column
    if isinstance(table, ArrowColumns):
        return pa.table(table)
    raise InputError(
        "Expected the path of a CSV or Parquet file, or a pandas, polars or Arrow table, got "
        f"{type(table).__name__}. Convert it."
    )


def open_table(path: Source, form: FileForm = USUAL) -> ReadTable:
    """A CSV or a Parquet file, told apart by how it starts, or a table in memory."""
    if not isinstance(path, str | Path):
        return MemoryTable(_as_arrow(path), form)
    path = Path(path)
    with reading(path):
        with opened(path) as file:
            start = file.read(4)
        if start == _PARQUET and is_packed(path):
            raise InputError(f"Expected a Parquet file as it is, got file={str(path)!r}, which is packed. Unpack it.")
        if start == _PARQUET or path.suffix.lower() in (".parquet", ".pq"):
            return ParquetTable(path, form)
        return CsvTable(path, start, form)


@final
class CsvTable(ReadTable):
    """Delimited text, with a header or with names that the schema gives."""

    def __init__(self, path: Path, start: bytes, form: FileForm) -> None:
        if start[:2] in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE):
            raise InputError(f"Expected a CSV file in UTF-8, got file={str(path)!r} in UTF-16. Save it as UTF-8.")
        self.form = form
        first, self._empty = _first_record(path, form.delimiter)
        if form.names is None:
            self._header, self._above = first, 1
        else:
            self._header, self._above, self._empty = list(form.names), 0, False
            if len(form.names) != len(first):
                raise InputError(
                    f"Expected {len(form.names)} fields in row 1 of file={str(path)!r}, as in file.names of the "
                    f"schema, got {len(first)}."
                )
        super().__init__(path, [name.strip() for name in self._header])

    def chunks(self, names: Sequence[str], markers: Sequence[str]) -> Iterator[Chunk]:
        return self._chunks(names, markers, None)

    def tolerant(self, names: Sequence[str], markers: Sequence[str], skipped: list[Ragged]) -> Iterator[Chunk]:
        # pyarrow cannot hand over a bad row that is not UTF-8; such a file stops at its first ragged row.
        return self._chunks(names, markers, skipped if _is_utf8(self.path) else None)

    def _chunks(self, names: Sequence[str], markers: Sequence[str], skipped: list[Ragged] | None) -> Iterator[Chunk]:
        if self._empty:
            return
        places, last = self.places(names), None
        wanted = [self._header[places[name]] for name in names]
        for read, batch in _read_ahead(self.path, self._batches(wanted, skipped), self._above):
            rows = _row_numbers(read, batch.num_rows, skipped or [])
            last = batch.column(batch.schema.get_field_index(self._header[-1]))[-1]
            columns = batch.columns[: len(wanted)]
            yield Chunk(rows, tuple(cells_of(column, markers, self.form.decimal) for column in columns))
        # A quote in the last column that is never closed swallows all rows below it, and leaves no other trace.
        text = b"" if last is None or last.as_py() is None else last.as_py()
        if (b"\n" in text or b"\r" in text) and not _ends_with_quote(self.path):
            raise InputError(
                f"Expected quotes that are closed in file={str(self.path)!r}, got one in its last row that is not: "
                f"{brief(text[:40].decode(errors='replace'))}. Close it, or delete it."
            )

    def _batches(self, wanted: Sequence[str], skipped: list[Ragged] | None) -> Iterator[Any]:
        def skip(row: Any) -> str:
            assert skipped is not None
            skipped.append(Ragged(row.number - self._above, row.expected_columns, row.actual_columns))
            return "skip"

        # The last column of the file is always read: only there a quote may stay open unnoticed.
        types = dict.fromkeys(wanted, _TEXT)
        types.setdefault(self._header[-1], pa.binary())
        included = [*wanted, *({self._header[-1]} - set(wanted))]
        block = BLOCK * min(WIDEST, 1 + len(self.names) // WIDE)
        with (
            _source(self.path) as source,
            # Without threads, as only then rows have numbers.
            pacsv.open_csv(
                source,
                read_options=pacsv.ReadOptions(
                    use_threads=False, block_size=block, column_names=None if self._above else self._header
                ),
                parse_options=pacsv.ParseOptions(
                    delimiter=self.form.delimiter,
                    newlines_in_values=True,
                    invalid_row_handler=None if skipped is None else skip,
                ),
                convert_options=pacsv.ConvertOptions(include_columns=included, column_types=types, check_utf8=False),
            ) as reader,
        ):
            yield from reader


class TypedTable(ReadTable):
    """A table whose columns have types, as in Parquet and Arrow."""

    def __init__(self, path: Path, form: FileForm, schema: Any) -> None:
        self._decimal = form.decimal
        self._types = dict(zip(schema.names, schema.types, strict=True))
        super().__init__(path, schema.names)

    def chunks(self, names: Sequence[str], markers: Sequence[str]) -> Iterator[Chunk]:
        places = self.places(names)
        wanted = [self.names[places[name]] for name in names]
        for name in wanted:
            if not is_supported(self._types[name]):
                raise InputError(
                    f"Expected text, numbers, dates or truth values in column {brief(name)} of "
                    f"file={str(self.path)!r}, got type={str(self._types[name])!r}. Convert it."
                )
        for read, batch in _read_ahead(self.path, self._batches(wanted)):
            columns = [batch.column(batch.schema.get_field_index(name)) for name in wanted]
            cells = tuple(cells_of(column, markers, self._decimal) for column in columns)
            yield Chunk(_row_numbers(read, batch.num_rows, []), cells)

    def tolerant(self, names: Sequence[str], markers: Sequence[str], skipped: list[Ragged]) -> Iterator[Chunk]:  # noqa: ARG002
        return self.chunks(names, markers)

    @abstractmethod
    def _batches(self, names: Sequence[str]) -> Iterator[Any]:
        """The rows of these columns, some at a time."""


@final
class ParquetTable(TypedTable):
    """A Parquet file, read in batches of rows."""

    def __init__(self, path: Path, form: FileForm) -> None:
        with parquet.ParquetFile(path) as file:
            super().__init__(path, form, file.schema_arrow)

    def _batches(self, names: Sequence[str]) -> Iterator[Any]:
        with parquet.ParquetFile(self.path) as file:
            yield from file.iter_batches(batch_size=_batch(names), columns=list(names))


@final
class MemoryTable(TypedTable):
    """A data frame or Arrow table in memory."""

    def __init__(self, table: Any, form: FileForm) -> None:
        self._table = table
        super().__init__(Path("table in memory"), form, table.schema)

    def _batches(self, names: Sequence[str]) -> Iterator[Any]:
        # Chunks of a dictionary may differ in what they list, so each batch is one chunk.
        yield from self._table.select(list(names)).to_batches(max_chunksize=_batch(names))


def _batch(names: Sequence[str]) -> int:
    """Number of rows of these columns to read at a time."""
    return max(1, min(2**16, CELLS // max(1, len(names))))


def _first_record(path: Path, delimiter: str) -> tuple[list[str], bool]:
    """The fields of the first line that is not blank, and True if nothing comes after it."""
    with opened(path) as raw, TextIOWrapper(raw, "utf-8-sig", "surrogateescape", newline="") as file:
        first = next((record for record in csv.reader(_lines(path, file), delimiter=delimiter) if record), None)
        if first is None:
            raise InputError(f"Expected a CSV file with a header, got file={str(path)!r}, which is empty.")
        try:
            "".join(first).encode()
        except UnicodeEncodeError:
            raise InputError(f"Expected a header in UTF-8, got {brief(first)} in file={str(path)!r}.") from None
        while block := file.read(BLOCK):
            if block.strip("\r\n"):
                return first, False
        return first, True


def _lines(path: Path, file: TextIO) -> Iterator[str]:
    """The lines of a file; one longer than a block is refused, since it could fill the memory."""
    while line := file.readline(BLOCK):
        if len(line) == BLOCK:
            raise InputError(f"Expected a header of at most {BLOCK} characters, got a longer one in {path.name!r}.")
        yield line


@contextmanager
def _source(path: Path) -> Iterator[Any]:
    """The file object that pyarrow reads. A path alone would be unpacked by its ending, and not by its bytes."""
    if is_packed(path):
        with opened(path) as file:
            yield pa.PythonFile(file, mode="r")
    else:
        with pa.OSFile(str(path)) as file:
            yield file


def _is_utf8(path: Path) -> bool:
    decoder = codecs.getincrementaldecoder("utf-8")()
    with opened(path) as file:
        try:
            while block := file.read(BLOCK):
                decoder.decode(block)
            decoder.decode(b"", final=True)
        except UnicodeDecodeError:
            return False
    return True


def _ends_with_quote(path: Path) -> bool:
    """True if the last character that is no line break or blank is a quote."""
    last = b""
    with opened(path) as file:
        while block := file.read(BLOCK):
            last = block.rstrip()[-1:] or last
    return last == b'"'


def _row_numbers(read: int, rows: int, skipped: Sequence[Ragged]) -> Ints:
    """Numbers of the next rows, where `read` rows came before and others were skipped.

    Skipped row s, the i-th from 0, has s - 1 - i rows before it that were read. So the k-th row read comes after it if
    k >= s - i.
    """
    ordinal = np.arange(read + 1, read + rows + 1)
    before = np.array([gap.row - i for i, gap in enumerate(skipped)], dtype=np.int64)
    numbers: Ints = ordinal + np.searchsorted(before, ordinal, side="right")
    return numbers


def _read_ahead(path: Path, batches: Iterator[Any], above: int = 1) -> Iterator[tuple[int, Any]]:
    """Yield every batch that has rows, with the number of rows before it. The next batch is read meanwhile."""
    read = 0
    with ThreadPoolExecutor(1) as reader:
        coming = reader.submit(next, batches, None)
        while True:
            with reading(path, read, above):
                batch = coming.result()
            if batch is None:
                return
            coming = reader.submit(next, batches, None)
            if batch.num_rows:
                yield read, batch
                read += batch.num_rows


@contextmanager
def reading(path: Path, read: int = 0, above: int = 1) -> Iterator[None]:
    """Turn whatever goes wrong while reading into an `InputError` that names the file and, where known, the row.

    `read` rows were read before, and `above` lines stand above the first row.
    """
    try:
        yield
    except InputError:
        raise
    except (pa.ArrowException, OSError, UnicodeError, csv.Error, ValueError, KeyError, OverflowError, *BROKEN) as error:
        raise InputError(_message(path, read, above, error)) from error


def _message(path: Path, read: int, above: int, error: Exception) -> str:
    text = (error.strerror if isinstance(error, OSError) else None) or str(error)
    file, ragged = f"file={str(path)!r}", _RAGGED.search(text)
    if ragged:
        row, expected, came = map(int, ragged.groups())
        return (
            f"Expected {expected} fields in row {row - above} of {file}, as in the header, got {came}. "
            "Look there for a delimiter in a text without quotes, or a quote that is never closed."
        )
    if "straddling" in text:
        return (
            f"Expected records of at most {BLOCK} bytes in {file}, got a longer one after row {read}. "
            "Look there for a quote that is never closed."
        )
    reason, after = " ".join(text.split())[:300].rstrip("."), f", after row {read}" if read else ""
    return f"Expected a CSV or Parquet file that can be read, got {file}: {reason}{after}."
