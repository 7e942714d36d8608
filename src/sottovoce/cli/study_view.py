"""A long study on the terminal: a bar with the time left, on stderr, and tables at the end."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from sottovoce.studies.cells import Cell
from sottovoce.studies.report import tables
from sottovoce.studies.report.study_files import PAGE
from sottovoce.studies.reproduce import Study
from sottovoce.studies.store import ProgressWatcher

_STYLES = {"holds": "green", "holds only if": "yellow", "not shown": "yellow", "does not hold": "red"}


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
    """A watcher that shows a bar on a terminal, and nothing elsewhere: in a log it would be noise."""
    console = Console(stderr=True)
    if quiet or not console.is_terminal:
        yield ProgressWatcher()
        return
    about = TextColumn("{task.fields[cells]}")
    columns = (TaskProgressColumn(), BarColumn(), TimeRemainingColumn(), TextColumn("left, cell"), about)
    # Cells take seconds each: the speed is that of the last minutes.
    with Progress(*columns, console=console, transient=True, speed_estimate_period=240) as bar:
        yield Bar(bar)


def show_study(study: Study, out: Path) -> None:
    """Print the verdicts or the scores, and where the rest is."""
    console = Console(highlight=False)
    console.print(Text(study.title))
    if study.quick:
        console.print("Quick form: it shows that everything works, and nothing else.")
    if study.claims:
        # A terminal is narrow: the verdicts by other outputs are in the report.
        rows = [[Text(claim), Text(verdict, style=_STYLES.get(verdict.split(":")[0], "")), Text("-".join(counts))]
                for claim, _, verdict, *counts in (row[:6] for row in tables.verdicts(study.claims).rows)]  # fmt: skip
        console.print(_table(("claim", "verdict, by last broadcast", "won-tied-lost"), rows))
    elif "compare" in study.panels:
        points = study.panels["compare"].measured()
        scores = tables.scores(points, tested=False, shown=("facet", "epsilon", "picked"))
        kept = [0, *range(2, 8)]
        rows = [[Text(row[i]) for i in kept] for row in scores.rows]
        console.print(_table([scores.headings[i] for i in kept], rows))
    for note in study.notes():
        console.print(Text(f"Left out: {note}"), soft_wrap=True)
    console.print(Text(f"Report: {out / PAGE}"), soft_wrap=True)
    console.print(f"{study.cells} cells, {study.seconds:.1f} s.")


def _table(headings: Sequence[str], rows: Sequence[Sequence[Text]]) -> Table:
    """A plain table of these cells."""
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for heading in headings:
        table.add_column(heading)
    for row in rows:
        table.add_row(*row)
    return table
