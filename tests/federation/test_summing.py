"""Masked sums of several sites, each with its own rows and secrets: one model for all, and that of a simulation."""

from dataclasses import replace
from hashlib import sha256

import numpy as np
import pytest

import sottovoce as sv
from helpers.federations import masked_agreement, masked_members
from helpers.laws import assert_standard
from helpers.problems import lists
from helpers.site_runs import FIVE
from helpers.sums import same_question
from sottovoce.errors import PrivacyError
from sottovoce.federation.agreement.agreement import LostNeighbour
from sottovoce.federation.site.masks import Masks, Past, Turn, from_steps
from sottovoce.federation.site.stops import SpoiledError
from sottovoce.federation.site.summing import SLACK, Summing, proposer
from sottovoce.federation.transport.wire import BadMessageError, Refusal
from sottovoce.sums.program import Opened
from sottovoce.sums.questions import Moments

SIZES, D = (30, 200, 17, 80, 25), 6
SPARING = {"colluding": 1, "least_sites": 4, "spare": 1}
GO_ON = LostNeighbour(policy="go-on", go_on_after_round=0)


class Sums:
    """Five sites that make sums side by side, without a network."""

    def __init__(self, algorithm=None, data_norm=1.0, factors=None, **changes):
        _, self.seeds, sites = masked_members(FIVE, SIZES)
        self.agreement = masked_agreement(sites, algorithm=algorithm, features=D, data_norm=data_norm, **changes)
        self.features, self.labels = lists(np.random.default_rng(5), SIZES, D)
        self.loss = self.agreement.algorithm.loss
        if self.loss.outputs > 1:
            self.labels = [np.arange(m) % self.loss.outputs for m in SIZES]
        if isinstance(self.loss.labels, sv.losses.Counts):
            self.labels = [(1 + b) / 3 for b in self.labels]
        beside = [None] * len(FIVE) if factors is None else [[one] for one in factors]
        self.rows = {name: sv.Sites([f], [b], data_norm=data_norm, factors=own) for name, f, b, own in
                     zip(FIVE, self.features, self.labels, beside, strict=True)}  # fmt: skip
        self.masks = {name: Masks(self.agreement, name, self.seeds[name]) for name in FIVE}
        self.site = {name: Summing(self.agreement, self.oracle_of(name)) for name in FIVE}
        self.session = {name: site.begin() for name, site in self.site.items()}
        self.question = {name: session.ask.question for name, session in self.session.items()}
        self.past = dict.fromkeys(FIVE, Past())
        # Of every opened sum: the point that all took, and the noise that was in it.
        self.transcript, self.points, self.noise = self.agreement.digest(), [], []

    def oracle_of(self, name):
        oracle = self.agreement.oracle_for(name, self.rows[name])
        return replace(oracle, order=lambda: self.masks[name].order(len(oracle.sites.labels)))

    def model(self, name="rome"):
        return self.session[name].answer.last

    def proposal(self, q, name="rome", members=FIVE):
        return self.site[name].propose(q, self.question[name], members)

    def turn(self, q, attempt=0, members=FIVE, told=None):
        """One sum among those, each with its own view; `told` is what single sites take for the transcript."""
        contexts, said = {}, {}
        by = proposer(q + attempt, members)
        taken = self.proposal(q, by, members)
        for name in members:
            transcript = (told or {}).get(name, self.transcript)
            self.question[name] = self.site[name].adopt(q, self.question[name], members, taken)
            ctx = self.site[name].context(Turn(q, attempt), taken, members, bytes(32), transcript)
            said[name] = self.site[name].words(ctx, self.question[name], self.masks[name], self.past[name])
            self.past[name] = Past(ctx.turn, ctx.digest())
            contexts[name] = ctx
        return contexts, said

    def take(self, contexts, said, rounded=lambda opened: opened):
        """All go on from the sum; each reads it through `rounded`."""
        total = sum(words.astype(object) for words in said.values()) % 2**64
        steps = np.array([int(x) - 2**64 * (x >= 2**63) for x in total])
        rows = self.question["rome"].over([len(self.rows[name].labels) for name in contexts])
        exact = sum(self.question[name].of(self.site[name].oracle, rows)[:, 0] for name in contexts)
        self.noise.append(from_steps(steps, next(iter(contexts.values())).grid) - exact)
        self.points.append(self.question["rome"].point)
        for name, ctx in contexts.items():
            session, opened = self.session[name], self.site[name].open(ctx, self.question[name], said)
            session.tell(rounded(opened))
            self.question[name] = None if session.ask is None else session.ask.question
        self.transcript = sha256(b"".join(said[name].tobytes() for name in contexts)).digest()


def run(sums):
    for q in range(1, sums.agreement.algorithm.rounds + 1):
        sums.take(*sums.turn(q))
    return sums


def assert_same(sessions):
    """All have found the same, and would ask the same, bit by bit."""
    first, *others = sessions
    for other in others:
        assert other.answer.last.tobytes() == first.answer.last.tobytes()
        assert other.answer.average.tobytes() == first.answer.average.tobytes()
        assert [vars(e).keys() for e in other.answer.evidence] == [vars(e).keys() for e in first.answer.evidence]
        assert (first.ask is None) == (other.ask is None)
        assert first.ask is None or same_question(first.ask.question, other.ask.question)


def simulated(sums, oracle):
    """What the program finds if all rows are in one process and the sums hold the same noise; and that noise, in units
    of what a simulation draws.
    """
    analysis, n = sums.agreement.analysis, len(FIVE)
    session = analysis.begin(n, D, oracle.sites.data_norm, oracle.sites.unit)
    found = []
    for sigma, point, noise in zip(analysis.multipliers(n), sums.points, sums.noise, strict=True):
        own = session.ask.question
        np.testing.assert_allclose(own.point, point, rtol=1e-6, atol=1e-6)
        question = own.at(point)  # as sites do, which do not round alike
        rows = question.over(oracle.sites.counts.tolist())
        std = sigma * question.sensitivity(oracle, rows) * np.sqrt(n / analysis.honest(n))
        found.append(noise / std.item())
        session.tell(Opened(question, question.of(oracle, rows) + noise[:, None], std, rows))
    return session, np.concatenate(found)


@pytest.mark.parametrize(
    "terms",
    [
        {},
        {"epsilon": 0.3, "max_grad_norm": 0.4, "lam": 0.1},
        {"loss": sv.losses.Softmax(3)},
        {"loss": sv.losses.SmoothedHinge(), "worst_case_epsilon": 2.0},
    ],
    ids=["logistic", "clipped", "softmax", "worst case"],
)
def test_all_sites_learn_the_model_of_a_simulation_with_the_same_noise(terms):
    """Bit by bit the same at all sites; and the simulator's, if it is handed the noise that was in the sums."""
    sums = run(Sums(terms))
    assert_same(sums.session.values())
    sites = sv.Sites(sums.features, sums.labels)
    session, z = simulated(sums, sums.agreement.algorithm.oracle(sites, sv.graphs.complete(5)))
    assert_standard(z)  # as much noise as a simulation draws for its sums
    assert np.abs(sums.model()).max() > 0.01
    np.testing.assert_allclose(sums.model(), session.answer.last, rtol=1e-6, atol=1e-6)


def test_the_noise_of_many_sums_is_that_of_a_simulation():
    """Second moments, forty times: the spread of the noise is sigma Delta sqrt(n / (u - c))."""
    seen = []
    for _ in range(40):
        sums = Sums()
        sums.take(*sums.turn(1))
        analysis, oracle = sums.agreement.analysis, sums.site["rome"].oracle
        std = analysis.multipliers(5)[0] * Moments().sensitivity(oracle, sum(SIZES)).item()
        seen.append(sums.noise[0] / (std * np.sqrt(5 / analysis.honest(5))))
    z = np.concatenate(seen)
    assert len(z) == 40 * 21
    assert_standard(z)
    with pytest.raises(AssertionError):
        assert_standard(2 / 3 * z)  # two thirds of it are found out
    assert abs(np.mean(z)) < 6 / np.sqrt(len(z))


def test_a_sum_is_made_again_without_a_site_that_is_lost():
    """Fresh noise, a smaller U, fewer rows; nobody who has answered for it answers for the first attempt again."""
    sums = Sums(SPARING, lost_neighbour=GO_ON)
    sums.take(*sums.turn(1))
    first, said = sums.turn(2)
    left = tuple(name for name in FIVE if name != "oslo")
    again, fresh = sums.turn(2, attempt=1, members=left)
    sums.take(again, fresh)
    assert_same([sums.session[name] for name in left])
    assert all(np.mean(fresh[name] == said[name]) < 0.5 for name in left)
    with pytest.raises(PrivacyError, match=r"a turn after \(2, 1\)"):
        sums.site["rome"].words(first["rome"], sums.question["rome"], sums.masks["rome"], sums.past["rome"])


def test_the_same_site_says_the_same_words_again():
    sums = Sums()
    contexts, said = sums.turn(1)
    for name, ctx in contexts.items():
        again = sums.site[name].words(ctx, sums.question[name], sums.masks[name], sums.past[name])
        np.testing.assert_array_equal(again, said[name])


def test_a_site_that_was_told_something_else_stops_the_run_and_opens_nothing():
    sums = Sums()
    contexts, said = sums.turn(1, told={"paris": b"x" * 32})
    with pytest.raises(SpoiledError, match="sites were told different things"):
        sums.take(contexts, said)


def test_sites_whose_processors_round_differently_open_all_sums():
    """The bits that are in the context come from one of them."""
    sums, r = Sums({"rounds": 6}), np.random.default_rng(0)

    def rounded(opened):
        """As if another processor had computed with it: every number is off by a few units in its last place."""
        return opened._replace(value=opened.value * (1 + r.uniform(-1e-15, 1e-15, size=opened.value.shape)))

    for q in range(1, 7):
        sums.take(*sums.turn(q), rounded)
    models = [sums.model(name) for name in FIVE]
    assert len({model.tobytes() for model in models}) == 5
    np.testing.assert_allclose(models, np.broadcast_to(models[0], np.shape(models)), rtol=1e-9)


@pytest.mark.parametrize(
    "change",
    [
        lambda p: p._replace(point=p.point + 1e-4),
        lambda p: p._replace(point=-p.point),
        lambda p: p._replace(point=np.full_like(p.point, np.nan)),
        lambda p: p._replace(grid=p.grid._replace(step=2 * p.grid.step)),
        lambda p: p._replace(grid=p.grid._replace(step=p.grid.step / 2)),
        lambda p: p._replace(grid=p.grid._replace(step=np.nan)),
        lambda p: p._replace(grid=p.grid._replace(scale=p.grid.scale - 100)),
        lambda p: p._replace(grid=p.grid._replace(scale=p.grid.scale + 100)),
    ],
    ids=[
        "another point",
        "one as long",
        "no point",
        "a coarser grid",
        "a finer grid",
        "no grid",
        "less noise",
        "more noise",
    ],
)
def test_a_proposal_off_by_more_than_rounding_is_refused(change):
    sums = Sums()
    for q in (1, 2):
        sums.take(*sums.turn(q))
    site, question = sums.site["rome"], sums.question["rome"]
    made = sums.proposal(3)
    site.adopt(3, question, FIVE, made)
    with pytest.raises(BadMessageError, match="More than rounding parts the two") as raised:
        site.adopt(3, question, FIVE, change(made))
    assert raised.value.refusal is Refusal.OTHER_POINT


@pytest.mark.parametrize("times", [0.5, 2.0, 3.0])
def test_a_grid_of_the_proposers_choice_is_refused_also_with_noise_that_fits_it(times):
    """A coarser one would have fewer steps of noise than what is proved asks for."""
    sums = Sums()
    for q in (1, 2):
        sums.take(*sums.turn(q))
    site, question = sums.site["rome"], sums.question["rome"]
    made = sums.proposal(3)
    taken = site.adopt(3, question, FIVE, made)
    fitting = site._grid(3, taken, FIVE, step=times * made.grid.step)
    with pytest.raises(BadMessageError, match="expected a grid of step="):
        site.adopt(3, question, FIVE, made._replace(grid=fitting._replace(scale=fitting.scale + SLACK)))


@pytest.mark.parametrize("q", [1, 3])
def test_the_noise_that_is_taken_is_never_less_than_a_site_needs(q):
    """Whatever the proposer says: the smallest scale that is accepted pays for Delta and for rounding."""
    sums = Sums()
    for k in range(1, q):
        sums.take(*sums.turn(k))
    site, question, a = sums.site["rome"], sums.question["rome"], sums.agreement.analysis
    made = sums.proposal(q)
    least = made.grid.scale
    while True:
        try:
            site.adopt(q, question, FIVE, made._replace(grid=made.grid._replace(scale=least - 1)))
        except BadMessageError:
            break
        least -= 1
    step, n = made.grid.step, 5
    moved = question.sensitivity(site.oracle, sum(SIZES)).item() + 2 * step * np.sqrt(a.schedule(D)[q - 1].numbers)
    assert least * step * np.sqrt(a.honest(n)) >= a.multipliers(n)[q - 1] * moved


def test_everyone_proposes_in_turn():
    assert [proposer(t, FIVE) for t in range(1, 8)] == [*FIVE, *FIVE[:2]]
    assert proposer(2, FIVE[:1]) == FIVE[0]


def test_the_context_follows_from_public_numbers():
    """With no rows at all it is the same: whoever refuses or reads by it learns nothing."""
    sums = Sums()
    for q in (1, 2):
        for name in FIVE:
            public = Summing(sums.agreement, sums.agreement.public_oracle(name))
            mine = sums.proposal(q, name)
            assert public.propose(q, sums.question[name], FIVE).grid == mine.grid
            args = Turn(q, 0), mine, FIVE, bytes(32), bytes(32)
            assert public.context(*args) == sums.site[name].context(*args)
        sums.take(*sums.turn(q))


@pytest.mark.parametrize("q", [1, 2])
def test_honest_sums_are_within_what_is_accepted(q):
    """Rows of the largest norm, all in one direction and all of one label: the largest sums that there are."""
    sums = Sums()
    for name, m in zip(FIVE, SIZES, strict=True):
        rows = sv.Sites([np.eye(D)[[0] * m]], [np.ones(m)])
        sums.site[name] = Summing(sums.agreement, sums.agreement.oracle_for(name, rows))
    for k in range(1, q + 1):
        contexts, said = sums.turn(k)
        question = sums.question["rome"]
        sums.take(contexts, said)
    oracle = sums.site["rome"].oracle
    assert np.abs(question.of(oracle, sum(SIZES))).max() <= 80 * question.largest(oracle)
