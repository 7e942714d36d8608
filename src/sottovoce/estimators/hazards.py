"""Proportional hazards as an estimator: times to an event, hazard ratios, and survival at given times."""

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar, Self, cast, final

import numpy as np
from sklearn.utils.validation import check_consistent_length, check_is_fitted

from sottovoce.algorithms.hazards import ProportionalHazards
from sottovoce.arrays import Bools, Floats
from sottovoce.errors import InputError, UnsupportedError, expect
from sottovoce.estimators.base import Leak, Target, _PrivateLinearModel, forget
from sottovoce.estimators.draws import RandomState
from sottovoce.estimators.scaling import Linear
from sottovoce.estimators.training import Chosen
from sottovoce.files.schema.schema import INTERCEPT
from sottovoce.privacy import BudgetAccountant
from sottovoce.problem.answers import Answers
from sottovoce.problem.figures import concordance
from sottovoce.problem.graphs import Graph
from sottovoce.problem.losses import Loss, PiecewiseExponential
from sottovoce.problem.losses.hazards import in_intervals
from sottovoce.problem.people import Surplus
from sottovoce.problem.problem import Problem
from sottovoce.simulation.devices import DeviceName

if TYPE_CHECKING:
    from sottovoce.files.models import Model
    from sottovoce.files.schema import Schema


@final
class PrivateProportionalHazards(_PrivateLinearModel):
    """Proportional hazards of times to an event, private for every single row, with standard errors.

    Hazards are constant within public intervals of time (`sottovoce.algorithms.hazards`). Nothing is tuned, and
    `summary` has hazard ratios with intervals, if rows have no weights.

    Args:
        until: the time at which all rows that are still watched are censored, known without looking at them. None reads
            the largest time off y, with a `PrivacyLeakWarning`.
        bins: how many equal intervals there are from 0 to `until`, or the ends of all but the last.
        algorithm: ProportionalHazards(...) with settings of your own, such as colluding=3, of which loss, lam, epsilon,
            delta and inference are replaced by this estimator's. None: its defaults.

    All other parameters are those of `PrivateLogisticRegression`.

    Fitted: coef_ (features,), log hazard ratios; intercept_ (intervals,), the log-hazard of each, for one interval of a
    row of zeros; ends_, of the intervals; inference_; the rest as there.

    Formal guarantees: all fitted attributes together are (epsilon, delta)-differentially private for the replacement of
    one row, if there was no `PrivacyLeakWarning`. The numbers of rows and features and all parameters are public.
    Whoever runs the fit sees all rows, those of all simulated sites too; `privacy_` says what is assumed of whom.
    """

    fit_intercept: ClassVar[bool] = True  # type: ignore[misc]  # no parameter: the hazards take its place

    def __init__(
        self,
        epsilon: float = 1.0,
        *,
        until: float | None = None,
        bins: int | Sequence[float] = 12,
        delta: float | None = None,
        data_norm: float | None = None,
        sites: int = 1,
        graph: str | Graph = "complete",
        algorithm: ProportionalHazards | None = None,
        lam: float = 0.0,
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

    def fit(self, X: Any, y: Any, sites: Any = None, groups: Any = None, sample_weight: Any = None) -> Self:
        """Learn from private rows.

        Args:
            X: as of `PrivateLogisticRegression.fit`, and so are the last three.
            y: (time, event): two arrays of a number for each row; a structured array with one field of truth values and
                one of times, as scikit-survival takes it; or two columns. Times are 0 or more, and events are true or
                1 where the time ended with the event, and false or 0 where the row was censored then.
            sites: for each row the label of its site.
            groups: for each row whose it is.
            sample_weight: for each row how much it counts.
        """
        forget(self)
        times, happened = _times(y)
        # Of one row one number: below 0 where it was censored.
        signed = np.where(happened, times, -times)
        return self._fit(X, np.where(happened | (times > 0), signed, -0.0), sites, groups, self._factors(sample_weight))

    def _target(self, y: Any, leaks: list[Leak]) -> Target:
        times, happened = np.abs(y), ~np.signbit(y)
        ends = self._ends(times, leaks)
        answers = Answers.timed(ends)
        learnt = in_intervals(times, happened, ends)
        return Target(PiecewiseExponential(ends), learnt, answers, {"ends_": ends})

    def _ends(self, times: Floats, leaks: list[Leak]) -> tuple[float, ...]:
        until = self.until
        if until is None:
            leaks.append(
                Leak(
                    "The last time was computed from the private labels: the guarantee does not cover it.",
                    "Give until, from knowledge that does not rest on these rows; later times count as censored then.",
                )
            )
            until = float(times.max(initial=0.0)) or 1.0
        if isinstance(self.bins, int | np.integer):
            return (*(until * i / self.bins for i in range(self.bins)), float(until))
        return (0.0, *map(float, self.bins), float(until))

    def _in_units(self, model: Linear, answers: Answers) -> tuple[Floats, Floats]:  # noqa: ARG002
        return model.coef[:, 0], model.intercept

    def _choose(self, loss: Loss, delta: float, problem: Problem) -> Chosen:
        own = ProportionalHazards() if self.algorithm is None else self.algorithm
        if not isinstance(own, ProportionalHazards):
            raise InputError(f"Expected algorithm as ProportionalHazards(...) or None, got algorithm={own!r}.")
        given: dict[str, Any] = {"epsilon": self.epsilon, "delta": delta, "lam": self.lam, "loss": loss}
        return Chosen(replace(own, **given, inference=problem.sites.factors.weights is None), None)

    def predict(self, X: Any) -> Floats:
        """How much larger the logarithm of a row's hazard is than that of a row of zeros: (rows,)."""
        found: Floats = self._outputs(X)[:, 0] - self.intercept_[0]
        return found

    def predict_survival(self, X: Any, times: Sequence[float]) -> Floats:
        """The share of rows like each without an event until each of these times, (rows, times); those beyond the last
        interval are refused.
        """
        return cast(PiecewiseExponential, self.loss_).survival(self._outputs(X), times)

    def score(self, X: Any, y: Any) -> float:
        """Harrell's concordance, computed without noise: for rows that are public."""
        times, happened = _times(y)
        scores = self.predict(X)
        check_consistent_length(scores, times)
        return concordance(scores, times, happened)

    def row_scores(self, X: Any, y: Any) -> Floats:  # noqa: ARG002
        raise UnsupportedError("Expected an estimator of classes or numbers to search with, got times to an event.")

    def _known_labels(self, y: Any) -> Floats:  # noqa: ARG002
        raise UnsupportedError("Expected classes or numbers for a private evaluation, got times to an event.")

    def _class_names(self) -> None:
        return None

    def to_model(self, schema: "Schema | None" = None) -> "Model":
        """As of `PrivateLogisticRegression`, without a schema; with one, train from a file."""
        expect(schema is None, "no schema for a model of times to an event", "Learn from the file: sottovoce train",
               schema=schema)  # fmt: skip
        check_is_fitted(self)
        weights = np.vstack([np.repeat(self.coef_[:, None], len(self.intercept_), axis=1), self.intercept_])
        return self._model(weights, (*self._names(), INTERCEPT), classes=None, inference=self.inference_)


def _times(y: Any) -> tuple[Floats, Bools]:
    """Times, and whether they ended with the event."""
    names = getattr(getattr(y, "dtype", None), "names", None)
    if names is not None:
        truths = [name for name in names if y.dtype[name] == np.bool_]
        expect(len(names) == 2 and len(truths) == 1, "y with one field of truth values and one of times", fields=names)
        happened, times = y[truths[0]], y[next(name for name in names if name != truths[0])]
    elif isinstance(y, tuple | list) and len(y) == 2:
        times, happened = y
    else:
        columns = np.asarray(y)
        fine = columns.ndim == 2 and columns.shape[1] == 2
        expect(fine, "y as (time, event), a structured array, or two columns", shape=columns.shape)
        times, happened = columns.T
    try:
        found, told = np.asarray(times, dtype=np.float64), np.asarray(happened, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise InputError("Expected times and events as numbers, got some that are none.") from error
    expect(found.ndim == 1 and found.shape == told.shape, "a time and an event for each row", times=found.shape,
           events=told.shape)  # fmt: skip
    bad = np.flatnonzero(~(np.isfinite(found) & (found >= 0)))
    if len(bad):
        raise InputError(f"Expected finite times of 0 or more, got another in row={int(bad[0])}. Leave the row out.")
    bad = np.flatnonzero((told != 0) & (told != 1))
    if len(bad):
        raise InputError(f"Expected events that are 0 or 1, got another in row={int(bad[0])}. Say which event it is.")
    return found, told == 1
