"""What people see of a long study: a bar over the whole with the time left, on stderr, and tables at the end."""

import json as json_module
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from sottovoce.cli.output import Stopped
from sottovoce.errors import InputError
from sottovoce.studies.cells import Cell
from sottovoce.studies.report import page
from sottovoce.studies.report.study_page import PAGE
from sottovoce.studies.reproduce import Study
from sottovoce.studies.store import ProgressWatcher

if TYPE_CHECKING:
    from sottovoce.studies.reproduce import Study
    from sottovoce.studies.store import ProgressWatcher

_STYLES = {"holds": "green", "holds only if": "yellow", "not shown": "yellow", "does not hold": "red"}


class Bar(ProgressWatcher):
    """A bar in units of expected work, since cells differ a hundredfold."""

    def __init__(self, bar: Progress) -> None:
        self._bar, self._task = bar, bar.add_task("", total=None, cells="")
        self._done, self._finished, self._cells = 0.0, 0, 0

    def begin(self, work: float, cells: int) -> None:
        self._cells = cells
        self._bar.update(self._task, total=work)

    def at(self, cell: Cell, share: float) -> None:
        about = f"{self._finished + 1}/{self._cells} {cell.algorithm}"
        self._bar.update(self._task, completed=self._done + share * cell.work, cells=about)

    def done(self, cell: Cell) -> None:
        self._done, self._finished = self._done + cell.work, self._finished + 1
        self._bar.update(self._task, completed=self._done)


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
        rows = [[Text(claim), _coloured(verdict), Text("-".join(counts))]
                for claim, _, verdict, *counts in (row[:6] for row in page.verdicts(study.claims).rows)]  # fmt: skip
        console.print(_table(("claim", "verdict, by last broadcast", "won-tied-lost"), rows))
    elif "compare" in study.panels:
        points = study.panels["compare"].measured()
        scores = page.scores(points, tested=False, shown=("facet", "epsilon", "picked"))
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


def _coloured(text: str) -> Text:
    """A verdict in the colour of its kind."""
    return Text(text, style=_STYLES.get(text.split(":")[0], ""))


# -- study ------------------------------------------------------------------------------------------------------------
# `sottovoce reproduce` and `sottovoce compare`: many runs, kept as they finish, and a report.


_Quiet = Annotated[bool, typer.Option("--quiet", help="No progress bar and no table.")]
_Json = Annotated[bool, typer.Option("--json", help="Print the verdict as one JSON object instead of a table.")]


def reproduce(
    quick: Annotated[bool, typer.Option("--quick", help="A smoke test: small, every code path, no meaning.")] = False,
    out: Annotated[Path, typer.Option(help="Folder of the report; a rerun goes on there.")] = Path("reproduction"),
    only: Annotated[
        str | None,
        typer.Option(help="Some of fig1,fig2,fig3,fig3b,table,diameter,graph,skew,choices.", metavar="NAMES"),
    ] = None,
    runs: Annotated[str | None, typer.Option(help="Runs, the same for all. Left out: ten.", metavar="INTEGER")] = None,
    json: _Json = False,
    quiet: _Quiet = False,
) -> None:
    """Run the paper's experiments on Adult, test its claims, and write a report.

    Finished results are kept in the folder: run the same command again to go on after an interruption.
    """
    command = "sottovoce reproduce" + (" --quick" if quick else "") + (f" --only {only}" if only else "")
    command += f" --runs {runs}" if runs else ""
    number = None if runs is None else _whole(runs)

    from sottovoce.studies import reproduce as experiment
    from sottovoce.studies.report.study_page import write_study

    experiment.chosen_panels(only)
    with _watched(quiet) as watcher:
        study = experiment.reproduce(out, quick=quick, only=only, runs=number, watcher=watcher, command=command)
        write_study(study, out)
    _tell(study, out, json, quiet)


def compare(
    config: Annotated[Path, typer.Argument(help="TOML file that says what to compare.", metavar="CONFIG")],
    out: Annotated[Path, typer.Option(help="Folder of the report; a rerun goes on there.")] = Path("comparison"),
    json: _Json = False,
    quiet: _Quiet = False,
) -> None:
    """Compare algorithms of your choice, as a TOML file says, and write a report.

    docs/how-to/compare.toml is an example that explains every setting.
    """
    from sottovoce.settings.toml import load
    from sottovoce.studies import compare as experiment

    settings = load(config)
    try:
        comparison = experiment.read_comparison(settings)
    except InputError as error:
        raise InputError(f"{str(error).rstrip('.')}, in config={str(config)!r}.") from error

    from sottovoce.studies.report.study_page import write_study

    with _watched(quiet) as watcher:
        study = experiment.run_comparison(
            comparison, out, title=f"ComparisonFile: {config.stem}", command=f"sottovoce compare {config.name}",
            watcher=watcher,
        )  # fmt: skip
        write_study(study, out)
    _tell(study, out, json, quiet)


def _whole(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise InputError(f"Expected a whole number for --runs, got {text!r}. Correct it.") from None


@contextmanager
def _watched(quiet: bool) -> Iterator["ProgressWatcher"]:
    try:
        with watching_study(quiet) as watcher:
            yield watcher
    except KeyboardInterrupt:
        raise Stopped("interrupted; finished results are kept, run the same command again to go on") from None


def _tell(study: "Study", out: Path, json: bool, quiet: bool) -> None:
    from sottovoce.studies.report.study_page import verdict

    if json:
        print(json_module.dumps(verdict(study), indent=2, allow_nan=False))
    elif not quiet:
        show_study(study, out)


# -- report -----------------------------------------------------------------------------------------------------------
# `sottovoce report`: a page about one run.


def report(
    run: Annotated[Path, typer.Argument(help="Folder that sottovoce train --out has left.", metavar="RUN")],
    out: Annotated[Path | None, typer.Option(help="The page. Left out: report.html in the folder.")] = None,
) -> None:
    """Write a web page about a run: one file, which works offline."""
    from sottovoce.studies import folder
    from sottovoce.studies.report import run_page

    page = run / run_page.PAGE if out is None else out
    run_page.write_run_page(folder.read(run), page)
    print(f"Written to {page}.")
