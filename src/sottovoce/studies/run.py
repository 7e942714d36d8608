"""One training experiment: the run, and what it leaves."""

import math
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from datetime import UTC, datetime
from time import perf_counter
from typing import Any, NamedTuple, cast

import numpy as np

from sottovoce.algorithms import IPADMM, MaskedNewton, Method, PrivateMethod
from sottovoce.algorithms.default import Default
from sottovoce.algorithms.stepping import Stepping
from sottovoce.errors import InputError, PrivacyError
from sottovoce.files.models import Model
from sottovoce.files.models.apply import weights_digest
from sottovoce.files.models.coefficients import table_of
from sottovoce.files.models.inference import Inference
from sottovoce.privacy import HOLDER_ONLY
from sottovoce.privacy.accounting.accountant import leaves
from sottovoce.privacy.strength import large_delta, no_delta, no_epsilon, refusal
from sottovoce.problem.losses import Logistic, Reals, Softmax, WeightedLogistic
from sottovoce.problem.problem import Problem
from sottovoce.progress import Progress
from sottovoce.settings import plain
from sottovoce.simulation.devices import DeviceName, Precision, by_name
from sottovoce.simulation.engine import Charge, Result, Solved, solve
from sottovoce.simulation.exchange import EngineName
from sottovoce.simulation.history import by_node
from sottovoce.simulation.mpi import joined
from sottovoce.simulation.network_text import read_network
from sottovoce.simulation.optimum import OutOfTimeError, name_of_optimum, pooled_optimum, same_optimum
from sottovoce.studies.build import Tell, bind, fitted
from sottovoce.studies.config import TrainConfig
from sottovoce.studies.interruption import deferred
from sottovoce.studies.scores import RunScores, scores_of, with_figures
from sottovoce.tally import PrivateEvaluation

YARDSTICK_SECONDS = 60.0  # that a comparison without privacy may take
FEW_ROWS = 10  # at a site: with fewer, its noise drowns what they say

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


class Timed(NamedTuple):
    """A recorded round, when it would be over on a real network, and how good the consensus then is, over all runs."""

    round: int
    seconds: float
    risk: float
    accuracy: float


_TIMED = ("risk_consensus", "accuracy_consensus")


@dataclass(frozen=True)
class Trained:
    """An experiment whose rounds are over. `config` has the defaults written out.

    The model and its guarantee are there from the start. Scores beyond those of the history come afterwards, and may be
    missing: `unfinished` then says why.
    """

    config: TrainConfig
    solved: Solved
    learnt: RunScores
    choice: Default  # the algorithm by its name, and why it is not masked sums where none was named
    seconds: float  # in all; `result.seconds` is the simulation alone
    tested: RunScores | None = None  # on the test rows, if there are any
    optimum: float | None = None  # mean loss of the pooled, non-private model on the rows learnt from
    unfinished: str | None = None  # that it was interrupted, and where
    notices: tuple[str, ...] = ()  # warnings about the settings, and what was given up

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
        """When every recorded round would be over on the network that was stated; empty if none was."""
        if self.config.network is None:
            return ()
        network, history = read_network(self.config.network), self.result.history
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
        if isinstance(loss.labels, Reals) and answers.ends is None:
            return "labels as they are" if answers.scale == 1 else f"labels divided by {answers.scale:g}"
        likelihood = isinstance(loss, Logistic | Softmax | WeightedLogistic) or answers.ends is not None
        return "nats" if likelihood else "margins"

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
        # Paths are left out, since they may tell of people. Settings of packaged data mean nothing for a file.
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
    ask: Callable[[str], None] | None = None,
) -> Trained:
    """Run the experiment.

    Args:
        config: what to run.
        progress: called with (rounds done, rounds in all).
        charge: called with what it will cost, before a row is touched; it may refuse.
        keep: called when the rounds are over, before anything else is computed. From the charge until it is done an
            interruption waits; one during the rounds ends them, and what was released so far is kept.
        yardstick: True to look for the optimum without privacy too. None: only if anyone may see the rows.
        force: accept an epsilon or a delta that protects private rows hardly at all.
        tell: hears of notices, and of what takes its time.
        explain: hears of what was chosen, and why.
        first: what this is run `beside`: its rows are used again, and its yardstick where that would be the same.
        history: True to score as many rounds before the last as are asked for.
        ask: asks whether to go on although no coefficient can be expected to say anything, and raises if not. None:
            such a run on private rows is refused, unless `force`.
    """
    config = fitted(config)
    started, spread = perf_counter(), config.engine == "mpi"
    speaks = not spread or bool(joined().rank == 0)
    problem, algorithm = bind(
        config, tell, explain, problem=None if first is None else first.problem, planned=speaks
    )  # fmt: skip
    if speaks:
        _predict_intervals(problem, algorithm, tell, None if force else ask or _refuse)
    if spread:
        algorithm = joined().bcast(algorithm, root=0)
    if config.network is not None:
        read_network(config.network).expect_nodes(problem.graph.n)
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
            solved = _gather(solved, problem, config)
        recorded = solved.result.history
        learnt = scores_of(solved, {name: recorded.final(name) for name in recorded}, problem.sites)
        trained = Trained(chosen, solved, learnt, config.choice, perf_counter() - started, notices=notices)
        made, asked_for = solved.result.rounds, algorithm.rounds
        if made < asked_for:
            trained = replace(trained, unfinished=f"interrupted after round {made} of {asked_for}")
        if keep is not None:
            keep(trained)
    if not speaks:
        return trained
    if interruption.asked():
        return replace(trained, unfinished=trained.unfinished or "interrupted when the rounds were over")
    measured = _score(trained, not problem.private if yardstick is None else yardstick, tell, first)
    return replace(measured, seconds=perf_counter() - started)


def _predict_intervals(
    problem: Problem, algorithm: Method, tell: Tell | None, ask: Callable[[str], None] | None
) -> None:
    """Tell how wide the intervals of coefficients will be, from public numbers. Where these say nothing and rows are
    private, `ask` before anything is spent.
    """
    if not isinstance(algorithm, MaskedNewton) or not algorithm.inference or problem.schema is None:
        return
    if tell is None and (ask is None or not problem.private):
        return
    from sottovoce.plan.widths import TOLD_RATIOS, intervals

    found = intervals(algorithm, problem.schema, problem.sites.counts.tolist(), unit=problem.unit)
    if tell is not None:
        tell(f"{found.summary} Each coefficient, and what it would need: sottovoce plan --inference.")
    if found.hopeless and problem.private and ask is not None:
        ratio = TOLD_RATIOS[-1]
        ask(
            "Nothing is predicted to come of it: no coefficient of any made-up table is identified and tells a ratio "
            f"of {ratio:g} from 1. {found.nearest}"
        )


def _refuse(why: str) -> None:
    raise InputError(f"Expected intervals that say something, got none. {why} To train all the same, use --force.")


def _gather(solved: Solved, problem: Problem, config: TrainConfig) -> Solved:
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
        raise PrivacyError(f"{refusal(weak[0])} To run it anyway, use --force (force=True).")
    large = large_delta(asked[1], int(counts.sum()))
    found = [str(doubt) for doubt in (*weak, large) if doubt is not None]
    few = int(np.count_nonzero(counts < FEW_ROWS))
    if few and problem.sites.n > 1:
        found.append(
            f"{few:,} of {problem.sites.n:,} sites hold fewer than {FEW_ROWS} rows: the noise of such a site is "
            "larger than the signal in its rows. Use fewer, larger sites (--nodes)."
        )
    return tuple(found)


def _score(trained: Trained, yardstick: bool, tell: Tell | None, first: Trained | None) -> Trained:
    """The run with all scores. These cost no budget, so an interruption or too long a search for the optimum ends
    them.
    """
    problem, solved = trained.problem, trained.solved
    try:
        trained = replace(trained, learnt=with_figures(solved, trained.learnt, problem.sites))
        if problem.test is not None:
            tested = scores_of(solved, solved.tested(), problem.test)
            trained = replace(trained, tested=with_figures(solved, tested, solved.test_site.sites))
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
