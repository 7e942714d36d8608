"""What masked sums compute, what they refuse, and what holds against whom."""

import math

import numpy as np
import pytest
from scipy.optimize import minimize

import sottovoce as sv
from helpers import problems
from helpers.sums import Silent
from sottovoce.oracle import loss_sums
from sottovoce.oracle.plain import Oracle
from sottovoce.privacy import Gaussian, epsilon
from sottovoce.privacy.accounting.accountant import leaves
from sottovoce.privacy.observers import Observer
from sottovoce.simulation.exchange import Local
from sottovoce.sums.curvature import WIDEST_MATRIX

SIZES = (3, 40, 11, 26)
ALL = sv.graphs.complete(4)
LOSSES = [sv.losses.Logistic(), sv.losses.SmoothedHinge(), sv.losses.Huber(threshold=0.7), sv.losses.Softmax(3)]


def made(**options):
    return sv.MaskedNewton(**{"epsilon": 1.0, "colluding": 1, "rounds": 11, **options})


def site_of(algorithm, sizes=SIZES, d=5):
    sites = problems.sites(np.random.default_rng(1), sizes, d=d)
    return algorithm.oracle(sites, sv.graphs.complete(len(sizes)))


def pooled(a, b, loss, weight):
    """The minimiser of the mean over all rows, whosever they are, by a solver that shares no code with ours."""
    k = loss.outputs

    def objective(flat):
        z = a @ flat.reshape(a.shape[1], k)
        z = z if k > 1 else z[:, 0]
        slopes = loss.slope(z, b, loss.theta).reshape(len(b), k)
        value = np.mean(loss.value(z, b, loss.theta)) + weight * flat @ flat / 2
        return value, (a.T @ slopes / len(b)).ravel() + weight * flat

    return minimize(objective, np.zeros(a.shape[1] * k), jac=True, method="L-BFGS-B",
                    options={"gtol": 1e-11, "ftol": 1e-16, "maxiter": 5000}).x  # fmt: skip


# Gradients are summed alike on both devices.
@pytest.mark.parametrize(
    ("device", "loss"),
    [*(("plain", loss) for loss in LOSSES), ("cpu", sv.losses.Logistic())],
    ids=lambda it: it if isinstance(it, str) else it.name,
)
def test_without_noise_it_finds_the_optimum_of_the_pooled_rows(loss, device):
    rng = np.random.default_rng(2)
    features, labels = problems.lists(rng, SIZES, classes=isinstance(loss.labels, sv.losses.Signs))
    if loss.outputs > 1:
        labels = [rng.integers(3, size=len(a)).astype(float) for a in features]
    algorithm = sv.MaskedNewton(epsilon=math.inf, rounds=300, loss=loss, lam=0.02)
    result = sv.simulate(algorithm, sv.Sites(features, labels), ALL, seed=0, record=1, device=device)
    best = pooled(np.vstack(features), np.concatenate(labels), loss, 0.02)
    np.testing.assert_allclose(result.consensus[0], best, atol=1e-5)


def test_only_the_sum_counts_however_rows_are_dealt_out():
    rng = np.random.default_rng(5)
    features, labels = problems.lists(rng, (60,))
    cuts = [[20, 40], [3, 50]]
    results = [
        sv.simulate(
            made(rounds=4), sv.Sites(np.split(features[0], at), np.split(labels[0], at)), sv.graphs.complete(3), seed=1
        )
        for at in cuts
    ]
    np.testing.assert_allclose(results[0].last[0, 0], results[1].last[0, 0], rtol=1e-9)


def test_devices_agree():
    sites = problems.sites(np.random.default_rng(1), SIZES, sparse=True)
    ours, theirs = (sv.simulate(made(), sites, ALL, runs=3, seed=3, device=device) for device in ("cpu", "plain"))
    np.testing.assert_allclose(ours.last, theirs.last, rtol=0, atol=1e-10)
    np.testing.assert_allclose(ours.history["risk_last"], theirs.history["risk_last"], rtol=1e-6)  # single precision


def test_a_wide_table_takes_the_diagonal():
    d = WIDEST_MATRIX + 3
    rng = np.random.default_rng(0)
    a = rng.normal(size=(40, d)) / math.sqrt(2 * d)
    sites = sv.Sites([a[:10], a[10:]], [np.sign(a[:10, 0]), np.sign(a[10:, 0])])
    graph = sv.graphs.complete(2)
    algorithm = sv.MaskedNewton(epsilon=math.inf, rounds=300, colluding=1, lam=0.02)
    site = algorithm.oracle(sites, graph)
    assert site.moments(full=False) == pytest.approx(np.diag(site.sites.rows.moments()))
    result = sv.simulate(algorithm, sites, graph, seed=0, record=1)
    best = pooled(a, sites.labels, algorithm.loss, 0.02)
    np.testing.assert_allclose(result.consensus[0], best, atol=1e-4 * np.abs(best).max())
    noisy = sv.simulate(sv.MaskedNewton(epsilon=1.0, colluding=1, rounds=3), sites, graph, seed=0)
    assert np.isfinite(noisy.last).all()


@pytest.mark.parametrize(("n", "rows"), [(1, 500), (2, 500), (50, 500), (1000, 2000)])
def test_any_number_of_sites(n, rows):
    rng = np.random.default_rng(0)
    features, labels = problems.lists(rng, (rows,))
    parts = np.array_split(np.arange(rows), n)
    sites = sv.Sites([features[0][p] for p in parts], [labels[0][p] for p in parts])
    result = sv.simulate(sv.MaskedNewton(epsilon=2.0), sites, sv.graphs.complete(n), seed=0, record=1)
    assert np.isfinite(result.last).all()
    assert result.privacy.epsilon <= 2.0
    assert len(result.privacy.observers) == n


def test_one_site_is_a_curator_with_the_noise_of_one():
    algorithm = sv.MaskedNewton(epsilon=1.0, rounds=11)
    site = site_of(algorithm, (50,))
    assert algorithm.colluders(1) == 0
    assert algorithm.noise_left(site.n, 0) == 1
    assert "whoever holds its rows is trusted" in algorithm.statement(site).prose()


# -- accounting -------------------------------------------------------------------------------------------------------


def test_the_default_assumes_less_than_half_and_never_nobody():
    assert [sv.MaskedNewton().colluders(n) for n in (1, 2, 3, 4, 5, 100)] == [0, 1, 1, 1, 2, 49]


def test_the_budget_is_dealt_out_whole():
    algorithm = made()
    assert sum(algorithm.parts) == pytest.approx(1)
    counted = leaves(algorithm.statement(site_of(algorithm)).event)
    assert counted.total() == 11


@pytest.mark.parametrize("k", range(4))
def test_each_line_of_the_table_is_the_price_of_the_noise_that_is_not_known(k):
    algorithm = made(least_sites=4, spare=1)
    site = site_of(algorithm)
    line = algorithm.statement(site).observers[k]
    assert line.colluding == k
    assert line.noise == pytest.approx(math.sqrt(max(1, 4 - k) / 3))
    event = algorithm.event(11, site, Observer(k))
    assert line.epsilon == pytest.approx(epsilon(event, 1e-5))
    # By hand: of GDP's mu^2, in units of the agreed noise.
    mu = math.sqrt(sum(count / leaf.sigma**2 for leaf, count in leaves(algorithm.statement(site).event).items()))
    assert epsilon(Gaussian(line.noise / mu), 1e-5) == pytest.approx(line.epsilon, rel=1e-9)


def test_the_table_rises_and_meets_what_was_asked_for_at_the_agreed_number():
    algorithm = sv.MaskedNewton(epsilon=1.0, colluding=20, rounds=11)
    statement = algorithm.statement(site_of(algorithm, (3,) * 100))
    told = [line.epsilon for line in statement.observers]
    assert told == sorted(told)
    assert told[20] == statement.epsilon == pytest.approx(1.0)
    assert (round(told[50], 2), round(told[99], 1)) == (1.30, 12.5)
    fewer = sv.MaskedNewton(epsilon=1.0, colluding=20, least_sites=80, rounds=11)
    told = [line.epsilon for line in fewer.statement(site_of(fewer, (3,) * 100)).observers]
    assert (round(told[50], 2), round(told[79], 1)) == (1.47, 10.5)
    assert told[79] == told[99]


def test_a_worst_case_raises_the_noise_until_it_holds():
    free, bound = made(colluding=2), made(colluding=2, worst_case_epsilon=1.2)
    sites = site_of(free, (5,) * 6)
    assert free.statement(sites).observers[-1].epsilon > 1.2
    statement = bound.statement(sites)
    assert 1.19 < statement.observers[-1].epsilon <= 1.2
    assert statement.epsilon < 1.0
    assert made(colluding=2, worst_case_epsilon=50.0).sigma(sites) == free.sigma(sites)


@pytest.mark.parametrize("rounds", range(2, 18))
def test_neither_total_is_passed_by_a_rounding_error(rounds):
    """The event that is priced when noise is set must be the one that is told, to the last bit."""
    algorithm = made(colluding=2, least_sites=5, spare=1, worst_case_epsilon=1.5, rounds=rounds)
    statement = algorithm.statement(site_of(algorithm, (5,) * 6))
    assert statement.epsilon <= 1.0
    assert statement.observers[-1].epsilon <= 1.5


def test_spare_attempts_are_paid_for_beforehand():
    """A second opening of a release is one more release: fresh noise, and booked."""
    plain, spare = made(), made(spare=3)
    site = site_of(plain)
    assert spare.statement(site).epsilon <= 1.0
    assert spare.sigma(site) > plain.sigma(site)
    counted = leaves(spare.statement(site).event)
    assert counted.total() == 11 + 3
    # The dearest release is the one that an adversary would have repeated.
    dearest = min(counted, key=lambda leaf: leaf.sigma)
    assert counted[dearest] == 10 + 3
    without = spare.sigma(site), plain.event(11, site, Observer(1))
    assert epsilon(spare.event(11, site, Observer(1)), 1e-5) > 0.99
    assert without[0] < dearest.sigma * (1 + 1e-12)


def test_the_same_noise_in_a_smaller_set_would_give_a_site_away():
    """The difference of the two sums is one site's value with its one share: dearer than everything that was agreed."""
    algorithm = made(colluding=1, least_sites=8, spare=1)
    site = site_of(algorithm, (5,) * 8)
    one_share = Gaussian(algorithm.sigma(site) / math.sqrt(7))
    fresh = Gaussian(algorithm.sigma(site))
    released = algorithm.event(11, site, algorithm.agreed(site))
    assert epsilon(released, 1e-5) <= 1.0  # with the fresh attempt
    assert epsilon(fresh, 1e-5) < epsilon(one_share, 1e-5)
    rest = made(colluding=1, least_sites=8).event(11, site, Observer(1))
    assert epsilon(sv.privacy.Sequence((rest, one_share)), 1e-5) > 1.0


# -- how many exchanges -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("epsilon", "rows", "features", "expected"),
    [(0.1, 442, 11, 5), (1.0, 442, 11, 6), (0.1, 45_222, 104, 11), (1.0, 45_222, 104, 16), (4.0, 45_222, 104, 17),
     (math.inf, 10, 3, 300), (1000.0, 10**9, 3, 17)],
)  # fmt: skip
def test_exchanges_follow_from_public_numbers(epsilon, rows, features, expected):
    assert made(epsilon=epsilon, colluding=20).exchanges(rows, features, 100) == expected


def test_the_number_of_exchanges_is_open_until_rows_are_known():
    algorithm = made(rounds=None)
    assert sv.MaskedNewton().rounds is None
    with pytest.raises(sv.InputError, match=r"Expected a number of exchanges, got rounds=None.*bound_to"):
        algorithm.statement(site_of(algorithm))
    bound = algorithm.bound_to(80, 5, 4)
    assert bound.rounds == algorithm.exchanges(80, 5, 4)
    assert bound.bound_to(10**6, 90, 7) is bound  # a number that was given, or found, stays
    assert sv.IPADMM(rounds=7).bound_to(80, 5, 4).rounds == 7


def test_a_simulation_binds_it_to_its_rows():
    sites = problems.sites(np.random.default_rng(1), SIZES)
    found = made(rounds=None).exchanges(sum(SIZES), 5, 4)
    ours = sv.simulate(made(rounds=None), sites, ALL, seed=1)
    assert ours.rounds == found
    assert f"at each of {found - 1} public models" in ours.privacy.released
    np.testing.assert_array_equal(ours.last, sv.simulate(made(rounds=found), sites, ALL, seed=1).last)


def test_more_colluders_are_more_noise_and_never_more_exchanges():
    found = [made(epsilon=1.0, colluding=c).exchanges(10**6, 20, 100) for c in (0, 50, 90, 99)]
    assert found == sorted(found, reverse=True)
    assert found[0] > found[-1]


def test_on_a_few_hundred_rows_the_model_is_hardly_worse_than_none():
    """Eleven exchanges walk far from zero here; fewer do not. The zero model's risk is ln 2."""
    rng = np.random.default_rng(3)
    a = np.hstack([rng.uniform(-1, 1, (400, 10)), np.ones((400, 1))]) / math.sqrt(11)
    labels = np.where(rng.random(400) < 1 / (1 + np.exp(-3 * a[:, 0])), 1.0, -1.0)
    sites = sv.Sites(np.split(a, 4), np.split(labels, 4))
    few = made(epsilon=0.1).exchanges(400, 11, 4)
    risks = {
        rounds: sv.simulate(made(epsilon=0.1, rounds=rounds), sites, ALL, runs=30, seed=0, record=1).risk()["last"]
        for rounds in (few, 11)
    }
    assert risks[few] < math.log(2) + 0.03
    assert risks[11] > math.log(2) + 0.1


# -- refusals ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"colluding": -1}, "colluding >= 0"),
        ({"spare": -1}, "spare >= 0"),
        ({"least_sites": 0}, "least_sites >= 1"),
        ({"rounds": 1}, "rounds >= 2"),
        ({"worst_case_epsilon": 0.0}, "worst_case_epsilon > 0"),
        ({"calibration": "paper"}, "calibration='exact'"),
    ],
)
def test_impossible_settings_are_refused_by_name(options, told):
    with pytest.raises(sv.InputError, match=told):
        made(**options)


@pytest.mark.parametrize("loss", [sv.losses.Hinge(), sv.losses.Absolute(), sv.losses.Quantile()], ids=lambda x: x.name)
def test_losses_without_curvature_are_refused_by_name(loss):
    with pytest.raises(sv.UnsupportedError, match=f"loss='{loss.name}'.*Use a smooth one"):
        made(loss=loss)


def test_a_regulariser_with_a_kink_is_refused():
    with pytest.raises(sv.UnsupportedError, match="smooth regulariser"):
        made(regulariser=sv.regularisers.L1())


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"least_sites": 5}, r"least_sites <= n=4 sites, got least_sites=5\. Name"),
        ({"colluding": 4}, r"colluding < least_sites=4, got colluding=4\. Some"),
        ({"colluding": 2, "least_sites": 3}, r"2 least_sites > n \+ colluding = 6, got least_sites=3\. .* raise"),
    ],
)
def test_numbers_that_do_not_fit_the_network_are_refused(options, told):
    algorithm = made(**options)
    for ask in (algorithm.statement, lambda site: algorithm.play(site, 1, Local(ALL.exchange), Silent(5))):
        with pytest.raises(sv.InputError, match=told):
            ask(site_of(algorithm))


def test_a_graph_that_is_not_complete_is_refused():
    sites = problems.sites(np.random.default_rng(1), SIZES)
    with pytest.raises(sv.InputError, match="a complete graph for MaskedNewton"):
        sv.simulate(made(), sites, sv.graphs.ring(4))


def test_who_holds_part_of_the_sites_cannot_play_them_all():
    """A sum over those would have the noise of those: one share of several."""
    algorithm = made()
    one = sv.Sites([np.eye(3)], [np.ones(3)])
    site = Oracle(one, 4, algorithm.loss, np.array([3]), algorithm.regulariser, 0.0)
    with pytest.raises(sv.InputError, match="the rows of all 4 sites, to play all of them, got sites=1"):
        algorithm.play(site, 1, Local(ALL.exchange), Silent(3))


def test_what_cannot_be_played_is_refused_before_a_row_is_looked_at(monkeypatch):
    monkeypatch.setattr(Oracle, "moments", lambda *_: pytest.fail("a row was looked at"))
    network = Local(sv.graphs.ring(4).exchange)
    ring = made().oracle(problems.sites(np.random.default_rng(1), SIZES), sv.graphs.ring(4))
    with pytest.raises(sv.InputError, match="a complete graph for MaskedNewton"):
        made().play(ring, 1, network, Silent(5))
    made().play(site_of(made()), 1, network, Silent(5))  # nothing is asked before the first round is


def test_a_site_without_rows_is_refused():
    with pytest.raises(sv.InputError, match="rows at every site, got rows=0"):
        made().expect_rows([3, 0, 2])


def test_no_bound_on_rows_is_refused():
    sites = sv.Sites([np.eye(3)], [np.ones(3)], data_norm=math.inf)
    algorithm = made(colluding=0, max_grad_norm=1.0)
    with pytest.raises(
        sv.InputError, match=r"a bound on the norm of rows, 1e-140 or more, got data_norm=inf\. Declare"
    ):
        sv.simulate(algorithm, sites, sv.graphs.complete(1))


def test_an_epsilon_beyond_the_grid_is_refused():
    algorithm = made(epsilon=1e12)
    with pytest.raises(sv.PrivacyError, match=r"a grid of 30 bits can hold, got epsilon=1e\+12.*smaller epsilon"):
        algorithm.statement(site_of(algorithm, (300,) * 4))


def test_more_numbers_than_a_message_holds_are_refused(monkeypatch):
    monkeypatch.setattr("sottovoce.algorithms.analysis.MOST_NUMBERS", 4)
    with pytest.raises(sv.InputError, match=r"at most 4 numbers in a message, got d=15\. Use fewer"):
        made().statement(site_of(made()))


def test_rows_whose_squares_vanish_are_refused():
    """Their second moments would be moved by more than was reckoned with, as numbers that small have few digits."""
    features = [np.full((3, 2), 1e-163)] * 3
    sites = sv.Sites(features, [np.ones(3)] * 3, data_norm=1.6e-162)
    with pytest.raises(sv.InputError, match="rows may be in a larger unit"):
        sv.simulate(made(), sites, sv.graphs.complete(3))


def test_more_exchanges_do_not_blow_up_a_wide_table():
    """The bound by a diagonal may be p times too large. What fills it up must not shrink with it."""
    rng = np.random.default_rng(0)
    a = rng.normal(size=(3000, 800)) * (rng.random((3000, 800)) < 0.03)
    a /= np.maximum(np.linalg.norm(a, axis=1, keepdims=True), 1e-9)
    b = np.where(rng.random(3000) < 0.05, 1.0, -1.0)
    sites = sv.Sites(np.split(a, 3), np.split(b, 3))
    risks = [
        sv.simulate(made(rounds=k), sites, sv.graphs.complete(3), runs=2, seed=1, record=1).risk()["last"]
        for k in (8, 16, 24)
    ]
    assert max(risks) < 1.3 * math.log(2)  # the zero model


def test_a_parabola_s_steps_do_not_swing_up():
    """The curvature of a Huber loss is all of its bound: steps that are too long for it end some runs badly."""
    rng = np.random.default_rng(0)
    a = np.hstack([np.full((4000, 1), 0.6), 0.2 * rng.normal(size=(4000, 11))])
    a /= np.maximum(1.0, np.linalg.norm(a, axis=1, keepdims=True))
    truth = np.append(-0.7, 0.5 * rng.normal(size=11))
    b = np.clip(a @ truth + 0.1 * rng.normal(size=4000), -1, 1)
    algorithm = made(rounds=16, loss=sv.losses.Huber(), epsilon=2.0)
    result = sv.simulate(algorithm, sv.Sites(np.split(a, 4), np.split(b, 4)), ALL, runs=30, seed=1, record=1)
    risks = result.history.final("risk_last")
    assert risks.max() < 2 * np.median(risks)


@pytest.mark.parametrize("at_once", [1, 7, 30])
@pytest.mark.parametrize("sparse", [True, False], ids=["csr", "dense"])
def test_a_sum_that_is_made_in_pieces_is_the_sum_of_all_rows(monkeypatch, at_once, sparse):
    monkeypatch.setattr(loss_sums, "_ROWS_AT_ONCE", at_once)
    sites = problems.sites(np.random.default_rng(3), (9, 1, 40, 23), d=4, sparse=sparse)
    site = sv.MaskedNewton().oracle(sites, sv.graphs.complete(4))
    w = np.random.default_rng(4).normal(size=(1, 4, 2))
    rows = sites.rows.block(0, 73)
    rows = rows.toarray() if sparse else rows
    slopes = site.loss.slope(rows @ w[0], sites.labels[:, None], site.loss.theta)
    np.testing.assert_allclose(site.gradient_sum(w)[0], rows.T @ slopes, rtol=1e-12)
