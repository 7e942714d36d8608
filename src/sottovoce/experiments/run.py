"""One training experiment from configuration to figures."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from datetime import UTC, datetime
from time import perf_counter
from typing import Any, TypeAlias, cast

import numpy as np

from sottovoce.algorithms import IPADMM, Algorithm, Outputs, PrivateAlgorithm
from sottovoce.algorithms.stepping import Stepping
from sottovoce.arrays import Array, Floats
from sottovoce.compiled import CompiledOracle
from sottovoce.engines.devices import DeviceName, Precision
from sottovoce.engines.history import OUTPUTS, by_node, measure, scored_nodes
from sottovoce.engines.optimum import name_of_optimum, pooled_optimum
from sottovoce.engines.simulate import Progress, Result, simulate
from sottovoce.experiments.build import Built
from sottovoce.experiments.config import TrainConfig
from sottovoce.graphs import complete
from sottovoce.losses import Reals
from sottovoce.models import Model
from sottovoce.privacy import HOLDER_ONLY, Event
from sottovoce.privacy.accounting import leaves
from sottovoce.sites import Sites

Charge: TypeAlias = Callable[[Event], None]

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


@dataclass(frozen=True)
class Trained:
    """A finished experiment. `config` has the defaults written out."""

    config: TrainConfig
    algorithm: Algorithm[Any]
    result: Result
    learnt: Scores
    tested: Scores | None
    built: Built
    optimum: float | None  # mean loss of the pooled, non-private model on the rows learnt from
    diameter: float | None
    seconds: float  # in all; `result.seconds` is the simulation alone

    @property
    def steps(self) -> int:
        """Private steps that one site takes in all that the statement counts."""
        return leaves(self.result.privacy.event).total()

    @property
    def holder_only(self) -> str | None:
        """What must go with every figure that was computed from private rows; None if anyone may see the rows."""
        return HOLDER_ONLY if self.built.sites.private else None

    def model(self) -> Model:
        """The consensus of the first run, as something to keep and to hand on. Its guarantee counts what was seen: of
        private rows, all runs.
        """
        rows, loss, names = self.built.source, self.algorithm.loss, self.built.source.learnt.names
        weights = self.result.consensus[0].astype(np.float64).reshape(len(names), loss.outputs)
        return Model(
            weights=rows.scale * weights,
            offset=rows.offset,
            loss=loss,
            names=names,
            classes=None if isinstance(loss.labels, Reals) else rows.classes,
            privacy=self.result.privacy,
            schema=rows.schema,
            provenance=self._provenance(),
        )

    def _provenance(self) -> dict[str, Any]:
        from sottovoce import __version__

        settings = {f.name: getattr(self.config, f.name) for f in fields(self.config)}
        files = ("data", "schema", "test_data")  # where they lie is nobody's business
        settings = {name: value for name, value in settings.items() if value is not None and name not in files}
        sizes = dict(zip(self.built.names, self.built.sites.counts.tolist(), strict=True))
        provenance: dict[str, Any] = jsonable(
            {
                "sottovoce": __version__,
                "created": datetime.now(UTC).isoformat(timespec="seconds"),
                "settings": settings,
                "rows": sizes,
            }
        )
        return provenance

    def by_site(self) -> dict[str, list[Any]]:
        """How well the models do on each site's own rows, in the first run. Read off the rows: not private."""
        site = self.algorithm.oracle(self.built.sites, self.built.graph)
        last = np.ascontiguousarray(self.result.last[:1].transpose(1, 2, 0), dtype=np.float64)
        together = np.broadcast_to(last.mean(axis=0), last.shape)
        own, joint = by_node(site, last), by_node(site, together)
        return {
            "site": list(self.built.names),
            "rows": self.built.sites.counts.tolist(),
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
        c, private = self.config, isinstance(self.algorithm, PrivateAlgorithm)
        unprotected = {"why": self.holder_only, "fields": list(_UNPROTECTED)}
        data = {
            "algorithm": c.algorithm,
            "form": c.form,
            "dataset": self.built.source.learnt.name,
            "split": c.split,
            "partition": c.partition,
            "nodes": self.built.sites.n,
            "graph": c.graph,
            "rounds": c.rounds,
            "local_steps": c.local_steps,
            "epsilon": self.result.privacy.promised if private else None,
            "delta": c.delta if private else None,
            "sigma": self.result.privacy.sigma,
            "calibration": self.result.privacy.calibration,
            "schedule": c.schedule,
            "diameter": self.diameter,
            "rho": c.rho,
            "lam": c.lam,
            "weights": c.weights,
            "loss": c.loss,
            "regulariser": c.regulariser,
            "batch_size": c.batch_size,
            "runs": c.runs,
            "seed": c.seed,
            **self.learnt.summary(),
            "optimum_risk": self.optimum,
            "optimum": name_of_optimum(self.built.sites, self.built.algorithm),
            "test": None if self.tested is None else self.tested.summary(),
            "holder_only": None if self.holder_only is None else unprotected,
            "privacy": self.result.privacy.to_dict(),
            "seconds": self.result.seconds,
            "seconds_total": self.seconds,
        }
        cleaned: dict[str, Any] = jsonable(data)
        return cleaned


def train(config: TrainConfig, progress: Progress | None = None, charge: Charge | None = None) -> Trained:
    """Run the experiment. `charge` is called with what it will cost, before a row is touched; it may refuse."""
    started = perf_counter()
    built = config.build()
    chosen = config.resolved(built.algorithm)
    runs = chosen.runs or 1
    if charge is not None:
        statement = built.algorithm.statement(built.algorithm.oracle(built.sites, built.graph))
        charge(statement.of_runs(runs).event)
    result = simulate(
        built.algorithm,
        built.sites,
        built.graph,
        runs=runs,
        seed=chosen.seed,
        record=config.record,
        progress=progress,
        device=cast("DeviceName", config.device),  # checked when the configuration was made
        dtype=cast("Precision", config.dtype),
    )
    result = replace(result, privacy=result.privacy.noting(*built.source.notes))
    labels, final = built.sites.labels, result.history.final
    return Trained(
        config=chosen,
        algorithm=built.algorithm,
        result=result,
        learnt=_scores({name: final(name) for name in result.history}, _majority(built, labels)),
        tested=_tested(built, result),
        built=built,
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


def _tested(built: Built, result: Result) -> Scores | None:
    test = built.source.test
    if test is None:
        return None
    sites = Sites([test.features], [test.labels], data_norm=test.data_norm, private=test.private)
    # Results are (runs, nodes, d); scores are taken of (nodes, d, runs).
    outputs = Outputs(result.average.transpose(1, 2, 0), result.last.transpose(1, 2, 0))
    site = built.algorithm.oracle(sites, complete(1), CompiledOracle)
    line = measure(outputs, site, scored_nodes(built.sites.n))
    return _scores(line, _majority(built, test.labels))


def _majority(built: Built, labels: Floats) -> float | None:
    """The share of the label that is most frequent among the rows learnt from."""
    if isinstance(built.algorithm.loss.labels, Reals):
        return None
    values, counts = np.unique(built.sites.labels, return_counts=True)
    frequent = values[np.flatnonzero(counts == counts.max())[-1]]
    return float(np.mean(labels == frequent))


def _diameter(built: Built) -> float | None:
    algorithm = built.algorithm
    if not isinstance(algorithm, IPADMM | Stepping):
        return None
    return algorithm.diameter_for(algorithm.oracle(built.sites, built.graph))
