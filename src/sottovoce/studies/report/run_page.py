"""The page of one run: learning curves, sites, privacy cost and coefficients."""

from pathlib import Path

import numpy as np
from matplotlib.figure import Figure as Drawing

from sottovoce.document import NOTHING, Code, Document, Figure, FigureRow, Folded, Part, Section, Table, Words
from sottovoce.files.models.coefficients import NO_ERRORS
from sottovoce.files.models.inference import Inference
from sottovoce.privacy import PrivacyStatement
from sottovoce.privacy.words import guarantee
from sottovoce.settings.disk import writable, write_whole
from sottovoce.studies.folder import HOLDER_ONLY, RunFolder
from sottovoce.studies.report.rendering import page_of
from sottovoce.studies.report.run_figures import (
    Columns,
    by_site,
    colluding,
    disagreement,
    evaluated,
    finite,
    forest,
    learning,
    spending,
)
from sottovoce.studies.report.run_words import scores, setting, title
from sottovoce.studies.report.svg import inline, picture
from sottovoce.tally import PrivateEvaluation
from sottovoce.tally.evaluation import EvaluationCurve
from sottovoce.tally.words import described

PAGE = "report.html"
_OWN = ("accuracy %, own", "loss, own")
_ROUNDING = 1e-9  # of the size of a model


def write_run_page(run: RunFolder, out: Path) -> None:
    """Write the page to `out`, whole or not at all."""
    with writable(out):
        write_whole(out, run_page(run).encode())


def run_page(run: RunFolder) -> str:
    """The page of one run as HTML, with everything in it: figures, tables, guarantee and settings."""
    summary, model, provenance = run.summary, run.model, run.model.provenance
    same = _same(run)
    covered, files = ["the guarantee"], "the model file, which the guarantee covers"
    if run.evaluation is not None:
        covered.append("the private evaluation")
        files += ", and evaluation.json, which has its guarantee in it"
    if model.inference is not None:
        covered.append("the coefficients")
    origin = f"sottovoce {provenance.get('sottovoce')}, {provenance.get('created')}. Settings of"
    parts: list[Part] = [
        Words(f"{setting(summary)}, loss {summary['loss']}.", "soft"),
        # Once, and before any figure: who reads on, or copies, has seen it.
        _warning(", ".join(covered), files, public=HOLDER_ONLY in summary and summary[HOLDER_ONLY] is None),
        Section("scores", "Scores", scores(summary, model, "the model in the file")),
        *_guarantee(model.privacy),
        *_over_the_rounds(run, same),
        *([] if run.sites is None else [_sites(run.sites, same)]),
        *([] if run.evaluation is None else [_evaluation(run.evaluation, model.privacy)]),
        # With its interval a coefficient is shown; without, none is.
        _BARE if model.inference is None else _inference(model.inference),
        Section("settings", "Settings", [Words(f"{origin} sottovoce train --config:", "soft"), Code(run.config)]),
    ]
    return page_of(Document(title(summary), parts))


def _warning(covered: str, files: str, public: bool) -> Words:
    """Which parts of the page no guarantee covers, and what may be shared."""
    said = f"Everything on this page except {covered} and the settings was computed from the rows without noise."
    if public:
        return Words(f"{said} These rows are public; of private rows it would be for their holder only.", "soft")
    return Words(
        f"{said} It is for the holder of the rows only: keep it to yourself, since no guarantee covers it. You may "
        f"share {files}.",
        "banner",
    )


_BARE = Section("coefficients", "Coefficients", [Words(f"Not shown here. {NO_ERRORS} sottovoce show lists them.")])


def _same(run: RunFolder) -> bool:
    """True if the models of all sites are the same up to rounding, in every round: sums are opened to all alike."""
    distances = [*run.history["disagreement"], *([] if run.sites is None else run.sites["distance"])]
    return max(distances, default=0.0) <= _ROUNDING * max(1.0, float(np.linalg.norm(run.model.weights)))


def _figure(name: str, drawing: Drawing, caption: str) -> Figure:
    return Figure(inline(picture(drawing, "svg").decode(), name), caption)


def _guarantee(privacy: PrivacyStatement) -> list[Part]:
    said = guarantee(privacy)
    if len(privacy.observers) < 2 or not privacy.private:
        return [Section("guarantee", "Guarantee", said)]
    *whole, by_sites = said
    caption = (
        "Epsilon against whoever carries the messages together with this many colluding sites. Computed from public "
        "numbers."
    )
    drawn = FigureRow([_figure("colluding", colluding(privacy.observers), caption)])
    return [
        Section("guarantee", "Guarantee", whole),
        Section("colluding", "If more sites collude", [drawn, by_sites]),
    ]


def _over_the_rounds(run: RunFolder, same: bool) -> list[Part]:
    """Learning curves and the cost of the rounds; what would be a curve of zeros, or of nothing, is a sentence."""
    summary, history, privacy = run.summary, run.history, run.model.privacy
    means = "One run." if summary["runs"] == 1 else f"Means of {summary['runs']} runs; bands are their range."
    whole = "the whole run" if privacy.runs == 1 else f"all {privacy.runs} runs together"
    optimum = summary["optimum_risk"]
    known = {"risk": None if optimum is None else (optimum, summary.get("optimum", "pooled, no privacy"))}
    # Where all sites have the same model, its consensus is each site's last broadcast.
    outputs = ("average", "consensus") if same else ("last", "average", "consensus")
    learnt = [
        _figure(f"learning-{score}", learning(history, score, outputs, known.get(score)), means)
        for score in ("risk", "accuracy")
        if finite(history[f"{score}_last"])
    ]
    drawn, words = list[Figure](), list[Words]()
    if same:
        words.append(Words("All sites have the same model in every round."))
    else:
        drawn.append(_figure("disagreement", disagreement(history), means))
    if finite(history["epsilon"]):
        caption = f"The promised epsilon is for {whole}; the curve is the cost of the broadcasts up to each round."
        drawn.append(_figure("spent", spending(history, privacy.promised), caption))
    else:
        words.append(Words("No epsilon is drawn: there is no guarantee."))
    return [
        Section("learning", "Learning", [FigureRow(learnt)]),
        Section("spending", "Cost" if same else "Agreement and cost", [*words, FigureRow(drawn)]),
    ]


def _sites(sites: Columns, same: bool) -> Section:
    drawn = _figure("sites", by_site(sites, same), "Models of the first run, scored on each site's own rows.")
    # In the table are also those that the figure leaves out.
    columns = {
        "site": [str(name) for name in sites["site"]],
        "rows": [f"{count:,}" for count in sites["rows"]],
        "accuracy %, own": [_percent(share) for share in sites["accuracy_last"]],
        "accuracy %, consensus": [_percent(share) for share in sites["accuracy_consensus"]],
        "loss, own": [f"{loss:.4f}" for loss in sites["risk_last"]],
        "loss, consensus": [f"{loss:.4f}" for loss in sites["risk_consensus"]],
        "distance": [f"{far:.3g}" for far in sites["distance"]],
    }
    columns = {heading: cells for heading, cells in columns.items() if set(cells) != {NOTHING}}  # such as accuracy
    every = Table(tuple(columns), list(zip(*columns.values(), strict=True)), frozenset(range(1, len(columns))))
    if same:
        every = every.only(*(heading for heading in columns if heading not in ("distance", *_OWN)))
    return Section("sites", "Sites", [FigureRow([drawn]), Folded("All sites", [every])])


def _evaluation(found: PrivateEvaluation, of_model: PrivacyStatement) -> Section:
    captions: dict[EvaluationCurve, str] = {
        "roc": "ROC, with 95 % intervals at every threshold.",
        "calibration": "Calibration, with 95 % intervals.",
    }
    drawn = [_figure(name, evaluated(found, name), captions[name]) for name in found.curves]
    # One that was made with the model has the guarantee above, and the notes that are there.
    together = found.privacy == of_model
    parts = [*described(found, with_model=() if together else None), FigureRow(drawn)]
    own = [] if together else [Folded("Its guarantee in full", guarantee(found.privacy))]
    return Section("evaluation", "Private evaluation", [*parts, *own])


def _inference(inference: Inference) -> Section:
    caption = (
        "Estimates with 95 % confidence intervals, which cover sampling error and privacy noise. They are computed "
        "from what was released: the guarantee covers them."
    )
    drawn = _figure("coefficients", forest(inference), caption)
    facts, table, *remarks = inference.described()
    every = Folded("All standard errors", [table])
    return Section("coefficients", "Coefficients with intervals", [FigureRow([drawn]), facts, every, *remarks])


def _percent(share: float) -> str:
    """A share in per cent, or a dash."""
    return f"{100 * share:.2f}" if np.isfinite(share) else NOTHING
