"""The page of a study: its figures, tables and verdicts, as HTML. It computes nothing."""

from collections.abc import Mapping, Sequence

from sottovoce import __version__
from sottovoce.document import Code, Document, Facts, Figure, FigureRow, Folded, Part, Section, Words
from sottovoce.studies.panels import Panel
from sottovoce.studies.report.rendering import page_of
from sottovoce.studies.report.svg import inline
from sottovoce.studies.report.tables import comparisons, scores, verdicts
from sottovoce.studies.reproduce import IN_SHORT, Study
from sottovoce.studies.verdict import LEVEL, RULE

# What the tables under some figures show besides scores.
_BESIDE = {"compare": ("facet", "epsilon", "picked"), "fig3b": ("epsilon", "picked")}
_FILES = (
    ("verdict.json", "the verdict as data"),
    ("results.parquet, results.csv", "a line per run"),
    ("curves.parquet, curves.csv", "a line per recorded round and run"),
    ("figures", "the figures as SVG and PNG"),
    ("cells", "the raw results, from which the same command goes on, or redraws"),
)


def study_page(study: Study, figures: Mapping[str, Sequence[str]]) -> str:
    """The page as HTML; `figures` are the parts of panels as SVG texts, by the name of their panel."""
    shown = [panel for panel in study.panels.values() if panel.name in figures or panel.name == "table"]
    rule = f"Computed from the results by one rule, level {LEVEL}. {RULE} Differences are ours minus theirs, so that "
    judged: list[Part] = [verdicts(study.claims), Words(f"{rule}negative is better.", "soft")]
    made = f"sottovoce {__version__}; {study.cells} cells; {study.seconds:.0f} s in this session, the rest was there."
    tests = []
    for claim in study.claims:
        if claim.comparisons:
            names = ", ".join(dict.fromkeys(one.test for one in claim.comparisons))
            about = Words(f"{names}; Holm-corrected within this claim.", "soft")
            tests.append(Folded(claim.text, [comparisons(claim), about]))
    parts: list[Part] = [
        *([Words(IN_SHORT, "banner")] if study.quick else []),
        *([Section("verdict", "Verdict", [*judged, *tests])] if study.claims else []),
        *(_panel(panel, figures) for panel in shown),
        Section(
            "settings",
            "Settings and commands",
            [Code(study.command), Words(f"{made} Beside this page:"), Facts(_FILES)],
        ),
    ]
    return page_of(Document(study.title, parts))


def _panel(panel: Panel, figures: Mapping[str, Sequence[str]]) -> Section:
    parts: list[Part] = []
    if panel.name in figures:
        drawn = [Figure(inline(one, f"{panel.name}-{i}")) for i, one in enumerate(figures[panel.name])]
        parts += [FigureRow(drawn), Words(panel.caption, "soft")]
    if panel.name in ("table", *_BESIDE):
        # With test scores where test rows were kept apart.
        tested = panel.name == "table" or any(point.cell.problem.split != "all" for point in panel.measured())
        parts.append(scores(panel.measured(), tested=tested, shown=_BESIDE.get(panel.name, ())))
    if panel.name == "table":
        parts.append(Words(panel.caption, "soft"))
    if panel.notes:
        parts.append(Folded(f"{len(panel.notes)} left out", [Words(note, "soft") for note in panel.notes]))
    return Section(panel.name, panel.title, parts)
