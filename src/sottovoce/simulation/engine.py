"""The simulator: many runs of an algorithm on a whole network at once.

`solve` is the only way from a problem and an algorithm to a result: it binds the rows to the objective, states what the
runs cost, charges that, and runs the algorithm. `simulate` does the same for sites and a graph.
"""

import secrets
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property
from textwrap import fill
from time import perf_counter
from typing import TYPE_CHECKING, Literal, TypeAlias, final, get_args

import numpy as np

from sottovoce.algorithms.base import Method, Outputs
from sottovoce.arrays import Array, Floats
from sottovoce.document import Part, Table, Words
from sottovoce.document.shown import Shown
from sottovoce.errors import PrivacyError, expect
from sottovoce.noise.sources import GivenNoise, NoiseFunction, SeededNoise, Shape, SystemNoise
from sottovoce.numerals import counted
from sottovoce.oracle.plain import Oracle
from sottovoce.privacy import PrivacyStatement
from sottovoce.privacy.statement import HOLDER_ONLY
from sottovoce.privacy.words import in_short
from sottovoce.problem.graphs import Graph, complete
from sottovoce.problem.problem import Problem
from sottovoce.problem.share import Share
from sottovoce.problem.sites import Sites
from sottovoce.progress import Progress, shown
from sottovoce.simulation.devices import Device, DeviceName, Precision, by_name
from sottovoce.simulation.exchange import EngineName, Exchange, Local, public_layout
from sottovoce.simulation.history import NODES_SCORED, OUTPUTS, History, measure, scored_nodes, usual_records
from sottovoce.sums.inference import Evidence
from sottovoce.sums.program import Opened
from sottovoce.tally.evaluation import Tallied

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Score: TypeAlias = Literal["risk", "accuracy"]
_SCORES: tuple[Score, ...] = get_args(Score)
# Called with the cost of all runs together, before any computation on rows; raises if that exceeds a budget.
Charge: TypeAlias = Callable[[PrivacyStatement], None]

# Called after every round; True ends the run there.
Stop: TypeAlias = Callable[[], bool]

# A sentence that a statement about private rows must include if the caller gave the noise.
HANDED_IN = (
    "The noise was handed in: the guarantee holds only if it was standard normal, fresh, and known to nobody who sees "
    "what was released."
)


@final
@dataclass(frozen=True, repr=False)
class Result(Shown):
    """The models, history and guarantee of a simulation. Models are (runs, nodes, d). `consensus`, (runs, d), is the
    mean over nodes of the last broadcasts; it is post-processing of releases, and costs nothing.

    `privacy` is for one run, as studies need it; with private rows, for all runs together. `history` is computed
    without noise, and no guarantee covers it. `rounds` is the number of rounds made, fewer than planned if the run was
    stopped. `private` says whether the rows are; if so, `print` shows no score. `evidence` holds, run by run, what
    coefficients are inferred from; it is empty if the algorithm does not ask for it or the run was stopped. `evaluated`
    holds, run by run, figures of merit from noisy sums, which the guarantee covers. `numbers` holds the count of
    numbers in a message of each round. `moments` is the noisy sum of the second moments of the rows, if all of it was
    opened: the guarantee covers it, and it costs nothing further.
    """

    average: Array
    last: Array
    consensus: Array
    history: History
    privacy: PrivacyStatement
    seed: int | None
    seconds: float
    rounds: int
    private: bool
    evidence: tuple[Evidence, ...] = ()
    evaluated: tuple[Tallied, ...] = ()
    numbers: tuple[int, ...] = ()
    moments: Opened | None = None

    def risk(self) -> dict[str, float]:
        """Mean over runs (and nodes) of the global mean loss, after the last round, by output."""
        return {name: float(self.history.final(f"risk_{name}").mean()) for name in OUTPUTS}

    def accuracy(self) -> dict[str, float]:
        """Mean over runs (and nodes) of the accuracy after the last round, by output."""
        return {name: float(self.history.final(f"accuracy_{name}").mean()) for name in OUTPUTS}

    def plot(self, score: Score = "risk", *, ax: "Axes | None" = None) -> "Axes":
        """Draw the mean loss or the accuracy of each output over the recorded rounds, with the range of all runs, and
        return matplotlib's axes. It is computed without noise; with private rows, a title says for whom.

        Args:
            score: "risk" or "accuracy". Accuracy is refused where labels are numbers.
            ax: the axes to draw on; None makes a figure.
        """
        from sottovoce.drawing import drawn_on

        known = [name for name in _SCORES if np.isfinite(self.history[f"{name}_last"]).all()]
        expect(score in known, f"a score among {', '.join(known)}", score=score)
        with drawn_on(ax, 5.4, 3.0) as axes:
            from sottovoce.drawing.shapes import over_rounds

            for number, name in enumerate(OUTPUTS):
                over_rounds(axes, self.history, f"{score}_{name}", name, number)
            axes.set_ylabel("mean loss" if score == "risk" else "accuracy")
            axes.legend()
            if self.private:
                axes.set_title(fill(HOLDER_ONLY, 60), fontsize="small")
        return axes

    def described(self) -> list[Part]:
        """What was run, how good the models are, and the guarantee. Scores of private rows are left out."""
        runs, nodes, numbers = self.last.shape
        facts = [
            ("Simulation", f"{counted(runs, 'run')} of {counted(self.rounds, 'round')}"),
            ("Models", f"{counted(nodes, 'site')}, {counted(numbers, 'number')} each"),
        ]
        if not self.private:  # how long a run takes may depend on its rows
            facts.append(("Seconds", f"{self.seconds:.3g}"))
        if self.seed is not None:
            facts.append(("Seed", str(self.seed)))
        short, whole = in_short(self.privacy, *facts)
        return [short, Words(_UNSHOWN, "soft") if self.private else self._scores(), whole]

    def _scores(self) -> Table:
        """Mean loss and accuracy of each output; the standard deviation over runs beside it, if there are several."""
        columns = {"mean loss": ("risk", 1.0, 4), "accuracy %": ("accuracy", 100.0, 2)}
        shown = {heading: how for heading, how in columns.items() if np.isfinite(self.history[f"{how[0]}_last"]).all()}
        rows = [
            (name, *(_mean(factor * self.history.final(f"{score}_{name}"), digits)
                     for score, factor, digits in shown.values()))
            for name in OUTPUTS
        ]  # fmt: skip
        return Table(("output", *shown), rows, frozenset(range(1, 1 + len(shown))))


_UNSHOWN = (
    "Scores are not shown: they are computed from private rows without noise. The holder of the rows finds them with "
    "risk(), accuracy() and history."
)


def _mean(values: Array, digits: int) -> str:
    spread = f" ± {np.std(values, ddof=1):.{digits}f}" if len(values) > 1 else ""
    return f"{np.mean(values):.{digits}f}{spread}"


@dataclass(frozen=True, eq=False)
class Solved:
    """A finished run with its problem, algorithm and oracle. It holds the rows."""

    problem: Problem
    algorithm: Method
    site: Oracle  # the rows, bound to the objective on the device of the run
    result: Result

    @property
    def weights(self) -> Floats:
        """The consensus of the first run, (features, outputs), in the units of the learnt labels."""
        flat: Floats = self.result.consensus[0].astype(np.float64)
        return flat.reshape(self.problem.sites.d, self.algorithm.loss.outputs)

    @cached_property
    def test_site(self) -> Oracle:
        """The oracle of the test rows with the same objective. The problem must have some."""
        test = self.problem.test
        assert test is not None
        sites = Sites(
            [test.features], [test.labels], data_norm=test.data_norm, private=test.private, factors=[test.factors]
        )
        return by_name("cpu").oracle(self.algorithm, sites, complete(1), "float64")

    def tested(self) -> dict[str, Array]:
        """Scores of the final models on the test rows, one entry per run."""
        # Results are (runs, nodes, d), and `measure` takes (nodes, d, runs).
        outputs = Outputs(*(models.transpose(1, 2, 0) for models in (self.result.average, self.result.last)))
        return measure(outputs, self.test_site, scored_nodes(self.problem.sites.n), Local(self.problem.graph.exchange))


def simulate(
    algorithm: Method,
    sites: Sites,
    graph: Graph,
    *,
    runs: int = 1,
    seed: int | None = None,
    noise: NoiseFunction | None = None,
    record: int | Iterable[int] | None = None,
    scored: int = NODES_SCORED,
    progress: Progress | bool = False,
    device: DeviceName = "cpu",
    dtype: Precision = "float64",
    engine: EngineName = "local",
) -> Result:
    """Run an algorithm on a network, `runs` independent times at once.

    Args:
        algorithm: the algorithm that every node runs.
        sites: the rows of the nodes.
        graph: the network; node i of the graph is site i.
        runs: the number of independent runs.
        seed: of the simulated noise; None draws one and reports it. The same seed gives the same result, whatever the
            number of threads, and run q does not depend on the number of runs. Refused with private rows.
        noise: a function that gives the noise: round k -> standard normals (runs, nodes, local_steps, d). None: seeded,
            or, with private rows, from the operating system's cryptographic source. With private rows, the statement
            mentions noise that was given.
        record: rounds to write into the history: a list, or a number of evenly spaced ones. The last round always is.
            None: ten, or fewer with so many rows that scoring them would take longer than learning.
        scored: the number of nodes, evenly spaced, whose models are scored; each needs a pass over all rows.
        progress: True shows a bar, on a terminal or in a notebook; a function gets (rounds done, rounds in all).
        device: "cpu" (compiled kernels, all cores), "cuda" (a GPU, through CuPy) or "plain" (NumPy, the reference).
        dtype: "float64", or "float32", which is about twice as fast and differs by rounding; refused with private rows.
        engine: "local" for one process; "mpi" for those that mpirun has started, with the same result bit by bit. Each
            is given all sites, works on its own share, and returns the models of that share; scores and consensus are
            of all sites.
    """
    with shown(progress) as report:
        return solve(
            Problem(sites, graph), algorithm, runs=runs, seed=seed, noise=noise, record=record, scored=scored,
            progress=report, device=device, dtype=dtype, engine=engine,
        ).result  # fmt: skip


def solve(
    problem: Problem, algorithm: Method, *, runs: int = 1, seed: int | None = None,
    noise: NoiseFunction | None = None, record: int | Iterable[int] | None = None, scored: int = NODES_SCORED,
    progress: Progress | None = None, device: DeviceName = "cpu", dtype: Precision = "float64",
    engine: EngineName = "local", charge: Charge | None = None, stop: Stop | None = None,
) -> Solved:  # fmt: skip
    """Run an algorithm on a problem; arguments as for `simulate`, but `progress` is a function or None.

    `charge` is called after everything that could be refused, and before any computation on rows but the checks of
    their form (and, if several processes were given all rows, of their being the same). If it raises, nothing was
    computed. A run that fails later is charged all the same.

    `stop` is called once before that, where True raises `KeyboardInterrupt`, and then after every round, where True
    ends the run with what was released so far. The statement still counts all rounds, and says so.
    """
    expect(runs >= 1, "runs >= 1", runs=runs)
    started = perf_counter()
    algorithm, where = algorithm.bound_to(*problem.shape), by_name(device)
    given = problem, seed
    problem, exchange = _join(problem, algorithm, where, engine)
    share, sites, n = exchange.share, problem.sites, problem.graph.n
    apart = () if share is None else (share, exchange.total)
    site = where.oracle(algorithm, sites, problem.graph, dtype, *apart)
    counted = runs if problem.private else 1  # in a study, runs repeat the same experiment
    one = algorithm.statement(site)
    statement = one.of_runs(counted)
    if problem.private:
        refuse_seed(seed)
        statement = statement if noise is None else statement.noting(HANDED_IN)
    seed = exchange.agreed(secrets.randbits(63) if seed is None else seed)
    shape = Shape(sites.n, site.d, runs, 0 if share is None else share.first, dtype=site.dtype.type)
    drawn = SystemNoise(shape) if problem.private else SeededNoise(seed, shape)
    if noise is not None:  # it is given for all nodes; this process takes the part of its own nodes
        own_noise = noise if share is None else lambda k: np.asarray(noise(k))[:, share.first : share.last]
    source = exchange.noise(drawn if noise is None else GivenNoise(own_noise, drawn))
    usual = usual_records(int(problem.counts.sum()), (2 * len(scored_nodes(n, scored)) + 1) * runs)
    recorded, history = _rounds_to_record(usual if record is None else record, algorithm.rounds), History()
    exchange.expect_same(
        _common_facts(given[0], algorithm, statement)
        | {"number of runs": runs, "seed": given[1], "source of noise": noise is None, "device": device, "dtype": dtype}
        | {"list of recorded rounds": sorted(recorded), "number of scored nodes": scored}
    )
    played = algorithm.play(site, runs, exchange, source)
    watched = exchange.either(stop is not None)
    if watched and exchange.either(stop is not None and stop()):
        raise KeyboardInterrupt
    if charge is not None and exchange.is_first:
        charge(one.of_runs(runs))
    exchange.agreed(True)  # no process looks at a row before the runs are charged

    stopped, numbers = False, list[int]()
    for k, after in enumerate(played, start=1):
        numbers.append(after.numbers)
        stopped = watched and k < algorithm.rounds and exchange.either(stop is not None and stop())
        if k in recorded or stopped:
            line = measure(after.outputs(), site, scored_nodes(n, scored), exchange)
            line["disagreement"] = where.to_host(line["disagreement"])
            spent = algorithm.spent(k, site, counted)
            history.add({"round": k, "run": np.arange(runs), "epsilon": spent, **line}, runs)
        if progress is not None:
            progress(k, algorithm.rounds)
        if stopped:
            statement = statement.noting(interrupted_after(k, algorithm.rounds))
            break

    models = Outputs(*map(where.to_host, after.outputs()))
    result = Result(
        average=public_layout(models.average),
        last=public_layout(models.last),
        consensus=exchange.published(models.last),
        history=history,
        privacy=statement.noting(*problem.notes),
        seed=seed if noise is None and not problem.private else None,
        seconds=perf_counter() - started,
        rounds=k,
        private=problem.private,
        evidence=after.evidence,
        evaluated=() if after.evaluation is None else after.evaluation.tallied(problem.answers.scale),
        numbers=tuple(numbers),
        moments=after.moments,
    )
    return Solved(problem, algorithm, site, result)


def interrupted_after(k: int, rounds: int) -> str:
    """The note that the statement of a run stopped after round k must include."""
    return (
        f"The run was interrupted after round {k} of {rounds}: the model is what had been released by then. The "
        f"guarantee, and every budget that was charged, count all {rounds} rounds."
    )


def refuse_seed(seed: int | None) -> None:
    """Raise `PrivacyError` if a seed is given for private rows."""
    if seed is not None:
        raise PrivacyError(
            f"Expected no seed with private rows, got seed={seed}. Whoever knows it can subtract the noise. Leave it "
            "out."
        )


def _rounds_to_record(record: int | Iterable[int], rounds: int) -> frozenset[int]:
    """The rounds to record, the last one included: those listed, or that number of evenly spaced ones."""
    if isinstance(record, int):
        points = min(record, rounds)
        expect(points >= 1, "at least one recorded round", record=record)
        record = [round(j * rounds / points) for j in range(1, points + 1)]
    chosen = frozenset(record) | {rounds}
    expect(
        min(chosen) >= 1 and max(chosen) <= rounds,
        f"recorded rounds within 1..{rounds}",
        record=sorted(chosen),
    )
    return chosen


def _join(problem: Problem, algorithm: Method, where: Device, engine: EngineName) -> tuple[Problem, Exchange]:
    """The part of the problem that this process works on, and its exchange with the others; it joins them for that."""
    expect(engine in get_args(EngineName), f"an engine among {', '.join(get_args(EngineName))}", engine=engine)
    if engine == "local":
        return problem, Local(where.exchange(problem.graph))
    from sottovoce.simulation.mpi import Ranks, joined

    comm = joined()
    own = Share.of(problem.counts, comm.rank, comm.size)
    share = own if problem.share is None else problem.share
    # Rows that two processes held would count twice.
    expect((share.first, share.last) == (own.first, own.last),
           f"sites {own.first} to {own.last - 1} in process {comm.rank} of {comm.size}", first=share.first,
           last=share.last - 1)  # fmt: skip
    problem = problem.part(comm.rank, comm.size) if problem.share is None else problem
    return problem, Ranks(comm, problem.graph, share, algorithm.way.one_model)


def _common_facts(problem: Problem, algorithm: Method, statement: PrivacyStatement) -> dict[str, object]:
    """What must be the same in all processes, by name: everything public and, if each was given all rows, the rows. One
    process charges the budget by its own statement, so the statements must be the same.
    """
    from sottovoce import __version__

    sites, cost = problem.sites, (statement.epsilon, statement.sigma)
    # Different machines may compute different last bits.
    rounded = ["none" if value is None else f"{value:.9g}" for value in cost]
    return {
        "version of sottovoce": __version__,
        "algorithm": algorithm,
        "privacy statement": (rounded, statement.delta, statement.target_epsilon, statement.runs, statement.notes),
        "graph": problem.graph,
        "number of rows of a site": problem.counts,
        "data_norm": sites.data_norm,
        "unit of privacy": sites.unit,
        "word on whether rows are private": sites.private,
        "set of features": (sites.d, problem.features, sites.factors.told),
        "schema": (problem.schema, problem.answers, problem.names, problem.notes),
        "set of rows": sites if problem.share is None else None,
    }
