"""Results on disk: one Parquet file per cell, under the cell's content hash.

A file appears whole or not at all, so that a study that was stopped can use all that is there and go on.
"""

import json
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import asdict, dataclass, field
from pathlib import Path
from threading import Event, RLock

import numba
import pyarrow as pa
from pyarrow import parquet

from sottovoce.errors import InputError, SottovoceError
from sottovoce.settings.disk import replacing
from sottovoce.studies import folder, measured
from sottovoce.studies.cells import Cell
from sottovoce.studies.measured import ALL_COLUMNS, Measured

CELLS = "cells"
_ABOUT, _REFUSED = b"sottovoce.cell", b"sottovoce.refused"
# Cells computed at a time, at most. What a cell does between its kernels keeps one core busy and leaves others idle,
# unless other cells have work for them. More than a few would wait for each other: Python itself runs on one core.
_SIDE_BY_SIDE = 4


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
        """Path of a cell's result, there or not: its content hash names the file."""
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
        """Store a result, or why there is none. The cell goes into the file too, so that a file explains itself."""
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
    """Receives the progress of a study, and ignores it. Several cells may be under way, but calls never overlap."""

    def begin(self, work: float, cells: int) -> None:
        """Receive the total: expected work, in units of one cell's `work`, and the number of cells."""

    def at(self, cell: Cell, share: float) -> None:
        """Receive the progress of a cell, a share from 0 to 1."""

    def done(self, cell: Cell) -> None:
        """Receive that a cell is finished."""


class _AbandonedError(Exception):
    """Raised within a cell to end it, since its result is no longer wanted."""


@dataclass(frozen=True)
class Runner:
    """Runs cells, or fetches what an earlier run left. `refused` collects what an algorithm would not do, and why.

    Cells that are missing are computed side by side, and share the cores between them; how many run beside a cell
    changes none of its numbers.
    """

    store: CellStore
    watcher: ProgressWatcher
    refused: dict[Cell, str]
    _running: set[Cell] = field(default_factory=set)
    _telling: RLock = field(default_factory=RLock)
    _failed: Event = field(default_factory=Event)  # no further cell is begun
    _stop: Event = field(default_factory=Event)  # and those under way are abandoned

    def begin(self, cells: Iterable[Cell]) -> None:
        """Announce the total of these cells to the watcher."""
        todo = [cell for cell in dict.fromkeys(cells) if not self.store.path(cell).exists()]
        self.watcher.begin(sum(cell.work for cell in todo), len(todo))

    def fill(self, wanted: Iterable[Cell]) -> None:
        """Compute all of these that are missing. Where one fails, those under way are finished first, and kept; an
        interruption abandons them.
        """
        missing = [cell for cell in dict.fromkeys(wanted) if self.store.read(cell) is None]
        cores = numba.get_num_threads()
        if min(cores, len(missing)) < 2:
            for cell in missing:
                self._finish(cell, cores)
            return
        with ThreadPoolExecutor(min(cores, len(missing), _SIDE_BY_SIDE), "sottovoce-cells") as pool:
            try:
                asked = [pool.submit(self._finish, cell, cores) for cell in missing]
                done, _ = wait(asked)
            except KeyboardInterrupt:
                self._failed.set()
                self._stop.set()
                raise
        for one in done:
            error = one.exception()
            if error is not None and not isinstance(error, _AbandonedError):
                raise error

    def get(self, cell: Cell) -> Measured | None:
        """A cell's result; None where the algorithm refused."""
        result = self.store.read(cell)
        if result is None:
            result = self._finish(cell, numba.get_num_threads())
        if isinstance(result, str):
            self.refused[cell] = result
            return None
        return result

    def _finish(self, cell: Cell, cores: int) -> Measured | str:
        """Run the cell and store what came of it; a refusal of the algorithm is a result too, as text."""
        if self._failed.is_set():
            raise _AbandonedError
        try:
            result = self._run(cell, cores)
            self.store.write(cell, result)
        except BaseException:
            self._failed.set()
            raise
        with self._telling:
            self.watcher.done(cell)
        return result

    def _run(self, cell: Cell, cores: int) -> Measured | str:
        with self._telling:
            self._running.add(cell)
        try:
            self._take_share(cores)
            return measured.run(cell, self._progress(cell, cores))
        except SottovoceError as error:
            return str(error)
        finally:
            with self._telling:
                self._running.discard(cell)

    def _take_share(self, cores: int) -> None:
        """Have the calling thread's kernels take their share of the cores: the last cell under way gets all of them."""
        numba.set_num_threads(max(1, cores // max(1, len(self._running))))

    def _progress(self, cell: Cell, cores: int) -> Callable[[int, int], None]:
        """A function to call after every round: it reports to the watcher, and raises if the cell was abandoned."""

        def report(k: int, rounds: int) -> None:
            if self._stop.is_set():
                raise _AbandonedError
            self._take_share(cores)
            with self._telling:
                self.watcher.at(cell, k / rounds)

        return report
