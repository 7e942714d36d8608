"""Columns that are no numbers: refused by name, before scikit-learn refuses them with a cell of a private row in the
error.
"""

import datetime
from collections.abc import Iterable, Mapping
from numbers import Number
from typing import Any

import numpy as np

from sottovoce.errors import InputError
from sottovoce.settings import brief

_MOST = 5  # columns that an error names
_TEXT, _LEVELS, _DATES, _MISSING = "text", "categories", "dates", "missing values (NaN)"
_COMPLEX = "complex numbers"
_BY_DTYPE = {"U": _TEXT, "S": _TEXT, "M": _DATES, "m": _DATES, "c": _COMPLEX}
_ADVICE = {
    _TEXT: "Give each level a column of its own, of 0 and 1. The levels must come from a public list, not from these "
    "rows: scikit-learn's OneHotEncoder(categories=[[...]]), or pandas.get_dummies(pandas.Categorical(values, "
    "categories=[...])).",
    _DATES: "Make a number of a date, such as the years since a public day.",
    _MISSING: "Fill them with a public number, and say in a column of 0 and 1 where it was done, or leave such rows "
    "out.",
    "infinity": "Clip to public bounds.",
    _COMPLEX: "Complex data not supported: give the real part, the imaginary part, or both.",
}
_ADVICE[_LEVELS] = _ADVICE[_TEXT]


def expect_numbers(X: Any) -> None:
    """Refuse a table with columns of text, categories or dates. The error names columns and says what to do; it quotes
    no cell. What else does not fit is left to scikit-learn, whose errors then quote none either.
    """
    if type(X).__module__.partition(".")[0] in ("pandas", "polars"):
        if len(X.shape) == 2:
            _refuse({name: _of_frame(X[name]) for name in dict.fromkeys(X.columns)})
        return
    cells = _cells(X)
    if cells is None:
        return
    if cells.ndim < 2:
        raise InputError(
            f"Expected X with rows and columns, got shape={cells.shape}. Reshape your data: one column is "
            "X.reshape(-1, 1), one row X.reshape(1, -1)."
        )
    if cells.ndim == 2 and cells.dtype.kind not in "biuf":
        _refuse({place: _of_cells(cells[:, place]) for place in range(cells.shape[1])})


def expect_finite(X: Any, names: Iterable[str] | None) -> None:
    """Refuse NaN and infinity in a matrix, dense or sparse, and name the columns.

    Args:
        X: (rows, features), of numbers.
        names: of the columns; None names them by their places.
    """
    dense = isinstance(X, np.ndarray)
    values = X if dense else X.data
    if np.isfinite(values).all():
        return
    places = np.broadcast_to(np.arange(X.shape[1]), X.shape) if dense else X.indices
    known = range(X.shape[1]) if names is None else list(names)
    found = {known[place]: "infinity" for place in np.unique(places[np.isinf(values)])}
    _refuse({**found, **{known[place]: _MISSING for place in np.unique(places[np.isnan(values)])}})


def _cells(X: Any) -> Any:
    """The cells of an array, or of a list of rows, each of its own type; None for all else."""
    if isinstance(X, np.ndarray):
        return X
    if not isinstance(X, list | tuple):
        return None
    try:
        cells = np.array(X, dtype=object)
    except ValueError:
        return None
    ragged = cells.ndim == 1 and any(isinstance(row, list | tuple | np.ndarray) for row in X)
    return None if ragged else cells


def _of_frame(column: Any) -> str | None:
    """What a column of a data frame holds, in words; None for numbers."""
    if len(column.shape) != 1:  # two columns of one name
        return None
    name = str(column.dtype).lower()
    if name.startswith("complex"):
        return _COMPLEX
    if name.startswith(("category", "categorical", "enum", "dictionary")):
        return _LEVELS
    if name.startswith(("datetime", "timedelta", "period", "interval", "date", "time", "duration")):
        return _DATES
    if name == "object":
        return _of_cells(column.to_list())
    return _TEXT if name.startswith(("str", "string", "large_string", "utf8")) else None


def _of_cells(values: Any) -> str | None:
    """What cells of several types are, in words; None for numbers, and for what is neither text nor a date."""
    if isinstance(values, np.ndarray) and values.dtype.kind in _BY_DTYPE:
        return _BY_DTYPE[values.dtype.kind]
    kinds = {type(value) for value in values}
    if any(issubclass(kind, str | bytes) for kind in kinds):
        return _TEXT + (" beside numbers" if any(issubclass(kind, Number) for kind in kinds) else "")
    if any(issubclass(kind, datetime.date | datetime.timedelta | np.datetime64 | np.timedelta64) for kind in kinds):
        return _DATES
    return _MISSING if any(kind.__name__ in ("NoneType", "NAType") for kind in kinds) else None


def _refuse(found: Mapping[Any, str | None]) -> None:
    """Raise an error that names the columns of each kind, if there are any."""
    bad = {name: kind for name, kind in found.items() if kind is not None}
    if not bad:
        return
    said = []
    for kind in dict.fromkeys(bad.values()):
        names = [brief(name) if isinstance(name, str) else str(name) for name, other in bad.items() if other == kind]
        more = f" and {len(names) - _MOST} more" if len(names) > _MOST else ""
        said.append(f"{kind} in column{'s' if len(names) > 1 else ''} {', '.join(names[:_MOST])}{more}")
    advice = dict.fromkeys(_ADVICE[kind.removesuffix(" beside numbers")] for kind in bad.values())
    counted = "" if all(isinstance(name, str) for name in bad) else " (counted from 0)"
    raise InputError(f"Expected numbers in all columns of X, got {'; '.join(said)}{counted}. {' '.join(advice)}")
