"""Events at a running site.

An event holds times, public numbers of the run and messages as they were sent. Nothing in it comes from a row, except
with its noise, as others see it too. Who is told of events is in `watchers`, their lines in a log are in `log`.

Every kind of event is a small class, a `SiteEvent`. Its name and its fields are its line in the log.
"""

import logging
import re
from collections.abc import Mapping
from dataclasses import dataclass
from dataclasses import fields as fields_of
from typing import Any, ClassVar, final

from sottovoce.errors import SottovoceError
from sottovoce.numerals import duration


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
            in the coordinates in which it was opened; otherwise the mean of the site's own and its neighbours' models.
            None for other sums, such as second moments, and for a sum that was given up.
        given_up: masked sums that were given up until then. Their rounds open nothing, and do not count among the
            agreed ones.
    """

    way: str
    transcript: str
    heard: Mapping[str, str]
    size: float | None
    given_up: int


MASKED, OWN_NOISE = "masked sums", "own noise"


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


_NEWS = {
    "refused": "refused a message of {sender} in round {round}: {reason}",
    "noticed": "{sender} {text}",
    "dropped": "going on without {neighbour} since round {round}",
    "server silent": "the message server has not answered for {seconds}",
    "server away": "{reason}; trying again{until}",
    "server back": "the message server answers again",
}


def news(name: str, fields: Mapping[str, Any]) -> str:
    """What people read of an event of that name with these fields. It is the same on a terminal, in `site status` and
    on the page of `site watch`. That has the fields from a log, where any may be missing.
    """
    seconds, left = fields.get("seconds"), fields.get("giving_up_in")
    shown = {
        "reason": fields.get("reason") or "no reason given",
        "seconds": "some time" if seconds is None else duration(seconds),
        "until": "" if left is None else f", giving up in {round(left)} s",
    }
    return _NEWS[name].format(**{**fields, **shown})


def end_by(error: BaseException) -> RunStopped | RunInterrupted:
    """The event for a run that ends with this error. Of a bug only the class is given: its text may hold anything."""
    kind = type(error).__name__
    return RunStopped(kind, " ".join(str(error).split())) if isinstance(error, SottovoceError) else RunInterrupted(kind)
