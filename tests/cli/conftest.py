import csv
import json
from dataclasses import replace

import numpy as np
import pytest

from sottovoce import datasets
from sottovoce.cli import main

TINY = ["--nodes", "5", "--rounds", "2", "--local-steps", "2", "--runs", "2", "--rho", "0.001", "--diameter", "80"]
SCHEMA = """
version = 1
name = "clinic"

[label]
column = "ill"
classes = {classes}

[[columns]]
name = "age"
kind = "numeric"
bounds = [0, 100]
edges = [20, 40, 60, 80]

[[columns]]
name = "smoker"
kind = "boolean"
"""
QUICK = ("--delta", 1e-5, "--rounds", 20, "--local-steps", 5, "--epsilon", 8, "--diameter", 20, "--rho", 0.01)


def write(path, label, rows=1200):
    draws = np.random.default_rng(0)
    with path.open("w", newline="") as file:
        lines = csv.writer(file)
        lines.writerow(["age", "smoker", "ill", "clinic"])
        for _ in range(rows):
            age, smoker = int(draws.integers(0, 101)), bool(draws.integers(0, 2))
            lines.writerow([age, smoker, label(age, smoker), draws.choice(["north", "south", "west"])])
    return path


@pytest.fixture(scope="session")
def few_rows():
    """Every 100th row of Adult, a third of them for testing."""
    adult = datasets.adult()
    features, labels = adult.features[::100], adult.labels[::100]
    return replace(adult, features=features, labels=labels, n_train=300)


@pytest.fixture(autouse=True)
def small_adult(monkeypatch, few_rows):
    monkeypatch.setitem(datasets.BY_NAME, "adult", lambda: few_rows)


@pytest.fixture
def cli(capsys):
    """Run the command line in this process: (exit code, stdout, stderr)."""

    def run(*argv):
        code = main([str(part) for part in argv])
        return (code, *capsys.readouterr())

    return run


@pytest.fixture
def answer(cli):
    """Run with --json; stdout is one strict JSON object and nothing else."""

    def run(*argv, code=0):
        came, out, err = cli(*argv, "--json")
        assert (came, err) == (code, "")
        return json.loads(out, parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))

    return run


@pytest.fixture
def clinic(tmp_path):
    """A file whose label follows from its columns."""
    (tmp_path / "schema.toml").write_text(SCHEMA.format(classes='["no", "yes"]'))
    return write(tmp_path / "rows.csv", lambda age, smoker: "yes" if age > 60 or (smoker and age > 40) else "no")
