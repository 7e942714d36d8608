"""The result of `train` as printed tables: how good the models are, which one is in the file, and the guarantee."""

import math
from collections.abc import Mapping
from pathlib import Path

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from sottovoce.algorithms import registry
from sottovoce.arrays import Array
from sottovoce.cli import evaluation_view
from sottovoce.cli.output import counted, exactly, up
from sottovoce.privacy.accounting.accountant import leaves
from sottovoce.privacy.observers import NONE, Sight
from sottovoce.privacy.statement import milestones
from sottovoce.problem.figures import Figures
from sottovoce.problem.losses import Counts, Logistic, Loss, Quantile, Reals, Softmax
from sottovoce.simulation.network import Network
from sottovoce.simulation.optimum import name_of_optimum
from sottovoce.studies.run import SITE, Scores, Trained, spread
from sottovoce.tally.evaluation import FILE

# What each line of the table is the score of.
_LINES = {
    "average": "each node's mean over its steps",
    "last": "each node's last broadcast",
    SITE: "what a real site would get, the mean of its own and its neighbours' last broadcasts",
    "consensus": "mean of all last broadcasts",
    "optimum": "",  # what was optimised: see `name_of_optimum`
    "majority": "always the more frequent label",
    "no model": "",  # the best constant answer: see `constant_words`
}
_KEPT = "consensus"  # the model of the file
_NOTHING = "-"
_NEAR = 0.01  # of a loss, to count as about as good as it gets


def show(trained: Trained, out: Path | None, beside: Trained | None = None) -> None:
    """Print scores, guarantee, files and seconds. `beside` is another algorithm on the same problem."""
    console = Console(highlight=False)
    console.print(_title(trained))
    for rows, scores in {"On the rows learnt from": trained.learnt, "On the test rows": trained.tested}.items():
        if scores is not None:
            console.print(rows if trained.tested is not None else "", end="\n" if trained.tested is not None else "")
            console.print(_table(trained, scores, beside))
    kept = "the model that --out would keep" if out is None else f"the model in {out / 'model.safetensors'}"
    first = ", of the first run" if (trained.config.runs or 1) > 1 else ""
    console.print(Text(f"* {kept}{first}."), soft_wrap=True)
    for line in _remarks(trained):
        console.print(line)
    if trained.holder_only is not None:
        # Right below the figures: who copies them should copy this, too.
        console.print(Text(trained.holder_only, style="bold"))
    for line in _promise(trained):
        console.print(line)
    if (observers := observed(trained.result.privacy.observers)) is not None:
        console.print(observers)
    for one in () if beside is None else (trained, beside):
        asked = exactly(one.result.privacy.target_epsilon)
        console.print(Text(f"{_name(one)}: epsilon = {asked} {one.result.privacy.assumption()}."))
    if trained.evaluation is not None:
        console.print("As noisy sums tell, which are paid for with the model:")
        evaluation_view.show(trained.evaluation, None if out is None else out / FILE, with_model=True)
    if out is not None:
        console.print(Text(f"Written to {out}."), soft_wrap=True)
    if trained.timed:
        console.print(Text(_on_lines(trained)), soft_wrap=True)
    console.print(f"{trained.seconds:.1f} s in all, {trained.result.seconds:.1f} s of them learning.")


def _on_lines(trained: Trained) -> str:
    """A sentence on the seconds of all rounds on the stated network, and of those until the loss is near its last."""
    assert trained.config.network is not None
    last = trained.timed[-1]
    near = next(line for line in trained.timed if line.risk <= last.risk * (1 + _NEAR))
    return (
        f"On a network of {Network.read(trained.config.network).words}: {counted(last.round, 'round')} take "
        f"{last.seconds:.3g} s, and the loss of the consensus is within {100 * _NEAR:g} % of its last after "
        f"{near.seconds:.3g} s (round {near.round})."
    )


def _title(trained: Trained) -> Text:
    c, data, nodes = trained.config, trained.problem.title, trained.problem.sites.n
    steps = "" if c.local_steps is None else f" of {counted(c.local_steps, 'local step')}"
    rounds, runs = counted(c.rounds or 0, "round"), counted(c.runs or 1, "run")
    return Text(f"{c.algorithm} on {data}: {counted(nodes, 'node')}, {c.graph} graph, {rounds}{steps}, {runs}")


def _table(trained: Trained, scores: Scores, beside: Trained | None) -> Table:
    """One line per output, the one of the file marked, one of the algorithm beside it, then the yardsticks."""
    lines = _lines(trained, scores)
    columns = {"model": [f"{name} *" if name == _KEPT else name for name in lines], **_columns(trained, scores, lines)}
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for heading in columns:
        table.add_column(heading, no_wrap=True)
    for name, *cells in zip(lines, *columns.values(), strict=True):
        table.add_row(*cells, end_section=name == _KEPT)
        if name == _KEPT and beside is not None:
            theirs = beside.learnt if scores is trained.learnt else beside.tested
            found = {} if theirs is None else _columns(beside, theirs, [_KEPT])
            its = [found[heading][0] if heading in found else _NOTHING for heading in list(columns)[1:]]
            table.add_row(_name(beside).lower(), *its, end_section=True)
    return table


def _name(trained: Trained) -> str:
    return registry.entry(trained.config.algorithm).label


def _lines(trained: Trained, scores: Scores) -> list[str]:
    """Names of the lines that have numbers to show."""
    idle = {SITE} - set(scores.risk)
    if trained.optimum is None or scores is not trained.learnt:
        idle.add("optimum")
    if scores.majority is None or scores.rare is not None:
        idle.add("majority")
    if scores.nothing is None:
        idle.add("no model")
    return [name for name in _LINES if name not in idle]


def _columns(trained: Trained, scores: Scores, lines: list[str]) -> dict[str, list[str]]:
    """Columns of the table by heading: the loss, then accuracy and AUC, or errors."""
    own, none = scores.figures or Figures(math.nan), scores.nothing or Figures(math.nan)
    loss, optimum = trained.solved.algorithm.loss.name, trained.optimum if scores is trained.learnt else None
    columns = {f"{loss} loss": _figures(scores.risk, 4, lines, optimum=optimum, **{"no model": none.risk})}
    one = {_KEPT: own, "no model": none}
    if scores.majority is None:
        columns["mean absolute error"] = _alone(one, "mean_absolute_error", lines, 4)
        columns["R²"] = _alone(one, "r2", lines, 3)
        return columns
    if scores.rare is None:
        by_output = {name: 100 * values for name, values in scores.accuracy.items()}
        share = {"no model": _hundredfold(none.accuracy)}
        columns["accuracy %"] = _figures(by_output, 2, lines, majority=_hundredfold(scores.majority), **share)
    else:
        columns["average precision %"] = _alone(one, "average_precision", lines, 2, 100)
    if own.auc is not None:
        columns["AUC"] = _alone(one, "auc", lines, 3)
    return columns


def _alone(by_line: Mapping[str, Figures], name: str, lines: list[str], digits: int, factor: float = 1) -> list[str]:
    """A column of what is known of the consensus and of no model alone."""
    values = {line: getattr(found, name) for line, found in by_line.items()}
    return _figures({}, digits, lines, **{line: None if x is None else factor * x for line, x in values.items()})


def _words(trained: Trained, name: str) -> str:
    """What a line of the table is the score of."""
    if name == "optimum":
        return name_of_optimum(trained.problem.sites, trained.solved.algorithm)
    return constant_words(trained.solved.algorithm.loss) if name == "no model" else _LINES[name]


def constant_words(loss: Loss) -> str:
    """The best constant answer, in words."""
    if isinstance(loss.labels, Counts):
        return "always the mean"
    if isinstance(loss.labels, Reals):
        return f"always the {loss.theta:g} quantile" if isinstance(loss, Quantile) else "always the median"
    return "always the shares of the labels" if isinstance(loss, Logistic | Softmax) else "the best constant answer"


def _remarks(trained: Trained) -> list[Text]:
    """Sentences on what the lines of the table mean, and a warning if the model is worse than none."""
    loss, judged = trained.solved.algorithm.loss, trained.tested or trained.learnt
    lines = [Text(f"{name}: {_words(trained, name)}.") for name in _lines(trained, trained.learnt)]
    over = "rows" if trained.problem.sites.factors.weights is None else "rows by their weights"
    lines.append(Text(f"The {loss.name} loss is a mean over {over}, in {trained.loss_unit}."))
    if trained.learnt.rare is not None:
        lines.append(
            Text(f"{trained.learnt.rare!r} is rare: accuracy would say little, so average precision is shown.")
        )
    if judged.worse_than_nothing and judged.figures is not None and judged.nothing is not None:
        lines.append(
            Text(
                f"The model is WORSE THAN NO MODEL: {constant_words(loss)} has a loss of {judged.nothing.risk:.4f}, it "
                f"has {judged.figures.risk:.4f}. Do not use it; it takes more rows, or a larger epsilon.",
                style="bold red",
            )
        )
    return lines


def _hundredfold(share: float | None) -> float | None:
    return None if share is None else 100 * share


def _figures(by_output: Mapping[str, Array], digits: int, lines: list[str], **yardsticks: float | None) -> list[str]:
    """One column: mean and spread over runs of every output, then the yardsticks. The points line up."""
    means = {name: float(values.mean()) for name, values in by_output.items()}
    means |= {name: value for name, value in yardsticks.items() if value is not None}
    means = {name: mean for name, mean in means.items() if math.isfinite(mean)}
    width = max((len(f"{mean:.{digits}f}") for mean in means.values()), default=0)
    cells = []
    for name in lines:
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


def observed(lines: tuple[Sight, ...]) -> Table | None:
    """Table of epsilon by the number of colluding sites; None where epsilon does not depend on it."""
    if len(lines) < 2:
        return None
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    table.add_column("colluding sites, with the relay", justify="right")
    table.add_column("epsilon", justify="right")
    for line in milestones(lines):
        table.add_row(str(line.colluding), up(line.epsilon) if math.isfinite(line.epsilon) else NONE)
    return table
