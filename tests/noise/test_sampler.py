"""The keyed sampler: exact law, frozen words, and a literal transcription that takes the same words."""

import hashlib
import os
import secrets
import struct
from contextlib import suppress
from itertools import count

import mpmath as mp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from opendp.domains import atom_domain, vector_domain
from opendp.measurements import make_gaussian
from opendp.metrics import l2_distance
from opendp.mod import enable_features
from scipy import stats

from sottovoce.errors import InputError
from sottovoce.noise import sampler
from sottovoce.noise.sampler import Stream, discrete_gaussian, encode_fields, keyed, uniform_below
from sottovoce.oracle.kernels.discrete import OutOfWords, fill

LEVEL = 1e-6  # of every statistical test: a right law fails for one key in a million
KEY = bytes(range(32))
WIDE = 2**30 + 7


def stream(label=b""):
    return keyed(KEY)(label)


# -- a literal transcription ------------------------------------------------------------------------------------------


class Plain:
    """The docstring of `sottovoce.noise.sampler`, line by line, with Python's whole numbers."""

    def __init__(self, words):
        self.words = iter(words)
        self.used = 0

    def below(self, n):
        while True:
            w = next(self.words, None)
            if w is None:
                raise OutOfWords
            self.used += 1
            w = int(w)
            if w < 2**64 - 2**64 % n:
                return w % n

    def coin(self, p, q, i, c):
        for k in count(1):
            if not all(self.below(q) < p for _ in range(i)):
                break
            if c * k > 1 and self.below(c * k) != 0:
                break
        return k % 2 == 1

    def attempt(self, s):
        """A number, or None to begin again."""
        u = self.below(s)
        if not self.coin(u, s, 1, 1):
            return None
        v = 0
        while self.coin(0, 1, 0, 1):
            v += 1
        minus = self.below(2)
        if minus == 1 and u == v == 0:
            return None
        if v == 0:
            taken = self.coin(s - u, s, 2, 2)
        else:
            j = v - 1
            taken = all(self.coin(0, 1, 0, 2) for _ in range(j * j))
            taken = taken and all(self.coin(u, s, 1, 1) for _ in range(j))
            taken = taken and self.coin(u, s, 2, 2)
        return (1 - 2 * minus) * (u + s * v) if taken else None

    def gaussian(self, s):
        while (found := self.attempt(s)) is None:
            pass
        return found


@pytest.mark.parametrize("scale", [1, 2, 3, 1000, WIDE, 2**33, 3**27, 2**48])
def test_the_sampler_is_its_description_and_takes_the_same_words(scale):
    ours = stream(b"same")
    plain = Plain(stream(b"same").take(40_000))
    assert discrete_gaussian(ours, scale, 1500).tolist() == [plain.gaussian(scale) for _ in range(1500)]
    assert ours.take(1)[0] == next(plain.words)


EDGES = [0, 1, 2, 2**63, 2**64 - 1, 2**64 - 2, 2**64 - 3, 2**64 - 2**47]


@given(st.data(), st.sampled_from([1, 2, 3, 5, 2**30 + 7, 3 * 2**46, 2**48 - 59, 2**48]))
@settings(max_examples=300)
def test_words_at_the_edges_decide_as_described(data, s):
    near = st.sampled_from(EDGES) | st.integers(0, 2**64 - 1) | st.integers(-3, 3).map(lambda i: -(2**64 % s) + i)
    words = [w % 2**64 for w in data.draw(st.lists(near, min_size=1, max_size=60))]
    plain, wanted, used = Plain(words), [], [0]
    with suppress(OutOfWords):
        while True:
            wanted.append(plain.gaussian(s))
            used.append(plain.used)
    out, done = np.zeros(len(words) + 1, dtype=np.int64), np.zeros(2, dtype=np.int64)
    with pytest.raises(OutOfWords):
        fill(out, np.array(words, dtype=np.uint64), np.uint64(s), done)
    assert done.tolist() == [len(wanted), used[-1]]
    assert out[: len(wanted)].tolist() == wanted


# -- the exact law, by brute force ------------------------------------------------------------------------------------


class Branching(Plain):
    """All outcomes of a draw with their chances: `choose` takes the scripted branch, and notes the others to come."""

    def __init__(self, script, chance_of_coin=None):
        self.script, self.choices, self.chance = list(script), [], mp.mpf(1)
        self.chance_of_coin = chance_of_coin

    def choose(self, chances):
        at = len(self.choices)
        taken = self.script[at] if at < len(self.script) else 0
        self.choices.append((taken, len(chances)))
        self.chance *= chances[taken]
        return taken

    def below(self, n):
        return self.choose([mp.mpf(1) / n] * n)

    def coin(self, p, q, i, c):
        if self.chance_of_coin is None:
            return super().coin(p, q, i, c)
        chance = self.chance_of_coin(p, q, i, c)
        return self.choose([1 - chance, chance]) == 1


class TooRare(Exception):  # noqa: N818
    pass


def outcomes(draw, least, chance_of_coin=None):
    """({outcome: chance}, the chance of all that was cut off because it is rarer than `least`)."""
    found, cut, script = {}, mp.mpf(0), []

    class Cut(Branching):
        def choose(self, chances):
            taken = super().choose(chances)
            if self.chance < least:
                raise TooRare
            return taken

    while script is not None:
        run = Cut(script, chance_of_coin)
        try:
            result = draw(run)
            found[result] = found.get(result, 0) + run.chance
        except TooRare:
            cut += run.chance
        choices = run.choices
        while choices and choices[-1][0] == choices[-1][1] - 1:
            choices.pop()
        script = [taken for taken, _ in choices[:-1]] + [choices[-1][0] + 1] if choices else None
    return found, cut


def exact_coin(p, q, i, c):
    return mp.exp(-((mp.mpf(p) / q) ** i) / c)


@pytest.mark.parametrize(
    ("p", "q", "i", "c"),
    [(0, 1, 0, 1), (0, 1, 0, 2), (0, 3, 1, 1), (1, 3, 1, 1), (2, 3, 1, 1), (1, 2, 2, 2), (1, 1, 2, 2)],
)
def test_coins_have_the_chance_that_they_say(p, q, i, c):
    with mp.workdps(30):
        found, cut = outcomes(lambda run: run.coin(p, q, i, c), mp.mpf("1e-8"))
        wanted = exact_coin(p, q, i, c)
        assert cut < 1e-4
        assert found.get(True, 0) <= wanted + mp.mpf("1e-25")
        assert wanted <= found.get(True, 0) + cut + mp.mpf("1e-25")


@pytest.mark.parametrize("s", [1, 2, 3, 5])
def test_accepted_numbers_have_exactly_the_discrete_law(s):
    """Every path of one attempt, its coins having their chances: the results stand in the ratios of the law."""
    with mp.workdps(30):
        found, cut = outcomes(lambda run: run.attempt(s), mp.mpf("1e-14"), exact_coin)
        assert cut < 1e-9
        assert abs(sum(found.values()) + cut - 1) < mp.mpf("1e-25")
        for y in range(-3 * s, 3 * s + 1):
            ratio = found[y] / found[0] / mp.exp(-(mp.mpf(y) ** 2) / (2 * s**2))
            assert abs(ratio - 1) < 1e-8, y


# -- samples ----------------------------------------------------------------------------------------------------------


def fits(samples, scale):
    """Chi-square test against the exact pmf, rare values taken together."""
    points = np.arange(-12 * scale, 12 * scale + 1)
    weights = np.exp(-(points**2) / (2 * scale**2))
    expected = len(samples) * weights / weights.sum()
    inside = expected > 10
    counts = np.array([np.sum(samples == k) for k in points[inside]])
    found = np.append(counts, len(samples) - counts.sum())
    wanted = np.append(expected[inside], len(samples) - expected[inside].sum())
    return stats.chisquare(found, wanted).pvalue > LEVEL


@pytest.mark.parametrize("scale", [1, 2, 3, 10])
def test_small_scales_have_exactly_the_discrete_law_and_two_thirds_of_it_fail(scale):
    samples = discrete_gaussian(stream(b"law"), scale, 200_000)
    assert samples.dtype == np.int64
    assert fits(samples, scale)
    assert not fits(np.rint(samples * 2 / 3).astype(int), scale)
    if scale % 3 == 0:
        assert not fits(discrete_gaussian(stream(b"law"), 2 * scale // 3, 200_000), scale)


def opendp_gaussian(scale, number):
    enable_features("contrib")
    mechanism = make_gaussian(vector_domain(atom_domain(T="i64")), l2_distance(T="f64"), scale=float(scale))
    return np.array(mechanism([0] * number))


@pytest.mark.parametrize("scale", [WIDE, 2**33])
def test_wide_scales_agree_with_opendp(scale):
    ours, theirs = discrete_gaussian(stream(b"oracle"), scale, 100_000), opendp_gaussian(scale, 20_000)
    assert stats.ks_2samp(ours, theirs).pvalue > LEVEL
    assert stats.ks_2samp(np.abs(ours), np.abs(theirs)).pvalue > LEVEL
    assert stats.ks_2samp(ours * 2 // 3, theirs).pvalue < LEVEL
    assert stats.chisquare(np.bincount(ours % 64, minlength=64)).pvalue > LEVEL


def test_small_scales_agree_with_opendp():
    ours, theirs = discrete_gaussian(stream(b"oracle"), 2, 50_000), opendp_gaussian(2, 20_000)
    cells = [[np.sum(np.clip(x, -6, 6) == k) for k in range(-6, 7)] for x in (ours, theirs)]
    assert stats.chi2_contingency(cells).pvalue > LEVEL


@pytest.mark.parametrize("scale", [WIDE, 2**33, 2**48])
def test_wide_scales_are_normal_in_body_and_tail(scale):
    samples = discrete_gaussian(stream(b"wide"), scale, 300_000) / scale
    assert stats.kstest(samples, "norm").pvalue > LEVEL
    assert stats.kstest(samples * 2 / 3, "norm").pvalue < LEVEL
    for reach in (2.5, 3.5, 4.2):
        beyond = int(np.sum(np.abs(samples) > reach))
        assert stats.binomtest(beyond, len(samples), 2 * stats.norm.sf(reach)).pvalue > LEVEL
    assert abs(np.mean(samples[1:] * samples[:-1])) < 6 / np.sqrt(len(samples))


# -- frozen: these change with VERSION only ---------------------------------------------------------------------------

# scale: (the first 8, SHA-256 of the first 10^4 as little-endian int64)
FROZEN = {
    1: (
        [0, 0, 0, -1, 0, 0, 1, 3],
        "f66e9859102c0b940926891470cf084c9e34fe25d210ca37972f965e22a34f3f",
    ),
    3: (
        [-1, 3, -2, -4, -3, -4, 4, -1],
        "6d4ce1b192f0afb2ffe65b6a8dc5ee928ef06772ae60b7578bc60d06addbf7dd",
    ),
    1073741831: (
        [-433379640, 1105208155, -1304858362, 1087802155, 477984100, -934575089, 657367377, 450785980],
        "656be5d13321d3a6b47d0a81d6a48d78c22002365808268529377cfbe90acc7b",
    ),
    8589934592: (
        [712403641, 12296196257, 8604987799, 12499076585, -12242736075, 4709465685, -603664818, -1425947627],
        "f70af53a413b750fd4b5b08e9c531c4c255196a22595ceb6c00651d276d04969",
    ),
}


def test_the_version_is_the_one_that_is_frozen():
    assert sampler.VERSION == 1


@pytest.mark.parametrize("scale", FROZEN)
def test_numbers_are_the_same_on_every_machine(scale):
    first, digest = FROZEN[scale]
    numbers = discrete_gaussian(stream(b"test vector"), scale, 10_000)
    assert numbers[:8].tolist() == first
    assert hashlib.sha256(numbers.astype("<i8").tobytes()).hexdigest() == digest


def test_uniform_numbers_are_the_same_on_every_machine():
    assert uniform_below(stream(b"test vector"), 1000, 8).tolist() == [896, 217, 497, 939, 751, 684, 442, 901]
    assert uniform_below(stream(b"test vector"), 3 * 2**60, 4).tolist() == [
        462714658468329040,
        1707462995885106505,
        1524592203794968641,
        2454292278628065011,
    ]


def test_the_words_are_chacha20_of_rfc_8439():
    # Appendix A.1, test vector 1: key, nonce and counter are zero.
    block = bytes.fromhex(
        "76b8e0ada0f13d90405d6ae55386bd28bdd219b8a08ded1aa836efcc8b770dc7"
        "da41597c5157488d7724e03fb8d84a376a43b8f41518a11cc387b669b2ee6586"
    )
    assert Stream(bytes(32)).take(8).tolist() == list(struct.unpack("<8Q", block))


def test_the_key_of_a_label_is_its_hmac():
    def xored(byte):
        return bytes(b ^ byte for b in KEY.ljust(64, b"\0"))

    inner = hashlib.sha256(xored(0x36) + b"a label").digest()
    derived = hashlib.sha256(xored(0x5C) + inner).digest()
    assert stream(b"a label").take(4).tolist() == Stream(derived).take(4).tolist()


# -- streams ----------------------------------------------------------------------------------------------------------


def test_how_words_are_fetched_does_not_matter(monkeypatch):
    whole = discrete_gaussian(stream(), WIDE, 500).tolist()
    parts = stream()
    found = [x for n in (1, 0, 7, 92, 400) for x in discrete_gaussian(parts, WIDE, n)]
    assert found == whole
    monkeypatch.setattr(sampler, "_CHUNK", 3)
    assert discrete_gaussian(stream(), WIDE, 500).tolist() == whole
    one = stream()
    assert [int(one.take(1)[0]) for _ in range(20)] == stream().take(20).tolist()


def test_labels_and_keys_have_streams_of_their_own():
    streams = [stream(), stream(b"a"), stream(b"b"), keyed(bytes(32))(b""), keyed(KEY[::-1])(b"")]
    words = np.array([s.take(1000) for s in streams])
    assert len(np.unique(words)) == words.size


def test_nothing_comes_from_the_system(monkeypatch):
    def refuse(*_):
        raise AssertionError("randomness from outside")

    for module, name in ((os, "urandom"), (secrets, "token_bytes"), (np.random, "default_rng")):
        monkeypatch.setattr(module, name, refuse)
    assert len(discrete_gaussian(stream(), WIDE, 10)) == len(uniform_below(stream(), 7, 10)) == 10


class Given:
    """A stream of handed-in words."""

    def __init__(self, *words):
        self.words = list(words)

    def take(self, n):
        taken, self.words = self.words[:n], self.words[n:]
        return np.array(taken, dtype=np.uint64)


def test_words_that_would_favour_some_numbers_are_thrown_away():
    # 2^64 = 1 mod 3: the last word is one too many.
    given_words = Given(2**64 - 1, 2**64 - 2, 5, 2**64 - 1, 4, 77)
    assert uniform_below(given_words, 3, 3).tolist() == [(2**64 - 2) % 3, 2, 1]
    assert given_words.words == [77]


@given(st.integers(1, 2**62))
def test_as_many_words_lead_to_every_number(bound):
    fair = 2**64 - 2**64 % bound  # the words below are kept, and they are a multiple of the bound
    assert uniform_below(Given(fair - 1, 0), bound, 2).tolist() == [bound - 1, 0]
    if fair < 2**64:
        assert uniform_below(Given(fair, 2**64 - 1, 1), bound, 1).tolist() == [1 % bound]


# -- labels -----------------------------------------------------------------------------------------------------------

FIELD = st.binary(max_size=12) | st.text(max_size=6) | st.integers(-(2**70), 2**70) | st.floats()
READ = {
    b"b": bytes,
    b"s": bytes.decode,
    b"i": int,
    b"f": lambda value: struct.unpack("<d", value)[0],
}


def decode(label):
    fields = []
    while label:
        kind, (length,) = label[:1], struct.unpack("<Q", label[1:9])
        value, label = label[9 : 9 + length], label[9 + length :]
        fields.append(READ[kind](value))
    return fields


@given(st.lists(FIELD, max_size=6))
def test_labels_can_be_read_back_so_no_two_are_the_same(fields):
    assert list(map(repr, decode(encode_fields(*fields)))) == list(map(repr, fields))


def test_neighbouring_labels_differ():
    alike = [
        ("ab", "c"),
        ("a", "bc"),
        ("abc",),
        (b"abc",),
        ("abc", ""),
        (1, 23),
        (12, 3),
        ("1", 23),
        (0.0,),
        (-0.0,),
        (0,),
    ]
    assert len({encode_fields(*fields) for fields in alike}) == len(alike)


# -- refusals ---------------------------------------------------------------------------------------------------------


def test_keys_and_scales_are_checked_and_keys_not_shown():
    for bad in (b"", KEY[:31], KEY + b"\0"):
        with pytest.raises(InputError, match=rf"a key of 32 bytes, got bytes={len(bad)}\."):
            keyed(bad)
    with pytest.raises(InputError, match="a key of bytes, got key='str'"):
        keyed("k" * 32)
    for scale in (0, 2**48 + 1):
        with pytest.raises(InputError, match=f"scale={scale}"):
            discrete_gaussian(stream(), scale, 1)
    for bound in (0, 2**62 + 1):
        with pytest.raises(InputError, match=f"bound={bound}"):
            uniform_below(stream(), bound, 1)
