"""The whole reproduction: plan, run what is missing, test the claims. Seeds and tests are fixed before the
first run.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from time import perf_counter

from sottovoce.algorithms import registry
from sottovoce.errors import InputError, expect
from sottovoce.settings import check_choice
from sottovoce.simulation.optimum import pooled_optimum
from sottovoce.studies import tuning
from sottovoce.studies.cells import Cell
from sottovoce.studies.claims import all_claims
from sottovoce.studies.panels import FULL, QUICK, Panel, StudySize
from sottovoce.studies.store import CellStore, ProgressWatcher, Runner
from sottovoce.studies.suite import PANELS
from sottovoce.studies.verdict import PaperClaim

TUNED = "fig3b"
# In the order of the report.
NAMES = ("fig1", "fig2", "fig3", TUNED, "trust", "sites", "table", "diameter", "graph", "skew", "choices")
IN_SHORT = "This is the quick form: few nodes, rows, runs and rounds. It shows that everything works, and nothing else."


@dataclass(frozen=True, kw_only=True)
class Study:
    """Filled panels and judged claims: all that a report needs."""

    title: str
    panels: dict[str, Panel]
    claims: list[PaperClaim]
    quick: bool
    runs: int
    command: str
    optimum: float | None  # risk of the pooled model without privacy, a yardstick in figures
    cells: int
    seconds: float

    def notes(self) -> list[str]:
        """Notes of all panels on what is missing, each once."""
        return list(dict.fromkeys(note for panel in self.panels.values() for note in panel.notes))


def chosen_panels(only: str | None) -> tuple[str, ...]:
    """The panels that were asked for: a list of names with commas between, or None for all."""
    if only is None:
        return NAMES
    wanted = [name.strip() for name in only.split(",") if name.strip()]
    for name in wanted:
        check_choice("--only", name, NAMES)
    if not wanted:
        raise InputError(f"Expected --only with names of figures, got none. Known: {', '.join(NAMES)}.")
    return tuple(name for name in NAMES if name in wanted)


def reproduce(
    out: Path,
    *,
    quick: bool = False,
    only: str | None = None,
    runs: int | None = None,
    watcher: ProgressWatcher | None = None,
    command: str = "",
) -> Study:
    """Run everything that is not there yet, and judge.

    Args:
        out: the folder for cells and report. What an earlier, interrupted study left there is used again.
        quick: a small form that shows that everything works, and nothing else.
        only: names of panels with commas between; None for all.
        runs: of every cell; None for the study's ten.
        watcher: is called with the progress.
        command: what was typed, for the report.
    """
    names, scale, store = chosen_panels(only), QUICK if quick else FULL, CellStore(out)
    if runs is not None:
        expect(runs >= 2, "runs >= 2, since one run says nothing about chance", runs=runs)
        scale = replace(scale, runs=runs)
    # Before any work: a folder that holds something else is refused while nothing is lost yet.
    store.check()
    started, runner = perf_counter(), Runner(store, watcher or ProgressWatcher(), {})
    panels = {name: tuning.figure_3b(scale) if name == TUNED else PANELS[name](scale) for name in names}
    entered = tuning.contestants(scale)
    runner.begin(_all_cells(panels, scale, entered))
    # All at once, so that no figure waits for the last cell of another.
    runner.fill(_known_cells(panels, scale, entered))
    for name, panel in panels.items():
        if name == TUNED:
            tuning.tune(scale, panel, runner, entered, record=scale.sparse_record)
        else:
            panel.fill(runner)
    return Study(
        title="Reproduction of Huang & Gong, arXiv 2005.07890",
        panels=panels,
        claims=all_claims(panels, scale),
        quick=quick,
        runs=scale.runs,
        command=command,
        optimum=pooled_optimum(scale.problem().build().sites, registry.make("ipadmm", {"lam": scale.lam})),
        cells=len(set(_all_cells(panels, scale, entered))),
        seconds=perf_counter() - started,
    )


def _known_cells(panels: dict[str, Panel], scale: StudySize, entered: Sequence[tuning.Contestant]) -> list[Cell]:
    """Every cell that is known before anything is tuned."""
    cells = [cell for panel in panels.values() for cell in panel.cells()]
    if TUNED in panels:
        tried, _ = tuning.plan_trials(scale, panels[TUNED], entered)
        cells += [point.cell for points in tried for point in points]
    return cells


def _all_cells(panels: dict[str, Panel], scale: StudySize, entered: Sequence[tuning.Contestant]) -> list[Cell]:
    """Every cell that will be asked for, tuning included."""
    cells = _known_cells(panels, scale, entered)
    if TUNED in panels and not panels[TUNED].points:
        cells += tuning.plan_trials(scale, panels[TUNED], entered)[1]
    return cells
