"""Rows of a made-up study, with a schema, for tests of tables."""

import numpy as np
import pandas as pd

from sottovoce.files.schema import Boolean, Categorical, ClassLabel, Numeric, Person, Schema, Seasonal

SCHEMA = Schema(
    columns=(
        Categorical(name="ward", categories=("north", "south"), other=True, missing="row", reference="north"),
        Numeric(name="age", bounds=(20, 80), scale="symmetric"),
        Numeric(name="dose", bounds=(0, 10), edges=(1, 4), missing="fill", fill=2.0, reference=0.0),
        Boolean(name="smoker", missing="indicator"),
        Seasonal(name="came", by="quarter"),
    ),
    label=ClassLabel(column="ill", classes=("no", "yes"), missing="row"),
)
BY_PERSON = {"person": Person(column="who", rows=4)}


def rows(count=3000, seed=0):
    """A study of so many rows: numbers beyond their bounds and missing values among them."""
    draws = np.random.default_rng(seed)
    ill = draws.random(count) < 0.3
    frame = pd.DataFrame(
        {
            "ward": draws.choice(["north", "south", "east", "west"], count, p=[0.5, 0.3, 0.1, 0.1]),
            "age": np.round(draws.normal(50 + 8 * ill, 12), 1),
            "dose": draws.exponential(2.5, count),
            "smoker": draws.choice(["yes", "no"], count, p=[0.3, 0.7]),
            "came": draws.choice(["2024-01-15", "2024-05-01", "2024-08-08", "2024-12-31"], count),
            "ill": np.where(ill, "yes", "no"),
            "clinic": draws.choice(["a", "b", "c"], count),
            "who": np.arange(count) // 4,
        }
    )
    for column in ("ward", "dose", "smoker"):
        frame.loc[draws.random(count) < 0.07, column] = None
    return frame
