"""The privacy statement of a model: its guarantee in words and in data.

A statement says what is guaranteed to whom, at which epsilon, and what is not covered. It prices events through
`accounting`, and trusts no number of a stranger's file. Budgets are kept elsewhere: one statement is of one run, or of
several that were seen together.
"""

import json
from dataclasses import dataclass, replace
from itertools import pairwise
from math import exp, inf, isfinite
from typing import TYPE_CHECKING, Any, NamedTuple, final, get_type_hints

from sottovoce import settings
from sottovoce.document import Facts, Folded, Part, Words
from sottovoce.document.shown import Shown
from sottovoce.errors import expect
from sottovoce.privacy.accounting.calibration import Calibration
from sottovoce.privacy.events import Event, Repeated
from sottovoce.privacy.observers import MOST_LINES, NONE, Sight, check_table, seen
from sottovoce.privacy.parsing import event_from_dict
from sottovoce.privacy.unit import ROW, Unit
from sottovoce.settings import check_keys, plain, typed

if TYPE_CHECKING:
    import dp_accounting

LONGEST_TEXT = 10_000  # of a statement from a file
# Of the noise in one line of a table, what is left in the next, if it falls off there. It is sqrt(1/2) or more where
# every two sites share a key.
_STEEP = 0.7
_DERIVED = ("private", "people", "prose")  # written for readers; what they follow from is written, too
# Goes with every figure that was computed from private rows and is no release.
HOLDER_ONLY = "Computed from the rows without noise: for the holder of the rows only; not covered by the guarantee."


@final
@dataclass(frozen=True, repr=False)
class PrivacyStatement(Shown):
    """The guarantee of a run, or of several that were seen together, and its limits.

    Args:
        event: all that happened at one site; to a person's rows, at all sites that they may be at.
        epsilon: its price at `delta`, by the best accountant; inf if there is no guarantee.
        target_epsilon: what each of the `runs` was asked for.
        delta: at which both hold; 0 where a total is a sum of pure epsilons.
        calibration, sigma: how the noise was set, and its multiplier; None where there was none.
        released: what left the sites, in words.
        unit: what is protected: a row, or a person. Every noise multiplier is relative to what replacing it moves.
        public: what was assumed to be known to all, and is not protected.
        notes: further assumptions and limits.
        runs: how many runs on the same rows were seen.
        observers: against whom it holds: one line if it is the same against everybody, a table if it depends on how
            many sites collude, nothing where the algorithm has not said.
    """

    event: Event
    epsilon: float
    target_epsilon: float
    delta: float
    calibration: Calibration | None
    sigma: float | None
    released: str
    unit: Unit = ROW
    public: tuple[str, ...] = ("the number of rows at each site", "the graph", "all hyper-parameters")
    notes: tuple[str, ...] = ()
    runs: int = 1
    observers: tuple[Sight, ...] = ()

    @property
    def private(self) -> bool:
        """True if there is a guarantee, that is, a finite epsilon."""
        return isfinite(self.epsilon)

    @property
    def promised(self) -> float:
        """The epsilon to quote: what was asked for or, of several runs, what all of them cost together.

        Never less than the cost: a statement from a stranger's file may ask for anything.
        """
        return max(self.target_epsilon, self.epsilon) if self.runs == 1 else self.epsilon

    def of_runs(self, runs: int) -> "PrivacyStatement":
        """The statement of `runs` such runs on the same rows together. All of them were seen, so all of them count."""
        expect(runs >= 1 and self.runs == 1, "the statement of one run, and runs >= 1", runs=runs)
        if runs == 1:
            return self
        event = Repeated(self.event, runs)
        released = f"in each of {runs} runs, {self.released}"
        # Where one run promises nothing, several do not either.
        table = tuple(
            replace(line, epsilon=max(seen(event, line.noise, self.delta), line.epsilon)) for line in self.observers
        )
        cost = seen(event, 1.0, self.delta)
        return replace(self, event=event, epsilon=cost, released=released, runs=runs, observers=table)

    def noting(self, *notes: str) -> "PrivacyStatement":
        """The statement with these notes added, each of them once."""
        return replace(self, notes=tuple(dict.fromkeys((*self.notes, *notes))))

    @classmethod
    def from_dict(cls, data: Any) -> "PrivacyStatement":
        """The inverse of `settings.plain`, for data from a stranger.

        Formal guarantees: every field has its type, and the event is priced anew: a statement whose epsilon is below
        what its own event costs is refused. What was not written down at all cannot be noticed here.
        """
        hints = get_type_hints(cls)
        # Files from before several runs were counted, and observers, and people.
        table = {"runs": 1, "observers": [], "people": None, **data} if isinstance(data, dict) else {}
        check_keys(table, [*hints, *_DERIVED], (*hints, *_DERIVED), "a statement")
        apart = ("event", "observers")  # priced anew
        for name in ("epsilon", "target_epsilon"):
            table[name] = inf if table[name] is None else typed(name, table[name], float)
        read = {name: typed(name, table[name], hint, finite=False) for name, hint in hints.items() if name not in apart}
        made = cls(event=event_from_dict(table["event"]), **read)
        lines = typed("observers", table["observers"], tuple[Any, ...])
        expect(len(lines) <= MOST_LINES, f"at most {MOST_LINES} observers", observers=len(lines))
        made = replace(made, observers=tuple(Sight.from_dict(line, made.event, made.delta) for line in lines))
        check_table(made.observers)
        for name in ("epsilon", "target_epsilon", "delta", "sigma"):
            number = getattr(made, name)
            expect(number is None or number >= 0, f"a number {name} >= 0", **{name: number})
        longest = max(map(len, (made.released, *made.public, *made.notes)))
        expect(longest <= LONGEST_TEXT, f"texts of at most {LONGEST_TEXT} characters", longest=longest)
        expect(made.runs >= 1, "runs >= 1", runs=made.runs)
        expect(table["people"] == made.people, f"people = {made.people}, as in its unit", people=table["people"])
        # The one number of a stranger that could mislead is computed anew.
        cost = seen(made.event, 1.0, made.delta)
        honest = made.epsilon >= cost * (1 - 1e-9)
        expect(honest, f"an epsilon of at least {cost:.6g}, which its event costs", epsilon=made.epsilon)
        expect(table["private"] is made.private, f"private = {made.private}", private=table["private"])
        return made

    @property
    def people(self) -> dict[str, int] | None:
        """The unit in numbers, for programs; None if single rows are protected."""
        return {"rows": self.unit.changed, "sites": self.unit.sites} if self.unit.people else None

    @property
    def protected(self) -> str:
        """Who is protected, in words: every single row, or every person."""
        return self._words.protected

    @property
    def not_covered(self) -> tuple[str, ...]:
        """What the guarantee does not cover, in words."""
        return (
            "other releases from the same rows, whose costs add to this one",
            "hyper-parameters tuned or data prepared by looking at the private rows",
            self._words.behind,
            "how long a run takes and when its messages are sent, which may depend on the rows",
            "the gap between the ideal noise of the proof and the floating-point noise of a simulation",
        )

    @property
    def _words(self) -> "_Words":
        return _OF_PEOPLE if self.unit.people else _OF_ROWS

    def to_json(self) -> str:
        """All of it as strict JSON text. An infinite epsilon is null, since JSON knows no infinity."""
        return json.dumps(plain(self), indent=2, allow_nan=False)

    def dp_event(self) -> "dp_accounting.DpEvent":
        """The event as one of dp-accounting. `Event.dp_event` says how to evaluate it."""
        return self.event.dp_event()

    def described(self) -> list[Part]:
        """Epsilon and delta, who is protected, against whom, and the notes; in HTML, the statement in full, folded."""
        from sottovoce.privacy.words import guarantee, promise

        notes = [Words(f"Note: {note}") for note in self.notes]
        return [Facts(promise(self)), *notes, Folded("In full", guarantee(self))]

    def prose(self) -> str:
        """The statement as one paragraph of plain English; a warning if there is no guarantee."""
        if self.private:
            return " ".join([*self._promise(), *self.notes])
        warning = [
            "NOT PRIVATE. This run gives NO differential privacy guarantee: what was released may reveal any row.",
            f"Released: {self.released}.",
            f"What happened: {self.event.words}.",
            "Treat everything that was released as if it were the private data.",
        ]
        return " ".join([*warning, *self.notes])

    def _promise(self) -> list[str]:
        """Sentences of a private run: what is protected, how well, what was released, and what is not covered."""
        public, words = "; ".join(self.public) or "nothing", self._words
        where = "to a person's rows, at all sites that they may be at" if self.unit.sites > 1 else "at a site"
        asked = "the run" if self.runs == 1 else f"for all {self.runs} runs together, each of which"
        factor = _up(exp(self.epsilon)) if self.epsilon < 700 else "an astronomically large number"
        exception = ", without exception"
        if self.delta != 0:
            chance = f"{self.delta:g}, about one in {1 / self.delta:,.0f}"
            exception = f", up to an additional probability of delta = {chance}"
        return [
            *([assumed] if (assumed := self.assumed) else []),
            f"Protected: {self.protected}. The unit of protection is {self.unit}.",
            f"The guarantee is differential privacy with epsilon = {_up(self.epsilon)} and delta = {self.delta:g}"
            f" ({asked} was asked to stay within epsilon = {self.target_epsilon:g}).",
            "In words: whoever sees everything that was released, and knows all other rows, can hardly tell whether"
            f" {words.truth}. Whatever they may conclude, its probability changes by a factor of at"
            f" most e^epsilon = {factor} through {words.whose}{exception}.",
            *self._against(),
            f"Released: {self.released}.",
            f"What happened {where}: {self.event.words}.",
            f"Assumed public, and not protected: {public}.",
            f"Not covered: {'; '.join(self.not_covered[:-1])}; and {self.not_covered[-1]}.",
        ]

    def _against(self) -> list[str]:
        """A sentence on the observers that the guarantee holds against; none where the algorithm has not said."""
        if not self.observers:
            return []
        if len(self.observers) == 1:
            (line,) = self.observers
            others = "" if line.colluding == 0 else f" and all {line.colluding} other sites together"
            return [f"This holds against whoever carries the messages{others}."]
        prices = [
            f"{'infinite' if line.epsilon == inf else _up(line.epsilon)} with {line.colluding}"
            for line in milestones(self.observers)
        ]
        prices[0] += " colluding sites"
        return [f"Against whoever carries the messages together with sites, epsilon is at most {', '.join(prices)}."]

    @property
    def assumed(self) -> str:
        """How many sites may collude, and what it would cost not to assume that, in a sentence or two; empty if nothing
        is assumed of them.
        """
        if len(self.observers) < 2 or not self.private:
            return ""
        most, last = agreed(self.observers), self.observers[-1]
        if most == last.colluding:
            return (
                f"This holds even if {'the other site colludes' if most == 1 else f'all {most} other sites collude'}."
            )
        who = f"at most {most}" if most else "none"
        return (
            f"This holds if {who} of the {last.colluding + 1} sites collude. Noise of its own at every site needs no "
            f"such assumption, and would be about {1 / last.noise:.2g} times as large."
        )

    def assumption(self) -> str:
        """Against whom the guarantee holds, in a few words for a table; empty if that is unknown."""
        if not self.observers or not self.private:
            return ""
        last = self.observers[-1]
        if len(self.observers) == 1:
            others = f"all {last.colluding} other sites" if last.colluding else "all who do not hold the rows"
            return f"holds against {others}"
        most = agreed(self.observers)
        return f"holds against {most} colluding sites; epsilon {_up(last.epsilon)} against all {last.colluding}"


settings.written(
    PrivacyStatement, "private", "epsilon", "target_epsilon", "delta", "runs", "calibration", "sigma", "unit", "people",
    "released", "public", "notes", "observers", "event", "prose",
)  # fmt: skip


class _Words(NamedTuple):
    """The names of the unit of privacy in the sentences of a statement."""

    protected: str
    truth: str
    whose: str
    behind: str  # who is not covered


_OF_ROWS = _Words(
    "every single row", "a row is the true one or another", "that row", "people who stand behind several rows"
)
_OF_PEOPLE = _Words(
    "every person", "a person's rows are the true ones or others", "that person's rows",
    "people with more rows, or at more sites, than that",
)  # fmt: skip


def agreed(observers: tuple[Sight, ...]) -> int:
    """How many sites may collude at most, for the statement's own epsilon to hold."""
    return max(line.colluding for line in observers if line.noise >= 1)


def milestones(observers: tuple[Sight, ...], most: int = 9) -> tuple[Sight, ...]:
    """About `most` lines of a table, evenly spaced. Among them are the first, the last, the one that was agreed on, and
    the two between which the noise drops at once, if sites can be cut off from a sum.
    """
    last = len(observers) - 1
    kept = {round(j * last / (most - 1)) for j in range(most)}
    falls = [after.noise / before.noise for before, after in pairwise(observers)]
    if falls and min(falls) < _STEEP:
        kept |= {falls.index(min(falls)), falls.index(min(falls)) + 1}
    return tuple(line for k, line in enumerate(observers) if k in kept or line.noise == 1)


def _up(value: float) -> str:
    """A number with four significant digits, never rounded down, since a promise may not be understated; a word if it
    is infinite.
    """
    if value == inf:
        return NONE
    text = f"{value:.4g}"
    fourth = int(f"{value:.3e}".split("e")[1]) - 3  # the power of ten of the fourth significant digit
    return text if float(text) >= value else f"{value + 0.5 * 10**fourth:.4g}"
