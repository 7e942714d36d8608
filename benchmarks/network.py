"""Messages between real sites: all that a site does for one, against a bare put-and-get loop on the same server.

    python benchmarks/network.py [--quick] [--out benchmarks/network.json]

One message is put by one connection and got by another, and only then comes the next. The server syncs every message to
the disk before it answers, for everyone. What is counted beyond that:

    bare     nothing: publish, wait for the server's word, direct get. No signature, no check, no file.
    signed   sign, put once; get, verify and decode. No file.
    synced   as signed, with the journal: outbox before, checkpoint after. One sync of the site's for each of the
             server's: a checkpoint is written with the next outbox.
    full     as synced, with the ledger: reserve the round before, say with the message what the ledger holds, and bind
             it before it is put; the reader keeps what was said, without a sync. Three syncs more: entry and head of
             the reservation, and the entry that binds. This is all that a site does about a message, but for
             computing and noise.

Ledger and journal are the real ones, on the same disk as the server's files.

Contenders take turns, block by block, so that all see the same disk and the same load; ratios are taken within a block.
`microseconds` is where the time of `full` goes, the median of each step.

`rounds_per_second` is of whole sites, with secure noise and local work: a process each, on one machine; all hear all.
"""

import argparse
import asyncio
import json
import multiprocessing
import statistics
import sys
import tempfile
from contextlib import ExitStack
from itertools import pairwise
from pathlib import Path
from time import perf_counter

import nats
import numpy as np
from nats.js.api import StorageType, StreamConfig

import machine

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))
import sottovoce as sv
from helpers.network_server import NatsServer
from helpers.network_worlds import JetStreamWorld
from helpers.site_runs import FIVE, Federation
from sottovoce.federation.operator.opening import room_for
from sottovoce.federation.site.events import RoundDone
from sottovoce.federation.site.letters import ModelWords
from sottovoce.federation.site.mail import Mail, Pace, no_books
from sottovoce.federation.site.snapshot import Snapshot, pack_state
from sottovoce.federation.site.watchers import Watcher
from sottovoce.federation.site.witness import Witness
from sottovoce.federation.transport.jetstream import JetStreamTransport, create_stream
from sottovoce.federation.transport.wire import Slot, books_of

NUMBERS = 104  # Adult's coordinates
LONG = 10.0
SITES = (5, 8)
fork = multiprocessing.get_context("fork")
NAMES = (*FIVE, "athens", "cairo", "delhi")


class Bare:
    async def start(self, url):
        self.writer, self.reader = await nats.connect(url), await nats.connect(url)
        self.puts, self.gets = self.writer.jetstream(), self.reader.jetstream()
        await self.puts.add_stream(
            StreamConfig(name="bare", subjects=["bare.*"], storage=StorageType.FILE, allow_direct=True)
        )
        return self

    async def exchange(self, k, vector):
        await self.puts.publish(f"bare.{k}", vector.tobytes())
        message = await self.gets.get_last_msg("bare", f"bare.{k}", direct=True)
        return np.frombuffer(message.data)

    async def stop(self):
        await asyncio.gather(self.writer.close(), self.reader.close())


class Signed:
    """berlin writes, oslo reads."""

    def __init__(self, federation):
        self.federation = federation

    books = staticmethod(no_books)

    async def start(self, url):
        a = self.federation.agreement
        size = room_for(a).size
        self.witness = Witness.start(a)
        await create_stream(url, a.run, size)
        self.transports = [
            await JetStreamTransport.connect(url, a.run, name, a.neighbours(name), size) for name in ("berlin", "oslo")
        ]
        self.writer, self.reader = (
            Mail(a, name, self.federation.keys[name], transport, Watcher(), Pace(), self.books)
            for name, transport in zip(("berlin", "oslo"), self.transports, strict=True)
        )
        return self

    def seal(self, k, vector):
        return self.writer.seal(Slot(k, "berlin"), ModelWords(vector, bytes(32), self.witness.testimony).to_bytes())

    async def letter(self, k):
        return (await self.reader.hear(Slot(k, "berlin"), LONG, self.reader.open_letter)).content

    async def hear(self, k):
        return (await self.letter(k)).words.vector

    async def exchange(self, k, vector):
        await self.writer.deliver(Slot(k, "berlin"), self.seal(k, vector))
        return await self.hear(k)

    async def stop(self):
        await asyncio.gather(*(transport.close() for transport in self.transports))


class Synced(Signed):
    def __init__(self, federation, stack):
        super().__init__(federation)
        self.seat = federation.seat("berlin", stack)

    async def exchange(self, k, vector):
        message = self.seal(k, vector)
        self.seat.journal.put(k, message, pack_state(self.seat.part.start.state))
        await self.writer.deliver(Slot(k, "berlin"), message)
        heard = await self.hear(k)
        self.checkpoint(k, vector)
        return heard

    def checkpoint(self, k, vector):
        own = vector.reshape(1, -1, 1)
        self.seat.journal.checkpoint(k, Snapshot(self.seat.part.start.state, own, own, self.witness).dumps())


class Full(Synced):
    def __init__(self, federation, stack):
        super().__init__(federation, stack)
        assert self.seat.refused() is None  # once a run, as a site does
        self.books, self.steps = self.seat.books.statement, {}

    def lap(self, step, since):
        now = perf_counter()
        self.steps.setdefault(step, []).append(now - since)
        return now

    async def exchange(self, k, vector):
        seat, at = self.seat, perf_counter()
        seat.reserve(k)
        at = self.lap("reserve", at)
        message = self.seal(k, vector)
        at = self.lap("sign", at)
        seat.journal.put(k, message, pack_state(seat.part.start.state))
        at = self.lap("outbox", at)
        seat.bind(k, message)
        at = self.lap("bind", at)
        await self.writer.deliver(Slot(k, "berlin"), message)
        at = self.lap("put once", at)
        letter = await self.letter(k)
        at = self.lap("get and verify", at)
        seat.heads.hear(seat.key.public, seat.agreement.run, k, books_of(letter.data))
        seat.heads.flush()
        at = self.lap("keep its books", at)
        self.checkpoint(k, vector)
        self.lap("checkpoint", at)
        return letter.words.vector


async def rate(contender, first, messages, vector):
    started = perf_counter()
    for k in range(first, first + messages):
        came = await contender.exchange(k, vector)
    taken = perf_counter() - started
    assert np.array_equal(came, vector)
    return messages / taken


async def throughput(url, folder, repeats, messages):
    vector = np.random.default_rng(0).standard_normal(NUMBERS)
    algorithm = sv.IPADMM(rounds=(repeats + 1) * messages, local_steps=2, epsilon=1.0, delta=1e-5, diameter=10.0)
    with ExitStack() as stack:
        signed, synced, full = (
            stack.enter_context(federation(2, algorithm, folder / name)) for name in ("signed", "synced", "full")
        )
        contenders = {"bare": Bare(), "signed": Signed(signed), "synced": Synced(synced, stack),
                      "full": Full(full, stack)}  # fmt: skip
        rates = {name: [] for name in contenders}
        for contender in contenders.values():
            await contender.start(url)
        for block in range(repeats + 1):
            for name, contender in contenders.items():
                rates[name].append(await rate(contender, 1 + block * messages, messages, vector))
        for contender in contenders.values():
            await contender.stop()
    # The first block warms everything up.
    rates = {name: values[1:] for name, values in rates.items()}
    return {
        "messages_per_second": {name: statistics.median(values) for name, values in rates.items()},
        "over_bare": {name: ratios(values, rates["bare"]) for name, values in rates.items() if name != "bare"},
        "microseconds": {name: 1e6 * statistics.median(values) for name, values in contenders["full"].steps.items()},
    }


def ratios(ours, bare):
    found = sorted(a / b for a, b in zip(ours, bare, strict=True))
    return {"median": statistics.median(found), "lowest": found[0], "highest": found[-1]}


def federation(sites, algorithm, folder):
    """With ledgers and journals on the disk."""
    made = Federation(sv.graphs.complete(sites), (50,) * sites, algorithm, d=NUMBERS, names=NAMES)
    folder.mkdir()
    made.folder = folder
    return made


class Times(Watcher):
    def __init__(self):
        self.rounds = {}

    def tell(self, event):
        if isinstance(event, RoundDone):
            self.rounds[event.round] = perf_counter()


def rounds_per_second(server, folder, sites, rounds):
    """The median, after the first few; a round is done when the last site has it."""
    algorithm = sv.IPADMM(rounds=rounds, local_steps=2, epsilon=1.0, delta=1e-5, diameter=10.0)
    world = JetStreamWorld(server)
    with federation(sites, algorithm, folder / f"{sites}") as made:
        asyncio.run(made_ready(world))
        ways = [fork.Pipe(duplex=False) for _ in made.names]
        lives = [
            fork.Process(target=live, args=(made, name, world, there))
            for name, (_, there) in zip(made.names, ways, strict=True)
        ]
        for life in lives:
            life.start()
        times = [here.recv() for here, _ in ways]
        for life in lives:
            life.join()
    done = [max(of_site[k] for of_site in times) for k in range(5, rounds + 1)]
    return 1 / statistics.median(b - a for a, b in pairwise(done))


async def made_ready(world):
    async with await world.site("berlin"):
        pass


def live(made, name, world, there):
    times = Times()
    asyncio.run(made.site(name, world, watcher=times, pace=Pace()))
    there.send(times.rounds)


def measure(server, folder, quick):
    repeats, messages, rounds = (2, 30, 15) if quick else (9, 150, 80)
    out = asyncio.run(throughput(server.url, folder, repeats, messages))
    out["rounds_per_second"] = {str(n): rounds_per_second(server, folder, n, rounds) for n in SITES}
    return out


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "network.json")
    given = parser.parse_args()
    packages = ("sottovoce", "numpy", "nats-py", "cryptography", "numba")
    out = {"machine": machine.describe(packages), "load_before": machine.busy(), "quick": given.quick}
    with tempfile.TemporaryDirectory() as name, NatsServer(name) as server:
        out |= measure(server, Path(name), given.quick)
    text = json.dumps(out, indent=2)
    given.out.write_text(f"{text}\n")
    print(text)


if __name__ == "__main__":
    main()
