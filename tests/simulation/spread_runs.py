"""Runs that are to come out the same however many processes share them; started by mpirun, and imported by the test.

mpirun -n 4 python spread_runs.py OUT      runs all on 1, 2, 3 and 4 of the processes, and writes what came out
mpirun -n 3 python spread_runs.py fail     the last process fails in the middle of a run
"""

import sys
from pathlib import Path

import numpy as np

import sottovoce as sv
from sottovoce.problem.losses import Softmax
from sottovoce.problem.problem import Problem
from sottovoce.simulation.engine import solve

SIZES = (3, 40, 8, 17, 25, 6, 90, 12, 5)
MANY = tuple(1 + node % 5 for node in range(300))  # more nodes than blocks: each block holds three


SECRET = [np.full((4, 3), 0.5)] * 8, [[1.0, -1.0, 1.0, 1.0]] * 8


def sites(sizes, d=6, sparse=False, classes=2):
    rng = np.random.default_rng(7)
    features = [rng.normal(size=(m, d)) / (3 * np.sqrt(d)) for m in sizes]
    features = [a / np.maximum(1, np.linalg.norm(a, axis=1, keepdims=True)) for a in features]
    if classes > 2:
        labels = [rng.integers(classes, size=m).astype(float) for m in sizes]
    else:
        labels = [np.where(rng.random(m) < 0.3, 1.0, -1.0) for m in sizes]
    if sparse:
        from scipy.sparse import csr_array

        features = [csr_array(np.where(np.abs(a) < 0.1, 0, a)) for a in features]
    return sv.Sites(features, labels)


def cases():
    """Name -> (algorithm, sites, graph, runs, other options of `simulate`)."""
    few, many, narrow = sites(SIZES), sites(MANY), sites(SIZES, d=1)
    steps, whole = {"rounds": 3, "local_steps": 3, "epsilon": 2.0}, sv.graphs.complete(9)
    some = {
        "ring": (sv.IPADMM(**steps), few, sv.graphs.ring(9), 3),
        "ring, one feature": (sv.IPADMM(**steps), narrow, sv.graphs.ring(9), 1),
        "one feature, several runs": (sv.IPADMM(**steps), narrow, whole, 3),
        "grid": (sv.IPADMM(**steps), sites(SIZES, sparse=True), sv.graphs.grid(3, 3), 2),
        "complete": (sv.IPADMM(**steps), few, whole, 2),
        "random cycles, many nodes": (sv.IPADMM(**steps), many, sv.graphs.random_cycles(300, 4), 2),
        "batches": (sv.IPADMM(batch_size=3, **steps), few, sv.graphs.ring(9), 2),
        "weights, tight": (sv.IPADMM(weights="rows", sensitivity="tight", **steps), few, sv.graphs.ring(9), 2),
        "head start": (sv.IPADMM(moments=0.2, sensitivity="tight", **steps), few, whole, 2),
        "single precision, complete": (sv.IPADMM(**steps), few, whole, 2, {"dtype": "float32"}),
        "noise handed in": (sv.IPADMM(**steps), few, sv.graphs.ring(9), 2, {"noise": handed_in}),
        "masked": (sv.MaskedNewton(epsilon=2.0, rounds=5), few, whole, 3),
        "masked, many nodes": (sv.MaskedNewton(epsilon=2.0), many, sv.graphs.complete(300), 2),
        "masked, inference and evaluation": (
            sv.MaskedNewton(epsilon=2.0, rounds=8, inference=True, evaluate=0.2), few, whole, 1,
        ),
        "masked, asked for": (
            sv.MaskedNewton(epsilon=2.0, rounds=7, inference=True, focus=(1,)), few, whole, 1,
        ),
        "masked, several classes": (
            sv.MaskedNewton(epsilon=2.0, rounds=4, loss=Softmax(3)), sites(SIZES, classes=3), whole, 1,
        ),
    }  # fmt: skip
    rivals = {"dp-dsgd": sv.DPDSGD, "dp-admm": sv.DPADMM, "ryu-kim": sv.RyuKim, "pvp": sv.PVP}
    for name, kind in rivals.items():
        settings = {key: value for key, value in steps.items() if key in kind.__dataclass_fields__}
        some[name] = kind(**settings, rho=0.5), few, sv.graphs.grid(3, 3), 2
    some["trusted curator"] = sv.TrustedCurator(rounds=3, epsilon=2.0), few, whole, 2
    return some


def shared_by(ranks):
    """The names of those that so many processes run: one process alone has no chain and no halo, so a few will do."""
    return ("ring", "complete", "dp-dsgd", "masked") if ranks == 1 else tuple(cases())


def handed_in(k):
    """Normals of round k for two runs of the nodes, three steps, six features."""
    return np.random.default_rng(k).normal(size=(2, len(SIZES), 3, 6))


def numbers(result, average, last):
    """All that a run gives, by name."""
    found = {"average": average, "last": last, "consensus": result.consensus}
    found |= {f"history {name}": result.history[name] for name in result.history}
    for run, evidence in enumerate(result.evidence):
        found[f"hessian {run}"] = evidence.hessian
    for run, tallied in enumerate(result.evaluated):
        found[f"evaluated {run}"] = np.array([repr(tallied)])
    return found


def alone(case):
    """By one process, without MPI."""
    algorithm, held, graph, runs, *options = case
    result = sv.simulate(algorithm, held, graph, runs=runs, seed=3, record=1, **dict(*options))
    return numbers(result, result.average, result.last)


def together(case, comm):
    """By all processes of a communicator; what came out is the same for all."""
    algorithm, held, graph, runs, *options = case
    result = sv.simulate(algorithm, held, graph, runs=runs, seed=3, record=1, engine="mpi", **dict(*options))
    models = (np.concatenate(comm.allgather(part), axis=1) for part in (result.average, result.last))
    return numbers(result, *models)


def disagreements(rank):
    """Name -> what a process runs, where process 1 was given something else than the others."""
    odd, whole, ring = rank == 1, sv.graphs.complete(8), sv.graphs.ring(8)
    last = [a.copy() for a in SECRET[0]]
    last[7][3, 2] -= 0.25 * odd
    fewer = [[*SECRET[0][:7], SECRET[0][7][:3]], [*SECRET[1][:7], SECRET[1][7][:3]]]
    return {
        "algorithm": {"algorithm": sv.IPADMM(rounds=2, epsilon=100.0 if odd else 1.0)},
        "graph": {"graph": ring if odd else whole},
        "other graph": {"graph": sv.graphs.path(8) if odd else ring},
        "number of rows": {"features": fewer[0] if odd else SECRET[0], "labels": fewer[1] if odd else SECRET[1]},
        "data_norm": {"data_norm": 0.9 if odd else 1.0},
        "private": {"private": not odd},
        "set of rows": {"features": last},
        "runs": {"runs": 2 if odd else 1},
        "recorded rounds": {"record": 2 if odd else 1},
    }


def refused(features=SECRET[0], labels=SECRET[1], graph=None, algorithm=None, data_norm=1.0, private=True, **options):
    """What a process is told that runs this; nothing where it is not refused, and an exclamation mark if it charged."""
    held = sv.Sites(features, labels, data_norm=data_norm, private=private)
    problem, charged = Problem(held, graph or sv.graphs.complete(8)), []
    try:
        solve(
            problem, algorithm or sv.IPADMM(rounds=2), **{"record": 1, **options}, charge=charged.append, engine="mpi"
        )
    except sv.InputError as error:
        return f"{error}{'!' * len(charged)}"
    return ""


def main():
    from sottovoce.simulation import mpi

    comm = mpi.joined()
    if sys.argv[1] == "fail":
        algorithm, held, graph, _ = cases()["ring"]

        def told(done, _rounds):
            if comm.rank == comm.size - 1 and done == 2:
                raise sv.InputError("Expected a disk, got none. Buy one.")

        sv.simulate(algorithm, held, graph, seed=3, progress=told, engine="mpi")
        return
    found = {}
    all_of_them = cases()
    for ranks in range(1, comm.size + 1):
        part = comm.Split(comm.rank < ranks)
        if comm.rank < ranks:
            mpi.joined = lambda part=part: part
            for name in shared_by(ranks):
                came = together(all_of_them[name], part)
                found |= {f"{ranks}/{name}/{key}": value for key, value in came.items()}
    mpi.joined = lambda: comm
    secret = sv.Sites([a.copy() for a in SECRET[0]], SECRET[1], private=True)
    for name, algorithm in {"masked": sv.MaskedNewton(epsilon=1.0, rounds=4), "own": sv.IPADMM(rounds=2)}.items():
        result = sv.simulate(algorithm, secret, sv.graphs.complete(8), record=1, engine="mpi")
        found[f"private {name}"] = np.concatenate(comm.allgather(result.last), axis=1)
    for name, options in disagreements(comm.rank).items():
        found[f"refused {name}"] = np.array(comm.allgather(refused(**options)))
    if comm.rank == 0:
        np.savez(Path(sys.argv[1]), **found)


if __name__ == "__main__":
    main()
