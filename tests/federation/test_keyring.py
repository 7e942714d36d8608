"""Masked sums where not every two sites share a key: who does, what cancels, and what can be cut off."""

import asyncio
from dataclasses import replace
from itertools import combinations, pairwise

import networkx as nx
import numpy as np
import pytest

import sottovoce as sv
from helpers.federations import masked_agreement, masked_members
from helpers.laws import assert_standard
from helpers.network_worlds import LyingWorld, MemoryWorld, play
from helpers.site_runs import Died, Federation, dying
from sottovoce.algorithms import MaskedNewton
from sottovoce.errors import InputError, PrivacyError
from sottovoce.federation.agreement import keyring, toml_file
from sottovoce.federation.agreement.agreement import LostNeighbour
from sottovoce.federation.site.mail import Pace
from sottovoce.federation.site.masks import Context, Masks, Past, Turn, expect_turn, open_sum
from sottovoce.noise.sampler import encode_fields
from sottovoce.privacy import observers

SCALE, GRID = 2**30, 2.0**-20
NINE = tuple(f"site-{i}" for i in range(9))
GO_ON = LostNeighbour(policy="go-on", wait_seconds=0.9, go_on_after_round=0)


@pytest.fixture
def few(monkeypatch):
    """Above four sites, not every two share a key."""
    monkeypatch.setattr(observers, "MOST_COMPLETE", 4)


@pytest.fixture(scope="module")
def nine():
    """Members of nine sites, and their seeds."""
    _, seeds, sites = masked_members(NINE, range(10, 19))
    return sites, seeds


def agreed(sites, colluding=1, least=None, **changes):
    n = len(sites)
    u, spare = (n, 0) if least is None else (least, 1)
    changes |= {} if least is None else {"lost_neighbour": GO_ON}
    return masked_agreement(sites, algorithm={"colluding": colluding, "least_sites": u, "spare": spare}, **changes)


def key_graph(a):
    graph = nx.Graph()
    graph.add_nodes_from(a.names)
    graph.add_edges_from((name, other) for name in a.names for other in a.key_partners(name))
    return graph


def context(a, members=None, numbers=7, **changes):
    given = {
        "agreement": a.digest(), "turn": Turn(1, 0), "members": tuple(members or a.names), "notices": bytes(32),
        "transcript": bytes(32), "point": b"", "grid": GRID, "scale": SCALE, "numbers": numbers,
    }  # fmt: skip
    return Context(**(given | changes))


def assert_opens(masks, ctx):
    """The sum of all words is that of all values, up to noise of the size that so many shares have."""
    values = {name: np.arange(float(ctx.numbers)) + i for i, name in enumerate(ctx.members)}
    said = {name: masks[name].words(ctx, values[name], Past()) for name in ctx.members}
    noise = open_sum(ctx, said, 2**60) - sum(values.values()) / GRID
    assert_standard(noise / (SCALE * np.sqrt(len(said))))  # a mask that is left over would be 2^33 times that
    return said


# -- who shares a key -------------------------------------------------------------------------------------------------

SIZES = [(n, c, u) for n in range(5, 10) for c in range(1, n) for u in range(c + 1, n + 1) if 2 * u > n + c]


@pytest.mark.usefixtures("few")
@pytest.mark.parametrize("n", range(5, 10))
def test_nobody_can_be_cut_off_by_those_who_may_collude_and_be_left_out(n, nine):
    """Every c and u that go together: by taking away every set of sites."""
    for c, u in [(c, u) for m, c, u in SIZES if m == n]:
        a = agreed(nine[0][:n], c, u if u < n else None)
        graph, gone = key_graph(a), c + n - u
        keys = a.algorithm.keys(n)
        assert {degree for _, degree in graph.degree} == {keys}
        assert all(name in a.key_partners(other) for name in a.names for other in a.key_partners(name))
        assert nx.node_connectivity(graph) == keys
        assert keys > gone or keys == n - 1
        for cut in combinations(a.names, gone):
            assert nx.is_connected(graph.subgraph(set(a.names) - set(cut)))


def test_with_few_sites_every_two_share_a_key(nine):
    a = agreed(nine[0])
    assert all(a.key_partners(name) == tuple(other for other in a.names if other != name) for name in a.names)


@pytest.mark.parametrize(
    ("n", "c", "u", "keys"),
    [(200, 1, 200, 199), (201, 1, 201, 200), (202, 1, 202, 200), (1000, 20, 1000, 200), (1000, 199, 1000, 200),
     (1000, 200, 1000, 202), (1000, 200, 900, 302), (1000, 400, 800, 602), (300, 298, 300, 299)],
)  # fmt: skip
def test_how_many_keys_follow_from_public_numbers(n, c, u, keys):
    assert observers.keys_each(n, c, u) == keys
    assert MaskedNewton(colluding=c, least_sites=u).keys(n) == keys


@pytest.mark.usefixtures("few")
def test_the_order_follows_from_names_and_keys_and_from_nothing_else(nine):
    """Nobody can try out runs, times, settings or the order of entries until the ring suits them."""
    sites = nine[0]
    ring = keyring.ring(sites)
    assert sorted(ring) == sorted(NINE)
    assert keyring.ring(sites[::-1]) == ring
    a = agreed(sites)
    partners = {name: set(a.key_partners(name)) for name in NINE}
    for other in (agreed(sites, created="2025-02-01T12:00:00Z"), agreed(sites, features=7), agreed(sites[::-1])):
        assert other.digest() != a.digest()
        assert {name: set(other.key_partners(name)) for name in NINE} == partners
    for changed in (
        (replace(sites[0], name="elsewhere", mask_key=None), *sites[1:]),
        (replace(sites[0], public_key=masked_members(["x"], [1])[2][0].public_key, mask_key=None), *sites[1:]),
        (replace(sites[0], mask_key=None), *sites[1:]),
    ):
        assert keyring.ring(tuple(replace(site, rows=site.rows + 1) for site in changed)) == keyring.ring(changed)
        order = [name.replace("elsewhere", "site-0") for name in keyring.ring(changed)]
        assert order != list(ring)


def test_all_orders_are_about_as_likely():
    """Who stands next to the first site, over 300 rings of five: each of the others about as often."""
    sites = masked_members([f"s{i}" for i in range(5)], (1,) * 5)[2]
    counts = dict.fromkeys((f"s{i}" for i in range(1, 5)), 0)
    for k in range(300):
        order = keyring.ring((*sites, replace(sites[0], name=f"mark-{k}", mask_key=None)))
        order = [name for name in order if not name.startswith("mark")]
        counts[order[(order.index("s0") + 1) % 5]] += 1
    assert sum((count - 75) ** 2 / 75 for count in counts.values()) < 45  # three degrees of freedom: a chance of 1e-9


@pytest.mark.usefixtures("few")
def test_it_is_derived_and_stands_in_no_file(nine):
    a = agreed(nine[0])
    text = toml_file.dumps(a)
    assert "edges = []" in text
    assert toml_file.loads(text) == a
    assert toml_file.loads(text).digest() == a.digest()
    assert [toml_file.loads(text).key_partners(name) for name in NINE] == [a.key_partners(name) for name in NINE]
    assert replace(a, edges=()).digest() == a.digest()
    assert a.neighbours("site-3") == tuple(name for name in NINE if name != "site-3")  # it hears everyone
    with pytest.raises(InputError, match="a complete graph for masked sums, which everyone reads, got edges=8 of 36"):
        replace(a, edges=tuple(pairwise(NINE)))


def test_an_agreement_of_a_thousand_sites_is_one_that_a_file_holds():
    sites = masked_members([f"site-{i}" for i in range(1000)], (5,) * 1000)[2]
    a = agreed(sites, 20, edges=())
    again = toml_file.loads(toml_file.dumps(a))
    assert again.digest() == a.digest()
    assert len(again.key_partners("site-7")) == 200
    assert "site-7" in again.key_partners(again.key_partners("site-7")[0])


@pytest.mark.usefixtures("few")
def test_too_few_keys_are_refused_by_whoever_reads_the_agreement(nine, monkeypatch):
    text = toml_file.dumps(agreed(nine[0], 2, 8))
    monkeypatch.setattr(MaskedNewton, "keys", lambda *_: 2)
    with pytest.raises(InputError, match="keys of every site with more than 3 others, got keys=2"):
        toml_file.loads(text)
    with pytest.raises(InputError, match="an even number of keys below 9, or all, got keys=3"):
        keyring.nearest(NINE, "site-0", 3)


# -- what cancels -----------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_masks_of_210_sites_cancel_and_again_without_one_that_is_lost():
    names = tuple(f"site-{i}" for i in range(210))
    _, seeds, sites = masked_members(names, (3,) * 210)
    a = agreed(sites, 20, 205, edges=())
    masks = {name: Masks(a, name, seeds[name]) for name in names}
    assert {len(mask._pairs) for mask in masks.values()} == {200}
    first = assert_opens(masks, context(a))
    left = tuple(name for name in names if name != "site-17")
    again = assert_opens(masks, context(a, left, turn=Turn(1, 1)))
    assert all(np.mean(again[name] == first[name]) < 0.5 for name in left)
    del first["site-17"]
    with pytest.raises(InputError, match="the words of all who take part"):
        open_sum(context(a), first, 2**60)


@pytest.mark.usefixtures("few")
def test_a_site_masks_with_those_of_u_that_it_has_keys_with(nine):
    """By the published recipe: signs by the order of the agreement, nobody outside of U, nobody without a key."""
    sites, seeds = nine
    a = agreed(sites, 1, 7)
    masks = {name: Masks(a, name, seeds[name]) for name in NINE}
    gone = a.key_partners("site-4")[0]
    ctx = context(a, tuple(name for name in NINE if name != gone), turn=Turn(1, 1))
    every = [masks[name]._mask(ctx) for name in ctx.members]
    assert not np.any(np.sum(every, axis=0, dtype=np.uint64))
    assert set(masks["site-4"]._pairs) == set(a.key_partners("site-4"))
    alone = context(a, ("site-4", gone), turn=Turn(1, 1))
    far = next(name for name in NINE if name != "site-4" and name not in a.key_partners("site-4"))
    assert np.any(masks["site-4"]._mask(alone))
    assert not np.any(masks["site-4"]._mask(context(a, ("site-4", far), turn=Turn(1, 1))))
    np.testing.assert_array_equal(masks["site-4"]._mask(alone) + masks[gone]._mask(alone), np.zeros(7, np.uint64))


@pytest.mark.usefixtures("few")
def test_whoever_is_left_out_of_a_sum_cannot_be_so_many_that_a_site_speaks_alone(nine):
    """The rules hold for every site: U holds more of its partners than may collude, or nothing is said."""
    a = agreed(nine[0], 1, 7)
    for name in NINE:
        for out in combinations(sorted(set(NINE) - {name}), 2):
            ctx = context(a, tuple(n for n in NINE if n not in out))
            expect_turn(a, name, ctx, Past())
            assert len(set(a.key_partners(name)) & set(ctx.members)) > 1
    with pytest.raises(PrivacyError, match="at least 7 sites in a sum"):
        expect_turn(a, "site-0", context(a, NINE[:6]), Past())


# -- what can be cut off ----------------------------------------------------------------------------------------------


def bare(a, masks, victim, colluding, ctx):
    """A victim's words, less all masks that the colluding sites share with it, as whole numbers."""
    words = masks[victim].words(ctx, np.full(ctx.numbers, 5.0), Past())
    for name in colluding:
        mask = masks[name]._pairs[victim](encode_fields("sottovoce mask", ctx.to_bytes())).take(ctx.numbers)
        words = words - mask if a.index(name) > a.index(victim) else words + mask
    return words.view(np.int64)


@pytest.mark.usefixtures("few")
def test_all_partners_of_a_site_unmask_it_and_all_but_one_do_not(nine):
    """The table says one share of noise there, and all of them with one partner less: both as it really is."""
    sites, seeds = nine
    a = agreed(sites, 2)
    masks = {name: Masks(a, name, seeds[name]) for name in NINE}
    ctx, partners = context(a, numbers=500), a.key_partners("site-4")
    assert len(partners) == 4
    seen = bare(a, masks, "site-4", partners, ctx) - round(5.0 / GRID)
    assert 0.8 < np.std(seen / SCALE) < 1.2  # one share of noise, and no mask
    assert a.algorithm.shares_left(9, 4) == 1
    for missing in partners:
        still = bare(a, masks, "site-4", [name for name in partners if name != missing], ctx)
        assert np.std(still / 2**63) > 0.5  # a uniform word has 0.577
    assert a.algorithm.shares_left(9, 3) == 6


@pytest.mark.usefixtures("few")
@pytest.mark.parametrize(("c", "u"), [(1, 9), (2, 9), (1, 7), (3, 8), (7, 9)])
def test_the_table_counts_the_smallest_part_that_can_be_cut_off(c, u, nine):
    """By taking away every set of so many sites of the real graph of keys."""
    a = agreed(nine[0], c, u if u < 9 else None)
    graph, oracle = key_graph(a), a.public_oracle("site-0")
    table = a.algorithm.statement(oracle).observers
    assert [line.colluding for line in table] == list(range(9))
    for line in table:
        gone = min(line.colluding + 9 - u, 8)
        parts = [
            len(part)
            for cut in combinations(NINE, gone)
            for part in nx.connected_components(graph.subgraph(set(NINE) - set(cut)))
        ]
        assert line.noise == pytest.approx(np.sqrt(min(parts) / (u - c)))
        assert a.algorithm.noise_left(oracle.n, line.colluding) == line.noise
        assert a.algorithm.shares_left(9, line.colluding) == min(parts)
    assert table[c].noise == 1


def test_a_thousand_sites_are_told_from_where_on_one_may_be_cut_off():
    algorithm = MaskedNewton(colluding=20, least_sites=950)
    assert [algorithm.shares_left(1000, k) for k in (0, 20, 149, 150, 999)] == [950, 930, 801, 1, 1]
    sites = sv.Sites([np.zeros((1, 2))] * 210, [np.ones(1)] * 210, data_norm=1.0)
    made = MaskedNewton(rounds=4, colluding=20, epsilon=1.0)
    said = made.statement(made.oracle(sites, sv.graphs.complete(210))).notes[0]
    assert "Each site has keys with 200 others, chosen by a digest of all sites' keys: 200 that collude may cut" in said
    few = replace(made, colluding=2)
    nine = sv.Sites([np.zeros((1, 2))] * 9, [np.ones(1)] * 9, data_norm=1.0)
    assert "has keys with" not in few.statement(few.oracle(nine, sv.graphs.complete(9))).notes[0]


# -- whole runs -------------------------------------------------------------------------------------------------------


def federation(**terms):
    sizes = (12,) * 9
    algorithm = MaskedNewton(rounds=3, epsilon=1.5, delta=1e-5, colluding=1, **terms)
    lost = {"lost_neighbour": GO_ON} if algorithm.spare else {}
    return Federation(sv.graphs.complete(9), sizes, algorithm, names=NINE, **lost)


@pytest.mark.usefixtures("few")
def test_nine_sites_with_four_keys_each_end_with_one_model():
    with federation(least_sites=9) as nine_sites:
        assert {len(nine_sites.agreement.key_partners(name)) for name in NINE} == {4}
        ends = play(nine_sites.finish(MemoryWorld()))
        assert len({end.model.tobytes() for end in ends.values()}) == 1
        assert 0.01 < np.abs(ends["site-0"].model).max() < 100


@pytest.mark.usefixtures("few")
def test_they_go_on_without_one_that_is_lost():
    async def without(nine_sites, world, lost):
        async def one(name):
            probe = dying("in outbox", 2) if name == lost else None
            return await nine_sites.site(name, world, pace=Pace(slice=0.15, server=20.0), probe=probe)

        return await asyncio.gather(*map(one, NINE), return_exceptions=True)

    with federation(least_sites=8, spare=1) as nine_sites:
        ends = dict(zip(NINE, play(without(nine_sites, LyingWorld(), "site-2")), strict=True))
        assert isinstance(ends.pop("site-2"), Died)
        assert all(end.absent == {"site-2": 2} for end in ends.values()), ends
        assert len({end.model.tobytes() for end in ends.values()}) == 1
