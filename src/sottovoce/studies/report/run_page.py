"""The page of one run: learning curves, sites, privacy cost and coefficients."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure as Drawing

from sottovoce.document import NOTHING, Code, Document, Figure, FigureRow, Folded, Part, Section, Table, Words
from sottovoce.files.models import Model
from sottovoce.files.models.coefficients import NO_ERRORS
from sottovoce.files.models.coefficients import described as bare_coefficients
from sottovoce.files.models.inference import Inference
from sottovoce.privacy import PrivacyStatement
from sottovoce.privacy.words import guarantee
from sottovoce.settings.disk import writable, write_whole
from sottovoce.studies.folder import HOLDER_ONLY, RunFolder
from sottovoce.studies.report.rendering import page_of
from sottovoce.studies.report.run_figures import (
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
from sottovoce.studies.report.run_words import scores, setting, title
from sottovoce.studies.report.svg import inline, picture
from sottovoce.tally import PrivateEvaluation
from sottovoce.tally.words import described

PAGE = "report.html"


def write_run_page(run: RunFolder, out: Path) -> None:
    """Write the page to `out`, whole or not at all."""
    with writable(out):
        write_whole(out, run_page(run).encode())


def run_page(run: RunFolder) -> str:
    """The page of one run as HTML, with everything in it: figures, tables, guarantee and settings."""
    summary, model, provenance = run.summary, run.model, run.model.provenance
    # Goes with every figure that was computed from private rows.
    why = (summary.get(HOLDER_ONLY) or {}).get("why")
    marked = [] if why is None else [Words(why, "banner")]
    also, file = "", ""
    if run.evaluation is not None:
        also, file = ", the private evaluation", "; and evaluation.json, which has its guarantee in it"
    origin = f"sottovoce {provenance.get('sottovoce')}, {provenance.get('created')}. Settings of"
    parts: list[Part] = [
        Words(f"{setting(summary)}, loss {summary['loss']}.", "soft"),
        Words(
            f"Everything on this page except the guarantee, the coefficients{also} and the settings was computed from "
            "the rows without noise: keep it to yourself. You may share the model file: the guarantee below covers it, "
            f"and nothing else here{file}.",
            "banner",
        ),
        Section("scores", "Scores", [*scores(summary, model, "the model in the file"), *marked]),
        *_guarantee(model.privacy),
        *_over_the_rounds(run, marked),
        *([] if run.sites is None else [_sites(run.sites, marked)]),
        *([] if run.evaluation is None else [_evaluation(run.evaluation, model.privacy)]),
        # With inference a coefficient is shown with its interval, and what is not identified has no numbers. Without,
        # all are shown, with a note that there are no standard errors.
        *(_bare(model) if model.inference is None else [_inference(model.inference)]),
        Section("settings", "Settings", [Words(f"{origin} sottovoce train --config:", "soft"), Code(run.config)]),
    ]
    return page_of(Document(title(summary), parts))


def _figure(name: str, drawing: Drawing, caption: str) -> Figure:
    return Figure(inline(picture(drawing, "svg").decode(), name), caption)


def _guarantee(privacy: PrivacyStatement) -> list[Part]:
    words, *table = guarantee(privacy)
    found: list[Part] = [Section("guarantee", "Guarantee", [words])]
    if table:
        caption = (
            "Epsilon against whoever carries the messages together with this many colluding sites. Computed from "
            "public numbers."
        )
        drawn = _figure("colluding", colluding(privacy.observers), caption)
        found.append(Section("colluding", "If more sites collude", [drawn, *table]))
    return found


def _over_the_rounds(run: RunFolder, marked: Sequence[Words]) -> list[Part]:
    summary, privacy = run.summary, run.model.privacy
    named = summary.get("optimum", "pooled, no privacy")
    means = "One run." if summary["runs"] == 1 else f"Means of {summary['runs']} runs; bands are their range."
    whole = "the whole run" if privacy.runs == 1 else f"all {privacy.runs} runs together"
    costs = f"The promised epsilon is for {whole}; the curve is the cost of the broadcasts up to each round."
    learnt = _figure("learning", learning(run.history, summary["optimum_risk"], named), means)
    spent = _figure("spending", spending(run.history, privacy.promised), costs)
    return [
        Section("learning", "Learning", [learnt, *marked]),
        Section("spending", "Agreement and cost", [spent, *marked]),
    ]


def _sites(sites: Columns, marked: Sequence[Words]) -> Section:
    drawn = _figure("sites", by_site(sites), "Models of the first run, scored on each site's own rows.")
    # In the table are also those that the figure leaves out.
    headings = ("site", "rows", "accuracy %, own", "accuracy %, consensus", "loss, own", "loss, consensus", "distance")
    rows = [
        (str(name), f"{count:,}", _percent(own), _percent(joint), f"{loss:.4f}", f"{joint_loss:.4f}", f"{far:.3g}")
        for name, count, own, joint, loss, joint_loss, far in zip(
            sites["site"], sites["rows"], sites["accuracy_last"], sites["accuracy_consensus"], sites["risk_last"],
            sites["risk_consensus"], sites["distance"], strict=True,
        )
    ]  # fmt: skip
    every = Table(headings, rows, frozenset(range(1, len(headings))))
    return Section("sites", "Sites", [drawn, *marked, Folded("All sites", [every])])


def _evaluation(found: PrivateEvaluation, of_model: PrivacyStatement) -> Section:
    curves = {
        "roc": (found.answer.roc, roc, "ROC, with 95 % intervals at every threshold."),
        "calibration": (found.answer.calibration, calibration, "Calibration, with 95 % intervals."),
    }
    drawn = [_figure(name, draw(found), caption) for name, (points, draw, caption) in curves.items() if points]
    # One that was made with the model has the guarantee above, and the notes that are there.
    together = found.privacy == of_model
    parts = [*described(found, with_model=() if together else None), FigureRow(drawn)]
    own = [] if together else [Folded("Its guarantee in full", guarantee(found.privacy))]
    return Section("evaluation", "Private evaluation", [*parts, *own])


def _bare(model: Model) -> list[Part]:
    """A section for each output: the largest coefficients as bars, and all of them in a table."""
    classes = model.classes if model.weights.shape[1] > 1 else None
    caption = (
        "The largest by size, in the units of the columns. They are part of the released model: the guarantee covers "
        f"them. {NO_ERRORS}"
    )
    found: list[Part] = []
    for i in range(model.weights.shape[1]):
        name = f"coefficients-{i}" if i else "coefficients"
        drawn = _figure(name, largest_coefficients(model, i), caption)
        every = Folded("All coefficients", bare_coefficients(model, i))
        found.append(Section(name, f"Coefficients: {classes[i]}" if classes else "Coefficients", [drawn, every]))
    return found


def _inference(inference: Inference) -> Section:
    caption = (
        "Estimates with 95 % confidence intervals, which cover sampling error and privacy noise. They are computed "
        "from what was released: the guarantee covers them."
    )
    drawn = _figure("coefficients", forest(inference), caption)
    facts, table, *remarks = inference.described()
    every = Folded("All standard errors", [table])
    return Section("coefficients", "Coefficients with intervals", [drawn, facts, every, *remarks])


def _percent(share: float) -> str:
    """A share in per cent, or a dash."""
    return f"{100 * share:.2f}" if np.isfinite(share) else NOTHING
