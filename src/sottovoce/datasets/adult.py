"""The Adult census data (UCI), preprocessed as in the paper's Section 5. Licence: ADULT-LICENSE.md."""

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

SHA256 = "218908d162163277eb40544a0d4a8362120357004ecc842286532804832ee696"
ATTRIBUTES = (
    "age",
    "workclass",
    "fnlwgt",
    "education",
    "education-num",
    "marital-status",
    "occupation",
    "relationship",
    "race",
    "sex",
    "capital-gain",
    "capital-loss",
    "hours-per-week",
    "native-country",
)
# Rows are made this much shorter than 1, so that no order of summation can round a norm to above 1.
ROUNDING = 2.0**-48

Packed = dict[str, NDArray[Any]]


def adult() -> Dataset:
    """45,222 rows, 104 columns, label +1 for an income over 50K; UCI's training rows, 30,162, come first.

    Rows with a missing value are dropped, the 8 categorical attributes become one column per category
    present (named "workclass=Private"), the 6 numeric ones are kept, every column is divided by its
    maximum and every row is scaled to norm <= 1. All rows are longer than 1 before, so all end at norm 1,
    short of it by about 4e-15: the bound data_norm = 1 holds exactly. There is no column of ones.

    The maxima and the categories are read off the data, as the paper does. That is fine for reproducing
    it. At a real site it leaks: take ranges and categories from a public schema there.
    """
    return preprocess(_unpack(_read()))


def _read() -> bytes:
    return files("sottovoce.datasets").joinpath("adult.npz").read_bytes()


def _unpack(packed: bytes) -> Packed:
    digest = sha256(packed).hexdigest()
    if digest != SHA256:
        raise InputError(f"Expected adult.npz with SHA-256 {SHA256}, got {digest}. Install the package again.")
    with np.load(io.BytesIO(packed), allow_pickle=False) as arrays:
        return dict(arrays)


def preprocess(packed: Packed) -> Dataset:
    """The paper's preprocessing of the packed columns."""
    kept = np.all([packed[name] > 0 for name in ATTRIBUTES if f"{name}.names" in packed], axis=0)
    names: list[str] = []
    columns, values = [], []  # of every row: one entry per attribute, in rising order of column
    for name in ATTRIBUTES:
        raw = packed[name][kept]
        if f"{name}.names" in packed:
            present, code = np.unique(raw, return_inverse=True)
            columns.append(len(names) + code)
            values.append(np.ones(len(raw)))
            names += [f"{name}={packed[f'{name}.names'][i]}" for i in present]
        else:
            columns.append(np.full(len(raw), len(names)))
            values.append(raw / raw.max())
            names.append(name)
    labels = 2.0 * packed["over-50K"][kept] - 1.0
    n_train = int(kept[: packed["n_train"].item()].sum())
    features = _rows(np.stack(columns, axis=1), _shorten(np.stack(values, axis=1)), len(names))
    return Dataset(features, labels, tuple(names), n_train, data_norm=1.0, name="adult")


def _shorten(values: Floats) -> Floats:
    norms: Floats = np.sqrt(np.sum(values**2, axis=1, keepdims=True))
    return values / (np.maximum(norms, 1.0) * (1 + ROUNDING))


def _rows(columns: NDArray[Any], values: Floats, d: int) -> "sparse.csr_array[np.float64, tuple[int, int]]":
    there = values != 0
    ends = np.concatenate([[0], np.cumsum(there.sum(axis=1))]).astype(np.int32)
    return sparse.csr_array((values[there], columns[there].astype(np.int32), ends), shape=(len(values), d))
