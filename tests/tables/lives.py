"""Times to an event, made up, with a schema and noisy tables of them, for tests of survival curves."""

import math

import numpy as np
import pandas as pd

import sottovoce as sv
from sottovoce.algorithms.tabulation import Tabulation
from sottovoce.files.schema import Categorical, Person, Schema, SurvivalLabel
from sottovoce.problem.dataset import Dataset
from sottovoce.problem.problem import Problem
from sottovoce.simulation.asking import ask
from sottovoce.tables.coding import Coding, Levels
from sottovoce.tables.follow_up import FollowUp
from sottovoce.tables.survival_curves import survival_of

ARM = Categorical(name="arm", categories=("new", "old", "none"))
LABEL = SurvivalLabel(time="months", event="died", until=12.0, bins=12)
SCHEMA = Schema(columns=(ARM,), label=LABEL)
BY_PERSON = {"person": Person(column="who", rows=2)}
EXACT = {"epsilon": math.inf, "force": True}


def rows(count=900, seed=0, whole=True, arms=("new", "old", "none")):
    """Rows of a study: events and censoring in all of its arms; times in whole months or anywhere, some beyond 12."""
    draws = np.random.default_rng(seed)
    arm = draws.choice(arms, count)
    ended = draws.exponential(np.where(arm == "new", 14.0, 9.0))
    left = np.minimum(draws.exponential(20.0, count), draws.uniform(4, 16, count))
    months = np.minimum(ended, left)
    return pd.DataFrame(
        {
            "months": np.ceil(months) if whole else months,
            "died": (ended <= left).astype(int),
            "arm": arm,
            "who": np.arange(count) // 2,
        }
    )


def coding_of(label=LABEL, by=None):
    """The coding that `survival` has."""
    part = FollowUp(*label.watched, tuple(end / label.until for end in label.ends))
    return Coding((part,), None, None if by is None else Levels((by,)))


def dataset(codes):
    """Rows as codes."""
    return Dataset(codes, np.zeros(len(codes)), tuple(map(str, range(codes.shape[1]))), len(codes), math.inf, "made up")


def codes_of(frame, by=True):
    """The codes of rows: arm, if there are groups, time and event."""
    arm = [frame.arm.map(list(ARM.categories).index).astype(float)] if by else []
    return np.column_stack([*arm, frame.months / LABEL.until, frame.died.astype(float)])


def found_of(coding, codes, seed, epsilon=1.0, together=1, wrong=1.0):
    """The answer for these codes, with noise from this seed; `wrong`: what it takes the noise for, as a multiple."""
    coded = coding.coded(dataset(codes))
    sites = sv.Sites([coded.features], [coded.labels], data_norm=coded.data_norm)
    asked = ask(Problem(sites, sv.graphs.complete(1)), Tabulation(epsilon=epsilon, delta=1e-6, what="rows"), seed=seed)
    std = float(asked.answer.std.item()) * wrong
    return survival_of(coding, asked.answer.value[:, 0], std, len(codes), asked.privacy, together)
