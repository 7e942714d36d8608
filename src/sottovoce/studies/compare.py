"""A comparison that a TOML file describes: data, graphs, algorithms, grids and epsilons.

It is checked as a whole before anything runs, and runs as the reproduction does: the same cells, store and figures. It
tests no claims.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from itertools import product
from pathlib import Path
from time import perf_counter
from typing import Any

from sottovoce import settings
from sottovoce.algorithms import registry
from sottovoce.algorithms.registry import Value
from sottovoce.errors import InputError, expect
from sottovoce.problem import graphs, partition
from sottovoce.settings import check_choice
from sottovoce.simulation.optimum import pooled_optimum
from sottovoce.studies import tuning
from sottovoce.studies.cells import ProblemSpec
from sottovoce.studies.choices import CHOICES
from sottovoce.studies.panels import Panel, StudySize, add_point
from sottovoce.studies.reproduce import Study
from sottovoce.studies.store import CellStore, ProgressWatcher, Runner
from sottovoce.studies.tuning import NOT_PRIVATE, Contestant

_FRESH = 1000  # how far the seed of the judged runs is from that of the tuning


@dataclass(frozen=True, kw_only=True)
class Entrant:
    """One algorithm of a comparison. A grid has its best point chosen, at every graph and epsilon."""

    name: str
    label: str = ""  # left out: the registry's
    form: str = "fair"
    settings: dict[str, Value] = field(default_factory=dict)
    grid: dict[str, tuple[Value, ...]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not self.label:
            object.__setattr__(self, "label", registry.entry(self.name).label)
        expect(all(self.grid.values()), "at least one value for every setting of a grid", grid=self.grid)
        # Every point is made once, so that a bad setting is refused before any work is done.
        for point in self.points():
            registry.make(self.name, registry.settings_of(self.name, self.form, {}, {**self.settings, **point}))

    def points(self) -> list[dict[str, Any]]:
        """The points of the grid, each a setting by name."""
        return [dict(zip(self.grid, values, strict=True)) for values in product(*self.grid.values())]


@dataclass(frozen=True, kw_only=True)
class ComparisonFile:
    """The checked content of a comparison file. Settings that are not given are the paper's."""

    algorithm: tuple[Entrant, ...]
    dataset: str = "adult"
    split: str = "all"
    every: int = 1
    nodes: int = 100
    graphs: tuple[str | dict[str, Any], ...] = ("complete",)
    partition: str = "even"
    partition_alpha: float | None = None
    partition_column: str | None = None
    epsilons: tuple[float, ...] = (1.0,)
    delta: float = 1e-5
    rounds: int = 100
    rho: float = 1e-3
    lam: float = 1e-6
    runs: int = 10
    tuning_runs: int = 3
    seed: int = 0

    def __post_init__(self) -> None:
        for name, least in {**dict.fromkeys(("nodes", "every", "rounds", "runs", "tuning_runs"), 1), "seed": 0}.items():
            expect(getattr(self, name) >= least, f"{name} >= {least}", **{name: getattr(self, name)})
        for name in ("delta", "rho", "lam"):
            expect(math.isfinite(getattr(self, name)), f"a finite number for {name}", **{name: getattr(self, name)})
        positive = bool(self.epsilons) and min(self.epsilons) > 0
        expect(positive, "epsilons as a list of numbers > 0", epsilons=list(self.epsilons))
        for name in ("dataset", "split"):
            check_choice(name, getattr(self, name), CHOICES[name])
        expect(bool(self.graphs), "at least one of graphs", graphs=[])
        labels = [entrant.label for entrant in self.algorithm]
        expect(bool(labels), "at least one [[algorithm]]", algorithm=[])
        expect(len(set(labels)) == len(labels), "a different label for every algorithm", labels=labels)
        for problem in self.problems().values():
            options: dict[str, Any] = dict(problem.graph_options)
            graphs.by_name(problem.graph, problem.nodes, **options)  # refuses what does not fit

    def scale(self) -> StudySize:
        """The size of the study, as panels take it."""
        shown = sorted({max(1, round(self.rounds * (j / 12) ** 1.5)) for j in range(1, 13)})
        return StudySize(
            every=self.every, nodes=self.nodes, rounds=self.rounds, runs=self.runs,
            tuning_runs=self.tuning_runs, seed=self.seed,
            fresh_seed=self.seed + _FRESH, record=tuple(shown), delta=self.delta, rho=self.rho, lam=self.lam,
        )  # fmt: skip

    def problems(self) -> dict[str, ProblemSpec]:
        """One problem per graph, by the words that a figure shows."""
        options = {"alpha": self.partition_alpha, "column": self.partition_column}
        given = tuple((name, value) for name, value in options.items() if value is not None)
        partition.by_name(self.partition, **dict(given))  # refuses what does not fit
        found = {}
        for graph in self.graphs:
            more = dict(graph) if isinstance(graph, dict) else {"name": graph}
            name = str(more.pop("name", None))
            words = ", ".join([name, *(f"{key} {value}" for key, value in more.items())])
            found[words] = ProblemSpec(
                dataset=self.dataset, split=self.split, every=self.every, nodes=self.nodes, graph=name,
                graph_options=tuple(more.items()), partition=self.partition, partition_options=given,
            )  # fmt: skip
        return found


def read_comparison(table: Mapping[str, Any]) -> ComparisonFile:
    """A comparison from the content of a TOML file; whatever is wrong with it is refused by name."""
    return settings.read(ComparisonFile, table, "settings of compare", finite=False)


def run_comparison(
    comparison: ComparisonFile, out: Path, *, title: str, command: str = "", watcher: ProgressWatcher | None = None
) -> Study:
    """Run everything of the comparison that is not in `out` yet.

    Args:
        comparison: what the file says.
        out: the folder for cells and report.
        title: of the report.
        command: what was typed, for the report.
        watcher: is called with the progress.
    """
    store = CellStore(out)
    store.check()
    started, scale = perf_counter(), comparison.scale()
    runner = Runner(store, watcher or ProgressWatcher(), {})
    panel, entered = _plan(comparison, scale)
    tried, judged = tuning.plan_trials(scale, panel, entered)
    trials = [point.cell for points in tried for point in points]
    # All work is announced before any is done, so that the time left is known from the start.
    runner.begin([*panel.cells(), *trials, *judged])
    tuning.tune(scale, panel, runner, entered, record=scale.record)
    if not panel.measured():
        raise InputError(f"Expected something that can be run, got none: {'; '.join(panel.notes)}.")
    # Tuned entrants were added last: put everyone back into the order of the file.
    order = [entrant.label for entrant in comparison.algorithm]
    panel.points.sort(key=lambda point: (point.facet, point.epsilon or 0.0, order.index(point.series)))
    epsilons = [f"{point.x:g}" if isinstance(point.x, float) else point.x for point in panel.points]
    curves = Panel(
        name="rounds",
        title="Risk over rounds",
        caption=panel.caption,
        xlabel="communication rounds",
        shape="curves",
        points=[
            replace(point, facet=f"{point.facet}, epsilon {epsilon}")
            for point, epsilon in zip(panel.points, epsilons, strict=True)
        ],
    )
    if len(comparison.epsilons) == 1:  # nothing to sweep: show the graphs side by side
        points = [replace(point, x=point.facet) for point in panel.points]
        panel = replace(panel, points=points, shape="categories", xlabel="graph", log_x=False)
    problem = next(iter(comparison.problems().values())).build()
    return Study(
        title=title,
        panels={"compare": panel, "rounds": curves},
        claims=[],
        quick=False,
        runs=comparison.runs,
        command=command,
        optimum=pooled_optimum(problem.sites, registry.make("ipadmm", {"lam": comparison.lam})),
        cells=len({*panel.cells(), *trials}),
        seconds=perf_counter() - started,
    )


def _plan(comparison: ComparisonFile, scale: StudySize) -> tuple[Panel, list[Contestant]]:
    """The panel with all fixed settings, and the contestants whose settings are tuned."""
    tuned = any(entrant.grid for entrant in comparison.algorithm)
    panel = Panel(
        name="compare",
        title="Risk against epsilon" if len(comparison.epsilons) > 1 else "Risk on each graph",
        caption=(
            f"{comparison.dataset}, {comparison.nodes} nodes, {comparison.rounds} rounds unless set otherwise, "
            f"rho = {comparison.rho:g}, lambda / n = {comparison.lam:g}, delta = {comparison.delta:g}, "
            f"{comparison.runs} runs. Risk: the mean over nodes of the mean loss on all rows of each node's last "
            "broadcast. Bands: 5 % to "
            f"95 % of the runs.{f' {NOT_PRIVATE} Chosen settings are judged on fresh noise.' if tuned else ''}"
        ),
        xlabel="epsilon (total, log scale)",
        shape="sweep",
        log_x=True,
    )
    entered = []
    for words, problem in comparison.problems().items():
        for epsilon in comparison.epsilons:
            for one in comparison.algorithm:
                if one.grid:
                    entered.append(
                        Contestant(
                            name=one.name, points=one.points(), form=one.form, epsilon=epsilon, own=one.settings,
                            problem=problem, facet=words, series=one.label, x=float(epsilon),
                        )
                    )  # fmt: skip
                    continue
                add_point(
                    panel, scale, one.name, x=float(epsilon), epsilon=epsilon, form=one.form, facet=words,
                    series=one.label, problem=problem, own=one.settings, record=scale.record, seed=scale.fresh_seed,
                )  # fmt: skip
    return panel, entered
