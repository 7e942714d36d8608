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

import machine
import tables
from processes import HERE, call, python
from sottovoce import datasets
from sottovoce.errors import PrivacyLeakWarning
from sottovoce.estimators import PrivateLogisticRegression
from sottovoce.files.schema import Schema
from sottovoce.problem.problem import encoded

EPSILONS, RUNS, DELTA = (0.1, 0.5, 1.0, 2.0), 5, 1e-5
OUT = HERE / "central_glm.json"
VARIANTS = ("default", "same", "split")
LAM = 1e-6  # what "same" gives to both

Floats = NDArray[np.float64]
Rows = tuple[Floats, Floats]  # features of norm at most 1, labels -1 and +1
Scores = dict[str, float]


def packaged(name: str) -> tuple[Rows, Rows]:
    """A data set of the package: rows to learn from, and the held-out fifth."""
    data = datasets.BY_NAME[name]()
    features, labels = dense(data.features), np.asarray(data.labels, dtype=float)
    held_out = np.array([tables.tested(name, number) for number in range(1, len(labels) + 1)])
    return (features[~held_out], labels[~held_out]), (features[held_out], labels[held_out])


def by_schema(name: str) -> tuple[Rows, Rows]:
    """A table of tables.py, by its schema, split as there."""
    table = tables.BY_NAME[name]
    with tempfile.TemporaryDirectory() as folder:
        table.write(Path(folder))
        schema = Schema.load(table.schema)
        parts = [encoded(Path(folder) / f"{part}.csv", schema)[0] for part in ("train", "test")]
    learnt, tested = ((dense(part.features), np.asarray(part.labels, dtype=float)) for part in parts)
    return learnt, tested


def dense(features: Any) -> Floats:
    return np.asarray(features.toarray() if sparse.issparse(features) else features, dtype=float)


TABLES: dict[str, Callable[[str], tuple[Rows, Rows]]] = {
    "adult": packaged, "bank": packaged, "breast-cancer": by_schema, "smoking": by_schema,
}  # fmt: skip


def main() -> None:
    options = parse()
    kept = json.loads(options.json.read_text(encoding="utf-8"))["tables"] if options.json.exists() else {}
    out: dict[str, Any] = {"delta": DELTA, "tables": kept}
    for name in options.only or TABLES:
        out["tables"][name] = measured(name, options.runs)
        out["software"] = machine.describe()
        # After every table: diffprivlib takes minutes for each.
        options.json.write_text(json.dumps(out, indent=1, allow_nan=False) + "\n", encoding="utf-8")
        print(json.dumps({name: out["tables"][name]["scores"]}), flush=True)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--json", type=Path, default=OUT, metavar="OUT")
    parser.add_argument("--runs", type=int, default=RUNS)
    parser.add_argument("--only", nargs="+", choices=sorted(TABLES), metavar="TABLE")
    return parser.parse_args()


def measured(name: str, runs: int) -> dict[str, Any]:
    """Both contenders on one table: by contender and epsilon, mean and spread over runs."""
    learnt, tested = TABLES[name](name)
    theirs, software = diffprivlib(learnt, tested, runs)
    found = {"sottovoce": ours(learnt, tested, runs), "diffprivlib": theirs}
    shares = np.array([np.mean(learnt[1] == -1), np.mean(learnt[1] == 1)])
    no_model = scored(np.tile(np.log(shares), (len(tested[1]), 1)), tested[1])
    shape = {"runs": runs, "train": len(learnt[1]), "test": len(tested[1]), "features": learnt[0].shape[1]}
    return {**shape, "no_model": no_model, "scores": found, "rival": software}


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
