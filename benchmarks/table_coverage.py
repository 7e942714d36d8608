"""Do the 95 % intervals of `sottovoce describe` hold what they say, and does its chi-squared test have its size?

    python benchmarks/table_coverage.py FOLDER [--quick] [--repetitions 100] [--only TABLE ...] [--json OUT] [--page]

FOLDER has the tables of benchmarks/tables.py. Each is taken for a population. Rows are drawn from it with replacement,
described with noise at epsilon = 1, delta = 1e-6, with groups and without, and the intervals compared with the
population's own figures, as NumPy computes them from the rows. Nothing was tuned on these tables.

For the size of the test, the second of two columns is drawn from other rows than the first, so that they are
independent. Its power is how often it finds out the columns as they are.
"""

import argparse
import json
import sys
from collections import defaultdict
from dataclasses import replace
from pathlib import Path
from time import perf_counter

import numpy as np

from sottovoce.algorithms.tabulation import Tabulation
from sottovoce.files.schema import Schema, files
from sottovoce.problem.dataset import Dataset
from sottovoce.problem.graphs import complete
from sottovoce.problem.problem import Problem
from sottovoce.problem.sites import Sites
from sottovoce.simulation.asking import ask
from sottovoce.tables.coding import Coding, Levels, Number, bins_for, edges_of, levels_of
from sottovoce.tables.cross import cross_table_of
from sottovoce.tables.description import description_of

ENOUGH = 5_000  # rows, to be a population
EPSILON, DELTA, ROWS = 1.0, 1e-6, (1_000, 10_000)
PER_ROW = np.sqrt(2) / 0.2290  # about the noise in a sum of rows of norm 1, from which bins are chosen
QUANTILES = {"lower quartile": 0.25, "median": 0.5, "upper quartile": 0.75}


class Population:
    """The rows of a table, as codes, with which column is what."""

    def __init__(self, folder, name):
        schema = replace(Schema.load(Path(__file__).parent / "schemas" / f"{name}.toml"), unreviewed=())
        self.name = name
        self.columns = [one.measured() if hasattr(one, "bounds") else one for one in schema.described.values()]
        paths = [folder / name / f"{part}.csv" for part in ("train", "test")]
        parts = [files.encode_codes(path, schema, self.columns)[0].features for path in paths]
        self.codes = np.concatenate(list(map(np.asarray, parts)))
        bare = schema.described
        self.groupings = [place for place, one in enumerate(self.columns) if 2 <= len(levels_of(bare[one.name])) <= 4
                          and one.level_words]  # fmt: skip

    def coding(self, rows, by):
        """As `describe` would choose it: all columns but that of the groups."""
        groups = None if by is None else Levels((self.columns[by],))
        chosen = [place for place in range(len(self.columns)) if place != by]
        fewest, noise = 1 if groups is None else groups.width, PER_ROW * np.sqrt(len(chosen))
        parts = [
            Levels((column,))
            if column.level_words
            else Number(column, edges_of(column, bins_for(rows / fewest, noise)))
            for column in (self.columns[place] for place in chosen)
        ]
        order = [*([] if by is None else [by]), *chosen]
        return Coding(tuple(parts), None, groups), order

    def dataset(self, codes):
        names = tuple(map(str, range(codes.shape[1])))
        return Dataset(codes, np.zeros(len(codes)), names, len(codes), np.inf, self.name)


def asked(coded, epsilon=EPSILON, seed=None):
    sites = Sites([coded.features], [coded.labels], data_norm=coded.data_norm)
    return ask(Problem(sites, complete(1)), Tabulation(epsilon=epsilon, delta=DELTA, what="rows"), seed=seed)


def answer(make, population, coding, codes, seed):
    found = asked(coding.coded(population.dataset(codes)), seed=seed)
    return make(coding, found.answer.value[:, 0], float(found.answer.std.item()), len(codes), found.privacy)


class Hits:
    """How often intervals held their target, and how often nothing was told."""

    def __init__(self):
        self.held, self.told, self.of, self.widths = 0, 0, 0, []

    def add(self, one, target):
        self.of += 1
        self.told += one.value is not None
        if one.low is None:  # nothing is said
            self.of -= 1
            return
        self.held += one.low - 1e-9 * abs(one.low) <= target <= one.high + 1e-9 * abs(one.high)
        self.widths.append(one.high - one.low)

    def to_dict(self):
        return {"coverage": round(self.held / max(self.of, 1), 4), "intervals": self.of,
                "told": round(self.told / max(self.of, 1), 3)}  # fmt: skip


def truth(population, coding, order):
    """Figures of all rows of the population and of each group, by column: what `Description` has intervals for."""
    codes = population.codes[:, order]
    group = np.zeros(len(codes), dtype=int) if coding.by is None else coding.by.entries(codes[:, :1]).places[:, 0]
    views = [np.ones(len(codes), dtype=bool)]
    views += [group == g for g in range(coding.groups)] if coding.by is not None else []
    return [[figures(part, codes[chosen, place]) for chosen in views]
            for place, part in enumerate(coding.parts, start=0 if coding.by is None else 1)], views  # fmt: skip


def figures(part, codes):
    """Shares of levels; of a number also mean, standard deviation and quartiles, in its unit."""
    which = part.entries(codes[:, None]).places[:, 0]
    cells = part.cells if isinstance(part, Number) else part.width
    found = {"shares": np.bincount(which, minlength=cells) / max(len(codes), 1), "rows": len(codes)}
    if isinstance(part, Number):
        low, high = part.column.bounds
        x = low + codes[~np.isnan(codes)] * (high - low)
        if len(x):
            found |= {"mean": x.mean(), "standard deviation": x.std()}
            found |= {name: np.quantile(x, q, method="inverted_cdf") for name, q in QUANTILES.items()}
    return found


def differences(first, second, number):
    if number:
        pooled = (first["standard deviation"] ** 2 + second["standard deviation"] ** 2) / 2
        return (second["mean"] - first["mean"]) / np.sqrt(pooled)
    p, q = first["shares"], second["shares"]
    with np.errstate(all="ignore"):
        return (q - p) / np.sqrt((p * (1 - p) + q * (1 - q)) / 2)


def coverage(population, rows, by, repetitions, random):
    coding, order = population.coding(rows, by)
    known, views = truth(population, coding, order)
    hits = defaultdict(Hits)
    for _ in range(repetitions):
        codes = population.codes[random.integers(0, len(population.codes), rows)][:, order]
        found = answer(description_of, population, coding, codes, int(random.integers(2**62)))
        for size, chosen in zip(found.sizes, views[1:], strict=True):
            hits["size of a group"].add(size, rows * chosen.mean())
        for column, part, of_views in zip(found.columns, coding.parts, known, strict=True):
            kind = "bin" if isinstance(part, Number) else "level"
            for level, one in enumerate(column.levels):
                for v, figure in enumerate(of_views):
                    part_of = figure["rows"] / len(population.codes)
                    hits[f"count of a {kind}"].add(one.counts[v], rows * part_of * figure["shares"][level])
                    if figure["rows"]:
                        hits[f"share of a {kind}"].add(one.shares[v], figure["shares"][level])
                for v, far in enumerate(one.differences, start=2):
                    target = differences(of_views[1], of_views[v], number=False)[level]
                    if np.isfinite(target):
                        hits[f"difference of a {kind}"].add(far, target)
            for name, values in column.figures.items():
                for one, figure in zip(values, of_views, strict=True):
                    if name in figure:
                        hits[name].add(one, figure[name])
            for v, far in enumerate(column.differences, start=2):
                if "mean" in of_views[1] and "mean" in of_views[v] and of_views[1]["standard deviation"] > 0:
                    hits["difference of a mean"].add(far, differences(of_views[1], of_views[v], number=True))
    return {name: one.to_dict() for name, one in sorted(hits.items())}


def size(population, rows, pair, repetitions, random):
    """How often the test rejects at 5 % if one of the two columns is shuffled, and if none is."""
    part = Levels(tuple(population.columns[place] for place in pair))
    coding, rejected = Coding((part,)), {"size": 0, "power": 0}
    for _ in range(repetitions):
        codes = population.codes[random.integers(0, len(population.codes), rows)][:, list(pair)]
        for name in rejected:
            if name == "size":
                other = population.codes[random.integers(0, len(population.codes), rows), pair[1]]
                given = np.column_stack([codes[:, 0], other])
            else:
                given = codes
            found = answer(cross_table_of, population, coding, given, int(random.integers(2**62)))
            rejected[name] += found.test.p <= 0.05
    return {name: round(count / repetitions, 4) for name, count in rejected.items()} | {
        "cells": part.width, "columns": [column.name for column in part.of],
    }  # fmt: skip


def run(folder, names, repetitions, sizes, rows=ROWS):
    random, found = np.random.default_rng(31), []
    for name in names:
        population = Population(folder, name)
        for many in rows:
            for by in [None, *population.groupings[:1]]:
                started = perf_counter()
                group = None if by is None else population.columns[by].name
                case = {"table": name, "rows": many, "by": group}
                found.append(case | {"intervals": coverage(population, many, by, repetitions, random)})
                tell(found[-1], perf_counter() - started)
            levelled = [place for place, column in enumerate(population.columns) if len(levels_of(column)) > 1]
            if sizes and len(levelled) > 1:
                pair = tuple(levelled[:2])
                found.append({"table": name, "rows": many, "test": size(population, many, pair, sizes, random)})
                print(found[-1], flush=True)
    return {"epsilon": EPSILON, "delta": DELTA, "repetitions": repetitions, "tests": sizes, "cases": found}


def tell(case, seconds):
    print(f"{case['table']}, {case['rows']} rows, by {case['by']} ({seconds:.0f} s)", flush=True)
    for name, one in case["intervals"].items():
        print(f"    {name:28s} {one['coverage']:.3f} of {one['intervals']:6d}, told {one['told']:.2f}", flush=True)


# -- the page ---------------------------------------------------------------------------------------------------------

PAGE = Path(__file__).parents[1] / "docs" / "proofs" / "tables.md"
BEGIN, END = "<!-- coverage -->", "<!-- /coverage -->"
LEAST = 100  # intervals of a table, for its coverage to say anything by itself


def pooled(found):
    """By kind of interval and number of rows: how many there were, the coverage of all, and of which tables it was
    the least and the largest.
    """
    of = defaultdict(lambda: [0, 0.0, []])
    for case in found["cases"]:
        for name, one in case.get("intervals", {}).items():
            if one["intervals"]:
                pool = of[name, case["rows"]]
                pool[0] += one["intervals"]
                pool[1] += one["coverage"] * one["intervals"]
                pool[2] += [one["coverage"]] if one["intervals"] >= LEAST else []
    return {key: (count, held / count, min(each, default=None), max(each, default=None))
            for key, (count, held, each) in of.items()}  # fmt: skip


def sizes_of(found):
    """By number of rows: how often the test rejects independent columns, in the mean and at most."""
    by = defaultdict(list)
    for case in found["cases"]:
        if "test" in case:
            by[case["rows"]].append(case["test"]["size"])
    return {rows: (float(np.mean(each)), max(each)) for rows, each in by.items()}


def page_table(found):
    """The lines of docs/proofs/tables.md: the share of intervals that held, of all tables, and the range of tables."""
    pools, many = pooled(found), sorted({case["rows"] for case in found["cases"]})
    lines = [
        "| 95 % interval of | " + " | ".join(f"{rows:,} rows" for rows in many) + " |",
        "| --- " * (1 + len(many)) + "|",
    ]
    for name in sorted({name for name, _ in pools}):
        cells = [shown(pools.get((name, rows))) for rows in many]
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    told = ", ".join(f"{100 * mean:.1f} % with {rows:,} rows (at most {100 * most:.1f} %)"
                     for rows, (mean, most) in sorted(sizes_of(found).items()))  # fmt: skip
    tables = ", ".join(dict.fromkeys(case["table"] for case in found["cases"]))
    about = (
        f"Tables: {tables}; with groups and without, {found['repetitions']} drawings each. In brackets: the range of "
        f"tables with {LEAST} intervals or more."
    )
    test = f"The chi-squared test rejects independent columns at 5 %: {told}; {found['tests']} drawings of each table."
    return "\n".join([*lines, "", about, "", test])


def shown(pool):
    if pool is None:
        return "–"
    _, held, least, most = pool
    between = "" if least is None else f" ({100 * least:.1f} to {100 * most:.1f})"
    return f"{100 * held:.1f} %{between}"


def write_page(found):
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
    after = rest.partition(END)[2]
    PAGE.write_text(f"{before}{BEGIN}\n\n{page_table(found)}\n\n{END}{after}", encoding="utf-8")


def main(arguments=None):
    from tables import ALL

    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("folder", type=Path)
    options.add_argument("--quick", action="store_true", help="a smoke test: few repetitions")
    options.add_argument("--repetitions", type=int, default=100)
    options.add_argument("--tests", type=int, default=500, help="repetitions of the test of independence; 0: none")
    options.add_argument("--only", nargs="*")
    options.add_argument("--rows", nargs="*", type=int, default=list(ROWS))
    options.add_argument("--json", type=Path)
    options.add_argument("--page", action="store_true", help="write the table of docs/proofs/tables.md")
    given = options.parse_args(arguments)
    names = given.only or [table.name for table in ALL if table.role == "unseen" and table.rows >= ENOUGH]
    some = (5, 5) if given.quick else (given.repetitions, given.tests)
    found = run(given.folder, names, *some, tuple(given.rows))
    if given.page:
        write_page(found)
    if given.json is not None:
        given.json.write_text(json.dumps(found, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
