"""Least squares and proportional hazards at real sites: one model and one table at all, also after a crash."""

import pytest

import sottovoce as sv
from helpers.network_worlds import MemoryWorld, play
from helpers.site_runs import Federation, dies_and_comes_back
from sottovoce.algorithms.hazards import ProportionalHazards
from sottovoce.algorithms.squares import LeastSquares
from sottovoce.federation.agreement import toml_file
from sottovoce.files.models.from_site import model_of

SIZES = (30, 200, 17, 80, 25)
# Labels of -1 and 1 are times, too: the end of the first interval.
LOSS = sv.losses.PiecewiseExponential((0.0, 2.5, 4.0))
KINDS = {"linear": (LeastSquares, {}), "piecewise-exponential": (ProportionalHazards, {"loss": LOSS})}


def made(family="linear", **terms):
    kind, own = KINDS[family]
    given = {"epsilon": 8.0, "delta": 1e-5, "colluding": 1, "least_sites": 5, "rounds": 4, "inference": True} | terms
    return Federation(sv.graphs.complete(5), SIZES, kind(**given, **own))


def told(federation, ends):
    found = {
        name: model_of(federation.agreement, name, end.model, end.absent, evidence=end.evidence)
        for name, end in ends.items()
    }
    assert len({model.weights.tobytes() for model in found.values()}) == 1
    # The second moments, from which tables of pairs are made, are those of all sites, the same bits everywhere.
    released = [end.moments for end in ends.values()]
    if isinstance(federation.algorithm, LeastSquares):
        assert {one.rows for one in released} == {sum(SIZES)}
        assert len({one.value.tobytes() for one in released}) == 1
    else:  # those of hazards go with events, and no tables are made of them
        assert released == [None] * len(SIZES)
    assert len({tuple(model.inference.lines) for model in found.values()}) == 1
    return found["rome"]


@pytest.mark.parametrize("family", KINDS)
def test_all_sites_end_with_one_model_and_one_table(family):
    with made(family) as federation:
        assert toml_file.loads(toml_file.dumps(federation.agreement)).algorithm == federation.agreement.algorithm
        model = told(federation, play(federation.finish(MemoryWorld())))
    assert model.inference.family == family
    assert [line.name for line in model.inference.figures] == (["uncentred R^2"] if family == "linear" else [])
    assert len(model.inference.lines) == (5 if family == "linear" else 4)
    assert model.inference.rows == sum(SIZES)
    assert model.privacy.epsilon <= 8.0


def test_without_inference_there_is_no_table():
    with made(inference=False) as federation:
        ends = play(federation.finish(MemoryWorld()))
        assert all(end.evidence is None for end in ends.values())


@pytest.mark.parametrize(
    ("family", "point", "at"),
    [("linear", "computed", 3), ("linear", "published", 4), ("piecewise-exponential", "published", 3)],
)
def test_a_crash_changes_nothing(family, point, at):
    with made(family) as federation:
        told(federation, play(dies_and_comes_back(federation, MemoryWorld(), point, at)))
        with federation.ledger("berlin") as ledger:
            assert len(list(ledger.reservations())) == 4
