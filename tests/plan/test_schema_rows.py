"""Made-up rows of a schema: what it says holds of them, and what it leaves open varies."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.interpolate import CubicSpline

from sottovoce.files.schema import Schema
from sottovoce.plan.schema_rows import table
from sottovoce.plan.synthetic import Belief
from sottovoce.problem.losses import Logistic, Softmax

TEXT = """
version = 1
intercept = 0.5
[label]
column = "ill"
classes = ["no", "yes"]
[[columns]]
name = "age"
kind = "numeric"
bounds = [0, 100]
scale = "symmetric"
missing = "indicator"
[[columns]]
name = "dose"
kind = "numeric"
bounds = [0, 100]
scale = "unit"
[[columns]]
name = "pressure"
kind = "numeric"
bounds = [50, 250]
edges = [100, 120, 140]
reference = 130
[[columns]]
name = "ward"
kind = "categorical"
categories = ["north", "south", "west"]
other = true
missing = "indicator"
reference = "south"
[[columns]]
name = "day"
kind = "season"
by = "quarter"
[[columns]]
name = "smoker"
kind = "boolean"
missing = "indicator"
"""
SCHEMA = Schema.loads(TEXT)
SHARES = {"pressure": (0.1, 0.2, 0.3, 0.4), "ward": (0.5, 0.25, 0.15, 0.07, 0.03), "day": (0.4, 0.3, 0.2, 0.1),
          "smoker": (0.2, 0.7, 0.1)}  # fmt: skip
TOLD = replace(SCHEMA, columns=tuple(replace(c, shares=SHARES.get(c.name)) for c in SCHEMA.columns))
ROWS = 40_000


def made(schema, seed=0, loss=None, belief=None):
    return table(schema, ROWS, loss or Logistic(), seed=seed, belief=belief or Belief(base_rate=0.2))


def by_column(schema, data):
    """The encoded rows of each column, in its own unit."""
    a, first = data.features.toarray() * schema.encoded_norm, 0
    for column in schema.columns:
        yield column, a[:, first : first + column.width]
        first += column.width


def test_rows_are_as_the_schema_encodes_them():
    data = made(SCHEMA)
    assert data.names == SCHEMA.feature_names
    assert np.linalg.norm(data.features.toarray(), axis=1).max() <= SCHEMA.data_norm
    for column, a in by_column(SCHEMA, data):
        assert np.count_nonzero(a, axis=1).max() <= 1, column.name
        if column.name in SHARES:
            assert set(np.unique(a.round(9))) <= {0.0, 1.0}
    age, dose = (a for column, a in by_column(SCHEMA, data) if column.name in ("age", "dose"))
    assert age[:, 0].min() < 0 < age[:, 0].max() <= 1
    assert dose.min() >= 0
    assert 0.15 < np.mean(data.labels == 1) < 0.25


def test_shares_that_are_supplied_hold():
    for column, a in by_column(TOLD, made(TOLD)):
        if column.name not in SHARES:
            continue
        shares = list(SHARES[column.name])
        if column.name == "smoker":
            del shares[1]  # false has no feature
        elif column.left_out is not None:
            del shares[column.left_out]
        # Six standard errors of a share.
        np.testing.assert_allclose(a.mean(axis=0), shares, atol=6 * 0.5 / np.sqrt(ROWS), err_msg=column.name)


def test_what_is_open_differs_from_table_to_table():
    spreads = []
    for seed in range(6):
        columns = {c.name: a for c, a in by_column(SCHEMA, made(SCHEMA, seed))}
        spreads.append([columns["dose"].std(), columns["ward"][:, 0].mean(), columns["smoker"][:, 0].mean(),
                        columns["pressure"][:, 0].mean(), columns["age"][:, 1].mean()])  # fmt: skip
        np.testing.assert_allclose(columns["day"].mean(axis=0), 0.25, atol=0.02)  # seasons are alike
    assert np.all(np.ptp(spreads, axis=0) > 0.3 * np.mean(spreads, axis=0))


def test_columns_go_together():
    a = made(TOLD, seed=3).features.toarray()
    kept = a[:, [1, 2, 5, 10]]
    off = np.abs(np.corrcoef(kept.T)[np.triu_indices(4, 1)])
    assert off.max() > 0.05


@pytest.mark.parametrize("share", [(1.0, 0.0, 0.0, 0.0), (0.999, 0.001, 0.0, 0.0)])
def test_a_level_that_nobody_is_at(share):
    column = replace(SCHEMA.columns[2], shares=share)
    data = made(replace(SCHEMA, columns=(column,)))
    assert np.isfinite(data.features.toarray()).all()


def test_the_same_seed_makes_the_same_rows_and_several_classes_have_labels():
    one, same = (made(SCHEMA, seed=4) for _ in range(2))
    assert (one.features != same.features).nnz == 0
    np.testing.assert_array_equal(one.labels, same.labels)
    assert set(made(SCHEMA, loss=Softmax(3), belief=Belief()).labels) == {0.0, 1.0, 2.0}


def test_terms_are_made_of_the_made_up_columns():
    terms = '[[terms]]\nkind = "interaction"\ncolumns = ["age", "ward"]\n'
    terms += '[[terms]]\nkind = "spline"\ncolumn = "dose"\nknots = [10, 50, 90]\n'
    data, one = made(Schema.loads(TEXT + terms)), made(SCHEMA)
    x, mains = (made_up.features.toarray() for made_up in (data, one))
    named = dict(zip(data.names, x.T * np.sqrt(6 + 2 + 0.25), strict=True))
    # Columns are drawn as without terms; only then are terms made of them.
    np.testing.assert_allclose(x[:, : mains.shape[1] - 1] * np.sqrt(8.25), mains[:, :-1] * np.sqrt(6.25), atol=1e-12)
    for level in ("north", "<missing>"):
        np.testing.assert_allclose(named[f"age:ward={level}"], named["age"] * named[f"ward={level}"], atol=1e-12)
    dose = named["dose"] * 100
    curve = CubicSpline([10, 50, 90], [0, 1, 0], bc_type="natural")
    inside = (dose >= 10) & (dose <= 90)
    np.testing.assert_allclose(named["dose=<bend at 50>"][inside], curve(dose[inside]), atol=1e-8)
    assert np.linalg.norm(x, axis=1).max() <= 1
