"""diffprivlib on pooled rows, in an environment of its own: what a trusted party with all rows would get.

    python central.py IN.npz OUT.npz     IN as `unseen.problem_of` writes it; predictions for the test rows go to OUT

Its guarantee is for pure epsilon, without delta. It gets the same features and the same public bounds. Logistic
regression is tried with three regularisers, so that whoever reads may take the best: its own default, the library's,
and the one that leaves half of epsilon to the noise (objective perturbation pays the other half for curvature; with the
default, next to nothing is left at epsilon 0.5). Linear regression gets a reference level for every group of
categories: with all levels the moments are singular, and it has no ridge, so any noise sends what it predicts to the
bounds of the labels. It is tried with an intercept of its own, and with a constant feature.
Several classes are learnt one against the rest; diffprivlib splits epsilon between them.
"""

import itertools
import json
import math
import sys
import warnings
from importlib.metadata import version

import numpy as np
from diffprivlib.models import LinearRegression, LogisticRegression
from scipy.special import logsumexp


def main(source, target):
    warnings.simplefilter("ignore")  # of solvers that stop early: noise made the objective what it is
    given = np.load(source)
    fit = regression if int(given["classes"]) == 0 else classification
    found = {}
    for epsilon, seed in itertools.product(given["epsilons"].tolist(), given["seeds"].tolist()):
        for variant, predicted in fit(given, epsilon, seed):
            found[f"{variant}/{epsilon:g}/{seed}"] = predicted
    np.savez(target, **found)
    print(json.dumps({name: version(name) for name in ("diffprivlib", "scikit-learn", "numpy")}))


def classification(given, epsilon, seed):
    """Log-probabilities, (rows, classes): as predict_proba's, but in logarithms, so that none becomes 0."""
    classes, data_norm = int(given["classes"]), float(given["data_norm"])
    share = epsilon / (1 if classes == 2 else classes)
    inverse_lambda = {
        "default": 1.0,
        "same": 1 / (float(given["lam"]) * len(given["labels"])),
        "split": 4 / data_norm * math.expm1(share / 4),
    }
    for variant, C in inverse_lambda.items():
        model = LogisticRegression(
            epsilon=epsilon, data_norm=data_norm, C=C, fit_intercept=False, max_iter=1000, random_state=seed
        )  # fmt: skip
        model.fit(given["features"], given["labels"].astype(int))
        z = model.decision_function(given["test_features"])
        log_p = -np.logaddexp(0.0, -(np.column_stack([-z, z]) if z.ndim == 1 else z))
        yield variant, log_p - logsumexp(log_p, axis=1, keepdims=True)


def regression(given, epsilon, seed):
    """Labels, in the library's scale of -1 to 1; clipped to it, since its noise may throw them far beyond."""
    free = given["free_features"]
    features, unseen = given["features"][:, free], given["test_features"][:, free]
    lows, highs = given["feature_bounds"][:, free]
    constant = float(highs.max())
    for variant, intercept in {"default": True, "same": False}.items():
        if not intercept:
            features, unseen = (np.hstack([rows, np.full((len(rows), 1), constant)]) for rows in (features, unseen))
            lows, highs = np.append(lows, 0.0), np.append(highs, constant)
        model = LinearRegression(
            epsilon=epsilon, bounds_X=(lows, highs), bounds_y=(-1.0, 1.0), fit_intercept=intercept, random_state=seed
        )
        model.fit(features, given["labels"])
        yield variant, np.clip(model.predict(unseen), -1.0, 1.0)


if __name__ == "__main__":
    main(*sys.argv[1:])
