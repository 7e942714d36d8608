"""APPFL's serial simulation of IIADMM, its private ADMM: the same rows, nodes, rounds and local steps.

It is another algorithm (a server, output noise once a round), so it is timed but not checked against our numbers. Each
node's rows are one item of its data set, so that APPFL does not collect a batch row by row.
"""

import os
import tempfile
from importlib.metadata import version

import numpy as np
import torch
from appfl.config import Config
from appfl.config.fed import IIADMM
from appfl.misc.data import Dataset
from appfl.run_serial import run_serial
from omegaconf import OmegaConf


class Model(torch.nn.Module):
    def __init__(self, d):
        super().__init__()
        self.linear = torch.nn.Linear(d, 1, bias=False)

    def forward(self, rows):
        return self.linear(rows).squeeze(-1)


def measure(problem, rounds, threads):
    torch.set_num_threads(threads)
    rows = torch.from_numpy(problem.dense(np.float32))
    labels = torch.from_numpy((problem.labels > 0).astype(np.float32))
    nodes = [Dataset(rows[i : i + 1], labels[i : i + 1]) for i in range(problem.n)]
    _elapsed(problem, nodes, 1)  # torch's first steps are slow
    few, many = (_elapsed(problem, nodes, count) for count in (1, 1 + rounds))
    return {"seconds_per_round": (many - few) / rounds, "rounds": rounds, "nodes": problem.n,
            "version": version("appfl"), "note": "a server, noise once a round; its own algorithm"}  # fmt: skip


def _elapsed(problem, nodes, rounds):
    with tempfile.TemporaryDirectory() as folder:
        cfg = OmegaConf.structured(Config(fed=IIADMM()))
        cfg.num_clients, cfg.num_epochs, cfg.validation, cfg.batch_training = problem.n, rounds, False, False
        cfg.output_dirname = os.path.join(folder, "log")
        args = cfg.fed.args
        args.num_local_epochs, args.accum_grad = problem.l, False
        args.use_dp, args.epsilon, args.clip_value, args.clip_norm = True, 1.0, 1.0, 2.0
        run_serial(cfg, Model(problem.d), torch.nn.BCEWithLogitsLoss(), nodes, Dataset(), "adult")
        return cfg.logginginfo.Elapsed_time
