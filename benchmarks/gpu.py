"""The library on a GPU: the same problem, noise and updates included; and the same rows with softmax over four classes.

    python benchmarks/gpu.py [--quick] [--loss softmax] [--out benchmarks/gpu.json]

Needs numpy, scipy, numba, networkx, cupy and the library. First the GPU must give the CPU's numbers, for handed-in
noise and for a seed; then seconds per run and step, for several numbers of runs, in both precisions.
"""

import argparse
import itertools
import json
import statistics
from dataclasses import replace
from pathlib import Path

import cupy
import numpy as np

import machine
import ours
import problem

RUNS = {ours.sv.losses.Logistic(): (64, 256, 1000, 4000), ours.sv.losses.Softmax(4): (64, 256, 1000)}
TOLERANCE = {"float32": 1e-4, "float64": 1e-9}


def pieces(loss, rounds=problem.ROUNDS):
    """The problem with this loss; classes beyond two are drawn, which costs as much as real ones."""
    algorithm, sites, graph = problem.pieces(rounds)
    if loss.outputs > 1:
        labels = np.random.default_rng(0).integers(loss.outputs, size=len(sites.labels)).astype(float)
        parts = list(itertools.pairwise(sites.rows.offsets))
        sites = ours.sv.Sites([sites.rows.block(a, b) for a, b in parts], [labels[a:b] for a, b in parts])
    return replace(algorithm, loss=loss), sites, graph


def check(dtype, loss, runs=5, rounds=3):
    """Largest difference from the CPU, relative to the largest number; by source of noise."""
    algorithm, sites, graph = pieces(loss, rounds)
    shape = (rounds, runs, graph.n, algorithm.local_steps, sites.d * loss.outputs)
    given = np.random.default_rng(1).standard_normal(shape)
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
            raise SystemExit(
                f"{loss.name}, {dtype}, noise {name}: GPU and CPU differ by {found[name]:.1e} of the largest number"
            )
    return found


def measure(dtype, loss, runs, repeats, target_s):
    algorithm, sites, graph = pieces(loss)

    def per_round(rounds):
        return ours.seconds_per_round(
            lambda t: replace(algorithm, rounds=t), sites, graph, rounds,
            wait=cupy.cuda.Device().synchronize, runs=runs, device="cuda", dtype=dtype, scored=1,
        )  # fmt: skip

    rounds = int(np.clip(target_s / per_round(3), 5, 500))
    times = [per_round(rounds) / (runs * algorithm.local_steps) for _ in range(repeats)]
    found = {"seconds": min(times), "median": statistics.median(times), "rounds": rounds}
    return {"dtype": dtype, "loss": loss.name, "runs": runs, **found}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="a smoke test")
    parser.add_argument("--loss", help="only this one; what the file has of the others is kept")
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
    chosen = [loss for loss in RUNS if options.loss in (None, loss.name)]
    if options.loss is not None and options.out.exists():
        kept = json.loads(options.out.read_text())
        out["rows"] = [row for row in kept["rows"] if row["loss"] != options.loss]
        out["errors"] = {name: found for name, found in kept["errors"].items() if not name.startswith(options.loss)}
    for loss, dtype in itertools.product(chosen, TOLERANCE):
        name = f"{loss.name}, {dtype}"
        out["errors"][name] = check(dtype, loss)
        print(f"{name}: the GPU gives the CPU's numbers, to {max(out['errors'][name].values()):.1e}", flush=True)
        for runs in RUNS[loss][:2] if options.quick else RUNS[loss]:
            out["rows"].append(measure(dtype, loss, runs, repeats, target_s))
            print(f"{name}, {runs} runs: {out['rows'][-1]['seconds'] * 1e6:.3g} us per run and step", flush=True)
            # Written as it goes: a machine lent for minutes may be gone before the end.
            options.out.write_text(json.dumps(out, indent=2) + "\n")


if __name__ == "__main__":
    main()
