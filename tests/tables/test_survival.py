"""Survival curves: without noise they are scipy's, and so is the test; with noise they add up, and fall."""

import json
import math
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from scipy import stats

import sottovoce as sv
from sottovoce.settings import plain
from sottovoce.tables import survival
from tables.lives import ARM, BY_PERSON, EXACT, LABEL, SCHEMA, codes_of, coding_of, found_of, rows

UNTIL = LABEL.until


@pytest.fixture(scope="module", name="frame")
def _frame():
    return rows()


def censored(part, until=math.inf):
    """Times and events of rows, as scipy has them; all are censored at `until`."""
    time, died = np.minimum(part.months, until), (part.died == 1) & (part.months <= until)
    return stats.CensoredData(uncensored=time[died], right=time[~died])


def kaplan_meier(part, times):
    return stats.ecdf(censored(part)).sf.evaluate(np.asarray(times))


def values(intervals):
    return np.array([one.value for one in intervals])


def test_without_noise_curves_are_kaplan_meier_s_where_times_are_ends_of_bins(frame):
    found = survival(frame, SCHEMA, by="arm", **EXACT)
    for curve, part in zip(found.curves, [frame, *(frame[frame.arm == one] for one in found.groups)], strict=True):
        expected = kaplan_meier(part, found.times)
        np.testing.assert_allclose(values(curve.survival), expected, rtol=1e-12)
        assert values(curve.at_risk).tolist() == [np.sum(part.months > time) for time in found.times]
        assert curve.mean.value == pytest.approx(np.trapezoid(expected, found.times), rel=1e-12)


def test_without_noise_curves_are_close_to_kaplan_meier_s_wherever_times_are():
    """Rows that are censored in a bin count for the part that they are watched: nothing is assumed of that part."""
    frame = rows(20_000, whole=False)
    found = survival(frame, SCHEMA, **EXACT)
    expected = kaplan_meier(frame, found.times)
    assert np.abs(values(found.curves[0].survival) - expected).max() < 0.001
    early = frame.assign(months=np.where(frame.died == 1, frame.months, np.floor(frame.months) + 0.01))
    found = survival(early, SCHEMA, **EXACT)
    assert np.abs(values(found.curves[0].survival) - kaplan_meier(early, found.times)).max() < 0.0025


def test_without_noise_the_test_is_scipy_s(frame):
    two = frame[frame.arm != "none"]
    found = survival(two, replace(SCHEMA, columns=(replace(SCHEMA.columns[0], categories=("new", "old")),)),
                     by="arm", **EXACT).log_rank  # fmt: skip
    new, old = (censored(two[two.arm == arm], UNTIL) for arm in ("new", "old"))
    expected = stats.logrank(new, old)
    assert found.statistic == pytest.approx(expected.statistic**2, rel=1e-9)
    assert found.freedom == 1
    assert found.until == UNTIL
    same = rows(seed=5, arms=("new",)).assign(arm=lambda part: np.where(np.arange(len(part)) % 2, "new", "old"))
    schema = replace(SCHEMA, columns=(replace(SCHEMA.columns[0], categories=("new", "old")),))
    ours = survival(same, schema, by="arm", **EXACT).log_rank
    theirs = stats.logrank(*(censored(same[same.arm == arm], UNTIL) for arm in ("new", "old")))
    assert ours.p == pytest.approx(theirs.pvalue, abs=6 * math.sqrt(0.25 / ours.draws) + 0.01)


def test_without_noise_the_test_of_three_groups_is_the_textbook_s(frame):
    """The events of a month are drawn from those at risk: scipy's multivariate hypergeometric law."""
    found = survival(frame, SCHEMA, by="arm", **EXACT).log_rank
    apart, spread = np.zeros(3), np.zeros((3, 3))
    parts = [frame[frame.arm == arm] for arm in ("new", "old", "none")]
    for month in range(1, 13):
        at_risk = [int(np.sum(part.months >= month)) for part in parts]
        died = [int(np.sum((part.months == month) & (part.died == 1))) for part in parts]
        law = stats.multivariate_hypergeom(m=at_risk, n=sum(died))
        apart += died - law.mean()
        spread += law.cov()
    assert found.statistic == pytest.approx(apart @ np.linalg.pinv(spread) @ apart, rel=1e-9)
    assert found.freedom == 2


def test_without_noise_the_median_is_where_the_curve_is_one_half():
    frame = rows(4000, whole=False)
    curve = survival(frame, SCHEMA, **EXACT).curves[0]
    sorted_, km = np.unique(frame.months), kaplan_meier(frame, np.unique(frame.months))
    assert curve.median.value == pytest.approx(sorted_[km <= 0.5][0], abs=0.1)
    assert curve.median.low < curve.median.value < curve.median.high


def test_a_curve_that_stays_above_one_half_has_no_median():
    frame = rows(4000).assign(died=lambda part: (np.arange(len(part)) % 10 == 0).astype(int))
    curve = survival(frame, SCHEMA, epsilon=2.0).curves[0]
    assert curve.median.value is None
    assert curve.median.high is None
    assert curve.median.low == UNTIL
    assert "or later" in repr(survival(frame, SCHEMA, epsilon=2.0))


def test_edges_may_be_given():
    label = replace(LABEL, bins=None, edges=(1.0, 3.0, 6.0))
    frame = rows()
    found = survival(frame, replace(SCHEMA, label=label), **EXACT)
    assert found.times == (0.0, 1.0, 3.0, 6.0, 12.0)
    months = frame.assign(months=np.array(found.times)[np.searchsorted(found.times, np.minimum(frame.months, 12))])
    months = months.assign(died=frame.died.where(frame.months <= 12, 0))
    np.testing.assert_allclose(
        values(found.curves[0].survival)[:2], kaplan_meier(months, found.times)[:2], rtol=1e-12
    )  # one month is one bin


def test_what_happens_beyond_the_last_bin_does_not_matter(frame):
    late = frame.assign(died=frame.died.where(frame.months <= UNTIL, 1 - frame.died))
    later = frame.assign(months=frame.months.where(frame.months <= UNTIL, 1e6))
    assert (frame.months > UNTIL).any()
    for other in (late, later):
        one, two = (survival(part, SCHEMA, **EXACT).curves for part in (frame, other))
        assert one == two


def test_with_noise_curves_fall_lie_in_their_intervals_and_groups_add_up(frame):
    found = found_of(coding_of(by=ARM), codes_of(frame), seed=1)
    everyone, *groups = found.curves
    assert found.rows == len(frame) == everyone.at_risk[0].value
    np.testing.assert_array_equal(values(everyone.at_risk), sum(values(curve.at_risk) for curve in groups))
    for curve in found.curves:
        told = [one for one in curve.survival if one.value is not None]
        assert told[0].value == 1.0
        assert len(told) > 4
        assert all(a.value >= b.value for a, b in pairwise(told))
        assert all(a.value >= b.value >= 0 for a, b in pairwise(curve.at_risk))
        for one in (*told, *curve.at_risk):
            assert one.low <= one.value <= one.high
        hidden = curve.survival[len(told) :]
        assert all(one.value is None and one.low == 0 and 0 < one.high <= 1 for one in hidden)
        assert (curve.mean.value is None) == bool(hidden)
        assert 0 <= curve.mean.low < curve.mean.high <= UNTIL
    assert any(one.value is None for curve in groups for one in curve.survival)
    assert "–" in repr(found)


def test_private_rows_of_several_sites_have_one_guarantee(frame):
    found = survival(frame, SCHEMA, by="arm", epsilon=1.0, nodes=3)
    assert 0.9 < found.privacy.epsilon <= 1.0
    assert "in each bin of time, by 'arm'" in found.privacy.prose()
    told = json.loads(json.dumps(plain(found), allow_nan=False))
    assert told["log_rank"]["p"] == found.log_rank.p
    assert told["format"] == "sottovoce-survival/1"
    assert found.groups == ("new", "old", "none")


def test_a_group_without_rows_is_not_refused_and_tells_nothing(frame):
    """That it is empty is private."""
    found = found_of(coding_of(by=ARM), codes_of(frame[frame.arm != "none"]), seed=2)
    empty = found.curves[3]
    assert [one.value for one in empty.survival[1:]] == [None] * 12
    assert empty.at_risk[0].low == 0
    assert found.log_rank.p > 0
    assert survival(frame[frame.arm != "none"], SCHEMA, by="arm", epsilon=1.0).groups == ("new", "old", "none")


def test_hardly_any_rows_tell_nothing():
    found = found_of(coding_of(by=ARM), codes_of(rows(20)), seed=3, epsilon=0.1)
    assert found.log_rank.statistic is None
    assert found.log_rank.p == 1.0
    assert "nothing can be tested" in repr(found)
    assert all(one.value is None for curve in found.curves for one in curve.survival[1:])
    assert math.isclose(found.curves[0].mean.high, UNTIL)


def test_the_same_sum_has_the_same_p(frame):
    one, two = (found_of(coding_of(by=ARM), codes_of(frame), seed=4).log_rank for _ in range(2))
    assert one == two


def test_people_cost_as_many_rows_as_they_have_and_sampling_is_wider(frame):
    single, both = survival(frame, SCHEMA, epsilon=1.0), survival(frame, replace(SCHEMA, **BY_PERSON), epsilon=1.0)
    assert both.noise == pytest.approx(2 * single.noise, rel=1e-6)
    exact = [survival(frame, schema, **EXACT).curves[0].survival[6]
             for schema in (SCHEMA, replace(SCHEMA, **BY_PERSON))]  # fmt: skip
    narrow, wide = (one.high - one.low for one in exact)
    assert wide == pytest.approx(math.sqrt(2) * narrow, rel=0.02)


def test_csv_has_a_line_for_each_number(frame):
    found = survival(frame, SCHEMA, by="arm", epsilon=1.0)
    heading, *lines = found.to_csv().splitlines()
    assert heading == "group,figure,time,value,low,high"
    assert len(lines) == 4 * (13 + 13 + 2)
    point = found.curves[1].survival[2]
    assert f"new,survival,2.0,{point.value!r},{point.low!r},{point.high!r}" in lines
    assert "Log-rank" in repr(found)


def test_it_is_drawn_with_numbers_at_risk(frame):
    plt = pytest.importorskip("matplotlib.pyplot")
    plt.switch_backend("agg")
    found = survival(frame, SCHEMA, by="arm", epsilon=1.0)
    axes = found.plot()
    lines = axes.get_lines()
    assert [line.get_label() for line in lines] == ["new", "old", "none"]
    drawn = [one.value for one in found.curves[2].survival]
    assert [None if math.isnan(y) else y for y in lines[1].get_ydata()] == drawn
    texts = [text.get_text() for text in axes.texts]
    assert f"{found.curves[1].at_risk[0].value:,.0f}" in texts
    assert any(text.startswith("log-rank p") for text in texts)
    assert len(survival(frame, SCHEMA, epsilon=1.0).plot().get_lines()) == 1
    plt.close("all")


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"months": -1.0}, "a time of 0 or more"),
        ({"months": None}, "a time of 0 or more"),
        ({"months": "soon"}, "a time of 0 or more"),
        ({"died": 2}, "one of 1, yes"),
        ({"died": None}, "one of 1, yes"),
        ({"arm": "both"}, "one of the categories"),
    ],
)
def test_rows_that_do_not_fit_are_refused_before_anything_is_charged(frame, tmp_path, changed, words):
    charged, bad = [], frame.astype(object)
    for column, value in changed.items():
        bad.loc[7, column] = value
    bad.to_csv(tmp_path / "rows.csv", index=False)
    with pytest.raises(sv.InputError, match=words) as refused:
        survival(tmp_path / "rows.csv", SCHEMA, by="arm", epsilon=1.0, charge=charged.append)
    assert "row 8" in str(refused.value)
    assert "private value" in str(refused.value)
    assert charged == []


@pytest.mark.parametrize(
    ("schema", "by", "words"),
    [
        (replace(SCHEMA, columns=(sv.schema.Numeric(name="arm", bounds=(0, 1), scale="unit"),)), "arm", "with levels"),
        (replace(SCHEMA, columns=(replace(SCHEMA.columns[0], categories=("new",)),)), "arm", "two levels or more"),
        (SCHEMA, "died", "not of the label"),
        (SCHEMA, "wings", "'wings'"),
        (replace(SCHEMA, label=sv.schema.ClassLabel(column="died", classes=("0", "1"))), None, "a time and an event"),
    ],
)
def test_what_makes_no_curves_is_refused_before_a_file_is_opened(schema, by, words):
    with pytest.raises(sv.InputError, match=words):
        survival("no such file", schema, by=by, epsilon=1.0)
