"""pfl-research, Apple's simulator: the same rows, nodes, rounds and local steps, federated averaging.

Every user does the l noisy gradient steps of a node, in PyTorch; a step's noise is a term of the loss that is linear in
the model. It has a server and no graph, so this is timed but not checked against our numbers. Rounds are timed by its
own callback; the first does not count.
"""

from importlib.metadata import version
from time import perf_counter

import numpy as np
import torch
from pfl.aggregate.simulate import SimulatedBackend
from pfl.algorithm.base import NNAlgorithmParams
from pfl.algorithm.federated_averaging import FederatedAveraging
from pfl.callback.base import TrainingProcessCallback
from pfl.data.dataset import Dataset
from pfl.data.federated_dataset import FederatedDataset
from pfl.data.sampling import get_user_sampler
from pfl.hyperparam.base import NNTrainHyperParams
from pfl.metrics import Metrics
from pfl.model.pytorch import PyTorchModel


class Logistic(torch.nn.Module):
    def __init__(self, problem):
        super().__init__()
        self.w = torch.nn.Parameter(torch.zeros(problem.d))
        self.std, self.l2 = problem.std, problem.l2

    def loss(self, rows, labels):
        """The mean loss of a node, whose gradient is a node's noisy one."""
        w = self.w
        mean = torch.nn.functional.softplus(-labels * (rows @ w)).mean()
        return mean + self.l2 / 2 * (w @ w) - self.std * (torch.randn_like(w) @ w)

    def metrics(self, *_rows, **_options):
        return {}


class Marks(TrainingProcessCallback):
    def __init__(self):
        self.times = []

    def after_central_iteration(self, _metrics, _model, *, central_iteration):  # noqa: ARG002
        self.times.append(perf_counter())
        return False, Metrics()


def measure(problem, rounds, threads):
    torch.set_num_threads(threads)
    rows, labels = torch.from_numpy(problem.dense(np.float32)), torch.from_numpy(problem.labels.astype(np.float32))
    users = {i: (rows[i], labels[i]) for i in range(problem.n)}
    data = FederatedDataset(
        lambda i: Dataset(users[i], user_id=str(i)), get_user_sampler("minimize_reuse", list(users))
    )
    module, marks = Logistic(problem), Marks()
    model = PyTorchModel(module, torch.optim.SGD, torch.optim.SGD(module.parameters(), lr=1.0))
    every = NNAlgorithmParams(
        central_num_iterations=rounds + 1, evaluation_frequency=rounds + 2, train_cohort_size=problem.n,
        val_cohort_size=0,
    )  # fmt: skip
    local = NNTrainHyperParams(
        local_batch_size=None, local_num_epochs=problem.l, local_learning_rate=float(1 / problem.eta(1)[0])
    )
    FederatedAveraging().run(every, SimulatedBackend(data, data), model, local, callbacks=[marks])
    return {"seconds_per_round": (marks.times[-1] - marks.times[0]) / rounds, "rounds": rounds, "nodes": problem.n,
            "version": version("pfl"), "note": "a server, no graph"}  # fmt: skip
