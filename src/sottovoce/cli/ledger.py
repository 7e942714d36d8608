"""`sottovoce ledger`: look at the privacy ledger of a data set. Opening it verifies it, whatever is asked."""

import json as json_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from sottovoce.privacy.books.ledger import Ledger

ledger_app = typer.Typer(help="Show, verify or export the privacy ledger of a data set.", rich_markup_mode="rich")

_Ledger = Annotated[Path, typer.Argument(help="The ledger file; its .head file lies beside it.", metavar="LEDGER")]
_Json = Annotated[bool, typer.Option("--json", help="Print one JSON object instead of text.")]


@ledger_app.command("show")
def show_ledger(path: _Ledger, json: _Json = False) -> None:
    """What was spent, what is left of the cap, and by which runs."""
    with _open(path) as ledger:
        if json:
            _print_json(_summary(ledger))
        else:
            _show(ledger)


@ledger_app.command()
def verify(
    path: _Ledger,
    head: Annotated[
        str | None, typer.Option(help="A head hash noted down earlier; the chain must go through it.", metavar="HASH")
    ] = None,
    json: _Json = False,
) -> None:
    """Check every entry. Says the head hash if all is well, and names the first broken entry if not."""
    with _open(path) as ledger:
        if head is not None:
            ledger.expect_known(head)
        if json:
            _print_json({"ok": True, **ledger.head._asdict()})
        else:
            print(f"OK: {ledger.head.entries} entries, head {ledger.head.hash}")


@ledger_app.command()
def export(
    path: _Ledger,
    out: Annotated[Path | None, typer.Option(help="Write to this new file instead of the terminal.")] = None,
    json: _Json = False,
) -> None:
    """Every entry, as a table or, with --json, with the hashes that others can check.

    Keep the head hash in another place: whoever replaces the ledger and its head together is found out by it alone.
    """
    with _open(path) as ledger:
        text = json_module.dumps(ledger.to_dict(), indent=2, allow_nan=False) if json else _lines(ledger)
    if out is None:
        print(text)
    else:
        from sottovoce.settings.disk import write_new

        write_new(out, f"{text}\n".encode())


def _open(path: Path) -> "Ledger":
    """The ledger, which opening verifies as a whole."""
    from sottovoce.privacy.books.ledger import Ledger

    return Ledger.open(path)


def _print_json(data: dict[str, object]) -> None:
    """One JSON object on stdout."""
    print(json_module.dumps(data, indent=2, allow_nan=False))


def _summary(ledger: "Ledger") -> dict[str, object]:
    """What was spent and by which runs, without the chain."""
    whole = ledger.to_dict()
    del whole["entries"]
    return {**whole, "runs": _runs(ledger)}


def _runs(ledger: "Ledger") -> list[dict[str, object]]:
    """One line for every run and kind of round, in the order of booking."""
    from collections import Counter

    from sottovoce.privacy.observers import against

    reserved, released = Counter[tuple[str, str]](), Counter[tuple[str, str]]()
    for reservation in ledger.reservations():
        cost = reservation.cost
        key = reservation.run, cost.event.describe() + against(cost.assumed and cost.assumed.colluding)
        reserved[key] += 1
        released[key] += reservation.message is not None
    return [
        {"run": run, "rounds": rounds, "released": released[run, event], "each": event}
        for (run, event), rounds in reserved.items()
    ]


def _show(ledger: "Ledger") -> None:
    """The same as text and a table."""
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from sottovoce.cli.output import exactly, up
    from sottovoce.privacy.observers import against

    h, console = ledger.header, Console(highlight=False)
    console.print(Text(f"Data set {h.data_digest}, since {h.created}."), soft_wrap=True)
    console.print(Text(f"Unit of protection: {h.unit}."), soft_wrap=True)
    kind = "any kind of round" if h.order is not None else "after the first round, plain Gaussians only"
    spent = f"epsilon = {up(ledger.total())} of {exactly(h.epsilon)}, at delta = {exactly(h.delta)}"
    console.print(f"Spent: {spent}{against(ledger.colluding())}.", soft_wrap=True)
    console.print(f"Takes: {kind}.")
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for heading in ("run", "rounds", "released", "each"):
        table.add_column(heading)
    for line in _runs(ledger):
        table.add_row(*(Text(str(value)) for value in line.values()))
    console.print(table)
    console.print(Text(f"{ledger.head.entries} entries, head {ledger.head.hash}"), soft_wrap=True)


def _lines(ledger: "Ledger") -> str:
    """One line of text for every entry. Columns are parted by tabs, for people and for other programs."""
    rows = [("entry", "time", "kind", "run", "round", "body", "hash")]
    rows += [(str(e.index), e.time, e.kind, e.run or "-", str(e.round), e.body, e.hash) for e in ledger.entries()]
    return "\n".join(["\t".join(row) for row in rows] + [f"head\t{ledger.head.entries}\t{ledger.head.hash}"])
