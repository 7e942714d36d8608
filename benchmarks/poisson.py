"""Poisson regression of doctor visits, one site: the private fit beside scikit-learn's, by the deviance it explains.

    python benchmarks/poisson.py [--runs N]

Rows, public bounds and held-out fifth are those of `central_linear.py`; counts are clipped to the schema's bound, or to
less. The environment of the table is that of `make unseen`.
"""

import argparse
import itertools
import warnings
from typing import Any

import numpy as np
from sklearn.linear_model import PoissonRegressor
from sklearn.metrics import d2_tweedie_score

import tables
from central_linear import DELTA, split
from sottovoce.errors import PrivacyLeakWarning
from sottovoce.estimators import PrivatePoissonRegressor
from sottovoce.files.schema import Schema

EPSILONS, LARGEST, RUNS, TABLE = (0.5, 1.0, 2.0, 10.0), (40.0, 20.0, 10.0), 10, "doctor-visits"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--runs", type=int, default=RUNS)
    runs = parser.parse_args().runs
    warnings.simplefilter("ignore", PrivacyLeakWarning)
    low, high = Schema.load(tables.BY_NAME[TABLE].schema).label.bounds
    (features, scaled), (unseen, truth) = split(TABLE)
    # The schema's labels are learnt as numbers in -1..1; its last feature is the constant, which the estimators have.
    counts, truth = (np.round(low + (b + 1) / 2 * (high - low)) for b in (scaled, truth))
    features, unseen = features[:, :-1], unseen[:, :-1]
    print(f"{len(counts)} rows, mean {counts.mean():.2f}, bound {high:g}")
    exact = PoissonRegressor(alpha=0.0, max_iter=1000).fit(features, counts)
    print(f"not private: {explained(truth, exact.predict(unseen)):.4f}")
    for most, epsilon in itertools.product(LARGEST, EPSILONS):
        scores = []
        for seed in range(runs):
            model = PrivatePoissonRegressor(epsilon, delta=DELTA, y_max=most, data_norm=1.0, random_state=seed)
            scores.append(explained(truth, model.fit(features, counts).predict(unseen)))
        figures = f"{np.mean(scores):.4f}, standard deviation {np.std(scores, ddof=1):.4f}"
        print(f"y_max {most:g} ({np.mean(counts > most):.2%} clipped), epsilon {epsilon:g}: {figures}", flush=True)


def explained(counts: Any, means: Any) -> float:
    """The share of the deviance of the mean count that predictions take away."""
    return float(d2_tweedie_score(counts, np.maximum(means, 1e-9), power=1))


if __name__ == "__main__":
    main()
