"""`sottovoce train`."""

import json as json_module
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from sottovoce.cli.budget import charging
from sottovoce.cli.options import HelpfulCommand, signature_of, values
from sottovoce.settings.toml import load
from sottovoce.studies.config import TrainConfig

_PANEL = "Files and output"


class TrainCommand(HelpfulCommand):
    """Knows the defaults of a training run."""

    def facts(self) -> tuple[Mapping[str, Any], Mapping[str, Sequence[str]]]:
        """What a run without any option would use."""
        from sottovoce.studies.choices import CHOICES, PLANNED

        known = asdict(TrainConfig().resolved())
        return {name: value for name, value in known.items() if name not in PLANNED}, CHOICES


def train(
    config: Path | None = None,
    out: Path | None = None,
    budget: Path | None = None,
    beside: str | None = None,
    json: bool = False,
    quiet: bool = False,
    **given: Any,
) -> None:
    """Simulate a network of sites that learn one model, and say how good and how private it is."""
    # Merged before anything is checked: an option may mend what the file alone would get wrong.
    chosen = TrainConfig.read(({} if config is None else load(config)) | values(TrainConfig, given))

    from sottovoce.cli import output
    from sottovoce.studies import run

    if out is not None:
        from sottovoce.studies import folder

        folder.check_free(out)
    other = None if beside is None else run.beside(chosen, beside)
    charge = None if budget is None else charging(budget)
    with output.progress(quiet) as progress:
        trained = run.train(chosen, progress, charge)
        second = None if other is None else run.train(other, progress, charge)
    if out is not None:
        folder.write(trained, out)
    if json:
        summary = trained.summary() | ({} if second is None else {"beside": second.summary()})
        print(json_module.dumps(summary, indent=2, allow_nan=False))
    elif not quiet:
        output.show(trained, out, second)


_CONFIG = typer.Option(help="Read settings from a TOML file; options given here win.", rich_help_panel=_PANEL)
_OUT = typer.Option(
    help="Write settings, history, models and the privacy statement into this new folder.", rich_help_panel=_PANEL
)
_BUDGET = typer.Option(
    help="Charge the run to this budget, before a row is touched; see sottovoce budget.", rich_help_panel=_PANEL
)
_BESIDE = typer.Option(
    help="Run this algorithm too, on the same rows at the same epsilon, and show its scores in the same table.",
    rich_help_panel=_PANEL,
)
_JSON = typer.Option("--json", help="Print one JSON object instead of a table.", rich_help_panel=_PANEL)
_QUIET = typer.Option("--quiet", help="No progress bar and no table.", rich_help_panel=_PANEL)

# The options are the fields of TrainConfig: a setting has one name, in a file and here.
train.__signature__ = signature_of(  # type: ignore[attr-defined]
    TrainConfig,
    config=Annotated[Path | None, _CONFIG],
    out=Annotated[Path | None, _OUT],
    budget=Annotated[Path | None, _BUDGET],
    beside=Annotated[str | None, _BESIDE],
    json=Annotated[bool, _JSON],
    quiet=Annotated[bool, _QUIET],
)
