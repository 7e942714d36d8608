"""Draw the README's figure: risk on Adult against epsilon, for both calibrations. Needs matplotlib."""

import argparse
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

import sottovoce as sv
from sottovoce.engines.optimum import pooled_optimum

EPSILONS = (0.1, 0.2, 0.3, 0.5, 0.7, 1.0, 1.5, 2.0, 3.0, 4.0)
LINES: dict[sv.privacy.Calibration, tuple[str, str]] = {
    "paper": ("#b5654a", "the paper's noise"),
    "exact": ("#1f5f8b", "exact noise (default)"),
}
MAJORITY = 0.5600  # entropy of the labels: the risk of the best constant prediction


def risks(calibration: sv.privacy.Calibration, sites: sv.Sites, graph: sv.graphs.Graph, runs: int) -> np.ndarray:
    """Consensus risk of every run, one row per epsilon."""
    found = []
    for epsilon in EPSILONS:
        algorithm = sv.IPADMM(epsilon=epsilon, calibration=calibration)
        result = sv.simulate(algorithm, sites, graph, runs=runs, seed=0, record=1, dtype="float32")
        found.append(result.history.final("risk_consensus"))
        print(f"{calibration:>6}  epsilon {epsilon:<4}  risk {found[-1].mean():.4f} ± {found[-1].std(ddof=1):.4f}")
    return np.array(found)


def main() -> None:
    """Simulate and draw."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("docs/figures/epsilon.svg"))
    parser.add_argument("--runs", type=int, default=20)
    arguments = parser.parse_args()
    sites, graph = sv.Sites.split(sv.datasets.adult(), nodes=100, seed=0), sv.graphs.complete(100)
    optimum = pooled_optimum(sites, sv.IPADMM())
    assert optimum is not None

    figure, axes = plt.subplots(figsize=(7, 3.6), layout="constrained")
    for calibration, (colour, label) in LINES.items():
        values = risks(calibration, sites, graph, arguments.runs)
        mean, (low, high) = values.mean(axis=1), np.quantile(values, (0.05, 0.95), axis=1)
        axes.fill_between(EPSILONS, low, high, color=colour, alpha=0.2, linewidth=0)
        axes.plot(EPSILONS, mean, "o-", color=colour, label=label, markersize=4)
    axes.axhline(optimum, color="0.3", linestyle="--", linewidth=1)
    axes.axhline(MAJORITY, color="0.6", linestyle=":", linewidth=1)
    for text, height, shift in (("pooled rows, no privacy", optimum, 4), ("best constant prediction", MAJORITY, -12)):
        place, offset = (EPSILONS[-1], height), (0, shift)
        axes.annotate(text, place, offset, textcoords="offset points", ha="right", fontsize=9)
    axes.set_xscale("log")
    axes.set_xticks([0.1, 0.2, 0.5, 1, 2, 4], ["0.1", "0.2", "0.5", "1", "2", "4"])
    axes.minorticks_off()
    axes.set_xlabel("epsilon (total, delta = 1e-5)")
    axes.set_ylabel("mean loss on all rows")
    axes.set_title("Adult over 100 sites: 452 rows each, complete graph, consensus model", fontsize=10)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, loc="center right")
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(arguments.out, metadata={"Date": None})


if __name__ == "__main__":
    main()
