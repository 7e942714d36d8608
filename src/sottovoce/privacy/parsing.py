"""Events from data: the strict inverse of `settings.plain`, safe for data from a stranger.

Every event has exactly its own keys, every value its own type, every tree at most DEEPEST levels, MOST_PARTS parts
and MOST_RELEASES releases in all. Anything else is refused. No name in the data is ever looked up outside this file.
"""

from collections.abc import Mapping

from sottovoce import settings
from sottovoce.errors import InputError, expect
from sottovoce.privacy.events import (
    Event,
    Gaussian,
    NegativeBinomialRuns,
    NonPrivate,
    PoissonRuns,
    RepeatAndSelect,
    Repeated,
    Runs,
    SampledGaussian,
    Sequence,
)
from sottovoce.privacy.releases import GaussianObjective, Laplace, NormLaplace, NormLaplaceObjective, PureRelease

DEEPEST = 32  # levels of events within events
MOST_PARTS = 100_000  # events of one tree
MOST_RELEASES = 2**53  # of one tree, all repetitions counted: the largest exact count in a double

_KINDS: tuple[type[Event], ...] = (
    NonPrivate, Gaussian, SampledGaussian, PureRelease, Laplace, NormLaplace, GaussianObjective, NormLaplaceObjective,
    Repeated, Sequence, RepeatAndSelect,
)  # fmt: skip
settings.tagged(Event, "kind", {kind.__name__: kind for kind in _KINDS})
settings.tagged(Runs, "law", {law.__name__: law for law in (NegativeBinomialRuns, PoissonRuns)})


def event_from_dict(data: object) -> Event:
    """The event that `settings.plain` wrote; anything else is refused.

    Formal guarantees:
        `event_from_dict(plain(event)) == event` for every event within the limits above. Anything that `plain` cannot
        have written raises InputError, in time linear in the size of the data.
    """
    _check_size(data)
    event: Event = settings.read(Event, data, "an event", full=True)  # type: ignore[type-abstract]
    releases = _releases(event)
    most = f"an event of at most {MOST_RELEASES} releases, all repetitions counted"
    expect(releases <= MOST_RELEASES, most, releases=releases)
    return event


def _check_size(data: object) -> None:
    """Refuse data that is nested too deep, has too many events or too large a whole number, before it is read."""
    left: list[tuple[str, object, int]] = [("data", data, 0)]
    parts = 0
    while left:
        name, value, depth = left.pop()
        if isinstance(value, Mapping):
            is_event = "kind" in value
            parts, depth = parts + is_event, depth + is_event
            expect(depth <= DEEPEST, f"events nested at most {DEEPEST} deep", depth=depth)
            expect(parts <= MOST_PARTS, f"at most {MOST_PARTS} events in one tree", events=parts)
            left.extend((key, inner, depth) for key, inner in value.items())
        elif isinstance(value, list | tuple):
            left.extend((name, inner, depth) for inner in value)
        elif isinstance(value, int) and abs(value) > MOST_RELEASES:
            came = f"{settings.brief(name)[1:-1]}={settings.brief(value)}"
            raise InputError(f"Expected a float, or an int of at most 2^53, got {came}.")


def _releases(event: Event) -> int:
    """Number of releases in the tree, all repetitions counted. A search counts as one run of it."""
    match event:
        case Repeated(event=inner, times=times):
            return times * _releases(inner)
        case Sequence(events=events):
            return sum(map(_releases, events))
        case RepeatAndSelect(event=inner):
            return max(1, _releases(inner))
    return 1
