"""`sottovoce account`: epsilon, sigma and steps, any two of which give the third."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, cast

import typer

from sottovoce.cli.options import HelpfulCommand, signature_of, values
from sottovoce.cli.output import print_json
from sottovoce.errors import InputError, expect
from sottovoce.settings import written
from sottovoce.settings.options import option

if TYPE_CHECKING:
    from sottovoce.privacy import Calibration, Event, Sampling, Scheme, Unit
    from sottovoce.privacy.observers import Sight

_ANY_TWO, _BATCH, _HOW = "Any two give the third; all three are checked", "Sampled steps", "How"
_MASKED = "Masked sums: epsilon by number of colluding sites"
_PEOPLE = "People instead of rows"
# Beyond these the number of steps no longer fits a float exactly.
_MOST_SIGMA, _MOST_STEPS = 1e8, 10**15


@dataclass(frozen=True, kw_only=True)
class AccountOptions:
    """Options of `account`; None is an option that was not given. Refuses fewer than two of the three."""

    epsilon: float | None = option(None, _ANY_TWO, "Total budget.")
    sigma: float | None = option(None, _ANY_TWO, "Noise multiplier: standard deviation over one row's sensitivity.")
    steps: int | None = option(None, _ANY_TWO, "Noisy steps in all: rounds times local steps.")
    delta: float | None = option(None, _HOW, "Chance of failure that the guarantee allows for.")
    calibration: str | None = option(None, _HOW, "How sigma is found, when it is not given.")
    rows: int | None = option(None, _BATCH, "Rows of the site that has the fewest.")
    batch_size: int | None = option(None, _BATCH, "Rows of a batch.")
    sampling: str | None = option(None, _BATCH, "How a batch is drawn.")
    rows_per_person: int | None = option(None, _PEOPLE, "Most rows of one person at a site.")
    sites_per_person: int | None = option(None, _PEOPLE, "Most sites at which one person has rows. Default: one.")
    sites: int | None = option(None, _MASKED, "Number of sites.")
    colluding: int | None = option(
        None, _MASKED, "Colluding sites that epsilon and sigma allow for. Default: fewer than half, at least one."
    )
    least_sites: int | None = option(None, _MASKED, "Least number of sites in a sum. Default: all.")

    def __post_init__(self) -> None:
        three = {"epsilon": self.epsilon, "sigma": self.sigma, "steps": self.steps}
        if list(three.values()).count(None) > 1:
            raise InputError(f"Expected two of --epsilon, --sigma, --steps or all, got {_given(three)}. Give another.")
        expect(self.epsilon is None or 0 < self.epsilon < math.inf, "a finite epsilon > 0", epsilon=self.epsilon)
        expect(self.sigma is None or 0 < self.sigma <= _MOST_SIGMA, f"0 < sigma <= {_MOST_SIGMA:g}", sigma=self.sigma)
        expect(self.steps is None or 1 <= self.steps <= _MOST_STEPS, f"1 <= steps <= {_MOST_STEPS}", steps=self.steps)
        if self.calibration is not None and self.sigma is not None:
            raise InputError(
                f"Expected no --calibration where --sigma is given, got calibration={self.calibration!r}. Leave it out."
            )


class PricedSteps(NamedTuple):
    """A run of equal steps and its price. `spent` is what the accountant says of sigma, steps and delta."""

    epsilon: float
    delta: float
    sigma: float
    steps: int
    spent: float
    calibration: str | None
    sampling: "Sampling | None"
    found: str | None  # which of the three was computed; None if all were given
    unit: "Unit"  # what is protected; sigma stays relative to one row
    observers: "tuple[Sight, ...]"  # of masked sums: what holds against how many colluding sites

    @property
    def holds(self) -> bool:
        """True if the steps cost no more than epsilon."""
        return self.spent <= self.epsilon


written(PricedSteps, ..., "holds")


class AccountCommand(HelpfulCommand):
    """The command, whose help shows the defaults of the accountant."""

    def facts(self) -> tuple[Mapping[str, Any], Mapping[str, Sequence[str]]]:
        """Defaults of the private algorithms, and the choices of the library, by option."""
        from sottovoce.algorithms import IPADMM
        from sottovoce.studies.choices import CHOICES

        return {name: getattr(IPADMM, name) for name in ("delta", "calibration", "sampling")}, CHOICES


def account(json: bool = False, **given: str | None) -> int:
    """What a number of noisy steps costs, how much noise a budget needs, or how many steps it allows.

    The guarantee is for one row of one site replaced by any other; for a person's rows with --rows-per-person.

    With all three of epsilon, sigma and steps the exit code says whether the budget holds: 0 yes, 1 no.
    """
    budget = solve(AccountOptions(**values(AccountOptions, given)))
    if json:
        print_json(budget)
    else:
        _show(budget)
    return 0 if budget.holds else 1


_JSON = typer.Option("--json", help="Print one JSON object instead of a table.")
account.__signature__ = signature_of(AccountOptions, json=Annotated[bool, _JSON])  # type: ignore[attr-defined]


def solve(q: AccountOptions) -> PricedSteps:
    """Compute the one of epsilon, sigma and steps that was not given, and what all steps cost."""
    from sottovoce.algorithms import IPADMM
    from sottovoce.privacy import Gaussian, Repeated, SampledGaussian, Unit, sigma_for, steps_for
    from sottovoce.privacy import epsilon as price

    delta = IPADMM.delta if q.delta is None else q.delta
    unit = Unit(q.rows_per_person, 1 if q.sites_per_person is None else q.sites_per_person)
    sampling, calibration, found = _sampling(q), None, None
    if sampling is not None and not unit.single:
        raise InputError(
            f"Expected steps over all rows to protect {unit}, got batch_size={q.batch_size}. Leave it out."
        )
    # By how many rows a person moves a release, and in how many releases of a step they are: those of each site in its
    # own message, or all of them in the one sum.
    moved, seen = unit.changed, unit.sites
    if q.sites is not None:
        moved, seen = unit.changed * max(1, min(unit.sites, q.sites)), 1  # no site at all is refused below
    epsilon, sigma, steps = q.epsilon, q.sigma, q.steps
    if epsilon is not None and steps is not None and sigma is None:
        calibration, found = cast("Calibration", q.calibration or IPADMM.calibration), "sigma"
        sigma = moved * sigma_for(epsilon, delta, seen * steps, calibration, sampling)
    elif epsilon is not None and sigma is not None and steps is None:
        found, steps = "steps", steps_for(epsilon, delta, sigma / moved, sampling) // seen
    assert sigma is not None
    assert steps is not None
    each = Gaussian(sigma / moved) if sampling is None else SampledGaussian(sigma / moved, sampling)
    event = Repeated(each, seen * steps)
    spent = price(event, delta)
    if epsilon is None:
        found, epsilon = "epsilon", spent
    lines = _observers(q, event, delta)
    return PricedSteps(epsilon, delta, sigma, steps, spent, calibration, sampling, found, unit, lines)


def _sampling(q: AccountOptions) -> "Sampling | None":
    from sottovoce.algorithms import IPADMM
    from sottovoce.privacy import Sampling

    if q.rows is not None and q.batch_size is not None:
        return Sampling(cast("Scheme", q.sampling or IPADMM.sampling), q.rows, q.batch_size)
    came = {"rows": q.rows, "batch-size": q.batch_size, "sampling": q.sampling}
    if any(value is not None for value in came.values()):
        raise InputError(
            f"Expected --rows and --batch-size for sampled steps, got {_given(came)}. Give both or neither."
        )
    return None


def _observers(q: AccountOptions, event: "Event", delta: float) -> "tuple[Sight, ...]":
    """Epsilon by the number of colluding sites, for masked sums; empty without --sites."""
    from sottovoce.algorithms import MaskedNewton
    from sottovoce.privacy.observers import MOST_SITES, expect_members, table_of

    own = {"colluding": q.colluding, "least_sites": q.least_sites}
    if q.sites is None:
        if any(value is not None for value in own.values()):
            raise InputError(f"Expected --sites for masked sums, got {_given(own)}. Say how many there are.")
        return ()
    expect(1 <= q.sites <= MOST_SITES, f"1 <= sites <= {MOST_SITES}", sites=q.sites)
    if q.batch_size is not None:
        raise InputError(
            f"Expected sums over all rows with sites={q.sites}, got batch_size={q.batch_size}. Leave it out."
        )
    masked = MaskedNewton(colluding=q.colluding, least_sites=q.least_sites)
    expect_members(q.sites, masked.colluders(q.sites), masked.members(q.sites))
    return table_of(q.sites, event, delta, partial(masked.noise_left, q.sites))


def _given(came: Mapping[str, object]) -> str:
    return ", ".join(f"{name}={value!r}" for name, value in came.items() if value is not None) or "none"


def _show(b: PricedSteps) -> None:
    from sottovoce.cli.output import show
    from sottovoce.document import Table
    from sottovoce.numerals import exactly, up
    from sottovoce.privacy.words import observers

    how = "computed" if b.calibration is None else f"computed, {b.calibration} calibration"
    rows = []
    for name, value in (("epsilon", b.epsilon), ("delta", b.delta), ("sigma", b.sigma), ("steps", b.steps)):
        computed = name == b.found
        # Whole numbers are exact. Others are rounded up where they were computed, and left as they were given.
        text = str(value) if isinstance(value, int) else up(value) if computed else exactly(value)
        rows.append((name, text, how if computed else ""))
    show(Table((), rows), *observers(b.observers))
    if b.unit.people:
        show(f"For {b.unit}. Sigma is relative to what one row moves.")
    if b.sampling is not None:
        show(f"Each step uses {b.sampling.words}.")
    if b.found is None:
        verdict = "Within the budget" if b.holds else "The budget is EXCEEDED"
        show(f"{verdict}: these steps cost epsilon = {up(b.spent)}.")
    elif b.steps == 0:
        show("Not even one step stays within epsilon. Add noise.")
