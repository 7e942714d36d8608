"""One site that holds all rows: our logistic regression beside diffprivlib's, at the same epsilons.

    python benchmarks/central_glm.py [--json OUT] [--runs N] [--only TABLE ...]

Both get the same rows, all of norm at most 1, and score the same held-out fifth. Ours promises (epsilon, 1e-5);
diffprivlib's promise has no delta, which is stronger. It is tried with three regularisers (see central.py), and the
best of them on the test rows is shown, which is to its advantage. Ours runs as it stands: nothing is set but epsilon,
delta and the norm of rows. The environment of diffprivlib is that of `make unseen`.
"""

import argparse
import json
import math
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.datasets import load_breast_cancer

import machine
import tables
from processes import HERE, call, python
from sottovoce import datasets
from sottovoce.errors import PrivacyLeakWarning
from sottovoce.estimators import PrivateLogisticRegression

EPSILONS, RUNS, DELTA = (0.1, 0.5, 1.0, 2.0), 10, 1e-5
OUT = HERE / "central_glm.json"
VARIANTS = ("default", "same", "split")
LAM = 1e-6  # what "same" gives to both

Floats = NDArray[np.float64]
Rows = tuple[Floats, Floats]  # features of norm at most 1, labels -1 and +1
Scores = dict[str, float]


def packaged(name: str) -> Rows:
    """A data set of the package."""
    data = datasets.BY_NAME[name]()
    features = data.features.toarray() if sparse.issparse(data.features) else data.features
    return np.asarray(features, dtype=float), np.asarray(data.labels, dtype=float)


def breast_cancer() -> Rows:
    """Columns divided by their maximum, and a constant; the table is public, and both get the same numbers."""
    data = load_breast_cancer()
    columns = np.column_stack([data.data / data.data.max(axis=0), np.ones(len(data.data))])
    return columns / math.sqrt(columns.shape[1]), np.where(data.target == 1, 1.0, -1.0)


TABLES: dict[str, Callable[[], Rows]] = {
    "adult": lambda: packaged("adult"),
    "bank": lambda: packaged("bank"),
    "breast-cancer": breast_cancer,
}


def main() -> None:
    options = parse()
    out: dict[str, Any] = {"delta": DELTA, "runs": options.runs, "tables": {}}
    for name in options.only or TABLES:
        out["tables"][name] = measured(name, options.runs)
        print(json.dumps({name: out["tables"][name]["scores"]}), flush=True)
    out["software"] = machine.describe()
    options.json.write_text(json.dumps(out, indent=1, allow_nan=False) + "\n", encoding="utf-8")


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--json", type=Path, default=OUT, metavar="OUT")
    parser.add_argument("--runs", type=int, default=RUNS)
    parser.add_argument("--only", nargs="+", choices=sorted(TABLES), metavar="TABLE")
    return parser.parse_args()


def measured(name: str, runs: int) -> dict[str, Any]:
    """Both contenders on one table: by contender and epsilon, mean and spread over runs."""
    features, labels = TABLES[name]()
    held_out = np.array([tables.tested(name, number) for number in range(1, len(labels) + 1)])
    learnt, tested = (features[~held_out], labels[~held_out]), (features[held_out], labels[held_out])
    theirs, software = diffprivlib(learnt, tested, runs)
    found = {"sottovoce": ours(learnt, tested, runs), "diffprivlib": theirs}
    shares = np.array([np.mean(learnt[1] == -1), np.mean(learnt[1] == 1)])
    no_model = scored(np.tile(np.log(shares), (len(tested[1]), 1)), tested[1])
    return {"train": len(learnt[1]), "test": len(tested[1]), "features": features.shape[1], "no_model": no_model,
            "scores": found, "rival": software}  # fmt: skip


def ours(learnt: Rows, tested: Rows, runs: int) -> dict[str, Any]:
    """The estimator, with a seed for each run: these rows are public."""
    found = {}
    for epsilon in EPSILONS:
        answers = []
        for seed in range(runs):
            model = PrivateLogisticRegression(
                epsilon, delta=DELTA, data_norm=1.0, classes=[-1.0, 1.0], lam=LAM, fit_intercept=False,
                random_state=seed,
            )  # fmt: skip
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", PrivacyLeakWarning)
                model.fit(*learnt)
            answers.append(scored(model.predict_log_proba(tested[0]), tested[1]))
        found[f"{epsilon:g}"] = summary(answers)
    return found


def diffprivlib(learnt: Rows, tested: Rows, runs: int) -> tuple[dict[str, Any], dict[str, str]]:
    """The best of its three regularisers at each epsilon, by its mean loss on the test rows."""
    with tempfile.TemporaryDirectory() as folder:
        source, target = Path(folder) / "in.npz", Path(folder) / "out.npz"
        np.savez(source, features=learnt[0], labels=(learnt[1] + 1) / 2, test_features=tested[0], classes=2,
                 lam=LAM, data_norm=1.0, epsilons=EPSILONS, seeds=np.arange(runs))  # fmt: skip
        software = call([python("tables"), str(HERE / "central.py"), str(source), str(target)], 1800)
        answers = np.load(target)
        found = {}
        for epsilon in EPSILONS:
            every = {
                variant: summary([scored(answers[f"{variant}/{epsilon:g}/{seed}"], tested[1]) for seed in range(runs)])
                for variant in VARIANTS
            }
            best = min(every, key=lambda variant: every[variant]["loss"]["mean"])
            found[f"{epsilon:g}"] = {"variant": best, **every[best]}
    return found, software


def scored(log_p: Floats, labels: Floats) -> Scores:
    """Mean loss and share of right answers of log-probabilities (rows, 2)."""
    truth = (labels == 1).astype(int)
    return {
        "loss": -float(np.maximum(log_p[np.arange(len(truth)), truth], math.log(1e-12)).mean()),
        "accuracy": float(np.mean((log_p[:, 1] >= log_p[:, 0]) == truth)),
    }


def summary(runs: list[Scores]) -> dict[str, dict[str, float]]:
    """Mean and standard deviation."""
    columns = {name: np.array([run[name] for run in runs]) for name in runs[0]}
    return {name: {"mean": float(x.mean()), "std": float(x.std(ddof=1))} for name, x in columns.items()}


if __name__ == "__main__":
    main()
