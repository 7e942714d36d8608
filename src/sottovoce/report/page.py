"""The page of a study."""

from collections.abc import Mapping, Sequence
from html import escape

from sottovoce.experiments.panels import Panel
from sottovoce.experiments.reproduce import Study
from sottovoce.experiments.verdict import LEVEL, RULE
from sottovoce.report import tables
from sottovoce.report.html import document, inline, table


def page(study: Study, figures: Mapping[str, str]) -> str:
    """The page; `figures` are SVG texts by panel."""
    shown = [panel for panel in study.panels.values() if panel.name in figures or panel.name == "table"]
    links = " ".join(f'<a href="#{panel.name}">{escape(panel.title.split(". ")[0])}</a>' for panel in shown)
    body = [
        f"<h1>{escape(study.title)}</h1>",
        _smoke(study),
        f'<nav class="soft">{links} <a href="#settings">Settings</a></nav>',
        _verdict(study),
        *(_panel(panel, figures) for panel in shown),
        _settings(study),
    ]
    return document(study.title, body)


def _smoke(study: Study) -> str:
    if not study.quick:
        return ""
    text = "This is the quick form: few nodes, rows, runs and rounds. It shows that everything works, and nothing else."
    return f'<p class="banner">{text}</p>'


def _verdict(study: Study) -> str:
    if not study.claims:
        return ""
    parts = ['<h2 id="verdict">Verdict</h2>', table(tables.verdicts(study.claims))]
    parts.append(
        f'<p class="soft">Computed from the results by one rule, level {LEVEL}. {escape(RULE)} Differences are ours '
        "minus theirs, so that negative is better.</p>"
    )
    for claim in study.claims:
        if claim.comparisons:
            kinds = ", ".join(dict.fromkeys(c.test for c in claim.comparisons))
            parts.append(
                f"<details><summary>{escape(claim.text)}</summary>{table(tables.comparisons(claim))}"
                f'<p class="soft">{escape(kinds)}; Holm-corrected within this claim.</p></details>'
            )
    return "\n".join(parts)


def _panel(panel: Panel, figures: Mapping[str, str]) -> str:
    parts = [f'<section id="{panel.name}"><h2>{escape(panel.title)}</h2>']
    if panel.name in figures:
        parts.append(f"<figure>{inline(figures[panel.name], panel.name)}")
        parts.append(f"<figcaption>{escape(panel.caption)}</figcaption></figure>")
    if panel.name == "table":
        parts.append(table(tables.scores(panel.measured())))
        parts.append(f'<p class="soft">{escape(panel.caption)}</p>')
    elif panel.name in ("compare", "fig3b"):
        shown = ("facet", "epsilon", "picked") if panel.name == "compare" else ("epsilon", "picked")
        tested = any(point.cell.problem.split != "all" for point in panel.measured())
        parts.append(table(tables.scores(panel.measured(), tested=tested, shown=shown)))
    return "\n".join([*parts, _notes(panel.notes), "</section>"])


def _notes(notes: Sequence[str]) -> str:
    if not notes:
        return ""
    items = "".join(f"<li>{escape(note)}</li>" for note in notes)
    return f'<details class="soft"><summary>{len(notes)} left out</summary><ul>{items}</ul></details>'


def _settings(study: Study) -> str:
    from sottovoce import __version__

    facts = f"sottovoce {__version__}; {study.cells} cells; {study.seconds:.0f} s in this session, the rest was there."
    files = {
        "verdict.json": "the verdict as data",
        "results.parquet, results.csv": "a line per run",
        "curves.parquet, curves.csv": "a line per recorded round and run",
        "figures": "the figures as SVG and PNG",
        "cells": "the raw results, from which the same command goes on, or redraws",
    }
    items = "".join(f"<li><code>{name}</code>: {words}</li>" for name, words in files.items())
    return (
        f'<h2 id="settings">Settings and commands</h2><pre>{escape(study.command)}</pre>'
        f"<p>{escape(facts)} Beside this page:</p><ul>{items}</ul>"
    )
