"""`sottovoce train`: simulate sites that learn one model, print how good it is, and keep it."""

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sottovoce.cli.budget import charging
from sottovoce.cli.options import HelpfulCommand, signature_of, values
from sottovoce.cli.output import Stopped, print_json
from sottovoce.errors import InputError
from sottovoce.settings.toml import load
from sottovoce.studies.config import TrainConfig

if TYPE_CHECKING:
    from sottovoce.document import Words
    from sottovoce.studies.run import Trained

_PANEL = "Files and output"
_NEAR = 0.01  # of a loss, to count as about as good as it gets


class TrainCommand(HelpfulCommand):
    """The command, whose help shows the defaults of a training run."""

    def facts(self) -> tuple[Mapping[str, Any], Mapping[str, Sequence[str]]]:
        """Settings of a run without any option, and the choices of the library, by option."""
        from sottovoce.studies.choices import CHOICES, PLANNED

        known = asdict(TrainConfig().resolved())
        return {name: value for name, value in known.items() if name not in (*PLANNED, "algorithm")}, CHOICES


def train(
    config: Path | None = None,
    out: Path | None = None,
    budget: Path | None = None,
    yardstick: bool | None = None,
    force: bool = False,
    beside: str | None = None,
    json: bool = False,
    quiet: bool = False,
    verbose: bool = False,
    **given: Any,
) -> None:
    """Simulate a network of sites that learn one model, and report its accuracy and its privacy guarantee.

    Ctrl-C during the rounds ends them and keeps what was released so far (with --out); a second one ends at once.
    """
    # Merged before anything is checked: an option may mend what the file alone would get wrong.
    chosen = TrainConfig.read(({} if config is None else load(config)) | values(TrainConfig, given))

    from sottovoce.cli import output
    from sottovoce.studies import run

    rank = 0
    if chosen.engine == "mpi":
        from sottovoce.simulation.mpi import joined

        rank = joined().rank

    shown = out is not None  # of rounds before the last nothing is printed, and scoring them takes its time
    if rank > 0:  # the first one of them speaks, writes and pays for all
        run.train(chosen, force=force, history=shown)
        return
    if out is not None:
        from sottovoce.studies import folder

        folder.check_free(out)
    other = None if beside is None else run.beside(chosen, beside)
    private, paid = chosen.data is not None, _Charge(None if budget is None else charging(budget))
    tell = None if quiet or json else output.note
    # Said before private rows are touched. With --json the model is printed, so it is not lost.
    if private and out is None and not json:
        output.note(_NOT_KEPT)
    if private and budget is None and tell is not None:
        tell(_ADDS_UP)
    keep = None if out is None else partial(_keep, out=out)
    try:
        with output.progress(quiet) as progress:
            trained = run.train(
                chosen, progress, paid.charge, keep=keep, yardstick=yardstick, force=force, tell=tell,
                explain=output.note if verbose else None, history=shown,
                ask=_ask if sys.stdin.isatty() and tell is not None and chosen.engine == "local" else None,
            )  # fmt: skip
    except KeyboardInterrupt:
        # When the rounds have begun only a second interruption gets here: what was not written yet is lost.
        if out is not None and (out / "model.safetensors").exists():
            raise Stopped(f"{_SCORING}; the model and its guarantee are in {out}.") from None
        if private and paid.done:
            raise Stopped(f"interrupted; nothing is kept. {_SPENT}") from None
        raise
    try:
        if not _in_the_rounds(trained):
            if out is not None:
                folder.add_scores(trained, out)
            second = None if other is None else run.train(other, first=trained, history=False)
            if json:
                model = {"model": trained.model()} if out is None and private else {}
                also = {} if second is None else {"beside": second.summary()}
                print_json({**trained.summary(), **model, **also})
            elif not quiet:
                _show(trained, out, second)
    except KeyboardInterrupt:
        trained = replace(trained, unfinished=_SCORING)
    if trained.unfinished is not None:
        kept = "nothing is kept without --out" if out is None else f"the model and its guarantee are in {out}"
        spent = f" {_SPENT}" if private and _in_the_rounds(trained) else ""
        raise Stopped(f"{trained.unfinished}; {kept}.{spent}")


class _Charge:
    """Charges a budget, if one was given. `done` is True once the run was charged."""

    def __init__(self, charge: Callable[[Any], None] | None) -> None:
        self._charge, self.done = charge, False

    def charge(self, statement: Any) -> None:
        """Charge a run before a row is touched; the budget may refuse it."""
        if self._charge is not None:
            self._charge(statement)
        self.done = True


_SCORING = "interrupted while the models were scored"
_PRINTED = "Its cost is spent, so the model is printed instead, as JSON and with its guarantee: keep what was printed."
_SPENT = "The whole run counts as spent: budgets were charged for all of its rounds."
_ADDS_UP = (
    "Every run on the same rows costs, and costs add up: nothing counts them here. Start one budget for these rows "
    "(sottovoce budget new FILE --epsilon ...) and give it to every run: --budget FILE."
)
_NOT_KEPT = (
    "Without --out nothing is kept: the model is gone when this is over, and what it cost is spent. Stop now (Ctrl-C) "
    "and add --out FOLDER to keep it."
)


def _ask(why: str) -> None:
    """Go on if the person at the terminal says so. Nothing was spent yet."""
    from sottovoce.cli.output import note

    note(why)
    if not typer.confirm("Train all the same?", err=True):
        raise Stopped("not trained; nothing was spent.")


def _keep(trained: Any, out: Path) -> None:
    """Write the folder. If that fails, the model that private rows have paid for is printed: it would be lost."""
    from sottovoce.studies import folder

    try:
        folder.write(trained, out)
    except InputError as error:
        if not trained.problem.private:
            raise
        paid = {"model": trained.model(), "privacy": trained.result.privacy}
        paid |= {} if trained.evaluation is None else {"evaluation": trained.evaluation}
        print_json(paid)
        raise InputError(f"{error} {_PRINTED}") from error


def _in_the_rounds(trained: Any) -> bool:
    """True if the run was interrupted before its rounds were over: there is nothing to score then."""
    return bool(trained.result.rounds < trained.solved.algorithm.rounds)


def _show(trained: "Trained", out: Path | None, beside: "Trained | None") -> None:
    """Print scores, guarantee, files and seconds. `beside` is another algorithm on the same problem."""
    from sottovoce.algorithms import registry
    from sottovoce.cli.output import show
    from sottovoce.document import Words
    from sottovoce.numerals import exactly
    from sottovoce.privacy.words import observers
    from sottovoce.studies.report.run_words import scores, setting, title
    from sottovoce.tally.words import described

    summary, privacy, evaluation = trained.summary(), trained.result.privacy, trained.evaluation
    kept = "the model that --out would keep" if out is None else f"the model in {out / 'model.safetensors'}"
    show(
        *_chosen(trained),
        f"{title(summary)}: {setting(summary)}",
        *scores(summary, trained.model(), kept, None if beside is None else beside.summary()),
        # Right below the figures: who copies them should copy this, too.
        *([] if trained.holder_only is None else [Words(trained.holder_only, "banner")]),
        *_promise(trained),
        *observers(privacy.observers),
    )
    for one in () if beside is None else (trained, beside):
        promise = one.result.privacy
        name, asked = registry.entry(one.choice.name).label, exactly(promise.target_epsilon)
        show(f"{name}: epsilon = {asked} {promise.assumption()}.")
    if evaluation is not None:
        # Its notes are among those of the run.
        show("Private evaluation, from noisy sums (part of the same budget):", *described(evaluation, with_model=()))
    if out is not None:
        show(f"Written to {out}.")
    if trained.timed:
        show(_on_lines(trained))
    show(f"{trained.seconds:.1f} s in all, {trained.result.seconds:.1f} s of them learning.")


def _chosen(trained: "Trained") -> list[str]:
    """The first line: what was chosen where no algorithm was named, and what its guarantee assumes."""
    from sottovoce.algorithms.default import MASKED

    choice, assumed = trained.choice, trained.result.privacy.assumed
    if choice.remark:
        return [choice.remark]
    if not trained.solved.algorithm.way.masked:
        return []
    if trained.problem.sites.n == 1:
        return ["Algorithm: masked sums. There is one site, so nothing is sent or masked."]
    own = "That is --algorithm ipadmm." if choice.name == MASKED else "No algorithm of that kind learns hazards."
    other = "" if "even if" in assumed else f" {own}"
    return [f"Algorithm: masked sums. {assumed}{other}"]


def _promise(trained: "Trained") -> "list[Words | str]":
    """The guarantee in short, and its notes; a warning if there is none."""
    from sottovoce.document import Words
    from sottovoce.numerals import exactly, up
    from sottovoce.privacy.accounting.accountant import leaves

    privacy = trained.result.privacy
    if not privacy.private:
        return [Words("NOT PRIVATE: no noise was added. What was released may reveal any row.", "bad")]
    promised, counted, sigma = exactly(privacy.target_epsilon), "", privacy.sigma or 0.0
    if privacy.runs > 1:
        counted = f" That is all {privacy.runs} runs together; each was asked for epsilon = {promised}."
        promised = up(privacy.promised)
    least = "at least " if len(leaves(privacy.event)) > 1 else ""
    return [
        f"Promised: epsilon = {promised}, delta = {exactly(privacy.delta)}, for {privacy.unit}.{counted}",
        Words(
            f"Noise: sigma = {least}{up(sigma)} ({privacy.calibration} calibration) in each of {trained.steps} steps, "
            f"which cost epsilon = {up(privacy.epsilon)} in all."
        ),
        *(Words(f"Note: {note}", "strong") for note in privacy.notes),
    ]


def _on_lines(trained: "Trained") -> str:
    """A sentence on the seconds of all rounds on the stated network, and of those until the loss is near its last."""
    from sottovoce.numerals import counted
    from sottovoce.simulation.network_text import read_network

    assert trained.config.network is not None
    last = trained.timed[-1]
    near = next(line for line in trained.timed if line.risk <= last.risk * (1 + _NEAR))
    return (
        f"On a network of {read_network(trained.config.network).words}: {counted(last.round, 'round')} take "
        f"{last.seconds:.3g} s, and the loss of the consensus is within {100 * _NEAR:g} % of its last after "
        f"{near.seconds:.3g} s (round {near.round})."
    )


_CONFIG = typer.Option(help="Read settings from a TOML file; options given here win.", rich_help_panel=_PANEL)
_OUT = typer.Option(
    help="Write settings, history, models and the privacy statement into this new folder.", rich_help_panel=_PANEL
)
_BUDGET = typer.Option(
    help="Charge the run to this budget, before a row is touched; see sottovoce budget.", rich_help_panel=_PANEL
)
_YARDSTICK = typer.Option(
    "--yardstick/--no-yardstick",
    help="Also compute the optimum without privacy, for comparison. Default: yes, but not for a file.",
    rich_help_panel=_PANEL,
)
_FORCE = typer.Option(
    "--force",
    help="For private rows: accept a delta above 0.01, an epsilon above 20, no noise at all, or intervals that say "
    "nothing.",
    rich_help_panel="Privacy",
)
_BESIDE = typer.Option(
    help="Run this algorithm too, on the same rows at the same epsilon, and show its scores in the same table.",
    rich_help_panel=_PANEL,
)
_JSON = typer.Option("--json", help="Print one JSON object instead of a table.", rich_help_panel=_PANEL)
_QUIET = typer.Option("--quiet", help="No progress bar and no table.", rich_help_panel=_PANEL)
_VERBOSE = typer.Option("--verbose", "-v", help="Show what was planned, and why.", rich_help_panel=_PANEL)

# The options are the fields of TrainConfig: a setting has one name, in a file and here.
train.__signature__ = signature_of(  # type: ignore[attr-defined]
    TrainConfig,
    config=Annotated[Path | None, _CONFIG],
    out=Annotated[Path | None, _OUT],
    budget=Annotated[Path | None, _BUDGET],
    yardstick=Annotated[bool | None, _YARDSTICK],
    force=Annotated[bool, _FORCE],
    beside=Annotated[str | None, _BESIDE],
    json=Annotated[bool, _JSON],
    quiet=Annotated[bool, _QUIET],
    verbose=Annotated[bool, _VERBOSE],
)
