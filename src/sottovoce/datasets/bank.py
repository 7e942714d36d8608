"""The Bank Marketing data (UCI): 45,211 telephone calls of a bank, and who took a deposit. Licence: BANK-LICENSE.md."""

import io
from hashlib import sha256
from importlib.resources import files
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from sottovoce.arrays import Floats
from sottovoce.datasets.dataset import Dataset
from sottovoce.errors import InputError

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
# Rows are made this much shorter than 1, so that no order of summation can round a norm to above 1.
ROUNDING = 2.0**-48

Packed = dict[str, NDArray[Any]]


def bank() -> Dataset:
    """45,211 rows, 51 columns, label +1 for a customer who took the deposit (11.7 %).

    The 9 categorical attributes become one column per category (named "job=admin."); "unknown" is a category like any
    other. The 7 numeric ones are divided by declared constants (`SCALES`), cut off at -1 and 1, and kept; nothing is
    read off the data. Then every row is scaled to norm <= 1. All rows are longer than 1 before, so all end at norm 1,
    short of it by about 4e-15: the bound data_norm = 1 holds exactly. No row and no attribute is dropped.

    UCI gives no split: rows are shuffled once, with a fixed seed, and the first 80 % (36,168) are for training.
    `duration` is known only after the call, so a model that uses it describes calls rather than foretells them.
    """
    return preprocess(_unpack(_read()))


def _read() -> bytes:
    return files("sottovoce.datasets").joinpath("bank.npz").read_bytes()


def _unpack(packed: bytes) -> Packed:
    digest = sha256(packed).hexdigest()
    if digest != SHA256:
        raise InputError(f"Expected bank.npz with SHA-256 {SHA256}, got {digest}. Install the package again.")
    with np.load(io.BytesIO(packed), allow_pickle=False) as arrays:
        return dict(arrays)


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
    features = _rows(np.stack(columns, axis=1), _shorten(np.stack(values, axis=1)), len(names))
    labels = 2.0 * packed["yes"][order] - 1.0
    return Dataset(features, labels, tuple(names), int(TRAIN_SHARE * count), data_norm=1.0, name="bank")


def _shorten(values: Floats) -> Floats:
    norms: Floats = np.sqrt(np.sum(values**2, axis=1, keepdims=True))
    return values / (np.maximum(norms, 1.0) * (1 + ROUNDING))


def _rows(columns: NDArray[Any], values: Floats, d: int) -> "sparse.csr_array[np.float64, tuple[int, int]]":
    there = values != 0
    ends = np.concatenate([[0], np.cumsum(there.sum(axis=1))]).astype(np.int32)
    return sparse.csr_array((values[there], columns[there].astype(np.int32), ends), shape=(len(values), d))
