"""The commands, put together. Nothing heavy is imported before a command runs: `sottovoce --help` is quick."""

from typing import Annotated

import typer

from sottovoce.cli.account import AccountCommand, account
from sottovoce.cli.study import compare, reproduce
from sottovoce.cli.train import TrainCommand, train

app = typer.Typer(
    add_completion=False, rich_markup_mode="rich", context_settings={"help_option_names": ["-h", "--help"]}
)
app.command(cls=TrainCommand)(train)
app.command(cls=AccountCommand)(account)
app.command()(reproduce)
app.command()(compare)


def _version(wanted: bool) -> None:
    if wanted:
        from sottovoce import __version__

        print(f"sottovoce {__version__}")
        raise typer.Exit


@app.callback()
def sottovoce(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Private learning without a server.

    Sites on a graph learn one model together. All that a site ever says is differentially private.
    """
