"""Least squares: how often their intervals and R^2 hold, and how well they predict beside Huber's loss.

    python benchmarks/least_squares.py [--json OUT] [--repetitions N] [--runs N] [--only TABLE ...]

Intervals: every repetition draws N rows anew, with replacement, from a made-up or a public table that is taken for the
population. Asked is how often an interval holds the fit to all of the population in which long rows count as much
as they do in that run; R^2 is that of this fit. Widths are medians over coefficients of the private interval over that
of ordinary least squares. A cell is within if coefficients are held in 93 to 98 %.

Predictions: R^2 on held-out rows, of least squares and of Huber's loss with a threshold of 1, which a label that is a
number gets by default. The environment of the real tables is that of `make unseen`.
"""

import argparse
import json
import math
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import machine
from central_linear import split
from coverage import even, released, skewed
from processes import HERE
from sottovoce import Sites
from sottovoce.algorithms.squares import LeastSquares, explained
from sottovoce.errors import PrivacyLeakWarning
from sottovoce.estimators import PrivateLinearRegression, PrivateRobustRegressor
from sottovoce.sums.inference import CRITICAL, Evidence, infer

OUT, DELTA, REPETITIONS, RUNS = HERE / "least_squares.json", 1e-6, 200, 8
EPSILONS = (0.5, 1.0, 4.0)
LEAST, MOST, POPULATION = 0.93, 0.98, 100_000
Floats = NDArray[np.float64]
Rows = tuple[Floats, Floats]  # with norms up to 1, a constant last; labels in -1..1


def made(kind: Callable[[], Any], residuals: Callable[[np.random.Generator, int], Floats]) -> Rows:
    """The rows of a table of coverage.py, with labels of a linear model."""
    table, rng = kind(), np.random.default_rng(5)
    features = table.draw(rng, POPULATION)[0]
    means = features @ table.truth
    means *= 0.5 / np.abs(means).max()
    return features, np.clip(means + residuals(rng, POPULATION), -1, 1)


def normal(rng: np.random.Generator, count: int) -> Floats:
    return 0.1 * rng.normal(size=count)


def long_tailed(rng: np.random.Generator, count: int) -> Floats:
    return 0.1 * (rng.exponential(size=count) - 1)


def real(name: str) -> Rows:
    """All rows of a public table, as its schema codes them, with a constant last."""
    learnt, tested = split(name)
    features = np.concatenate((learnt[0], tested[0]))
    features = np.column_stack([features, np.ones(len(features))]) / math.sqrt(2)
    return without_reference(features), np.concatenate((learnt[1], tested[1]))


def without_reference(features: Floats) -> Floats:
    """Without columns that follow from those before them: a level of every category."""
    kept: list[int] = [features.shape[1] - 1]
    for j in range(features.shape[1] - 1):
        tried = features[:, [*kept, j]]
        if np.linalg.matrix_rank(tried.T @ tried / len(tried), tol=1e-9) == len(kept) + 1:
            kept.append(j)
    return features[:, [*kept[1:], kept[0]]]


@dataclass(frozen=True)
class Cell:
    table: str
    rows: int
    epsilon: float
    sites: int


SHAPES = [(2_000, 1.0, 1), (10_000, 1.0, 5), (10_000, 4.0, 5), (20_000, 0.5, 50), (20_000, 1.0, 5), (20_000, 4.0, 50)]
INTERVALS: dict[str, Callable[[], Rows]] = {
    "plain": partial(made, even, normal), "skew": partial(made, skewed, normal),
    "exponential": partial(made, even, long_tailed),
    **{name: partial(real, name) for name in ("wages", "doctor-visits", "diamonds-price")},
}  # fmt: skip


def fitted(rows: Rows, counted: Floats) -> tuple[Floats, float]:
    """Ordinary least squares of rows that count so much, and its centred R^2."""
    features, labels = rows
    weighed = features * counted[:, None]
    w = np.linalg.solve(features.T @ weighed, weighed.T @ labels)
    centre = labels - np.average(labels, weights=counted)
    return w, float(1 - counted @ (labels - features @ w) ** 2 / (counted @ centre**2))


def counted(features: Floats, evidence: Evidence) -> Floats:
    """How much each row counts in this run, if no row has a norm above 1."""
    A = evidence.coordinates
    assert A is not None
    if evidence.least == 1:
        return np.ones(len(features))
    longest = evidence.least * np.linalg.norm(A, 2) ** 2
    return np.minimum(1.0, longest / np.sum((features @ A) ** 2, axis=1))


def intervals(cell: Cell, population: Rows, repetitions: int) -> dict[str, Any]:
    features, labels = population
    p, constant = features.shape[1], float(features[0, -1])
    algorithm = LeastSquares(epsilon=cell.epsilon, delta=DELTA, lam=0.0, inference=True)
    algorithm = algorithm.bound_to(cell.rows, p, cell.sites)
    rng = np.random.default_rng([cell.rows, cell.sites])
    held, known, errors = (np.zeros((repetitions, p), dtype=kind) for kind in (bool, bool, float))
    shares = list[tuple[bool, float]]()
    parts = np.array_split(np.arange(cell.rows), cell.sites)
    for number in range(repetitions):
        which = rng.integers(len(labels), size=cell.rows)
        a, b = features[which], labels[which]
        sites = Sites([a[part] for part in parts], [b[part] for part in parts])
        evidence = replace(released(algorithm, sites, number), largest=constant)
        values, errors[number], known[number] = infer(evidence, np.eye(p))
        truth, share = fitted(population, counted(features, evidence))
        held[number] = np.abs(values - truth) <= CRITICAL * errors[number]
        value, error = explained(evidence, constant)
        if math.isfinite(error):
            shares.append((abs(value - share) <= CRITICAL * error, error))
    residual = labels - features @ fitted(population, np.ones(len(labels)))[0]
    exact = np.sqrt(np.var(residual) * np.diag(np.linalg.inv(features.T @ features)) * len(labels) / cell.rows)
    rates, each = held.mean(axis=1), held.mean(axis=0)
    return {
        **vars(cell), "features": p, "repetitions": repetitions, "held": float(rates.mean()),
        "error": float(rates.std() / math.sqrt(repetitions)), "least": float(each.min()),
        "identified": float(known.mean()), "of_identified": float(held[known].mean()) if known.any() else None,
        "width": float(np.median(errors / exact)), "share_shown": len(shares) / repetitions,
        "share_held": float(np.mean([one[0] for one in shares])) if shares else None,
        "within": LEAST <= float(rates.mean()) <= MOST,
    }  # fmt: skip


def scaled(features: Floats, longest: float) -> Floats:
    """Rows with a constant, divided by the longest that the bounds allow."""
    return np.column_stack([features, np.ones(len(features))]) / longest


def houses(rng: np.random.Generator, count: int) -> Rows:
    """Eight numbers with long tails in wide bounds, most rows near one end."""
    raw = rng.lognormal(0, 1, size=(count, 8)) @ (np.eye(8) + 0.4 * rng.normal(size=(8, 8)))
    bounds = np.quantile(np.abs(raw), 0.9999, axis=0) * 2
    numbers = np.clip(raw / bounds, -1, 1)
    signal = (numbers / numbers.std(axis=0)) @ rng.normal(size=8)
    return scaled(numbers, 3.0), _labels(rng, signal, 0.35, 0.25)


def wide(rng: np.random.Generator, count: int) -> Rows:
    """Forty numbers that go together in groups."""
    numbers = np.clip(
        (rng.normal(size=(count, 8)) @ rng.normal(size=(8, 40)) + rng.normal(size=(count, 40))) / 12, -1, 1
    )
    return scaled(numbers, math.sqrt(41)), _labels(rng, numbers @ rng.normal(size=40), 0.5, 0.25)


def trips(rng: np.random.Generator, count: int) -> Rows:
    """Thirty columns, half of them flags, and residuals with tails as those of t with 4 degrees of freedom."""
    flags = rng.random((count, 15)) < rng.uniform(0.02, 0.5, size=15)
    numbers = np.clip(rng.normal(size=(count, 15)) / 4, -1, 1)
    features = np.column_stack([numbers, flags])
    signal = features @ rng.normal(size=30)
    noise = rng.standard_t(4, size=count)
    return scaled(features, math.sqrt(31)), _labels(rng, signal, 0.8, 0.15, noise)


def scores(rng: np.random.Generator, count: int) -> Rows:
    """Twelve columns that say hardly anything of the label."""
    features = np.column_stack([np.clip(rng.normal(size=(count, 6)) / 3, -1, 1), rng.random((count, 6)) < 0.3])
    return scaled(features, math.sqrt(13)), _labels(rng, features @ rng.normal(size=12), 0.05, 0.3)


def _labels(
    rng: np.random.Generator, signal: Floats, share: float, spread: float, noise: Floats | None = None
) -> Floats:
    """Labels of which the signal explains this share, with this standard deviation, cut to -1..1."""
    noise = rng.normal(size=len(signal)) if noise is None else noise
    signal, noise = ((x - x.mean()) / x.std() for x in (signal, noise))
    return np.clip(spread * (math.sqrt(share) * signal + math.sqrt(1 - share) * noise), -1, 1)


def halved(table: Callable[[np.random.Generator, int], Rows], count: int) -> tuple[Rows, Rows]:
    """Rows to learn from, and as many to judge by, of one table."""
    features, labels = table(np.random.default_rng(7), 2 * count)
    return (features[:count], labels[:count]), (features[count:], labels[count:])


# Constants were chosen on the first four, and on tables much like the next two.
PREDICTIONS: dict[str, tuple[str, Callable[[], tuple[Rows, Rows]]]] = {
    **{name: ("chosen on", partial(split, name)) for name in ("wages", "diamonds-price")},
    "houses-16512": ("chosen on", partial(halved, houses, 16_512)),
    "houses-5000": ("chosen on", partial(halved, houses, 5_000)),
    "wide-16512": ("chosen on", partial(halved, wide, 16_512)),
    **{name: ("judged on", partial(split, name)) for name in ("doctor-visits", "house-prices")},
    "trips-16000": ("judged on", partial(halved, trips, 16_000)),
    "scores-16000": ("judged on", partial(halved, scores, 16_000)),
    "scores-4000": ("judged on", partial(halved, scores, 4_000)),
}


def predictions(name: str, runs: int) -> dict[str, Any]:
    """Mean R^2 on held-out rows, by contender and epsilon."""
    role, source = PREDICTIONS[name]
    (features, labels), (unseen, truth) = source()
    same: dict[str, Any] = {"data_norm": 1.0, "y_bounds": (-1, 1), "fit_intercept": False, "delta": DELTA}

    def score(predicted: Floats) -> float:
        return float(1 - np.mean((np.clip(predicted, -1, 1) - truth) ** 2) / np.var(truth))

    def mean(made: Callable[..., Any], epsilon: float) -> float:
        found = [score(made(epsilon, random_state=seed, **same).fit(features, labels).predict(unseen))
                 for seed in range(runs)]  # fmt: skip
        return float(np.mean(found))

    exact = np.linalg.lstsq(features, labels, rcond=None)[0]
    huber = partial(PrivateRobustRegressor, loss="huber", threshold=1.0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PrivacyLeakWarning)
        return {
            "table": name, "role": role, "rows": len(labels), "features": features.shape[1], "runs": runs,
            "not_private": score(unseen @ exact),
            **{key: {f"{epsilon:g}": mean(made, epsilon) for epsilon in EPSILONS}
               for key, made in (("least_squares", PrivateLinearRegression), ("huber", huber))},
        }  # fmt: skip


def percent(share: float | None) -> str:
    return "-" if share is None else f"{100 * share:.1f} %"


def shown(values: Sequence[float]) -> str:
    return ", ".join(f"{value:.3f}" for value in values)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--json", type=Path, default=OUT, metavar="OUT")
    parser.add_argument("--repetitions", type=int, default=REPETITIONS)
    parser.add_argument("--runs", type=int, default=RUNS)
    parser.add_argument("--only", nargs="*", choices=[*INTERVALS, *PREDICTIONS])
    asked = parser.parse_args()
    found: dict[str, Any] = {"machine": machine.describe(), "intervals": [], "predictions": []}

    def keep(part: str, line: dict[str, Any], words: str) -> None:
        found[part].append(line)
        print(words, flush=True)
        asked.json.write_text(json.dumps(found, indent=1, allow_nan=False) + "\n", encoding="utf-8")

    for name, population in INTERVALS.items():
        if asked.only is not None and name not in asked.only:
            continue
        rows = population()
        for shape in SHAPES:
            line = intervals(Cell(name, *shape), rows, asked.repetitions)
            keep("intervals", line, f"{name:14} N={shape[0]:<6} eps={shape[1]:<4} n={shape[2]:<3} held "
                 f"{100 * line['held']:.1f} +- {100 * line['error']:.1f} %, least {100 * line['least']:.0f} %, "
                 f"{100 * line['identified']:.0f} % identified, of these held {percent(line['of_identified'])}, "
                 f"width {line['width']:.2f}, R^2 shown {100 * line['share_shown']:.0f} %, held "
                 f"{percent(line['share_held'])}")  # fmt: skip
    for name in PREDICTIONS:
        if asked.only is None or name in asked.only:
            line = predictions(name, asked.runs)
            keep("predictions", line, f"{name:14} {line['role']}: not private {line['not_private']:.3f}, least squares "
                 f"{shown(line['least_squares'].values())}, Huber {shown(line['huber'].values())}")  # fmt: skip


if __name__ == "__main__":
    main()
