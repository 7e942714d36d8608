"""The page of one run: how it learnt, how the sites differ, what it cost, what the model says."""

from collections.abc import Mapping
from html import escape
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from sottovoce.disk import writable, write_whole
from sottovoce.experiments.folder import HOLDER_ONLY, Run
from sottovoce.models import Model
from sottovoce.report import run_figures
from sottovoce.report.html import TextTable, document, inline, picture, table

PAGE = "report.html"
_PRIVATE = (
    "Everything on this page but the guarantee, the coefficients and the settings was read off the rows, without "
    "noise. It is for whoever holds them. What may be handed on is the model file: the guarantee below covers it, and "
    "nothing else here."
)
_NOTHING = "–"


def write(run: Run, out: Path) -> None:
    """Write the page, whole."""
    with writable(out):
        write_whole(out, page(run).encode())


def page(run: Run) -> str:
    """The page as HTML."""
    summary, model = run.summary, run.model
    title = f"{summary['algorithm']} on {summary['dataset']}"
    body = [
        f"<h1>{escape(title)}</h1>",
        f'<p class="soft">{escape(_facts(summary))}</p>',
        f'<p class="banner">{escape(_PRIVATE)}</p>',
        '<nav class="soft"><a href="#guarantee">Guarantee</a> <a href="#learning">Learning</a> '
        '<a href="#sites">Sites</a> <a href="#coefficients">Coefficients</a> <a href="#settings">Settings</a></nav>',
        _scores(summary),
        _mark(summary),
        _guarantee(model),
        _section("learning", "Learning", run_figures.learning(run.history, summary["optimum_risk"]), _over(summary),
                 _mark(summary)),
        _section("spending", "Agreement and cost", run_figures.spending(run.history, model.privacy.promised),
                 f"The promised epsilon is for {_counted(model)}; the curve is what the broadcasts up to a round cost.",
                 _mark(summary)),
        _section("sites", "Sites", run_figures.by_site(run.sites), "The first run's models on each site's own rows.",
                 _mark(summary)),
        _details("All sites", _all_sites(run.sites)),
        _coefficients(model),
        _settings(run),
    ]  # fmt: skip
    return document(title, body)


def _facts(summary: Mapping[str, Any]) -> str:
    nodes, runs = summary["nodes"], summary["runs"]
    steps = f" of {summary['local_steps']} local steps" if summary["local_steps"] else ""
    return (
        f"{nodes} sites, {summary['graph']} graph, {summary['rounds']} rounds{steps}, "
        f"{runs} {'run' if runs == 1 else 'runs'}, loss {summary['loss']}."
    )


def _mark(summary: Mapping[str, Any]) -> str:
    """What goes with every figure that was computed from private rows."""
    found = summary.get(HOLDER_ONLY)
    return "" if found is None else f'<p class="banner">{escape(found["why"])}</p>'


def _counted(model: Model) -> str:
    runs = model.privacy.runs
    return "the whole run" if runs == 1 else f"all {runs} runs together"


def _over(summary: Mapping[str, Any]) -> str:
    return "One run." if summary["runs"] == 1 else f"Means of {summary['runs']} runs; bands are their range."


def _scores(summary: Mapping[str, Any]) -> str:
    test = summary["test"]
    headings = ["model", "mean loss", "accuracy %"]
    headings += ["test loss", "test accuracy %"] if test else []
    rows = []
    for output, words in run_figures.LINES.items():
        parts = [summary["risk"][output], summary["accuracy"][output]]
        parts += [test["risk"][output], test["accuracy"][output]] if test else []
        rows.append((words, *(_number(value, place) for place, value in enumerate(parts))))
    return table(TextTable(tuple(headings), rows, frozenset(range(1, len(headings)))))


def _number(value: float | None, place: int) -> str:
    return _NOTHING if value is None else f"{value:.4f}" if place % 2 == 0 else f"{100 * value:.2f}"


def _guarantee(model: Model) -> str:
    sentences = escape(model.privacy.prose())
    mark = "" if model.privacy.private else ' class="banner fails"'
    return f'<section id="guarantee"><h2>Guarantee</h2><p{mark}>{sentences}</p></section>'


def _coefficients(model: Model) -> str:
    outputs = range(model.weights.shape[1])
    parts = []
    for output in outputs:
        name = "coefficients" if output == 0 else f"coefficients-{output}"
        heading = "Coefficients" + ("" if len(outputs) == 1 or model.classes is None else f": {model.classes[output]}")
        words = "The largest by size. They are part of the released model: the guarantee covers them."
        parts.append(_section(name, heading, run_figures.coefficients(model, output), words))
    headings = ("feature", *(["weight"] if len(outputs) == 1 or model.classes is None else model.classes))
    rows = [(name, *(f"{w:+.4f}" for w in weights)) for name, weights in zip(model.names, model.weights, strict=True)]
    parts.append(_details("All coefficients", TextTable(headings, rows, frozenset(range(1, len(headings))))))
    return "\n".join(parts)


def _all_sites(sites: run_figures.Columns) -> TextTable:
    headings = ("site", "rows", "accuracy %, own", "accuracy %, consensus", "loss, own", "loss, consensus", "distance")
    rows = [
        (str(name), f"{count:,}", _percent(own), _percent(joint), f"{loss:.4f}", f"{joint_loss:.4f}", f"{far:.3g}")
        for name, count, own, joint, loss, joint_loss, far in zip(
            sites["site"], sites["rows"], sites["accuracy_last"], sites["accuracy_consensus"], sites["risk_last"],
            sites["risk_consensus"], sites["distance"], strict=True,
        )
    ]  # fmt: skip
    return TextTable(headings, rows, frozenset(range(1, len(headings))))


def _percent(share: float) -> str:
    return f"{100 * share:.2f}" if np.isfinite(share) else _NOTHING


def _section(name: str, heading: str, figure: Figure, words: str, mark: str = "") -> str:
    drawn = inline(picture(figure, "svg").decode(), name)
    return (
        f'<section id="{name}"><h2>{escape(heading)}</h2><figure>{drawn}'
        f"<figcaption>{escape(words)}</figcaption></figure>{mark}</section>"
    )


def _details(summary: str, content: TextTable) -> str:
    return f"<details><summary>{escape(summary)}</summary>{table(content)}</details>"


def _settings(run: Run) -> str:
    made = run.model.provenance
    facts = f"sottovoce {made.get('sottovoce')}, {made.get('created')}. Settings of sottovoce train --config:"
    return f'<h2 id="settings">Settings</h2><p class="soft">{escape(facts)}</p><pre>{escape(run.config)}</pre>'
