"""What happens at a site while it runs, told to whoever watches: a terminal, a log, a test.

Nothing told here is read off a row, but with its noise as others see it too. It is the clock, the public numbers of the
run, and what was said. Watchers only watch: none of them may change what the site does, and a watcher that fails must
not stop it.

Every happening is a small class, a `SiteEvent`. Its name and its fields are its line in the log.
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
        """All of them, those within them too; without those that have their default value."""
        flat: dict[str, object] = {}
        for field in fields_of(self):
            value = getattr(self, field.name)
            if value != field.default:
                flat |= value.fields() if isinstance(value, LogFields) else {field.name: value}
        return flat


@final
@dataclass(frozen=True)
class Facts(LogFields):
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
class Spending(LogFields):
    """The ledger of the rows, all runs together: epsilon spent, the cap, and what is left, all at delta."""

    spent: float
    left: float  # the epsilon of the largest run that would still fit; costs do not simply add up
    cap: float
    cap_delta: float  # at which all hold
    colluding: int | None = None  # against how many colluding sites they hold; None: against everybody


@final
@dataclass(frozen=True)
class Taken(LogFields):
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
    given_up: int


MASKED, OWN_NOISE = "masked sums", "own noise"


# -- the events -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class SiteEvent(LogFields):
    """Something that happened at a site."""

    level: ClassVar[int] = logging.INFO  # in the log

    @property
    def name(self) -> str:
        """What happened, in small letters: "round done" for `RoundDone`, "finished" for `RunFinished`."""
        return re.sub(r"\B([A-Z])", r" \1", type(self).__name__.removeprefix("Run")).lower()


@final
@dataclass(frozen=True)
class RunBegan(SiteEvent):
    """Everything was checked; the first round is next."""

    facts: Facts
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
    """Neighbours whose message is missing, with the seconds for which each has been silent. Told now and then."""

    round: int
    silent: Mapping[str, float]

    def fields(self) -> dict[str, object]:
        return {"round": self.round, "silent": {name: round(s, 3) for name, s in self.silent.items()}}


@final
@dataclass(frozen=True)
class ServerSilent(SiteEvent):
    """The message server has not answered the site for so long, in a round."""

    level = logging.WARNING
    seconds: float

    def fields(self) -> dict[str, object]:
        return {"seconds": round(self.seconds, 3)}


@final
@dataclass(frozen=True)
class ServerAway(SiteEvent):
    """What is the matter with the message server, and the seconds until the site gives up, if that is known."""

    level = logging.WARNING
    reason: str
    giving_up_in: float | None

    def fields(self) -> dict[str, object]:
        left = self.giving_up_in
        return {"reason": self.reason, "giving_up_in": None if left is None else round(left, 3)}


@final
@dataclass(frozen=True)
class ServerBack(SiteEvent):
    """The message server answers."""


@final
@dataclass(frozen=True)
class Refused(SiteEvent):
    """A message that claims to be of that sender and round was refused."""

    level = logging.WARNING
    round: int
    sender: str
    reason: str
    explanation: str


@final
@dataclass(frozen=True)
class Noticed(SiteEvent):
    """A neighbour has said something about the run itself."""

    level = logging.WARNING
    sender: str
    text: str


@final
@dataclass(frozen=True)
class Dropped(SiteEvent):
    """From this round on, the run goes on without that neighbour."""

    level = logging.WARNING
    round: int
    neighbour: str


@final
@dataclass(frozen=True)
class RoundDone(SiteEvent):
    """A round was taken in, and is on the disk."""

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
    """The run ends before its time, for a reason that the site has found."""

    level = logging.ERROR
    kind: str  # of the error
    reason: str


@final
@dataclass(frozen=True)
class RunInterrupted(SiteEvent):
    """The run ends before its time, by an interruption or a bug."""

    level = logging.WARNING
    kind: str  # of the error


# What people read of an event, filled in with its fields: the same on a terminal and on the page of `site watch`.
NEWS = {
    "refused": "refused a message of {sender} in round {round}: {reason}",
    "noticed": "{sender} {text}",
    "dropped": "going on without {neighbour} since round {round}",
    "server back": "the message server answers again",
}


def end_by(error: BaseException) -> RunStopped | RunInterrupted:
    """The end of a run by this error. Of a bug only the kind is told, since its words may be anything."""
    kind = type(error).__name__
    return RunStopped(kind, " ".join(str(error).split())) if isinstance(error, SottovoceError) else RunInterrupted(kind)


# -- those who watch --------------------------------------------------------------------------------------------------


class Watcher:
    """Is told; does nothing. Calls of `tell` come from the event loop, so be quick."""

    def tell(self, event: SiteEvent) -> None:
        """Take in what happened."""


@final
class Watchers(Watcher):
    """Tells several watchers, in this order."""

    def __init__(self, *watchers: Watcher) -> None:
        self._watchers = watchers

    def tell(self, event: SiteEvent) -> None:
        for watcher in self._watchers:
            watcher.tell(event)


def tell_away(watcher: Watcher, words: str | None, left: float | None) -> None:
    """Tell what is the matter with the message server, in words; None for words: it answers.

    `left`: seconds until the site gives up, if that is known.
    """
    watcher.tell(ServerBack() if words is None else ServerAway(words, left))


@final
class Reminders:
    """When to say again what lasts: at once, and then ever more rarely, since it may last for days.

    A server that makes up a new reason every time is not mentioned more often: only what comes before the bracket
    counts.

    Args:
        late: seconds of silence after which a neighbour is mentioned.
    """

    def __init__(self, late: float = 0.0) -> None:
        self._late, self._awaited, self._silence = late, 0, late
        self._next: dict[str, tuple[float, float]] = {}

    def due(self, event: SiteEvent) -> bool:
        """True if the event is to be shown now."""
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
    """Writes everything to the logger `sottovoce.site`, each with the name of the event and its fields."""

    def __init__(self) -> None:
        self._reminders = Reminders()

    def tell(self, event: SiteEvent) -> None:
        if self._reminders.due(event):
            LOG.log(event.level, event.name, extra={"fields": event.fields()})


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
        return json.dumps(line | plain(fields) | line, allow_nan=False)


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
