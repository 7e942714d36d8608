"""The noise of masked sums, share by share, and the exact privacy loss of whole transcripts of sums."""

import numpy as np
import pytest
from scipy import stats

import sottovoce as sv
from algorithms.harness import given, hockey_stick
from helpers.sums import begun, curator, opened, same_question
from sottovoce.noise.sources import SeededNoise, Shape
from sottovoce.oracle.plain import Oracle
from sottovoce.privacy import Gaussian, Repeated, Sequence, delta
from sottovoce.privacy.observers import Observer, weakened
from sottovoce.privacy.releases import leaves

LEVEL = 1e-6
N, D, RUNS = 4, 3, 3000


def rows(m=12, seed=0, d=D):
    rng = np.random.default_rng(seed)
    a = rng.normal(size=(m, d))
    return a / np.linalg.norm(a, axis=1, keepdims=True), rng.choice([-1.0, 1.0], size=m)


def parts():
    return [rows(seed=i) for i in range(N)]


def algorithm_of(**options):
    return sv.MaskedNewton(**{"epsilon": 1.0, "delta": 0.05, "colluding": 1, "rounds": 4, **options})


def alone(algorithm, i):
    """Site i by itself, as it would run: one node of N."""
    a, b = parts()[i]
    return Oracle(sv.Sites([a], [b]), N, algorithm.loss, np.array([N - 1]), algorithm.regulariser, algorithm.lam)


def accepts(samples):
    scaled = np.sort(samples.ravel())
    tail = stats.chi2.cdf(np.sum(scaled**2), df=scaled.size)
    return LEVEL < tail < 1 - LEVEL and stats.kstest(scaled, "norm").pvalue > LEVEL


def standardised(k, u=N):
    """What the sum of exchange k holds besides the rows, over what should be left against c colluding sites."""
    algorithm = algorithm_of(least_sites=u)
    site = algorithm.oracle(sv.Sites(*map(list, zip(*parts(), strict=True))), sv.graphs.complete(N))
    question, value, *_ = opened(algorithm, site, SeededNoise(4, Shape(N, D, RUNS)), RUNS)[k - 1]
    unit = algorithm.multipliers(site.n)[k - 1] * question.sensitivity(site, 12 * N)
    return (value - question.of(site, 12 * N)) / unit * np.sqrt((u - 1) / N)


@pytest.mark.parametrize("k", [1, 2, 4])
@pytest.mark.parametrize("u", [3, 4])
def test_the_sum_carries_the_noise_of_all_shares(k, u):
    assert accepts(standardised(k, u))


@pytest.mark.parametrize("factor", [2 / 3, 0.95, 1.05])
@pytest.mark.parametrize("k", [1, 3])
def test_wrong_noise_in_the_sum_is_found_out(k, factor):
    assert not accepts(factor * standardised(k))


def test_the_shares_of_single_sites_add_up_to_the_simulated_sum():
    """Each site by itself adds one of u - c shares: the sum over all has the law that the simulator draws at once."""
    algorithm = algorithm_of()
    sites, counts = [alone(algorithm, i) for i in range(N)], N * [12]
    openers = [
        curator(algorithm, site, SeededNoise(9, Shape(1, D, RUNS, first_node=i)), RUNS, counts)
        for i, site in enumerate(sites)
    ]
    sessions = [begun(algorithm, site, RUNS) for site in sites]
    whole = algorithm.oracle(sv.Sites(*map(list, zip(*parts(), strict=True))), sv.graphs.complete(N))
    for k in (1, 2):
        questions = [session.ask.question for session in sessions]
        assert all(same_question(one, questions[0]) for one in questions)  # a function of the sums alone
        said = [opener.open(k, question) for opener, question in zip(openers, questions, strict=True)]
        total = np.sum([one.value for one in said], axis=0)
        unit = algorithm.multipliers(whole.n)[k - 1] * questions[0].sensitivity(whole, 12 * N)
        left = (total - questions[0].of(whole, 12 * N)) / unit
        assert accepts(left * np.sqrt((N - 1) / N))
        assert not accepts(left * np.sqrt((N - 1) / N) * 2 / 3)
        # What one colluding site knows can be taken out, and just the agreed noise is left.
        known = said[-1].value - questions[0].of(sites[-1], 12 * N)
        assert accepts(left - known / unit)
        for session in sessions:
            session.tell(said[0]._replace(value=total, std=said[0].std * np.sqrt(N)))
    for session in sessions[1:]:  # all hold the same
        assert session.answer.last.tobytes() == sessions[0].answer.last.tobytes()
        assert session.answer.average.tobytes() == sessions[0].answer.average.tobytes()


def transcript_loss(algorithm, ours, theirs, seed=1):
    """ln(p_ours / p_theirs) of all sums, exactly. Nobody colludes, so all of the noise counts."""
    graph = sv.graphs.complete(ours.n)
    site, other = (algorithm.oracle(sites, graph) for sites in (ours, theirs))
    d, rng = ours.d, np.random.default_rng(seed)
    z = rng.normal(size=(algorithm.rounds, RUNS, ours.n, 4, d))
    loss, elsewhere = np.zeros(RUNS), begun(algorithm, other, RUNS)
    for k, told in enumerate(opened(algorithm, site, given(z, ours.n, d, RUNS), RUNS)):
        assert same_question(told.question, elsewhere.ask.question)  # no row is looked at
        mean, moved = (told.question.of(x, told.rows) for x in (site, other))
        drawn = z[k, :, 0].reshape(RUNS, -1).T[: len(mean)]
        np.testing.assert_allclose(told.value, mean + told.std * drawn, rtol=1e-9, atol=1e-9)
        shift = (mean - moved) / told.std
        loss += np.sum((drawn + shift) ** 2 - drawn**2, axis=0) / 2
        elsewhere.tell(told)
    assert elsewhere.ask is None
    return loss, algorithm.statement(site).event


def neighbours(kind):
    """The largest moves: of second moments by orthogonal rows, of the smoothed hinge's gradients by opposite ones."""
    a, b = np.tile([[1.0, 0.0]], (10, 1)), np.ones(10)
    other = a.copy()
    other[0] = {"orthogonal": [0.0, 1.0], "opposite": [-1.0, 0.0], "removed": [0.0, 0.0]}[kind]
    rest = np.array([[0.6, 0.8], [0.0, -1.0]]), np.array([1.0, -1.0])
    return [sv.Sites([x, rest[0]], [b, rest[1]]) for x in (a, other)]


LOSSES = [sv.losses.Logistic(), sv.losses.SmoothedHinge()]


@pytest.mark.parametrize("kind", ["orthogonal", "opposite", "removed"])
@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: loss.name)
def test_no_transcript_of_sums_tells_more_than_the_accountant_says(loss, kind):
    algorithm = algorithm_of(colluding=0, loss=loss)
    pair = neighbours(kind)
    for ours, theirs in (pair, pair[::-1]):
        loss_of, event = transcript_loss(algorithm, ours, theirs)
        for e in (0.0, 0.25, 0.5, 1.0, 1.5):
            assert hockey_stick(loss_of, e) <= delta(event, e)


@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: loss.name)
def test_who_believes_in_half_as_much_noise_again_is_caught(loss):
    algorithm = algorithm_of(colluding=0, loss=loss)
    ours, theirs = neighbours("opposite" if loss.name == "smoothed-hinge" else "orthogonal")
    found, event = transcript_loss(algorithm, ours, theirs)
    believed = weakened(event, 1.5)
    gaps = [hockey_stick(found, e) - delta(believed, e) for e in (0.0, 0.25, 0.5, 1.0)]
    assert (max(gaps) > 0) == (loss.name == "smoothed-hinge")  # logistic rows move the sums by less than they could


def test_an_observer_s_event_is_the_agreed_one_with_less_noise():
    algorithm = algorithm_of(least_sites=4)
    site = algorithm.oracle(sv.Sites(*map(list, zip(*parts(), strict=True))), sv.graphs.complete(N))
    agreed = algorithm.event(4, site, algorithm.agreed(site))
    seen_by_two = algorithm.event(4, site, Observer(2))
    factor = algorithm.noise_left(site.n, 2)
    assert factor == pytest.approx(np.sqrt(2 / 3))
    assert seen_by_two == weakened(agreed, factor)
    assert isinstance(agreed, Sequence)
    assert agreed.events[1] == Repeated(Gaussian(algorithm.multipliers(site.n)[1]), 3)


def test_spare_attempts_are_paid_for_beforehand():
    """Every attempt is a release like the dearest, whether it is made or not."""
    algorithm = algorithm_of(least_sites=4, spare=3)
    site = algorithm.oracle(sv.Sites(*map(list, zip(*parts(), strict=True))), sv.graphs.complete(N))
    counted = leaves(algorithm.event(algorithm.rounds, site))
    assert counted.total() == algorithm.rounds + 3
    assert min(leaf.sigma for leaf in counted) == algorithm.sigma(site) * algorithm.noise_left(site.n, 0)
