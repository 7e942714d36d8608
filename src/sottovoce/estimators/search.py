"""Tuning on private rows, under one budget: the best of a random number of fits, chosen by noisy scores.

A score on private rows is a release, and so is the choice of the best. Here K is drawn from a public law; K times a
candidate is drawn, fitted and scored with noise; the best is kept, and nothing else is ever shown. That costs far
less than showing all K (docs/proofs/selection.md). A run is mu-GDP, split between fit and score:

    mu_fit^2 = (1 - share) mu^2,      mu_score^2 = share mu^2,

and mu is the largest with which the whole search stays within (epsilon, delta).

Nobody may learn K. So every candidate is rehearsed up to its charge, drawn or not: what is refused, and what is warned
of, follows from the whole grid. The fits themselves are silent, and one that fails is the worst outcome there is. How
long they take is for the caller to hide: `answer_every`.
"""

import math
import time
import warnings
from collections.abc import Mapping, Sequence
from copy import deepcopy
from random import Random
from typing import Any, NamedTuple, Self, final

import numpy as np
from sklearn.base import BaseEstimator, MetaEstimatorMixin, clone
from sklearn.model_selection import ParameterGrid
from sklearn.utils import get_tags
from sklearn.utils.validation import check_is_fitted, check_X_y

from sottovoce.errors import InputError, PrivacyError, PrivacyLeakWarning, expect
from sottovoce.estimators import dealing, training
from sottovoce.estimators.base import _PrivateLinearModel, forget
from sottovoce.estimators.columns import expect_numbers
from sottovoce.estimators.draws import RandomState, draws_of
from sottovoce.privacy import (
    BudgetAccountant,
    Gaussian,
    NegativeBinomialRuns,
    PrivacyStatement,
    RepeatAndSelect,
    Unit,
    epsilon_of_mu,
    gamma_for,
    noise_for,
    repetitions,
    scored,
)
from sottovoce.privacy import epsilon as price
from sottovoce.privacy.accounting.accountant import plain_mu
from sottovoce.privacy.strength import default_delta, no_delta, no_epsilon, refusal

# What the search sets itself, and what all candidates must share for their scores to mean the same.
RESERVED = (
    "epsilon", "delta", "accountant", "random_state", "classes", "y_bounds", "y_max", "rows_per_person",
    "sites_per_person", "surplus", "weight_bound", "exposure_bound", "verbose",
)  # fmt: skip
_ROUNDING = 1e-9


class Costs(NamedTuple):
    """Event of the whole search, and the noise multipliers of its parts."""

    event: RepeatAndSelect
    fit_sigma: float  # of one fit as a whole, as if it were one Gaussian release
    score_sigma: float  # on the sum of the scores of all rows, each between 0 and 1, over what a unit moves it by
    delta: float


class SearchRun(NamedTuple):
    """One fit and its noisy score. Runs are ordered by score; a random number decides between equals."""

    score: float  # -inf of a fit that failed: it is shown if all did
    tie: float
    params: Mapping[str, Any]
    outcome: _PrivateLinearModel | Exception


class SearchRows(NamedTuple):
    """The rows that every fit gets."""

    X: Any
    y: Any
    sites: Any
    groups: Any
    beside: Mapping[str, Any]  # weights and exposures, if there are any


def _exposure_argument(exposure: Any) -> dict[str, Any]:
    """The argument `exposure`, or none: only models of counts take it."""
    return {} if exposure is None else {"exposure": exposure}


@final
class PrivateSearch(MetaEstimatorMixin, BaseEstimator):
    """Fit candidates on private rows and keep the best, with (epsilon, delta)-differential privacy in all.

    For rows in one process, whose other runs nobody sees. Sites that exchange messages over a network show every run to
    their neighbours, so the lower cost would not be justified.

    Args:
        estimator: a private estimator of this package, with data_norm and classes (or y_bounds, or y_max) given. Its
            epsilon, delta, accountant and random_state are set by the search.
        candidates: values to try, by parameter, as for GridSearchCV. Candidates are drawn from the grid at random.
        epsilon: of the guarantee of the whole search: the fits, the scores and the choice.
        delta: of the same guarantee; None as in the estimators.
        runs: how many fits to make, in the mean. Their number itself is random and stays secret.
        eta: of the negative binomial law of their number: 0 is cheapest and often makes few, 1 varies less.
        score_share: the part of a run's budget that pays for its score.
        answer_every: seconds. The search answers at a whole multiple of this time since its start, so that its duration
            reveals no more than which. Set it well above what most searches take. None: answers as soon as it is done.
        accountant: is charged once, before anything is computed. None: that of the `with` block around, if any.
        random_state: None takes everything from the operating system. A seed is for tests.

    Attributes:
        best_estimator_: the best fit. Its privacy_ is the search's, since that is what it cost.
        best_params_: its candidate.
        best_score_: its noisy score: the accuracy, or 1 - mean |error| / (width of y_bounds).
        privacy_: the statement of the search.

    Warnings and refusals are those of all candidates, drawn or not; the fits print nothing. How long a search takes
    reveals how many runs there were: give `answer_every`, or show the result at a time that was fixed before. Someone
    who can watch the process compute still sees it.
    """

    best_estimator_: Any
    best_params_: Mapping[str, Any]
    best_score_: float
    privacy_: PrivacyStatement

    def __init__(
        self,
        estimator: _PrivateLinearModel,
        candidates: Mapping[str, Sequence[Any]],
        epsilon: float = 1.0,
        *,
        delta: float | None = None,
        runs: float = 10.0,
        eta: float = 0.0,
        score_share: float = 0.2,
        answer_every: float | None = None,
        accountant: BudgetAccountant | None = None,
        random_state: RandomState = None,
    ) -> None:
        self.estimator = estimator
        self.candidates = candidates
        self.epsilon = epsilon
        self.delta = delta
        self.runs = runs
        self.eta = eta
        self.score_share = score_share
        self.answer_every = answer_every
        self.accountant = accountant
        self.random_state = random_state

    def fit(
        self, X: Any, y: Any, sites: Any = None, groups: Any = None, sample_weight: Any = None, exposure: Any = None
    ) -> Self:
        """Search. Arguments as for the estimators. Fits go by the weights; in scores every row counts alike, and a
        count is compared with the mean of its exposure.
        """
        forget(self)
        grid, draws = self._grid(), draws_of(self.random_state)
        unit = self.estimator._unit(groups)
        expect_numbers(X)
        check_X_y(X, y, accept_sparse="csr")  # what does not fit is refused before anything is paid for
        self.estimator._factors(sample_weight, exposure).expect_rows(len(y))
        beside = {"sample_weight": sample_weight, "exposure": exposure}
        beside = {name: np.asarray(values) for name, values in beside.items() if values is not None}
        if groups is not None:
            # Scores are summed over the same rows that are learnt from: at most as many of a person as was declared.
            X, y = check_X_y(X, y, accept_sparse="csr", dtype=None)
            people = dealing.people_of(groups, len(y))
            kept, sites = dealing.without_surplus(sites, people, unit, self.estimator.surplus)
            X, y, groups = X[kept], y[kept], people[kept]
            beside = {name: values[kept] for name, values in beside.items()}
        costs = self._costs(default_delta(len(y)) if self.delta is None else self.delta)
        data = SearchRows(X, y, sites, groups, beside)
        for message, category in self._rehearse(grid, costs, data):
            warnings.warn(message, category, stacklevel=2)
        accountant = training.accountant_of(self.accountant)
        if accountant is not None:
            accountant.spend(costs.event, unit)
        random, started = draws.random(), time.monotonic()
        best: SearchRun | None = None
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")  # as many as there are runs; those of settings were caught in the rehearsal
            for _ in range(repetitions(costs.event.runs, random)):
                candidate = grid[random.randrange(len(grid))]
                run = self._run(candidate, costs, draws.child(), random, data, unit)
                best = run if best is None or (run.score, run.tie) > (best.score, best.tie) else best
        assert best is not None  # the law never says 0
        if self.answer_every is not None:
            time.sleep(-(time.monotonic() - started) % self.answer_every)
        if isinstance(best.outcome, Exception):
            raise best.outcome
        self.best_estimator_, self.best_params_ = best.outcome, best.params
        self.best_score_ = best.score / len(y)
        self.privacy_ = self.best_estimator_.privacy_ = self._statement(costs, best.outcome)
        return self

    def predict(self, X: Any, exposure: Any = None) -> Any:
        """What the best estimator predicts; `exposure` as there, of counts alone."""
        check_is_fitted(self)
        if exposure is not None:
            self.best_estimator_._expect_exposure(exposure)
        return self.best_estimator_.predict(X, **_exposure_argument(exposure))

    def score(self, X: Any, y: Any, exposure: Any = None) -> float:
        """The best estimator's score on these rows, computed without noise: for rows that are public."""
        check_is_fitted(self)
        self.best_estimator_._expect_exposure(exposure)
        return float(self.best_estimator_.score(X, y, **_exposure_argument(exposure)))

    def __sklearn_is_fitted__(self) -> bool:
        return "best_estimator_" in vars(self)

    def __sklearn_tags__(self) -> Any:
        """Tags of the estimator that is tuned."""
        tags, inner = super().__sklearn_tags__(), get_tags(self.estimator)
        for name in ("estimator_type", "classifier_tags", "regressor_tags", "target_tags", "input_tags"):
            setattr(tags, name, deepcopy(getattr(inner, name)))
        return tags

    # -- parts of a search --------------------------------------------------------------------------------------------

    def _grid(self) -> Sequence[Mapping[str, Any]]:
        kind = type(self.estimator)
        expect(isinstance(self.estimator, _PrivateLinearModel), "an estimator of this package", estimator=kind.__name__)
        known = set(self.estimator.get_params(deep=False)) - set(RESERVED)
        for name in self.candidates:
            expect(name in known, f"candidates for parameters among {', '.join(sorted(known))}", name=name)
        return list(ParameterGrid(self.candidates))

    def _costs(self, delta: float) -> Costs:
        """The least noise that meets the guarantee; refuses settings with which there is none."""
        none = no_delta(delta)
        if none is not None:
            raise InputError(refusal(none))
        expect(0 < self.score_share < 1, "0 < score_share < 1", score_share=self.score_share)
        every = self.answer_every
        expect(every is None or 0 < every < math.inf, "answer_every as seconds above 0, or None", answer_every=every)
        runs = NegativeBinomialRuns(self.eta, gamma_for(self.runs, self.eta))
        fit, score = 1 / math.sqrt(1 - self.score_share), 1 / math.sqrt(self.score_share)

        def search(noise: float) -> RepeatAndSelect:
            return RepeatAndSelect(scored(Gaussian(noise * fit), noise * score), runs)

        noise = noise_for(search, self.epsilon, delta)
        return Costs(search(noise), noise * fit, noise * score, delta)

    def _candidate(self, candidate: Mapping[str, Any], costs: Costs, seed: int | None) -> _PrivateLinearModel:
        share = epsilon_of_mu((1 - _ROUNDING) / costs.fit_sigma, costs.delta)
        # Books of its own, thrown away: the search is paid for, and an accountant around us must not pay twice.
        books = BudgetAccountant(math.inf, costs.delta)
        made = clone(self.estimator).set_params(
            **candidate,
            epsilon=share,
            delta=costs.delta,
            accountant=books,
            random_state=seed,
            verbose=False,  # bars would tell how many fits there are
        )
        assert isinstance(made, _PrivateLinearModel)
        return made

    def _rehearse(
        self, grid: Sequence[Mapping[str, Any]], costs: Costs, data: SearchRows
    ) -> list[tuple[str, type[Warning]]]:
        """Try every candidate up to its charge, and return the warnings of all, each once. They do not depend on which
        candidates are drawn, so they say nothing of the number of runs.
        """
        factors = self.estimator._factors(data.beside.get("sample_weight"), data.beside.get("exposure"))
        found: dict[tuple[str, type[Warning]], None] = {}
        for candidate in grid:
            estimator = self._candidate(candidate, costs, None if self.random_state is None else 0)
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                event = estimator._rehearse(data.X, data.y, data.sites, data.groups, factors).event
            mu = plain_mu(event)
            if mu is None or mu > 1 / costs.fit_sigma:
                raise PrivacyError(
                    "Expected candidates that add plain Gaussian noise, which the search is calibrated on, got "
                    f"event={event.words!r}. "
                    "Give an algorithm without batches, such as algorithm=IPADMM(rounds=50)."
                )
            own = no_epsilon(estimator.epsilon)  # of one fit, which is not a promise
            given = [(str(one.message), one.category) for one in caught]
            found |= dict.fromkeys(one for one in given if own is None or not one[0].startswith(own.note))
        whole = no_epsilon(self.epsilon)
        if whole is not None:
            found[f"{whole.note} {whole.advice}", PrivacyLeakWarning] = None
        return [*found]

    def _run(
        self, candidate: Mapping[str, Any], costs: Costs, seed: int | None, random: Random, data: SearchRows, unit: Unit
    ) -> SearchRun:
        X, y, sites, groups, beside = data
        estimator = self._candidate(candidate, costs, seed)
        try:
            estimator.fit(X, y, sites=sites, groups=groups, **beside)
            scores = estimator.row_scores(X, y, **_exposure_argument(beside.get("exposure")))
        except Exception as error:  # whatever it is: to stop here would tell that this candidate was drawn
            return SearchRun(-math.inf, random.random(), candidate, error)
        # The noise is made for scores between 0 and 1. A prediction that is no number is as wrong as can be.
        right = np.clip(np.where(np.isnan(scores), 0.0, scores), 0.0, 1.0)
        # One row moves the sum by at most 1, a person's by as many as they have, wherever those are.
        score = float(np.sum(right)) + random.normalvariate(0.0, unit.changed * unit.sites * costs.score_sigma)
        return SearchRun(score, random.random(), candidate, estimator.set_params(accountant=None))

    def _statement(self, costs: Costs, best: _PrivateLinearModel) -> PrivacyStatement:
        # The epsilon of the search is judged; that of one fit is not a promise.
        own, whole = no_epsilon(best.epsilon), no_epsilon(self.epsilon)
        kept = [note for note in best.privacy_.notes if own is None or note != own.note]
        return PrivacyStatement(
            event=costs.event,
            epsilon=price(costs.event, costs.delta),
            target_epsilon=self.epsilon,
            delta=costs.delta,
            calibration="exact",
            sigma=costs.fit_sigma,
            released="the best of a random number of private fits, its parameters and its noisy score",
            unit=best.privacy_.unit,
            notes=(*kept, *([] if whole is None else [whole.note])),
        )
