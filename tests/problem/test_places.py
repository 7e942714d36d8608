"""Private rows are dealt out by an order that nobody knows: where other rows and names stand tells nothing."""

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

import sottovoce as sv
from algorithms.harness import hockey_stick
from algorithms.test_people import LOCAL, K, played
from sottovoce.errors import InputError, PrivacyError
from sottovoce.privacy import Unit, delta
from sottovoce.problem.dataset import Dataset
from sottovoce.problem.partition import ByShares, BySizes, even
from sottovoce.problem.sites import Sites

KEY = bytes(range(32))


def numbered(rows, whose=None, k=1, private=True):
    """Rows that say which they are: the label is their number."""
    unit = {} if whose is None else {"unit": Unit(k), "people": np.asarray(whose)}
    return Dataset(np.ones((rows, 1)), np.arange(float(rows)), ("x",), rows, 1.0, "numbers", private, **unit)


def owners(sites):
    """From the number of a row to its site."""
    return dict(zip(sites.labels.astype(int).tolist(), np.repeat(np.arange(sites.n), sites.counts), strict=True))


def test_no_message_tells_that_a_row_sorts_elsewhere():
    """Rows arranged so that a public order would deal all of one label to the first site; one row that is replaced by
    one that stands first in the file shifts all others. Whoever reads the noisy models guesses no better than promised.
    """
    n, runs, epsilon, small = 400, 200, 0.5, 1e-5
    by_seed = np.isin(np.arange(n), even(numbered(n), 2, 0)[0])
    signs = np.where(by_seed, 1.0, -1.0)
    worlds = [signs, np.concatenate([[signs[-1]], signs[:-1]])]  # the same rows: the last one now stands first
    algorithm = sv.IPADMM(rounds=1, local_steps=1, diameter=1.0, rho=0.1, epsilon=epsilon, delta=small)

    def seen(labels):
        data = replace(numbered(n), labels=labels)
        found = [
            sv.simulate(algorithm, Sites.split(data, 2), sv.graphs.complete(2), record=1, device="plain").last
            for _ in range(runs)
        ]
        return np.array([float(np.ravel(models)[0]) for models in found])

    ours, theirs = seen(worlds[0]), seen(worlds[1])
    # The best threshold, in hindsight: whoever guesses by it is right in so many of all runs.
    levels = np.concatenate([ours, theirs])
    right = max(max(np.sum(ours > c) + np.sum(theirs <= c), np.sum(ours <= c) + np.sum(theirs > c)) for c in levels)
    promised = 2 * runs * (math.exp(epsilon) / (1 + math.exp(epsilon)) + small)
    assert right < promised + 4 * math.sqrt(2 * runs) / 2


@pytest.mark.parametrize("changed", ["a-new-name", "another's", "last in the order"])
def test_a_changed_name_moves_nobody(changed):
    rows, k = 4000, 3
    whose = np.repeat(np.arange(2000), 2) + 10
    other = whose.copy()
    other[0] = {"a-new-name": 0, "another's": 500, "last in the order": 10**6}[changed]
    before, after = (owners(Sites.split(numbered(rows, ids, k), 10, key=KEY)) for ids in (whose, other))
    assert before == after


def test_a_row_s_place_in_the_file_tells_nothing_of_its_site():
    """Each row is at the first site as often, wherever it stands."""
    rows = 300
    order = np.concatenate([[rows - 1], np.arange(rows - 1)])
    seen = np.zeros((2, rows))
    for world, places in enumerate((np.arange(rows), order)):
        for _ in range(400):
            sites = Sites.split(replace(numbered(rows), labels=places.astype(float)), 3)
            first = sites.labels[: sites.counts[0]].astype(int)
            seen[world, first] += 1
    for counts in seen:
        assert stats.kstest((counts - 400 / 3) / math.sqrt(400 * 2 / 9), "norm").pvalue > 1e-4
        assert abs(counts - 400 / 3).max() < 6 * math.sqrt(400 * 2 / 9)
    assert abs(np.corrcoef(seen)[0, 1]) < 0.3


@pytest.mark.parametrize("deal", [even, BySizes([5, 10, 20]), ByShares([1, 2, 3])])
def test_the_order_is_new_every_time_and_sizes_are_public(deal):
    data = numbered(100)
    one, two = (Sites.split(data, 3, partition=deal) for _ in range(2))
    assert one.counts.tolist() == two.counts.tolist() == [len(part) for part in deal(data, 3, 0)]
    assert one.labels.tolist() != two.labels.tolist()
    assert len(set(one.labels.tolist())) == len(one.labels)
    # Nor does the order within a site follow that of the file: sums of floating-point numbers depend on it.
    assert np.any(np.diff(one.labels[: one.counts[0]]) < 0)


def test_a_key_deals_alike_in_every_process():
    data = numbered(100)
    again = [Sites.split(data, 4, key=KEY).labels.tolist() for _ in range(2)]
    assert again[0] == again[1]
    assert Sites.split(data, 4, key=KEY[::-1]).labels.tolist() != again[0]
    for bad in (b"short", "no bytes"):
        with pytest.raises(InputError, match="a key of"):
            Sites.split(data, 4, key=bad)
    with pytest.raises(InputError, match="no key with public rows"):
        Sites.split(numbered(100, private=False), 4, key=KEY)


def test_private_rows_are_not_dealt_by_a_seed():
    for seed in (0, 7):
        with pytest.raises(PrivacyError, match=rf"no seed to deal private rows out by, got seed={seed}.*Leave it out"):
            Sites.split(numbered(100), 4, seed)
    # Public ones are, as ever.
    public = numbered(100, private=False)
    parts = np.concatenate(even(public, 4, 0)).tolist()
    assert Sites.split(public, 4).labels.tolist() == Sites.split(public, 4, 0).labels.tolist() == parts
    assert Sites.split(public, 4, 1).labels.tolist() != parts


# -- people whose rows lie at several sites -------------------------------------------------------------------------


def scattered(unit, parts):
    """Of a person, so many rows at each node, turned round."""
    both = [[np.ones((12, 1)) for _ in range(3)] for _ in range(2)]
    for rows, count in zip(both[1], parts, strict=True):
        rows[:count] = -1
    return [sv.Sites(rows, [np.ones(12)] * 3, unit=unit) for rows in both]


@pytest.mark.parametrize("parts", [(2, 1, 0), (1, 1, 1), (0, 0, 3)])
@pytest.mark.parametrize("name", LOCAL)
def test_rows_of_a_person_that_are_scattered_tell_no_more(name, parts):
    both = scattered(Unit(K), parts)
    for ours, theirs in (both, both[::-1]):
        loss, statement = played(LOCAL[name], ours, theirs)
        assert statement.epsilon <= 1.0
        for e in (0.0, 0.5, 1.0, 1.5):
            assert hockey_stick(loss, e) <= delta(statement.event, e)


def test_sites_with_fewer_rows_than_a_person_would_tell_more():
    """Noise at a site is for min(k, m_i) rows, so all m_i of several sites would not be covered: refused."""
    unit = Unit(24)
    both = [[np.ones((12, 1)) for _ in range(3)] for _ in range(2)]
    both[1][0], both[1][1] = -both[1][0], -both[1][1]
    loss, statement = played(LOCAL["ipadmm"], *(sv.Sites(rows, [np.ones(12)] * 3, unit=unit) for rows in both))
    assert max(hockey_stick(loss, e) - delta(statement.event, e) for e in (0.0, 0.25, 0.5, 1.0)) > 0
    with pytest.raises(InputError, match="at least 24 rows at every site, as many as a person may have, got fewest=12"):
        Sites.split(numbered(36, np.arange(36), 24), 3)
    assert Sites.split(numbered(36, np.arange(36), 12), 3).counts.tolist() == [12] * 3
    assert Sites.split(numbered(5, np.arange(5), 12), 1).counts.tolist() == [5]


def test_people_have_so_many_rows_in_all_before_they_are_dealt_out():
    whose = np.repeat(np.arange(20), 3)
    with pytest.raises(InputError, match="at most rows=2 rows of a person"):
        Sites.split(numbered(60, whose, 2), 4)
    sites = Sites.split(numbered(60, whose, 3), 4)
    at = owners(sites)
    assert sites.unit == Unit(3)
    assert any(len({at[3 * i], at[3 * i + 1], at[3 * i + 2]}) > 1 for i in range(20))
    with pytest.raises(InputError, match="since people are given"):
        Sites.split(replace(numbered(60, whose, 3), unit=Unit()), 4)
