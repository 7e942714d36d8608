import json
from dataclasses import replace

import pytest

from sottovoce import datasets
from sottovoce.cli import main

TINY = ["--nodes", "5", "--rounds", "2", "--local-steps", "2", "--runs", "2", "--rho", "0.001", "--diameter", "80"]


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
