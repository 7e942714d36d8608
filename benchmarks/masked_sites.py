"""Masked sums at real sites: a process each, on one machine, over one server.

    python benchmarks/masked_sites.py [--only CASE] [--out benchmarks/masked_sites.json]

    adult    five sites with a fifth of Adult each, epsilon 1, one colluding: `sottovoce federation demo --masked`.
             Seconds are from the last signature under the agreement to the last statement, certificates and the
             start of the server included.
    others   sites that hold a few random rows: how many, and how wide, one machine bears. Seconds are from the first
             process to the last model.

`cpu_seconds` is what all processes used: on a machine that does other work as well, seconds say little (`load_before`).
"""

import argparse
import asyncio
import json
import multiprocessing
import resource
import subprocess
import sys
import tempfile
from pathlib import Path
from time import perf_counter

import machine

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))
import sottovoce as sv
from helpers.network_server import NatsServer
from helpers.network_worlds import JetStreamWorld
from helpers.site_runs import Federation
from sottovoce.federation.site.mail import Pace, largest_message

CASES = {"forty sites": (40, 104), "moments of 500 features": (10, 500), "diagonal of 10,000 features": (3, 10_000)}
ROUNDS, ROWS = 11, 50
fork = multiprocessing.get_context("fork")


def cpu():
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def adult(folder):
    """As a user would; the simulator's accuracy beside it."""
    out, before = folder / "demo", cpu()
    command = [sys.executable, "-m", "sottovoce.cli", "federation", "demo", "--masked", "--json", "--out", str(out)]
    told = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    began = max(path.stat().st_mtime for path in out.glob("*.sig"))
    ended = max(path.stat().st_mtime for path in out.glob("*/statement.txt"))
    return {
        "seconds": ended - began, "cpu_seconds_with_scoring": cpu() - before, "exchanges": told["sites"][0]["rounds"],
        "accuracy": told["accuracy"], "simulated": told["simulated"],
    }  # fmt: skip


def many(server, folder, sites, features):
    """One run; how long it took, and whether all ended with one model."""
    algorithm = sv.MaskedNewton(rounds=ROUNDS, epsilon=1.0, delta=1e-5, colluding=1, least_sites=sites)
    names = tuple(f"site-{i}" for i in range(sites))
    with Federation(sv.graphs.complete(sites), (ROWS,) * sites, algorithm, d=features, names=names) as made:
        made.folder = folder
        world = JetStreamWorld(server, largest_message(made.agreement))
        asyncio.run(made_ready(world))
        began, before = perf_counter(), cpu()
        ways = [fork.Pipe(duplex=False) for _ in names]
        lives = [
            fork.Process(target=live, args=(made, name, world, there))
            for name, (_, there) in zip(names, ways, strict=True)
        ]
        for life in lives:
            life.start()
        models = {here.recv() for here, _ in ways}
        seconds = perf_counter() - began
        for life in lives:
            life.join()
    return {
        "sites": sites, "features": features, "exchanges": ROUNDS, "models": len(models), "seconds": seconds,
        "cpu_seconds": cpu() - before, "largest_message_bytes": largest_message(made.agreement),
    }  # fmt: skip


async def made_ready(world):
    async with await world.site("site-0"):
        pass


def live(made, name, world, there):
    there.send(asyncio.run(made.site(name, world, pace=Pace())).model.tobytes())


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=Path, default=Path(__file__).with_suffix(".json"))
    parser.add_argument("--only", choices=("adult", *CASES), action="append")
    given = parser.parse_args()
    out = json.loads(given.out.read_text()) if given.only and given.out.exists() else {}
    out["machine"] = machine.describe(("sottovoce", "numpy", "cryptography", "numba"))
    with tempfile.TemporaryDirectory() as name, NatsServer(name) as server:
        for case in given.only or ("adult", *CASES):
            folder, load = Path(name) / case, machine.busy()
            folder.mkdir()
            found = adult(folder) if case == "adult" else many(server, folder, *CASES[case])
            out[case] = found | {"load_before": load}
            given.out.write_text(f"{json.dumps(out, indent=2)}\n")
    print(given.out.read_text())


if __name__ == "__main__":
    main()
