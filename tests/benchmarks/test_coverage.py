"""The benchmark of intervals: it runs, and what it calls a failure is one."""

import importlib.util
import sys
from pathlib import Path

import numpy as np
import pytest

HERE = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture
def script(monkeypatch):
    """By its path: another package is called coverage, too."""
    monkeypatch.syspath_prepend(str(HERE))
    found = importlib.util.spec_from_file_location("benchmark_of_coverage", HERE / "coverage.py")
    module = importlib.util.module_from_spec(found)
    monkeypatch.setitem(sys.modules, "benchmark_of_coverage", module)
    found.loader.exec_module(module)
    return module


def test_a_cell_is_measured(script):
    line = script.measure(script.Cell("twins", 2000, 4.0, 5), script.twins(), 3)
    assert line["repetitions"] == 3
    assert line["falsely_identified"] == 0
    assert "twins" in script.told(line)


def test_a_cell_of_counts_is_measured(script):
    line = script.measure(script.Cell("exposed", 20_000, 10.0, 5), script.exposed(), 3)
    assert line["identified"] > 0.5
    assert 1 < line["width"] < 5


@pytest.mark.parametrize(
    ("share", "twin", "fails"), [(0.95, False, False), (0.85, False, True), (1.0, False, False), (0.95, True, True)]
)
def test_too_little_coverage_or_a_false_identification_fails(script, share, twin, fails):
    held = np.random.default_rng(0).random((4000, 4)) < share
    known = np.zeros((4000, 4), dtype=bool)
    known[:, [0, 3]] = True
    known[0, 1] = twin
    line = script.judged(script.Cell("twins", 1, 1.0, 1), script.twins(), held, known, np.ones((4000, 4)))
    assert line["fails"] == fails
