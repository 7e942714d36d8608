"""Masked words: sums come out bit by bit, single messages say nothing, and no rule can be talked around."""

import copy
import pickle
from dataclasses import replace
from functools import cache
from hashlib import sha256
from math import sqrt

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

import sottovoce as sv
from helpers.federations import agreement, masked_agreement, masked_members
from helpers.laws import NEVER
from sottovoce.errors import InputError, PrivacyError
from sottovoce.federation.agreement.agreement import LostNeighbour
from sottovoce.federation.agreement.exchange import Seed, hkdf
from sottovoce.federation.site.letters import Heading, Sighting, SumWords, read_sum, sum_size
from sottovoce.federation.site.masks import (
    Context,
    Masks,
    Past,
    Turn,
    bits,
    expect_turn,
    from_steps,
    largest_honest,
    open_sum,
    pair_key,
)
from sottovoce.federation.site.stops import SpoiledError
from sottovoce.federation.transport.wire import BadMessageError, Refusal
from sottovoce.noise.sampler import discrete_gaussian, keyed
from sottovoce.noise.secure import Grid, grid_for, on_grid

SCALE, GRID = 2**30, 2.0**-20
FRESH = Past()


@cache
def federation(n, colluding=1, spare=0, least=None):
    """An agreement of n sites, and the masks of each by name."""
    names = tuple(f"site-{i}" for i in range(n))
    _, seeds, sites = masked_members(names, (10 + i for i in range(n)))
    lost = LostNeighbour(policy="go-on", go_on_after_round=0) if spare else LostNeighbour()
    terms = {"colluding": colluding, "spare": spare, "least_sites": least or n}
    a = masked_agreement(sites, algorithm=terms, lost_neighbour=lost)
    return a, {name: Masks(a, name, seeds[name]) for name in names}


def context(a, members=None, numbers=7, **changes):
    given = {
        "agreement": a.digest(), "turn": Turn(1, 0), "members": tuple(members or a.names), "notices": bytes(32),
        "transcript": bytes(32), "point": b"", "grid": GRID, "scale": SCALE, "numbers": numbers,
    }  # fmt: skip
    return Context(**(given | changes))


def noise_of(masks, ctx, value, scale=SCALE):
    """The site's noise in that context, by the published recipe."""
    rounded = on_grid(value, ctx.grid)
    code = sha256(b"".join((field(len(value)), field(rounded.astype("<i8").tobytes())))).digest()
    label = b"".join(map(field, ("sottovoce share", 1, ctx.to_bytes(), ctx.grid, scale, code)))
    return rounded + discrete_gaussian(masks._noise(label), scale, len(value))


def field(value):
    """One field of a label, written out by hand."""
    kind = {bytes: b"b", str: b"s", int: b"i", float: b"f"}[type(value)]
    raw = {
        b"b": lambda v: v,
        b"s": str.encode,
        b"i": lambda v: str(v).encode(),
        b"f": lambda v: np.float64(v).tobytes(),
    }[kind](value)
    return kind + len(raw).to_bytes(8, "little") + raw


def uniform_bytes(words):
    """The chance of bytes that are as uneven as these, if words are uniform: chi-squared over all 8 x 256 of them."""
    columns = np.ascontiguousarray(words).view(np.uint8).reshape(-1, 8)
    counts = np.array([np.bincount(column, minlength=256) for column in columns.T])
    expected = len(columns) / 256
    return stats.chi2.sf(((counts - expected) ** 2 / expected).sum(), 8 * 255)


# -- sums -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [2, 3, 5, 12])
def test_sums_come_out_bit_by_bit(n):
    """Values of both signs and all sizes, in every context anew; noise and rounding by the published recipe."""
    a, sites = federation(n)
    r = np.random.default_rng(n)
    for transcript in (bytes(32), b"x" * 32):
        ctx = context(a, transcript=transcript, point=bits(r.normal(size=4)))
        values = {name: r.normal(size=7) * 10.0 ** r.integers(-8, 3, size=7) for name in a.names}
        said = {name: sites[name].words(ctx, values[name], FRESH) for name in a.names}
        expected = sum(noise_of(sites[name], ctx, values[name]) for name in a.names)
        np.testing.assert_array_equal(open_sum(ctx, said, 2**60), expected)
        np.testing.assert_array_equal(from_steps(expected, ctx.grid), expected * GRID)


@pytest.mark.parametrize("dropped", [(), (0,), (4,), (2, 5)])
def test_sums_over_those_who_are_left(dropped):
    a, sites = federation(7, spare=2, least=5)
    left = [name for i, name in enumerate(a.names) if i not in dropped]
    ctx = context(a, left, turn=Turn(2, len(dropped)))
    said = {name: sites[name].words(ctx, np.arange(7.0), FRESH) for name in left}
    expected = sum(noise_of(sites[name], ctx, np.arange(7.0)) for name in left)
    np.testing.assert_array_equal(open_sum(ctx, said, 2**60), expected)


def test_a_sum_wraps_and_comes_back():
    """Messages are uniform words, so their sum wraps nearly always; the largest values are clamped and still right."""
    a, sites = federation(3)
    ctx = context(a, numbers=4)
    values = np.array([np.inf, -np.inf, 1e300, np.nan])
    said = {name: sites[name].words(ctx, values, FRESH) for name in a.names}
    opened = open_sum(ctx, said, 2**60)
    assert np.all(np.abs(opened - 3 * np.array([2**52, -(2**52), 2**52, 0])) < 60 * SCALE)


def test_the_same_words_come_again_and_another_value_has_other_noise():
    """A value that differs in one step gets other noise: the difference of two messages is not that of two values."""
    a, sites = federation(3)
    ctx, value = context(a), np.arange(7.0)
    one = sites["site-0"].words(ctx, value, FRESH)
    again = sites["site-0"].words(ctx, value.copy(), Past(ctx.turn, ctx.digest()))
    np.testing.assert_array_equal(one, again)
    value[3] += GRID
    other = sites["site-0"].words(ctx, value, FRESH)
    apart = (other - one).view(np.int64)
    assert np.abs(apart).max() > SCALE / 100
    assert len(set(apart.tolist())) == 7


# -- what single messages say -----------------------------------------------------------------------------------------


def test_messages_of_one_site_alone_are_uniform_words():
    a, sites = federation(3)
    ctx = context(a, numbers=40_000)
    for value in (np.zeros(40_000), np.full(40_000, 123.0)):
        said = sites["site-1"].words(ctx, value, FRESH)
        assert uniform_bytes(said) > NEVER
        bare = said - sites["site-1"]._mask(ctx)
        assert uniform_bytes(bare) < NEVER  # the test would see it


def test_all_but_one_of_the_messages_together_are_uniform_words():
    """Whoever collects n - 1 messages has the missing site's masks in the way, in all of them together too."""
    a, sites = federation(4)
    ctx = context(a, numbers=40_000)
    said = {name: sites[name].words(ctx, np.zeros(40_000), FRESH) for name in a.names}
    for missing in a.names:
        partial = np.sum([words for name, words in said.items() if name != missing], axis=0, dtype=np.uint64)
        assert uniform_bytes(partial) > NEVER
    assert uniform_bytes(np.sum(list(said.values()), axis=0, dtype=np.uint64)) < NEVER


CHANGES = {
    "turn": [Turn(2, 0), Turn(1, 1)],
    "members": [("site-0", "site-1", "site-2", "site-3")],
    "notices": [b"n" * 32],
    "transcript": [b"t" * 32],
    "point": [bits(np.zeros(3)), bits(-np.zeros(3)), bits(np.full(3, np.nextafter(0, 1)))],
    "grid": [2 * GRID],
    "scale": [SCALE + 1],
    "agreement": [b"a" * 32],
    "numbers": [40_001],
}


@pytest.mark.parametrize(("name", "value"), [(name, value) for name, values in CHANGES.items() for value in values])
def test_every_part_of_the_context_changes_all_masks_and_nothing_cancels(name, value):
    a, sites = federation(5, spare=1, least=4)
    ctx = context(a, numbers=40_000)
    other = replace(ctx, **{name: value})
    one, two = (site._mask(c)[:40_000] for site, c in ((sites["site-0"], ctx), (sites["site-0"], other)))
    assert np.mean(one == two) < 1e-3
    assert uniform_bytes(one - two) > NEVER
    # One site was told something else: the sum of all is as good as random.
    said = [sites[name]._mask(ctx) for name in a.names[1:]]
    assert uniform_bytes(np.sum([two, *said], axis=0, dtype=np.uint64)) > NEVER
    assert not np.any(np.sum([one, *said], axis=0, dtype=np.uint64))


@given(st.lists(st.text("abc-", max_size=4), max_size=4), st.lists(st.text("abc-", max_size=4), max_size=4),
       st.binary(max_size=9), st.binary(max_size=9), st.integers(0, 3), st.integers(0, 3))  # fmt: skip
def test_contexts_are_encoded_injectively(names, others, point, bits_, attempt, more):
    a, _ = federation(2)
    base = context(a)
    one = replace(base, members=tuple(names), point=point, turn=Turn(1, attempt))
    two = replace(base, members=tuple(others), point=bits_, turn=Turn(1, more))
    assert (one.to_bytes() == two.to_bytes()) == (one == two)
    assert (one.digest() == two.digest()) == (one == two)


def test_a_context_takes_digests_only():
    a, _ = federation(2)
    for name in ("agreement", "notices", "transcript"):
        with pytest.raises(InputError, match=f"a digest of 32 bytes for {name}, got bytes=31"):
            context(a, **{name: bytes(31)})
    with pytest.raises(InputError, match="at least one number"):
        context(a, numbers=0)


# -- keys -------------------------------------------------------------------------------------------------------------


def test_pair_keys_are_bound_to_the_agreement_and_to_all_keys_of_both_ends():
    keys, _, sites = masked_members()
    berlin, paris, rome = sites
    made = {pair_key(b"secret", b"d" * 32, berlin, paris)}
    other_mask = Seed.generate().mask_key("paris", keys["paris"])
    renamed = replace(paris, name="oslo", mask_key=Seed.generate().mask_key("oslo", keys["paris"]))
    for changed in (
        (b"other", b"d" * 32, berlin, paris),
        (b"secret", b"e" * 32, berlin, paris),
        (b"secret", b"d" * 32, paris, berlin),
        (b"secret", b"d" * 32, berlin, replace(paris, mask_key=other_mask)),
        (b"secret", b"d" * 32, berlin, renamed),
        (b"secret", b"d" * 32, berlin, rome),
    ):
        made.add(pair_key(*changed))
    assert len(made) == 7
    ends = (
        berlin.name,
        berlin.mask_key.raw,
        berlin.public_key.raw,
        paris.name,
        paris.mask_key.raw,
        paris.public_key.raw,
    )
    assert pair_key(b"secret", b"d" * 32, berlin, paris) == hkdf(b"secret", "sottovoce pair v1", b"d" * 32, *ends)


def test_even_an_accepted_copy_of_a_key_would_cancel_nothing():
    """Rome shows Paris's key as its own, and the check of the agreement is taken away. Berlin's masks with both have
    the same X25519 secret, and are different all the same.
    """
    keys, seeds, (berlin, paris, rome) = masked_members()
    copied = seeds["paris"].mask_key("rome", keys["rome"])
    secret = seeds["berlin"].secret_with(paris.mask_key)
    assert secret == seeds["berlin"].secret_with(copied)  # that is the danger
    fake = replace(rome, mask_key=copied)
    assert pair_key(secret, bytes(32), berlin, paris) != pair_key(secret, bytes(32), berlin, fake)


def test_both_ends_hold_the_same_key_and_no_two_pairs_do():
    a, sites = federation(5)
    first = {(x, y): tuple(sites[x]._pairs[y](b"label").take(4).tolist()) for x in a.names for y in a.names if x != y}
    assert all(words == first[y, x] for (x, y), words in first.items())
    assert len(set(first.values())) == 10


def test_another_seed_and_another_kind_of_agreement_are_refused():
    a, sites = federation(3)
    with pytest.raises(InputError, match="the seed of site site-0 for this agreement, got another"):
        Masks(a, "site-0", Seed.generate())
    with pytest.raises(InputError, match="an agreement on masked sums, got IPADMM"):
        Masks(agreement(), "berlin", Seed.generate())
    assert repr(sites["site-0"]) == "Masks(site='site-0')"
    for take in (pickle.dumps, copy.copy, copy.deepcopy):
        with pytest.raises(PrivacyError, match="masks that stay in their process"):
            take(sites["site-0"])


# -- the rules, one by one --------------------------------------------------------------------------------------------


@pytest.fixture
def seven():
    return federation(7, colluding=1, spare=2, least=5)[0]


def refused(a, ctx, past=FRESH, site="site-0"):
    with pytest.raises(PrivacyError) as raised:
        expect_turn(a, site, ctx, past)
    assert str(raised.value).endswith("Nothing was sent: ask the others what they received.")
    return str(raised.value)


def test_a_site_that_is_not_among_those_summed_says_nothing(seven):
    assert "site site-0 among those whose sum is made" in refused(seven, context(seven, seven.names[1:]))


@pytest.mark.parametrize("members", [("site-0", "stranger"), ("site-0", "site-0"), ("site-1", "site-0")])
def test_only_sites_of_the_agreement_are_summed_each_once_and_in_order(seven, members):
    ctx = context(seven, (*members, *seven.names[2:]))
    assert "sites of this agreement, each once and in its order" in refused(seven, ctx)


def test_too_few_sites_are_refused(seven):
    expect_turn(seven, "site-0", context(seven, seven.names[:5]), FRESH)
    assert "at least 5 sites in a sum, got sites=4" in refused(seven, context(seven, seven.names[:4]))


def test_attempts_that_nobody_paid_for_are_refused(seven):
    expect_turn(seven, "site-0", context(seven, turn=Turn(1, 2)), FRESH)
    assert "at most 2 spare attempts in all, got attempt=3" in refused(seven, context(seven, turn=Turn(1, 3)))
    assert "at most 2 spare attempts in all, got attempt=-1" in refused(seven, context(seven, turn=Turn(1, -1)))


@pytest.mark.parametrize("release", [0, 5])
def test_releases_that_nobody_paid_for_are_refused(seven, release):
    assert f"1 <= release <= 4, got release={release}" in refused(seven, context(seven, turn=Turn(release, 0)))


@pytest.mark.parametrize("turn", [Turn(1, 1), Turn(2, 0), Turn(1, 2), Turn(3, 0)])
def test_turns_only_ever_rise(seven, turn):
    past = Past(Turn(2, 1), b"x" * 32)
    assert "a turn after (2, 1)" in refused(seven, context(seven, turn=turn), past)
    for later in (Turn(2, 2), Turn(3, 1)):
        expect_turn(seven, "site-0", context(seven, turn=later), past)


def test_there_is_one_context_for_each_turn(seven):
    ctx = context(seven, turn=Turn(2, 1))
    past = Past(ctx.turn, ctx.digest())
    expect_turn(seven, "site-0", ctx, past)  # the same words again
    for name, values in CHANGES.items():
        for value in values:
            if name not in ("turn", "agreement"):
                members = {"members": seven.names[:6]} if name == "members" else {name: value}
                other = replace(ctx, **members)
                assert "the one context in which (2, 1) was sent" in refused(seven, other, past)


def test_another_agreement_is_refused(seven):
    assert "the agreement that was signed" in refused(seven, context(seven, agreement=bytes(32)))


@settings(max_examples=30)
@given(st.lists(st.tuples(st.integers(0, 6), st.integers(-1, 4)), max_size=60))
def test_whatever_a_site_is_asked_it_speaks_for_as_many_turns_as_were_paid_for(asked):
    a, _ = federation(7, colluding=1, spare=2, least=5)
    past, spoken = FRESH, []
    for q, attempt in asked:
        ctx = context(a, turn=Turn(q, attempt))
        try:
            expect_turn(a, "site-0", ctx, past)
        except PrivacyError:
            continue
        past = Past(ctx.turn, ctx.digest())
        spoken.append(ctx.turn)
    assert len(set(spoken)) <= a.algorithm.rounds + a.algorithm.spare
    repeats = len(set(spoken)) - len({turn.release for turn in spoken})
    assert repeats <= a.algorithm.spare


def test_speaking_keeps_the_rules():
    """There is no way to words but through them."""
    a, sites = federation(7, colluding=1, spare=2, least=5)
    with pytest.raises(PrivacyError, match="at least 5 sites in a sum"):
        sites["site-0"].words(context(a, a.names[:4]), np.zeros(7), FRESH)
    with pytest.raises(InputError, match=r"noise of at least 2\^30 grid steps, got scale=1073741823"):
        sites["site-0"].words(context(a, scale=SCALE - 1), np.zeros(7), FRESH)
    with pytest.raises(InputError, match=r"a value of shape \(7,\)"):
        sites["site-0"].words(context(a), np.zeros(8), FRESH)


# -- the noise in a sum -----------------------------------------------------------------------------------------------


def chance_of(steps, shares, scale=SCALE):
    """Of numbers with so large a spread or larger, or smaller, if they hold so many shares of noise."""
    squares = np.sum((steps / (scale * sqrt(shares))) ** 2)
    below = stats.chi2.cdf(squares, len(steps))
    return 2 * min(below, 1 - below)


@pytest.mark.parametrize("n", [2, 5])
def test_a_sum_holds_the_noise_of_all_shares(n):
    numbers = 40_000
    a, sites = federation(n)
    ctx = context(a, numbers=numbers)

    def opened(scale):
        said = {name: sites[name].words(replace(ctx, scale=scale), np.full(numbers, 3.0), FRESH) for name in a.names}
        return open_sum(ctx, said, 2**60) - round(3.0 / GRID) * n

    steps = opened(SCALE)
    assert chance_of(steps, n) > NEVER
    assert stats.kstest(steps / (SCALE * sqrt(n)), "norm").pvalue > NEVER
    # The test would see noise of two thirds, and one share that is missing.
    assert chance_of(opened(3 * SCALE // 2), n, 9 * SCALE // 4) < NEVER
    missing = steps - (noise_of(sites["site-0"], ctx, np.full(numbers, 3.0)) - round(3.0 / GRID))
    assert chance_of(missing, n) < NEVER
    assert chance_of(missing, n - 1) > NEVER


def test_noise_is_another_in_every_context_and_at_every_site():
    a, sites = federation(3)
    draws = []
    for transcript in (bytes(32), b"x" * 32):
        ctx = context(a, numbers=2000, transcript=transcript)
        draws += [noise_of(sites[name], ctx, np.zeros(2000)) for name in a.names]
    correlations = np.corrcoef(np.array(draws, dtype=float)) - np.eye(6)
    assert np.abs(correlations).max() < 6 / sqrt(2000)


# -- grids ------------------------------------------------------------------------------------------------------------


@given(st.floats(0.01, 1e4), st.floats(1e-6, 1e6), st.integers(1, 200), st.integers(1, 2**17), st.integers(1, 50))
def test_the_grid_pays_for_rounding(sigma, sensitivity, shares, numbers, sites):
    g, s = grid_for(sigma, sensitivity, shares, numbers, sites)
    rounding = max(2, sites) * g * sqrt(numbers)
    assert np.frexp(g)[0] == 0.5  # a power of two, so that dividing by it is exact
    share = sigma * sensitivity / sqrt(shares)
    assert 2**30 * g <= share < 2**31 * g
    assert s >= 2**30
    assert s * g * sqrt(shares) >= sigma * (sensitivity + rounding)
    assert s * g * sqrt(shares) <= sigma * (sensitivity + rounding) * (1 + 1e-8)


def test_a_release_of_two_neighbouring_tables_is_within_what_was_paid_for():
    """Rounded to the grid, vectors that are Delta apart are at most Delta + g sqrt(d) apart: worst cases, searched."""
    r = np.random.default_rng(0)
    g = 0.25
    for d in (1, 3, 50):
        for _ in range(200):
            v = r.normal(size=d) * 100
            step = r.normal(size=d)
            moved = v + step / np.linalg.norm(step)
            apart = np.linalg.norm((on_grid(v, g) - on_grid(moved, g)) * g)
            assert apart <= 1 + g * sqrt(d)


@pytest.mark.parametrize("sites", [1, 3, 5])
def test_a_person_at_several_sites_is_within_what_was_paid_for(sites):
    """A worst case: of the person's rows at each of the sites, every coordinate is just below or above half a step, and
    the sum of the rounded parts moves by nearly a whole step for each site, beyond what the parts moved by.
    """
    d, sigma, shares = 100, 3.0, 3
    moved, g = 1e-12, grid_for(sigma, 1.0, shares, d, sites).step
    below, above = np.full(d, (0.5 - moved) * g), np.full(d, (0.5 + moved) * g)
    apart = np.linalg.norm(sites * (on_grid(above, g) - on_grid(below, g)) * g)
    assert apart == pytest.approx(sites * g * sqrt(d))
    g, s = grid_for(sigma, 1.0, shares, d, sites)
    assert s * g * sqrt(shares) >= sigma * (1.0 + apart)


def test_rounding_that_is_more_than_the_sensitivity_is_refused():
    with pytest.raises(PrivacyError, match=r"rounding below the sensitivity itself, got more with numbers=131072"):
        grid_for(1e8, 1.0, 1, 2**17, 1)
    with pytest.raises(InputError, match="shares >= 1"):
        grid_for(1.0, 1.0, 0, 5, 1)


def test_sums_stay_where_their_sign_can_be_read():
    grid = grid_for(5.0, 1.0, 40, 100, 1)
    most = largest_honest(grid, 1e6, 50)
    assert 1e6 / grid.step < most < 2**62
    with pytest.raises(InputError, match=r"sums below 2\^62 grid steps"):
        largest_honest(Grid(2.0**-60, SCALE), 100.0, 50)


def test_honest_sums_pass_and_spoilt_ones_stop_the_run():
    a, sites = federation(3)
    grid = grid_for(2.0, 1.0, 3, 500, 1)
    ctx = context(a, numbers=500, grid=grid.step, scale=grid.scale)
    most = largest_honest(grid, 60.0, 3)
    said = {name: sites[name].words(ctx, np.full(500, 20.0), FRESH) for name in a.names}
    opened = from_steps(open_sum(ctx, said, most), grid.step)
    assert np.abs(opened - 60.0).max() < 6 * 2.0 * 1.01
    for spoil in (2**62, 2**63, 2**64 - 2**62):
        bad = said | {"site-1": said["site-1"] + np.uint64(spoil)}
        with pytest.raises(SpoiledError, match=r"got 500 of 500 numbers beyond it.*what was learnt before it stands"):
            open_sum(ctx, bad, most)
    with pytest.raises(InputError, match="the words of all who take part"):
        open_sum(ctx, {name: words for name, words in said.items() if name != "site-0"}, most)
    with pytest.raises(InputError, match="500 words of site site-0"):
        open_sum(ctx, said | {"site-0": said["site-0"][:1]}, most)


def test_a_site_that_was_told_another_transcript_spoils_the_sum_and_opens_nothing():
    a, sites = federation(3)
    ctx = context(a, numbers=500)
    said = {name: sites[name].words(ctx, np.zeros(500), FRESH) for name in a.names}
    said["site-2"] = sites["site-2"].words(replace(ctx, transcript=b"x" * 32), np.zeros(500), FRESH)
    with pytest.raises(SpoiledError, match="sites were told different things"):
        open_sum(ctx, said, 2**50)


def test_the_recipe_of_a_mask_is_the_published_one():
    """HMAC-SHA256 of the pair's key over the label, then ChaCha20 from block 0: no more is needed to write another."""
    _, seeds, members = masked_members()
    a = masked_agreement(members)
    sites = {name: Masks(a, name, seeds[name]) for name in a.names}
    ctx = context(a)
    label = field("sottovoce mask") + field(ctx.to_bytes())
    pairs = {}
    for i, one in enumerate(members):
        for two in members[i + 1 :]:
            secret = seeds[one.name].secret_with(two.mask_key)
            pairs[one.name, two.name] = keyed(pair_key(secret, a.digest(), one, two))(label).take(7)
    paris = pairs["paris", "rome"] - pairs["berlin", "paris"]
    np.testing.assert_array_equal(sites["paris"]._mask(ctx), paris)
    assert isinstance(a.analysis, sv.MaskedNewton)


# -- as bytes ---------------------------------------------------------------------------------------------------------


def said_in(a, masks, ctx, rounds=0):
    words = masks.words(ctx, np.zeros(ctx.numbers), FRESH)
    testimony = tuple(Sighting(rounds, bytes([i]) * 32) for i in range(len(a.sites)))
    return SumWords(words, Heading.of(ctx), b"b" * 32, testimony)


def test_a_message_reads_back_as_it_was_written():
    a, sites = federation(3, colluding=1)
    ctx = context(a, turn=Turn(3, 0), point=bits(np.arange(3.0)))
    said = said_in(a, sites["site-1"], ctx, rounds=2)
    payload = said.to_bytes()
    assert len(payload) == sum_size(3, ctx.numbers)
    came = read_sum(payload, 3, 3)
    np.testing.assert_array_equal(came.words, said.words)
    assert came[1:] == said[1:]
    assert came.heading.turn == ctx.turn
    came.heading.refuse_other("site-1", Heading.of(ctx), "site-0")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"turn": Turn(2, 1)}, "release=1, got release=2"),
        ({"turn": Turn(1, 1)}, "attempt=0, got attempt=1"),
        ({"members": ("site-0", "site-1", "site-2", "site-3")}, "a sum over the same sites as here"),
        ({"notices": b"n" * 32}, "the same notices"),
        ({"transcript": b"t" * 32}, "the same earlier messages as were received here"),
        ({"point": bits(np.zeros(3))}, "the point that site='site-1' has proposed here.*site-1 has signed two"),
        ({"grid": 2 * GRID}, "the point that site='site-1' has proposed here"),
        ({"scale": 2 * SCALE}, "the point that site='site-1' has proposed here"),
    ],
)
def test_a_message_from_another_context_is_refused_with_where_they_part(change, message):
    a, _ = federation(5, spare=1, least=4)
    ours = context(a)
    with pytest.raises(BadMessageError, match=message) as raised:
        Heading.of(replace(ours, **change)).refuse_other("site-2", Heading.of(ours), "site-1")
    assert raised.value.refusal is Refusal.OTHER_CONTEXT
    assert "site='site-2' has masked" in str(raised.value)


def test_news_of_the_future_and_another_number_are_refused():
    a, sites = federation(3, colluding=1)
    payload = said_in(a, sites["site-0"], context(a, turn=Turn(3, 0)), rounds=3).to_bytes()
    with pytest.raises(BadMessageError, match="expected news of rounds before 3, got some of round=3"):
        read_sum(payload, 3, 3)
    with pytest.raises(BadMessageError, match=r"expected release \+ attempt = 4, got 3 \+ 0"):
        read_sum(payload, 4, 3)


def test_only_words_go_into_a_message():
    a, sites = federation(3, colluding=1)
    said = said_in(a, sites["site-0"], context(a))
    with pytest.raises(InputError, match="a vector of uint64"):
        said._replace(words=said.words.astype(np.int64)).to_bytes()
    with pytest.raises(InputError, match="a binding of 32 bytes"):
        said._replace(binding=b"").to_bytes()
