"""What the packaged data sets share: a checked archive of raw columns, and rows of norm 1 made of them."""

import io
from hashlib import sha256
from importlib.resources import files
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from sottovoce.arrays import Floats
from sottovoce.errors import InputError

# Rows are made this much shorter than 1, so that no order of summation can round a norm to above 1.
ROUNDING = 2.0**-48
Packed: TypeAlias = dict[str, NDArray[Any]]


def content(file: str) -> bytes:
    """The bytes of a packaged file, by its name."""
    return files("sottovoce.files.datasets").joinpath(file).read_bytes()


def unpack(file: str, expected: str) -> Packed:
    """The arrays in an archive whose SHA-256 is as expected."""
    packed = content(file)
    digest = sha256(packed).hexdigest()
    if digest != expected:
        raise InputError(f"Expected {file} with SHA-256 {expected}, got {digest}. Install the package again.")
    with np.load(io.BytesIO(packed), allow_pickle=False) as arrays:
        return dict(arrays)


def unit_rows(columns: NDArray[Any], values: Floats, d: int) -> "sparse.csr_array[np.float64, tuple[int, int]]":
    """Rows scaled to norm <= 1, from one (column, value) per attribute, in rising order of column."""
    norms: Floats = np.sqrt(np.sum(values**2, axis=1, keepdims=True))
    shortened = values / (np.maximum(norms, 1.0) * (1 + ROUNDING))
    there = shortened != 0
    ends = np.concatenate([[0], np.cumsum(there.sum(axis=1))]).astype(np.int32)
    return sparse.csr_array((shortened[there], columns[there].astype(np.int32), ends), shape=(len(values), d))
