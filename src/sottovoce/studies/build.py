"""The problem and the algorithm that a configuration describes: rows are read, and what was left open is planned."""

import math
import secrets
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

from sottovoce.algorithms import IPADMM, Method, PrivateMethod
from sottovoce.algorithms.default import HAZARDS
from sottovoce.algorithms.hazards import ProportionalHazards
from sottovoce.algorithms.ipadmm import takes_moments
from sottovoce.algorithms.masked import features_of
from sottovoce.algorithms.squares import LeastSquares
from sottovoce.errors import expect
from sottovoce.files.datasets import BY_NAME
from sottovoce.noise.sampler import KEY_BYTES
from sottovoce.plan import FIXABLE, plan
from sottovoce.privacy.strength import default_delta
from sottovoce.problem.answers import Answers
from sottovoce.problem.problem import Problem
from sottovoce.simulation.mpi import joined
from sottovoce.studies.choices import NODES, PLANNED, graph_of, partition_of
from sottovoce.studies.config import TrainConfig

Tell: TypeAlias = Callable[[str], None]  # called with lines for people, while it works
_AHEAD = ("moments", "sensitivity")  # a head start, which the planner may take
_SILENCE = 2.0  # seconds


class Bound(NamedTuple):
    """The problem and the algorithm that a configuration describes."""

    problem: Problem
    algorithm: Method


def fitted(config: TrainConfig) -> TrainConfig:
    """The configuration with the algorithm that the schema's label takes, if only one does and none was named."""
    if config.algorithm is not None or config.schema is None:
        return config
    from sottovoce.files.schema import Schema, SurvivalLabel

    timed = isinstance(Schema.load(Path(config.schema)).label, SurvivalLabel)
    return replace(config, algorithm=HAZARDS) if timed else config


def bind(
    config: TrainConfig, tell: Tell | None = None, explain: Tell | None = None, *, problem: Problem | None = None,
    planned: bool = True,
) -> Bound:  # fmt: skip
    """Read the rows, unless a problem is given, and plan the algorithm. `tell` hears what takes its time, `explain`
    what was chosen and why. With planned=False, what is left open stays open, for another process to plan.
    """
    problem = _problem(config, tell) if problem is None else problem
    if explain is not None:
        sites, counts = problem.sites, problem.sites.counts
        each = f"{counts.min():,}" if counts.min() == counts.max() else f"{counts.min():,} to {counts.max():,}"
        explain(
            f"{counts.sum():,} rows at {sites.n:,} sites ({each} each), {sites.d:,} features of norm at most "
            f"{sites.data_norm:g}, {problem.graph.name} graph."
        )
    loss, algorithm = problem.answers.loss(config.loss, config.positive_weight), config.method
    follows: dict[str, Any] = {} if loss in (None, algorithm.loss) else {"loss": loss}
    if config.focus:
        follows["focus"] = features_of(config.focus, problem.features)
    if problem.private and config.delta is None and isinstance(algorithm, PrivateMethod):
        rows = int(problem.sites.counts.sum())
        follows["delta"] = default_delta(rows)
        if explain is not None:
            explain(f"delta = {follows['delta']:g}: at most 1 / (100 rows), for {rows:,} rows in all.")
    times = problem.answers.ends is not None
    if problem.private and times != isinstance(algorithm, ProportionalHazards):
        wanted = "algorithm='hazards' for a label of times to an event" if times else "a label of times to an event"
        expect(False, wanted, "Leave the algorithm out, or change the label" if times else "Take algorithm='masked'",
               algorithm=config.choice.name)  # fmt: skip
    if isinstance(algorithm, LeastSquares) and problem.private and problem.answers.classes is not None:
        classes = problem.answers.classes
        expect(
            classes is None, "a label that is a number for least squares", "Take algorithm='masked'", classes=classes
        )
    bound = _with_plan(config, algorithm, follows, problem, tell, explain) if planned else replace(algorithm, **follows)
    bound = bound.bound_to(*problem.shape)
    if explain is not None and bound.way.masked:
        explain(
            f"Masked sums: {bound.rounds} noisy sums, a number that follows from public numbers. No other setting is "
            "open."
        )
    if isinstance(bound, PrivateMethod) and len(bound.split) > 2 and tell is not None:
        parts = ", ".join(f"{100 * part:.3g} % for the {kind}" for kind, part in bound.split.items())
        tell(f"Parts of the budget: {parts}.")
    return Bound(problem, bound)


def _problem(config: TrainConfig, tell: Tell | None) -> Problem:
    """The rows and the network that a configuration describes."""
    where, nodes = graph_of(config), config.nodes or NODES
    deal: dict[str, Any] = {"partition": partition_of(config)}
    if config.data is None:
        held_out = config.split == "official"
        return Problem.dealt(BY_NAME[config.dataset](), nodes, where, seed=config.seed, held_out=held_out, **deal)
    from sottovoce.files.schema import Schema
    from sottovoce.files.schema.advice import on_row_norm
    from sottovoce.files.schema.inference import remarks, require_inferable

    assert config.schema is not None  # checked when the configuration was made
    schema = Schema.load(Path(config.schema))
    Answers.of(schema).loss(config.loss, config.positive_weight)  # refuses one that does not fit before rows are read
    if tell is not None and (advice := on_row_norm(schema)):
        tell(f"Advice: {advice}")
    if config.inference:
        require_inferable(schema)
        for remark in remarks(schema):
            if tell is not None:
                tell(remark)
    if config.engine == "mpi":
        # All processes deal private rows out alike, in an order that stays secret.
        deal["key"] = joined().bcast(secrets.token_bytes(KEY_BYTES), root=0)
    return Problem.from_file(
        config.data, schema, where, nodes=nodes, site_column=config.site_column,
        test=config.test_data, unreviewed=config.unreviewed == "accept",
        sites_per_person=config.sites_per_person, delimiter=config.delimiter, **deal,
    )  # fmt: skip


def _with_plan(
    config: TrainConfig, algorithm: Method, follows: Mapping[str, Any], problem: Problem, tell: Tell | None,
    explain: Tell | None,
) -> Method:  # fmt: skip
    """The algorithm with `follows`, and with what was not given chosen by the planner, from public numbers."""
    # Packaged data sets are for the paper's experiments, where all sites count the same.
    planned = [name for name in PLANNED if config.data is not None or name != "weights"]
    open_ = [name for name in planned if getattr(config, name) is None]
    if not isinstance(algorithm, IPADMM) or not open_ or math.isinf(algorithm.epsilon):
        return replace(algorithm, **follows) if follows else algorithm
    given = {name: getattr(algorithm, name) for name in FIXABLE if name not in open_}
    if config.batch_size is None:
        del given["batch_size"], given["sampling"]
    if config.data is not None and config.moments is None and takes_moments(problem.sites.factors, config.device):
        given = {
            name: value for name, value in given.items() if name not in _AHEAD or getattr(config, name) is not None
        }
    with _telling(tell, f"Planning {', '.join(open_)} from public numbers; this may take a minute ..."):
        found = plan(
            sizes=problem.sites.counts.tolist(), d=problem.sites.d, graph=problem.graph, epsilon=algorithm.epsilon,
            delta=follows.get("delta", algorithm.delta), loss=follows.get("loss", algorithm.loss),
            regulariser=algorithm.regulariser, lam=algorithm.lam, data_norm=problem.sites.data_norm,
            max_grad_norm=algorithm.max_grad_norm, fixed=given, unit=problem.unit,
            **({} if problem.schema is None else problem.schema.known),
        )  # fmt: skip
    made = found.algorithm()
    if explain is not None:
        explain("Planned: " + ", ".join(f"{name} = {getattr(made, name)}" for name in open_) + ".")
        for note in found.notes:
            explain(note)
    return made


@contextmanager
def _telling(tell: Tell | None, text: str) -> Iterator[None]:
    """Tell what is being done, if it takes more than a moment."""
    if tell is None:
        yield
        return
    timer = threading.Timer(_SILENCE, tell, (text,))
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
