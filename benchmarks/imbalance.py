"""A class of one row in a hundred: what public class weights do under privacy, on Adult.

The table is the packaged Adult data, of whose training rows with the label +1 so many are kept, by a seeded draw that
looks at nothing but labels, that they are one in a hundred; the test rows are cut the same way. Masked sums, 10 sites
of which 3 collude, delta 1e-5, mean and standard deviation over runs. AUC and average precision are read off the test
rows; the share found is that of the rare rows among the hundredth of all rows with the largest outputs.

    python benchmarks/imbalance.py           # all figures of docs/benchmarks.md, a minute or two
    python benchmarks/imbalance.py --quick   # a smoke test
"""

import argparse
import math
from dataclasses import replace

import numpy as np

import sottovoce as sv
from sottovoce.problem.dataset import Dataset
from sottovoce.problem.figures import Ranking
from sottovoce.problem.losses import Logistic, Loss, WeightedLogistic

RATE, SITES, COLLUDING = 0.01, 10, 3
WEIGHTS = (1.0, 5.0, 20.0, 99.0)


def thinned(data: Dataset, seed: int) -> Dataset:
    """The same with as many rows of the label +1 as make one in a hundred."""
    positive, rest = np.flatnonzero(data.labels > 0), np.flatnonzero(data.labels < 0)
    wanted = round(RATE / (1 - RATE) * len(rest))
    kept = np.sort(np.concatenate([rest, np.random.default_rng(seed).choice(positive, wanted, replace=False)]))
    return replace(data, features=data.features[kept], labels=data.labels[kept], n_train=len(kept))


def loss_of(weight: float) -> Loss:
    """The plain loss where no class weighs more."""
    return Logistic() if weight == 1 else WeightedLogistic(weight)


def scores(train: Dataset, test: Dataset, epsilon: float, weight: float, runs: int) -> np.ndarray:
    """AUC, average precision, share found and share called positive: (4, runs)."""
    sites = sv.Sites.split(train, SITES, seed=0)
    algorithm = sv.MaskedNewton(epsilon=epsilon, delta=1e-5, colluding=COLLUDING, loss=loss_of(weight))
    algorithm = replace(algorithm, rounds=algorithm.exchanges(int(sites.counts.sum()), sites.d, SITES))
    models = sv.simulate(algorithm, sites, sv.graphs.complete(SITES), runs=runs, seed=1).consensus
    positive, found = test.labels > 0, []
    for z in np.asarray(test.features @ models.T).T:
        top = np.argsort(-z, kind="stable")[: positive.sum()]
        ranking = Ranking.of(z, positive)
        found.append((ranking.auc(), ranking.average_precision(), positive[top].mean(), np.mean(z >= 0)))
    return np.array(found).T


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="one epsilon, two weights, two runs")
    quick = parser.parse_args().quick
    data = sv.datasets.adult()
    train, test = thinned(data.train, 0), thinned(data.test, 1)
    share = np.mean(train.labels > 0)
    print(f"{len(train)} rows to learn from, {100 * share:.2f} % positive; {len(test)} test rows, {train.d} features")
    print("| epsilon | weight | AUC | average precision % | rare rows in the top hundredth % | called positive % |")
    print("| --- | --- | --- | --- | --- | --- |")
    for epsilon in (1.0,) if quick else (0.5, 1.0, 4.0, math.inf):
        for weight in WEIGHTS[::3] if quick else WEIGHTS:
            runs = 2 if quick else 1 if math.isinf(epsilon) else 20
            means = [(x.mean(), x.std(ddof=1) if runs > 1 else 0.0) for x in scores(train, test, epsilon, weight, runs)]
            (area, spread), *rest = means
            cells = [f"{area:.3f} ± {spread:.3f}", *(f"{100 * m:.1f} ± {100 * s:.1f}" for m, s in rest)]
            print(f"| {epsilon:g} | {weight:g} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
