"""The simulator: a whole network, many runs at once, in one process.

There is one way from a problem and an algorithm to a result, and it is `solve`: it binds the rows to the objective,
states what the runs cost, has them paid for, and makes them. `simulate` is the same for sites and a graph in hand.
"""

import secrets
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property
from time import perf_counter
from typing import TypeAlias, get_args

import numpy as np

from sottovoce.algorithms.base import Method, Outputs
from sottovoce.arrays import Array, Floats
from sottovoce.errors import PrivacyError, expect
from sottovoce.noise.sources import GivenNoise, NoiseFunction, SeededNoise, Shape, SystemNoise
from sottovoce.oracle.plain import Oracle
from sottovoce.privacy import PrivacyStatement
from sottovoce.problem.graphs import Graph, complete
from sottovoce.problem.problem import Problem
from sottovoce.problem.share import Share
from sottovoce.problem.sites import Sites
from sottovoce.simulation.devices import Device, DeviceName, Precision, by_name
from sottovoce.simulation.exchange import EngineName, Exchange, Local, public_layout
from sottovoce.simulation.history import NODES_SCORED, OUTPUTS, History, measure, scored_nodes, usual_records
from sottovoce.sums.inference import Evidence
from sottovoce.tally.evaluation import Tallied

Progress: TypeAlias = Callable[[int, int], None]
# Told what all runs together cost, before a row is looked at; raises where that does not fit into a budget.
Charge: TypeAlias = Callable[[PrivacyStatement], None]

# Asked after every round whether to leave it at that.
Stop: TypeAlias = Callable[[], bool]

# What a statement about private rows must say of noise that was not drawn here.
HANDED_IN = (
    "The noise was handed in: the guarantee holds only if it was standard normal, fresh, and known to nobody who sees "
    "what was released."
)


@dataclass(frozen=True)
class Result:
    """The models, history and guarantee of a simulation. Models are (runs, nodes, d). `consensus`, (runs, d), is the
    mean over nodes of the last broadcasts, and free post-processing of what was released anyway.

    `privacy` is about one run, as a study means it; of private rows, about all runs together. `history` is computed
    without noise and is covered by no guarantee. `rounds` were made: fewer than asked for if it was stopped.
    `evidence` has what coefficients are inferred from, run by run; none if that was not asked for, or it was stopped.
    `evaluated` says as much, run by run, of how good the model is by noisy sums, which the guarantee covers.
    `numbers` says how many numbers a message of each round held.
    """

    average: Array
    last: Array
    consensus: Array
    history: History
    privacy: PrivacyStatement
    seed: int | None
    seconds: float
    rounds: int
    evidence: tuple[Evidence, ...] = ()
    evaluated: tuple[Tallied, ...] = ()
    numbers: tuple[int, ...] = ()

    def risk(self) -> dict[str, float]:
        """Mean over runs (and nodes) of the global mean loss, after the last round, by output."""
        return {name: float(self.history.final(f"risk_{name}").mean()) for name in OUTPUTS}

    def accuracy(self) -> dict[str, float]:
        """Mean over runs (and nodes) of the share of right answers, after the last round, by output."""
        return {name: float(self.history.final(f"accuracy_{name}").mean()) for name in OUTPUTS}


@dataclass(frozen=True, eq=False)
class Solved:
    """A finished run with its problem, algorithm and oracle. It holds the rows."""

    problem: Problem
    algorithm: Method
    site: Oracle  # the rows, bound to the objective on the device of the run
    result: Result

    @property
    def weights(self) -> Floats:
        """The consensus of the first run, (features, outputs), in the units that it was learnt in."""
        flat: Floats = self.result.consensus[0].astype(np.float64)
        return flat.reshape(self.problem.sites.d, self.algorithm.loss.outputs)

    @cached_property
    def test_site(self) -> Oracle:
        """The test rows, bound to the same objective."""
        test = self.problem.test
        assert test is not None  # whoever asks knows that there are some
        sites = Sites(
            [test.features], [test.labels], data_norm=test.data_norm, private=test.private, factors=[test.factors]
        )
        return by_name("cpu").oracle(self.algorithm, sites, complete(1), "float64")

    def tested(self) -> dict[str, Array]:
        """Scores of the final models on the test rows, one entry per run."""
        # Results are (runs, nodes, d); scores are taken of (nodes, d, runs).
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
    progress: Progress | None = None,
    device: DeviceName = "cpu",
    dtype: Precision = "float64",
    engine: EngineName = "local",
) -> Result:
    """Run an algorithm on a network, `runs` independent times at once.

    Args:
        algorithm: what every node does.
        sites: the private rows of the nodes.
        graph: who speaks with whom; node i of the graph is site i.
        runs: how many independent runs.
        seed: of the simulated noise; None draws one and reports it. The same seed gives the same result, whatever the
            number of threads, and run q of many is run q of few. Refused with private rows.
        noise: hand the noise in: round k -> standard normals (runs, nodes, local_steps, d). None: seeded, or, with
            private rows, from the operating system's cryptographic source. Of private rows, the statement says so.
        record: rounds to write into the history: a list, or a number of evenly spaced ones. The last round always is.
            None: ten; fewer where there are so many rows that scoring them would take longer than learning.
        scored: of how many nodes, evenly spaced, the models are scored; a global risk needs every row for each of them.
        progress: called with (rounds done, rounds in all).
        device: "cpu" (compiled kernels, all cores), "cuda" (a GPU, through CuPy) or "plain" (NumPy, the reference).
        dtype: "float64", or "float32", which is about twice as fast and differs by rounding; refused with private rows.
        engine: "local", one process; or "mpi", those that mpirun has started, with the same result bit by bit. Each is
            given all sites, works on its own, and gets the models of these alone; scores and consensus are of all.
    """
    return solve(
        Problem(sites, graph), algorithm, runs=runs, seed=seed, noise=noise, record=record, scored=scored,
        progress=progress, device=device, dtype=dtype, engine=engine,
    ).result  # fmt: skip


def solve(
    problem: Problem, algorithm: Method, *, runs: int = 1, seed: int | None = None,
    noise: NoiseFunction | None = None, record: int | Iterable[int] | None = None, scored: int = NODES_SCORED,
    progress: Progress | None = None, device: DeviceName = "cpu", dtype: Precision = "float64",
    engine: EngineName = "local", charge: Charge | None = None, stop: Stop | None = None,
) -> Solved:  # fmt: skip
    """Run an algorithm on a problem; arguments as for `simulate`.

    `charge` is called when nothing is left to be refused and nothing but the form of the rows was looked at (and, where
    several processes were given all rows, whether these are the same). If it raises, nothing was computed; what fails
    later is paid for all the same.

    `stop` is asked once before that, where True is an interruption (`KeyboardInterrupt`), and then after every round,
    where it ends the run with what was released so far. The statement goes on counting all rounds, and says so.
    """
    expect(runs >= 1, "runs >= 1", runs=runs)
    started = perf_counter()
    algorithm, where = algorithm.bound_to(*problem.shape), by_name(device)
    given = problem, seed
    problem, exchange = _spread(problem, algorithm, where, engine)
    share, sites, n = exchange.share, problem.sites, problem.graph.n
    apart = () if share is None else (share, exchange.total)
    site = where.oracle(algorithm, sites, problem.graph, dtype, *apart)
    counted = runs if problem.private else 1  # in a study, runs are repetitions of one and the same experiment
    one = algorithm.statement(site)
    statement = one.of_runs(counted)
    if problem.private:
        refuse_seed(seed)
        statement = statement if noise is None else statement.noting(HANDED_IN)
    seed = exchange.agreed(secrets.randbits(63) if seed is None else seed)
    shape = Shape(sites.n, site.d, runs, 0 if share is None else share.first, dtype=site.dtype.type)
    drawn = SystemNoise(shape) if problem.private else SeededNoise(seed, shape)
    if noise is not None:  # it is handed in for all nodes; this process takes that of its own
        own_noise = noise if share is None else lambda k: np.asarray(noise(k))[:, share.first : share.last]
    source = exchange.noise(drawn if noise is None else GivenNoise(own_noise, drawn))
    usual = usual_records(int(problem.counts.sum()), (2 * len(scored_nodes(n, scored)) + 1) * runs)
    recorded, history = _rounds_to_record(usual if record is None else record, algorithm.rounds), History()
    exchange.expect_same(
        _rests_on(given[0], algorithm, statement)
        | {"number of runs": runs, "seed": given[1], "source of noise": noise is None, "device": device, "dtype": dtype}
        | {"list of recorded rounds": sorted(recorded), "number of scored nodes": scored}
    )
    played = algorithm.play(site, runs, exchange, source)
    watched = exchange.either(stop is not None)
    if watched and exchange.either(stop is not None and stop()):
        raise KeyboardInterrupt
    if charge is not None and exchange.speaks:
        charge(one.of_runs(runs))
    exchange.agreed(True)  # nobody looks at a row before it is paid for

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
        evidence=after.evidence,
        evaluated=() if after.evaluation is None else after.evaluation.tallied(problem.answers.scale),
        numbers=tuple(numbers),
    )
    return Solved(problem, algorithm, site, result)


def interrupted_after(k: int, rounds: int) -> str:
    """The note that the statement of a stopped run must carry."""
    return (
        f"The run was interrupted after round {k} of {rounds}: the model is what had been released by then. The "
        f"guarantee, and every budget that was charged, count all {rounds} rounds."
    )


def refuse_seed(seed: int | None) -> None:
    """Refuse to seed what protects private rows."""
    if seed is not None:
        raise PrivacyError(
            f"Expected no seed with private rows, got seed={seed}. Whoever knows it can subtract the noise. Leave it "
            "out."
        )


def _rounds_to_record(record: int | Iterable[int], rounds: int) -> frozenset[int]:
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


def _spread(problem: Problem, algorithm: Method, where: Device, engine: EngineName) -> tuple[Problem, Exchange]:
    """The part of the problem that this process works on, and its exchange with the others."""
    expect(engine in get_args(EngineName), f"an engine among {', '.join(get_args(EngineName))}", engine=engine)
    if engine == "local":
        return problem, Local(where.exchange(problem.graph))
    from sottovoce.simulation.mpi import Ranks, joined

    comm = joined()
    own = Share.of(problem.counts, comm.rank, comm.size)
    share = own if problem.share is None else problem.share
    # Rows that two processes held would be spoken of twice.
    expect((share.first, share.last) == (own.first, own.last),
           f"sites {own.first} to {own.last - 1} in process {comm.rank} of {comm.size}", first=share.first,
           last=share.last - 1)  # fmt: skip
    problem = problem.part(comm.rank, comm.size) if problem.share is None else problem
    return problem, Ranks(comm, problem.graph, share, algorithm.way.one_model)


def _rests_on(problem: Problem, algorithm: Method, statement: PrivacyStatement) -> dict[str, object]:
    """The facts that all processes must share, by name: all that is public and, where each was given all rows, these.
    The budget is charged by one process's statement, so all must state the same.
    """
    from sottovoce import __version__

    sites, cost = problem.sites, (statement.epsilon, statement.sigma)
    # Other machines may find the last bits of what they compute otherwise.
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
