"""A table of coefficients with standard errors, in the units of the columns, as a model file keeps it.

All of it is post-processing of what the run released (`sottovoce.sums.inference`): whoever may see the model may
see the table. A coefficient that is not identified at the budget has a wide interval and a word that says so.
"""

import csv
import io
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from typing import TYPE_CHECKING, Any, cast, final

import numpy as np
from scipy import special

from sottovoce.algorithms import PrivateMethod
from sottovoce.algorithms.masked import KINDS
from sottovoce.algorithms.squares import explained
from sottovoce.arrays import Floats
from sottovoce.document import Facts, Part, Table, Words
from sottovoce.document.shown import Shown
from sottovoce.document.text import table_lines, text_of
from sottovoce.errors import UnsupportedError, expect
from sottovoce.problem.losses import PiecewiseExponential
from sottovoce.settings import plain
from sottovoce.sums.inference import CRITICAL, LEVEL, Estimates, Evidence, infer

if TYPE_CHECKING:
    from matplotlib.axes import Axes

ALIKE = 0.99  # least weight of a row from which on all count alike
LARGEST_LOG = 700.0  # of an odds ratio that can be written
NUMBERS = ("estimate", "error", "low", "high", "z", "p", "ratio", "ratio_low", "ratio_high")
INTERCEPT = "intercept"
HAZARDS = PiecewiseExponential.name
RATIOS = {"logistic": "odds ratio", "poisson": "rate ratio", HAZARDS: "hazard ratio"}  # what exp of a coefficient is
_AXES = {name: f"log {ratio}, for one unit of the column" for name, ratio in RATIOS.items()}
_MOST_DRAWN = 25
ERRORS = (
    "Standard errors and intervals cover both the sampling of the rows and the privacy noise. A 95 % interval misses "
    "the true value once in twenty times."
)
TAKEN_AT_ITS_WORD = {
    "logistic": "The model is assumed to be right: where the log-odds are not linear in these columns, standard errors "
    "are somewhat off.",
    "poisson": "The variance of counts is assumed to be proportional to their mean; the factor, the dispersion, was "
    "estimated. Counts above the declared largest one were clipped to it, and coefficients describe clipped counts.",
    HAZARDS: "Hazards are assumed to be proportional, and constant within each bin of the label. Rows are assumed to "
    "be censored for reasons that have nothing to do with their event.",
}
CENTRED_SHARE, UNCENTRED_SHARE = "R^2", "uncentred R^2"
CENTRED = (
    "R^2 is centred: it compares with a prediction of the mean of the labels for every row, of the rows that "
    "were learnt from."
)
UNCENTRED = (
    "R^2 is uncentred: it compares with a prediction of {:g} for every row, since the mean of the labels was not "
    "released without an intercept. The usual R^2, which compares with that mean, is smaller, often by far."
)
_STARTS_AT = "There is no intercept: predictions start from {:g}, the middle of the label's bounds."
_ALIKE = "Residuals are assumed to be independent and {}."
_CUT_OFF = (
    "Labels count within their bounds, and residuals up to several of their standard deviations: beyond, they count as "
    "that."
)
CUT = "Rows longer than data_norm were scaled down to it; the coefficients describe the scaled rows."
LESS = (
    "Rows that differ most from the others count less, {:.2f} times at least, and coefficients are those of the fit "
    "with these weights: the same as without, if the model is right."
)
ASKED_FOR = (
    "The budget went to {}: others have wider intervals than they could have. For what is said of these, rows that "
    "differ most in them count less still, {:.2f} times at least."
)
SEVERAL = (
    "A person may have up to {} rows here, and they may be alike. The sampling part of the standard errors is "
    "therefore {:.3g} times as large as for independent rows."
)
_WIDEST = 36  # of the names in the text
_COLUMNS = ("name", "identified", *NUMBERS)


@final
@dataclass(frozen=True)
class CoefficientLine:
    """One coefficient, or another estimate, with its standard error.

    Args:
        name: of the feature.
        estimate: per unit of its column; None, as all below, if nothing can be said of it.
        error: standard error, of drawing rows and of the privacy noise together.
        low, high: the interval.
        z, p: estimate over error, and how often a coefficient of 0 would look as large or larger.
        ratio, ratio_low, ratio_high: exp of estimate and interval: odds ratios of a logistic model, rate ratios of a
            Poisson model, hazard ratios of times to an event. None where that means nothing, or is too large to write.
        supposed: True if the interval rests on how large coefficients usually are, since noise hides most of what rows
            say of this one.
    """

    name: str
    estimate: float | None = None
    error: float | None = None
    low: float | None = None
    high: float | None = None
    z: float | None = None
    p: float | None = None
    ratio: float | None = None
    ratio_low: float | None = None
    ratio_high: float | None = None
    supposed: bool = False

    def __post_init__(self) -> None:
        numbers = [getattr(self, name) for name in NUMBERS]
        finite = all(x is None or math.isfinite(x) for x in numbers)
        expect(finite, f"finite numbers, or none, of the coefficient {self.name!r}", numbers=numbers)

    @property
    def identified(self) -> bool:
        """True if the privacy budget sufficed for a standard error that rests on the rows alone."""
        return self.estimate is not None and not self.supposed


@final
@dataclass(frozen=True, repr=False)
class Inference(Shown):
    """Estimates and standard errors of all coefficients of one model.

    Args:
        family: "logistic", "linear", "poisson" or "piecewise-exponential": the model that the errors assume.
        rows: number of rows of all sites, N.
        lines: the coefficients, the intercept last.
        figures: what else was inferred, such as R^2.
        budget: what each kind of release took of mu^2; the parts add up to 1.
        level: of the intervals.
        notes: what a reader must know.
    """

    family: str
    rows: int
    lines: tuple[CoefficientLine, ...]
    budget: Mapping[str, float]
    figures: tuple[CoefficientLine, ...] = ()
    level: float = LEVEL
    notes: tuple[str, ...] = field(default=())

    @property
    def unidentified(self) -> tuple[str, ...]:
        """Names of the coefficients that are not identified at the budget."""
        return tuple(line.name for line in self.lines if not line.identified)

    def to_dict(self) -> dict[str, Any]:
        """The fields as plain data for JSON; `settings.read` makes the table again."""
        return cast("dict[str, Any]", plain(self))

    def to_csv(self) -> str:
        """A line for each coefficient, with a heading; empty cells where nothing is known."""
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(_COLUMNS)
        for line in (*self.lines, *self.figures):
            numbers = (getattr(line, name) for name in NUMBERS)
            writer.writerow([line.name, line.identified, *("" if x is None else repr(x) for x in numbers)])
        return text.getvalue()

    def to_frame(self) -> Any:
        """The coefficients as a DataFrame, by name; NaN where nothing is known. Needs pandas."""
        try:
            pd = import_module("pandas")
        except ImportError as error:
            raise UnsupportedError(
                "Expected pandas for a DataFrame, got none installed. Install it, or use to_dict or to_csv."
            ) from error
        table = {name: [getattr(line, name) for line in self.lines] for name in ("identified", *NUMBERS)}
        index = pd.Index([line.name for line in self.lines], name="name")
        numbers = {name: pd.Series(values, index=index, dtype="float64") for name, values in table.items()}
        return pd.DataFrame({**numbers, "identified": pd.Series(table["identified"], index=index, dtype=bool)})

    def __repr__(self) -> str:
        return self.text()

    def plot(self, ax: "Axes | None" = None) -> "Axes":
        """Draw every identified coefficient with its interval, and return matplotlib's axes; the intercept is left out,
        and of many, those with the largest z are drawn. Scales of columns differ: a linear model's coefficients are in
        units of their own standard errors, the others are logarithms of ratios.

        Args:
            ax: the axes to draw on; None makes a figure.
        """
        from sottovoce.drawing import drawn_on

        with drawn_on(ax, 7.2, self.drawn_height) as axes:
            from sottovoce.drawing.shapes import Span, forest

            spans = dict[str, Span]()
            for line in self._drawn():
                unit = 1.0 if self.family in RATIOS else line.error or 1.0
                low, value, high = (float(x or 0.0) / unit for x in (line.low, line.estimate, line.high))
                spans[line.name] = Span(value, low, high)
            forest(axes, list(spans), list(spans.values()))
            axes.set_xlabel(_AXES.get(self.family, "estimate over its standard error"))
        return axes

    @property
    def drawn_height(self) -> float:
        """Height in inches of a figure that has room for what `plot` draws."""
        return 0.3 * max(len(self._drawn()), 1) + 0.9

    def _drawn(self) -> list[CoefficientLine]:
        known = [line for line in self.lines if line.identified and line.name != INTERCEPT]
        return sorted(known, key=lambda line: -abs(line.z or 0.0))[:_MOST_DRAWN]

    def text(self, about: Mapping[str, str] | None = None) -> str:
        """The table as text. `about` adds lines to its heading, such as the label and the guarantee."""
        return "\n".join(_text_lines(self, about or {}))

    def described(self) -> list[Part]:
        """Coefficients with standard errors, which of them are not identified, and notes."""
        ratio = RATIOS.get(self.family)
        tail = (1 - self.level) / 2
        ends = f"[{tail:.3g}", f"{1 - tail:.3g}]"
        headings = ("", "estimate", "std err", "z", "P>|z|", *ends, *(() if ratio is None else (ratio,)))
        rows = [(_marked(line), *_cells(line, ratio is not None)) for line in self.lines if line.estimate is not None]
        blank = () if ratio is None else ("",)
        rows += [(line.name, *_cells(line, ratio=False), *blank) for line in self.figures if line.estimate is not None]
        table = Table(headings, rows, frozenset(range(1, len(headings)))) if rows else Words(_NOTHING)
        wide = tuple(line.name for line in self.lines if line.supposed)
        hidden = tuple(line.name for line in (*self.lines, *self.figures) if line.estimate is None)
        said = [_SUPPOSED.format(", ".join(wide))] if wide else []
        said += [f"Nothing can be said of these at this budget: {', '.join(hidden)}."] if hidden else []
        order = [*KINDS]  # a file does not keep the order of the parts
        dealt = sorted(self.budget.items(), key=lambda part: order.index(part[0]) if part[0] in order else 0)
        parts = ", ".join(f"{100 * share:.3g} % {name}" for name, share in dealt)
        known = len(self.lines) - len(self.unidentified)
        heading = [("Rows", f"{self.rows:,}"), ("Identified", f"{known} of {len(self.lines)}"), ("Budget", parts)]
        return [Facts(heading), table, *map(Words, (*said, *self.notes))]


def tabulate(
    estimates: Estimates, names: tuple[str, ...], family: str, rows: int, budget: Mapping[str, float],
    figures: tuple[CoefficientLine, ...] = (), notes: tuple[str, ...] = (),
) -> Inference:  # fmt: skip
    """The table of these estimates."""
    parts = zip(names, *estimates, strict=True)
    lines = tuple(line_of(name, float(x), float(s), family, supposed=not known) for name, x, s, known in parts)
    return Inference(family, rows, lines, budget, figures, notes=notes)


def inferred(
    algorithm: PrivateMethod, evidence: Evidence, names: tuple[str, ...], contrasts: Floats,
    notes: tuple[str, ...] = (), offset: float = 0.0, constant: float = 0.0, weighed: bool = False,
) -> Inference:  # fmt: skip
    """The table of one run.

    Args:
        algorithm: of the run.
        evidence: of the run.
        names: of the rows of `contrasts`.
        contrasts: turns what was learnt into what is named.
        notes: that end the table.
        offset: a public number, added to the intercept.
        constant: the last feature of every row, of squares; 0 where there is none.
        weighed: True if rows have weights.
    """
    less: tuple[str, ...] = () if evidence.least > ALIKE else (LESS.format(evidence.least),)
    if evidence.focused:
        asked = ", ".join(names[place] for place in getattr(algorithm, "focus", ()))
        less += (ASKED_FOR.format(asked, evidence.least * min(one.least for one in evidence.focused)),)
    found = moved(infer(evidence, contrasts), names, offset)
    if evidence.squares is None:
        family = algorithm.loss.name
        notes = (ERRORS, TAKEN_AT_ITS_WORD[family], *less, *notes)
        return tabulate(found, names, family, evidence.rows, algorithm.split, notes=notes)
    figures, assumed = _explained(evidence, constant, weighed, offset)
    start = (_STARTS_AT.format(offset),) if INTERCEPT not in names and offset else ()
    notes = (ERRORS, *assumed, *start, *less, *notes)
    return tabulate(found, names, "linear", evidence.rows, algorithm.split, figures, notes)


def _explained(
    evidence: Evidence, constant: float, weighed: bool, offset: float
) -> tuple[tuple[CoefficientLine, ...], tuple[str, ...]]:
    """R^2 of least squares, and what it and the errors rest on."""
    if weighed:
        # The error of R^2 depends on how unequal weights are, which was not released.
        return (), (
            _ALIKE.format("of a variance that is one number over the weight of the row; R^2 is not given"),
            _CUT_OFF,
        )
    share = line_of(CENTRED_SHARE if constant else UNCENTRED_SHARE, *explained(evidence, constant))
    return (share,), (_ALIKE.format("of one variance"), _CUT_OFF, CENTRED if constant else UNCENTRED.format(offset))


def moved(found: Estimates, names: tuple[str, ...], offset: float) -> Estimates:
    """The estimates with a public number added to the intercept."""
    return found._replace(values=found.values + np.array([offset if name == INTERCEPT else 0.0 for name in names]))


def of_people(evidence: Evidence) -> tuple[str, ...]:
    """Notes for a table where one person may have several rows."""
    several = evidence.together
    return (SEVERAL.format(several, math.sqrt(several)),) if several > 1 else ()


def line_of(
    name: str, estimate: float, error: float, family: str = "linear", *, supposed: bool = False
) -> CoefficientLine:
    """A line of one number. Nothing is said of one without a finite, positive error."""
    if not (math.isfinite(estimate) and math.isfinite(error) and error > 0):
        return CoefficientLine(name)
    low, high, z = estimate - CRITICAL * error, estimate + CRITICAL * error, estimate / error
    of, least, most = (None if family == "linear" or x > LARGEST_LOG else math.exp(x) for x in (estimate, low, high))
    p = float(2 * special.ndtr(-abs(z)))
    return CoefficientLine(name, estimate, error, low, high, z, p, of, least, most, supposed)


def by_unit(restored: Callable[[Floats], tuple[Floats, Floats]], p: int) -> Floats:
    """The matrix that turns p learnt weights into coefficients per unit and, last, the intercept.

    `restored` does so for weights (p, outputs): the columns of the identity are as good as any.
    """
    coefficients, intercept = restored(np.eye(p))
    return np.vstack([coefficients, intercept])


def told_of(evidence: Evidence, matrix: Floats, names: tuple[str, ...]) -> tuple[Floats, tuple[str, ...]]:
    """What `by_unit` says of the coefficients of this evidence, with their names: all or, of times to an event, all but
    the intercept, in whose place are the hazards of intervals.
    """
    told = len(evidence.point)
    return (matrix[:-1, :told], names[:-1]) if told < matrix.shape[1] else (matrix, names)


# -- text -------------------------------------------------------------------------------------------------------------

_TITLES = {"logistic": "Private logistic regression", "linear": "Private linear regression",
           "poisson": "Private Poisson regression", HAZARDS: "Private proportional hazards"}  # fmt: skip


_NOTHING = "Nothing can be said of any coefficient at this budget. A larger epsilon or more rows would help."
_SUPPOSED = (
    "* Not identified at this budget: {}. Noise hides most of what the rows say of these, so their intervals also "
    "rest on how large coefficients usually are. A larger epsilon or more rows would help."
)


def _text_lines(found: Inference, about: Mapping[str, str]) -> Iterator[str]:
    """The lines of the table as plain text."""
    heading, table, *notes = found.described()
    assert isinstance(heading, Facts)
    lines = table_lines(table, _WIDEST) if isinstance(table, Table) else [_NOTHING]
    wide = max(len(line) for line in lines)
    yield _TITLES.get(found.family, found.family).center(wide).rstrip()
    yield "=" * wide
    yield text_of([Facts([*about.items(), *heading.pairs])])
    yield "=" * wide
    coefficients = sum(line.estimate is not None for line in found.lines)
    for number, line in enumerate(lines):
        if number in (1, coefficients + 1):  # below the headings, and where other figures begin
            yield "-" * wide
        yield line
    yield "=" * wide
    yield text_of(notes)


def _marked(line: CoefficientLine) -> str:
    return f"* {line.name}" if line.supposed else line.name


def _cells(line: CoefficientLine, ratio: bool) -> list[str]:
    z = "" if line.z is None else f"{line.z:.2f}"
    p = "" if line.p is None else f"{line.p:.3f}"
    numbers = [_number(line.estimate), _number(line.error), z, p, _number(line.low), _number(line.high)]
    return [*numbers, *([_number(line.ratio)] if ratio else [])]


def _number(x: float | None) -> str:
    return "" if x is None else f"{x:.4g}"
