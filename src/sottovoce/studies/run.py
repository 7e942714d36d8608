"""One training experiment from configuration to figures."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from datetime import UTC, datetime
from pathlib import Path
from time import perf_counter
from typing import Any, NamedTuple, cast

import numpy as np

from sottovoce.algorithms import IPADMM, Algorithm, MaskedNewton, PrivateAlgorithm
from sottovoce.algorithms.stepping import Stepping
from sottovoce.arrays import Array, Floats
from sottovoce.errors import InputError
from sottovoce.files.datasets import BY_NAME
from sottovoce.files.models import Model
from sottovoce.plan import FIXABLE, plan
from sottovoce.privacy import HOLDER_ONLY
from sottovoce.privacy.accounting.accountant import leaves
from sottovoce.problem.losses import Reals
from sottovoce.problem.problem import Problem
from sottovoce.simulation.engine import Charge, DeviceName, Precision, Progress, Result, Solved, solve
from sottovoce.simulation.history import OUTPUTS, by_node
from sottovoce.simulation.optimum import name_of_optimum, pooled_optimum
from sottovoce.studies.choices import NODES, PLANNED, SEED, algorithm_of, graph_of, partition_of
from sottovoce.studies.config import TrainConfig

# What a summary says of the settings, in this order.
_SETTINGS = ("algorithm", "form", "dataset", "split", "partition", "nodes", "graph", "rounds", "local_steps", "epsilon",
             "delta", "sigma", "calibration", "schedule", "diameter", "rho", "lam", "weights", "loss", "regulariser",
             "batch_size", "runs", "seed")  # fmt: skip
# What two algorithms side by side have in common.
_SHARED = ("dataset", "split", "partition", "partition_alpha", "partition_column", "nodes", "graph", "graph_degree",
           "graph_probability", "graph_rewire", "epsilon", "delta", "lam", "loss", "runs", "seed", "record", "device",
           "dtype")  # fmt: skip
# What of a summary is no release: computed from rows without noise, or from how long that took.
_UNPROTECTED = ("risk", "risk_std", "accuracy", "accuracy_std", "majority_accuracy", "optimum_risk", "test", "seconds",
                "seconds_total")  # fmt: skip


@dataclass(frozen=True)
class Scores:
    """How good the models are on some rows: by output, one entry per run. `majority` is the accuracy of always
    answering the more frequent label; None in regression.
    """

    risk: Mapping[str, Array]
    accuracy: Mapping[str, Array]
    majority: float | None

    def summary(self) -> dict[str, Any]:
        """Means and spreads over runs."""
        return {
            "risk": {name: float(values.mean()) for name, values in self.risk.items()},
            "risk_std": {name: spread(values) for name, values in self.risk.items()},
            "accuracy": {name: float(values.mean()) for name, values in self.accuracy.items()},
            "accuracy_std": {name: spread(values) for name, values in self.accuracy.items()},
            "majority_accuracy": self.majority,
        }


class Bound(NamedTuple):
    """What a configuration describes, ready to run."""

    problem: Problem
    algorithm: Algorithm[Any]


def bind(config: TrainConfig) -> Bound:
    """Read the rows and plan the algorithm."""
    where, nodes = graph_of(config), config.nodes or NODES
    deal: dict[str, Any] = {"seed": config.seed or SEED, "partition": partition_of(config)}
    if config.data is None:
        problem = Problem.dealt(BY_NAME[config.dataset](), nodes, where, held_out=config.split == "official", **deal)
    else:
        from sottovoce.files.schema import Schema

        assert config.schema is not None  # checked when the configuration was made
        problem = Problem.from_file(
            config.data, Schema.load(Path(config.schema)), where, nodes=nodes, site_column=config.site_column,
            test=config.test_data, unreviewed=config.unreviewed == "accept", **deal,
        )  # fmt: skip
    return Bound(problem, _planned(config, algorithm_of(config, problem.answers.loss(config.loss)), problem))


def _planned(config: TrainConfig, algorithm: Algorithm[Any], problem: Problem) -> Algorithm[Any]:
    """The same, with what was not given chosen by the planner, from public numbers."""
    # Packaged data sets are for the paper's experiments, where all sites count the same.
    planned = [name for name in PLANNED if config.data is not None or name != "weights"]
    open_ = [name for name in planned if getattr(config, name) is None]
    if isinstance(algorithm, MaskedNewton) and config.rounds is None:
        sites = problem.sites
        return replace(algorithm, rounds=algorithm.exchanges(int(sites.counts.sum()), sites.d, sites.n))
    if not isinstance(algorithm, IPADMM) or not open_ or math.isinf(algorithm.epsilon):
        return algorithm
    given = {name: getattr(algorithm, name) for name in FIXABLE if name not in open_}
    if config.batch_size is None:
        del given["batch_size"], given["sampling"]
    found = plan(
        sizes=problem.sites.counts.tolist(), d=problem.sites.d, graph=problem.graph, epsilon=algorithm.epsilon,
        delta=algorithm.delta, loss=algorithm.loss, regulariser=algorithm.regulariser, lam=algorithm.lam,
        data_norm=problem.sites.data_norm, max_grad_norm=algorithm.max_grad_norm, fixed=given,
    )  # fmt: skip
    return found.algorithm()


@dataclass(frozen=True)
class Trained:
    """A finished experiment. `config` has the defaults written out."""

    config: TrainConfig
    solved: Solved
    learnt: Scores
    tested: Scores | None  # on the test rows, if there are any
    optimum: float | None  # mean loss of the pooled, non-private model on the rows learnt from
    seconds: float  # in all; `result.seconds` is the simulation alone

    @property
    def problem(self) -> Problem:
        """What was learnt from."""
        return self.solved.problem

    @property
    def result(self) -> Result:
        """What came out."""
        return self.solved.result

    @property
    def diameter(self) -> float | None:
        """D of the steps, where there is one."""
        algorithm = self.solved.algorithm
        return algorithm.diameter_for(self.solved.site) if isinstance(algorithm, IPADMM | Stepping) else None

    @property
    def steps(self) -> int:
        """Private steps that one site takes in all that the statement counts."""
        return leaves(self.result.privacy.event).total()

    @property
    def holder_only(self) -> str | None:
        """What must go with every figure that was computed from private rows; None if anyone may see the rows."""
        return HOLDER_ONLY if self.problem.private else None

    def model(self) -> Model:
        """The consensus of the first run, as something to keep and to hand on. Its guarantee counts what was seen: of
        private rows, all runs.
        """
        answers, loss = self.problem.answers, self.solved.algorithm.loss
        return Model(
            weights=answers.scale * self.solved.weights,
            offset=answers.offset,
            loss=loss,
            names=self.problem.features,
            classes=answers.classes_of(loss),
            privacy=self.result.privacy,
            schema=self.problem.schema,
            provenance=self._provenance(),
        )

    def _provenance(self) -> dict[str, Any]:
        from sottovoce import __version__

        settings = {f.name: getattr(self.config, f.name) for f in fields(self.config)}
        files = ("data", "schema", "test_data")  # where they lie is nobody's business
        settings = {name: value for name, value in settings.items() if value is not None and name not in files}
        provenance: dict[str, Any] = jsonable(
            {
                "sottovoce": __version__,
                "created": datetime.now(UTC).isoformat(timespec="seconds"),
                "settings": settings,
                "rows": dict(zip(self.problem.names, self.problem.sites.counts.tolist(), strict=True)),
            }
        )
        return provenance

    def by_site(self) -> dict[str, list[Any]]:
        """How well the models do on each site's own rows, in the first run. Read off the rows: not private."""
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
        c, privacy, private = self.config, self.result.privacy, isinstance(self.solved.algorithm, PrivateAlgorithm)
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
            "holder_only": self.holder_only and {"why": self.holder_only, "fields": list(_UNPROTECTED)},
            "privacy": privacy.to_dict(),
            "seconds": self.result.seconds,
            "seconds_total": self.seconds,
        }
        cleaned: dict[str, Any] = jsonable(data)
        return cleaned


def train(config: TrainConfig, progress: Progress | None = None, charge: Charge | None = None) -> Trained:
    """Run the experiment. `charge` is called with what it will cost, before a row is touched; it may refuse."""
    started = perf_counter()
    problem, algorithm = bind(config)
    chosen = config.resolved(algorithm)
    solved = solve(
        problem,
        algorithm,
        runs=chosen.runs or 1,
        seed=chosen.seed,
        record=config.record,
        progress=progress,
        device=cast("DeviceName", config.device),  # checked when the configuration was made
        dtype=cast("Precision", config.dtype),
        charge=charge,
    )
    history = solved.result.history
    return Trained(
        config=chosen,
        solved=solved,
        learnt=_scores(solved, {name: history.final(name) for name in history}, problem.sites.labels),
        tested=None if problem.test is None else _scores(solved, solved.tested(), problem.test.labels),
        optimum=pooled_optimum(problem.sites, algorithm),
        seconds=perf_counter() - started,
    )


def beside(config: TrainConfig, name: str) -> TrainConfig:
    """The same problem and guarantee for another algorithm, with its own settings for all else.

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


def jsonable(value: Any) -> Any:
    """The same with None for what JSON cannot say."""
    match value:
        case dict():
            return {name: jsonable(part) for name, part in value.items()}
        case list() | tuple():
            return [jsonable(part) for part in value]
        case float() if not math.isfinite(value):
            return None
        case _:
            return value


def _scores(solved: Solved, columns: Mapping[str, Array], labels: Floats) -> Scores:
    return Scores(
        risk={name: columns[f"risk_{name}"] for name in OUTPUTS},
        accuracy={name: columns[f"accuracy_{name}"] for name in OUTPUTS},
        majority=_majority(solved, labels),
    )


def _majority(solved: Solved, labels: Floats) -> float | None:
    """The share of the label that is most frequent among the rows learnt from."""
    if isinstance(solved.algorithm.loss.labels, Reals):
        return None
    values, counts = np.unique(solved.problem.sites.labels, return_counts=True)
    frequent = values[np.flatnonzero(counts == counts.max())[-1]]
    return float(np.mean(labels == frequent))
