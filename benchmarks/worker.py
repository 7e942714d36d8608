"""One contender in a process of its own. Reads one JSON object per line, answers with one per line.

    python worker.py MODULE VARIANT THREADS PROBLEM [--first RUNS]

`--first` times the import and the first round, compilation included, and ends.
"""

import importlib
import json
import os
import sys
from pathlib import Path
from time import perf_counter

STARTED = perf_counter()


def main(module, variant, threads, path, *first):
    threads = int(threads)
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:threads])
    answers, sys.stdout = sys.stdout, sys.stderr  # whatever a library prints is not an answer
    sys.path.insert(0, str(Path(__file__).parent))
    import numpy as np

    from problem import load

    problem = load(path)
    contender = importlib.import_module(f"contenders.{module}").Contender(problem, variant, threads)

    def say(**answer):
        print(json.dumps(answer), file=answers, flush=True)

    if first:
        ready = perf_counter()
        contender.seconds(int(first[1]), 1)
        say(import_s=ready - STARTED, first_s=perf_counter() - ready)
        return
    error = np.abs(np.asarray(contender.last(problem.noise), np.float64) - problem.expected).max()
    say(error=float(error / np.abs(problem.expected).max()))
    for line in sys.stdin:
        say(seconds=contender.seconds(**json.loads(line)))


if __name__ == "__main__":
    main(*sys.argv[1:])
