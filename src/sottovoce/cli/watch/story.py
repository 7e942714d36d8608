"""The state of sites from the lines of their logs: how far they are, who waits, and what was heard.

Lines are not trusted. A field of the wrong type counts as missing, and words are cut to a length and hold only
printable letters. Only the fields that are named here are kept, and how many of each is bounded.
"""

import math
from collections import Counter, deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, NamedTuple, final

from sottovoce.cli.watch.reading import LoggedEvent
from sottovoce.federation.site.events import MASKED, OWN_NOISE, news

MOST_ROUNDS, MOST_DIGESTS = 20_000, 40_000  # that are remembered of a site, the newest
MOST_NAMES = 1000  # in one line
MOST_NEWS = 50
LATE = 3.0  # seconds after which a neighbour is called awaited
_MOST_WORDS = 400


@final
class PastRound(NamedTuple):
    """A round that was taken in; see `federation.site.events.Taken`."""

    time: float
    transcript: str
    heard: Mapping[str, str]
    size: float | None


@final
class News(NamedTuple):
    """An event that people should know of."""

    time: float
    bad: bool
    words: str


@final
@dataclass
class SiteStory:
    """One site in its last run, as far as its log says. What it does not say is None, or empty.

    Attributes:
        name: of the site; until the log says it, what the file is called.
        begun: True if the log holds the beginning, or a resumption, of this run.
        doing: "starting", "computing", "listening", "waiting", "done", or what stopped it.
        waits: the seconds for which neighbours have been silent, as of `waits_since`.
        last: time of the last line; first: of the first one of this run.
    """

    name: str
    begun: bool = False
    run: str = ""
    agreement: str = ""
    neighbours: tuple[str, ...] = ()
    rounds: int | None = None
    round: int = 0
    policy: str = ""
    epsilon: float | None = None
    delta: float | None = None
    spent: float | None = None
    cap: float | None = None
    cap_delta: float | None = None
    left: float | None = None  # the largest run that would still fit: costs do not just add up
    colluding: int | None = None  # against how many colluding sites this holds; None: against everybody
    way: str = ""
    doing: str = "starting"
    reason: str = ""
    waits: Mapping[str, float] = field(default_factory=dict)
    waits_since: float = 0.0
    absent: tuple[str, ...] = ()
    done: dict[int, PastRound] = field(default_factory=dict)
    news: deque[News] = field(default_factory=lambda: deque(maxlen=MOST_NEWS))
    first: float | None = None
    last: float | None = None
    _digests: int = field(default=0, repr=False)

    @property
    def over(self) -> bool:
        """True if the process of the site has ended."""
        return self.doing in ("done", "stopped", "interrupted")

    def awaited(self, now: float) -> dict[str, float]:
        """Neighbours that it waits for and has for more than a moment, with the seconds; `now` is a time."""
        if self.doing != "waiting":
            return {}
        more = max(now - self.waits_since, 0.0)
        return {name: seconds + more for name, seconds in self.waits.items() if seconds + more >= LATE}

    # -- one line -----------------------------------------------------------------------------------------------------

    def take(self, event: LoggedEvent) -> None:
        """Take in the next line of the log; events of other names are left out."""
        handle = {
            "began": self._began, "published": lambda _: self._turn_to("listening"), "waiting": self._waiting,
            "round done": self._round_done, "finished": self._finished, "stopped": self._stopped,
            "interrupted": self._stopped, "refused": self._report, "noticed": self._report, "dropped": self._report,
            "server silent": self._report, "server away": self._report, "server back": self._report,
        }.get(event.name)  # fmt: skip
        if handle is None:
            return
        self.first = event.time if self.first is None else self.first
        self.last = event.time
        handle(event)

    def _began(self, event: LoggedEvent) -> None:
        fields, run = event.fields, _word(event.fields, "run")
        if run != self.run:
            self.done.clear()
            self.news.clear()
            self._digests, self.way, self.absent, self.first = 0, "", (), event.time
        self.begun, self.run, self.reason = True, run, ""
        self.name = _word(fields, "site") or self.name
        self.agreement, self.policy = _word(fields, "agreement"), _word(fields, "policy")
        neighbours = fields.get("neighbours")
        self.neighbours = tuple(map(clean, neighbours[:MOST_NAMES])) if isinstance(neighbours, list) else ()
        self.rounds, self.round = _whole(fields, "rounds") or None, _whole(fields, "done") or 0
        self.epsilon, self.delta = _finite(fields.get("epsilon")), _finite(fields.get("delta"))
        self._book(fields)
        self._turn_to("computing")

    def _waiting(self, event: LoggedEvent) -> None:
        silent = event.fields.get("silent")
        found = _names(silent, _finite) if isinstance(silent, dict) else {}
        self._turn_to("waiting")
        self.waits, self.waits_since = found, event.time

    def _round_done(self, event: LoggedEvent) -> None:
        fields, k = event.fields, _whole(event.fields, "round")
        if not k:
            return
        self.round = max(k - (_whole(fields, "given_up") or 0), 0)
        self.way = _word(fields, "way") if fields.get("way") in (MASKED, OWN_NOISE) else self.way
        heard = fields.get("heard")
        digests = _names(heard, _digest) if isinstance(heard, dict) else {}
        done = PastRound(event.time, _digest(fields.get("transcript")) or "", digests, _finite(fields.get("size")))
        self._forget(k)
        self.done[k] = done
        self._digests += len(done.heard)
        while len(self.done) > MOST_ROUNDS or self._digests > MOST_DIGESTS:
            self._forget(next(iter(self.done)))  # the oldest one
        self._book(fields)
        self._turn_to("computing")

    def _forget(self, k: int) -> None:
        before = self.done.pop(k, None)
        self._digests -= 0 if before is None else len(before.heard)

    def _finished(self, event: LoggedEvent) -> None:
        absent = event.fields.get("absent")
        self.absent = tuple(clean(name) for name in islice(absent, MOST_NAMES)) if isinstance(absent, dict) else ()
        self._turn_to("done")

    def _stopped(self, event: LoggedEvent) -> None:
        self._turn_to(event.name)
        self.reason = _word(event.fields, "reason") or _word(event.fields, "kind")
        self.news.append(News(event.time, event.name == "stopped", f"{event.name}: {self.reason}"))

    def _report(self, event: LoggedEvent) -> None:
        """Add an event to the news; it changes nothing else."""
        came = event.fields
        fields: dict[str, object] = {key: _word(came, key) for key in ("sender", "text", "neighbour", "reason")}
        fields |= {key: _finite(came.get(key)) for key in ("seconds", "giving_up_in")}
        words = news(event.name, fields | {"round": _whole(came, "round")})
        self.news.append(News(event.time, event.name not in ("noticed", "server back"), words))

    def _book(self, fields: Mapping[str, object]) -> None:
        self.spent, self.cap, self.cap_delta, self.left = (
            _finite(fields.get(key)) for key in ("spent", "cap", "cap_delta", "left")
        )
        self.colluding = _whole(fields, "colluding")

    def _turn_to(self, doing: str) -> None:
        self.doing, self.waits = doing, {}


# -- several sites ----------------------------------------------------------------------------------------------------


@final
class Difference(NamedTuple):
    """A message of which not everyone has heard the same, or "" for the whole transcript: who heard what, by digest."""

    round: int
    sender: str
    heard: Mapping[str, tuple[str, ...]]


@final
class TranscriptComparison(NamedTuple):
    """Comparison of what several sites heard."""

    rounds: int  # in which anything was heard by two of them
    first: int  # of these, as far as they are remembered; 0 for none
    latest: int
    differences: tuple[Difference, ...]


def common_run(stories: Iterable[SiteStory]) -> str:
    """The run that most of them are in; of several the one that comes first; "" without any."""
    runs = Counter(story.run for story in stories if story.run)
    return runs.most_common(1)[0][0] if runs else ""


def compared(stories: Iterable[SiteStory]) -> TranscriptComparison:
    """Differences in what sites heard of one message; with masked sums, also in their transcripts."""
    among = list(stories)
    run, heard = common_run(among), dict[tuple[int, str], dict[str, list[str]]]()
    for story in among:
        if story.run == run:
            for k, done in story.done.items():
                whole = {"": done.transcript} if story.way == MASKED and done.transcript else {}
                for sender, digest in (*done.heard.items(), *whole.items()):
                    heard.setdefault((k, sender), {}).setdefault(digest, []).append(story.name)
    rounds = {k for (k, _), by in heard.items() if sum(map(len, by.values())) > 1}
    differences = tuple(
        Difference(k, sender, {digest: tuple(names) for digest, names in by.items()})
        for (k, sender), by in sorted(heard.items())
        if len(by) > 1
    )
    return TranscriptComparison(len(rounds), min(rounds, default=0), max(rounds, default=0), differences)


# -- fields, not trusted ----------------------------------------------------------------------------------------------


def clean(value: object) -> str:
    """The value if it is text, on one line: printable letters only, at most _MOST_WORDS of them; "" if it is none."""
    text = value if isinstance(value, str) else ""
    shown = "".join(letter if letter.isprintable() else " " for letter in text[:_MOST_WORDS])
    return shown + ("…" if len(text) > _MOST_WORDS else "")


def _word(fields: Mapping[str, object], key: str) -> str:
    return clean(fields.get(key))


def _whole(fields: Mapping[str, object], key: str) -> int | None:
    value = fields.get(key)
    return value if type(value) is int and 0 <= value <= 10**9 else None


def _finite(value: object) -> float | None:
    """The value if it is a finite number >= 0, else None."""
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value <= 1e300:
        return None
    return float(value) if math.isfinite(value) else None


def _digest(value: object) -> str | None:
    """The value if it is sixty-four hexadecimal digits, else None."""
    fits = isinstance(value, str) and len(value) == 64 and set(value) <= set("0123456789abcdef")
    return str(value) if fits else None


def _names(found: Mapping[Any, object], read: Any) -> dict[str, Any]:
    """By name, the values that `read` accepts; the others are left out."""
    pairs = ((clean(name), read(value)) for name, value in islice(found.items(), MOST_NAMES))
    return {name: value for name, value in pairs if value is not None}
