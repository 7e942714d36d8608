"""`sottovoce site status`: where the runs of a site stand."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sottovoce.errors import InputError
from sottovoce.settings import plain

if TYPE_CHECKING:
    from sottovoce.federation.site.status import Status


def site_status(
    state: Annotated[Path, typer.Option(help="The --state folder of the site.")],
    run: Annotated[str | None, typer.Option(help="One run only. Default: all of them.", metavar="RUN")] = None,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead of text.")] = False,
) -> None:
    """Where the runs of a site stand: round, who is awaited, what was spent, what is left. The site may be running."""
    from sottovoce.cli.output import print_json
    from sottovoce.federation.site.status import FILE, is_running, read_status

    folders = sorted(path.parent for path in state.glob(f"*/{FILE}") if run in (None, path.parent.name))
    found = [status for folder in folders if (status := read_status(folder)) is not None]
    if not found:
        raise InputError(
            f"Expected the folder of a site that has run, got state={str(state)!r}, run={run!r} without {FILE}. Give "
            "the --state of: sottovoce site run."
        )
    if json:
        print_json({"runs": [plain(status) | {"running": is_running(status)} for status in found]})
    else:
        _show(found)


def _show(runs: "list[Status]") -> None:
    """Print where runs stand."""
    from sottovoce.cli.output import show
    from sottovoce.cli.site.view import made_again
    from sottovoce.document import Table
    from sottovoce.federation.site.status import is_running
    from sottovoce.numerals import duration, exactly, up
    from sottovoce.privacy.observers import against

    for status in runs:
        running = is_running(status)
        doing = status.doing if running or status.process is None else "not running; it ended without a message"
        silent = ", ".join(f"{name} (silent for {duration(s)})" for name, s in status.waiting.items())
        lines = {
            "run": f"{status.run}, site {status.site}",
            "round": f"{status.done} of {status.rounds}{made_again(status.given_up)}",
            "now": f"{doing} ({status.time})",
            "waiting for": (silent if running else "") or "nobody",
            "without": ", ".join(f"{name} since round {k}" for name, k in status.absent.items()) or "nobody",
            "this run": f"epsilon {exactly(status.epsilon)} at delta {exactly(status.delta)}",
            "spent": f"epsilon {'any' if status.spent is None else up(status.spent)} of {exactly(status.cap)} at delta "
            f"{exactly(status.cap_delta)}{against(status.colluding)}, all runs on these rows",
            "left": f"a run of epsilon {status.left:.3g} at delta {exactly(status.cap_delta)} would fit",
        }
        show(Table((), tuple(lines.items())))
