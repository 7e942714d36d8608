"""`sottovoce ledger`: the privacy ledger of a data set. Opening it verifies it, whatever is asked.

Looking changes nothing. Two commands write: `raise-cap`, and `catch-up` with what others have seen.
"""

import json as json_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sottovoce.cli.output import print_json
from sottovoce.settings import plain

if TYPE_CHECKING:
    from sottovoce.privacy.books.ledger import Ledger

ledger_app = typer.Typer(
    help="Show, verify or export the privacy ledger of a data set; raise its cap, or book what neighbours have seen.",
    rich_markup_mode="rich",
)

_Ledger = Annotated[Path, typer.Argument(help="The ledger file; its .head file lies beside it.", metavar="LEDGER")]
_Key = Annotated[Path, typer.Option(help="The site's private key, from: sottovoce site keygen.", show_default=False)]
_Json = Annotated[bool, typer.Option("--json", help="Print one JSON object instead of text.")]


@ledger_app.command("show")
def show_ledger(path: _Ledger, json: _Json = False) -> None:
    """What was spent, what is left of the cap, and by which runs."""
    with _open(path) as ledger:
        if json:
            whole = plain(ledger)
            del whole["entries"]
            raised = [
                {"epsilon": r.epsilon, "entry": r.entry, "time": r.time, "signer": r.signer} for r in ledger.raises()
            ]
            print_json({**whole, "runs": _runs(ledger), "caught_up": _caught_up(ledger), "raised": raised})
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
    """Check every entry. Prints the head hash if all is well, and names the first broken entry if not."""
    with _open(path) as ledger:
        if head is not None:
            ledger.expect_known(head)
        if json:
            print_json({"ok": True, **plain(ledger.head)})
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
        if json:
            text = json_module.dumps(plain(ledger), indent=2, allow_nan=False)
        else:
            # Columns are parted by tabs, for people and for other programs.
            rows = [("entry", "time", "kind", "run", "round", "body", "hash")]
            rows += [
                (str(e.index), e.time, e.kind, e.run or "-", str(e.round), e.body, e.hash) for e in ledger.entries()
            ]
            lines = ["\t".join(row) for row in rows]
            text = "\n".join([*lines, f"head\t{ledger.head.entries}\t{ledger.head.hash}"])
    if out is None:
        print(text)
    else:
        from sottovoce.settings.disk import write_new

        write_new(out, f"{text}\n".encode())


@ledger_app.command("raise-cap")
def raise_cap(
    path: _Ledger,
    epsilon: Annotated[float, typer.Option(help="What all runs on these rows may cost from now on.")],
    key: _Key,
    json: _Json = False,
) -> None:
    """Let all runs on these rows together cost more. It is an entry that is signed, and cannot be taken back.

    The guarantee is then that of the highest cap: whoever raises it after seeing results gives up the lower one for all
    that was ever released.
    """
    from sottovoce.federation.agreement.identity import SigningKey
    from sottovoce.federation.site import caps
    from sottovoce.numerals import exactly

    signing = SigningKey.load(key)
    with _open(path) as ledger:
        raised = caps.raise_cap(ledger, epsilon, signing)
        if json:
            print_json({"epsilon": raised.epsilon, "entry": raised.entry, **plain(ledger.head)})
        else:
            cap, delta = exactly(raised.epsilon), exactly(ledger.header.delta)
            print(f"The cap is epsilon = {cap} at delta = {delta} from entry {raised.entry} on.")


@ledger_app.command("catch-up")
def catch_up(path: _Ledger, key: _Key, json: _Json = False) -> None:
    """Book what others have seen of these rows and this ledger lacks, after a run was refused for it (code 13).

    It is for a ledger that was put back from a copy, or a second one for the same rows, if the newest one is lost. What
    is booked are amounts that this site told others itself. A round that is in both counts once.
    """
    from sottovoce.federation.agreement.identity import SigningKey
    from sottovoce.federation.site import heads
    from sottovoce.numerals import exactly, up

    with _open(path) as ledger:
        before = ledger.total()
        booked = heads.catch_up(ledger, SigningKey.load(key))
        if json:
            spent = {"before": before, "after": ledger.total()}
            print_json({"runs": len(booked), "epsilon": spent, **plain(ledger.head)})
        else:
            cap, delta = exactly(ledger.cap), exactly(ledger.header.delta)
            print(f"Booked: what {len(booked)} run(s) had spent that was not in this ledger.")
            print(f"Spent: epsilon = {up(ledger.total())} of {cap}, at delta = {delta}; before it was {up(before)}.")


def _open(path: Path) -> "Ledger":
    """The ledger, which opening verifies as a whole."""
    from sottovoce.privacy.books.ledger import Ledger

    return Ledger.open(path)


def _runs(ledger: "Ledger") -> list[dict[str, object]]:
    """One line for every run and kind of round, in the order of booking."""
    from collections import Counter

    from sottovoce.privacy.observers import against

    reserved, released = Counter[tuple[str, str]](), Counter[tuple[str, str]]()
    for reservation in ledger.reservations():
        cost = reservation.cost
        key = reservation.run, cost.event.words + against(cost.assumed and cost.assumed.colluding)
        reserved[key] += 1
        released[key] += reservation.message is not None
    return [
        {"run": run, "rounds": rounds, "released": released[run, event], "each": event}
        for (run, event), rounds in reserved.items()
    ]


def _caught_up(ledger: "Ledger") -> list[dict[str, object]]:
    """One line for every entry that booked what others had seen."""
    found = []
    for entry in ledger.entries():
        if entry.kind == "caught up":
            runs = json_module.loads(entry.body)["runs"]
            found.append({"entry": entry.index, "time": entry.time, "runs": len(runs)})
    return found


def _show(ledger: "Ledger") -> None:
    """Print what was spent, what the ledger takes, and its runs."""
    from sottovoce.cli.output import show
    from sottovoce.document import Table
    from sottovoce.numerals import exactly, up
    from sottovoce.privacy.observers import against

    h = ledger.header
    kind = "any kind of round" if h.order is not None else "after the first round, plain Gaussians only"
    spent = f"epsilon = {up(ledger.total())} of {exactly(ledger.cap)}, at delta = {exactly(h.delta)}"
    runs = [tuple(map(str, line.values())) for line in _runs(ledger)]
    show(
        f"Data set {h.data_digest}, since {h.created}.",
        f"Unit of protection: {h.unit}.",
        f"Spent: {spent}{against(ledger.colluding())}.",
        f"Takes: {kind}.",
        *_changes(ledger),
        Table(("run", "rounds", "released", "each"), runs),
        f"{ledger.head.entries} entries, head {ledger.head.hash}",
    )


def _changes(ledger: "Ledger") -> list[str]:
    """Sentences on when the cap was raised and by whom, and when was booked what others had seen."""
    from sottovoce.federation.site.caps import is_signed
    from sottovoce.numerals import exactly

    words = [f"Cap at first: epsilon = {exactly(ledger.header.epsilon)}."] if ledger.raises() else []
    for raised in ledger.raises():
        by = f"signed by {raised.signer}" if is_signed(raised) else "NOT SIGNED by the key that it names"
        words.append(f"Raised to epsilon = {exactly(raised.epsilon)} at {raised.time}, entry {raised.entry}, {by}.")
    return words + [
        f"Caught up with what others had seen of {line['runs']} run(s) at {line['time']}, entry {line['entry']}."
        for line in _caught_up(ledger)
    ]
