"""Every algorithm at its own best setting: one grid of the same size for all.

The choice looks at the risk on the private rows and pays nothing for it: this tuning is NOT private. It answers which
algorithm is better when each is used well, not what a site would get. The chosen setting is judged on fresh noise.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from sottovoce.algorithms import registry
from sottovoce.algorithms.registry import Settings, Value
from sottovoce.studies.cells import Cell, ProblemSpec
from sottovoce.studies.panels import Panel, PanelPoint, StudySize, add_point, in_group
from sottovoce.studies.store import Runner
from sottovoce.studies.suite import EPSILONS, setting

NOT_PRIVATE = "The settings were chosen by looking at private rows, without paying for it: this tuning is not private."


@dataclass(frozen=True, kw_only=True)
class Contestant:
    """An algorithm, the grid it may choose from, and where it ends up in the figure.

    Without an x of its own it stands there under its name and what it chose.
    """

    name: str
    points: Sequence[Mapping[str, Value]]
    form: str = "fair"
    epsilon: float = 1.0
    own: Settings | None = None
    problem: ProblemSpec | None = None
    facet: str = ""
    series: str | None = None
    x: float | str | None = None


def contestants(scale: StudySize) -> list[Contestant]:
    """All algorithms with the registry's grids, at both epsilons; the quick form keeps the corners."""
    found = []
    for epsilon in EPSILONS:
        for name in in_group("paper", "beyond", "bound"):
            points = registry.entry(name).points()
            if scale.quick:
                # The first and the last point of the grid.
                points = [{**point, "rounds": scale.rounds} for point in points[:: len(points) - 1]]
            found.append(Contestant(name=name, points=points, epsilon=epsilon, facet=f"epsilon {epsilon:g}", x=0.0))
    return found


def trials(scale: StudySize, contestant: Contestant, panel: Panel) -> list[PanelPoint]:
    """The points of a contestant's grid, with few runs each."""
    few = replace(scale, runs=scale.tuning_runs)
    tried = Panel(name="tuning", title="", caption="", xlabel="", shape="categories")
    for number, point in enumerate(contestant.points):
        add_point(
            tried, few, contestant.name, x=float(number), epsilon=contestant.epsilon, form=contestant.form,
            own={**(contestant.own or {}), **point}, problem=contestant.problem, scored=scale.tuning_scored,
        )  # fmt: skip
    for note in tried.notes:
        panel.note(note)
    return tried.points


def figure_3b(scale: StudySize) -> Panel:
    """Empty panel of all algorithms at their best settings; `tune` fills it."""
    grid = len(contestants(scale)[0].points)
    return Panel(
        name="fig3b",
        title="Figure 3b. Every algorithm at its own best setting",
        caption=(
            f"Fair. For each algorithm the best of {grid} settings (its rounds t, rho, D), by the mean risk of "
            f"{scale.tuning_runs} runs at {scale.tuning_scored} nodes; shown are fresh runs with other seeds. "
            f"{NOT_PRIVATE} A star in the table: the end of the grid, so that the best may lie beyond. Dashed: "
            "yardsticks, which need everyone to hear everyone, a curator whom all trust, or no privacy. Higher risks "
            "of early rounds are cut off. " + setting(scale)
        ),
        xlabel="communication rounds (log scale)",
        shape="curves",
        log_x=True,
        cut_at=1.5,
    )


def best(tried: Iterable[PanelPoint]) -> PanelPoint | None:
    """The trial of least mean risk; one that overflowed is never the best."""

    def risk(point: PanelPoint) -> float:
        assert point.result is not None
        mean = float(np.mean(point.result.final("risk_last")))
        return mean if math.isfinite(mean) else math.inf

    return min((point for point in tried if point.result is not None), key=risk, default=None)


def plan_trials(
    scale: StudySize, panel: Panel, entered: Sequence[Contestant]
) -> tuple[list[list[PanelPoint]], list[Cell]]:
    """The trials of all contestants, and cells that stand for the runs that will judge the chosen settings, so that the
    total work is known ahead.
    """
    tried = [trials(scale, contestant, panel) for contestant in entered]
    stand_ins = [replace(points[-1].cell, runs=scale.runs, seed=scale.fresh_seed) for points in tried if points]
    return tried, stand_ins


def tune(
    scale: StudySize, panel: Panel, runner: Runner, entered: Sequence[Contestant], record: tuple[int, ...] = ()
) -> None:
    """Run the grids, choose, and judge the chosen settings on fresh noise."""
    tried, _ = plan_trials(scale, panel, entered)
    runner.fill(point.cell for points in tried for point in points)
    for one, points in zip(entered, tried, strict=True):
        chosen = best([replace(point, result=runner.get(point.cell)) for point in points])
        if chosen is None:
            panel.note(f"{registry.entry(one.name).label}: no setting of its grid could be run")
            continue
        picked = dict(one.points[int(chosen.x)])
        texts = []
        for name, value in picked.items():
            grid = {v for point in one.points if isinstance(v := point[name], int | float)}
            edge = "*" if len(grid) > 1 and value in (min(grid), max(grid)) else ""  # the best may lie beyond
            short = f"{value:g}" if isinstance(value, int | float) else value
            texts.append(f"{name.replace('_', ' ')} {short}{edge}")
        words = ", ".join(texts)
        add_point(
            panel, scale, one.name, x=f"{registry.entry(one.name).label}\n{words}" if one.x is None else one.x,
            epsilon=one.epsilon, form=one.form, own={**(one.own or {}), **picked}, problem=one.problem,
            facet=one.facet, series=one.series, record=record, seed=scale.fresh_seed, picked=words,
        )  # fmt: skip
    panel.fill(runner)
