"""Panels: lists of points that are shown together, each a cell and its place in a figure."""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Literal

from sottovoce.algorithms import registry
from sottovoce.algorithms.registry import Settings
from sottovoce.algorithms.rival import FORMS
from sottovoce.errors import SottovoceError
from sottovoce.simulation.history import NODES_SCORED
from sottovoce.studies.cells import Cell, ProblemSpec, cell
from sottovoce.studies.measured import Measured
from sottovoce.studies.store import Runner

Shape = Literal["sweep", "curves", "categories"]
FORM_WORDS = {"fair": "fair", "published": "as published"}


@dataclass(frozen=True, kw_only=True)
class PanelPoint:
    """One cell and where it belongs: in which part of the figure, on which line, at which x."""

    facet: str
    series: str
    x: float | str
    algorithm: str
    form: str
    epsilon: float | None
    cell: Cell
    result: Measured | None = None
    picked: str = ""  # settings that were tuned, in words


@dataclass(kw_only=True)
class Panel:
    """A planned figure: its texts, and the points that it shows.

    Args:
        name: of the file, and of the panel in studies.
        title, caption, xlabel: its words.
        shape: "sweep" (lines over a number), "curves" (lines over rounds) or "categories" (dots side by side).
        points: cells, and where each is drawn.
        notes: what is missing from it, and why.
        log_x: True to draw x on a log scale.
        cut_at: where the y axis ends, as a multiple of the largest final mean; None for all of it.
        column: of the history that is shown.
    """

    name: str
    title: str
    caption: str
    xlabel: str
    shape: Shape
    points: list[PanelPoint] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    log_x: bool = False
    cut_at: float | None = None  # of the largest final mean: where early spikes would hide the rest
    column: str = "risk_last"

    def cells(self) -> list[Cell]:
        """The cells of all points."""
        return [point.cell for point in self.points]

    def measured(self) -> list[PanelPoint]:
        """The points that have a result."""
        return [point for point in self.points if point.result is not None]

    def fill(self, runner: Runner) -> None:
        """Run or fetch every point."""
        runner.fill(self.cells())
        self.points = [replace(point, result=runner.get(point.cell)) for point in self.points]
        for point in self.points:
            if point.cell in runner.refused:
                self.note(f"{point.series}, {point.facet or point.x}: refused ({runner.refused[point.cell]})")

    def note(self, text: str) -> None:
        """Add a note, unless the panel has it already."""
        if text not in self.notes:
            self.notes.append(text)


@dataclass(frozen=True, kw_only=True)
class StudySize:
    """Numbers that set the size of a study; the quick form makes them smaller."""

    every: int = 1  # only every n-th row is used
    nodes: int = 100
    rounds: int = 100
    local_steps: int = 10
    runs: int = 10
    tuning_runs: int = 3
    tuning_scored: int = 20  # nodes whose models are scored while tuning
    quick: bool = False
    seed: int = 2  # of the noise; the partition has seed 0
    fresh_seed: int = 2002  # of the runs that judge what was tuned: no noise is used twice
    record: tuple[int, ...] = (1, 2, 3, 5, 8, 13, 20, 32, 50, 70, *range(90, 101))
    sparse_record: tuple[int, ...] = (1, 2, 3, 5, 8, 13, 20, 32, 50, 70, 100)  # where only the curve's shape matters
    late: int = 10  # rounds at the end over which steadiness is measured; all of them are recorded
    delta: float = 1e-5
    rho: float = 1e-3
    lam: float = 1e-6  # the paper's lambda / n, with its lambda = 1e-4 and n = 100

    def problem(self, **changes: object) -> ProblemSpec:
        """The paper's problem, or a variation of it."""
        return replace(ProblemSpec(nodes=self.nodes, every=self.every), **changes)  # type: ignore[arg-type]

    def common(self, epsilon: float | None = None, rounds: int | None = None) -> dict[str, float | int | str | bool]:
        """The settings that every algorithm of the study is given, where it has such fields."""
        shared: dict[str, float | int | str | bool] = {
            "delta": self.delta,
            "rho": self.rho,
            "lam": self.lam,
            "rounds": rounds or self.rounds,
        }
        return shared if epsilon is None else {**shared, "epsilon": epsilon}


FULL = StudySize()
QUICK = StudySize(
    every=20, nodes=9, rounds=6, local_steps=2, runs=3, tuning_runs=2, quick=True, record=(1, 2, 3, 4, 5, 6), late=4,
)  # fmt: skip


def add_point(
    panel: Panel,
    scale: StudySize,
    name: str,
    *,
    x: float | str,
    epsilon: float,
    form: str = "fair",
    facet: str = "",
    series: str | None = None,
    problem: ProblemSpec | None = None,
    own: Settings | None = None,
    rounds: int | None = None,
    record: tuple[int, ...] = (),
    scored: int = NODES_SCORED,
    seed: int | None = None,
    picked: str = "",
) -> None:
    """Add a point to the panel, or a note where the algorithm refuses its settings.

    Args:
        panel: where to.
        scale: how large the study is.
        name: of the algorithm, in the registry.
        x: where along the x axis.
        epsilon: the total that it may spend.
        form: "fair" or "published". Where it has no such form nothing is added.
        facet: in which part of the figure.
        series: on which line; None for the algorithm's label.
        problem: rows, partition and graph; None for the paper's.
        own: settings of this algorithm beyond the common ones.
        rounds: None for the study's.
        record: rounds whose scores are kept; empty for the last one only.
        scored: at how many nodes models are scored.
        seed: of the noise; None for the study's.
        picked: settings that were tuned, in words.
    """
    line = registry.entry(name)
    if form not in line.forms:
        return
    own = dict(own or {})
    # Only algorithms whose line sets local steps have any: the others take one step a round by definition.
    if "local_steps" in line.settings:
        own.setdefault("local_steps", scale.local_steps)
    try:
        made = cell(
            name,
            problem or scale.problem(),
            scale.common(epsilon, rounds),
            own,
            form=form,
            runs=scale.runs,
            seed=scale.seed if seed is None else seed,
            record=record,
            scored=scored,
        )
    # A rival that refuses a setting is a result too: it is named below the figure, not left out silently.
    except SottovoceError as error:
        panel.note(f"{line.label}, {FORM_WORDS[form]}, epsilon {epsilon:g}: refused ({error})")
        return
    panel.points.append(
        PanelPoint(
            facet=facet,
            series=series or line.label,
            x=x,
            algorithm=name,
            form=form,
            epsilon=epsilon if line.private else None,
            cell=made,
            picked=picked,
        )
    )


def in_group(*groups: str) -> list[str]:
    """The names of the algorithms in these groups, in the registry's order."""
    return [name for name, line in registry.REGISTRY.items() if line.group in groups]


def forms_of(name: str) -> Iterable[str]:
    """The forms that an algorithm has: "fair", "published", or both."""
    return [form for form in FORMS if form in registry.entry(name).forms]
