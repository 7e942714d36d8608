"""Flower's simulation: the same rows, nodes, rounds and local steps, federated averaging of logistic models.

Every client does the l noisy gradient steps of a node, in NumPy. Flower has a server and no graph, so this is timed but
not checked against our numbers. Rounds are timed on the server; the first, which starts the workers, does not count.
"""

import os
from functools import cache
from importlib.metadata import version
from time import perf_counter

import numpy as np
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import ServerApp
from flwr.serverapp.strategy import FedAvg
from flwr.simulation import run_simulation

client = ClientApp()


@cache
def _data():
    from problem import load

    problem = load(os.environ["BENCH_PROBLEM"])
    return problem, problem.dense(np.float64)


@client.train()
def train(message: Message, context: Context) -> Message:
    problem, rows = _data()
    i = int(context.node_config["partition-id"])
    a, b, rng = rows[i], problem.labels[i], np.random.default_rng()
    w = message.content["arrays"].to_numpy_ndarrays()[0]
    for eta in problem.eta(1):
        slopes = -b / (1 + np.exp(b * (a @ w)))
        w = w - (slopes @ a / problem.m + problem.l2 * w - problem.std * rng.standard_normal(problem.d)) / eta
    reply = {"arrays": ArrayRecord([w]), "metrics": MetricRecord({"num-examples": problem.m})}
    return Message(RecordDict(reply), reply_to=message)


def measure(problem, rounds, threads):
    marks = []
    server = ServerApp()

    @server.main()
    def main(grid, _context):
        strategy = FedAvg(fraction_evaluate=0.0, min_train_nodes=problem.n, min_available_nodes=problem.n)
        strategy.start(grid=grid, initial_arrays=ArrayRecord([np.zeros(problem.d)]), num_rounds=rounds + 1,
                       evaluate_fn=lambda _round, _arrays: marks.append(perf_counter()))  # fmt: skip

    resources = {"client_resources": {"num_cpus": 1, "num_gpus": 0.0}, "init_args": {"num_cpus": threads}}
    run_simulation(server, client, num_supernodes=problem.n, backend_config=resources)
    return {"seconds_per_round": (marks[-1] - marks[1]) / rounds, "rounds": rounds, "nodes": problem.n,
            "version": version("flwr"), "note": "a server, no graph; start of the workers not counted"}  # fmt: skip
