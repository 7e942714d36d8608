"""Models of a small clinic, and rows with whatever a file may hold, encoded one by one as `predict` does."""

import numpy as np

import sottovoce as sv
from schema.samples import SCHEMA
from sottovoce.errors import InputError
from sottovoce.files.models import Model
from sottovoce.files.schema import Schema, files
from sottovoce.problem.losses import Logistic

rng = np.random.default_rng(0)
CLINIC = Schema.loads(SCHEMA)
TWO_ROUNDS = sv.MaskedNewton(rounds=2)
PRIVACY = TWO_ROUNDS.statement(TWO_ROUNDS.oracle(sv.Sites([np.zeros((9, 1))], [np.ones(9)]), sv.graphs.complete(1)))


def model_of(schema=CLINIC, loss=None, classes=("well", "ill"), d=None, offset=0.0):
    loss = Logistic() if loss is None else loss
    names = schema.feature_names if schema is not None else tuple(f"x{i}" for i in range(d))
    weights = rng.normal(size=(len(names), loss.outputs))
    return Model(weights, loss, names, classes, PRIVACY, schema, offset=offset)


def cells(rows=400):
    """Texts as a file may have them: usual ones, odd ones, missing ones."""
    draw = rng.choice
    return {
        "age": draw(["50", "0", "100", "-3", "1e9", "37.25", "", "NA", "?"], rows),
        "dose": draw(["0", "-10", "10", "99", "2.5", "", "NA"], rows),
        "pressure": draw(["50", "99.999", "100", "120", "139", "140", "250", "", "?"], rows),
        "ward": draw(["north", "south", "east", "west wing", "", "NA"], rows),
        "blood": draw(["A", "B", "AB", "0", "", "Z"], rows, p=[0.3, 0.2, 0.2, 0.1, 0.1, 0.1]),
        "smoker": draw(["yes", "no", "1", "0", "maybe", ""], rows),
    }


def encoded_one_by_one(columns, schema, tmp_path):
    """Row by row through a file: features, or None where the file is refused or the row dropped."""
    path, found = tmp_path / "row.csv", []
    names = list(columns)
    for row in zip(*columns.values(), strict=True):
        path.write_text(",".join(names) + "\n" + ",".join(row) + "\n")
        try:
            chunks = list(files.encode_features(path, schema))
        except InputError:
            chunks = []
        found.append(chunks[0].features.toarray()[0] if chunks and chunks[0].features.shape[0] else None)
    return found
