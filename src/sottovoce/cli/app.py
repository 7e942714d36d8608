"""Exit codes, one line of help each, and which error ends with which."""

from typing import Annotated

import typer

from sottovoce.cli.account import AccountCommand, account
from sottovoce.cli.apply import evaluate, predict
from sottovoce.cli.audit import AuditCommand, audit
from sottovoce.cli.budget import budget_app
from sottovoce.cli.coefficients import coefficients
from sottovoce.cli.dataset import dataset
from sottovoce.cli.export import export
from sottovoce.cli.federation import federation_app, site_keygen, site_seed
from sottovoce.cli.ledger import ledger_app
from sottovoce.cli.plan import plan
from sottovoce.cli.report import report
from sottovoce.cli.schema import schema_app
from sottovoce.cli.show import show
from sottovoce.cli.site.site import site_commit, site_run, site_status, site_verify
from sottovoce.cli.study import compare, reproduce
from sottovoce.cli.train import TrainCommand, train
from sottovoce.cli.watch.command import federation_watch, site_watch
from sottovoce.errors import BudgetError, SottovoceError

BAD_INPUT, BUDGET, LOST, TWICE, DAMAGED, UNREACHABLE, LEFT_BEHIND = 2, 3, 4, 5, 6, 7, 8
NOT_WRITTEN, FORKED, DIVERGED, SPOILED, BEHIND, INTERRUPTED = 9, 10, 11, 12, 13, 130

EXIT_CODES: dict[int, str] = {
    0: "done: the model and the privacy statement are written",
    BAD_INPUT: "bad input: an option, a file, a key or the data does not fit",
    BUDGET: "the run does not fit into what is left of the rows' privacy budget",
    LOST: "a neighbour was lost, and the agreement says to stop, or those who are left are no longer connected; "
    "run the same command again when it is back",
    TWICE: "this site's identity is used twice; find the other process, or the old copy of the state folder",
    DAMAGED: "ledger or journal are damaged or do not belong together; release nothing, restore them",
    UNREACHABLE: "the message server cannot be reached, or refuses us; run the same command again when it is back",
    LEFT_BEHIND: "the others went on without this site; it has no further part in this run",
    NOT_WRITTEN: "the run is over, but its model or statement could not be written; make room, or give another --out, "
    "and run the same command again",
    FORKED: "somebody told different sites different things; do not use the model, ask those who are named",
    DIVERGED: "this site's models have left the agreed radius; agree on shorter steps, or on a larger radius",
    SPOILED: "a masked sum is none that honest sites can have made; the run is over, ask the other sites",
    BEHIND: "the ledger lacks what others have seen of it: it was put back from a copy, or there is a second one for "
    "these rows; put the newest back, or book what is missing with: sottovoce ledger catch-up",
    INTERRUPTED: "interrupted; run the same command again to go on",
}


def code_of(error: SottovoceError) -> int:
    """The exit code of an error that a command ends with."""
    from sottovoce.federation.site import stops
    from sottovoce.federation.transport import transport

    codes: tuple[tuple[type[SottovoceError], int], ...] = (
        (BudgetError, BUDGET),
        (stops.LostNeighbourError, LOST),
        (stops.UsedTwiceError, TWICE),
        (stops.DamagedError, DAMAGED),
        (transport.TransportError, UNREACHABLE),
        (stops.LeftBehindError, LEFT_BEHIND),
        (stops.NotWrittenError, NOT_WRITTEN),
        (stops.ForkedError, FORKED),
        (stops.DivergedError, DIVERGED),
        (stops.SpoiledError, SPOILED),
        (stops.BehindError, BEHIND),
    )
    return next((code for kind, code in codes if isinstance(error, kind)), BAD_INPUT)


def epilog() -> str:
    """For the end of a help text; blank lines keep the lines apart."""
    lines = [f"{code}  {text}." for code, text in EXIT_CODES.items()]
    return "\n\n".join(
        ["Exit codes; what was released until then is said with the error, and the model of it is written:", *lines]
    )


# -- app --------------------------------------------------------------------------------------------------------------
# The commands, put together. Nothing heavy is imported before a command runs: `sottovoce --help` is quick.

app = typer.Typer(rich_markup_mode="rich", context_settings={"help_option_names": ["-h", "--help"]})
app.command(cls=TrainCommand)(train)
app.command(cls=AccountCommand)(account)
app.command()(plan)
app.command(cls=AuditCommand)(audit)
app.command()(report)
app.command()(predict)
app.command()(evaluate)
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
    """Private learning without a server.

    Sites on a graph learn one model together, and all that anyone learns of a row is differentially private. With noise
    of its own every message of a site is private by itself; with masked sums only the sums are, and single messages
    rest on keys.
    """
