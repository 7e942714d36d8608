"""scikit-learn's own checks, all of them."""

import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

from sottovoce.algorithms import DPADMM
from sottovoce.estimators import (
    PrivateLinearRegression,
    PrivateLinearSVC,
    PrivateLogisticRegression,
    PrivatePoissonRegressor,
    PrivateRobustRegressor,
)

# The checks know neither data_norm nor classes, and set a seed. All three are warned about, and rightly so.
pytestmark = pytest.mark.filterwarnings("ignore::sottovoce.errors.PrivacyLeakWarning")

# Some checks ask for a good score on a few dozen rows. No private method has that at a small epsilon.
LARGE = {"epsilon": 100.0, "rounds": 20, "local_steps": 10, "rho": 1e-2, "diameter": 30.0, "device": "plain"}

ESTIMATORS = [
    PrivateLogisticRegression(**LARGE),
    PrivateLinearSVC(**LARGE),
    PrivateRobustRegressor(**LARGE),
    PrivateLinearRegression(100.0, device="plain"),
    PrivatePoissonRegressor(100.0, device="plain"),
    PrivateLogisticRegression(100.0, algorithm=DPADMM(rounds=100), device="plain"),
]


def expected(estimator):
    """What cannot pass: it gives weights of 1,000 and 1/10,000 to classes that nobody has declared. Weights are public
    numbers about public classes here, and a row takes as many times the noise as it weighs.
    """
    why = "weights are for declared classes"
    return {"check_class_weight_classifiers": why} if "class_weight" in estimator.get_params() else {}


@parametrize_with_checks(ESTIMATORS, expected_failed_checks=expected)
def test_scikit_learn(estimator, check):
    check(estimator)
