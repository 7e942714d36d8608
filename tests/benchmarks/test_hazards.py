"""The benchmark of proportional hazards runs, and what it has found is what the page says."""

import importlib.util
import json
from pathlib import Path

import numpy as np
import pytest

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "hazards.py"


@pytest.fixture(scope="module", name="script")
def _script():
    spec = importlib.util.spec_from_file_location("hazards_benchmark", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_a_table_is_measured(script):
    for population in (script.made_up(0.5, 0.7, seed=1, rows=900), script.changing(seed=1, rows=900)):
        found = script.measured(population, 900, 20.0, 1, True)
        assert found["intervals"] == 6
        assert 0 < found["sampling"] < 1
        assert 0 < found["error"] < 1


def test_times_that_are_drawn_again_are_those_of_the_model(script):
    """Its fit is then the truth that they were drawn from, up to sampling."""
    population = script.made_up(0.5, 0.7, seed=1, rows=5_000)
    truth, hazards, _ = script.usual(population.x, population.labels)
    again = script.drawn_again(np.random.default_rng(0), population, truth, hazards)
    found, _, errors = script.usual(again.x, again.labels)
    assert np.max(np.abs(found - truth) / errors) < 4


def test_the_page_says_what_was_found(script):
    page = script.PAGE.read_text(encoding="utf-8")
    said = page.split(script.MARK)[1].split(script.END)[0]
    assert said.strip() == "".join(script.table_of(json.loads(script.FOUND.read_text()))).strip()
