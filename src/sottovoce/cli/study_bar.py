"""Progress bar of a study, on stderr, with the time left."""

from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

from sottovoce.studies.cells import Cell
from sottovoce.studies.store import ProgressWatcher


class Bar(ProgressWatcher):
    """A bar in units of expected work, since cells differ a hundredfold."""

    def __init__(self, bar: Progress) -> None:
        self._bar, self._task = bar, bar.add_task("", total=None, cells="")
        self._done, self._finished, self._cells = 0.0, 0, 0
        self._under_way: dict[Cell, float] = {}

    def begin(self, work: float, cells: int) -> None:
        self._cells = cells
        self._bar.update(self._task, total=work)

    def at(self, cell: Cell, share: float) -> None:
        self._under_way[cell] = share * cell.work
        about = f"{self._finished + 1}/{self._cells} {', '.join(one.algorithm for one in self._under_way)}"
        self._bar.update(self._task, completed=self._done + sum(self._under_way.values()), cells=about)

    def done(self, cell: Cell) -> None:
        self._done, self._finished = self._done + cell.work, self._finished + 1
        self._under_way.pop(cell, None)
        self._bar.update(self._task, completed=self._done + sum(self._under_way.values()))


@contextmanager
def watching_study(quiet: bool) -> Iterator[ProgressWatcher]:
    """Yield a watcher that shows a bar on a terminal, and nothing if quiet or elsewhere."""
    console = Console(stderr=True)
    if quiet or not console.is_terminal:
        yield ProgressWatcher()
        return
    about = TextColumn("{task.fields[cells]}")
    columns = (TaskProgressColumn(), BarColumn(), TimeRemainingColumn(), TextColumn("left, cell"), about)
    # Cells take seconds each: the speed is that of the last minutes.
    with Progress(*columns, console=console, transient=True, speed_estimate_period=240) as bar:
        yield Bar(bar)
