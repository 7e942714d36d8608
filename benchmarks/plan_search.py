"""How good is the planner? Its settings against the best of a wide search that looks at the real rows.

    python benchmarks/plan_search.py --workers 16 --time-limit 540      again and again until nothing is left
    python benchmarks/plan_search.py --tables                           other tables; writes plan_unseen.json
    python benchmarks/plan_search.py --tables --foretold                the same without the search: predictions only

For Adult and Bank Marketing, epsilon 0.1, 0.5, 1 and 4, for 5, 20 and 100 sites, complete and ring:

    screen    all rounds x local steps x rho, and for each the best D by walking along its grid; a quarter of the rows
              with the noise of all rows (sottovoce.plan.trial), 2 runs
    race      the best of these on all rows, 4 runs; the best of those, 16 runs
    refine    neighbours of the winner, half a grid step away, twice
    verdict   plan and winner with 24 runs of fresh noise: mean risk minus the pooled optimum's

With --tables, the tables of benchmarks/tables.py (with --foretold, those that judge): 5 sites at epsilon 0.5 and 20 at
epsilon 2, complete, at most 20,000 rows with the noise of all, by a smaller search that begins with the plan's own
setting; and what the plan foretold when it was told nothing, how frequent the labels are, or also one of its words for
how predictable they are, beside what came.

Every evaluation is written to OUT.trials.jsonl when it is done, so an interrupted search goes on where it was. A ratio
of 1.05 says that the plan's excess risk is 5 % above the best that the search found. The search is not private and the
plan has not seen a row, so a ratio below 1 is luck of the search, not skill of the plan.
"""

import argparse
import itertools
import json
import math
import os
import time
from collections.abc import Iterator
from dataclasses import replace
from multiprocessing import TimeoutError as MultiprocessingTimeout
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple

os.environ.setdefault("NUMBA_NUM_THREADS", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

OUT, UNSEEN = Path(__file__).with_name("plan.json"), Path(__file__).with_name("plan_unseen.json")
ROWS = Path(__file__).parent.parent / "build" / "tables"  # as benchmarks/unseen.py keeps them
PACKAGED = ("adult", "bank")
DELTA, PAPERS_LAMBDA = 1e-5, 1e-4  # the paper's penalty, which it divides by the number of sites


class Case(NamedTuple):
    """One cell of the table."""

    data: str
    sites: int
    graph: str
    epsilon: float

    @property
    def lam(self) -> float:
        return PAPERS_LAMBDA / self.sites if self.data in PACKAGED else 1e-6

    @property
    def key(self) -> str:
        return f"{self.data}-{self.sites}-{self.graph}-{self.epsilon:g}"


class Setting(NamedTuple):
    """What is searched over."""

    rounds: int
    local_steps: int
    rho: float
    diameter: float


class Grid(NamedTuple):
    """How wide, and how many survive."""

    rounds: tuple[int, ...]
    local_steps: tuple[int, ...]
    rho: tuple[float, ...]
    diameter: tuple[float, ...]
    survivors: tuple[int, int]
    runs: tuple[int, int, int, int]  # screen, race, race again and refine, verdict


WIDE = Grid(
    rounds=(10, 30, 100, 200),
    local_steps=(1, 3, 10, 25),
    rho=(1e-4, 10**-3.25, 10**-2.5, 10**-1.75, 1e-1),
    diameter=tuple(3000.0 ** (i / 7) for i in range(8)),
    survivors=(20, 5),
    runs=(2, 4, 16, 24),
)
SMALL = Grid(
    rounds=(100, 200),
    local_steps=(1, 3),
    rho=WIDE.rho[1:4],
    diameter=WIDE.diameter[2:],
    survivors=(6, 2),
    runs=(2, 4, 8, 16),
)


# For tables: the plan's own setting is among those that are raced and refined.
TINY = Grid(
    rounds=(100,),
    local_steps=(1, 10),
    rho=WIDE.rho[1:],
    diameter=WIDE.diameter,
    survivors=(4, 2),
    runs=(2, 4, 4, 8),
)
MOST_ROWS = 20_000  # of a table


def rows_of(name: str) -> tuple[Any, Any]:
    """The rows to learn from, and the loss that fits their labels."""
    from sottovoce import datasets
    from sottovoce.files.schema import Schema
    from sottovoce.problem.answers import Answers
    from sottovoce.problem.losses import Logistic
    from sottovoce.problem.problem import encoded

    if name in PACKAGED:
        return {"adult": datasets.adult, "bank": datasets.bank}[name](), Logistic()
    import tables

    schema = Schema.load(tables.BY_NAME[name].schema)
    data = replace(encoded(ROWS / name / "train.csv", schema)[0], private=False)  # all of them are published
    return data, Answers.of(schema).loss(None) or Logistic()


class Bench:
    """One case: its rows, and the trials made so far."""

    def __init__(self, case: Case, cache: Path) -> None:
        from sottovoce import graphs
        from sottovoce.plan.trial import thinned
        from sottovoce.simulation.optimum import pooled_optimum

        data, self.loss = rows_of(case.data)
        self.case, self.cache = case, cache
        self.sizes, self.d = [len(data) // case.sites] * case.sites, data.d
        self.graph = graphs.by_name(case.graph, case.sites)
        most = len(data) if case.data in PACKAGED else MOST_ROWS
        self.whole = thinned(data, self.sizes, most, 0)
        self.part = thinned(data, self.sizes, max(len(data) // 4, 5000), 0)
        self.labels, self.data_norm = data.labels, data.data_norm
        self.optimum = float(pooled_optimum(self.whole.sites, self.algorithm(Setting(1, 1, 1.0, 1.0))) or math.nan)
        self.done = _read_trials(cache, case)

    def algorithm(self, setting: Setting) -> Any:
        from sottovoce.algorithms import IPADMM

        return IPADMM(epsilon=self.case.epsilon, delta=DELTA, lam=self.case.lam, loss=self.loss, **setting._asdict())

    def risk(self, setting: Setting, *, whole: bool, runs: int, seed: int = 1) -> dict[str, float]:
        """Mean risk of consensus and last, and the standard error of the first; from the file if it is there."""
        from sottovoce.plan.trial import trial

        key = json.dumps([*setting, whole, runs, seed])
        if key not in self.done:
            started = time.perf_counter()
            found = trial(self.algorithm(setting), self.whole if whole else self.part, self.graph, runs=runs, seed=seed)
            mean, last = float(found.consensus.mean()), float(found.last.mean())
            error = float(found.consensus.std(ddof=1) / math.sqrt(runs)) if runs > 1 else math.nan
            mean, last = (x if math.isfinite(x) else 1e9 for x in (mean, last))
            self.done[key] = {"risk": mean, "last": last, "error": error, "seconds": time.perf_counter() - started}
            with self.cache.open("a", encoding="utf-8") as file:
                file.write(json.dumps([self.case.key, key, self.done[key]]) + "\n")
        return self.done[key]


def _read_trials(cache: Path, case: Case) -> dict[str, dict[str, float]]:
    if not cache.exists():
        return {}
    lines = []
    for line in cache.read_text(encoding="utf-8").splitlines():
        try:
            lines.append(json.loads(line))
        except ValueError:
            continue  # cut off in the middle of a line
    return {key: value for name, key, value in lines if name == case.key}


def screen(bench: Bench, grid: Grid) -> list[Setting]:
    """Every (rounds, local steps, rho), each with the best D; best first."""
    found: dict[Setting, float] = {}
    at = len(grid.diameter) // 2
    for t, l, rho in itertools.product(grid.rounds, grid.local_steps, grid.rho):
        at = _walk(bench, grid, found, Setting(t, l, rho, 0.0), at)
    return sorted(found, key=lambda setting: found[setting])


def _walk(bench: Bench, grid: Grid, found: dict[Setting, float], setting: Setting, at: int) -> int:
    """Down the valley along D, from where the last one ended. Returns where this one ends."""

    def risk(i: int) -> float:
        here = setting._replace(diameter=grid.diameter[i])
        if here not in found:
            found[here] = bench.risk(here, whole=False, runs=grid.runs[0])["risk"]
        return found[here]

    last = len(grid.diameter) - 1
    while True:
        best = min((i for i in (at - 1, at, at + 1) if 0 <= i <= last), key=risk)
        if best == at:
            return at
        at = best


def race(bench: Bench, settings: list[Setting], grid: Grid) -> Setting:
    """All rows: many with few runs, few with many."""
    for keep, runs in zip(grid.survivors, grid.runs[1:3], strict=True):
        settings = sorted(settings[:keep], key=lambda s: bench.risk(s, whole=True, runs=runs)["risk"])
    return settings[0]


def refine(bench: Bench, best: Setting, grid: Grid) -> Setting:
    """Half a grid step in rho and D, twice as many or half as many local steps."""
    runs = grid.runs[2]
    for factor in (2.0, 1.4):
        around = [best, *_neighbours(best, factor)]
        best = min(around, key=lambda s: bench.risk(s, whole=True, runs=runs)["risk"])
    return best


def _neighbours(s: Setting, factor: float) -> Iterator[Setting]:
    for up in (factor, 1 / factor):
        yield s._replace(rho=s.rho * up)
        yield s._replace(diameter=s.diameter * up)
        steps = max(1, round(s.local_steps * up))
        if steps != s.local_steps:
            yield s._replace(local_steps=steps)


def planned(bench: Bench, **told: Any) -> Any:
    """What the planner says, from public numbers."""
    from sottovoce.plan import plan

    public: dict[str, Any] = {"sizes": bench.sizes, "d": bench.d, "graph": bench.graph, "epsilon": bench.case.epsilon}
    return plan(
        **public, delta=DELTA, loss=bench.loss, lam=bench.case.lam, data_norm=bench.data_norm, **told
    )  # fmt: skip


def setting_of(plan: Any) -> Setting:
    chosen = plan.settings
    return Setting(chosen["rounds"], chosen["local_steps"], chosen["rho"], chosen["diameter"])


def foretold(bench: Bench, plan: Any, runs: int, best: float | None) -> dict[str, Any]:
    """What was said beforehand and what came, by how much the planner was told. `best` is the least excess found."""
    import numpy as np

    from sottovoce.plan.predict import interval, masked, no_model, risks, tables
    from sottovoce.plan.trial import trial

    data, _ = rows_of(bench.case.data)
    nothing = no_model(data, bench.loss)
    told = told_of(bench, 1 - bench.optimum / nothing)
    sums = trial(masked(plan.task, None), bench.whole, bench.graph, runs=runs, seed=2).consensus
    exposed = {"exposed": True} if data.factors.shifts is not None else {}
    lines = {}
    for name, options in told.items():
        made = planned(bench, **options, **exposed)
        task, made_up = made.task, tables(made.task, None)  # as `made.predicted`, without what a site would do alone
        said = [interval(risks(task, way, made_up)[0]) for way in (made.algorithm(), masked(task, None))]
        came = bench.risk(setting_of(made), whole=True, runs=runs, seed=2)["risk"]
        lines[name] = {
            "told": options,
            "ratio": None if best is None else (came - bench.optimum) / best,
            "setting": setting_of(made)._asdict(),
            "local": {"foretold": list(said[0]), "came": came},
            "masked": {"foretold": list(said[1]), "came": float(sums.mean())},
            "way": made.way,
            "nothing": {
                "foretold": list(interval(np.array([no_model(one, task.loss) for one in made_up]))),
                "came": nothing,
            },
        }
    return lines


def told_of(bench: Bench, explained: float) -> dict[str, dict[str, Any]]:
    """As people would know it: shares, or the spread of numbers, or the mean of counts, to two digits; and a word."""
    import numpy as np

    from sottovoce.problem.losses import Counts, Reals
    from sottovoce.settings.supplied import PREDICTABILITY

    first: dict[str, Any]
    if isinstance(bench.loss.labels, Counts):
        return {"nothing": {}, "frequency": {"base_rate": float(f"{np.minimum(bench.labels, 1).mean():.2g}")}}
    if isinstance(bench.loss.labels, Reals):
        first = {"label_spread": float(f"{bench.labels.std():.2g}")}
    else:
        counts = np.unique(bench.labels, return_counts=True)[1] / len(bench.labels)
        shares = [float(f"{share:.2g}") for share in counts]
        first = {"base_rate": shares[-1] if len(shares) == 2 else tuple(x / sum(shares) for x in shares)}
    word = next((word for word, (_, most) in PREDICTABILITY.items() if explained < most), "almost")
    return {"nothing": {}, "frequency": first, "both": first | {"predictability": word}}


def solve(work: tuple[Case, Grid | None, Path]) -> dict[str, Any]:
    """One case, from screening to verdict; without a grid only what was foretold of it, and what came."""
    case, grid, cache = work
    started = time.perf_counter()
    bench = Bench(case, cache)
    plan = planned(bench)
    if grid is None:
        line = {"case": case.key, **case._asdict(), "optimum": bench.optimum}
        line["foretold"] = foretold(bench, plan, TINY.runs[3], None)
        return line | {"seconds": time.perf_counter() - started}
    tried = screen(bench, grid)
    if grid == TINY:
        tried = [setting_of(plan), *tried]
    best = refine(bench, race(bench, tried, grid), grid)
    line = {"case": case.key, **case._asdict(), "optimum": bench.optimum}
    for name, setting in (("plan", setting_of(plan)), ("best", best)):
        scores = bench.risk(setting, whole=True, runs=grid.runs[3], seed=2)
        line[name] = {"setting": setting._asdict(), "excess": scores["risk"] - bench.optimum,
                      "excess_last": scores["last"] - bench.optimum, "error": scores["error"]}  # fmt: skip
    line["ratio"] = line["plan"]["excess"] / line["best"]["excess"]
    if grid == TINY:
        line["foretold"] = foretold(bench, plan, grid.runs[3], line["best"]["excess"])
    line["seconds"] = time.perf_counter() - started
    return line


def table(lines: list[dict[str, Any]]) -> str:
    """What people read."""
    head = f"{'case':28s} {'plan':>8s} {'best':>8s} {'ratio':>6s}   plan t, l, rho, D / best t, l, rho, D"
    rows = [head]
    searched = [line for line in lines if "ratio" in line]
    for line in sorted(searched, key=lambda x: (x["data"], x["sites"], x["graph"], x["epsilon"])):
        said = " / ".join(
            f"{s['rounds']}, {s['local_steps']}, {s['rho']:.2g}, {s['diameter']:.3g}"
            for s in (line["plan"]["setting"], line["best"]["setting"])
        )
        plan, best, ratio = line["plan"]["excess"], line["best"]["excess"], line["ratio"]
        rows.append(f"{line['case']:28s} {plan:8.4f} {best:8.4f} {ratio:6.3f}   {said}")
    return "\n".join(rows)


def kept(lines: list[dict[str, Any]]) -> str:
    """How many predictions held, and how wide they were, by kind of label and by what was told: unseen tables only."""
    import numpy as np

    import tables

    rows = [f"{'kind':12s} {'told':10s} {'way':8s} {'held':>8s}   median of highest over lowest"]
    unseen = [line for line in lines if tables.BY_NAME[line["data"]].role == "unseen"]
    kinds = [*dict.fromkeys(tables.BY_NAME[line["data"]].kind for line in unseen), None]
    for told, way, kind in itertools.product(("nothing", "frequency", "both"), ("masked", "local"), kinds):
        some = [
            line for line in unseen if kind in (None, tables.BY_NAME[line["data"]].kind) and told in line["foretold"]
        ]
        said = [line["foretold"][told][way] for line in some]
        if not said:
            continue
        held = sum(one["foretold"][1] <= one["came"] <= one["foretold"][2] for one in said)
        width = float(np.median([one["foretold"][2] / one["foretold"][1] for one in said]))
        rows.append(f"{kind or 'all':12s} {told:10s} {way:8s} {held:4d} / {len(said):2d}   {width:.2f}")
    return "\n".join(rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--time-limit", type=float, default=540.0, help="seconds; what is unfinished goes on next time")
    parser.add_argument("--only", help="cases whose name contains this, such as adult, adult-5, ring")
    parser.add_argument("--small", action="store_true", help="a small grid, to see that it works")
    parser.add_argument("--replan", action="store_true", help="score the plan again in finished cases")
    parser.add_argument("--tables", action="store_true", help="the tables of benchmarks/tables.py")
    parser.add_argument("--foretold", action="store_true", help="with --tables: predictions only, no search")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    options.out = options.out or (UNSEEN if options.tables else OUT)
    started = time.perf_counter()
    finished = json.loads(options.out.read_text(encoding="utf-8")) if options.out.exists() else []
    skip = set() if options.replan else {line["case"] for line in finished}
    every = itertools.product((0.1, 0.5, 1.0, 4.0), (100, 20, 5), ("complete", "ring"), ("adult", "bank"))
    cases = [Case(data, n, graph, epsilon) for epsilon, n, graph, data in every]
    if options.tables:
        import tables

        judging = [table for table in tables.ALL if table.role == "unseen" or not options.foretold]
        names = [table.name for table in sorted(judging, key=lambda table: (table.role == "seen", table.rows))]
        cases = [Case(name, n, "complete", epsilon) for n, epsilon in ((5, 0.5), (20, 2.0)) for name in names]
    cases = [case for case in cases if case.key not in skip and (options.only or "") in case.key]
    cache, grid = options.out.with_suffix(".trials.jsonl"), TINY if options.tables else SMALL if options.small else WIDE
    grid = None if options.foretold else grid
    print(f"{len(cases)} cases to go, {len(skip)} finished", flush=True)
    with get_context("spawn").Pool(options.workers, maxtasksperchild=1) as pool:
        results = pool.imap_unordered(solve, [(case, grid, cache) for case in cases])
        for _ in cases:
            try:
                line = results.next(timeout=max(1.0, options.time_limit - (time.perf_counter() - started)))
            except MultiprocessingTimeout:
                print("time is up; run again to go on", flush=True)
                break
            finished = [old for old in finished if old["case"] != line["case"]] + [line]
            options.out.write_text(json.dumps(finished, indent=1) + "\n", encoding="utf-8")
            ratio = f": ratio {line['ratio']:.3f}" if "ratio" in line else ""
            print(f"{time.perf_counter() - started:6.0f} s  {line['case']}{ratio}", flush=True)
    print(table(finished), flush=True)
    if options.tables:
        print(kept(finished), flush=True)


if __name__ == "__main__":
    main()
