"""One training experiment from configuration to figures."""

import math
import secrets
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from datetime import UTC, datetime
from pathlib import Path
from time import perf_counter
from typing import Any, NamedTuple, TypeAlias, cast

import numpy as np

from sottovoce.algorithms import IPADMM, Method, PrivateMethod
from sottovoce.algorithms.stepping import Stepping
from sottovoce.arrays import Array, Floats
from sottovoce.errors import InputError, PrivacyError
from sottovoce.files.datasets import BY_NAME
from sottovoce.files.models import Model
from sottovoce.files.models.apply import weights_digest
from sottovoce.files.models.coefficients import table_of
from sottovoce.files.models.inference import Inference
from sottovoce.noise.sampler import KEY_BYTES
from sottovoce.plan import FIXABLE, plan
from sottovoce.privacy import HOLDER_ONLY
from sottovoce.privacy.accounting.accountant import leaves
from sottovoce.privacy.strength import default_delta, large_delta, no_delta, no_epsilon, refusal
from sottovoce.problem import evaluation, figures
from sottovoce.problem.dataset import Dataset
from sottovoce.problem.figures import Figures
from sottovoce.problem.graphs import CompleteGraph
from sottovoce.problem.losses import Logistic, Reals, Softmax, WeightedLogistic
from sottovoce.problem.problem import Answers, Problem
from sottovoce.problem.sites import Sites
from sottovoce.settings import plain
from sottovoce.simulation.devices import DeviceName, Precision, by_name
from sottovoce.simulation.engine import Charge, Progress, Result, Solved, solve
from sottovoce.simulation.exchange import EngineName
from sottovoce.simulation.history import OUTPUTS, by_node, scored_nodes
from sottovoce.simulation.mpi import joined
from sottovoce.simulation.network import Network
from sottovoce.simulation.optimum import OutOfTimeError, name_of_optimum, pooled_optimum, same_optimum
from sottovoce.studies.choices import NODES, PLANNED, graph_of, partition_of
from sottovoce.studies.config import TrainConfig
from sottovoce.studies.interruption import deferred
from sottovoce.tally import PrivateEvaluation

Tell: TypeAlias = Callable[[str], None]  # called with lines for people, while it works
_SILENCE = 2.0  # seconds
YARDSTICK_SECONDS = 60.0  # that a comparison without privacy may take
FEW_ROWS = 10  # at a site: with fewer, its noise drowns what they say
SITE = "site"  # the output that a real site would end with, where it is not the consensus

# What a summary says of the settings, in this order.
_SETTINGS = ("algorithm", "form", "dataset", "split", "partition", "nodes", "graph", "rounds", "local_steps", "epsilon",
             "delta", "sigma", "calibration", "sensitivity", "schedule", "diameter", "rho", "lam", "weights", "loss",
             "positive_weight", "regulariser", "batch_size", "runs", "seed")  # fmt: skip
# What two algorithms side by side have in common.
_SHARED = ("dataset", "split", "partition", "partition_alpha", "partition_column", "nodes", "graph", "graph_degree",
           "graph_probability", "graph_rewire", "epsilon", "delta", "lam", "loss", "positive_weight", "runs", "seed",
           "record", "device", "dtype")  # fmt: skip
# What of a summary is no release: computed from rows without noise, or from how long that took.
_UNPROTECTED = ("risk", "risk_std", "accuracy", "accuracy_std", "majority_accuracy", "metrics", "rare_class",
                "worse_than_no_model", "optimum_risk", "test", "network", "seconds", "seconds_total")  # fmt: skip


@dataclass(frozen=True)
class Scores:
    """Scores of the models on some rows: by output, one entry per run. `majority` is the accuracy of always
    answering the more frequent label; None in regression.

    `figures` are those of the consensus, in the mean over runs, and `nothing` those of no model at all: None until they
    were computed. `rare` is the class that fewer than one row in ten is of.
    """

    risk: Mapping[str, Array]
    accuracy: Mapping[str, Array]
    majority: float | None
    figures: Figures | None = None
    nothing: Figures | None = None
    rare: str | None = None

    @property
    def worse_than_nothing(self) -> bool | None:
        """True if the consensus has a larger loss than a constant answer; None if that was not computed."""
        if self.figures is None or self.nothing is None:
            return None
        return not self.figures.risk < self.nothing.risk

    def summary(self) -> dict[str, Any]:
        """Means and standard deviations over runs, as plain data."""
        return {
            "risk": {name: float(values.mean()) for name, values in self.risk.items()},
            "risk_std": {name: spread(values) for name, values in self.risk.items()},
            "accuracy": {name: float(values.mean()) for name, values in self.accuracy.items()},
            "accuracy_std": {name: spread(values) for name, values in self.accuracy.items()},
            "majority_accuracy": self.majority,
            "metrics": {
                "consensus": self.figures,
                "no_model": self.nothing,
            },
            "rare_class": self.rare,
            "worse_than_no_model": self.worse_than_nothing,
        }


class Timed(NamedTuple):
    """A recorded round, when it would be over on a real network, and how good the consensus then is, over all runs."""

    round: int
    seconds: float
    risk: float
    accuracy: float


_TIMED = ("risk_consensus", "accuracy_consensus")


class Bound(NamedTuple):
    """The problem and the algorithm that a configuration describes."""

    problem: Problem
    algorithm: Method


def bind(
    config: TrainConfig, tell: Tell | None = None, explain: Tell | None = None, *, problem: Problem | None = None,
    planned: bool = True,
) -> Bound:  # fmt: skip
    """Read the rows, unless they are there, and plan the algorithm. `tell` hears what takes its time, `explain` what
    was chosen and why. Not `planned`: what is left open stays open, for somebody else to plan.
    """
    problem = _problem(config, tell) if problem is None else problem
    if explain is not None:
        explain(_shape(problem))
    loss, algorithm = problem.answers.loss(config.loss, config.positive_weight), config.method
    follows: dict[str, Any] = {} if loss in (None, algorithm.loss) else {"loss": loss}
    if problem.private and config.delta is None and isinstance(algorithm, PrivateMethod):
        rows = int(problem.sites.counts.sum())
        follows["delta"] = default_delta(rows)
        if explain is not None:
            explain(f"delta = {follows['delta']:g}: at most 1 / (100 rows), for {rows:,} rows in all.")
    algorithm = replace(algorithm, **follows) if follows else algorithm
    bound = _planned(config, algorithm, problem, tell, explain) if planned else algorithm
    bound = bound.bound_to(*problem.shape)
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
    from sottovoce.files.schema.inference import remarks, require_inferable

    assert config.schema is not None  # checked when the configuration was made
    schema = Schema.load(Path(config.schema))
    Answers.of(schema).loss(
        config.loss, config.positive_weight
    )  # one that does not fit is refused before a row is read
    if config.inference:
        require_inferable(schema)
        for remark in remarks(schema):
            if tell is not None:
                tell(remark)
    if config.engine == "mpi":
        # All processes deal private rows out alike, by an order that nobody else learns.
        deal["key"] = joined().bcast(secrets.token_bytes(KEY_BYTES), root=0)
    return Problem.from_file(
        config.data, schema, where, nodes=nodes, site_column=config.site_column,
        test=config.test_data, unreviewed=config.unreviewed == "accept",
        sites_per_person=config.sites_per_person, delimiter=config.delimiter, **deal,
    )  # fmt: skip


def _shape(problem: Problem) -> str:
    sites, counts = problem.sites, problem.sites.counts
    each = f"{counts.min():,}" if counts.min() == counts.max() else f"{counts.min():,} to {counts.max():,}"
    return (
        f"{counts.sum():,} rows at {sites.n:,} sites ({each} each), {sites.d:,} features of norm at most "
        f"{sites.data_norm:g}, {problem.graph.name} graph."
    )


def _planned(
    config: TrainConfig, algorithm: Method, problem: Problem, tell: Tell | None, explain: Tell | None
) -> Method:
    """The algorithm with what was not given chosen by the planner, from public numbers."""
    # Packaged data sets are for the paper's experiments, where all sites count the same.
    planned = [name for name in PLANNED if config.data is not None or name != "weights"]
    open_ = [name for name in planned if getattr(config, name) is None]
    if not isinstance(algorithm, IPADMM) or not open_ or math.isinf(algorithm.epsilon):
        return algorithm
    given = {name: getattr(algorithm, name) for name in FIXABLE if name not in open_}
    if config.batch_size is None:
        del given["batch_size"], given["sampling"]
    with _telling(tell, f"Planning {', '.join(open_)} from public numbers; this may take a minute ..."):
        found = plan(
            sizes=problem.sites.counts.tolist(), d=problem.sites.d, graph=problem.graph, epsilon=algorithm.epsilon,
            delta=algorithm.delta, loss=algorithm.loss, regulariser=algorithm.regulariser, lam=algorithm.lam,
            data_norm=problem.sites.data_norm, max_grad_norm=algorithm.max_grad_norm, fixed=given, unit=problem.unit,
        )  # fmt: skip
    made = found.algorithm()
    if explain is not None:
        explain("Planned: " + ", ".join(f"{name} = {getattr(made, name)}" for name in open_) + ".")
        for note in found.notes:
            explain(note)
    return made


@contextmanager
def _telling(tell: Tell | None, text: str) -> Iterator[None]:
    """Say what is being done, if it takes longer than people like to wait without a word."""
    if tell is None:
        yield
        return
    timer = threading.Timer(_SILENCE, tell, (text,))
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


@dataclass(frozen=True)
class Trained:
    """An experiment whose rounds are over. `config` has the defaults written out.

    What it was made for, the model and its guarantee, is there from the start. Scores beyond those of the history come
    afterwards, and may be missing: `unfinished` then says why.
    """

    config: TrainConfig
    solved: Solved
    learnt: Scores
    seconds: float  # in all; `result.seconds` is the simulation alone
    tested: Scores | None = None  # on the test rows, if there are any
    optimum: float | None = None  # mean loss of the pooled, non-private model on the rows learnt from
    unfinished: str | None = None  # that it was interrupted, and where
    notices: tuple[str, ...] = ()  # what somebody should know of the settings, before or after

    @property
    def problem(self) -> Problem:
        """The rows and the graph that were learnt from."""
        return self.solved.problem

    @property
    def result(self) -> Result:
        """Models, history and guarantee of the simulation."""
        return self.solved.result

    @property
    def diameter(self) -> float | None:
        """The diameter D of the steps; None for algorithms without one."""
        algorithm = self.solved.algorithm
        return algorithm.diameter_for(self.solved.site) if isinstance(algorithm, IPADMM | Stepping) else None

    @property
    def steps(self) -> int:
        """Private steps that one site takes in all that the statement counts."""
        return leaves(self.result.privacy.event).total()

    @property
    def holder_only(self) -> str | None:
        """The warning that goes with every figure computed from private rows; None if anyone may see the rows."""
        return HOLDER_ONLY if self.problem.private else None

    @property
    def timed(self) -> tuple[Timed, ...]:
        """When every recorded round would be over on the network that was stated; nothing if none was."""
        if self.config.network is None:
            return ()
        network, history = Network.read(self.config.network), self.result.history
        ends = network.ends(self.problem.graph, self.problem.counts, self.result.numbers)
        by_round = {
            int(k): (float(ends[int(k) - 1]), *(float(history[name][history["round"] == k].mean()) for name in _TIMED))
            for k in np.unique(history["round"])
        }
        return tuple(Timed(k, *line) for k, line in by_round.items())

    @property
    def loss_unit(self) -> str:
        """The unit of the loss, in words."""
        answers, loss = self.problem.answers, self.solved.algorithm.loss
        if answers.counts:
            return f"nats divided by {answers.scale:g}, the largest count"
        if isinstance(loss.labels, Reals):
            return "labels as they are" if answers.scale == 1 else f"labels divided by {answers.scale:g}"
        return "nats" if isinstance(loss, Logistic | Softmax | WeightedLogistic) else "margins"

    def model(self) -> Model:
        """The consensus of the first run, as something to keep and to hand on. Its guarantee counts what was seen: of
        private rows, all runs.
        """
        answers, loss = self.problem.answers, self.solved.algorithm.loss
        weights, offset = answers.model(self.solved.weights)
        return Model(
            weights=weights,
            offset=offset,
            loss=answers.loss_of(loss),
            names=self.problem.features,
            classes=answers.classes_of(loss),
            privacy=self.result.privacy,
            schema=self.problem.schema,
            provenance=self._provenance(),
            inference=self._inference(),
        )

    @property
    def evaluation(self) -> PrivateEvaluation | None:
        """Evaluation of the first run's model, from sums that the guarantee counts; None if that was not asked for,
        or not finished.
        """
        if not self.result.evaluated:
            return None
        model = self.model()
        return self.result.evaluated[0].kept(model.classes, self.result.privacy, model=weights_digest(model))

    def _inference(self) -> Inference | None:
        """The coefficients of the first run with standard errors; None if that was not asked for, or not finished."""
        algorithm, evidence = self.solved.algorithm, self.result.evidence
        if not evidence:
            return None
        assert isinstance(algorithm, PrivateMethod)  # no other leaves evidence
        return table_of(algorithm, evidence[0], self.problem.schema, self.problem.features, self.problem.answers)

    def _provenance(self) -> dict[str, Any]:
        from sottovoce import __version__

        settings = {f.name: getattr(self.config, f.name) for f in fields(self.config)}
        # Where files lie is nobody's business; and of a file, what is said of packaged data means nothing.
        files = ("data", "schema", "test_data", *(() if self.config.data is None else ("dataset", "split")))
        settings = {name: value for name, value in settings.items() if value is not None and name not in files}
        provenance: dict[str, Any] = plain(
            {
                "sottovoce": __version__,
                "created": datetime.now(UTC).isoformat(timespec="seconds"),
                "settings": settings,
                "rows": dict(zip(self.problem.names, self.problem.sites.counts.tolist(), strict=True)),
            }
        )
        return provenance

    def by_site(self) -> dict[str, list[Any]]:
        """Scores of the models on each site's own rows, in the first run. Computed without noise."""
        last = np.ascontiguousarray(self.result.last[:1].transpose(1, 2, 0), dtype=np.float64)
        together = np.broadcast_to(last.mean(axis=0), last.shape)
        own, joint = by_node(self.solved.site, last), by_node(self.solved.site, together)
        return {
            "site": list(self.problem.names),
            "rows": self.problem.sites.counts.tolist(),
            "accuracy_last": own.accuracy.tolist(),
            "accuracy_consensus": joint.accuracy.tolist(),
            "risk_last": own.risk.tolist(),
            "risk_consensus": joint.risk.tolist(),
            "distance": np.sqrt(((last - together) ** 2).sum(axis=1))[:, 0].tolist(),
        }

    def summary(self) -> dict[str, Any]:
        """All figures as strict JSON data: what is infinite or not a number is None.

        `epsilon` is what is promised: of private rows for all runs together. `holder_only` names what is not covered.
        """
        c, privacy, private = self.config, self.result.privacy, isinstance(self.solved.algorithm, PrivateMethod)
        found = {
            "dataset": self.problem.title,
            "nodes": self.problem.sites.n,
            "epsilon": privacy.promised if private else None,
            "delta": c.delta if private else None,
            "sigma": privacy.sigma,
            "calibration": privacy.calibration,
            "diameter": self.diameter,
        }
        data = {
            **{name: found[name] if name in found else getattr(c, name) for name in _SETTINGS},
            **self.learnt.summary(),
            "optimum_risk": self.optimum,
            "optimum": name_of_optimum(self.problem.sites, self.solved.algorithm),
            "test": None if self.tested is None else self.tested.summary(),
            "loss_unit": self.loss_unit,
            "rounds_made": self.result.rounds,
            "unfinished": self.unfinished,
            "notices": self.notices,
            "holder_only": self.holder_only and {"why": self.holder_only, "fields": list(_UNPROTECTED)},
            "privacy": privacy,
            "evaluation": self.evaluation,
            "network": self.timed or None,
            "seconds": self.result.seconds,
            "seconds_total": self.seconds,
        }
        cleaned: dict[str, Any] = plain(data)
        return cleaned


def train(
    config: TrainConfig,
    progress: Progress | None = None,
    charge: Charge | None = None,
    *,
    keep: Callable[[Trained], None] | None = None,
    yardstick: bool | None = None,
    force: bool = False,
    tell: Tell | None = None,
    explain: Tell | None = None,
    first: Trained | None = None,
    history: bool = True,
) -> Trained:
    """Run the experiment.

    Args:
        config: what to run.
        progress: called with (rounds done, rounds in all).
        charge: called with what it will cost, before a row is touched; it may refuse.
        keep: called when the rounds are over, before anything else is computed. From the charge until it is done an
            interruption waits; one during the rounds ends them, and what was released so far is kept.
        yardstick: whether to look for the optimum without privacy, too. None: only if anyone may see the rows.
        force: accept an epsilon or a delta that protects private rows hardly at all.
        tell: hears of notices, and of what takes its time.
        explain: hears of what was chosen, and why.
        first: what this is run `beside`: its rows are used again, and its yardstick where that would be the same.
        history: whether rounds before the last are scored as well, as many as are asked for.
    """
    started, spread = perf_counter(), config.engine == "mpi"
    speaks = not spread or bool(joined().rank == 0)
    problem, algorithm = bind(
        config, tell, explain, problem=None if first is None else first.problem, planned=speaks
    )  # fmt: skip
    if spread:
        algorithm = joined().bcast(algorithm, root=0)
    if config.network is not None:
        Network.read(config.network).expect_nodes(problem.graph.n)
    chosen, notices = config.resolved(algorithm), _notices(problem, algorithm, force)
    if tell is not None:
        for notice in notices:
            tell(notice)
    with deferred() as interruption:
        solved = solve(
            problem,
            algorithm,
            runs=chosen.runs or 1,
            seed=chosen.seed,
            record=config.record if history or config.network is not None else 1,
            progress=progress,
            device=cast("DeviceName", config.device),  # checked when the configuration was made
            dtype=cast("Precision", config.dtype),
            engine=cast("EngineName", config.engine),
            charge=charge,
            stop=interruption.asked,
        )
        if spread:
            solved = _gathered(solved, problem, config)
        recorded = solved.result.history
        learnt = _scores(solved, {name: recorded.final(name) for name in recorded}, problem.sites)
        trained = Trained(chosen, solved, learnt, perf_counter() - started, notices=notices)
        made, asked_for = solved.result.rounds, algorithm.rounds
        if made < asked_for:
            trained = replace(trained, unfinished=f"interrupted after round {made} of {asked_for}")
        if keep is not None:
            keep(trained)
    if not speaks:
        return trained
    if interruption.asked():
        return replace(trained, unfinished=trained.unfinished or "interrupted when the rounds were over")
    measured = _measured(trained, not problem.private if yardstick is None else yardstick, tell, first)
    return replace(measured, seconds=perf_counter() - started)


def _gathered(solved: Solved, problem: Problem, config: TrainConfig) -> Solved:
    """The result of all processes as of one: the whole problem, and the models of all nodes."""
    average, last = (
        np.concatenate(joined().allgather(models), axis=1) for models in (solved.result.average, solved.result.last)
    )
    where, precision = by_name(cast("DeviceName", config.device)), cast("Precision", config.dtype)
    site = where.oracle(solved.algorithm, problem.sites, problem.graph, precision)
    return Solved(problem, solved.algorithm, site, replace(solved.result, average=average, last=last))


def _notices(problem: Problem, algorithm: Method, force: bool) -> tuple[str, ...]:
    """Warnings about the settings, from public numbers. With private rows, a guarantee of nothing is refused."""
    if not problem.private:
        return ()
    counts = problem.sites.counts
    # An algorithm without noise is one with an infinite epsilon.
    asked = (algorithm.epsilon, algorithm.delta) if isinstance(algorithm, PrivateMethod) else (math.inf, 0.0)
    weak = [doubt for doubt in (no_delta(asked[1]), no_epsilon(asked[0])) if doubt is not None]
    if weak and not force:
        raise PrivacyError(f"{refusal(weak[0])} To have it all the same, say --force (force=True).")
    large = large_delta(asked[1], int(counts.sum()))
    found = [str(doubt) for doubt in (*weak, large) if doubt is not None]
    few = int(np.count_nonzero(counts < FEW_ROWS))
    if few and problem.sites.n > 1:
        found.append(
            f"{few:,} of {problem.sites.n:,} sites hold fewer than {FEW_ROWS} rows: the noise of such a site drowns "
            "what its rows say. Take fewer, larger sites (--nodes)."
        )
    return tuple(found)


def _measured(trained: Trained, yardstick: bool, tell: Tell | None, first: Trained | None) -> Trained:
    """The run with all scores. No budget was spent on these: they end when interrupted, or when they take too long."""
    problem, solved = trained.problem, trained.solved
    try:
        trained = replace(trained, learnt=_with_figures(trained, trained.learnt, problem.sites))
        if problem.test is not None:
            tested = _scores(solved, solved.tested(), problem.test)
            trained = replace(trained, tested=_with_figures(trained, tested, solved.test_site.sites))
        if yardstick:
            sites, algorithm = problem.sites, solved.algorithm
            known = None if first is None else first.optimum
            if first is None or known is None or not same_optimum(sites, first.solved.algorithm, algorithm):
                known = pooled_optimum(sites, algorithm, YARDSTICK_SECONDS)
            trained = replace(trained, optimum=known)
    except OutOfTimeError:
        given_up = (
            f"The optimum without privacy was given up after {YARDSTICK_SECONDS:g} s: the model does not need it."
        )
        if tell is not None:
            tell(given_up)
        trained = replace(trained, notices=(*trained.notices, given_up))
    except KeyboardInterrupt:
        trained = replace(trained, unfinished="interrupted while the models were scored")
    return trained


def _with_figures(trained: Trained, scores: Scores, rows: Sites) -> Scores:
    """The scores with AUC and the like added, and with those of the model that a real site would have."""
    solved, answers = trained.solved, trained.problem.answers
    loss, learnt, factors = solved.algorithm.loss, solved.problem.sites.labels, rows.factors
    found = [
        figures.figures(
            loss, factors.shifted(figures.predictions(rows.rows.block, len(rows.labels), loss, model)), rows.labels,
            answers.scale, factors.weights,
        )
        for model in solved.result.consensus.astype(np.float64)
    ]  # fmt: skip
    columns = {field.name: [getattr(one, field.name) for one in found] for field in fields(Figures)}
    means: dict[str, Any] = {n: None if None in values else float(np.mean(values)) for n, values in columns.items()}
    rare, classes = figures.rare_class(loss, learnt), answers.classes_of(loss)
    scores = replace(
        scores,
        figures=Figures(**means),
        nothing=figures.no_model(loss, learnt, rows.labels, answers.scale, solved.problem.sites.factors, factors),
        rare=None if rare is None or classes is None else classes[rare],
    )
    models = heard(solved)
    if models is None:
        return scores
    nodes, runs, d = models.shape
    flat = evaluation.evaluate(rows.rows.block, rows.labels, loss, models.reshape(-1, d).T, factors)
    risk, accuracy = (column.reshape(nodes, runs).mean(axis=0) for column in flat)
    return replace(scores, risk={**scores.risk, SITE: risk}, accuracy={**scores.accuracy, SITE: accuracy})


def heard(solved: Solved) -> Floats | None:
    """The models that some real sites would end with: the mean of their own last broadcast and their neighbours',
    (nodes, runs, d). None where that is the consensus, as on a complete graph.
    """
    graph, last = solved.problem.graph, solved.result.last.astype(np.float64).transpose(1, 2, 0)
    if isinstance(graph, CompleteGraph) or graph.n < 3:
        return None
    together = last + graph.neighbour_sum(np.ascontiguousarray(last))
    means: Floats = together / (1 + graph.degrees)[:, None, None]
    return means[scored_nodes(graph.n)].transpose(0, 2, 1)


def beside(config: TrainConfig, name: str) -> TrainConfig:
    """The configuration with another algorithm: the same problem and guarantee, and its own settings for all else.

    Refused with rows of a file: these are private, and a second run on them would have to be paid for.
    """
    if config.data is not None:
        raise InputError(
            f"Expected a packaged data set with beside={name!r}, got data={config.data!r}. Another algorithm on the "
            "same private rows is another release: run it by itself, on the same budget."
        )
    return TrainConfig(**{kept: getattr(config, kept) for kept in _SHARED}, algorithm=name)


def spread(values: Array) -> float | None:
    """Standard deviation over runs; None for a single run."""
    return float(values.std(ddof=1)) if len(values) > 1 else None


def _scores(solved: Solved, columns: Mapping[str, Array], rows: Sites | Dataset) -> Scores:
    return Scores(
        risk={name: columns[f"risk_{name}"] for name in OUTPUTS},
        accuracy={name: columns[f"accuracy_{name}"] for name in OUTPUTS},
        majority=_majority(solved, rows),
    )


def _majority(solved: Solved, rows: Sites | Dataset) -> float | None:
    """The share of the label that is most frequent among the rows learnt from, by their weights."""
    if isinstance(solved.algorithm.loss.labels, Reals):
        return None
    sites = solved.problem.sites
    values, places = np.unique(sites.labels, return_inverse=True)
    counts = np.bincount(places, sites.factors.weights)
    frequent = values[np.flatnonzero(counts == counts.max())[-1]]
    return figures.mean(rows.labels == frequent, rows.factors.weights)
