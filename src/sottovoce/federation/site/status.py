"""The status of a run, in a small file that the site's process keeps up to date for anyone at the site.

A running site holds its ledger and its journal open, so that no other process can read them. `status.json` in the
folder of the run gives the round, the awaited sites and the spending. Nothing in it is read off a row, and nothing
depends on it: it is replaced as a whole and not synced, and a full disk does not stop the run.
"""

import json
import os
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, final

from sottovoce import settings
from sottovoce.errors import InputError
from sottovoce.federation.site import events
from sottovoce.federation.site.events import SiteEvent
from sottovoce.federation.site.watchers import Watcher
from sottovoce.settings import plain
from sottovoce.settings.disk import beside

FILE = "status.json"


@final
@dataclass(frozen=True)
class Status:
    """A run at one site, as it was at `time`.

    Args:
        run, site: ids of the run and the site.
        rounds: number of agreed rounds.
        done: number of rounds that were taken in; with masked sums, of opened sums.
        doing: what the site is doing, in words.
        waiting: the seconds for which each neighbour has been silent whose message of the next round is missing.
        absent: neighbours that the site goes on without, each with the first round without it.
        epsilon: of this run, as agreed, at `delta`.
        delta: as agreed.
        spent, cap: of all runs on these rows, at `cap_delta`; spent is None if no epsilon is large enough.
        left: the epsilon, at `cap_delta`, of the largest run that would still fit.
        cap_delta: of the ledger.
        colluding: number of colluding sites against which `spent` and `left` hold; None: against everybody.
        given_up: number of masked sums that were given up, not counted in `done`.
        process: its process id while it runs; None once it has ended.
        time: when this was written, in UTC.
    """

    run: str
    site: str
    rounds: int
    done: int
    doing: str
    epsilon: float
    delta: float
    spent: float | None
    cap: float
    left: float
    cap_delta: float
    process: int | None
    time: str
    waiting: dict[str, float] = field(default_factory=dict)
    absent: dict[str, int] = field(default_factory=dict)
    colluding: int | None = None
    given_up: int = 0


@final
class StatusFile(Watcher):
    """Keeps the file of one run up to date.

    Args:
        folder: of the run.
    """

    def __init__(self, folder: Path) -> None:
        self._path = folder / FILE
        self._now: Status | None = None

    def tell(self, event: SiteEvent) -> None:
        match event:
            case events.RunBegan(f, spending):
                self._now = Status(
                    run=f.run, site=f.site, rounds=f.rounds, done=f.done, doing="getting ready", epsilon=f.epsilon,
                    delta=f.delta, process=os.getpid(), time="", **asdict(spending),
                )  # fmt: skip
                self._write()
            case events.RoundBegan(k):
                self._write(doing=f"computing round {k}", waiting={})
            case events.Published(k):
                self._write(doing=f"collecting round {k}")
            case events.Waiting(k, silent):
                self._write(doing=f"waiting in round {k}", waiting={name: round(s, 1) for name, s in silent.items()})
            case events.ServerSilent():
                self._write(doing=events.news(event.name, event.fields()))
            case events.Dropped(k, neighbour) if self._now is not None:
                self._write(absent=self._now.absent | {neighbour: k})
            case events.RoundDone(k, spending, taken):
                self._write(done=k - taken.given_up, given_up=taken.given_up, waiting={}, **asdict(spending))
            case events.RunFinished(rounds, absent):
                self._write(done=rounds, doing="finished", waiting={}, absent=dict(absent), process=None)
            case events.RunStopped(reason=why):
                self._write(doing=f"stopped: {why}", process=None)
            case events.RunInterrupted():
                self._write(doing="stopped: interrupted", process=None)

    def _write(self, **changes: Any) -> None:
        """Apply the changes, and replace the file."""
        if self._now is None:
            return
        self._now = replace(self._now, **changes, time=datetime.now(UTC).isoformat(timespec="seconds"))
        unfinished = beside(self._path)
        with suppress(OSError):
            try:
                unfinished.write_text(json.dumps(plain(self._now), allow_nan=False), encoding="utf-8")
                unfinished.replace(self._path)
            finally:
                unfinished.unlink(missing_ok=True)


def read_status(folder: Path) -> Status | None:
    """The status of the run in this folder; None if there is no file yet."""
    place = folder / FILE
    try:
        data = json.loads(place.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except ValueError as error:
        raise InputError(f"Expected the status of a run, got {str(place)!r}, which is none: {error}.") from error
    return settings.read(Status, data, f"the status of a run in {str(place)!r}")


def is_running(status: Status) -> bool:
    """True if the process that wrote the status still exists. One that was killed could not write that it ended."""
    if status.process is None:
        return False
    try:
        os.kill(status.process, 0)  # signal 0 asks, and does nothing
    except ProcessLookupError:
        return False
    except OSError:
        pass
    return True
