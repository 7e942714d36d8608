"""From bounded rows to a released model: which algorithm, what it costs, who pays, and the run itself.

All that is decided before the run follows from public numbers. The event of the whole run is charged before the first
gradient is taken.
"""

from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from sottovoce import graphs
from sottovoce.algorithms import IPADMM, PrivateAlgorithm
from sottovoce.arrays import Floats
from sottovoce.engines.devices import DeviceName
from sottovoce.engines.simulate import simulate
from sottovoce.errors import InputError, PrivacyError, expect
from sottovoce.estimators.draws import Draws
from sottovoce.graphs import Graph
from sottovoce.losses import Logistic, Loss
from sottovoce.plan import Plan, plan
from sottovoce.privacy import BudgetAccountant, PrivacyStatement
from sottovoce.sites import Sites

AlgorithmChoice: TypeAlias = "PrivateAlgorithm[Any] | str | None"
PLANNED = ("rounds", "local_steps", "rho", "diameter")


@dataclass(frozen=True)
class Objective:
    """What is minimised, and within which guarantee.

    lam is the weight of the penalty in (mean over sites of their mean loss) + lam phi(w), however many sites there are.
    """

    loss: Loss
    lam: float
    max_grad_norm: float | None
    epsilon: float
    delta: float

    def settings(self) -> dict[str, Any]:
        """As fields of an algorithm."""
        own = ("loss", "lam", "max_grad_norm", "epsilon", "delta")
        return {name: getattr(self, name) for name in own}


class Chosen(NamedTuple):
    """The algorithm, and the plan that its settings come from, if there was one."""

    algorithm: PrivateAlgorithm[Any]
    plan: Plan | None


class Fitted(NamedTuple):
    """What a run leaves behind. Its history, which is read off the rows without noise, is no part of it."""

    weights: Floats  # (d, outputs)
    rounds: int
    privacy: PrivacyStatement


def graph_of(graph: Graph | str, n: int) -> Graph:
    """A graph of that name on n nodes; one that was given must have n nodes."""
    if isinstance(graph, str):
        expect(graph in graphs.NAMES, f"a graph among {', '.join(graphs.NAMES)}", graph=graph)
        return graphs.by_name(graph, n) if n > 1 else graphs.complete(1)
    expect(isinstance(graph, Graph), "the name of a graph, or a Graph", graph=graph)
    expect(graph.n == n, "a graph with one node for every site", nodes=graph.n, sites=n)
    return graph


def choose(
    algorithm: AlgorithmChoice, given: Mapping[str, Any], objective: Objective, sites: Sites, graph: Graph
) -> Chosen:
    """IPADMM, planned where nothing was given, or the caller's algorithm with our objective and guarantee."""
    given = {name: value for name, value in given.items() if value is not None}
    if isinstance(algorithm, PrivateAlgorithm):
        expect(not given, "rounds, local_steps, rho and diameter as fields of the algorithm", **given)
        own = algorithm.max_grad_norm
        expect(own in (None, objective.max_grad_norm), "max_grad_norm as a parameter of the estimator", algorithm=own)
        return Chosen(replace(algorithm, **objective.settings()), None)
    if algorithm not in (None, "ipadmm"):
        raise InputError(
            f"Expected algorithm='ipadmm', None, or a private algorithm such as IPADMM(rounds=50), got "
            f"algorithm={algorithm!r}."
        )
    if set(given) == set(PLANNED):
        return Chosen(IPADMM(**given, **objective.settings()), None)
    planned = _plan(given, objective, sites, graph)
    return Chosen(replace(planned.algorithm(), **objective.settings()), planned)


def _plan(given: Mapping[str, Any], objective: Objective, sites: Sites, graph: Graph) -> Plan:
    """From public numbers only. The planner knows losses of one output; with several, what it is told is a logistic
    model of as many coordinates, which carry the same noise.
    """
    settings, outputs = objective.settings(), objective.loss.outputs
    if outputs > 1:
        settings["loss"] = Logistic()
    sizes: list[int] = sites.counts.tolist()
    return plan(sizes=sizes, d=sites.d * outputs, graph=graph, data_norm=sites.data_norm, fixed=given, **settings)


def train(
    algorithm: PrivateAlgorithm[Any],
    sites: Sites,
    graph: Graph,
    accountant: BudgetAccountant | None,
    draws: Draws,
    device: DeviceName,
) -> Fitted:
    """Charge the whole run, then make it.

    Raises:
        BudgetError: it does not fit into the accountant's budget. Nothing was computed, nothing was charged.
    """
    oracle = algorithm.oracle(sites, graph)
    statement = algorithm.statement(oracle)
    if statement.epsilon > algorithm.epsilon:
        raise PrivacyError(
            f"Expected a run within epsilon={algorithm.epsilon!r}, got one that costs {statement.epsilon!r} with "
            f"algorithm={type(algorithm).__name__}."
        )
    with nullcontext() if accountant is None else accountant.reserve(statement.event):
        result = simulate(algorithm, sites, graph, record=[algorithm.rounds], device=device, seed=draws.seed)
    weights = result.consensus[0].astype(np.float64).reshape(sites.d, algorithm.loss.outputs)
    if not np.isfinite(weights).all():
        raise InputError(
            f"Expected a finite model, got NaN or infinity from algorithm={algorithm!r}: its steps are too long. Use a "
            "smaller diameter. The budget of this fit is spent."
        )
    return Fitted(weights, algorithm.rounds, statement)


def accountant_of(accountant: BudgetAccountant | None) -> BudgetAccountant | None:
    """The one that was given, else that of the innermost `with` block."""
    if accountant is None:
        return BudgetAccountant.current()
    expect(isinstance(accountant, BudgetAccountant), "accountant as a BudgetAccountant or None", accountant=accountant)
    return accountant
