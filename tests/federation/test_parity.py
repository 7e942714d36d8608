"""With the same noise handed in, real sites give the simulator's numbers."""

import numpy as np
import pytest

import sottovoce as sv
from helpers import every
from helpers.federations import COMMON
from helpers.network_server import NatsServer
from helpers.network_worlds import JetStreamWorld, MemoryWorld, play
from helpers.site_runs import Federation
from sottovoce.algorithms import IPADMM

# Two triangles that share a node, and a tail: degrees 1, 2, 2, 3, 2.
IRREGULAR = sv.graphs.from_edges(5, [(0, 3), (1, 2), (1, 3), (2, 4), (3, 4)])
GRAPHS = {"complete": sv.graphs.complete(5), "ring": sv.graphs.ring(5), "irregular": IRREGULAR}
SIZES = (3, 40, 17, 8, 25)
ALGORITHMS = every.algorithms(
    COMMON | {"local_steps": 3, "largest_degree": 4}, every.has_own_noise_at_sites, ("fair",)
) | {
    "ipadmm, batches": IPADMM(**COMMON, local_steps=2, batch_size=3, sampling="poisson", radius=3.0),
}


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with NatsServer(tmp_path_factory.mktemp("nats"), sync="2m") as server:
        yield server


def compare(federation, world):
    """Every site's last broadcast and average, and its model, against a simulation of the whole."""
    noise = federation.normals()
    ends = play(federation.finish(world, noise))
    whole = sv.simulate(federation.algorithm, federation.sites(), federation.graph, seed=0, noise=noise, device="plain")
    assert np.abs(whole.last).max() > 0.01
    for i, name in enumerate(federation.names):
        outputs = federation.algorithm.outputs(federation.algorithm.rounds, ends[name].state)
        np.testing.assert_allclose(outputs.last[0, :, 0], whole.last[0, i], rtol=1e-12, atol=1e-12)
        np.testing.assert_allclose(outputs.average[0, :, 0], whole.average[0, i], rtol=1e-12, atol=1e-12)
    return ends, whole


@pytest.mark.parametrize("graph", GRAPHS)
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_sites_in_one_process_do_what_a_simulation_does(algorithm, graph):
    with Federation(GRAPHS[graph], SIZES, ALGORITHMS[algorithm]) as federation:
        compare(federation, MemoryWorld())


@pytest.mark.parametrize("graph", GRAPHS)
def test_sites_over_a_real_server_do_what_a_simulation_does(server, graph):
    algorithm = IPADMM(**(COMMON | {"rounds": 6}), local_steps=3)
    with Federation(GRAPHS[graph], SIZES, algorithm) as federation:
        compare(federation, JetStreamWorld(server))


def test_the_model_is_the_mean_of_what_a_site_said_and_heard():
    with Federation(IRREGULAR, SIZES, ALGORITHMS["ipadmm"]) as federation:
        ends, whole = compare(federation, MemoryWorld())
        for i, name in enumerate(federation.names):
            around = [i, *IRREGULAR.neighbours(i)]
            np.testing.assert_allclose(ends[name].model, whole.last[0, around].mean(axis=0), rtol=1e-12, atol=1e-12)
            np.testing.assert_allclose(ends[name].own, whole.last[0, i], rtol=1e-12, atol=1e-12)


def test_on_a_complete_graph_the_model_is_the_consensus():
    with Federation(GRAPHS["complete"], SIZES, ALGORITHMS["dpadmm"]) as federation:
        ends, whole = compare(federation, MemoryWorld())
        for end in ends.values():
            np.testing.assert_allclose(end.model, whole.consensus[0], rtol=1e-12, atol=1e-12)
