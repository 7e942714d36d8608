"""A model applied to a file: predictions row by row, or how good they are. Predictions work on chunks, so a file may be
larger than memory.
"""

import csv
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from hashlib import sha256
from math import log
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from sottovoce import tally
from sottovoce.arrays import Floats, Ints
from sottovoce.errors import InputError, UnsupportedError, expect
from sottovoce.files.models.model import Model
from sottovoce.files.schema import ClassLabel, NumberLabel, Schema, SurvivalLabel
from sottovoce.files.schema.findings import Count, Finding, Findings, Tally
from sottovoce.files.schema.person import MOST_ROWS
from sottovoce.privacy import PrivacyStatement
from sottovoce.privacy.strength import default_delta
from sottovoce.problem.answers import Answers
from sottovoce.problem.figures import Figures, figures, no_model, rare_class
from sottovoce.problem.losses import Poisson
from sottovoce.settings import written_as
from sottovoce.settings.disk import text_out
from sottovoce.tally import PrivateEvaluation, Terms
from sottovoce.tally.evaluation import COUNTED_ALIKE

if TYPE_CHECKING:
    from sottovoce.files.schema.files import Unknown

ROW, PREDICTION = "row", "prediction"


@dataclass(frozen=True)
class Evaluation:
    """Figures and confusion of a model on labelled rows. All figures count rows by their weights; the confusion, and
    whether a class is rare, by their number. Computed without noise: only for whoever may see the rows.
    """

    rows: int
    figures: Figures
    no_model: Figures  # of a constant answer, computed from these rows
    majority: float | None = None  # accuracy of always answering the most frequent class; None in regression
    confusion: tuple[tuple[int, ...], ...] | None = None  # confusion[true][predicted], classes in the model's order
    positive: str | None = None  # of two classes the one that is looked for
    recall: float | None = None  # share of the positive class that is found; None if there are no such rows, or class
    precision: float | None = None  # share of what is called positive that is; None if nothing is, or no such class
    rare_class: str | None = None  # the class of fewer than one row in ten

    @property
    def worse_than_no_model(self) -> bool:
        """True if a constant prediction has a smaller mean loss."""
        return not self.figures.risk < self.no_model.risk


def _plain(found: Evaluation) -> dict[str, object]:
    """An evaluation as one table, with the figures among the rest."""
    beside = {f.name: getattr(found, f.name) for f in fields(found) if f.name != "figures"}
    return {**asdict(found.figures), **beside, "worse_than_no_model": found.worse_than_no_model}


written_as(Evaluation, _plain)


@dataclass(frozen=True)
class Predicted:
    """Predictions for some rows of a file."""

    rows: Ints  # their numbers in the file
    passed: tuple[list[str], ...]  # columns that were asked to be passed on
    decided: Floats | Ints  # numbers of classes, or predicted values
    probabilities: Floats | None  # of every class, or of no event until each time; None where the loss has none
    unknown: Ints  # numbers of rows with a category that the schema does not list, and has no "other" level for
    findings: Findings  # (rows, columns): what the schema did with cells of predicted rows, or why it drops a row


def predict(
    model: Model, path: Any, passed: Sequence[str] = (), delimiter: str | None = None, unknown: "Unknown" = "refuse",
    without: Sequence[str] = (), at: Sequence[float] = (),
) -> Iterator[Predicted]:  # fmt: skip
    """Predictions for a file, or a table in memory, chunk by chunk, with the columns named in `passed` beside them. Of
    times to an event, `at` are the times until which survival is predicted; none: the ends of all intervals.

    With a category that the schema does not list, and has no "other" level for, the file is refused, the row is skipped
    (`unknown="skip"`), or it is predicted without that column (`unknown="other"`). Columns in `without` are not in the
    file, and count as missing in every row, if the schema says what becomes of that.
    """
    from sottovoce.files.schema import files

    times = times_of(model, at)
    for part in files.encode_features(path, schema_of(model, delimiter), passed, unknown, without):
        probabilities = model.probabilities(part.features) if model.has_probabilities else None
        if times:
            probabilities = model.survival(part.features, times)
        decided = model.decide(part.features, part.exposures)
        yield Predicted(part.rows, part.passed, decided, probabilities, part.unknown, part.findings)


def times_of(model: Model, at: Sequence[float] = ()) -> tuple[float, ...]:
    """The times until which survival is predicted: these, or the ends of all intervals. None for other models, which
    are refused with times.
    """
    if model.timed is None:
        expect(not at, "a model of times to an event with times to predict at", at=list(at))
        return ()
    chosen = tuple(at) or model.timed.ends[1:]
    model.timed.survival(np.zeros((1, model.timed.outputs)), chosen)  # refuses what is out of range
    return chosen


class Written(NamedTuple):
    """How many rows of a file were predicted, which were not, and what the schema did with their cells."""

    rows: int
    dropped: int  # rows with a missing value, where the schema leaves out such rows
    unknown: tuple[int, ...]  # numbers of rows with a category that the schema does not list, skipped or predicted
    found: tuple[Count, ...]  # by column: cells that were clipped, filled in, counted as "other", ...


def write_predictions(
    model: Model, path: Path, out: Path, passed: Sequence[str] = (), delimiter: str | None = None,
    unknown: "Unknown" = "refuse", without: Sequence[str] = (), at: Sequence[float] = (),
) -> Written:  # fmt: skip
    """Predictions as a CSV file, which appears when it is complete.

    A row that the schema drops, or that is skipped, has no line. The first column is the number of the row in the file,
    then come those in `passed` as they are. Beside predictions, nothing of the rows is in that file.
    """
    columns = schema_of(model).columns  # refuses before anything is opened
    probable = model.classes if model.has_probabilities and model.classes is not None else ()
    further = [*(f"probability {name}" for name in probable), *(f"survival {t:g}" for t in times_of(model, at))]
    heading = [ROW, *passed, PREDICTION, *further]
    alone = len(set(heading)) == len(heading)
    expect(alone, f"columns to pass on, each once, that are not called {ROW} or {PREDICTION}", passed=list(passed))
    written, dropped, strange, tally = 0, 0, list[int](), Tally(0)
    with text_out(out) as file:
        lines = csv.writer(file)
        lines.writerow(heading)
        for chunk in predict(model, path, passed, delimiter, unknown, without, at):
            decided = chunk.decided
            said = decided.tolist() if model.classes is None else [model.classes[int(number)] for number in decided]
            parts = [[]] * len(said) if chunk.probabilities is None else np.round(chunk.probabilities, 6).tolist()
            beside = zip(*chunk.passed, strict=True) if chunk.passed else [()] * len(said)
            together = zip(chunk.rows.tolist(), beside, said, parts, strict=True)
            lines.writerows([row, *own, answer, *part] for row, own, answer, part in together)
            written, dropped = written + len(said), dropped + int((chunk.findings == Finding.DROPPED).any(axis=1).sum())
            strange += chunk.unknown.tolist()
            for column, findings in zip(columns, chunk.findings.T, strict=True):
                tally.count(column.name, findings)
    return Written(written, dropped, tuple(strange), tally.report(written, written, ()).counts)


def evaluate(model: Model, path: Any, delimiter: str | None = None) -> Evaluation:
    """Figures and confusion on a labelled file, or a table in memory."""
    from sottovoce.files.schema import files

    # Nothing is learnt from these rows, so the limit on rows per person does not matter.
    schema = replace(_judged_by(model, delimiter), person=None)
    data = files.encode(path, schema)
    labels, factors = data.labels, data.factors
    z = model.outputs(data.features)
    # The loss was trained on scaled labels; figures are in the label's own unit, but for the loss.
    answers = Answers.of(schema)
    loss = Poisson() if answers.counts else model.loss
    kept, learnt = factors.shifted(answers.outputs(z if z.shape[1] > 1 else z[:, 0])), answers.learnt(labels)
    found = figures(loss, kept, learnt, answers.scale, factors.weights)
    nothing = no_model(loss, learnt, learnt, answers.scale, factors, factors)
    if model.classes is None:
        return Evaluation(len(labels), found, nothing)
    rare = rare_class(model.loss, labels)
    true = model.loss.labels.numbers(labels)
    shape, at = (len(model.classes),) * 2, (true, model.decide(data.features).astype(np.int64))
    confusion, weighed = np.zeros(shape, dtype=np.int64), np.zeros(shape)
    np.add.at(confusion, at, 1)
    np.add.at(weighed, at, 1.0 if factors.weights is None else factors.weights)
    counts = weighed.sum(axis=1)
    two = len(model.classes) == 2
    return Evaluation(
        len(labels),
        found,
        nothing,
        majority=float(counts.max() / counts.sum()),
        confusion=tuple(tuple(int(n) for n in row) for row in confusion),
        positive=model.classes[1] if two else None,
        recall=_share(weighed[1, 1], weighed[1]) if two else None,
        precision=_share(weighed[1, 1], weighed[:, 1]) if two else None,
        rare_class=None if rare is None else model.classes[rare],
    )


def _share(part: float, parts: Floats) -> float | None:
    """`part` as a share of the sum of `parts`; None if that sum is 0."""
    whole = float(parts.sum())
    return float(part) / whole if whole > 0 else None


def evaluate_privately(
    model: Model, path: Path, *, epsilon: float, delta: float | None = None, sites: int = 1,
    colluding: int | None = None, threshold: float | None = None, delimiter: str | None = None,
    charge: Callable[[PrivacyStatement], None] | None = None,
) -> PrivateEvaluation:  # fmt: skip
    """Evaluate from noisy sums over the rows: the result may be shared, and spends privacy budget of the rows. Every
    row counts the same, whatever its weight.

    Args:
        model: fixed before, without a look at these rows; or learnt from them, at a price that adds to this one.
        path: a labelled file. Where its schema names people, nobody may have more rows in it than the noise is for: as
            many as at all of their sites together.
        epsilon: of this evaluation.
        delta: None: as small as so many rows need.
        sites: whose rows these are together, as a simulation of so many; the sums are then masked.
        colluding: how many of them may collude. None: fewer than half of them, but at least one.
        threshold: of two classes: from which probability on the second is decided for. None: where the model decides.
        delimiter: of the file, if not the schema's.
        charge: called with the statement before anything is computed from the rows. If it raises, nothing was.
    """
    from sottovoce.files.schema import files

    if model.timed is not None:
        raise UnsupportedError(
            "Expected a model of classes, numbers or counts to evaluate privately, got one of times to an event: rows "
            "that are censored early have no outcome. Write the range of each row's prediction into a column, and ask "
            "for curves by it: sottovoce survival --by COLUMN."
        )
    schema, protected, counted = _judged_by(model, delimiter), model.privacy.unit, False
    if schema.person is not None and protected.people:
        # A file may hold a person's rows of all their sites, and the noise is for all of them.
        most = min(protected.changed * protected.sites, MOST_ROWS)
        schema, counted = replace(schema, person=replace(schema.person, rows=most)), True
    data = files.encode(path, schema)
    rows = len(data.labels)
    chosen = default_delta(max(rows, 1)) if delta is None else delta
    # A model of counts is of one unit of exposure; the factors of rows are relative to the bound.
    unit = 0.0 if schema.exposure is None else log(schema.exposure.bound)
    label, learnt = schema.label, model.provenance.get("rows")
    counts = list(learnt.values()) if isinstance(learnt, Mapping) else []  # if the model says them
    found = tally.evaluate_privately(
        model.loss, data.factors.shifted(model.outputs(data.features) + unit), data.labels,
        Terms(epsilon=epsilon, delta=chosen, sites=sites, colluding=colluding, unit=protected, counted=counted),
        classes=model.classes, **_score_range(model, schema), threshold=threshold,
        width=label.bounds[1] - label.bounds[0] if isinstance(label, NumberLabel) else None, charge=charge,
        learnt=sum(counts) if counts and all(type(count) is int for count in counts) else None,
    )  # fmt: skip
    notes = [] if schema.weight is None else [COUNTED_ALIKE]
    notes += [] if schema.person is None else schema.person.notes
    return replace(found, model=weights_digest(model), privacy=found.privacy.noting(*notes))


def _score_range(model: Model, schema: Schema) -> dict[str, float]:
    """Centre and reach of the scores, from public numbers; the centre is the score where only the constant is not 0."""
    if schema.intercept <= 0:
        return {"centre": model.offset, "reach": float(schema.data_norm * np.linalg.norm(model.weights))}
    bound = schema.row_norm == "bound"
    own = float(schema.intercept * model.weights[-1, 0]) / (schema.encoded_norm if bound else 1.0)
    # A row that is cut has a smaller constant, too.
    reach = float(schema.data_norm * np.linalg.norm(model.weights[:-1])) + (0.0 if bound else abs(own))
    return {"centre": model.offset + own, "reach": reach}


def weights_digest(model: Model) -> str:
    """Digest of the weights in hexadecimal, by which an evaluation names its model."""
    return sha256(np.ascontiguousarray(model.weights, dtype="<f8").tobytes()).hexdigest()


def schema_of(model: Model, delimiter: str | None = None) -> Schema:
    """The model's schema, with the delimiter of the file at hand. A model without a schema is refused."""
    if model.schema is None:
        raise InputError(
            "Expected a model with a schema, got one that was trained on ready-made features. Apply it in Python: "
            "sottovoce.files.models.load(path).decide(features)."
        )
    return model.schema.separated(delimiter)


def _judged_by(model: Model, delimiter: str | None) -> Schema:
    """The model's schema; refused if its label is not of the kind that the model predicts."""
    schema = schema_of(model, delimiter)
    timed = isinstance(schema.label, SurvivalLabel)
    if isinstance(schema.label, ClassLabel) == (model.classes is None) or timed != (model.timed is not None):
        raise InputError(
            f"Expected a loss for the label of the schema, {schema.label.meaning()}, got a model of "
            f"loss={model.loss.name!r}. It predicts, but cannot be judged by these labels: train again."
        )
    return schema
