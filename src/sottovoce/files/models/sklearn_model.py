"""A model as scikit-learn's own estimator, fitted: for pipelines and tools that know nothing of this library."""

from typing import TYPE_CHECKING, Any

import numpy as np

from sottovoce.errors import InputError, UnsupportedError
from sottovoce.files.models.model import Model
from sottovoce.problem.losses import Poisson
from sottovoce.settings import plain

if TYPE_CHECKING:
    from sklearn.linear_model import LinearRegression, LogisticRegression
    from sklearn.svm import LinearSVC


def to_sklearn(model: Model) -> "LogisticRegression | LinearSVC | LinearRegression":
    """A fitted estimator that predicts as the model does, from the matrix of its features.

    Logistic regression for the losses that make probabilities, a linear support vector classifier for those that only
    decide, linear regression for numbers. The features are those of `Model.names`, a constant one among them if the
    schema has an intercept; `sottovoce.files.schema.files.encode_features` makes them of a file or a table.

    It says the same of every row but one whose output is exactly 0, which scikit-learn gives to the first class. What
    was promised to the rows is in `privacy_`: a fit of it would be another, without any guarantee.
    """
    try:
        from sklearn.linear_model import LinearRegression, LogisticRegression
        from sklearn.svm import LinearSVC
    except ImportError as error:
        raise InputError(
            "Expected the package scikit-learn, got none. Install it with: pip install 'sottovoce[estimators]'."
        ) from error
    if model.tilt:
        raise UnsupportedError(
            f"Expected a loss that scikit-learn's own estimators have, got loss={model.loss.name!r}: they "
            "compute decision and probabilities from one score, which weighted classes do not allow. Use ONNX."
        )
    if model.timed is not None:
        raise UnsupportedError(
            "Expected a model that scikit-learn has an estimator for, got one of times to an event. Use sottovoce "
            "predict."
        )
    if isinstance(model.loss, Poisson):
        raise UnsupportedError(
            "Expected a loss whose estimator can be made without a fit, got loss='poisson': PoissonRegressor predicts "
            "from private attributes that only its own fit sets. Use ONNX."
        )
    made: Any
    if model.classes is None:
        made = LinearRegression()
        made.coef_, made.intercept_ = model.weights[:, 0].copy(), float(model.offset)
    else:
        made = LogisticRegression() if model.has_probabilities else LinearSVC()
        made.coef_ = np.ascontiguousarray(model.weights.T)
        made.intercept_, made.classes_ = np.zeros(model.weights.shape[1]), np.array(model.classes)
        made.n_iter_ = np.array([0])
    made.n_features_in_, made.privacy_ = model.d, plain(model.privacy)
    return made
