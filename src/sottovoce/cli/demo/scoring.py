"""How good the models of a demonstration are, and how good the simulator says they should be.

Both are computed on public test rows. With private rows this would be a release of its own.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

import numpy as np

from sottovoce.cli import output
from sottovoce.document import Table
from sottovoce.federation.agreement.agreement import Agreement
from sottovoce.files import models
from sottovoce.files.models.from_site import statement_of
from sottovoce.numerals import counted, up
from sottovoce.privacy import PrivacyStatement
from sottovoce.privacy.words import observers
from sottovoce.problem.problem import Problem
from sottovoce.settings import plain, written, written_as
from sottovoce.simulation.engine import solve
from sottovoce.simulation.history import mean_scores


@final
@dataclass(frozen=True)
class SiteScore:
    """How good one site's model is, and what it cost."""

    site: str
    rows: int
    rounds: int
    epsilon: float
    accuracy: float  # on the test rows
    agreement: float  # share of the test rows on which another site's model answers the same, in the mean


@final
@dataclass(frozen=True)
class Simulated:
    """Accuracy of simulated runs, with the same settings on the same rows."""

    runs: int
    accuracy: float  # mean over sites and runs
    spread: float  # standard deviation over runs of the mean over sites


@final
@dataclass(frozen=True)
class DemoScores:
    """Scores of all sites' models, of simulated runs, and of no model."""

    sites: tuple[SiteScore, ...]
    simulated: Simulated
    majority: float  # accuracy of always giving the more frequent answer
    test_rows: int

    @property
    def accuracy(self) -> float:
        """Mean accuracy over sites, 0 to 1."""
        return float(np.mean([site.accuracy for site in self.sites]))


written(DemoScores, "accuracy", ...)


@final
@dataclass(frozen=True)
class Trial:
    """One run of real sites, with noise of their own or with masked sums."""

    way: str
    out: Path
    agreement: Agreement
    seconds: float  # from the start of the sites to their models
    scores: DemoScores

    @property
    def rounds(self) -> int:
        """Number of rounds, in each of which every site spoke once."""
        return int(self.agreement.algorithm.rounds)

    @property
    def privacy(self) -> PrivacyStatement:
        """The guarantee, which is the same at all sites."""
        return statement_of(self.agreement, self.agreement.names[0])


written_as(
    Trial,
    lambda trial: {
        "way": trial.way, "out": trial.out, "run": trial.agreement.run, "exchanges": trial.rounds,
        "site_seconds": round(trial.seconds, 2), "observers": trial.privacy.observers, **plain(trial.scores),
    },
)  # fmt: skip


def as_json(out: Path, trials: Sequence[Trial], seconds: float) -> dict[str, Any]:
    """Plain data of one trial, or a list of several. `seconds` is how long all of it took."""
    about = {"out": str(out), "seconds": round(seconds, 1)}
    ways = plain(trials)
    return {**ways[0], **about} if len(ways) == 1 else {**about, "ways": ways}


def score(
    agreement: Agreement, rows: Mapping[str, Path], results: Mapping[str, Path], test: Path, runs: int
) -> DemoScores:
    """Score every site's model file, and simulated runs on the sites' rows, on the test file."""
    schema = agreement.encoding
    assert schema is not None
    ordered = {name: rows[name] for name in agreement.names}
    problem = Problem.from_site_files(ordered, schema, agreement.graph, test)
    tested = problem.test
    assert tested is not None
    right = agreement.learning.loss.labels.numbers(tested.labels)
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
    solved = solve(problem, agreement.learning, runs=runs, record=1)
    # A simulated site ends as a real one does: with the mean of its last broadcast and its neighbours'.
    last, neighbours = solved.result.last, problem.graph.neighbours
    means = np.stack([last[:, [i, *neighbours(i)]].mean(axis=1).T for i in range(problem.sites.n)])
    by_run = mean_scores(solved.test_site, means).accuracy
    simulated = Simulated(runs, float(by_run.mean()), float(by_run.std(ddof=1)))
    majority = float(max(right.mean(), 1 - right.mean()))
    return DemoScores(scored, simulated, majority, len(right))


# -- for people -------------------------------------------------------------------------------------------------------


def show(trials: Sequence[Trial]) -> None:
    """Print the scores as tables: by site for one trial, side by side for two, and what epsilon rests on."""
    first = trials[0].scores
    output.show(*([_by_site(first)] if len(trials) == 1 else []), _by_way(trials))
    for trial in trials:
        table = observers(trial.privacy.observers)
        output.show(*([f"Epsilon of {trial.way}, by number of colluding sites:", *table] if table else []))
    output.show(
        f"Accuracy: of {first.test_rows:,} test rows, mean of the five sites. Simulator: the same rows and settings, "
        f"{first.simulated.runs} runs, and their standard deviation.",
        "Seconds: from the start of the five programs to their models, on this machine.",
        *map(_assumption, trials),
        f"Accuracy of always the more frequent label: {_percent(first.majority)}.",
    )


def _by_way(trials: Sequence[Trial]) -> Table:
    """One line for each trial."""
    rows = [
        (
            trial.way, _percent(trial.scores.accuracy),
            f"{_percent(trial.scores.simulated.accuracy)} ± {100 * trial.scores.simulated.spread:.2f}",
            str(trial.rounds), f"{trial.seconds:.1f}", up(trial.privacy.epsilon),
        )
        for trial in trials
    ]  # fmt: skip
    headings = ("noise", "accuracy", "simulator", "exchanges", "seconds", "epsilon")
    return Table(headings, rows, frozenset(range(1, 6)))


def _assumption(trial: Trial) -> str:
    """One line that says against whom the epsilon of a trial holds."""
    observers = trial.privacy.observers
    if len(observers) < 2:
        return f"Epsilon of {trial.way}: against the server and all other sites together."
    assumed = max(line.colluding for line in observers if line.noise >= 1)
    return f"Epsilon of {trial.way}: against the server and {counted(assumed, 'colluding site')}."


def _by_site(scores: DemoScores) -> Table:
    """One line for each site."""
    rows = [
        (
            site.site, f"{site.rows:,}", str(site.rounds), up(site.epsilon), _percent(site.accuracy),
            _percent(site.agreement),
        )
        for site in scores.sites
    ]  # fmt: skip
    headings = ("site", "rows", "rounds", "epsilon", "test accuracy", "agrees with others")
    return Table(headings, rows, frozenset(range(1, 6)))


def _percent(share: float) -> str:
    return f"{100 * share:.2f} %"
