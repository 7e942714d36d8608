"""The Bank Marketing data (UCI): 45,211 telephone calls of a bank, and who took a deposit. Licence: BANK-LICENSE.md."""

import numpy as np

from sottovoce.files.datasets.packed import Packed, unit_rows, unpack
from sottovoce.problem.dataset import Dataset

SHA256 = "5b0668c1883f5874a4acf0beb77d05925da50089990df6a1841b62e3af981210"
ATTRIBUTES = (
    "age",
    "job",
    "marital",
    "education",
    "default",
    "balance",
    "housing",
    "loan",
    "contact",
    "day",
    "month",
    "duration",
    "campaign",
    "pdays",
    "previous",
    "poutcome",
)
# What a numeric column is divided by. These are round numbers that anyone could have named before seeing a row:
# a century, 10,000 euros, the days of a month, half an hour, 20 calls, a year, 10 calls.
SCALES = {
    "age": 100.0,
    "balance": 10_000.0,
    "day": 31.0,
    "duration": 1_800.0,
    "campaign": 20.0,
    "pdays": 365.0,
    "previous": 10.0,
}
TRAIN_SHARE, SHUFFLE_SEED = 0.8, 2014


def bank() -> Dataset:
    """45,211 rows, 51 columns, label +1 for a customer who took the deposit (11.7 %).

    The 9 categorical attributes become one column per category (named "job=admin."); "unknown" is a category like any
    other. The 7 numeric ones are divided by declared constants (`SCALES`), cut off at -1 and 1, and kept; nothing is
    read off the data. Then every row is scaled to norm <= 1. All rows are longer than 1 before, so all end at norm 1,
    short of it by about 4e-15: the bound data_norm = 1 holds exactly. No row and no attribute is dropped.

    UCI gives no split: rows are shuffled once, with a fixed seed, and the first 80 % (36,168) are for training.
    `duration` is known only after the call, so a model that uses it describes calls rather than predicts them.
    """
    return preprocess(unpack("bank.npz", SHA256))


def preprocess(packed: Packed) -> Dataset:
    """Columns to features of norm 1, and a fixed shuffle."""
    count = len(packed["yes"])
    order = np.random.Generator(np.random.PCG64(SHUFFLE_SEED)).permutation(count)
    names: list[str] = []
    columns, values = [], []  # of every row: one entry per attribute, in rising order of column
    for name in ATTRIBUTES:
        raw = packed[name][order]
        if name in SCALES:
            columns.append(np.full(count, len(names)))
            values.append(np.clip(raw / SCALES[name], -1.0, 1.0))
            names.append(name)
        else:
            columns.append(len(names) + raw.astype(np.int64))
            values.append(np.ones(count))
            names += [f"{name}={category}" for category in packed[f"{name}.names"]]
    features = unit_rows(np.stack(columns, axis=1), np.stack(values, axis=1), len(names))
    labels = 2.0 * packed["yes"][order] - 1.0
    return Dataset(features, labels, tuple(names), int(TRAIN_SHARE * count), data_norm=1.0, name="bank")
