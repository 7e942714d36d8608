"""The default algorithm: one rule, whatever the entrance."""

import numpy as np
import pytest

from sottovoce import graphs
from sottovoce.algorithms import IPADMM, MaskedNewton
from sottovoce.algorithms.default import MASKED, OWN, default, why_not_masked
from sottovoce.errors import InputError, UnsupportedError
from sottovoce.estimators import training
from sottovoce.plan import plan
from sottovoce.problem.losses import Hinge, Logistic, Poisson, Softmax, WeightedLogistic
from sottovoce.problem.problem import Problem
from sottovoce.problem.regularisers import L1, L2


@pytest.mark.parametrize("loss", [Logistic(), Softmax(3), Poisson(), WeightedLogistic(4.0)])
def test_masked_sums_wherever_they_can_be_had(loss):
    assert default(loss, L2(), "complete", {}) == (MASKED, "")
    MaskedNewton(loss=loss)


@pytest.mark.parametrize(
    ("objective", "given", "reason"),
    [
        ((Hinge(), L2(), "complete"), {}, "the slope of loss=hinge jumps"),
        ((Logistic(), L1(), "complete"), {}, "regulariser=l1 has a kink"),
        ((Logistic(), L2(), "ring"), {}, "not every two sites exchange messages (graph=ring)"),
        ((Logistic(), L2(), "complete"), {"max_grad_norm": 0.5},
         "with clipped gradients (max_grad_norm=0.5) the two were never compared"),
        ((Logistic(), L2(), "complete"), {"rho": 0.1}, "rho is a setting of ipadmm"),
        ((Logistic(), L2(), "complete"), {"rounds": 50, "rho": 0.1, "local_steps": 2},
         "rho and local_steps are settings of ipadmm"),
        ((Logistic(), L2(), "complete"), {"rho": 0.1, "local_steps": 2, "diameter": 9.0},
         "rho, local_steps and diameter are settings of ipadmm"),
        ((Logistic(), L2(), "complete"), {"weights": "squared"}, "weights is a setting of ipadmm"),
        ((Logistic(), L2(), "complete"), {"calibration": "paper"}, "calibration is a setting of ipadmm"),
        ((Hinge(), L2(), "complete"), {"rounds": 50}, "the slope of loss=hinge jumps"),
    ],
)  # fmt: skip
def test_else_ipadmm_and_why(objective, given, reason):
    assert default(*objective, given) == (OWN, reason)
    assert reason in default(*objective, given).remark
    IPADMM(**given)  # what chooses it are its settings


@pytest.mark.parametrize(
    "given", [{"rho": 0.1}, {"max_grad_norm": 0.5}, {"weights": "squared"}, {"calibration": "paper"}]
)
def test_what_chooses_ipadmm_is_not_what_masked_sums_would_do(given):
    """They would refuse it, or were never compared with it."""
    if "max_grad_norm" not in given:
        with pytest.raises((InputError, TypeError)):
            MaskedNewton(**given)
    assert default(Logistic(), L2(), "complete", given).name == OWN


@pytest.mark.parametrize("given", [{"weights": "rows"}, {"calibration": "exact"}, {"lam": 1e-3}, {"epsilon": 2.0}])
def test_what_both_have_chooses_neither(given):
    assert default(Logistic(), L2(), "complete", given) == (MASKED, "")


@pytest.mark.parametrize(
    "given", [{"colluding": 2}, {"inference": True}, {"evaluate": 0.1, "rounds": 9}, {"spare": 1, "rho": 0.1}]
)
def test_what_only_masked_sums_have_chooses_them(given):
    assert default(Logistic(), L2(), "complete", given).name == MASKED


def test_even_where_they_then_refuse():
    """Nothing that was asked for is dropped: whoever wants standard errors of a hinge is told that there are none."""
    assert default(Hinge(), L2(), "complete", {"inference": True}).name == MASKED
    assert default(Hinge(), L2(), "complete", {"inference": False}).name == OWN
    with pytest.raises(UnsupportedError, match="Expected a loss with curvature"):
        MaskedNewton(loss=Hinge(), inference=True)


def test_rounds_alone_are_not_guessed():
    with pytest.raises(InputError, match=r"Expected an algorithm with rounds=50, got none: .* Name one"):
        default(Logistic(), L2(), "complete", {"rounds": 50})


def test_a_bound_on_rows_is_needed():
    assert why_not_masked(Logistic(), L2(), data_norm=np.inf) == "they need a bound on the norm of rows"


@pytest.mark.parametrize("loss", [Logistic(), Hinge()])
@pytest.mark.parametrize("graph", ["complete", "ring"])
@pytest.mark.parametrize("sites", [1, 2, 5])
def test_estimators_take_it(loss, graph, sites):
    draws = np.random.default_rng(0)
    problem = Problem.from_arrays(
        draws.uniform(-0.5, 0.5, size=(40, 2)), np.where(draws.random(40) < 0.5, 1.0, -1.0),
        np.array_split(np.arange(40), sites), lambda n: training.graph_of(graph, n), private=False,
    )  # fmt: skip
    objective = {"epsilon": 1.0, "delta": 1e-5, "loss": loss, "lam": 1e-4}
    taken = training.choose(None, False, objective, problem).algorithm
    asked = default(loss, L2(), problem.graph.name, {}).name
    assert isinstance(taken, MaskedNewton if asked == MASKED else IPADMM)


@pytest.mark.parametrize(("loss", "way"), [(Logistic(), "masked"), (Hinge(), "local")])
def test_plans_say_it(loss, way):
    made = plan(sizes=[60] * 3, d=3, graph=graphs.complete(3), epsilon=1.0, loss=loss, max_rounds=4)
    assert made.way == way
