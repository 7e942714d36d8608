"""The page of one run: how it learnt, how the sites differ, what it cost, what the model says."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from sottovoce.disk import writable, write_whole
from sottovoce.experiments.folder import HOLDER_ONLY, Run
from sottovoce.models import Model
from sottovoce.report import run_figures
from sottovoce.report.html import TextTable, inline, picture, render_page

PAGE = "report.html"
_NOTHING = "–"


def write_run_page(run: Run, out: Path) -> None:
    """Write the page to `out`, whole or not at all."""
    with writable(out):
        write_whole(out, run_page(run).encode())


def run_page(run: Run) -> str:
    """The page of one run as HTML, with everything in it: figures, tables, guarantee and settings."""
    summary, model = run.summary, run.model
    classes = model.classes if model.weights.shape[1] > 1 else None
    outputs = [("coefficients" if i == 0 else f"coefficients-{i}") for i in range(model.weights.shape[1])]
    named = summary.get("optimum", "pooled, no privacy")
    figures = {
        "learning": run_figures.learning(run.history, summary["optimum_risk"], named),
        "spending": run_figures.spending(run.history, model.privacy.promised),
        "sites": run_figures.by_site(run.sites),
        **{name: run_figures.coefficients(model, i) for i, name in enumerate(outputs)},
    }
    return render_page(
        "run.html.j2",
        title=f"{summary['algorithm']} on {summary['dataset']}",
        facts=summary,
        model=model,
        config=run.config,
        # Goes with every figure that was computed from private rows.
        holder_only=(summary.get(HOLDER_ONLY) or {}).get("why"),
        drawn={name: inline(picture(figure, "svg").decode(), name) for name, figure in figures.items()},
        outputs={n: f"Coefficients: {classes[i]}" if classes else "Coefficients" for i, n in enumerate(outputs)},
        scores=_scores(summary),
        sites=_all_sites(run.sites),
        weights=_weights(model, classes or ("weight",)),
    )


def _scores(summary: Mapping[str, Any]) -> TextTable:
    """Mean loss and accuracy of each of the three models that a run ends with."""
    test = summary["test"]
    headings = ["model", "mean loss", "accuracy %"]
    headings += ["test loss", "test accuracy %"] if test else []
    rows = []
    for output, words in run_figures.LINES.items():
        parts = [summary["risk"][output], summary["accuracy"][output]]
        parts += [test["risk"][output], test["accuracy"][output]] if test else []
        rows.append((words, *(_number(value, place) for place, value in enumerate(parts))))
    return TextTable(tuple(headings), rows, frozenset(range(1, len(headings))))


def _number(value: float | None, place: int) -> str:
    """A loss with four digits or, at every second place, an accuracy in per cent."""
    return _NOTHING if value is None else f"{value:.4f}" if place % 2 == 0 else f"{100 * value:.2f}"


def _weights(model: Model, outputs: tuple[str, ...]) -> TextTable:
    """Every weight of the model, by the name of its feature."""
    rows = [(name, *(f"{w:+.4f}" for w in weights)) for name, weights in zip(model.names, model.weights, strict=True)]
    return TextTable(("feature", *outputs), rows, frozenset(range(1, 1 + len(outputs))))


def _all_sites(sites: run_figures.Columns) -> TextTable:
    """Every site's own scores, for those whom the figure leaves out."""
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
    """A share in per cent, or a dash."""
    return f"{100 * share:.2f}" if np.isfinite(share) else _NOTHING
