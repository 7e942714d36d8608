"""The benchmark of predicted widths: it runs, and finds a prediction that is off."""

import importlib
from pathlib import Path

import numpy as np
import pytest

from sottovoce.files.schema import Schema
from sottovoce.plan import intervals

HERE = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture
def script(monkeypatch):
    monkeypatch.syspath_prepend(str(HERE))
    return importlib.import_module("widths")


def test_true_shares_are_put_beside_the_levels(script):
    schema, truth, rows = script.clinical()
    told = script.with_shares(schema, rows(np.random.default_rng(0), 20_000, truth)[0])
    fixed = np.random.default_rng(3)
    for column, levels in zip(told.columns[:5], (2, 3, 4, 3, 5), strict=True):
        np.testing.assert_allclose(column.shares, fixed.dirichlet(np.full(levels, 3.0)), atol=0.02)
    assert {column.shares for column in told.columns[5:]} == {None}


def test_schemas_of_real_tables_can_be_inferred_from(script):
    for name in script.TABLES:
        schema = script.referenced(Schema.load(HERE / "schemas" / f"{name}.toml"))
        assert all(column.left_out is not None for column in schema.columns if column.one_hot), name


def test_a_prediction_is_held_against_what_came(script):
    schema, _, _ = script.clinical()
    found = intervals(script.MaskedNewton(epsilon=4.0, delta=1e-6, inference=True), schema, [5_000])
    widths = np.array([line.width.median for line in found.lines])
    assert script.against(found, widths).startswith("1.00 (1.00 to 1.00), 100 %")
    assert script.against(found, widths * 1000).startswith("0.00 (0.00 to 0.00), 0 %")
