"""Messages over a real server: our full path against a bare put-and-get loop, on the same server, in turn.

    python benchmarks/network.py [--quick]     prints one JSON object

Bare: publish with acknowledgement, direct get; no signature, no check, nothing journalled. Ours: encode and sign, write
a journal through to the disk, put once; get, verify, decode. Both one message after the other, from one connection to
another. The server writes every message through to the disk before it answers.
"""

import asyncio
import json
import os
import statistics
import sys
import tempfile
from pathlib import Path
from time import perf_counter

import nats
import numpy as np
from nats.js.api import StorageType, StreamConfig

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))
from network_server import NatsServer
from sottovoce.engines.network.identity import SigningKey
from sottovoce.engines.network.jetstream import JetStreamTransport, create_stream
from sottovoce.engines.network.wire import Envelope, Expected, decode, encode, message_size

NUMBERS = 104  # Adult's coordinates
DIGEST = bytes(32)
LONG = 10.0
SITES = (5, 8)


class Journal:
    """A stand-in for a site's journal: what is about to be said is on the disk before it is said.

    Its room is taken in advance, so that a write changes no size, and syncing it writes no metadata.
    """

    def __init__(self, folder, room=1 << 24):
        self._file, self._end = os.open(folder / "journal", os.O_RDWR | os.O_CREAT), 0
        os.pwrite(self._file, bytes(room), 0)
        os.fsync(self._file)

    def __call__(self, data):
        self._end += os.pwrite(self._file, data, self._end)
        getattr(os, "fdatasync", os.fsync)(self._file)

    def close(self):
        os.close(self._file)


def forget(data):
    del data


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


class Ours:
    def __init__(self, run_id, journal):
        self.run_id, self.journal, self.key = run_id, journal, SigningKey.generate()
        self.public = self.key.public

    async def start(self, url):
        size = message_size(self.run_id, "a", NUMBERS)
        await create_stream(url, self.run_id, size)
        self.writer = await JetStreamTransport.connect(url, self.run_id, "a", ["b"], size)
        self.reader = await JetStreamTransport.connect(url, self.run_id, "b", ["a"], size)
        return self

    async def exchange(self, k, vector):
        data = encode(Envelope(self.run_id, DIGEST, k, "a", vector), self.key)
        self.journal(data)
        put = await self.writer.put_once(k, "a", data, LONG)
        assert put.held == data
        came = await self.reader.get(k, "a", LONG)
        return decode(came, Expected(self.run_id, DIGEST, k, "a", NUMBERS), self.public)

    async def stop(self):
        await asyncio.gather(self.writer.close(), self.reader.close())


async def rate(contender, first, messages, vector):
    started = perf_counter()
    for k in range(first, first + messages):
        came = await contender.exchange(k, vector)
    taken = perf_counter() - started
    assert np.array_equal(came, vector)
    return messages / taken


async def throughput(url, journal, repeats, messages):
    """Messages a second, block by block in turn, so that all contenders see the same load."""
    vector = np.random.default_rng(0).standard_normal(NUMBERS)
    contenders = {
        "bare": await Bare().start(url),
        "ours": await Ours("full", journal).start(url),
        "ours, no journal": await Ours("no-journal", forget).start(url),
    }
    rates = {name: [] for name in contenders}
    for block in range(repeats + 1):
        for name, contender in contenders.items():
            rates[name].append(await rate(contender, block * messages, messages, vector))
    for contender in contenders.values():
        await contender.stop()
    # The first block warms everything up. Ratios are taken within a block.
    out = {name: statistics.median(values[1:]) for name, values in rates.items()}
    pairs = list(zip(rates["ours"], rates["bare"], strict=True))[1:]
    return {"messages_per_second": out, "ours_over_bare": statistics.median(ours / bare for ours, bare in pairs)}


async def rounds_per_second(url, sites, rounds):
    """All sites in one process, everyone hears everyone: sign, put, get, verify."""
    names, run_id = [f"s{i}" for i in range(sites)], f"all-{sites}"
    keys = {name: SigningKey.generate() for name in names}
    size = message_size(run_id, "s0", NUMBERS)
    await create_stream(url, run_id, size)
    ready = asyncio.Barrier(sites + 1)

    async def live(name):
        others = [other for other in names if other != name]
        async with await JetStreamTransport.connect(url, run_id, name, others, size) as site:
            await ready.wait()
            for k in range(rounds):
                await site.put_once(k, name, encode(Envelope(run_id, DIGEST, k, name, vector), keys[name]), LONG)
                for other, data in (await site.get_many(k, others, LONG)).items():
                    decode(data, Expected(run_id, DIGEST, k, other, NUMBERS), keys[other].public)

    vector = np.random.default_rng(1).standard_normal(NUMBERS)
    lives = [asyncio.ensure_future(live(name)) for name in names]
    await ready.wait()
    started = perf_counter()
    await asyncio.gather(*lives)
    return rounds / (perf_counter() - started)


async def measure(url, journal, quick):
    repeats, messages, rounds = (2, 30, 10) if quick else (7, 150, 60)
    out = await throughput(url, journal, repeats, messages)
    out["rounds_per_second"] = {str(n): await rounds_per_second(url, n, rounds) for n in SITES}
    return out


def main(journal=None):
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        file = Journal(folder)
        with NatsServer(folder) as server:
            out = asyncio.run(measure(server.url, journal or file, "--quick" in sys.argv))
        file.close()
    print(json.dumps(out, indent=2))


if __name__ == "__main__":
    main()
