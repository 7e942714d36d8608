"""IPADMM planned with a head start over IPADMM planned without: excess of the mean loss over the pooled optimum.

    python benchmarks/head_start.py [--json OUT] [--only TABLE ...] [--runs N] [--rows FOLDER] [--time-limit SECONDS]

20 sites, complete graph, delta 1e-5. Both are planned from public numbers, and nothing else is told. Where the planner
takes no head start the two are one, and the ratio is 1: that is not run. Every run deals the rows out anew. Finished
cells are kept in the JSON file and are not computed again. Tables: head_start_tables.py.
"""

import argparse
import json
import math
import statistics
import time
from pathlib import Path
from typing import Any

import numpy as np

import machine
import sottovoce as sv
from head_start_tables import SOURCES
from processes import HERE, call, python
from sottovoce.plan import plan
from sottovoce.problem.evaluation import evaluate
from sottovoce.settings.disk import write_whole
from sottovoce.simulation.optimum import pooled_model

SITES, EPSILONS, RUNS, DELTA = 20, (0.5, 1.0, 2.0), 8, 1e-5
ROWS, OUT = HERE.parent / "build" / "head_start", HERE / "head_start.json"


def main() -> None:
    options = parse()
    kept = json.loads(options.json.read_text(encoding="utf-8")) if options.json.exists() else {"cells": {}}
    started = time.perf_counter()
    for source in SOURCES:
        if options.only is not None and source.name not in options.only:
            continue
        for epsilon in EPSILONS:
            name = f"{source.name}, epsilon {epsilon:g}"
            if name not in kept["cells"] and time.perf_counter() - started < options.time_limit:
                kept["cells"][name] = measured(rows_of(source.name, options.rows), epsilon, options.runs)
                kept["machine"] = machine.describe()
                write_whole(options.json, (json.dumps(kept, indent=1) + "\n").encode())
                print(f"{name}: {kept['cells'][name]['ratio']:.3f}", flush=True)
    print(shown(kept["cells"]))


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--json", type=Path, default=OUT, metavar="OUT", help="where finished cells are kept")
    parser.add_argument("--only", nargs="+", metavar="TABLE", help="some of the tables")
    parser.add_argument("--runs", type=int, default=RUNS, help="of every cell")
    parser.add_argument("--rows", type=Path, default=ROWS, help="folder for encoded rows")
    parser.add_argument("--time-limit", type=float, default=math.inf, help="seconds; no cell is begun after them")
    return parser.parse_args()


def rows_of(name: str, folder: Path) -> dict[str, Any]:
    """Features, labels and the bound on norms of a table; all tables are written when the first is asked for."""
    if not (folder / f"{name}.npz").exists():
        call([python(".tables"), str(HERE / "head_start_tables.py"), str(folder)], limit=600)
    with np.load(folder / f"{name}.npz") as found:
        return dict(found)


def measured(table: dict[str, Any], epsilon: float, runs: int) -> dict[str, Any]:
    """The excess of the consensus of both, mean over the runs, and their ratio."""
    features, labels, norm = table["features"], table["labels"], float(table["data_norm"])
    rows, d = features.shape
    loss = sv.losses.Logistic() if set(np.unique(labels)) == {-1.0, 1.0} else sv.losses.Huber()
    graph = sv.graphs.complete(SITES)
    about = {"rows": rows, "columns": d, "loss": loss.name}
    sizes = [len(part) for part in np.array_split(np.arange(rows), SITES)]

    def planned(**fixed: Any) -> sv.IPADMM:
        return plan(
            sizes=sizes, d=d, graph=graph, epsilon=epsilon, delta=DELTA, loss=loss, data_norm=norm, fixed=fixed
        ).algorithm()

    ahead = planned()
    if not ahead.moments:
        return about | {"head_start": False, "ratio": 1.0}
    pooled = sv.Sites([features], [labels], data_norm=norm)
    model = pooled_model(pooled, ahead)
    least = evaluate(pooled.rows.block, labels, loss, model[:, None]).risk.item()
    excess = []
    for algorithm in (planned(moments=0.0), ahead):
        risks = []
        for run in range(runs):
            parts = np.array_split(np.random.default_rng(run).permutation(rows), SITES)
            dealt = sv.Sites([features[part] for part in parts], [labels[part] for part in parts], data_norm=norm)
            risks.append(sv.simulate(algorithm, dealt, graph, seed=run, record=1).risk()["consensus"])
        excess.append(statistics.fmean(risks) - least)
    return about | {
        "head_start": True, "least": least, "excess_without": excess[0], "excess_with": excess[1],
        "ratio": excess[1] / excess[0], "runs": runs,
    }  # fmt: skip


def shown(cells: dict[str, dict[str, Any]]) -> str:
    """Median, best and worst ratio over the tables at each epsilon, as a table in Markdown."""
    lines = ["| epsilon | median | best | worst | tables with a head start |", "| --- | --- | --- | --- | --- |"]
    for epsilon in EPSILONS:
        own = [cell for name, cell in cells.items() if name.endswith(f"epsilon {epsilon:g}")]
        if own:
            ratios = sorted(cell["ratio"] for cell in own)
            taken = sum(cell["head_start"] for cell in own)
            lines.append(
                f"| {epsilon:g} | {statistics.median(ratios):.2f} | {ratios[0]:.2f} | {ratios[-1]:.2f} "
                f"| {taken} of {len(own)} |"
            )
    return "\n".join(lines)


if __name__ == "__main__":
    main()
