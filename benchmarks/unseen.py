"""Tables that the library was not tuned on: default settings, test rows, beside a central rival and no privacy.

    python benchmarks/unseen.py [--quick] [--json OUT] [--algorithm NAME] [--only TABLE ...] [--runs N] [--again]

A cell is a table, a number of sites and an epsilon. Training is what `sottovoce train --data train.csv --test-data
test.csv --schema ... --nodes N --epsilon E --algorithm NAME` does, with nothing else set. Finished cells are kept in
the JSON file, by algorithm, and are not computed again unless asked for (--again). Tables and their roles: tables.py.
"""

import argparse
import importlib.util
import itertools
import json
import math
import sys
import tempfile
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse, special, stats

import machine
import render
import tables
from processes import HERE, NotMeasuredError, call, python
from sottovoce.algorithms import IPADMM
from sottovoce.files.schema import Schema
from sottovoce.problem.graphs import complete
from sottovoce.problem.losses import Huber
from sottovoce.problem.problem import Problem
from sottovoce.settings import plain
from sottovoce.settings.disk import write_whole
from sottovoce.simulation.optimum import pooled_model
from sottovoce.studies.config import TrainConfig
from sottovoce.studies.run import Trained, train

SITES, EPSILONS = (5, 20, 100), (0.5, 1.0, 2.0)
RUNS, CENTRAL_SEEDS = 5, (0, 1, 2, 3, 4)
ROWS = HERE.parent / "build" / "tables"
OUT = HERE / "unseen.json"
FLOOR = math.log(1e-12)  # of a log-probability: one sure mistake is not to be an infinite loss

Floats = NDArray[np.float64]
Scores = dict[str, float]


class Judge:
    """The test rows of a table, and what a prediction on them is worth. One for all contenders."""

    def __init__(self, rows: Problem) -> None:
        assert rows.test is not None
        self.rows, self.test = rows, rows.test
        self.classes = 0 if rows.answers.classes is None else len(rows.answers.classes)
        self.truth = numbered(self.test.labels, self.classes)

    def of_model(self, weights: Floats) -> Scores:
        """Of a linear model in the library's layout, (d * outputs,)."""
        z = np.asarray(self.test.features @ weights.reshape(self.test.d, -1))
        if self.classes == 0:
            return self.score(z[:, 0])
        if self.classes == 2:
            z = np.column_stack([special.log_expit(-z[:, 0]), special.log_expit(z[:, 0])])
            return self.score(z)
        return self.score(z - special.logsumexp(z, axis=1, keepdims=True))

    def score(self, predicted: Floats) -> Scores:
        """Of log-probabilities (rows, classes), or of labels between -1 and 1."""
        if self.classes == 0:
            error = predicted - self.truth
            return {
                "loss": float(Huber().value(predicted, self.truth, Huber().theta).mean()),
                "mae": self.rows.answers.scale * float(np.abs(error).mean()),
                "rmse": self.rows.answers.scale * math.sqrt(float((error**2).mean())),
            }
        truth = self.truth.astype(int)
        # argmax answers a tie by the first class, the library by the second of two: a model of zeros says +1.
        answer = predicted[:, ::-1].argmax(axis=1)
        found = {
            "loss": -float(np.maximum(predicted[np.arange(len(truth)), truth], FLOOR).mean()),
            "accuracy": float(np.mean(self.classes - 1 - answer == truth)),
        }
        if self.classes == 2:
            score, positive = predicted[:, 1] - predicted[:, 0], truth == 1
            found |= {"auc": auc(score, positive), "average_precision": average_precision(score, positive)}
        return found


def numbered(labels: Floats, classes: int) -> Floats:
    """Classes as 0, 1, ...; two of them are -1 and +1 in the library. Numbers stay as they are."""
    return (labels + 1) / 2 if classes == 2 else labels


def auc(score: Floats, positive: NDArray[np.bool_]) -> float:
    """The chance that a positive row scores above a negative one; ties count half."""
    p, q = int(positive.sum()), int((~positive).sum())
    return float((stats.rankdata(score)[positive].sum() - p * (p + 1) / 2) / (p * q))


def average_precision(score: Floats, positive: NDArray[np.bool_]) -> float:
    """The mean precision over thresholds, weighted by the recall that each adds; equal scores are one threshold."""
    order = np.argsort(-score, kind="stable")
    hits = np.cumsum(positive[order])
    last = np.flatnonzero(np.append(np.diff(score[order]) != 0, True))
    precision, recall = hits[last] / (last + 1), hits[last] / hits[-1]
    return float(np.sum(np.diff(recall, prepend=0.0) * precision))


def main() -> None:
    options = parse()
    kept = json.loads(options.json.read_text(encoding="utf-8")) if options.json.exists() else {}
    out = {"tables": {}, "cells": {}, **kept}
    started = time.perf_counter()
    for table in options.tables:
        measure(table, options, out)
        if time.perf_counter() - started > options.time_limit:
            print("time is up; run again to go on", flush=True)
            break
    print(shown(out, options.algorithm))


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="5 sites, epsilon 1, two runs; figures mean little")
    parser.add_argument("--json", type=Path, default=OUT, metavar="OUT", help="where finished cells are kept")
    parser.add_argument("--algorithm", default="ipadmm", help="as in sottovoce train")
    parser.add_argument("--only", nargs="+", choices=sorted(tables.BY_NAME), metavar="TABLE", help="some of the tables")
    parser.add_argument("--runs", type=int, default=RUNS, help="of every cell")
    parser.add_argument("--rows", type=Path, default=ROWS, help="folder for the tables as CSV files")
    parser.add_argument("--again", action="store_true", help="also what is finished")
    parser.add_argument("--time-limit", type=float, default=math.inf, help="seconds; no table is begun after them")
    options = parser.parse_args()
    options.tables = [table for table in tables.ALL if options.only is None or table.name in options.only]
    options.sites, options.epsilons, options.seeds = SITES, EPSILONS, CENTRAL_SEEDS
    if options.quick:
        options.sites, options.epsilons, options.seeds, options.runs = SITES[:1], (1.0,), CENTRAL_SEEDS[:2], 2
    return options


def measure(table: tables.Table, options: argparse.Namespace, out: dict[str, Any]) -> None:
    """All cells of a table that are not there yet; the file is written after each."""

    def todo(key: str, known: dict[str, Any]) -> bool:
        return options.again or key not in known

    grid = itertools.product(options.sites, options.epsilons)
    cells = {f"{options.algorithm}/{table.name}/{sites}/{epsilon:g}": (sites, epsilon) for sites, epsilon in grid}
    cells = {key: cell for key, cell in cells.items() if todo(key, out["cells"])}
    if not cells and not todo(table.name, out["tables"]):
        return
    files = rows_of(table, options.rows)
    if todo(table.name, out["tables"]):
        out["tables"][table.name] = yardsticks(table, files, options)
        save(out, options.json)
    for key, (sites, epsilon) in cells.items():
        out["cells"][key] = cell_of(table, files, options, sites, epsilon)
        save(out, options.json)
        loss = out["cells"][key].get("scores", {}).get("loss", {}).get("mean", math.nan)
        print(f"... {key}: loss {loss:.4f}, {out['cells'][key]['seconds']:.1f} s", flush=True)


def save(out: dict[str, Any], path: Path) -> None:
    """The file, whole or not at all; tables in their own order, whenever they were measured."""
    out["tables"] = {name: out["tables"][name] for name in tables.BY_NAME if name in out["tables"]}
    write_whole(path, (json.dumps(plain(out), indent=1, allow_nan=False) + "\n").encode())


def rows_of(table: tables.Table, rows: Path) -> dict[str, str]:
    """The files to give to `sottovoce train`; written once, by whichever environment has the package."""
    folder = rows / table.name
    files = {"data": folder / "train.csv", "test_data": folder / "test.csv"}
    if not all(path.exists() for path in files.values()):
        here = importlib.util.find_spec(table.package) is not None
        call([sys.executable if here else python("tables"), str(HERE / "tables.py"), str(rows), table.name], 300)
    return {name: str(path) for name, path in files.items()} | {"schema": str(table.schema)}


def cell_of(
    table: tables.Table, files: dict[str, str], options: argparse.Namespace, sites: int, epsilon: float
) -> dict[str, Any]:
    """Several runs of one setting. An algorithm that refuses is a cell that says so."""
    facts = {"algorithm": options.algorithm, "table": table.name, "sites": sites, "epsilon": epsilon}
    started = time.perf_counter()
    try:
        # The same delta for tables of every size: what is compared is algorithms.
        settings = {"epsilon": epsilon, "delta": 1e-5, "algorithm": options.algorithm, "runs": options.runs}
        config = TrainConfig(**files, nodes=sites, **settings)
        trained = train(config)
    except ValueError as refusal:
        return facts | {"refused": str(refusal), "seconds": time.perf_counter() - started}
    judge = Judge(trained.problem)
    runs = [judge.of_model(np.asarray(weights, dtype=float)) for weights in trained.result.consensus]
    agree(runs, trained)
    return facts | {
        "scores": summary(runs),
        "last_loss": trained.tested.summary()["risk"]["last"] if trained.tested else None,
        "settings": {
            name: getattr(trained.config, name) for name in ("rounds", "local_steps", "rho", "lam", "loss", "delta")
        } | {"diameter": trained.diameter},
        "runs": options.runs,
        "seeds": {"dealing": 0, "noise": "the system's; rows of a file take no seed"},
        "seconds": time.perf_counter() - started,
        "software": machine.describe(),
    }  # fmt: skip


def agree(runs: list[Scores], trained: Trained) -> None:
    """Our loss of the models must be the one that the library says."""
    assert trained.tested is not None
    theirs = trained.tested.risk["consensus"]
    for ours, said in zip((run["loss"] for run in runs), theirs, strict=True):
        # The floor makes ours smaller, and only where a model is so sure and so wrong that its loss is large.
        if not (math.isclose(ours, said, rel_tol=1e-6, abs_tol=1e-9) or 1 < ours < said):
            raise AssertionError(f"Expected the library's loss={said}, got loss={ours}.")


def summary(runs: list[Scores]) -> dict[str, dict[str, float]]:
    """Mean and standard deviation of every score."""
    columns = {name: np.array([run[name] for run in runs]) for name in runs[0]}
    return {
        name: {"mean": float(x.mean()), "std": float(x.std(ddof=1)) if len(x) > 1 else math.nan}
        for name, x in columns.items()
    }


def yardsticks(table: tables.Table, files: dict[str, str], options: argparse.Namespace) -> dict[str, Any]:
    """What a table is, and the three lines that do not depend on sites: no model, no privacy, a central rival."""
    rows = Problem.from_file(files["data"], Schema.load(files["schema"]), complete, nodes=1, test=files["test_data"])
    assert rows.test is not None
    assert rows.schema is not None
    facts = {name: value for name, value in asdict(table).items() if name != "read"}
    positives = float(np.mean(rows.sites.labels == 1)) if table.kind == "binary" else None
    facts |= {"train": len(rows.sites.labels), "test": len(rows.test), "d": rows.sites.d, "positives": positives}
    judge = Judge(rows)
    return facts | {
        "schema_digest": rows.schema.digest(),
        "no_model": judge.score(no_model(rows, judge)),
        "optimum": judge.of_model(optimum(rows)),
        "central": central(rows, judge, options),
    }


def no_model(rows: Problem, judge: Judge) -> Floats:
    """Always the shares of the classes among the rows learnt from, or their median."""
    assert rows.test is not None
    labels = numbered(rows.sites.labels, judge.classes)
    if judge.classes == 0:
        return np.full(len(rows.test), np.median(labels))
    shares = np.bincount(labels.astype(int), minlength=judge.classes) / len(labels)
    return np.tile(np.log(np.maximum(shares, 1e-12)), (len(rows.test), 1))


def optimum(rows: Problem) -> Floats:
    """All rows in one place and no privacy: the same loss and regulariser."""
    loss = rows.answers.loss(None)
    algorithm = IPADMM() if loss is None else IPADMM(loss=loss)
    return pooled_model(rows.sites, algorithm)


def central(rows: Problem, judge: Judge, options: argparse.Namespace) -> dict[str, Any]:
    """diffprivlib at the same epsilons, by variant; why not, where it could not be measured."""
    with tempfile.TemporaryDirectory() as folder:
        source_path, target = Path(folder) / "in.npz", Path(folder) / "out.npz"
        np.savez(source_path, **problem_of(rows, judge, options))
        try:
            software = call([python("tables"), str(HERE / "central.py"), str(source_path), str(target)], 600)
        except NotMeasuredError as reason:
            return {"not_measured": str(reason)}
        answers = np.load(target)
        found: dict[str, Any] = {"software": software, "seeds": list(options.seeds), "runs": len(options.seeds)}
        variants = dict.fromkeys(key.partition("/")[0] for key in answers)
        for variant, epsilon in itertools.product(variants, options.epsilons):
            keys = [f"{variant}/{epsilon:g}/{seed}" for seed in options.seeds]
            found[f"{variant}/{epsilon:g}"] = summary([judge.score(answers[key]) for key in keys])
    return found


def problem_of(rows: Problem, judge: Judge, options: argparse.Namespace) -> dict[str, Any]:
    """What central.py gets: the rows, and the public bounds that the schema gives."""
    assert rows.test is not None
    assert rows.schema is not None
    return {
        "features": dense(rows.sites.rows.block(0, len(rows.sites.labels))),
        "labels": numbered(rows.sites.labels, judge.classes),
        "test_features": dense(rows.test.features), "classes": judge.classes, "lam": IPADMM().lam,
        "data_norm": rows.sites.data_norm, "feature_bounds": feature_bounds(rows.schema),
        "free_features": free_features(rows.schema),
        "epsilons": options.epsilons, "seeds": options.seeds,
    }  # fmt: skip


def feature_bounds(schema: Schema) -> Floats:
    """(2, d): no feature is beyond the largest entry of a row that was scaled by the schema's bound."""
    if schema.row_norm != "bound":
        raise ValueError(f"Expected row_norm='bound', got row_norm={schema.row_norm!r}: bounds of features need it.")
    intercept = schema.intercept
    most = max(1.0, abs(intercept)) / math.sqrt(len(schema.columns) + intercept**2)
    signed = any(plain(column).get("scale") == "symmetric" for column in schema.columns)
    return np.stack([np.full(schema.d, -most if signed else 0.0), np.full(schema.d, most)])


def free_features(schema: Schema) -> NDArray[np.int64]:
    """The features without the constant and the first level of every group of categories, which follow from others."""
    levels = [range(column.width) if column.width == 1 else range(1, column.width) for column in schema.columns]
    firsts = np.cumsum([0, *(column.width for column in schema.columns)])
    return np.array([first + level for first, some in zip(firsts, levels, strict=False) for level in some])


def dense(features: Any) -> Floats:
    return np.asarray(features.toarray() if sparse.issparse(features) else features, dtype=float)


def shown(out: dict[str, Any], algorithm: str) -> str:
    """An aligned table, one line per cell."""
    header, found = render.unseen_cells(out, algorithm)
    refused = [row for row in found if row[-1]]
    rows = [header[:-1], *(row[:-1] for row in found if not row[-1])]
    widths = [max(len(row[place]) for row in rows) for place in range(len(rows[0]))]
    aligned = ["  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    return "\n".join(aligned + [f"{', '.join(row[:3])}: refused: {row[-1]}" for row in refused])


if __name__ == "__main__":
    main()
