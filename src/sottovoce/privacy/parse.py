"""Events from data: the strict inverse of `Event.to_dict`, safe for data from a stranger.

Every event has exactly its own keys, every value its own type, every tree at most DEEPEST levels, MOST_PARTS parts and
MOST_RELEASES releases in all. Anything else is refused. No name in the data is ever looked up outside this file.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from math import isfinite
from reprlib import Repr
from typing import Any, final

from sottovoce.errors import InputError
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
    Sampling,
    Sequence,
)
from sottovoce.privacy.releases import GaussianObjective, Laplace, NormLaplace, NormLaplaceObjective, PureRelease

DEEPEST = 32  # levels of events within events
MOST_PARTS = 100_000  # events of one tree
MOST_RELEASES = 2**53  # of one tree, all repetitions counted: what a double can still count one by one


def event_from_dict(data: object) -> Event:
    """The event that `to_dict` wrote down.

    Formal guarantees:
        `event_from_dict(event.to_dict()) == event` for every event within the limits above. Anything that `to_dict`
        cannot have written raises InputError, in time linear in the size of what was read before the fault.
    """
    event = _Reader().event(data, 0)
    releases = _releases(event)
    if releases > MOST_RELEASES:
        raise _refusal(f"an event of at most {MOST_RELEASES} releases, all repetitions counted", "releases", releases)
    return event


@final
@dataclass
class _Reader:
    """One pass over one tree. It counts what it has seen."""

    parts: int = field(default=0)

    def event(self, data: object, depth: int) -> Event:
        """One event and all that is in it."""
        self.parts += 1
        if depth >= DEEPEST:
            raise _refusal(f"events nested at most {DEEPEST} deep", "depth", depth + 1)
        if self.parts > MOST_PARTS:
            raise _refusal(f"at most {MOST_PARTS} events in one tree", "events", self.parts)
        kind, values = _tagged(data, "kind", "an event")
        match kind:
            case "Repeated":
                _expect_keys(values, kind, ("times", "event"))
                return Repeated(self.event(values["event"], depth + 1), _whole(values, "times"))
            case "Sequence":
                _expect_keys(values, kind, ("events",))
                return Sequence(tuple(self.event(part, depth + 1) for part in _listed(values, "events")))
            case "RepeatAndSelect":
                _expect_keys(values, kind, ("runs", "event"))
                return RepeatAndSelect(self.event(values["event"], depth + 1), _runs(values["runs"]))
        if kind not in _RELEASES:
            known = sorted([*_RELEASES, "Repeated", "Sequence", "RepeatAndSelect"])
            raise _refusal(f"kind to be one of {', '.join(known)}", "kind", kind)
        return _RELEASES[kind](values, kind)


def _sampled(values: Mapping[str, object], kind: str) -> Event:
    _expect_keys(values, kind, ("sigma", "sampling"))
    return SampledGaussian(_number(values, "sigma"), _sampling(values["sampling"]))


def _sampling(data: object) -> Sampling:
    scheme, values = _tagged(data, "scheme", "a sampling")
    _expect_keys(values, "sampling", ("rows", "batch"))
    if scheme not in ("replacement", "poisson"):
        raise _refusal("scheme to be replacement or poisson", "scheme", scheme)
    rows, batch = _whole(values, "rows"), _whole(values, "batch")
    return Sampling("poisson" if scheme == "poisson" else "replacement", rows, batch)


def _runs(data: object) -> Runs:
    law, values = _tagged(data, "law", "a law of the number of runs")
    match law:
        case "NegativeBinomialRuns":
            _expect_keys(values, law, ("eta", "gamma"))
            return NegativeBinomialRuns(_number(values, "eta"), _number(values, "gamma"))
        case "PoissonRuns":
            _expect_keys(values, law, ("rate",))
            return PoissonRuns(_number(values, "rate"))
    raise _refusal("law to be NegativeBinomialRuns or PoissonRuns", "law", law)


_Field = Callable[[Mapping[str, object], str], Any]


def _plain(made: Callable[..., Event], **fields: _Field) -> Callable[[Mapping[str, object], str], Event]:
    """A reader for an event whose fields hold no other event."""

    def read(values: Mapping[str, object], kind: str) -> Event:
        _expect_keys(values, kind, tuple(fields))
        return made(**{name: value(values, name) for name, value in fields.items()})

    return read


def _tagged(data: object, tag: str, what: str) -> tuple[str, dict[str, object]]:
    """(the tag's value, the other values)."""
    if not isinstance(data, dict):
        raise _refusal(f"{what} to be a dict", "data", data)
    if not isinstance(data.get(tag), str):
        raise _refusal(f'{what} to have a text "{tag}"', tag, data.get(tag))
    return data[tag], {key: value for key, value in data.items() if key != tag}


def _expect_keys(values: Mapping[str, object], kind: str, names: tuple[str, ...]) -> None:
    if set(values) != set(names):
        raise _refusal(f"{kind} to have just the keys {sorted(names)}", "keys", list(values))


def _number(values: Mapping[str, object], name: str) -> float:
    value = values[name]
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise _refusal(f"{name} to be a number", name, value)
    if isinstance(value, int) and abs(value) > 2**53:
        raise _refusal(f"{name} to be a float, or an int of at most 2^53", name, value)
    if not isfinite(value):
        raise _refusal(f"{name} to be finite", name, value)
    return float(value)


def _whole(values: Mapping[str, object], name: str) -> int:
    value = values[name]
    if isinstance(value, bool) or not isinstance(value, int):
        raise _refusal(f"{name} to be an int", name, value)
    if not 0 <= value <= MOST_RELEASES:
        raise _refusal(f"{name} from 0 to {MOST_RELEASES}", name, value)
    return value


def _flag(values: Mapping[str, object], name: str) -> bool:
    value = values[name]
    if not isinstance(value, bool):
        raise _refusal(f"{name} to be true or false", name, value)
    return value


def _listed(values: Mapping[str, object], name: str) -> list[object] | tuple[object, ...]:
    value = values[name]
    if not isinstance(value, list | tuple):
        raise _refusal(f"{name} to be a list", name, value)
    return value


def _releases(event: Event) -> int:
    """How many releases the tree holds, all repetitions counted. A search counts as one run of it."""
    match event:
        case Repeated(event=inner, times=times):
            return times * _releases(inner)
        case Sequence(events=events):
            return sum(map(_releases, events))
        case RepeatAndSelect(event=inner):
            return max(1, _releases(inner))
    return 1


def _refusal(expected: str, name: str, came: object) -> InputError:
    return InputError(f"Expected {expected}, got {name}={_shown(came)}.")


def _shown(value: object) -> str:
    """A short form of anything: a stranger's data may be as long as it likes."""
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) >= 10**40:
        return f"an int of {value.bit_length()} bits"
    short = Repr()
    short.maxdict = short.maxlist = short.maxtuple = 12
    short.maxlevel, short.maxother, short.maxstring = 2, 60, 60
    try:
        return short.repr(value)
    except ValueError:  # an int too long to be written
        return f"a {type(value).__name__} that is too long to show"


_RELEASES: Mapping[str, Callable[[Mapping[str, object], str], Event]] = {
    "NonPrivate": _plain(NonPrivate),
    "Gaussian": _plain(Gaussian, sigma=_number),
    "SampledGaussian": _sampled,
    "PureRelease": _plain(PureRelease, epsilon=_number),
    "Laplace": _plain(Laplace, scale=_number),
    "NormLaplace": _plain(NormLaplace, scale=_number, d=_whole),
    "GaussianObjective": _plain(GaussianObjective, sigma=_number, kappa=_number),
    "NormLaplaceObjective": _plain(NormLaplaceObjective, scale=_number, d=_whole, kappa=_number, one_sided=_flag),
}
