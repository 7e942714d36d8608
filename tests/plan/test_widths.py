"""Predicted intervals: held against a fit without privacy, against runs of the simulator, and against arithmetic."""

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy.special import expit
from sklearn.linear_model import LogisticRegression

from sottovoce import MaskedNewton
from sottovoce.errors import InputError
from sottovoce.files.models.coefficients import table_of
from sottovoce.files.schema import Schema
from sottovoce.noise.sources import SeededNoise, Shape
from sottovoce.plan import intervals
from sottovoce.plan.schema_rows import table
from sottovoce.plan.synthetic import Belief
from sottovoce.plan.widths import TOLD, released
from sottovoce.privacy import ROW, Unit
from sottovoce.problem import graphs
from sottovoce.problem.answers import Answers
from sottovoce.problem.losses import Logistic
from sottovoce.problem.sites import Sites
from sottovoce.settings import plain
from sottovoce.settings.supplied import Supplied
from sottovoce.simulation.exchange import Local

SCHEMA = Schema.loads("""
version = 1
[label]
column = "ill"
classes = ["no", "yes"]
[supplied]
base_rate = 0.3
predictability = "somewhat"
[[columns]]
name = "age"
kind = "numeric"
bounds = [0, 100]
scale = "symmetric"
[[columns]]
name = "ward"
kind = "categorical"
categories = ["north", "south", "west"]
shares = [0.6, 0.3, 0.1]
reference = "north"
[[columns]]
name = "smoker"
kind = "boolean"
shares = [0.2, 0.8]
""")
NAMES = ("age", "ward=south", "ward=west", "smoker", "intercept")
QUIET = MaskedNewton(epsilon=1e4, delta=1e-6, inference=True, rounds=16)  # next to no noise
BELIEF = Belief(base_rate=0.3, explained=(0.1, 0.1))


def asked(**settings):
    return MaskedNewton(**{"epsilon": 1.0, "delta": 1e-6, "inference": True, **settings})


def widths(found):
    return np.array([line.width.median for line in found.lines])


def test_without_noise_they_are_those_of_the_fisher_information():
    """On the same made-up rows, by scikit-learn's optimum and a formula of textbooks, in the units of the columns."""
    data, rows = table(SCHEMA, 4000, Logistic(), seed=5, belief=BELIEF), 32_000
    evidence = released(QUIET, data, [rows], ROW, seed=0)
    lines = table_of(QUIET, evidence, SCHEMA, data.names, Answers.of(SCHEMA)).lines
    # In the units of the columns: age in years, levels and the constant as they are.
    a = data.features.toarray() * SCHEMA.encoded_norm * np.array([50, 1, 1, 1, 1.0]) + np.array([50, 0, 0, 0, 0.0])
    fitted = LogisticRegression(C=np.inf, tol=1e-10, max_iter=5000, fit_intercept=False).fit(
        a / [50, 1, 1, 1, 1], data.labels
    )
    w = fitted.coef_[0] / [50, 1, 1, 1, 1]
    p = expit(a @ w)
    information = a.T @ (a * (p * (1 - p))[:, None]) * rows / len(a)
    # The calibration of errors rests on 400 draws, of which the 95 % quantile is known to about 5 %.
    expected = 2 * 1.959964 * np.sqrt(np.diag(np.linalg.inv(information)))
    assert tuple(line.name for line in lines) == NAMES
    np.testing.assert_allclose([line.high - line.low for line in lines], expected, rtol=0.08)
    np.testing.assert_allclose([line.estimate for line in lines], w, atol=0.02 * expected.max())


@pytest.mark.parametrize(("sites", "colluding", "unit"), [(1, 0, ROW), (8, 3, ROW), (4, 1, Unit(3, 2))])
def test_the_noise_is_that_of_a_real_run(sites, colluding, unit):
    """As many made-up rows as there are rows, run by the simulator, which has a curator of its own."""
    data, each = table(SCHEMA, 8000, Logistic(), seed=1, belief=BELIEF), 8000 // sites
    algorithm = asked(epsilon=4.0, colluding=colluding, rounds=8)
    here = released(algorithm, data, [each] * sites, unit, seed=0)
    parts = [slice(i * each, (i + 1) * each) for i in range(sites)]
    held = Sites([data.features[s] for s in parts], [data.labels[s] for s in parts], clip=True, unit=unit)
    graph = graphs.complete(sites)
    site = algorithm.oracle(held, graph)
    *_, last = algorithm.play(site, 1, Local(graph.exchange), SeededNoise(0, Shape(sites, site.d, 1)))
    (there,) = last.evidence
    assert (here.rows, here.together) == (there.rows, there.together)
    # The whitening rests on noisy second moments, and the weights of gradients on the way of the descent.
    assert here.gradient_noise == pytest.approx(there.gradient_noise, rel=0.1)
    assert here.hessian_noise == pytest.approx(there.hessian_noise, rel=0.1)


def test_without_noise_four_times_the_rows_halve_them():
    one, four = (widths(intervals(QUIET, SCHEMA, [rows])) for rows in (20_000, 80_000))
    np.testing.assert_allclose(one / four, 2.0, rtol=0.03)


def test_with_much_noise_they_shrink_faster_than_the_root_of_rows_and_with_epsilon():
    little, more = (intervals(asked(rounds=8, epsilon=0.5), SCHEMA, [rows]) for rows in (20_000, 80_000))
    assert np.median(widths(little) / widths(more)) > 2.2
    assert np.all(widths(intervals(asked(rounds=8, epsilon=4.0), SCHEMA, [20_000])) < widths(little))


def test_a_rare_level_is_known_worse_and_shares_that_are_known_narrow_the_range():
    found = {line.name: line for line in intervals(asked(epsilon=8.0), SCHEMA, [20_000]).lines}
    assert found["ward=west"].width.median > 1.25 * found["ward=south"].width.median
    open_ = replace(SCHEMA, columns=tuple(replace(column, shares=None) for column in SCHEMA.columns))
    unknown = {line.name: line for line in intervals(asked(epsilon=8.0), open_, [20_000]).lines}
    for name in ("ward=south", "ward=west", "smoker"):
        ratio = [line.width.high / line.width.low for line in (found[name], unknown[name])]
        assert ratio[0] < ratio[1]
    notes = " ".join(intervals(asked(), open_, [2_000]).notes)
    assert "how frequent the levels of ward, smoker are" in notes
    assert "levels of" not in " ".join(intervals(asked(), SCHEMA, [2_000]).notes)


def test_a_common_positive_class_says_more():
    rare, common = (
        widths(intervals(asked(epsilon=8.0), SCHEMA, [40_000], supplied=Supplied(base_rate=rate, predictability=0.1)))
        for rate in (0.03, 0.5)
    )
    assert np.median(rare / common) > 1.8  # without noise, about the root of 0.25 / 0.03


def test_what_a_part_of_the_budget_goes_to_is_in_it():
    plainly = intervals(asked(rounds=8), SCHEMA, [40_000])
    judged = intervals(asked(rounds=10, evaluate=0.4, hold_out=2), SCHEMA, [40_000])
    # Half of the rows and 0.6 of the budget: more than the root of 2 wider, even were there no noise.
    assert np.median(widths(judged) / widths(plainly)) > 1.5


def test_what_is_told_from_1_is_what_the_normal_law_says():
    """An interval excludes 0 with chance 0.8 if the effect is so many half-widths away."""
    from scipy.stats import norm

    for line in intervals(asked(epsilon=8.0), SCHEMA, [40_000]).lines:
        effect, error = math.log(line.ratio) / line.span, line.width.median / 2 / norm.ppf(0.975)
        assert norm.cdf(effect / error - norm.ppf(0.975)) == pytest.approx(0.8)
    assert pytest.approx(1 + norm.ppf(0.8) / norm.ppf(0.975)) == TOLD
    spans = {line.name: line.span for line in intervals(asked(), SCHEMA, [2_000]).lines}
    assert spans == {"age": 100, "ward=south": 1, "ward=west": 1, "smoker": 1, "intercept": 1}


def test_what_it_would_take_is_found_by_the_same_prediction():
    found = intervals(asked(), SCHEMA, [10_000] * 2)
    for name, needs in found.needs.items():
        rows = [math.inf if need.rows is None else need.rows for need in needs]
        epsilons = [math.inf if need.epsilon is None else need.epsilon for need in needs]
        assert rows == sorted(rows, reverse=True)
        assert epsilons == sorted(epsilons, reverse=True)
        for need in needs[1:]:
            assert need.rows is not None, name
            again = next(line for line in intervals(asked(), SCHEMA, [need.rows // 2] * 2).lines if line.name == name)
            assert again.ratio < 1.25 * need.ratio
            less = next(line for line in intervals(asked(), SCHEMA, [need.rows // 8] * 2).lines if line.name == name)
            assert not less.expected or less.ratio > need.ratio
    data = plain(found)
    assert data["needs"]["age"][2]["ratio"] == 3.0
    assert set(data["lines"][0]) == {"name", "width", "span", "identified", "ratio", "factor"}


def test_where_nothing_will_come_of_it():
    nothing = intervals(asked(epsilon=0.1), SCHEMA, [200])
    assert nothing.hopeless
    assert "for 0 of 4 coefficients, of 2 for 0, of 1.5 for 0" in nothing.summary
    assert "Until the first coefficient does, it would take about" in nothing.nearest
    something = intervals(asked(epsilon=4.0), SCHEMA, [50_000])
    assert not something.hopeless
    assert len(something.telling(2.0)) == 4


def test_with_focus_only_what_is_asked_for_counts():
    """Another coefficient that tells something is no reason to spend."""
    found = intervals(asked(focus=(0,)), SCHEMA, [2_000])
    south = next(line for line in found.lines if line.name == "ward=south")
    assert south.expected
    assert south.ratio < 3
    assert [line.name for line in found.asked] == ["age"]
    assert found.hopeless
    assert "for 0 of 1 focused coefficients, of 2 for 0" in found.summary
    rows, epsilon = found.needs["age"][-1][1:]
    assert f"it would take about {rows:,} rows, or epsilon {epsilon:.2g}." in found.nearest


def test_counts():
    from sottovoce.files.schema.labels import NumberLabel

    label = NumberLabel(column="visits", bounds=(0, 20), counts=True)
    counted = replace(SCHEMA, label=label, supplied=None)
    found = intervals(asked(epsilon=8.0), counted, [20_000])
    assert found.family == "poisson"
    assert "rate ratio of 3" in found.summary
    assert all(math.isfinite(line.width.median) for line in found.lines)


@pytest.mark.parametrize(
    ("algorithm", "change", "counts", "message"),
    [
        (MaskedNewton(), {}, [100], "inference=True, got inference=False"),
        (asked(), {}, [], "at least one row at every site"),
        (asked(), {}, [5, 0], "at least one row at every site"),
        (asked(), {"reference": None}, [100], "'ward' add up to the same as the intercept"),
    ],
)
def test_refusals(algorithm, change, counts, message):
    columns = (SCHEMA.columns[0], replace(SCHEMA.columns[1], **change), SCHEMA.columns[2])
    with pytest.raises(InputError, match=message):
        intervals(algorithm, replace(SCHEMA, columns=columns), counts)
