"""Intervals hold the population's own figures as often as they say, with rows and noise drawn anew each time.

benchmarks/table_coverage.py does it on real tables, and longer.
"""

import math

import numpy as np
import pytest
from scipy import stats

import sottovoce as sv
from helpers.laws import NEVER
from sottovoce.algorithms.tabulation import Tabulation
from sottovoce.files.schema import Categorical, Numeric
from sottovoce.problem.dataset import Dataset
from sottovoce.problem.problem import Problem
from sottovoce.simulation.asking import ask
from sottovoce.tables.coding import Coding, Levels, Number, edges_of
from sottovoce.tables.description import description_of

ROWS, REPEATED = 1500, 300
SEX = Categorical(name="sex", categories=("f", "m"))
WARD = Categorical(name="ward", categories=("a", "b", "c"), missing="indicator")
AGE = Numeric(name="age", bounds=(0, 10), scale="unit", missing="indicator")
CODING = Coding((Levels((WARD,)), Number(AGE, edges_of(AGE, 16))), None, Levels((SEX,)))


def drawn(rng, count):
    """Codes of rows: sex, ward and age, which go together; some are missing, and age is in whole numbers."""
    sex = (rng.random(count) < 0.4).astype(float)
    ward = np.where(rng.random(count) < 0.05, np.nan, rng.choice(3, count, p=[0.5, 0.49, 0.01]))
    age = np.round(rng.beta(2 + sex, 4, count) * 10) / 10
    return np.column_stack([sex, ward, np.where(rng.random(count) < 0.1, np.nan, age)])


def described(codes, seed, wrong=1.0):
    data = Dataset(codes, np.zeros(len(codes)), ("sex", "ward", "age"), len(codes), math.inf, "made up")
    coded = CODING.coded(data)
    sites = sv.Sites([coded.features], [coded.labels], data_norm=coded.data_norm)
    found = ask(Problem(sites, sv.graphs.complete(1)), Tabulation(delta=1e-6, what="rows"), seed=seed)
    std = float(found.answer.std.item()) * wrong
    return description_of(CODING, found.answer.value[:, 0], std, len(codes), found.privacy)


def targets(codes):
    """A function that gives, of a description, pairs of an interval and what it is for, by kind."""
    groups = [codes, codes[codes[:, 0] == 0], codes[codes[:, 0] == 1]]
    ages = [10 * group[:, 2][~np.isnan(group[:, 2])] for group in groups]
    south = [np.mean(group[:, 1] == 1) for group in groups]
    spread = [(p * (1 - p)) for p in south]

    def of(found):
        ward, age = found.columns
        figures = age.figures
        return {
            "share": (ward.levels[1].shares[1], south[1]),
            "share of a rare level": (ward.levels[2].shares[2], np.mean(groups[2][:, 1] == 2)),
            "count": (ward.levels[0].counts[0], ROWS * np.mean(codes[:, 1] == 0)),
            "missing": (ward.levels[3].shares[0], np.mean(np.isnan(codes[:, 1]))),
            "size": (found.sizes[1], ROWS * np.mean(codes[:, 0] == 1)),
            "mean": (figures["mean"][2], ages[2].mean()),
            "standard deviation": (figures["standard deviation"][0], ages[0].std()),
            "median": (figures["median"][1], np.quantile(ages[1], 0.5, method="inverted_cdf")),
            "difference of means": (age.differences[0], (ages[2].mean() - ages[1].mean())
                                    / math.sqrt((ages[1].var() + ages[2].var()) / 2)),
            "difference of shares": (ward.levels[1].differences[0], (south[2] - south[1])
                                     / math.sqrt((spread[1] + spread[2]) / 2)),
        }  # fmt: skip

    return of


@pytest.fixture(scope="module", name="population")
def _population():
    return drawn(np.random.default_rng(7), 200_000)


def held(population, wrong=1.0, repeated=REPEATED):
    """How often each kind of interval held its target."""
    rng, known, counts = np.random.default_rng(8), targets(population), {}
    for seed in range(repeated):
        found = described(population[rng.integers(0, len(population), ROWS)], seed, wrong)
        for name, (one, target) in known(found).items():
            counts.setdefault(name, []).append(one.low is None or one.low <= target <= one.high)
    return {name: np.sum(one) for name, one in counts.items()}


AT_LEAST = ("median", "share of a rare level")  # a bin is known, and no place in it; a share is no less than 0


def test_intervals_hold_what_they_are_for_in_nineteen_of_twenty_descriptions(population):
    low, high = stats.binom.ppf([NEVER / 40, 1 - NEVER / 40], REPEATED, 0.95)
    for name, count in held(population).items():
        assert low <= count, name
        assert count <= high or name in AT_LEAST, name


def test_noise_that_is_told_too_small_would_be_found_out(population):
    """With a third of the noise said, intervals of what is mostly noise are far too narrow."""
    low = stats.binom.ppf(NEVER / 40, REPEATED, 0.95)
    found = held(population, wrong=1 / 3)
    assert all(found[name] < low for name in ("mean", "standard deviation"))
