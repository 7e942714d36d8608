"""A site alone, with agreed numbers only, computes what it would in a simulation of the whole network."""

import numpy as np
import pytest

import sottovoce as sv
from helpers.federations import ALGORITHMS, COMMON, NAMES, SIZES, SOFTMAX, agreement
from helpers.problems import lists
from sottovoce.errors import InputError
from sottovoce.federation.site.own_noise import FromNeighbours
from sottovoce.noise.sources import SeededNoise, Shape
from sottovoce.problem.losses import Softmax


def problem(algorithm):
    """Rows of every site, with labels that the loss accepts."""
    rng = np.random.default_rng(7)
    features, labels = lists(rng, SIZES)
    if isinstance(algorithm.loss, Softmax):
        labels = [rng.integers(0, 3, len(b)).astype(float) for b in labels]
    return features, labels


@pytest.mark.parametrize("algorithm", ALGORITHMS, ids=lambda a: type(a).__name__)
def test_noise_and_steps_follow_from_agreed_numbers_alone(algorithm):
    a = agreement(algorithm=algorithm)
    features, labels = problem(algorithm)
    whole = algorithm.oracle(sv.Sites(features, labels), a.graph)
    for i, name in enumerate(NAMES):
        own = a.oracle_for(name, sv.Sites(features[i : i + 1], labels[i : i + 1]))
        for site in (own, a.public_oracle(name)):
            assert algorithm.sigma(site) == algorithm.sigma(whole)
            assert algorithm.cost(1, site) == algorithm.cost(1, whole)
            assert algorithm.statement(site) == algorithm.statement(whole)
            assert algorithm.diameter_for(site) == algorithm.diameter_for(whole)
            assert site.lam == whole.lam
            assert site.c1 == whole.c1
            np.testing.assert_array_equal(algorithm.gradient_scale(site)[0], algorithm.gradient_scale(whole)[i])
            for k in (1, 3):
                np.testing.assert_array_equal(algorithm.eta(k, site), algorithm.eta(k, whole)[..., i : i + 1, :, :])


@pytest.mark.parametrize("algorithm", ALGORITHMS, ids=lambda a: type(a).__name__)
def test_sites_that_exchange_messages_do_what_a_simulation_does(algorithm):
    a = agreement(algorithm=algorithm)
    features, labels = problem(algorithm)
    whole = algorithm.oracle(sv.Sites(features, labels), a.graph)
    sites = [a.oracle_for(n, sv.Sites(features[i : i + 1], labels[i : i + 1])) for i, n in enumerate(NAMES)]
    together, apart = algorithm.start(whole, 1), [algorithm.start(site, 1) for site in sites]
    noise = SeededNoise(5, Shape(3, whole.d, 1))
    noises = [SeededNoise(5, Shape(1, whole.d, 1, first_node=i)) for i in range(3)]
    for k in range(1, algorithm.rounds + 1):
        message, together = algorithm.release(k, together, whole, noise)
        together = algorithm.absorb(k, together, whole, a.graph.exchange(message))
        said = {}
        for i, name in enumerate(NAMES):
            said[name], apart[i] = algorithm.release(k, apart[i], sites[i], noises[i])
            np.testing.assert_allclose(said[name][0], message[i], rtol=1e-12, atol=1e-12)
        for i, name in enumerate(NAMES):
            heard = sum(said[other] for other in a.neighbours(name))
            apart[i] = algorithm.absorb(k, apart[i], sites[i], FromNeighbours(heard))
    for i in range(3):
        outputs = zip(algorithm.outputs(3, apart[i]), algorithm.outputs(3, together), strict=True)
        for own, simulated in outputs:
            np.testing.assert_allclose(own[0], simulated[i], rtol=1e-12, atol=1e-12)


def test_a_grid_costs_what_the_proof_says():
    a = agreement(grid_bits=30)
    draws = 3 * 2 * 5  # rounds, local steps, coordinates
    by_hand = (1 + np.exp(1.5)) * np.sqrt(draws / (128 * 2.0**120) / 2)
    assert a.grid_delta == pytest.approx(by_hand, rel=1e-9)


def test_where_the_network_matters_it_is_the_agreed_one():
    # With batches, noise is set by the fewest rows of all sites, which a site alone could not know.
    batched = sv.IPADMM(**COMMON, local_steps=2, batch_size=4)
    a = agreement(algorithm=batched)
    few, many = a.public_oracle("paris"), a.public_oracle("berlin")
    assert few.fewest_rows == many.fewest_rows == 20
    alone = batched.oracle(many.sites, sv.graphs.complete(1))
    assert batched.sigma(many) == batched.sigma(few) > batched.sigma(alone)


def test_rows_must_be_as_agreed():
    a = agreement()
    features, labels = problem(a.algorithm)
    good = sv.Sites(features[:1], labels[:1])
    assert a.oracle_for("berlin", good).sites is good
    with pytest.raises(InputError, match="rows=20 at site paris, as agreed, got rows=30"):
        a.oracle_for("paris", good)
    with pytest.raises(InputError, match="the rows of the one site berlin, got sites=2"):
        a.oracle_for("berlin", sv.Sites(features[:2], labels[:2]))
    with pytest.raises(InputError, match="features=5, as agreed, got features=4"):
        a.oracle_for("berlin", sv.Sites([features[0][:, :4]], labels[:1]))
    with pytest.raises(InputError, match=r"data_norm=1.0, as agreed, got data_norm=2.0"):
        a.oracle_for("berlin", sv.Sites(features[:1], labels[:1], data_norm=2.0))
    with pytest.raises(InputError, match="a site of this federation: berlin, paris, rome, got site='oslo'"):
        a.oracle_for("oslo", good)


def test_the_graph_is_named():
    a = agreement()
    assert [a.neighbours(name) for name in NAMES] == [("paris",), ("berlin", "rome"), ("paris",)]
    assert [a.degree(name) for name in NAMES] == list(a.graph.degrees) == [1, 2, 1]
    assert [a.index(name) for name in NAMES] == [0, 1, 2]
    assert a.model_size == 5
    assert agreement(algorithm=SOFTMAX).model_size == 15
