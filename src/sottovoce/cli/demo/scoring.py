"""How good the models of a demonstration are, and how good the simulator says they should be.

Both are read off public test rows. With private rows this would be a release of its own.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, final

import numpy as np
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from sottovoce.algorithms import Algorithm
from sottovoce.cli.output import up
from sottovoce.federation.agreement.agreement import Agreement
from sottovoce.files import models
from sottovoce.problem.problem import Problem
from sottovoce.simulation.engine import solve
from sottovoce.simulation.history import mean_scores


@final
@dataclass(frozen=True)
class SiteScore:
    """One site's model."""

    site: str
    rows: int
    rounds: int
    epsilon: float
    accuracy: float  # on the test rows
    agreement: float  # share of the test rows on which another site's model answers the same, in the mean


@final
@dataclass(frozen=True)
class Simulated:
    """The same settings on the same rows in one process, many times."""

    runs: int
    accuracy: float  # mean over sites and runs
    spread: float  # standard deviation over runs of the mean over sites


@final
@dataclass(frozen=True)
class Scores:
    """All of it."""

    sites: tuple[SiteScore, ...]
    simulated: Simulated
    majority: float  # accuracy of always giving the more frequent answer
    test_rows: int

    @property
    def accuracy(self) -> float:
        """Mean over sites."""
        return float(np.mean([site.accuracy for site in self.sites]))

    def to_dict(self) -> dict[str, Any]:
        """JSON-able."""
        return {"accuracy": self.accuracy, **asdict(self)}


def score(agreement: Agreement, rows: Mapping[str, Path], results: Mapping[str, Path], test: Path, runs: int) -> Scores:
    """Score every site's model file, and simulated runs on the sites' rows, on the test file."""
    schema = agreement.encoding
    assert schema is not None
    ordered = {name: rows[name] for name in agreement.names}
    problem = Problem.from_site_files(ordered, schema, agreement.graph, test)
    tested = problem.test
    assert tested is not None
    right = agreement.algorithm.loss.labels.numbers(tested.labels)
    learnt = {name: models.load(path) for name, path in results.items()}
    answers = {name: model.decide(tested.features) for name, model in learnt.items()}
    scored = tuple(
        SiteScore(
            site=name,
            rows=agreement.member(name).rows,
            rounds=int(model.provenance["rounds"]),
            epsilon=model.privacy.epsilon,
            accuracy=float(np.mean(answers[name] == right)),
            agreement=float(np.mean([answers[name] == answers[other] for other in answers if other != name])),
        )
        for name, model in learnt.items()
    )
    simulated = _simulated(problem, agreement.algorithm, runs)
    majority = float(max(right.mean(), 1 - right.mean()))
    return Scores(scored, simulated, majority, len(right))


def _simulated(problem: Problem, algorithm: Algorithm[Any], runs: int) -> Simulated:
    """What sites would end with: the mean of their last broadcast and their neighbours'."""
    solved = solve(problem, algorithm, runs=runs, record=1)
    last, neighbours = solved.result.last, problem.graph.neighbours
    models = np.stack([last[:, [i, *neighbours(i)]].mean(axis=1).T for i in range(problem.sites.n)])
    by_run = mean_scores(solved.test_site, models).accuracy
    return Simulated(runs, float(by_run.mean()), float(by_run.std(ddof=1)))


# -- for people -------------------------------------------------------------------------------------------------------


def show(scores: Scores) -> None:
    """Print them."""
    console = Console(highlight=False)
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for heading in ("site", "rows", "rounds", "epsilon", "test accuracy", "agrees with others"):
        table.add_column(heading, justify="left" if heading == "site" else "right")
    for site in scores.sites:
        table.add_row(
            site.site, f"{site.rows:,}", str(site.rounds), up(site.epsilon), _percent(site.accuracy),
            _percent(site.agreement),
        )  # fmt: skip
    console.print(table)
    simulated = scores.simulated
    lines = (
        f"Mean of the five: {_percent(scores.accuracy)} of {scores.test_rows:,} test rows.",
        f"The simulator, same rows and settings, {simulated.runs} runs: {_percent(simulated.accuracy)}, give or take "
        f"{100 * simulated.spread:.2f} from run to run.",
        f"Always the more frequent answer: {_percent(scores.majority)}.",
    )
    for line in lines:
        console.print(Text(line), soft_wrap=True)


def _percent(share: float) -> str:
    return f"{100 * share:.2f} %"
