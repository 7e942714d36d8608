"""The app with all commands. Nothing heavy is imported before a command runs: `sottovoce --help` is quick."""

from typing import Annotated

import typer

from sottovoce.cli.account import AccountCommand, account
from sottovoce.cli.apply import evaluate, predict
from sottovoce.cli.audit import AuditCommand, audit
from sottovoce.cli.budget import budget_app
from sottovoce.cli.coefficients import coefficients
from sottovoce.cli.dataset import dataset
from sottovoce.cli.describe import describe
from sottovoce.cli.exit_codes import epilog
from sottovoce.cli.export import export
from sottovoce.cli.federation import federation_app
from sottovoce.cli.ledger import ledger_app
from sottovoce.cli.plan import plan
from sottovoce.cli.report import report
from sottovoce.cli.schema import schema_app
from sottovoce.cli.show import show
from sottovoce.cli.site.keys import site_commit, site_keygen, site_seed
from sottovoce.cli.site.run import site_run
from sottovoce.cli.site.status import site_status
from sottovoce.cli.site.verify import site_verify
from sottovoce.cli.study import compare, reproduce
from sottovoce.cli.survival import survival
from sottovoce.cli.train import TrainCommand, train
from sottovoce.cli.watch.command import federation_watch, site_watch

app = typer.Typer(rich_markup_mode="rich", context_settings={"help_option_names": ["-h", "--help"]})
app.command(cls=TrainCommand)(train)
app.command(cls=AccountCommand)(account)
app.command()(plan)
app.command(cls=AuditCommand)(audit)
app.command()(report)
app.command()(predict)
app.command()(evaluate)
app.command()(describe)
app.command()(survival)
app.command()(show)
app.command()(coefficients)
app.command()(export)
app.command()(dataset)
app.command()(reproduce)
app.command()(compare)
app.add_typer(schema_app)
app.add_typer(budget_app)
app.add_typer(ledger_app, name="ledger")
app.add_typer(federation_app, name="federation")
site_app = typer.Typer(no_args_is_help=True, help="What one site of a federation does.")
site_app.command("keygen")(site_keygen)
site_app.command("seed")(site_seed)
site_app.command("commit")(site_commit)
site_app.command("run", epilog=epilog())(site_run)
site_app.command("status")(site_status)
site_app.command("watch")(site_watch)
site_app.command("verify")(site_verify)
federation_app.command("watch")(federation_watch)
app.add_typer(site_app, name="site")


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
    """Differentially private models from rows at several sites.

    Sites fit one model together, and all that anyone learns about a row is differentially private. With noise of its
    own, every message of a site is private by itself. With masked sums, only sums over all sites are private. Single
    messages are not: keys protect them, against a stated number of colluding sites.
    """
