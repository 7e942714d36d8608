"""scikit-learn's own checks, all of them."""

import pytest
from sklearn.base import is_classifier
from sklearn.utils.estimator_checks import parametrize_with_checks

from sottovoce import IPADMM
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
LARGE = {
    "epsilon": 100.0,
    "weight_bound": 10.0,
    "algorithm": IPADMM(rounds=20, local_steps=10, rho=1e-2, diameter=30.0),
    "device": "plain",
}
BOUND = {"device": "plain", "weight_bound": 10.0}  # the checks give weights up to that

ESTIMATORS = [
    PrivateLogisticRegression(**LARGE),
    PrivateLinearSVC(**LARGE),
    PrivateRobustRegressor(**LARGE),
    PrivateLinearRegression(100.0, **BOUND),
    PrivatePoissonRegressor(100.0, **BOUND),
    PrivateLogisticRegression(100.0, algorithm=DPADMM(rounds=100), **BOUND),
]


def expected(estimator):
    """What cannot pass. Weights of 1,000 and 1/10,000 for classes that nobody has declared: class weights are public
    numbers about public classes here, and a row takes as many times the noise as it weighs. And weights of 0 in place
    of rows that are left out: they are refused, and noise goes by the number of rows.
    """
    zero = "a weight of 0 is refused, and fits of different numbers of rows have different noise"
    found = dict.fromkeys((f"check_sample_weight_equivalence_on_{kind}_data" for kind in ("dense", "sparse")), zero)
    if is_classifier(estimator):
        found["check_classifiers_one_label_sample_weights"] = zero
    if "class_weight" in estimator.get_params():
        found["check_class_weight_classifiers"] = "weights are for declared classes"
    return found


@parametrize_with_checks(ESTIMATORS, expected_failed_checks=expected)
def test_scikit_learn(estimator, check):
    check(estimator)
