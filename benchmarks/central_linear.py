"""One site that holds all rows: our linear regression beside diffprivlib's, at the same epsilons.

    python benchmarks/central_linear.py [--json OUT] [--runs N]

Both get the same rows by the same public schema, labels scaled to -1..1, and score the same held-out fifth. Ours
promises (epsilon, 1e-5); diffprivlib's promise has no delta, which is stronger. It gets a
reference level for every group of categories, since it cannot bear features that follow from each other. Its better
variant on the test rows, with an intercept of its own or a constant feature, is shown. The environment of diffprivlib
is that of `make unseen`.
"""

import argparse
import json
import tempfile
import warnings
from pathlib import Path
from typing import Any

import numpy as np

import machine
import tables
from central_glm import Rows, dense
from processes import HERE, call, python
from sottovoce.errors import PrivacyLeakWarning
from sottovoce.estimators import PrivateLinearRegression
from sottovoce.files.schema import Schema
from sottovoce.problem.problem import encoded
from unseen import feature_bounds, free_features

EPSILONS, RUNS, DELTA = (0.1, 0.5, 1.0, 2.0, 10.0), 10, 1e-5
TABLES, VARIANTS, OUT = ("wages", "doctor-visits"), ("default", "same"), HERE / "central_linear.json"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--json", type=Path, default=OUT, metavar="OUT")
    parser.add_argument("--runs", type=int, default=RUNS)
    options = parser.parse_args()
    found: dict[str, Any] = {"delta": DELTA, "tables": {}}
    for name in TABLES:
        found["tables"][name] = measured(name, options.runs)
        found["software"] = machine.describe()
        options.json.write_text(json.dumps(found, indent=1, allow_nan=False) + "\n", encoding="utf-8")
        print(json.dumps({name: found["tables"][name]}), flush=True)


def split(name: str) -> tuple[Rows, Rows]:
    """Rows to learn from and held-out ones, by the table's schema. The packages with the tables are the rival's."""
    with tempfile.TemporaryDirectory() as folder:
        call([python("tables"), str(HERE / "tables.py"), folder, name], 600)
        schema = Schema.load(tables.BY_NAME[name].schema)
        parts = [encoded(Path(folder) / name / f"{part}.csv", schema)[0] for part in ("train", "test")]
    learnt, tested = ((dense(part.features), np.asarray(part.labels, dtype=float)) for part in parts)
    return learnt, tested


def measured(name: str, runs: int) -> dict[str, Any]:
    """Mean squared errors over the variance of the test labels: 1 is no model, by contender and epsilon."""
    (features, labels), (unseen, truth) = split(name)
    exact = np.linalg.lstsq(features, labels, rcond=None)[0]
    spread = float(np.var(truth))

    def error(predicted: Any) -> float:
        return float(np.mean((np.clip(predicted, -1, 1) - truth) ** 2)) / spread

    ours: dict[str, Any] = {}
    for epsilon in EPSILONS:
        scores = []
        for seed in range(runs):
            model = PrivateLinearRegression(
                epsilon, delta=DELTA, data_norm=1.0, y_bounds=(-1, 1), fit_intercept=False, random_state=seed
            )
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", PrivacyLeakWarning)
                scores.append(error(model.fit(features, labels).predict(unseen)))
        ours[f"{epsilon:g}"] = summary(scores)
    with tempfile.TemporaryDirectory() as folder:
        source, target = Path(folder) / "in.npz", Path(folder) / "out.npz"
        schema = Schema.load(tables.BY_NAME[name].schema)
        bounds, free = feature_bounds(schema), free_features(schema)
        np.savez(source, features=features, labels=labels, test_features=unseen, classes=0, lam=0.0, data_norm=1.0,
                 feature_bounds=bounds, free_features=free, epsilons=EPSILONS, seeds=np.arange(runs))  # fmt: skip
        software = call([python("tables"), str(HERE / "central.py"), str(source), str(target)], 1800)
        answers = np.load(target)
        theirs = {
            f"{epsilon:g}": min(
                (
                    summary([error(answers[f"{variant}/{epsilon:g}/{seed}"]) for seed in range(runs)])
                    for variant in VARIANTS
                ),
                key=lambda line: line["mean"],
            )
            for epsilon in EPSILONS
        }
    shape = {"train": len(labels), "test": len(truth), "features": features.shape[1], "runs": runs}
    return {**shape, "sottovoce": ours, "diffprivlib": theirs, "not_private": error(unseen @ exact), "rival": software}


def summary(scores: list[float]) -> dict[str, float]:
    return {"mean": float(np.mean(scores)), "std": float(np.std(scores, ddof=1))}


if __name__ == "__main__":
    main()
