"""Texts read as dates. A time of day after the date is left out; two-digit years and impossible days are no dates."""

from typing import Any

import numpy as np
import pyarrow.compute as compute

from sottovoce.arrays import Floats

_PART = {"y": r"(?P<y>[0-9]{4})", "m": r"(?P<m>[0-9]{1,2})", "d": r"(?P<d>[0-9]{1,2})"}
_TIME = r"(?:[ T].*)?$"


def days(texts: Any, order: str) -> Floats:
    """Days since 1970-01-01 of every text in this order of year, month and day; NaN where it is no such date.

    Year, month and day are kept apart by "-", "/" or "."; 20240131 is read as well, year first.
    """
    pattern = "^" + "[-/.]".join(_PART[letter] for letter in order) + _TIME
    found = _parts(texts, pattern)
    if order == "ymd":
        joined = _parts(texts, r"^(?P<y>[0-9]{4})(?P<m>[0-9]{2})(?P<d>[0-9]{2})$")
        found = np.where(np.isnan(found), joined, found)
    year, month, day = found
    fine = (year >= 1) & (month >= 1) & (month <= 12) & (day >= 1) & (day <= 31)
    y, m, d = (np.where(fine, part, usual).astype(np.int64) for part, usual in ((year, 1970), (month, 1), (day, 1)))
    months = ((y - 1970) * 12 + m - 1).astype("datetime64[M]")
    exact = months.astype("datetime64[D]") + (d - 1).astype("timedelta64[D]")
    # The 31st of a shorter month lies in the next one.
    fine &= exact.astype("datetime64[M]") == months
    return np.where(fine, exact.astype(np.int64), np.nan)


def _parts(texts: Any, pattern: str) -> Floats:
    """Year, month and day of every text, (3, texts); NaN where the pattern does not fit."""
    parts = compute.extract_regex(texts, pattern)
    fields = [compute.if_else(parts.is_valid(), compute.struct_field(parts, name), None) for name in "ymd"]
    return np.stack([field.cast("float64").fill_null(np.nan).to_numpy(zero_copy_only=False) for field in fields])
