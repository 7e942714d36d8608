"""What `sottovoce plan` shows: planned settings, predicted losses, a plot of them, and the command that follows."""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sottovoce.cli.output import show
from sottovoce.document import Code, Table
from sottovoce.errors import InputError

if TYPE_CHECKING:
    from sottovoce.plan import Plan, PredictedInterval
    from sottovoce.privacy import Unit

_HEAD = ("epsilon", "together, local noise", "one site after that", "masked sums", "a median site alone")
_SHOWN = ("rounds", "local_steps", "rho", "diameter", "weights", "schedule", "batch_size")
_AHEAD = ("sensitivity", "moments")  # shown with a head start alone


def show_settings(made: "Plan") -> None:
    """Print the settings for local noise."""
    texts = [
        (name.replace("_", " "), "all rows" if value is None else _text(value)) for name, value in _chosen(made).items()
    ]
    heading = "Settings for local noise (ipadmm); masked sums, the default, need none:"
    show(*([heading] if made.way == "masked" else []), Table(("setting", "value"), texts))


def _chosen(made: "Plan") -> dict[str, Any]:
    names = (*_SHOWN, *_AHEAD) if made.settings["moments"] else _SHOWN
    return {name: made.settings[name] for name in names}


def options(wanted: Mapping[str, Any]) -> str:
    """Settings as options of `sottovoce train`; None is left out."""
    given = {name.replace("_", "-"): value for name, value in wanted.items() if value is not None}
    return " ".join(f"--{name} {_text(value)}" for name, value in given.items())


def people(unit: "Unit") -> dict[str, int | None]:
    """The number of sites that a person has rows at, as a setting; None for one, which is the default."""
    return {"sites_per_person": unit.sites if unit.sites > 1 else None}


def train_options(made: "Plan", way: str) -> str:
    """The options of `sottovoce train` for this task, by masked sums or as planned for local noise."""
    from sottovoce.algorithms.default import MASKED, OWN

    task = made.task
    own = {"graph": task.graph.name, "max_grad_norm": task.max_grad_norm, **_chosen(made)}
    wanted = {
        "algorithm": MASKED if way == "masked" else OWN, "nodes": task.n, "epsilon": task.epsilon, "delta": task.delta,
        "loss": task.loss.name, "lam": task.lam, **people(task.unit),
        **({} if way == "masked" else own),
    }  # fmt: skip
    return options(wanted)


def _text(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, float) and math.isfinite(value) else str(value)


def show_forecast(made: "Plan", plot: Path | None) -> None:
    """Print the predicted losses, what joining means, and the commands; `plot` is the file of a plot, or None."""
    rows = [
        (
            _text(line.epsilon),
            *("-" if i is None else _interval(i) for i in (line.joined, line.single, line.masked, line.alone)),
        )
        for line in made.trade_off
    ]  # fmt: skip
    here = frozenset(place for place, line in enumerate(made.trade_off) if line.epsilon == made.task.epsilon)
    show("Predicted mean loss, with 90 % intervals:", Table(_HEAD, rows, strong=here))
    if len(made.gains) > 1:
        found = []
        for gain in made.gains:
            size, sites, weight = gain.kind
            gained = f"{'gains' if gain.helps else 'loses'} {abs(gain.alone - gain.together):.3f}"
            losses = f"{gain.together:.3f}", f"{gain.alone:.3f}"
            found.append((str(size), str(sites), f"{100 * weight:.2g}", *losses, gained))
        by_size = Table(("rows", "sites", "weight %", "together", "alone", "joining"), found)
        show(f"What joining means for a site, by its rows, at epsilon {_text(made.task.epsilon)}:", by_size)
    show(f"No model, always the same answer: {_interval(made.predicted.nothing)}.", made.reason, made.ways, *made.notes)
    if plot is not None:
        show(f"Drawn into {plot}.")
    for way in ("masked", "local") if made.way == "masked" else ("local",):  # the default first
        show(Code(f"sottovoce train {train_options(made, way)}"))


def _interval(interval: "PredictedInterval") -> str:
    return f"{interval.mean:.3f} ({interval.low:.2f} to {interval.high:.2f})"


def draw(made: "Plan", path: Path) -> None:
    """Draw risk against epsilon, together and alone, into a file; refuses endings but .svg, .png and .pdf."""
    from matplotlib.figure import Figure

    from sottovoce.drawing.style import CYCLE, style

    lines = made.trade_off
    epsilons = [line.epsilon for line in lines]
    with style():
        figure = Figure(figsize=(5.4, 3.4))
        axes = figure.add_subplot()
        sums = [x.masked for x in lines if x.masked is not None]
        pairs = (
            ("together, local noise", [x.joined for x in lines], "-", "o"),
            ("a median site alone", [x.alone for x in lines], "--", "s"),
            *([("together, masked sums", sums, "-.", "^")] if len(sums) == len(lines) else []),
        )
        for colour, (label, values, dash, marker) in zip(CYCLE, pairs, strict=False):
            axes.plot(epsilons, [v.mean for v in values], dash, marker=marker, color=colour, label=label)
            axes.fill_between(
                epsilons, [v.low for v in values], [v.high for v in values], color=colour, alpha=0.12, linewidth=0
            )
        axes.axhline(made.predicted.nothing.mean, color="0.5", linewidth=0.8, linestyle=":", label="no model")
        axes.set_xscale("log")
        axes.set_xticks(epsilons, [f"{e:g}" for e in epsilons])
        axes.minorticks_off()
        axes.set_xlabel("epsilon")
        axes.set_ylabel("predicted mean loss (band: 90 %)")
        axes.set_title(f"{made.task.n} sites, {made.task.graph.name} graph, {made.task.d} features")
        axes.legend()
        try:
            figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None)
        except ValueError as error:
            raise InputError(f"Expected a file name ending in .svg, .png or .pdf, got plot={str(path)!r}.") from error
