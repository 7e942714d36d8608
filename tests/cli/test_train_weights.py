"""Which weights `train` takes: planned for a file, the paper's for a packaged data set, and always what is given."""

import csv

import numpy as np
import pytest

from cli.conftest import QUICK, TINY
from helpers import problems
from sottovoce import graphs
from sottovoce.estimators import training
from sottovoce.problem.losses import Logistic
from sottovoce.problem.problem import Problem

UNEQUAL = {"north": 3000, "south": 200, "west": 60, "east": 40}


@pytest.fixture(name="unequal")
def _unequal(clinic):
    """The clinic's rows again, dealt out to sites of very different size."""
    with clinic.open(newline="") as file:
        header, *rows = csv.reader(file)
    sites = [name for name, count in UNEQUAL.items() for _ in range(count)]
    lines = [[*rows[j % len(rows)][:3], site] for j, site in enumerate(sites)]
    path = clinic.with_name("unequal.csv")
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([header, *lines])
    return path


def test_weights_of_a_file_are_planned(answer, unequal):
    data = "train", "--data", unequal, "--schema", unequal.with_name("schema.toml"), "--site-column", "clinic"
    said = answer(*data, *QUICK, "--epsilon", 0.5)
    assert said["weights"] == "squared"
    assert answer(*data, *QUICK, "--weights", "rows")["weights"] == "rows"


def test_a_packaged_data_set_keeps_the_papers_and_takes_what_is_given(answer):
    dealt = "train", "--partition", "dirichlet", "--partition-alpha", "0.1", *TINY
    plain, weighed = answer(*dealt), answer(*dealt, "--weights", "squared")
    assert (plain["weights"], weighed["weights"]) == ("equal", "squared")
    assert plain["risk"] != weighed["risk"]


def test_unknown_weights_are_refused_in_one_line(cli):
    code, _, err = cli("train", *TINY, "--weights", "row")
    assert code == 2
    assert "Expected weights among equal, rows, squared, got weights='row'. Did you mean 'rows'?" in err


def test_estimators_plan_them():
    rng = np.random.default_rng(0)
    sites = problems.sites(rng, UNEQUAL.values(), d=4)
    objective = {"loss": Logistic(), "lam": 1e-4, "max_grad_norm": None, "epsilon": 0.5, "delta": 1e-5}
    problem = Problem(sites, graphs.complete(4))
    chosen = training.choose("ipadmm", False, objective, problem).algorithm
    assert (chosen.weights, chosen.lam) == ("squared", 1e-4)
