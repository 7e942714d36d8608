"""A run in words and tables, from its summary and its model: what it was, and how good its models are."""

from collections.abc import Mapping, Sequence
from typing import Any

from sottovoce.algorithms import registry
from sottovoce.document import NOTHING, Facts, Part, Table, Words
from sottovoce.files.models import Model
from sottovoce.numerals import counted
from sottovoce.problem.figures import constant_words
from sottovoce.studies.scores import SITE

# The lines of a table of scores, and what each is the score of.
NO_MODEL = "no model"
OUTPUTS = {
    "average": "each site's mean over its steps",
    "last": "each site's last broadcast",
    SITE: "the model of a real site: the mean of its own and its neighbours' last broadcasts",
    "consensus": "mean of all last broadcasts",
}
_KEPT, _SHARED = "consensus", "the model"  # of the file; where all sites have the same one
_FIGURE_SPACE, _NO_BREAK = "\u2007", "\xa0"  # as wide as a digit; of a cell that stays on one line


def _shared(summary: Mapping[str, Any]) -> bool:
    """True if all sites end with the same model, so that there is no other output to show."""
    return registry.entry(summary["algorithm"]).kind.way.masked


def title(summary: Mapping[str, Any]) -> str:
    """Which algorithm on which data."""
    return f"{summary['algorithm']} on {summary['dataset']}"


def setting(summary: Mapping[str, Any]) -> str:
    """How many sites, in which graph, for how long."""
    local = summary["local_steps"]
    steps = "" if local is None else f" of {counted(local, 'local step')}"
    sums = "noisy sum" if _shared(summary) else "round"
    rounds, runs = counted(summary["rounds"] or 0, sums), counted(summary["runs"] or 1, "run")
    return f"{counted(summary['nodes'], 'site')}, {summary['graph']} graph, {rounds}{steps}, {runs}"


def scores(summary: Mapping[str, Any], model: Model, kept: str, beside: Mapping[str, Any] | None = None) -> list[Part]:
    """Tables of scores and what their lines mean, with a warning if the model is worse than none.

    Args:
        summary: as the folder of the run has it.
        model: the one of the file.
        kept: which file that is, in words.
        beside: the summary of another algorithm on the same problem.
    """
    tables: list[Part] = []
    for words, where in {"On the rows learnt from": None, "On the test rows": "test"}.items():
        found = summary if where is None else summary["test"]
        if found is not None:
            heading = [Words(words)] if summary["test"] is not None else []
            other = beside if beside is None or where is None else beside[where]
            tables += [*heading, _table(summary, found, beside, other)]
    first = ", of the first run" if (summary["runs"] or 1) > 1 else ""
    return [*tables, Words(f"* {kept}{first}."), *_remarks(summary, model)]


def _table(
    summary: Mapping[str, Any], found: Mapping[str, Any], beside: Mapping[str, Any] | None,
    theirs: Mapping[str, Any] | None,
) -> Table:  # fmt: skip
    """One line per output, the one of the file marked, one of the algorithm beside it, then the yardsticks."""
    lines = _lines(summary, found)
    columns = _columns(summary, found, lines)
    rows = {name: (name, *(column[place] for column in columns.values())) for place, name in enumerate(lines)}
    rows[_KEPT] = (f"{_SHARED if _shared(summary) else _KEPT} *", *rows[_KEPT][1:])
    shown = list(rows.values())
    if beside is not None:
        other = {} if theirs is None else _columns(beside, theirs, [_KEPT])
        cells = [other[heading][0] if heading in other else NOTHING for heading in columns]
        shown.insert(lines.index(_KEPT) + 1, (registry.entry(beside["algorithm"]).label.lower(), *cells))
    return Table(("model", *columns), shown, strong=frozenset({lines.index(_KEPT)}))


def _lines(summary: Mapping[str, Any], found: Mapping[str, Any]) -> list[str]:
    """Names of the lines that have numbers to show."""
    here = {
        **{name: name in found["risk"] and (name == _KEPT or not _shared(summary)) for name in OUTPUTS},
        "optimum": found is summary and summary["optimum_risk"] is not None,
        "majority": found["majority_accuracy"] is not None and found["rare_class"] is None,
        NO_MODEL: found["metrics"]["no_model"] is not None,
    }
    return [name for name, known in here.items() if known]


def _columns(summary: Mapping[str, Any], found: Mapping[str, Any], lines: Sequence[str]) -> dict[str, list[str]]:
    """Columns of the table by heading: the loss, then accuracy and AUC, or errors."""
    own, none = (found["metrics"][name] or {} for name in ("consensus", "no_model"))
    optimum = summary["optimum_risk"] if found is summary else None

    def alone(figure: str) -> dict[str, float | None]:
        return {_KEPT: own.get(figure), NO_MODEL: none.get(figure)}

    risk = {**found["risk"], "optimum": optimum, NO_MODEL: none.get("risk")}
    columns = {f"{summary['loss']} loss": _column(lines, risk, 4, found["risk_std"])}
    if found["majority_accuracy"] is None and own.get("mean_absolute_error") is None:
        return columns
    if found["majority_accuracy"] is None:
        columns["mean absolute error"] = _column(lines, alone("mean_absolute_error"), 4)
        columns["R²"] = _column(lines, alone("r2"), 3)
        return columns
    if found["rare_class"] is None:
        right = {**found["accuracy"], "majority": found["majority_accuracy"], NO_MODEL: none.get("accuracy")}
        columns["accuracy %"] = _column(lines, right, 2, found["accuracy_std"], 100)
    else:
        columns["average precision %"] = _column(lines, alone("average_precision"), 2, factor=100)
    if own.get("auc") is not None:
        columns["AUC"] = _column(lines, alone("auc"), 3)
    return columns


def _column(
    lines: Sequence[str], means: Mapping[str, float | None], digits: int,
    spread: Mapping[str, float | None] | None = None, factor: float = 1.0,
) -> list[str]:  # fmt: skip
    """Mean and standard deviation over runs for each line. The points line up."""
    known = {name: f"{factor * mean:.{digits}f}" for name in lines if (mean := means.get(name)) is not None}
    width = max(map(len, known.values()), default=0)
    cells = []
    for name in lines:
        std = None if spread is None else spread.get(name)
        around = "" if std is None or name not in known else f"{_NO_BREAK}±{_NO_BREAK}{factor * std:.{digits}f}"
        cells.append(known[name].rjust(width, _FIGURE_SPACE) + around if name in known else NOTHING)
    return cells


def _remarks(summary: Mapping[str, Any], model: Model) -> list[Part]:
    """What the lines of the tables mean."""
    meant = {
        **OUTPUTS,
        "optimum": summary["optimum"],
        "majority": "always the more frequent label",
        NO_MODEL: constant_words(model.loss),
    }
    weighted = model.schema is not None and model.schema.weight is not None
    over = "rows by their weights" if weighted else "rows"
    lines = [name for name in _lines(summary, summary) if name != _KEPT or not _shared(summary)]
    parts: list[Part] = [
        Facts([(name, f"{meant[name]}.") for name in lines]),
        Words(f"The {summary['loss']} loss is a mean over {over}, in {summary['loss_unit']}."),
    ]
    if summary["rare_class"] is not None:
        rare = repr(summary["rare_class"])
        parts.append(Words(f"{rare} is rare: accuracy would say little, so average precision is shown."))
    judged = summary["test"] or summary
    if judged["worse_than_no_model"]:
        own, none = (judged["metrics"][name]["risk"] for name in ("consensus", "no_model"))
        warning = (
            f"The model is WORSE THAN NO MODEL: {constant_words(model.loss)} has a loss of {none:.4f}, it has "
            f"{own:.4f}. Do not use it: it needs more rows or a larger epsilon."
        )
        parts.append(Words(warning, "bad"))
    return parts
