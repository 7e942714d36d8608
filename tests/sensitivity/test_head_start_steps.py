"""Steps in whitened coordinates, and the budget of which a head start takes a part."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import sottovoce as sv
from helpers.laws import assert_standard
from helpers.sums import Silent
from sottovoce.errors import InputError, PrivacyError, UnsupportedError
from sottovoce.noise.sources import SeededNoise, Shape
from sottovoce.oracle.plain import Steps
from sottovoce.oracle.whitened import WhitenedOracle
from sottovoce.oracle.whitening import Whitening
from sottovoce.plan import plan
from sottovoce.privacy import Gaussian, Repeated, epsilon
from sottovoce.privacy.accounting.gaussian import mu_for
from sottovoce.privacy.unit import Unit
from sottovoce.problem.factors import Factors
from sottovoce.simulation.exchange import Local

P, GRAPH = 3, sv.graphs.complete(2)
LOSSES = [sv.losses.Logistic(), sv.losses.Huber(0.7), sv.losses.Softmax(3)]
AHEAD = sv.IPADMM(rounds=6, local_steps=2, rho=0.05, diameter=5.0, epsilon=2.0, moments=0.2, sensitivity="tight")


def labels(rng, loss, m):
    if loss.outputs > 1:
        return rng.integers(loss.outputs, size=m).astype(float)
    return rng.choice([-1.0, 1.0], size=m) * (1 if isinstance(loss, sv.losses.Logistic) else 5)


def sites_of(a, b, norm=1.0, unit=None):
    return sv.Sites(list(a), list(b), data_norm=norm, **({} if unit is None else {"unit": unit}))


def whitened(sites, loss, A, lam=0.0):
    site = sv.IPADMM(loss=loss, lam=lam, diameter=1.0).oracle(sites, GRAPH)
    norm = np.linalg.norm(A, 2, axis=(0, 1)).max()
    return WhitenedOracle.of(site, Whitening(A, np.full((1, A.shape[2]), sites.data_norm)), float(norm))


def symmetric(rng, runs=2):
    """Coordinates of any kind, that stretch rows by much, by little or not at all."""
    sizes = 10.0 ** rng.uniform(-1.5, 1.5, size=(runs, P)) * rng.choice([-1.0, 1.0], size=(runs, P))
    turns = [np.linalg.qr(rng.normal(size=(P, P)))[0] if rng.random() < 0.6 else np.eye(P) for _ in range(runs)]
    A = np.stack([(Q * size) @ Q.T for Q, size in zip(turns, sizes, strict=True)], axis=2)
    return (A + A.transpose(1, 0, 2)) / 2


def declared(site, u, tight):
    spread = site.spread(tight)
    return site.sensitivity() * (spread.at(u) if spread.parts.size else 1.0)


@given(st.integers(0, 2**32 - 1), st.sampled_from(LOSSES), st.booleans(), st.sampled_from([0.01, 1.0, 100.0]))
@settings(max_examples=150)
def test_no_row_moves_a_gradient_by_more_than_declared(seed, loss, tight, norm):
    rng = np.random.default_rng(seed)
    m = int(rng.integers(1, 5))
    a = rng.normal(size=(2, m, P))
    a *= norm * rng.choice([0.05, 1.0], size=(2, m, 1)) / np.linalg.norm(a, axis=2, keepdims=True)
    b = np.stack([labels(rng, loss, m) for _ in range(2)])
    other, told = a.copy(), b.copy()
    other[0, 0] = [norm * np.eye(P)[rng.integers(P)], -a[0, 0], np.zeros(P)][rng.integers(3)]
    told[0, 0] = labels(rng, loss, 1)[0]
    A, u = symmetric(rng), rng.normal(size=(2, P * loss.outputs, 2)) * 10.0 ** rng.uniform(-2, 2) / norm
    ours, theirs = (whitened(sites_of(x, y, norm), loss, A) for x, y in ((a, b), (other, told)))
    moved = np.linalg.norm(ours.gradient(u) - theirs.gradient(u), axis=1)
    assert np.all(moved[0] <= declared(ours, u, tight)[0, 0])
    assert np.all(moved[1] == 0)


@pytest.mark.parametrize("stretch", [1.0, 40.0])
@pytest.mark.parametrize("tight", [False, True])
def test_the_bound_is_attained(tight, stretch):
    """By rows a and -a of one label: at 0, and for plain noise at a large model to which both are nearly orthogonal.
    Longer rows than c move it by no more.
    """
    A, m = stretch * np.eye(P)[..., None], 4
    length = min(1.0, 1 / stretch)
    reach = 0.0 if tight else 1e4
    turn = 0.01
    row = length * np.array([turn, math.sqrt(1 - turn**2), 0.0]) if reach else length * np.eye(P)[0]
    mirrored = row * [1.0, -1.0, 1.0] if reach else -row
    u = np.zeros((2, P, 1))
    u[:, 0] = -reach
    tables = []
    for first in (row, mirrored, row / length, mirrored / length):
        rows = np.zeros((2, m, P))
        rows[0, 0] = first
        tables.append(whitened(sites_of(rows, np.ones((2, m))), LOSSES[0], A))
    said = declared(tables[0], u, tight)[0].item()
    moved = [float(np.linalg.norm(tables[i].gradient(u)[0] - tables[i + 1].gradient(u)[0])) for i in (0, 2)]
    assert 0.99 * said < moved[0] <= said
    assert moved[1] <= said


def test_a_gradient_is_that_of_transformed_rows():
    """In coordinates t = A a, by a loop over rows, with the regulariser of w = A u."""
    rng = np.random.default_rng(1)
    a, b = rng.normal(size=(2, 5, P)) / 4, rng.choice([-1.0, 1.0], size=(2, 5))
    A, u, lam = symmetric(rng), rng.normal(size=(2, P, 2)), 0.3
    found = whitened(sites_of(a, b), LOSSES[0], A, lam).gradient(u)
    for node in range(2):
        for run in range(2):
            total = lam * A[:, :, run] @ A[:, :, run] @ u[node, :, run]
            for row, label in zip(a[node] @ A[:, :, run], b[node], strict=True):
                slope = -label / (1 + math.exp(label * float(row @ u[node, :, run])))
                total += min(1.0, 1 / float(row @ row)) * slope * row / 5
            np.testing.assert_allclose(found[node, :, run], total, rtol=1e-10, atol=1e-13)


def test_steps_hold_the_noise_that_they_declare():
    """And two thirds of it would be found out."""
    rng, runs = np.random.default_rng(2), 400
    a, b = rng.normal(size=(2, 5, P)) / 4, rng.choice([-1.0, 1.0], size=(2, 5))
    site = whitened(sites_of(a, b), LOSSES[0], np.repeat(symmetric(rng, 1), runs, axis=2))
    u, one = rng.normal(size=(2, P, runs)), np.ones((2, 1, 1))
    both = [
        site.noisy_steps(u, Steps(1, np.zeros_like(u), one, 0 * one[None], 3.0, noise, tight=True)).last
        for noise in (SeededNoise(3, Shape(2, P, runs)), Silent(P, runs))
    ]
    z = (both[0] - both[1]) / (3.0 * declared(site, u, True))
    assert_standard(z)
    with pytest.raises(AssertionError):
        assert_standard(z * 2 / 3)


def network(unit=None, m=200, seed=4):
    rng = np.random.default_rng(seed)
    a = rng.normal(size=(2, m, P)) * [1.0, 0.2, 0.05]
    a /= np.linalg.norm(a, axis=2).max()
    return sites_of(a, np.sign(a[..., 0] + 0.1 * rng.normal(size=(2, m))), unit=unit)


@pytest.mark.parametrize("unit", [Unit(1, 1), Unit(3, 1), Unit(3, 2)])
def test_the_parts_of_the_budget_add_up(unit):
    """In mu^2, which Gaussian releases add up in; the moments hold the noise that their price is for."""
    site = AHEAD.oracle(network(unit), GRAPH)
    mu, seen = mu_for(2.0, AHEAD.delta), min(unit.sites, 2)
    steps = 12 * seen / AHEAD.sigma(site) ** 2
    first = 1 / AHEAD.moments_sigma**2
    assert first == pytest.approx(0.2 * mu**2, rel=1e-6)
    assert steps == pytest.approx(0.8 * mu**2, rel=1e-6)
    assert AHEAD.spent(6, site) == pytest.approx(2.0, abs=1e-6)
    assert AHEAD.spent(6, site) <= 2.0
    assert AHEAD.event(1, site).words != AHEAD.event(6, site).words
    (told,) = opened_moments(site)
    # Every site adds for all of a person's rows, wherever they are.
    each = AHEAD.moments_sigma * (2 + 2 * 0.75**2) / math.sqrt(2) * unit.changed * seen
    assert told.std.item() == pytest.approx(math.sqrt(2) * each, rel=1e-6)


def opened_moments(site, runs=1):
    """The sums that a run opens before its first round."""

    class Around(Local):
        def opener(self, *given):
            found = super().opener(*given)
            ask = found.open
            found.open = lambda k, question: sums.append(ask(k, question)) or sums[-1]
            return found

    sums = []
    play = AHEAD.play(site, runs, Around(GRAPH.exchange), SeededNoise(5, Shape(2, P, runs)))
    next(play)
    return sums


def test_the_moments_hold_the_noise_that_they_declare():
    runs = 400
    site = AHEAD.oracle(network(), GRAPH)
    (told,) = opened_moments(site, runs)
    z = (told.value - site.start_moments()[:, None]) / told.std
    assert_standard(z)
    with pytest.raises(AssertionError):
        assert_standard(z * 2 / 3)


def test_the_first_message_holds_the_moments_and_a_model():
    site = AHEAD.oracle(network(), GRAPH)
    play = AHEAD.play(site, 1, Local(GRAPH.exchange), SeededNoise(5, Shape(2, P, 1)))
    assert [after.numbers for after in play] == [P * (P + 1) // 2 + 2 * P + P, *[P] * 5]


def test_with_hardly_any_noise_it_finds_the_optimum_sooner():
    sites = network(m=2000)
    late, ahead = (
        sv.simulate(
            replace(AHEAD, rounds=3, epsilon=1e6, moments=part, lam=1e-3, diameter=30.0), sites, GRAPH, seed=1
        ).risk()["consensus"]
        for part in (0.0, 0.2)
    )
    assert ahead < late - 0.05


def test_models_come_out_in_the_coordinates_of_the_rows():
    """Whatever the units of the rows are."""
    one = network()
    a = one.rows.block(0, 400).reshape(2, 200, P)
    other = sites_of(1000 * a, one.labels.reshape(2, 200), norm=1000.0)
    found = [
        sv.simulate(replace(AHEAD, epsilon=1e6, diameter=d, rho=rho, lam=0.0), sites, GRAPH, seed=1).consensus
        for sites, d, rho in ((one, 5.0, 0.05), (other, 5e-3, 0.05e6))
    ]
    np.testing.assert_allclose(1000 * found[1], found[0], rtol=1e-6)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"moments": 1.0}, "0 <= moments < 1"),
        ({"moments": -0.1}, "0 <= moments < 1"),
        ({"batch_size": 3}, "no batch_size with moments"),
        ({"radius": 3.0}, "no radius with moments"),
        ({"max_grad_norm": 3.0}, "no max_grad_norm with moments"),
        ({"calibration": "moments"}, "calibration='exact' with moments"),
    ],
)
def test_what_does_not_go_together_is_refused(change, said):
    with pytest.raises(InputError, match=said):
        replace(AHEAD, **change)


def test_rows_that_count_differently_are_refused():
    factors = [Factors.of(weights=np.linspace(0.1, 1, 5))] * 2
    weighed = sv.Sites([np.eye(5, P)] * 2, [np.ones(5)] * 2, factors=factors)
    with pytest.raises(UnsupportedError, match="rows that count alike with moments"):
        AHEAD.play(AHEAD.oracle(weighed, GRAPH), 1, Local(GRAPH.exchange), Silent(P))


@pytest.mark.parametrize("A", [2.0 * np.eye(P), np.full((P, P), np.nan)])
def test_coordinates_out_of_bounds_are_refused(A):
    site = sv.IPADMM(diameter=1.0).oracle(network(), GRAPH)
    with pytest.raises((PrivacyError, np.linalg.LinAlgError)):
        WhitenedOracle.of(site, Whitening(A[..., None], np.ones((1, 1))), 1.5)
    with pytest.raises(PrivacyError, match="the bound on rows"):
        WhitenedOracle.of(site, Whitening(np.eye(P)[..., None], np.full((1, 1), 2.0)), 1.5)


# -- planned ----------------------------------------------------------------------------------------------------------


def planned(rows, loss=None, nodes=20, graph=sv.graphs.complete, **given):
    loss = sv.losses.Logistic() if loss is None else loss
    made = plan(sizes=[rows] * nodes, d=20, graph=graph(nodes), epsilon=1.0, loss=loss, max_rounds=20, **given)
    return made.algorithm()


def test_a_head_start_is_planned_where_moments_are_known_well_enough():
    assert [planned(rows).moments for rows in (100, 10_000)] == [0.0, 0.1]
    assert [planned(rows).sensitivity for rows in (100, 10_000)] == ["plain", "tight"]
    assert planned(10_000, fixed={"moments": 0.0}).moments == 0
    assert planned(10_000, fixed={"moments": 0.3}).moments == 0.3
    assert planned(10_000, fixed={"sensitivity": "plain"}).sensitivity == "plain"
    assert planned(10_000, sv.losses.SmoothedHinge()).moments == 0
    assert planned(10_000, max_grad_norm=0.5).moments == 0
    assert planned(10_000, fixed={"radius": 5.0}).moments == 0
    assert planned(10_000, nodes=1).moments == 0
    assert planned(10_000, graph=sv.graphs.ring).moments == 0


def test_noise_decides_at_the_limit_that_is_said():
    """The size of the noise in the mean moments, std sqrt(p), over the mean 1 / p of eigenvalues that add up to 1."""
    std = (2 + 2 * 0.75**2) / math.sqrt(2) / (math.sqrt(0.1) * mu_for(1.0, 1e-5)) / math.sqrt(20)
    rows = std * 20**1.5 / 2.0
    assert planned(math.ceil(rows)).moments == 0.1
    assert planned(math.floor(rows)).moments == 0


def test_prices_of_parts_are_those_of_the_whole():
    site = AHEAD.oracle(network(), GRAPH)
    together = [Gaussian(AHEAD.moments_sigma), Repeated(Gaussian(AHEAD.sigma(site)), 12)]
    assert epsilon(sv.privacy.Sequence(tuple(together)), AHEAD.delta) == pytest.approx(2.0, abs=1e-6)
