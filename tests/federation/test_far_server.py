"""A server that is far away is not an empty mailbox, and not a dead server."""

import asyncio
import threading

import pytest

import sottovoce as sv
from helpers.guarded_server import GuardedServer, federation_of
from helpers.network_relay import Relay
from helpers.network_server import NatsServer
from helpers.network_worlds import LARGEST, LONG, JetStreamWorld, play
from sottovoce.algorithms import IPADMM
from sottovoce.federation.agreement.agreement import LostNeighbour
from sottovoce.federation.operator.opening import room_for
from sottovoce.federation.site.events import Waiting
from sottovoce.federation.site.mail import Pace
from sottovoce.federation.site.stops import LostNeighbourError
from sottovoce.federation.site.watchers import Watcher
from sottovoce.federation.transport.jetstream import JetStreamTransport
from sottovoce.federation.transport.transport import UnreachableError
from sottovoce.federation.transport.wire import Slot

ALGORITHM = IPADMM(rounds=2, local_steps=1, epsilon=1.5, delta=1e-5, diameter=10.0)
TWO = ("berlin", "paris")


class FarWorld:
    """A run on a server behind a relay, as `Federation` wants it."""

    def __init__(self, server, relay, agreement):
        self.server, self.relay, self.agreement = server, relay, agreement

    async def site(self, name, neighbours):
        return await JetStreamTransport.connect(
            f"tls://127.0.0.1:{self.relay.port}", self.agreement.run, name, neighbours, room_for(self.agreement).size,
            tls=self.server.files(name).context(), timeout=25.0,
        )  # fmt: skip


@pytest.mark.slow
def test_a_run_starts_and_ends_over_1200_milliseconds(tmp_path):
    """More than once a site looks into a mailbox and must know whether it is empty."""
    federation = federation_of(TWO, sv.graphs.complete(2), ALGORITHM, {})

    async def scene(server):
        async with Relay(server.port, 0.6) as relay:
            return await federation.finish(FarWorld(server, relay, federation.agreement), pace=Pace(server=25.0))

    with federation, GuardedServer(tmp_path, [federation]) as server:
        ends = play(scene(server))
    assert {finished.rounds for finished in ends.values()} == {2}


def test_a_server_that_restarts_200_milliseconds_away_is_found_again(tmp_path):
    """A neighbour is judged every half second; dialling takes longer. All that the one site does is to wait."""
    lost = LostNeighbour(policy="wait", wait_seconds=3.0)
    federation = federation_of(TWO, sv.graphs.complete(2), ALGORITHM, {}, lost_neighbour=lost)
    pace, waits = Pace(server=20.0), threading.Event()

    class Seen(Watcher):
        def tell(self, event):
            if isinstance(event, Waiting):
                waits.set()

    async def scene(server):
        async with Relay(server.port, 0.1) as relay:
            world = FarWorld(server, relay, federation.agreement)
            waiting = asyncio.ensure_future(federation.site("berlin", world, pace=pace, watcher=Seen()))
            assert await asyncio.to_thread(waits.wait, LONG)
            await asyncio.to_thread(server.restart)
            return await asyncio.gather(waiting, federation.site("paris", world, pace=pace))

    with federation, GuardedServer(tmp_path, [federation]) as server:
        assert {finished.rounds for finished in play(scene(server))} == {2}


def test_a_neighbour_is_lost_also_where_the_server_is_further_away_than_it_is_judged_often(tmp_path):
    """A server that is merely slow is no excuse: it has said just before that nothing is there."""
    lost = LostNeighbour(policy="stop", wait_seconds=1.2)  # judged every 0.2 s
    federation = federation_of(TWO, sv.graphs.complete(2), ALGORITHM, {}, lost_neighbour=lost)

    async def scene(server):
        async with Relay(server.port, 0.3) as relay:
            world = FarWorld(server, relay, federation.agreement)
            return await federation.site("berlin", world, pace=Pace(server=20.0))

    with federation, GuardedServer(tmp_path, [federation]) as server, pytest.raises(LostNeighbourError, match="paris"):
        play(scene(server))


@pytest.mark.parametrize("seconds", [0.1, 0.25])
def test_looks_that_are_shorter_than_the_way_find_out_in_the_end(tmp_path, seconds):
    """No answer in time is told apart from an empty mailbox, and what was asked is not asked in vain."""

    async def scene(server):
        world = JetStreamWorld(server)
        async with await world.site("a") as a, Relay(server.port, 0.15) as relay:
            await a.put_once(Slot(2, "a"), b"two", LONG)
            url = f"nats://127.0.0.1:{relay.port}"
            async with await JetStreamTransport.connect(url, world.run_id, "b", ["a"], LARGEST, timeout=LONG) as b:
                assert [await patiently(b, 1, seconds), await patiently(b, 2, seconds)] == [None, b"two"]
                await world.stop()
                await world.start()
                assert [await patiently(b, 1, seconds), await patiently(b, 2, seconds)] == [None, b"two"]

    with NatsServer(tmp_path) as server:
        play(scene(server))


async def patiently(site, k, seconds):
    """As a site's mail asks."""
    until = asyncio.get_running_loop().time() + LONG
    while True:
        try:
            return await site.get(Slot(k, "a"), seconds)
        except UnreachableError:
            assert asyncio.get_running_loop().time() < until
