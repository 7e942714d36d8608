"""Several sites at once, as their logs tell: a table that lives, or a few lines where there is no terminal."""

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import final

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from sottovoce.cli.output import exactly, up
from sottovoce.cli.watch.reading import LogReader
from sottovoce.cli.watch.story import SiteStory
from sottovoce.federation.site.events import say
from sottovoce.privacy.observers import against


@final
class Progress:
    """One site, as far as its log has been read.

    Args:
        log: of the site; it need not be there yet.
        rows: that it holds.
        rounds: that were agreed.
    """

    def __init__(self, log: Path, rows: int, rounds: int) -> None:
        self.rows, self.rounds, self.story = rows, rounds, SiteStory(log.parent.name)
        self._log = LogReader(log)

    def update(self) -> None:
        """Read on, up to the last whole line."""
        for event in self._log.events():
            self.story.take(event)

    def close(self) -> None:
        """Let go of the log."""
        self._log.close()

    @property
    def doing(self) -> str:
        """What the site does now, or what has just happened to it."""
        story = self.story
        if not story.over and story.news and story.news[-1].time == story.last:
            return story.news[-1].words
        late = story.awaited(story.waits_since)
        if story.doing == "waiting":
            return f"waiting for {', '.join(late)}" if late else "listening"
        return story.doing


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
            story = site.story
            bar = ProgressBar(total=site.rounds, completed=story.round, width=30)
            spent = ""
            if story.spent is not None and story.cap is not None:
                spent = f"{up(story.spent)} of {exactly(story.cap)}{against(story.colluding)}"
            table.add_row(name, f"{site.rows:,}", f"{story.round}/{site.rounds}", bar, spent, Text(site.doing))
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
        done, rounds = min(site.story.round for site in sites), max(site.rounds for site in sites)
        if 4 * done // rounds > self._told:
            self._told = 4 * done // rounds
            dearest = max((site.story for site in sites), key=lambda story: story.spent or 0.0)
            spent = f"{up(dearest.spent or 0.0)}{against(dearest.colluding)}"
            say(f"round {done}/{rounds} is done at all {len(sites)} sites; epsilon spent so far: {spent}")


@contextmanager
def watching_sites(sites: Mapping[str, Progress], quiet: bool) -> Iterator[Overview]:
    """A view, fit for where it is shown."""
    console = Console(stderr=True, highlight=False)
    with ExitStack() as stack:
        for site in sites.values():
            stack.enter_context(closing(site))
        if quiet:
            yield Overview(sites)
        elif not console.is_terminal:
            yield SiteLines(sites)
        else:
            view = LiveTable(sites)
            with Live(view, console=console, refresh_per_second=8):
                yield view
