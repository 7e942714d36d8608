"""MaskedNewton: preconditioned gradient descent on sums over all sites, of which nothing but the sum is ever seen.

With N = sum m_i rows in all, B the bound on their norm and L the loss's smoothness, every site sends

    exchange 1      its share of  M = sum a a^T  (the half of it, or for wide tables the diagonal)       sensitivity
                                                                                                          sqrt(2) B^2
    exchange k > 1  its share of  G(y) = sum of all records' gradients at the public point y             Loss.spread

each with noise of standard deviation sigma_k Delta_k / sqrt(u - c): the sum of the u shares that it holds at least,
less the c that colluding sites know, has standard deviation sigma_k Delta_k. Masks that cancel in the sum hide all
else. With M^ = M~ / N = sum_j l_j u_j u_j^T (l_j < 0 taken as 0), and the public numbers tau, alpha, beta below,

    y  = w + beta (w - w_before)
    w <- (1 + grow) y - alpha (bend L (M^ + tau I) + lam l2 I)^-1 (G~(y) / N + lam l2 y)

    tau    `ridge` times the size of the noise in M^ (its spectral norm, up to a constant); the more of M^ is noise,
           the larger the factor. It is bent by no less than LEAST_BEND
    bend   how much of the bound L M^ the curvature really is: <G~(y) - G~(y'), y - y'> over that of L M^, from the
           points so far, recent ones weighing more; between LEAST_BEND and 1

    grow   Newton's step along y itself, after the other: of the gradient along one line little is noise,
           however many features there are. Nothing where it may be noise

With `inference`, the last two of the exchanges are

    exchange T - 1  its share of  H(w) = sum of all records' Hessians at the public point w              sqrt(2) L B^2
    exchange T      its share of  G(w'), at a better point w' that the Hessian and the gradients so far say

none of which has the regulariser in it: coefficients are those of the likelihood. lam has a part in the last step
alone, which makes the model.
(Of counts, H(w) goes with two numbers more, of how much counts vary beside what a Poisson count does: 1.5 L B^2.)
Coefficients have standard errors that know the noise: `sottovoce.algorithms.inference`. With `evaluate`, two more
after them count how good the model is: `sottovoce.algorithms.evaluating`.

For wide tables only the diagonal m_j of M^ is known. In place of M^ stands the diagonal matrix of sum_i sqrt(m_i)
sqrt(m_j), which bounds it: a a^T <= (sum_j a_j^2 / s_j) diag(s) for every s > 0, by Cauchy and Schwarz; take s_j =
sqrt(m_j) and the mean.

Everything that a site knows of others is the transcript of sums, and its state is a function of that alone. So the
state is held once for all nodes here: (1, ..., runs). rho plays no part. Privacy: docs/proofs/masked.md.
"""

import math
from collections.abc import Callable
from collections.abc import Sequence as Listing
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal, NamedTuple, Self, TypeAlias, final

import numpy as np

from sottovoce.algorithms import evaluating
from sottovoce.algorithms.base import Outputs
from sottovoce.algorithms.evaluating import Asked
from sottovoce.algorithms.inference import Evidence
from sottovoce.algorithms.summed import SummedAlgorithm, normals
from sottovoce.arrays import Array, Floats
from sottovoce.errors import InputError, UnsupportedError, expect
from sottovoce.noise.sources import Noise
from sottovoce.oracle.plain import VARIATION, Oracle, whole
from sottovoce.privacy.accounting.gaussian import mu_for
from sottovoce.privacy.unit import ROW, Unit
from sottovoce.problem.graphs import Inbox
from sottovoce.problem.losses import Logistic, Poisson
from sottovoce.tally.evaluation import COUNTED_ALIKE, Tallied

# Chosen on some tables and judged on others: docs/proofs/masked.md says which, and how well they do.
MOMENTS = 0.03  # of the budget, mu^2, goes to the second moments, the rest in equal parts to the gradients
# With inference, the parts of it for moments, all gradients of the descent, the Hessian and the last gradient.
INFERENCE = (0.05, 0.25, 0.30, 0.40)
STEP, MOMENTUM = 1.4, 0.5  # alpha and beta
# alpha where the curvature is all of its bound: 1.4 is then within 7 % of where steps swing up. And with inference,
# where steps must end at the optimum: swings along one direction would carry the model too far along others.
SHORT_STEP = 1.0
LEAST_RIDGE, MOST_RIDGE = 1.0, 2.5
RIDGE_FROM, RIDGE_SLOPE = 0.016, 0.6  # the part of the trace of M^ that is noise, from which on the factor grows
MEMORY, LEAST_BEND = 0.5, 0.2
LEAST_GROWTH, MOST_GROWTH = -0.5, 1.0
# Gradients that are asked for where nobody says how many: FEW noise^-FALL, at least WALK sqrt(p), within the bounds.
FEW, FALL, WALK = 2.5, 0.2, 1.2
FEWEST, MOST_WALKED, MOST, UNTROUBLED = 4, 9, 16, 299  # the last without noise, where only time is lost
FLOOR = 1e-4  # of tau, as a part of the largest l_j: without noise there is none else

WIDEST_MATRIX = 511  # features: the half of a larger matrix would be more than 2^17 numbers, one mebibyte

# Of what an exchange sums up.
Kind: TypeAlias = Literal["moments", "gradient", "hessian", "last gradient", "places", "counts"]
KINDS: dict[Kind, str] = {
    "moments": "second moments", "gradient": "descent", "hessian": "Hessian", "last gradient": "last gradient",
    "places": "evaluation", "counts": "evaluation",
}  # fmt: skip
_JUDGED = (
    ", and then two that say how good the last of them is: how many rows have a score in each of many narrow cells, "
    "and counts of scores by label, or sums of clipped errors"
)
_GRADIENTS: tuple[Kind, ...] = ("gradient", "last gradient")
_EVALUATION: tuple[Kind, ...] = ("places", "counts")


class State(NamedTuple):
    """What the next exchange needs, all of it public. d model parameters, p features."""

    values: Array  # (1, p, runs) eigenvalues of M^, or what bounds it, from its diagonal
    trace: Array  # (1, 1, runs) of M^
    basis: Array  # (1, p p, runs) its eigenvectors, as columns; (1, 0, runs) for a diagonal
    w: Array  # (1, d, runs) the model
    before: Array  # (1, d, runs) the one before
    point: Array  # (1, d, runs) where the last gradient was taken
    gradient: Array  # (1, d, runs) that gradient, of the mean loss
    bent: Array  # (1, 1, runs) curvature along the way, as measured
    bound: Array  # (1, 1, runs) and as L M^ bounds it
    total: Array  # (1, d, runs) sum of the models so far
    held: Array  # (nodes, 1, runs) zeros, one for each node here: all hold the same model
    points: Array  # (1, d, runs) sum of the points of the later half; later, the Hessian's point; with inference alone
    gradients: Array  # (1, d, runs) and of the gradients there
    hessian: Array  # (1, p (p + 1) / 2, runs) the half of the Hessian of the mean loss; with inference alone
    variation: Array  # (1, 2, runs) of counts, what came with it
    places: Array  # (1, numbers, runs) the first sum of the evaluation; with `evaluate` alone, as the next two
    counts: Array  # (1, numbers, runs) and the second
    asked: Array  # (1, 2, runs) how many rows were in each; 0 before


@final
@dataclass(frozen=True, kw_only=True)
class MaskedNewton(SummedAlgorithm[State]):
    """Newton-like descent on masked sums: the noise of a trusted curator, without one.

    Args:
        rounds: exchanges in all: one of second moments, the rest of gradients; with `evaluate`, the last two of
            that. None: it follows from public numbers
            (`exchanges`) as soon as the rows are known, by `bound_to`.
        inference: whether coefficients are to have standard errors. It takes `INFERENCE` of the budget, and a loss that
            is a likelihood: logistic, or Poisson, of which it is learnt how much more counts vary.
        evaluate: which share of the budget, mu^2, two more sums take, that say how good the model is: on these very
            rows, unless some are held out. None: it is not evaluated.
        hold_out: with `evaluate`: one of so many rows of each site, chosen at random and told to nobody, is not learnt
            from, and the evaluation is of those alone. None: all rows are learnt from, and it is of them.
        total_held: how many those are, over all sites, where only some are held here. None: as many as follow.
    """

    # None only until it is bound: whoever runs or agrees on an algorithm binds it first, and finds a number.
    rounds: int | None = None  # type: ignore[assignment]
    inference: bool = False
    evaluate: float | None = None
    hold_out: int | None = None
    total_held: int | None = None

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
            "What is told of the model would be read off the rows, and look as if it were covered: leave evaluate out",
            epsilon=self.epsilon,
        )  # fmt: skip
        self._expect_held_out()
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
        """The same with as many rounds as `exchanges` says, unless they were given."""
        return self if self.rounds is not None else replace(self, rounds=self.exchanges(rows, features, sites, unit))

    @property
    def opened(self) -> int:
        """How many sums are opened: a number by now."""
        if self.rounds is None:
            raise InputError(
                "Expected a number of exchanges, got rounds=None, which follows from rows, features and sites. Give "
                "rounds, or bind it first: bound_to(rows, features, sites)."
            )
        return self.rounds

    @property
    def learning(self) -> int:
        """How many of them it takes to learn the model; those after them say how good it is."""
        return self.opened - self._judging

    @property
    def _judging(self) -> int:
        return 0 if self.evaluate is None else 2

    def _expect_inferable(self) -> None:
        """Refuse what would have no standard errors, or wrong ones."""
        least = 4 + self._judging
        wanted = f"rounds >= {least} with inference: second moments, a gradient, a Hessian and a last gradient"
        wanted += ", and two of the evaluation" if self._judging else ""
        expect(self.rounds is None or self.rounds >= least, wanted, rounds=self.rounds)
        expect(
            isinstance(self.loss, Logistic | Poisson), "loss='logistic' or 'poisson' with inference",
            "Standard errors need a likelihood; "
            "leave inference out, or, for a label that is a number, use PrivateLinearRegression", loss=self.loss.name,
        )  # fmt: skip
        expect(
            self.max_grad_norm is None, "no max_grad_norm with inference",
            "Clipped gradients vanish elsewhere than the likelihood's: leave it out", max_grad_norm=self.max_grad_norm,
        )  # fmt: skip

    def _expect_held_out(self) -> None:
        every, held = self.hold_out, self.total_held
        if every is None:
            expect(held is None, "no total_held without hold_out", total_held=held)
            return
        fine = every % 1 == 0 and 2 <= every <= evaluating.MOST_EVERY
        expect(fine, f"hold_out as a whole number of rows from 2 to {evaluating.MOST_EVERY}, of which one is held out",
               hold_out=every)  # fmt: skip
        expect(
            self.evaluate is not None, "evaluate with hold_out",
            "Rows that are neither learnt from nor evaluated on are lost: say which share of the budget evaluates",
            evaluate=self.evaluate,
        )  # fmt: skip
        expect(held is None or held >= 1, "total_held >= 1", total_held=held)

    @property
    def holds_out(self) -> bool:
        return self.hold_out is not None

    def held_of(self, rows: int) -> int:
        """How many of a site's rows are held out."""
        return 0 if self.hold_out is None else rows // self.hold_out

    def counting(self, counts: Listing[int]) -> Self:
        """The same for sites with so many rows each, of which not all may be held here."""
        held = None if self.hold_out is None else sum(map(self.held_of, counts))
        return replace(self, total_rows=sum(counts), total_held=held)

    def kind(self, k: int) -> Kind:
        """What exchange k sums up."""
        if k == 1:
            return "moments"
        if self.evaluate is not None and k > self.learning:
            return "places" if k < self.opened else "counts"
        if self.inference and k >= self.learning - 1:
            return "hessian" if k < self.learning else "last gradient"
        return "gradient"

    # -- what the sites do ----------------------------------------------------------------------------------------

    def start(self, site: Oracle, runs: int) -> State:
        """All zero."""
        self.check(site)
        p, full = site.sites.d, self._full(site)
        sizes = {"values": p, "trace": 1, "basis": p * p * full, "bent": 1, "bound": 1}
        sizes |= {"hessian": p * (p + 1) // 2} if self.inference else {"points": 0, "gradients": 0, "hessian": 0}
        sizes |= {"variation": self._varied}
        places, counts = self._tallies if self._judging else (0, 0)
        sizes |= {"places": places, "counts": counts, "asked": self._judging}
        zeros = {name: np.zeros((1, sizes.get(name, site.d), runs)) for name in State._fields}
        return State(**{**zeros, "held": np.zeros((site.sites.n, 1, runs))})

    def release(self, k: int, state: State, site: Oracle, noise: Noise) -> tuple[Array, State]:
        """The sum of the messages of all sites that take part here, (1, numbers, runs): of one site, its message. More
        than that sum is never needed, and its noise is drawn as a whole, which has the same law as the sum of the
        shares.
        """
        sums = self.exact(k, state, site)
        if math.isfinite(self.epsilon):
            unit, drawn = self._unit(k, state, site), normals(k, sums.shape[1], site, noise)
            sums = sums + math.sqrt(site.network.sites.n / self.honest(site.n)) * unit * drawn
        return sums, state

    def exact(self, k: int, state: State, site: Oracle) -> Array:
        """What the noise of exchange k is to hide, (1, numbers, runs): it must not leave a site."""
        if self.kind(k) not in _EVALUATION and self.hold_out is not None:
            site, _ = site.apart(self.hold_out)
        if self.kind(k) == "moments":
            return np.repeat(site.moments(self._full(site))[None, :, None], state.w.shape[2], axis=2)
        if self.kind(k) == "hessian":
            point = self._point(state)
            varied = [site.variation_sum(point)] if self._varied else []
            return np.concatenate((site.hessian_sum(point), *varied), axis=1)
        if self.kind(k) in _EVALUATION:
            return self._counted(k, state, site)
        return site.gradient_sum(self._point(state)).astype(np.float64)

    def shared(self, k: int, state: State) -> Array:
        """What exchange k is asked about, as all sites must hold it bit by bit: the model and the one before, (1, 2 d,
        runs); nothing in the first. The point follows from them number by number, and so has the same bits everywhere.
        """
        return np.concatenate((state.w, state.before), axis=1) if k > 1 else state.w[:, :0]

    def with_shared(self, k: int, state: State, shared: Array) -> State:
        """The state with these bits in place of those that were computed here."""
        if k == 1:
            return state
        w, before = np.split(shared.reshape(1, -1, state.w.shape[2]), 2, axis=1)
        return state._replace(w=w, before=before)

    def shared_numbers(self, k: int, features: int) -> int:
        """How many numbers `shared` holds."""
        return 2 * features * self.loss.outputs if k > 1 else 0

    def absorb(self, k: int, state: State, site: Oracle, inbox: Inbox) -> State:
        """The second moments, a step, or the Hessian and a better place to take the last gradient at."""
        total, kind = inbox.everyone().astype(np.float64), self.kind(k)
        if kind in _EVALUATION:
            return self._noted(kind, state, site, total)
        heard = total / self._rows(site)
        if kind == "moments":
            return self._measured(state, site, heard)
        if kind == "hessian":
            return self._refined(state, site, heard)
        return self._moved(k, state, site, heard) if kind == "gradient" else self._finished(state, site, heard)

    def outputs(self, k: int, state: State) -> Outputs:
        """The mean of the models so far, and the last: all nodes hold the same."""
        shape = len(state.held), *state.w.shape[1:]
        models = sum(self.kind(q) in _GRADIENTS for q in range(2, k + 1))
        mean, last = (np.broadcast_to(model, shape) for model in (state.total / max(models, 1), state.w))
        return Outputs(average=mean, last=last)

    @property
    def draws_per_round(self) -> int:
        """Enough for the largest matrix, where p features need (p + 1) / 2, and for counts about one feature."""
        return max((WIDEST_MATRIX + 1) // 2 + self._varied, max(self._tallies) if self._judging else 0)

    def _point(self, state: State) -> Array:
        """y: where the next gradient is taken."""
        return state.w + MOMENTUM * (state.w - state.before)

    def _measured(self, state: State, site: Oracle, heard: Array) -> State:
        if not self._full(site):
            largest = self._matrix_noise(1, site) * math.sqrt(2 * math.log(2 * site.sites.d))  # to be expected of p
            roots = np.sqrt(np.maximum(heard, 0.0) + largest)
            return state._replace(
                values=roots.sum(axis=1, keepdims=True) * roots, trace=heard.sum(axis=1, keepdims=True)
            )
        p, runs = site.sites.d, heard.shape[2]
        m = whole(heard[0].T)
        values, vectors = np.linalg.eigh(m)
        basis = np.ascontiguousarray(vectors.transpose(1, 2, 0)).reshape(1, p * p, runs)
        trace = np.trace(m, axis1=1, axis2=2)[None, None, :]
        return state._replace(values=np.maximum(values, 0.0).T[None], trace=trace, basis=basis)

    def _moved(self, k: int, state: State, site: Oracle, heard: Array) -> State:
        s, y, penalty = state, self._point(state), self._penalty
        bent, bound = s.bent, s.bound
        if k > 2:
            way = y - s.point
            bent = MEMORY * bent + np.sum((heard - s.gradient) * way, axis=1, keepdims=True)
            bound = MEMORY * bound + self._curvature(site) * self._product(s, site, way, way)
        least = LEAST_BEND if self._full(site) else LEAST_BEND / site.sites.d  # a diagonal may bound far too much
        bend = np.where(bound > 0, np.clip(bent / np.where(bound > 0, bound, 1.0), least, 1.0), 1.0)
        tau = np.maximum(self._edge(site) * self._ridge(s, site), FLOOR * s.values.max(axis=1, keepdims=True))
        # The ridge keeps what is noise in the steps from adding up, so it must not shrink as a diagonal's bound may.
        filled = bend * s.values + np.maximum(bend, LEAST_BEND) * tau
        scale = self._curvature(site) * filled + penalty
        gradient = heard + penalty * y
        alpha = SHORT_STEP if self.loss.fully_curved or self.inference else STEP
        step = alpha * self._divided(s, site, gradient, np.maximum(scale, np.finfo(np.float64).tiny))
        w = y - step + self._growth(k, s, site, gradient, step, bend) * y
        moved = s._replace(
            w=w, before=s.w, point=y, gradient=heard, bent=bent, bound=bound, total=s.total + w
        )  # fmt: skip
        return self._remembered(k, moved) if self.inference else moved

    @property
    def _penalty(self) -> float:
        """What the descent adds to the curvature. With inference, nothing: coefficients are those of the likelihood,
        and one Newton step from the optimum of another objective does not get there.
        """
        return 0.0 if self.inference else self.lam * self.regulariser.l2

    # -- for standard errors --------------------------------------------------------------------------------------

    def _late(self) -> range:
        """The exchanges of the later half of the descent, whose gradients were taken near the end."""
        return range((self.learning + 1) // 2, self.learning - 1)

    def _remembered(self, k: int, state: State) -> State:
        """With the sums over the later half. What comes after the descent is asked about the model itself."""
        if k in self._late():
            state = state._replace(points=state.points + state.point, gradients=state.gradients + state.gradient)
        return state._replace(before=state.w) if k == self.learning - 2 else state

    def _refined(self, state: State, site: Oracle, heard: Array) -> State:
        """The Hessian, and one Newton step with it on all late gradients: those are free, and where the last gradient
        is taken should be near the optimum.
        """
        numbers = state.hessian.shape[1]
        state = state._replace(hessian=heard[:, :numbers], variation=heard[:, numbers:])
        h, count = whole(state.hessian[0].T), len(self._late())
        way = (state.w - state.points / count)[0].T
        gradient = state.gradients / count + np.einsum("rij,rj->ri", h, way).T[None]
        w = self._stepped(state, site, gradient, 0.0)
        return state._replace(w=w, before=w, points=self._point(state))

    def _finished(self, state: State, site: Oracle, heard: Array) -> State:
        """The last gradient, and the model: one more Newton step, the only one that the regulariser has a part in."""
        w = self._stepped(state, site, heard, self.lam * self.regulariser.l2)
        return state._replace(point=state.w, gradient=heard, w=w, before=w, total=state.total + w)

    def _stepped(self, state: State, site: Oracle, gradient: Array, penalty: float) -> Array:
        """w after a Newton step with the Hessian, filled up by the size of its noise where that hides it."""
        values, vectors = np.linalg.eigh(whole(state.hessian[0].T))
        edge = self._matrix_noise(self.learning - 1, site) * math.sqrt(2 * site.sites.d)
        floor = np.maximum(edge, FLOOR * values.max(axis=1, keepdims=True))
        scale = np.maximum(values, 0.0) + np.where(values < 2 * floor, floor, 0.0) + penalty
        turned = np.einsum("rji,rj->ri", vectors, (gradient + penalty * state.w)[0].T) / scale
        step: Array = np.einsum("rij,rj->ri", vectors, turned).T[None]
        return state.w - step

    def evidence(self, k: int, state: State, site: Oracle) -> tuple[Evidence, ...]:
        """What the coefficients of every run are inferred from: all of it public."""
        if not self.inference or k < self.learning:
            return ()
        k = self.learning
        runs, hessians = state.w.shape[2], whole(state.hessian[0].T)
        noise = np.broadcast_to(self._noise(k, state._replace(w=state.point, before=state.point), site), (1, 1, runs))
        return tuple(
            Evidence(
                point=state.point[0, :, run].astype(np.float64), gradient=state.gradient[0, :, run].astype(np.float64),
                hessian=hessians[run], hessian_point=state.points[0, :, run].astype(np.float64),
                gradient_noise=float(noise[0, 0, run]), hessian_noise=self._matrix_noise(k - 1, site),
                rows=self._rows(site), moments=self._second_moments(state, run), largest=site.sites.data_norm,
                together=site.sites.unit.changed * site.sites.unit.sites, dispersion=self._dispersion(state, site, run),
                exponential=bool(self._varied),
            )
            for run in range(runs)
        )  # fmt: skip

    @property
    def _varied(self) -> int:
        """How many numbers go with the Hessian."""
        return 2 if self.inference and isinstance(self.loss, Poisson) else 0

    def _dispersion(self, state: State, site: Oracle, run: int) -> float:
        """What the covariance of a record's gradient is over the Hessian: 1 for a logistic model that is true. Of
        counts, the mean of (count - mean)^2 over that of means, which for Poisson counts is 1 / Y in the unit that they
        are learnt in; each a standard deviation of its noise on the safe side.
        """
        if not self._varied:
            return 1.0
        unit = self._curvature(site) * site.sites.data_norm**2
        squares, means = (state.variation[0, :, run] / unit).tolist()
        noise, rows = self._matrix_noise(self.learning - 1, site) / unit, self._rows(site)
        most = max(squares / VARIATION, 0.0) + noise / VARIATION
        least = max(means - noise, noise, np.finfo(np.float64).tiny)
        return float(self._curvature(site) * most / least * rows / max(rows - site.sites.d, 1))

    def _second_moments(self, state: State, run: int) -> Floats:
        """M^ of one run; where only its diagonal was asked for, what bounds it."""
        values, p = state.values[0, :, run].astype(np.float64), state.values.shape[1]
        if not state.basis.shape[1]:
            return np.diag(values)
        vectors = state.basis[0, :, run].reshape(p, p)
        moments: Floats = (vectors * values) @ vectors.T
        return moments

    # -- how good the model is --------------------------------------------------------------------------------------

    @property
    def _tallies(self) -> tuple[int, int]:
        """How many numbers the two sums of an evaluation hold."""
        return evaluating.room(self.loss)

    def _asked(self, state: State, site: Oracle, run: int, rows: int) -> Asked:
        """The question about the model of a run, of so many rows in the first of the two sums."""
        flat = state.w[0, :, run].astype(np.float64)
        unit = site.changed_in_sum(rows) * math.sqrt(site.n / self.honest(site.n))
        moved, sigmas = evaluating.moved_by(self.loss), self.sigmas(site)[self.learning :]
        noise = sigmas[0] * moved[0] * unit, sigmas[1] * moved[1] * unit
        return Asked(self.loss, flat.reshape(site.sites.d, -1), rows, noise, site.sites.data_norm)

    def _counted(self, k: int, state: State, site: Oracle) -> Array:
        """What the rows here add to a sum of the evaluation: (1, numbers, runs)."""
        found, judged = [], site if self.hold_out is None else site.apart(self.hold_out)[1]
        for run in range(state.w.shape[2]):
            if self.kind(k) == "places":
                asked = self._asked(state, site, run, self._judged(site))
                found.append(judged.summed(asked.places))
            else:
                asked = self._asked(state, site, run, int(state.asked[0, 0, run]))
                found.append(judged.summed(partial(asked.counts, state.places[0, :, run].astype(np.float64))))
        return np.stack(found, axis=1)[None]

    def _noted(self, kind: Kind, state: State, site: Oracle, total: Array) -> State:
        """With a sum of the evaluation, and how many rows it is over."""
        asked, first = state.asked.copy(), kind == "places"
        asked[:, 0 if first else 1] = self._judged(site)
        return state._replace(
            asked=asked, places=total if first else state.places, counts=state.counts if first else total
        )

    def evaluated(self, k: int, state: State, site: Oracle, unit: float = 1.0) -> tuple[Tallied, ...]:
        """How good the model of every run is, as far as the two sums tell: all of it public."""
        if self.evaluate is None or k < self.opened:
            return ()
        found = []
        for run in range(state.w.shape[2]):
            first, last = (int(rows) for rows in state.asked[0, :, run])
            sums = [heard[0, :, run].astype(np.float64) for heard in (state.places, state.counts)]
            found.append(self._asked(state, site, run, first).tallied(sums, last, unit))
        return tuple(found)

    def _growth(self, k: int, state: State, site: Oracle, gradient: Array, step: Array, bend: Array) -> Array:
        """How much longer the model should be, judged by the gradient along it that the step leaves: (1, 1, runs)."""
        y, penalty, tiny = self._point(state), self._penalty, np.finfo(np.float64).tiny
        size, along = (np.sum(x * y, axis=1, keepdims=True) for x in (y, gradient))
        curve, done = (
            bend * self._curvature(site) * self._product(state, site, x, y)
            + penalty * np.sum(x * y, axis=1, keepdims=True)
            for x in (y, step)
        )
        sure = np.maximum(1 - self._noise(k, state, site) ** 2 * size / np.maximum(along**2, tiny), 0.0)
        newton = np.where(curve > 0, (done - along) / np.maximum(curve, tiny), 0.0)
        growth: Array = np.clip(sure * newton, LEAST_GROWTH, MOST_GROWTH)
        return growth

    def _noise(self, k: int, state: State, site: Oracle) -> Floats:
        """The standard deviation of the noise in what was heard in exchange k, over N: (1, 1, runs)."""
        if math.isinf(self.epsilon):
            return np.zeros((1, 1, 1))
        return self._unit(k, state, site) * (math.sqrt(site.n / self.honest(site.n)) / self._rows(site))

    def _turned(self, state: State, site: Oracle, v: Array, back: bool) -> Array:
        """A model (1, d, runs) in the eigenbasis of M^, or back from there: (p, outputs, runs)."""
        p, runs = site.sites.d, v.shape[2]
        parts = v.reshape(p, -1, runs)
        if not state.basis.shape[1]:
            return parts
        basis = state.basis.reshape(p, p, runs)
        turned: Array = np.einsum("ijr,jor->ior" if back else "jir,jor->ior", basis, parts, optimize=True)
        return turned

    def _divided(self, state: State, site: Oracle, v: Array, scale: Array) -> Array:
        turned = self._turned(state, site, v, back=False) / scale[0][:, None, :]
        return self._turned(state, site, turned.reshape(v.shape), back=True).reshape(v.shape)

    def _product(self, state: State, site: Oracle, v: Array, w: Array) -> Array:
        """<v, M^ w>, summed over the outputs: (1, 1, runs)."""
        turned = self._turned(state, site, v, back=False) * self._turned(state, site, w, back=False)
        product: Array = np.sum(state.values[0][:, None, :] * turned, axis=(0, 1))[None, None, :]
        return product

    def _curvature(self, site: Oracle) -> float:
        """L: how much of M^ the Hessian of the mean loss is at most."""
        bound = site.loss.smoothness_bound
        assert bound is not None  # refused when the algorithm was made
        return bound

    def _ridge(self, state: State, site: Oracle) -> Array:
        """By how many times the noise in M^ it is filled up: (1, 1, runs)."""
        edge = self._edge(site)
        part = edge / np.maximum(state.trace, max(edge, np.finfo(np.float64).tiny))
        factor = LEAST_RIDGE + RIDGE_SLOPE * np.log(np.maximum(part, RIDGE_FROM) / RIDGE_FROM)
        return np.minimum(factor, MOST_RIDGE)

    def _edge(self, site: Oracle) -> float:
        """The size of the noise in M^, if it is whole: sqrt(p) times the standard deviation of its numbers."""
        return self._matrix_noise(1, site) * math.sqrt(site.sites.d)

    def _matrix_noise(self, k: int, site: Oracle) -> float:
        """The standard deviation of the noise in each number of the half of a matrix, over N."""
        rows, sigma = self._rows(site), self.sigmas(site)[k - 1]
        exact = site.moments_sensitivity if self.kind(k) == "moments" else self._hessian_sensitivity(site)
        return sigma * exact(rows) / rows * math.sqrt(site.n / self.honest(site.n)) if sigma else 0.0

    # -- noise ----------------------------------------------------------------------------------------------------

    def _unit(self, k: int, state: State, site: Oracle) -> Floats:
        """sigma_k Delta_k: the noise of the shares of u - c sites together."""
        return self.sigmas(site)[k - 1] * self.sensitivity(k, state, site)

    def sensitivity(self, k: int, state: State, site: Oracle) -> Floats:
        """Delta_k, (1, 1, runs): by how much replacing one row, or all of a person's, moves `exact`. The point is
        public, so it may count.
        """
        rows = self._rows(site)
        if self.kind(k) == "moments":
            return np.full((1, 1, 1), site.moments_sensitivity(rows))
        if self.kind(k) == "hessian":
            return np.full((1, 1, 1), self._hessian_sensitivity(site)(rows))
        if self.kind(k) in _EVALUATION:
            moved = evaluating.moved_by(self.loss)[0 if self.kind(k) == "places" else 1]
            return np.full((1, 1, 1), site.changed_in_sum(self._judged(site)) * moved)
        return site.gradient_sum_sensitivity(self._point(state), rows)

    def _hessian_sensitivity(self, site: Oracle) -> Callable[[int], float]:
        return site.varied_hessian_sensitivity if self._varied else site.hessian_sum_sensitivity

    def largest_part(self, k: int, site: Oracle) -> float:
        """What one row adds at most to a number of `exact`, in size."""
        # Off the diagonal, sqrt(2) |a_i a_j| <= B^2 / sqrt(2).
        square = site.sites.data_norm**2
        most = {
            "moments": square, "hessian": self._curvature(site) * square, "places": 1.0, "counts": 1.0,
        }.get(self.kind(k), site.c1)  # fmt: skip
        return float(most * (1 + 1e-6))

    def share_std(self, k: int, state: State, site: Oracle) -> float:
        """The standard deviation of the noise that one site adds to each of its numbers in exchange k of one run."""
        return float(self._unit(k, state, site).item()) / math.sqrt(self.honest(site.n))

    @property
    def dealt(self) -> tuple[float, ...]:
        """Which part of the budget, mu^2, every exchange takes."""
        learning = weights(self.learning, self.inference)
        if self.evaluate is None:
            return tuple(learning.tolist())
        return *((1 - self.evaluate) * learning).tolist(), *evaluating.dealt(self.evaluate)

    @property
    def split(self) -> dict[str, float]:
        """The same by kind."""
        found: dict[str, float] = {}
        for k, part in enumerate(self.dealt, start=1):
            kind = KINDS[self.kind(k)]
            found[kind] = found.get(kind, 0.0) + part
        return found

    # -- public numbers -------------------------------------------------------------------------------------------

    def exchanges(self, rows: int, features: int, sites: int, unit: Unit = ROW) -> int:
        """How many `rounds` there should be, from public numbers alone.

        The more of a gradient is noise, the fewer: each has noise sqrt(T) times that of a single release, and in
        directions that M^ says nothing about the steps add up like a walk, whose length grows with T. That walk costs
        about T^2 / p, so wide tables bear more of it.

        Args:
            rows: N, over all sites.
            features: p.
            sites: n.
            unit: what is protected: a person's rows take more noise than one row.
        """
        expect(rows >= 1 and features >= 1 and sites >= 1, "rows, features and sites", "Count all", rows=rows)
        if math.isinf(self.epsilon):
            return UNTROUBLED + 1
        share = sites / max(1, self.members(sites) - self.colluders(sites))
        numbers = features * self.loss.outputs
        spent = (sum(INFERENCE[:2]) if self.inference else 1.0) * (1 - (self.evaluate or 0.0))
        together = min(unit.changed * min(unit.sites, sites), rows)
        noise = together * math.sqrt(numbers * share) / (rows * mu_for(self.epsilon, self.delta) * math.sqrt(spent))
        walked = min(max(FEWEST, round(WALK * math.sqrt(features))), MOST_WALKED)
        wanted = round(FEW * math.pow(noise, -FALL))
        return 1 + min(max(walked, wanted), MOST) + 2 * self.inference + self._judging

    @property
    def released(self) -> str:
        """What is seen by whoever looks on."""
        gradients = self.learning - 1 - self.inference
        varied = ", of how far counts are from their means, and of those" if self._varied else ""
        hessian = f", at one of them of their Hessians too{varied}" if self.inference else ""
        return (
            "the noisy sum over all sites of the second moments of their rows, and then, at each of "
            f"{gradients} public models, of their records' gradients{hessian}"
            f"{'' if self.evaluate is None else _JUDGED}; single sites' messages are masked"
        )

    def _rows(self, site: Oracle) -> int:
        """N: the rows that are learnt from."""
        return super()._rows(site) - self._held(site)

    def _held(self, site: Oracle) -> int:
        """The rows that are held out."""
        if self.hold_out is None:
            return 0
        if self.total_held is not None:
            return self.total_held
        sizes, times = np.unique(site.network.sites.counts, return_counts=True)
        return sum(self.held_of(m) * k for m, k in zip(sizes.tolist(), times.tolist(), strict=True))

    def _judged(self, site: Oracle) -> int:
        """The rows that the model is evaluated on."""
        return self._rows(site) if self.hold_out is None else self._held(site)

    def _full(self, site: Oracle) -> bool:
        """Whether a message holds the half of a p x p matrix."""
        return site.sites.d <= WIDEST_MATRIX

    def numbers(self, k: int, features: int) -> int:
        """How many numbers the messages of exchange k hold."""
        if self.kind(k) in _EVALUATION:
            return self._tallies[0 if self.kind(k) == "places" else 1]
        if self.kind(k) in _GRADIENTS:
            return features * self.loss.outputs
        varied = self._varied if self.kind(k) == "hessian" else 0
        return varied + (features * (features + 1) // 2 if features <= WIDEST_MATRIX else features)

    def most_numbers(self, features: int) -> int:
        """How many the largest message holds: exchanges of one kind are alike."""
        learnt = self.numbers(1, features) + self._varied, self.numbers(2, features)
        return max(*learnt, *(self._tallies if self._judging else ()))

    def notes(self, site: Oracle) -> tuple[str, ...]:
        """What the evaluation is of, if there is one, besides what all masked sums say."""
        if self.evaluate is None:
            return super().notes(site)
        of = evaluating.FLATTERED if self.hold_out is None else evaluating.HELD_OUT.format(self.hold_out)
        weighed = site.sites.factors.weights is not None
        return *super().notes(site), of, *((COUNTED_ALIKE,) if weighed else ())

    def check(self, site: Oracle) -> None:
        """Refuse what cannot be kept, before a row is touched."""
        super().check(site)
        expect(
            not self.inference or self._full(site), f"at most {WIDEST_MATRIX} features with inference",
            "Take fewer columns, or wider groups of categories", features=site.sites.d,
        )  # fmt: skip
        expect(
            not self.inference or site.sites.factors.weights is None, "rows that count alike with inference",
            "How sure a coefficient is depends on what weights stand for, and on their squares, which nobody releases: "
            "leave inference or the weights out", weights=True,
        )  # fmt: skip
        if self.hold_out is not None:
            self._check_held_out(site, int(site.network.sites.counts.sum()))

    def _check_held_out(self, site: Oracle, here: int) -> None:
        expect(
            (self.total_held is None) == (self.total_rows is None), "total_held together with total_rows, where rows "
            "are held out", "Give both, or neither", total_held=self.total_held, total_rows=self.total_rows,
        )  # fmt: skip
        own = sum(self.held_of(m) for m in site.network.sites.counts.tolist())
        held = self._held(site)
        expect(
            own <= held and here - own <= self._rows(site), "total_held as the rows that all sites hold out together",
            "Count those of all sites", total_held=held,
        )  # fmt: skip
        expect(
            held >= 1, f"a site with hold_out={self.hold_out} rows or more", "Hold one of fewer rows out",
            rows=int(site.network.sites.counts.max()),
        )  # fmt: skip


def weights(rounds: int, inference: bool = False) -> Floats:
    """How mu^2 is dealt out over the exchanges. They add up to 1."""
    if not inference:
        return np.array([MOMENTS, *(rounds - 1) * ((1 - MOMENTS) / (rounds - 1),)])
    moments, descent, hessian, last = INFERENCE
    return np.array([moments, *(rounds - 3) * (descent / (rounds - 3),), hessian, last])
