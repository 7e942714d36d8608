"""Events at a running site, and the watchers that they are reported to: a terminal, a log, a test.

An event holds times, public numbers of the run and messages as they were sent. Nothing in it comes from a row, except
with its noise, as others see it too. Watchers only watch: they cannot change what the site does, and a watcher that
fails must not stop it.

Every kind of event is a small class, a `SiteEvent`. Its name and its fields are its line in the log.
"""

import json
import logging
import re
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from dataclasses import fields as fields_of
from datetime import UTC, datetime
from pathlib import Path
from time import monotonic
from typing import ClassVar, final

from sottovoce.errors import SottovoceError
from sottovoce.settings import plain

LOG = logging.getLogger("sottovoce.site")
_FIRST_PAUSE = 5.0  # seconds


@dataclass(frozen=True)
class LogFields:
    """Values that the log writes by their names."""

    def fields(self) -> dict[str, object]:
        """All fields by name, nested ones flattened, without those that have their default value."""
        flat: dict[str, object] = {}
        for field in fields_of(self):
            value = getattr(self, field.name)
            if value != field.default:
                flat |= value.fields() if isinstance(value, LogFields) else {field.name: value}
        return flat


@final
@dataclass(frozen=True)
class RunFacts(LogFields):
    """Public numbers of a run, known when it begins or is resumed."""

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
class Spending(LogFields):
    """The ledger of the rows, over all runs: epsilon spent, the cap, and what is left, all at `cap_delta`."""

    spent: float
    left: float  # the epsilon of the largest run that would still fit; costs do not simply add up
    cap: float
    cap_delta: float
    colluding: int | None = None  # number of colluding sites against which they hold; None: against everybody


@final
@dataclass(frozen=True)
class Taken(LogFields):
    """What anybody may know of a finished round. It is computed from messages alone, and from no row.

    Args:
        way: `MASKED` or `OWN_NOISE`.
        transcript: digest of all messages that this site has heard, in hexadecimal. On a complete graph it is the same
            at all sites.
        heard: digests of the messages of this round, the site's own among them, by sender, in hexadecimal.
        size: the norm of what was opened, with its noise: with masked sums the gradient of the mean loss over all rows,
            otherwise the mean of the site's own and its neighbours' models. None for other sums, such as second
            moments, and for a sum that was given up.
        given_up: masked sums that were given up until then. Their rounds open nothing, and do not count among the
            agreed ones.
    """

    way: str
    transcript: str
    heard: Mapping[str, str]
    size: float | None
    given_up: int


MASKED, OWN_NOISE = "masked sums", "own noise"


# -- the events -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class SiteEvent(LogFields):
    """Something that happened at a site."""

    level: ClassVar[int] = logging.INFO  # in the log

    @property
    def name(self) -> str:
        """The event in small letters: "round done" for `RoundDone`, "finished" for `RunFinished`."""
        return re.sub(r"\B([A-Z])", r" \1", type(self).__name__.removeprefix("Run")).lower()


@final
@dataclass(frozen=True)
class RunBegan(SiteEvent):
    """All checks have passed, and the first round is next."""

    facts: RunFacts
    spending: Spending


@final
@dataclass(frozen=True)
class RoundBegan(SiteEvent):
    """Local work of a round begins."""

    level = logging.DEBUG
    round: int


@final
@dataclass(frozen=True)
class Published(SiteEvent):
    """The message of a round is on the server; `again` if it was sent before a crash."""

    round: int
    again: bool


@final
@dataclass(frozen=True)
class Waiting(SiteEvent):
    """Neighbours whose message is missing, with the seconds for which each has been silent. Repeated now and then."""

    round: int
    silent: Mapping[str, float]

    def fields(self) -> dict[str, object]:
        return {"round": self.round, "silent": {name: round(s, 3) for name, s in self.silent.items()}}


@final
@dataclass(frozen=True)
class ServerSilent(SiteEvent):
    """The message server has not answered the site for so many seconds, in a round."""

    level = logging.WARNING
    seconds: float

    def fields(self) -> dict[str, object]:
        return {"seconds": round(self.seconds, 3)}


@final
@dataclass(frozen=True)
class ServerAway(SiteEvent):
    """Why the message server does not answer, and the seconds until the site gives up, if that is known."""

    level = logging.WARNING
    reason: str
    giving_up_in: float | None

    def fields(self) -> dict[str, object]:
        left = self.giving_up_in
        return {"reason": self.reason, "giving_up_in": None if left is None else round(left, 3)}


@final
@dataclass(frozen=True)
class ServerBack(SiteEvent):
    """The message server answers again."""


@final
@dataclass(frozen=True)
class Refused(SiteEvent):
    """A message was refused that claims to come from that sender in that round."""

    level = logging.WARNING
    round: int
    sender: str
    reason: str
    explanation: str


@final
@dataclass(frozen=True)
class Noticed(SiteEvent):
    """A notice of a neighbour about the run itself."""

    level = logging.WARNING
    sender: str
    text: str


@final
@dataclass(frozen=True)
class Dropped(SiteEvent):
    """The run goes on without that neighbour from this round on."""

    level = logging.WARNING
    round: int
    neighbour: str


@final
@dataclass(frozen=True)
class RoundDone(SiteEvent):
    """A round is finished, and the journal has its checkpoint."""

    round: int
    spending: Spending
    taken: Taken


@final
@dataclass(frozen=True)
class RunFinished(SiteEvent):
    """All rounds are done; each absent neighbour with the first round without it."""

    rounds: int
    absent: Mapping[str, int]


@final
@dataclass(frozen=True)
class RunStopped(SiteEvent):
    """The run ends early, for a reason that the site has found."""

    level = logging.ERROR
    kind: str  # class of the error
    reason: str


@final
@dataclass(frozen=True)
class RunInterrupted(SiteEvent):
    """The run ends early, by an interruption or a bug."""

    level = logging.WARNING
    kind: str  # class of the error


# What people read of an event, filled in with its fields: the same on a terminal and on the page of `site watch`.
NEWS = {
    "refused": "refused a message of {sender} in round {round}: {reason}",
    "noticed": "{sender} {text}",
    "dropped": "going on without {neighbour} since round {round}",
    "server back": "the message server answers again",
}


def end_by(error: BaseException) -> RunStopped | RunInterrupted:
    """The event for a run that ends with this error. Of a bug only the class is given: its text may hold anything."""
    kind = type(error).__name__
    return RunStopped(kind, " ".join(str(error).split())) if isinstance(error, SottovoceError) else RunInterrupted(kind)


# -- watchers ---------------------------------------------------------------------------------------------------------


class Watcher:
    """Receives events; this base ignores them. The event loop calls `tell`, so it must return quickly."""

    def tell(self, event: SiteEvent) -> None:
        """Receive one event."""


@final
class Watchers(Watcher):
    """Passes events on to several watchers, in this order."""

    def __init__(self, *watchers: Watcher) -> None:
        self._watchers = watchers

    def tell(self, event: SiteEvent) -> None:
        for watcher in self._watchers:
            watcher.tell(event)


def tell_away(watcher: Watcher, words: str | None, left: float | None) -> None:
    """Report why the message server does not answer, or, with words=None, that it answers again.

    `left`: seconds until the site gives up, if that is known.
    """
    watcher.tell(ServerBack() if words is None else ServerAway(words, left))


@final
class Reminders:
    """Decides which events to show: a lasting condition at once, then ever more rarely, since it may last for days.

    Reasons count as equal if they are so up to the bracket. So a server that gives a new reason every time is not
    mentioned more often.

    Args:
        late: seconds of silence after which a neighbour is mentioned.
    """

    def __init__(self, late: float = 0.0) -> None:
        self._late, self._awaited, self._silence = late, 0, late
        self._next: dict[str, tuple[float, float]] = {}

    def due(self, event: SiteEvent) -> bool:
        """True if the event should be shown now."""
        match event:
            case Waiting(k, silent):
                longest = max(silent.values(), default=0.0)
                if k != self._awaited:
                    self._awaited, self._silence = k, self._late
                if longest < self._silence:
                    return False
                self._silence = 2 * longest
            case ServerAway(reason):
                kind = reason.partition(" (")[0]
                at, pause = self._next.get(kind, (0.0, _FIRST_PAUSE))
                if monotonic() < at:
                    return False
                self._next[kind] = monotonic() + pause, 2 * pause
            case ServerBack():
                said = bool(self._next)
                self._next.clear()
                return said
        return True


# -- the log ----------------------------------------------------------------------------------------------------------


@final
class LogWatcher(Watcher):
    """Writes events to the logger `sottovoce.site`, each with its name and its fields."""

    def __init__(self) -> None:
        self._reminders = Reminders()

    def tell(self, event: SiteEvent) -> None:
        if self._reminders.due(event):
            LOG.log(event.level, event.name, extra={"fields": event.fields()})


@final
class JsonLines(logging.Formatter):
    """Formats a record as one line of JSON: time, level, logger, event, and the event's fields."""

    def format(self, record: logging.LogRecord) -> str:
        """Strict JSON in ASCII, so that text from outside cannot end the line or colour the terminal."""
        time = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        line: dict[str, object] = {
            "time": time, "level": record.levelname, "logger": record.name, "event": record.getMessage(),
        }  # fmt: skip
        fields = record.__dict__.get("fields", {})
        return json.dumps(line | plain(fields) | line, allow_nan=False)


@final
class LogFile(logging.FileHandler):
    """A handler that appends such lines to a file. If it cannot write, as on a full disk, the run goes on."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, encoding="ascii")
        self.setFormatter(JsonLines())
        self._complained = False

    def handleError(self, record: logging.LogRecord) -> None:
        """Print one line, once, that the log cannot be written. Python would print a traceback for every record."""
        del record
        self._complain(sys.exc_info()[1])

    def close(self) -> None:
        """Close the file; what is still buffered may not fit on the disk either."""
        try:
            super().close()
        except OSError as error:
            self._complain(error)

    def _complain(self, error: BaseException | None) -> None:
        """Print the first error; the run goes on without its log."""
        if not self._complained:
            self._complained = True
            reason = (error.strerror if isinstance(error, OSError) else None) or type(error).__name__
            say(f"cannot write the log {self.baseFilename}: {reason}; going on without it")


def say(text: str) -> None:
    """Print a line to standard error. A terminal that is gone, or a full disk behind it, is ignored."""
    with suppress(OSError, ValueError):
        print(f"sottovoce: {text}", file=sys.stderr, flush=True)
