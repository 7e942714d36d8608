"""`intervals`: how wide the confidence intervals of coefficients will be, before anything is spent.

From public numbers alone. The real program of sums is run on made-up rows of the schema (`sottovoce.plan.schema_rows`),
as if there were as many of them as there are, with the noise that the real sums would get: so whatever the program does
with its budget is in the prediction, and there is no second formula for it. Every made-up table assumes something else
of what is not stated, so the predictions of several tables show how much that matters.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from statistics import NormalDist
from typing import NamedTuple, final

import numpy as np

from sottovoce.algorithms.masked import MaskedNewton
from sottovoce.arrays import Bools, Floats
from sottovoce.errors import expect
from sottovoce.files.models.coefficients import per_unit, table_of, units
from sottovoce.files.models.inference import INTERCEPT, LARGEST_LOG, RATIOS
from sottovoce.files.schema import Schema
from sottovoce.files.schema.inference import require_inferable
from sottovoce.plan.schema_rows import SPREADS, table
from sottovoce.plan.synthetic import Belief
from sottovoce.privacy import Unit
from sottovoce.problem import graphs
from sottovoce.problem.answers import Answers
from sottovoce.problem.dataset import Dataset
from sottovoce.problem.losses import Loss, Signs
from sottovoce.problem.sites import Sites
from sottovoce.progress import Progress
from sottovoce.settings import written
from sottovoce.settings.supplied import Supplied
from sottovoce.sums.inference import CRITICAL, Evidence
from sottovoce.sums.program import Opened

TABLES, FEWEST = 8, 2  # made-up tables of a prediction; of wide ones fewer
MOST_FEATURES = 600  # of all tables together
ROWS, LEAST_ROWS, MOST_NUMBERS = 20_000, 2_000, 2e6  # of each table; fewer rows if there are many columns
FIRST = 2000  # the seed of the first, which no other part of the planner takes
TOLD_RATIOS = (1.5, 2.0, 3.0)
HALF = 0.5  # of the tables, in which a coefficient is identified that can be expected to be
POWER = 0.8  # how often a ratio that is there is to be told from 1
TOLD = 1 + NormalDist().inv_cdf(POWER) / CRITICAL  # half-widths of an interval that it then is away from 1
STEP, STEPS, MOST_TIMES = 2.0, 8, 256.0  # of a search: so many times as much, how often, and no more than that
LARGEST_EPSILON = 20.0  # beyond, training asks for more than a number
# What is assumed of labels if nobody says: the share of positives, and what the best model takes off the loss of none.
RATES, EXPLAINED, TURN = (0.03, 0.5), (0.02, 0.4), 0.6180339887498949
COLUMNS = 6  # that take so much off together; each of fewer takes off as much as one of these
OUTER = (0.1, 0.9)  # quantiles over the tables


class Range(NamedTuple):
    """A number of the tables in the middle, and in which range most of them are: the middle 80 %."""

    median: float
    low: float
    high: float


class Need(NamedTuple):
    """What it would take to tell a ratio from 1, at `POWER`."""

    ratio: float
    rows: int | None  # over all sites, at this epsilon; None if not even the most that were tried suffice
    epsilon: float | None  # with these rows; None if not even the largest suffices


@final
@dataclass(frozen=True)
class PredictedWidth:
    """The predicted 95 % interval of one coefficient.

    Args:
        name: of the feature.
        width: of the interval, in the unit of the table of coefficients.
        span: how far the feature goes from its lowest to its highest value, in the same unit: 1 for a level.
        identified: how often the coefficient is identified, over the made-up tables.
        ratio: the smallest odds or rate ratio, from the lowest to the highest value, that is told from 1 at `POWER`.
    """

    name: str
    width: Range
    span: float
    identified: float
    ratio: float

    @property
    def expected(self) -> bool:
        """True if the coefficient is expected to be identified."""
        return self.identified >= HALF

    @property
    def factor(self) -> float:
        """The ratio, from the lowest to the highest value, is known up to this factor: times or over."""
        return math.exp(min(self.span * self.width.median / 2, LARGEST_LOG))


class Case(NamedTuple):
    """What the predictions are of: the run and what is known of its rows."""

    algorithm: MaskedNewton
    schema: Schema
    counts: tuple[int, ...]
    unit: Unit
    belief: Belief


class _Found(NamedTuple):
    """Of every coefficient: the median width over the tables, and in which share of them it is identified."""

    widths: Floats
    identified: Floats


class _Tried(NamedTuple):
    """Of every made-up table and coefficient: (tables, coefficients)."""

    widths: Floats
    identified: Bools

    @property
    def found(self) -> _Found:
        return _Found(np.median(self.widths, axis=0), self.identified.mean(axis=0))


@final
@dataclass(frozen=True, eq=False)
class PredictedIntervals:
    """The predicted intervals of all coefficients. `needs` runs many more predictions when first asked for."""

    lines: tuple[PredictedWidth, ...]  # the intercept last
    family: str  # "logistic" or "poisson"
    rows: int
    epsilon: float
    notes: tuple[str, ...]
    hopeless: bool  # True if in no made-up table any coefficient asked for would tell the largest of `TOLD_RATIOS`
    case: Case = field(repr=False)
    tables: Sequence[Dataset] = field(repr=False)  # on which everything is predicted
    found: _Found = field(repr=False)  # with the rows and epsilon that there are
    progress: Progress | None = field(default=None, repr=False)

    @property
    def coefficients(self) -> tuple[PredictedWidth, ...]:
        """All but the intercept."""
        return tuple(line for line in self.lines if line.name != INTERCEPT)

    @property
    def asked(self) -> tuple[PredictedWidth, ...]:
        """The coefficients that the run is made for: with focus these, else all but the intercept."""
        focus = self.case.algorithm.focus
        return tuple(self.lines[j] for j in focus) if focus else self.coefficients

    def telling(self, ratio: float) -> tuple[PredictedWidth, ...]:
        """Of the coefficients asked for, those that are expected to be identified and to tell this ratio from 1."""
        return tuple(line for line in self.asked if line.expected and line.ratio <= ratio)

    @property
    def summary(self) -> str:
        """Sentences on how much can be expected."""
        kind, (most, *others) = RATIOS[self.family], TOLD_RATIOS[::-1]
        more = "".join(f", of {ratio:g} for {len(self.telling(ratio))}" for ratio in others)
        which = "focused coefficients" if self.case.algorithm.focus else "coefficients"
        return (
            f"Predicted at epsilon {self.epsilon:g} with {self.rows:,} rows: the 95 % interval tells {_a(kind)} of "
            f"{most:g} from 1 for {len(self.telling(most))} of {len(self.asked)} {which}{more}, each in "
            f"{100 * POWER:.0f} % of runs. For a number, the ratio is that of its highest to its lowest value."
        )

    @property
    def nearest(self) -> str:
        """A sentence on what it would take until a coefficient asked for tells the largest of `TOLD_RATIOS` from 1."""
        needs = [self.needs[line.name][-1] for line in self.asked]
        rows = min((need.rows for need in needs if need.rows is not None), default=None)
        epsilon = min((need.epsilon for need in needs if need.epsilon is not None), default=None)
        if rows is None and epsilon is None:
            return f"Neither {MOST_TIMES:g} times the rows nor any epsilon up to {LARGEST_EPSILON:g} would do."
        ways = [] if rows is None else [f"about {rows:,} rows"]
        ways += [] if epsilon is None else [f"epsilon {epsilon:.2g}"]
        return f"Until the first coefficient does, it would take {', or '.join(ways)}."

    @cached_property
    def needs(self) -> Mapping[str, tuple[Need, ...]]:
        """How many rows, or what epsilon, each coefficient would need for each of `TOLD_RATIOS`."""
        case, epsilon = self.case, self.case.algorithm.epsilon

        def of_rows(times: float) -> Case:
            return case._replace(counts=tuple(max(1, round(times * count)) for count in case.counts))

        def of_epsilon(times: float) -> Case:
            return case._replace(algorithm=replace(case.algorithm, epsilon=times * epsilon))

        rows = self._search(of_rows, MOST_TIMES, 0)
        epsilons = self._search(of_epsilon, LARGEST_EPSILON / epsilon, 1) if math.isfinite(epsilon) else {}

        def need(j: int, ratio: float) -> Need:
            enough = _enough(ratio, self.lines[j].span)
            more, larger = _first(rows, j, enough), _first(epsilons, j, enough)
            return Need(
                ratio,
                None if more is None else _rounded_up(more * self.rows),
                None if larger is None else larger * epsilon,
            )

        return {line.name: tuple(need(j, ratio) for ratio in TOLD_RATIOS) for j, line in enumerate(self.lines)}

    def _search(self, changed: Callable[[float], Case], most: float, part: int) -> dict[float, _Found]:
        """What is found for so many times as much, from where no coefficient tells the largest ratio from 1 to where
        all tell the smallest, or to the most.
        """
        own = [line.name != INTERCEPT for line in self.lines]
        spans, found = [line.span for line in self.lines], {1.0: self.found}
        easy, hard = (np.array([_enough(ratio, span) for span in spans])[own] for ratio in TOLD_RATIOS[::-2])

        def widths(times: float) -> Floats:
            if self.progress is not None:
                self.progress(part * 2 * STEPS + len(found), 4 * STEPS)
            if times not in found:
                found[times] = _tried(changed(times), self.tables).found
            one = found[times]
            return np.where(one.identified >= HALF, one.widths, np.inf)[own]

        for k in range(STEPS + 1):
            if STEP**k > most or np.all(widths(STEP**k) <= hard):
                break
        for k in range(STEPS + 1):
            if not np.any(widths(STEP**-k) <= easy):
                break
        return dict(sorted(found.items()))


written(PredictedWidth, ..., "factor")
written(PredictedIntervals, "rows", "epsilon", "family", "hopeless", "lines", "needs", "notes")


def intervals(
    algorithm: MaskedNewton, schema: Schema, counts: Sequence[int], *, unit: Unit | None = None,
    supplied: Supplied | None = None, progress: Progress | None = None,
) -> PredictedIntervals:  # fmt: skip
    """The width that each coefficient's 95 % interval will have, from public numbers only.

    Args:
        algorithm: with inference=True, epsilon and delta. Without rounds, these follow from public numbers as in a run.
        schema: of the rows, with shares of levels where they are known.
        counts: rows of each site.
        unit: what is protected. None: as the schema says, and a person has rows at one site.
        supplied: what is known of the labels; None: what the schema says.
        progress: called with (steps done, steps in all) while `needs` is computed.

    Refused is a schema whose coefficients can have no standard errors.
    """
    expect(algorithm.inference, "an algorithm with inference=True", inference=algorithm.inference)
    expect(len(counts) >= 1 and min(counts) >= 1, "at least one row at every site", counts=list(counts[:10]))
    algorithm.expect_sites(len(counts))
    require_inferable(schema)
    answers = Answers.of(schema)
    loss = answers.loss(None) or algorithm.loss
    said = schema.supplied or Supplied() if supplied is None else supplied
    belief = Belief.of(said, loss)
    case = Case(
        replace(algorithm, loss=loss), schema, tuple(int(m) for m in counts), schema.unit if unit is None else unit,
        belief,
    )  # fmt: skip
    tables = _tables(case)
    tried = _tried(case, tables)
    names, spans = _names(schema), _spans(schema)
    lines = []
    for name, span, widths, known in zip(names, spans, tried.widths.T, tried.identified.T, strict=True):
        low, median, high = (float(x) for x in np.quantile(widths, (OUTER[0], 0.5, OUTER[1])))
        reached = math.exp(min(TOLD * span * median / 2, LARGEST_LOG))
        lines.append(PredictedWidth(name, Range(median, low, high), span, float(known.mean()), reached))
    telling = tried.identified & (tried.widths <= [_enough(TOLD_RATIOS[-1], span) for span in spans])
    own = list(algorithm.focus) or [j for j, name in enumerate(names) if name != INTERCEPT]
    return PredictedIntervals(
        tuple(lines), loss.name, sum(case.counts), case.algorithm.epsilon, _notes(schema, said, loss),
        not telling[:, own].any(), case, tables, tried.found, progress,
    )  # fmt: skip


def _a(kind: str) -> str:
    return f"{'an' if kind[0] in 'aeiou' else 'a'} {kind}"


def _names(schema: Schema) -> tuple[str, ...]:
    """Of the coefficients, as the table has them: an intercept is there also if only the bounds of numbers make it."""
    own = schema.feature_names[:-1] if schema.intercept else schema.feature_names
    return (*own, INTERCEPT) if per_unit(schema, np.eye(schema.d))[1].any() else own


def _spans(schema: Schema) -> list[float]:
    """How far each feature goes from lowest to highest, in the unit of its coefficient; 1 for the intercept."""
    spans = list[float](units(schema).span.tolist())
    return spans + [1.0] * (len(_names(schema)) - len(spans))


def _notes(schema: Schema, said: Supplied, loss: Loss) -> tuple[str, ...]:
    """What the predictions rest on, in words."""
    open_ = [column.name for column in schema.columns if column.levels and column.shares is None]
    numbers = any(not column.levels for column in schema.columns)
    low, high = (100 * end for end in SPREADS)
    found = ["Predicted on made-up tables of this schema. No private row was looked at."]
    if said.words:
        found.append(f"Supplied, not computed from the rows: {said.words}.")
    if said.base_rate is None and isinstance(loss.labels, Signs):
        least, most = (100 * end for end in RATES)
        found.append(
            f"Not stated: how frequent the positive class is. Assumed are {least:g} to {most:g} % (--base-rate)."
        )
    if said.predictability is None:
        least, most = (100 * end for end in _explained(schema))
        found.append(
            f"Not stated: how well the columns predict the label. Assumed is that the best model takes {least:.2g} to "
            f"{most:.2g} % off the loss of no model (--predictability)."
        )
    if open_:
        found.append(
            f"Not stated: how frequent the levels of {', '.join(open_)} are. Assumed is that they are unequal, and "
            "that any of them may be the rarest: hence the ranges. Give shares in the schema, if they are known."
        )
    if numbers:
        found.append(
            f"Assumed is that numbers have a standard deviation of {low:g} to {high:g} % of the width of their bounds."
        )
    if schema.exposure is not None:
        found.append("Assumed is that all rows have the largest exposure: with less, intervals are wider.")
    return tuple(found)


def _explained(schema: Schema) -> tuple[float, float]:
    """How much of the loss of no model the best one may take off if nobody says: less where there are few columns, of
    which one alone would have to separate the labels.
    """
    share = min(1.0, len(schema.columns) / COLUMNS)
    low, high = (1 - (1 - end) ** share for end in EXPLAINED)
    return low, high


def _tables(case: Case) -> list[Dataset]:
    """Made-up tables of the schema."""
    rows = int(np.clip(MOST_NUMBERS / case.schema.d, LEAST_ROWS, ROWS))
    tables = int(np.clip(MOST_FEATURES / case.schema.d, FEWEST, TABLES))
    loss, found = case.algorithm.loss, list[Dataset]()
    for k in range(tables):
        belief = case.belief
        if belief.base_rate is None and isinstance(loss.labels, Signs):
            belief = replace(belief, base_rate=math.exp(float(np.interp((k + 0.5) * TURN % 1, (0, 1), np.log(RATES)))))
        if belief.explained is None and belief.auc is None:
            belief = replace(belief, explained=_explained(case.schema))
        found.append(table(case.schema, rows, loss, seed=FIRST + k, belief=belief))
    return found


def _tried(case: Case, data: Sequence[Dataset]) -> _Tried:
    """One run on each of the tables, with the noise of the real one."""
    answers, schema = Answers.of(case.schema), case.schema
    algorithm = case.algorithm.bound_to(sum(case.counts), schema.d, len(case.counts), case.unit)
    found = [
        table_of(algorithm, released(algorithm, one, case.counts, case.unit, seed), schema, one.names, answers).lines
        for seed, one in enumerate(data)
    ]
    widths = [[math.inf if line.error is None else 2 * CRITICAL * line.error for line in lines] for lines in found]
    return _Tried(np.array(widths), np.array([[line.identified for line in lines] for lines in found]))


def _enough(ratio: float, span: float) -> float:
    """The width of an interval that tells this ratio from 1."""
    return 2 * math.log(ratio) / (TOLD * span)


def _first(found: Mapping[float, _Found], j: int, enough: float) -> float | None:
    """How many times as much it takes until coefficient j is narrow enough, and identified in half of the tables; None
    if what was tried does not do. Between two places it lies on a line, of logarithms and of shares.
    """
    places = [(times, float(one.widths[j]), float(one.identified[j])) for times, one in found.items()]
    at = next((k for k, (_, width, known) in enumerate(places) if width <= enough and known >= HALF), None)
    if at is None:
        return None
    (times, width, known), (before, wider, less) = places[at], places[max(at - 1, 0)]
    way = math.log(wider / enough) / math.log(wider / width) if wider > enough else 0.0
    way = max(way, (HALF - less) / (known - less) if less < HALF else 0.0)
    return float(before * (times / before) ** way)


def _rounded_up(number: float) -> int:
    """To two digits."""
    unit: int = 10 ** max(math.floor(math.log10(number)) - 1, 0)
    return int(math.ceil(number / unit) * unit)


def released(algorithm: MaskedNewton, data: Dataset, counts: Sequence[int], unit: Unit, seed: int) -> Evidence:
    """The evidence of one run on sites of so many rows, all like those of the data."""
    n = len(counts)
    sites = Sites([data.features], [data.labels], data_norm=data.data_norm, clip=True, unit=unit)
    site = replace(algorithm.oracle(sites, graphs.complete(1)), n=n, order=lambda: np.arange(len(data)))
    session = algorithm.begin(n, data.d, data.data_norm, unit)
    held, rng = math.sqrt(n / algorithm.honest(n)), np.random.default_rng(seed)
    for sigma in algorithm.multipliers(n):
        assert session.ask is not None  # the program asks as often as the schedule says
        question = session.ask.question
        rows, had = question.over(counts), question.over([len(data)])
        exact = question.of(site, rows) * (rows / had)
        std = held * (sigma * question.sensitivity(site, rows))
        session.tell(Opened(question, exact + std * rng.normal(size=exact.shape), std, rows))
        if session.answer.evidence:  # what follows evaluates the model
            break
    evidence: Evidence = session.answer.evidence[0]
    return evidence
