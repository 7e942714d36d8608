"""People instead of rows: whole transcripts with all of a person's rows replaced, against what is promised."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given as examples
from hypothesis import settings
from hypothesis import strategies as st
from scipy import stats

import sottovoce as sv
from algorithms import harness
from algorithms.harness import given, hockey_stick
from algorithms.test_masked_privacy import transcript_loss
from helpers import every
from helpers.sums import opened
from sottovoce import algorithms as al
from sottovoce.errors import InputError, UnsupportedError
from sottovoce.noise.sources import SeededNoise, Shape
from sottovoce.privacy import ROW, Gaussian, Repeated, Unit, delta, epsilon
from sottovoce.privacy.statement import PrivacyStatement
from sottovoce.settings import plain

RUNS, K, M = 2000, 3, 12
GRAPH = sv.graphs.complete(3)
TARGET = {"rounds": 3, "rho": 2.0, "lam": 0.02, "epsilon": 1.0, "delta": 0.05, "local_steps": 1, "diameter": 0.1,
          "growth": 1.5}  # fmt: skip
ALL = every.algorithms(TARGET, every.is_private)
FOR_PEOPLE = {name: algorithm for name, algorithm in ALL.items() if algorithm.rows_only is None}
# One message of each node in a round, each one Gaussian release. The curator's is an average: below.
LOCAL = {
    name: replace(algorithm, loss=sv.losses.SmoothedHinge())
    for name, algorithm in FOR_PEOPLE.items()
    if not (algorithm.way.masked or isinstance(algorithm, al.TrustedCurator))
}


def pair(unit, where=(0,), k=K):
    """Straight part of the smoothed hinge: a person's k rows at these nodes, turned round, move gradients the most."""
    ours, theirs = [np.ones((M, 1)) for _ in range(3)], [np.ones((M, 1)) for _ in range(3)]
    for node in where:
        theirs[node][:k] = -1
    return [sv.Sites(rows, [np.ones(M)] * 3, unit=unit) for rows in (ours, theirs)]


def played(algorithm, ours, theirs, seed=1):
    """ln(p_ours / p_theirs) of all messages of all nodes, exactly, and the statement."""
    site, other = (harness.oracle(algorithm, sites, GRAPH) for sites in (ours, theirs))
    z = np.random.default_rng(seed).normal(size=(algorithm.rounds, RUNS, 3, algorithm.draws_per_round, 1))
    loss, state = np.zeros(RUNS), algorithm.start(site, RUNS)
    for k in range(1, algorithm.rounds + 1):
        message, after = algorithm.release(k, state, site, given(z, 3, 1, RUNS))
        mean, moved = (algorithm.release(k, state, x, given(0 * z, 3, 1, RUNS))[0] for x in (site, other))
        unit = algorithm.release(k, state, site, given(0 * z + 1, 3, 1, RUNS))[0] - mean
        drawn, shift = (message - mean) / unit, (mean - moved) / unit
        loss += np.sum((drawn + shift) ** 2 - drawn**2, axis=(0, 1)) / 2
        state = algorithm.absorb(k, after, site, GRAPH.exchange(message))
    return loss, algorithm.statement(site)


def test_who_protects_people_and_who_refuses():
    unit = Unit(K, 2)
    assert set(FOR_PEOPLE) == {
        "ipadmm", "ipadmm, published", "dpadmm", "dp-dsgd", "ryu-kim", "pvp", "fixed-point", "noisy-averaged-gd",
        "trusted-curator", "masked", "least-squares", "hazards",
    }  # fmt: skip
    for name, algorithm in ALL.items():
        algorithm.expect_unit(ROW)
        algorithm.expect_unit(Unit(1))  # a person with one row is a row
        if name not in FOR_PEOPLE:
            with pytest.raises(UnsupportedError, match=rf"{type(algorithm).__name__}: .*Use MaskedNewton, or IPADMM"):
                algorithm.oracle(pair(unit)[0], GRAPH)
            site = algorithm.oracle(pair(ROW)[0], GRAPH)
            object.__setattr__(site, "sites", pair(unit)[0])
            with pytest.raises(UnsupportedError, match="protects people"):
                algorithm.statement(site)
    with pytest.raises(UnsupportedError, match="IPADMM: a batch may draw several"):
        replace(ALL["ipadmm"], batch_size=2).oracle(pair(unit)[0], GRAPH)


@pytest.mark.parametrize("where", [(0,), (0, 2)])
@pytest.mark.parametrize("name", LOCAL)
def test_no_transcript_tells_more_of_a_person_than_is_promised(name, where):
    unit = Unit(K, len(where))
    both = pair(unit, where)
    for ours, theirs in (both, both[::-1]):
        loss, statement = played(LOCAL[name], ours, theirs)
        assert statement.unit == unit
        assert statement.epsilon <= 1.0
        for e in (0.0, 0.5, 1.0, 1.5):
            assert hockey_stick(loss, e) <= delta(statement.event, e)


@pytest.mark.parametrize("where", [(0,), (0, 2)])
@pytest.mark.parametrize("name", LOCAL)
def test_the_bound_is_attained_with_all_rows_at_all_sites(name, where):
    """The loss of a Gaussian shift of mu has mean mu^2 / 2: just what the event says, and not less."""
    loss, statement = played(LOCAL[name], *pair(Unit(K, len(where)), where))
    releases = LOCAL[name].rounds * len(where)
    mu = math.sqrt(releases) / statement.sigma
    assert statement.epsilon == pytest.approx(epsilon(Repeated(Gaussian(statement.sigma), releases), 0.05))
    assert abs(loss.mean() - mu**2 / 2) < 5 * mu / math.sqrt(RUNS) + 0.01 * mu**2
    # Who believes that fewer rows, or fewer sites, of a person count is caught.
    fewer = [Unit(K - 1, len(where))] + ([Unit(K, 1)] if len(where) > 1 else [])
    for unit in fewer:
        found, told = played(LOCAL[name], *pair(unit, where))
        assert max(hockey_stick(found, e) - delta(told.event, e) for e in (0.0, 0.25, 0.5, 1.0)) > 0


@examples(st.integers(0, 2**32 - 1))
@settings(max_examples=150)
def test_no_gradient_moves_by_more_than_all_rows_of_a_person(seed):
    """Random rows, labels, models, losses: k replaced rows of a node, or all if it has fewer; unequal weights too."""
    rng = np.random.default_rng(seed)
    loss = every.LOSSES[rng.integers(len(every.LOSSES))]
    sizes, k, tight = rng.integers(1, 8, size=2), int(rng.integers(1, 10)), bool(rng.integers(2))
    weights = ("equal", "rows", "squared")[rng.integers(3)]
    signs = isinstance(loss.labels, sv.losses.Signs)

    def drawn():
        rows = [rng.normal(size=(m, 3)) for m in sizes]
        rows = [a / np.linalg.norm(a, axis=1, keepdims=True) for a in rows]
        return rows, [rng.choice([-1.0, 1.0], size=m) if signs else 9 * rng.normal(size=m) for m in sizes]

    (a, b), (other, label) = drawn(), drawn()
    for rows, labels, old_rows, old_labels in zip(other, label, a, b, strict=True):
        rows[k:], labels[k:] = old_rows[k:], old_labels[k:]
    algorithm = sv.IPADMM(loss=loss, weights=weights, diameter=1.0)
    ours, theirs = (
        algorithm.oracle(sv.Sites(*x, unit=Unit(k, 2)), sv.graphs.complete(2)) for x in ((a, b), (other, label))
    )
    w = np.repeat(rng.normal(size=(1, 3, 1)) * 10 ** rng.uniform(-2, 1), 2, axis=0)
    moved = np.linalg.norm(ours.gradient(w) - theirs.gradient(w), axis=1)[:, 0]
    allowed = ours.sensitivity() * (ours.spread(tight).at(w) if tight else 1.0)
    assert np.all(moved <= allowed[:, 0, 0] * (1 + 1e-9))
    total = int(sizes.sum())
    summed = np.linalg.norm(ours.gradient_sum(w[:1]) - theirs.gradient_sum(w[:1]))
    assert summed <= ours.gradient_sum_sensitivity(w[:1], total).item() * (1 + 1e-9)
    assert np.linalg.norm(ours.moments(True) - theirs.moments(True)) <= ours.moments_sensitivity(total) * (1 + 1e-9)


def test_the_sums_attain_what_a_person_moves():
    k = 4
    a, other = np.tile([[1.0, 0.0]], (10, 1)), np.tile([[1.0, 0.0]], (10, 1))
    other[:k] = [0.0, 1.0]
    unit, loss = Unit(k, 2), sv.losses.SmoothedHinge()
    algorithm = sv.MaskedNewton(loss=loss)

    def site(rows):
        return algorithm.oracle(sv.Sites([rows, rows], [np.ones(10)] * 2, unit=unit), sv.graphs.complete(2))

    ours, theirs, turned, w = (
        site(a),
        site(other),
        site(np.where(np.arange(10)[:, None] < k, -a, a)),
        np.zeros((1, 2, 1)),
    )
    moved = np.linalg.norm(ours.moments(True) - theirs.moments(True))
    assert moved == pytest.approx(ours.moments_sensitivity(20), rel=1e-10)
    assert ours.moments_sensitivity(20) == pytest.approx(2 * k * math.sqrt(2), rel=1e-10)
    moved = np.linalg.norm(ours.gradient_sum(w) - turned.gradient_sum(w))
    assert moved == pytest.approx(ours.gradient_sum_sensitivity(w, 20).item(), rel=1e-10)


@pytest.mark.parametrize("sites", [1, 2])
def test_no_transcript_of_sums_tells_more_of_a_person(sites):
    """Rows at one site or at both: the sum does not care where they are."""
    algorithm = sv.MaskedNewton(epsilon=1.0, delta=0.05, colluding=0, rounds=4, loss=sv.losses.SmoothedHinge())
    a = np.tile([[1.0, 0.0]], (10, 1))
    for turn in ([0.0, 1.0], [-1.0, 0.0], [0.0, 0.0]):
        other = a.copy()
        other[:K] = turn
        ours = sv.Sites([a, a], [np.ones(10)] * 2, unit=Unit(K, sites))
        theirs = sv.Sites([other, other if sites == 2 else a], [np.ones(10)] * 2, unit=Unit(K, sites))
        loss, event = transcript_loss(algorithm, ours, theirs)
        for e in (0.0, 0.5, 1.0):
            assert hockey_stick(loss, e) <= delta(event, e)
    # Opposite rows move every gradient by nearly all of it: who counts one row less is caught.
    other = a.copy()
    other[:K] = [-1.0, 0.0]
    rows = [other, other if sites == 2 else a]
    few = Unit(K - 1, sites) if sites == 1 else Unit(K, 1)
    loss, event = transcript_loss(
        algorithm, *(sv.Sites(x, [np.ones(10)] * 2, unit=few) for x in ([a, a], rows)), seed=2
    )
    assert max(hockey_stick(loss, e) - delta(event, e) for e in (0.0, 0.25, 0.5, 1.0)) > 0


@pytest.mark.parametrize("sites", [1, 2])
def test_the_curators_average_covers_a_person_at_several_sites(sites):
    algorithm = replace(FOR_PEOPLE["trusted-curator"], loss=sv.losses.SmoothedHinge())
    ours, theirs = pair(Unit(K, sites), tuple(range(sites)))
    site, other = (algorithm.oracle(x, GRAPH) for x in (ours, theirs))
    w = site.zeros(1)
    moved = np.linalg.norm((site.gradient(w) - other.gradient(w)).mean(axis=0))
    spread = np.sqrt(np.sum((algorithm.local_sigma(site) * site.sensitivity()) ** 2)) / site.n
    assert spread / moved == pytest.approx(algorithm.sigma(site))
    assert algorithm.statement(site).epsilon <= 1.0


def accepts(samples):
    scaled = np.sort(samples.ravel())
    tail = stats.chi2.cdf(np.sum(scaled**2), df=scaled.size)
    return 1e-6 < tail < 1 - 1e-6 and stats.kstest(scaled, "norm").pvalue > 1e-6


@pytest.mark.parametrize("k", [1, 5])
def test_releases_carry_the_noise_for_all_rows_of_a_person(k):
    """Zero rows: a release is its noise, 2 c1 sigma k / m wide in the gradient; two thirds of it would be found out."""
    sizes, graph = (30, 40, 11), sv.graphs.path(3)
    sites = sv.Sites([np.zeros((m, 4)) for m in sizes], [np.ones(m) for m in sizes], unit=Unit(k, 2))
    algorithm = sv.IPADMM(epsilon=1.0, rounds=1, local_steps=1, diameter=7.0, rho=0.05)
    site = algorithm.oracle(sites, graph)
    last = sv.simulate(algorithm, sites, graph, runs=600, seed=3).last
    scale = 2 * 0.05 * site.degree + algorithm.eta(1, site)[0]
    # Two sites of a person: as much noise as for two steps.
    sigma = sv.IPADMM(epsilon=1.0, rounds=2, local_steps=1).sigma(algorithm.oracle(replaced(sites, ROW), graph))
    std = sigma * k * 2 * site.c1 / (np.array(sizes)[:, None] * scale[:, :, 0])
    assert accepts(last / std)
    assert not accepts(last / std * 2 / 3)
    assert not accepts(last / std * 1.1)


def replaced(sites, unit):
    rows = [sites.rows.block(int(i), int(j)) for i, j in zip(sites.rows.offsets, sites.rows.offsets[1:], strict=False)]
    return sv.Sites(rows, [np.ones(len(a)) for a in rows], unit=unit)


def test_sums_carry_the_noise_for_all_rows_of_a_person():
    sites = sv.Sites([np.zeros((20, 4))] * 5, [np.ones(20)] * 5, unit=Unit(3, 2))
    algorithm = sv.MaskedNewton(epsilon=1.0, colluding=2, rounds=3)
    site = algorithm.oracle(sites, sv.graphs.complete(5))
    value = opened(algorithm, site, SeededNoise(4, Shape(5, 4, 3000)), 3000)[0].value
    plain = algorithm.oracle(replaced(sites, ROW), sv.graphs.complete(5))
    unit = 6 * algorithm.multipliers(plain.n)[0] * math.sqrt(2) * math.sqrt(5 / 3)
    assert accepts(value / unit)
    assert not accepts(value / unit * 2 / 3)


def test_a_person_costs_no_more_than_all_rows_of_a_site_or_all_sites():
    """k above m_i is m_i, s above n is n: nothing more can be replaced."""
    rows, labels = [np.ones((4, 1)), np.ones((6, 1))], [np.ones(4), np.ones(6)]
    algorithm, graph = sv.IPADMM(rounds=2, local_steps=2, diameter=1.0), sv.graphs.complete(2)
    all_rows, more = (algorithm.oracle(sv.Sites(rows, labels, unit=u), graph) for u in (Unit(6, 2), Unit(100, 9)))
    assert np.array_equal(all_rows.sensitivity(), more.sensitivity())
    assert algorithm.sigma(all_rows) == algorithm.sigma(more)
    sums = sv.MaskedNewton()
    assert sums.oracle(all_rows.sites, graph).moments_sensitivity(10) == sums.oracle(
        more.sites, graph
    ).moments_sensitivity(10)


def test_a_statement_says_who_is_protected(tmp_path):
    sites = sv.Sites([np.zeros((20, 2))] * 4, [np.ones(20)] * 4, unit=Unit(3, 2))
    for algorithm in (sv.IPADMM(rounds=2, diameter=1.0), sv.MaskedNewton(colluding=1)):
        told = sv.simulate(algorithm, sites, sv.graphs.complete(4), seed=0).privacy
        words = told.prose()
        assert "Protected: every person. The unit of protection is one person at up to 2 sites, with at most 3" in words
        assert "people with more rows, or at more sites" in words
        assert "single row" not in words
        assert plain(told)["people"] == {"rows": 3, "sites": 2}
        again = PrivacyStatement.from_dict(plain(told))
        assert again == told
        for lie in ({"unit": Unit(4, 2).words}, {"people": None}, {"unit": "one village"}, {"unit": ROW.words}):
            with pytest.raises(InputError):
                PrivacyStatement.from_dict(plain(told) | lie)
    of_rows = sv.simulate(sv.MaskedNewton(colluding=1), replaced(sites, ROW), sv.graphs.complete(4), seed=0).privacy
    assert plain(of_rows)["people"] is None
    assert "people who stand behind several rows" in of_rows.prose()
