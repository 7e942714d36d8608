"""What do sites of unequal size gain from each other? Adult, dealt out by sizes proportional to 1 / k^1.7.

    python benchmarks/unequal.py        writes unequal.json and docs/explanation/unequal.md's tables; a few minutes

For epsilon 0.5, 1 and 4, with settings that the planner chooses from public numbers alone (its defaults), the mean loss
on the official test rows, over runs of fresh noise and other deals of the rows:

    equal, rows, squared      all 20 sites, with these weights (equal: what the paper has)
    planned                   all 20 sites, with the weights that the planner chooses
    five largest              only those, with weights planned for them
    largest alone             one site, no exchange
    even                      20 sites of one size, as many rows in all
"""

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))

import sottovoce as sv
from machine import describe
from sottovoce.files.datasets import BySizes
from sottovoce.oracle.cpu import CompiledOracle
from sottovoce.plan import plan
from sottovoce.problem.sites import WEIGHTS

OUT = Path(__file__).with_name("unequal.json")
PAGE = Path(__file__).parents[1] / "docs" / "explanation" / "unequal.md"
SITES, STEEPNESS, EPSILONS = 20, 1.7, (0.5, 1.0, 4.0)
BEGIN, END = "<!-- unequal -->", "<!-- /unequal -->"


def sizes_of(rows: int, sites: int, steepness: float) -> list[int]:
    """Rows of every site, largest first; all of them, but for rounding."""
    shares = 1.0 / np.arange(1, sites + 1) ** steepness
    return [max(1, int(m)) for m in np.floor(rows * shares / shares.sum())]


def measure(data: Any, sizes: list[int], epsilon: float, deals: int, runs: int, **fixed: Any) -> dict[str, Any]:
    """Plan for sites of these sizes and run it."""
    graph = sv.graphs.complete(len(sizes))
    algorithm = plan(sizes=sizes, d=data.d, graph=graph, epsilon=epsilon, fixed=fixed).algorithm()
    test = sv.Sites([data.test.features], [data.test.labels], data_norm=data.data_norm)
    judge = algorithm.oracle(test, sv.graphs.complete(1), CompiledOracle)
    risks = []
    for deal in range(deals):
        sites = sv.Sites.split(data.train, len(sizes), deal, partition=BySizes(sizes))
        result = sv.simulate(algorithm, sites, graph, runs=runs, seed=1000 + deal, record=1, dtype="float32")
        risks.append(judge.score(np.ascontiguousarray(result.consensus.T, dtype=np.float64)).risk)
    found = np.concatenate(risks)
    return {
        "risk": float(found.mean()),
        "standard_error": float(np.std([r.mean() for r in risks], ddof=1) / np.sqrt(deals)),
        "weights": algorithm.weights,
        "settings": {name: getattr(algorithm, name) for name in ("rounds", "local_steps", "rho", "diameter")},
    }


def table(data: Any, sizes: list[int], epsilon: float, deals: int, runs: int) -> dict[str, Any]:
    """One line of the page."""
    each: dict[str, Any] = {
        **{weights: (sizes, {"weights": weights}) for weights in WEIGHTS},
        "five largest": (sizes[:5], {}),
        "largest alone": (sizes[:1], {}),
        "even": ([sum(sizes) // len(sizes)] * len(sizes), {}),
    }
    found = {name: measure(data, of, epsilon, deals, runs, **fixed) for name, (of, fixed) in each.items()}
    # What is planned without a word on weights is one of the three.
    public: dict[str, Any] = {"sizes": sizes, "d": data.d, "graph": sv.graphs.complete(len(sizes))}
    found["planned"] = found[plan(**public, epsilon=epsilon).settings["weights"]]
    for name, line in found.items():
        print(f"epsilon {epsilon:g}  {name:14} {line['risk']:.4f} +- {line['standard_error']:.4f}  {line['weights']}")
    return found


def markdown(found: dict[str, Any]) -> str:
    """The figures as a table."""
    names = list(next(iter(found["epsilons"].values())))
    lines = [f"| epsilon | {' | '.join(names)} |", f"| --- |{' --- |' * len(names)}"]
    for epsilon, line in found["epsilons"].items():
        cells = (
            f"{line[name]['risk']:.4f}{' (' + line[name]['weights'] + ')' if name == 'planned' else ''}"
            for name in names
        )
        lines.append(f"| {epsilon} | {' | '.join(cells)} |")
    error = max(line[name]["standard_error"] for line in found["epsilons"].values() for name in names)
    return "\n".join([*lines, "", f"No standard error, over {found['deals']} deals of the rows, is above {error:.4f}."])


def main() -> None:
    """Measure, write, and put the table into its page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--deals", type=int, default=4)
    parser.add_argument("--runs", type=int, default=4)
    options = parser.parse_args()
    data = sv.datasets.adult()
    sizes = sizes_of(len(data.train), SITES, STEEPNESS)
    lines = {f"{e:g}": table(data, sizes, e, options.deals, options.runs) for e in EPSILONS}
    found = {"machine": describe(), "sizes": sizes, "deals": options.deals, "runs": options.runs, "epsilons": lines}
    OUT.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    before, rest = PAGE.read_text(encoding="utf-8").split(BEGIN)
    PAGE.write_text(f"{before}{BEGIN}\n\n{markdown(found)}\n\n{END}{rest.split(END)[1]}", encoding="utf-8")


if __name__ == "__main__":
    main()
