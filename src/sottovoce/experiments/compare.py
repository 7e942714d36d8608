"""A comparison of your own: data, graphs, algorithms, grids and epsilons named in a TOML file."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from difflib import get_close_matches
from itertools import product
from pathlib import Path
from time import perf_counter
from typing import Any

from sottovoce import graphs
from sottovoce.algorithms import registry
from sottovoce.datasets import partition
from sottovoce.engines.optimum import pooled_optimum
from sottovoce.errors import InputError, expect
from sottovoce.experiments import tuning
from sottovoce.experiments.build import CHOICES
from sottovoce.experiments.cells import Problem
from sottovoce.experiments.panels import Panel, Scale, add
from sottovoce.experiments.reproduce import Study
from sottovoce.experiments.store import Runner, Store, Watcher
from sottovoce.experiments.tuning import NOT_PRIVATE, Contestant

_FRESH = 1000  # how far the seed of the judged runs is from that of the tuning


@dataclass(frozen=True, kw_only=True)
class Entrant:
    """One algorithm of a comparison. A grid has its best point chosen, at every graph and epsilon."""

    name: str
    label: str
    form: str = "fair"
    settings: Any = field(default_factory=dict)
    grid: Any = field(default_factory=dict)

    def points(self) -> list[dict[str, Any]]:
        """The grid, point by point."""
        return [dict(zip(self.grid, values, strict=True)) for values in product(*self.grid.values())]


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """What a file says, checked. Settings that are not given are the paper's."""

    algorithm: Sequence[Entrant]
    dataset: str = "adult"
    split: str = "all"
    every: int = 1
    nodes: int = 100
    graphs: Any = field(default_factory=lambda: ["complete"])
    partition: str = "even"
    partition_alpha: float | None = None
    partition_column: str | None = None
    epsilons: Any = field(default_factory=lambda: [1.0])
    delta: float = 1e-5
    rounds: int = 100
    rho: float = 1e-3
    lam: float = 1e-6
    runs: int = 10
    tuning_runs: int = 3
    seed: int = 0

    def scale(self) -> Scale:
        """The same numbers as panels want them."""
        shown = sorted({max(1, round(self.rounds * (j / 12) ** 1.5)) for j in range(1, 13)})
        return Scale(
            every=self.every, nodes=self.nodes, rounds=self.rounds, runs=self.runs,
            tuning_runs=self.tuning_runs, seed=self.seed,
            fresh_seed=self.seed + _FRESH, record=tuple(shown), delta=self.delta, rho=self.rho, lam=self.lam,
        )  # fmt: skip

    def problems(self) -> dict[str, Problem]:
        """One problem per graph, by the words that a figure shows."""
        options = {"alpha": self.partition_alpha, "column": self.partition_column}
        given = tuple((name, value) for name, value in options.items() if value is not None)
        partition.by_name(self.partition, **dict(given))  # refuses what does not fit
        found = {}
        for graph in self.graphs:
            name, more = _graph(graph)
            words = ", ".join([name, *(f"{key} {value}" for key, value in more.items())])
            found[words] = Problem(
                dataset=self.dataset, split=self.split, every=self.every, nodes=self.nodes, graph=name,
                graph_options=tuple(more.items()), partition=self.partition, partition_options=given,
            )  # fmt: skip
        return found


def read(settings: Mapping[str, Any]) -> Comparison:
    """A comparison from the content of a TOML file; whatever is wrong with it is refused by name."""
    _check_keys(settings, Comparison, "compare")
    entrants = settings.get("algorithm")
    if not isinstance(entrants, list) or not entrants or not all(isinstance(e, dict) for e in entrants):
        raise InputError("Expected at least one [[algorithm]] with a name, got none. Add one.")
    made = Comparison(**{**settings, "algorithm": [_entrant(entrant) for entrant in entrants]})
    _check(made)
    return made


def run(comparison: Comparison, out: Path, *, title: str, command: str = "", watcher: Watcher | None = None) -> Study:
    """Run everything that is not there yet."""
    store = Store(out)
    store.check()
    started, scale = perf_counter(), comparison.scale()
    runner = Runner(store, watcher or Watcher(), {})
    panel, entered = _plan(comparison, scale)
    tried, judged = tuning.plan(scale, panel, entered)
    trials = [point.cell for points in tried for point in points]
    runner.begin([*panel.cells(), *trials, *judged])
    tuning.tune(scale, panel, runner, entered, record=scale.record)
    if not panel.measured():
        raise InputError(f"Expected something that can be run, got none: {'; '.join(panel.notes)}.")
    order = [entrant.label for entrant in comparison.algorithm]
    panel.points.sort(key=lambda point: (point.facet, point.epsilon or 0.0, order.index(point.series)))
    curves = Panel(
        name="rounds",
        title="Risk over rounds",
        caption=panel.caption,
        xlabel="communication rounds",
        shape="curves",
        points=[replace(point, facet=f"{point.facet}, epsilon {_epsilon(point.x)}") for point in panel.points],
    )
    sites, _ = next(iter(comparison.problems().values())).build()
    return Study(
        title=title,
        panels={"compare": _by_graph(panel, comparison), "rounds": curves},
        claims=[],
        quick=False,
        runs=comparison.runs,
        command=command,
        optimum=pooled_optimum(sites, registry.make("ipadmm", {"lam": comparison.lam})),
        cells=len({*panel.cells(), *trials}),
        seconds=perf_counter() - started,
    )


def _plan(comparison: Comparison, scale: Scale) -> tuple[Panel, list[Contestant]]:
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
                add(
                    panel, scale, one.name, x=float(epsilon), epsilon=epsilon, form=one.form, facet=words,
                    series=one.label, problem=problem, own=one.settings, record=scale.record, seed=scale.fresh_seed,
                )  # fmt: skip
    return panel, entered


def _by_graph(panel: Panel, comparison: Comparison) -> Panel:
    """With a single epsilon there is nothing to sweep: show the graphs side by side."""
    if len(comparison.epsilons) > 1:
        return panel
    points = [replace(point, x=point.facet) for point in panel.points]
    return replace(panel, points=points, shape="categories", xlabel="graph", log_x=False)


def _epsilon(x: float | str) -> str:
    return f"{x:g}" if isinstance(x, float) else x


def _entrant(given: Mapping[str, Any]) -> Entrant:
    _check_keys(given, Entrant, "[[algorithm]]")
    expect("name" in given, "a name in every [[algorithm]]", algorithm=dict(given))
    expect(isinstance(given["name"], str), "text for name", name=given["name"])
    line = registry.entry(given["name"])
    made = Entrant(**{"label": line.label, **given})
    expect(isinstance(made.settings, dict), "a table for settings", settings=made.settings)
    lists = isinstance(made.grid, dict) and all(isinstance(v, list) and v for v in made.grid.values())
    expect(lists, "a table of lists for grid", grid=made.grid)
    # Every point is made once, so that a bad setting is refused before any work is done.
    for point in made.points():
        registry.make(made.name, registry.settings_of(made.name, made.form, {}, {**made.settings, **point}))
    return made


def _check(c: Comparison) -> None:
    for name in ("nodes", "every", "rounds", "runs", "tuning_runs", "seed"):
        value = getattr(c, name)
        least = 0 if name == "seed" else 1
        expect(type(value) is int and value >= least, f"a whole number {name} >= {least}", **{name: value})
    for name in ("delta", "rho", "lam"):
        value = getattr(c, name)
        expect(type(value) in (int, float) and math.isfinite(value), f"a number for {name}", **{name: value})
    positive = (
        isinstance(c.epsilons, list) and c.epsilons and all(type(e) in (int, float) and e > 0 for e in c.epsilons)
    )
    expect(bool(positive), "epsilons as a list of numbers > 0", epsilons=c.epsilons)
    for name in ("dataset", "split"):
        expect(
            getattr(c, name) in CHOICES[name], f"{name} among {', '.join(CHOICES[name])}", **{name: getattr(c, name)}
        )
    expect(isinstance(c.graphs, list) and bool(c.graphs), "graphs as a list", graphs=c.graphs)
    labels = [entrant.label for entrant in c.algorithm]
    expect(len(set(labels)) == len(labels), "a different label for every algorithm", labels=labels)
    for problem in c.problems().values():
        options: dict[str, Any] = dict(problem.graph_options)
        graphs.by_name(problem.graph, problem.nodes, **options)  # refuses what does not fit


def _graph(graph: Any) -> tuple[str, dict[str, Any]]:
    """A graph is a name, or a table of a name and options."""
    more = dict(graph) if isinstance(graph, dict) else {"name": graph}
    name = more.pop("name", None)
    if name not in graphs.NAMES:
        close = get_close_matches(str(name), graphs.NAMES, n=1)
        advice = f" Did you mean {close[0]!r}?" if close else ""
        raise InputError(f"Expected a graph among {', '.join(graphs.NAMES)}, got {name!r}.{advice}")
    return name, more


def _check_keys(given: Mapping[str, Any], kind: type[Any], where: str) -> None:
    known = [f.name for f in fields(kind)]
    for name in given:
        if name not in known:
            close = get_close_matches(name, known, n=1)
            advice = f"Did you mean {close[0]}?" if close else f"Known: {', '.join(known)}."
            raise InputError(f"Expected a setting of {where}, got {name!r}. {advice}")
