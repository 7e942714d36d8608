"""The paper's setting on the packaged data: what the reading notes measured once with independent code."""

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

import sottovoce as sv
from sottovoce.simulation.optimum import pooled_model, pooled_optimum


@pytest.fixture(scope="module", name="network")
def _network():
    data = sv.datasets.adult()
    return sv.Sites.split(data, nodes=100, seed=0), sv.graphs.complete(100)


def test_pooled_optimum_agrees_with_scikit_learn(network):
    sites, _ = network
    algorithm = sv.IPADMM()
    a, b = sites.rows.matrix, sites.labels
    # C is the weight of the sum of losses against ||w||^2 / 2: mean loss + 1e-6 ||w||^2 / 2.
    theirs = LogisticRegression(C=1 / (1e-6 * len(b)), fit_intercept=False, solver="newton-cholesky", tol=1e-10).fit(
        a, b
    )
    risk = np.logaddexp(0, -b * (a @ theirs.coef_[0])).mean()
    assert pooled_optimum(sites, algorithm) == pytest.approx(risk, abs=1e-8)
    assert risk == pytest.approx(0.3241, abs=5e-4)
    assert np.mean(np.sign(a @ pooled_model(sites, algorithm)) == b) == pytest.approx(0.849, abs=0.002)


def test_defaults_do_well_and_the_paper_s_calibration_does_worse(network):
    sites, graph = network
    exact = sv.simulate(sv.IPADMM(), sites, graph, runs=3, seed=0, record=1)
    paper = sv.simulate(sv.IPADMM(calibration="paper"), sites, graph, runs=3, seed=0, record=1)
    assert exact.risk()["consensus"] <= 0.42
    assert exact.accuracy()["consensus"] > 0.80
    for name in ("average", "last", "consensus"):
        assert paper.risk()[name] > exact.risk()[name]
    assert paper.privacy.epsilon < exact.privacy.epsilon <= 1.0
