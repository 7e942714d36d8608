"""The private evaluation of a model: from its loss and a price to a question, and the answer with its guarantee."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from math import log
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple, TypeAlias, final, get_args

from sottovoce.arrays import Floats
from sottovoce.document import Folded, Part
from sottovoce.document.shown import Shown
from sottovoce.errors import InputError, expect
from sottovoce.privacy import PrivacyStatement
from sottovoce.privacy.words import guarantee
from sottovoce.problem.losses import Logistic, Loss, Reals, WeightedLogistic
from sottovoce.settings import check_keys, plain, read, typed, written
from sottovoce.settings.disk import check_new, writable, write_whole
from sottovoce.tally.bins import FEWEST, MOST, bins_for
from sottovoce.tally.intervals import Interval
from sottovoce.tally.questions import (
    FURTHEST,
    PLACING,
    Answer,
    Numbers,
    ScoreQuestion,
    SeveralClasses,
    TwoClasses,
)
from sottovoce.tally.release import Terms, evaluate

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from sottovoce.drawing.shapes import Span

EvaluationCurve: TypeAlias = Literal["roc", "calibration"]
_CURVES: tuple[EvaluationCurve, ...] = get_args(EvaluationCurve)
FORMAT = "sottovoce-evaluation/1"
_KEYS = ("format", "rows", "classes", "threshold", "model", "answer", "privacy")
FILE = "evaluation.json"  # beside the model
LARGEST_FILE = 2**26  # bytes
COUNTED_ALIKE = "The evaluation counts every row alike, whatever its weight in learning."
PRIVATE = (
    "Computed from noisy sums over the rows: covered by the guarantee that goes with it, and may be shared with it."
)


@final
@dataclass(frozen=True, repr=False)
class PrivateEvaluation(Shown):
    """How good a model is, by noisy sums over rows, and the guarantee of those rows.

    Args:
        rows: N. Public.
        classes: what the model decides among; None where it predicts a number.
        threshold: from which probability on, or score where there is none, the second of two classes is decided for.
        answer: figures and curves with 95 % intervals.
        privacy: the guarantee of the evaluation alone, and that of the model is with the model; where both come from
            one run, that of the run, which counts both.
        model: a digest of the model's weights, so that nobody takes it for another's; None where nobody gave one.
    """

    rows: int
    classes: tuple[str, ...] | None
    threshold: float | None
    answer: Answer
    privacy: PrivacyStatement
    model: str | None = None
    format: ClassVar[str] = FORMAT

    @classmethod
    def from_dict(cls, data: Any) -> "PrivateEvaluation":
        """The inverse of `settings.plain`, for a stranger's data: types are checked, and epsilon is computed again."""
        expect(isinstance(data, dict), "an evaluation as a JSON object", data=type(data).__name__)
        check_keys(data, _KEYS, _KEYS, "a private evaluation")
        expect(data["format"] == FORMAT, f"format {FORMAT!r}", format=data["format"])
        return cls(
            rows=typed("rows", data["rows"], int),
            classes=typed("classes", data["classes"], tuple[str, ...] | None),
            threshold=typed("threshold", data["threshold"], float | None),
            answer=read(Answer, data["answer"], "the answer of an evaluation"),
            privacy=PrivacyStatement.from_dict(data["privacy"]),
            model=typed("model", data["model"], str | None),
        )

    def described(self) -> list[Part]:
        """Figures with their intervals, counts by class, and the price; in HTML, its guarantee in full, folded."""
        from sottovoce.tally.words import described

        return [*described(self), Folded("Its guarantee in full", guarantee(self.privacy))]

    @property
    def curves(self) -> tuple[EvaluationCurve, ...]:
        """The curves that `plot` can draw: both of two classes with probabilities, none of several or of a number."""
        return tuple(name for name in _CURVES if getattr(self.answer, name))

    def plot(self, curve: EvaluationCurve = "roc", *, ax: "Axes | None" = None) -> "Axes":
        """Draw the ROC curve or the calibration, with 95 % intervals, and return matplotlib's axes.

        Args:
            curve: "roc" or "calibration". One that the model does not have is refused.
            ax: the axes to draw on; None makes a figure.
        """
        from sottovoce.drawing import drawn_on

        expect(curve in self.curves, f"a curve among {', '.join(self.curves) or 'none, which this model has'}",
               curve=curve)  # fmt: skip
        with drawn_on(ax, 3.6, 3.6) as axes:
            from sottovoce.drawing import shapes

            if curve == "roc":
                points = sorted(self.answer.roc, key=lambda point: point.threshold, reverse=True)
                rates = [(_span(one.false_positive_rate), _span(one.true_positive_rate)) for one in points]
                known = [(x, y) for x, y in rates if x is not None and y is not None]
                shapes.roc(axes, [x for x, _ in known], [y for _, y in known])
            else:
                groups = [(group.predicted, _span(group.observed)) for group in self.answer.calibration]
                seen = [(predicted, share) for predicted, share in groups if share is not None]
                shapes.calibration(axes, [predicted for predicted, _ in seen], [share for _, share in seen])
        return axes

    def to_bytes(self) -> bytes:
        """The content of its file: equal evaluations have equal bytes."""
        return json.dumps(plain(self), indent=1, allow_nan=False).encode()

    def save(self, path: Path | str) -> None:
        """Write it to a new JSON file, whole or not at all."""
        place = Path(path)
        check_new(place)
        with writable(place):
            write_whole(place, self.to_bytes())

    @classmethod
    def load(cls, path: Path | str) -> "PrivateEvaluation":
        """Read a file that `save` wrote; refuses other content, and more than LARGEST_FILE bytes."""
        place = Path(path)
        try:
            size = place.stat().st_size
            expect(size <= LARGEST_FILE, f"an evaluation of at most {LARGEST_FILE} bytes", size=size)
            data = json.loads(place.read_text(encoding="utf-8"))
        except (OSError, ValueError, RecursionError) as error:
            raise InputError(f"Expected an evaluation in JSON at path={str(place)!r}, got: {error}.") from error
        return cls.from_dict(data)


written(PrivateEvaluation, *_KEYS)


def _span(one: Interval) -> "Span | None":
    """A number with its interval, to be drawn; None where the noise hides it."""
    from sottovoce.drawing.shapes import Span

    return None if one.value is None else Span(one.value, one.low, one.high)


class Tallied(NamedTuple):
    """A question, and the answer that two noisy sums gave."""

    question: ScoreQuestion
    answer: Answer

    def kept(
        self, classes: tuple[str, ...] | None, privacy: PrivacyStatement, *, threshold: float | None = None,
        model: str | None = None,
    ) -> PrivateEvaluation:  # fmt: skip
        """The evaluation with its guarantee. Without a threshold: the one at which the model decides."""
        if isinstance(self.question, TwoClasses) and threshold is None:
            threshold = 0.5 if self.question.odds else 0.0
        return PrivateEvaluation(self.question.rows, classes, threshold, self.answer, privacy, model)


def counting(loss: Loss) -> float:
    """Sensitivity of exchange 2 to one row in l2 norm, for a model of this loss; that of exchange 1 is `PLACING`."""
    if isinstance(loss.labels, Reals):
        return Numbers(1, FEWEST).sensitivity
    return (
        SeveralClasses(1, FEWEST, loss.outputs).sensitivity if loss.outputs > 1 else TwoClasses(1, FEWEST).sensitivity
    )


def question_for(
    loss: Loss, rows: int, terms: Terms, *, reach: float = FURTHEST, centre: float = 0.0,
    threshold: float | None = None, width: float | None = None,
) -> ScoreQuestion:  # fmt: skip
    """The question about a model of this loss, with the noise of `terms`. The other arguments are those of `ask`."""
    noise = terms.std(1, PLACING), terms.std(2, counting(loss))
    return ask(loss, rows, noise, reach=reach, centre=centre, threshold=threshold, width=width)


def ask(
    loss: Loss, rows: int, noise: tuple[float, float], *, reach: float = FURTHEST, centre: float = 0.0,
    threshold: float | None = None, width: float | None = None, most_bins: int = MOST,
) -> ScoreQuestion:  # fmt: skip
    """The question about a model of this loss, from public numbers.

    Args:
        loss: says what the outputs mean.
        rows: N, over all sites.
        noise: the standard deviation in each number of the two sums, which says how many bins it bears.
        reach: of two classes: how far the output is from `centre` at most, where that is known.
        centre: the output where all features are 0. Both are public, as the model is; with wrong ones many rows may
            fall into one narrow cell, and the interval of AUC is then as wide as that leaves it.
        threshold: of two classes: the probability, or the score where there is none, from which on the second is
            decided for. None: where the model decides.
        width: of the label's bounds, where it is a number.
        most_bins: the largest number of bins.
    """
    expect(rows >= 1, "rows to evaluate on, at least one: give a file with rows that have labels", rows=rows)
    several, bins = loss.outputs > 1, min(bins_for(rows, noise[1]), most_bins)
    regression = isinstance(loss.labels, Reals)
    if threshold is not None and (regression or several):
        raise InputError(
            f"Expected a threshold for two classes only, got threshold={threshold:g} for "
            f"{'a number' if regression else 'more than two classes'}. Leave it out."
        )
    if regression:
        expect(width is not None, "the width of the label's bounds in regression", width=width)
        return Numbers(rows, bins, float(width or 0.0), noise[0])
    if several:
        return SeveralClasses(rows, bins, loss.outputs)
    odds = isinstance(loss, Logistic | WeightedLogistic)
    tilt = loss.tilt if isinstance(loss, WeightedLogistic) else 0.0
    called = threshold or 0.0  # the z from which on a row is called positive
    if odds and threshold is not None:
        expect(0 < threshold < 1, "a threshold between 0 and 1, as a probability", threshold=threshold)
        called = log(threshold) - log(1 - threshold) + tilt
    return TwoClasses(
        rows, bins, called, max(reach, 1e-9 * (1 + abs(centre))), odds, noise[1], centre,
        tilt, noise[0],
    )  # fmt: skip


def evaluate_privately(
    loss: Loss, z: Floats, labels: Floats, terms: Terms, *, classes: tuple[str, ...] | None = None,
    reach: float = FURTHEST, centre: float = 0.0, threshold: float | None = None, width: float | None = None,
    charge: Callable[[PrivacyStatement], None] | None = None, learnt: int | None = None,
) -> PrivateEvaluation:  # fmt: skip
    """Evaluate a model's outputs at the price of `terms`. Noise comes from the operating system, never from a seed.

    Args:
        loss: of the model.
        z: (rows, outputs).
        labels: as the loss takes them; of a number, in its own unit, as z.
        terms: the price, and who may collude.
        classes: names of what is decided among, in regression None.
        reach: see `question_for`, as for the next three.
        centre: of the outputs.
        threshold: of two classes.
        width: of the label's bounds.
        charge: called with the statement before anything is computed from the rows; it may refuse.
        learnt: how many rows the model was learnt from, where that is known.

    Formal guarantees: the result is (epsilon, delta)-differentially private, as `terms` says, for one of the rows
    replaced by any other, if the model was fixed before.
    """
    question = question_for(loss, len(labels), terms, reach=reach, centre=centre, threshold=threshold, width=width)
    loss.labels.check(labels)
    if isinstance(loss.labels, Reals):
        z = loss.predict(z).astype(float)  # of counts, z is the logarithm of what is predicted
    answer = evaluate(question, terms, z, labels, charge)
    shown = threshold
    if isinstance(question, TwoClasses) and threshold is None:
        shown = question.shown(question.threshold)
    privacy, rows = terms.statement(), question.rows
    # Numbers of rows are all that is compared. A few rows may be left over when they are dealt out to sites.
    if learnt is not None and abs(learnt - rows) <= rows // 100:
        privacy = privacy.noting(
            f"The model was learnt from {learnt} rows, about as many as the {rows} that it was evaluated on. If they "
            "are the same rows, these figures are too good."
        )
    return Tallied(question, answer).kept(classes, privacy, threshold=shown)
