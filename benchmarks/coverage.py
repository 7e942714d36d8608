"""How often 95 % intervals of private coefficients hold what they are for, and how wide they are.

    python benchmarks/coverage.py [--quick] [--json OUT] [--repetitions N] [--only TABLE ...]

Every repetition draws N rows anew, from a formula (whose coefficients are known) or, with replacement, from a public
table that is taken for the population. The model is then not true of it. So it is asked how often an interval holds
what it is of, the fit to all of the population with long rows counting as much as they do in that run, and beside that
how often it holds the pooled fit, in which they count in full. "adult-right" and "bank-right" have the rows of these
tables, and labels that are drawn from the pooled fit: of them it is true. With `focus`, a cell is of these coefficients
alone.
"counts" are of Poisson regression;
"exposed" vary three times as much as Poisson counts do, and are of different exposures. It makes one private run and
asks whether each interval holds the coefficient. Two columns of "twins" are the same, and in "separate" hardly any row
of one kind is positive: those coefficients must never be called identified. "rare" have a strong effect on a level of
few rows, beside numbers that go together; "levels" have it beside 30 levels of other columns, most of which are 0 in a
row; "clinical" has five columns of a few levels and three numbers. The model has the default ridge of estimators.

Coverage is that of all coefficients that rows can tell, identified or not. A cell fails if it is less than 94 %, by
more than two standard errors; or if some coefficient is held in fewer than 90 % of the repetitions, by more than two
standard errors; or if one was identified that must not be. Widths are medians over coefficients of the private interval
over that of a fit without privacy on as many rows, and of the interval itself.
"""

import argparse
import json
import math
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
from numpy.typing import NDArray

import machine
from processes import HERE
from sottovoce import MaskedNewton, Sites, graphs
from sottovoce.files.datasets import adult_csv, bank
from sottovoce.files.schema import Schema
from sottovoce.noise.sources import SeededNoise, Shape
from sottovoce.problem.factors import ALIKE, Factors
from sottovoce.problem.losses import Logistic, Loss, Poisson
from sottovoce.problem.problem import encoded
from sottovoce.simulation.exchange import Local
from sottovoce.sums.inference import CRITICAL, Evidence, infer

OUT, DELTA, LAM, REPETITIONS = HERE / "coverage.json", 1e-6, 1e-4, 500
LEAST, MOST, LEAST_OF_ONE = 0.94, 0.97, 0.90
Floats = NDArray[np.float64]
Draw = Callable[[np.random.Generator, int], tuple[Floats, Floats, Factors]]  # rows, labels, exposures


@dataclass(frozen=True)
class Table:
    """Where rows come from. `never` are the coefficients that no rows can tell, `excess` is what the covariance of one
    row's gradient is over the Hessian, `largest` bounds every number of a row, as a schema says.
    """

    names: tuple[str, ...]
    truth: Floats
    draw: Draw
    largest: float
    never: tuple[int, ...] = ()
    loss: Loss = field(default_factory=Logistic)
    excess: float = 1.0
    population: tuple[Floats, Floats] | None = None  # all rows and labels, where the model is not true of them


def even() -> Table:
    """Five numbers, evenly spread and unrelated, and three categories."""
    truth = np.array([1.0, -0.5, 0.8, 0.0, 0.3, 0.5, -0.7, -0.5])

    def rows(rng: np.random.Generator, n: int) -> Floats:
        level = rng.choice(3, size=n, p=[0.5, 0.3, 0.2])
        return np.column_stack([rng.uniform(-1, 1, size=(n, 5)), level == 1, level == 2, np.ones(n)])

    return made(("x1", "x2", "x3", "x4", "x5", "b", "c", "intercept"), truth, rows, columns=7)


def skewed() -> Table:
    """Four numbers that go together, categories of which some are rare (down to one row in a hundred), and a flag."""
    truth = np.array([1.0, -2.0, 1.5, 0.5, 0.4, -0.6, 1.0, -1.0, 0.3, 0.8, -0.5, 1.2, -1.0])
    mixed = np.array([[0.3, 0.2, 0, 0], [0, 0.25, 0.1, 0], [0, 0, 0.3, 0.2], [0, 0, 0, 0.15]])

    def rows(rng: np.random.Generator, n: int) -> Floats:
        first = rng.choice(5, size=n, p=[0.6, 0.25, 0.1, 0.04, 0.01])
        second = rng.choice(4, size=n, p=[0.4, 0.3, 0.25, 0.05])
        levels = [*(first == i for i in range(1, 5)), *(second == i for i in range(1, 4)), rng.random(n) < 0.1]
        return np.column_stack([np.clip(rng.normal(size=(n, 4)) @ mixed, -1, 1), *levels, np.ones(n)])

    names = ("x1", "x2", "x3", "x4", "b", "c", "d", "e", "q", "r", "s", "flag", "intercept")
    return made(names, truth, rows, columns=8)


def twins() -> Table:
    """Three numbers, of which two are the same."""
    truth = np.array([1.0, 0.5, 0.5, -0.5])

    def rows(rng: np.random.Generator, n: int) -> Floats:
        x = rng.uniform(-1, 1, size=(n, 2))
        return np.column_stack([x, x[:, 1], np.ones(n)])

    return replace(made(("x", "twin", "its twin", "intercept"), truth, rows, columns=4), never=(1, 2))


def flagged(effect: float) -> Table:
    """A number, and a flag of one row in ten with this coefficient."""

    def rows(rng: np.random.Generator, n: int) -> Floats:
        return np.column_stack([rng.uniform(-1, 1, size=n), rng.random(n) < 0.1, np.ones(n)])

    return made(("x", "flag", "intercept"), np.array([1.0, effect, -0.5]), rows, columns=3)


def separate() -> Table:
    """A flag of which hardly any rows are positive: one in five thousand, about one row in the whole table. There is
    next to no information on its coefficient, and where the Hessian is taken there seems to be.
    """
    return replace(flagged(-8.0), never=(1,))


def rare(share: float, effect: float) -> Table:
    """Three numbers that go together, a strong effect on a level of so few rows, another category and a flag."""
    truth = np.array([1.0, -1.5, 0.5, 0.4, -0.6, effect, 0.5, -0.5, 0.8, -0.5])
    mixed = np.array([[0.3, 0.2, 0.1], [0, 0.25, 0.1], [0, 0, 0.3]])

    def rows(rng: np.random.Generator, n: int) -> Floats:
        first = rng.choice(4, size=n, p=[0.6 - share, 0.3, 0.1, share])
        second = rng.choice(3, size=n, p=[0.5, 0.3, 0.2])
        levels = [*(first == i for i in range(1, 4)), *(second == i for i in range(1, 3)), rng.random(n) < 0.3]
        return np.column_stack([np.clip(rng.normal(size=(n, 3)) @ mixed, -1, 1), *levels, np.ones(n)])

    names = ("x1", "x2", "x3", "b", "c", "rare", "q", "r", "flag", "intercept")
    return made(names, truth, rows, columns=7)


def levelled(share: float, effect: float) -> Table:
    """A number, a strong effect on a flag of so few rows, and six columns of six levels each, which mean little."""
    fixed = np.random.default_rng(1)
    shares = fixed.dirichlet(np.full(6, 3.0), size=6)
    truth = np.concatenate([[0.8, effect], fixed.choice([-0.6, -0.3, 0.0, 0.3, 0.6], size=30), [-0.5]])

    def rows(rng: np.random.Generator, n: int) -> Floats:
        levels = [rng.choice(6, size=n, p=p)[:, None] == np.arange(1, 6) for p in shares]
        return np.column_stack([rng.uniform(-1, 1, size=n), rng.random(n) < share, *levels, np.ones(n)])

    names = ("x", "rare", *(f"{column}{level}" for column in "abcdef" for level in range(1, 6)), "intercept")
    return made(names, truth, rows, columns=9)


def clinical() -> Table:
    """Five columns of a few levels each and three numbers: made up, as a table of a clinic may be."""
    fixed = np.random.default_rng(3)
    shares = [fixed.dirichlet(np.full(levels, 3.0)) for levels in (2, 3, 4, 3, 5)]
    truth = np.append(fixed.choice([0.0, 0.0, 0.4, -0.4, 0.7, -0.7, 1.0, -1.0], size=15), -1.0)

    def rows(rng: np.random.Generator, n: int) -> Floats:
        levels = [rng.choice(len(p), size=n, p=p)[:, None] == np.arange(1, len(p)) for p in shares]
        return np.column_stack([*levels, rng.beta(2, 2, size=(n, 3)), np.ones(n)])

    columns = (f"{column}{level}" for column, p in zip("abcde", shares, strict=True) for level in range(1, len(p)))
    return made((*columns, "x", "y", "z", "intercept"), truth, rows, columns=9)


def of_counts(most: float, more: float, exposed: bool) -> Table:
    """Four numbers and a flag; about three counts of a usual row and a unit of exposure.

    Args:
        most: the largest count.
        more: the variance of counts over that of Poisson counts.
        exposed: whether rows are of different exposures.
    """
    truth = np.array([0.6, -0.4, 0.3, 0.0, 0.5, math.log(0.9)])
    longest = math.sqrt(len(truth))

    def draw(rng: np.random.Generator, n: int) -> tuple[Floats, Floats, Factors]:
        a = np.column_stack([rng.uniform(-1, 1, size=(n, 4)), rng.random(n) < 0.3, np.ones(n)])
        e = rng.uniform(0.1, 1, n) if exposed else np.ones(n)
        mean = e * np.exp(a @ truth)
        counts = rng.poisson(mean) if more == 1 else rng.negative_binomial(mean / (more - 1), 1 / more)
        return a / longest, np.minimum(counts, most) / most, Factors.of(exposures=e)

    learnt = truth - np.append(np.zeros(5), math.log(most))
    names = ("x1", "x2", "x3", "x4", "flag", "intercept")
    return Table(names, learnt * longest, draw, 1 / longest, loss=Poisson(), excess=more / most)


def counts() -> Table:
    """Poisson counts up to 20, all of one exposure."""
    return of_counts(20.0, 1.0, exposed=False)


def exposed() -> Table:
    """Counts up to 30 that vary three times as much, of exposures from a tenth to one."""
    return of_counts(30.0, 3.0, exposed=True)


def made(names: tuple[str, ...], truth: Floats, rows: Callable[..., Floats], columns: int) -> Table:
    """Rows of a formula, divided by the longest that they can be, as a schema does."""
    longest = math.sqrt(columns)

    def draw(rng: np.random.Generator, n: int) -> tuple[Floats, Floats, Factors]:
        a = rows(rng, n)
        return a / longest, np.where(rng.random(n) < 1 / (1 + np.exp(-a @ truth)), 1.0, -1.0), ALIKE

    return Table(names, truth * longest, draw, 1 / longest)


def population(
    names: tuple[str, ...], a: Floats, b: Floats, truth: Floats, largest: float, never: tuple[int, ...] = ()
) -> Table:
    """A table that rows are drawn from, with replacement."""

    def draw(rng: np.random.Generator, n: int) -> tuple[Floats, Floats, Factors]:
        which = rng.integers(len(b), size=n)
        return a[which], b[which], ALIKE

    return Table(names, truth, draw, largest, never, population=(a, b))


def right(table: Table) -> Table:
    """The same rows, and labels for which the pooled fit is true."""
    assert table.population is not None
    a = table.population[0]

    def draw(rng: np.random.Generator, n: int) -> tuple[Floats, Floats, Factors]:
        rows = a[rng.integers(len(a), size=n)]
        return rows, np.where(rng.random(n) < 1 / (1 + np.exp(-rows @ table.truth)), 1.0, -1.0), ALIKE

    return replace(table, draw=draw, population=None)


def adult() -> Table:
    """All of Adult, by the schema of the how-to page. Nobody among the "<other>" of workclass earned more than 50,000
    dollars: no finite coefficient says so, and it must never be called identified. Those of the others are then the
    same as without these rows.
    """
    schema = Schema.load(HERE.parent / "docs" / "how-to" / "adult-inference.toml")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "adult.csv"
        adult_csv.write_csv(path, "all")
        data = encoded(path, schema)[0]
    a, b, names = data.features.toarray(), np.asarray(data.labels), np.array(schema.feature_names)
    other = names == "workclass=<other>"
    kept, truth = ~a[:, other].any(axis=1), np.full(len(names), -100.0)
    truth[~other] = fitted(a[kept][:, ~other], b[kept])
    return population(tuple(names), a, b, truth, schema.largest, never=(int(np.flatnonzero(other)[0]),))


def banked() -> Table:
    """All of Bank: three numbers centred at round ones, four flags, categories without their reference."""
    data = bank()
    raw = data.features.toarray() if hasattr(data.features, "toarray") else np.asarray(data.features)
    column = {name: raw[:, i] for i, name in enumerate(data.names)}
    one = sum(values for name, values in column.items() if name.startswith("marital="))  # undoes the norm of rows
    numbers = [2 * column["age"] / one - 1, column["balance"] / one, 2 * column["campaign"] / one - 1]
    flags = ("housing=yes", "loan=yes", "marital=married", "marital=divorced", "contact=cellular", "poutcome=success",
             "education=tertiary")  # fmt: skip
    a = np.column_stack([*numbers, *(column[name] / one for name in flags), np.ones(len(raw))])
    # Columns of the file: the numbers, housing, loan, marital, contact, poutcome, education and the intercept.
    a, b = a / math.sqrt(10), np.asarray(data.labels)
    return population(("age", "balance", "campaign", *flags, "intercept"), a, b, fitted(a, b), 1 / math.sqrt(10))


def hessian(a: Floats, w: Floats, loss: Loss, factors: Factors = ALIKE) -> Floats:
    curved = loss.curvature(factors.shifted(a @ w), np.ones(len(a)), loss.theta)
    return np.asarray(a.T @ (a * curved[:, None]) / len(a))


def fitted(a: Floats, b: Floats, counted: Floats | float = 1.0, start: Floats | None = None) -> Floats:
    """Newton's method, without privacy, of rows that count so much."""
    w = np.zeros(a.shape[1]) if start is None else start.copy()
    for _ in range(50):
        odds = 1 / (1 + np.exp(-a @ w))
        H = a.T @ (a * (counted * odds * (1 - odds))[:, None])
        step = np.linalg.solve(H, a.T @ (counted * (odds - (b + 1) / 2)))
        w -= step
        if np.abs(step).max() < 1e-10:
            return w
    raise ArithmeticError("no finite fit")


@dataclass(frozen=True)
class Cell:
    table: str
    rows: int
    epsilon: float
    sites: int
    focus: tuple[str, ...] = ()  # names of coefficients that are asked for


# Every epsilon and both numbers of sites at every size, half of the combinations: about ten minutes of one core.
SMALL = [(5_000, 0.5, 5), (5_000, 1.0, 50), (5_000, 4.0, 5), (20_000, 0.5, 50), (20_000, 1.0, 5), (20_000, 4.0, 50)]
LARGE = [(200_000, 0.5, 50), (200_000, 4.0, 5)]
COUNTED = [(20_000, 4.0, 5), (50_000, 1.0, 5), (50_000, 4.0, 50), (200_000, 1.0, 5)]
CLINICAL = (("a1",), ("x",), ("e1", "e2", "e3", "e4"))
OWN = [(45_000, 0.5, 5), (45_000, 1.0, 50), (45_000, 4.0, 5)]
TABLES = {"even": even, "skewed": skewed, "twins": twins, "separate": separate, "adult": adult, "bank": banked,
          "adult-right": lambda: right(adult()), "bank-right": lambda: right(banked()),
          "clinical": clinical, "counts": counts, "exposed": exposed,
          **{f"rare{100 * share:g}%{effect:+g}": partial(rare, share, effect)
             for share, effect in ((0.005, -2.5), (0.005, 2.5), (0.005, 4.0), (0.01, -2.5), (0.02, -2.5), (0.01, 2.5),
                                  (0.02, 4.0), (0.02, -4.0))},
          **{f"levels{100 * share:g}%{effect:+g}": partial(levelled, share, effect)
             for share, effect in ((0.02, -2.5), (0.02, 2.5))},
          **{f"flag{effect:+}": partial(flagged, float(effect)) for effect in (-3, -4, 4, 5, -5, 6)}}  # fmt: skip
CELLS = [
    *(Cell(name, *shape) for name in ("even", "skewed") for shape in SMALL),
    *(Cell("clinical", rows, 1.0, 1) for rows in (5_000, 20_000, 80_000)),
    *(Cell("twins", *shape) for shape in ((5_000, 1.0, 5), (20_000, 4.0, 50))),
    *(Cell("separate", *shape) for shape in ((20_000, 4.0, 5), (50_000, 8.0, 5))),
    *(Cell(name, *shape) for name in ("adult", "adult-right", "bank", "bank-right") for shape in OWN),
    *(Cell("clinical", rows, 1.0, 1, focus) for focus in CLINICAL for rows in (5_000, 20_000, 80_000)),
    *(Cell("skewed", *shape, ("x1",)) for shape in SMALL[1::2]),
    *(Cell("rare0.5%+4", *shape, ("rare",)) for shape in ((50_000, 4.0, 5), (50_000, 8.0, 1))),
    *(Cell("counts", *shape, ("x1",)) for shape in COUNTED[::2]),
    *(Cell(name, *shape) for name in ("even", "skewed") for shape in LARGE),
    *(Cell(name, *shape) for name in ("counts", "exposed") for shape in COUNTED),
    *(Cell(name, *shape) for name in TABLES if "%" in name for shape in ((50_000, 4.0, 5), (50_000, 8.0, 1))),
    *(Cell(name, *shape) for name in TABLES if "flag" in name for shape in ((20_000, 4.0, 5), (50_000, 2.0, 5))),
]
QUICK = [Cell("even", 5_000, 1.0, 5), Cell("skewed", 20_000, 4.0, 50), Cell("twins", 5_000, 4.0, 5)]


def released(algorithm: MaskedNewton, sites: Sites, seed: int) -> Any:
    """The evidence of one run: all sums are opened as the simulator opens them, and no model is scored."""
    graph = graphs.complete(sites.n)
    site = algorithm.oracle(sites, graph)
    noise = SeededNoise(seed, Shape(sites.n, site.d, 1))
    *_, last = algorithm.play(site, 1, Local(graph.exchange), noise)
    return last.evidence[0]


def measure(cell: Cell, table: Table, repetitions: int) -> dict[str, Any]:
    """Coverage, and what was called identified, in one cell."""
    p, rng, started = len(table.truth), np.random.default_rng([cell.rows, cell.sites]), perf_counter()
    focus = tuple(table.names.index(name) for name in cell.focus)
    algorithm = MaskedNewton(epsilon=cell.epsilon, delta=DELTA, lam=LAM, inference=True, focus=focus, loss=table.loss)
    algorithm = algorithm.bound_to(cell.rows, p, cell.sites)
    held, pooled, known, errors = (np.zeros((repetitions, p), dtype=kind) for kind in (bool, bool, bool, float))
    parts = np.array_split(np.arange(cell.rows), cell.sites)
    for number in range(repetitions):
        a, b, factors = table.draw(rng, cell.rows)
        sites = Sites(
            [a[part] for part in parts], [b[part] for part in parts], factors=[factors[part] for part in parts]
        )
        evidence = replace(released(algorithm, sites, number), largest=table.largest)
        values, errors[number], known[number] = infer(evidence, np.eye(p))
        pooled[number] = np.abs(values - table.truth) <= CRITICAL * errors[number]
        held[number] = np.abs(values - weighted(table, evidence)) <= CRITICAL * errors[number]
    a, _, factors = table.draw(rng, 200_000)
    information = hessian(a, table.truth, table.loss, factors)
    exact = np.sqrt(np.abs(np.diag(np.linalg.pinv(information))) * table.excess / cell.rows)
    found, asked = judged(cell, table, held, known, errors / exact), told_by_rows(table, cell.focus)
    found["interval"] = float(np.median(2 * CRITICAL * table.largest * errors[:, asked]))
    if table.population is not None:
        found["of_pooled"] = float(pooled[:, asked].mean())
    return found | {"seconds": round(perf_counter() - started, 1)}


def weighted(table: Table, evidence: Evidence) -> Floats:
    """What an interval is of: the fit to the whole population in which rows count as they did in this run."""
    if table.population is None or evidence.least == 1:  # the model is true, or all count once
        return table.truth
    (a, b), told, A = table.population, told_by_rows(table), evidence.coordinates
    assert A is not None
    longest = evidence.least * np.linalg.norm(A, 2) ** 2  # c^2, for rows of norm 1
    counted = np.minimum(1.0, longest / np.sum((a @ A) ** 2, axis=1))
    kept = ~a[:, ~told].any(axis=1)
    found = table.truth.copy()
    found[told] = fitted(a[kept][:, told], b[kept], counted[kept], table.truth[told])
    return found


def told_by_rows(table: Table, focus: tuple[str, ...] = ()) -> NDArray[np.bool_]:
    """Which coefficients have a finite truth that rows can tell, and are asked for: (p,)."""
    told = ~np.isin(np.arange(len(table.truth)), table.never)
    return told & np.isin(table.names, focus or table.names)


def judged(cell: Cell, table: Table, held: Any, known: Any, wider: Floats) -> dict[str, Any]:
    told = told_by_rows(table, cell.focus)
    rates = held[:, told].mean(axis=1)  # intervals of one repetition go up and down together
    error, coverage = float(rates.std() / math.sqrt(len(rates))), float(rates.mean())
    one_by_one = {name: float(held[:, j].mean()) for j, name in enumerate(table.names) if told[j]}
    low = [n for n, x in one_by_one.items() if x < LEAST_OF_ONE - 2 * math.sqrt(0.09 / len(held))]
    wrong = int(known[:, list(table.never)].sum())
    shown, hidden = held[:, told][known[:, told]], held[:, told][~known[:, told]]
    return {
        **vars(cell), "repetitions": len(held), "identified": float(known[:, told].mean()), "coverage": coverage,
        "error": error,
        "of_identified": float(shown.mean()) if shown.size else None,
        "of_others": float(hidden.mean()) if hidden.size else None,
        "width": float(np.median(wider[:, told])), "least": min(one_by_one.values()), "by_coefficient": one_by_one,
        "shown": dict(zip(table.names, known.mean(axis=0).tolist(), strict=True)), "low": low,
        "falsely_identified": wrong, "within": LEAST <= coverage <= MOST,
        "fails": bool(low or wrong or coverage < LEAST - 2 * error),
    }  # fmt: skip


def told(line: dict[str, Any]) -> str:
    """A cell for people."""
    parts = [f"{100 * line[name]:.1f} % of {word}" for name, word in (("of_identified", "identified"),
             ("of_others", "others")) if line[name] is not None]  # fmt: skip
    parts += [f"{100 * line['of_pooled']:.1f} % the pooled fit"] if "of_pooled" in line else []
    where = f"{line['table']:14} N={line['rows']:<7} eps={line['epsilon']:<4} n={line['sites']:<3}"
    where = " ".join([where, *line["focus"]])
    held = f"{100 * line['coverage']:.1f} +- {100 * line['error']:.1f} % held ({', '.join(parts)})"
    shown = f"{100 * line['identified']:.0f} % identified, least of one {100 * line['least']:.0f} %"
    return f"{where} {held}, {shown}, width {line['width']:.2f}{'  FAILS' if line['fails'] else ''}"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="three cells, 40 repetitions each")
    parser.add_argument("--json", type=Path, help=f"where to; {OUT.name} unless --quick")
    parser.add_argument("--repetitions", type=int)
    parser.add_argument("--only", nargs="*", choices=list(TABLES), default=list(TABLES))
    asked = parser.parse_args()
    repetitions = asked.repetitions or (40 if asked.quick else REPETITIONS)
    cells = [cell for cell in (QUICK if asked.quick else CELLS) if cell.table in asked.only]
    tables = {name: TABLES[name]() for name in {cell.table for cell in cells}}
    found, out = [], asked.json or (None if asked.quick else OUT)
    for cell in cells:
        line = measure(cell, tables[cell.table], repetitions)
        found.append(line)
        print(told(line), flush=True)
        if out is not None:  # after every cell: what is done is not lost
            out.write_text(json.dumps({"machine": machine.describe(), "cells": found}, indent=1) + "\n")


if __name__ == "__main__":
    main()
