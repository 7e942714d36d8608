"""What happens at a site while it runs, told to whoever watches: a terminal, a log, a test.

Nothing told here is read off a row, but with its noise as others see it too. It is the clock, the public numbers of the
run, and what was said. Watchers only watch: none of them may change what the site does, and a watcher that fails must
not stop it.
"""

import json
import logging
import math
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from time import monotonic
from typing import final

from sottovoce.errors import SottovoceError

LOG = logging.getLogger("sottovoce.site")
_FIRST_PAUSE = 5.0  # seconds


@final
@dataclass(frozen=True)
class Facts:
    """What is known when a run begins or is resumed."""

    run: str
    agreement: str  # its digest
    site: str
    neighbours: tuple[str, ...]
    rounds: int
    done: int  # rounds that were finished before; of masked sums, those that were read
    policy: str
    wait_seconds: float
    epsilon: float  # of this run, as agreed
    delta: float


@final
@dataclass(frozen=True)
class Spending:
    """The ledger of the rows, all runs together: epsilon spent, the cap, and what is left, all at delta."""

    epsilon: float
    cap: float
    delta: float  # at which all hold
    left: float = 0.0  # the epsilon of the largest run that would still fit; costs do not simply add up
    colluding: int | None = None  # against how many colluding sites they hold; None: against everybody


@final
@dataclass(frozen=True)
class Taken:
    """What anybody may know of a round that was taken in: it is made of what was said, and of no row.

    Args:
        way: how this run speaks, `MASKED` or `OWN_NOISE`.
        transcript: digest of all that this site has ever heard, in hexadecimal. Where everyone hears everyone, it is
            the same at all sites.
        heard: digests of the messages of this round, the site's own among them, by sender, in hexadecimal.
        size: the norm of what was opened, noise and all: with masked sums of the gradient of the mean loss over all
            rows, otherwise of the mean of the site's own and its neighbours' models. None where it is neither, as of
            second moments, and where a sum was given up.
        given_up: masked sums that were given up until then. Their rounds read nothing, and do not count among those
            that were agreed.
    """

    way: str
    transcript: str
    heard: Mapping[str, str]
    size: float | None
    given_up: int = 0


MASKED, OWN_NOISE = "masked sums", "own noise"


class Watcher:
    """Is told; does nothing. Override what is of interest. Calls come from the event loop, so be quick."""

    def began(self, facts: Facts, spending: Spending) -> None:
        """Everything was checked; the first round is next."""

    def round_began(self, k: int) -> None:
        """Local work of round k begins."""

    def published(self, k: int, again: bool) -> None:
        """The message of round k is on the server; `again` if it was sent before a crash."""

    def waiting(self, k: int, silent: Mapping[str, float]) -> None:
        """Neighbours whose message is missing, with the seconds for which each has been silent. Told now and then."""

    def server_silent(self, seconds: float) -> None:
        """The message server has not answered for so long."""

    def server_away(self, words: str | None, left: float | None) -> None:
        """What is the matter with the message server, and the seconds until the site gives up, if that is known.

        None for words: it answers again.
        """

    def refused(self, k: int, site: str, reason: str, explanation: str) -> None:
        """A message that claims to be of that site and round was refused."""

    def noticed(self, site: str, text: str) -> None:
        """A neighbour has said something about the run itself."""

    def dropped(self, k: int, site: str) -> None:
        """From round k on, the run goes on without that neighbour."""

    def round_done(self, k: int, spending: Spending, taken: Taken) -> None:
        """Round k was taken in, and is on the disk."""

    def finished(self, rounds: int, absent: Mapping[str, int]) -> None:
        """All rounds are done."""

    def stopped(self, error: BaseException) -> None:
        """The run ends here, before its time."""


@final
class Watchers(Watcher):
    """Tells several watchers, in this order."""

    def __init__(self, *watchers: Watcher) -> None:
        self._watchers = watchers

    def began(self, facts: Facts, spending: Spending) -> None:
        for watcher in self._watchers:
            watcher.began(facts, spending)

    def round_began(self, k: int) -> None:
        for watcher in self._watchers:
            watcher.round_began(k)

    def published(self, k: int, again: bool) -> None:
        for watcher in self._watchers:
            watcher.published(k, again)

    def waiting(self, k: int, silent: Mapping[str, float]) -> None:
        for watcher in self._watchers:
            watcher.waiting(k, silent)

    def server_silent(self, seconds: float) -> None:
        for watcher in self._watchers:
            watcher.server_silent(seconds)

    def server_away(self, words: str | None, left: float | None) -> None:
        for watcher in self._watchers:
            watcher.server_away(words, left)

    def refused(self, k: int, site: str, reason: str, explanation: str) -> None:
        for watcher in self._watchers:
            watcher.refused(k, site, reason, explanation)

    def noticed(self, site: str, text: str) -> None:
        for watcher in self._watchers:
            watcher.noticed(site, text)

    def dropped(self, k: int, site: str) -> None:
        for watcher in self._watchers:
            watcher.dropped(k, site)

    def round_done(self, k: int, spending: Spending, taken: Taken) -> None:
        for watcher in self._watchers:
            watcher.round_done(k, spending, taken)

    def finished(self, rounds: int, absent: Mapping[str, int]) -> None:
        for watcher in self._watchers:
            watcher.finished(rounds, absent)

    def stopped(self, error: BaseException) -> None:
        for watcher in self._watchers:
            watcher.stopped(error)


@final
class ReminderTimer:
    """When to say again that the server is away: at once, and then ever more rarely, since it may last for days.

    A server that makes up a new reason every time is not mentioned more often: only what comes before the bracket
    counts.
    """

    def __init__(self) -> None:
        self._next: dict[str, tuple[float, float]] = {}

    def due(self, words: str) -> bool:
        """Whether to say it now."""
        kind = words.partition(" (")[0]
        at, pause = self._next.get(kind, (0.0, _FIRST_PAUSE))
        if monotonic() < at:
            return False
        self._next[kind] = monotonic() + pause, 2 * pause
        return True

    def over(self) -> bool:
        """It is no longer so: begin anew, and return whether anything was said about it."""
        said = bool(self._next)
        self._next.clear()
        return said


# -- the log ----------------------------------------------------------------------------------------------------------


@final
class LogWatcher(Watcher):
    """Writes everything to the logger `sottovoce.site`, each with the name of the event and its fields."""

    def __init__(self) -> None:
        self._awaited, self._told_next = 0, 0.0
        self._away = ReminderTimer()

    def began(self, facts: Facts, spending: Spending) -> None:
        _log(logging.INFO, "began", **asdict(facts), **_spent(spending))

    def round_began(self, k: int) -> None:
        _log(logging.DEBUG, "round began", round=k)

    def published(self, k: int, again: bool) -> None:
        _log(logging.INFO, "published", round=k, again=again)

    def waiting(self, k: int, silent: Mapping[str, float]) -> None:
        longest = max(silent.values(), default=0.0)
        if k != self._awaited:
            self._awaited, self._told_next = k, 0.0
        if longest >= self._told_next:  # ever more rarely: a wait may last for days
            self._told_next = 2 * longest
            _log(logging.INFO, "waiting", round=k, silent={name: round(s, 3) for name, s in silent.items()})

    def server_silent(self, seconds: float) -> None:
        _log(logging.WARNING, "server silent", seconds=round(seconds, 3))

    def server_away(self, words: str | None, left: float | None) -> None:
        if words is None:
            if self._away.over():
                _log(logging.INFO, "server back")
        elif self._away.due(words):
            _log(logging.WARNING, "server away", reason=words, giving_up_in=None if left is None else round(left, 3))

    def refused(self, k: int, site: str, reason: str, explanation: str) -> None:
        _log(logging.WARNING, "refused", round=k, sender=site, reason=reason, explanation=explanation)

    def noticed(self, site: str, text: str) -> None:
        _log(logging.WARNING, "noticed", sender=site, text=text)

    def dropped(self, k: int, site: str) -> None:
        _log(logging.WARNING, "dropped", round=k, neighbour=site)

    def round_done(self, k: int, spending: Spending, taken: Taken) -> None:
        _log(logging.INFO, "round done", round=k, **_spent(spending), **asdict(taken))

    def finished(self, rounds: int, absent: Mapping[str, int]) -> None:
        _log(logging.INFO, "finished", rounds=rounds, absent=dict(absent))

    def stopped(self, error: BaseException) -> None:
        if isinstance(error, SottovoceError):
            _log(logging.ERROR, "stopped", kind=type(error).__name__, reason=" ".join(str(error).split()))
        else:  # an interruption; of a bug only the kind is told, since its words may be anything
            _log(logging.WARNING, "interrupted", kind=type(error).__name__)


def _spent(spending: Spending) -> dict[str, object]:
    """The ledger's state, as fields of a line."""
    fields: dict[str, object] = {
        "spent": spending.epsilon, "left": spending.left, "cap": spending.cap, "cap_delta": spending.delta,
    }  # fmt: skip
    return fields if spending.colluding is None else fields | {"colluding": spending.colluding}


def _log(level: int, event: str, **fields: object) -> None:
    """One event, with fields that `JsonLines` writes beside it."""
    LOG.log(level, event, extra={"fields": fields})


@final
class JsonLines(logging.Formatter):
    """One JSON object a line: time, level, logger, event, and the event's fields."""

    def format(self, record: logging.LogRecord) -> str:
        """Strict JSON, ASCII only: words from outside cannot end the line or colour the terminal."""
        time = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        line: dict[str, object] = {
            "time": time, "level": record.levelname, "logger": record.name, "event": record.getMessage(),
        }  # fmt: skip
        fields = record.__dict__.get("fields", {})
        found = {key: _finite(value) for key, value in fields.items() if key not in line}
        return json.dumps(line | found, default=str, allow_nan=False)


def _finite(value: object) -> object:
    """The same, with None for numbers that JSON does not know."""
    if isinstance(value, Mapping):
        return {key: _finite(one) for key, one in value.items()}
    return None if isinstance(value, float) and not math.isfinite(value) else value


@final
class LogFile(logging.FileHandler):
    """A log of such lines, added to a file. If it cannot be written, as on a full disk, the run goes on without it."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, encoding="ascii")
        self.setFormatter(JsonLines())
        self._complained = False

    def handleError(self, record: logging.LogRecord) -> None:
        """Say once, on one line, that the log cannot be written; Python would print a traceback for every record."""
        del record
        self._complain(sys.exc_info()[1])

    def close(self) -> None:
        """What is still to be written may not fit either."""
        try:
            super().close()
        except OSError as error:
            self._complain(error)

    def _complain(self, error: BaseException | None) -> None:
        """Tell people once; the run goes on without its log."""
        if not self._complained:
            self._complained = True
            reason = (error.strerror if isinstance(error, OSError) else None) or type(error).__name__
            say(f"cannot write the log {self.baseFilename}: {reason}; going on without it")


def say(text: str) -> None:
    """A line for people. Nothing depends on it: a terminal that is gone, or a full disk behind it, stops nobody."""
    with suppress(OSError, ValueError):
        print(f"sottovoce: {text}", file=sys.stderr, flush=True)
