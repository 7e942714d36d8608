import numpy as np
import pytest
from scipy import stats

from sottovoce.studies.statistics import falling, holm, interval, paired, unsteadiness, welch
from sottovoce.studies.verdict import comparison_of, judge, parts, trend


def runs(mean, count=10, spread=0.01, seed=0):
    return mean + spread * np.random.default_rng(seed).standard_normal(count)


def contest(*pairs):
    """Comparisons of (condition, opponent, our mean, their mean)."""
    made = []
    for number, (condition, against, ours, theirs) in enumerate(pairs):
        test = welch(runs(ours, seed=2 * number), runs(theirs, seed=2 * number + 1))
        made.append(comparison_of(condition, against, "Welch", test, 10))
    return made


def test_a_clear_win_holds():
    claim = judge("rivals", "better", contest(("fair", "PVP", 0.40, 0.50), ("fair", "DVP", 0.40, 0.60)))
    assert (claim.verdict, claim.condition) == ("holds", "")
    assert {c.outcome for c in claim.comparisons} == {"won"}


def test_a_tie_is_not_shown():
    claim = judge("rivals", "better", contest(("fair", "PVP", 0.4, 0.4)))
    assert claim.verdict == "not shown"
    assert claim.comparisons[0].outcome == "tie"


def test_a_loss_does_not_hold():
    claim = judge("rivals", "better", contest(("fair", "PVP", 0.5, 0.4)))
    assert claim.verdict == "does not hold"
    assert claim.comparisons[0].outcome == "lost"
    assert claim.comparisons[0].effect > 0


def test_a_condition_is_named():
    claim = judge(
        "rivals",
        "better",
        contest(
            ("as published", "PVP", 0.4, 0.9),
            ("as published", "DVP", 0.4, 0.9),
            ("fair", "PVP", 0.4, 0.9),
            ("fair", "DVP", 0.4, 0.3),
        ),
        untested=[("fair", "R-ADMM")],
    )
    assert claim.verdict == "holds only if"
    assert claim.condition == "as published; fair against PVP"
    pvp, dvp = parts(claim, "better than {}")
    assert (pvp.verdict, pvp.text) == ("holds", "better than PVP")
    assert (dvp.verdict, dvp.condition) == ("holds only if", "as published")
    assert dvp.comparisons == tuple(c for c in claim.comparisons if c.against == "DVP")
    assert claim.untested == (("fair", "R-ADMM"),)
    assert dvp.untested == ()


def test_nothing_to_compare():
    assert judge("rivals", "better", []).verdict == "not tested"


def test_the_correction_is_within_the_claim():
    weak = contest(("fair", "PVP", 0.400, 0.408))
    assert judge("one", "", weak).comparisons[0].p_holm == weak[0].p
    many = judge("many", "", weak * 20).comparisons[0]
    assert many.p_holm == pytest.approx(min(1.0, 20 * weak[0].p))


def columns(*means, seed=0):
    return np.stack([runs(mean, seed=seed + i) for i, mean in enumerate(means)], axis=1)


def test_a_falling_trend_holds():
    claim = judge("trend", "", [trend("fair", "epsilon", [0.1, 1, 8], columns(0.6, 0.5, 0.4))])
    assert claim.verdict == "holds"
    assert claim.comparisons[0].effect == pytest.approx(-0.2, abs=0.02)


def test_a_trend_that_turns_holds_up_to_the_turn():
    matrix = columns(0.60, 0.50, 0.40, 0.45, 0.55)
    claim = judge("trend", "", [trend("t fixed", "l", [1, 2, 5, 10, 25], matrix)])
    assert claim.verdict == "holds only if"
    assert claim.condition == "t fixed, l <= 5"
    assert claim.comparisons[0].outcome == "partly"


def test_a_rising_trend_does_not_hold():
    claim = judge("trend", "", [trend("t fixed", "l", [1, 2, 5], columns(0.4, 0.5, 0.6))])
    assert claim.verdict == "does not hold"
    assert claim.comparisons[0].outcome == "lost"


def test_no_trend_is_a_tie():
    assert trend("", "l", [1, 2, 5, 10], columns(0.5, 0.5, 0.5, 0.5)).p > 0.05


def test_holm_against_the_definition():
    assert holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert holm([]) == []


def test_tests_against_scipy():
    ours, theirs = runs(0.4, seed=1), runs(0.41, 7, 0.02, seed=2)
    expected = stats.ttest_ind(np.log(ours), np.log(theirs), equal_var=False, alternative="less").pvalue
    assert welch(ours, theirs).p == pytest.approx(expected)
    assert welch(ours, theirs).p_reverse == pytest.approx(1 - expected)
    also = runs(0.41, seed=3)
    assert paired(ours, also).p == pytest.approx(stats.ttest_rel(np.log(ours), np.log(also), alternative="less").pvalue)
    assert falling(columns(0.6, 0.5, 0.4)) == pytest.approx(stats.page_trend_test(-columns(0.6, 0.5, 0.4)).pvalue)


def test_single_runs_and_overflows_are_survived():
    assert welch(runs(0.4), np.array([np.inf, np.nan, np.inf])).p < 0.05
    assert welch(runs(0.4), np.array([0.5])).p == 1.0
    assert welch(np.full(3, 0.4), np.full(3, 0.5)).p == 0.0
    assert np.isnan(interval(np.array([0.4])).low)


def test_interval_against_scipy():
    values = runs(0.4)
    mean, low, high = interval(values)
    expected = stats.t.interval(0.95, 9, loc=values.mean(), scale=stats.sem(values))
    assert (low, high) == pytest.approx(expected)
    assert mean == pytest.approx(values.mean())


def test_unsteadiness_is_the_mean_change_over_late_rounds():
    curve = np.array([[9.0, 9.0], [1.0, 2.0], [2.0, 2.0], [0.0, 2.0]])
    assert unsteadiness(curve, 2).tolist() == [1.5, 0.0]
    curve[:, 1] = np.inf
    assert unsteadiness(curve, 2)[1] > 1e6  # not steady because it cannot move any more
