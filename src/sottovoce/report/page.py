"""One self-contained web page: figures inline, its own style, light or dark, nothing fetched."""

import re
from collections.abc import Mapping, Sequence
from html import escape

from sottovoce.experiments.panels import Panel
from sottovoce.experiments.reproduce import Study
from sottovoce.experiments.verdict import LEVEL, RULE
from sottovoce.report import tables
from sottovoce.report.style import GRID, INK, PAPER
from sottovoce.report.tables import TextTable

_CSS = """
:root { color-scheme: light dark; --paper: #fefefe; --ink: #1b1f27; --soft: #5a6270; --grid: #d9dde3; --card: #f5f6f8;
  --good: #00634a; --part: #7a5200; --bad: #a33c00; }
@media (prefers-color-scheme: dark) { :root { --paper: #14171c; --ink: #e6e8ec; --soft: #a3abb8; --grid: #363c47;
  --card: #1d2128; --good: #4fd0a8; --part: #f0b94a; --bad: #ff9d6b; } }
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 2rem 1.25rem 4rem; max-width: 70rem; background: var(--paper); color: var(--ink);
  font: 16px/1.55 system-ui, -apple-system, "Segoe UI", Roboto, sans-serif; }
h1 { font-size: 1.7rem; line-height: 1.25; margin: 0 0 .4rem; } h2 { font-size: 1.2rem; margin: 2.6rem 0 .6rem; }
p, li { max-width: 46rem; } .soft, figcaption { color: var(--soft); font-size: .875rem; }
figure { margin: 0 0 1rem; } figure svg { width: 100%; height: auto; max-width: 54rem; display: block; }
figcaption { max-width: 46rem; margin-top: .4rem; }
.scroll { overflow-x: auto; margin: .6rem 0 1rem; }
table { border-collapse: collapse; font-size: .84rem; font-variant-numeric: tabular-nums; }
th, td { padding: .34rem .7rem .34rem 0; text-align: left; vertical-align: top; border-bottom: 1px solid var(--grid); }
th { font-weight: 600; color: var(--soft); vertical-align: bottom; } th.n, td.n { text-align: right; }
td.n { white-space: nowrap; } td:not(.n) { min-width: 6.4rem; }
.holds, .won { color: var(--good); font-weight: 600; } .only, .partly { color: var(--part); font-weight: 600; }
.fails, .lost { color: var(--bad); font-weight: 600; }
.banner { background: var(--card); border-left: 4px solid var(--part); padding: .7rem 1rem; margin: 1rem 0; }
details { margin: .5rem 0; } summary { cursor: pointer; } code, pre { font: .85rem ui-monospace, Consolas, monospace; }
pre { background: var(--card); padding: .8rem 1rem; overflow-x: auto; }
nav a { margin-right: .9rem; white-space: nowrap; } a { color: inherit; }
@media print { body { max-width: none; } details { display: block; } }
"""
_CLASSES = {
    "holds": "holds",
    "holds only if": "only",
    "does not hold": "fails",
    "not shown": "only",
    "won": "won",
    "lost": "lost",
}


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
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(study.title)}</title><style>{_CSS}</style></head>\n<body>\n"
        + "\n".join(body)
        + "\n</body></html>\n"
    )


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


def table(content: TextTable) -> str:
    """A table whose numbers line up."""

    def mark(place: int, text: str) -> str:
        names = ["n"] if place in content.numbers else []
        names += [name for word, name in _CLASSES.items() if text == word or text.startswith(f"{word}:")]
        return f' class="{" ".join(names)}"' if names else ""

    head = "".join(f"<th{mark(i, '')}>{escape(text)}</th>" for i, text in enumerate(content.headings))
    rows = "".join(
        "<tr>" + "".join(f"<td{mark(i, text)}>{escape(text)}</td>" for i, text in enumerate(row)) + "</tr>"
        for row in content.rows
    )
    return f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table></div>'


def inline(svg: str, name: str) -> str:
    """An SVG file as part of a page: ids made unique, addresses dropped, ink and paper taken from the page."""
    body = svg[svg.index("<svg") :]
    body = re.sub(r"<metadata>.*?</metadata>", "", body, flags=re.DOTALL)
    body = re.sub(r'\sxmlns(:\w+)?="[^"]*"', "", body).replace("xlink:href", "href")
    body = re.sub(r'\bid="', f'id="{name}-', body)
    body = re.sub(r'href="#', f'href="#{name}-', body).replace("url(#", f"url(#{name}-")
    for colour, variable in ((INK, "var(--ink)"), (GRID, "var(--grid)"), (PAPER, "var(--paper)")):
        body = body.replace(colour, variable)
    return body.replace("<svg", '<svg role="img"', 1)
