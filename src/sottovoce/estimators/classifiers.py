"""Private linear classifiers.

Two classes have one output, and its sign decides. More than two share one softmax loss: one run learns all columns, so
one budget pays for all classes.
"""

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from math import inf
from typing import Any, Literal, TypeAlias, final

import numpy as np
from numpy.typing import NDArray
from scipy import special
from sklearn.base import ClassifierMixin
from sklearn.utils import column_or_1d
from sklearn.utils.multiclass import check_classification_targets, type_of_target
from sklearn.utils.validation import check_is_fitted

from sottovoce.arrays import Floats
from sottovoce.errors import InputError, expect
from sottovoce.estimators.base import Leak, Target, _PrivateLinearModel
from sottovoce.estimators.draws import RandomState
from sottovoce.estimators.scaling import Linear
from sottovoce.estimators.training import AlgorithmChoice
from sottovoce.privacy import BudgetAccountant
from sottovoce.problem import losses
from sottovoce.problem.answers import Answers
from sottovoce.problem.graphs import Graph
from sottovoce.problem.losses import Loss, Signs
from sottovoce.problem.people import Surplus
from sottovoce.simulation.devices import DeviceName

HingeLoss: TypeAlias = Literal["hinge", "smoothed-hinge"]
HINGES: tuple[HingeLoss, ...] = ("hinge", "smoothed-hinge")


class _PrivateLinearClassifier(ClassifierMixin, _PrivateLinearModel):
    classes: Sequence[Any] | None
    classes_: NDArray[Any]

    @abstractmethod
    def _loss(self, classes: int) -> Loss:
        """The loss for that many classes, two or more; refuses a number that it cannot learn."""

    def _target(self, y: Any, leaks: list[Leak]) -> Target:
        check_classification_targets(y)
        present = np.unique(y)
        if self.classes is None:
            leaks.append(
                Leak(
                    "The classes were taken from the private labels: the guarantee does not cover them.",
                    "Give classes, from knowledge that does not rest on these rows.",
                )
            )
        classes = present if self.classes is None else np.unique(np.asarray(self.classes))
        if self.classes is not None:
            expect(len(classes) == len(self.classes), "different classes", classes=self.classes)
            _expect_among(present, classes, "Declare them, too")
        expect(len(classes) >= 2, "labels of two classes or more, not of one class", classes=len(classes))
        loss = self._loss(len(classes))
        return Target(
            loss, _label_numbers(loss, classes, y), Answers(tuple(map(str, classes.tolist()))), {"classes_": classes}
        )

    def _in_units(self, model: Linear, answers: Answers) -> tuple[Floats, Floats]:
        """For several classes the mean over them is taken off: it changes no prediction and carries only noise."""
        coef, intercept = model
        if len(answers.classes or ()) > 2:
            coef, intercept = coef - coef.mean(axis=1, keepdims=True), intercept - intercept.mean()
        return np.ascontiguousarray(coef.T), intercept

    def _class_names(self) -> tuple[str, ...]:
        return tuple(str(name) for name in self.classes_.tolist())

    def _known_labels(self, y: Any) -> Floats:
        _expect_among(np.unique(y), self.classes_, "Leave those rows out, or fit for all classes")
        return _label_numbers(self.loss_, self.classes_, y)

    def row_scores(self, X: Any, y: Any) -> Floats:
        """1 where the class is right, else 0: (rows,). Computed without noise."""
        return np.asarray(self.predict(X) == column_or_1d(y), dtype=np.float64)

    def decision_function(self, X: Any) -> Floats:
        """Two classes: one number for each row, from 0 on for the second class. More: one for each row and class."""
        z = self._outputs(X)
        return z if z.shape[1] > 1 else z[:, 0]

    def predict(self, X: Any) -> NDArray[Any]:
        """The class of each row."""
        z = self._outputs(X)  # first: it says so if nothing was fitted yet
        found: NDArray[Any] = self.classes_[self.loss_.decide(z)]
        return found


def _expect_among(present: NDArray[Any], classes: NDArray[Any], advice: str) -> None:
    """Refuse labels that are no class. Which they are may be private: they are not quoted."""
    if not np.isin(present, classes).all():
        raise InputError(f"Expected labels among classes={classes.tolist()}, got others. {advice}.")


def _label_numbers(loss: Loss, classes: NDArray[Any], y: Any) -> Floats:
    """Labels as the loss takes them: -1 and +1, or numbers from 0 on."""
    numbers = np.searchsorted(classes, y).astype(np.float64)
    labels: Floats = 2 * numbers - 1 if isinstance(loss.labels, Signs) else numbers
    return labels


@final
class PrivateLogisticRegression(_PrivateLinearClassifier):
    """Logistic regression, for two classes or more, private for every single row.

    Args:
        epsilon: the guarantee of the whole fit, for all classes together.
        delta: the chance that it may fail. None: 1e-5, and at most 1 / (100 rows); above 1 / rows there is a warning.
        data_norm: a bound on the Euclidean norm of rows, known without looking at them; longer rows are scaled down to
            it. None takes the longest row, with a `PrivacyLeakWarning`.
        classes: all possible labels. None takes them from y, with a `PrivacyLeakWarning`.
        sites: how many sites the rows are dealt out to. Or give their labels to `fit`.
        graph: which sites exchange messages: a name, such as "ring", or a Graph with a node for each site.
        algorithm: "masked" (only sums over all sites can be read), "ipadmm" (every site's messages are
            private by themselves, with settings planned from public numbers), or a private algorithm with settings of
            your own, such as MaskedNewton(colluding=3) or IPADMM(rounds=50), of which loss, lam, epsilon and delta are
            replaced by this estimator's. None: masked sums if the loss is smooth and the graph complete; else IPADMM.
        inference: of masked sums: True for standard errors in `summary`, of two classes. They take a part of the
            budget: 70 to 83 % go to a Hessian and a last gradient. They are of coefficients without a ridge, whatever
            lam is. None: no.
        focus: with inference: the name of a column of X, or names of some ("x0" where they have none), whose
            coefficients are asked for. The budget goes to these, and others are less sure. None: all alike.
        lam: weight of the ridge penalty lam/2 ||w||^2 beside the mean loss; w belongs to rows scaled to norm 1, and
            holds the intercept too.
        fit_intercept: learn a constant. It counts as a feature, so it costs some noise.
        accountant: is charged before anything is computed. None: that of the `with` block around the fit, if any.
        random_state: None takes noise from the operating system. A seed is for tests, with a `PrivacyLeakWarning`.
        device: "cpu", "plain" or "cuda"; changes nothing but speed, but that IPADMM on "cuda" has no head start.
        verbose: True shows a bar of the rounds, on a terminal or in a notebook.
        class_weight: of two classes that are declared, how much a row of each counts, as {"no": 1, "yes": 50}: public
            numbers, from a rate that is known without these rows. The noise grows with their ratio. Decisions then
            count a miss of the heavier class as so much worse; probabilities are those of classes that count alike.
        rows_per_person: the most rows of a person at a site, who then is protected with all of them: give `fit` groups.
            The noise grows with it. None: single rows are protected.
        sites_per_person: the most sites that a person has rows at.
        surplus: people with more rows at a site: "refuse" them, or "drop" all but their first ones. With "drop", rows
            under other people's names are not covered: they push theirs out. There is a `PrivacyLeakWarning`.
        weight_bound: the largest sample_weight in `fit`: a public number. What is minimised is
            the sum of weights times losses over rows times weight_bound, beside lam: rows with smaller
            weights have less influence, and the noise stays the same.

    Attributes:
        coef_: (1, features), or (classes, features).
        intercept_: (1,), or (classes,).
        classes_: sorted.
        privacy_: the `PrivacyStatement` of the fit.
        leaks_: what it does not cover because of these parameters, one sentence each; also among its notes.
        plan_: the plan of IPADMM; None if nothing was left to plan, and of masked sums, which need none.
        n_iter_: rounds.
        n_sites_: how many sites there were.
        site_rows_: the numbers of their rows.
        loss_: what was minimised.
        inference_: what `summary` shows, made of released sums alone; None without inference.

    Formal guarantees: all fitted attributes together are (epsilon, delta)-differentially private for the replacement of
    one row, if there was no `PrivacyLeakWarning`. The numbers of rows and features and all parameters are public.
    Whoever runs the fit sees all rows, those of all simulated sites too; `privacy_` says what is assumed of whom.
    """

    class_weight: Mapping[Any, float] | None

    def __init__(
        self,
        epsilon: float = 1.0,
        *,
        delta: float | None = None,
        data_norm: float | None = None,
        classes: Sequence[Any] | None = None,
        sites: int = 1,
        graph: str | Graph = "complete",
        algorithm: AlgorithmChoice = None,
        inference: bool | None = None,
        focus: str | Sequence[str] | None = None,
        lam: float = 1e-4,
        fit_intercept: bool = True,
        accountant: BudgetAccountant | None = None,
        random_state: RandomState = None,
        device: DeviceName = "cpu",
        class_weight: Mapping[Any, float] | None = None,
        rows_per_person: int | None = None,
        sites_per_person: int = 1,
        surplus: Surplus = "refuse",
        weight_bound: float = 1.0,
        verbose: bool = False,
    ) -> None:
        self._keep(locals())

    def _loss(self, classes: int) -> Loss:
        if self.class_weight is not None:
            return losses.WeightedLogistic(self._weight(classes))
        return losses.Logistic() if classes == 2 else losses.Softmax(classes)

    def _weight(self, count: int) -> float:
        """Number of rows of the first class that one of the second counts for. Public: never counted from the rows."""
        given, known = self.class_weight, None if self.classes is None else np.unique(np.asarray(self.classes)).tolist()
        if not isinstance(given, Mapping) or known is None or count != 2 or set(given) != set(known):
            raise InputError(
                "Expected class_weight as a table with a public weight for each of two declared classes, such as "
                f"{{0: 1, 1: 50}} with classes=[0, 1], got class_weight={given!r}, classes={self.classes!r}. Weights "
                "that are counted from the rows ('balanced') would reveal something about them: give numbers."
            )
        low, high = (float(given[name]) for name in known)
        expect(0 < low < inf and 0 < high < inf, "finite weights > 0 of both classes", class_weight=given)
        return high / low

    def predict_proba(self, X: Any) -> Floats:
        """The probability of every class: (rows, classes). With class_weight, as if all counted alike."""
        z = self._outputs(X)
        z = z - self.loss_.tilt if isinstance(self.loss_, losses.WeightedLogistic) else z
        both = np.hstack([np.zeros_like(z), z]) if z.shape[1] == 1 else z
        found: Floats = special.softmax(both, axis=1)
        return found

    def predict_log_proba(self, X: Any) -> Floats:
        """Logarithm of `predict_proba`: (rows, classes)."""
        check_is_fitted(self)
        return np.log(self.predict_proba(X))


@final
class PrivateLinearSVC(_PrivateLinearClassifier):
    """A linear support vector classifier for two classes, private for every single row.

    Args:
        loss: "smoothed-hinge", whose kink is rounded off, or "hinge".

    All other parameters and attributes are those of `PrivateLogisticRegression`, but for class_weight. More than two
    classes are refused: a classifier for each would split the budget between them. Use PrivateLogisticRegression, which
    learns all at once.
    """

    def __init__(
        self,
        epsilon: float = 1.0,
        *,
        loss: HingeLoss = "smoothed-hinge",
        delta: float | None = None,
        data_norm: float | None = None,
        classes: Sequence[Any] | None = None,
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

    def _target(self, y: Any, leaks: list[Leak]) -> Target:
        if self.classes is None and (kind := type_of_target(y, input_name="y")) == "multiclass":
            self._refuse(kind)
        return super()._target(y, leaks)

    def _loss(self, classes: int) -> Loss:
        expect(self.loss in HINGES, f"loss in {HINGES}", loss=self.loss)
        if classes > 2:
            self._refuse(f"{classes} classes")
        return losses.by_name(self.loss)

    def _refuse(self, kind: str) -> None:
        raise InputError(
            f"Only binary classification is supported. The type of the target is {kind}. "
            "Use PrivateLogisticRegression, which learns all classes under one budget."
        )

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = False
        return tags
