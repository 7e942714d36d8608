"""Descriptions: without noise they are what pandas says; with it, counts add up, and intervals hold the truth."""

import csv
import io
import json
import math
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from scipy import stats

import sottovoce as sv
from sottovoce.files.schema import Categorical
from sottovoce.settings import plain
from sottovoce.tables import describe
from tables.rows import BY_PERSON, SCHEMA, rows

EXACT = {"epsilon": math.inf, "force": True}


def column_of(found, name):
    return next(column for column in found.columns if column.name == name)


@pytest.fixture(scope="module", name="frame")
def _frame():
    return rows()


@pytest.fixture(scope="module", name="exact")
def _exact(frame):
    return describe(frame, SCHEMA, by="ill", nodes=3, **EXACT)


@pytest.fixture(scope="module", name="noisy")
def _noisy(frame):
    return describe(frame, SCHEMA, by="ill", nodes=3, epsilon=1.0, delta=1e-6)


def views(frame):
    return [frame, *(frame[frame.ill == name] for name in ("no", "yes"))]


def levels_in(frame):
    """What pandas counts, by column and level, as the schema says."""
    ward = frame.ward.where(frame.ward.isin(["north", "south"]) | frame.ward.isna(), "<other>").fillna("<missing>")
    quarter = "Q" + pd.to_datetime(frame.came).dt.quarter.astype(str)
    smoker = frame.smoker.map({"yes": "true", "no": "false"}).fillna("<missing>")
    return {"ward": ward.value_counts(), "came": quarter.value_counts(), "smoker": smoker.value_counts()}


@pytest.mark.parametrize("name", ["ward", "came", "smoker"])
def test_counts_and_shares_are_those_of_pandas(exact, frame, name):
    for v, view in enumerate(views(frame)):
        counts = levels_in(view)[name]
        for level in column_of(exact, name).levels:
            assert level.counts[v].value == counts.get(level.name, 0)
            assert level.shares[v].value == pytest.approx(counts.get(level.name, 0) / len(view), abs=1e-12)
    assert [size.value for size in exact.sizes[:2]] == [len(view) for view in views(frame)[1:]]


@pytest.mark.parametrize(("name", "low", "high"), [("age", 20, 80), ("dose", 0, 10)])
def test_means_and_standard_deviations_are_those_of_pandas_to_rounding(exact, frame, name, low, high):
    found = column_of(exact, name)
    for v, view in enumerate(views(frame)):
        x = view[name].clip(low, high)
        assert found.figures["mean"][v].value == pytest.approx(x.mean(), rel=1e-10)
        assert found.figures["standard deviation"][v].value == pytest.approx(x.std(), rel=1e-9)
        missing = [level for level in found.levels if level.name == "<missing>"]
        assert sum(level.counts[v].value for level in missing) == x.isna().sum()


def test_quartiles_are_those_of_pandas_up_to_a_bin_and_so_are_bins(exact, frame):
    for name, low, high in (("age", 20, 80), ("dose", 0, 10)):
        found, widest = column_of(exact, name), (high - low) / 64
        for v, view in enumerate(views(frame)):
            x = view[name].clip(low, high)
            for figure, q in (("lower quartile", 0.25), ("median", 0.5), ("upper quartile", 0.75)):
                one, true = found.figures[figure][v], np.nanquantile(x, q, method="inverted_cdf")
                assert one.low <= true <= one.high
                assert abs(one.value - true) <= widest * 1.001
    edges = {end for level in column_of(exact, "dose").levels[:-1] for end in level.name.split(" to ")}
    assert {"0", "1", "4", "10"} <= edges  # those of the schema are among them


def test_intervals_without_noise_are_those_of_the_textbook(exact, frame):
    """Wilson's for a share; for a mean, the normal one: the noise is 0, and all that is left is sampling."""
    level = column_of(exact, "came").levels[0]
    for v, view in enumerate(views(frame)):
        n, count = len(view), int(levels_in(view)["came"]["Q1"])
        wilson = stats.binomtest(count, n).proportion_ci(method="wilson")
        # A share of a group is one of those that happened to be in it.
        assert (level.shares[v].low, level.shares[v].high) == pytest.approx((wilson.low, wilson.high), rel=1e-9)
        x = view.age.clip(20, 80)
        half = stats.norm.ppf(0.975) * x.std(ddof=0) / math.sqrt(n)
        one = column_of(exact, "age").figures["mean"][v]
        assert (one.high - one.low) / 2 == pytest.approx(half, rel=1e-6)


def test_standardised_differences_are_those_of_their_definition(exact, frame):
    no, yes = views(frame)[1:]
    x, y = no.age.clip(20, 80), yes.age.clip(20, 80)
    (far, _) = column_of(exact, "age").differences
    assert far.value == pytest.approx((y.mean() - x.mean()) / math.sqrt((x.var(ddof=0) + y.var(ddof=0)) / 2), rel=1e-9)
    p, q = (levels_in(view)["ward"]["south"] / len(view) for view in (no, yes))
    level = next(level for level in column_of(exact, "ward").levels if level.name == "south")
    assert level.differences[0].value == pytest.approx((q - p) / math.sqrt((p * (1 - p) + q * (1 - q)) / 2), rel=1e-9)


def test_a_group_that_nobody_is_in_looks_like_a_small_one(exact):
    """Whether there is anybody in it is private: it is not refused, and nothing is said of it."""
    assert exact.groups == ("no", "yes", "<missing>")
    assert column_of(exact, "age").figures["mean"][3].value is None
    assert column_of(exact, "age").differences[1].value is None


def test_counts_add_up_in_all_directions(noisy):
    sizes = [size.value for size in noisy.sizes]
    assert sum(sizes) == noisy.rows == 3000
    for column in noisy.columns:
        counts = np.array([[one.value for one in level.counts] for level in column.levels])
        assert counts.min() >= 0
        assert np.array_equal(counts, np.round(counts))
        assert counts[:, 0].sum() == 3000
        np.testing.assert_array_equal(counts[:, 0], counts[:, 1:].sum(axis=1))
        np.testing.assert_array_equal(counts[:, 1:].sum(axis=0), sizes)


def test_what_the_noise_hides_is_not_told(frame):
    """Of 12 rows at a small epsilon nothing is known, and no figure is made up of noise."""
    for one in describe(frame[:12], SCHEMA, epsilon=0.01).lines():
        if one.figure != "count":
            assert one.value is None, one


def test_every_number_lies_in_its_interval(noisy):
    for line in noisy.lines():
        assert line.value is None or line.low <= line.value <= line.high, line


def test_noise_is_added_and_is_what_is_said(frame):
    """Two descriptions of the same rows differ by the noise that they state."""
    several = [describe(frame, SCHEMA, epsilon=1.0, columns=["came", "ward"]) for _ in range(30)]
    counts = np.array([[level.counts[0].value for level in column_of(one, "came").levels] for one in several])
    said = column_of(several[0], "came").noise * math.sqrt(3 / 4)  # they add up to 3,000
    assert 0.6 * said < np.sqrt(counts.var(axis=0, ddof=1).mean()) < 1.6 * said


def test_parts_of_the_budget_are_of_its_square(frame):
    even = describe(frame, SCHEMA, epsilon=1.0, columns=["came", "ward", "smoker"])
    more = describe(frame, SCHEMA, epsilon=1.0, columns=["came", "ward", "smoker"], parts={"came": 0.5})
    assert column_of(more, "came").noise == pytest.approx(column_of(even, "came").noise * math.sqrt(2 / 3))
    assert column_of(more, "ward").noise == pytest.approx(column_of(even, "ward").noise * math.sqrt(4 / 3))


def test_one_column_has_less_noise_than_five(frame):
    names = list(SCHEMA.described)[:5]
    one, five = (describe(frame, SCHEMA, epsilon=1.0, columns=some) for some in (["came"], names))
    assert column_of(five, "came").noise == pytest.approx(column_of(one, "came").noise * math.sqrt(5), rel=1e-6)


def test_groups_cost_no_noise(frame):
    apart, together = (describe(frame, SCHEMA, epsilon=1.0, columns=["came"], by=by) for by in ("ward", None))
    assert column_of(apart, "came").noise == pytest.approx(column_of(together, "came").noise, rel=1e-9)


def test_people_cost_as_many_rows_as_they_have_and_intervals_know_it(frame):
    of_rows, of_people = (
        describe(frame, schema, epsilon=1.0, columns=["came"]) for schema in (SCHEMA, replace(SCHEMA, **BY_PERSON))
    )
    assert column_of(of_people, "came").noise == pytest.approx(4 * column_of(of_rows, "came").noise, rel=1e-7)
    assert of_people.privacy.unit.people
    exact = [describe(frame, schema, columns=["came"], **EXACT) for schema in (SCHEMA, replace(SCHEMA, **BY_PERSON))]
    widths = [one.high - one.low for found in exact for one in [column_of(found, "came").levels[0].shares[0]]]
    assert widths[1] == pytest.approx(2 * widths[0], rel=0.01)  # rows of a person may be alike: as if there were N / 4


def test_sites_are_named_by_a_column(frame):
    found = describe(frame, SCHEMA, columns=["came"], site_column="clinic", epsilon=1.0)
    assert found.rows == 3000
    assert "3 sites" in found.privacy.prose()


def untouched():
    charged = []
    return charged, {"charge": charged.append}


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({"by": "height"}, "a column of the schema"),
        ({"by": "age"}, "with levels to group by"),
        ({"columns": ["came", "came"]}, "every column once"),
        ({"columns": ["came", "ill"], "by": "ill"}, "not described as well"),
        ({"columns": ["wings"]}, "'wings'"),
        ({"columns": []}, "at least 1 column"),
        ({"parts": {"wings": 0.5}}, "parts of the budget for columns"),
        ({"parts": {"came": 1.5}}, "between 0 and 1"),
        ({"columns": ["came"], "parts": {"came": 0.5}}, "add up to 1"),
        ({"epsilon": 0.0}, "epsilon > 0"),
        ({"epsilon": 50.0}, "protects next to nothing"),
        ({"delta": 0.5}, "may fail altogether"),
        ({"nodes": 3, "colluding": 3}, "colluding"),
        ({"nodes": 3, "site_column": "clinic"}, "got both"),
        ({"site_column": "age"}, "site column"),
        ({"sites_per_person": 2}, "names people"),
    ],
)
def test_what_makes_no_sense_is_refused_and_costs_nothing(frame, asked, words):
    charged, how = untouched()
    with pytest.raises(sv.SottovoceError, match=words):
        describe(frame, SCHEMA, **{"epsilon": 1.0, **asked, **how})
    assert charged == []


def test_a_cell_that_does_not_fit_is_refused_and_costs_nothing(frame):
    charged, how = untouched()
    bad = frame.assign(age=frame.age.where(frame.index != 7, None))
    with pytest.raises(sv.InputError, match="row 8, column 'age'"):
        describe(bad, SCHEMA, epsilon=1.0, **how)
    with pytest.raises(sv.InputError, match="'came'"):
        describe(frame.drop(columns="came"), SCHEMA, epsilon=1.0, **how)
    assert charged == []


def test_a_schema_that_nobody_reviewed_is_refused_or_noted(frame):
    schema = replace(SCHEMA, unreviewed=("columns.age.bounds",))
    with pytest.raises(sv.PrivacyError, match="review"):
        describe(frame, schema, epsilon=1.0)
    with pytest.warns(sv.PrivacyLeakWarning):
        found = describe(frame, schema, epsilon=1.0, columns=["came"], unreviewed=True)
    assert any("not reviewed" in note for note in found.privacy.notes)


def test_a_file_and_a_page_have_all_numbers(noisy):
    lines = list(csv.DictReader(io.StringIO(noisy.to_csv())))
    assert len(lines) == len(list(noisy.lines()))
    assert {line["figure"] for line in lines} >= {"count", "share", "mean", "median", "difference"}
    told = json.loads(json.dumps(plain(noisy), allow_nan=False))
    assert told["rows"] == 3000
    assert told["privacy"]["epsilon"] <= 1.0
    shown = repr(noisy)
    assert "epsilon = 1" in shown
    assert "yes - no" in shown
    assert "<b>" not in noisy._repr_html_()
    assert "&lt;other&gt;" in noisy._repr_html_()


def test_names_of_strangers_are_escaped():
    schema = replace(SCHEMA, columns=(Categorical(name="<b>ward", categories=("<i>a", "b")),))
    found = describe(pd.DataFrame({"<b>ward": ["<i>a", "b"] * 50, "ill": ["yes", "no"] * 50}), schema, epsilon=1.0)
    assert "<i>" not in found._repr_html_()
    assert "<b>ward" not in found._repr_html_()
