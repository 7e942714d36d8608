"""Against whom a statement holds: tables, files from strangers, and graphs of keys."""

import json
import math
from dataclasses import replace
from itertools import combinations

import mpmath as mp
import networkx as nx
import numpy as np
import pytest

import sottovoce as sv
from helpers import problems
from sottovoce.algorithms import registry
from sottovoce.privacy import (
    Gaussian,
    Laplace,
    PrivacyStatement,
    Repeated,
    SampledGaussian,
    Sampling,
    epsilon,
    observers,
)
from sottovoce.privacy.accounting.discrete import discretisation_delta, shared_delta
from sottovoce.privacy.observers import Sight, on_a_grid, seen, smallest_part, table_of, weakened
from sottovoce.privacy.statement import milestones
from sottovoce.settings import plain


def statement(**options):
    algorithm = sv.MaskedNewton(**{"epsilon": 1.0, "colluding": 2, "rounds": 11, **options})
    sites = problems.sites(np.random.default_rng(0), (9,) * 12)
    return algorithm.statement(algorithm.oracle(sites, sv.graphs.complete(12)))


def test_weakened_events():
    event = Repeated(Gaussian(2.0), 3)
    assert weakened(event, 0.5) == Repeated(Gaussian(1.0), 3)
    sampled = SampledGaussian(1.0, Sampling("poisson", 10, 2))
    assert weakened(sampled, 1.0) == sampled
    with pytest.raises(sv.UnsupportedError, match="Gaussian releases"):
        weakened(sampled, 0.5)
    with pytest.raises(sv.UnsupportedError, match="got Laplace"):
        weakened(Laplace(1.0), 0.5)


def test_local_noise_has_one_line_and_a_curator_none():
    sites, graph = problems.sites(np.random.default_rng(0), (9,) * 3), sv.graphs.complete(3)
    for name, line in registry.REGISTRY.items():
        algorithm = registry.make(name, registry.settings_of(name, "fair", {"rounds": 3, "rho": 1.0}, {}))
        found = algorithm.statement(algorithm.oracle(sites, graph))
        if line.kind.way.masked:
            assert [x.colluding for x in found.observers] == [0, 1, 2]
        elif name == "trusted-curator" or not line.private:
            assert found.observers == ()
        else:
            assert found.observers == (Sight(2, 1.0, found.epsilon),)
            assert "against whoever carries the messages and all 2 other sites together" in found.prose()


def test_the_words_and_the_data_hold_the_table():
    made = statement()
    data = plain(made)
    assert [line["colluding"] for line in data["observers"]] == list(range(12))
    assert f", {1:g} with 2," in made.prose()
    assert "computational" in made.prose()
    assert PrivacyStatement.from_dict(json.loads(made.to_json())) == made


def test_milestones_hold_the_ends_and_the_agreed_line():
    made = statement(colluding=4)
    few = milestones(made.observers, 3)
    assert {0, 4, 11} <= {line.colluding for line in few}
    assert len(few) <= 4


def test_milestones_hold_where_sites_can_be_cut_off(monkeypatch):
    """Twelve sites with six keys each: against six colluding ones a single share is left."""
    monkeypatch.setattr(observers, "MOST_COMPLETE", 6)
    few = milestones(statement(colluding=1).observers, 2)
    assert [line.colluding for line in few] == [0, 1, 5, 6, 11]
    assert few[3].epsilon > 2 * few[2].epsilon
    monkeypatch.undo()
    assert [line.colluding for line in milestones(statement(colluding=1).observers, 2)] == [0, 1, 11]


@pytest.mark.parametrize(
    ("n", "least"), [(1001, None), (30_000, None), (30_000, 29_000), (1_000_000, None), (10**9, None)]
)
def test_the_table_of_many_sites_holds_the_lines_that_matter(n, least):
    """Some of the lines of the whole table, among them those on both sides of where the noise falls."""
    event, masked = Repeated(Gaussian(30.0), 11), sv.MaskedNewton(colluding=n // 3, least_sites=least)
    table = table_of(n, event, 1e-5, lambda k: masked.noise_left(n, k))
    numbers = [line.colluding for line in table]
    assert len(table) <= 204
    assert numbers == sorted(set(numbers))
    keys, left_out = masked.keys(n), n - (least or n)
    assert {0, n // 3, n // 3 + 1, n - 1} <= set(numbers)
    assert {keys - left_out - 1, keys - left_out} <= set(numbers)  # from there on a site can be cut off
    for line in table[:: len(table) // 5]:
        assert line == Sight(line.colluding, masked.noise_left(n, line.colluding), line.epsilon)
        assert line.epsilon == seen(event, line.noise, 1e-5)
    observers.check_table(table)


def test_the_table_of_few_sites_is_whole():
    masked = sv.MaskedNewton(colluding=400)
    table = table_of(1000, Gaussian(9.0), 1e-5, lambda k: masked.noise_left(1000, k))
    assert [line.colluding for line in table] == list(range(1000))


def test_several_runs_cost_more_on_every_line():
    made = statement()
    more = made.of_runs(4)
    for one, four in zip(made.observers, more.observers, strict=True):
        assert four.epsilon > one.epsilon
        assert four.epsilon == pytest.approx(epsilon(weakened(more.event, one.noise), 1e-5))


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"epsilon": 0.5}, "an epsilon of at least .* against 7 colluding sites"),
        ({"colluding": -1}, "colluding >= 0"),
        ({"colluding": True}, "a whole number for colluding"),
        ({"noise": 0}, "noise > 0"),
        ({"noise": "1"}, "a number for noise"),
        ({"epsilon": "1"}, "a number for epsilon"),
        ({"more": 1}, "an observer, got 'more'"),
    ],
)
def test_a_stranger_s_table_is_priced_anew(change, told):
    data = json.loads(statement().to_json())
    data["observers"][7].update(change)
    with pytest.raises(sv.InputError, match=told):
        PrivacyStatement.from_dict(data)


@pytest.mark.parametrize(
    ("lines", "told"),
    [
        ([(0, 1.0, 1.0), (3, 1e6, 1e-5)], "no more noise than those who collude less"),
        ([(99, 0.1, 1e4)], "the event's own noise"),
        ([(99, 0.1, 1e4), (0, 1.0, 1.0)], "in the order of colluding sites"),
        ([(0, 1.0, 1.0), (0, 1.0, 1.0)], "each number once"),
        ([(0, 0.5, 50.0), (3, 0.1, None)], "the event's own noise"),
    ],
)
def test_a_stranger_s_table_cannot_promise_what_its_event_does_not(lines, told):
    data = json.loads(statement().to_json())
    data["observers"] = [dict(zip(("colluding", "noise", "epsilon"), line, strict=True)) for line in lines]
    with pytest.raises(sv.InputError, match=told):
        PrivacyStatement.from_dict(data)


def test_a_statement_from_before_observers_is_read():
    data = json.loads(statement().to_json())
    del data["observers"]
    assert PrivacyStatement.from_dict(data).observers == ()
    data["observers"] = "all"
    with pytest.raises(sv.InputError, match="a list for observers"):
        PrivacyStatement.from_dict(data)


def brute(graph, gone):
    """By taking away every set of sites."""
    sizes = []
    for cut in combinations(graph, gone):
        left = graph.subgraph(set(graph) - set(cut))
        sizes += [len(part) for part in nx.connected_components(left)]
    return min(sizes)


@pytest.mark.parametrize("n", range(3, 10))
def test_the_smallest_part_that_can_be_cut_off(n):
    """Of every ring, with every number of keys, for every number that are gone."""
    for keys in {*range(2, n, 2), n - 1}:
        ring = nx.circulant_graph(n, range(1, (keys + 1) // 2 + 1))
        for gone in range(n):
            assert smallest_part(n, keys, gone) == brute(ring, gone)


def test_an_honest_site_s_own_share_is_always_left():
    assert [smallest_part(5, 4, k) for k in (0, 2, 4, 5, 9)] == [5, 3, 1, 1, 1]
    for keys, gone, told in ((5, 0, "keys < 5"), (-1, 0, "0 <= keys"), (4, -1, "gone >= 0")):
        with pytest.raises(sv.InputError, match=told):
            smallest_part(5, keys, gone)


def pmf(scale, reach):
    y = np.arange(-reach, reach + 1)
    p = np.exp(-(y**2) / (2 * scale**2))
    return p / p.sum()


@pytest.mark.parametrize("shares", [2, 3, 5])
def test_a_sum_of_discrete_gaussians_is_nearly_one(shares):
    """The factor that `shared_delta` allows for, where it is large enough to be seen: at a scale of 1."""
    total = pmf(1.0, 40)
    for _ in range(shares - 1):
        total = np.convolve(total, pmf(1.0, 40))
    reach = len(total) // 2
    other, near = pmf(math.sqrt(shares), reach), slice(reach - 6, reach + 7)
    apart = np.abs(np.log(total[near] / other[near])).max()
    assert 1e-8 < apart <= 10 * (shares - 1) * math.exp(-(math.pi**2))


def hockey_stick(p, shift, epsilon):
    """The delta at which whole-numbered noise of that law hides a step of so many grid units, by adding up."""
    away = [mp.mpf(0)] * shift
    first, second = [*p, *away], [*away, *p]
    return mp.fsum(max(x - mp.e**epsilon * y, 0) for x, y in zip(first, second, strict=True))


def exact_delta(mu, epsilon):
    """Of one Gaussian release, in 50 digits."""
    mu, epsilon = mp.mpf(mu), mp.mpf(epsilon)
    return mp.ncdf(-epsilon / mu + mu / 2) - mp.e**epsilon * mp.ncdf(-epsilon / mu - mu / 2)


@pytest.mark.parametrize("scale", [1, 2, 3])
@pytest.mark.parametrize("shares", [1, 2, 4])
@pytest.mark.parametrize("epsilon", [0.0, 0.5, 2.0, 5.0])
def test_shares_on_a_grid_hide_what_the_bound_says(scale, shares, epsilon):
    """The sum of the shares itself, convolved in 50 digits, against a Gaussian and what is added to its delta."""
    with mp.workdps(50):
        reach = 16 * scale
        weights = [mp.e ** (-mp.mpf(y * y) / (2 * scale**2)) for y in range(-reach, reach + 1)]
        share = [w / mp.fsum(weights) for w in weights]
        law = share
        for _ in range(shares - 1):
            law = [
                mp.fsum(law[i - j] * share[j] for j in range(len(share)) if 0 <= i - j < len(law))
                for i in range(len(law) + len(share) - 1)
            ]
        for step in (1, 3):
            ideal = exact_delta(step / (math.sqrt(shares) * scale), epsilon)
            assert hockey_stick(law, step, epsilon) <= ideal + shared_delta(1, float(scale), shares, epsilon)


def test_what_shares_on_a_grid_cost():
    assert shared_delta(10_000, 2.0**30, 80, 1.0) < 1e-16
    one = shared_delta(100, 50.0, 1, 1.0)
    assert one == pytest.approx(discretisation_delta(100, 50.0, 1.0), rel=1e-9)
    assert one > 0
    large = shared_delta(10_000, 2.0**30, 1, 30.0)  # where the total variation alone would say 1e-4
    assert large == pytest.approx(discretisation_delta(10_000, 2.0**30, 30.0), rel=1e-9)
    assert large < 1e-9
    assert shared_delta(100, 50.0, 4, 1.0) == pytest.approx(one / 4)
    assert shared_delta(10, 1.0, 3, 1.0) > 0.01
    with pytest.raises(sv.InputError, match="shares >= 1"):
        shared_delta(1, 2.0, 0, 1.0)


# -- every line pays for the grid itself ------------------------------------------------------------------------------

DELTA, SHARES, AGREED = 1e-5, 8, 2


def sight(colluding, event):
    noise = math.sqrt(max(1, SHARES - colluding) / (SHARES - AGREED))
    return Sight(colluding, noise, seen(event, noise, DELTA))


def grid(colluding, scale):
    return lambda at: shared_delta(4000, scale, max(1, SHARES - colluding), at)


@pytest.mark.parametrize("colluding", range(8))
@pytest.mark.parametrize("scale", [2.0**10, 2.0**12, 2.0**30])
@pytest.mark.parametrize("sigma", [0.4, 1.0, 4.0])
def test_a_line_holds_with_what_its_own_grid_leaves_of_delta(colluding, scale, sigma):
    event, added = Gaussian(sigma), grid(colluding, scale)
    line = sight(colluding, event)
    told = on_a_grid(line, event, DELTA, added)
    mu = 1 / (sigma * line.noise)
    with mp.workdps(50):
        if math.isinf(told.epsilon):  # then no epsilon would do: the grid takes more than all of delta
            for at in np.linspace(line.epsilon, 4 * line.epsilon + 60, 200):
                assert exact_delta(mu, at) + added(float(at)) > DELTA
            return
        assert exact_delta(mu, told.epsilon) + added(told.epsilon) <= DELTA
        less = told.epsilon * (1 - 1e-7)
        assert exact_delta(mu, less) + added(less) > DELTA
    assert told.epsilon >= line.epsilon
    assert replace(told, epsilon=0.0) == replace(line, epsilon=0.0)


def test_the_same_grid_takes_nothing_from_the_agreed_line_and_all_from_the_last():
    """What was reserved for the agreed number of colluders is not enough for more of them."""
    event, scale = Gaussian(0.55), 2.0**12
    agreed, last = sight(AGREED, event), sight(7, event)
    reserved = grid(AGREED, scale)(agreed.epsilon)
    assert on_a_grid(agreed, event, DELTA + reserved, grid(AGREED, scale)).epsilon == agreed.epsilon
    assert math.isinf(on_a_grid(last, event, DELTA + reserved, grid(7, scale)).epsilon)


def test_a_line_without_a_promise_says_so_and_stays_without():
    told = statement()
    told = replace(told, observers=(Sight(2, 1.0, told.epsilon), Sight(9, 0.5, math.inf)))
    assert ", infinite with 9." in told.prose()
    assert PrivacyStatement.from_dict(plain(told)).observers[-1].epsilon == math.inf
    assert told.of_runs(3).observers[-1].epsilon == math.inf
