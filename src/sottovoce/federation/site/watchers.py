"""Watchers: who is told of the events of a running site, such as a terminal, a log, a test.

They only watch: they cannot change what the site does, and a watcher that fails must not stop it.
"""

import sys
from contextlib import suppress
from time import monotonic
from typing import final

from sottovoce.federation.site.events import ServerAway, ServerBack, SiteEvent, Waiting

_FIRST_PAUSE = 5.0  # seconds


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


def say(text: str) -> None:
    """Print a line to standard error. A terminal that is gone, or a full disk behind it, is ignored."""
    with suppress(OSError, ValueError):
        print(f"sottovoce: {text}", file=sys.stderr, flush=True)
