"""Lines and tables for people, with texts from files that may hold anything."""

import json
import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from decimal import ROUND_CEILING, Context, Decimal
from pathlib import Path
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from sottovoce.arrays import Array
from sottovoce.privacy.accounting.accountant import leaves
from sottovoce.privacy.statement import PrivacyStatement, milestones
from sottovoce.simulation import engine
from sottovoce.simulation.optimum import name_of_optimum
from sottovoce.studies.run import Scores, Trained, spread


def print_json(data: dict[str, Any], file: Any = None) -> None:
    """One JSON object."""
    print(json.dumps(data, indent=2, allow_nan=False), file=file)


def console(file: Any = None) -> Any:
    """Where people read; standard output unless another file is given."""
    from rich.console import Console

    return Console(highlight=False, file=file)


def table(*headings: str) -> Any:
    """An empty table."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    lines = Table(box=SIMPLE_HEAD, pad_edge=False)
    for heading in headings:
        lines.add_column(heading)
    return lines


def plain(text: str) -> Any:
    """Names from a file, never taken for markup or for terminal commands."""
    from rich.text import Text

    return Text("".join(letter if letter.isprintable() else " " for letter in text))


def say(shown: Any, text: str) -> None:
    """A line, however long."""
    shown.print(plain(text), soft_wrap=True)


# -- output -----------------------------------------------------------------------------------------------------------
# What people see: a progress bar on stderr, a table on stdout.

# What each line of the table is the score of.
_LINES = {
    "average": "each node's mean over its steps",
    "last": "each node's last broadcast",
    "consensus": "mean of all last broadcasts",
    "optimum": "",  # what was optimised: see `name_of_optimum`
    "majority": "always the more frequent label",
}
_NOTHING = "-"


@contextmanager
def progress(quiet: bool) -> Iterator[engine.Progress | None]:
    """A bar with the time left. Only for a terminal: in a log it would be noise."""
    console = Console(stderr=True)
    if quiet or not console.is_terminal:
        yield None
        return
    columns = (TextColumn("round"), MofNCompleteColumn(), BarColumn(), TimeRemainingColumn(), TextColumn("left"))
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task("rounds", total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


def show(trained: Trained, out: Path | None) -> None:
    """Scores, promise, where it was written, how long it took."""
    console = Console(highlight=False)
    console.print(_title(trained))
    console.print(_table(trained))
    if trained.holder_only is not None:
        # Right below the figures: who copies them should copy this, too.
        console.print(Text(trained.holder_only, style="bold"))
    for line in _promise(trained):
        console.print(line)
    if (table := observers(trained.result.privacy)) is not None:
        console.print(table)
    if out is not None:
        console.print(Text(f"Written to {out}."), soft_wrap=True)
    console.print(f"{trained.seconds:.1f} s in all, {trained.result.seconds:.1f} s of them learning.")


def exactly(value: float) -> str:
    """A number as it was given, without a trailing .0."""
    short = f"{value:g}"
    return short if float(short) == value else repr(value)


def up(value: float) -> str:
    """Six significant digits, never rounded down: neither a cost nor a needed noise may be understated."""
    if not math.isfinite(value):
        return str(value)
    return f"{float(Context(prec=6, rounding=ROUND_CEILING).create_decimal(Decimal(value))):g}"


def _title(trained: Trained) -> Text:
    c, data, nodes = trained.config, trained.problem.title, trained.problem.sites.n
    steps = "" if c.local_steps is None else f" of {c.local_steps} local steps"
    return Text(
        f"{c.algorithm} on {data}: {nodes} nodes, {c.graph} graph, {c.rounds} rounds{steps}, "
        f"{c.runs} {'run' if c.runs == 1 else 'runs'}"
    )


def _table(trained: Trained) -> Table:
    """One line per output, then the two yardsticks."""
    learnt, tested = trained.learnt, trained.tested
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    columns = {"model": list(_LINES)}
    columns["risk"] = _figures(learnt.risk, 4, optimum=trained.optimum)
    columns["accuracy %"] = _figures(_percent(learnt), 2, majority=_hundredfold(learnt.majority))
    if tested is None:
        named = {"optimum": name_of_optimum(trained.problem.sites, trained.solved.algorithm)}
        columns["what it is"] = list({**_LINES, **named}.values())
    else:
        columns["test risk"] = _figures(tested.risk, 4)
        columns["test accuracy %"] = _figures(_percent(tested), 2, majority=_hundredfold(tested.majority))
    for heading in columns:
        table.add_column(heading, no_wrap=heading != "what it is")
    for cells in zip(*columns.values(), strict=True):
        table.add_row(*cells, end_section=cells[0] == "consensus")
    return table


def _percent(scores: Scores) -> dict[str, Array]:
    return {name: 100 * values for name, values in scores.accuracy.items()}


def _hundredfold(share: float | None) -> float | None:
    return None if share is None else 100 * share


def _figures(by_output: Mapping[str, Array], digits: int, **yardsticks: float | None) -> list[str]:
    """One column: mean and spread over runs of every output, then the yardsticks. The points line up."""
    means = {name: float(values.mean()) for name, values in by_output.items()}
    means |= {name: value for name, value in yardsticks.items() if value is not None}
    means = {name: mean for name, mean in means.items() if math.isfinite(mean)}
    width = max((len(f"{mean:.{digits}f}") for mean in means.values()), default=0)
    cells = []
    for name in _LINES:
        std = spread(by_output[name]) if name in by_output else None
        cell = f"{means[name]:{width}.{digits}f}" if name in means else _NOTHING
        cells.append(cell if std is None or name not in means else f"{cell} ± {std:.{digits}f}")
    return cells


def _promise(trained: Trained) -> list[Text]:
    privacy = trained.result.privacy
    if not privacy.private:
        return [Text("NOT PRIVATE: no noise was added. What was released may reveal any row.", style="bold red")]
    promised, counted, sigma = exactly(privacy.target_epsilon), "", privacy.sigma or 0.0
    if privacy.runs > 1:
        counted = f" That is all {privacy.runs} runs together; each was asked for epsilon = {promised}."
        promised = up(privacy.promised)
    least = "at least " if len(leaves(privacy.event)) > 1 else ""
    return [
        Text(f"Promised: epsilon = {promised}, delta = {exactly(privacy.delta)}, for {privacy.unit}.{counted}"),
        Text(
            f"Noise: sigma = {least}{up(sigma)} ({privacy.calibration} calibration) in each of {trained.steps} steps, "
            f"which cost epsilon = {up(privacy.epsilon)} in all."
        ),
        *(Text(f"Note: {note}", style="bold") for note in privacy.notes),
    ]


def observers(privacy: PrivacyStatement) -> Table | None:
    """What holds against how many colluding sites, where that depends on it."""
    lines = privacy.observers
    if len(lines) < 2:
        return None
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    table.add_column("colluding sites, with the relay", justify="right")
    table.add_column("epsilon", justify="right")
    for line in milestones(lines):
        table.add_row(str(line.colluding), up(line.epsilon))
    return table
