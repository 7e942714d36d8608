"""How long one waits before anything is learnt: imports, the first call, a whole training run, each in a new process.

    python benchmarks/startup.py [--quick] [--source PATH]     prints one JSON object

Seconds are the least of several, by the clock and of the processor (all threads together): on a busy machine the second
says more. `--source` measures another version of the package, from the folder that holds it.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from time import perf_counter

TRAIN = ["train", "--rounds", "100", "--local-steps", "10", "--rho", "0.001", "--beside", "masked"]  # `make train`
CALLS = """
import json, time
from contextlib import contextmanager
found = {}
@contextmanager
def timed(name):
    clock, processor = time.perf_counter(), time.process_time()
    yield
    found[name] = time.perf_counter() - clock, time.process_time() - processor
with timed("import and set-up"):
    import sottovoce as sv
    sites, graph = sv.Sites.split(sv.datasets.adult(), 100, seed=0), sv.graphs.complete(100)
    algorithm = sv.IPADMM(rounds=3, local_steps=10, diameter=10.0)
for name in ("first call", "second call"):
    with timed(name):
        sv.simulate(algorithm, sites, graph, runs=10, seed=0, record=1)
print(json.dumps(found))
"""


def seconds(arguments, env):
    """Clock and processor of a process that must succeed, and what it printed."""
    started = perf_counter()
    process = subprocess.Popen([sys.executable, *arguments], env=env, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    out = process.stdout.read()
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"Expected {' '.join(arguments)[:60]} to succeed, got code {process.returncode}.")
    return (perf_counter() - started, usage.ru_utime + usage.ru_stime), out


def measure(repeats, source):
    found = {}

    def note(name, times):
        found[name] = [min(pair) for pair in zip(found.get(name, times), times, strict=True)]

    path = {} if source is None else {"PYTHONPATH": str(source.resolve())}
    for _ in range(repeats):
        with tempfile.TemporaryDirectory() as cache:
            env = os.environ | {"NUMBA_CACHE_DIR": cache} | path
            for state in ("empty", "filled"):
                calls = json.loads(seconds(["-c", CALLS], env)[1])
                note(f"first call of `simulate`, 10 runs, {state} cache", calls["first call"])
            note("`import sottovoce` and Adult dealt out to 100 sites", calls["import and set-up"])
            note("the same call again: what of the first is work", calls["second call"])
            note("`sottovoce --version`", seconds(["-m", "sottovoce.cli", "--version"], env)[0])
            seconds(["-m", "sottovoce.cli", *TRAIN], env)  # what `simulate` above did not need
            note("the command of `make train`, filled cache", seconds(["-m", "sottovoce.cli", *TRAIN], env)[0])
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="once each")
    parser.add_argument("--source", type=Path, help="a folder that holds the package `sottovoce`")
    options = parser.parse_args()
    print(json.dumps(measure(1 if options.quick else 4, options.source)))


if __name__ == "__main__":
    main()
