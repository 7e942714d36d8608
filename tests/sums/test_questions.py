"""Every question there is: no unit moves its sum by more than it says, and no row adds more to a number of it.

A new kind of question is found by itself, and fails here until `ASKED` says how one is drawn.
"""

import inspect
from dataclasses import dataclass, replace

import numpy as np
import pytest

import sottovoce as sv
from sottovoce.oracle.hazard_sums import Centred, S
from sottovoce.oracle.whitening import Whitening
from sottovoce.privacy.unit import ROW, Unit
from sottovoce.problem.factors import Factors
from sottovoce.sums.evaluating import ScoreCounts, ScorePlaces, room
from sottovoce.sums.hazards import HazardGradient, HazardStart
from sottovoce.sums.program import HeldOut, LearntFrom, Question
from sottovoce.sums.questions import (
    DiagonalMoments,
    FocusedGradient,
    Gradient,
    Moments,
    ResidualMoments,
    StartMoments,
    Totals,
    WhitenedCountHessian,
    WhitenedGradient,
    WhitenedHessian,
)

RUNS, DRAWS = 2, 150
SMOOTH = [sv.losses.Logistic(), sv.losses.WeightedLogistic(4.0), sv.losses.SmoothedHinge(), sv.losses.Huber(0.7)]
COUNTS = [sv.losses.Poisson(), sv.losses.Poisson(7.0)]
CLASSES = [sv.losses.Softmax(3)]
TIMES = [sv.losses.PiecewiseExponential((0.0, 1.0, 2.0, 5.0))]


def everything(kind=Question):
    """All kinds of questions of the library that can be asked."""
    found = set() if inspect.isabstract(kind) else {kind}
    found = found.union(*(everything(one) for one in kind.__subclasses__()))
    return {one for one in found if one.__module__.startswith("sottovoce.")}


@dataclass(frozen=True)
class Around:
    """What a question is asked about: two sites, whatever their rows are."""

    rng: np.random.Generator
    loss: object
    p: int
    bound: float
    unit: Unit
    counts: tuple[int, int]
    clip: float | None = None

    def model(self):
        """None, hardly any, and models that are sure of themselves or far too large; along an axis or not."""
        size = self.rng.choice([0.0, 1e-9, 1.0, 30.0, 1e6]) / self.bound
        w = self.rng.normal(size=(self.p * self.loss.outputs, RUNS))
        w *= self.rng.random() < 0.5 or np.arange(len(w))[:, None] == 0
        return -size * np.abs(w) if self.rng.random() < 0.5 else size * w

    def row(self):
        """Of any direction, as long as the bound or shorter; its label; its weight and its exposure."""
        away = self.rng.normal(size=self.p)
        away *= self.bound * self.rng.choice([0.0, 0.4, 1.0]) / np.linalg.norm(away)
        return away, self.rng.choice(self.labels()), self.rng.choice([1e-3, 1.0], size=2)

    def extremes(self):
        """Rows along an axis, as long as the bound, that count in full, with all labels."""
        axes = self.bound * np.concatenate((np.eye(self.p), -np.eye(self.p)))
        if isinstance(self.loss.labels, sv.losses.Times):  # as long along features and constant as coordinates allow
            last = np.tile([0.0] * (self.p - 1) + [0.5**0.5 * self.bound], (2 * self.p - 2, 1))
            axes = np.concatenate((axes, last + 0.5**0.5 * np.delete(axes, [self.p - 1, 2 * self.p - 1], axis=0)))
        return [(row, label, np.ones(2)) for row in axes for label in self.labels()]

    def labels(self):
        if isinstance(self.loss.labels, sv.losses.Counts):
            return [0.0, 10 * self.loss.most]
        if isinstance(self.loss.labels, sv.losses.Times):  # at once, or after a while in one interval or all
            return [1e-9, -1e-9, 1.0, -1.0, 1 + 1e-6, 2 + 1e-6, -float(self.loss.outputs)]
        return [-9.0, 1.0] if isinstance(self.loss.labels, sv.losses.Reals) else self.classes()

    def classes(self):
        return [-1.0, 1.0] if self.loss.outputs == 1 else [0.0, 1.0, 2.0]

    def site(self, rows, order=None):
        """The oracle of these rows of the two sites."""
        parts = [list(zip(*some, strict=True)) for some in rows]
        weights, exposures = ([np.array(u)[:, i] for _, _, u in parts] for i in range(2))
        if not isinstance(self.loss, sv.losses.Poisson):
            exposures = [None] * len(rows)
        factors = [Factors.of(weights=u, exposures=e) for u, e in zip(weights, exposures, strict=True)]
        held = sv.Sites(
            [np.array(a) for a, _, _ in parts], [np.array(b) for _, b, _ in parts], data_norm=self.bound,
            factors=factors, unit=self.unit,
        )  # fmt: skip
        algorithm = sv.MaskedNewton(loss=self.loss, max_grad_norm=self.clip)
        return replace(algorithm.oracle(held, sv.graphs.complete(len(rows))), order=order)


def around(rng, losses, clips=(None,)):
    unit = ROW if rng.random() < 0.5 else Unit(int(rng.integers(1, 4)), int(rng.integers(1, 4)))
    counts = tuple(rng.integers(2, 7, size=2).tolist())
    bound = float(10.0 ** rng.choice([-2, 0, 0, 2]))
    loss = rng.choice(losses)
    least = 2 if isinstance(loss.labels, sv.losses.Times) else 1  # a feature, and a constant
    return Around(rng, loss, int(rng.integers(least, 4)), bound, unit, counts, rng.choice(clips) if clips else None)


def places(a):
    noise = 10.0 ** a.rng.uniform(-2, 1, size=2)
    changed = a.unit.changed * min(a.unit.sites, 2)
    return ScorePlaces(a.model(), loss=a.loss, noise=tuple(noise.tolist()), changed=changed, data_norm=a.bound)


def counts(a):
    placed = 5.0 * a.rng.normal(size=(room(a.loss)[0], RUNS)) ** 2
    return ScoreCounts(places(a), placed, int(a.rng.integers(1, 12)))


def whitening(a, diagonal=0.3):
    """Coordinates of any kind, also such as no second moments say. Rows along an axis may be as long as c, or not."""
    stretched = 10.0 ** a.rng.uniform(-2, 2, size=(a.p, RUNS)) * a.rng.choice([-1.0, 1.0], size=(a.p, RUNS)) / a.bound
    c = a.bound * np.abs(stretched[:1]) * a.rng.choice([-1.0, 0.1, 1.0, 1.0, 3.0], size=(1, RUNS))
    if a.rng.random() < diagonal:
        return Whitening(stretched, c)
    turns = [
        np.linalg.qr(a.rng.normal(size=(a.p, a.p)))[0] if a.rng.random() < 0.5 else np.eye(a.p) for _ in range(RUNS)
    ]
    A = np.stack([(Q * scale) @ Q.T for Q, scale in zip(turns, stretched.T, strict=True)], axis=2)
    return Whitening((A + A.transpose(1, 0, 2)) / 2, c)


def whitened(kind, a, diagonal=0.0):
    """At a model that is large or small in whitened coordinates."""
    found = whitening(a, diagonal)
    return kind(a.model() * a.bound / found.c, found)


def focused(a):
    """Along one or two directions of any kind; rows along an axis may be longer than 1 there, or not, and as long as c
    or far shorter.
    """
    found = whitening(a, 0.0)
    found = replace(found, c=found.c * a.rng.choice([1.0, 100.0]))
    X = a.rng.normal(size=(a.p * int(a.rng.integers(1, 3)), RUNS))
    X *= a.rng.choice([1.0, 1.0, 1e3]) / (np.abs(found.times(X)).max(axis=0) * a.bound)
    return FocusedGradient(a.model() * a.bound / found.c, found, X)


def hazards(a):
    """At hazards of any size, up to a reach that most rows come to at once, or hardly any."""
    K, p = a.loss.outputs, a.p - 1
    turn = np.linalg.qr(a.rng.normal(size=(p, p)))[0] if a.rng.random() < 0.5 else np.eye(p)
    found = []
    for _ in range(RUNS):
        stretched = 10.0 ** a.rng.uniform(-1, 1, size=p) / a.bound
        scale = S / a.bound * a.rng.choice([1.0, -(2**0.5), 3.0])
        c, reach = (
            a.bound * stretched.max() * a.rng.choice([1.0, 0.5**0.5, -(0.5**0.5)]),
            a.rng.choice([0.1, 1.0, -2.0, 5.0]),
        )
        centre = a.rng.choice([0.0, 0.0, 1.0]) * a.rng.normal(size=p) / a.bound
        found.append(Centred((turn * stretched) @ turn.T, centre, scale, c, reach).numbers)
    model = a.rng.choice([0.0, 1.0, 30.0]) * a.rng.normal(size=(p + K, RUNS))
    model[p:] += a.rng.choice([-3.0, 0.0, 30.0, 3e3])
    return HazardGradient(model, np.stack(found, axis=1), K)


def residuals(a):
    """At a model that is large or small, up to a reach that cuts most residuals or none; of either sign."""
    asked = whitened(WhitenedHessian, a)
    return ResidualMoments(asked.u, asked.whitening, a.rng.choice([-1, 1]) * 10 ** a.rng.uniform(-3, 2, size=(1, RUNS)))


# How each is drawn, and of which losses.
ANY_LOSS = (*SMOOTH, *COUNTS, *CLASSES)
ASKED = {
    Totals: (lambda _: Totals(), ANY_LOSS),
    Moments: (lambda _: Moments(), ANY_LOSS),
    DiagonalMoments: (lambda _: DiagonalMoments(), ANY_LOSS),
    StartMoments: (lambda _: StartMoments(), (sv.losses.Logistic(), sv.losses.Huber(0.7), *CLASSES)),
    ResidualMoments: (residuals, (sv.losses.Huber(2.0),)),
    HazardStart: (lambda a: HazardStart(a.loss.outputs), TIMES),
    HazardGradient: (hazards, TIMES),
    Gradient: (lambda a: Gradient(a.model()), ANY_LOSS),
    WhitenedGradient: (lambda a: whitened(WhitenedGradient, a, 0.3), ANY_LOSS),
    WhitenedHessian: (lambda a: whitened(WhitenedHessian, a), (*SMOOTH, *COUNTS)),
    WhitenedCountHessian: (lambda a: whitened(WhitenedCountHessian, a), COUNTS),
    FocusedGradient: (focused, (*SMOOTH, *COUNTS)),
    ScorePlaces: (places, ANY_LOSS),
    ScoreCounts: (counts, ANY_LOSS),
}
WRAPPED = (HeldOut, LearntFrom)


def drawn(rng, kind):
    """What is asked, about what, and in which order rows are held out."""
    if kind in WRAPPED:
        make, losses = ASKED[list(ASKED)[rng.integers(len(ASKED))]]
        a = around(rng, losses)
        order = [rng.permutation(a.counts[0]), a.counts[0] + rng.permutation(a.counts[1])]
        return kind(make(a), every=2), a, lambda: np.concatenate(order)
    make, losses = ASKED[kind]
    a = around(rng, losses, (None, 0.3) if kind is Gradient else ())
    return make(a), a, None


def added(question, a, row):
    """What a row adds to the sum."""
    if isinstance(question, HeldOut):  # the second of two: the first is learnt from
        return question.of(a.site([[row, row]], lambda: np.arange(2)), sum(a.counts))
    return question.of(a.site([[row]], lambda: np.arange(1)), sum(a.counts))


def neighbours(question, a):
    """Rows of two sites, and those after one row, or all rows of a person, were replaced: by any others, or of the
    extremes by those that move the sum the most.
    """
    base, other = None, None
    if a.rng.random() < 0.7:
        rows = a.extremes()
        sums = np.stack([added(question, a, row) for row in rows])
        apart = np.linalg.norm(sums[:, None] - sums[None], axis=2).max(axis=2)
        base, other = (rows[i] for i in np.unravel_index(apart.argmax(), apart.shape))
    ours = [[base or a.row() for _ in range(m)] for m in a.counts]
    theirs = [list(rows) for rows in ours]
    for i in a.rng.permutation(2)[: a.unit.sites]:
        for j in a.rng.permutation(a.counts[i])[: a.unit.changed]:
            theirs[i][j] = other or a.row()
    return ours, theirs


def check(kind, believed=lambda question: question):
    """How near the sum of any neighbours came to what is believed to be its sensitivity."""
    rng, nearest = np.random.default_rng(list(map(ord, kind.__name__))), 0.0
    for _ in range(DRAWS):
        question, a, order = drawn(rng, kind)
        said, rows, both = believed(question), question.over(a.counts), neighbours(question, a)
        ours, theirs = (a.site(some, order) for some in both)
        moved = np.linalg.norm(said.of(ours, rows) - said.of(theirs, rows), axis=0)
        allowed = said.sensitivity(ours, rows)
        assert allowed.shape in ((1, 1), (1, RUNS))
        assert np.array_equal(allowed, said.sensitivity(theirs, rows))  # of public numbers
        assert np.all(moved <= allowed[0]), question
        nearest = max(nearest, float(np.max(moved / allowed[0])))
        assert max(np.abs(added(question, a, some[0][0])).max() for some in both) <= said.largest(ours)
    return nearest


def test_every_kind_is_known_here():
    assert everything() == {*ASKED, *WRAPPED}


@pytest.mark.parametrize("kind", sorted(everything(), key=lambda kind: kind.__name__))
def test_no_unit_moves_a_sum_by_more_and_some_by_nearly_as_much(kind):
    assert 0.9 < check(kind) <= 1


@dataclass(frozen=True, eq=False)
class TooSmall(Question):
    """A question that says less than rows can do."""

    inner: Question
    sensitive: float = 1.0
    large: float = 1.0

    def of(self, site, rows):
        return self.inner.of(site, rows)

    def sensitivity(self, site, rows):
        return self.sensitive * self.inner.sensitivity(site, rows)

    def largest(self, site):
        return self.large * self.inner.largest(site)

    def over(self, counts):
        return self.inner.over(counts)


@pytest.mark.parametrize("part", [{"sensitive": 0.9}, {"large": 0.9}], ids=["sensitivity", "largest"])
@pytest.mark.parametrize("kind", sorted(everything(), key=lambda kind: kind.__name__))
def test_a_bound_that_is_a_tenth_too_small_is_found_out(kind, part):
    with pytest.raises(AssertionError):
        check(kind, lambda question: TooSmall(question, **part))


@pytest.mark.parametrize("kind", sorted(everything(), key=lambda kind: kind.__name__))
def test_a_question_takes_the_bits_of_a_point_and_nothing_else_changes(kind):
    rng = np.random.default_rng(1)
    for _ in range(20):
        question, a, order = drawn(rng, kind)
        point = question.point + rng.normal(size=question.point.shape)
        taken = question.at(point)
        assert type(taken) is kind
        assert taken.point.tobytes() == point.tobytes()
        back, site = taken.at(question.point), a.site(neighbours(question, a)[0], order)
        rows = question.over(a.counts)
        np.testing.assert_array_equal(back.of(site, rows), question.of(site, rows))
        np.testing.assert_array_equal(back.sensitivity(site, rows), question.sensitivity(site, rows))
