"""A model applied to a file: predictions row by row, or how good they are. Predictions work on chunks, so a file may be
larger than memory.
"""

import csv
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from sottovoce.arrays import Floats, Ints
from sottovoce.disk import replacing, writable
from sottovoce.errors import InputError
from sottovoce.models.model import Model
from sottovoce.problem import Answers
from sottovoce.schema import NumberLabel, Schema

ROW, PREDICTION = "row", "prediction"


@dataclass(frozen=True)
class Evaluation:
    """How a model does on labelled rows. Read off the rows without noise: for the eyes of whoever holds them."""

    rows: int
    risk: float  # mean loss
    accuracy: float | None  # None in regression
    majority: float | None  # accuracy of always answering the most frequent class
    mean_absolute_error: float | None  # None in classification
    confusion: tuple[tuple[int, ...], ...] | None  # confusion[true][predicted], classes in the model's order

    def to_dict(self) -> dict[str, Any]:
        """JSON-able."""
        return {**vars(self), "confusion": None if self.confusion is None else [list(row) for row in self.confusion]}


def predict(model: Model, path: Path) -> Iterator[tuple[Ints, Floats | Ints, Floats | None]]:
    """Row numbers, decisions and, where the loss has them, probabilities: chunk by chunk."""
    from sottovoce.schema import files

    for features, rows in files.encode_features(path, schema_of(model)):
        yield rows, model.decide(features), model.probabilities(features) if model.has_probabilities else None


def write_predictions(model: Model, path: Path, out: Path) -> int:
    """Predictions as a CSV file, which appears when it is complete. Returns the number of rows.

    A row that the schema drops has no line; the first column is the number of the row in the file.
    """
    schema_of(model)  # refuses before anything is opened
    with writable(out), replacing(out, encoding="utf-8") as file:
        return _write(model, path, csv.writer(file))


def evaluate(model: Model, path: Path) -> Evaluation:
    """Mean loss, accuracy and confusion on a labelled file."""
    from sottovoce.schema import files

    schema = schema_of(model)
    data = files.encode(path, schema)
    labels = data.labels
    z = model.outputs(data.features)
    if isinstance(schema.label, NumberLabel):
        # The loss was trained on labels scaled to [-1, 1]; figures are in the label's own unit, but for the loss.
        half = Answers.of(schema).scale
        risk = float(np.mean(model.loss.value(z[:, 0] / half, labels / half, model.loss.theta)))
        error = float(np.mean(np.abs(z[:, 0] - labels)))
        return Evaluation(len(labels), risk, None, None, error, None)
    assert model.classes is not None
    kept = z if z.shape[1] > 1 else z[:, 0]
    risk = float(np.mean(model.loss.value(kept, labels, model.loss.theta)))
    true = model.loss.labels.numbers(labels)
    confusion = np.zeros((len(model.classes), len(model.classes)), dtype=np.int64)
    np.add.at(confusion, (true, model.decide(data.features).astype(np.int64)), 1)
    counts = confusion.sum(axis=1)
    return Evaluation(
        rows=len(labels),
        risk=risk,
        accuracy=float(np.trace(confusion) / len(labels)),
        majority=float(counts.max() / len(labels)),
        mean_absolute_error=None,
        confusion=tuple(tuple(int(n) for n in row) for row in confusion),
    )


def schema_of(model: Model) -> Schema:
    """The schema, without which a file means nothing."""
    if model.schema is None:
        raise InputError(
            "Expected a model with a schema, got one that was trained on ready-made features. Apply it in Python: "
            "sottovoce.models.load(path).decide(features)."
        )
    return model.schema


def _write(model: Model, path: Path, lines: Any) -> int:
    written = 0
    probable = model.classes if model.has_probabilities and model.classes is not None else ()
    lines.writerow([ROW, PREDICTION, *(f"probability {name}" for name in probable)])
    for rows, decided, probabilities in predict(model, path):
        said = decided.tolist() if model.classes is None else [model.classes[int(number)] for number in decided]
        parts = [[]] * len(said) if probabilities is None else np.round(probabilities, 6).tolist()
        lines.writerows([row, answer, *part] for row, answer, part in zip(rows.tolist(), said, parts, strict=True))
        written += len(said)
    return written
