"""How the cost of a round grows with nodes, coordinates, local steps, runs and edges.

    python benchmarks/scaling.py [--quick]     prints one JSON object

Rows are random, dense, 10 to a node. One thing varies at a time; the slope of log(seconds) against log(size) is fitted
over the larger half of the sizes, where fixed costs no longer count.
"""

import json
import sys

import numpy as np

import ours
import sottovoce as sv

BASE = {"nodes": 1000, "d": 20, "local_steps": 10, "runs": 16, "degree": 4}
SWEEPS = {
    "nodes": (1000, 3000, 10_000, 30_000, 100_000),
    "d": (10, 20, 50, 100, 200, 500),
    "local_steps": (1, 2, 5, 10, 20, 50, 100),
    "runs": (1, 4, 16, 64, 256, 1024),
    "degree": (4, 8, 16, 32, 64, 128),
}
QUICK = {
    "nodes": (100, 300), "d": (10, 20), "local_steps": (2, 4), "runs": (1, 16), "degree": (4, 8),
}  # fmt: skip
ROWS = 10


def sites_for(nodes, d):
    rng = np.random.default_rng(0)
    rows = rng.standard_normal((nodes, ROWS, d))
    rows /= np.linalg.norm(rows, axis=2, keepdims=True) * (1 + 1e-12)
    labels = rng.choice([-1.0, 1.0], (nodes, ROWS))
    return sv.Sites(list(rows), list(labels))


def seconds(setting, repeats, target_s, dtype="float32"):
    """Of one round: the least of several."""
    sites = sites_for(setting["nodes"], setting["d"])
    graph = sv.graphs.random_regular(setting["nodes"], setting["degree"], seed=0)

    def algorithm_for(rounds):
        return sv.IPADMM(rounds=rounds, local_steps=setting["local_steps"], diameter=1.0)

    options = {"runs": setting["runs"], "device": "cpu", "dtype": dtype}
    once = ours.seconds_per_round(algorithm_for, sites, graph, 2, **options)
    rounds = int(np.clip(target_s / once, 2, 200))
    return min(ours.seconds_per_round(algorithm_for, sites, graph, rounds, **options) for _ in range(repeats))


def sweep(name, sizes, base, repeats, target_s):
    points = []
    for size in sizes:
        setting = base | {name: size}
        took = seconds(setting, repeats, target_s)
        points.append({name: size, "seconds_per_round": took})
        print(f"... {name} {size}: {took * 1e3:.3g} ms a round", file=sys.stderr, flush=True)
    last = points[len(points) // 2 :] if len(points) > 3 else points
    x, y = np.log([p[name] for p in last]), np.log([p["seconds_per_round"] for p in last])
    return {"points": points, "slope": float(np.polyfit(x, y, 1)[0])}


def edges(sweeps, base):
    """The degree sweep, told in edges; what an edge costs is the growth, not the whole."""
    points = sweeps["degree"]["points"]
    few, many = points[0], points[-1]
    more = base["nodes"] * (many["degree"] - few["degree"]) / 2
    growth = many["seconds_per_round"] - few["seconds_per_round"]
    return {"seconds_per_edge_and_run": growth / more / base["runs"]}


def large_network(sizes, runs, repeats, target_s):
    """Seconds per round and node at the smallest and the largest network."""
    base = BASE | {"runs": runs}
    small, large = (seconds(base | {"nodes": n}, repeats, target_s) / n for n in sizes)
    return {"nodes": sizes, "runs": runs, "per_node": [small, large], "ratio": large / small}


def main():
    quick = "--quick" in sys.argv
    sizes, repeats, target_s = (QUICK, 1, 0.02) if quick else (SWEEPS, 3, 0.3)
    base = BASE | ({"nodes": 100, "runs": 4} if quick else {})
    sweeps = {name: sweep(name, sizes[name], base, repeats, target_s) for name in sizes}
    out = {
        "base": base | {"rows_per_node": ROWS, "graph": "random regular", "dtype": "float32"},
        "sweeps": sweeps,
        "edges": edges(sweeps, base),
        "large": [
            large_network((sizes["nodes"][0], sizes["nodes"][-1]), runs, repeats, target_s)
            for runs in (1, base["runs"])
        ],
    }
    print(json.dumps(out))


if __name__ == "__main__":
    main()
