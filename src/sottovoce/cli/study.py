"""`sottovoce reproduce` and `sottovoce compare`: many runs, kept as they finish, and a report."""

import json as json_module
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sottovoce.cli.output import Stopped
from sottovoce.errors import InputError, naming

if TYPE_CHECKING:
    from sottovoce.studies.reproduce import Study
    from sottovoce.studies.store import ProgressWatcher

_Quiet = Annotated[bool, typer.Option("--quiet", help="No progress bar and no table.")]
_Json = Annotated[bool, typer.Option("--json", help="Print the verdict as one JSON object instead of a table.")]


def reproduce(
    quick: Annotated[
        bool, typer.Option("--quick", help="A smoke test: small, every code path; its figures mean nothing.")
    ] = False,
    out: Annotated[Path, typer.Option(help="Folder of the report; a rerun goes on there.")] = Path("reproduction"),
    only: Annotated[
        str | None,
        typer.Option(help="Some of fig1,fig2,fig3,fig3b,table,diameter,graph,skew,choices.", metavar="NAMES"),
    ] = None,
    runs: Annotated[str | None, typer.Option(help="Runs, the same for all. Default: ten.", metavar="INTEGER")] = None,
    json: _Json = False,
    quiet: _Quiet = False,
) -> None:
    """Run the paper's experiments on Adult, test its claims, and write a report.

    Finished results are kept in the folder: run the same command again to go on after an interruption.
    """
    command = "sottovoce reproduce" + (" --quick" if quick else "") + (f" --only {only}" if only else "")
    command += f" --runs {runs}" if runs else ""
    try:
        number = None if runs is None else int(runs)
    except ValueError:
        raise InputError(f"Expected a whole number for --runs, got {runs!r}. Correct it.") from None

    from sottovoce.studies import reproduce as experiment
    from sottovoce.studies.report.study_files import write_study

    experiment.chosen_panels(only)
    with _watching(quiet) as watcher:
        study = experiment.reproduce(out, quick=quick, only=only, runs=number, watcher=watcher, command=command)
        write_study(study, out)
    _tell(study, out, json, quiet)


def compare(
    config: Annotated[Path, typer.Argument(help="TOML file that lists what to compare.", metavar="CONFIG")],
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
    with naming(config=config):
        comparison = experiment.read_comparison(settings)

    from sottovoce.studies.report.study_files import write_study

    with _watching(quiet) as watcher:
        study = experiment.run_comparison(
            comparison, out, title=f"Comparison: {config.stem}", command=f"sottovoce compare {config.name}",
            watcher=watcher,
        )  # fmt: skip
        write_study(study, out)
    _tell(study, out, json, quiet)


@contextmanager
def _watching(quiet: bool) -> Iterator["ProgressWatcher"]:
    from sottovoce.cli.study_bar import watching_study

    try:
        with watching_study(quiet) as watcher:
            yield watcher
    except KeyboardInterrupt:
        raise Stopped("interrupted; finished results are kept, run the same command again to go on") from None


def _tell(study: "Study", out: Path, json: bool, quiet: bool) -> None:
    """Print the verdicts or the scores, and where the rest is; with --json the verdict alone."""
    from sottovoce.cli.output import show
    from sottovoce.document import Words
    from sottovoce.studies.report import tables
    from sottovoce.studies.report.study_files import PAGE, verdict
    from sottovoce.studies.reproduce import IN_SHORT

    if json:
        print(json_module.dumps(verdict(study), indent=2, allow_nan=False))
        return
    if quiet:
        return
    show(study.title, *([Words(IN_SHORT, "banner")] if study.quick else []))
    # A terminal is narrow: the other outputs are in the report.
    if study.claims:
        show(tables.verdicts(study.claims).only("claim", "verdict, by last broadcast", "won", "tied", "lost"))
    elif "compare" in study.panels:
        scores = tables.scores(study.panels["compare"].measured(), tested=False, shown=("facet", "epsilon", "picked"))
        show(scores.only(*(scores.headings[place] for place in (0, *range(2, 8)))))
    show(*(f"Left out: {note}" for note in study.notes()))
    show(f"Report: {out / PAGE}", f"{study.cells} cells, {study.seconds:.1f} s.")
