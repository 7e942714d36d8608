"""Networks of 10,000 to a million nodes, spread over processes: seconds and memory per node.

    python benchmarks/million.py [--ranks 2] [--only GRAPH] [--largest N] [--out benchmarks/million.json]

Every process makes its own nodes' rows (20 to 50 each) and its own rows of the adjacency matrix; nothing is ever made
whole. IPADMM, one run, double precision; on complete graphs masked sums, whose local steps are one gradient. What is
told of every case:

    seconds_per_round      wall clock, by the first process, without the first round, in which kernels are loaded
    busy_per_round         processor seconds of all processes outside the exchange: on a machine that does other work as
                           well, wall clock says little (`load_before`)
    exchange_microseconds_per_node    processor seconds within the exchange, in part of waiting
    exchange_share         wall-clock seconds within the exchange, waiting for the other process included, over all of
                           the rounds
    bytes_per_node         what all processes hold at most, less what they hold before anything is made, over nodes
"""

import argparse
import json
import os
import resource
import subprocess
import sys
from math import isqrt
from pathlib import Path
from time import perf_counter, process_time

import machine

GRAPHS, SIZES = ("ring", "grid", "random-cycles", "complete"), (10_000, 100_000, 1_000_000)
FEATURES, ROWS, ROUNDS, STEPS = 8, (20, 50), 6, 5
HERE = Path(__file__).parent
# Of linear algebra, in every process, as in commands: two processes with two threads each wait for one another.
ONE_THREAD = os.environ | {"OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}


def graph_of(name, n):
    import sottovoce as sv

    side = isqrt(n)
    made = {
        "ring": lambda: sv.graphs.ring(n), "grid": lambda: sv.graphs.grid(side, n // side),
        "random-cycles": lambda: sv.graphs.random_cycles(n, 4), "complete": lambda: sv.graphs.complete(n),
    }  # fmt: skip
    return made[name]()


def algorithm_on(name):
    import sottovoce as sv

    if name == "complete":
        return sv.MaskedNewton(rounds=ROUNDS, epsilon=4.0)
    return sv.IPADMM(rounds=ROUNDS, local_steps=STEPS, epsilon=4.0, rho=0.01)


class Watch:
    """How long a method of a class takes in all, by the clock and by the processor."""

    def __init__(self, kind, name):
        self.wall = self.busy = 0.0
        inner = getattr(kind, name)

        def timed(*arguments):
            wall, busy = perf_counter(), process_time()
            try:
                return inner(*arguments)
            finally:
                self.wall, self.busy = self.wall + perf_counter() - wall, self.busy + process_time() - busy

        setattr(kind, name, timed)


def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def work(name, n):
    """What one of the processes does; the first prints what it all took."""
    from sottovoce.simulation import mpi
    from sottovoce.simulation.engine import solve
    from sottovoce.simulation.synthetic import made_up

    comm = mpi.joined()
    algorithm = algorithm_on(name)
    small = made_up(graph_of(name, 100), FEATURES, ROWS, 0, comm.rank, comm.size)
    solve(small, algorithm, seed=0, record=1, scored=2, engine="mpi")  # kernels are loaded
    before, started = peak(), perf_counter()
    graph = graph_of(name, n)
    n = graph.n
    problem = made_up(graph, FEATURES, ROWS, 0, comm.rank, comm.size)
    comm.Barrier()
    built = perf_counter() - started
    ends = []
    watch = Watch(mpi.Ranks, "total") if name == "complete" else Watch(mpi.Halo, "neighbour_sum")

    def told(_done, _rounds):
        ends.append((perf_counter(), process_time(), watch.wall, watch.busy))

    result = solve(problem, algorithm, seed=0, record=[ROUNDS], scored=2, progress=told, engine="mpi").result
    last, first = ends[-2], ends[0]  # the last round is scored, too
    wall, used, waited, busy = (b - a for a, b in zip(first, last, strict=True))
    rounds = ROUNDS - 2
    held = comm.allreduce(peak() - before)
    exchanged = comm.allreduce(busy) / rounds
    busy = comm.allreduce(used - busy) / rounds
    shares, rows = comm.allgather(waited / wall), int(problem.counts.sum())
    if comm.rank == 0:
        print(json.dumps({
            "graph": name, "nodes": n, "rows": rows, "build_seconds": built, "seconds_per_round": wall / rounds,
            "busy_per_round": busy, "microseconds_per_node": 1e6 * wall / rounds / n,
            "busy_microseconds_per_node": 1e6 * busy / n, "exchange_microseconds_per_node": 1e6 * exchanged / n,
            "exchange_share": sum(shares) / len(shares),
            "bytes": held, "bytes_per_node": held / n, "seconds": result.seconds,
            "risk": float(result.history.final("risk_consensus")[0]),
            "accuracy": float(result.history.final("accuracy_consensus")[0]),
        }))  # fmt: skip


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--only")
    parser.add_argument("--largest", type=int, default=SIZES[-1])
    parser.add_argument("--out", type=Path, default=HERE / "million.json")
    parser.add_argument("--work", nargs=2)
    options = parser.parse_args()
    if options.work:
        work(options.work[0], int(options.work[1]))
        return
    out = {"machine": machine.describe(("sottovoce", "numpy", "numba", "mpi4py", "openmpi")), "ranks": options.ranks,
           "features": FEATURES, "rows_per_node": ROWS, "rounds": ROUNDS, "local_steps": STEPS,
           "cases": []}  # fmt: skip
    for name in GRAPHS:
        for n in SIZES:
            if (options.only or name) != name or n > options.largest:
                continue
            load = machine.busy()
            command = [
                "mpirun",
                "--oversubscribe",
                "-n",
                str(options.ranks),
                sys.executable,
                __file__,
                "--work",
                name,
                str(n),
            ]
            told = subprocess.run(command, check=True, capture_output=True, text=True, env=ONE_THREAD).stdout
            case = json.loads(told[told.index("{") : told.rindex("}") + 1]) | {"load_before": load}
            print(json.dumps(case), flush=True)
            out["cases"].append(case)
            options.out.write_text(json.dumps(out, indent=1) + "\n")


if __name__ == "__main__":
    main()
