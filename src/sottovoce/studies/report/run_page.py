"""The page of one run: learning curves, sites, privacy cost and coefficients."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from sottovoce.files.models import Model
from sottovoce.files.models.coefficients import NO_ERRORS, coefficients
from sottovoce.files.models.inference import RATIOS, Inference
from sottovoce.settings.disk import writable, write_whole
from sottovoce.studies.folder import HOLDER_ONLY, Run
from sottovoce.studies.report.rendering import TextTable, render_page
from sottovoce.studies.report.run_figures import (
    LINES,
    Columns,
    by_site,
    calibration,
    colluding,
    forest,
    largest_coefficients,
    learning,
    roc,
    spending,
)
from sottovoce.studies.report.svg import inline, picture
from sottovoce.tally.evaluation import PRIVATE
from sottovoce.tally.words import figure_lines

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
    # With inference a coefficient is shown with its interval, and what is not identified has no numbers; else all are
    # shown, and that nobody knows how sure they are.
    bare = range(model.weights.shape[1] if model.inference is None else 0)
    outputs = ["coefficients" if i == 0 else f"coefficients-{i}" for i in bare]
    named, observers = summary.get("optimum", "pooled, no privacy"), model.privacy.observers
    found = run.evaluation
    answer = None if found is None else found.answer
    curves = {} if answer is None else {"roc": (answer.roc, roc), "calibration": (answer.calibration, calibration)}
    figures = {
        "learning": learning(run.history, summary["optimum_risk"], named),
        "spending": spending(run.history, model.privacy.promised),
        **({} if run.sites is None else {"sites": by_site(run.sites)}),
        **({"colluding": colluding(observers)} if len(observers) > 1 else {}),
        **{name: draw(found) for name, (points, draw) in curves.items() if found is not None and points},
        **{name: largest_coefficients(model, i) for i, name in enumerate(outputs)},
        **({} if model.inference is None else {"coefficients": forest(model.inference)}),
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
        evaluation=run.evaluation,
        evaluated=None
        if run.evaluation is None
        else TextTable(("", "estimate", "95 % interval"), figure_lines(run.evaluation), frozenset((1, 2))),
        private_words=PRIVATE,
        sites=None if run.sites is None else _all_sites(run.sites),
        weights=_weights(model, classes) if model.inference is None else None,
        no_errors=NO_ERRORS,
        inferred=None if model.inference is None else _inferred(model.inference),
    )


# Figures of the consensus and of no model, in this order; those that a loss has none of are left out.
_FIGURES = {
    "average_precision": "average precision %", "auc": "AUC", "mean_absolute_error": "mean absolute error", "r2": "R²",
}  # fmt: skip


def _scores(summary: Mapping[str, Any]) -> TextTable:
    """Table of the scores of a run's last models, with the one of the file marked, and of no model."""
    parts = [("", summary), *([("test ", summary["test"])] if summary["test"] else [])]
    own = {where: (scores.get("metrics") or {}).get("consensus") or {} for where, scores in parts}
    shown = [name for name in _FIGURES if any(found.get(name) is not None for found in own.values())]
    headings = ["model"]
    for where, _ in parts:
        headings += [
            f"{where}{summary['loss']} loss",
            f"{where}accuracy %",
            *(where + _FIGURES[name] for name in shown),
        ]
    rows = []
    for output, words in _ENDS.items():
        if output == _NO_MODEL or output in summary["risk"]:
            rows.append((words, *(cell for _, scores in parts for cell in _cells(scores, output, shown))))
    return TextTable(tuple(headings), rows, frozenset(range(1, len(headings))))


_NO_MODEL = "no_model"
_ENDS = {
    **LINES,
    "site": "what a real site would get: mean of its own and its neighbours' last broadcasts",
    "consensus": "mean of all sites: the model in the file",
    _NO_MODEL: "no model: a constant answer",
}


def _cells(scores: Mapping[str, Any], output: str, shown: Sequence[str]) -> list[str]:
    """The figures of one model on some rows."""
    metrics = scores.get("metrics") or {}
    found = metrics.get(output) or {}
    risk, accuracy = (
        (found.get("risk"), found.get("accuracy"))
        if output == _NO_MODEL
        else (scores["risk"].get(output), scores["accuracy"].get(output))
    )
    share = {"average_precision": 100.0}
    figures = [(found.get(name), share.get(name, 1.0)) for name in shown]
    more = [_NOTHING if value is None else f"{factor * value:.4g}" for value, factor in figures]
    return [
        _NOTHING if risk is None else f"{risk:.4f}",
        _NOTHING if accuracy is None else f"{100 * accuracy:.2f}",
        *more,
    ]


def _weights(model: Model, classes: tuple[str, ...] | None) -> TextTable:
    """Every coefficient of the model in the unit of its column, by the name of its feature; to two digits, since nobody
    knows how many of them hold.
    """
    found = coefficients(model)
    if classes is None:
        rows = [(one.feature, f"{one.effect[0]:+.2g}", f"{one.per_unit[0]:+.2g}") for one in found.features]
        rows.append(("intercept", _NOTHING, f"{found.intercept[0]:+.2g}"))
        return TextTable(("feature", "from lowest to highest", "per unit of the column"), rows, frozenset((1, 2)))
    lines = [(one.feature, *(f"{x:+.2g}" for x in one.per_unit)) for one in found.features]
    lines.append(("intercept", *(f"{x:+.2g}" for x in found.intercept)))
    headings = ("feature, per unit of the column", *classes)
    return TextTable(headings, lines, frozenset(range(1, len(headings))))


def _inferred(inference: Inference) -> TextTable:
    """Every coefficient that is identified, with its error and interval; the others by name."""
    ratios = RATIOS.get(inference.family, "ratio")
    headings = ("feature", "estimate", "standard error", "95 % interval", "z", "p", ratios)
    rows = []
    for line in (*inference.lines, *inference.figures):
        if not line.identified:
            rows.append((line.name, "not identified at this budget", *5 * (_NOTHING,)))
            continue
        ratio = _NOTHING if line.ratio is None else f"{line.ratio:.4g}"
        estimate, interval = f"{line.estimate:+.4g}", f"{line.low:.4g} to {line.high:.4g}"
        rows.append((line.name, estimate, f"{line.error:.3g}", interval, f"{line.z:.2f}", f"{line.p:.3f}", ratio))
    return TextTable(headings, rows, frozenset(range(1, len(headings))))


def _all_sites(sites: Columns) -> TextTable:
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
