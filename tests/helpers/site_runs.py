"""Whole federations in one process: real ledgers and journals, and sites that run side by side."""

import asyncio
import secrets
import shutil
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest

import sottovoce as sv
from helpers.federations import agreement, masked_members, members
from helpers.problems import lists
from sottovoce.federation.site.commitment import SALT_BYTES, commit
from sottovoce.federation.site.formats import format_of
from sottovoce.federation.site.heads import Heads
from sottovoce.federation.site.journal import Journal
from sottovoce.federation.site.mail import Pace
from sottovoce.federation.site.runner import run_site
from sottovoce.federation.site.seat import Seat, committing, owner_of
from sottovoce.federation.transport.wire import BadMessageError, Envelope, Kind, unseal
from sottovoce.noise.sources import GivenNoise, SeededNoise, Shape
from sottovoce.privacy.books.ledger import Ledger

QUICK = Pace(slice=0.5, server=20.0)
CAP = 10.0
FIVE = ("berlin", "oslo", "paris", "rome", "wien")


def scratch():
    """A folder in memory where there is such a place: a killed process leaves the same behind, and syncs are quick."""
    memory = Path("/dev/shm")
    return TemporaryDirectory(dir=memory if memory.is_dir() else None)


class Federation:
    """Keys, rows, an agreement, and a folder for every site's ledger and journal."""

    def __init__(self, graph, sizes, algorithm, seed=3, d=5, names=FIVE, cap=CAP, **changes):
        self.names = names[: len(sizes)]
        self.masked, self.seeds = algorithm.way.masked, dict.fromkeys(self.names)
        if self.masked:
            self.keys, self.seeds, sites = masked_members(self.names, sizes)
        else:
            self.keys, sites = members(self.names, sizes)
        network = graph.to_networkx()
        edges = tuple((self.names[i], self.names[j]) for i, j in network.edges)
        self.features, self.labels = lists(np.random.default_rng(seed), sizes, d)
        self.agreement = agreement(sites, edges=edges, features=d, algorithm=algorithm, **changes)
        self.salts = dict.fromkeys(self.names)
        if self.masked:
            self.commit_rows()
        self.graph, self.algorithm, self.cap = graph, algorithm, cap
        self._folder = scratch()
        self.folder = Path(self._folder.name)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._folder.cleanup()

    def sites(self, names=None):
        chosen = [self.names.index(name) for name in (names or self.names)]
        return sv.Sites([self.features[i] for i in chosen], [self.labels[i] for i in chosen])

    def commit_rows(self):
        """Bind the agreement to the rows as they are now."""
        self.salts = {name: secrets.token_bytes(SALT_BYTES) for name in self.names}
        sites = tuple(
            replace(site, data_commitment=commit(self.salts[site.name], self.sites([site.name])))
            for site in self.agreement.sites
        )
        self.agreement = replace(self.agreement, sites=sites)

    def normals(self, seed=11):
        """Noise of the whole network, for a simulation: round -> (1, nodes, draws, d)."""
        shape = len(self.names), self.algorithm.draws_per_round, self.agreement.model_size

        def noise(k):
            return np.random.default_rng((seed, k)).normal(size=(1, *shape))

        return noise

    def noise_of(self, name, noise):
        """One site's share of it."""
        i = self.names.index(name)
        batches = SeededNoise(0, Shape(1, self.agreement.model_size, 1, first_node=i))
        return GivenNoise(lambda k: noise(k)[:, i : i + 1], batches)

    def is_end(self, slot, data):
        """Whether a message says, behind the last sum, that its sender holds it: signed, and with no words."""
        a = self.agreement
        place = Envelope(a.run, a.digest(), slot, format_of(a).payload(a.algorithm.opened + 1))
        try:
            unseal(data, place, a.member(slot.site).public_key)
        except BadMessageError:
            return False
        return slot.kind is Kind.SUM

    def ledger(self, name, cap=None):
        path = self.folder / f"{name}.ledger"
        return Ledger.open(path) if path.exists() else Ledger.create(path, name, cap or self.cap, 1e-3)

    def journal(self, name, file=None):
        bound = committing(self.agreement, name, self.sites([name]))
        path = self.folder / (file or f"{name}.journal")
        return Journal.open(path, owner_of(self.agreement, name), bound, self.salts[name], seed=self.seeds[name])

    def seat(self, name, stack, noise=None, **changes):
        """A site, with its files open until the stack is left. With noise it is a test's, else a real one's."""
        given = {} if noise is None else {"noise": self.noise_of(name, noise), "for_tests": True}
        parts = {
            "agreement": self.agreement, "site": name, "rows": self.sites([name]), "key": self.keys[name],
            "ledger": stack.enter_context(self.ledger(name)), "journal": stack.enter_context(self.journal(name)),
            "heads": stack.enter_context(Heads(self.folder / f"heads-{name}")),
        }  # fmt: skip
        return Seat(**(parts | given | changes))

    async def site(self, name, world, noise=None, *, pace=QUICK, watcher=None, probe=None, **changes):
        """One site to its end, whatever that is."""
        with ExitStack() as stack:
            seat = self.seat(name, stack, noise, **changes)
            transport = await world.site(name, self.agreement.neighbours(name))
            async with transport:
                probed = {} if probe is None else {"probe": probe}
                return await run_site(seat, transport, watcher=watcher, pace=pace, **probed)

    async def all(self, world, noise=None, names=None, **options):
        """All sites side by side; what each leaves behind, or why it stopped, by name."""
        names = names or self.names
        ends = await asyncio.gather(
            *(self.site(name, world, noise, **options) for name in names), return_exceptions=True
        )
        return dict(zip(names, ends, strict=True))

    async def finish(self, world, noise=None, names=None, **options):
        """The same, where all must reach the end."""
        ends = await self.all(world, noise, names, **options)
        for end in ends.values():
            if isinstance(end, BaseException):
                raise end
        return ends


# -- sites that die ---------------------------------------------------------------------------------------------------


class Died(Exception):  # noqa: N818
    """A site's process ended."""


def dying(point, at):
    """A probe that ends the process at that point of round `at`."""

    def probe(name, k):
        if (name, k) == (point, at):
            raise Died

    return probe


async def dies(federation, world, point, at, name="berlin"):
    """A site runs until it dies there."""
    with pytest.raises(Died):
        await federation.site(name, world, probe=dying(point, at))


async def dies_and_comes_back(federation, world, point, at, name="berlin"):
    """All sites to their end, where one dies there and begins again; what each leaves behind, by name."""
    others = [other for other in federation.names if other != name]
    running = [asyncio.ensure_future(federation.site(other, world)) for other in others]
    await dies(federation, world, point, at, name)
    end = await federation.site(name, world)
    return {name: end, **dict(zip(others, await asyncio.gather(*running), strict=True))}


class Backup:
    """A copy of all that a site has on its disk."""

    def __init__(self, federation, name="berlin"):
        self.federation, self.name, self.folder = federation, name, federation.folder / f"backup-{name}"
        self.folder.mkdir()
        for file in federation.folder.glob(f"{name}.*"):
            shutil.copy(file, self.folder)

    def restore(self):
        for file in self.federation.folder.glob(f"{self.name}.*"):
            file.unlink()
        for file in self.folder.iterdir():
            shutil.copy(file, self.federation.folder)


async def meanwhile(federation, world, until, others=None):
    """The other sites run until the scene's own part is over; then they are ended. By default all but the first."""
    running = [asyncio.ensure_future(federation.site(name, world)) for name in others or federation.names[1:]]
    try:
        return await until
    finally:
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
