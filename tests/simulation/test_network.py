"""Simulated seconds: closed forms, a queue played message by message, and what is read."""

import json

import numpy as np
import pytest

import sottovoce as sv
from sottovoce.cli import main
from sottovoce.simulation.network import NetworkModel, Trace
from sottovoce.simulation.network_text import read_network

EVEN = NetworkModel(latency=0.05, bandwidth=8e6, compute=0.1, overhead=200)
S = (8 * 1000 + 200) * 8 / 8e6  # seconds of 1,000 numbers on a line


@pytest.mark.parametrize(("graph", "degree"), [
    (sv.graphs.ring(6), 2), (sv.graphs.complete(6), 5), (sv.graphs.random_cycles(20, 4), 4), (sv.graphs.complete(1), 0),
], ids=["ring", "complete", "random", "alone"])  # fmt: skip
def test_where_all_sites_are_alike(graph, degree):
    ends = EVEN.ends(graph, np.full(graph.n, 30), [1000] * 3)
    once = 0.1 + S + (0.05 + degree * S if degree else 0.0)
    np.testing.assert_allclose(ends, [once, 2 * once, 3 * once], rtol=1e-12)


def test_a_star_waits_for_the_line_of_its_middle():
    ends = EVEN.ends(sv.graphs.star(9), np.full(9, 30), [1000])
    np.testing.assert_allclose(ends, 0.1 + S + 0.05 + 8 * S, rtol=1e-12)


def test_messages_of_different_lengths():
    ends = NetworkModel(0.0, 8.0).ends(sv.graphs.complete(2), np.ones(2), [1, 10])
    np.testing.assert_allclose(ends, [16, 16 + 160])


def test_a_slow_site_spreads_at_the_speed_of_its_graph():
    """On a path, whom a slow site holds up in round k is as far as k - 1 edges away; the others are not."""
    network = NetworkModel(0.0, 1e30, compute=1.0, traces=((0, Trace(speed=0.1)),))
    np.testing.assert_allclose(network.ends(sv.graphs.path(5), np.full(5, 7), [1, 1, 1]), [10, 20, 30])
    away = NetworkModel(0.0, 1e30, compute=1.0, traces=((0, Trace(away=((0.5, 8.5), (20.0, 30.0)))),))
    # Half a second before, half a second after; then others wait for it in the second round only.
    np.testing.assert_allclose(away.ends(sv.graphs.path(5), np.full(5, 7), [1, 1, 1]), [9, 10, 11])


def test_a_site_that_is_away_rests_wherever_it_is_in_its_work():
    def alone(*spans):
        network = NetworkModel(0.0, 1e30, compute=2.0, traces=((0, Trace(away=spans)),))
        return network.ends(sv.graphs.complete(1), np.ones(1), [1, 1]).tolist()

    assert alone((0.0, 5.0)) == [7.0, 9.0]
    assert alone((2.0, 3.0)) == [2.0, 5.0]  # done when it leaves, and begins when it is back
    assert alone((1.0, 2.0), (2.5, 4.5)) == [5.0, 7.0]
    assert alone((50.0, 60.0)) == [2.0, 4.0]


def played(network, graph, counts, numbers):
    """The same by queues, one message after the other."""
    n, known = graph.n, dict(network.traces)
    traces = [known.get(i, Trace()) for i in range(n)]
    line = [trace.bandwidth or network.bandwidth for trace in traces]
    now, ends = [0.0] * n, []
    for count in numbers:
        bits = 8 * (8 * count + network.overhead)
        sent = [
            now[i] + network.compute * counts[i] / np.mean(counts) / traces[i].speed + bits / line[i] for i in range(n)
        ]
        for i in range(n):
            free = 0.0
            for arrives in sorted(sent[j] + network.latency for j in graph.neighbours(i)):
                free = max(free, arrives) + bits / line[i]
            now[i] = max(sent[i], free)
        ends.append(max(now))
    return ends


@pytest.mark.parametrize("seed", range(4))
def test_queues_played_message_by_message(seed):
    rng = np.random.default_rng(seed)
    traces = tuple((i, Trace(float(rng.uniform(0.2, 3)), float(rng.choice([1e5, 1e6])))) for i in range(0, 12, 2))
    network = NetworkModel(float(rng.uniform(0, 0.1)), 4e5, float(rng.uniform(0, 0.5)), 50, traces)
    counts, numbers = rng.integers(1, 50, size=12), rng.integers(1, 3000, size=5).tolist()
    for graph in (sv.graphs.complete(12), sv.graphs.grid(3, 4), sv.graphs.erdos_renyi(12, 0.4, seed=seed)):
        found = network.ends(graph, counts, numbers)
        np.testing.assert_allclose(found, played(network, graph, counts, numbers), rtol=1e-12)


def test_read(tmp_path):
    assert read_network("latency=50ms, bandwidth=10Mbit") == NetworkModel(0.05, 1e7)
    assert read_network("latency=1s,bandwidth=2Gbit,compute=3min,overhead=9") == NetworkModel(1.0, 2e9, 180.0, 9)
    file = tmp_path / "lines.toml"
    file.write_text(
        'latency = "50ms"\nbandwidth = "10Mbit"\n\n[[sites]]\nnodes = [3, 1]\nspeed = 0.5\nbandwidth = "1Mbit"\n'
        "away = [[10, 20.5]]\n"
    )
    slow = Trace(0.5, 1e6, ((10.0, 20.5),))
    assert read_network(str(file)) == NetworkModel(0.05, 1e7, traces=((1, slow), (3, slow)))


@pytest.mark.parametrize(("text", "words"), [
    ("latency=50ms", "got no bandwidth. Add it"),
    ("latency=50,bandwidth=1Mbit", "unit among us, ms, s, min, h, such as 50ms, got '50'"),
    ("latency=5e5e5ms,bandwidth=1Mbit", "a number before ms, such as 50ms, got '5e5e5ms'"),
    ("latency=50ms,bandwidth=1Mbyte", "unit among bit, kbit, Mbit, Gbit, such as 10Mbit, got '1Mbyte'"),
    ("latency=50ms,bandwidth=0bit", "bandwidth > 0 bit, got bandwidth=0.0"),
    ("latency=50ms,bandwith=1Mbit", "Did you mean bandwidth?"),
    ("latency=50ms,latency=1s,bandwidth=1Mbit", "every part of --network once"),
    ("latency=50ms,bandwidth=1Mbit,overhead=9999999999999", "at most 1,000,000,000,000, got overhead=9999999999999"),
    ("no-such-file.toml", "No such file"),
])  # fmt: skip
def test_refused(text, words):
    with pytest.raises(sv.InputError) as error:
        read_network(text)
    assert words in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("text", ["x", "²", "٣", "-1", "1e3", "1_0", "", "9" * 5000])
def test_an_overhead_that_is_no_number_of_bytes(text):
    with pytest.raises(sv.InputError, match=f"whole number of bytes for overhead, .* got '{text[:40]}'"):
        read_network(f"latency=50ms,bandwidth=1Mbit,overhead={text}")


@pytest.mark.parametrize(("traces", "words"), [
    (((7, Trace()),), r"nodes 0 \.\. 4 of the graph, got node=7"),
    (((1, Trace(speed=0.0)),), "speed > 0 of node 1, got speed=0.0"),
    (((1, Trace(away=((3.0, 2.0),))),), "rising order for away of node 1"),
])  # fmt: skip
def test_traces_that_are_refused(traces, words):
    with pytest.raises(sv.InputError, match=words):
        NetworkModel(0.0, 1e6, traces=traces).ends(sv.graphs.ring(5), np.ones(5), [1])


def test_the_command_line_says_when_every_recorded_round_is_over(capfd):
    options = ["train", "--nodes", "5", "--rounds", "4", "--local-steps", "1", "--rho", "0.01", "--diameter", "50"]
    options += ["--runs", "2", "--record", "2", "--no-yardstick", "--json"]
    assert main([*options, "--network", "latency=1s,bandwidth=1Gbit"]) == 0
    told = json.loads(capfd.readouterr().out)
    line = 8 * 8 * 104 / 1e9
    assert [(row["round"], round(row["seconds"], 9)) for row in told["network"]] == [
        (k, round(k * (1 + 5 * line), 9)) for k in (2, 4)
    ]
    assert told["network"][-1]["risk"] == pytest.approx(told["risk"]["consensus"], rel=1e-12)
    assert main([*options, "--network", "latency=1"]) == 2
    assert "got no bandwidth. Add it." in capfd.readouterr().err
