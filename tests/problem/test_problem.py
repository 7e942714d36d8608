"""A problem binds rows and network once; where they came from makes no difference afterwards."""

import csv
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import sottovoce as sv
from sottovoce import graphs, losses
from sottovoce.errors import InputError
from sottovoce.files.schema import ClassLabel, NumberLabel, Numeric, Schema
from sottovoce.oracle.plain import Oracle
from sottovoce.problem.answers import Answers
from sottovoce.problem.problem import Problem, grouped
from sottovoce.simulation.engine import simulate, solve

BOUNDS = st.tuples(st.floats(-1e6, 1e6), st.floats(-1e6, 1e6)).map(sorted)


@given(BOUNDS, st.booleans(), st.floats(0, 1))
def test_numbers_are_learnt_within_one_and_come_back(bounds, centred, share):
    low, high = bounds
    answers, label = Answers.between(low, high, centred=centred), np.array([low + share * (high - low)])
    learnt = answers.learnt(label)
    assert abs(learnt[0]) <= 1 + 1e-9
    assert answers.offset + answers.scale * learnt[0] == pytest.approx(label[0], abs=1e-9 * (1 + abs(low) + abs(high)))
    assert answers.scale > 0
    assert centred or answers.offset == 0


def test_the_ends_of_the_bounds_are_one_each():
    assert Answers.between(-3.0, 7.0).learnt(np.array([-3.0, 2.0, 7.0])).tolist() == [-1, 0, 1]
    assert Answers.between(2.0, 8.0, centred=False).learnt(np.array([2.0, 8.0])).tolist() == [0.25, 1]
    assert np.isfinite(Answers.between(-1.7e308, 1.7e308).scale)


def test_classes_go_with_losses_that_decide():
    several = Answers.of(None, 3)
    assert several.classes_of(losses.Softmax(3)) == ("0", "1", "2")
    assert Answers().classes_of(losses.Logistic()) == ("-1", "+1")
    assert Answers().classes_of(losses.Huber()) is None
    with pytest.raises(InputError, match="Expected loss='softmax' for 3 classes"):
        several.loss("logistic")


@given(st.lists(st.sampled_from(["rome", "paris", "berlin", "oslo"]), min_size=1))
def test_rows_go_to_their_owners_in_order(owners):
    names, parts = grouped(owners)
    assert names == tuple(sorted(set(owners)))
    assert [part.tolist() for part in parts] == [[i for i, own in enumerate(owners) if own == name] for name in names]


@pytest.fixture(name="label", params=["classes", "number"])
def _label(request):
    if request.param == "classes":
        return ClassLabel(column="ill", classes=("no", "yes"))
    return NumberLabel(column="ill", bounds=(0.0, 9.0))


def test_one_file_with_a_site_column_is_as_one_file_for_each_site(tmp_path, label):
    schema = Schema(columns=(Numeric(name="dose", bounds=(-2.0, 2.0), edges=(-1.0, 0.5)),), label=label)
    said = ("no", "yes") if isinstance(label, ClassLabel) else ("2", "7.5")
    rows = [(0.1 * i, said[i % 2], "rome" if i % 3 else "oslo") for i in range(12)]

    def write(name, kept):
        with (tmp_path / name).open("w", newline="") as file:
            csv.writer(file).writerows([("dose", "ill", "site"), *kept])
        return tmp_path / name

    whole = Problem.from_file(str(write("whole.csv", rows)), schema, graphs.complete, site_column="site")
    paths = {name: write(f"{name}.csv", [row for row in rows if row[2] == name]) for name in ("oslo", "rome")}
    split = Problem.from_site_files(paths, schema, graphs.complete(2), test=paths["oslo"])
    assert whole.names == split.names == ("oslo", "rome")
    assert whole.features == split.features == schema.feature_names
    assert whole.answers == split.answers == Answers.of(schema)
    assert (whole.private, split.private, split.test.private) == (True, False, False)
    assert np.array_equal(whole.sites.labels, split.sites.labels)
    assert np.abs(whole.sites.labels).max() <= 1
    assert (whole.sites.rows.block(0, 12) != split.sites.rows.block(0, 12)).nnz == 0
    assert np.array_equal(split.test.labels, split.sites.labels[: split.sites.counts[0]])


@pytest.fixture(name="problem")
def _problem():
    data = sv.datasets.adult()
    few = replace(data, features=data.features[::200], labels=data.labels[::200], n_train=150)
    return Problem.dealt(few, 3, graphs.ring, held_out=True)


def test_what_does_not_belong_together_is_refused(problem):
    with pytest.raises(InputError, match="one site for every node of the graph"):
        replace(problem, graph=graphs.ring(4))


def test_a_run_has_one_oracle_and_says_what_the_problem_says(problem, monkeypatch):
    made, check = [], Oracle.__post_init__
    monkeypatch.setattr(Oracle, "__post_init__", lambda self: (made.append(self), check(self)))
    charged = []
    algorithm = sv.IPADMM(rounds=3, local_steps=2)
    solved = solve(replace(problem, notes=("Found by chance.",)), algorithm, runs=2, seed=1, charge=charged.append)
    assert made == [solved.site]
    assert solved.result.privacy.notes == ("Found by chance.",)
    assert [statement.runs for statement in charged] == [2]  # a budget counts all that was seen, of public rows too
    same = simulate(algorithm, problem.sites, problem.graph, runs=2, seed=1)
    assert np.array_equal(same.last, solved.result.last)
    assert solved.tested().keys() >= {"risk_last", "accuracy_consensus"}
    assert len(made) == 3  # that of `simulate`, and the test rows


def test_nothing_is_computed_before_it_is_charged(problem, monkeypatch):
    monkeypatch.setattr(sv.IPADMM, "release", lambda *_: pytest.fail("computed"))

    def refuse(statement):
        raise sv.BudgetError(f"{statement.epsilon:g}")

    with pytest.raises(sv.BudgetError):
        solve(problem, sv.IPADMM(rounds=2), charge=refuse)
    for wrong in ({"record": [3]}, {"runs": 0}, {"device": "abacus"}):
        with pytest.raises(InputError):
            solve(problem, sv.IPADMM(rounds=2), charge=lambda _: pytest.fail("charged"), **wrong)
