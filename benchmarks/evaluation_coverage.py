"""Do the 95 % intervals of a private evaluation hold what they say?

    python benchmarks/evaluation_coverage.py [--quick] [--repetitions 500] [--out benchmarks/evaluation_coverage.json]

Rows are drawn from a population that is known, evaluated with the noise of the operating system, and the intervals
compared with the population's own figures: accuracy, AUC, average precision and the rest, every point of the ROC curve,
every group of the calibration curve. Populations: log-odds are normal, labels follow them, and the model's score is a
multiple of the log-odds, so that it may be badly calibrated; three classes; errors with heavy tails.
"""

import argparse
import json
import sys
import time
from collections import defaultdict
from pathlib import Path

import numpy as np
from scipy.optimize import brentq
from scipy.special import expit, softmax

from sottovoce.problem import losses
from sottovoce.problem.figures import Ranking
from sottovoce.tally import Terms, evaluate, question_for

POPULATION, DELTA = 1_000_000, 1e-5
# rows, epsilon, sites and colluding, share of positive rows, spread of log-odds, how far the model overstates them, and
# of what log-odds are multiples (0: of nothing)
CASES = [
    (500, 1.0, 1, 0, 0.4, 2.0, 1.0, 0.0),
    (1_000, 1.0, 1, 0, 0.4, 1.0, 0.5, 0.0),
    (5_000, 0.5, 5, 2, 0.25, 2.0, 1.0, 0.0),
    (5_000, 1.0, 1, 0, 0.25, 2.0, 2.0, 0.0),
    (5_000, 1.0, 50, 20, 0.1, 1.5, 1.0, 0.0),
    (5_000, 1.0, 1, 0, 0.01, 1.5, 1.0, 0.0),
    (20_000, 0.1, 1, 0, 0.25, 2.0, 1.0, 0.0),
    (45_000, 1.0, 50, 20, 0.25, 2.0, 1.0, 0.0),
    (45_000, 4.0, 1, 0, 0.01, 1.5, 1.0, 0.0),
    (200_000, 0.5, 1, 0, 0.01, 1.5, 1.0, 0.0),
    (200_000, 4.0, 5, 2, 0.25, 1.0, 1.0, 0.0),
    (5_000, 1.0, 1, 0, 0.3, 2.0, 1.0, 2.0),
    (45_000, 1.0, 1, 0, 0.3, 2.0, 1.0, 2.0),
]


class Hits:
    """How often an interval held its target, how wide it was, and how often nothing was told."""

    def __init__(self):
        self.held, self.widths, self.told, self.of = 0, [], 0, 0

    def add(self, interval, target):
        self.of += 1
        self.held += interval.low <= target <= interval.high
        self.told += interval.value is not None
        self.widths.append(interval.high - interval.low)

    def to_dict(self):
        cover = self.held / self.of
        return {
            "coverage": round(cover, 4), "error": round(1.96 * np.sqrt(cover * (1 - cover) / self.of), 4),
            "median_width": float(f"{np.median(self.widths):.4g}"), "told": round(self.told / self.of, 3),
        }  # fmt: skip


def two_classes(share, spread, factor, step, random):
    """Scores and labels of a large population."""
    grid = np.linspace(-8, 8, 4001) * spread
    weights = np.exp(-0.5 * (grid / spread) ** 2)
    middle = brentq(lambda m: weights @ expit(m + grid) / weights.sum() - share, -40, 40)
    odds = middle + spread * random.standard_normal(POPULATION)
    odds = step * np.round(odds / step) if step else odds
    return factor * odds, np.where(random.random(POPULATION) < expit(odds), 1.0, -1.0)


def figures_of(z, labels):
    """The population's own figures, and functions for the points of its curves."""
    positive, called = labels > 0, z >= 0
    ranking = Ranking.of(z, positive)
    known = {
        "accuracy": np.mean(called == positive), "auc": ranking.auc(), "positive": np.mean(positive),
        "average_precision": ranking.average_precision(), "recall": np.mean(called[positive]),
        "precision": np.mean(positive[called]), "specificity": np.mean(~called[~positive]),
        "majority": max(np.mean(positive), 1 - np.mean(positive)),
    }  # fmt: skip
    of = {sign: np.sort(z[positive == sign]) for sign in (False, True)}

    def beyond(threshold, sign):
        return 1 - np.searchsorted(of[sign], threshold) / len(of[sign])

    def between(low, high):
        counts = {s: np.searchsorted(of[s], high) - np.searchsorted(of[s], low) for s in of}
        return counts[True] / max(counts[True] + counts[False], 1)

    return known, beyond, between


def logit(p):
    with np.errstate(divide="ignore"):
        return np.log(p) - np.log1p(-p)


def classes_case(case, repetitions, random):
    rows, epsilon, sites, colluding, share, spread, factor, step = case
    z, labels = two_classes(share, spread, factor, step, random)
    known, beyond, between = figures_of(z, labels)
    terms = Terms(epsilon=epsilon, delta=DELTA, sites=sites, colluding=colluding)
    question, hits = question_for(losses.Logistic(), rows, terms), defaultdict(Hits)
    for _ in range(repetitions):
        drawn = random.integers(0, POPULATION, rows)
        answer = evaluate(question, terms, z[drawn, None], labels[drawn])
        for name, target in known.items():
            hits[name].add(answer.figures[name], target)
        for point in answer.roc:
            # A hair lower, so that what lies on the edge is counted as it was.
            at = logit(point.threshold) - 1e-12
            hits["ROC, true positive rate"].add(point.true_positive_rate, beyond(at, True))
            hits["ROC, false positive rate"].add(point.false_positive_rate, beyond(at, False))
        for group in answer.calibration:
            hits["calibration"].add(group.observed, between(logit(group.low) - 1e-12, logit(group.high) - 1e-12))
    return {"bins": question.bins, "figures": {name: one.to_dict() for name, one in hits.items()}}


def several_case(rows, epsilon, repetitions, random):
    z = random.standard_normal((POPULATION, 3)) * 1.5 + [0.0, 0.5, -1.0]
    labels = (random.random((POPULATION, 1)) > np.cumsum(softmax(z, axis=1), axis=1)).sum(axis=1).clip(0, 2)
    decided = z.argmax(axis=1)
    right, top = decided == labels, softmax(z, axis=1).max(axis=1)
    terms = Terms(epsilon=epsilon, delta=DELTA)
    question, hits = question_for(losses.Softmax(3), rows, terms), defaultdict(Hits)
    for _ in range(repetitions):
        drawn = random.integers(0, POPULATION, rows)
        answer = evaluate(question, terms, z[drawn], labels[drawn].astype(float))
        hits["accuracy"].add(answer.figures["accuracy"], right.mean())
        for c in range(3):
            hits["recall"].add(answer.by_class[c].recall, right[labels == c].mean())
            hits["precision"].add(answer.by_class[c].precision, right[decided == c].mean())
            for d in range(3):
                hits["confusion"].add(answer.confusion[c][d], rows * np.mean((labels == c) & (decided == d)))
        for group in answer.calibration[:: max(1, len(answer.calibration) // 3)]:
            inside = (top >= group.low - 1e-12) & (top < group.high)
            hits["calibration"].add(group.observed, right[inside].mean())
    return {"bins": question.bins, "figures": {name: one.to_dict() for name, one in hits.items()}}


def numbers_case(rows, epsilon, repetitions, random):
    errors = np.abs(random.standard_t(4, POPULATION))
    terms = Terms(epsilon=epsilon, delta=DELTA)
    question, hits = question_for(losses.Huber(), rows, terms, width=200.0), defaultdict(Hits)
    for _ in range(repetitions):
        drawn = random.integers(0, POPULATION, rows)
        answer = evaluate(question, terms, errors[drawn, None], np.zeros(rows))
        clipped = np.minimum(errors, answer.figures["clipped_at"].low)
        hits["mean_absolute_error"].add(answer.figures["mean_absolute_error"], clipped.mean())
        hits["root_mean_square_error"].add(answer.figures["root_mean_square_error"], np.sqrt(np.mean(clipped**2)))
        hits["mean_absolute_error, not clipped"].add(answer.figures["mean_absolute_error"], errors.mean())
    return {"figures": {name: one.to_dict() for name, one in hits.items()}}


def run(repetitions, quick):
    random, found = np.random.default_rng(20), []
    names = ("rows", "epsilon", "sites", "colluding", "share", "spread", "factor", "step")
    for case in CASES[1:2] if quick else CASES:
        started = time.perf_counter()
        result = classes_case(case, repetitions, random)
        found.append({"kind": "two classes", **dict(zip(names, case, strict=True)), **result})
        tell(found[-1], time.perf_counter() - started)
    for kind, make in (("three classes", several_case), ("numbers", numbers_case)):
        for rows, epsilon in [(1_000, 1.0)] if quick else [(1_000, 1.0), (20_000, 0.5)]:
            started = time.perf_counter()
            found.append({"kind": kind, "rows": rows, "epsilon": epsilon, **make(rows, epsilon, repetitions, random)})
            tell(found[-1], time.perf_counter() - started)
    return {"delta": DELTA, "repetitions": repetitions, "cases": found}


def tell(case, seconds):
    about = ", ".join(f"{name}={value}" for name, value in case.items() if name != "figures")
    print(f"{about} ({seconds:.0f} s)", flush=True)
    for name, one in case["figures"].items():
        told = f"{one['coverage']:.3f} ± {one['error']:.3f}   width {one['median_width']:<8g} told {one['told']}"
        print(f"    {name:34s} {told}")


SHOWN = ("accuracy", "auc", "average_precision", "recall", "precision", "ROC, true positive rate", "calibration")
PAGE = Path(__file__).parents[1] / "docs" / "proofs" / "evaluation.md"
BEGIN, END = "<!-- coverage -->", "<!-- /coverage -->"


def page_table(found):
    """The lines of docs/proofs/evaluation.md: coverage and, in brackets, the median width."""
    names = ["accuracy", "AUC", "average precision", "recall", "precision", "ROC", "calibration"]
    lines = ["| rows, positive | ε, sites (colluding) | " + " | ".join(names) + " |", "| --- " * (2 + len(names)) + "|"]
    for case in found["cases"]:
        if case["kind"] == "two classes":
            ties = ", scores in steps of 2" if case["step"] else ""
            about = f"{case['rows']:,}, {100 * case['share']:g} %{ties}"
            price = f"{case['epsilon']:g}, {case['sites']} ({case['colluding']})"
            lines.append(f"| {about} | {price} | " + " | ".join(cell(case["figures"][name]) for name in SHOWN) + " |")
    lines += ["", "| | rows, ε | figures |", "| --- | --- | --- |"]
    for case in found["cases"]:
        if case["kind"] != "two classes":
            told = ", ".join(f"{name.replace('_', ' ')} {cell(one)}" for name, one in case["figures"].items())
            lines.append(f"| {case['kind']} | {case['rows']:,}, {case['epsilon']:g} | {told} |")
    return "\n".join(lines)


def cell(one):
    return f"{100 * one['coverage']:.1f} % ({one['median_width']:.2g})" if one["told"] > 0.5 else "–"


def write_page(found):
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
    after = rest.partition(END)[2]
    text = f"{before}{BEGIN}\n\n{page_table(found)}\n\n{END}{after}"
    PAGE.write_text(text, encoding="utf-8")


def main(arguments=None):
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--quick", action="store_true", help="a smoke test: few cases, few repetitions")
    options.add_argument("--repetitions", type=int, default=500)
    options.add_argument("--out", type=Path)
    options.add_argument("--page", action="store_true", help="write the table of docs/proofs/evaluation.md")
    given = options.parse_args(arguments)
    found = run(20 if given.quick else given.repetitions, given.quick)
    if given.out is not None:
        given.out.write_text(json.dumps(found, indent=1) + "\n")
    if given.page:
        write_page(found)
    return 0


if __name__ == "__main__":
    sys.exit(main())
