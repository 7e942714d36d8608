"""Base class of the estimators: scikit-learn's contract around one private run.

Nothing is inherited from scikit-learn's linear models, whose internals change from release to release. A fit

    reads its target            labels, and what their scale is                   (each estimator for itself)
    bounds the rows             `scaling`
    deals them out to sites     `dealing`, and binds them as a `Problem`
    chooses an algorithm        `training`, from public numbers
    pays and runs               `training`, as all do, by `solve`
    keeps                       the model, the statement and the plan; nothing else that was computed from the rows
"""

import math
import warnings
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Self

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_consistent_length, check_is_fitted, column_or_1d, validate_data

from sottovoce.algorithms import PrivateMethod
from sottovoce.algorithms.masked import features_of
from sottovoce.arrays import Floats
from sottovoce.errors import InputError, PrivacyError, PrivacyLeakWarning, expect
from sottovoce.estimators import dealing, training
from sottovoce.estimators.columns import expect_finite, expect_numbers
from sottovoce.estimators.draws import RandomState, draws_of
from sottovoce.estimators.scaling import CONSTANT, Linear, Scale, row_norms
from sottovoce.privacy import BudgetAccountant, PrivacyStatement, Unit
from sottovoce.privacy.strength import default_delta, large_delta, no_delta, no_epsilon, refusal
from sottovoce.problem.answers import Answers
from sottovoce.problem.factors import Factors
from sottovoce.problem.graphs import Graph
from sottovoce.problem.losses import Loss
from sottovoce.problem.people import DROPPED, Surplus
from sottovoce.problem.problem import Problem
from sottovoce.simulation.devices import DeviceName
from sottovoce.simulation.engine import Charge, Solved

if TYPE_CHECKING:
    from sottovoce.files.models import Model
    from sottovoce.files.models.inference import Inference
    from sottovoce.files.schema import Schema
    from sottovoce.tally import PrivateEvaluation


class Leak(NamedTuple):
    """Something that the guarantee does not cover because the caller wanted it so. The note goes with the model."""

    note: str
    advice: str


class Target(NamedTuple):
    """Labels as a loss takes them, what they mean to the caller, and the attributes that say so."""

    loss: Loss
    labels: Floats
    answers: Answers
    attributes: Mapping[str, Any]


class _Rehearsal(Exception):  # noqa: N818
    """Ends a rehearsal of a fit where it would have been charged."""

    def __init__(self, statement: PrivacyStatement) -> None:
        super().__init__(statement)
        self.statement = statement


def forget(estimator: BaseEstimator) -> None:
    """Delete the fitted attributes: after a fit that fails, an estimator must not look fitted."""
    for name in [name for name in vars(estimator) if name.endswith("_")]:
        delattr(estimator, name)


class _PrivateLinearModel(BaseEstimator, ABC):
    """A linear model, learnt with (epsilon, delta)-differential privacy for every single row."""

    # Groups are also what splitters go by: with metadata routing they come to a fit if it asks for them, and else not.
    __metadata_request__fit: ClassVar[Mapping[str, bool]] = {"groups": False}

    coef_: Floats
    intercept_: Any
    loss_: Loss
    privacy_: PrivacyStatement
    leaks_: tuple[str, ...]
    n_features_in_: int
    inference_: "Inference | None"
    site_rows_: tuple[int, ...]
    weighted_: bool

    # The parameters that all share; each class lists them in its own signature, which is where scikit-learn looks.
    epsilon: float
    delta: float | None
    data_norm: float | None
    sites: int
    graph: str | Graph
    algorithm: training.AlgorithmChoice
    lam: float
    fit_intercept: bool
    accountant: BudgetAccountant | None
    random_state: RandomState
    device: DeviceName
    rows_per_person: int | None
    sites_per_person: int
    surplus: Surplus
    weight_bound: float
    verbose: bool
    exposure_bound: float | None = None  # of counts alone

    def _keep(self, given: Mapping[str, Any]) -> None:
        """Keep the arguments of `__init__` as they came, under their names. A fit checks them."""
        for name in self._get_param_names():
            setattr(self, name, given[name])

    # -- what an estimator says for itself ----------------------------------------------------------------------------

    @abstractmethod
    def _target(self, y: Any, leaks: list[Leak]) -> Target:
        """The labels as the loss takes them. What the guarantee then does not cover is added to `leaks`."""

    _label_checks: ClassVar[Mapping[str, Any]] = {}  # what scikit-learn's `validate_data` should check of y

    @abstractmethod
    def _in_units(self, model: Linear, answers: Answers) -> tuple[Floats, Any]:
        """`coef_` and `intercept_` in the units of X and y, of a model of the labels that were learnt."""

    @abstractmethod
    def row_scores(self, X: Any, y: Any) -> Floats:
        """How good each row's prediction is, in 0..1. Computed without noise: for public rows, or inside a search."""

    @abstractmethod
    def _class_names(self) -> tuple[str, ...] | None:
        """The fitted classes as text; None in regression."""

    @abstractmethod
    def _known_labels(self, y: Any) -> Floats:
        """Labels of the fitted kind as the loss takes them, but numbers in their own unit; others are refused."""

    def _label_width(self) -> float | None:
        """Width of the bounds of y in regression; None for classes."""
        return None

    # -- scikit-learn's methods ---------------------------------------------------------------------------------------

    def fit(self, X: Any, y: Any, sites: Any = None, groups: Any = None, sample_weight: Any = None) -> Self:
        """Learn from private rows.

        Args:
            X: (rows, features), dense or sparse. Rows longer than `data_norm` are scaled down to it.
            y: one label for each row.
            sites: for each row the label of its site. None deals rows out at random to as many sites as the parameter
                of that name says.
            groups: for each row its person, as scikit-learn calls it; needed, and allowed, with rows_per_person. Equal
                values are one person. They are checked against rows_per_person and sites_per_person, and not kept.
            sample_weight: for each row its weight, above 0 and at most `weight_bound`; others are refused. It
                is as private as the rest of the row. None: equal weights.

        A fit that fails leaves the estimator unfitted. What it has charged to an accountant stays charged.
        """
        forget(self)
        return self._fit(X, y, sites, groups, self._factors(sample_weight))

    def _rehearse(self, X: Any, y: Any, sites: Any, groups: Any, factors: Factors) -> PrivacyStatement:
        """The statement of a fit, after all that it refuses or warns of; nothing is computed or charged."""

        def stop(statement: PrivacyStatement) -> None:
            raise _Rehearsal(statement)

        try:
            self._fit(X, y, sites, groups, factors, stop)
        except _Rehearsal as ended:
            return ended.statement
        raise AssertionError("a fit ended without a charge")

    def _fit(self, X: Any, y: Any, sites: Any, groups: Any, factors: Factors, payer: Charge | None = None) -> Self:
        expect_numbers(X)
        X, y = validate_data(
            self, X, y, accept_sparse="csr", dtype=np.float64, ensure_all_finite=False, **self._label_checks
        )
        expect_finite(X, self._given_names())
        leaks: list[Leak] = []
        draws = draws_of(self.random_state)
        payer = training.charge_to(self._payer("a second fit", "fit a clone")) if payer is None else payer
        unit = self._unit(groups)
        factors.expect_rows(len(y))
        people = None if groups is None else dealing.people_of(groups, len(y))
        if people is not None:
            kept, sites = dealing.without_surplus(sites, people, unit, self.surplus)
            X, y, people, factors = X[kept], y[kept], people[kept], factors[kept]
            if self.surplus == "drop":  # said whatever the rows are: that a person had too many is private
                leaks.append(Leak(DROPPED, "Say surplus='refuse' where somebody may enter rows under another's name."))
        target, scale = self._target(y, leaks), self._scale(X, leaks)
        parts = dealing.counted(self.sites, len(y)) if sites is None else dealing.by_labels(sites, len(y))
        delta = default_delta(len(y)) if self.delta is None else self.delta
        self._leaks_of_noise(leaks, delta, len(y))
        # A seed is for tests. The engine refuses it with rows that are declared private; here it is warned of.
        problem = Problem.from_arrays(
            scale.bounded(X), target.labels, parts, partial(training.graph_of, self.graph),
            private=self.random_state is None, seed=draws.seed, answers=target.answers,
            notes=tuple(leak.note for leak in leaks), unit=unit, people=people, factors=factors,
        )  # fmt: skip
        algorithm, plan = self._choose(target.loss, delta, problem)
        for leak in leaks:
            warnings.warn(f"{leak.note} {leak.advice}", PrivacyLeakWarning, stacklevel=3)

        solved = training.train(problem, algorithm, payer, draws, self.device, bool(self.verbose))
        self.privacy_, self.plan_ = solved.result.privacy, plan
        self.loss_ = target.answers.loss_of(target.loss)
        self.leaks_ = problem.notes
        self.n_iter_, self.n_sites_ = solved.algorithm.rounds, problem.sites.n
        self.site_rows_ = tuple(problem.sites.counts.tolist())
        self.weighted_ = factors.weights is not None
        for name, value in target.attributes.items():
            setattr(self, name, value)
        self.coef_, self.intercept_ = self._in_units(scale.restored(solved.weights), target.answers)
        self.inference_ = self._inference(solved, scale)
        return self

    def _inference(self, solved: Solved, scale: Scale) -> "Inference | None":
        """The coefficients with standard errors, if they were asked for."""
        from sottovoce.files.models.inference import CUT, INTERCEPT, by_unit, inferred, of_people, told_of

        if not solved.result.evidence:
            return None
        assert isinstance(solved.algorithm, PrivateMethod)  # no other leaves evidence
        matrix, names = by_unit(scale.restored, solved.problem.sites.d), (*self._names(), INTERCEPT)
        matrix, names = told_of(solved.result.evidence[0], matrix, names)
        if not scale.constant:
            matrix, names = matrix[:-1], names[:-1]
        evidence = replace(solved.result.evidence[0], largest=max(1.0, scale.constant) / scale.longest)
        answers, weighed = solved.problem.answers, solved.problem.sites.factors.weights is not None
        one, offset = answers.model(np.ones(1)) if answers.classes is None else (np.ones(1), 0.0)
        return inferred(
            solved.algorithm, evidence, names, float(one[0]) * matrix, (CUT, *of_people(evidence)), offset,
            scale.constant / scale.longest, weighed,
        )  # fmt: skip

    def summary(self) -> "Inference":
        """The coefficients with standard errors that include the privacy noise, intervals, z, p and odds ratios. It
        prints as a table. `to_frame()` makes a DataFrame of it, `to_csv()` and `to_dict()` the rest.

        It needs inference=True before the fit.
        """
        check_is_fitted(self)
        if self.inference_ is None:
            raise InputError(
                "Expected a model that was fitted for inference, got one without. Standard errors need releases of "
                "their own, paid for beforehand: fit with inference=True."
            )
        return self.inference_

    def evaluate_privately(
        self, X: Any, y: Any, *, epsilon: float, delta: float | None = None, threshold: float | None = None,
        colluding: int | None = None, sites: int = 1, exposure: Any = None,
    ) -> "PrivateEvaluation":  # fmt: skip
        """How good the fitted model is on private rows, from noisy sums over them; the result may be shared.

        Args:
            X: (rows, features), preferably rows that it was not fitted on.
            y: one label for each row, of the classes that it was fitted for; numbers are clipped to their bounds.
            epsilon: the guarantee of this evaluation, charged to the accountant of the estimator or of the `with` block
                around. Of rows that it was fitted on, it adds to the cost of the fit.
            delta: None: 1e-5, and at most 1 / (100 rows).
            threshold: of two classes: the least probability at which the second is predicted; without probabilities,
                the least decision value. None: as `predict` does.
            colluding: with several sites: how many may collude. None: fewer than half of them, but at least one.
            sites: number of simulated sites that hold the rows.
            exposure: of counts, for each row its exposure, as for `fit`.

        Every row counts alike, whatever its weight was in the fit; after a fit with weights the statement says so.

        Formal guarantees: (epsilon, delta)-differentially private for the replacement of one of these rows, or of a
        person's where the fit protects people. It is assumed, not checked, that nobody has more rows here than in the
        fit. Noise is the operating system's, whatever `random_state` says.
        """
        from sottovoce import tally
        from sottovoce.tally.evaluation import COUNTED_ALIKE

        z, factors = self._outputs(X), self._factors(exposure=exposure)
        factors.expect_rows(len(z))
        # A model of counts is of one unit of exposure; the factors of rows are relative to the bound.
        z = factors.shifted(z if z.ndim > 1 else z[:, None]) + math.log(self.exposure_bound or 1.0)
        labels = self._known_labels(column_or_1d(y))
        check_consistent_length(z, labels)
        accountant = self._payer("an evaluation", "evaluate a clone that was fitted outside")
        chosen = default_delta(len(labels)) if delta is None else delta
        unit = self.privacy_.unit  # who was protected in the fit is protected here
        known: dict[str, float] = {}  # where the scores of two classes lie, as far as public numbers say
        if np.size(self.intercept_) <= 1:
            known["centre"] = float(np.ravel(self.intercept_)[0])
            if self.data_norm is not None:
                known["reach"] = self.data_norm * float(np.linalg.norm(self.coef_))
        found = tally.evaluate_privately(
            self.loss_, z, labels,
            tally.Terms(epsilon=epsilon, delta=chosen, sites=sites, colluding=colluding, unit=unit),
            classes=self._class_names(), threshold=threshold, width=self._label_width(), **known,
            charge=training.charge_to(accountant),
            learnt=sum(self.site_rows_),
        )  # fmt: skip
        return replace(found, privacy=found.privacy.noting(COUNTED_ALIKE)) if self.weighted_ else found

    def to_model(self, schema: "Schema | None" = None) -> "Model":
        """The fitted model as one that can be saved, checked and applied without scikit-learn.

        Args:
            schema: how raw rows become the features that X held. It has its own constant feature, so fit with
                fit_intercept=False then (in regression either is fine).

        Without a schema, the intercept of a classifier becomes the weight of a last feature, which is always 1.
        """
        check_is_fitted(self)
        weights, classes = np.atleast_2d(self.coef_).T, self._class_names()
        intercept = np.atleast_1d(np.asarray(self.intercept_, dtype=np.float64))
        names = self._names() if schema is None else schema.feature_names
        if classes is not None and intercept.any():
            if schema is not None:
                raise InputError(
                    "Expected a model without an intercept beside a schema, which has a constant feature of its own, "
                    f"got fit_intercept={self.fit_intercept!r}. Fit with fit_intercept=False."
                )
            weights, names = np.vstack([weights, intercept]), (*names, "intercept")
        return self._model(
            weights, names, classes=classes, schema=schema, offset=float(intercept[0]) if classes is None else 0.0,
            inference=None if schema is not None else self.inference_,
        )  # fmt: skip

    def _model(self, weights: Floats, names: tuple[str, ...], **about: Any) -> "Model":
        """These weights as a model, with the guarantee and the origin of the fit."""
        from sottovoce import __version__
        from sottovoce.files.models import Model

        return Model(
            weights=np.ascontiguousarray(weights),
            loss=self.loss_,
            names=tuple(names),
            privacy=self.privacy_,
            provenance={
                "sottovoce": __version__,
                "estimator": type(self).__name__,
                "rounds": self.n_iter_,
                "rows": {f"site-{i + 1}": rows for i, rows in enumerate(self.site_rows_)},
            },
            **about,
        )

    def __sklearn_is_fitted__(self) -> bool:
        """True after a fit. `n_features_in_` does not say so: a fit that was refused has set it already."""
        return "coef_" in vars(self)

    def __getstate__(self) -> dict[str, Any]:
        """The state to pickle; refused before a fit if the accountant of a `with` block would be left behind."""
        left_behind = False
        if self.accountant is None:
            try:
                left_behind = BudgetAccountant.current() is not None
            except PrivacyError:  # it is of another thread: joblib pickles in one of its own
                left_behind = True
        if left_behind and not self.__sklearn_is_fitted__():
            raise PrivacyError(
                "Expected to be fitted in the process of the BudgetAccountant around, got pickled before the fit: in "
                "another process nobody would charge it. Use n_jobs=1, or pickle outside of the `with` block."
            )
        state: dict[str, Any] = super().__getstate__()
        # A fitted model may be pickled, but a second fit of it must not go uncharged.
        return {**state, "_left_behind": True} if left_behind else state

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    def _payer(self, what: str, otherwise: str) -> BudgetAccountant | None:
        """The accountant to charge, or None; refused if the one of a `with` block was left behind by a pickle."""
        accountant = training.accountant_of(self.accountant)
        if accountant is None and vars(self).get("_left_behind", False):
            raise PrivacyError(
                f"Expected an accountant for {what}, got none: this estimator was pickled within the `with` block of a "
                f"BudgetAccountant, which did not come along. Give it one (accountant=...), or {otherwise}."
            )
        return accountant

    # -- parts of a fit -----------------------------------------------------------------------------------------------

    def _unit(self, groups: Any) -> Unit:
        """What is protected: rows or, with groups, people."""
        if (groups is None) != (self.rows_per_person is None):
            came = f"rows_per_person={self.rows_per_person!r} and {'no ' if groups is None else ''}groups"
            raise InputError(
                f"Expected groups in fit together with rows_per_person, or neither, got {came}. Give both to protect "
                "people, neither to protect single rows."
            )
        return Unit(self.rows_per_person, self.sites_per_person)

    def _scale(self, X: Any, leaks: list[Leak]) -> Scale:
        constant = CONSTANT if self.fit_intercept else 0.0
        if self.data_norm is not None:
            return Scale(self.data_norm, constant)
        leaks.append(
            Leak(
                "The bound data_norm was computed from the private rows: the guarantee does not cover it.",
                "Give data_norm, from knowledge that does not rest on these rows; longer rows are scaled down to it.",
            )
        )
        longest = float(row_norms(X).max())
        return Scale(longest if longest > 0 else 1.0, constant)

    def _choose(self, loss: Loss, delta: float, problem: Problem) -> training.Chosen:
        objective = {"lam": self.lam, "epsilon": self.epsilon, "delta": delta, "loss": loss}
        focus = getattr(self, "focus", None) or ()
        focus = features_of((focus,) if isinstance(focus, str) else tuple(map(str, focus)), self._names())
        inference = bool(getattr(self, "inference", False))
        return training.choose(self.algorithm, inference, objective, problem, focus, self.device)

    def _leaks_of_noise(self, leaks: list[Leak], delta: float, rows: int) -> None:
        none, large = no_delta(delta), large_delta(delta, rows)
        if none is not None:
            raise InputError(refusal(none))
        if large is not None:
            leaks.append(Leak(*large))
        weak = None if math.isinf(self.epsilon) else no_epsilon(self.epsilon)
        if weak is not None:
            leaks.append(Leak(*weak))
        if math.isinf(self.epsilon):
            leaks.append(
                Leak("With epsilon = inf no noise is added.", "Give a finite epsilon if the rows are private.")
            )
        elif self.random_state is not None:
            leaks.append(
                Leak(
                    "The noise came from a seed: the guarantee holds only against those who do not know it.",
                    "Leave random_state=None on private rows; a seed is for tests.",
                )
            )

    def _outputs(self, X: Any) -> Floats:
        """X coef^T + intercept, (rows,) or (rows, outputs); refused before a fit."""
        check_is_fitted(self)
        expect_numbers(X)
        X = validate_data(self, X, accept_sparse="csr", dtype=np.float64, reset=False, ensure_all_finite=False)
        expect_finite(X, self._given_names())
        scores: Floats = np.asarray(X @ self.coef_.T)
        apart = scores.ndim == 1 and np.ndim(self.intercept_) == 1  # several outputs that differ in the intercept alone
        z: Floats = np.add.outer(scores, self.intercept_) if apart else scores + self.intercept_
        return z

    def _factors(self, sample_weight: Any = None, exposure: Any = None) -> Factors:
        """Weights and exposures of the rows; refused outside of the bounds that were declared."""
        self._expect_exposure(exposure)
        return Factors.of(
            weights=sample_weight, weight_bound=self.weight_bound, exposures=exposure,
            exposure_bound=1.0 if self.exposure_bound is None else self.exposure_bound,
        )  # fmt: skip

    def _expect_exposure(self, exposure: Any) -> None:
        """Refuse exposures of an estimator that takes none, and missing ones of an estimator that needs them."""
        expect(exposure is None, "exposures with PrivatePoissonRegressor only", estimator=type(self).__name__)

    def _names(self) -> tuple[str, ...]:
        return self._given_names() or tuple(f"x{i}" for i in range(self.n_features_in_))

    def _given_names(self) -> tuple[str, ...] | None:
        """Names of the columns of a data frame that it was fitted on; None for an array."""
        named = vars(self).get("feature_names_in_")
        return None if named is None else tuple(map(str, named))
