import math
import tomllib
from dataclasses import fields
from typing import Literal, get_args, get_origin, get_type_hints

import pytest

from sottovoce import ADMM, IPADMM
from sottovoce.algorithms.registry import REGISTRY
from sottovoce.cli.draft import AgreementDraft
from sottovoce.errors import InputError
from sottovoce.federation.agreement.terms import ALLOWED
from sottovoce.plan import plan
from sottovoce.settings.options import AlgorithmOptions
from sottovoce.studies.build import bind
from sottovoce.studies.config import TrainConfig

CONFIGS = [
    TrainConfig(),
    TrainConfig(algorithm="admm", rounds=7, rho=0.1),
    TrainConfig(epsilon=math.inf, nodes=3, lam=0, seed=2**70),
    TrainConfig(epsilon=1e-7, delta=1e-300, batch_size=5, sampling="poisson", radius=1e22),
    TrainConfig(
        partition="column", partition_column='a "quoted"\\\t\x7f\x00 ünicode', graph="small-world", graph_degree=4
    ),
]


@pytest.mark.parametrize("config", CONFIGS)
def test_round_trip(config):
    assert TrainConfig.from_toml(config.to_toml()) == config
    assert TrainConfig.from_toml(config.resolved().to_toml()) == config.resolved()
    assert config.resolved().resolved() == config.resolved()


SET = {"rounds": 100, "local_steps": 10, "rho": 1e-3, "diameter": 80.0}


def test_nothing_of_the_algorithms_is_repeated():
    algorithm = bind(TrainConfig(**SET)).algorithm
    assert algorithm == IPADMM(**SET)
    assert bind(TrainConfig(algorithm="admm")).algorithm == ADMM()
    assert TrainConfig().epsilon is None
    resolved = TrainConfig(**SET).resolved()
    ours = {f.name for f in fields(TrainConfig)} - {"sampling", "loss", "regulariser"}
    for name in ours & {f.name for f in fields(IPADMM)}:
        assert getattr(resolved, name) == getattr(algorithm, name)


def kind(hint):
    """The type that a setting is read as, whether it may be None or not; a name of a loss or the like is text."""
    found = next((part for part in get_args(hint) if part is not type(None)), hint) if not literal(hint) else hint
    return found if found in (int, float, bool) else str


def literal(hint):
    return get_origin(hint) is Literal


def test_every_option_is_a_setting_of_an_algorithm_by_name_and_type():
    hints, options = get_type_hints(TrainConfig), {f.name for f in fields(AlgorithmOptions)} - {"algorithm"}
    kinds = {name: get_type_hints(line.kind) for name, line in REGISTRY.items()}
    for own in kinds.values():
        for name in own.keys() & hints.keys() - {"focus"}:  # names of columns become numbers of features
            assert kind(hints[name]) is kind(own[name])
    assert options <= {name for at in ALLOWED for name in kinds[at]}
    draft = get_type_hints(AgreementDraft)
    assert all(kind(draft[name]) is kind(hints[name]) for name in options)


def test_what_is_not_given_is_planned_and_what_is_given_stays():
    config = TrainConfig(nodes=4, graph="ring", rounds=7, epsilon=2.0)
    problem, algorithm = bind(config)
    sizes, d = problem.sites.counts.tolist(), problem.sites.d
    found = plan(sizes=sizes, d=d, graph=problem.graph, epsilon=2.0, fixed={"rounds": 7})
    assert algorithm == found.algorithm()
    assert (algorithm.rounds, algorithm.epsilon) == (7, 2.0)
    assert config.resolved(algorithm).diameter == algorithm.diameter
    # Without noise there is nothing to plan for.
    assert bind(TrainConfig(nodes=4, epsilon=math.inf)).algorithm == IPADMM(epsilon=math.inf)


def test_settings_may_be_spelt_either_way():
    config = TrainConfig.from_toml("local-steps = 3\ngraph_degree = 7\n")
    assert (config.local_steps, config.graph_degree) == (3, 7)


def test_whole_numbers_will_do_for_numbers():
    assert isinstance(TrainConfig(epsilon=2).epsilon, float)


def test_the_file_has_every_default_of_the_algorithm():
    written = tomllib.loads(TrainConfig().resolved().to_toml())
    assert written["epsilon"] == IPADMM.epsilon
    assert written["local_steps"] == IPADMM.local_steps


def test_refusals_name_the_setting():
    with pytest.raises(InputError, match=r"'epsilom'\. Did you mean epsilon"):
        TrainConfig.read({"epsilom": 1})
    with pytest.raises(InputError, match="Known: dataset, split"):
        TrainConfig.read({"zzz": 1})
    with pytest.raises(InputError, match="a mistake"):
        TrainConfig.from_toml("=")


def test_build_deals_out_what_was_asked(few_rows):
    problem, algorithm = bind(TrainConfig(nodes=4, graph="star", split="official", lam=0.5))
    sites = problem.sites
    assert (len(sites.labels), len(problem.test)) == (few_rows.n_train, len(few_rows) - few_rows.n_train)
    assert problem.names == ("site-1", "site-2", "site-3", "site-4")
    assert (sites.n, sites.counts.sum()) == (4, few_rows.n_train)
    assert (problem.graph.name, algorithm.lam) == ("star", 0.5)
