"""Partitions: disjoint, exhaustive as documented, the same again, and skewed as asked."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sottovoce.errors import InputError, PrivacyError
from sottovoce.files.datasets import ByColumn, ByShares, BySizes, Dataset, LabelSkew, Partition, adult, even
from sottovoce.problem import partition
from sottovoce.problem.sites import Sites


def toy(rows=103, seed=0):
    draws = np.random.default_rng(seed)
    features = np.zeros((rows, 4))
    features[:, 0] = draws.integers(0, 5, rows)
    features[np.arange(rows), 1 + draws.choice(3, rows, p=[0.7, 0.2, 0.1])] = 0.5
    labels = draws.choice([-1.0, 1.0], rows, p=[0.7, 0.3])
    return Dataset(features, labels, ("age", "site=a", "site=b", "site=c"), rows, np.inf, "toy")


TOY = toy()
ALL_ROWS = [
    (ByShares([1, 2, 3]), 3),
    (LabelSkew(0.3), 3),
    (LabelSkew(0.05, minimum=20), 5),
    (ByColumn("site"), 3),
    (ByColumn("site"), 2),
    (ByColumn("age"), 4),
]
SOME_ROWS = [(even, 10), (even, 103), (even, 1), (BySizes([5, 50, 10]), 3)]


@pytest.mark.parametrize(("deal", "nodes"), ALL_ROWS + SOME_ROWS)
def test_disjoint_sorted_and_the_same_again(deal, nodes):
    parts = deal(TOY, nodes, 4)
    assert len(parts) == nodes
    together = np.concatenate(parts)
    assert len(np.unique(together)) == len(together)
    assert together.min() >= 0
    assert together.max() < len(TOY)
    for part, again in zip(parts, deal(TOY, nodes, 4), strict=True):
        assert part.dtype == np.int64
        assert len(part) >= 1
        assert np.all(np.diff(part) > 0)
        np.testing.assert_array_equal(part, again)


@pytest.mark.parametrize(("deal", "nodes"), ALL_ROWS)
def test_all_rows_are_used(deal, nodes):
    np.testing.assert_array_equal(np.sort(np.concatenate(deal(TOY, nodes, 1))), np.arange(len(TOY)))


@pytest.mark.parametrize("deal", [even, ByShares([1, 1, 1]), BySizes([9, 9, 9]), LabelSkew()])
def test_seeds_differ(deal):
    assert any(len(a) != len(b) or np.any(a != b) for a, b in zip(deal(TOY, 3, 0), deal(TOY, 3, 1), strict=True))


def test_even_on_adult():
    data = adult()
    parts = even(data, 100, 0)
    assert {len(part) for part in parts} == {452}
    assert len(data) - sum(map(len, parts)) == 22
    share = [np.mean(data.labels[part] == 1) for part in parts]
    assert np.std(share) == pytest.approx(np.sqrt(0.248 * 0.752 / 452), rel=0.3)  # as a random split has it


def test_sizes_and_shares():
    assert [len(part) for part in BySizes([5, 50, 10])(TOY, 3, 0)] == [5, 50, 10]
    assert [len(part) for part in ByShares([1, 1, 2])(toy(403), 3, 0)] == [101, 101, 201]
    assert [len(part) for part in ByShares([1e-9, 1.0])(TOY, 2, 0)] == [1, 102]


def spread(alpha):
    """Mean distance of the nodes' share of the label +1 from the overall one, over draws."""
    data = toy(2000)
    overall = np.mean(data.labels == 1)
    parts = [part for seed in range(20) for part in LabelSkew(alpha)(data, 10, seed)]
    return np.mean([abs(np.mean(data.labels[part] == 1) - overall) for part in parts])


def test_skew_grows_as_alpha_falls():
    skews = [spread(alpha) for alpha in (1000.0, 10.0, 1.0, 0.1)]
    assert skews == sorted(skews)
    assert skews[0] < 0.03
    assert skews[-1] > 0.3


def test_dirichlet_shares_have_the_right_moments():
    data = toy(4000)
    positive = data.labels == 1
    alpha, nodes = 2.0, 4
    shares = np.array([[positive[part].sum() for part in LabelSkew(alpha)(data, nodes, seed)] for seed in range(300)])
    shares = shares / positive.sum()
    assert shares.mean() == pytest.approx(1 / nodes, abs=1e-12)
    variance = (1 / nodes) * (1 - 1 / nodes) / (nodes * alpha + 1)
    assert shares.var() == pytest.approx(variance, rel=0.2)


@given(
    alpha=st.floats(1e-3, 1e3),
    nodes=st.integers(1, 20),
    minimum=st.integers(1, 5),
    seed=st.integers(0, 2**32),
)
def test_minimum_is_kept(alpha, nodes, minimum, seed):
    parts = LabelSkew(alpha, minimum)(TOY, nodes, seed)
    assert min(map(len, parts)) >= minimum
    assert sum(map(len, parts)) == len(TOY)


def test_by_category():
    site = np.argmax(TOY.features[:, 1:], axis=1)
    parts = ByColumn("site")(TOY, 3, 0)
    assert [set(site[part]) for part in parts] == [{0}, {1}, {2}]
    two = ByColumn("site")(TOY, 2, 0)
    assert [set(site[part]) for part in two] == [{0}, {1, 2}]


def test_by_country_on_adult():
    data = adult()
    parts = ByColumn("native-country")(data, 41, 0)
    assert [len(part) for part in parts[:3]] == [41_292, 903, 283]
    assert len(parts[-1]) == 1
    assert parts[-1].tolist() == [18_175]


def test_by_number():
    parts = ByColumn("age")(TOY, 4, 0)
    assert [len(part) for part in parts] == [26, 26, 26, 25]
    age = TOY.features[:, 0]
    assert all(age[low].max() <= age[high].min() for low, high in pairwise(parts))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: even(TOY, 104, 0), "at most as many nodes as rows, 103, got nodes=104"),
        (lambda: LabelSkew()(TOY, 104, 0), "nodes=104"),
        (lambda: even(TOY, 0, 0), "nodes=0"),
        (lambda: even(TOY, 2, -1), "seed=-1"),
        (lambda: BySizes([0, 4]), "whole sizes >= 1"),
        (lambda: BySizes([100, 4])(TOY, 2, 0), "at most 103 rows, got sum=104"),
        (lambda: BySizes([4])(TOY, 2, 0), "one size for each of 2 nodes"),
        (lambda: ByShares([1.0, -1.0]), "finite shares > 0"),
        (lambda: ByShares([1.0])(TOY, 2, 0), "one share for each of 2 nodes"),
        (lambda: LabelSkew(0.0), "alpha=0.0"),
        (lambda: LabelSkew(1.0, 0), "minimum=0"),
        (lambda: LabelSkew(1.0, 60)(TOY, 2, 0), "nodes [*] minimum = 120 rows, got rows=103"),
        (lambda: ByColumn("site")(TOY, 4, 0), "at most 3 nodes, one for each site present, got nodes=4"),
        (lambda: ByColumn("hour")(TOY, 2, 0), "age, site, got column='hour'"),
        (lambda: partition.by_name("odd"), "even, sizes, shares, dirichlet, column, got partition='odd'"),
        (lambda: partition.by_name("even", alpha=1.0), "partition even, got 'alpha'. Known: none"),
        (lambda: partition.by_name("column"), "options of the partition column in full, got no column"),
    ],
)
def test_refusals(make, message):
    with pytest.raises(InputError, match=message):
        make()


def test_continuous_labels_are_refused():
    data = Dataset(np.ones((500, 1)), np.arange(500.0), ("x",), 500, 1.0, "ramp")
    with pytest.raises(InputError, match="at most 100 different labels, got labels=500"):
        LabelSkew()(data, 2, 0)


def test_by_name():
    assert partition.by_name("even") is even
    assert partition.by_name("dirichlet", alpha=0.1) == LabelSkew(0.1)
    assert partition.by_name("column", column="sex") == ByColumn("sex")
    assert partition.by_name("sizes", sizes=(1, 2)) == BySizes((1, 2))
    assert partition.by_name("shares", shares=(1, 2)) == ByShares((1, 2))


BLIND = {"even": even, "sizes": BySizes([30, 10, 40]), "shares": ByShares([1, 2, 3])}


def test_which_partitions_read_rows():
    made = {**BLIND, "dirichlet": LabelSkew(), "column": ByColumn("age")}
    assert made.keys() == set(partition.NAMES)
    assert {name for name, deal in made.items() if not deal.reads_rows} == BLIND.keys()


@pytest.mark.parametrize("deal", BLIND.values(), ids=BLIND.keys())
def test_who_does_not_read_rows_deals_any_rows_alike(deal):
    other = replace(TOY, features=-7 * TOY.features[::-1], labels=np.arange(103.0))
    for ours, theirs in zip(deal(TOY, 3, 5), deal(other, 3, 5), strict=True):
        np.testing.assert_array_equal(ours, theirs)


def test_private_rows_are_dealt_out_blindly_or_not_at_all():
    secret = replace(TOY, private=True)
    for deal in BLIND.values():
        assert Sites.split(secret, 3, partition=deal).private
    assert not Sites.split(TOY, 3, partition=LabelSkew()).private

    class New(Partition):
        def __call__(self, data, nodes, seed):
            return even(data, nodes, seed)

    class Inherits(type(even)):
        pass

    for deal in (LabelSkew(), ByColumn("site"), New(), Inherits(), New().__call__):
        with pytest.raises(PrivacyError, match="Use the partition even, or give every site its own rows"):
            Sites.split(secret, 3, partition=deal)


def test_a_slice_of_private_rows_is_private():
    secret = replace(TOY, private=True, n_train=50)
    assert secret.train.private
    assert secret.test.private
