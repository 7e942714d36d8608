"""Private regression with losses whose slope is bounded, which privacy needs and outliers reward.

Labels are clipped to public bounds and scaled to -1..1, about their middle if there is an intercept, as `Answers` says:

    b = (y - offset) / scale,    y^ = offset + scale <w, a>
"""

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import inf, isfinite
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self, TypeAlias, final, get_args

import numpy as np
from sklearn.base import RegressorMixin
from sklearn.metrics import r2_score
from sklearn.utils import column_or_1d

from sottovoce.algorithms.squares import LeastSquares
from sottovoce.arrays import Floats
from sottovoce.errors import InputError, expect
from sottovoce.estimators.base import Leak, Target, _PrivateLinearModel, forget
from sottovoce.estimators.draws import RandomState
from sottovoce.estimators.scaling import Linear
from sottovoce.estimators.training import AlgorithmChoice, Chosen
from sottovoce.privacy import BudgetAccountant
from sottovoce.problem import losses
from sottovoce.problem.answers import Answers
from sottovoce.problem.graphs import Graph
from sottovoce.problem.losses import Loss
from sottovoce.problem.people import Surplus
from sottovoce.problem.problem import Problem
from sottovoce.simulation.devices import DeviceName

if TYPE_CHECKING:
    from sottovoce.files.models import Model
    from sottovoce.files.schema import Schema

RobustLoss: TypeAlias = Literal["huber", "absolute", "quantile", "smoothed-quantile"]


def _numbers(y: Any) -> Floats:
    """Labels as numbers; refuses names of classes."""
    try:
        return np.asarray(y, dtype=np.float64)
    except ValueError as error:
        raise InputError(
            "Expected labels that are numbers in a regression, got text. Use PrivateLogisticRegression for classes."
        ) from error


class _PrivateRegressor(RegressorMixin, _PrivateLinearModel):
    """Base class of regressions: labels are clipped to public bounds and scaled."""

    _label_checks: ClassVar[Mapping[str, Any]] = {"y_numeric": True}
    y_bounds: tuple[float, float] | None
    y_bounds_: tuple[float, float]

    @abstractmethod
    def _loss(self) -> Loss:
        """The loss that is minimised, of labels in -1..1."""

    def _target(self, y: Any, leaks: list[Leak]) -> Target:
        numbers = _numbers(y)
        low, high = self._bounds(numbers, leaks)
        answers = Answers.between(low, high, centred=self.fit_intercept)
        return Target(self._loss(), answers.learnt(np.clip(numbers, low, high)), answers, {"y_bounds_": (low, high)})

    def _in_units(self, model: Linear, answers: Answers) -> tuple[Floats, float]:
        (coef, offset), (intercept, _) = answers.model(model.coef[:, 0]), answers.model(model.intercept)
        return coef, offset + float(intercept[0])

    def _bounds(self, y: Any, leaks: list[Leak]) -> tuple[float, float]:
        if self.y_bounds is None:
            leaks.append(
                Leak(
                    "The bounds of y were computed from the private labels: the guarantee does not cover them.",
                    "Give y_bounds, from knowledge that does not rest on these rows; labels are clipped to them.",
                )
            )
            return float(np.min(y)), float(np.max(y))
        bounds = tuple(map(float, self.y_bounds))
        fine = len(bounds) == 2 and all(map(isfinite, bounds)) and bounds[0] < bounds[-1]
        if not fine:
            raise InputError(
                f"Expected y_bounds as two finite numbers, the lower one first, got y_bounds={self.y_bounds!r}. Noise "
                "is made for bounded labels: give limits that hold for anyone, and labels are clipped to them."
            )
        return bounds[0], bounds[-1]

    def row_scores(self, X: Any, y: Any) -> Floats:
        """1 - |y - prediction| / width, both clipped to the bounds of y: (rows,). Computed without noise."""
        return self._closeness(self.predict(X), y)

    def _closeness(self, predicted: Floats, y: Any) -> Floats:
        low, high = self.y_bounds_
        far = np.abs(np.clip(predicted, low, high) - np.clip(column_or_1d(y), low, high))
        scores: Floats = 1 - far / max(high - low, np.finfo(np.float64).tiny)
        return scores

    def _known_labels(self, y: Any) -> Floats:
        return np.clip(np.asarray(y, dtype=np.float64), *self.y_bounds_)

    def _label_width(self) -> float:
        low, high = self.y_bounds_
        return high - low

    def _class_names(self) -> None:
        return None

    def predict(self, X: Any) -> Floats:
        """Predicted number for each row, (rows,), in the unit of y; of counts, the mean."""
        z = self._outputs(X)
        return np.asarray(self.loss_.predict(z), dtype=np.float64)


@final
class PrivateRobustRegressor(_PrivateRegressor):
    """Linear regression with a robust loss, private for every single row.

    Args:
        loss: "huber" (the mean, with outliers held back), "absolute" (the median), "quantile", or "smoothed-quantile",
            whose kink is rounded off over a tenth of the width of y_bounds, so that masked sums can learn it.
        threshold: of "huber": the residual at which squares turn into absolute values, in units of half the width of
            y_bounds. A smaller one needs less noise and takes more residuals for outliers.
        quantile: of "quantile" and "smoothed-quantile": which one to predict.
        y_bounds: (low, high) of labels, known without looking at them; what lies outside is clipped. None reads them
            off y, with a `PrivacyLeakWarning`.

    All other parameters are those of `PrivateLogisticRegression`.

    Fitted: coef_ (features,) and intercept_, a number, in the unit of y; y_bounds_; the rest as there.

    Formal guarantees: all fitted attributes together are (epsilon, delta)-differentially private for the replacement of
    one row, if there was no `PrivacyLeakWarning`. The numbers of rows and features and all parameters are public.
    Whoever runs the fit sees all rows, those of all simulated sites too; `privacy_` says what is assumed of whom.
    """

    def __init__(
        self,
        epsilon: float = 1.0,
        *,
        loss: RobustLoss = "huber",
        threshold: float = 0.2,
        quantile: float = 0.5,
        y_bounds: tuple[float, float] | None = None,
        delta: float | None = None,
        data_norm: float | None = None,
        sites: int = 1,
        graph: str | Graph = "complete",
        algorithm: AlgorithmChoice = None,
        lam: float = 1e-4,
        fit_intercept: bool = True,
        accountant: BudgetAccountant | None = None,
        random_state: RandomState = None,
        device: DeviceName = "cpu",
        rows_per_person: int | None = None,
        sites_per_person: int = 1,
        surplus: Surplus = "refuse",
        weight_bound: float = 1.0,
        verbose: bool = False,
    ) -> None:
        self._keep(locals())

    def _loss(self) -> Loss:
        known = get_args(RobustLoss)
        expect(self.loss in known, f"loss in {known}", loss=self.loss)
        level = {"level": self.quantile}
        shapes = {"huber": {"threshold": self.threshold}, "quantile": level, "smoothed-quantile": level}
        return losses.by_name(self.loss, **shapes.get(self.loss, {}))


@final
class PrivatePoissonRegressor(_PrivateRegressor):
    """Poisson regression of counts, private for every single row: the logarithm of the mean is linear in the features.

    Counts are clipped to 0..y_max, and no mean is larger: `sottovoce.problem.losses.Poisson` says what is minimised. It
    is the likelihood itself where the means lie below y_max. There is always an intercept. With exposures (`fit`), the
    mean is the exposure times a rate whose logarithm is linear in the features.

    Args:
        y_max: the largest count, known without looking at them; larger ones are clipped to it. None reads it off y,
            with a `PrivacyLeakWarning`. Noise grows with it: a count that hardly any row exceeds is best.
        lam: weight of the regulariser beside the mean loss over y_max.
        exposure_bound: the largest exposure, a public number; larger ones are refused. It costs no noise. None: rows
            have no exposures.

    All other parameters are those of `PrivateLogisticRegression`.

    Fitted: coef_ (features,) and intercept_, a number, of the logarithm of the mean; y_bounds_; the rest as there.

    Formal guarantees: all fitted attributes together are (epsilon, delta)-differentially private for the replacement of
    one row, if there was no `PrivacyLeakWarning`. The numbers of rows and features and all parameters are public.
    Whoever runs the fit sees all rows, those of all simulated sites too; `privacy_` says what is assumed of whom.
    """

    fit_intercept = True
    y_max: float | None

    def __init__(
        self,
        epsilon: float = 1.0,
        *,
        y_max: float | None = None,
        delta: float | None = None,
        data_norm: float | None = None,
        sites: int = 1,
        graph: str | Graph = "complete",
        algorithm: AlgorithmChoice = None,
        inference: bool | None = None,
        focus: str | Sequence[str] | None = None,
        lam: float = 1e-5,
        accountant: BudgetAccountant | None = None,
        random_state: RandomState = None,
        device: DeviceName = "cpu",
        rows_per_person: int | None = None,
        sites_per_person: int = 1,
        surplus: Surplus = "refuse",
        weight_bound: float = 1.0,
        verbose: bool = False,
        exposure_bound: float | None = None,
    ) -> None:
        self._keep(locals())

    def fit(
        self, X: Any, y: Any, sites: Any = None, groups: Any = None, sample_weight: Any = None, exposure: Any = None
    ) -> Self:
        """Learn from private rows.

        Args:
            X: as of `PrivateLogisticRegression.fit`, and so are the next four.
            y: one count for each row.
            sites: for each row the label of its site.
            groups: for each row whose it is.
            sample_weight: for each row how much it counts.
            exposure: for each row how long, or how much, it was observed, above 0 and at most `exposure_bound`: the
                expected count is in proportion to it. It is as private as the rest of the row. None: the same for all.
        """
        forget(self)
        return self._fit(X, y, sites, groups, self._factors(sample_weight, exposure))

    def predict(self, X: Any, exposure: Any = None) -> Floats:
        """Mean for each row at its exposure, (rows,). Without it, a model of exposures gives the rate of one unit."""
        z = self._outputs(X)
        if exposure is None and self.exposure_bound is not None:
            return np.exp(z)  # the largest count bounds the mean of a row, and not a rate
        self._expect_exposure(exposure)
        if exposure is not None:
            e = np.asarray(exposure, dtype=np.float64)
            fine = e.shape == z.shape and bool(np.all((e > 0) & (e < inf)))
            expect(fine, f"exposure as a finite number > 0 for each of {len(z)} rows", shape=e.shape)
            z = z + np.log(e)
        return np.asarray(self.loss_.predict(z), dtype=np.float64)

    def score(self, X: Any, y: Any, sample_weight: Any = None, exposure: Any = None) -> float:
        """R^2 of the means, computed without noise: for rows that are public. A model of exposures needs those of the
        rows, since a count cannot be compared with a rate.
        """
        self._expect_exposure(exposure)
        return float(r2_score(y, self.predict(X, exposure), sample_weight=sample_weight))

    def row_scores(self, X: Any, y: Any, exposure: Any = None) -> Floats:
        """1 - |y - mean| / y_max, both clipped to y_max; exposures as for `score`. Computed without noise."""
        self._expect_exposure(exposure)
        return self._closeness(self.predict(X, exposure), y)

    def to_model(self, schema: "Schema | None" = None) -> "Model":
        """As of `PrivateLogisticRegression`. A model of exposures needs a schema that names them, with the same bound:
        nothing else in a file says that it predicts rates.
        """
        bound = None if schema is None or schema.exposure is None else schema.exposure.bound
        if bound != self.exposure_bound:
            raise InputError(
                f"Expected a schema whose exposure.bound is that of the fit, exposure_bound={self.exposure_bound!r}, "
                f"got {bound!r}. Give such a schema; of a model without exposures, one without [exposure], or none."
            )
        return super().to_model(schema)

    def _expect_exposure(self, exposure: Any) -> None:
        if (exposure is None) != (self.exposure_bound is None):
            came = f"exposure_bound={self.exposure_bound!r} and {'no ' if exposure is None else ''}exposure"
            raise InputError(
                f"Expected an exposure for each row together with exposure_bound, or neither, got {came}. Give the "
                "largest exposure that there may be, a public number, and one exposure for each row."
            )

    def _loss(self) -> Loss:
        return losses.Poisson()

    def _target(self, y: Any, leaks: list[Leak]) -> Target:
        counts = _numbers(y)
        losses.Poisson().labels.check(counts)
        if self.y_max is None:
            most = max(float(np.max(counts)), 1.0)
            leaks.append(
                Leak(
                    "The largest count was computed from the private labels: the guarantee does not cover it.",
                    "Give y_max, from knowledge that does not rest on these rows; larger counts are clipped to it.",
                )
            )
        else:
            most = float(self.y_max)
        answers = Answers.counting(most, self.exposure_bound or 1.0)
        learnt = answers.learnt(np.minimum(counts, answers.scale))
        return Target(self._loss(), learnt, answers, {"y_bounds_": (0.0, answers.scale)})

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.positive_only = True
        return tags


@final
class PrivateLinearRegression(_PrivateRegressor):
    """Linear regression by least squares, private for every single row, with standard errors.

    Least squares need sums over rows, which are released with noise (`sottovoce.algorithms.squares`): nothing is tuned,
    coefficients with standard errors and R^2 cost nothing more, and `summary` always has them.

    Args:
        y_bounds: (low, high) of labels, known without looking at them; what lies outside is clipped. None reads them
            off y, with a `PrivacyLeakWarning`. Noise grows with their width.
        algorithm: LeastSquares(...) with settings of your own, such as colluding=3, of which lam, epsilon, delta and
            inference are replaced by this estimator's. None: its defaults.

    All other parameters are those of `PrivateLogisticRegression`.

    Fitted: coef_ (features,) and intercept_, a number, in the unit of y, with the adaptive ridge that noise asks for;
    y_bounds_; inference_, whose estimates have no ridge; the rest as there.

    Formal guarantees: all fitted attributes together are (epsilon, delta)-differentially private for the replacement of
    one row, if there was no `PrivacyLeakWarning`. The numbers of rows and features and all parameters are public.
    Whoever runs the fit sees all rows, those of all simulated sites too; `privacy_` says what is assumed of whom.
    """

    def __init__(
        self,
        epsilon: float = 1.0,
        *,
        y_bounds: tuple[float, float] | None = None,
        delta: float | None = None,
        data_norm: float | None = None,
        sites: int = 1,
        graph: str | Graph = "complete",
        algorithm: LeastSquares | None = None,
        lam: float = 0.0,
        fit_intercept: bool = True,
        accountant: BudgetAccountant | None = None,
        random_state: RandomState = None,
        device: DeviceName = "cpu",
        rows_per_person: int | None = None,
        sites_per_person: int = 1,
        surplus: Surplus = "refuse",
        weight_bound: float = 1.0,
        verbose: bool = False,
    ) -> None:
        self._keep(locals())

    def _loss(self) -> Loss:
        return losses.Huber(2.0)  # squares, while predictions stay within the bounds of y

    def _choose(self, loss: Loss, delta: float, problem: Problem) -> Chosen:  # noqa: ARG002
        own = LeastSquares() if self.algorithm is None else self.algorithm
        if not isinstance(own, LeastSquares):
            raise InputError(f"Expected algorithm as LeastSquares(...) or None, got algorithm={own!r}.")
        return Chosen(replace(own, epsilon=self.epsilon, delta=delta, lam=self.lam, inference=True), None)
