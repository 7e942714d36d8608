"""One training experiment from configuration to figures."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from time import perf_counter
from typing import Any, cast

import numpy as np

from sottovoce.algorithms import IPADMM, Algorithm, Outputs, PrivateAlgorithm
from sottovoce.algorithms.stepping import Stepping
from sottovoce.arrays import Array, Floats
from sottovoce.compiled import CompiledOracle
from sottovoce.datasets import Dataset
from sottovoce.engines.devices import DeviceName, Precision
from sottovoce.engines.history import OUTPUTS, measure, scored_nodes
from sottovoce.engines.optimum import pooled_optimum
from sottovoce.engines.simulate import Progress, Result, simulate
from sottovoce.experiments.build import Built
from sottovoce.experiments.config import TrainConfig
from sottovoce.graphs import complete
from sottovoce.losses import Signs
from sottovoce.privacy.accounting import leaves
from sottovoce.sites import Sites


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


@dataclass(frozen=True)
class Trained:
    """A finished experiment. `config` has the defaults written out."""

    config: TrainConfig
    algorithm: Algorithm[Any]
    result: Result
    learnt: Scores
    tested: Scores | None
    optimum: float | None  # mean loss of the pooled, non-private model on the rows learnt from
    diameter: float | None
    seconds: float  # in all; `result.seconds` is the simulation alone

    @property
    def steps(self) -> int:
        """Private steps that one site takes in the whole run."""
        return leaves(self.result.privacy.event).total()

    def summary(self) -> dict[str, Any]:
        """All figures as strict JSON data: what is infinite or not a number is None."""
        c, private = self.config, isinstance(self.algorithm, PrivateAlgorithm)
        data = {
            "algorithm": c.algorithm,
            "form": c.form,
            "dataset": c.dataset,
            "split": c.split,
            "partition": c.partition,
            "nodes": c.nodes,
            "graph": c.graph,
            "rounds": c.rounds,
            "local_steps": c.local_steps,
            "epsilon": c.epsilon,
            "delta": c.delta if private else None,
            "sigma": self.result.privacy.sigma,
            "calibration": self.result.privacy.calibration,
            "schedule": c.schedule,
            "diameter": self.diameter,
            "rho": c.rho,
            "lam": c.lam,
            "loss": c.loss,
            "regulariser": c.regulariser,
            "batch_size": c.batch_size,
            "runs": c.runs,
            "seed": c.seed,
            **self.learnt.summary(),
            "optimum_risk": self.optimum,
            "test": None if self.tested is None else self.tested.summary(),
            "privacy": self.result.privacy.to_dict(),
            "seconds": self.result.seconds,
            "seconds_total": self.seconds,
        }
        cleaned: dict[str, Any] = jsonable(data)
        return cleaned


def train(config: TrainConfig, progress: Progress | None = None) -> Trained:
    """Run the experiment."""
    started = perf_counter()
    built = config.build()
    result = simulate(
        built.algorithm,
        built.sites,
        built.graph,
        runs=config.runs,
        seed=config.seed,
        record=config.record,
        progress=progress,
        device=cast("DeviceName", config.device),  # checked when the configuration was made
        dtype=cast("Precision", config.dtype),
    )
    labels, final = built.sites.labels, result.history.final
    return Trained(
        config=config.resolved(),
        algorithm=built.algorithm,
        result=result,
        learnt=_scores({name: final(name) for name in result.history}, _majority(built, labels)),
        tested=None if config.split == "all" else _tested(built, result),
        optimum=pooled_optimum(built.sites, built.algorithm),
        diameter=_diameter(built),
        seconds=perf_counter() - started,
    )


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


def _scores(columns: Mapping[str, Array], majority: float | None) -> Scores:
    return Scores(
        risk={name: columns[f"risk_{name}"] for name in OUTPUTS},
        accuracy={name: columns[f"accuracy_{name}"] for name in OUTPUTS},
        majority=majority,
    )


def _tested(built: Built, result: Result) -> Scores:
    test: Dataset = built.dataset.test
    sites = Sites([test.features], [test.labels], data_norm=test.data_norm)
    # Results are (runs, nodes, d); scores are taken of (nodes, d, runs).
    outputs = Outputs(result.average.transpose(1, 2, 0), result.last.transpose(1, 2, 0))
    site = built.algorithm.oracle(sites, complete(1), CompiledOracle)
    line = measure(outputs, site, scored_nodes(built.sites.n))
    return _scores(line, _majority(built, test.labels))


def _majority(built: Built, labels: Floats) -> float | None:
    if not isinstance(built.algorithm.loss.labels, Signs):
        return None
    frequent = 1.0 if built.sites.labels.sum() >= 0 else -1.0
    return float(np.mean(labels == frequent))


def _diameter(built: Built) -> float | None:
    algorithm = built.algorithm
    if not isinstance(algorithm, IPADMM | Stepping):
        return None
    return algorithm.diameter_for(algorithm.oracle(built.sites, built.graph))
