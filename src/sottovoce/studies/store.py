"""Results on disk: one Parquet file per cell, under the cell's content hash.

A file appears whole or not at all: whatever is there can be trusted, and a run that was stopped goes on where it was.
"""

import json
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

import pyarrow as pa
from pyarrow import parquet

from sottovoce.errors import InputError, SottovoceError
from sottovoce.settings.disk import replacing
from sottovoce.studies import cells, folder
from sottovoce.studies.cells import ALL_COLUMNS, Cell, Measured

CELLS = "cells"
_ABOUT, _REFUSED = b"sottovoce.cell", b"sottovoce.refused"


@dataclass(frozen=True)
class CellStore:
    """The results under `root`/cells."""

    root: Path

    def check(self) -> None:
        """Refuse, before any work, a folder that holds something else or cannot be written."""
        cells = self.root / CELLS
        # An earlier study, to go on with: nothing but results, finished or not.
        if not (cells.is_dir() and all(path.suffix in (".parquet", ".partial") for path in cells.iterdir())):
            folder.check_free(self.root)

    def path(self, cell: Cell) -> Path:
        """Where a cell's result is, or would be: its content hash names the file."""
        return self.root / CELLS / f"{cell.key}.parquet"

    def read(self, cell: Cell) -> Measured | str | None:
        """A stored result, or the reason why there is none; None if nothing is there that can be read."""
        try:
            table = parquet.read_table(self.path(cell))
        except (FileNotFoundError, pa.ArrowInvalid):
            return None
        reason = (table.schema.metadata or {}).get(_REFUSED)
        if reason is not None:
            return str(reason.decode())
        # Of another version: run it again.
        if not set(ALL_COLUMNS) <= set(table.column_names):
            return None
        return Measured({name: table[name].to_numpy() for name in ALL_COLUMNS})

    def write(self, cell: Cell, result: Measured | str) -> None:
        """CellStore a result, or why there is none. The cell goes into the file too, so that a file explains itself."""
        about = {_ABOUT: json.dumps(asdict(cell), sort_keys=True)}
        if isinstance(result, str):
            table, about = pa.table({}), {**about, _REFUSED: result}
        else:
            table = pa.table({name: result.columns[name] for name in ALL_COLUMNS})
        path = self.path(cell)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            # Under another name first: a study that is stopped never leaves half a result.
            with replacing(path) as file:
                parquet.write_table(table.replace_schema_metadata(about), file)
        except OSError as error:
            raise InputError(
                f"Expected a folder that can be written, got out={str(self.root)!r}: {error.strerror}."
            ) from error


class ProgressWatcher:
    """Told how far a study is; this one does nothing with it."""

    def begin(self, work: float, cells: int) -> None:
        """So much is to be done in all: expected work, in units of one cell's `work`, and a number of cells."""

    def at(self, cell: Cell, share: float) -> None:
        """A cell is this far: a share from 0 to 1."""

    def done(self, cell: Cell) -> None:
        """A cell is finished."""


@dataclass(frozen=True)
class Runner:
    """Runs cells, or fetches what an earlier run left. `refused` collects what an algorithm would not do, and why."""

    store: CellStore
    watcher: ProgressWatcher
    refused: dict[Cell, str]

    def begin(self, cells: Iterable[Cell]) -> None:
        """Announce all that will be asked for."""
        todo = [cell for cell in dict.fromkeys(cells) if not self.store.path(cell).exists()]
        self.watcher.begin(sum(cell.work for cell in todo), len(todo))

    def get(self, cell: Cell) -> Measured | None:
        """A cell's result; None where the algorithm refused."""
        result = self.store.read(cell)
        if result is None:
            result = self._run(cell)
            self.store.write(cell, result)
            self.watcher.done(cell)
        if isinstance(result, str):
            self.refused[cell] = result
            return None
        return result

    def _run(self, cell: Cell) -> Measured | str:
        """Run the cell; a refusal of the algorithm is a result too, as text."""
        try:
            return cells.run(cell, self._progress(cell))
        except SottovoceError as error:
            return str(error)

    def _progress(self, cell: Cell) -> Callable[[int, int], None]:
        """Tells the watcher after every round."""
        return lambda k, rounds: self.watcher.at(cell, k / rounds)
