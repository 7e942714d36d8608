"""From bounded rows to a released model: which algorithm, what it costs, who pays, and the run itself.

All that is decided before the run follows from public numbers. The event of the whole run is charged before the first
gradient is taken.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from sottovoce.algorithms import MaskedNewton, PrivateMethod
from sottovoce.algorithms.default import default
from sottovoce.algorithms.ipadmm import takes_moments
from sottovoce.errors import InputError, PrivacyError, expect
from sottovoce.estimators.draws import Draws
from sottovoce.plan import Plan, plan
from sottovoce.privacy import BudgetAccountant, PrivacyStatement
from sottovoce.problem import graphs
from sottovoce.problem.graphs import CompleteGraph, Graph
from sottovoce.problem.problem import Problem
from sottovoce.problem.regularisers import L2
from sottovoce.progress import shown
from sottovoce.simulation.devices import DeviceName
from sottovoce.simulation.engine import Charge, Solved, solve

AlgorithmChoice: TypeAlias = "PrivateMethod | str | None"


class Chosen(NamedTuple):
    """The algorithm, and the plan that its settings come from, if there was one."""

    algorithm: PrivateMethod
    plan: Plan | None


def graph_of(graph: Graph | str, n: int) -> Graph:
    """A graph of that name on n nodes; one that was given must have n nodes."""
    if isinstance(graph, str):
        expect(graph in graphs.NAMES, f"a graph among {', '.join(graphs.NAMES)}", graph=graph)
        return graphs.by_name(graph, n) if n > 1 else graphs.complete(1)
    expect(isinstance(graph, Graph), "the name of a graph, or a Graph", graph=graph)
    expect(graph.n == n, "a graph with one node for every site", nodes=graph.n, sites=n)
    return graph


def choose(
    algorithm: AlgorithmChoice, inference: bool, objective: Mapping[str, Any], problem: Problem,
    focus: tuple[int, ...] = (), device: DeviceName = "cpu",
) -> Chosen:  # fmt: skip
    """The default algorithm, IPADMM with planned settings; or the caller's algorithm with our
    objective and guarantee.

    Args:
        algorithm: a name, an algorithm with settings of the caller's, or None.
        inference: True if coefficients are to have standard errors, which only masked sums give.
        objective: the fields of an algorithm that say what is minimised, and within which guarantee.
        problem: the rows, and who exchanges messages with whom. Only its public numbers are used.
        focus: with inference: the features whose coefficients are asked for.
        device: where it will run. Some plans cannot on a GPU.
    """
    expect(not focus or inference, "inference=True with focus, which is on intervals", focus=focus)
    sites, loss = problem.sites, objective["loss"]
    if isinstance(algorithm, PrivateMethod):
        expect(not inference, "inference as a field of the algorithm", inference=inference, algorithm=algorithm)
        return Chosen(replace(algorithm, **objective), None)
    complete = isinstance(problem.graph, CompleteGraph)
    taken = default(loss, L2(), "complete" if complete else problem.graph.name, {"inference": inference})
    match algorithm or taken.name:
        case "masked":
            return Chosen(MaskedNewton(inference=inference, focus=focus, **objective), None)
        case "ipadmm":
            expect(not inference, "inference=False with algorithm='ipadmm'", inference=inference)
            shape: dict[str, Any] = {"sizes": sites.counts.tolist(), "d": sites.d, "data_norm": sites.data_norm}
            fixed = {} if takes_moments(sites.factors, device) else {"moments": 0.0}
            planned = plan(graph=problem.graph, unit=sites.unit, fixed=fixed, **shape, **objective)
            return Chosen(planned.algorithm(), planned)
    raise InputError(
        "Expected algorithm among masked, ipadmm, None, or a private algorithm such as IPADMM(rounds=50), got "
        f"algorithm={algorithm!r}."
    )


def train(
    problem: Problem,
    algorithm: PrivateMethod,
    payer: Charge | None,
    draws: Draws,
    device: DeviceName,
    verbose: bool,
) -> Solved:
    """Charge the whole run, then make it, with a bar if verbose. If `payer` raises, nothing was computed."""

    def charge(statement: PrivacyStatement) -> None:
        if statement.epsilon > algorithm.epsilon:
            raise PrivacyError(
                f"Expected a run within epsilon={algorithm.epsilon!r}, got one that costs {statement.epsilon!r} with "
                f"algorithm={type(algorithm).__name__}."
            )
        if payer is not None:
            payer(statement)

    with shown(verbose) as report:
        solved = solve(problem, algorithm, record=1, device=device, seed=draws.seed, charge=charge, progress=report)
    if not np.isfinite(solved.weights).all():
        raise InputError(
            f"Expected a finite model, got NaN or infinity from algorithm={algorithm!r}: its steps are too long. Use a "
            "smaller diameter. The budget of this fit is spent."
        )
    return solved


def charge_to(accountant: BudgetAccountant | None) -> Charge | None:
    """What charges the accountant with a statement, and raises BudgetError if it does not fit; None without one."""
    return None if accountant is None else lambda statement: accountant.spend(statement.event, statement.unit)


def accountant_of(accountant: BudgetAccountant | None) -> BudgetAccountant | None:
    """The accountant that was given, else that of the innermost `with` block; None if there is neither."""
    if accountant is None:
        return BudgetAccountant.current()
    expect(isinstance(accountant, BudgetAccountant), "accountant as a BudgetAccountant or None", accountant=accountant)
    return accountant
