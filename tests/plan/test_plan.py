"""The planner: what it may look at, what it must keep, and what it says about shapes from tiny to large."""

import inspect
import math

import numpy as np
import pytest

import sottovoce as sv
from sottovoce import graphs
from sottovoce.errors import InputError
from sottovoce.files.datasets import Dataset
from sottovoce.plan import FIXABLE, plan
from sottovoce.plan.choose import Predictor, Setting
from sottovoce.plan.planner import _problems
from sottovoce.plan.synthetic import Belief, table
from sottovoce.plan.trial import thinned, trial
from sottovoce.problem.losses import Hinge, Huber, Logistic, Poisson, Quantile, Softmax
from sottovoce.settings import plain

SMALL = {"sizes": [300, 200, 400], "d": 6, "graph": graphs.complete(3), "epsilon": 1.0, "max_rounds": 12}


@pytest.fixture(scope="module")
def small():
    return plan(**SMALL)


def test_only_public_numbers_enter():
    parameters = inspect.signature(plan).parameters
    assert all(p.kind is p.KEYWORD_ONLY for p in parameters.values())
    assert set(parameters) == {
        "sizes", "d", "graph", "epsilon", "delta", "loss", "regulariser", "lam", "data_norm", "max_grad_norm", "fixed",
        "max_rounds", "base_rate", "predictability", "label_spread", "exposed", "colluding", "stand_in",
        "unit", "progress",
    }  # fmt: skip
    # Rows come in by `stand_in` alone, which the caller declares to be public.
    takes_rows = [
        name for name, p in parameters.items() if "Dataset" in str(p.annotation) or "Sites" in str(p.annotation)
    ]
    assert takes_rows == ["stand_in"]


def test_the_same_public_numbers_give_the_same_plan(small):
    assert plan(**SMALL).settings == small.settings


def test_settings_are_those_of_the_algorithm(small):
    algorithm = small.algorithm()
    assert isinstance(algorithm, sv.IPADMM)
    assert set(small.settings) == set(FIXABLE)
    assert (algorithm.epsilon, algorithm.delta, algorithm.loss) == (1.0, 1e-5, Logistic())
    assert all(getattr(algorithm, name) == value for name, value in small.settings.items())
    assert 1 <= algorithm.rounds <= 12
    assert algorithm.batch_size is None


@pytest.mark.parametrize(
    "fixed",
    [{"rounds": 7}, {"local_steps": 4}, {"rho": 0.3}, {"diameter": 5.0}, {"schedule": "constant"},
     {"rounds": 5, "local_steps": 2, "rho": 0.01, "diameter": 3.0}],
    ids="-".join,
)  # fmt: skip
def test_what_is_fixed_is_kept(fixed):
    settings = plan(**SMALL, fixed=fixed).settings
    assert {name: settings[name] for name in fixed} == fixed


def test_what_is_fixed_changes_the_rest(small):
    strong = plan(**SMALL, fixed={"rho": 100 * small.settings["rho"]})
    assert strong.settings["diameter"] != small.settings["diameter"]


def test_choice_is_a_valley(small):
    """No setting nearby is foretold to be clearly better."""
    predictor = Predictor(small.task, _problems(small.task, None))
    s = small.setting
    here = predictor.score(s)
    for factor in (0.5, 0.8, 1.25, 2.0):
        assert predictor.score(s._replace(rho=s.rho * factor)) >= 0.97 * here
        assert predictor.score(s._replace(diameter=s.diameter * factor)) >= 0.97 * here


def test_foretold_risk_falls_with_epsilon_and_rows():
    def best(**change):
        made = plan(**(SMALL | change))
        return Predictor(made.task, _problems(made.task, None)).score(made.setting)

    by_epsilon = [best(epsilon=epsilon) for epsilon in (0.1, 0.3, 1.0, 3.0, 10.0, math.inf)]
    assert by_epsilon == sorted(by_epsilon, reverse=True)
    assert by_epsilon[0] > 2 * by_epsilon[3]
    by_rows = [best(sizes=[m] * 3) for m in (50, 200, 800)]
    assert by_rows == sorted(by_rows, reverse=True)


def test_trade_off_never_rises(small):
    means = [line.joined.mean for line in small.trade_off]
    assert means == sorted(means, reverse=True)
    assert means[0] > means[-1] + 0.01
    assert [line.epsilon for line in small.trade_off] == [0.1, 0.25, 0.5, 1.0, 2.0, 4.0]
    for line in small.trade_off:
        assert 0 <= line.joined.low < line.joined.mean < line.joined.high


def test_joining(small):
    assert small.joining_helps == (small.predicted.together.mean < small.predicted.alone.mean)
    many = plan(sizes=[100] * 30, d=6, graph=graphs.complete(30), epsilon=0.5, max_rounds=12)
    assert many.joining_helps  # 100 rows at epsilon 0.5 are worth little, 3,000 are worth something
    assert "Joining helps: mean loss" in many.reason


def test_a_plan_can_be_written(small):
    found = plain(small)
    assert found["predicted"]["joined"]["mean"] == small.predicted.joined.mean
    names = {"settings", "predicted", "joining_helps", "by_size", "reason", "way", "ways", "trade_off", "notes"}
    assert set(found) == names
    assert any("No private row" in note for note in found["notes"])


@pytest.mark.parametrize(
    ("sizes", "d", "graph"),
    [([1], 1, graphs.complete(1)), ([5, 5], 1, graphs.ring(2)), ([20] * 6, 2, graphs.star(6)),
     ([10] * 400, 30, graphs.ring(400)), ([10_000] * 3, 120, graphs.path(3)), ([10**6] * 2, 4, graphs.complete(2))],
)  # fmt: skip
def test_shapes(sizes, d, graph):
    made = plan(sizes=sizes, d=d, graph=graph, epsilon=1.0, max_rounds=6)
    settings = made.settings
    assert 1 <= settings["rounds"] <= 6
    assert 0 < settings["rho"] < math.inf
    assert 0 < settings["diameter"] < math.inf
    assert settings["batch_size"] is None


@pytest.mark.parametrize("loss", [Hinge(), Huber(), Quantile(0.3)], ids=lambda loss: loss.name)
def test_losses(loss):
    made = plan(**SMALL, loss=loss)
    assert made.algorithm().loss is loss
    assert made.setting.diameter > 0


def test_unbounded_rows_need_clipping():
    with pytest.raises(InputError, match="data_norm=inf and no max_grad_norm"):
        plan(**SMALL, data_norm=math.inf)
    assert plan(**SMALL, data_norm=math.inf, max_grad_norm=0.5).algorithm().max_grad_norm == 0.5


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"sizes": [10, 10]}, "one size for every node of the graph, got nodes=3, sizes=2"),
        ({"sizes": [10, 0, 10]}, "at least one row at every site"),
        ({"d": 0}, "d >= 1, got d=0"),
        ({"epsilon": -1.0}, "epsilon > 0, got epsilon=-1.0"),
        ({"max_rounds": 0}, "max_rounds >= 1"),
        ({"fixed": {"epsilon": 2.0}}, "a setting among .*, got fixed='epsilon'"),
        ({"fixed": {"rho": -1.0}}, "rho > 0, got rho=-1.0"),
    ],
)
def test_refusals(change, message):
    with pytest.raises(InputError, match=message):
        plan(**(SMALL | change))


def test_stand_in_is_checked():
    public = table(200, 5, Logistic(), seed=1)
    with pytest.raises(InputError, match="a stand-in with d=6 columns, got stand_in='synthetic', d=5"):
        plan(**SMALL, stand_in=public)
    with pytest.raises(InputError, match="labels -1 or"):
        plan(**SMALL, stand_in=table(200, 6, Huber(), seed=1))


def test_stand_in_is_used():
    rng = np.random.default_rng(0)
    a = rng.normal(size=(2000, 6))
    a /= np.linalg.norm(a, axis=1, keepdims=True)
    coin = Dataset(a, np.where(rng.random(2000) < 0.5, 1.0, -1.0), tuple("abcdef"), 2000, 1.0, "coin")
    made = plan(**SMALL, stand_in=coin)
    # There is nothing to learn from a fair coin: the mean loss stays at ln 2, whatever the plan.
    assert made.predicted.joined.mean == pytest.approx(math.log(2), abs=0.03)
    assert "'coin'" in made.notes[0]


def test_thinned_trials_keep_the_noise():
    """A quarter of the rows with the noise of all: the same risk, up to the luck of the rows."""
    data, sizes, graph = table(8000, 6, Logistic(), seed=4), [2000] * 4, graphs.complete(4)
    algorithm = sv.IPADMM(rounds=10, local_steps=1, rho=0.05, diameter=20.0, epsilon=0.1)
    whole = trial(algorithm, thinned(data, sizes, 8000, 0), graph, runs=64, seed=1)
    part = thinned(data, sizes, 2000, 0)
    assert (part.sites.counts.tolist(), part.share) == ([500] * 4, 0.25)
    scored = trial(algorithm, part, graph, runs=64, seed=1, judge=data)
    assert scored.consensus.mean() == pytest.approx(whole.consensus.mean(), rel=0.01)
    naive = trial(algorithm, part._replace(share=1.0), graph, runs=64, seed=1, judge=data)
    assert naive.consensus.mean() > 1.025 * whole.consensus.mean()  # the noise of 500 rows would be four times as large


@pytest.mark.parametrize("loss", [Logistic(), Softmax(4), Poisson()], ids=lambda loss: loss.name)
def test_thinned_trials_keep_the_noise_of_masked_sums(loss):
    """Their noise has the shape of the second moments, which are noisy themselves: a quarter of the rows with the noise
    of all has the same of both.
    """
    exposed = loss == Poisson()
    belief = Belief(base_rate=0.02 if exposed else None, explained=(0.3, 0.3))
    data = table(8000, 6, loss, seed=4, belief=belief, exposed=exposed)
    sizes, graph = [2000] * 4, graphs.complete(4)
    algorithm = sv.MaskedNewton(epsilon=0.05, delta=1e-5, loss=loss).bound_to(8000, 6, 4)
    assert any(line.point > 6 * loss.outputs for line in algorithm.schedule(6))  # whitened: the map goes along
    whole = trial(algorithm, thinned(data, sizes, 8000, 0), graph, runs=64, seed=1)
    part = thinned(data, sizes, 2000, 0)
    scored = trial(algorithm, part, graph, runs=64, seed=1, judge=data)
    naive = trial(algorithm, part._replace(share=1.0), graph, runs=64, seed=1, judge=data)
    excess = naive.consensus.mean() - whole.consensus.mean()
    assert excess > 0.05 * whole.consensus.mean()  # four times the noise: it would show
    assert abs(scored.consensus.mean() - whole.consensus.mean()) < 0.2 * excess


def test_made_up_tables():
    for d in (1, 2, 3, 10, 104):
        data = table(500, d, Logistic(), data_norm=2.0, seed=d)
        norms = np.linalg.norm(data.features.toarray(), axis=1)
        assert data.features.shape == (500, d)
        assert norms.max() <= 2.0
        assert 0 < np.mean(data.labels == 1) < 0.6


def test_adult_against_a_small_search():
    """The plan against the best of some settings around it, on real rows: Adult, 20 sites on a ring, epsilon 1."""
    data, n = sv.datasets.adult(), 20
    graph, sizes = graphs.ring(n), [len(data) // n] * n
    s = plan(sizes=sizes, d=data.d, graph=graph, epsilon=1.0, max_rounds=100).setting
    held = thinned(data, sizes, 8000, 0)

    def excess(s: Setting) -> float:
        algorithm = sv.IPADMM(epsilon=1.0, **s._asdict())
        return float(trial(algorithm, held, graph, runs=4, seed=1).consensus.mean()) - 0.3241

    grid = [s._replace(rho=s.rho * x, diameter=s.diameter * y) for x in (0.25, 1.0, 4.0) for y in (0.25, 1.0, 4.0)]
    assert excess(s) < 1.15 * min(map(excess, grid))


def test_several_classes_are_planned_for():
    made = plan(**SMALL, loss=Softmax(3))
    assert made.task.coordinates == 18
    assert made.algorithm().loss == Softmax(3)


@pytest.mark.parametrize("rounds", [20, 60])
def test_sites_always_talk(rounds):
    """Few sites could do with an average in the end; each would then be left alone with its own model."""
    found = plan(sizes=[6500] * 5, d=46, graph=graphs.ring(5), epsilon=1.0, fixed={"rounds": rounds})
    assert found.settings["rho"] > 1e-6
