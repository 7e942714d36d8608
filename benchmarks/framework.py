"""A framework that users might pick instead, in a process and an environment of its own; prints one JSON object.

python framework.py MODULE PROBLEM ROUNDS THREADS
"""

import importlib
import json
import os
import sys
from pathlib import Path

HERE = str(Path(__file__).parent)


def main(module, path, rounds, threads):
    answers, sys.stdout = sys.stdout, sys.stderr
    os.environ |= {
        "BENCH_PROBLEM": str(Path(path).resolve()), "PYTHONPATH": HERE, "RAY_USAGE_STATS_ENABLED": "0",
        "FLWR_TELEMETRY_ENABLED": "0", "WANDB_MODE": "disabled", "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1",
        "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    }  # fmt: skip
    sys.path.insert(0, HERE)
    from problem import load

    measured = importlib.import_module(f"contenders.{module}").measure(load(path), int(rounds), int(threads))
    print(json.dumps(measured | {"threads": int(threads)}), file=answers, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
