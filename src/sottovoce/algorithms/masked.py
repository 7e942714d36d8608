"""MaskedNewton: a model, its standard errors and its evaluation from noisy sums over all sites.

Three programs of sums, one after the other; nothing but the sums is ever seen, and the whole is one budget:

    learn          second moments, then gradients with noise in their shape          `sottovoce.sums.descent`
    infer          with `inference`: a Hessian and a last gradient           `sottovoce.sums.standard_errors`
    evaluate       with `evaluate`: two counts of how good the model is      `sottovoce.sums.evaluating`

Every sum has the noise of a trusted curator, if no more than `colluding` sites collude. Privacy: docs/proofs/masked.md.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Self, final

from sottovoce.algorithms.analysis import Learning
from sottovoce.errors import UnsupportedError, expect
from sottovoce.oracle.plain import Oracle
from sottovoce.oracle.row_sums import RowSums
from sottovoce.oracle.whitening import Whitening
from sottovoce.privacy.accounting.gaussian import mu_for
from sottovoce.privacy.unit import ROW, Unit
from sottovoce.problem.losses import Logistic, Poisson
from sottovoce.settings import check_choice
from sottovoce.sums import evaluating
from sottovoce.sums.curvature import WIDEST_MATRIX
from sottovoce.sums.descent import SHORT_STEP, STEP, Fit, descend
from sottovoce.sums.focus import ASKED
from sottovoce.sums.program import HeldOut, Known, LearntFrom, Line, Program, asking
from sottovoce.sums.standard_errors import VARIED, standard_errors
from sottovoce.sums.whitening import TO_INFER, TO_PREDICT
from sottovoce.tally.evaluation import COUNTED_ALIKE

# Chosen on some tables and judged on others: docs/proofs/masked.md says which, and how well they do.
MOMENTS = 0.05  # of the budget, mu^2, goes to the second moments, the rest in equal parts to the gradients
# With inference, the parts of it for moments, all gradients of the descent, the Hessian and the last gradient.
INFERENCE = (0.05, 0.25, 0.15, 0.55)
# Where noise is small beside the rows, the second and the third are smaller: so many times the root of the noise of a
# single release, within these bounds. Chosen on some tables and judged on others: docs/proofs/inference.md says which.
BY_NOISE = ((8.0, 0.12, 0.25), (5.0, 0.1, 0.15))
FOCUSED = (0.05, 0.35, 0.2, 0.4)  # and for gradients along single directions in place of the last, with focus
# Gradients that are asked for where nobody says how many: FEW noise^-FALL, for p > WIDE times sqrt(p / WIDE), at least
# WALK sqrt(p), within the bounds.
FEW, FALL, WIDE, WALK = 2.5, 0.2, 50, 1.2
FEWEST, MOST_WALKED, MOST, UNTROUBLED = 4, 9, 16, 299  # the last without noise, where only time is lost

# What a sum is of, as statements and tables say it, in this order.
KINDS = MOMENTS_OF, DESCENT, HESSIAN, LAST, FOCUS, EVALUATION = (
    "second moments", "descent", "Hessian", "last gradient", "focused gradient", "evaluation",
)  # fmt: skip
_JUDGED = (
    ", and then two that evaluate the last of them: how many rows have a score in each of many narrow cells, "
    "and counts of scores by label, or sums of clipped errors"
)


def features_of(columns: Sequence[str], features: Sequence[str]) -> tuple[int, ...]:
    """The numbers of the features that these columns became, for `MaskedNewton.focus`: those of the same name, and all
    levels of a category. Refuses a column without any.
    """
    found = dict[int, None]()
    for column in columns:
        own = [i for i, name in enumerate(features) if name == column or name.startswith(f"{column}=")]
        if not own:
            known = list(dict.fromkeys(name.partition("=")[0] for name in features))
            check_choice("focus", column, known)
        found |= dict.fromkeys(own)
    return tuple(found)


@final
@dataclass(frozen=True, kw_only=True)
class MaskedNewton(Learning):
    """Newton-like descent on masked sums: the noise of a trusted curator, without one.

    Args:
        rounds: exchanges in all: one of second moments, the rest of gradients; with `evaluate`, the last two of
            that. None: it follows from public numbers
            (`exchanges`) as soon as the rows are known, by `bound_to`.
        inference: True for standard errors of the coefficients. The budget is then divided (`division`), and the
            loss must be a likelihood: logistic, or Poisson, for which the dispersion of counts is estimated too.
        focus: with `inference`: numbers of the features whose coefficients are asked for. The budget goes to these, and
            is divided by `FOCUSED`; the intervals of others are wider. Empty: all alike.
        division: with `inference`: the parts of the budget for second moments, the descent, the Hessian and what comes
            last. None: it follows from public numbers by `bound_to`; until then, the constants.
        evaluate: the share of the budget, mu^2, for two more sums that evaluate the model: on the same rows, unless
            some are held out. None: it is not evaluated.
        hold_out: with `evaluate`: one of so many rows of each site, chosen at random and in secret, is not learnt from,
            and only those are evaluated on. None: all rows are learnt from and evaluated on.
    """

    # None only until it is bound: whoever runs or agrees on a method binds it first, and finds a number.
    rounds: int | None = None  # type: ignore[assignment]
    inference: bool = False
    focus: tuple[int, ...] = ()
    division: tuple[float, float, float, float] | None = None
    evaluate: float | None = None
    hold_out: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.loss.smoothness_bound is None:
            raise UnsupportedError(
                f"Expected a loss with curvature for MaskedNewton, got loss={self.loss.name!r}, whose slope jumps. Use "
                "a smooth one such as logistic, smoothed-hinge, huber or softmax, or IPADMM."
            )
        part = self.evaluate
        expect(part is None or 0 < part < 1, "evaluate as a share of the budget between 0 and 1", evaluate=part)
        expect(
            part is None or math.isfinite(self.epsilon), "a finite epsilon with evaluate",
            "The evaluation would be computed without noise, and look as if it were covered: leave evaluate out",
            epsilon=self.epsilon,
        )  # fmt: skip
        self._expect_held_out()
        expect(not self.focus or self.inference, "inference with focus, which is on intervals", focus=self.focus)
        parts = self.division
        whole = parts is None or (self.inference and min(parts) > 0 and math.isclose(sum(parts), 1.0))
        expect(whole, "division as four parts of the budget that add up to 1, with inference", division=parts)
        once = len(set(self.focus)) == len(self.focus) and min(self.focus, default=0) >= 0
        expect(once, "focus as numbers of different features, from 0 on", focus=self.focus)
        if self.inference:
            self._expect_inferable()
        if self.regulariser.l1:
            raise UnsupportedError(
                f"Expected a smooth regulariser for MaskedNewton, got regulariser={self.regulariser.name!r}. Use l2."
            )

    def _check_rounds(self) -> None:
        least, last = (2, "") if self.evaluate is None else (4, ", and two of the evaluation")
        enough = self.rounds is None or self.rounds >= least
        expect(enough, f"rounds >= {least}: one of second moments, the rest of gradients{last}", rounds=self.rounds)

    def bound_to(self, rows: int, features: int, sites: int, unit: Unit = ROW) -> Self:
        """The same with as many rounds as `exchanges` says, unless they were given; with inference, with the parts of
        the budget that follow from the same numbers.
        """
        numbers = rows, features, sites, unit
        if self.rounds is None:
            return replace(self, rounds=self.exchanges(*numbers)).bound_to(*numbers)
        if not self.inference or self.focus or self.division is not None or math.isinf(self.epsilon):
            return self
        if not isinstance(self.loss, Logistic):  # Hessians of counts have more noise, and bear no less of the budget
            return self
        root = math.sqrt(self._noise(*numbers))
        descent, hessian = (round(min(max(by * root, least), most), 3) for by, least, most in BY_NOISE)
        parts = INFERENCE[0], descent, hessian, round(1 - INFERENCE[0] - descent - hessian, 3)
        return replace(self, division=parts)

    def _noise(self, rows: int, features: int, sites: int, unit: Unit) -> float:
        """The noise of a single release of the gradient over what it is hidden in, from public numbers."""
        share = sites / max(1, self.members(sites) - self.colluders(sites))
        numbers = features * self.loss.outputs
        together = min(unit.changed * min(unit.sites, sites), rows)
        return together * math.sqrt(numbers * share) / (rows * mu_for(self.epsilon, self.delta))

    def _expect_inferable(self) -> None:
        """Refuse what would have no standard errors, or wrong ones."""
        least = 2 + self._inferring + self._judging
        last = f"{ASKED} focused gradients" if self.focus else "a last gradient"
        wanted = f"rounds >= {least} with inference: second moments, a gradient, a Hessian and {last}"
        wanted += ", and two of the evaluation" if self._judging else ""
        expect(self.rounds is None or self.rounds >= least, wanted, rounds=self.rounds)
        why = "Standard errors need a likelihood; leave inference out, or, for a label that is a number, take "
        why += "algorithm='least-squares'"
        if self.loss.outputs > 1:
            k = self.loss.outputs
            why = (
                f"A Hessian of {k} classes would have {k * k} times the numbers, and as much more noise as hides most "
            )
            why += "coefficients; learn one class against another, or leave inference out"
        fits = isinstance(self.loss, Logistic | Poisson)
        expect(fits, "loss='logistic' or 'poisson' with inference", why, loss=self.loss.name)
        expect(
            self.max_grad_norm is None, "no max_grad_norm with inference",
            "Clipped gradients vanish elsewhere than the likelihood's: leave it out", max_grad_norm=self.max_grad_norm,
        )  # fmt: skip

    def _expect_held_out(self) -> None:
        every = self.hold_out
        if every is None:
            return
        fine = every % 1 == 0 and 2 <= every <= evaluating.MOST_EVERY
        expect(fine, f"hold_out as a whole number of rows from 2 to {evaluating.MOST_EVERY}, of which one is held out",
               hold_out=every)  # fmt: skip
        expect(
            self.evaluate is not None, "evaluate with hold_out",
            "Rows that are neither learnt from nor evaluated on are lost: give the share of the budget for evaluate",
            evaluate=self.evaluate,
        )  # fmt: skip

    @property
    def _judging(self) -> int:
        """Number of sums that the evaluation takes."""
        return 0 if self.evaluate is None else 2

    @property
    def _whitened(self) -> bool:
        """True if gradients have noise in the shape of the rows: where they are not clipped in other coordinates."""
        return self.max_grad_norm is None

    @property
    def _gradients(self) -> int:
        """Number of gradients of the descent."""
        return self.opened - 1 - self._inferring - self._judging

    @property
    def _inferring(self) -> int:
        """Number of sums that standard errors take."""
        return self.inference * (1 + (ASKED if self.focus else 1))

    @property
    def _dealt(self) -> tuple[float, float, float, float]:
        """The parts of the budget for moments, all gradients of the descent, the Hessian and what comes last."""
        if not self.inference:
            return MOMENTS, 1 - MOMENTS, 0.0, 0.0
        return self.division or (FOCUSED if self.focus else INFERENCE)

    def schedule(self, features: int) -> tuple[Line, ...]:
        """Second moments and gradients; with inference a Hessian and a gradient more; then the evaluation."""
        d, half = features * self.loss.outputs, features * (features + 1) // 2
        moments = half if features <= WIDEST_MATRIX else features
        first, descent, hessian, last = ((1 - (self.evaluate or 0.0)) * part for part in self._dealt)
        lines = [Line(MOMENTS_OF, moments, 0, first)]
        point = d + (Whitening.size(features, features <= WIDEST_MATRIX) if self._whitened else 0)
        lines += self._gradients * [Line(DESCENT, d, point, descent / max(self._gradients, 1))]
        if self.inference:
            varied = VARIED if isinstance(self.loss, Poisson) else 0
            lines += [Line(HESSIAN, half + varied, point, hessian)]
            k = len(self.focus)
            lines += (
                [Line(LAST, d, point, last)]
                if k == 0
                else (ASKED * [Line(FOCUS, k + k * d, point + k * d, last / ASKED)])
            )
        if self.evaluate is not None:
            sizes = zip(evaluating.room(self.loss), evaluating.dealt(self.evaluate), strict=True)
            lines += [Line(EVALUATION, numbers, d, part) for numbers, part in sizes]
        return tuple(lines)

    def program(self, known: Known) -> Program[Fit]:
        """Learn a model; then, if asked for, infer its standard errors and evaluate it."""
        learn, every = self._learn(known), self.hold_out
        fit = yield from learn if every is None else asking(learn, partial(LearntFrom, every=every))
        if self.evaluate is None:
            return fit
        judge = evaluating.judge(self.loss, known, fit.last, fit)
        evaluation = yield from judge if every is None else asking(judge, partial(HeldOut, every=every))
        # The model that was evaluated: all sites took its bits, whatever they round to.
        return fit._replace(last=evaluation.question.point, evaluation=evaluation)

    def _learn(self, known: Known) -> Program[Fit]:
        penalty = self.lam * self.regulariser.l2
        if not self.inference:
            alpha = SHORT_STEP if self.loss.fully_curved else STEP
            shape = TO_PREDICT if self._whitened else None
            found = yield from descend(self.loss, known, self._gradients, penalty=penalty, alpha=alpha, long_rows=shape)
            return found.fit
        # Without a regulariser: coefficients are those of the likelihood, and one Newton step from the optimum of
        # another objective does not get there.
        found = yield from descend(self.loss, known, self._gradients, penalty=0.0, alpha=SHORT_STEP, long_rows=TO_INFER)
        return (yield from standard_errors(self.loss, known, found, penalty=penalty, places=self.focus))

    # -- public numbers -----------------------------------------------------------------------------------------------

    def exchanges(self, rows: int, features: int, sites: int, unit: Unit = ROW) -> int:
        """The default number of `rounds`, from public numbers alone.

        The more of a gradient is noise, the fewer: each has noise sqrt(T) times that of a single release, and in
        directions that M^ says nothing about the steps add up like a walk, whose length grows with T. That walk costs
        about T^2 / p, so wide tables bear more of it, and have more directions that are learnt slowly.

        Args:
            rows: N, over all sites.
            features: p.
            sites: n.
            unit: what is protected: a person's rows take more noise than one row.
        """
        expect(rows >= 1 and features >= 1 and sites >= 1, "rows, features and sites", "Count all", rows=rows)
        if math.isinf(self.epsilon):
            return UNTROUBLED + 1
        spent = sum(self._dealt[:2]) * (1 - (self.evaluate or 0.0))
        noise = self._noise(rows, features, sites, unit) / math.sqrt(spent)
        walked = min(max(FEWEST, round(WALK * math.sqrt(features))), MOST_WALKED)
        wanted = round(FEW * math.pow(noise, -FALL) * math.sqrt(max(1.0, features / WIDE)))
        return 1 + min(max(walked, wanted), MOST) + self._inferring + self._judging

    @property
    def released(self) -> str:
        """What everyone sees, in words."""
        gradients = self._gradients + (self.inference and not self.focus)
        varied = ", of how far counts are from their means, and of those" if isinstance(self.loss, Poisson) else ""
        hessian = f", at one of them of their Hessians too{varied}" if self.inference else ""
        return (
            "the noisy sum over all sites of the second moments of their rows, and then, at each of "
            f"{gradients} public models, of their records' gradients{hessian}"
            f"{'' if self.evaluate is None else _JUDGED}; single sites' messages are masked"
        )

    def notes(self, site: RowSums) -> tuple[str, ...]:
        """Adds which rows the evaluation is of, if there is one."""
        if self.evaluate is None:
            return super().notes(site)
        of = evaluating.FLATTERED if self.hold_out is None else evaluating.HELD_OUT.format(self.hold_out)
        weighed = site.sites.factors.weights is not None
        return *super().notes(site), of, *((COUNTED_ALIKE,) if weighed else ())

    def check(self, site: Oracle) -> None:
        """Refuse what cannot be kept, before a row is touched."""
        super().check(site)
        expect(
            not self.inference or site.sites.d <= WIDEST_MATRIX, f"at most {WIDEST_MATRIX} features with inference",
            "Take fewer columns, or wider groups of categories", features=site.sites.d,
        )  # fmt: skip
        expect(max(self.focus, default=-1) < site.sites.d, f"focus on features below {site.sites.d}", focus=self.focus)
        expect(
            not self.inference or site.sites.factors.weights is None, "rows that count alike with inference",
            "Standard errors depend on what weights stand for, and on their squares, which are not released: "
            "leave inference or the weights out", weights=True,
        )  # fmt: skip
        if site.network.sites.n == site.n:
            self.expect_rows(site.network.sites.counts.tolist())

    def expect_rows(self, counts: Sequence[int]) -> None:
        """Refuse sites none of which has enough rows to hold one out."""
        super().expect_rows(counts)
        every = self.hold_out
        expect(every is None or max(counts) >= every, f"a site with hold_out={every} rows or more, whichever "
               f"{len(counts)} sites take part", "Hold one of fewer rows out, or leave hold_out away",
               rows=max(counts))  # fmt: skip
