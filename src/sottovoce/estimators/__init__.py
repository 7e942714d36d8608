"""scikit-learn estimators whose fits are differentially private for every single row."""

try:
    import sklearn as _sklearn  # noqa: F401
except ImportError as _error:
    raise ImportError("sottovoce.estimators needs scikit-learn. Install it with: pip install 'sottovoce[estimators]'",
                      name=_error.name) from _error  # fmt: skip

from sottovoce.estimators.classifiers import PrivateLinearSVC, PrivateLogisticRegression
from sottovoce.estimators.hazards import PrivateProportionalHazards
from sottovoce.estimators.regressor import PrivateLinearRegression, PrivatePoissonRegressor, PrivateRobustRegressor
from sottovoce.estimators.search import PrivateSearch

__all__ = [
    "PrivateLinearRegression",
    "PrivateLinearSVC",
    "PrivateLogisticRegression",
    "PrivatePoissonRegressor",
    "PrivateProportionalHazards",
    "PrivateRobustRegressor",
    "PrivateSearch",
]
