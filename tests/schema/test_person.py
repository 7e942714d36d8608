"""A schema that names people: whose rows are kept, who is refused, and that the column goes nowhere."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import sottovoce as sv
from schema.samples import FILE, SCHEMA
from sottovoce.errors import InputError
from sottovoce.files.models import Model
from sottovoce.files.schema import Person, Schema, files
from sottovoce.files.schema.check import check
from sottovoce.files.schema.findings import Finding
from sottovoce.privacy import ROW, Unit
from sottovoce.problem import graphs, people
from sottovoce.problem.problem import Problem
from sottovoce.settings import plain
from sottovoce.simulation.engine import solve

TOML = """
[label]
column = "ill"
classes = ["no", "yes"]
[person]
column = "patient"
rows = {rows}
surplus = "{surplus}"
[[columns]]
name = "age"
kind = "numeric"
bounds = [0, 100]
scale = "unit"
missing = "row"
"""


def named(rows=2, surplus="refuse"):
    return Schema.loads(TOML.format(rows=rows, surplus=surplus))


def table(*rows):
    return "patient,age,ill,clinic\n" + "".join(f"{line}\n" for line in rows)


ROWS = ("ann,10,no,x", "bob,20,no,x", "ann,30,yes,x", "ann,40,no,y", "cem,50,yes,y", "ann,60,no,y")


def ages(data):
    return np.round(100 * data.features.toarray()[:, 0] * math.sqrt(2)).astype(int).tolist()


def test_the_column_is_read_and_goes_nowhere(written):
    schema = named(rows=4)
    data = files.encode(written(table(*ROWS)), schema)
    assert schema.feature_names == ("age", "intercept") == data.names
    assert data.unit == Unit(4) == schema.unit
    assert data.people.tolist() == [0, 1, 0, 0, 2, 0]
    assert Schema.loads(schema.dumps()) == schema == Schema.from_dict(plain(schema))
    assert schema.digest() != replace(schema, person=replace(schema.person, rows=5)).digest()
    # To predict, nobody needs to say whose the rows are.
    chunks = list(files.encode_features(written("age\n10\n20\n", "new.csv"), schema))
    assert chunks[0].features.shape == (2, 2)


def test_a_schema_without_people_is_what_it_was(schema):
    assert schema.unit == ROW
    assert "person" not in plain(schema)


def test_more_rows_of_a_person_are_refused_and_nobody_is_quoted(written):
    with pytest.raises(
        InputError, match=r"at most rows=2 rows of a person at a site, got more.*surplus='drop'"
    ) as error:
        files.encode(written(table(*ROWS)), named())
    assert "ann" not in str(error.value)


def test_the_surplus_is_dropped_by_the_order_of_the_file(written):
    data = files.encode(written(table(*ROWS)), named(surplus="drop"))
    assert ages(data) == [10, 20, 30, 50]
    # At each of several sites a person may have as many.
    data, sites = files.encode_by_site(written(table(*ROWS)), named(surplus="drop"), "clinic")
    assert ages(data) == [10, 20, 30, 40, 50, 60]
    assert sites.tolist() == ["x", "x", "x", "y", "y", "y"]


def test_a_row_that_is_dropped_anyway_is_nobody_s_first(written):
    data = files.encode(written(table("ann,,no,x", "ann,10,no,x", "ann,20,no,x")), named(surplus="drop"))
    assert ages(data) == [10, 20]


@given(st.lists(st.integers(0, 4), min_size=1, max_size=40), st.integers(1, 4), st.integers(0, 2**32 - 1))
def test_nobody_s_presence_changes_what_is_kept_of_others(whose, most, seed):
    """Replace all rows of one person by those of others, or take them out: what is kept of everybody else stays."""
    whose = np.array(whose)
    sites = np.random.default_rng(seed).integers(0, 3, size=len(whose))
    for gone in set(whose.tolist()):
        others = whose != gone
        for where in (None, sites):
            kept = people.within(whose, most, where)
            assert np.array_equal(
                kept[others], people.within(whose[others], most, None if where is None else where[others])
            )
            moved = whose.copy()
            moved[~others] = 99
            assert np.array_equal(kept[others], people.within(moved, most, where)[others])
            counts = np.unique(
                np.stack([whose, 0 * sites if where is None else where])[:, kept], axis=1, return_counts=True
            )[1]
            assert counts.max() <= most


def pushed_out():
    """Two worlds: one person's 50 rows as they are, or 49 of them under the names of all 49 others, before theirs."""
    others = [f"p{i},10,no,x" for i in range(49)]
    own = ["eve,90,yes,x"] * 50
    posing = [f"p{i},90,yes,x" for i in range(49)] + ["eve,90,yes,x"]
    return table(*own, *others), table(*posing, *others)


def test_rows_under_others_names_push_theirs_out_and_the_statement_says_so(written):
    """No rule that goes by names can tell whose rows they are: with "drop" this is not covered, and is not promised."""
    ours, theirs = pushed_out()
    kept = [ages(files.encode(written(text), named(1, "drop"))) for text in (ours, theirs)]
    assert [sorted(set(ages_)) for ages_ in kept] == [[10, 90], [90]]
    assert len(kept[0]) == len(kept[1]) == 50
    schema = named(1, "drop")
    problem = Problem.from_file(str(written(ours)), schema, graphs.complete, nodes=2)
    found = sv.simulate(sv.MaskedNewton(rounds=2), problem.sites, problem.graph)
    assert people.DROPPED not in found.privacy.notes  # rows alone do not say it: the problem does
    told = solve(problem, sv.MaskedNewton(rounds=2)).result.privacy
    assert people.DROPPED in told.notes
    assert "does not cover rows under other people's names" in told.prose()
    # Whoever keeps the model keeps that with it.
    model = Model(np.zeros((2, 1)), sv.losses.Logistic(), schema.feature_names, ("no", "yes"), found.privacy, schema)
    assert people.DROPPED in model.privacy.notes
    # By default such files are refused, both of them, and the promise has no such gap.
    for text in (ours, theirs):
        with pytest.raises(InputError, match=r"at most rows=1 rows.*which does not cover rows under others' names"):
            files.encode(written(text), named(1))
    assert named(1).person.notes == ()


def test_a_file_becomes_a_problem_for_people(written):
    schema, path = named(rows=4), written(table(*ROWS))
    with pytest.raises(InputError, match="at least 4 rows at every site, as many as a person may have, got fewest=3"):
        Problem.from_file(str(path), schema, graphs.complete, nodes=2)
    problem = Problem.from_file(str(path), schema, graphs.complete, nodes=1)
    assert problem.unit == Unit(4)
    assert problem.sites.counts.tolist() == [6]
    # She is at two clinics, which has to be said.
    with pytest.raises(InputError, match="no more than sites=1 sites, got one at more"):
        Problem.from_file(str(path), named(2), graphs.complete, site_column="clinic")
    problem = Problem.from_file(str(path), named(2), graphs.complete, site_column="clinic", sites_per_person=2)
    assert problem.unit == Unit(2, 2)
    found = sv.simulate(sv.MaskedNewton(rounds=2), problem.sites, problem.graph)
    assert found.privacy.unit == Unit(2, 2)
    # Rows to be scored on need not say whose they are.
    test = written("age,ill\n10,no\n", "test.csv")
    assert len(Problem.from_file(str(path), schema, graphs.complete, test=str(test)).test) == 1
    without = Schema.loads(SCHEMA)
    with pytest.raises(InputError, match=r"a schema that names people, got none with sites_per_person=2.*\[person\]"):
        Problem.from_file(str(written(FILE)), without, graphs.complete, sites_per_person=2)


@pytest.mark.parametrize("bad", [0, -1, 10**7])
def test_numbers_that_make_no_sense_are_refused_with_what_to_do(bad):
    with pytest.raises(InputError, match=r"person.rows from 1 to .* got rows=.*leave \[person\] out"):
        named(rows=bad)
    with pytest.raises(InputError, match="rows per person from 1"):
        Unit(bad)
    with pytest.raises(InputError, match="sites per person from 1"):
        Unit(1, bad)


def test_what_does_not_fit_is_refused(written):
    with pytest.raises(InputError, match="neither a feature nor the label"):
        Schema.loads(TOML.format(rows=1, surplus="drop").replace('"patient"', '"age"'))
    with pytest.raises(InputError, match="surplus"):
        named(surplus="hide")
    with pytest.raises(InputError, match="whole numbers of rows and sites of a person"):
        Unit(True)
    with pytest.raises(InputError, match="the most rows of a person where people are at several sites"):
        Unit(sites=2)
    with pytest.raises(InputError, match=r"Expected a person in row 2, column 'patient'.*Fill it in"):
        files.encode(written(table("ann,1,no,x", ",2,no,x")), named())
    with pytest.raises(InputError, match="Expected a column 'patient'"):
        files.encode(written("age,ill\n1,no\n"), named())
    with pytest.raises(InputError, match="nor the person"):
        files.encode_by_site(written(table(*ROWS)), named(), "patient")
    with pytest.raises(InputError, match="a person for every row"):
        sv.Sites([np.zeros((2, 1))], [[1, 1]], unit=Unit(2), people=[["a"]])
    with pytest.raises(InputError, match="bounds the rows of a person, since people are given"):
        sv.Sites([np.zeros((2, 1))], [[1, 1]], people=[["a", "b"]])
    with pytest.raises(InputError, match="at most rows=1 rows of a person"):
        sv.Sites([np.zeros((2, 1))], [[1, 1]], unit=Unit(1), people=[["a", "a"]])
    assert sv.Sites([np.zeros((2, 1))], [[1, 1]], unit=Unit(2), people=[["a", "a"]]).unit == Unit(2)


def test_a_person_in_latin_1_is_told_from_none(tmp_path):
    path = tmp_path / "rows.csv"
    path.write_bytes(table("ann,10,no,x").encode() + "j\xf6rg,20,no,x\n".encode("latin-1"))
    with pytest.raises(
        InputError, match=r"a person as UTF-8 text in row 2, column 'patient' .* Save the file as UTF-8"
    ):
        files.encode(path, named())
    (problem,) = check(path, named()).problems
    assert (problem.row, problem.finding) == (2, Finding.NOT_TEXT)
    assert "got other bytes, as of Latin-1" in problem.message
    path.write_bytes(table("ann,10,no,x", ",20,no,x").encode())
    (problem,) = check(path, named()).problems
    assert problem.message == "Expected a person in row 2, column 'patient', got none. Fill it in."


def test_a_check_tells_of_people(written):
    report = check(written(table(*ROWS, ",70,no,x")), named())
    assert not report.fits
    found = {(problem.finding, problem.row) for problem in report.problems}
    assert found == {(Finding.SURPLUS, 4), (Finding.SURPLUS, 6), (Finding.MISSING, 7)}
    assert report.unused_columns == ("clinic",)
    report = check(written(table(*ROWS)), named(surplus="drop"))
    assert report.fits
    assert report.used == 4
    assert {(note.finding, note.row) for note in report.notes} == {(Finding.CUT, 4), (Finding.CUT, 6)}
    report = check(written("age,ill\n1,no\n"), named())
    assert [problem.finding for problem in report.problems] == [Finding.NO_COLUMN]


def test_people_are_the_same_in_every_chunk(written, monkeypatch):
    monkeypatch.setattr("sottovoce.files.schema.reading.BLOCK", 64)
    lines = [f"p{i % 7},{i % 90},no,x" for i in range(200)]
    data = files.encode(written(table(*lines)), named(rows=40))
    assert data.people.tolist() == [i % 7 for i in range(200)]
    assert len(files.encode(written(table(*lines)), named(rows=3, surplus="drop"))) == 21


def test_words_and_units_are_one_to_one():
    for unit in (ROW, Unit(1), Unit(7), Unit(2, 3), Unit(1, 4)):
        assert Unit.named(unit.words) == unit
        assert str(unit) == unit.words
    for words in ("one person", Unit(2).words + " ", Unit(2, 2).words.replace("2 sites", "02 sites"), None, 3,
                  Unit(2).words.replace("2 rows", "0 rows"), Unit(1).words.replace("1 row,", "1 rows,")):  # fmt: skip
        with pytest.raises(InputError, match=r"the unit|rows per person"):
            Unit.named(words)
    assert Unit(3, 2).covers(Unit(2, 2))
    assert Unit(3).covers(ROW)
    assert not ROW.covers(Unit(1))
    assert not Unit(3).covers(Unit(3, 2))
    assert Person(column="p", rows=2).unit(3) == Unit(2, 3)
