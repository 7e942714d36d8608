"""The library on a GPU: the same problem, noise and updates included.

    python benchmarks/gpu.py [--quick] [--out benchmarks/gpu.json]

Needs numpy, scipy, numba, networkx, cupy and the library. First the GPU must give the CPU's numbers, for handed-in
noise and for a seed; then seconds per run and step, for several numbers of runs, in both precisions.
"""

import argparse
import json
import statistics
from dataclasses import replace
from pathlib import Path

import cupy
import numpy as np

import machine
import ours
import problem

RUNS = (64, 256, 1000, 4000)
TOLERANCE = {"float32": 1e-4, "float64": 1e-9}


def check(dtype, runs=5, rounds=3):
    """Largest difference from the CPU, relative to the largest number; by source of noise."""
    algorithm, sites, graph = problem.pieces(rounds)
    given = np.random.default_rng(1).standard_normal((rounds, runs, graph.n, algorithm.local_steps, sites.d))
    found = {}
    for name, noise in (("handed in", {"noise": lambda k: given[k - 1]}), ("seeded", {"seed": 7})):
        cpu, gpu = (
            ours.simulate(algorithm, sites, graph, runs=runs, device=device, dtype=dtype, **noise)
            for device in ("cpu", "cuda")
        )
        largest = np.abs(cpu.last).max()
        pairs = ((cpu.last, gpu.last), (cpu.average, gpu.average))
        found[name] = max(float(np.abs(a - b).max() / largest) for a, b in pairs)
        if not found[name] <= TOLERANCE[dtype]:
            raise SystemExit(f"{dtype}, noise {name}: GPU and CPU differ by {found[name]:.1e} of the largest number")
    return found


def measure(dtype, runs, repeats, target_s):
    algorithm, sites, graph = problem.pieces()

    def per_round(rounds):
        return ours.seconds_per_round(
            lambda t: replace(algorithm, rounds=t), sites, graph, rounds,
            wait=cupy.cuda.Device().synchronize, runs=runs, device="cuda", dtype=dtype,
        )  # fmt: skip

    rounds = int(np.clip(target_s / per_round(3), 5, 500))
    times = [per_round(rounds) / (runs * algorithm.local_steps) for _ in range(repeats)]
    return {"dtype": dtype, "runs": runs, "seconds": min(times), "median": statistics.median(times), "rounds": rounds}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="a smoke test")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "gpu.json")
    options = parser.parse_args()
    if not ours.has_devices():
        raise SystemExit("Expected a version of the library with devices.")
    repeats, target_s = (1, 0.05) if options.quick else (5, 1.0)
    properties = cupy.cuda.runtime.getDeviceProperties(0)
    out = {
        "machine": machine.describe(("sottovoce", "numpy", "numba", "cupy-cuda12x", "cupy-cuda13x", "cupy")),
        "gpu": properties["name"].decode(),
        "gpu_memory_gib": round(properties["totalGlobalMem"] / 2**30),
        "quick": options.quick,
        "errors": {},
        "rows": [],
    }
    for dtype in TOLERANCE:
        out["errors"][dtype] = check(dtype)
        print(f"{dtype}: the GPU gives the CPU's numbers, to {max(out['errors'][dtype].values()):.1e}", flush=True)
        for runs in RUNS[:2] if options.quick else RUNS:
            out["rows"].append(measure(dtype, runs, repeats, target_s))
            print(f"{dtype}, {runs} runs: {out['rows'][-1]['seconds'] * 1e6:.3g} us per run and step", flush=True)
            # Written as it goes: a machine lent for minutes may be gone before the end.
            options.out.write_text(json.dumps(out, indent=2) + "\n")


if __name__ == "__main__":
    main()
