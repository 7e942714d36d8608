"""Several sites at once, as their logs tell: a table that lives, or a few lines where there is no terminal."""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, final

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from sottovoce.cli.output import exactly, up
from sottovoce.federation.site.events import say
from sottovoce.privacy.observers import against

_LONG = 3.0  # seconds after which a neighbour is called awaited


@final
@dataclass
class Progress:
    """One site, as far as its log has been read. A cap of 0 stands for: not told yet."""

    log: Path
    rows: int
    rounds: int
    round: int = 0
    spent: float = 0.0
    cap: float = 0.0
    colluding: int | None = None
    doing: str = "starting"
    _read: int = field(default=0, repr=False)

    def update(self) -> None:
        """Read on, up to the last whole line."""
        if not self.log.exists():
            return
        with self.log.open("rb") as file:
            file.seek(self._read)
            fresh = file.read()
        # The last line may still be being written.
        whole = fresh[: fresh.rfind(b"\n") + 1]
        self._read += len(whole)
        for line in whole.splitlines():
            self._take(json.loads(line))

    def _take(self, line: Mapping[str, Any]) -> None:
        """One line of the site's log."""
        event = line["event"] if line["logger"] == "sottovoce.site" else ""
        if event in ("began", "round done"):
            self.spent, self.cap, self.colluding = line["spent"], line["cap"], line.get("colluding")
            self.round, self.doing = line.get("round", line.get("done", 0)), "computing"
        elif event == "published":
            self.doing = "listening"
        elif event == "waiting":
            late = [name for name, seconds in line["silent"].items() if seconds >= _LONG]
            self.doing = f"waiting for {', '.join(late)}" if late else "listening"
        elif event == "finished":
            self.doing = "done"
        elif event in ("refused", "dropped", "server silent", "stopped", "interrupted"):
            self.doing = event


class Overview:
    """All sites, shown to nobody. It is told now and then to look again."""

    def __init__(self, sites: Mapping[str, Progress]) -> None:
        self.sites = sites

    def update(self) -> None:
        """Read the logs."""
        for progress in self.sites.values():
            progress.update()


@final
class LiveTable(Overview):
    """All sites as a table, one line each, drawn anew while it is shown."""

    def __rich__(self) -> Table:
        table = Table(box=SIMPLE_HEAD, pad_edge=False)
        for heading in ("site", "rows", "round", "", "epsilon spent", "now"):
            table.add_column(heading, justify="right" if heading in ("rows", "round") else "left", no_wrap=True)
        for name, site in self.sites.items():
            bar = ProgressBar(total=site.rounds, completed=site.round, width=30)
            spent = f"{up(site.spent)} of {exactly(site.cap)}{against(site.colluding)}" if site.cap else ""
            table.add_row(name, f"{site.rows:,}", f"{site.round}/{site.rounds}", bar, spent, Text(site.doing))
        return table


@final
class SiteLines(Overview):
    """One line for every quarter of the way that all sites have gone."""

    def __init__(self, sites: Mapping[str, Progress]) -> None:
        super().__init__(sites)
        self._told = 0

    def update(self) -> None:
        super().update()
        sites = self.sites.values()
        done, rounds = min(site.round for site in sites), max(site.rounds for site in sites)
        if 4 * done // rounds > self._told:
            self._told = 4 * done // rounds
            dearest = max(sites, key=lambda site: site.spent)
            spent = f"{up(dearest.spent)}{against(dearest.colluding)}"
            say(f"round {done}/{rounds} is done at all {len(sites)} sites; epsilon spent so far: {spent}")


@contextmanager
def watching_sites(sites: Mapping[str, Progress], quiet: bool) -> Iterator[Overview]:
    """A view, fit for where it is shown."""
    console = Console(stderr=True, highlight=False)
    if quiet:
        yield Overview(sites)
    elif not console.is_terminal:
        yield SiteLines(sites)
    else:
        view = LiveTable(sites)
        with Live(view, console=console, refresh_per_second=8):
            yield view
