"""Scores of the compiled oracle: in single precision where nobody can tell, in double where one could."""

import numpy as np
import pytest
from scipy.special import xlogy

from sottovoce import IPADMM
from sottovoce.algorithms.base import Outputs
from sottovoce.oracle.cpu import CompiledOracle
from sottovoce.oracle.plain import Oracle
from sottovoce.problem.graphs import complete
from sottovoce.problem.losses import Logistic
from sottovoce.problem.sites import Sites
from sottovoce.simulation import history
from sottovoce.simulation.exchange import Local


def oracles(scale):
    draws = np.random.default_rng(3)
    rows = draws.normal(size=(5_000, 20))
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    labels = np.where(rows @ draws.normal(size=20) + draws.normal(size=5_000) > 0, 1.0, -1.0)
    sites = Sites([rows], [labels], data_norm=1.0)
    models = draws.normal(size=(20, 40))
    models *= scale / np.linalg.norm(models, axis=0)
    made = (IPADMM().oracle(sites, complete(1), kind) for kind in (Oracle, CompiledOracle))
    return *made, models


@pytest.mark.parametrize("scale", [1e-3, 1.0, 30.0, 99.0])
def test_single_precision_cannot_be_told(scale):
    plain, compiled, models = oracles(scale)
    expected, got = plain.score(models), compiled.score(models)
    np.testing.assert_allclose(got.risk, expected.risk, rtol=0, atol=1e-6)
    assert np.any(got.risk != expected.risk)  # it is single precision that was looked at
    np.testing.assert_allclose(got.accuracy, expected.accuracy, rtol=0, atol=2 / 5_000)


@pytest.mark.parametrize("scale", [101.0, 1e6, 1e300])
def test_large_models_are_scored_in_double(scale):
    plain, compiled, models = oracles(scale)
    expected, got = plain.score(models), compiled.score(models)
    np.testing.assert_allclose(got.risk, expected.risk, rtol=1e-13)
    assert got.accuracy.tolist() == expected.accuracy.tolist()


def test_no_score_depends_on_the_models_beside_it():
    """Some are scored in single precision and some in double: each by its own size, and bit by bit as if alone."""
    _, compiled, models = oracles(1.0)
    models *= 10.0 ** np.linspace(-3, 6, models.shape[1])
    models[:, 5] = np.nan
    together = compiled.score(models)
    for q in range(models.shape[1]):
        alone = compiled.score(models[:, [q]])
        np.testing.assert_array_equal([together.risk[q], together.accuracy[q]], [alone.risk[0], alone.accuracy[0]])
    assert len(compiled.score(models[:, :0]).risk) == 0


def test_a_model_that_is_no_number_has_no_score():
    plain, compiled, models = oracles(1.0)
    models[3, 7] = np.nan
    for site in (plain, compiled):
        risk = site.score(models).risk
        assert np.flatnonzero(np.isnan(risk)).tolist() == [7]


def test_outputs_have_the_same_scores_together_and_one_by_one(monkeypatch):
    _, compiled, models = oracles(1.0)
    passes, score = [], CompiledOracle.score
    monkeypatch.setattr(CompiledOracle, "score", lambda site, m: passes.append(m.shape[1]) or score(site, m))
    # One model of each of 2 runs for all 4 nodes, as masked sums have it, and one for each node and run.
    average, last = np.broadcast_to(models[None, :, :2], (4, 20, 2)), models[:, 2:10].reshape(20, 4, 2).swapaxes(0, 1)
    lines = []
    for few in (history.FEW_MODELS, 1):
        monkeypatch.setattr(history, "FEW_MODELS", few)
        lines.append(history.measure(Outputs(average, last), compiled, np.arange(4), Local(complete(4).exchange)))
    assert passes == [12, 2, 8, 2]
    assert {name: column.tolist() for name, column in lines[0].items()} == {
        name: column.tolist() for name, column in lines[1].items()
    }
    expected = score(compiled, models).risk
    assert lines[0]["risk_average"].tolist() == expected[:2].tolist()
    np.testing.assert_allclose(lines[0]["risk_last"], expected[2:10].reshape(4, 2).mean(axis=0), rtol=1e-15)


def test_a_logistic_loss_is_a_straight_part_and_a_logarithm():
    z = np.concatenate([np.linspace(-40, 40, 1_001), [-700.0, 700.0]])
    for b in (-1.0, 1.0):
        straight, factor = Logistic.parts(z, b, 0.0)
        assert np.all((factor >= 1) & (factor <= 2))
        np.testing.assert_allclose(straight + xlogy(1, factor), np.logaddexp(0, -b * z), rtol=1e-15, atol=3e-16)
