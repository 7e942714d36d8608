"""The page of a study: its figures, tables and verdicts, as HTML. It computes nothing."""

from collections.abc import Mapping

from sottovoce import __version__
from sottovoce.studies.panels import Panel
from sottovoce.studies.report.rendering import TextTable, render_page
from sottovoce.studies.report.svg import inline
from sottovoce.studies.report.tables import comparisons, scores, verdicts
from sottovoce.studies.reproduce import Study
from sottovoce.studies.verdict import LEVEL, RULE

# What the tables under some figures show besides scores.
_BESIDE = {"compare": ("facet", "epsilon", "picked"), "fig3b": ("epsilon", "picked")}


def study_page(study: Study, figures: Mapping[str, str]) -> str:
    """The page as HTML; `figures` are SVG texts by the name of their panel."""
    shown = [panel for panel in study.panels.values() if panel.name in figures or panel.name == "table"]
    return render_page(
        "study.html.j2",
        title=study.title,
        study=study,
        shown=shown,
        figures={name: inline(svg, name) for name, svg in figures.items()},
        scores={panel.name: _scores(panel) for panel in shown if panel.name in ("table", *_BESIDE)},
        verdicts=verdicts,
        comparisons=comparisons,
        level=LEVEL,
        rule=RULE,
        version=__version__,
    )


def _scores(panel: Panel) -> TextTable:
    """The table under a figure, with test scores where test rows were kept apart."""
    tested = panel.name == "table" or any(point.cell.problem.split != "all" for point in panel.measured())
    return scores(panel.measured(), tested=tested, shown=_BESIDE.get(panel.name, ()))
