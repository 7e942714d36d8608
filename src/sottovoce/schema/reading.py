"""CSV and Parquet files in chunks of cells, through pyarrow. Files are only ever read.

CSV is UTF-8 (with or without a byte order mark), comma separated, with a header; fields may be quoted and then hold
commas and line breaks. Every cell is read as text, so that a bad one can be named. Rows count from 1 below the header;
blank lines do not count. In Parquet, columns may be text, numbers or truth values; a typed NaN counts as missing.
"""

import codecs
import csv
import re
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO, final

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as parquet

from sottovoce.arrays import Ints
from sottovoce.errors import InputError
from sottovoce.schema.arrow import cells_of, is_supported
from sottovoce.schema.cells import Cells
from sottovoce.schema.values import brief

BLOCK = 4 * 2**20  # bytes of a CSV file read at a time, and so the longest record
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


class Table(ABC):
    """A file with named columns."""

    def __init__(self, path: Path, names: Sequence[str]) -> None:
        self.path, self.names = path, tuple(names)
        seen: set[str] = set()
        for name in names:
            if name in seen:
                raise InputError(f"Expected different column names in file={str(path)!r}, got {brief(name)} twice.")
            seen.add(name)

    @abstractmethod
    def chunks(self, names: Sequence[str], markers: Sequence[str]) -> Iterator[Chunk]:
        """The cells of these columns. Texts among `markers` count as missing. A ragged row is an error."""

    @abstractmethod
    def tolerant(self, names: Sequence[str], markers: Sequence[str], skipped: list[Ragged]) -> Iterator[Chunk]:
        """The same, but ragged rows are skipped and listed."""


def open_table(path: str | Path) -> Table:
    """A CSV or a Parquet file, told apart by how it starts."""
    path = Path(path)
    with _reading(path):
        with path.open("rb") as file:
            start = file.read(4)
        if start == _PARQUET or path.suffix.lower() in (".parquet", ".pq"):
            return ParquetTable(path)
        return CsvTable(path, start)


@final
class CsvTable(Table):
    """Comma separated text with a header."""

    def __init__(self, path: Path, start: bytes) -> None:
        if start[:2] in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE):
            raise InputError(f"Expected a CSV file in UTF-8, got file={str(path)!r} in UTF-16. Save it as UTF-8.")
        self._header, self._empty = _header(path)
        super().__init__(path, [name.strip() for name in self._header])

    def chunks(self, names: Sequence[str], markers: Sequence[str]) -> Iterator[Chunk]:
        return self._chunks(names, markers, None)

    def tolerant(self, names: Sequence[str], markers: Sequence[str], skipped: list[Ragged]) -> Iterator[Chunk]:
        # pyarrow cannot hand over a bad row that is not UTF-8; such a file stops at its first ragged row.
        return self._chunks(names, markers, skipped if _is_utf8(self.path) else None)

    def _chunks(self, names: Sequence[str], markers: Sequence[str], skipped: list[Ragged] | None) -> Iterator[Chunk]:
        if self._empty:
            return
        wanted = [self._header[self.names.index(name)] for name in names]
        for read, batch in _guarded(self.path, self._batches(wanted, skipped)):
            rows = _numbered(read, batch.num_rows, skipped or [])
            yield Chunk(rows, tuple(cells_of(column, markers) for column in batch.columns))

    def _batches(self, wanted: Sequence[str], skipped: list[Ragged] | None) -> Iterator[Any]:
        def skip(row: Any) -> str:
            assert skipped is not None
            skipped.append(Ragged(row.number - 1, row.expected_columns, row.actual_columns))
            return "skip"

        # Without threads, as only then rows have numbers.
        with pacsv.open_csv(
            str(self.path),
            read_options=pacsv.ReadOptions(use_threads=False, block_size=BLOCK),
            parse_options=pacsv.ParseOptions(
                newlines_in_values=True, invalid_row_handler=None if skipped is None else skip
            ),
            convert_options=pacsv.ConvertOptions(
                include_columns=wanted, column_types=dict.fromkeys(wanted, _TEXT), check_utf8=False
            ),
        ) as reader:
            yield from reader


@final
class ParquetTable(Table):
    """Typed columns."""

    def __init__(self, path: Path) -> None:
        with parquet.ParquetFile(path) as file:
            self._types = dict(zip(file.schema_arrow.names, file.schema_arrow.types, strict=True))
            super().__init__(path, file.schema_arrow.names)

    def chunks(self, names: Sequence[str], markers: Sequence[str]) -> Iterator[Chunk]:
        for name in names:
            if not is_supported(self._types[name]):
                raise InputError(
                    f"Expected text, numbers or truth values in column {brief(name)} of file={str(self.path)!r}, "
                    f"got type={str(self._types[name])!r}. Convert it."
                )
        for read, batch in _guarded(self.path, self._batches(names)):
            columns = [batch.column(batch.schema.get_field_index(name)) for name in names]
            yield Chunk(_numbered(read, batch.num_rows, []), tuple(cells_of(column, markers) for column in columns))

    def tolerant(self, names: Sequence[str], markers: Sequence[str], skipped: list[Ragged]) -> Iterator[Chunk]:  # noqa: ARG002
        return self.chunks(names, markers)

    def _batches(self, names: Sequence[str]) -> Iterator[Any]:
        with parquet.ParquetFile(self.path) as file:
            size = max(1, min(2**16, CELLS // max(1, len(names))))
            yield from file.iter_batches(batch_size=size, columns=list(names))


def _header(path: Path) -> tuple[list[str], bool]:
    """The fields of the first line that is not blank, and whether nothing comes after it."""
    with path.open(encoding="utf-8-sig", errors="surrogateescape", newline="") as file:
        header = next((record for record in csv.reader(_lines(path, file)) if record), None)
        if header is None:
            raise InputError(f"Expected a CSV file with a header, got file={str(path)!r}, which is empty.")
        try:
            "".join(header).encode()
        except UnicodeEncodeError:
            raise InputError(f"Expected a header in UTF-8, got {brief(header)} in file={str(path)!r}.") from None
        while block := file.read(BLOCK):
            if block.strip("\r\n"):
                return header, False
        return header, True


def _lines(path: Path, file: TextIO) -> Iterator[str]:
    """Lines, none so long that it would fill the memory."""
    while line := file.readline(BLOCK):
        if len(line) == BLOCK:
            raise InputError(f"Expected a header of at most {BLOCK} characters, got a longer one in {path.name!r}.")
        yield line


def _is_utf8(path: Path) -> bool:
    decoder = codecs.getincrementaldecoder("utf-8")()
    with path.open("rb") as file:
        try:
            while block := file.read(BLOCK):
                decoder.decode(block)
            decoder.decode(b"", final=True)
        except UnicodeDecodeError:
            return False
    return True


def _numbered(read: int, rows: int, skipped: Sequence[Ragged]) -> Ints:
    """Numbers of the next rows, where `read` rows came before and others were skipped.

    Skipped row s, the i-th from 0, has s - 1 - i rows before it that were read. So the k-th row read comes after it if
    k >= s - i.
    """
    ordinal = np.arange(read + 1, read + rows + 1)
    before = np.array([gap.row - i for i, gap in enumerate(skipped)], dtype=np.int64)
    numbers: Ints = ordinal + np.searchsorted(before, ordinal, side="right")
    return numbers


def _guarded(path: Path, batches: Iterator[Any]) -> Iterator[tuple[int, Any]]:
    """Every batch that has rows, and how many rows came before it."""
    read = 0
    while True:
        with _reading(path, read):
            batch = next(batches, None)
        if batch is None:
            return
        if batch.num_rows:
            yield read, batch
            read += batch.num_rows


@contextmanager
def _reading(path: Path, read: int = 0) -> Iterator[None]:
    """Whatever goes wrong while reading becomes an `InputError` that names the file and, where known, the row."""
    try:
        yield
    except InputError:
        raise
    except (pa.ArrowException, OSError, UnicodeError, csv.Error, ValueError, KeyError, OverflowError) as error:
        raise InputError(_told(path, read, error)) from error


def _told(path: Path, read: int, error: Exception) -> str:
    text = (error.strerror if isinstance(error, OSError) else None) or str(error)
    file, ragged = f"file={str(path)!r}", _RAGGED.search(text)
    if ragged:
        row, expected, came = map(int, ragged.groups())
        return f"Expected {expected} fields in row {row - 1} of {file}, as in the header, got {came}."
    if "straddling" in text:
        return (
            f"Expected records of at most {BLOCK} bytes in {file}, got a longer one after row {read}. "
            "Look there for a quote that is never closed."
        )
    reason, after = " ".join(text.split())[:300].rstrip("."), f", after row {read}" if read else ""
    return f"Expected a CSV or Parquet file that can be read, got {file}: {reason}{after}."
