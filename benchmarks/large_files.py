"""Large files: seconds and memory from a CSV file to checked rows at sites, beside pyarrow's reader alone.

    python benchmarks/large_files.py [--rows 10000000] [--columns 5000] [--train]     writes benchmarks/large_files.json

Two made-up tables, in a temporary folder: many rows of six columns, and 2,000 rows of many columns. Every line is a
process of its own, so that its peak of memory is its own. Seconds of the processor count all threads; beside other work
they say more than those of the clock. With --train, `sottovoce train --algorithm ipadmm --nodes 5 --epsilon 1` goes
through as a whole.
"""

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv

from machine import busy, describe
from sottovoce import Sites
from sottovoce.files.schema import Schema, files

OUT = Path(__file__).parent / "large_files.json"
BLOCK_ROWS = 500_000
LONG = """
[label]
column = "outcome"
classes = ["well", "ill"]
[[columns]]
name = "age"
kind = "numeric"
bounds = [0, 120]
edges = [30, 45, 60, 75]
[[columns]]
name = "income"
kind = "numeric"
bounds = [0, 200000]
scale = "unit"
[[columns]]
name = "hours"
kind = "numeric"
bounds = [0, 80]
scale = "unit"
[[columns]]
name = "city"
kind = "categorical"
categories = ["Rome", "Oslo", "Paris", "Berlin", "Madrid"]
[[columns]]
name = "smoker"
kind = "boolean"
"""


def write_long(folder, rows):
    """Six columns: whole numbers, amounts, texts."""
    rng, path = np.random.default_rng(0), folder / "long.csv"
    with path.open("wb") as file:
        for first in range(0, rows, BLOCK_ROWS):
            m = min(BLOCK_ROWS, rows - first)
            age, income = rng.integers(18, 95, m), np.round(rng.gamma(2, 20_000, m), 2)
            ill = age / 95 + income / 1e5 + rng.normal(0, 0.5, m) > 1.1
            cities = np.array(["Rome", "Oslo", "Paris", "Berlin", "Madrid"])
            table = pa.table({
                "age": age, "income": income, "hours": rng.integers(0, 80, m), "city": cities[rng.integers(0, 5, m)],
                "smoker": np.array(["no", "yes"])[rng.integers(0, 2, m)],
                "outcome": np.array(["well", "ill"])[ill.astype(int)],
            })  # fmt: skip
            pacsv.write_csv(table, file, pacsv.WriteOptions(include_header=not first, quoting_style="none"))
    (folder / "long.toml").write_text(LONG)
    return path


def write_wide(folder, columns, rows=2000):
    """Numbers between 0 and 1."""
    rng, path = np.random.default_rng(0), folder / "wide.csv"
    values = np.round(rng.random((rows, columns)), 4)
    table = {f"x{i}": values[:, i] for i in range(columns)}
    label = np.where(values[:, 0] > 0.5, "b", "a")
    pacsv.write_csv(pa.table({**table, "y": label}), path, pacsv.WriteOptions(quoting_style="none"))
    column = '[[columns]]\nname = "x{}"\nkind = "numeric"\nbounds = [0, 1]\nscale = "unit"\n'
    said = "".join(column.format(i) for i in range(columns))
    (folder / "wide.toml").write_text('[label]\ncolumn = "y"\nclasses = ["a", "b"]\n' + said)
    return path


def only_read(path, schema):  # noqa: ARG001, all tasks are called alike
    """The reader alone: every cell as text, as we need it to name a bad one."""
    names = pacsv.open_csv(path).schema.names
    types = dict.fromkeys(names, pa.dictionary(pa.int32(), pa.binary()))
    options = pacsv.ConvertOptions(column_types=types, check_utf8=False)
    size = pacsv.ReadOptions(use_threads=False, block_size=4 * 2**20 * min(16, 1 + len(names) // 64))
    for _ in pacsv.open_csv(path, size, pacsv.ParseOptions(newlines_in_values=True), options):
        pass


TASKS = {
    "pyarrow's reader alone": only_read,
    "read and encoded": files.encode,
    "read, encoded and dealt out to 5 sites": lambda path, schema: Sites.split(files.encode(path, schema), 5),
}


def measured(argv):
    """One process: seconds of the clock and of the processor, and its peak of memory."""
    done = subprocess.run(argv, check=True, capture_output=True, text=True)
    return json.loads(done.stdout.splitlines()[-1])


def work(task, path):
    """In a process of its own."""
    schema, started, before = Schema.load(Path(path).with_suffix(".toml")), time.perf_counter(), time.process_time()
    if task == "train":
        from sottovoce.studies.config import TrainConfig
        from sottovoce.studies.run import train

        train(
            TrainConfig(
                data=path, schema=str(Path(path).with_suffix(".toml")), nodes=5, epsilon=1.0, algorithm="ipadmm"
            )
        )
    else:
        TASKS[task](path, schema)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    clock, own = time.perf_counter() - started, time.process_time() - before
    print(json.dumps({"seconds": clock, "processor_seconds": own, "peak_gib": peak}))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--columns", type=int, default=5000)
    parser.add_argument("--train", action="store_true")
    parser.add_argument("--work", nargs=2, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.work:
        work(*given.work)
        return
    found = {"machine": describe(), "load_before": busy(), "rows": given.rows, "columns": given.columns, "lines": []}
    with tempfile.TemporaryDirectory() as folder:
        for path in (write_long(Path(folder), given.rows), write_wide(Path(folder), given.columns)):
            for task in [*TASKS, *(["train"] if given.train else [])]:
                line = measured([sys.executable, __file__, "--work", task, str(path)])
                size = round(path.stat().st_size / 1e6)
                found["lines"].append({"file": path.stem, "megabytes": size, "task": task, **line})
                print(found["lines"][-1], flush=True)
    OUT.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
