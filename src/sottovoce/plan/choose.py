"""The choice of rounds, local steps, rho and diameter: the least excess risk that the moments predict.

What decides is the pull p = 2 rho degree and the last step's eta, both measured against the largest curvature. The risk
has one valley in them, which is walked down with shrinking strides, for 1 local step first and then for more. More
local steps and more rounds cost work and messages, so they are taken only where they gain something, and never more
than `task.WORK` allows.

What is made least is the geometric mean over the made-up tables, so that each counts by how far its risk is from the
best that it could be, and not by how large that is. The valley has flat places: where the pull is strong, D hardly
matters, and the other way round. There the setting is taken whose pull and eta are nearest to the curvature, so that
neighbouring cases get neighbouring settings.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NamedTuple, final

import numpy as np

from sottovoce.algorithms.ipadmm import IPADMM, Schedule
from sottovoce.arrays import Floats
from sottovoce.plan.moments import RunMoments, moments
from sottovoce.plan.surrogate import Surrogate
from sottovoce.plan.task import Task
from sottovoce.problem.losses import Reals
from sottovoce.problem.sites import WEIGHTS, Weights

LOCAL_STEPS = (1, 3, 10, 25)
WORTH_IT = 0.99  # what more local steps or rounds must bring the risk down to: they cost work and messages
BETTER = 0.997  # the same for weights that say more of a site's size, which cost nothing
ALIKE = 1.1  # sites whose sizes differ by less than this factor count the same
UNSEEN = 0.002  # of a table's least mean loss: an excess that does not matter
TIE = 0.002  # what it counts, in log risk, that pull or eta are a factor of e away from the curvature
LEAST_ROUNDS = 25  # that are planned where more could be had: the fewer, the longer the steps that have to be trusted
SHORTEST = 0.1  # least eta of the last step, in curvatures or pulls: below, D no longer matters and could run away
# Least pull of the neighbours, in curvatures. For few sites the consensus is predicted to do well with none at all,
# each learning alone and averaged in the end; but then no site has a good model of its own, and different sites drift
# apart.
WEAKEST = 0.003
# A run must not diverge if the data are steeper than the tables: by this factor, or by this share of the curvature that
# the loss allows for rows of the declared norm. All of it would take rows that all point the same way.
STEEPER, STEEPEST = 2.0, 0.55
DIVERGED = 0.5  # excess that counts as divergence
STRIDES = (4.0, 2.0, 1.4)
PULLS = (0.03, 1.0, 30.0)
NEARER = 0.6  # of the diameter, with a head start (docs/proofs/ipadmm.md)
LAST_COUNTS = 0.1  # how much a node's own last model counts beside the consensus
# Short of the best distance costs more than past it, and real tables ask for more than the quadratic says (measured on
# Adult, Bank Marketing, breast cancer and smoking), so the variance counts only in part.
NOISE_COUNTS = 0.7


class Setting(NamedTuple):
    """The four numbers of `IPADMM` that the planner chooses."""

    rounds: int
    local_steps: int
    rho: float
    diameter: float


@final
class Predictor:
    """Predicts the excess risk of a setting, averaged over the surrogates."""

    def __init__(self, task: Task, problems: Sequence[Surrogate]) -> None:
        self.task, self.problems = task, problems
        self.schedule: Schedule = task.fixed.get("schedule", "monotone")
        self.curvature = float(np.mean([np.max(problem.curvatures) for problem in problems])) or 1.0
        self.steepest = float(max(np.max(problem.curvatures) for problem in problems))
        self._known: dict[Setting, float] = {}

    def scale(self, steps: int, diameter: float) -> float:
        """G, the norm of a noisy gradient with the regulariser's slope, as the algorithm computes it."""
        slope = self.task.lam * self.task.regulariser.lipschitz(diameter, self.task.coordinates)
        return self.task.scale(steps, slope)

    def eta(self, s: Setting) -> Floats:
        """eta of every step, in order: (rounds * local_steps,)."""
        k = np.repeat(np.arange(1, s.rounds + 1), s.local_steps)
        r = np.tile(np.arange(1, s.local_steps + 1), s.rounds)
        steps = s.rounds * s.local_steps
        factor: Floats = {
            "paper": np.sqrt(2.0 * k * r),
            "monotone": np.sqrt(2.0 * np.arange(1, steps + 1)),
            "constant": np.full(steps, math.sqrt(steps)),
        }[self.schedule]
        return np.asarray(factor * (self.scale(steps, s.diameter) / s.diameter), dtype=np.float64)

    def score(self, s: Setting) -> float:
        """The number to minimise: predicted excess, raised a little for unusual settings; inf for unstable ones."""
        if s not in self._known:
            pull, last = 2 * s.rho * self.task.degree, float(self.eta(s)[-1])
            silent = self.task.degree > 0 and "rho" not in self.task.fixed and pull < WEAKEST * self.curvature
            short = last < SHORTEST * max(self.curvature, pull)
            far = math.log(last / self.curvature) ** 2
            far += math.log(pull / self.curvature) ** 2 if pull > 0 else 0.0
            self._known[s] = math.inf if silent or short else math.exp(TIE * far) * self.excess(s)
        return self._known[s]

    def excess(self, s: Setting, *, sampled: bool = False) -> float:
        """Geometric mean of the predicted excess over the problems; to each a small share of its best risk is added.

        With `sampled`, also what is left because the rows are a sample, however exactly they are learnt from. Of every
        eigenvector of curvature h the sample knows w* up to a variance of 1 / (h N), N the effective rows (as for a
        likelihood), of which the run learns as much as it does of w* itself.
        """
        found, eta = list[float](), self.eta(s)
        for problem in self.problems:
            excess = self._excess_on(problem, s, eta) + UNSEEN * problem.best
            if sampled:
                bias = self._moments(s, eta, problem, 0.0).bias[:-1]
                optimum = np.maximum(np.abs(problem.optimum), 1e-12)
                learnt = np.clip(1 + bias / optimum, 0.0, 1.0)
                excess += float(np.sum(problem.size * learnt**2)) / (2 * self.task.effective_rows)
            found.append(excess)
        return math.exp(float(np.mean(np.log(np.maximum(found, 1e-12))))) if np.isfinite(found).all() else math.inf

    def _moments(self, s: Setting, eta: Floats, problem: Surrogate, steep: float) -> RunMoments:
        """Moments of the problem's modes, and of a last one of curvature `steep` that is only watched."""
        task = self.task
        return moments(
            curvatures=np.append(problem.curvatures, steep), size=np.append(problem.size, 0.0),
            optimum=np.append(problem.optimum, 0.0),
            laplacian=task.spectrum.values, multiplicity=task.spectrum.multiplicity, degree=task.degree,
            nodes=task.n, rounds=s.rounds, local_steps=s.local_steps, rho=s.rho, eta=eta,
            variance=task.variance(s.rounds * s.local_steps), blur=problem.blur,
        )  # fmt: skip

    def _excess_on(self, problem: Surrogate, s: Setting, eta: Floats) -> float:
        """Predicted excess risk on one problem; inf for a setting that could diverge."""
        bound = self.task.loss.smoothness(self.task.loss_norm) or 0.0
        steep = max(STEEPER * self.steepest, STEEPEST * bound)
        found = self._moments(s, eta, problem, steep)
        weights = problem.curvatures * problem.size / 2
        with np.errstate(all="ignore"):
            squares = (found.bias**2 + NOISE_COUNTS * found.variance)[:-1]
            excess = float(np.sum(weights * squares) + LAST_COUNTS * np.sum(weights) * found.spread)
            # The last mode stands for data that are steeper than assumed. It must not diverge where the others do not.
            usual = float(np.max(problem.curvatures * squares))
            stable = steep * found.variance[-1] / 2 < DIVERGED + 10 * usual and np.all(found.variance >= 0)
        return excess if math.isfinite(excess) and stable else math.inf


def choose(task: Task, problems: Sequence[Surrogate]) -> Setting:
    """The setting with the least predicted risk, with fewer local steps and rounds where that costs next to nothing."""
    predictor, fixed = Predictor(task, problems), task.fixed
    steps = (int(fixed["local_steps"]),) if "local_steps" in fixed else LOCAL_STEPS
    rounds = int(fixed.get("rounds", max(1, min(task.max_rounds, task.most_steps // steps[0]))))
    # Every count of local steps has walks of its own: with many of them the valley may lie elsewhere.
    found = list[Setting]()
    for count in [l for l in steps if l == steps[0] or l * rounds <= task.most_steps]:
        found.append(_walked(predictor, rounds, count))
    least = min(predictor.score(setting) for setting in found)
    best = next(setting for setting in found if predictor.score(setting) * WORTH_IT <= least)
    enough = predictor.score(best) / WORTH_IT
    while "rounds" not in fixed and best.rounds >= 2 * LEAST_ROUNDS:
        fewer = _descend(predictor, best._replace(rounds=math.ceil(best.rounds / 2)), STRIDES[1:])
        if predictor.score(fewer) > enough:
            break
        best = fewer
    # With fewer rounds, local steps that paid may no longer do so.
    simpler = (_walked(predictor, best.rounds, count) for count in steps if count < best.local_steps)
    return next((s for s in simpler if predictor.score(s) * WORTH_IT <= predictor.score(best)), best)


def choose_weights(
    task: Task, problems_of: Callable[[], Sequence[Surrogate]], setting_of: Callable[[Task], Setting]
) -> Task:
    """The task with its weights fixed: those with the least predicted risk, each with a setting of its own.

    Noise speaks for squared rows, and against sites that bring more of it than rows. That fewer rows then count
    speaks for weights by rows. Weights that say less of a site's size are kept where the others gain next to nothing.
    """
    if "weights" in task.fixed or max(task.sizes) < ALIKE * min(task.sizes):
        return replace(task, fixed={"weights": "equal", **task.fixed})
    predicted: dict[Weights, tuple[float, Task]] = {}
    for weights in WEIGHTS:
        weighed = replace(task, fixed={**task.fixed, "weights": weights})
        setting, predictor = setting_of(weighed), Predictor(weighed, problems_of())
        predicted[weights] = predictor.excess(setting, sampled=True), weighed
    least = min(risk for risk, _ in predicted.values())
    return next((weighed for risk, weighed in predicted.values() if risk * BETTER <= least), task)


def _walked(predictor: Predictor, rounds: int, local_steps: int) -> Setting:
    """The end of the best of the walks with so many rounds and local steps."""
    starts = (_first(predictor, rounds, local_steps, pull) for pull in PULLS)
    ends = [_descend(predictor, start, STRIDES[:1]) for start in starts]
    return _descend(predictor, min(ends, key=predictor.score), STRIDES[1:])


def _first(predictor: Predictor, rounds: int, local_steps: int, pull: float) -> Setting:
    """The setting where a walk begins: steps about as long as the curvature allows, and `pull` in curvatures."""
    curvature, task, steps = predictor.curvature, predictor.task, rounds * local_steps
    scale = task.scale(steps)
    # A single site has no neighbours, so walks begin with different diameters instead.
    held = 4 * curvature * (pull if task.degree == 0 else 1.0)
    diameter = task.fixed.get("diameter", math.sqrt(2 * steps) * scale / held)
    rho = task.fixed.get("rho", pull * curvature / (2 * max(task.degree, 1.0)))
    return Setting(rounds, local_steps, float(rho), float(diameter))


def _descend(predictor: Predictor, best: Setting, strides: Sequence[float]) -> Setting:
    """Walk along rho, D and the line on which both change the other way round, until no stride helps."""
    fixed = predictor.task.fixed
    # For a single site rho means nothing, and stays where it is.
    rho, diameter = "rho" not in fixed and predictor.task.degree > 0, "diameter" not in fixed
    ways = [(1, 0), (-1, 0)] * diameter + [(0, 1), (0, -1)] * rho + [(1, -1), (-1, 1)] * (rho and diameter)
    for stride in strides:
        stuck = False
        while not stuck:
            near = [best._replace(diameter=best.diameter * stride**x, rho=best.rho * stride**y) for x, y in ways]
            nearest = min(near, key=predictor.score, default=best)
            stuck = not predictor.score(nearest) < predictor.score(best)
            best = best if stuck else nearest
    return best


def as_algorithm(task: Task, setting: Setting) -> IPADMM:
    """The algorithm with this setting and whatever the user has set. With a head start, classes take shorter steps:
    they begin nearer to the optimum than the setting is for.
    """
    if task.head_start and not isinstance(task.loss.labels, Reals):
        setting = setting._replace(diameter=setting.diameter * NEARER)
    made = IPADMM(
        epsilon=task.epsilon, delta=task.delta, loss=task.loss, regulariser=task.regulariser, lam=task.lam,
        max_grad_norm=task.max_grad_norm, **{**setting._asdict(), **task.head_start, **task.fixed},
    )  # fmt: skip
    made.expect_unit(task.unit)
    return made
