"""`sottovoce site run`: one site of a federation, from its rows to its model."""

import logging
import os
import signal
import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sottovoce.errors import InputError, SottovoceError

if TYPE_CHECKING:
    from sottovoce.document import Part
    from sottovoce.federation.agreement.agreement import Agreement
    from sottovoce.federation.agreement.certificates import TLSFiles
    from sottovoce.federation.site.events import Spending
    from sottovoce.federation.site.journal import Journal
    from sottovoce.federation.site.mail import Pace
    from sottovoce.federation.site.part import Finished
    from sottovoce.federation.site.seat import Seat
    from sottovoce.federation.site.watchers import Watcher

_WHO, _DATA, _SERVER, _OUT = "Who", "Rows and their budget", "Message server", "Files and output"
_ASKING = 10.0  # seconds for a server that is only asked why a run is refused
_AGAIN = "interrupted; run the same command again to go on"


def _option(text: str, panel: str, metavar: str | None = None) -> object:
    """An option in one of the help's panels."""
    return typer.Option(help=text, rich_help_panel=panel, metavar=metavar, show_default=False)


def site_run(
    federation: Annotated[Path, _option("The agreement, countersigned by all: federation.toml.", _WHO)],
    site: Annotated[str, _option("Name of this site.", _WHO, "NAME")],
    key: Annotated[Path, _option("Its private key, from: sottovoce site keygen.", _WHO)],
    data: Annotated[Path, _option("Its rows: CSV or Parquet by the schema, or .npz arrays if there is none.", _DATA)],
    server: Annotated[str, _option("The message server, such as tls://nats.example.org:4222.", _SERVER, "URL")],
    state: Annotated[Path, _option("Folder for ledger and journal. Keep it, and keep it private.", _OUT)],
    delimiter: Annotated[
        str | None, _option("Field separator of a CSV file: , ; | or tab. Default: as in the schema.", _DATA)
    ] = None,
    signatures: Annotated[Path | None, _option("Folder of signatures. Default: beside the agreement.", _WHO)] = None,
    ledger: Annotated[Path | None, _option("Ledger of these rows. Default: rows.ledger in --state.", _DATA)] = None,
    cap_epsilon: Annotated[
        float | None, _option("First use of these rows: largest epsilon of all runs on them, for ever.", _DATA)
    ] = None,
    cap_delta: Annotated[float | None, _option("First use of these rows: the delta of that cap.", _DATA)] = None,
    cap_mixed: Annotated[
        bool,
        typer.Option(
            "--cap-mixed",
            help="First use of these rows: allow runs of any kind, such as with sampled batches, for a tenth more.",
            rich_help_panel=_DATA,
        ),
    ] = False,
    salt: Annotated[
        Path | None, _option("The secret salt of the rows' commitment in the agreement, if it has one.", _DATA)
    ] = None,
    seed: Annotated[
        Path | None, _option("First run with masked sums: its seed, which moves into --state. From: site seed.", _WHO)
    ] = None,
    certificates: Annotated[
        Path | None,
        _option("Folder with ca.cert.pem, NAME.cert.pem and NAME.key.pem. Or give each.", _SERVER),
    ] = None,
    ca: Annotated[Path | None, _option("Certificate of the authority.", _SERVER)] = None,
    cert: Annotated[Path | None, _option("Certificate of this site.", _SERVER)] = None,
    tls_key: Annotated[Path | None, _option("Private key of that certificate.", _SERVER)] = None,
    patience: Annotated[
        float, typer.Option(help="Seconds to wait for a server that does not answer.", rich_help_panel=_SERVER)
    ] = 600.0,
    out: Annotated[
        Path | None, _option("Folder for what is found, and its statement. Default: in --state, by run.", _OUT)
    ] = None,
    log: Annotated[Path | None, _option("Append a log to this file, one JSON object per line.", _OUT)] = None,
    quiet: Annotated[bool, typer.Option("--quiet", help="No view of the run.", rich_help_panel=_OUT)] = False,
) -> None:
    """Take part in a federation: check the rows, reserve the budget, run, and write a model or a table, and a privacy
    statement.

    After a crash or an interruption run the same command again: what was released is sent again, and nothing is drawn
    a second time.
    """
    from sottovoce.cli.site import files
    from sottovoce.cli.site.results import keeping_what_was_found, results_in
    from sottovoce.cli.site.view import watching_run
    from sottovoce.federation.agreement import signing, toml_file
    from sottovoce.federation.agreement.identity import SigningKey
    from sottovoce.federation.site.caps import claim
    from sottovoce.federation.site.log import LogWatcher
    from sottovoce.federation.site.mail import Pace
    from sottovoce.federation.site.runner import result_of
    from sottovoce.federation.site.seat import Seat
    from sottovoce.federation.site.status import StatusFile
    from sottovoce.federation.site.watchers import Watchers

    pace, cap = Pace(server=patience), files.Cap(cap_epsilon, cap_delta, cap_mixed)
    agreement = toml_file.load(federation)
    agreement.member(site)
    signing.verify_signatures(agreement, federation, signatures)
    own_key, tls = SigningKey.load(key), _tls(site, certificates, ca, cert, tls_key)
    books = state / "rows.ledger" if ledger is None else ledger
    with ExitStack() as stack:
        with files.refusing_changes(data):
            rows = files.rows_of(agreement, data, delimiter, site)
            agreement.oracle_for(site, rows)  # refuses other rows than agreed, before anything is made
            folder, source = files.run_folder(state, agreement), files.source_of(data, delimiter)
            # Before the ledger: only one process holds the journal of a run, while a ledger may serve several runs.
            journal = stack.enter_context(files.open_journal(folder, agreement, site, rows, salt, seed, source))
            stack.enter_context(_saying_what_was_released(journal, agreement))
            opened = stack.enter_context(files.open_ledger(books, data, cap, agreement.unit))
            heads = stack.enter_context(files.open_heads(state))
        seat = Seat(
            agreement=agreement, site=site, rows=rows, key=own_key, ledger=opened, journal=journal, heads=heads,
            source=source,
        )  # fmt: skip
        results = results_in(folder if out is None else out, seat)
        with keeping_what_was_found(results):
            claim(opened, own_key.public)  # a seat has refused any other key than the agreed one
            seat.check_books()
            stack.enter_context(_logging(log))
            watcher = Watchers(stack.enter_context(watching_run(quiet)), LogWatcher(), StatusFile(folder))
            finished = result_of(seat) or _finish(seat, server, tls, watcher, pace)
        told = results.write(finished)
        spending = seat.spending()
    _tell(told, spending)


@contextmanager
def _saying_what_was_released(journal: "Journal", agreement: "Agreement") -> Iterator[None]:
    """Add to any error how far the run had come."""
    from sottovoce.federation.site.formats import format_of

    try:
        yield
    except (SottovoceError, OSError) as error:
        last, rounds, spare = journal.last_said(), agreement.algorithm.messages, format_of(agreement).spare
        most = f"{rounds} and {spare} to spare" if spare else f"{rounds}"
        error.add_note(f"Released in this run: {f'rounds 1 to {last} of {most}' if last else 'nothing'}.")
        raise


def _tls(site: str, certificates: Path | None, ca: Path | None, cert: Path | None, tls_key: Path | None) -> "TLSFiles":
    """The files of this site's end of the connection: from one folder, or named one by one."""
    from sottovoce.federation.agreement.certificates import TLSFiles

    if certificates is not None and ca is None and cert is None and tls_key is None:
        return TLSFiles.within(certificates, site)
    if certificates is None and ca is not None and cert is not None and tls_key is not None:
        return TLSFiles(ca, cert, tls_key)
    raise InputError("Expected --certificates FOLDER, or else all of --ca, --cert and --tls-key.")


def _finish(seat: "Seat", server: str, tls: "TLSFiles", watcher: "Watcher", pace: "Pace") -> "Finished":
    """Run the site to its end; an interruption becomes one line that says how to go on."""
    import asyncio  # which takes as long as all commands together

    from sottovoce.cli.output import Stopped

    try:
        return asyncio.run(_run(seat, server, tls, watcher, pace))
    except (KeyboardInterrupt, asyncio.CancelledError):
        raise Stopped(_AGAIN) from None


async def _run(seat: "Seat", server: str, tls: "TLSFiles", watcher: "Watcher", pace: "Pace") -> "Finished":
    """Connect, and take part. A run that does not fit under the cap is refused in any case; if the server can be
    reached, the others are asked about it first.
    """
    import asyncio

    from sottovoce.federation.operator.opening import room_for
    from sottovoce.federation.site.runner import not_asked, run_site
    from sottovoce.federation.site.watchers import tell_away
    from sottovoce.federation.transport.jetstream import JetStreamTransport
    from sottovoce.federation.transport.transport import UnreachableError

    # A request to end the process acts like Ctrl-C. Only the main thread can handle signals.
    task = asyncio.current_task()
    if os.name == "posix" and task is not None and threading.current_thread() is threading.main_thread():
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    a, refused = seat.agreement, seat.refused()
    timeout = pace.server if refused is None else min(pace.server, _ASKING)
    try:
        transport = await JetStreamTransport.connect(
            server, a.run, seat.site, seat.neighbours, room_for(a).size, tls=tls.context(), timeout=timeout,
            told=partial(tell_away, watcher),
        )  # fmt: skip
    except UnreachableError:
        if refused is None:
            raise
        refused.add_note(not_asked(seat.neighbours))
        raise refused from None
    async with transport:
        return await run_site(seat, transport, watcher=watcher, pace=pace)


@contextmanager
def _logging(path: Path | None) -> Iterator[None]:
    """Log to that file. Without one, warnings do not reach the terminal either: the view shows them."""
    from sottovoce.federation.site.log import LogFile

    handler = logging.NullHandler() if path is None else LogFile(path)
    # At the root: what the libraries below have to say goes to the same place.
    root, own = logging.getLogger(), logging.getLogger("sottovoce")
    before = own.level
    root.addHandler(handler)
    own.setLevel(logging.INFO)
    try:
        yield
    finally:
        own.setLevel(before)
        root.removeHandler(handler)
        handler.close()


def _tell(told: "Sequence[Part | str]", spending: "Spending") -> None:
    """Print what was found and where it is, and what these rows have spent."""
    from sottovoce.cli.output import show
    from sottovoce.numerals import exactly, up
    from sottovoce.privacy.observers import against

    show(*told)
    spent = f"epsilon = {up(spending.spent)} at delta = {exactly(spending.cap_delta)}{against(spending.colluding)}"
    left = f"a run of epsilon {spending.left:.3g} at that delta would fit under the cap of {exactly(spending.cap)}"
    print(f"All runs on these rows so far: {spent}; {left}.")
