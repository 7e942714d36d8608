"""What people see while a site runs, on stderr: a table that is redrawn, or plain lines where there is no terminal.

Both are watchers (`federation.site.watchers`): the run does not depend on them.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from time import monotonic
from typing import TYPE_CHECKING, final

from rich.console import Console
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from sottovoce.federation.site import events
from sottovoce.federation.site.events import RunFacts, SiteEvent, Spending, news
from sottovoce.federation.site.watchers import Reminders, Watcher, say
from sottovoce.numerals import counted, duration, exactly, up
from sottovoce.privacy.observers import against

if TYPE_CHECKING:
    pass

_LATE = 3.0  # seconds after which a neighbour is called late


@contextmanager
def watching_run(quiet: bool) -> Iterator[Watcher]:
    """A watcher that shows the run, fit for where it is shown."""
    console = Console(stderr=True, highlight=False)
    if quiet:
        yield Watcher()
    elif not console.is_terminal:
        yield PlainLines()
    else:
        view = LiveTable()
        with Live(view, console=console, refresh_per_second=4, transient=True):
            yield view


class _Clock:
    """Estimate of the time left, from the rounds of this process."""

    def __init__(self, facts: RunFacts) -> None:
        self._begun, self._first, self._rounds = monotonic(), facts.done, facts.rounds
        self.done = facts.done

    def left(self) -> float | None:
        """Seconds until the end, by the mean so far; None before the first round is done."""
        here = self.done - self._first
        return (monotonic() - self._begun) / here * (self._rounds - self.done) if here else None


@final
class LiveTable(Watcher):
    """Table of where the run is, drawn anew a few times a second."""

    def __init__(self) -> None:
        self._facts: RunFacts | None = None
        self._clock: _Clock | None = None
        self._spending: Spending | None = None
        self._doing = "getting ready"
        self._silent: dict[str, float] = {}
        self._told_at = 0.0
        self._away: tuple[str, float | None] | None = None  # with the time at which it is given up
        self._news: list[str] = []

    def tell(self, event: SiteEvent) -> None:
        match event:
            case events.RunBegan(facts, spending):
                self._facts, self._clock, self._spending = facts, _Clock(facts), spending
            case events.RoundBegan(k):
                self._doing, self._silent = f"computing round {k}", {}
            case events.Published(k, again):
                self._doing = f"round {k} is {'still ' if again else ''}on the server; collecting"
            case events.Waiting(k, silent):
                self._doing, self._silent, self._told_at = f"round {k}: waiting", dict(silent), monotonic()
            case events.ServerSilent():
                self._doing = news(event.name, event.fields())
            case events.ServerAway(reason, left):
                self._away = reason, None if left is None else monotonic() + left
            case events.ServerBack():
                self._away = None
            case events.RoundDone(k, spending, taken):
                self._spending, self._silent = spending, {}
                if self._clock is not None:
                    self._clock.done = k - taken.given_up
            case events.Refused() | events.Noticed() | events.Dropped():
                self._news = [*self._news[-3:], news(event.name, event.fields())]

    def __rich__(self) -> Table:
        table = Table.grid(padding=(0, 2))
        facts, clock, spending = self._facts, self._clock, self._spending
        if facts is None or clock is None or spending is None:
            table.add_row(self._server() or Text(self._doing))
            return table
        left = clock.left()
        table.add_row("site", Text(f"{facts.site}, run {facts.run[:12]}"))
        bar = Table.grid(padding=(0, 1))
        bar.add_row(f"{clock.done}/{facts.rounds}", ProgressBar(total=facts.rounds, completed=clock.done, width=40))
        table.add_row("round", bar)
        table.add_row("time left", "..." if left is None else duration(left))
        table.add_row("now", Text(self._doing))
        if self._away is not None:
            table.add_row("server", self._server())
        more = monotonic() - self._told_at
        late = [f"{name} ({duration(s + more)})" for name, s in self._silent.items() if s >= _LATE]
        table.add_row("late", Text(", ".join(late) or "nobody", style="yellow" if late else ""))
        table.add_row("epsilon", Text(spent(facts, spending)))
        for line in self._news:
            table.add_row("", Text(line, style="yellow"))
        return table

    def _server(self) -> Text | None:
        """Why the server cannot be reached, and the seconds until the site gives up; None if it answers."""
        if self._away is None:
            return None
        reason, until = self._away
        left = None if until is None else max(until - monotonic(), 0.0)
        return Text(news("server away", {"reason": reason, "giving_up_in": left}), style="yellow")


def spent(facts: RunFacts, spending: Spending) -> str:
    """What the rows' ledger has reserved for all runs, and the promise of this run, in words."""
    return (
        f"{up(spending.spent)} of {exactly(spending.cap)} reserved in the ledger, at delta "
        f"{exactly(spending.cap_delta)}{against(spending.colluding)}; this run: "
        f"{exactly(facts.epsilon)} at delta {exactly(facts.delta)}"
    )


def made_again(given_up: int) -> str:
    """How many sums had to be made again, to follow how many were read; "" for none."""
    return f", {given_up} made again" if given_up else ""


@final
class PlainLines(Watcher):
    """Plain lines at the start, at the end, at every tenth of the way, and when something is the matter."""

    def __init__(self) -> None:
        self._facts: RunFacts | None = None
        self._clock: _Clock | None = None
        self._reminders = Reminders(_LATE)

    def tell(self, event: SiteEvent) -> None:
        if not self._reminders.due(event):
            return
        match event:
            case events.RunBegan(facts, spending):
                self._facts, self._clock = facts, _Clock(facts)
                resumed = f", resumed after round {facts.done}" if facts.done else ""
                rounds = f"{counted(facts.rounds, 'round')}{resumed}"
                say(f"{facts.site}: run {facts.run}, {rounds}; epsilon {spent(facts, spending)}")
            case events.Waiting(k, silent):
                say(f"round {k}: waiting for {', '.join(f'{name} ({duration(s)})' for name, s in silent.items())}")
            case (
                events.ServerAway() | events.ServerSilent() | events.ServerBack()
                | events.Refused() | events.Noticed() | events.Dropped()
            ):  # fmt: skip
                say(news(event.name, event.fields()))
            case events.RoundDone():
                self._round_done(event)
            case events.RunFinished(rounds, absent):
                without = f", without {', '.join(absent)}" if absent else ""
                say(f"all {rounds} rounds are done{without}")

    def _round_done(self, event: events.RoundDone) -> None:
        """Say how far the run is, at every tenth of the way."""
        facts, clock, spending, given_up = self._facts, self._clock, event.spending, event.taken.given_up
        if facts is None or clock is None:
            return
        before, clock.done = clock.done, event.round - given_up
        if 10 * clock.done // facts.rounds > 10 * before // facts.rounds:
            left = clock.left()
            rest = "" if left is None else f", {duration(left)} left"
            held = f"{up(spending.spent)} of {exactly(spending.cap)}{against(spending.colluding)}"
            say(f"round {clock.done}/{facts.rounds}{made_again(given_up)}{rest}, epsilon {held}")
